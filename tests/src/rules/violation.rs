//! Rules that no real driver can show: what would be undefined on a GPU is reported and ends the process.

use crate::prelude::*;

/// Kernels and a busy stream with a kernel that will touch `ptr`.
fn pending(ptr: CUdeviceptr) -> (Kernels, CUstream, Gate) {
    let k = Kernels::load();
    let stream = stream();
    let gate = Gate::close(stream);
    k.fill(stream, ptr, 256, 1);
    (k, stream, gate)
}

/// Lets the pending work run into whatever was done to its memory.
fn let_run((_, stream, gate): (Kernels, CUstream, Gate)) {
    gate.open();
    // The process must not come back from here.
    let _ = cuStreamSynchronize(stream);
    let _ = cuCtxSynchronize();
}

/// Ends the process well: whatever has not been reported by now was missed.
fn leave_unreported() {
    std::process::exit(0);
}

pub(super) const RULES: &[Rule] = &[
    rule("violation.kernel_on_freed", "cuLaunchKernel", "A kernel that touches freed memory is reported.", || {
        context();
        let k = Kernels::load();
        let ptr = alloc(MIB);
        free(ptr);
        k.fill(DEFAULT, ptr, 256, 1);
        let _ = cuCtxSynchronize();
    })
    .aborts("violation"),
    rule(
        "violation.kernel_on_unmapped",
        "cuLaunchKernel",
        "A kernel that touches reserved but unmapped memory is reported.",
        || {
            context();
            let k = Kernels::load();
            k.fill(DEFAULT, reserve(granularity()), 256, 1);
            let _ = cuCtxSynchronize();
        },
    )
    .aborts("violation"),
    rule(
        "violation.kernel_without_access",
        "cuMemSetAccess",
        "A kernel that touches mapped memory without access is reported.",
        || {
            context();
            let k = Kernels::load();
            let unit = granularity();
            let (ptr, handle) = (reserve(unit), create(unit));
            map(ptr, unit, handle);
            k.fill(DEFAULT, ptr, 256, 1);
            let _ = cuCtxSynchronize();
        },
    )
    .aborts("violation"),
    rule(
        "violation.kernel_beyond_the_end",
        "cuLaunchKernel",
        "A kernel that touches memory beyond its mapping is reported.",
        || {
            context();
            let k = Kernels::load();
            let unit = granularity();
            let ptr = reserve(2 * unit);
            map(ptr, unit, create(unit));
            grant(ptr, unit);
            k.fill(DEFAULT, ptr + unit as u64 - 512, 256, 1);
            let _ = cuCtxSynchronize();
        },
    )
    .aborts("violation"),
    rule(
        "violation.unmap_pending",
        "cuMemUnmap",
        "Unmapping is no fence: memory unmapped under pending work is reported.",
        || {
            context();
            let mapped = Mapped::units(1);
            let work = pending(mapped.ptr);
            ok(cuMemUnmap(mapped.ptr, mapped.bytes));
            let_run(work);
        },
    )
    .aborts("violation"),
    rule("violation.remap_pending", "cuMemMap", "Memory mapped elsewhere under pending work is reported.", || {
        context();
        let mapped = Mapped::units(1);
        let work = pending(mapped.ptr);
        ok(cuMemUnmap(mapped.ptr, mapped.bytes));
        map(mapped.ptr, mapped.bytes, create(mapped.bytes));
        grant(mapped.ptr, mapped.bytes);
        let_run(work);
    })
    .aborts("violation"),
    rule("violation.revoke_pending", "cuMemSetAccess", "Access taken away under pending work is reported.", || {
        context();
        let mapped = Mapped::units(1);
        let work = pending(mapped.ptr);
        let none = CUmemAccessDesc { flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE, ..read_write(0) };
        ok(set_access(mapped.ptr, mapped.bytes, &[none]));
        let_run(work);
    })
    .aborts("violation"),
    rule(
        "violation.copy_unmapped_pending",
        "cuMemcpyDtoDAsync",
        "A queued copy whose memory is unmapped before it runs is reported.",
        || {
            context();
            let (from, to) = (Mapped::units(1), alloc(4096));
            let stream = stream();
            let gate = Gate::close(stream);
            ok(cuMemcpyDtoDAsync_v2(to, from.ptr, 4096, stream));
            ok(cuMemUnmap(from.ptr, from.bytes));
            gate.open();
            let _ = cuStreamSynchronize(stream);
        },
    )
    .aborts("violation"),
    rule(
        "violation.free_async_too_early",
        "cuMemFreeAsync",
        "Memory freed in one stream while another may still touch it is reported.",
        || {
            super::pool::needs_pools();
            let freeing = stream();
            let pool = super::pool::keeping_pool();
            let ptr = super::pool::alloc_from(pool, MIB, freeing);
            sync(freeing);
            let work = pending(ptr);
            super::pool::free_in(ptr, freeing);
            sync(freeing);
            let_run(work);
        },
    )
    .aborts("violation"),
    rule(
        "violation.use_after_free_async",
        "cuMemFreeAsync",
        "Work queued behind the free of its memory is reported.",
        || {
            super::pool::needs_pools();
            let stream = stream();
            let k = Kernels::load();
            let pool = super::pool::keeping_pool();
            let ptr = super::pool::alloc_from(pool, MIB, stream);
            super::pool::free_in(ptr, stream);
            k.fill(stream, ptr, 256, 1);
            let _ = cuStreamSynchronize(stream);
        },
    )
    .aborts("violation"),
    rule(
        "violation.use_before_alloc",
        "cuMemAllocAsync",
        "Memory used in another stream before its allocation is reached is reported.",
        || {
            super::pool::needs_pools();
            let (allocating, using) = (stream(), stream());
            let k = Kernels::load();
            let pool = super::pool::keeping_pool();
            let gate = Gate::close(allocating);
            let ptr = super::pool::alloc_from(pool, MIB, allocating);
            k.fill(using, ptr, 256, 1);
            let _ = cuStreamSynchronize(using);
            gate.open();
        },
    )
    .aborts("violation"),
    rule(
        "violation.unmap_reported_at_once",
        "cuMemUnmap",
        "Unmapping under pending work is reported by the call, before the work runs into it.",
        || {
            context();
            let mapped = Mapped::units(1);
            let _work = pending(mapped.ptr);
            ok(cuMemUnmap(mapped.ptr, mapped.bytes));
            leave_unreported();
        },
    )
    .aborts("violation"),
    rule(
        "violation.unseen_accuses_nobody",
        "cuMemUnmap",
        "A pending kernel whose arguments cannot be seen accuses no unmapping: it may touch something else.",
        || {
            context();
            let mapped = Mapped::units(1);
            let image = *b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0";
            let mut module = null_mut();
            ok(cuModuleLoadData(&raw mut module, image.as_ptr().cast()));
            let mut unseen = null_mut();
            ok(cuModuleGetFunction(&raw mut unseen, module, c"unseen".as_ptr()));
            let stream = stream();
            let gate = Gate::close(stream);
            ok(cuLaunchKernel(unseen, 1, 1, 1, 1, 1, 1, 0, stream, null_mut(), null_mut()));
            mapped.drop_all();
            gate.open();
            sync(stream);
        },
    )
    .virtual_only(),
    rule(
        "violation.free_async_reported_at_once",
        "cuMemFreeAsync",
        "Freeing in one stream what another may still touch is reported by the call.",
        || {
            super::pool::needs_pools();
            let freeing = stream();
            let pool = super::pool::keeping_pool();
            let ptr = super::pool::alloc_from(pool, MIB, freeing);
            sync(freeing);
            let _work = pending(ptr);
            super::pool::free_in(ptr, freeing);
            leave_unreported();
        },
    )
    .aborts("violation"),
    rule(
        "violation.lenient_goes_on",
        "VGPU_STRICT",
        "Without strictness the report is an illegal address for the context, not an abort.",
        || {
            context();
            let k = Kernels::load();
            k.fill(DEFAULT, reserve(granularity()), 256, 1);
            refused(cuCtxSynchronize(), ILLEGAL_ADDRESS);
            let mut ptr = 0;
            refused(cuMemAlloc_v2(&raw mut ptr, 4096), ILLEGAL_ADDRESS);
        },
    )
    .virtual_only()
    .env(&[("VGPU_STRICT", "off")]),
];

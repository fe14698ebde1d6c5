//! Rules of the host's own instructions: they cannot touch memory of a device, live or freed. Only shown on the
//! virtual GPU: some real machines let the processor reach device memory.

use crate::prelude::*;
use CUmemAccess_flags as Flags;
use CUmemLocationType as L;

/// What an instruction of the host could do at an address. The kernel tries it, on the same page tables, and
/// answers with an error where an instruction would end the process.
#[derive(Debug, PartialEq, Eq)]
struct Touch {
    read: bool,
    write: bool,
}

const NOTHING: Touch = Touch { read: false, write: false };

fn touch(addr: CUdeviceptr) -> Touch {
    let mut pipe = [0; 2];
    // SAFETY: the kernel checks the address before it reads or writes there; whatever is readable there is one
    // byte of memory that this rule made, and it is written back unchanged.
    unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0, "a pipe");
        let read = libc::write(pipe[1], addr as *const libc::c_void, 1) == 1;
        if !read {
            assert_eq!(libc::write(pipe[1], [0u8].as_ptr().cast(), 1), 1);
        }
        let write = libc::read(pipe[0], addr as *mut libc::c_void, 1) == 1;
        libc::close(pipe[0]);
        libc::close(pipe[1]);
        Touch { read, write }
    }
}

fn host(flags: Flags) -> CUmemAccessDesc {
    CUmemAccessDesc { location: location(L::CU_MEM_LOCATION_TYPE_HOST_NUMA, 0), flags }
}

/// Memory of the host by handle, mapped for the device.
fn numa() -> Mapped {
    needs(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
    let unit = granularity();
    let properties = CUmemAllocationProp { location: location(L::CU_MEM_LOCATION_TYPE_HOST_NUMA, 0), ..plain(0) };
    Mapped::of(create_with(unit, &properties), unit)
}

pub(super) const RULES: &[Rule] = &[
    rule("touch.linear_live", "cuMemAlloc", "The host's instructions fault on linear device memory.", || {
        context();
        for bytes in [1, 4096, 8 * MIB] {
            let ptr = alloc(bytes);
            put(ptr, &[7]);
            assert_eq!(touch(ptr), NOTHING, "{bytes} bytes");
            assert_eq!(get(ptr, 1), [7]);
            free(ptr);
        }
    })
    .virtual_only(),
    rule("touch.linear_freed", "cuMemFree", "The host's instructions fault on freed device memory.", || {
        context();
        for bytes in [1, 4096, 8 * MIB] {
            let ptr = alloc(bytes);
            put(ptr, &[7]);
            free(ptr);
            assert_eq!(touch(ptr), NOTHING, "{bytes} bytes");
        }
    })
    .virtual_only(),
    rule("touch.pool", "cuMemAllocAsync", "The host's instructions fault on memory of a pool, live and freed.", || {
        super::pool::needs_pools();
        let (stream, mut ptr) = (stream(), 0);
        ok(cuMemAllocAsync(&raw mut ptr, MIB, stream));
        sync(stream);
        assert_eq!(touch(ptr), NOTHING);
        ok(cuMemFreeAsync(ptr, stream));
        sync(stream);
        assert_eq!(touch(ptr), NOTHING);
    })
    .virtual_only(),
    rule("touch.reserved", "cuMemAddressReserve", "The host's instructions fault on reserved addresses.", || {
        context();
        assert_eq!(touch(reserve(granularity())), NOTHING);
    })
    .virtual_only(),
    rule(
        "touch.mapped",
        "cuMemMap",
        "The host's instructions fault on mapped device memory, with or without access.",
        || {
            context();
            let unit = granularity();
            let (ptr, handle) = (reserve(unit), create(unit));
            map(ptr, unit, handle);
            assert_eq!(touch(ptr), NOTHING, "without access");
            grant(ptr, unit);
            put(ptr, &[7]);
            assert_eq!(touch(ptr), NOTHING, "with access of the device");
            ok(cuMemUnmap(ptr, unit));
            assert_eq!(touch(ptr), NOTHING, "unmapped");
        },
    )
    .virtual_only(),
    rule(
        "touch.host_numa",
        "cuMemSetAccess",
        "The host touches host memory mapped by handle when it was given access, and as that access says.",
        || {
            context();
            let mapped = numa();
            let unit = granularity();
            put(mapped.ptr, &[7]);
            assert_eq!(touch(mapped.ptr), NOTHING, "access of the device alone");
            ok(set_access(mapped.ptr, unit, &[host(Flags::CU_MEM_ACCESS_FLAGS_PROT_READ)]));
            assert_eq!(touch(mapped.ptr), Touch { read: true, write: false });
            ok(set_access(mapped.ptr, unit, &[host(Flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE)]));
            assert_eq!(touch(mapped.ptr), Touch { read: true, write: true });
            // SAFETY: the first byte of the mapping, to which the host has access now.
            unsafe {
                let byte = mapped.ptr as *mut u8;
                assert_eq!(byte.read_volatile(), 7, "what the device wrote");
                byte.write_volatile(8);
            }
            assert_eq!(get(mapped.ptr, 1), [8], "what the host wrote");
            ok(set_access(mapped.ptr, unit, &[host(Flags::CU_MEM_ACCESS_FLAGS_PROT_NONE)]));
            assert_eq!(touch(mapped.ptr), NOTHING, "taken away");
            ok(set_access(mapped.ptr, unit, &[host(Flags::CU_MEM_ACCESS_FLAGS_PROT_READ)]));
            let ptr = mapped.ptr;
            ok(cuMemUnmap(ptr, unit));
            assert_eq!(touch(ptr), NOTHING, "unmapped");
        },
    )
    .virtual_only(),
    rule("touch.pinned", "cuMemAllocHost", "The host touches pinned and managed memory; freed, it is gone.", || {
        context();
        needs_managed();
        let ptr = pinned(4096);
        let all = Touch { read: true, write: true };
        assert_eq!(touch(ptr as CUdeviceptr), all);
        ok(cuMemFreeHost(ptr.cast()));
        assert_eq!(touch(ptr as CUdeviceptr), NOTHING);
        let mut managed = 0;
        ok(cuMemAllocManaged(&raw mut managed, 4096, 1));
        assert_eq!(touch(managed), all);
        free(managed);
        assert_eq!(touch(managed), NOTHING);
    })
    .virtual_only()
    .alone(),
];

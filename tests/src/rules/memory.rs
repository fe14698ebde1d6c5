//! Rules of plain device memory: allocation, freeing, what is reported about it.

use crate::prelude::*;

const GLOBAL: u32 = CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL.0;

fn range(ptr: CUdeviceptr) -> Result<(CUdeviceptr, usize), CUresult> {
    let (mut base, mut size) = (0, 0);
    match cuMemGetAddressRange_v2(&raw mut base, &raw mut size, ptr) {
        CUresult::CUDA_SUCCESS => Ok((base, size)),
        code => Err(code),
    }
}

pub(super) const RULES: &[Rule] = &[
    rule("memory.alloc_zero", "cuMemAlloc", "Zero bytes are an invalid value.", || {
        context();
        let mut ptr = 0;
        refused(cuMemAlloc_v2(&raw mut ptr, 0), INVALID_VALUE);
    }),
    rule("memory.alloc_needs_result", "cuMemAlloc", "A NULL place for the address is an invalid value.", || {
        context();
        refused(cuMemAlloc_v2(null_mut(), 4096), INVALID_VALUE);
    }),
    rule("memory.alloc_too_much", "cuMemAlloc", "More than the device has is out of memory.", || {
        context();
        let mut ptr = 0;
        refused(cuMemAlloc_v2(&raw mut ptr, memory_info().1 + MIB), OUT_OF_MEMORY);
        refused(cuMemAlloc_v2(&raw mut ptr, usize::MAX / 2), OUT_OF_MEMORY);
    }),
    rule("memory.oom_is_no_harm", "cuMemAlloc", "After running out of memory smaller requests succeed.", || {
        context();
        let mut ptr = 0;
        refused(cuMemAlloc_v2(&raw mut ptr, memory_info().1 + MIB), OUT_OF_MEMORY);
        let ptr = alloc(MIB);
        put(ptr, &[1; 64]);
        free(ptr);
    }),
    rule("memory.capacity", "cuMemAlloc", "All allocations together fit into the device.", || {
        context();
        let total = memory_info().1;
        needs_memory(total);
        let mut held = Vec::new();
        loop {
            let mut ptr = 0;
            match cuMemAlloc_v2(&raw mut ptr, total / 8) {
                CUresult::CUDA_SUCCESS => held.push(ptr),
                code => {
                    refused(code, OUT_OF_MEMORY);
                    break;
                }
            }
            assert!(held.len() <= 8, "more than the device has");
        }
        assert!(held.len() >= 4, "only {} eighths", held.len());
        held.into_iter().for_each(free);
    })
    .alone(),
    rule("memory.aligned", "cuMemAlloc", "Allocations are aligned for any type, at least to 256 bytes.", || {
        context();
        for size in [1, 3, 100, 513, 70_000] {
            let ptr = alloc(size);
            assert_eq!(ptr % 256, 0);
        }
    }),
    rule("memory.disjoint", "cuMemAlloc", "Living allocations do not overlap.", || {
        context();
        let blocks: Vec<_> = (0..20).map(|i| (alloc(1000 + i * 777), 1000 + i * 777, i as u8)).collect();
        for (ptr, size, i) in &blocks {
            put(*ptr, &pattern(*size, *i));
        }
        for (ptr, size, i) in blocks {
            assert_eq!(get(ptr, size), pattern(size, i));
            free(ptr);
        }
    }),
    rule("memory.free_twice", "cuMemFree", "Freed memory cannot be freed again.", || {
        context();
        let ptr = alloc(MIB);
        free(ptr);
        refused(cuMemFree_v2(ptr), INVALID_VALUE);
    }),
    rule("memory.free_inside", "cuMemFree", "An address inside an allocation cannot be freed.", || {
        context();
        let ptr = alloc(MIB);
        refused(cuMemFree_v2(ptr + 256), INVALID_VALUE);
        put(ptr, &[1; 16]);
        free(ptr);
    }),
    rule("memory.free_unknown", "cuMemFree", "An address that was never allocated cannot be freed.", || {
        context();
        refused(cuMemFree_v2(0x1234_5000), INVALID_VALUE);
    }),
    rule("memory.free_host_memory", "cuMemFree", "Page-locked host memory is not freed as device memory.", || {
        context();
        let ptr = pinned(4096);
        refused(cuMemFree_v2(ptr as CUdeviceptr), INVALID_VALUE);
        ok(cuMemFreeHost(ptr.cast()));
    }),
    rule("memory.info_within_total", "cuMemGetInfo", "Not more is free than there is.", || {
        context();
        let (free, total) = memory_info();
        assert!(free > 0 && free <= total, "{free} of {total}");
    }),
    rule(
        "memory.info_follows",
        "cuMemGetInfo",
        "An allocation is missing from the free memory and comes back with its free.",
        || {
            context();
            let before = memory_info().0;
            let ptr = alloc(96 * MIB);
            let during = memory_info().0;
            assert!(before - during >= 96 * MIB, "{before} then {during}");
            free(ptr);
            assert!(memory_info().0 >= before);
        },
    )
    .alone(),
    rule("memory.info_needs_context", "cuMemGetInfo", "Without a context there is no memory to report.", || {
        init();
        let (mut free, mut total) = (0, 0);
        refused(cuMemGetInfo_v2(&raw mut free, &raw mut total), INVALID_CONTEXT);
    }),
    rule(
        "memory.range_of_inside",
        "cuMemGetAddressRange",
        "Any address inside an allocation leads to its start and size.",
        || {
            context();
            let ptr = alloc(100_000);
            for inside in [ptr, ptr + 1, ptr + 99_999] {
                let (base, size) = range(inside).unwrap_or_else(|c| panic!("{}", crate::rule::name(c)));
                assert_eq!((base, size), (ptr, 100_000));
            }
            free(ptr);
        },
    ),
    rule("memory.range_results_optional", "cuMemGetAddressRange", "Start or size may be left out.", || {
        context();
        let ptr = alloc(5000);
        let (mut base, mut size) = (0, 0);
        ok(cuMemGetAddressRange_v2(&raw mut base, null_mut(), ptr + 9));
        ok(cuMemGetAddressRange_v2(null_mut(), &raw mut size, ptr + 9));
        assert_eq!((base, size), (ptr, 5000));
        free(ptr);
    }),
    rule("memory.range_unknown", "cuMemGetAddressRange", "An address of no allocation is refused.", || {
        context();
        let ptr = alloc(5000);
        free(ptr);
        let code = range(ptr).expect_err("freed memory has no range");
        refused_by_any(code, &[INVALID_VALUE, NOT_FOUND]);
    }),
    rule("memory.use_after_free", "cuMemcpyDtoH", "Freed memory cannot be copied from or to.", || {
        context();
        let ptr = alloc(64 * MIB);
        free(ptr);
        let mut bytes = [0u8; 16];
        refused(cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), ptr, 16), INVALID_VALUE);
        refused(cuMemcpyHtoD_v2(ptr, bytes.as_ptr().cast(), 16), INVALID_VALUE);
        refused(cuMemsetD8_v2(ptr, 0, 16), INVALID_VALUE);
    })
    .alone(),
    rule(
        "memory.pitch_holds_rows",
        "cuMemAllocPitch",
        "The pitch is at least the width and keeps rows aligned.",
        || {
            context();
            let (mut ptr, mut pitch) = (0, 0);
            ok(cuMemAllocPitch_v2(&raw mut ptr, &raw mut pitch, 1000, 10, 4));
            assert!(pitch >= 1000);
            let align = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT) as usize;
            assert_eq!(pitch % align, 0);
            put(ptr + 9 * pitch as u64, &pattern(1000, 9));
            assert_eq!(get(ptr + 9 * pitch as u64, 1000), pattern(1000, 9));
            free(ptr);
        },
    ),
    rule(
        "memory.pitch_element_size",
        "cuMemAllocPitch",
        "Elements have 4, 8 or 16 bytes; others are an invalid value.",
        || {
            context();
            let (mut ptr, mut pitch) = (0, 0);
            for bad in [0, 1, 3, 5, 32] {
                refused(cuMemAllocPitch_v2(&raw mut ptr, &raw mut pitch, 100, 10, bad), INVALID_VALUE);
            }
        },
    ),
    rule("memory.pitch_zero", "cuMemAllocPitch", "Zero width or height is an invalid value.", || {
        context();
        let (mut ptr, mut pitch) = (0, 0);
        refused(cuMemAllocPitch_v2(&raw mut ptr, &raw mut pitch, 0, 10, 4), INVALID_VALUE);
        refused(cuMemAllocPitch_v2(&raw mut ptr, &raw mut pitch, 100, 0, 4), INVALID_VALUE);
    }),
    rule(
        "memory.pitch_needs_results",
        "cuMemAllocPitch",
        "NULL places for address or pitch are an invalid value.",
        || {
            context();
            let (mut ptr, mut pitch) = (0, 0);
            refused(cuMemAllocPitch_v2(null_mut(), &raw mut pitch, 100, 10, 4), INVALID_VALUE);
            refused(cuMemAllocPitch_v2(&raw mut ptr, null_mut(), 100, 10, 4), INVALID_VALUE);
        },
    ),
    rule(
        "memory.managed_on_both_sides",
        "cuMemAllocManaged",
        "Host and device see managed memory at one address.",
        || {
            context();
            needs(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
            let mut ptr = 0;
            ok(cuMemAllocManaged(&raw mut ptr, 4096, GLOBAL));
            let k = Kernels::load();
            k.fill(DEFAULT, ptr, 1024, 0xABCD);
            ok(cuCtxSynchronize());
            // SAFETY: managed memory is readable and writable by the host while no kernel runs.
            unsafe {
                assert_eq!(*(ptr as *const u32), 0xABCD);
                *(ptr as *mut u32) = 42;
            }
            assert_eq!(get_word(ptr), 42);
            free(ptr);
        },
    ),
    rule(
        "memory.managed_flags",
        "cuMemAllocManaged",
        "Managed memory is attached globally or to the host; other flags are an invalid value.",
        || {
            context();
            needs(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
            let mut ptr = 0;
            refused(cuMemAllocManaged(&raw mut ptr, 4096, 0), INVALID_VALUE);
            refused(cuMemAllocManaged(&raw mut ptr, 4096, 0x80), INVALID_VALUE);
        },
    ),
    rule("memory.managed_zero", "cuMemAllocManaged", "Zero bytes are an invalid value.", || {
        context();
        needs(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
        let mut ptr = 0;
        refused(cuMemAllocManaged(&raw mut ptr, 0, GLOBAL), INVALID_VALUE);
        refused(cuMemAllocManaged(null_mut(), 4096, GLOBAL), INVALID_VALUE);
    }),
    rule("memory.managed_freed_once", "cuMemFree", "Managed memory is freed as device memory, once.", || {
        context();
        needs(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
        let mut ptr = 0;
        ok(cuMemAllocManaged(&raw mut ptr, 4096, GLOBAL));
        free(ptr);
        refused(cuMemFree_v2(ptr), INVALID_VALUE);
    }),
];

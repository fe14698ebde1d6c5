//! Rules of mapped memory: who may touch it, what it holds, how long it lives.

use crate::prelude::*;
use CUmemAccess_flags as Flags;
use CUmemLocationType as L;

fn access_of(ptr: CUdeviceptr) -> Result<u64, CUresult> {
    let mut flags = 77;
    let place = on_device(0);
    match cuMemGetAccess(&raw mut flags, &raw const place, ptr) {
        CUresult::CUDA_SUCCESS => Ok(flags),
        code => Err(code),
    }
}

/// Touches the memory and waits until that is done.
fn touch(ptr: CUdeviceptr) -> CUresult {
    match cuMemsetD8_v2(ptr, 1, 16) {
        CUresult::CUDA_SUCCESS => cuCtxSynchronize(),
        code => code,
    }
}

fn no_access(device: i32) -> CUmemAccessDesc {
    CUmemAccessDesc { flags: Flags::CU_MEM_ACCESS_FLAGS_PROT_NONE, ..read_write(device) }
}

pub(super) const RULES: &[Rule] = &[
    rule("access.none_after_map", "cuMemMap", "Mapped memory cannot be touched before access is granted.", || {
        context();
        let unit = granularity();
        let (ptr, handle) = (reserve(unit), create(unit));
        map(ptr, unit, handle);
        refused_by_any(touch(ptr), &[INVALID_VALUE, ILLEGAL_ADDRESS]);
    })
    .alone(),
    rule(
        "access.none_after_remap",
        "cuMemUnmap",
        "A new mapping starts without access, whatever the old one had.",
        || {
            context();
            let unit = granularity();
            let mapped = Mapped::units(1);
            ok(touch(mapped.ptr));
            ok(cuMemUnmap(mapped.ptr, unit));
            map(mapped.ptr, unit, mapped.handle);
            refused_by_any(touch(mapped.ptr), &[INVALID_VALUE, ILLEGAL_ADDRESS]);
        },
    )
    .alone(),
    rule("access.none_when_unmapped", "cuMemUnmap", "Unmapped memory cannot be touched.", || {
        context();
        let unit = granularity();
        let mapped = Mapped::units(1);
        ok(cuMemUnmap(mapped.ptr, unit));
        refused_by_any(touch(mapped.ptr), &[INVALID_VALUE, ILLEGAL_ADDRESS]);
    })
    .alone(),
    rule("access.none_when_reserved", "cuMemAddressReserve", "Reserved addresses cannot be touched.", || {
        context();
        let ptr = reserve(granularity());
        refused_by_any(touch(ptr), &[INVALID_VALUE, ILLEGAL_ADDRESS]);
    })
    .alone(),
    rule("access.granted", "cuMemSetAccess", "With access granted, copies and kernels reach mapped memory.", || {
        context();
        let mapped = Mapped::units(1);
        put(mapped.ptr, &pattern(10_000, 1));
        assert_eq!(get(mapped.ptr, 10_000), pattern(10_000, 1));
        let k = Kernels::load();
        k.fill(DEFAULT, mapped.ptr, 256, 12);
        ok(cuCtxSynchronize());
        assert!(all_words(mapped.ptr, 256, 12));
        mapped.drop_all();
    }),
    rule("access.whole_size_usable", "cuMemMap", "Every byte of the mapping belongs to the handle.", || {
        context();
        let mapped = Mapped::units(2);
        let last = mapped.ptr + mapped.bytes as u64 - 64;
        put(last, &[9; 64]);
        assert_eq!(get(last, 64), [9; 64]);
        mapped.drop_all();
    }),
    rule(
        "access.across_handles",
        "cuMemSetAccess",
        "One call grants access to several neighbouring mappings, and one copy spans them.",
        || {
            context();
            let unit = granularity();
            let ptr = reserve(3 * unit);
            for i in 0..3 {
                map(ptr + (i * unit) as u64, unit, create(unit));
            }
            grant(ptr, 3 * unit);
            let start = ptr + unit as u64 - 1000;
            put(start, &pattern(2000, 6));
            assert_eq!(get(start, 2000), pattern(2000, 6));
        },
    )
    .alone(),
    rule("access.revoked", "cuMemSetAccess", "Access can be taken away again.", || {
        context();
        let mapped = Mapped::units(1);
        ok(touch(mapped.ptr));
        ok(set_access(mapped.ptr, mapped.bytes, &[no_access(0)]));
        refused_by_any(touch(mapped.ptr), &[INVALID_VALUE, ILLEGAL_ADDRESS]);
    })
    .alone(),
    rule("access.not_for_unmapped", "cuMemSetAccess", "Access is granted to what is wholly mapped.", || {
        context();
        let unit = granularity();
        let (ptr, handle) = (reserve(2 * unit), create(unit));
        refused(set_access(ptr, unit, &[read_write(0)]), INVALID_VALUE);
        map(ptr, unit, handle);
        refused(set_access(ptr, 2 * unit, &[read_write(0)]), INVALID_VALUE);
        ok(cuMemUnmap(ptr, unit));
        ok(cuMemRelease(handle));
        ok(cuMemAddressFree(ptr, 2 * unit));
    }),
    rule("access.needs_descriptions", "cuMemSetAccess", "No description of access is an invalid value.", || {
        context();
        let mapped = Mapped::units(1);
        refused(cuMemSetAccess(mapped.ptr, mapped.bytes, null(), 1), INVALID_VALUE);
        mapped.drop_all();
    }),
    rule("access.flags_unknown", "cuMemSetAccess", "Flags that do not exist are an invalid value.", || {
        context();
        let mapped = Mapped::units(1);
        let bad = CUmemAccessDesc { flags: CUmemAccess_flags_enum(0x40), ..read_write(0) };
        refused(set_access(mapped.ptr, mapped.bytes, &[bad]), INVALID_VALUE);
        mapped.drop_all();
    }),
    rule("access.for_no_device", "cuMemSetAccess", "Access for a device that does not exist is refused.", || {
        context();
        let mapped = Mapped::units(1);
        refused_by_any(set_access(mapped.ptr, mapped.bytes, &[read_write(999)]), &[INVALID_DEVICE, INVALID_VALUE]);
        mapped.drop_all();
    }),
    rule(
        "access.host_numa_not_for_device_memory",
        "cuMemSetAccess",
        "The host gets no access by NUMA node to memory created on a device.",
        || {
            context();
            let mapped = Mapped::units(1);
            let host = CUmemAccessDesc { location: location(L::CU_MEM_LOCATION_TYPE_HOST_NUMA, 0), ..read_write(0) };
            refused(set_access(mapped.ptr, mapped.bytes, &[host]), INVALID_VALUE);
            mapped.drop_all();
        },
    ),
    rule("access.reported", "cuMemGetAccess", "Access is reported from any address of the mapping.", || {
        context();
        let unit = granularity();
        let (ptr, handle) = (reserve(unit), create(unit));
        map(ptr, unit, handle);
        assert_eq!(access_of(ptr), Ok(u64::from(Flags::CU_MEM_ACCESS_FLAGS_PROT_NONE.0)));
        grant(ptr, unit);
        let granted = u64::from(Flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE.0);
        assert_eq!(access_of(ptr + 12_345), Ok(granted));
        ok(cuMemUnmap(ptr, unit));
        ok(cuMemRelease(handle));
        ok(cuMemAddressFree(ptr, unit));
    }),
    rule("access.reported_of_mapped_only", "cuMemGetAccess", "Unmapped addresses have no access to report.", || {
        context();
        let unit = granularity();
        let ptr = reserve(unit);
        assert_eq!(access_of(ptr), Err(INVALID_VALUE));
        ok(cuMemAddressFree(ptr, unit));
    }),
    rule("alias.shares_bytes", "cuMemMap", "Two mappings of one handle show the same bytes.", || {
        context();
        let mapped = Mapped::units(1);
        let alias = Mapped::of(mapped.handle, mapped.bytes);
        put(mapped.ptr + 500, &pattern(5000, 1));
        assert_eq!(get(alias.ptr + 500, 5000), pattern(5000, 1));
        put(alias.ptr + 700, &[0xCC; 100]);
        assert_eq!(get(mapped.ptr + 700, 100), [0xCC; 100]);
        ok(cuMemUnmap(alias.ptr, alias.bytes));
        mapped.drop_all();
    }),
    rule(
        "alias.kernel_writes",
        "cuMemMap",
        "What a finished kernel wrote through one mapping is read through the other.",
        || {
            context();
            let mapped = Mapped::units(1);
            let alias = Mapped::of(mapped.handle, mapped.bytes);
            let k = Kernels::load();
            k.fill(DEFAULT, mapped.ptr, 1024, 0xF00D);
            ok(cuCtxSynchronize());
            let errors = alloc(4);
            put(errors, &[0; 4]);
            k.check(DEFAULT, alias.ptr, 1024, 0xF00D, errors);
            ok(cuCtxSynchronize());
            assert_eq!(get_word(errors), 0);
        },
    )
    .alone(),
    rule("alias.own_access", "cuMemSetAccess", "Every mapping of a handle has an access of its own.", || {
        context();
        let unit = granularity();
        let mapped = Mapped::units(1);
        let other = reserve(unit);
        map(other, unit, mapped.handle);
        ok(touch(mapped.ptr));
        refused_by_any(touch(other), &[INVALID_VALUE, ILLEGAL_ADDRESS]);
    })
    .alone(),
    rule("remap.keeps_content", "cuMemUnmap", "Memory keeps its content when it is mapped elsewhere.", || {
        context();
        let mapped = Mapped::units(1);
        put(mapped.ptr, &pattern(50_000, 2));
        ok(cuMemUnmap(mapped.ptr, mapped.bytes));
        let elsewhere = Mapped::of(mapped.handle, mapped.bytes);
        assert_eq!(get(elsewhere.ptr, 50_000), pattern(50_000, 2));
        elsewhere.drop_all();
        ok(cuMemAddressFree(mapped.ptr, mapped.bytes));
    }),
    rule("remap.swaps_memory", "cuMemMap", "An address shows the bytes of whatever handle is mapped there.", || {
        context();
        let (one, other) = (Mapped::units(1), Mapped::units(1));
        put(one.ptr, &[1; 64]);
        put(other.ptr, &[2; 64]);
        ok(cuMemUnmap(one.ptr, one.bytes));
        ok(cuMemUnmap(other.ptr, other.bytes));
        map(one.ptr, one.bytes, other.handle);
        map(other.ptr, other.bytes, one.handle);
        grant(one.ptr, one.bytes);
        grant(other.ptr, other.bytes);
        assert_eq!(get(one.ptr, 64), [2; 64]);
        assert_eq!(get(other.ptr, 64), [1; 64]);
    })
    .alone(),
    rule(
        "release.while_mapped",
        "cuMemRelease",
        "A handle may be released while mapped: the memory lives until it is unmapped.",
        || {
            context();
            let before = memory_info().0;
            let size = (64 * MIB).next_multiple_of(granularity());
            let mapped = Mapped::of(create(size), size);
            put(mapped.ptr, &[4; 64]);
            ok(cuMemRelease(mapped.handle));
            assert_eq!(get(mapped.ptr, 64), [4; 64]);
            assert!(before - memory_info().0 >= size, "gone while mapped");
            ok(cuMemUnmap(mapped.ptr, mapped.bytes));
            assert!(memory_info().0 >= before, "still there after the last unmap");
            ok(cuMemAddressFree(mapped.ptr, mapped.bytes));
        },
    )
    .alone(),
    rule("release.last_of_all", "cuMemUnmap", "Unmapped memory lives until its handle is released.", || {
        context();
        let before = memory_info().0;
        let size = (64 * MIB).next_multiple_of(granularity());
        let mapped = Mapped::of(create(size), size);
        ok(cuMemUnmap(mapped.ptr, mapped.bytes));
        assert!(before - memory_info().0 >= size, "gone before the release");
        ok(cuMemRelease(mapped.handle));
        assert!(memory_info().0 >= before);
    })
    .alone(),
    rule(
        "retain.same_handle",
        "cuMemRetainAllocationHandle",
        "Any address of a mapping leads to the handle that was mapped.",
        || {
            context();
            let mapped = Mapped::units(1);
            let mut handle = 0;
            ok(cuMemRetainAllocationHandle(&raw mut handle, (mapped.ptr + 777) as *mut c_void));
            assert_eq!(handle, mapped.handle);
            ok(cuMemRelease(handle));
            mapped.drop_all();
        },
    ),
    rule("retain.counts", "cuMemRetainAllocationHandle", "Each retained handle needs a release of its own.", || {
        context();
        let before = memory_info().0;
        let size = (64 * MIB).next_multiple_of(granularity());
        let mapped = Mapped::of(create(size), size);
        let mut handle = 0;
        ok(cuMemRetainAllocationHandle(&raw mut handle, mapped.ptr as *mut c_void));
        ok(cuMemUnmap(mapped.ptr, mapped.bytes));
        ok(cuMemRelease(mapped.handle));
        assert!(before - memory_info().0 >= size, "gone although retained");
        ok(cuMemRelease(handle));
        assert!(memory_info().0 >= before);
    })
    .alone(),
    rule("retain.needs_mapping", "cuMemRetainAllocationHandle", "An unmapped address leads to no handle.", || {
        context();
        let unit = granularity();
        let ptr = reserve(unit);
        let mut handle = 0;
        refused(cuMemRetainAllocationHandle(&raw mut handle, ptr as *mut c_void), INVALID_VALUE);
        ok(cuMemAddressFree(ptr, unit));
    }),
    rule("vmm.not_freed_as_plain", "cuMemFree", "Mapped memory is not freed as plain memory.", || {
        context();
        let mapped = Mapped::units(1);
        refused(cuMemFree_v2(mapped.ptr), INVALID_VALUE);
        put(mapped.ptr, &[1; 16]);
        mapped.drop_all();
    }),
    rule(
        "vmm.address_range_is_mapping",
        "cuMemGetAddressRange",
        "The address range of mapped memory is that of its mapping.",
        || {
            context();
            let unit = granularity();
            let ptr = reserve(4 * unit);
            let (one, two) = (create(unit), create(2 * unit));
            map(ptr, unit, one);
            map(ptr + unit as u64, 2 * unit, two);
            grant(ptr, 3 * unit);
            let (mut base, mut size) = (0, 0);
            ok(cuMemGetAddressRange_v2(&raw mut base, &raw mut size, ptr + 2 * unit as u64));
            assert_eq!((base, size), (ptr + unit as u64, 2 * unit));
        },
    )
    .alone(),
    rule(
        "numa.host_memory",
        "cuMemCreate",
        "Memory of a host NUMA node is mapped like device memory and takes none from the device.",
        || {
            context();
            needs(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
            let unit = granularity();
            let size = (64 * MIB).next_multiple_of(unit);
            let before = memory_info().0;
            let numa = CUmemAllocationProp { location: location(L::CU_MEM_LOCATION_TYPE_HOST_NUMA, 0), ..plain(0) };
            let mapped = Mapped::of(create_with(size, &numa), size);
            assert!(before - memory_info().0 < size, "charged to the device");
            put(mapped.ptr, &pattern(4096, 8));
            assert_eq!(get(mapped.ptr, 4096), pattern(4096, 8));
            mapped.drop_all();
        },
    )
    .alone(),
    rule("access.peer_separate", "cuMemSetAccess", "Access is granted to each device by itself.", || {
        context();
        let mapped = Mapped::units(1);
        let mut flags = 77;
        let other = on_device(1);
        ok(cuMemGetAccess(&raw mut flags, &raw const other, mapped.ptr));
        assert_eq!(flags, 0, "the other device has access by itself");
        let mut can = 0;
        ok(cuDeviceCanAccessPeer(&raw mut can, 1, 0));
        if can == 0 {
            skip("the devices can't reach each other");
        }
        ok(set_access(mapped.ptr, mapped.bytes, &[read_write(1)]));
        ok(cuMemGetAccess(&raw mut flags, &raw const other, mapped.ptr));
        assert_eq!(flags, u64::from(Flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE.0));
        put(mapped.ptr, &[3; 64]);
        context_on(1);
        assert_eq!(get(mapped.ptr, 64), [3; 64]);
    })
    .devices(2),
];

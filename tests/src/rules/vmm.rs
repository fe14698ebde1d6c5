//! Rules of virtual memory management: reserving addresses, creating memory, mapping and unmapping.

use crate::prelude::*;
use CUmemAllocationGranularity_flags as G;
use CUmemLocationType as L;

fn create_refused(bytes: usize, properties: &CUmemAllocationProp, flags: u64, with: &[CUresult]) {
    let mut handle = 0;
    refused_by_any(cuMemCreate(&raw mut handle, bytes, properties, flags), with);
}

fn reserve_refused(bytes: usize, alignment: usize, hint: u64, flags: u64) {
    let mut ptr = 0;
    refused(cuMemAddressReserve(&raw mut ptr, bytes, alignment, hint, flags), INVALID_VALUE);
}

/// Reserves `units` granules and maps a handle of one granule to each of the first `mapped`.
fn row(units: usize, mapped: usize) -> (CUdeviceptr, usize, Vec<CUmemGenericAllocationHandle>) {
    let unit = granularity();
    let ptr = reserve(units * unit);
    let handles: Vec<_> = (0..mapped).map(|_| create(unit)).collect();
    for (i, handle) in handles.iter().enumerate() {
        map(ptr + (i * unit) as u64, unit, *handle);
    }
    (ptr, unit, handles)
}

pub(super) const RULES: &[Rule] = &[
    rule(
        "vmm.granularity",
        "cuMemGetAllocationGranularity",
        "The recommended granularity is a multiple of the minimum, a power of two of at least a page.",
        || {
            context();
            let minimum = granularity();
            assert!(minimum.is_power_of_two() && minimum >= 4096, "{minimum}");
            let mut recommended = 0;
            let properties = plain(0);
            ok(cuMemGetAllocationGranularity(
                &raw mut recommended,
                &raw const properties,
                G::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED,
            ));
            assert!(recommended >= minimum && recommended % minimum == 0);
        },
    ),
    rule(
        "vmm.granularity_needs_arguments",
        "cuMemGetAllocationGranularity",
        "NULL for result or properties and unknown options are an invalid value.",
        || {
            context();
            let (mut unit, properties) = (granularity(), plain(0));
            let option = G::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
            refused(cuMemGetAllocationGranularity(null_mut(), &raw const properties, option), INVALID_VALUE);
            refused(cuMemGetAllocationGranularity(&raw mut unit, null(), option), INVALID_VALUE);
            let unknown = CUmemAllocationGranularity_flags_enum(9);
            refused(cuMemGetAllocationGranularity(&raw mut unit, &raw const properties, unknown), INVALID_VALUE);
        },
    ),
    rule("vmm.reserve_zero", "cuMemAddressReserve", "Zero bytes are an invalid value.", || {
        context();
        granularity();
        reserve_refused(0, 0, 0, 0);
    }),
    rule("vmm.reserve_odd_size", "cuMemAddressReserve", "The size must be a multiple of the page size.", || {
        context();
        reserve_refused(granularity() + 1, 0, 0, 0);
    }),
    rule("vmm.reserve_odd_alignment", "cuMemAddressReserve", "The alignment must be zero or a power of two.", || {
        context();
        let unit = granularity();
        reserve_refused(unit, 3 * unit, 0, 0);
    }),
    rule("vmm.reserve_flags", "cuMemAddressReserve", "Flags must be zero.", || {
        context();
        reserve_refused(granularity(), 0, 0, 1);
    }),
    rule(
        "vmm.reserve_needs_result",
        "cuMemAddressReserve",
        "A NULL place for the address is an invalid value.",
        || {
            context();
            refused(cuMemAddressReserve(null_mut(), granularity(), 0, 0, 0), INVALID_VALUE);
        },
    ),
    rule("vmm.reserve_alignment_kept", "cuMemAddressReserve", "The address is aligned as requested.", || {
        context();
        let unit = granularity();
        let mut ptr = 0;
        ok(cuMemAddressReserve(&raw mut ptr, unit, 64 * unit, 0, 0));
        assert_eq!(ptr % (64 * unit) as u64, 0);
        ok(cuMemAddressFree(ptr, unit));
    }),
    rule("vmm.reserve_disjoint", "cuMemAddressReserve", "Reservations do not overlap, whatever the hint.", || {
        context();
        let unit = granularity();
        let first = reserve(4 * unit);
        let mut second = 0;
        ok(cuMemAddressReserve(&raw mut second, 4 * unit, 0, first, 0));
        assert!(second >= first + 4 * unit as u64 || second + 4 * unit as u64 <= first);
        ok(cuMemAddressFree(first, 4 * unit));
        ok(cuMemAddressFree(second, 4 * unit));
    }),
    rule(
        "vmm.reserve_takes_no_memory",
        "cuMemAddressReserve",
        "More addresses can be reserved than there is memory, at no cost in memory.",
        || {
            context();
            let unit = granularity();
            let (free, total) = memory_info();
            let size = (2 * total).next_multiple_of(unit);
            needs_address_space(size);
            let ptr = reserve(size);
            assert_eq!(memory_info().0, free);
            ok(cuMemAddressFree(ptr, size));
        },
    ),
    rule("vmm.address_free_size", "cuMemAddressFree", "The size must be that of the reservation.", || {
        context();
        let unit = granularity();
        let ptr = reserve(4 * unit);
        refused(cuMemAddressFree(ptr, 2 * unit), INVALID_VALUE);
        refused(cuMemAddressFree(ptr, 8 * unit), INVALID_VALUE);
        ok(cuMemAddressFree(ptr, 4 * unit));
    }),
    rule("vmm.address_free_inside", "cuMemAddressFree", "The address must be that of the reservation.", || {
        context();
        let unit = granularity();
        let ptr = reserve(4 * unit);
        refused(cuMemAddressFree(ptr + unit as u64, 3 * unit), INVALID_VALUE);
        ok(cuMemAddressFree(ptr, 4 * unit));
    }),
    rule("vmm.address_free_twice", "cuMemAddressFree", "A reservation can be freed once.", || {
        context();
        let unit = granularity();
        let ptr = reserve(unit);
        ok(cuMemAddressFree(ptr, unit));
        refused(cuMemAddressFree(ptr, unit), INVALID_VALUE);
    }),
    rule("vmm.address_free_mapped", "cuMemAddressFree", "A reservation with mappings cannot be freed.", || {
        context();
        let (ptr, unit, handles) = row(2, 1);
        must_fail(cuMemAddressFree(ptr, 2 * unit));
        ok(cuMemUnmap(ptr, unit));
        ok(cuMemAddressFree(ptr, 2 * unit));
        ok(cuMemRelease(handles[0]));
    })
    .virtual_only(),
    rule("vmm.create_zero", "cuMemCreate", "Zero bytes are an invalid value.", || {
        context();
        granularity();
        create_refused(0, &plain(0), 0, &[INVALID_VALUE]);
    }),
    rule(
        "vmm.create_off_granularity",
        "cuMemCreate",
        "The size must be a multiple of the minimum granularity.",
        || {
            context();
            let unit = granularity();
            create_refused(unit + 4096, &plain(0), 0, &[INVALID_VALUE]);
            create_refused(unit / 2, &plain(0), 0, &[INVALID_VALUE]);
        },
    ),
    rule("vmm.create_flags", "cuMemCreate", "Flags must be zero.", || {
        context();
        create_refused(granularity(), &plain(0), 1, &[INVALID_VALUE]);
    }),
    rule("vmm.create_needs_arguments", "cuMemCreate", "NULL for handle or properties is an invalid value.", || {
        context();
        let (unit, properties) = (granularity(), plain(0));
        let mut handle = 0;
        refused(cuMemCreate(null_mut(), unit, &raw const properties, 0), INVALID_VALUE);
        refused(cuMemCreate(&raw mut handle, unit, null(), 0), INVALID_VALUE);
    }),
    rule("vmm.create_type", "cuMemCreate", "The type of memory must be pinned.", || {
        context();
        let bad = CUmemAllocationProp { type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_INVALID, ..plain(0) };
        create_refused(granularity(), &bad, 0, &[INVALID_VALUE]);
    }),
    rule("vmm.create_on_no_device", "cuMemCreate", "A device that does not exist is refused.", || {
        context();
        create_refused(granularity(), &plain(999), 0, &[INVALID_DEVICE, INVALID_VALUE]);
    }),
    rule(
        "vmm.create_location_invalid",
        "cuMemCreate",
        "The current NUMA node is no location for memory, nor is none.",
        || {
            context();
            for kind in [L::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, L::CU_MEM_LOCATION_TYPE_INVALID] {
                let bad = CUmemAllocationProp { location: location(kind, 0), ..plain(0) };
                create_refused(granularity(), &bad, 0, &[INVALID_VALUE]);
            }
        },
    ),
    rule("vmm.create_too_much", "cuMemCreate", "More than the device has is out of memory.", || {
        context();
        let size = (memory_info().1 + MIB).next_multiple_of(granularity());
        create_refused(size, &plain(0), 0, &[OUT_OF_MEMORY]);
    }),
    rule(
        "vmm.create_is_charged",
        "cuMemCreate",
        "Created memory is missing from the free memory before it is mapped.",
        || {
            context();
            let size = (64 * MIB).next_multiple_of(granularity());
            let before = memory_info().0;
            let handle = create(size);
            assert!(before - memory_info().0 >= size);
            ok(cuMemRelease(handle));
            assert!(memory_info().0 >= before);
        },
    )
    .alone(),
    rule(
        "vmm.properties_reported",
        "cuMemGetAllocationPropertiesFromHandle",
        "A handle reports the properties it was created with.",
        || {
            context();
            let handle = create_with(granularity(), &exportable(0));
            let mut got = CUmemAllocationProp::default();
            ok(cuMemGetAllocationPropertiesFromHandle(&raw mut got, handle));
            assert_eq!(got.type_, CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED);
            assert_eq!(got.requestedHandleTypes, FD);
            assert_eq!(got.location.type_, L::CU_MEM_LOCATION_TYPE_DEVICE);
            assert_eq!(got.location.id(), 0);
            ok(cuMemRelease(handle));
        },
    ),
    rule("vmm.map_offset_must_be_zero", "cuMemMap", "The offset must be zero.", || {
        context();
        let unit = granularity();
        let (ptr, handle) = (reserve(2 * unit), create(2 * unit));
        refused(cuMemMap(ptr, unit, unit, handle, 0), INVALID_VALUE);
        refused(cuMemMap(ptr, 2 * unit, unit, handle, 0), INVALID_VALUE);
        ok(cuMemRelease(handle));
        ok(cuMemAddressFree(ptr, 2 * unit));
    }),
    rule("vmm.map_off_granularity", "cuMemMap", "Address and size must be multiples of the granularity.", || {
        context();
        let unit = granularity();
        let (ptr, handle) = (reserve(4 * unit), create(2 * unit));
        refused(cuMemMap(ptr, unit + 4096, 0, handle, 0), INVALID_VALUE);
        refused(cuMemMap(ptr + 4096, unit, 0, handle, 0), INVALID_VALUE);
        refused(cuMemMap(ptr, 0, 0, handle, 0), INVALID_VALUE);
        ok(cuMemRelease(handle));
        ok(cuMemAddressFree(ptr, 4 * unit));
    }),
    rule("vmm.map_larger_than_handle", "cuMemMap", "Not more can be mapped than the handle has.", || {
        context();
        let unit = granularity();
        let (ptr, handle) = (reserve(4 * unit), create(unit));
        refused(cuMemMap(ptr, 2 * unit, 0, handle, 0), INVALID_VALUE);
        ok(cuMemRelease(handle));
        ok(cuMemAddressFree(ptr, 4 * unit));
    }),
    rule("vmm.map_outside_reservation", "cuMemMap", "Memory is mapped into a reservation and nowhere else.", || {
        context();
        let unit = granularity();
        let (ptr, handle) = (reserve(2 * unit), create(2 * unit));
        refused(cuMemMap(ptr + unit as u64, 2 * unit, 0, handle, 0), INVALID_VALUE);
        ok(cuMemAddressFree(ptr, 2 * unit));
        refused(cuMemMap(ptr, 2 * unit, 0, handle, 0), INVALID_VALUE);
        ok(cuMemRelease(handle));
    }),
    rule("vmm.map_over_mapping", "cuMemMap", "What is mapped cannot be mapped over.", || {
        context();
        let (ptr, unit, handles) = row(3, 2);
        let other = create(unit);
        refused(cuMemMap(ptr + unit as u64, unit, 0, other, 0), INVALID_VALUE);
        let wide = create(2 * unit);
        refused(cuMemMap(ptr + unit as u64, 2 * unit, 0, wide, 0), INVALID_VALUE);
        ok(cuMemUnmap(ptr, 2 * unit));
        for handle in handles.into_iter().chain([other, wide]) {
            ok(cuMemRelease(handle));
        }
        ok(cuMemAddressFree(ptr, 3 * unit));
    }),
    rule("vmm.map_flags", "cuMemMap", "Flags must be zero.", || {
        context();
        let unit = granularity();
        let (ptr, handle) = (reserve(unit), create(unit));
        refused(cuMemMap(ptr, unit, 0, handle, 1), INVALID_VALUE);
        ok(cuMemRelease(handle));
        ok(cuMemAddressFree(ptr, unit));
    }),
    rule("vmm.map_released_handle", "cuMemMap", "A handle that was released cannot be mapped.", || {
        context();
        let unit = granularity();
        let (ptr, handle) = (reserve(unit), create(unit));
        ok(cuMemRelease(handle));
        must_fail(cuMemMap(ptr, unit, 0, handle, 0));
        must_fail(cuMemRelease(handle));
        ok(cuMemAddressFree(ptr, unit));
    })
    .virtual_only(),
    rule("vmm.map_on_plain_memory", "cuMemMap", "Plain memory is no reservation.", || {
        context();
        let unit = granularity();
        let (ptr, handle) = (alloc(4 * unit), create(unit));
        let aligned = ptr.next_multiple_of(unit as u64);
        refused(cuMemMap(aligned, unit, 0, handle, 0), INVALID_VALUE);
        ok(cuMemRelease(handle));
        free(ptr);
    }),
    rule("vmm.unmap_part", "cuMemUnmap", "A part of a mapping cannot be unmapped.", || {
        context();
        let unit = granularity();
        let mapped = Mapped::units(2);
        refused(cuMemUnmap(mapped.ptr, unit), INVALID_VALUE);
        refused(cuMemUnmap(mapped.ptr + unit as u64, unit), INVALID_VALUE);
        put(mapped.ptr, &[1; 16]);
        mapped.drop_all();
    }),
    rule("vmm.unmap_several", "cuMemUnmap", "One call may unmap several whole neighbours.", || {
        context();
        let (ptr, unit, handles) = row(3, 3);
        ok(cuMemUnmap(ptr, 3 * unit));
        for handle in handles {
            map(ptr, unit, handle);
            ok(cuMemUnmap(ptr, unit));
            ok(cuMemRelease(handle));
        }
        ok(cuMemAddressFree(ptr, 3 * unit));
    }),
    rule("vmm.unmap_one_of_several", "cuMemUnmap", "A whole mapping between others can be unmapped.", || {
        context();
        let (ptr, unit, handles) = row(3, 3);
        grant(ptr, 3 * unit);
        put(ptr, &[1; 16]);
        put(ptr + 2 * unit as u64, &[3; 16]);
        ok(cuMemUnmap(ptr + unit as u64, unit));
        assert_eq!(get(ptr, 16), [1; 16]);
        assert_eq!(get(ptr + 2 * unit as u64, 16), [3; 16]);
        ok(cuMemUnmap(ptr, unit));
        ok(cuMemUnmap(ptr + 2 * unit as u64, unit));
        for handle in handles {
            ok(cuMemRelease(handle));
        }
        ok(cuMemAddressFree(ptr, 3 * unit));
    }),
    rule("vmm.unmap_unmapped", "cuMemUnmap", "What is not mapped cannot be unmapped.", || {
        context();
        let (ptr, unit, handles) = row(2, 1);
        refused(cuMemUnmap(ptr + unit as u64, unit), INVALID_VALUE);
        ok(cuMemUnmap(ptr, unit));
        refused(cuMemUnmap(ptr, unit), INVALID_VALUE);
        ok(cuMemRelease(handles[0]));
        ok(cuMemAddressFree(ptr, 2 * unit));
    }),
    rule("vmm.unmap_needs_whole_ends", "cuMemUnmap", "A range that ends inside a mapping cannot be unmapped.", || {
        context();
        let unit = granularity();
        let ptr = reserve(3 * unit);
        let (small, large) = (create(unit), create(2 * unit));
        map(ptr, unit, small);
        map(ptr + unit as u64, 2 * unit, large);
        refused(cuMemUnmap(ptr, 2 * unit), INVALID_VALUE);
        ok(cuMemUnmap(ptr, 3 * unit));
        ok(cuMemRelease(small));
        ok(cuMemRelease(large));
        ok(cuMemAddressFree(ptr, 3 * unit));
    }),
];

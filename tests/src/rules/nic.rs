//! Rules of third parties that pin device memory and reach it later: the virtual GPU's own functions for tests.

use crate::driver::{nic_deregister, nic_read, nic_register, nic_stale, nic_write};
use crate::prelude::*;

fn for_rdma() -> CUmemAllocationProp {
    let mut wanted = plain(0);
    wanted.allocFlags.gpuDirectRDMACapable = 1;
    wanted
}

pub(super) const RULES: &[Rule] = &[
    rule("nic.reaches_linear", "VGPU_RDMA", "A third party reads and writes memory that it has pinned.", || {
        context();
        let ptr = alloc(4 * MIB);
        put(ptr, &[1, 2, 3, 4]);
        let key = nic_register(ptr, 4 * MIB as u64).expect("a key");
        assert_eq!(nic_read(key, 0, 4), [1, 2, 3, 4]);
        nic_write(key, 2 * MIB as u64, &[9, 8]);
        assert_eq!(get(ptr + 2 * MIB as u64, 2), [9, 8]);
        assert_eq!(nic_stale(key), 0);
        nic_deregister(key);
        free(ptr);
    })
    .virtual_only()
    .env(&[("VGPU_RDMA", "on")]),
    rule(
        "nic.keeps_its_pages",
        "VGPU_RDMA",
        "Pages that were unmapped and replaced under a registration are still the ones that a third party writes.",
        || {
            context();
            let unit = granularity();
            let (old, new, ptr) = (create_with(unit, &for_rdma()), create_with(unit, &for_rdma()), reserve(unit));
            map(ptr, unit, old);
            grant(ptr, unit);
            let key = nic_register(ptr, unit as u64).expect("a key");
            ok(cuMemUnmap(ptr, unit));
            map(ptr, unit, new);
            grant(ptr, unit);
            nic_write(key, 0, &[7; 16]);
            assert_eq!(get(ptr, 16), [0; 16], "the new pages are not the card's");
            assert_eq!(nic_stale(key), unit as i64);
            let again = Mapped::of(old, unit);
            assert_eq!(get(again.ptr, 16), [7; 16]);
        },
    )
    .virtual_only()
    .env(&[("VGPU_RDMA", "on"), ("VGPU_VMM", "on")]),
    rule(
        "nic.needs_the_flag",
        "VGPU_RDMA",
        "Mapped memory can be pinned only if it was created for third parties; memory of a pool cannot.",
        || {
            context();
            let mapped = Mapped::units(1);
            assert_eq!(nic_register(mapped.ptr, mapped.bytes as u64), Err(NOT_SUPPORTED));
            mapped.drop_all();
        },
    )
    .virtual_only()
    .env(&[("VGPU_RDMA", "on"), ("VGPU_VMM", "on")]),
];

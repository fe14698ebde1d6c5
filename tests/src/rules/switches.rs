//! Rules of the virtual GPU's own switches, and of several processes on one device.

use crate::driver::{vgpu_physical_bytes, vgpu_physical_peak, vgpu_unsupported_count};
use crate::prelude::*;

/// The other process: takes half of the device and says whether it got it; ends on command or when killed.
fn take_half(wire: &mut Wire) {
    context();
    let (_, total) = memory_info();
    let mut ptr = 0;
    let code = cuMemAlloc_v2(&raw mut ptr, total / 2);
    wire.send_u64(u64::from(code.0));
    wire.receive_u64();
}

fn start_taker(id: &str) -> Peer {
    let mut peer = Peer::start(id, &[]);
    assert_eq!(peer.wire.receive_u64(), 0, "the other process got no memory");
    peer
}

/// Managed memory comes to the device that touches it, unless it prefers the host and is reached there.
fn managed_follows(before: u64) {
    if attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS) == 0 {
        return;
    }
    let (bytes, mut ptr) = (4 * MIB, 0);
    ok(cuMemAllocManaged(&raw mut ptr, bytes, 1));
    ok(cuMemAdvise(ptr, bytes, CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, -1));
    ok(cuMemAdvise(ptr, bytes, CUmem_advise::CU_MEM_ADVISE_SET_ACCESSED_BY, 0));
    ok(cuMemsetD8_v2(ptr, 1, bytes));
    assert_eq!(vgpu_physical_bytes(0), before, "it prefers the host");
    ok(cuMemAdvise(ptr, bytes, CUmem_advise::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, 0));
    ok(cuMemsetD8_v2(ptr, 1, bytes));
    assert_eq!(vgpu_physical_bytes(0) - before, bytes as u64);
    free(ptr);
}

pub(super) const RULES: &[Rule] = &[
    rule("switch.memory_size", "VGPU_MEM", "VGPU_MEM decides how much memory a device has.", || {
        context();
        assert_eq!(memory_info().1, 3 << 30);
    })
    .virtual_only()
    .env(&[("VGPU_MEM", "3GiB")]),
    rule("switch.device_count", "VGPU_DEVICES", "VGPU_DEVICES decides how many devices there are.", || {
        init();
        let mut count = 0;
        ok(cuDeviceGetCount(&raw mut count));
        assert_eq!(count, 5);
    })
    .virtual_only()
    .env(&[("VGPU_DEVICES", "5"), ("VGPU_MIG", "off")]),
    rule("switch.driver_version", "VGPU_DRIVER", "VGPU_DRIVER decides the version of the driver.", || {
        assert_eq!(driver_version(), 11040);
    })
    .virtual_only()
    .env(&[("VGPU_DRIVER", "11.4")]),
    rule("switch.compute_capability", "VGPU_COMPUTE", "VGPU_COMPUTE decides the compute capability.", || {
        init();
        assert_eq!(attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 9);
        assert_eq!(attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), 0);
    })
    .virtual_only()
    .env(&[("VGPU_COMPUTE", "9.0")]),
    rule(
        "switch.no_virtual_memory",
        "VGPU_VMM",
        "Without virtual memory management its functions are not supported and the attribute says so.",
        || {
            context();
            let supported = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
            assert_eq!(attribute(supported), 0);
            let mut ptr = 0;
            refused(cuMemAddressReserve(&raw mut ptr, 2 * MIB, 0, 0, 0), NOT_SUPPORTED);
            let (mut handle, wanted) = (0, plain(0));
            refused(cuMemCreate(&raw mut handle, 2 * MIB, &raw const wanted, 0), NOT_SUPPORTED);
            free(alloc(MIB));
        },
    )
    .virtual_only()
    .env(&[("VGPU_VMM", "off")]),
    rule(
        "switch.granularity",
        "VGPU_GRANULARITY",
        "VGPU_GRANULARITY decides the unit of virtual memory management.",
        || {
            context();
            assert_eq!(granularity(), 64 * 1024);
            Mapped::units(3).drop_all();
        },
    )
    .virtual_only()
    .env(&[("VGPU_GRANULARITY", "64KiB")]),
    rule("switch.fail_at_call", "VGPU_FAIL", "VGPU_FAIL lets the n-th call of a function fail and no other.", || {
        context();
        let unit = granularity();
        let wanted = plain(0);
        let codes: Vec<_> = (0..4)
            .map(|_| {
                let mut handle = 0;
                cuMemCreate(&raw mut handle, unit, &raw const wanted, 0)
            })
            .collect();
        let good = CUresult::CUDA_SUCCESS;
        assert_eq!(codes, [good, good, OUT_OF_MEMORY, good]);
    })
    .virtual_only()
    .env(&[("VGPU_FAIL", "cuMemCreate:3")]),
    rule("switch.fail_above_size", "VGPU_FAIL", "VGPU_FAIL lets requests above a size fail.", || {
        context();
        let mut ptr = 0;
        refused(cuMemAlloc_v2(&raw mut ptr, 65 * MIB), OUT_OF_MEMORY);
        free(alloc(63 * MIB));
    })
    .virtual_only()
    .env(&[("VGPU_FAIL", "oom>64MiB")]),
    rule("switch.no_backing", "VGPU_BACKING", "Without backing a device may be larger than the host.", || {
        context();
        assert_eq!(memory_info().1, 80 << 30);
        let ptrs: Vec<_> = (0..7).map(|_| alloc(10 << 30)).collect();
        let mut more = 0;
        refused(cuMemAlloc_v2(&raw mut more, 20 << 30), OUT_OF_MEMORY);
        ptrs.into_iter().for_each(free);
    })
    .virtual_only()
    .env(&[("VGPU_BACKING", "none"), ("VGPU_MEM", "80GiB")]),
    rule(
        "switch.no_backing_small",
        "VGPU_BACKING",
        "Without backing the bytes of small copies, sets and computed kernels are kept, and larger ones forgotten.",
        || {
            context();
            let (ptr, copy, k) = (alloc(8 * MIB), alloc(8 * MIB), Kernels::load());
            put(ptr, &pattern(100, 3));
            ok(cuMemcpyDtoD_v2(copy, ptr, 100));
            assert_eq!(get(copy, 100), pattern(100, 3));
            k.fill(DEFAULT, ptr, 16, 7);
            assert!(all_words(ptr, 16, 7));
            ok(cuMemsetD8_v2(ptr + 8, 9, 4));
            assert_eq!(get(ptr + 7, 6), [0, 9, 9, 9, 9, 7]);
            ok(cuMemcpyDtoD_v2(ptr, copy, 8 * MIB));
            assert_eq!(get(ptr, 16), [0; 16]);
        },
    )
    .virtual_only()
    .env(&[("VGPU_BACKING", "none")]),
    rule("switch.cost", "VGPU_COST", "VGPU_COST makes calls take their time.", || {
        context();
        let start = std::time::Instant::now();
        for _ in 0..10 {
            free(alloc(4096));
        }
        assert!(start.elapsed().as_millis() >= 50, "{:?} for ten calls of 5 ms", start.elapsed());
    })
    .virtual_only()
    .env(&[("VGPU_COST", "cuMemAlloc=5ms")]),
    rule(
        "switch.seeds_keep_order",
        "VGPU_SEED",
        "Whatever the seed, streams, events and the default stream keep their order.",
        || {
            context();
            let k = Kernels::load();
            let (one, other, blocking) = (stream(), stream(), stream_with(0));
            let (a, b, c) = (alloc(4096), alloc(4096), alloc(4096));
            for round in 0..50 {
                let event = event();
                k.fill(one, a, 1024, round);
                ok(cuEventRecord(event, one));
                ok(cuStreamWaitEvent(other, event, 0));
                k.copy(other, b, a, 1024);
                sync(other);
                assert!(all_words(b, 1024, round));
                k.fill(blocking, c, 1024, round);
                k.copy(DEFAULT, b, c, 1024);
                assert_eq!(get_word(b), round);
            }
        },
    )
    .virtual_only()
    .env(&[("VGPU_SEED", "987654321")]),
    rule("switch.trace", "VGPU_TRACE", "VGPU_TRACE logs every call with its result as a line of JSON.", || {
        context();
        let ptr = alloc(4096);
        refused(cuMemFree_v2(ptr + 256), INVALID_VALUE);
        free(ptr);
        let file = std::env::var("VGPU_TRACE").expect("the variable that this rule sets");
        let text = std::fs::read_to_string(file).expect("the log");
        let lines: Vec<serde_json::Value> =
            text.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{l}: {e}"))).collect();
        let of = |name: &str| lines.iter().filter(|l| l["fn"] == name).collect::<Vec<_>>();
        assert_eq!(of("cuMemAlloc_v2").len(), 1);
        assert_eq!(of("cuMemAlloc_v2")[0]["args"]["bytesize"], 4096);
        let results: Vec<_> = of("cuMemFree_v2").iter().map(|l| l["result"].clone()).collect();
        assert_eq!(results, ["CUDA_ERROR_INVALID_VALUE", "CUDA_SUCCESS"]);
    })
    .virtual_only()
    .env(&[("VGPU_TRACE", "@file")]),
    rule(
        "switch.unsupported_is_counted",
        "cuDestroyExternalMemory",
        "A function that is not implemented says so and is counted.",
        || {
            context();
            let before = vgpu_unsupported_count();
            refused(cuDestroyExternalMemory(null_mut()), NOT_SUPPORTED);
            assert_eq!(vgpu_unsupported_count(), before + 1);
        },
    )
    .virtual_only(),
    rule(
        "switch.physical_bytes",
        "VGPU_MEM",
        "The physical memory of a process follows what it takes and gives back.",
        || {
            context();
            let before = vgpu_physical_bytes(0);
            let ptr = alloc(32 * MIB);
            assert!(vgpu_physical_bytes(0) - before >= 32 * MIB as u64);
            let most = vgpu_physical_bytes(0);
            free(ptr);
            assert_eq!(vgpu_physical_bytes(0), before);
            assert_eq!(vgpu_physical_peak(0), most, "the most stays");
            let mapped = Mapped::units(4);
            assert_eq!(vgpu_physical_bytes(0) - before, mapped.bytes as u64);
            let alias = Mapped::of(mapped.handle, mapped.bytes);
            assert_eq!(vgpu_physical_bytes(0) - before, mapped.bytes as u64, "a second mapping takes nothing");
            ok(cuMemUnmap(alias.ptr, alias.bytes));
            mapped.drop_all();
            assert_eq!(vgpu_physical_bytes(0), before);
            managed_follows(before);
        },
    )
    .virtual_only()
    .env(&[("VGPU_PAGE_TABLES", "0")]),
    rule("shared.missing_for_others", "VGPU_SHARED", "What one process holds is missing for the others.", || {
        context();
        let (before, total) = memory_info();
        let peer = start_taker("shared.missing_for_others");
        let during = memory_info().0;
        assert!(before - during >= total / 2, "{before} then {during}");
        let mut ptr = 0;
        refused(cuMemAlloc_v2(&raw mut ptr, total / 10 * 7), OUT_OF_MEMORY);
        peer.kill();
    })
    .virtual_only()
    .env(&[("VGPU_SHARED", "@file")])
    .peer(take_half),
    rule("shared.back_after_kill", "VGPU_SHARED", "What a killed process held is free again at once.", || {
        context();
        let (before, total) = memory_info();
        start_taker("shared.back_after_kill").kill();
        assert_eq!(memory_info().0, before);
        free(alloc(total / 10 * 7));
    })
    .virtual_only()
    .env(&[("VGPU_SHARED", "@file")])
    .peer(take_half),
    rule("shared.back_after_exit", "VGPU_SHARED", "What a process held is free again when it has ended.", || {
        context();
        let before = memory_info().0;
        let mut peer = start_taker("shared.back_after_exit");
        peer.wire.send_u64(1);
        peer.finish();
        assert_eq!(memory_info().0, before);
    })
    .virtual_only()
    .env(&[("VGPU_SHARED", "@file")])
    .peer(take_half),
];

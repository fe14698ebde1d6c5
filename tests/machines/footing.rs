//! What a device pool stands on: tried once, and the next simpler way where the driver refuses. The virtual GPU's log of
//! calls shows who served the job: a request that the pool serves reaches the driver as no `cuMemAlloc`.

use crate::{Place, calls};
use weir_tests::harness::{MIB, Suite};

/// The environment, what is said of the pool, and whether it serves the job's requests by mapped memory.
const MACHINES: [(&str, &str, &str, bool); 9] = [
    ("all there is", "", "device 0: mapped memory, shareable, for RDMA, 6.00 GiB of address space", true),
    (
        "access refused with the RDMA flag",
        "VGPU_RDMA=refused",
        "device 0: mapped memory, shareable, without RDMA, 6.00 GiB of address space; mapped memory, shareable, for RDMA: \
         cuMemSetAccess returned 999",
        true,
    ),
    ("no RDMA", "VGPU_RDMA=off", "device 0: mapped memory, shareable, without RDMA, 6.00 GiB of address space", true),
    (
        "handle type refused",
        "VGPU_FAIL=cuMemCreate:1-2=CUDA_ERROR_NOT_SUPPORTED",
        "mapped memory, not shareable, without RDMA, 6.00 GiB of address space; mapped memory, shareable, for RDMA: \
         cuMemCreate returned 801; mapped memory, shareable, without RDMA: cuMemCreate returned 801",
        true,
    ),
    ("half of the address space", "VGPU_VA=5GiB", "for RDMA, 3.00 GiB of address space", true),
    ("a small part of the address space", "VGPU_VA=1GiB", "for RDMA, 768.0 MiB of address space", true),
    ("hardly any address space", "VGPU_VA=64MiB", "plain segments; cuMemAddressReserve found no memory", false),
    (
        "mapping refused",
        "VGPU_FAIL=cuMemMap=CUDA_ERROR_NOT_SUPPORTED",
        "device 0: plain segments; mapped memory, shareable, for RDMA: cuMemMap returned 801",
        false,
    ),
    (
        "no virtual memory management",
        "VGPU_VMM=off",
        "plain segments; the device has no virtual memory management",
        false,
    ),
];

pub(crate) fn footing(suite: &mut Suite) {
    for (title, environment, words, mapped) in MACHINES {
        suite.add(format!("footing: {title}"), move || {
            let place = Place::new();
            let trace = place.0.at("trace");
            let done = place.job("pool.py serves", environment).env("VGPU_TRACE", &trace).run().quiet();
            let reported = done.json();
            let choices: Vec<_> =
                reported["choices"].as_array().into_iter().flatten().filter_map(|c| c.as_str()).collect();
            assert!(choices.len() == 1 && choices[0].contains(words), "expected {words}\n{done}");
            let report = place.weir("report --json").run().well().json();
            assert!(report["choices"].to_string().contains(words), "the journal has {}", report["choices"]);
            let plain = calls(&trace, "cuMemAlloc");
            assert!(if mapped { plain == 0 } else { plain > 0 && plain < 30 }, "{plain} calls of cuMemAlloc\n{done}");
        });
        suite.add(format!("footing: the cap holds, {title}"), move || {
            let environment = format!("{environment} WEIR_CAP=96MiB");
            let _ = Place::new().job(&format!("pool.py capped {}", 96 * MIB), &environment).run().quiet();
        });
    }
    for (job, title) in [("capped", "requests"), ("ordered", "stream-ordered requests")] {
        suite.add(format!("footing: the driver serves what the pool has no addresses for, {title}"), move || {
            let cap = 1024 * MIB;
            let environment = format!("VGPU_MEM=2GiB VGPU_VA=512MiB WEIR_CAP={cap}");
            let done = Place::new().job(&format!("pool.py {job} {cap}"), &environment).run().quiet();
            assert!(done.out.contains("mapped memory, shareable, for RDMA, 384.0 MiB of address space"), "{done}");
        });
    }
    suite.add("footing: a driver that errs later: served, said once, nothing piles up", || {
        for call in ["cuMemMap:2-", "cuMemSetAccess:2-"] {
            let place = Place::new();
            let environment = format!("VGPU_FAIL={call}=CUDA_ERROR_UNKNOWN");
            let done = place.job("pool.py errors", &environment).run().quiet();
            let reported = done.json();
            let stopped = done.out.matches("takes no new memory after 8 errors of the driver, the last 999").count();
            assert!(stopped == 1 && reported["physical"] == 0, "{done}");
        }
    });
    suite.add("footing: weir doctor says what the pool of each device stands on", || {
        let place = Place::new();
        let doctor = place.weir("doctor").on_vgpu().set("VGPU_DEVICES=2 VGPU_RDMA=refused VGPU_POOLS=off").run();
        for words in
            ["device 0: mapped memory, shareable, without RDMA", "device 1: mapped", "device 0 has no memory pools"]
        {
            assert!(doctor.out.contains(words), "expected {words}\n{doctor}");
        }
    });
}

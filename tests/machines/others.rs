//! Memory that nobody requests, third parties that pin pages, and devices without access to each other.

use crate::{Place, holds};
use weir_tests::harness::{MIB, Scratch, Suite, cc};

/// Memory that no job requests.
pub(crate) fn hidden(suite: &mut Suite) {
    let eager = "VGPU_MEM=256MiB VGPU_MODULE=12MiB CUDA_MODULE_LOADING=EAGER";
    let lazy = "VGPU_MEM=256MiB VGPU_MODULE=12MiB CUDA_MODULE_LOADING=LAZY";
    holds(suite, "hidden: the pools give back what is free for a module", "hidden.py cached eager", eager);
    holds(suite, "hidden: the same where code comes with its first use", "hidden.py cached lazy", lazy);
    holds(suite, "hidden: what modules were seen to take is left free", "hidden.py reserve", eager);
    holds(suite, "hidden: the same where code comes with its first launch", "hidden.py reserve", lazy);
    holds(suite, "hidden: a context is made", "hidden.py context", "VGPU_MEM=256MiB VGPU_CONTEXT=48MiB");
    let tables = "VGPU_MEM=256MiB VGPU_PAGE_TABLES=1MiB";
    holds(suite, "hidden: page tables of what the job maps itself", "hidden.py own", tables);
    let stacks = "VGPU_MEM=256MiB VGPU_LOCAL=on VGPU_SMS=1";
    holds(suite, "hidden: stacks that grow", "hidden.py limit", stacks);
    let refused = "VGPU_MEM=256MiB VGPU_DEVICES=2 VGPU_FAIL=cuStreamCreate:1,cuCtxEnablePeerAccess:1";
    holds(suite, "hidden: a stream, and access to another device", "hidden.py objects", refused);
    suite.add("hidden: no memory for page tables, in mapping and in access", || {
        // How much is left when a handle has been created differs by half a MiB from one device to the next.
        let mut refused = [0, 0];
        for halves in 124..=132 {
            let place = Place::new();
            let trace = place.0.at("trace");
            let environment = format!("VGPU_MEM={}KiB VGPU_PAGE_TABLES=512KiB", halves * 512);
            let _ = place.job("hidden.py tables", &environment).env("VGPU_TRACE", &trace).run().quiet();
            let log = std::fs::read_to_string(&trace).expect("the log");
            for (count, name) in refused.iter_mut().zip(["\"fn\":\"cuMemMap\"", "\"fn\":\"cuMemSetAccess\""]) {
                let of = |line: &&str| line.contains(name) && line.contains("CUDA_ERROR_OUT_OF_MEMORY");
                *count += log.lines().filter(of).count();
            }
        }
        assert!(refused[0] > 0 && refused[1] > 0, "neither or one of both was refused: {refused:?}");
    });
}

/// Devices and libraries that know memory by its pages.
pub(crate) fn third_parties(suite: &mut Suite) {
    holds(
        suite,
        "third parties: SYNC_MEMOPS where the driver refuses it",
        "others.py sync_memops",
        "VGPU_SYNC_MEMOPS=off",
    );
    holds(suite, "third parties: SYNC_MEMOPS where the driver has it", "others.py attribute", "");
    let full = "VGPU_MEM=64MiB";
    holds(suite, "third parties: without them memory is meshed", "others.py mesh", full);
    for library in ["libibverbs.so.1", "libgdrapi.so.2", "libcufile.so.0"] {
        suite.add(format!("third parties: nothing live is moved beside {library}"), move || {
            let scratch = Scratch::new();
            let (source, file) = (scratch.at("empty.c"), scratch.at(library));
            std::fs::write(&source, "int nothing;").expect("a file");
            cc(&file, ["-shared".into(), "-fPIC".into(), source.into_os_string()]);
            let _ = Place::new().job(&format!("others.py still {}", file.display()), full).run().quiet();
        });
    }
    for (how, words) in [
        ("tokens", "others.py queried tokens"),
        ("rdma", "others.py queried rdma"),
        ("list", "others.py queried list"),
        ("memops", "others.py queried memops"),
    ] {
        holds(suite, &format!("third parties: what was queried stays where it is, {how}"), words, full);
    }
    let refused = "VGPU_MEM=64MiB VGPU_SYNC_MEMOPS=off";
    holds(suite, "third parties: the same where the driver refuses SYNC_MEMOPS", "others.py queried memops", refused);
}

/// Copies between devices.
pub(crate) fn copies(suite: &mut Suite) {
    holds(
        suite,
        "copies: between devices that cannot reach each other",
        "others.py copies",
        "VGPU_DEVICES=2 VGPU_P2P=off VGPU_COPY=executing",
    );
    holds(
        suite,
        "copies: between devices that cannot, where any device copies",
        "others.py copies",
        "VGPU_DEVICES=2 VGPU_P2P=off",
    );
    holds(suite, "copies: between devices that could", "others.py copies", "VGPU_DEVICES=2 VGPU_COPY=executing");
    holds(suite, "copies: where any device copies", "others.py copies", "VGPU_DEVICES=2");
}

/// What contexts take counts, whatever NVML says of this process.
pub(crate) fn contexts(suite: &mut Suite) {
    for nvml in ["on", "foreign-pids", "zero-bytes", "no-processes", "absent"] {
        suite.add(format!("contexts: the cap holds, VGPU_NVML={nvml}"), move || {
            let environment = format!("VGPU_CONTEXT=64MiB VGPU_NVML={nvml} WEIR_CAP=256MiB");
            let _ = Place::new().job(&format!("pool.py capped {}", 256 * MIB), &environment).run().quiet();
        });
        suite.add(format!("contexts: charged once beside another process, VGPU_NVML={nvml}"), move || {
            let place = Place::new();
            let machine = place.0.at("machine");
            let environment =
                format!("VGPU_CONTEXT=64MiB VGPU_NVML={nvml} WEIR_CAP=512MiB VGPU_SHARED={}", machine.display());
            let _ = place.job("pool.py retained", &environment).run().quiet();
        });
    }
}

/// A directory for journals on another machine.
pub(crate) fn remote(suite: &mut Suite) {
    suite.add("journal: not on a remote file system, and found all the same", || {
        let place = Place::new();
        let library = place.0.at("remote.so");
        let source = weir_tests::harness::stage().file("machines/remote.c");
        cc(&library, ["-shared".into(), "-fPIC".into(), source.into_os_string()]);
        let both = format!("{}:{}", library.display(), weir_tests::harness::stage().weir().display());
        let job = |remote: &str| {
            place.job("pool.py serves", "").env("LD_PRELOAD", &both).env("REMOTE", place.0.at(remote)).run().well()
        };
        let files = || std::fs::read_dir(place.0.at("dir")).expect("a folder").count();
        assert!(job("elsewhere").err.is_empty() && files() == 1);
        let done = job("dir");
        assert!(done.err.lines().count() == 1 && done.err.contains("on a remote file system (NFS)"), "{done}");
        assert_eq!(files(), 1, "a journal on the remote file system");
        let folder = done.err.split("kept in ").nth(1).and_then(|rest| rest.split(": ").next()).expect("a folder");
        let journals = std::fs::read_dir(folder).expect("the folder").count();
        let listed = place.weir("list --json").run().well();
        let report = place.weir("report --json").run().well().json();
        std::fs::remove_dir_all(folder).expect("the folder");
        assert!(journals == 1 && listed.out.matches("pool.py").count() == 2, "{listed}");
        assert!(
            report["choices"].to_string().contains("remote file system"),
            "the newest run is the one beside: {report}"
        );
    });
}

/// Page tables that change beside running work.
pub(crate) fn edits(suite: &mut Suite) {
    holds(suite, "edits: changes of page tables wait for running work", "pool.py serves", "VGPU_EDITS=wait");
    let full = "VGPU_EDITS=wait VGPU_MEM=64MiB";
    holds(suite, "edits: the same on a full device, where memory is meshed", "others.py mesh", full);
    let plain = "VGPU_EDITS=fault WEIR_POOL=novmm";
    holds(suite, "edits: where they break running work, segments serve without any", "pool.py serves", plain);
}

/// A cap on a part of a GPU.
pub(crate) fn parts(suite: &mut Suite) {
    let mig = "VGPU_PROFILE=mig-1g.10gb VGPU_MEM=1GiB VGPU_CONTEXT=0";
    for (title, of) in [("the part", "part"), ("the GPU that it belongs to", "gpu"), ("the GPU's index", "index")] {
        suite.add(format!("parts: a cap by {title}"), move || {
            let place = Place::new();
            let names = place.job("mig.py names", mig).run().well().json();
            let name = names[of].as_str().unwrap_or("0");
            let environment = format!("{mig} WEIR_CAP={name}={}", 64 * MIB);
            let _ = place.job(&format!("mig.py total {}", 64 * MIB), &environment).run().quiet();
        });
    }
    for selector in ["1", "GPU-ffff", "MIG-ffff"] {
        suite.add(format!("parts: a cap for {selector}, which is no device, is an error"), move || {
            let environment = format!("{mig} WEIR_CAP={selector}=64MiB");
            let done = Place::new().job("mig.py refused", &environment).run().well();
            assert!(done.err.lines().count() == 1 && done.err.contains("WEIR_CAP="), "{done}");
        });
    }
}

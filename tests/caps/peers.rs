//! Defects that other limiters were reported for, which must not be ours; and a second library that wraps the calls of
//! virtual memory management, before and behind weir.

use crate::{CAP, MIB, Place, holds};
use serde_json::json;
use std::fs;
use weir_tests::harness::{Suite, cc, stage};

pub(crate) fn peers(suite: &mut Suite) {
    for mode in ["on", "off", "novmm"] {
        for name in ["null_places", "host_location", "strange_pointers", "codes", "other_frees"] {
            let title = format!("peers: {name}, WEIR_POOL={mode}");
            holds(suite, title, format!("peers.py {name} {CAP}"), format!("WEIR_POOL={mode}"));
        }
    }
    suite.add("peers: what a monitor prints by NVML is to the byte what it prints without weir", || {
        let place = Place::new();
        let bare = place.job("peers.py monitor", "LD_PRELOAD=").run().quiet();
        let done = place.job("peers.py monitor", "WEIR_WARN=1%").run().quiet();
        assert!(done.out.contains(", 1024 MiB, 0 MiB, 1024 MiB") && bare.out == done.out, "{bare}\n{done}");
    });
    suite.add("peers: the library's file is replaced under a running job", || {
        let place = Place::new();
        let library = place.0.folder("lib").join("libweir.so");
        fs::copy(stage().weir(), &library).expect("a copy");
        let environment = "WEIR_GROUP=replaced WEIR_JOURNAL=on";
        let mut job = place.job(format!("peers.py replaced {CAP}"), environment).under(&library).start();
        assert_eq!(job.line(), "ready");
        // As an update does it: a new file under the old name. The old one is gone.
        let new = place.0.at("lib/.new.so");
        fs::copy(stage().weir(), &new).expect("a copy");
        fs::rename(&new, &library).expect("a new file");
        assert!(job.say("go on"));
        let done = job.finish().quiet();
        let last = done.out.lines().last().unwrap_or_default();
        let found: serde_json::Value = serde_json::from_str(last).expect("JSON in the last line");
        let child = found["child"].as_str().unwrap_or_default();
        let (taken, file) = child.split_once(' ').unwrap_or_default();
        assert_eq!(file, library.to_str().expect("a path"), "the child has the new file: {done}");
        let taken = taken.parse::<u64>().expect("a number");
        assert!(taken <= 32 * MIB, "all but a rest of the group's cap was taken already: {done}");
        assert_eq!((&found["held"], &found["said"]), (&json!(true), &json!("")), "{done}");
    });
    suite.add("peers: another library's wrappers of virtual memory management, before and behind weir", || {
        let place = Place::new();
        let other = place.0.at("libvmm_interposer.so");
        cc(&other, ["-shared".as_ref(), "-fPIC".as_ref(), stage().file("caps/vmm_interposer.c").as_os_str()]);
        let (weir, other) = (stage().weir().display().to_string(), other.display().to_string());
        // Behind weir it sees no linked call, because weir calls the driver itself; nothing goes wrong.
        for (order, sees) in [(format!("{other}:{weir}"), true), (format!("{weir}:{other}"), false)] {
            let done = place.job(format!("peers.py beside {CAP}"), "VGPU_BACKING=").under(order).run().quiet();
            let found = done.json();
            let seen = if sees { found["handles"].clone() } else { json!(0) };
            assert_eq!((&found["seen"], &found["live"]), (&seen, &json!(0)), "{done}");
        }
    });
}

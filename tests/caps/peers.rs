//! Defects that other limiters were reported for, which must not be ours; and a second library that wraps the calls of
//! virtual memory management, before and behind weir.

use crate::{CAP, Place, holds};
use serde_json::json;
use weir_tests::harness::{Suite, cc, stage};

pub(crate) fn peers(suite: &mut Suite) {
    for mode in ["on", "off", "novmm"] {
        for name in ["null_places", "host_location", "strange_pointers", "codes"] {
            let title = format!("peers: {name}, WEIR_POOL={mode}");
            holds(suite, title, format!("peers.py {name} {CAP}"), format!("WEIR_POOL={mode}"));
        }
    }
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

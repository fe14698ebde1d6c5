//! Machines that no profile is like, as files: whatever they lack together, jobs run, contents and caps hold.

use crate::Place;
use weir_tests::harness::{MIB, Suite, stage};

/// Their files, and a cap that leaves as much as the context takes.
const MACHINES: [(&str, u64); 2] = [("attic", 1500 * MIB), ("coarse", 3000 * MIB)];
/// Jobs, and what their environment has besides.
const JOBS: [(&str, &str); 6] = [
    ("pool.py full", "VGPU_BACKING=none"),
    ("pool.py serves", ""),
    ("pool.py serves", "WEIR_POOL=novmm"),
    ("pool.py serves", "WEIR_CAP=1500MiB WEIR_ON_CAP=spill"),
    ("hidden.py cached lazy", "CUDA_MODULE_LOADING=LAZY"),
    ("hidden.py context", ""),
];

pub(crate) fn odd(suite: &mut Suite) {
    for (name, cap) in MACHINES {
        let profile =
            move || format!("VGPU_PROFILE={} VGPU_MEM=", stage().file(&format!("machines/odd/{name}")).display());
        for (job, environment) in JOBS {
            suite.add(format!("odd: {name}: {job} {environment}"), move || {
                let _ = Place::new().job(job, &format!("{} {environment}", profile())).run().quiet();
            });
        }
        suite.add(format!("odd: {name}: the cap holds"), move || {
            // Page tables are charged to nobody.
            let environment = format!("{} VGPU_PAGE_TABLES=0 WEIR_CAP={cap}", profile());
            let _ = Place::new().job(&format!("pool.py capped {cap}"), &environment).run().quiet();
        });
    }
}

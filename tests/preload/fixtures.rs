//! The programs of `programs/`, each one unusual in one way: they must print and end the same bare and under libweir.so, as a
//! pass-through and with pool and journal, and weir must have seen their calls.

use crate::process::{Folder, Sees, linked_with, same};
use weir_tests::harness::{Suite, stage};

/// A program and what weir must have seen of it.
#[derive(Clone, Copy)]
struct Fixture {
    name: &'static str,
    /// Whether it is linked with the driver; others load it.
    linked: bool,
    sees: Sees<'static>,
    environment: &'static str,
}

const fn linked(name: &'static str, calls: &'static [(&'static str, u64)]) -> Fixture {
    Fixture { name, linked: true, sees: Some(calls), environment: "" }
}

const fn loads(name: &'static str, calls: &'static [(&'static str, u64)]) -> Fixture {
    Fixture { linked: false, ..linked(name, calls) }
}

const fn with(environment: &'static str, fixture: Fixture) -> Fixture {
    Fixture { environment, ..fixture }
}

pub(crate) const ALLOC: &[(&str, u64)] = &[("cuMemAlloc_v2", 1)];

const FIXTURES: [Fixture; 26] = [
    loads("fork_then_cuda", ALLOC),
    loads("cuda_fork_exec", ALLOC),
    linked("underscore_exit", &[("cuMemAlloc_v2", 2)]),
    linked("exit_in_thread", &[("cuMemAlloc_v2", 2)]),
    with("VGPU_COST=cuMemAlloc=300ms", linked("exit_during_call", &[("cuMemAlloc_v2", 2)])),
    loads("dlclose_driver", &[("cuMemAlloc_v2", 3)]),
    loads("second_namespace", ALLOC),
    linked("main_returns", &[("cuMemAlloc_v2", 9)]),
    linked("destructor_frees", &[("cuMemFree_v2", 3)]),
    linked("constructor_uses", &[("cuMemAlloc_v2", 2)]),
    linked("vfork_exec", &[("cuMemAlloc_v2", 2)]),
    linked("signal_in_hook", &[("cuMemAlloc_v2", 20_001)]),
    linked("many_threads", &[("cuMemAlloc_v2", 10_001)]),
    with("WEIR_CAP=512MiB WEIR_GROUP=cancel WEIR_OOM_TEXT=off", linked("cancel_pending", &[("cuMemAlloc_v2", 8)])),
    linked("idle_importers", ALLOC),
    linked("closed_descriptors", ALLOC),
    linked("small_stack", ALLOC),
    linked("coroutine", ALLOC),
    linked("linked", ALLOC),
    loads("lookups", &[]),
    loads("proc_address", ALLOC),
    linked("codes", &[("cuMemAlloc_v2", 5), ("cuMemGetInfo_v2", 5), ("cuMemHostAlloc", 1)]),
    linked("surroundings", ALLOC),
    loads("nvml", &[("nvmlDeviceGetMemoryInfo", 3), ("nvmlDeviceGetComputeRunningProcesses_v3", 1)]),
    Fixture { sees: None, ..loads("no_cuda", &[]) },
    loads("plugin", ALLOC),
];

pub(crate) fn trials(suite: &mut Suite) {
    for fixture in &FIXTURES {
        suite.add(format!("fixtures: {}", fixture.name), || check(fixture, true));
        suite.add(format!("fixtures: {}, with pool and journal", fixture.name), || check(fixture, false));
    }
}

fn check(fixture: &Fixture, pass_through: bool) {
    let folder = Folder::new();
    let program = if fixture.linked { folder.linked(fixture.name) } else { folder.program(fixture.name) };
    let mut paths = vec![stage().vgpu()];
    if fixture.name == "plugin" {
        folder.library("lib/libplugin.so", "plugin", &linked_with(&stage().vgpu()));
        paths.push(folder.at("lib"));
    }
    let mut bare = folder.process(program).paths(paths);
    if !pass_through {
        bare = bare.with_pool_and_journal().set("WEIR_RING=64,512 WEIR_OOM_TEXT=off");
    }
    let bare = bare.set(fixture.environment);
    same(&bare, &bare.clone().under_weir(), fixture.sees);
}

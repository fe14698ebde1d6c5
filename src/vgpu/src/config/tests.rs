//! The grammar of the VGPU_ variables, value by value.

use super::*;
use weir_cuda::{CUresult, FUNCTIONS};

fn read(variables: &[(&str, &str)]) -> Config {
    Config::read(|name| {
        let found = variables.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| OsString::from(value))
    })
}

fn good(variable: &str, value: &str) -> Config {
    let config = read(&[(variable, value)]);
    assert_eq!(config.error, None);
    config
}

fn bad(variable: &str, value: &str) -> String {
    let error = read(&[(variable, value)]).error;
    let error = error.unwrap_or_else(|| panic!("{variable}={value} was accepted"));
    assert!(error.starts_with(&format!("{variable}={value} ")), "{error}");
    assert!(!error.contains('\n'));
    error
}

#[test]
fn an_empty_environment_is_one_strict_device_of_8_gib() {
    let config = read(&[]);
    assert_eq!(config.error, None);
    assert_eq!((config.devices, config.memory_of(0)), (1, 8 << 30));
    assert_eq!((config.compute, config.driver_version), ((8, 0), 12080));
    assert!(config.strict && config.vmm && config.fail.is_empty() && config.cost.is_none());
    assert_eq!(config.granularity, 2 << 20);
    assert_eq!(config.backing, Backing::Content);
}

#[test]
fn empty_values_count_as_unset() {
    let all: Vec<_> = VARIABLES.iter().map(|v| (*v, "")).collect();
    let config = read(&all);
    assert_eq!(config.error, None);
    assert_eq!(config.devices, 1);
}

#[test]
fn sizes_take_binary_and_decimal_units() {
    for (text, bytes) in [
        ("1", 1),
        ("4096B", 4096),
        ("1KiB", 1 << 10),
        ("3 MiB", 3 << 20),
        ("8GiB", 8 << 30),
        ("2TiB", 2 << 40),
        ("1.5GiB", 3 << 29),
        ("8Gi", 8 << 30),
        ("1gib", 1 << 30),
        ("7KB", 7_000),
        ("7MB", 7_000_000),
        ("80GB", 80_000_000_000),
        ("2TB", 2_000_000_000_000),
    ] {
        assert_eq!(size(text), Some(bytes), "{text}");
    }
    for text in ["", "GiB", "-1", "1PiB", "0.3B", "1e9", "99999999999TiB", "1.2.3MiB"] {
        assert_eq!(size(text), None, "{text}");
    }
}

#[test]
fn memory_is_one_size_for_all_or_one_for_each() {
    let config = read(&[("VGPU_DEVICES", "3"), ("VGPU_MEM", "1GiB")]);
    assert_eq!((config.memory_of(0), config.memory_of(2)), (1 << 30, 1 << 30));
    let config = good("VGPU_MEM", "1GiB, 2GiB");
    assert_eq!((config.devices, config.memory_of(1)), (2, 2 << 30));
    let config = read(&[("VGPU_DEVICES", "3"), ("VGPU_MEM", "1GiB,2GiB")]);
    assert!(config.error.is_some_and(|e| e.contains("as many sizes")));
    bad("VGPU_MEM", "0");
    bad("VGPU_MEM", "lots");
    bad("VGPU_MEM", "8");
    bad("VGPU_MEM", "1GiB,");
}

#[test]
fn each_variable_refuses_what_it_cannot_mean() {
    assert_eq!(good("VGPU_DEVICES", "0").devices, 0);
    assert_eq!(good("VGPU_DEVICES", "64").devices, 64);
    bad("VGPU_DEVICES", "65");
    bad("VGPU_DEVICES", "-1");
    assert_eq!(good("VGPU_COMPUTE", "12.0").compute, (12, 0));
    bad("VGPU_COMPUTE", "8");
    bad("VGPU_COMPUTE", "8.10");
    bad("VGPU_COMPUTE", "+8.0");
    assert_eq!(good("VGPU_DRIVER", "13.1").driver_version, 13010);
    bad("VGPU_DRIVER", "12080");
    assert_eq!(good("VGPU_GRANULARITY", "64KiB").granularity, 65536);
    bad("VGPU_GRANULARITY", "3MiB");
    bad("VGPU_GRANULARITY", "2KiB");
    assert!(!good("VGPU_VMM", "off").vmm);
    bad("VGPU_VMM", "maybe");
    assert_eq!(good("VGPU_BACKING", "none").backing, Backing::None);
    bad("VGPU_BACKING", "disk");
    assert_eq!(good("VGPU_SEED", "0xff").seed, 255);
    bad("VGPU_SEED", "random");
    assert!(!good("VGPU_STRICT", "off").strict);
    assert_eq!(good("VGPU_CONTEXT", "256MiB").context_bytes, 256 << 20);
    assert_eq!(good("VGPU_NAME", "Weir 9000").name, "Weir 9000");
    bad("VGPU_NAME", &"x".repeat(96));
    assert!(good("VGPU_FAULT", "a, b").faults.contains("b"));
    assert!(good("VGPU_SHARED", "here").shared.is_some_and(|p| p.is_absolute()));
}

#[test]
fn limits_of_a_machine_are_switches() {
    assert!(!good("VGPU_POOLS", "off").pools);
    assert_eq!(good("VGPU_MANAGED", "basic").managed, ManagedMemory::Basic);
    bad("VGPU_MANAGED", "on");
    assert_eq!(good("VGPU_VA", "32GiB").address_space, Some(32 << 30));
    assert_eq!(good("VGPU_VA", "unlimited").address_space, None);
    bad("VGPU_VA", "0");
    assert_eq!(good("VGPU_RDMA", "refused").rdma, Rdma::Refused);
    assert_eq!(good("VGPU_RDMA", "off").rdma, Rdma::Off);
    bad("VGPU_RDMA", "maybe");
    assert!(!good("VGPU_P2P", "off").p2p);
    assert!(good("VGPU_COPY", "executing").copies_need_access);
    bad("VGPU_COPY", "on");
    assert!(!good("VGPU_SYNC_MEMOPS", "off").sync_memops);
    assert_eq!(good("VGPU_SMS", "14").multiprocessors, Some(14));
    bad("VGPU_SMS", "0");
    assert!(good("VGPU_MIG", "on").mig && good("VGPU_INTEGRATED", "on").integrated);
    assert_eq!(good("VGPU_NVML", "zero-bytes").nvml, Nvml::ZeroBytes);
    bad("VGPU_NVML", "off");
    assert_eq!(good("VGPU_MODULE", "4MiB").module_bytes, 4 << 20);
    assert_eq!(good("VGPU_PAGE_TABLES", "0").page_table_bytes, 0);
    assert!(good("VGPU_LOCAL", "on").local);
    assert_eq!(good("VGPU_EDITS", "wait").edits, Edits::Wait);
    bad("VGPU_EDITS", "on");
}

#[test]
fn a_profile_holds_where_no_variable_is_set() {
    for profile in PROFILES {
        let config = good("VGPU_PROFILE", profile.name);
        assert_eq!(Some(config.name.as_str()), profile.get("VGPU_NAME"), "{}", profile.name);
        for (variable, _) in profile.switches {
            assert!(VARIABLES.contains(variable), "{variable}");
        }
    }
    let config = read(&[("VGPU_PROFILE", "wsl2"), ("VGPU_MEM", "1GiB"), ("VGPU_VA", "unlimited")]);
    assert_eq!((config.memory_of(0), config.address_space, &config.error), (1 << 30, None, &None));
    assert_eq!((config.compute, config.rdma), ((8, 6), Rdma::Refused));
    bad("VGPU_PROFILE", "a1000");
    assert!(read(&[("VGPU_PROFILE", "a1000")]).error.is_some_and(|e| e.contains("mig-1g.10gb")));
}

#[test]
fn the_first_bad_value_is_reported_and_the_good_ones_hold() {
    let config = read(&[("VGPU_MEM", "lots"), ("VGPU_SEED", "x"), ("VGPU_DEVICES", "2")]);
    assert_eq!(config.devices, 2);
    assert!(config.error.is_some_and(|e| e.starts_with("VGPU_MEM=lots")));
}

#[test]
fn misspelt_variables_are_known_as_such() {
    assert!(is_unknown("VGPU_MEMORY"));
    assert!(!is_unknown("VGPU_MEM"));
    assert!(!is_unknown("WEIR_CAP"));
}

#[test]
fn fail_rules_name_calls_rates_codes_and_sizes() {
    let config = good(
        "VGPU_FAIL",
        "cuMemCreate:3, cuMemMap:3-5,cuMemAlloc:1%,cuInit:2-,cuMemFree_v2,oom>64MiB,cuMemUnmap:1=CUDA_ERROR_UNKNOWN",
    );
    let when: Vec<_> = config.fail.iter().map(|r| r.when).collect();
    assert_eq!(
        when,
        [
            When::Calls(3, 3),
            When::Calls(3, 5),
            When::Rate(0.01),
            When::Calls(2, u64::MAX),
            When::Calls(1, u64::MAX),
            When::Above(64 << 20),
            When::Calls(1, 1),
        ]
    );
    assert_eq!(config.fail[0].code, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    assert_eq!(config.fail[6].code, CUresult::CUDA_ERROR_UNKNOWN);
    let named = |rule: usize| {
        let rule = &config.fail[rule];
        let matching = FUNCTIONS.iter().filter(|f| rule.matches(f));
        matching.map(|f| f.symbol).collect::<Vec<_>>()
    };
    assert_eq!(named(2), ["cuMemAlloc", "cuMemAlloc_v2"]);
    assert_eq!(named(4), ["cuMemFree_v2"]);
    assert!(named(5).is_empty());
}

#[test]
fn bad_fail_rules_say_what_is_wrong() {
    assert!(bad("VGPU_FAIL", "cuMemCrate:3").contains("no driver function cuMemCrate"));
    assert!(bad("VGPU_FAIL", "cuMemCreate:0").contains("cuMemCreate:0"));
    bad("VGPU_FAIL", "cuMemCreate:5-3");
    bad("VGPU_FAIL", "cuMemCreate:101%");
    bad("VGPU_FAIL", "cuMemCreate:NaN%");
    bad("VGPU_FAIL", "cuMemCreate:3,");
    assert!(bad("VGPU_FAIL", "cuMemCreate:3=CUDA_OOPS").contains("CUDA_OOPS"));
    bad("VGPU_FAIL", "cuMemCreate:3=CUDA_SUCCESS");
    bad("VGPU_FAIL", "oom>big");
    bad("VGPU_FAIL", "oom>1MiB=CUDA_ERROR_UNKNOWN");
}

#[test]
fn costs_come_from_a_table_or_row_by_row() {
    let nanos = |config: &Config, symbol: &str| {
        let function = FUNCTIONS.iter().find(|f| f.symbol == symbol);
        let table = config.cost.as_ref().expect("a table was given");
        table.of(function.expect("the function exists")).call
    };
    let config = good("VGPU_COST", "a100");
    assert_eq!(nanos(&config, "cuMemAlloc_v2"), 97_000);
    assert_eq!(nanos(&config, "cuMemMap"), 1_500);
    assert_eq!(nanos(&config, "cuInit"), 0);
    let config = good("VGPU_COST", "a100,cuMemFree=1ms,cuMemFree_v2=2us,cuInit=3ns");
    assert_eq!(nanos(&config, "cuMemFree"), 1_000_000);
    assert_eq!(nanos(&config, "cuMemFree_v2"), 2_000);
    assert_eq!(nanos(&config, "cuInit"), 3);
    let config = good("VGPU_COST", "cuMemSetAccess=10us+26us/mapping+8us/peer,cuMemCreate=2us/MiB");
    let table = config.cost.expect("a table was given");
    let of = |name: &str| table.of(FUNCTIONS.iter().find(|f| f.symbol == name).expect("the function exists"));
    assert_eq!(of("cuMemSetAccess"), Cost { call: 10_000, mebibyte: 0, mapping: 26_000, peer: 8_000 });
    assert!(of("cuMemCreate").varies() && of("cuMemCreate").call == 0 && !of("cuMemMap").varies());
    bad("VGPU_COST", "cuMemCreate=2us/GiB");
    let config = good("VGPU_COST", "cuMemRelease=work");
    assert_eq!((nanos(&config, "cuMemRelease"), nanos(&config, "cuInit")), (WORK, 0));
    bad("VGPU_COST", "h100");
    bad("VGPU_COST", "cuMemAlloc=97");
    bad("VGPU_COST", "cuMemAlloc=-1us");
    bad("VGPU_COST", "cuMemAlloc=2000s");
    bad("VGPU_COST", "cuMemAllocate=1us");
}

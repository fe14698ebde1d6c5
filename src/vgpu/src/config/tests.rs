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
        table.nanos(function.expect("the function exists"))
    };
    let config = good("VGPU_COST", "a100");
    assert_eq!(nanos(&config, "cuMemAlloc_v2"), 97_000);
    assert_eq!(nanos(&config, "cuMemMap"), 1_500);
    assert_eq!(nanos(&config, "cuInit"), 0);
    let config = good("VGPU_COST", "a100,cuMemFree=1ms,cuMemFree_v2=2us,cuInit=3ns");
    assert_eq!(nanos(&config, "cuMemFree"), 1_000_000);
    assert_eq!(nanos(&config, "cuMemFree_v2"), 2_000);
    assert_eq!(nanos(&config, "cuInit"), 3);
    bad("VGPU_COST", "h100");
    bad("VGPU_COST", "cuMemAlloc=97");
    bad("VGPU_COST", "cuMemAlloc=-1us");
    bad("VGPU_COST", "cuMemAlloc=2000s");
    bad("VGPU_COST", "cuMemAllocate=1us");
}

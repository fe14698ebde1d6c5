//! Which calls fail, which take time, and what is counted.

use super::*;
use std::ffi::{CString, OsString};

fn index(symbol: &str) -> usize {
    let index = FUNCTIONS.iter().position(|f| f.symbol == symbol);
    index.expect("the function exists")
}

fn watch(variables: &[(&str, &str)]) -> Watch {
    let config = Config::read(|name| {
        let found = variables.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| OsString::from(value))
    });
    assert_eq!(config.error, None);
    Watch::new(&config)
}

/// The calls of a function that fail, counted from 1.
fn failing(watch: &Watch, symbol: &str, calls: u64) -> Vec<u64> {
    (1..=calls).filter(|_| watch.failure(index(symbol)).is_some()).collect()
}

#[test]
fn the_nth_call_fails_and_no_other() {
    let watch = watch(&[("VGPU_FAIL", "cuMemCreate:3,cuMemMap:2-4,cuMemUnmap:9-,cuMemRelease")]);
    assert_eq!(failing(&watch, "cuMemCreate", 10), [3]);
    assert_eq!(failing(&watch, "cuMemMap", 10), [2, 3, 4]);
    assert_eq!(failing(&watch, "cuMemUnmap", 10), [9, 10]);
    assert_eq!(failing(&watch, "cuMemRelease", 2), [1, 2]);
    assert!(failing(&watch, "cuMemSetAccess", 10).is_empty());
}

#[test]
fn a_name_counts_all_versions_and_a_symbol_only_itself() {
    let all = watch(&[("VGPU_FAIL", "cuMemAlloc:2")]);
    assert_eq!(all.failure(index("cuMemAlloc_v2")), None);
    assert!(all.failure(index("cuMemAlloc")).is_some(), "the second call of the name");
    let one = watch(&[("VGPU_FAIL", "cuMemAlloc_v2:2")]);
    assert_eq!(one.failure(index("cuMemAlloc_v2")), None);
    assert_eq!(one.failure(index("cuMemAlloc")), None);
    assert!(one.failure(index("cuMemAlloc_v2")).is_some());
}

#[test]
fn a_rule_gives_its_code_and_the_first_of_two_wins() {
    let unknown = watch(&[("VGPU_FAIL", "cuInit:1=CUDA_ERROR_UNKNOWN,cuInit:1-2")]);
    assert_eq!(unknown.failure(index("cuInit")), Some(CUresult::CUDA_ERROR_UNKNOWN));
    assert_eq!(unknown.failure(index("cuInit")), Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
    assert_eq!(unknown.failure(index("cuInit")), None);
}

#[test]
fn a_rate_is_kept_and_its_calls_depend_on_the_seed_alone() {
    let run = |seed| failing(&watch(&[("VGPU_FAIL", "cuMemCreate:10%"), ("VGPU_SEED", seed)]), "cuMemCreate", 20_000);
    let first = run("1");
    assert!((1_800..2_200).contains(&first.len()), "{}", first.len());
    assert_eq!(first, run("1"));
    assert_ne!(first, run("2"));
    let none = watch(&[("VGPU_FAIL", "cuMemCreate:0%")]);
    assert!(failing(&none, "cuMemCreate", 100).is_empty());
    let all = watch(&[("VGPU_FAIL", "cuMemCreate:100%")]);
    assert_eq!(failing(&all, "cuMemCreate", 100).len(), 100);
}

#[test]
fn the_smallest_limit_of_requests_counts() {
    assert_eq!(watch(&[("VGPU_FAIL", "oom>64MiB,oom>1MiB")]).oom_above, Some(1 << 20));
    let plain = watch(&[("VGPU_FAIL", "oom>64MiB")]);
    assert!(plain.rules.is_empty(), "a rule on sizes fails no call by itself");
    assert_eq!(watch(&[]).oom_above, None);
}

#[test]
fn a_cost_is_burnt_and_nothing_without_one() {
    let priced = watch(&[("VGPU_COST", "cuMemAlloc=2ms")]);
    assert_eq!(priced.cost(index("cuMemAlloc_v2")), 2_000_000);
    assert_eq!(priced.cost(index("cuMemFree_v2")), 0);
    assert_eq!(watch(&[]).costs, Vec::new());
    let began = Instant::now();
    burn(began, 2_000_000);
    assert!(began.elapsed() >= Duration::from_millis(2));
}

#[test]
fn calls_are_counted_by_symbol() {
    let count = |symbol: &str| {
        let symbol = CString::new(symbol).expect("no NUL");
        // SAFETY: a C string of ours.
        unsafe { vgpu_call_count(symbol.as_ptr()) }
    };
    let before = count("cuVDPAUGetDevice");
    let call = Call::enter(index("cuVDPAUGetDevice")).expect("no rule");
    assert_eq!(call.leave(CUresult::CUDA_SUCCESS, &[]), CUresult::CUDA_SUCCESS);
    assert_eq!(count("cuVDPAUGetDevice"), before + 1);
    assert_eq!(count("cuNoSuchThing"), 0);
    // SAFETY: NULL is allowed.
    assert_eq!(unsafe { vgpu_call_count(core::ptr::null()) }, 0);
}

#[test]
fn unimplemented_functions_are_counted_and_named() {
    assert_eq!(not_supported(index("cuGLInit")), CUresult::CUDA_ERROR_NOT_SUPPORTED);
    assert_eq!(not_supported(index("cuGLCtxCreate_v2")), CUresult::CUDA_ERROR_NOT_SUPPORTED);
    assert!(vgpu_unsupported_count() >= 2);
    let mut buffer = [1 as c_char; 256];
    // SAFETY: the buffer has the length that is passed; NULL queries the length.
    let (length, whole) = unsafe {
        let length = vgpu_unsupported_names(core::ptr::null_mut(), 0);
        (length, vgpu_unsupported_names(buffer.as_mut_ptr(), buffer.len()))
    };
    assert_eq!(length, whole);
    // SAFETY: the function wrote a C string.
    let names = unsafe { CStr::from_ptr(buffer.as_ptr()) };
    let names = names.to_str().expect("ASCII").to_owned();
    assert!(names.contains("cuGLCtxCreate_v2,cuGLInit"), "{names}");
    // SAFETY: as above; nothing is written past the given size.
    unsafe { vgpu_unsupported_names(buffer.as_mut_ptr(), 5) };
    // SAFETY: the function wrote a C string.
    let cut = unsafe { CStr::from_ptr(buffer.as_ptr()) };
    assert_eq!(cut.to_str(), Ok(&names[..4]));
}

//! Every line is JSON, whatever the arguments are, and says what they were.

use super::*;
use core::ffi::c_void;
use weir_cuda::{CUipcMemHandle, CUlimit, CUstream, FUNCTIONS};

fn function(symbol: &str) -> &'static Function {
    let found = FUNCTIONS.iter().find(|f| f.symbol == symbol);
    found.expect("the function exists")
}

fn line_of(symbol: &str, result: CUresult, args: &[Arg]) -> String {
    let line = line(function(symbol), 7, 9, result, args, false);
    let body = line.strip_suffix('\n').expect("a whole line");
    assert!(!body.contains('\n'));
    assert_eq!(json(body.as_bytes(), 0), Some(body.len()), "not JSON: {body}");
    line
}

/// Where the JSON value at `at` ends; none if there is no valid one.
fn json(text: &[u8], at: usize) -> Option<usize> {
    let list = |close: u8, item: &dyn Fn(usize) -> Option<usize>| {
        let mut at = at + 1;
        if text.get(at) == Some(&close) {
            return Some(at + 1);
        }
        loop {
            at = item(at)?;
            match text.get(at)? {
                b',' => at += 1,
                found if *found == close => return Some(at + 1),
                _ => return None,
            }
        }
    };
    match text.get(at)? {
        b'{' => list(b'}', &|at| {
            let colon = (text.get(at)? == &b'"').then(|| json(text, at))??;
            (text.get(colon)? == &b':').then(|| json(text, colon + 1))?
        }),
        b'"' => {
            let mut at = at + 1;
            loop {
                match text.get(at)? {
                    b'"' => return Some(at + 1),
                    b'\\' if text.get(at + 1)? == &b'u' => {
                        let digits = text.get(at + 2..at + 6)?;
                        digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
                        at += 6;
                    }
                    b'\\' if b"\"\\/bfnrt".contains(text.get(at + 1)?) => at += 2,
                    0..0x20 | b'\\' => return None,
                    _ => at += 1,
                }
            }
        }
        b'-' | b'0'..=b'9' => {
            let rest = text.get(at..)?;
            let end = rest.iter().position(|b| !b"+-.eE0123456789".contains(b));
            let number = rest.get(..end.unwrap_or(rest.len()))?;
            let number = core::str::from_utf8(number).ok()?;
            number.parse::<f64>().ok().map(|_| at + number.len())
        }
        b't' => text.get(at..at + 4)?.eq(b"true").then_some(at + 4),
        _ => None,
    }
}

#[test]
fn the_validator_itself_refuses_what_is_not_json() {
    for good in ["{}", "{\"a\":1,\"b\":{\"c\":\"\\\"\"}}", "-1.5e3", "\"\\u0001\""] {
        assert_eq!(json(good.as_bytes(), 0), Some(good.len()), "{good}");
    }
    for bad in ["{", "{\"a\"}", "{\"a\":1,}", "{a:1}", "\"\n\"", "\"\\x\"", "NaN", "{\"a\":inf}", "{\"a\":1\"b\":2}"] {
        assert_eq!(json(bad.as_bytes(), 0), None, "{bad}");
    }
}

#[test]
fn a_result_is_logged_with_its_value_once_it_succeeded() {
    let mut pointer = 0x7000_0000_u64;
    let (out, size) = (&raw mut pointer, 4096_usize);
    let args = [Arg::of(&out), Arg::of(&size)];
    let line = line_of("cuMemAlloc_v2", CUresult::CUDA_SUCCESS, &args);
    assert!(line.starts_with("{\"t\":7,\"pid\":"), "{line}");
    assert!(line.contains("\"fn\":\"cuMemAlloc_v2\",\"args\":{\"dptr\":\"0x"), "{line}");
    assert!(line.contains("\"*dptr\":1879048192,\"bytesize\":4096}"), "{line}");
    assert!(line.ends_with(",\"result\":\"CUDA_SUCCESS\",\"ns\":9}\n"), "{line}");
    let line = line_of("cuMemAlloc_v2", CUresult::CUDA_ERROR_OUT_OF_MEMORY, &args);
    assert!(!line.contains("*dptr") && line.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{line}");
}

#[test]
fn null_results_are_not_followed() {
    let (free, mut total) = (core::ptr::null_mut::<usize>(), 5_usize);
    let total = &raw mut total;
    let line = line_of("cuMemGetInfo_v2", CUresult::CUDA_SUCCESS, &[Arg::of(&free), Arg::of(&total)]);
    assert!(line.contains("\"free\":\"0x0\",\"total\":\"0x"), "{line}");
    assert!(line.contains("\"*total\":5"), "{line}");
}

#[test]
fn numbers_keep_their_sign_and_their_kind() {
    let (limit, value) = (CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE, usize::MAX);
    let line = line_of("cuCtxSetLimit", CUresult::CUDA_SUCCESS, &[Arg::of(&limit), Arg::of(&value)]);
    assert!(line.contains("{\"limit\":2,\"value\":18446744073709551615}"), "{line}");
    for (value, text) in [(1.5_f32, "1.5"), (f32::NAN, "\"NaN\""), (f32::INFINITY, "\"inf\"")] {
        let mut out = String::new();
        Arg::of(&value).render(&mut out);
        assert_eq!(out, text);
    }
    let mut out = String::new();
    Arg::of(&-3_i32).render(&mut out);
    out.push(' ');
    Arg::of(&0xab_u8).render(&mut out);
    assert_eq!(out, "-3 171");
}

#[test]
fn structs_by_value_are_bytes_and_handles_are_addresses() {
    let mut handle = CUipcMemHandle { reserved: [0; 64] };
    handle.reserved[0] = 0x7f;
    let mut pointer = 1_u64;
    let (out, flags) = (&raw mut pointer, 1_u32);
    let args = [Arg::of(&out), Arg::of(&handle), Arg::of(&flags)];
    let line = line_of("cuIpcOpenMemHandle_v2", CUresult::CUDA_SUCCESS, &args);
    assert!(line.contains(&format!("\"7f{}\"", "00".repeat(63))), "{line}");
    let mut stream: CUstream = 0xbeef_usize as CUstream;
    let (out, flags) = (&raw mut stream, 0_u32);
    let line = line_of("cuStreamCreate", CUresult::CUDA_SUCCESS, &[Arg::of(&out), Arg::of(&flags)]);
    assert!(line.contains("\"0xbeef\""), "{line}");
}

#[test]
fn strings_are_logged_and_escaped() {
    let mut address: *mut c_void = core::ptr::null_mut();
    let text = c"a \"quoted\\\" name\n\x01\xff";
    let args = (text.as_ptr(), &raw mut address, 12080_i32);
    let args = [Arg::of(&args.0), Arg::of(&args.1), Arg::of(&args.2)];
    let line = line_of("cuGetProcAddress", CUresult::CUDA_SUCCESS, &args);
    assert!(line.contains("a \\\"quoted\\\\\\\" name\\u000a\\u0001"), "{line}");
}

#[test]
fn an_injected_failure_is_marked() {
    let failed = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    let line = line(function("cuInit"), 7, 9, failed, &[], true);
    assert!(line.ends_with(",\"ns\":9,\"injected\":true}\n"), "{line}");
    assert_eq!(json(line.trim_end().as_bytes(), 0), Some(line.len() - 1));
}

#[test]
fn an_unknown_result_and_missing_arguments_are_still_a_line() {
    let line = line_of("cuInit", CUresult(4711), &[]);
    assert!(line.contains("\"args\":{},\"result\":\"4711\""), "{line}");
}

#[test]
fn lines_of_threads_and_processes_are_never_torn() {
    let path = std::env::temp_dir().join(format!("vgpu-trace-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let file = HeldFile::open(&path, libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT);
    let file = file.expect("a file");
    let work = |rounds: usize| {
        let flags = 0_u32;
        for _ in 0..rounds {
            let line = line_of("cuInit", CUresult::CUDA_SUCCESS, &[Arg::of(&flags)]);
            file.append(line.as_bytes()).expect("written");
        }
    };
    // SAFETY: the child appends its lines and leaves at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        work(500);
        // SAFETY: ends the child without running anything of the parent.
        unsafe { libc::_exit(0) };
    }
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| work(500));
        }
    });
    let mut status = 1;
    // SAFETY: a child of ours.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
    let text = std::fs::read_to_string(&path).expect("the trace");
    assert_eq!(text.lines().count(), 2000);
    for line in text.lines() {
        assert_eq!(json(line.as_bytes(), 0), Some(line.len()), "{line}");
    }
    std::fs::remove_file(&path).expect("cleared");
}

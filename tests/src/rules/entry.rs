//! Rules of result codes by name and of finding functions by name.

use crate::driver::{exports, is_virtual};
use crate::prelude::*;
use CUdriverProcAddressQueryResult as Status;

const LEGACY_FLAG: u64 = CUdriverProcAddress_flags::CU_GET_PROC_ADDRESS_LEGACY_STREAM.0 as u64;
const PER_THREAD_FLAG: u64 = CUdriverProcAddress_flags::CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM.0 as u64;

fn find(name: &CStr, version: i32, flags: u64) -> (CUresult, *mut c_void, Status) {
    let mut found = null_mut();
    let mut status = CUdriverProcAddressQueryResult_enum(77);
    let code = cuGetProcAddress_v2(name.as_ptr(), &raw mut found, version, flags, &raw mut status);
    (code, found, status)
}

fn must_find(name: &CStr, version: i32, flags: u64) -> *mut c_void {
    let (code, found, status) = find(name, version, flags);
    ok(code);
    assert!(!found.is_null(), "{name:?} at {version} is not found");
    assert_eq!(status, Status::CU_GET_PROC_ADDRESS_SUCCESS);
    found
}

fn text(get: fn(CUresult, *mut *const c_char) -> CUresult, code: CUresult) -> String {
    let mut text = null();
    ok(get(code, &raw mut text));
    assert!(!text.is_null());
    // SAFETY: the driver gave a terminated text that it owns.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

pub(super) const RULES: &[Rule] = &[
    rule("error.name_is_the_constant", "cuGetErrorName", "The name of a code is the name of its constant.", || {
        for (code, name) in [
            (CUresult::CUDA_SUCCESS, "CUDA_SUCCESS"),
            (INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"),
            (OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"),
            (NOT_READY, "CUDA_ERROR_NOT_READY"),
            (INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"),
            (ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"),
            (STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"),
            (CUresult::CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN"),
        ] {
            assert_eq!(text(cuGetErrorName, code), name);
        }
    }),
    rule("error.name_unknown", "cuGetErrorName", "An unknown code is an invalid value and its name NULL.", || {
        let mut name = c"x".as_ptr();
        refused(cuGetErrorName(cudaError_enum(123_456), &raw mut name), INVALID_VALUE);
        assert!(name.is_null());
    }),
    rule("error.string_says_something", "cuGetErrorString", "Every code that has a name has a description.", || {
        for code in [CUresult::CUDA_SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NOT_SUPPORTED, CAPTURED_EVENT] {
            assert!(text(cuGetErrorString, code).len() > 4);
        }
    }),
    rule(
        "error.string_known",
        "cuGetErrorString",
        "Descriptions that programs look for are those of public messages.",
        || {
            for (code, description) in [
                (CUresult::CUDA_SUCCESS, "no error"),
                (INVALID_VALUE, "invalid argument"),
                (OUT_OF_MEMORY, "out of memory"),
                (INVALID_DEVICE, "invalid device ordinal"),
                (NOT_SUPPORTED, "operation not supported"),
                (ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
            ] {
                assert_eq!(text(cuGetErrorString, code), description);
            }
        },
    ),
    rule(
        "error.string_unknown",
        "cuGetErrorString",
        "An unknown code is an invalid value and its description NULL.",
        || {
            let mut description = c"x".as_ptr();
            refused(cuGetErrorString(cudaError_enum(123_456), &raw mut description), INVALID_VALUE);
            assert!(description.is_null());
        },
    ),
    rule(
        "getproc.finds_a_working_function",
        "cuGetProcAddress",
        "What is found for a name and version can be called as that version.",
        || {
            context();
            let found = must_find(c"cuMemAlloc", 12000, 0);
            // SAFETY: at this version the name means the function with 64-bit addresses.
            let alloc: unsafe extern "C" fn(*mut CUdeviceptr, usize) -> CUresult =
                unsafe { std::mem::transmute(found) };
            let mut ptr = 0;
            // SAFETY: the place lives through the call.
            ok(unsafe { alloc(&raw mut ptr, 4096) });
            put(ptr, &pattern(4096, 1));
            assert_eq!(get(ptr, 4096), pattern(4096, 1));
            free(ptr);
        },
    ),
    rule(
        "getproc.honours_the_version",
        "cuGetProcAddress",
        "An older version of CUDA gets the function as it was then.",
        || {
            init();
            let old = must_find(c"cuMemAlloc", 2000, LEGACY_FLAG);
            let new = must_find(c"cuMemAlloc", 12000, LEGACY_FLAG);
            assert_ne!(old, new, "the version changes nothing");
            let old = must_find(c"cuStreamGetCaptureInfo", 10010, LEGACY_FLAG);
            let new = must_find(c"cuStreamGetCaptureInfo", 12000, LEGACY_FLAG);
            assert_ne!(old, new, "the version changes nothing");
        },
    ),
    rule(
        "getproc.version_not_sufficient",
        "cuGetProcAddress",
        "A function younger than the version is not returned, and the status says why.",
        || {
            init();
            let (code, found, status) = find(c"cuMemAllocAsync", 11010, LEGACY_FLAG);
            ok(code);
            assert!(found.is_null(), "a function of 11.2 given to a caller of 11.1");
            assert_eq!(status, Status::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
        },
    ),
    rule(
        "getproc.symbol_not_found",
        "cuGetProcAddress",
        "An unknown name succeeds with NULL, and the status says why.",
        || {
            init();
            let (code, found, status) = find(c"cuNoSuchFunction", 12000, LEGACY_FLAG);
            ok(code);
            assert!(found.is_null());
            assert_eq!(status, Status::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
        },
    ),
    rule(
        "getproc.version_beyond_driver",
        "cuGetProcAddress",
        "A version above the driver's own is an invalid value.",
        || {
            init();
            if driver_version() < 13000 {
                skip("documented from CUDA 13 on");
            }
            refused(find(c"cuMemAlloc", driver_version() + 1000, LEGACY_FLAG).0, INVALID_VALUE);
        },
    )
    .env(&[("VGPU_DRIVER", "13.4")]),
    rule("getproc.status_is_optional", "cuGetProcAddress", "The status may be left out.", || {
        init();
        let mut found = null_mut();
        ok(cuGetProcAddress_v2(c"cuMemFree".as_ptr(), &raw mut found, 12000, 0, null_mut()));
        assert!(!found.is_null());
    }),
    rule(
        "getproc.needs_name_and_result",
        "cuGetProcAddress",
        "A NULL name or place for the result is an invalid value.",
        || {
            init();
            let mut found = null_mut();
            refused(cuGetProcAddress_v2(null(), &raw mut found, 12000, 0, null_mut()), INVALID_VALUE);
            refused(cuGetProcAddress_v2(c"cuMemFree".as_ptr(), null_mut(), 12000, 0, null_mut()), INVALID_VALUE);
        },
    ),
    rule(
        "getproc.per_thread_variant",
        "cuGetProcAddress",
        "The per-thread flag finds the per-thread variant of a stream function.",
        || {
            init();
            let legacy = must_find(c"cuMemcpyHtoDAsync", 12000, LEGACY_FLAG);
            let per_thread = must_find(c"cuMemcpyHtoDAsync", 12000, PER_THREAD_FLAG);
            assert_ne!(legacy, per_thread);
        },
    ),
    rule(
        "getproc.per_thread_falls_back",
        "cuGetProcAddress",
        "The per-thread flag finds the only variant of other functions.",
        || {
            init();
            assert_eq!(must_find(c"cuInit", 12000, LEGACY_FLAG), must_find(c"cuInit", 12000, PER_THREAD_FLAG));
        },
    ),
    rule("getproc.default_is_legacy", "cuGetProcAddress", "Without a flag the legacy variant is found.", || {
        init();
        assert_eq!(must_find(c"cuMemcpyHtoDAsync", 12000, LEGACY_FLAG), must_find(c"cuMemcpyHtoDAsync", 12000, 0));
    }),
    rule("getproc.flags_unknown", "cuGetProcAddress", "Flags that do not exist are an invalid value.", || {
        init();
        refused(find(c"cuMemAlloc", 12000, 1 << 20).0, INVALID_VALUE);
    }),
    rule("getproc.finds_itself", "cuGetProcAddress", "The function finds itself.", || {
        init();
        must_find(c"cuGetProcAddress", 12000, LEGACY_FLAG);
    }),
    rule("getproc.first_form", "cuGetProcAddress", "The form without a status finds the same functions.", || {
        init();
        let mut found = null_mut();
        ok(cuGetProcAddress(c"cuMemAlloc".as_ptr(), &raw mut found, 11030, 0));
        assert_eq!(found, must_find(c"cuMemAlloc", 11030, 0));
    }),
    rule(
        "export.every_function",
        "cuGetProcAddress",
        "Every public function of the headers is exported under its symbol.",
        || {
            let missing: Vec<_> = FUNCTIONS.iter().map(|f| f.symbol).filter(|s| !exports(s)).collect();
            assert!(missing.is_empty(), "{} missing: {missing:?}", missing.len());
        },
    )
    .virtual_only(),
    rule(
        "export.every_function_by_version",
        "cuGetProcAddress",
        "Every function is found by its name at the version that brought it.",
        || {
            init();
            assert!(is_virtual());
            let newest = driver_version();
            for f in FUNCTIONS.iter().filter(|f| f.version <= newest) {
                let flags = if f.variant == Variant::Legacy { LEGACY_FLAG } else { PER_THREAD_FLAG };
                let name = CString::new(f.name).expect("a name without zero");
                let (code, found, _) = find(&name, f.version, flags);
                assert!(code == CUresult::CUDA_SUCCESS && !found.is_null(), "{} at {}", f.name, f.version);
            }
        },
    )
    .virtual_only()
    .env(&[("VGPU_DRIVER", "13.4")]),
    rule("export.no_private_tables", "cuGetExportTable", "Private tables are not found.", || {
        init();
        let mut table = null();
        let id = CUuuid::default();
        must_fail(cuGetExportTable(&raw mut table, &raw const id));
    })
    .virtual_only(),
];

//! Rules of modules, libraries, functions and what can be queried about them.

use crate::prelude::*;
use CUfunction_attribute as F;

fn library() -> CUlibrary {
    let text = kernel_text();
    let mut library = null_mut();
    ok(cuLibraryLoadData(&raw mut library, text.as_ptr().cast(), null_mut(), null_mut(), 0, null_mut(), null_mut(), 0));
    library
}

fn kernel(library: CUlibrary, name: &CStr) -> CUkernel {
    let mut kernel = null_mut();
    ok(cuLibraryGetKernel(&raw mut kernel, library, name.as_ptr()));
    kernel
}

fn reported(f: CUfunction, attribute: F) -> i32 {
    let mut value = -1;
    ok(cuFuncGetAttribute(&raw mut value, attribute, f));
    value
}

fn load_refused(image: *const c_void) {
    let mut module = null_mut();
    refused_by_any(
        cuModuleLoadData(&raw mut module, image),
        &[INVALID_IMAGE, INVALID_PTX, INVALID_VALUE, INVALID_SOURCE],
    );
}

pub(super) const RULES: &[Rule] = &[
    rule("module.load_text", "cuModuleLoadData", "A module can be loaded from PTX text.", || {
        context();
        let module = kernels();
        function(module, c"weir_fill");
        ok(cuModuleUnload(module));
    }),
    rule(
        "module.load_with_options",
        "cuModuleLoadDataEx",
        "A module can be loaded with options for the compiler.",
        || {
            context();
            let text = kernel_text();
            let mut module = null_mut();
            let mut options = [CUjit_option::CU_JIT_MAX_REGISTERS];
            let mut values = [32 as *mut c_void];
            ok(cuModuleLoadDataEx(&raw mut module, text.as_ptr().cast(), 1, options.as_mut_ptr(), values.as_mut_ptr()));
            function(module, c"weir_copy");
        },
    ),
    rule(
        "module.load_from_file",
        "cuModuleLoad",
        "A module can be loaded from a file; one that does not exist is not found.",
        || {
            context();
            let mut module = null_mut();
            refused(cuModuleLoad(&raw mut module, c"/nonexistent/kernels.ptx".as_ptr()), FILE_NOT_FOUND);
            let path = std::env::temp_dir().join(format!("weir-kernels-{}.ptx", std::process::id()));
            std::fs::write(&path, kernel_text().as_bytes()).expect("temporary file");
            let name = CString::new(path.to_string_lossy().as_bytes()).expect("a path without zero");
            let code = cuModuleLoad(&raw mut module, name.as_ptr());
            std::fs::remove_file(&path).expect("temporary file");
            ok(code);
            function(module, c"weir_spin");
        },
    ),
    rule("module.garbage", "cuModuleLoadData", "What is no code is refused.", || {
        context();
        load_refused(c"this is no code at all, in any format".as_ptr().cast());
    }),
    rule("module.load_needs_arguments", "cuModuleLoadData", "NULL for image or result is an invalid value.", || {
        context();
        let text = kernel_text();
        let mut module = null_mut();
        refused(cuModuleLoadData(&raw mut module, null()), INVALID_VALUE);
        refused(cuModuleLoadData(null_mut(), text.as_ptr().cast()), INVALID_VALUE);
    }),
    rule(
        "module.function_not_found",
        "cuModuleGetFunction",
        "A function that the module does not have is not found.",
        || {
            context();
            let module = kernels();
            let mut f = null_mut();
            refused(cuModuleGetFunction(&raw mut f, module, c"weir_nothing".as_ptr()), NOT_FOUND);
            refused(cuModuleGetFunction(&raw mut f, module, c"weir_fil".as_ptr()), NOT_FOUND);
        },
    ),
    rule("module.function_count", "cuModuleGetFunctionCount", "A module reports how many functions it has.", || {
        context();
        let mut count = 0;
        ok(cuModuleGetFunctionCount(&raw mut count, kernels()));
        assert_eq!(count, 6);
    }),
    rule(
        "module.global",
        "cuModuleGetGlobal",
        "A global of the module has an address and a size, and keeps content.",
        || {
            context();
            let module = kernels();
            let (mut ptr, mut size) = (0, 0);
            ok(cuModuleGetGlobal_v2(&raw mut ptr, &raw mut size, module, c"weir_scratch".as_ptr()));
            assert_eq!(size, 256);
            assert_eq!(get(ptr, 256), [0; 256], "globals start as zero");
            put(ptr, &pattern(256, 3));
            assert_eq!(get(ptr, 256), pattern(256, 3));
        },
    ),
    rule(
        "module.global_not_found",
        "cuModuleGetGlobal",
        "A global that the module does not have is not found.",
        || {
            context();
            let (mut ptr, mut size) = (0, 0);
            refused(cuModuleGetGlobal_v2(&raw mut ptr, &raw mut size, kernels(), c"nothing".as_ptr()), NOT_FOUND);
        },
    ),
    rule(
        "module.per_context",
        "cuModuleLoadData",
        "A module belongs to a context: without one it cannot be loaded.",
        || {
            init();
            let text = kernel_text();
            let mut module = null_mut();
            refused(cuModuleLoadData(&raw mut module, text.as_ptr().cast()), INVALID_CONTEXT);
        },
    ),
    rule("module.unloaded", "cuModuleUnload", "A module can be unloaded once.", || {
        context();
        let module = kernels();
        ok(cuModuleUnload(module));
        refused_by_any(cuModuleUnload(module), &[INVALID_HANDLE, INVALID_VALUE]);
    })
    .virtual_only(),
    rule("function.module_reported", "cuFuncGetModule", "A function reports its module and its name.", || {
        context();
        let module = kernels();
        let f = function(module, c"weir_check");
        let mut got = null_mut();
        ok(cuFuncGetModule(&raw mut got, f));
        assert_eq!(got, module);
        let mut name = null();
        ok(cuFuncGetName(&raw mut name, f));
        // SAFETY: the driver gave a terminated text that it owns.
        assert_eq!(unsafe { CStr::from_ptr(name) }, c"weir_check");
    }),
    rule(
        "function.threads_reported",
        "cuFuncGetAttribute",
        "A function reports how many threads a block of it may have.",
        || {
            context();
            let threads = reported(function(kernels(), c"weir_fill"), F::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
            assert!((32..=1024).contains(&threads), "{threads}");
        },
    ),
    rule(
        "function.attribute_set",
        "cuFuncSetAttribute",
        "The dynamic shared memory of a function can be set, within the limit of the device.",
        || {
            context();
            let f = function(kernels(), c"weir_fill");
            let attribute = F::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            ok(cuFuncSetAttribute(f, attribute, 16_384));
            assert_eq!(reported(f, attribute), 16_384);
            refused(cuFuncSetAttribute(f, attribute, 1 << 30), INVALID_VALUE);
        },
    ),
    rule(
        "function.attribute_unknown",
        "cuFuncGetAttribute",
        "An attribute that does not exist is an invalid value.",
        || {
            context();
            let mut value = 0;
            let f = function(kernels(), c"weir_fill");
            refused(cuFuncGetAttribute(&raw mut value, CUfunction_attribute_enum(999), f), INVALID_VALUE);
        },
    ),
    rule("function.attribute_read_only", "cuFuncSetAttribute", "Facts about a function cannot be set.", || {
        context();
        let f = function(kernels(), c"weir_fill");
        must_fail(cuFuncSetAttribute(f, F::CU_FUNC_ATTRIBUTE_NUM_REGS, 8));
    }),
    rule(
        "function.parameters_reported",
        "cuFuncGetParamInfo",
        "A function reports offset and size of each parameter, and nothing beyond the last.",
        || {
            context();
            let f = function(kernels(), c"weir_check");
            for (index, want) in [(0, (0, 8)), (1, (8, 8)), (2, (16, 4)), (3, (24, 8))] {
                let (mut offset, mut size) = (77, 77);
                ok(cuFuncGetParamInfo(f, index, &raw mut offset, &raw mut size));
                assert_eq!((offset, size), want, "parameter {index}");
            }
            let (mut offset, mut size) = (0, 0);
            refused(cuFuncGetParamInfo(f, 4, &raw mut offset, &raw mut size), INVALID_VALUE);
        },
    ),
    rule(
        "occupancy.blocks",
        "cuOccupancyMaxActiveBlocksPerMultiprocessor",
        "At least one block of a small kernel fits on a multiprocessor, and not more than it has threads for.",
        || {
            context();
            let f = function(kernels(), c"weir_fill");
            let mut blocks = 0;
            ok(cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, f, 256, 0));
            let threads = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
            assert!(blocks >= 1 && blocks * 256 <= threads, "{blocks} blocks");
        },
    ),
    rule(
        "occupancy.needs_threads",
        "cuOccupancyMaxActiveBlocksPerMultiprocessor",
        "A block without threads is an invalid value.",
        || {
            context();
            let f = function(kernels(), c"weir_fill");
            let mut blocks = 0;
            refused(cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, f, 0, 0), INVALID_VALUE);
        },
    ),
    rule(
        "occupancy.best_block",
        "cuOccupancyMaxPotentialBlockSize",
        "The best block is one that can be launched.",
        || {
            context();
            let f = function(kernels(), c"weir_fill");
            let (mut grid, mut block) = (0, 0);
            ok(cuOccupancyMaxPotentialBlockSize(&raw mut grid, &raw mut block, f, None, 0, 0));
            assert!(grid >= 1 && (1..=1024).contains(&block), "{grid} × {block}");
        },
    ),
    rule(
        "library.kernels",
        "cuLibraryGetKernel",
        "A library is loaded without a context and reports its kernels.",
        || {
            init();
            let library = library();
            let mut count = 0;
            ok(cuLibraryGetKernelCount(&raw mut count, library));
            assert_eq!(count, 6);
            let mut kernels = [null_mut(); 4];
            ok(cuLibraryEnumerateKernels(kernels.as_mut_ptr(), 4, library));
            assert!(kernels.contains(&kernel(library, c"weir_copy")));
            ok(cuLibraryUnload(library));
        },
    ),
    rule(
        "library.kernel_not_found",
        "cuLibraryGetKernel",
        "A kernel that the library does not have is not found.",
        || {
            init();
            let mut kernel = null_mut();
            refused(cuLibraryGetKernel(&raw mut kernel, library(), c"weir_nothing".as_ptr()), NOT_FOUND);
        },
    ),
    rule(
        "library.launches",
        "cuKernelGetFunction",
        "A kernel of a library is launched as a function of the current context, or by itself.",
        || {
            context();
            let library = library();
            let fill = kernel(library, c"weir_fill");
            let mut f = null_mut();
            ok(cuKernelGetFunction(&raw mut f, fill));
            let ptr = alloc(4096);
            for (which, mut value) in [(f, 5u32), (fill.cast(), 6u32)] {
                let (mut to, mut words) = (ptr, 1024u64);
                launch(which, DEFAULT, &mut [(&raw mut to).cast(), (&raw mut words).cast(), (&raw mut value).cast()]);
                ok(cuCtxSynchronize());
                assert!(all_words(ptr, 1024, value));
            }
            ok(cuLibraryUnload(library));
        },
    ),
    rule("library.kernel_reported", "cuKernelGetName", "A kernel reports its name and its library.", || {
        init();
        let library = library();
        let fill = kernel(library, c"weir_fill");
        let mut name = null();
        ok(cuKernelGetName(&raw mut name, fill));
        // SAFETY: the driver gave a terminated text that it owns.
        assert_eq!(unsafe { CStr::from_ptr(name) }, c"weir_fill");
        let mut got = null_mut();
        ok(cuKernelGetLibrary(&raw mut got, fill));
        assert_eq!(got, library);
    }),
    rule(
        "library.global",
        "cuLibraryGetGlobal",
        "A global of a library has an address in the current context.",
        || {
            context();
            let library = library();
            let (mut ptr, mut size) = (0, 0);
            ok(cuLibraryGetGlobal(&raw mut ptr, &raw mut size, library, c"weir_scratch".as_ptr()));
            assert_eq!(size, 256);
            put(ptr, &[1; 256]);
            refused(cuLibraryGetGlobal(&raw mut ptr, &raw mut size, library, c"nothing".as_ptr()), NOT_FOUND);
        },
    ),
    rule("library.module", "cuLibraryGetModule", "A library gives the module of the current context.", || {
        context();
        let mut module = null_mut();
        ok(cuLibraryGetModule(&raw mut module, library()));
        function(module, c"weir_fill");
    }),
];

//! Loading and launching through the bodies of the driver functions. Memory is that of modules and
//! waiting is the engine's, so that no capture of another test can forbid it.

use crate::api;
use crate::engine::wait_until;
use crate::error::*;
use crate::kernel::published::PRODUCT;
use crate::state::{driver, thread};
use std::ffi::{CStr, c_void};
use std::ptr::{null_mut, without_provenance_mut};
use std::time::{Duration, Instant};
use weir_cuda::*;

const PTX: &CStr = c".version 8.0
.target sm_80
.global .align 4 .b8 words[4000];
.global .align 4 .b8 twins[4000];
.global .u32 errors;
.visible .entry weir_fill(.param .u64 p, .param .u64 n, .param .u32 v) { ret; }
.visible .entry weir_check(.param .u64 p, .param .u64 n, .param .u32 v, .param .u64 e) { ret; }
.visible .entry weir_copy(.param .u64 d, .param .u64 s, .param .u64 n) { ret; }
.visible .entry weir_spin(.param .u64 n) { ret; }
.visible .entry weir_start(.param .u64 f) { ret; }
.visible .entry weir_await(.param .u64 f) { ret; }
.visible .entry other(.param .u32 a, .param .align 8 .b8 s[24]) .maxntid 128, 1, 1 { .shared .b8 x[1024]; ret; }
";

macro_rules! cu {
    // SAFETY: the tests give places, handles and arrays as each function documents them.
    ($name:ident($($arg:expr),* $(,)?)) => { unsafe { api::$name($($arg),*) } };
}

/// Gives back what a driver function writes.
fn made<T>(call: impl FnOnce(*mut T) -> R) -> R<T> {
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    call(value.as_mut_ptr())?;
    // SAFETY: handles and numbers are valid when zero, and written on success.
    Ok(unsafe { value.assume_init() })
}

/// A context with the module and a stream in it.
struct TestContext {
    ctx: CUcontext,
    module: CUmodule,
    stream: CUstream,
}

impl TestContext {
    fn new() -> Self {
        cu!(cuInit(0)).unwrap();
        let ctx = made(|out| cu!(cuCtxCreate_v2(out, 0, 0))).unwrap();
        let module = made(|out| cu!(cuModuleLoadData(out, PTX.as_ptr().cast()))).unwrap();
        let stream = made(|out| cu!(cuStreamCreate(out, 1))).unwrap();
        Self { ctx, module, stream }
    }

    fn function(&self, name: &CStr) -> CUfunction {
        made(|out| cu!(cuModuleGetFunction(out, self.module, name.as_ptr()))).unwrap()
    }

    fn global(&self, name: &CStr) -> u64 {
        made(|out| cu!(cuModuleGetGlobal_v2(out, null_mut(), self.module, name.as_ptr()))).unwrap()
    }

    fn launch(&self, f: CUfunction, arguments: &[&[u8]]) -> R {
        let mut params: Vec<*mut c_void> = arguments.iter().map(|a| a.as_ptr().cast_mut().cast()).collect();
        cu!(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, self.stream, params.as_mut_ptr(), null_mut()))
    }

    fn shaped(&self, f: CUfunction, grid: [u32; 3], block: [u32; 3], shared: u32) -> R {
        let bytes = [0u8; 32];
        let mut params = [bytes.as_ptr().cast_mut().cast::<c_void>(); 4];
        let [(gx, gy, gz), (bx, by, bz)] = [grid, block].map(|[x, y, z]| (x, y, z));
        cu!(cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, self.stream, params.as_mut_ptr(), null_mut()))
    }

    fn idle(&self) -> bool {
        driver().unwrap().engine.idle(self.stream as u64)
    }

    fn wait(&self) {
        drop(wait_until(driver().unwrap(), |s| s.engine.idle(self.stream as u64)));
    }
}

impl Drop for TestContext {
    fn drop(&mut self) {
        self.wait();
        driver().unwrap().destroy_context(self.ctx as u64);
        if thread::current() == self.ctx as u64 {
            thread::pop().unwrap();
        }
    }
}

fn word_at(addr: u64) -> u32 {
    // SAFETY: a word of a module's variable, with no work queued.
    unsafe { (crate::store::view(addr) as *const u32).read_volatile() }
}

#[test]
fn built_in_kernels_run_in_stream_order_on_copied_arguments() {
    let place = TestContext::new();
    let (words, twins, errors) = (place.global(c"words"), place.global(c"twins"), place.global(c"errors"));
    let n = 1000u64.to_ne_bytes();
    let mut pattern = 0xabcd_1234u32.to_ne_bytes();
    place.launch(place.function(c"weir_fill"), &[&words.to_ne_bytes(), &n, &pattern]).unwrap();
    place.launch(place.function(c"weir_copy"), &[&twins.to_ne_bytes(), &words.to_ne_bytes(), &n]).unwrap();
    let check = [&twins.to_ne_bytes()[..], &n, &pattern, &errors.to_ne_bytes()];
    place.launch(place.function(c"weir_check"), &check).unwrap();
    pattern = [0; 4];
    place.wait();
    assert_eq!((word_at(words), word_at(twins + 3996), word_at(errors)), (0xabcd_1234, 0xabcd_1234, 0));
    let other = [&twins.to_ne_bytes()[..], &n, &pattern, &errors.to_ne_bytes()];
    place.launch(place.function(c"weir_check"), &other).unwrap();
    place.wait();
    assert_eq!(word_at(errors), 1000);
}

#[test]
fn kernels_of_tensorflow_compute_sizes_unless_their_arguments_cannot_be_right() {
    let place = TestContext::new();
    let opaque: CUmodule = made(|out| cu!(cuModuleLoadData(out, b"\x7fELFcode".as_ptr().cast()))).unwrap();
    let name = std::ffi::CString::new(PRODUCT).unwrap();
    let product: CUfunction = made(|out| cu!(cuModuleGetFunction(out, opaque, name.as_ptr()))).unwrap();
    let (words, twins) = (place.global(c"words"), place.global(c"twins"));
    let n = 3u64.to_ne_bytes();
    place.launch(place.function(c"weir_fill"), &[&words.to_ne_bytes(), &n, &20u32.to_ne_bytes()]).unwrap();
    let multiply = |from: u64, to: u64| {
        place.launch(product, &[&from.to_ne_bytes(), &to.to_ne_bytes(), &3u32.to_ne_bytes(), &[0], &[0; 4]]).unwrap();
        place.wait();
    };
    multiply(words, twins);
    assert_eq!(word_at(twins), 8000);
    // An address of nothing: another release's parameters, not a violation.
    multiply(64, twins);
    multiply(words, words + 2);
    assert_eq!((word_at(twins), word_at(words)), (8000, 20));
}

#[test]
fn a_spinning_kernel_keeps_only_its_own_stream() {
    let (place, free) = (TestContext::new(), TestContext::new());
    // A busy machine may be slower than a short spin; a stream that waits for the other does so every time.
    let alone = [200_u64, 1000, 5000].into_iter().any(|millis| {
        let began = Instant::now();
        place.launch(place.function(c"weir_spin"), &[&(millis * 1_000_000).to_ne_bytes()]).unwrap();
        free.launch(free.function(c"weir_spin"), &[&0u64.to_ne_bytes()]).unwrap();
        free.wait();
        let alone = !place.idle();
        place.wait();
        assert!(began.elapsed() >= Duration::from_millis(millis));
        alone
    });
    assert!(alone, "the other stream waited for it");
}

#[test]
fn an_awaiting_kernel_keeps_only_its_own_stream_until_the_other_begins() {
    let (place, free) = (TestContext::new(), TestContext::new());
    // Of another context, but on the same device.
    let flag = free.global(c"errors").to_ne_bytes();
    place.launch(place.function(c"weir_await"), &[&flag]).unwrap();
    free.launch(free.function(c"weir_spin"), &[&0u64.to_ne_bytes()]).unwrap();
    free.wait();
    assert!(!place.idle(), "nobody has begun yet");
    free.launch(free.function(c"weir_start"), &[&flag]).unwrap();
    place.wait();
    assert!(free.idle());
}

#[test]
fn shapes_beyond_the_limits_are_refused() {
    let place = TestContext::new();
    let f = place.function(c"other");
    assert_eq!(place.shaped(f, [1; 3], [128, 1, 1], 0), Ok(()));
    let one = [1; 3];
    for (grid, block, shared) in [
        ([0, 1, 1], one, 0),
        ([1, 1, 0], one, 0),
        ([1, 65536, 1], one, 0),
        ([1 << 31, 1, 1], one, 0),
        (one, [0, 1, 1], 0),
        (one, [1, 1, 65], 0),
        (one, [129, 1, 1], 0),
        (one, [16, 9, 1], 0),
        (one, one, (47 << 10) + 1),
    ] {
        assert_eq!(place.shaped(f, grid, block, shared), Err(INVALID_VALUE), "{grid:?} {block:?} {shared}");
    }
    let limit = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    cu!(cuFuncSetAttribute(f, limit, 50 << 10)).unwrap();
    assert_eq!(place.shaped(f, one, one, 50 << 10), Ok(()));
    assert_eq!(cu!(cuFuncSetAttribute(f, limit, 1 << 20)), Err(INVALID_VALUE));
    let registers = CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS;
    assert_eq!(cu!(cuFuncSetAttribute(f, registers, 8)), Err(INVALID_VALUE));
}

#[test]
fn arguments_come_in_one_way_only_and_whole() {
    let place = TestContext::new();
    let fill = place.function(c"weir_fill");
    let words = place.global(c"words");
    let mut buffer = [0u8; 20];
    buffer[..8].copy_from_slice(&words.to_ne_bytes());
    buffer[8..16].copy_from_slice(&1u64.to_ne_bytes());
    buffer[16..].copy_from_slice(&7u32.to_ne_bytes());
    let mut size = 20usize;
    let mut extra: [*mut c_void; 5] = [
        without_provenance_mut(1),
        buffer.as_mut_ptr().cast(),
        without_provenance_mut(2),
        (&raw mut size).cast(),
        null_mut(),
    ];
    let mut launch = |params: *mut *mut c_void, with: bool, bytes: usize| {
        size = bytes;
        let extra = if with { extra.as_mut_ptr() } else { null_mut() };
        cu!(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, place.stream, params, extra))
    };
    let mut params = [buffer.as_ptr().cast_mut().cast::<c_void>(); 3];
    assert_eq!(launch(params.as_mut_ptr(), true, 20), Err(INVALID_VALUE));
    assert_eq!(launch(null_mut(), false, 20), Err(INVALID_VALUE));
    assert_eq!(launch(null_mut(), true, 19), Err(INVALID_VALUE));
    params[1] = null_mut();
    assert_eq!(launch(params.as_mut_ptr(), false, 20), Err(INVALID_VALUE));
    assert_eq!(launch(null_mut(), true, 20), Ok(()));
    place.wait();
    assert_eq!(word_at(words), 7);
}

#[test]
fn handles_end_with_their_module_library_or_context() {
    let place = TestContext::new();
    let elf = *b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0";
    let module = made(|out| cu!(cuModuleLoadData(out, elf.as_ptr().cast()))).unwrap();
    let any = made(|out| cu!(cuModuleGetFunction(out, module, c"whatever".as_ptr()))).unwrap();
    // How many arguments it has is unknown: none is read.
    let nowhere = without_provenance_mut(8);
    assert_eq!(cu!(cuLaunchKernel(any, 1, 1, 1, 1, 1, 1, 0, place.stream, nowhere, null_mut())), Ok(()));
    place.wait();
    cu!(cuModuleUnload(module)).unwrap();
    assert_eq!(cu!(cuModuleUnload(module)), Err(INVALID_HANDLE));
    assert_eq!(place.launch(any, &[]), Err(INVALID_HANDLE));

    let library = made(|out| {
        let (none, nothing) = (null_mut(), null_mut());
        cu!(cuLibraryLoadData(out, PTX.as_ptr().cast(), none, nothing, 0, null_mut(), null_mut(), 0))
    })
    .unwrap();
    let kernel = made(|out| cu!(cuLibraryGetKernel(out, library, c"weir_spin".as_ptr()))).unwrap();
    assert_eq!(place.launch(kernel.cast(), &[&0u64.to_ne_bytes()]), Ok(()));
    place.wait();
    let inside = made(|out| cu!(cuLibraryGetModule(out, library))).unwrap();
    assert_eq!(cu!(cuModuleUnload(inside)), Err(NOT_PERMITTED));
    cu!(cuLibraryUnload(library)).unwrap();
    assert_eq!(place.launch(kernel.cast(), &[&0u64.to_ne_bytes()]), Err(INVALID_HANDLE));

    let spin = place.function(c"weir_spin");
    let elsewhere = TestContext::new();
    assert_eq!(elsewhere.launch(spin, &[&0u64.to_ne_bytes()]), Err(INVALID_HANDLE), "a stream of another context");
    let gone = elsewhere.function(c"weir_spin");
    drop(elsewhere);
    cu!(cuCtxSetCurrent(place.ctx)).unwrap();
    assert_eq!(place.launch(gone, &[&0u64.to_ne_bytes()]), Err(INVALID_HANDLE), "its context is gone");
}

#[test]
fn a_functions_attribute_hides_its_kernels() {
    let place = TestContext::new();
    let limit = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    let library = made(|out| {
        let (none, nothing) = (null_mut(), null_mut());
        cu!(cuLibraryLoadData(out, PTX.as_ptr().cast(), none, nothing, 0, null_mut(), null_mut(), 0))
    })
    .unwrap();
    let kernel = made(|out| cu!(cuLibraryGetKernel(out, library, c"other".as_ptr()))).unwrap();
    cu!(cuKernelSetAttribute(limit, 60_000, kernel, 0)).unwrap();
    let function = made(|out| cu!(cuKernelGetFunction(out, kernel))).unwrap();
    let of_function = || made(|out| cu!(cuFuncGetAttribute(out, limit, function)));
    assert_eq!(of_function(), Ok(60_000));
    cu!(cuFuncSetAttribute(function, limit, 70_000)).unwrap();
    cu!(cuKernelSetAttribute(limit, 50_000, kernel, 0)).unwrap();
    assert_eq!(of_function(), Ok(70_000));
    assert_eq!(made(|out| cu!(cuKernelGetAttribute(out, limit, kernel, 0))), Ok(50_000));
    assert_eq!(place.shaped(kernel.cast(), [1; 3], [1; 3], 70_000), Ok(()));
    assert_eq!(place.shaped(kernel.cast(), [1; 3], [1; 3], 70_001), Err(INVALID_VALUE));
    place.wait();
    cu!(cuLibraryUnload(library)).unwrap();
}

//! The few driver functions that the pool's tests call, found as a job finds them: by loading
//! `libcuda.so.1`. What LD_PRELOAD puts in front of it is what is tested.
#![allow(non_snake_case, dead_code, unreachable_pub, missing_docs)]

use std::ffi::{CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr::null_mut;
use weir_cuda::*;

macro_rules! api {
    ($($name:ident($($ty:ty),*);)*) => {
        /// The functions.
        pub struct Api { $(pub $name: unsafe extern "C" fn($($ty),*) -> CUresult),* }
        impl Api {
            /// Loads the library, for good.
            pub fn load() -> &'static Self {
                // SAFETY: loading runs the library's initialisers, as in every CUDA program.
                let library = unsafe { libloading::Library::new("libcuda.so.1") }.expect("libcuda.so.1");
                let library: &'static libloading::Library = Box::leak(Box::new(library));
                // SAFETY: the types are those of the public headers.
                Box::leak(Box::new(Self { $($name: unsafe {
                    *library.get(stringify!($name).as_bytes()).unwrap_or_else(|e| panic!("{}: {e}", stringify!($name)))
                }),* }))
            }
        }
    };
}

api! {
    cuInit(c_uint);
    cuDeviceGet(*mut c_int, c_int);
    cuDevicePrimaryCtxRetain(*mut CUcontext, c_int);
    cuDevicePrimaryCtxRelease_v2(c_int);
    cuDevicePrimaryCtxReset_v2(c_int);
    cuCtxCreate_v2(*mut CUcontext, c_uint, c_int);
    cuCtxDestroy_v2(CUcontext);
    cuCtxSetCurrent(CUcontext);
    cuCtxSynchronize();
    cuCtxEnablePeerAccess(CUcontext, c_uint);
    cuCtxDisablePeerAccess(CUcontext);
    cuModuleLoadData(*mut CUmodule, *const c_void);
    cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
    cuLaunchKernel(CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void, *mut *mut c_void);
    cuLaunchHostFunc(CUstream, CUhostFn, *mut c_void);
    cuMemAlloc_v2(*mut CUdeviceptr, usize);
    cuMemAllocPitch_v2(*mut CUdeviceptr, *mut usize, usize, usize, c_uint);
    cuMemFree_v2(CUdeviceptr);
    cuMemAllocAsync(*mut CUdeviceptr, usize, CUstream);
    cuMemAllocAsync_ptsz(*mut CUdeviceptr, usize, CUstream);
    cuMemFreeAsync(CUdeviceptr, CUstream);
    cuMemFreeAsync_ptsz(CUdeviceptr, CUstream);
    cuMemAllocFromPoolAsync(*mut CUdeviceptr, usize, CUmemoryPool, CUstream);
    cuMemAllocManaged(*mut CUdeviceptr, usize, c_uint);
    cuMemCreate(*mut CUmemGenericAllocationHandle, usize, *const CUmemAllocationProp, c_ulonglong);
    cuMemRelease(CUmemGenericAllocationHandle);
    cuMemRetainAllocationHandle(*mut CUmemGenericAllocationHandle, *mut c_void);
    cuMemGetHandleForAddressRange(*mut c_void, CUdeviceptr, usize, CUmemRangeHandleType, c_ulonglong);
    cuDeviceGetDefaultMemPool(*mut CUmemoryPool, c_int);
    cuDeviceSetMemPool(c_int, CUmemoryPool);
    cuMemPoolCreate(*mut CUmemoryPool, *const CUmemPoolProps);
    cuMemPoolDestroy(CUmemoryPool);
    cuMemPoolTrimTo(CUmemoryPool, usize);
    cuMemPoolGetAttribute(CUmemoryPool, CUmemPool_attribute, *mut c_void);
    cuMemPoolSetAttribute(CUmemoryPool, CUmemPool_attribute, *mut c_void);
    cuMemPoolSetAccess(CUmemoryPool, *const CUmemAccessDesc, usize);
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemGetAddressRange_v2(*mut CUdeviceptr, *mut usize, CUdeviceptr);
    cuPointerGetAttribute(*mut c_void, CUpointer_attribute, CUdeviceptr);
    cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
    cuMemFreeHost(*mut c_void);
    cuMemcpyDtoH_v2(*mut c_void, CUdeviceptr, usize);
    cuMemcpyHtoD_v2(CUdeviceptr, *const c_void, usize);
    cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream);
    cuMemsetD32Async(CUdeviceptr, c_uint, usize, CUstream);
    cuStreamCreate(*mut CUstream, c_uint);
    cuStreamDestroy_v2(CUstream);
    cuStreamSynchronize(CUstream);
    cuStreamQuery(CUstream);
    cuStreamWaitEvent(CUstream, CUevent, c_uint);
    cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode);
    cuStreamEndCapture(CUstream, *mut CUgraph);
    cuGraphInstantiateWithFlags(*mut CUgraphExec, CUgraph, c_ulonglong);
    cuGraphLaunch(CUgraphExec, CUstream);
    cuGraphExecDestroy(CUgraphExec);
    cuGraphDestroy(CUgraph);
    cuEventCreate(*mut CUevent, c_uint);
    cuEventRecord(CUevent, CUstream);
    cuEventQuery(CUevent);
    cuEventSynchronize(CUevent);
    cuEventDestroy_v2(CUevent);
    cuIpcGetMemHandle(*mut CUipcMemHandle, CUdeviceptr);
    cuIpcOpenMemHandle_v2(*mut CUdeviceptr, CUipcMemHandle, c_uint);
    cuIpcCloseMemHandle(CUdeviceptr);
}

pub const OK: CUresult = CUresult::CUDA_SUCCESS;
pub const OUT_OF_MEMORY: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;

/// The call must have succeeded.
#[track_caller]
pub fn ok(result: CUresult) {
    assert_eq!(result, OK, "a driver call failed");
}

/// The test kernels of the context that was current when they were loaded.
#[derive(Clone, Copy)]
pub struct Kernels {
    api: &'static Api,
    fill: CUfunction,
    check: CUfunction,
    spin: CUfunction,
}

// SAFETY: functions of a module may be launched from any thread with its context.
unsafe impl Send for Kernels {}
// SAFETY: as above.
unsafe impl Sync for Kernels {}

impl Kernels {
    pub fn load(api: &'static Api) -> Self {
        let text = CString::new(include_str!("../kernels.ptx")).expect("no zero in the text");
        let mut module = null_mut();
        // SAFETY: the text ends with a zero.
        ok(unsafe { (api.cuModuleLoadData)(&raw mut module, text.as_ptr().cast()) });
        let find = |name: &std::ffi::CStr| {
            let mut function = null_mut();
            // SAFETY: all places are live.
            ok(unsafe { (api.cuModuleGetFunction)(&raw mut function, module, name.as_ptr()) });
            function
        };
        Self { api, fill: find(c"weir_fill"), check: find(c"weir_check"), spin: find(c"weir_spin") }
    }

    fn launch(&self, function: CUfunction, stream: CUstream, arguments: &mut [*mut c_void]) {
        // SAFETY: the arguments match the kernel's, as the callers below build them.
        ok(unsafe {
            (self.api.cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments.as_mut_ptr(), null_mut())
        });
    }

    pub fn fill(&self, stream: CUstream, ptr: u64, words: u64, pattern: u32) {
        let (mut ptr, mut words, mut pattern) = (ptr, words, pattern);
        let mut arguments = [(&raw mut ptr).cast(), (&raw mut words).cast(), (&raw mut pattern).cast()];
        self.launch(self.fill, stream, &mut arguments);
    }

    pub fn check(&self, stream: CUstream, ptr: u64, words: u64, pattern: u32, errors: u64) {
        let (mut ptr, mut words, mut pattern, mut errors) = (ptr, words, pattern, errors);
        let mut arguments =
            [(&raw mut ptr).cast(), (&raw mut words).cast(), (&raw mut pattern).cast(), (&raw mut errors).cast()];
        self.launch(self.check, stream, &mut arguments);
    }

    pub fn spin(&self, stream: CUstream, nanoseconds: u64) {
        let mut nanoseconds = nanoseconds;
        self.launch(self.spin, stream, &mut [(&raw mut nanoseconds).cast()]);
    }
}

/// Starts the driver and makes the primary context of a device current.
pub fn context_on(api: &Api, device: i32) -> CUcontext {
    let mut ctx = null_mut();
    // SAFETY: the place is live.
    unsafe {
        ok((api.cuInit)(0));
        ok((api.cuDevicePrimaryCtxRetain)(&raw mut ctx, device));
        ok((api.cuCtxSetCurrent)(ctx));
    }
    ctx
}

/// Calls a library that was built for tests to check that its pools are consistent; any other is not called.
pub fn check_pools() {
    // SAFETY: looks a symbol up among all loaded objects.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"weir_pool_check".as_ptr()) };
    if !found.is_null() {
        // SAFETY: the library documents this signature.
        let check: unsafe extern "C" fn() -> c_int = unsafe { std::mem::transmute(found) };
        // SAFETY: takes nothing.
        assert_eq!(unsafe { check() }, 0, "a pool is not consistent");
    }
}

/// Queries the same library for the bytes that an undo lost; 0 from any other.
pub fn lost_bytes() -> u64 {
    // SAFETY: looks a symbol up among all loaded objects.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"weir_pool_lost".as_ptr()) };
    if found.is_null() {
        return 0;
    }
    // SAFETY: the library documents this signature.
    let lost: unsafe extern "C" fn() -> u64 = unsafe { std::mem::transmute(found) };
    // SAFETY: takes nothing.
    unsafe { lost() }
}

/// What the library's pools have moved, in granules: remaps, meshes, migrations. Zeros without the library.
pub fn moved() -> [u64; 3] {
    // SAFETY: looks a symbol up among all loaded objects.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"weir_status".as_ptr()) };
    if found.is_null() {
        return [0; 3];
    }
    // SAFETY: the library documents this signature.
    let status: unsafe extern "C" fn(*mut c_char, usize) -> usize = unsafe { std::mem::transmute(found) };
    let mut text = vec![0_u8; 1 << 20];
    // SAFETY: so many bytes are there.
    let length = unsafe { status(text.as_mut_ptr().cast(), text.len()) };
    let status: serde_json::Value = serde_json::from_slice(text.get(..length).unwrap_or_default()).unwrap_or_default();
    let pools = || status["pools"].as_array().into_iter().flatten();
    ["remaps", "meshes", "migrated"].map(|name| pools().filter_map(|pool| pool[name].as_u64()).sum())
}

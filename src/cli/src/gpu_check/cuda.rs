//! The driver as the steps of `weir gpu-check` call it: loaded like any program's, each result as the driver's own code.
//! Every call that takes a pointer is here.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use weir_cuda::*;

/// What the driver returned where it was not success.
pub(super) type Code = u32;

macro_rules! driver {
    ($($name:ident($($ty:ty),*);)*) => {
        #[allow(non_snake_case)]
        pub(super) struct Driver { $($name: Option<unsafe extern "C" fn($($ty),*) -> CUresult>),* }

        impl Driver {
            /// Loads the library, for good.
            pub(super) fn load() -> Result<Self, String> {
                // SAFETY: the name is a C string; loading runs the library's initialisers, as in every CUDA program.
                let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
                if handle.is_null() {
                    return Err("libcuda.so.1 cannot be loaded: is an NVIDIA driver installed?".to_owned());
                }
                // SAFETY: the handle is open, the names are C strings, and the public headers declare these types.
                Ok(unsafe { Self { $($name: {
                    let found = libc::dlsym(handle, concat!(stringify!($name), "\0").as_ptr().cast());
                    std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($ty),*) -> CUresult>>(found)
                }),* } })
            }
        }
    };
}

driver! {
    cuInit(c_uint);
    cuDriverGetVersion(*mut c_int);
    cuDeviceGetCount(*mut c_int);
    cuDeviceGetName(*mut c_char, c_int, c_int);
    cuDeviceGetUuid(*mut CUuuid, c_int);
    cuDeviceGetUuid_v2(*mut CUuuid, c_int);
    cuDeviceTotalMem_v2(*mut usize, c_int);
    cuDeviceGetAttribute(*mut c_int, c_int, c_int);
    cuDeviceCanAccessPeer(*mut c_int, c_int, c_int);
    cuDevicePrimaryCtxRetain(*mut CUcontext, c_int);
    cuDevicePrimaryCtxRelease_v2(c_int);
    cuCtxSetCurrent(CUcontext);
    cuCtxSynchronize();
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemAlloc_v2(*mut CUdeviceptr, usize);
    cuMemFree_v2(CUdeviceptr);
    cuMemAllocManaged(*mut CUdeviceptr, usize, c_uint);
    cuMemAllocAsync(*mut CUdeviceptr, usize, CUstream);
    cuMemFreeAsync(CUdeviceptr, CUstream);
    cuMemGetAllocationGranularity(*mut usize, *const CUmemAllocationProp, c_uint);
    cuMemAddressReserve(*mut CUdeviceptr, usize, usize, CUdeviceptr, c_ulonglong);
    cuMemAddressFree(CUdeviceptr, usize);
    cuMemCreate(*mut CUmemGenericAllocationHandle, usize, *const CUmemAllocationProp, c_ulonglong);
    cuMemRelease(CUmemGenericAllocationHandle);
    cuMemMap(CUdeviceptr, usize, usize, CUmemGenericAllocationHandle, c_ulonglong);
    cuMemUnmap(CUdeviceptr, usize);
    cuMemSetAccess(CUdeviceptr, usize, *const CUmemAccessDesc, usize);
    cuMemsetD32_v2(CUdeviceptr, c_uint, usize);
    cuMemcpyDtoH_v2(*mut c_void, CUdeviceptr, usize);
    cuMemcpyDtoD_v2(CUdeviceptr, CUdeviceptr, usize);
    cuMemcpyPeer(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, usize);
    cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
    cuCtxEnablePeerAccess(CUcontext, c_uint);
    cuPointerSetAttribute(*const c_void, c_int, CUdeviceptr);
    cuModuleLoadData(*mut CUmodule, *const c_void);
    cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
    cuLaunchKernel(CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void, *mut *mut c_void);
    cuStreamCreate(*mut CUstream, c_uint);
    cuStreamQuery(CUstream);
    cuStreamSynchronize(CUstream);
}

/// The functions that only older drivers lack are called by this: a missing one is the driver's NOT_FOUND.
macro_rules! call {
    ($self:ident.$name:ident($($argument:expr),*)) => {
        match $self.$name {
            // SAFETY: every place that is passed is a live local of the type that the public header declares.
            Some(function) => match unsafe { function($($argument),*) } {
                CUresult::CUDA_SUCCESS => Ok(()),
                code => Err(code.0),
            },
            None => Err(CUresult::CUDA_ERROR_NOT_FOUND.0),
        }
    };
}

/// How a handle is created.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    /// `CU_MEM_HANDLE_TYPE_*`.
    pub(super) handle_type: u32,
    pub(super) rdma: bool,
}

/// Rights to mapped memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rights {
    Read,
    ReadWrite,
}

/// A context that is current, or can be made so.
#[derive(Clone, Copy)]
pub(super) struct Context(CUcontext);

// SAFETY: the driver's handle, which any thread may make current.
unsafe impl Send for Context {}
// SAFETY: the same.
unsafe impl Sync for Context {}

/// A stream.
#[derive(Clone, Copy)]
pub(super) struct Stream(CUstream);

/// A kernel.
#[derive(Clone, Copy)]
pub(super) struct Kernel(CUfunction);

impl Stream {
    /// The default stream of the current context.
    pub(super) const LEGACY: Self = Self(null_mut());
}

impl Driver {
    pub(super) fn init(&self) -> Result<(), Code> {
        call!(self.cuInit(0))
    }

    pub(super) fn version(&self) -> Result<i32, Code> {
        let mut value = 0;
        call!(self.cuDriverGetVersion(&raw mut value)).map(|()| value)
    }

    pub(super) fn count(&self) -> Result<i32, Code> {
        let mut value = 0;
        call!(self.cuDeviceGetCount(&raw mut value)).map(|()| value)
    }

    pub(super) fn name(&self, device: i32) -> Result<String, Code> {
        let mut name = [0u8; 128];
        call!(self.cuDeviceGetName(name.as_mut_ptr().cast(), 127, device))?;
        Ok(CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned())
    }

    /// As `CUDA_VISIBLE_DEVICES` takes it, without its beginning `GPU-` or `MIG-`.
    pub(super) fn uuid(&self, device: i32) -> Result<String, Code> {
        let mut uuid = CUuuid { bytes: [0; 16] };
        call!(self.cuDeviceGetUuid_v2(&raw mut uuid, device))
            .or_else(|_| call!(self.cuDeviceGetUuid(&raw mut uuid, device)))?;
        let digits = format!("{:032x}", u128::from_be_bytes(uuid.bytes.map(|byte| byte as u8)));
        let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| digits.get(part).unwrap_or_default().to_owned());
        Ok(parts.join("-"))
    }

    pub(super) fn total(&self, device: i32) -> Result<u64, Code> {
        let mut bytes = 0;
        call!(self.cuDeviceTotalMem_v2(&raw mut bytes, device)).map(|()| bytes as u64)
    }

    pub(super) fn attribute(&self, device: i32, number: i32) -> Result<i32, Code> {
        let mut value = 0;
        call!(self.cuDeviceGetAttribute(&raw mut value, number, device)).map(|()| value)
    }

    pub(super) fn can_access(&self, from: i32, to: i32) -> Result<bool, Code> {
        let mut value = 0;
        call!(self.cuDeviceCanAccessPeer(&raw mut value, from, to)).map(|()| value != 0)
    }

    /// The primary context of a device, current.
    pub(super) fn context(&self, device: i32) -> Result<Context, Code> {
        let mut context = null_mut();
        call!(self.cuDevicePrimaryCtxRetain(&raw mut context, device))?;
        self.set(Context(context)).map(|()| Context(context))
    }

    pub(super) fn set(&self, context: Context) -> Result<(), Code> {
        call!(self.cuCtxSetCurrent(context.0))
    }

    pub(super) fn release_context(&self, device: i32) -> Result<(), Code> {
        call!(self.cuDevicePrimaryCtxRelease_v2(device))
    }

    pub(super) fn synchronize(&self) -> Result<(), Code> {
        call!(self.cuCtxSynchronize())
    }

    /// Free bytes of the current context's device.
    pub(super) fn free_bytes(&self) -> Result<u64, Code> {
        let (mut free, mut total) = (0, 0);
        call!(self.cuMemGetInfo_v2(&raw mut free, &raw mut total)).map(|()| free as u64)
    }

    pub(super) fn alloc(&self, bytes: u64) -> Result<u64, Code> {
        let mut at = 0;
        call!(self.cuMemAlloc_v2(&raw mut at, bytes as usize)).map(|()| at)
    }

    pub(super) fn free(&self, at: u64) -> Result<(), Code> {
        call!(self.cuMemFree_v2(at))
    }

    pub(super) fn alloc_managed(&self, bytes: u64) -> Result<u64, Code> {
        let mut at = 0;
        call!(self.cuMemAllocManaged(&raw mut at, bytes as usize, 1)).map(|()| at)
    }

    /// Allocates and frees by the device's default mempool.
    pub(super) fn alloc_async(&self, bytes: u64) -> Result<(), Code> {
        let mut at = 0;
        call!(self.cuMemAllocAsync(&raw mut at, bytes as usize, null_mut()))?;
        call!(self.cuMemFreeAsync(at, null_mut()))
    }

    fn properties(device: i32, kind: Kind) -> CUmemAllocationProp {
        let mut properties = CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            location: CUmemLocation::of(CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, device),
            requestedHandleTypes: CUmemAllocationHandleType(kind.handle_type),
            ..CUmemAllocationProp::default()
        };
        properties.allocFlags.gpuDirectRDMACapable = u8::from(kind.rdma);
        properties
    }

    pub(super) fn granularity(&self, device: i32) -> Result<u64, Code> {
        let properties = Self::properties(device, Kind { handle_type: 0, rdma: false });
        let mut bytes = 0;
        call!(self.cuMemGetAllocationGranularity(&raw mut bytes, &raw const properties, 0)).map(|()| bytes as u64)
    }

    pub(super) fn reserve(&self, bytes: u64) -> Result<u64, Code> {
        let mut at = 0;
        call!(self.cuMemAddressReserve(&raw mut at, bytes as usize, 0, 0, 0)).map(|()| at)
    }

    pub(super) fn unreserve(&self, at: u64, bytes: u64) -> Result<(), Code> {
        call!(self.cuMemAddressFree(at, bytes as usize))
    }

    pub(super) fn create(&self, device: i32, bytes: u64, kind: Kind) -> Result<u64, Code> {
        let properties = Self::properties(device, kind);
        let mut handle = 0;
        call!(self.cuMemCreate(&raw mut handle, bytes as usize, &raw const properties, 0)).map(|()| handle)
    }

    pub(super) fn release(&self, handle: u64) -> Result<(), Code> {
        call!(self.cuMemRelease(handle))
    }

    pub(super) fn map(&self, at: u64, bytes: u64, handle: u64) -> Result<(), Code> {
        call!(self.cuMemMap(at, bytes as usize, 0, handle, 0))
    }

    pub(super) fn unmap(&self, at: u64, bytes: u64) -> Result<(), Code> {
        call!(self.cuMemUnmap(at, bytes as usize))
    }

    /// Gives devices rights to mapped memory.
    pub(super) fn set_access(&self, at: u64, bytes: u64, devices: &[i32], rights: Rights) -> Result<(), Code> {
        let flags = match rights {
            Rights::Read => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ,
            Rights::ReadWrite => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let descriptor = |device: &i32| CUmemAccessDesc {
            location: CUmemLocation::of(CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, *device),
            flags,
        };
        let descriptors: Vec<_> = devices.iter().map(descriptor).collect();
        call!(self.cuMemSetAccess(at, bytes as usize, descriptors.as_ptr(), descriptors.len()))
    }

    /// Fills memory with a word.
    pub(super) fn fill(&self, at: u64, words: u64, word: u32) -> Result<(), Code> {
        call!(self.cuMemsetD32_v2(at, word, words as usize))
    }

    /// The words at an address.
    pub(super) fn words(&self, at: u64, count: usize) -> Result<Vec<u32>, Code> {
        let mut words = vec![0u32; count];
        call!(self.cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), at, count * 4)).map(|()| words)
    }

    pub(super) fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), Code> {
        call!(self.cuMemcpyDtoD_v2(to, from, bytes as usize))
    }

    pub(super) fn copy_peer(&self, to: (u64, Context), from: (u64, Context), bytes: u64) -> Result<(), Code> {
        call!(self.cuMemcpyPeer(to.0, to.1.0, from.0, from.1.0, bytes as usize))
    }

    /// The current context's work may touch the other one's memory.
    pub(super) fn enable_access(&self, to: Context) -> Result<(), Code> {
        call!(self.cuCtxEnablePeerAccess(to.0, 0))
    }

    /// A zero that the host and every device reach, for as long as the process lives.
    pub(super) fn flag(&self) -> Result<&'static AtomicU32, Code> {
        let portable_and_mapped: c_uint = 3;
        let mut place = null_mut();
        call!(self.cuMemHostAlloc(&raw mut place, 4096, portable_and_mapped))?;
        // SAFETY: memory of the driver's, aligned to a page and never freed; others write whole words only.
        let flag = unsafe { &*place.cast::<AtomicU32>() };
        flag.store(0, Ordering::Release);
        Ok(flag)
    }

    /// Sets `SYNC_MEMOPS`.
    pub(super) fn sync_memops(&self, at: u64) -> Result<(), Code> {
        let on: c_uint = 1;
        let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS.0 as c_int;
        call!(self.cuPointerSetAttribute((&raw const on).cast(), attribute, at))
    }

    /// A kernel of a module, by the module's text.
    pub(super) fn kernel(&self, text: &CStr, name: &CStr) -> Result<Kernel, Code> {
        let (mut module, mut function) = (null_mut(), null_mut());
        call!(self.cuModuleLoadData(&raw mut module, text.as_ptr().cast()))?;
        call!(self.cuModuleGetFunction(&raw mut function, module, name.as_ptr()))?;
        Ok(Kernel(function))
    }

    /// Launches a kernel that takes one 64-bit number.
    pub(super) fn launch(&self, kernel: Kernel, stream: Stream, mut number: u64) -> Result<(), Code> {
        let mut arguments = [(&raw mut number).cast::<c_void>()];
        let arguments = arguments.as_mut_ptr();
        call!(self.cuLaunchKernel(kernel.0, 1, 1, 1, 1, 1, 1, 0, stream.0, arguments, null_mut()))
    }

    /// A stream that waits for no other.
    pub(super) fn stream(&self) -> Result<Stream, Code> {
        let mut stream = null_mut();
        call!(self.cuStreamCreate(&raw mut stream, CUstream_flags::CU_STREAM_NON_BLOCKING.0)).map(|()| Stream(stream))
    }

    /// Waits for a stream.
    pub(super) fn finish(&self, stream: Stream) -> Result<(), Code> {
        call!(self.cuStreamSynchronize(stream.0))
    }

    /// Whether work of a stream is under way.
    pub(super) fn busy(&self, stream: Stream) -> bool {
        call!(self.cuStreamQuery(stream.0)) == Err(CUresult::CUDA_ERROR_NOT_READY.0)
    }
}

/// What NVML says: used bytes of a device, whether it drives a display, and the processes that it sees.
pub(super) struct Nvml {
    handle: *mut c_void,
}

impl Nvml {
    pub(super) fn load() -> Result<Self, String> {
        // SAFETY: the name is a C string.
        let handle = unsafe { libc::dlopen(c"libnvidia-ml.so.1".as_ptr(), libc::RTLD_NOW) };
        if handle.is_null() {
            return Err("libnvidia-ml.so.1 cannot be loaded".to_owned());
        }
        let nvml = Self { handle };
        match nvml.function::<unsafe extern "C" fn() -> c_int>(c"nvmlInit_v2") {
            // SAFETY: it takes nothing.
            Some(init) => match unsafe { init() } {
                0 => Ok(nvml),
                code => Err(format!("nvmlInit_v2 returned {code}")),
            },
            None => Err("libnvidia-ml.so.1 has no nvmlInit_v2".to_owned()),
        }
    }

    fn function<T: Copy>(&self, name: &CStr) -> Option<T> {
        // SAFETY: the handle is open. Callers name the type that the public header declares for the function.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        // SAFETY: a function pointer is as large as an address, which every caller's type is.
        (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
    }

    /// A device by `GPU-…` or `MIG-…`.
    fn device(&self, uuid: &str) -> Option<*mut c_void> {
        let find: unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int =
            self.function(c"nvmlDeviceGetHandleByUUID")?;
        let uuid = std::ffi::CString::new(uuid).ok()?;
        let mut device = null_mut();
        // SAFETY: both places live through the call.
        (unsafe { find(uuid.as_ptr(), &raw mut device) } == 0).then_some(device)
    }

    pub(super) fn knows(&self, uuid: &str) -> bool {
        self.device(uuid).is_some()
    }

    /// Used bytes, of all processes together.
    pub(super) fn used(&self, uuid: &str) -> Option<u64> {
        let info: unsafe extern "C" fn(*mut c_void, *mut [u64; 3]) -> c_int =
            self.function(c"nvmlDeviceGetMemoryInfo")?;
        let device = self.device(uuid)?;
        let mut memory = [0u64; 3]; // total, free, used
        // SAFETY: the struct is three 64-bit numbers.
        (unsafe { info(device, &raw mut memory) } == 0).then_some(memory[2])
    }

    /// Whether a display is driven by the device; `None`: not known.
    pub(super) fn display(&self, uuid: &str) -> Option<bool> {
        let active: unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int =
            self.function(c"nvmlDeviceGetDisplayActive")?;
        let mut value = 0;
        // SAFETY: the place lives through the call.
        (unsafe { active(self.device(uuid)?, &raw mut value) } == 0).then_some(value != 0)
    }

    /// Compute processes, by pid and bytes; an error is the code.
    pub(super) fn processes(&self, uuid: &str) -> Result<Vec<(u32, u64)>, i32> {
        #[repr(C)]
        #[derive(Clone, Copy, Default)]
        struct Process {
            pid: c_uint,
            bytes: u64,
            instances: [c_uint; 2],
        }
        type List = unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut Process) -> c_int;
        let (Some(list), Some(device)) =
            (self.function::<List>(c"nvmlDeviceGetComputeRunningProcesses_v3"), self.device(uuid))
        else {
            return Err(-1);
        };
        let mut found = [Process::default(); 64];
        let mut count = 64;
        // SAFETY: there is room for so many.
        match unsafe { list(device, &raw mut count, found.as_mut_ptr()) } {
            0 => Ok(found.iter().take(count as usize).map(|process| (process.pid, process.bytes)).collect()),
            code => Err(code),
        }
    }
}

/// NCCL, where the loader finds one.
pub(super) struct Nccl {
    version: unsafe extern "C" fn(*mut c_int) -> c_int,
    init: unsafe extern "C" fn(*mut *mut c_void, c_int, *const c_int) -> c_int,
    all_reduce: unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, *mut c_void, CUstream) -> c_int,
}

/// The ranks of a communicator, one a device, until the process ends.
pub(super) struct Ranks([*mut c_void; 2]);

// SAFETY: NCCL takes calls from one thread a rank.
unsafe impl Sync for Ranks {}

impl Nccl {
    pub(super) fn load() -> Option<Self> {
        // SAFETY: the name is a C string.
        let handle = unsafe { libc::dlopen(c"libnccl.so.2".as_ptr(), libc::RTLD_NOW) };
        if handle.is_null() {
            return None;
        }
        // SAFETY: the handle is open; the public header declares these types, and a function pointer is as large as an address.
        unsafe {
            let found = |name: &CStr| {
                let found = libc::dlsym(handle, name.as_ptr());
                (!found.is_null()).then_some(found)
            };
            Some(Self {
                version: std::mem::transmute_copy(&found(c"ncclGetVersion")?),
                init: std::mem::transmute_copy(&found(c"ncclCommInitAll")?),
                all_reduce: std::mem::transmute_copy(&found(c"ncclAllReduce")?),
            })
        }
    }

    pub(super) fn version(&self) -> Option<i32> {
        let mut version = 0;
        // SAFETY: the place is a live local.
        (unsafe { (self.version)(&raw mut version) } == 0).then_some(version)
    }

    /// A communicator of devices 0 and 1.
    pub(super) fn ranks(&self) -> Result<Ranks, Code> {
        let mut ranks = [null_mut(); 2];
        // SAFETY: there is room for both.
        match unsafe { (self.init)(ranks.as_mut_ptr(), 2, [0, 1].as_ptr()) } {
            0 => Ok(Ranks(ranks)),
            code => Err(code as Code),
        }
    }

    /// Queues the sum over both devices of 32-bit words.
    pub(super) fn sum(
        &self,
        ranks: &Ranks,
        rank: usize,
        places: (u64, u64),
        words: u64,
        stream: Stream,
    ) -> Result<(), Code> {
        let (int32, sum) = (2, 0);
        let (from, to) = (places.0 as *const c_void, places.1 as *mut c_void);
        // SAFETY: device memory of that many words each, and the stream is of the rank's device.
        match unsafe { (self.all_reduce)(from, to, words as usize, int32, sum, ranks.0[rank], stream.0) } {
            0 => Ok(()),
            code => Err(code as Code),
        }
    }
}

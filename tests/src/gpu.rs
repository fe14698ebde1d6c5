//! What rules need before they can show anything: a current context, memory with known content, kernels,
//! a stream that is busy for as long as a rule wants, mapped virtual memory.

use crate::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The legacy default stream, by name.
pub(crate) const LEGACY: CUstream = 1 as CUstream;
/// The calling thread's default stream, by name.
pub(crate) const PER_THREAD: CUstream = 2 as CUstream;
/// The stream argument 0.
pub(crate) const DEFAULT: CUstream = null_mut();

pub(crate) const NON_BLOCKING: u32 = CUstream_flags::CU_STREAM_NON_BLOCKING.0;

/// Starts the driver.
pub(crate) fn init() {
    ok(cuInit(0));
}

/// Starts the driver and makes the primary context of the first device current.
pub(crate) fn context() -> CUcontext {
    context_on(0)
}

/// The same for any device.
pub(crate) fn context_on(device: CUdevice) -> CUcontext {
    init();
    let mut ctx = null_mut();
    ok(cuDevicePrimaryCtxRetain(&raw mut ctx, device));
    ok(cuCtxSetCurrent(ctx));
    ctx
}

/// A created context, current and on top of the stack.
pub(crate) fn created_context() -> CUcontext {
    init();
    let mut ctx = null_mut();
    ok(cuCtxCreate_v2(&raw mut ctx, 0, 0));
    ctx
}

pub(crate) fn current() -> CUcontext {
    let mut ctx = null_mut();
    ok(cuCtxGetCurrent(&raw mut ctx));
    ctx
}

pub(crate) fn driver_version() -> i32 {
    let mut version = 0;
    ok(cuDriverGetVersion(&raw mut version));
    version
}

pub(crate) fn attribute(attribute: CUdevice_attribute) -> i32 {
    let mut value = 0;
    ok(cuDeviceGetAttribute(&raw mut value, attribute, 0));
    value
}

/// Leaves the rule unless the first device has this attribute.
pub(crate) fn needs(wanted: CUdevice_attribute) {
    if attribute(wanted) == 0 {
        skip("the device does not support it");
    }
}

/// Leaves the rule where the first device has no managed memory.
pub(crate) fn needs_managed() {
    needs(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
}

/// Leaves the rule where so much address space cannot be reserved.
pub(crate) fn needs_address_space(bytes: usize) {
    let limit = crate::driver::limits().address_space;
    if limit != 0 && bytes as u64 >= limit {
        skip("the machine has too little address space");
    }
}

/// Leaves the rule where it may not take so much memory.
pub(crate) fn needs_memory(bytes: usize) {
    if crate::worker::budget().is_some_and(|budget| budget < bytes as u64) {
        skip("it takes more memory than it may");
    }
}

pub(crate) fn alloc(bytes: usize) -> CUdeviceptr {
    let mut ptr = 0;
    ok(cuMemAlloc_v2(&raw mut ptr, bytes));
    ptr
}

pub(crate) fn free(ptr: CUdeviceptr) {
    ok(cuMemFree_v2(ptr));
}

/// Page-locked host memory.
pub(crate) fn pinned(bytes: usize) -> *mut u8 {
    pinned_as(bytes)
}

/// The same, by another type of its content.
pub(crate) fn pinned_as<T>(bytes: usize) -> *mut T {
    let mut ptr = null_mut();
    ok(cuMemAllocHost_v2(&raw mut ptr, bytes));
    ptr.cast()
}

/// Free and total bytes of the current context's device.
pub(crate) fn memory_info() -> (usize, usize) {
    let (mut free, mut total) = (0, 0);
    ok(cuMemGetInfo_v2(&raw mut free, &raw mut total));
    (free, total)
}

pub(crate) fn put(ptr: CUdeviceptr, bytes: &[u8]) {
    ok(cuMemcpyHtoD_v2(ptr, bytes.as_ptr().cast(), bytes.len()));
}

pub(crate) fn get(ptr: CUdeviceptr, bytes: usize) -> Vec<u8> {
    let mut out = vec![0xEE; bytes];
    ok(cuMemcpyDtoH_v2(out.as_mut_ptr().cast(), ptr, bytes));
    out
}

pub(crate) fn get_word(ptr: CUdeviceptr) -> u32 {
    u32::from_le_bytes(get(ptr, 4).try_into().expect("four bytes"))
}

/// Bytes that no two places share by accident.
pub(crate) fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8) ^ seed).collect()
}

/// Whether all words at `ptr` are `value`.
pub(crate) fn all_words(ptr: CUdeviceptr, words: usize, value: u32) -> bool {
    get(ptr, words * 4).chunks_exact(4).all(|w| w == value.to_le_bytes())
}

/// A stream that takes no part in the legacy default stream's order.
pub(crate) fn stream() -> CUstream {
    stream_with(NON_BLOCKING)
}

pub(crate) fn stream_with(flags: u32) -> CUstream {
    let mut stream = null_mut();
    ok(cuStreamCreate(&raw mut stream, flags));
    stream
}

pub(crate) fn sync(stream: CUstream) {
    ok(cuStreamSynchronize(stream));
}

pub(crate) fn event() -> CUevent {
    event_with(0)
}

pub(crate) fn event_with(flags: u32) -> CUevent {
    let mut event = null_mut();
    ok(cuEventCreate(&raw mut event, flags));
    event
}

/// The text of the test kernels, terminated.
pub(crate) fn kernel_text() -> CString {
    CString::new(include_str!("../kernels.ptx")).expect("no zero in the text")
}

/// The test kernels, loaded into the current context.
pub(crate) fn kernels() -> CUmodule {
    let text = kernel_text();
    let mut module = null_mut();
    ok(cuModuleLoadData(&raw mut module, text.as_ptr().cast()));
    module
}

pub(crate) fn function(module: CUmodule, name: &CStr) -> CUfunction {
    let mut function = null_mut();
    ok(cuModuleGetFunction(&raw mut function, module, name.as_ptr()));
    function
}

/// Launches one block of 64 threads.
pub(crate) fn launch(f: CUfunction, stream: CUstream, arguments: &mut [*mut c_void]) {
    ok(cuLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, stream, arguments.as_mut_ptr(), null_mut()));
}

/// The test kernels of one module.
pub(crate) struct Kernels {
    pub(crate) fill: CUfunction,
    pub(crate) check: CUfunction,
    pub(crate) copy: CUfunction,
    pub(crate) spin: CUfunction,
    pub(crate) start: CUfunction,
    pub(crate) wait: CUfunction,
}

impl Kernels {
    pub(crate) fn load() -> Self {
        let module = kernels();
        Self {
            fill: function(module, c"weir_fill"),
            check: function(module, c"weir_check"),
            copy: function(module, c"weir_copy"),
            spin: function(module, c"weir_spin"),
            start: function(module, c"weir_start"),
            wait: function(module, c"weir_await"),
        }
    }

    pub(crate) fn fill(&self, stream: CUstream, mut ptr: CUdeviceptr, words: u64, value: u32) {
        let (mut words, mut value) = (words, value);
        launch(self.fill, stream, &mut [(&raw mut ptr).cast(), (&raw mut words).cast(), (&raw mut value).cast()]);
    }

    pub(crate) fn copy(&self, stream: CUstream, to: CUdeviceptr, from: CUdeviceptr, words: u64) {
        let (mut to, mut from, mut words) = (to, from, words);
        launch(self.copy, stream, &mut [(&raw mut to).cast(), (&raw mut from).cast(), (&raw mut words).cast()]);
    }

    /// Adds to the word at `errors` how many words differ from `value`.
    pub(crate) fn check(&self, stream: CUstream, ptr: CUdeviceptr, words: u64, value: u32, errors: CUdeviceptr) {
        let (mut ptr, mut words, mut value, mut errors) = (ptr, words, value, errors);
        launch(
            self.check,
            stream,
            &mut [(&raw mut ptr).cast(), (&raw mut words).cast(), (&raw mut value).cast(), (&raw mut errors).cast()],
        );
    }

    pub(crate) fn spin(&self, stream: CUstream, milliseconds: u64) {
        let mut nanoseconds = milliseconds * 1_000_000;
        launch(self.spin, stream, &mut [(&raw mut nanoseconds).cast()]);
    }

    /// Marks the word at `flag`, of pinned memory, when it runs.
    pub(crate) fn start(&self, stream: CUstream, flag: *mut u32) {
        let mut flag = flag as u64;
        launch(self.start, stream, &mut [(&raw mut flag).cast()]);
    }

    /// Runs until the word at `flag` is marked.
    pub(crate) fn wait(&self, stream: CUstream, flag: *mut u32) {
        let mut flag = flag as u64;
        launch(self.wait, stream, &mut [(&raw mut flag).cast()]);
    }
}

/// A host function that keeps a stream busy until it is opened (or ten seconds are over, so that a
/// failing rule ends too).
pub(crate) struct Gate(&'static AtomicU32);

const CLOSED: u32 = 0;
const OPEN: u32 = 1;

impl Gate {
    pub(crate) fn close(stream: CUstream) -> Self {
        let gate = Self(Box::leak(Box::new(AtomicU32::new(CLOSED))));
        ok(cuLaunchHostFunc(stream, Some(wait_at_gate), gate.state()));
        gate
    }

    fn state(&self) -> *mut c_void {
        std::ptr::from_ref(self.0).cast_mut().cast()
    }

    pub(crate) fn open(&self) {
        self.0.store(OPEN, Ordering::SeqCst);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

/// A gate that nobody opens opens by itself, so that a rule that fails does not hang.
pub(crate) const GATE_LIMIT: Duration = Duration::from_secs(20);

unsafe extern "C" fn wait_at_gate(state: *mut c_void) {
    // SAFETY: the state is the leaked word of a gate.
    let state = unsafe { &*state.cast::<AtomicU32>() };
    let start = Instant::now();
    while state.load(Ordering::SeqCst) == CLOSED && start.elapsed() < GATE_LIMIT {
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A counter that a host function counts up.
pub(crate) fn count_up_later(stream: CUstream) -> &'static AtomicU32 {
    unsafe extern "C" fn count(counter: *mut c_void) {
        // SAFETY: the counter is leaked below.
        unsafe { &*counter.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
    }
    let counter: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(0)));
    let argument = std::ptr::from_ref(counter).cast_mut().cast();
    ok(cuLaunchHostFunc(stream, Some(count), argument));
    counter
}

/// A place in memory: of a device, by its number.
pub(crate) fn on_device(device: i32) -> CUmemLocation {
    location(CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, device)
}

pub(crate) fn location(kind: CUmemLocationType, id: i32) -> CUmemLocation {
    let mut location = CUmemLocation { type_: kind, ..CUmemLocation::default() };
    location.__bindgen_anon_1.id = id;
    location
}

/// Properties of plain device memory, for `cuMemCreate`.
pub(crate) fn plain(device: i32) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        location: on_device(device),
        ..CUmemAllocationProp::default()
    }
}

/// Properties of device memory that can be exported as a file descriptor.
pub(crate) fn exportable(device: i32) -> CUmemAllocationProp {
    CUmemAllocationProp { requestedHandleTypes: FD, ..plain(device) }
}

pub(crate) const FD: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// The smallest unit of virtual memory management; leaves the rule where there is none.
pub(crate) fn granularity() -> usize {
    needs(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
    let mut unit = 0;
    let minimum = CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    ok(cuMemGetAllocationGranularity(&raw mut unit, &raw const *Box::leak(Box::new(plain(0))), minimum));
    unit
}

pub(crate) fn reserve(bytes: usize) -> CUdeviceptr {
    let mut ptr = 0;
    ok(cuMemAddressReserve(&raw mut ptr, bytes, 0, 0, 0));
    ptr
}

pub(crate) fn create(bytes: usize) -> CUmemGenericAllocationHandle {
    create_with(bytes, &plain(0))
}

pub(crate) fn create_with(bytes: usize, properties: &CUmemAllocationProp) -> CUmemGenericAllocationHandle {
    let mut handle = 0;
    ok(cuMemCreate(&raw mut handle, bytes, properties, 0));
    handle
}

pub(crate) fn map(ptr: CUdeviceptr, bytes: usize, handle: CUmemGenericAllocationHandle) {
    ok(cuMemMap(ptr, bytes, 0, handle, 0));
}

pub(crate) fn grant(ptr: CUdeviceptr, bytes: usize) {
    ok(set_access(ptr, bytes, &[read_write(0)]));
}

pub(crate) fn set_access(ptr: CUdeviceptr, bytes: usize, access: &[CUmemAccessDesc]) -> CUresult {
    cuMemSetAccess(ptr, bytes, access.as_ptr(), access.len())
}

pub(crate) fn read_write(device: i32) -> CUmemAccessDesc {
    CUmemAccessDesc { location: on_device(device), flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE }
}

/// One handle, mapped and accessible.
pub(crate) struct Mapped {
    pub(crate) ptr: CUdeviceptr,
    pub(crate) bytes: usize,
    pub(crate) handle: CUmemGenericAllocationHandle,
}

impl Mapped {
    /// `units` granules in one handle.
    pub(crate) fn units(units: usize) -> Self {
        let bytes = units * granularity();
        Self::of(create(bytes), bytes)
    }

    pub(crate) fn of(handle: CUmemGenericAllocationHandle, bytes: usize) -> Self {
        let ptr = reserve(bytes);
        map(ptr, bytes, handle);
        grant(ptr, bytes);
        Self { ptr, bytes, handle }
    }

    /// Gives everything back.
    pub(crate) fn drop_all(self) {
        ok(cuMemUnmap(self.ptr, self.bytes));
        ok(cuMemRelease(self.handle));
        ok(cuMemAddressFree(self.ptr, self.bytes));
    }
}

/// Queries one attribute of a pointer.
pub(crate) fn pointer_attribute<T: Default>(attribute: CUpointer_attribute, ptr: CUdeviceptr) -> Result<T, CUresult> {
    let mut value = T::default();
    match cuPointerGetAttribute((&raw mut value).cast(), attribute, ptr) {
        CUresult::CUDA_SUCCESS => Ok(value),
        code => Err(code),
    }
}

/// Runs `body` in a thread of its own and gives back what it gives; its panics are the caller's.
pub(crate) fn in_thread<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(body).join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// A handle that may go to another thread: the driver's handles are plain values.
#[derive(Clone, Copy)]
pub(crate) struct Sent<T>(pub(crate) T);
// SAFETY: only handles and addresses of the driver are sent, which any thread may use.
unsafe impl<T> Send for Sent<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Sent<T> {}

impl<T: Copy> Sent<T> {
    pub(crate) fn get(&self) -> T {
        self.0
    }
}

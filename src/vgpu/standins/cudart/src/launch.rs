//! Launches of registered kernels, and what can be queried of them before.

use crate::code;
use crate::error::{INVALID_CONFIGURATION, MISSING_CONFIGURATION, Outcome, R, give};
use std::cell::RefCell;
use weir_cuda::*;
use weir_vgpu_client::*;

/// The shape of a grid or block, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Dim3 {
    x: c_uint,
    y: c_uint,
    z: c_uint,
}

/// What `cudaLaunchKernelExC` takes.
#[repr(C)]
pub(crate) struct LaunchConfig {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: CUstream,
    attributes: *mut CUlaunchAttribute,
    count: c_uint,
}

/// What `cudaFuncGetAttributes` fills.
#[repr(C)]
#[derive(Default)]
pub(crate) struct FunctionAttributes {
    shared: usize,
    constant: usize,
    local: usize,
    max_threads: c_int,
    registers: c_int,
    ptx_version: c_int,
    binary_version: c_int,
    cache_mode: c_int,
    max_dynamic_shared: c_int,
    carveout: c_int,
    cluster_must_be_set: c_int,
    cluster: [c_int; 3],
    cluster_scheduling: c_int,
    non_portable_cluster: c_int,
    reserved: [c_int; 16],
}

const _: () = assert!(size_of::<FunctionAttributes>() == 144);

struct Configuration {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: CUstream,
}

thread_local! {
    /// Configurations between `<<<…>>>` and the launch that it stands before.
    static PUSHED: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

/// Keeps the configuration of the launch that follows.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaPushCallConfiguration(
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: CUstream,
) -> c_uint {
    PUSHED.with_borrow_mut(|pushed| pushed.push(Configuration { grid, block, shared, stream }));
    0
}

runtime! {
    /// Takes the configuration that was pushed last.
    bare fn __cudaPopCallConfiguration(grid: *mut Dim3, block: *mut Dim3, shared: *mut usize, stream: *mut CUstream) =
        PUSHED.with_borrow_mut(Vec::pop).ok_or(MISSING_CONFIGURATION).and_then(|pushed| {
            give(grid, pushed.grid)?;
            give(block, pushed.block)?;
            give(shared, pushed.shared)?;
            give(stream, pushed.stream)
        });
    /// Launches a kernel.
    context fn cudaLaunchKernel(
        host: *const c_void, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared: usize, stream: CUstream,
    ) = code::kernel(host).and_then(|kernel| launch(kernel, grid, block, arguments, shared, stream));
    /// Launches a kernel by its handle, for code of newer compilers.
    context fn __cudaLaunchKernel(
        kernel: CUkernel, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared: usize, stream: CUstream,
    ) = launch(kernel, grid, block, arguments, shared, stream);
    /// Launches a kernel whose blocks all run at once.
    context fn cudaLaunchCooperativeKernel(
        host: *const c_void, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared: usize, stream: CUstream,
    ) = code::function(host).and_then(|function| cuLaunchCooperativeKernel(
        function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared as c_uint, stream, arguments,
    ).outcome());
    /// Launches a kernel with attributes, which are laid out as the driver's.
    context fn cudaLaunchKernelExC(config: *const LaunchConfig, host: *const c_void, arguments: *mut *mut c_void) =
        if config.is_null() { Err(CUresult::CUDA_ERROR_INVALID_VALUE) } else {
            code::function(host).and_then(|function| {
                let config = config_of(&*config);
                cuLaunchKernelEx(&raw const config, function, arguments, std::ptr::null_mut()).outcome()
            })
        };
    /// What a kernel needs and may use.
    context fn cudaFuncGetAttributes(place: *mut FunctionAttributes, host: *const c_void) =
        code::function(host).and_then(|function| give(place, attributes(function)));
    /// Changes what a kernel may use.
    context fn cudaFuncSetAttribute(host: *const c_void, attribute: c_uint, value: c_int) =
        code::function(host)
            .and_then(|function| cuFuncSetAttribute(function, CUfunction_attribute(attribute), value).outcome());
    /// How the cache is divided for a kernel.
    context fn cudaFuncSetCacheConfig(host: *const c_void, config: c_uint) =
        code::function(host).and_then(|function| cuFuncSetCacheConfig(function, CUfunc_cache(config)).outcome());
    /// The name of a kernel.
    context fn cudaFuncGetName(name: *mut *const c_char, host: *const c_void) =
        code::function(host).and_then(|function| cuFuncGetName(name, function).outcome());
    /// How many blocks a multiprocessor holds.
    context fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int, host: *const c_void, block: c_int, shared: usize,
    ) = code::function(host)
        .and_then(|function| cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block, shared).outcome());
    /// The same with flags.
    context fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: *mut c_int, host: *const c_void, block: c_int, shared: usize, flags: c_uint,
    ) = code::function(host).and_then(|function|
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block, shared, flags).outcome());
    /// How much shared memory is left for a block.
    context fn cudaOccupancyAvailableDynamicSMemPerBlock(
        shared: *mut usize, host: *const c_void, blocks: c_int, block: c_int,
    ) = code::function(host)
        .and_then(|function| cuOccupancyAvailableDynamicSMemPerBlock(shared, function, blocks, block).outcome());
}

unsafe fn launch(
    kernel: CUkernel,
    grid: Dim3,
    block: Dim3,
    arguments: *mut *mut c_void,
    shared: usize,
    stream: CUstream,
) -> R {
    // SAFETY: the caller's arguments are those of this kernel, which the driver takes as a function.
    unsafe {
        cuLaunchKernel(
            kernel.cast(),
            grid.x,
            grid.y,
            grid.z,
            block.x,
            block.y,
            block.z,
            shared as c_uint,
            stream,
            arguments,
            std::ptr::null_mut(),
        )
    }
    .outcome()
    // The runtime has its own word for a shape that no device can launch.
    .map_err(|code| if code == CUresult::CUDA_ERROR_INVALID_VALUE { INVALID_CONFIGURATION } else { code })
}

fn config_of(config: &LaunchConfig) -> CUlaunchConfig {
    CUlaunchConfig {
        gridDimX: config.grid.x,
        gridDimY: config.grid.y,
        gridDimZ: config.grid.z,
        blockDimX: config.block.x,
        blockDimY: config.block.y,
        blockDimZ: config.block.z,
        sharedMemBytes: config.shared as c_uint,
        hStream: config.stream,
        attrs: config.attributes,
        numAttrs: config.count,
    }
}

/// Queries the driver. An attribute that it does not have is 0.
fn attributes(function: CUfunction) -> FunctionAttributes {
    type A = CUfunction_attribute;
    let get = |attribute: A| {
        let mut value = 0;
        // SAFETY: a living function and a place for the result.
        let code = unsafe { cuFuncGetAttribute(&raw mut value, attribute, function) };
        if code == CUresult::CUDA_SUCCESS { value } else { 0 }
    };
    FunctionAttributes {
        shared: get(A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) as usize,
        constant: get(A::CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES) as usize,
        local: get(A::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES) as usize,
        max_threads: get(A::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
        registers: get(A::CU_FUNC_ATTRIBUTE_NUM_REGS),
        ptx_version: get(A::CU_FUNC_ATTRIBUTE_PTX_VERSION),
        binary_version: get(A::CU_FUNC_ATTRIBUTE_BINARY_VERSION),
        cache_mode: get(A::CU_FUNC_ATTRIBUTE_CACHE_MODE_CA),
        max_dynamic_shared: get(A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES),
        carveout: get(A::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT),
        ..FunctionAttributes::default()
    }
}

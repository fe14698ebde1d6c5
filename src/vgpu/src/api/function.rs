//! Functions: attributes, names, parameters, and how many blocks of one a multiprocessor holds.

use super::{given, need, put};
use crate::error::*;
use crate::kernel::{Limits, Needs};
use crate::state::driver;
use weir_cuda::*;

pub(crate) unsafe fn cuFuncGetAttribute(pi: *mut c_int, attrib: CUfunction_attribute, hfunc: CUfunction) -> R {
    need(pi)?;
    let mut s = driver()?;
    s.current()?;
    let function = s.function_here(hfunc as u64)?;
    let value = s.modules.function_attribute(function, attrib)?;
    // SAFETY: checked above.
    unsafe { put(pi, value) };
    Ok(())
}

pub(crate) unsafe fn cuFuncSetAttribute(hfunc: CUfunction, attrib: CUfunction_attribute, value: c_int) -> R {
    let mut s = driver()?;
    s.current()?;
    let function = s.function_here(hfunc as u64)?;
    s.modules.set_function_attribute(function, attrib, value)
}

pub(crate) unsafe fn cuFuncSetCacheConfig(hfunc: CUfunction, config: CUfunc_cache) -> R {
    let mut s = driver()?;
    s.current()?;
    s.function_here(hfunc as u64)?;
    // Only a hint, as documented: it has no effect.
    if config.0 > CUfunc_cache::CU_FUNC_CACHE_PREFER_EQUAL.0 { Err(INVALID_VALUE) } else { Ok(()) }
}

pub(crate) unsafe fn cuFuncSetSharedMemConfig(hfunc: CUfunction, config: CUsharedconfig) -> R {
    let mut s = driver()?;
    s.current()?;
    s.function_here(hfunc as u64)?;
    // Banks cannot be configured on devices of today: a valid setting is ignored.
    if config.0 > CUsharedconfig::CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE.0 { Err(INVALID_VALUE) } else { Ok(()) }
}

pub(crate) unsafe fn cuFuncGetModule(hmod: *mut CUmodule, hfunc: CUfunction) -> R {
    need(hmod)?;
    let s = driver()?;
    s.current()?;
    let module = s.modules.function(hfunc as u64)?.module;
    // SAFETY: checked above.
    unsafe { put(hmod, module as CUmodule) };
    Ok(())
}

pub(crate) unsafe fn cuFuncGetName(name: *mut *const c_char, hfunc: CUfunction) -> R {
    need(name)?;
    let mut s = driver()?;
    let function = s.function_here(hfunc as u64)?;
    let entry = &s.modules.function(function)?.entry;
    // SAFETY: checked above; the name lives as long as the function.
    unsafe { put(name, entry.name.as_ptr()) };
    Ok(())
}

pub(crate) unsafe fn cuFuncGetParamInfo(
    func: CUfunction,
    param_index: usize,
    param_offset: *mut usize,
    param_size: *mut usize,
) -> R {
    need(param_offset)?;
    let mut s = driver()?;
    let function = s.function_here(func as u64)?;
    let parameter = *s.modules.function(function)?.parameters()?.get(param_index).ok_or(INVALID_VALUE)?;
    // SAFETY: the first was checked above, the second may be NULL.
    unsafe {
        put(param_offset, parameter.offset as usize);
        put(param_size, parameter.size as usize);
    }
    Ok(())
}

pub(crate) unsafe fn cuFuncGetParamCount(func: CUfunction, param_count: *mut usize) -> R {
    need(param_count)?;
    let mut s = driver()?;
    let function = s.function_here(func as u64)?;
    let count = s.modules.function(function)?.parameters()?.len();
    // SAFETY: checked above.
    unsafe { put(param_count, count) };
    Ok(())
}

pub(crate) unsafe fn cuFuncIsLoaded(state: *mut CUfunctionLoadingState, hfunc: CUfunction) -> R {
    need(state)?;
    let mut s = driver()?;
    let function = s.function_here(hfunc as u64)?;
    let loaded = if s.modules.function(function)?.loaded {
        CUfunctionLoadingState::CU_FUNCTION_LOADING_STATE_LOADED
    } else {
        CUfunctionLoadingState::CU_FUNCTION_LOADING_STATE_UNLOADED
    };
    // SAFETY: checked above.
    unsafe { put(state, loaded) };
    Ok(())
}

pub(crate) unsafe fn cuFuncLoad(hfunc: CUfunction) -> R {
    let mut s = driver()?;
    let function = s.function_here(hfunc as u64)?;
    s.load_function(function)
}

/// What a block of the function takes, in the current context.
fn needs(function: CUfunction) -> R<Needs> {
    let mut s = driver()?;
    s.current()?;
    let function = s.function_here(function as u64)?;
    Ok(s.modules.needs(s.modules.function(function)?))
}

fn blocks(num_blocks: *mut c_int, func: CUfunction, block_size: c_int, dynamic: usize, flags: c_uint) -> R {
    need(num_blocks)?;
    let needs = needs(func)?;
    let threads = u32::try_from(block_size).ok().filter(|&t| t > 0).ok_or(INVALID_VALUE)?;
    if flags > 1 {
        return Err(INVALID_VALUE);
    }
    let dynamic = u32::try_from(dynamic).unwrap_or(u32::MAX);
    // SAFETY: checked above.
    unsafe { put(num_blocks, Limits::get().blocks(&needs, threads, dynamic) as c_int) };
    Ok(())
}

pub(crate) unsafe fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    num_blocks: *mut c_int,
    func: CUfunction,
    block_size: c_int,
    dynamic_smem_size: usize,
) -> R {
    blocks(num_blocks, func, block_size, dynamic_smem_size, 0)
}

pub(crate) unsafe fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    num_blocks: *mut c_int,
    func: CUfunction,
    block_size: c_int,
    dynamic_smem_size: usize,
    flags: c_uint,
) -> R {
    blocks(num_blocks, func, block_size, dynamic_smem_size, flags)
}

pub(crate) unsafe fn cuOccupancyMaxPotentialBlockSizeWithFlags(
    min_grid_size: *mut c_int,
    block_size: *mut c_int,
    func: CUfunction,
    block_size_to_dynamic_smem_size: CUoccupancyB2DSize,
    dynamic_smem_size: usize,
    block_size_limit: c_int,
    flags: c_uint,
) -> R {
    need(min_grid_size)?;
    need(block_size)?;
    let needs = needs(func)?;
    let most = u32::try_from(block_size_limit).map_err(|_| INVALID_VALUE)?;
    if flags > 1 {
        return Err(INVALID_VALUE);
    }
    let limits = Limits::get();
    // The job's function is called without the lock.
    let (threads, each) = limits.best(&needs, most, |threads| {
        let bytes = match block_size_to_dynamic_smem_size {
            // SAFETY: the job gave it for exactly this.
            Some(dynamic) => unsafe { dynamic(threads as c_int) },
            None => dynamic_smem_size,
        };
        u32::try_from(bytes).unwrap_or(u32::MAX)
    });
    // SAFETY: checked above.
    unsafe {
        put(min_grid_size, (each * limits.multiprocessors) as c_int);
        put(block_size, threads as c_int);
    }
    Ok(())
}

pub(crate) unsafe fn cuOccupancyMaxPotentialBlockSize(
    min_grid_size: *mut c_int,
    block_size: *mut c_int,
    func: CUfunction,
    block_size_to_dynamic_smem_size: CUoccupancyB2DSize,
    dynamic_smem_size: usize,
    block_size_limit: c_int,
) -> R {
    // SAFETY: the same function without flags.
    unsafe {
        cuOccupancyMaxPotentialBlockSizeWithFlags(
            min_grid_size,
            block_size,
            func,
            block_size_to_dynamic_smem_size,
            dynamic_smem_size,
            block_size_limit,
            0,
        )
    }
}

pub(crate) unsafe fn cuOccupancyAvailableDynamicSMemPerBlock(
    dynamic_smem_size: *mut usize,
    func: CUfunction,
    num_blocks: c_int,
    block_size: c_int,
) -> R {
    need(dynamic_smem_size)?;
    let needs = needs(func)?;
    let blocks = u32::try_from(num_blocks).map_err(|_| INVALID_VALUE)?;
    let threads = u32::try_from(block_size).map_err(|_| INVALID_VALUE)?;
    let most = Limits::get().dynamic_for(&needs, blocks, threads).ok_or(INVALID_VALUE)?;
    // SAFETY: checked above.
    unsafe { put(dynamic_smem_size, most as usize) };
    Ok(())
}

fn beyond_portable(func: CUfunction) -> R<bool> {
    let mut s = driver()?;
    s.current()?;
    let function = s.function_here(func as u64)?;
    let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
    Ok(s.modules.function_attribute(function, attribute)? != 0)
}

pub(crate) unsafe fn cuOccupancyMaxPotentialClusterSize(
    cluster_size: *mut c_int,
    func: CUfunction,
    config: *const CUlaunchConfig,
) -> R {
    need(cluster_size)?;
    given(config)?;
    let most = Limits::get().cluster(beyond_portable(func)?);
    // SAFETY: checked above.
    unsafe { put(cluster_size, most as c_int) };
    Ok(())
}

pub(crate) unsafe fn cuOccupancyMaxActiveClusters(
    num_clusters: *mut c_int,
    func: CUfunction,
    config: *const CUlaunchConfig,
) -> R {
    need(num_clusters)?;
    given(config)?;
    // SAFETY: not NULL, and the caller's.
    let config = unsafe { *config };
    // SAFETY: the caller's list.
    let geometry = unsafe { super::launch::geometry(&config)? };
    let most = Limits::get().cluster(beyond_portable(func)?);
    let needs = needs(func)?;
    let size = geometry.cluster.iter().map(|&c| u64::from(c)).product::<u64>();
    let threads = geometry.block.iter().fold(1u32, |all, &side| all.saturating_mul(side));
    if size == 0 || size > u64::from(most) || threads == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE);
    }
    let limits = Limits::get();
    let blocks = limits.blocks(&needs, threads, geometry.shared) * limits.multiprocessors;
    // SAFETY: checked above.
    unsafe { put(num_clusters, (u64::from(blocks) / size) as c_int) };
    Ok(())
}

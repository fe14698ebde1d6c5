//! Contexts: created and primary ones, and the stack of each thread.

use super::{need, put};
use crate::attributes;
use crate::config;
use crate::engine::wait_points;
use crate::error::*;
use crate::state::{Driver, driver, thread};
use weir_cuda::*;

const SCHEDULE_BITS: c_uint = 0x07;
const ALL_FLAGS: c_uint = 0xff;

fn check_flags(flags: c_uint) -> R {
    // At most one way of waiting.
    if flags & !ALL_FLAGS != 0 || (flags & SCHEDULE_BITS).count_ones() > 1 { Err(INVALID_VALUE) } else { Ok(()) }
}

/// Waits for all work of a context.
pub(crate) fn finish(s: Driver, ctx: u64) -> Driver {
    let points = s.engine.tails(|_, stream| stream.ctx == ctx);
    wait_points(s, &points)
}

fn create(pctx: *mut CUcontext, flags: c_uint, dev: CUdevice) -> R {
    let mut s = driver()?;
    need(pctx)?;
    check_flags(flags)?;
    let device = s.device(dev)?;
    let ctx = s.make_context(device, flags, false)?;
    thread::push(ctx)?;
    // SAFETY: checked above.
    unsafe { put(pctx, ctx as CUcontext) };
    Ok(())
}

pub(crate) unsafe fn cuCtxCreate(pctx: *mut CUcontext, flags: c_uint, dev: CUdevice) -> R {
    create(pctx, flags, dev)
}

pub(crate) unsafe fn cuCtxCreate_v2(pctx: *mut CUcontext, flags: c_uint, dev: CUdevice) -> R {
    create(pctx, flags, dev)
}

pub(crate) unsafe fn cuCtxCreate_v3(
    pctx: *mut CUcontext,
    params_array: *mut CUexecAffinityParam,
    num_params: c_int,
    flags: c_uint,
    dev: CUdevice,
) -> R {
    if !params_array.is_null() || num_params != 0 {
        return Err(CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    }
    create(pctx, flags, dev)
}

pub(crate) unsafe fn cuCtxCreate_v4(
    pctx: *mut CUcontext,
    ctx_create_params: *mut CUctxCreateParams,
    flags: c_uint,
    dev: CUdevice,
) -> R {
    if !ctx_create_params.is_null() {
        return Err(NOT_SUPPORTED);
    }
    create(pctx, flags, dev)
}

pub(crate) unsafe fn cuCtxDestroy_v2(ctx: CUcontext) -> R {
    let mut s = driver()?;
    if ctx.is_null() {
        return Err(INVALID_CONTEXT);
    }
    let handle = match s.known(ctx) {
        Err(INVALID_CONTEXT | CONTEXT_IS_DESTROYED) => return Err(INVALID_CONTEXT),
        // A context that is lost can still be destroyed.
        _ => ctx as u64,
    };
    if s.contexts.get(&handle).is_some_and(|c| c.primary) {
        return Err(INVALID_CONTEXT);
    }
    s.refuse_unsafe_call()?;
    let mut s = finish(s, handle);
    s.destroy_context(handle);
    if thread::current() == handle {
        thread::pop()?;
    }
    Ok(())
}

pub(crate) unsafe fn cuCtxDestroy(ctx: CUcontext) -> R {
    // SAFETY: passed on as promised.
    unsafe { cuCtxDestroy_v2(ctx) }
}

pub(crate) unsafe fn cuCtxAttach(pctx: *mut CUcontext, flags: c_uint) -> R {
    let mut s = driver()?;
    need(pctx)?;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    let ctx = s.current()?;
    let context = s.contexts.get_mut(&ctx).ok_or(INVALID_CONTEXT)?;
    if context.primary {
        return Err(INVALID_CONTEXT);
    }
    context.users += 1;
    // SAFETY: checked above.
    unsafe { put(pctx, ctx as CUcontext) };
    Ok(())
}

pub(crate) unsafe fn cuCtxDetach(ctx: CUcontext) -> R {
    let mut s = driver()?;
    let handle = s.known(ctx)?;
    if thread::current() != handle {
        return Err(INVALID_CONTEXT);
    }
    let context = s.contexts.get_mut(&handle).ok_or(INVALID_CONTEXT)?;
    if context.users > 1 {
        context.users -= 1;
        return Ok(());
    }
    drop(s);
    // SAFETY: the handle is alive.
    unsafe { cuCtxDestroy_v2(ctx) }
}

pub(crate) unsafe fn cuCtxPushCurrent_v2(ctx: CUcontext) -> R {
    let s = driver()?;
    if ctx.is_null() {
        return Err(INVALID_CONTEXT);
    }
    thread::push(s.known(ctx)?)
}

pub(crate) unsafe fn cuCtxPushCurrent(ctx: CUcontext) -> R {
    // SAFETY: passed on as promised.
    unsafe { cuCtxPushCurrent_v2(ctx) }
}

pub(crate) unsafe fn cuCtxPopCurrent_v2(pctx: *mut CUcontext) -> R {
    let _s = driver()?;
    let ctx = thread::pop()?;
    // SAFETY: NULL is allowed here.
    unsafe { put(pctx, ctx as CUcontext) };
    Ok(())
}

pub(crate) unsafe fn cuCtxPopCurrent(pctx: *mut CUcontext) -> R {
    // SAFETY: passed on as promised.
    unsafe { cuCtxPopCurrent_v2(pctx) }
}

pub(crate) unsafe fn cuCtxSetCurrent(ctx: CUcontext) -> R {
    let s = driver()?;
    if !ctx.is_null() {
        s.known(ctx)?;
    }
    thread::set_current(ctx as u64);
    Ok(())
}

pub(crate) unsafe fn cuCtxGetCurrent(pctx: *mut CUcontext) -> R {
    let _s = driver()?;
    need(pctx)?;
    // SAFETY: checked above.
    unsafe { put(pctx, thread::current() as CUcontext) };
    Ok(())
}

pub(crate) unsafe fn cuCtxGetDevice(device: *mut CUdevice) -> R {
    let s = driver()?;
    need(device)?;
    let (_, d) = s.current_device()?;
    // SAFETY: checked above.
    unsafe { put(device, d as CUdevice) };
    Ok(())
}

pub(crate) unsafe fn cuCtxGetDevice_v2(device: *mut CUdevice, ctx: CUcontext) -> R {
    let s = driver()?;
    need(device)?;
    let ctx = s.context_or_current(ctx)?;
    // SAFETY: checked above.
    unsafe { put(device, s.contexts[&ctx].device as CUdevice) };
    Ok(())
}

pub(crate) unsafe fn cuCtxGetFlags(flags: *mut c_uint) -> R {
    let s = driver()?;
    need(flags)?;
    // SAFETY: checked above.
    unsafe { put(flags, s.contexts[&s.current()?].flags) };
    Ok(())
}

pub(crate) unsafe fn cuCtxSetFlags(flags: c_uint) -> R {
    let mut s = driver()?;
    check_flags(flags)?;
    let ctx = s.current()?;
    if let Some(context) = s.contexts.get_mut(&ctx) {
        context.flags = flags;
    }
    Ok(())
}

pub(crate) unsafe fn cuCtxGetId(ctx: CUcontext, ctx_id: *mut c_ulonglong) -> R {
    let s = driver()?;
    need(ctx_id)?;
    let ctx = s.context_or_current(ctx)?;
    // SAFETY: checked above.
    unsafe { put(ctx_id, s.contexts[&ctx].id) };
    Ok(())
}

pub(crate) unsafe fn cuCtxGetApiVersion(ctx: CUcontext, version: *mut c_uint) -> R {
    let s = driver()?;
    need(version)?;
    s.context_or_current(ctx)?;
    // SAFETY: checked above.
    unsafe { put(version, 3020) };
    Ok(())
}

pub(crate) unsafe fn cuCtxGetLimit(pvalue: *mut usize, limit: CUlimit) -> R {
    let s = driver()?;
    need(pvalue)?;
    let ctx = s.current()?;
    if !attributes::limit_supported(config::get(), limit) {
        return Err(CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT);
    }
    let default = attributes::limit_default(limit).ok_or(INVALID_VALUE)?;
    let value = s.contexts[&ctx].limits.get(&limit.0).copied().unwrap_or(default);
    // SAFETY: checked above.
    unsafe { put(pvalue, value) };
    Ok(())
}

pub(crate) unsafe fn cuCtxSetLimit(limit: CUlimit, value: usize) -> R {
    let mut s = driver()?;
    let ctx = s.current()?;
    if !attributes::limit_supported(config::get(), limit) {
        return Err(CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT);
    }
    attributes::limit_default(limit).ok_or(INVALID_VALUE)?;
    if limit == CUlimit::CU_LIMIT_STACK_SIZE {
        s.resize_local(ctx, value, true)?;
    }
    if let Some(context) = s.contexts.get_mut(&ctx) {
        context.limits.insert(limit.0, value);
    }
    Ok(())
}

pub(crate) unsafe fn cuCtxGetCacheConfig(pconfig: *mut CUfunc_cache) -> R {
    let s = driver()?;
    need(pconfig)?;
    // SAFETY: checked above.
    unsafe { put(pconfig, CUfunc_cache(s.contexts[&s.current()?].cache_config)) };
    Ok(())
}

pub(crate) unsafe fn cuCtxSetCacheConfig(config: CUfunc_cache) -> R {
    let mut s = driver()?;
    let ctx = s.current()?;
    if config.0 > 3 {
        return Err(INVALID_VALUE);
    }
    if let Some(context) = s.contexts.get_mut(&ctx) {
        context.cache_config = config.0;
    }
    Ok(())
}

pub(crate) unsafe fn cuCtxGetSharedMemConfig(p_config: *mut CUsharedconfig) -> R {
    let s = driver()?;
    need(p_config)?;
    // SAFETY: checked above.
    unsafe { put(p_config, CUsharedconfig(s.contexts[&s.current()?].shared_config)) };
    Ok(())
}

pub(crate) unsafe fn cuCtxSetSharedMemConfig(config: CUsharedconfig) -> R {
    let mut s = driver()?;
    let ctx = s.current()?;
    if config.0 > 2 {
        return Err(INVALID_VALUE);
    }
    if let Some(context) = s.contexts.get_mut(&ctx) {
        context.shared_config = config.0;
    }
    Ok(())
}

pub(crate) unsafe fn cuCtxGetStreamPriorityRange(least_priority: *mut c_int, greatest_priority: *mut c_int) -> R {
    let s = driver()?;
    s.current()?;
    // SAFETY: both may be NULL.
    unsafe {
        put(least_priority, 0);
        put(greatest_priority, -5);
    }
    Ok(())
}

pub(crate) unsafe fn cuCtxResetPersistingL2Cache() -> R {
    driver()?.current().map(|_| ())
}

/// Waits for everything that was submitted to a context before the call.
fn synchronize(mut s: Driver, ctx: u64) -> R {
    s.refuse_unsafe_call()?;
    let mut s = finish(s, ctx);
    s.pools_synchronized();
    s.usable(ctx).map(|_| ())
}

pub(crate) unsafe fn cuCtxSynchronize() -> R {
    let s = driver()?;
    let ctx = s.current()?;
    synchronize(s, ctx)
}

pub(crate) unsafe fn cuCtxSynchronize_v2(ctx: CUcontext) -> R {
    let s = driver()?;
    let ctx = s.context_or_current(ctx)?;
    synchronize(s, ctx)
}

pub(crate) unsafe fn cuDevicePrimaryCtxRetain(pctx: *mut CUcontext, dev: CUdevice) -> R {
    let mut s = driver()?;
    need(pctx)?;
    let device = s.device(dev)?;
    let known = s.devices[device].primary;
    let handle = match s.contexts.get_mut(&known) {
        Some(context) if context.users > 0 => {
            context.users += 1;
            known
        }
        _ => {
            let flags = s.devices[device].primary_flags;
            s.make_context(device, flags, true)?
        }
    };
    // SAFETY: checked above.
    unsafe { put(pctx, handle as CUcontext) };
    Ok(())
}

pub(crate) unsafe fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice) -> R {
    let mut s = driver()?;
    let device = s.device(dev)?;
    let handle = s.devices[device].primary;
    let context = s.contexts.get_mut(&handle).ok_or(INVALID_CONTEXT)?;
    match context.users {
        0 => Err(INVALID_CONTEXT),
        1 => {
            let mut s = finish(s, handle);
            s.destroy_context(handle);
            Ok(())
        }
        _ => {
            context.users -= 1;
            Ok(())
        }
    }
}

pub(crate) unsafe fn cuDevicePrimaryCtxRelease(dev: CUdevice) -> R {
    // SAFETY: passed on as promised.
    unsafe { cuDevicePrimaryCtxRelease_v2(dev) }
}

pub(crate) unsafe fn cuDevicePrimaryCtxReset_v2(dev: CUdevice) -> R {
    let s = driver()?;
    let device = s.device(dev)?;
    let handle = s.devices[device].primary;
    let Some(users) = s.contexts.get(&handle).map(|c| c.users) else { return Ok(()) };
    if users == 0 {
        return Ok(());
    }
    let mut s = finish(s, handle);
    s.destroy_context(handle);
    // Resetting does not release: whoever retained it still holds it.
    let flags = s.devices[device].primary_flags;
    s.make_context(device, flags, true)?;
    if let Some(context) = s.contexts.get_mut(&handle) {
        context.users = users;
    }
    Ok(())
}

pub(crate) unsafe fn cuDevicePrimaryCtxReset(dev: CUdevice) -> R {
    // SAFETY: passed on as promised.
    unsafe { cuDevicePrimaryCtxReset_v2(dev) }
}

pub(crate) unsafe fn cuDevicePrimaryCtxGetState(dev: CUdevice, flags: *mut c_uint, active: *mut c_int) -> R {
    let s = driver()?;
    let device = s.device(dev)?;
    need(flags)?;
    need(active)?;
    let alive = s.contexts.get(&s.devices[device].primary).is_some_and(|c| c.users > 0);
    // SAFETY: checked above.
    unsafe {
        put(flags, s.devices[device].primary_flags);
        put(active, c_int::from(alive));
    }
    Ok(())
}

pub(crate) unsafe fn cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: c_uint) -> R {
    let mut s = driver()?;
    let device = s.device(dev)?;
    check_flags(flags)?;
    s.devices[device].primary_flags = flags;
    let handle = s.devices[device].primary;
    if let Some(context) = s.contexts.get_mut(&handle) {
        context.flags = flags;
    }
    Ok(())
}

pub(crate) unsafe fn cuDevicePrimaryCtxSetFlags(dev: CUdevice, flags: c_uint) -> R {
    // SAFETY: passed on as promised.
    unsafe { cuDevicePrimaryCtxSetFlags_v2(dev, flags) }
}

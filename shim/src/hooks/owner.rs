//! Contexts as owners of memory: their coming and going, their synchronisation, access between devices.

use crate::alloc::proofs::Proofs;
use crate::alloc::{self, spill};
use crate::cap;
use crate::driver::{contexts, guards, real};
use crate::process::guard::Call;
use crate::record::{self, passed};
use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicI32, Ordering};
use std::collections::HashMap;
use weir_cuda::*;
use weir_pool::ranks::{Mutex, Rank};

pub(crate) type Create = unsafe extern "C-unwind" fn(*mut CUcontext, c_uint, CUdevice) -> CUresult;
pub(crate) type CreateAffine =
    unsafe extern "C-unwind" fn(*mut CUcontext, *mut CUexecAffinityParam, c_int, c_uint, CUdevice) -> CUresult;
pub(crate) type CreateWith =
    unsafe extern "C-unwind" fn(*mut CUcontext, *mut CUctxCreateParams, c_uint, CUdevice) -> CUresult;
pub(crate) type Retain = unsafe extern "C-unwind" fn(*mut CUcontext, CUdevice) -> CUresult;
pub(crate) type FromGreen = unsafe extern "C-unwind" fn(*mut CUcontext, CUgreenCtx) -> CUresult;
pub(crate) type Attach = unsafe extern "C-unwind" fn(*mut CUcontext, c_uint) -> CUresult;
pub(crate) type OfContext = unsafe extern "C-unwind" fn(CUcontext) -> CUresult;
pub(crate) type OfDevice = unsafe extern "C-unwind" fn(CUdevice) -> CUresult;
pub(crate) type EnablePeer = unsafe extern "C-unwind" fn(CUcontext, c_uint) -> CUresult;

/// Notes the context that a call gave. Its work counts for the pools from its beginning on.
unsafe fn giving(place: *mut CUcontext, device: Option<CUdevice>, of: Of, give: impl FnOnce() -> CUresult) -> CUresult {
    let give = || {
        let result = give();
        if result == CUresult::CUDA_SUCCESS && alloc::watching() {
            // Before anything is noted of it: a context of the same handle may be on its way out in another thread.
            contexts::seen(made_at(place));
        }
        result
    };
    let result = match device {
        Some(device) => {
            cap::contexts::making(device, give, || made_at(place), |ctx, bytes| passed::overhead(ctx, device, bytes))
        }
        None => give(),
    };
    if result == CUresult::CUDA_SUCCESS {
        let (ordinal, primary) = match of {
            Of::Device(ordinal) => (ordinal, false),
            Of::Primary(ordinal) => (ordinal, true),
            Of::Green => (guards::current_device().unwrap_or(-1), false),
        };
        passed::context_made(made_at(place), ordinal, primary);
    }
    result
}

/// The context that a place holds, 0 for none.
fn made_at(place: *const CUcontext) -> u64 {
    // SAFETY: null, or the caller's place after the driver has written it.
    unsafe { place.as_ref() }.map_or(0, |ctx| *ctx as u64)
}

/// Where a context comes from.
#[derive(Clone, Copy)]
enum Of {
    /// A new one of a device.
    Device(CUdevice),
    /// A device's primary one.
    Primary(CUdevice),
    /// That of a green context.
    Green,
}

/// `cuCtxCreate`.
pub(crate) unsafe fn create(
    call: &Call<Create, CUresult>,
    ctx: *mut CUcontext,
    flags: c_uint,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    unsafe {
        giving(ctx, Some(device), Of::Device(device), || {
            alloc::with_room(|| call.forward(|real| real(ctx, flags, device)))
        })
    }
}

/// `cuCtxCreate`, third version.
pub(crate) unsafe fn create_affine(
    call: &Call<CreateAffine, CUresult>,
    ctx: *mut CUcontext,
    parameters: *mut CUexecAffinityParam,
    count: c_int,
    flags: c_uint,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    unsafe {
        giving(ctx, Some(device), Of::Device(device), || {
            alloc::with_room(|| call.forward(|real| real(ctx, parameters, count, flags, device)))
        })
    }
}

/// `cuCtxCreate`, fourth version.
pub(crate) unsafe fn create_with(
    call: &Call<CreateWith, CUresult>,
    ctx: *mut CUcontext,
    parameters: *mut CUctxCreateParams,
    flags: c_uint,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    unsafe {
        giving(ctx, Some(device), Of::Device(device), || {
            alloc::with_room(|| call.forward(|real| real(ctx, parameters, flags, device)))
        })
    }
}

/// `cuDevicePrimaryCtxRetain`.
pub(crate) unsafe fn retain(call: &Call<Retain, CUresult>, ctx: *mut CUcontext, device: CUdevice) -> CUresult {
    // SAFETY: the caller's own arguments.
    unsafe {
        let fresh = cap::on().filter(|_| !is_active(device)).map(|_| device);
        let result =
            giving(ctx, fresh, Of::Primary(device), || alloc::with_room(|| call.forward(|real| real(ctx, device))));
        if result == CUresult::CUDA_SUCCESS {
            retained(device, 1);
        }
        result
    }
}

/// The primary context of a device is retained so much more often; returns how often it is, as far as weir has seen.
fn retained(device: CUdevice, more: i32) -> i32 {
    static TIMES: [AtomicI32; 64] = [const { AtomicI32::new(0) }; 64];
    let times = usize::try_from(device).ok().and_then(|device| TIMES.get(device));
    times.map_or(i32::MAX, |times| times.fetch_add(more, Ordering::Relaxed).saturating_add(more))
}

/// `cuCtxFromGreenCtx`.
pub(crate) unsafe fn from_green(call: &Call<FromGreen, CUresult>, ctx: *mut CUcontext, green: CUgreenCtx) -> CUresult {
    // SAFETY: the caller's own arguments.
    unsafe { giving(ctx, None, Of::Green, || call.forward(|real| real(ctx, green))) }
}

/// A context may be about to end: weir stops using it.
fn leaving(ctx: u64) -> Option<alloc::Going> {
    cap::contexts::leaving(ctx);
    let going = alloc::context_leaves(ctx);
    if going.is_none() {
        cap::contexts::stays(ctx);
    }
    going
}

/// A call that ends a context, or not. `ended`: whether it did, after it succeeded.
/// `last`: as far as can be known before it.
fn ending(ctx: u64, last: bool, end: impl FnOnce() -> CUresult, ended: impl FnOnce() -> bool) -> CUresult {
    let going = if alloc::watching() { leaving(ctx) } else { None };
    let account = if going.is_some() { cap::contexts::ending(ctx) } else { None };
    let recorded = if last { passed::context_leaves(ctx) } else { None };
    let result = end();
    let gone = result == CUresult::CUDA_SUCCESS && (going.is_some() || passed::knows(ctx)) && ended();
    if !gone {
        if let Some(recorded) = recorded {
            recorded.stays();
        }
        if let Some(account) = account {
            account.stays();
        }
        if let Some(going) = going {
            going.stays();
        }
        return result;
    }
    attached(|extra| extra.remove(&ctx));
    // Until all is recorded, a new context of the same handle waits in another thread.
    if let Some(going) = &going {
        going.left();
        if let Some(account) = account {
            account.gone();
        }
    }
    if let Some(recorded) = recorded {
        recorded.gone();
    }
    passed::context_gone(ctx);
    result
}

/// `cuCtxDestroy`.
pub(crate) unsafe fn destroy(call: &Call<OfContext, CUresult>, ctx: CUcontext) -> CUresult {
    // SAFETY: the caller's own argument.
    ending(ctx as u64, true, || call.forward(|real| unsafe { real(ctx) }), || true)
}

/// How often each context was attached to besides its making, where it was.
fn attached<R>(with: impl FnOnce(&mut HashMap<u64, u32>) -> R) -> R {
    static EXTRA: Mutex<Option<HashMap<u64, u32>>> = Mutex::new(Rank::Attached, None);
    with(EXTRA.lock().get_or_insert_default())
}

/// `cuCtxAttach`: one user more.
pub(crate) unsafe fn attach(call: &Call<Attach, CUresult>, ctx: *mut CUcontext, flags: c_uint) -> CUresult {
    // It attaches to the current context. Counted before the call: the last user who detaches meanwhile is not the last.
    let key = guards::current();
    attached(|extra| *extra.entry(key).or_insert(0) += 1);
    // SAFETY: the caller's own arguments.
    let result = call.forward(|real| unsafe { real(ctx, flags) });
    if result != CUresult::CUDA_SUCCESS {
        attached(|extra| extra.get_mut(&key).into_iter().for_each(|users| *users = users.saturating_sub(1)));
    }
    result
}

/// `cuCtxDetach`: one user less; the last one ends the context.
pub(crate) unsafe fn detach(call: &Call<OfContext, CUresult>, ctx: CUcontext) -> CUresult {
    // SAFETY: the caller's own argument.
    let forward = || call.forward(|real| unsafe { real(ctx) });
    let key = ctx as u64;
    let others = attached(|extra| match extra.get_mut(&key) {
        Some(users) if *users > 0 => {
            *users -= 1;
            true
        }
        _ => false,
    });
    if !others {
        return ending(key, true, forward, || true);
    }
    let result = forward();
    if result != CUresult::CUDA_SUCCESS {
        attached(|extra| *extra.entry(key).or_insert(0) += 1);
    }
    result
}

/// The context that is a device's primary one, if it is active and known.
fn primary(device: CUdevice) -> Option<u64> {
    let known = contexts::announce(|known| known.iter().any(|context| context.ordinal == device));
    if !known || !is_active(device) {
        return None;
    }
    let mut ctx: CUcontext = core::ptr::null_mut();
    // SAFETY: the place is a live local; the primary context is active, so retaining creates none.
    real::done(unsafe { real::cuDevicePrimaryCtxRetain(&raw mut ctx, device) }).ok()?;
    // SAFETY: gives back what was retained above.
    unsafe { real::cuDevicePrimaryCtxRelease_v2(device) };
    Some(ctx as u64)
}

/// The primary context of a device, where anybody keeps account of it; else 0.
fn primary_if_known(device: CUdevice) -> u64 {
    let known = if alloc::any() || cap::on().is_some() { primary(device) } else { None };
    known.or_else(|| passed::primary_of(device)).unwrap_or(0)
}

fn is_active(device: CUdevice) -> bool {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: both places are live locals.
    let result = unsafe { real::cuDevicePrimaryCtxGetState(device, &raw mut flags, &raw mut active) };
    result == CUresult::CUDA_SUCCESS && active != 0
}

/// `cuDevicePrimaryCtxRelease`: the last one ends the context.
pub(crate) unsafe fn release(call: &Call<OfDevice, CUresult>, device: CUdevice) -> CUresult {
    let ctx = primary_if_known(device);
    let last = retained(device, -1) == 0;
    // SAFETY: the caller's own argument.
    let result = ending(ctx, last, || call.forward(|real| unsafe { real(device) }), || !is_active(device));
    if result != CUresult::CUDA_SUCCESS {
        retained(device, 1);
    }
    result
}

/// `cuDevicePrimaryCtxReset`: all that the context held is gone, and it may go on afresh.
pub(crate) unsafe fn reset(call: &Call<OfDevice, CUresult>, device: CUdevice) -> CUresult {
    let ctx = primary_if_known(device);
    // SAFETY: the caller's own argument.
    let result = ending(ctx, true, || call.forward(|real| unsafe { real(device) }), || true);
    if result == CUresult::CUDA_SUCCESS && ctx != 0 && is_active(device) {
        contexts::seen(ctx);
    }
    result
}

fn synchronising(ctx: u64) -> impl FnOnce(CUresult) {
    let slot = if alloc::any() { contexts::seen(ctx) } else { None };
    let proofs: Proofs = slot
        .map(|slot| {
            alloc::pools_reached_by(slot.ordinal())
                .map(|device_pool| (device_pool, device_pool.pool.began(weir_pool::Call::ContextSync(ctx))))
                .collect()
        })
        .unwrap_or_default();
    // Without a pool a wait proves nothing to anybody.
    let sync = slot.map(|slot| record::synchronising(slot.ordinal()));
    move |result| {
        for (device_pool, proof) in proofs {
            device_pool.pool.ended(proof, result == CUresult::CUDA_SUCCESS);
        }
        if let Some(sync) = sync.filter(|_| result == CUresult::CUDA_SUCCESS) {
            sync.ended();
        }
        if result == CUresult::CUDA_SUCCESS {
            spill::come_back(true);
        }
    }
}

/// `cuCtxSynchronize`.
pub(crate) unsafe fn synchronize(_: Variant) -> impl FnOnce(CUresult) {
    synchronising(if alloc::any() { guards::current() } else { 0 })
}

/// `cuCtxSynchronize`, second version.
pub(crate) unsafe fn synchronize_context(_: Variant, ctx: CUcontext) -> impl FnOnce(CUresult) {
    synchronising(ctx as u64)
}

/// `cuCtxEnablePeerAccess`: does not cover mapped memory, so the pools of the other device grant it.
pub(crate) unsafe fn enable_peer(call: &Call<EnablePeer, CUresult>, peer: CUcontext, flags: c_uint) -> CUresult {
    // SAFETY: the caller's own arguments.
    let result = alloc::with_room(|| call.forward(|real| unsafe { real(peer, flags) }));
    if result == CUresult::CUDA_SUCCESS
        && alloc::on()
        && let (Some(mine), Some(theirs)) = (contexts::seen(guards::current()), contexts::seen(peer as u64))
    {
        alloc::peers::enabled(mine, theirs);
    }
    result
}

/// `cuCtxDisablePeerAccess`.
pub(crate) unsafe fn disable_peer(call: &Call<OfContext, CUresult>, peer: CUcontext) -> CUresult {
    // SAFETY: the caller's own argument.
    let result = call.forward(|real| unsafe { real(peer) });
    if result == CUresult::CUDA_SUCCESS
        && alloc::on()
        && let (Some(mine), Some(theirs)) = (contexts::seen(guards::current()), contexts::seen(peer as u64))
    {
        alloc::peers::disabled(mine, theirs);
    }
    result
}

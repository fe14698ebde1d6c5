//! Access of one context to another's memory.

use crate::config;
use crate::error::*;
use crate::state::driver;
use crate::store::Protection;
use weir_cuda::*;

/// A device gets no rights to memory that it cannot reach.
pub(crate) fn refuse_stranger(owner: usize, device: usize, wanted: Protection) -> R {
    let stranger = !config::get().p2p && owner != device && wanted != Protection::None;
    if stranger && !config::fault("p2p_off") { Err(INVALID_DEVICE) } else { Ok(()) }
}

pub(crate) unsafe fn cuCtxEnablePeerAccess(peer_context: CUcontext, flags: c_uint) -> R {
    let mut s = driver()?;
    let (ctx, device) = s.current_device()?;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    let peer = s.known(peer_context).map_err(|_| INVALID_CONTEXT)?;
    if peer == ctx {
        return Err(INVALID_CONTEXT);
    }
    if s.contexts[&peer].device == device {
        return Err(INVALID_DEVICE);
    }
    if !config::get().p2p && !config::fault("p2p_off") {
        return Err(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    }
    let context = s.contexts.get_mut(&ctx).ok_or(INVALID_CONTEXT)?;
    if context.peers.contains(&peer) {
        return Err(PEER_ACCESS_ALREADY_ENABLED);
    }
    context.peers.push(peer);
    Ok(())
}

pub(crate) unsafe fn cuCtxDisablePeerAccess(peer_context: CUcontext) -> R {
    let mut s = driver()?;
    let ctx = s.current()?;
    let peer = s.known(peer_context).map_err(|_| INVALID_CONTEXT)?;
    let context = s.contexts.get_mut(&ctx).ok_or(INVALID_CONTEXT)?;
    if !context.peers.contains(&peer) {
        return Err(PEER_ACCESS_NOT_ENABLED);
    }
    context.peers.retain(|&p| p != peer);
    Ok(())
}

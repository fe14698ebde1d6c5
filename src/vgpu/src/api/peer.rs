//! Access of one context to another's memory.

use crate::error::*;
use crate::state::driver;
use weir_cuda::*;

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

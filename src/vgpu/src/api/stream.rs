//! Streams, host functions, and waits for values in memory.

use super::{given, need, put};
use crate::engine::{HostCall, Op, Touches, wait_points};
use crate::error::*;
use crate::memory::Toucher;
use crate::state::{State, driver};
use weir_cuda::*;

const NON_BLOCKING: c_uint = 1;

fn create(ph_stream: *mut CUstream, flags: c_uint, priority: c_int) -> R {
    need(ph_stream)?;
    let mut s = driver()?;
    let (ctx, device) = s.current_device()?;
    if flags & !NON_BLOCKING != 0 {
        return Err(INVALID_VALUE);
    }
    let handle = s.new_stream(ctx, device, flags & NON_BLOCKING != 0, priority.clamp(-5, 0));
    // SAFETY: checked above.
    unsafe { put(ph_stream, handle as CUstream) };
    Ok(())
}

pub(crate) unsafe fn cuStreamCreate(ph_stream: *mut CUstream, flags: c_uint) -> R {
    create(ph_stream, flags, 0)
}

pub(crate) unsafe fn cuStreamCreateWithPriority(ph_stream: *mut CUstream, flags: c_uint, priority: c_int) -> R {
    create(ph_stream, flags, priority)
}

pub(crate) unsafe fn cuStreamDestroy_v2(h_stream: CUstream) -> R {
    let mut s = driver()?;
    // The default streams belong to the context.
    if matches!(h_stream as usize, 0..=2) {
        return Err(INVALID_HANDLE);
    }
    let stream = s.stream(h_stream)?;
    s.leave_capture(stream);
    s.refuse_sync_of_capturing(stream)?;
    s.engine.destroy_stream(stream);
    Ok(())
}

pub(crate) unsafe fn cuStreamDestroy(h_stream: CUstream) -> R {
    // SAFETY: passed on as promised.
    unsafe { cuStreamDestroy_v2(h_stream) }
}

impl State {
    fn context_of_stream(&self, stream: u64) -> u64 {
        self.engine.context_of(stream).unwrap_or(0)
    }
}

pub(crate) unsafe fn cuStreamSynchronize(h_stream: CUstream) -> R {
    let mut s = driver()?;
    let stream = s.stream(h_stream)?;
    let ctx = s.context_of_stream(stream);
    s.refuse_sync_of_capturing(stream)?;
    s.refuse_unsafe_call()?;
    // Waiting for the legacy stream is waiting for every stream that it waits for.
    let legacy = s.contexts.get(&ctx).is_some_and(|c| c.legacy == stream);
    let points = s.engine.tails(|h, of| h == stream || (legacy && of.ctx == ctx && !of.independent));
    let clock = s.engine.streams.get(&stream).map(|st| st.clock.clone()).unwrap_or_default();
    let mut s = wait_points(s, &points);
    s.engine.host.join(&clock);
    s.pools_synchronized();
    s.usable(ctx).map(|_| ())
}

pub(crate) unsafe fn cuStreamQuery(h_stream: CUstream) -> R {
    let mut s = driver()?;
    let stream = s.stream(h_stream)?;
    let ctx = s.context_of_stream(stream);
    s.refuse_sync_of_capturing(stream)?;
    s.refuse_unsafe_call()?;
    if !s.engine.idle(stream) {
        s.advance();
    }
    if !s.engine.idle(stream) {
        return Err(NOT_READY);
    }
    let clock = s.engine.streams.get(&stream).map(|st| st.clock.clone()).unwrap_or_default();
    s.engine.host.join(&clock);
    s.usable(ctx).map(|_| ())
}

pub(crate) unsafe fn cuStreamGetFlags(h_stream: CUstream, flags: *mut c_uint) -> R {
    need(flags)?;
    let mut s = driver()?;
    let stream = s.stream(h_stream)?;
    // SAFETY: checked above.
    unsafe { put(flags, c_uint::from(s.engine.streams.get(&stream).is_some_and(|st| st.independent))) };
    Ok(())
}

pub(crate) unsafe fn cuStreamGetPriority(h_stream: CUstream, priority: *mut c_int) -> R {
    need(priority)?;
    let mut s = driver()?;
    let stream = s.stream(h_stream)?;
    // SAFETY: checked above.
    unsafe { put(priority, s.engine.streams.get(&stream).map_or(0, |st| st.priority)) };
    Ok(())
}

pub(crate) unsafe fn cuStreamGetId(h_stream: CUstream, stream_id: *mut c_ulonglong) -> R {
    need(stream_id)?;
    let mut s = driver()?;
    let stream = s.stream(h_stream)?;
    // SAFETY: checked above.
    unsafe { put(stream_id, s.engine.streams.get(&stream).map_or(0, |st| st.id)) };
    Ok(())
}

pub(crate) unsafe fn cuStreamGetCtx(h_stream: CUstream, pctx: *mut CUcontext) -> R {
    need(pctx)?;
    let mut s = driver()?;
    let stream = s.stream(h_stream)?;
    // SAFETY: checked above.
    unsafe { put(pctx, s.context_of_stream(stream) as CUcontext) };
    Ok(())
}

pub(crate) unsafe fn cuStreamGetCtx_v2(h_stream: CUstream, pctx: *mut CUcontext, p_green_ctx: *mut CUgreenCtx) -> R {
    // SAFETY: passed on as promised; no stream is of a green context.
    unsafe {
        cuStreamGetCtx(h_stream, pctx)?;
        put(p_green_ctx, std::ptr::null_mut());
    }
    Ok(())
}

pub(crate) unsafe fn cuStreamGetGreenCtx(h_stream: CUstream, ph_ctx: *mut CUgreenCtx) -> R {
    need(ph_ctx)?;
    driver()?.stream(h_stream)?;
    // SAFETY: checked above; no stream is of a green context.
    unsafe { put(ph_ctx, std::ptr::null_mut()) };
    Ok(())
}

pub(crate) unsafe fn cuStreamGetDevice(h_stream: CUstream, device: *mut CUdevice) -> R {
    need(device)?;
    let mut s = driver()?;
    let stream = s.stream(h_stream)?;
    // SAFETY: checked above.
    unsafe { put(device, s.engine.streams.get(&stream).map_or(0, |st| st.device as CUdevice)) };
    Ok(())
}

/// Attributes tune real hardware; here they are accepted and answer their defaults.
pub(crate) unsafe fn cuStreamGetAttribute(
    h_stream: CUstream,
    _attr: CUstreamAttrID,
    value: *mut CUstreamAttrValue,
) -> R {
    need(value)?;
    driver()?.stream(h_stream)?;
    // SAFETY: checked above.
    unsafe { put(value, CUstreamAttrValue::default()) };
    Ok(())
}

pub(crate) unsafe fn cuStreamSetAttribute(
    h_stream: CUstream,
    _attr: CUstreamAttrID,
    param: *const CUstreamAttrValue,
) -> R {
    given(param)?;
    driver()?.stream(h_stream).map(|_| ())
}

pub(crate) unsafe fn cuStreamCopyAttributes(dst_stream: CUstream, src_stream: CUstream) -> R {
    let mut s = driver()?;
    s.stream(dst_stream)?;
    s.stream(src_stream).map(|_| ())
}

pub(crate) unsafe fn cuLaunchHostFunc(h_stream: CUstream, function: CUhostFn, user_data: *mut c_void) -> R {
    let function = function.ok_or(INVALID_VALUE)?;
    let mut s = driver()?;
    let stream = s.stream(h_stream)?;
    let op = Op::Host { call: HostCall::Function(function), data: user_data as usize };
    s.submit(stream, "cuLaunchHostFunc", op, Touches::NONE).map(|_| ())
}

pub(crate) unsafe fn cuLaunchHostFunc_v2(
    h_stream: CUstream,
    function: CUhostFn,
    user_data: *mut c_void,
    sync_mode: c_uint,
) -> R {
    if sync_mode > 1 {
        return Err(INVALID_VALUE);
    }
    // SAFETY: passed on as promised.
    unsafe { cuLaunchHostFunc(h_stream, function, user_data) }
}

pub(crate) unsafe fn cuStreamAddCallback(
    h_stream: CUstream,
    callback: CUstreamCallback,
    user_data: *mut c_void,
    flags: c_uint,
) -> R {
    let callback = callback.ok_or(INVALID_VALUE)?;
    let mut s = driver()?;
    let stream = s.stream(h_stream)?;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    // Callbacks, unlike host functions, cannot be captured.
    s.refuse_sync_of_capturing(stream)?;
    let op = Op::Host { call: HostCall::Callback(callback, h_stream as u64), data: user_data as usize };
    s.submit(stream, "cuStreamAddCallback", op, Touches::NONE).map(|_| ())
}

fn value(stream: CUstream, addr: u64, value: u64, wide: bool, flags: c_uint, write: bool) -> R {
    let mut s = driver()?;
    let stream = s.stream(stream)?;
    let len = if wide { 8 } else { 4 };
    let legal = if write { flags & !1 == 0 } else { flags & !(7 | 1 << 30) == 0 && flags & 7 <= 3 };
    if addr == 0 || !addr.is_multiple_of(len) || !legal {
        return Err(INVALID_VALUE);
    }
    let mut list = Vec::new();
    s.touch(&mut list, addr, len, write, Toucher::Copier)?;
    // The memory has to be the device's or known to it.
    if list.is_empty() {
        return Err(INVALID_VALUE);
    }
    let (label, op) = if write {
        ("cuStreamWriteValue", Op::WriteValue { addr, value, wide })
    } else {
        ("cuStreamWaitValue", Op::WaitValue { addr, value, wide, flags })
    };
    s.submit(stream, label, op, Touches::Known(list)).map(|_| ())
}

macro_rules! values {
    ($($name:ident $ty:ty, $wide:literal, $write:literal;)*) => {
        $(
            pub(crate) unsafe fn $name(stream: CUstream, addr: CUdeviceptr, number: $ty, flags: c_uint) -> R {
                value(stream, addr, u64::from(number), $wide, flags, $write)
            }
        )*
    };
}

values! {
    cuStreamWaitValue32 u32, false, false;
    cuStreamWaitValue32_v2 u32, false, false;
    cuStreamWaitValue64 u64, true, false;
    cuStreamWaitValue64_v2 u64, true, false;
    cuStreamWriteValue32 u32, false, true;
    cuStreamWriteValue32_v2 u32, false, true;
    cuStreamWriteValue64 u64, true, true;
    cuStreamWriteValue64_v2 u64, true, true;
}

pub(crate) unsafe fn cuStreamBatchMemOp_v2(
    stream: CUstream,
    count: c_uint,
    param_array: *mut CUstreamBatchMemOpParams,
    flags: c_uint,
) -> R {
    given(param_array)?;
    if flags != 0 || count > 256 {
        return Err(INVALID_VALUE);
    }
    use CUstreamBatchMemOpType as T;
    for at in 0..count as usize {
        // SAFETY: the caller gave `count` entries; the first member of each determines which it is.
        unsafe {
            let entry = param_array.add(at).read_unaligned();
            let w = entry.waitValue;
            match entry.operation {
                T::CU_STREAM_MEM_OP_WAIT_VALUE_32 => {
                    value(stream, w.address, u64::from(w.__bindgen_anon_1.value), false, w.flags, false)?;
                }
                T::CU_STREAM_MEM_OP_WAIT_VALUE_64 => {
                    value(stream, w.address, w.__bindgen_anon_1.value64, true, w.flags, false)?;
                }
                T::CU_STREAM_MEM_OP_WRITE_VALUE_32 => {
                    value(stream, w.address, u64::from(w.__bindgen_anon_1.value), false, w.flags, true)?;
                }
                T::CU_STREAM_MEM_OP_WRITE_VALUE_64 => {
                    value(stream, w.address, w.__bindgen_anon_1.value64, true, w.flags, true)?;
                }
                T::CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES | T::CU_STREAM_MEM_OP_BARRIER => {}
                _ => return Err(INVALID_VALUE),
            }
        }
    }
    Ok(())
}

pub(crate) unsafe fn cuStreamBatchMemOp(
    stream: CUstream,
    count: c_uint,
    param_array: *mut CUstreamBatchMemOpParams,
    flags: c_uint,
) -> R {
    // SAFETY: passed on as promised.
    unsafe { cuStreamBatchMemOp_v2(stream, count, param_array, flags) }
}

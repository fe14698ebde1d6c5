//! What graphs own: user objects of the job, and memory of devices.

use super::graph_of;
use crate::api::{given, need, put};
use crate::error::*;
use crate::graph::UserObject;
use crate::state::driver;
use weir_cuda::*;

const NO_DESTRUCTOR_SYNC: c_uint = 1;
const MOVE: c_uint = 1;

/// A number of references: at least one, and no more than an `int` holds.
fn counted(count: c_uint) -> R {
    if count == 0 || count > i32::MAX as c_uint { Err(INVALID_VALUE) } else { Ok(()) }
}

pub(crate) unsafe fn cuUserObjectCreate(
    object_out: *mut CUuserObject,
    ptr: *mut c_void,
    destroy: CUhostFn,
    initial_refcount: c_uint,
    flags: c_uint,
) -> R {
    need(object_out)?;
    let mut s = driver()?;
    let destroy = destroy.ok_or(INVALID_VALUE)?;
    counted(initial_refcount)?;
    // The one defined flag is required.
    if flags != NO_DESTRUCTOR_SYNC {
        return Err(INVALID_VALUE);
    }
    let handle = s.fresh();
    let count = u64::from(initial_refcount);
    let object = UserObject { destroy, data: ptr as usize, count, owned_by_job: count, after: Vec::new() };
    s.graphs.objects.insert(handle, object);
    // SAFETY: checked above.
    unsafe { put(object_out, handle as CUuserObject) };
    Ok(())
}

pub(crate) unsafe fn cuUserObjectRetain(object: CUuserObject, count: c_uint) -> R {
    counted(count)?;
    let mut s = driver()?;
    let known = s.object(object as u64)?;
    known.count += u64::from(count);
    known.owned_by_job += u64::from(count);
    Ok(())
}

pub(crate) unsafe fn cuUserObjectRelease(object: CUuserObject, count: c_uint) -> R {
    counted(count)?;
    let mut s = driver()?;
    let known = s.object(object as u64)?;
    known.owned_by_job = known.owned_by_job.checked_sub(u64::from(count)).ok_or(INVALID_VALUE)?;
    s.object_let_go(object as u64, count, None);
    Ok(())
}

pub(crate) unsafe fn cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint) -> R {
    counted(count)?;
    let mut s = driver()?;
    let graph = graph_of(&s, graph)?;
    if flags & !MOVE != 0 {
        return Err(INVALID_VALUE);
    }
    s.graph_retain(graph, object as u64, count, flags == MOVE)
}

pub(crate) unsafe fn cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: c_uint) -> R {
    counted(count)?;
    let mut s = driver()?;
    let graph = graph_of(&s, graph)?;
    s.graph_release(graph, object as u64, count)
}

pub(crate) unsafe fn cuDeviceGraphMemTrim(device: CUdevice) -> R {
    let mut s = driver()?;
    let device = s.device(device)?;
    s.graph_memory_trim(device);
    Ok(())
}

pub(crate) unsafe fn cuDeviceGetGraphMemAttribute(
    device: CUdevice,
    attr: CUgraphMem_attribute,
    value: *mut c_void,
) -> R {
    use CUgraphMem_attribute as A;
    need(value)?;
    let s = driver()?;
    let memory = &s.devices[s.device(device)?].graph_memory;
    let reported = match attr {
        A::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT => memory.used,
        A::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => memory.used_high,
        A::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT => memory.reserved,
        A::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => memory.reserved_high,
        _ => return Err(INVALID_VALUE),
    };
    // SAFETY: checked above; every attribute is a number of 64 bits.
    unsafe { put(value.cast::<u64>(), reported) };
    Ok(())
}

pub(crate) unsafe fn cuDeviceSetGraphMemAttribute(
    device: CUdevice,
    attr: CUgraphMem_attribute,
    value: *mut c_void,
) -> R {
    use CUgraphMem_attribute as A;
    given(value)?;
    let mut s = driver()?;
    let device = s.device(device)?;
    // SAFETY: checked above; every attribute is a number of 64 bits.
    let wanted = unsafe { value.cast::<u64>().read() };
    // A high watermark can only be reset.
    if wanted != 0 {
        return Err(INVALID_VALUE);
    }
    let memory = &mut s.devices[device].graph_memory;
    match attr {
        A::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => memory.used_high = memory.used,
        A::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => memory.reserved_high = memory.reserved,
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}

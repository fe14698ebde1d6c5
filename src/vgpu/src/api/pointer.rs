//! What a pointer is.

use super::{given, need};
use crate::config;
use crate::error::*;
use crate::memory::{Extent, Kind};
use crate::space::around;
use crate::state::{State, driver};
use crate::store::Protection;
use weir_cuda::*;

/// A value of an attribute, in the type that its documentation gives.
enum Value {
    Bool(bool),
    Int(i32),
    Unsigned(u32),
    Wide(u64),
    P2pTokens,
}

impl Value {
    unsafe fn write(&self, data: *mut c_void) {
        // SAFETY: the caller's place has the attribute's type.
        unsafe {
            match *self {
                Self::Bool(v) => data.cast::<c_int>().write_unaligned(c_int::from(v)),
                Self::Int(v) => data.cast::<c_int>().write_unaligned(v),
                Self::Unsigned(v) => data.cast::<c_uint>().write_unaligned(v),
                Self::Wide(v) => data.cast::<u64>().write_unaligned(v),
                Self::P2pTokens => data.cast::<[u64; 2]>().write_unaligned([0, 0]),
            }
        }
    }
}

const TYPE_HOST: u32 = 1;
const TYPE_DEVICE: u32 = 2;

/// Whether mapped memory lies on the host.
fn is_host_mapping(extent: &Extent) -> bool {
    matches!(extent.kind, Kind::Mapped(_)) && extent.device.is_none()
}

impl State {
    /// What an attribute of a known pointer is.
    fn attribute(&self, extent: &Extent, attribute: CUpointer_attribute, ptr: u64) -> R<Value> {
        use CUpointer_attribute as A;
        let on_host = matches!(extent.kind, Kind::Pinned | Kind::Registered) || is_host_mapping(extent);
        let host_reads = on_host || extent.kind == Kind::Managed;
        Ok(match attribute {
            A::CU_POINTER_ATTRIBUTE_CONTEXT => match extent.kind {
                // Mapped and stream-ordered memory belongs to no context.
                Kind::Mapped(_) | Kind::Pool(_) => Value::Wide(0),
                _ => Value::Wide(extent.ctx),
            },
            A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE => Value::Unsigned(if on_host { TYPE_HOST } else { TYPE_DEVICE }),
            A::CU_POINTER_ATTRIBUTE_DEVICE_POINTER => Value::Wide(ptr),
            A::CU_POINTER_ATTRIBUTE_HOST_POINTER if host_reads => Value::Wide(ptr),
            A::CU_POINTER_ATTRIBUTE_P2P_TOKENS if extent.kind == Kind::Linear => Value::P2pTokens,
            A::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => Value::Bool(self.sync_memops(ptr)),
            A::CU_POINTER_ATTRIBUTE_BUFFER_ID => Value::Wide(extent.id),
            A::CU_POINTER_ATTRIBUTE_IS_MANAGED => Value::Bool(extent.kind == Kind::Managed),
            A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => {
                let of_context = self.contexts.get(&extent.ctx).map(|c| c.device);
                Value::Int(extent.device.or(of_context).map_or(-2, |d| d as i32))
            }
            A::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => Value::Bool(extent.kind == Kind::Linear),
            // Mapped memory answers with its whole reservation, as the documentation of ranges says.
            A::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => Value::Wide(self.reservation_of(extent).0),
            A::CU_POINTER_ATTRIBUTE_RANGE_SIZE => Value::Wide(self.reservation_of(extent).1),
            A::CU_POINTER_ATTRIBUTE_MAPPED => Value::Bool(true),
            A::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => Value::Wide(match extent.kind {
                Kind::Mapped(h) => self.space.handles.get(&h).map_or(0, |h| u64::from(h.prop.requestedHandleTypes.0)),
                Kind::Pool(p) => self.pools.get(&p).map_or(0, |p| u64::from(p.handle_types)),
                _ => 0,
            }),
            A::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE => Value::Bool(match extent.kind {
                Kind::Linear => true,
                Kind::Mapped(h) => {
                    self.space.handles.get(&h).is_some_and(|h| h.prop.allocFlags.gpuDirectRDMACapable != 0)
                }
                _ => false,
            }),
            A::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => Value::Unsigned(match self.access_now(extent) {
                Protection::None => 0,
                Protection::Read => 1,
                Protection::ReadWrite => 3,
            }),
            A::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => match extent.kind {
                Kind::Pool(pool) => Value::Wide(pool),
                _ => return Err(INVALID_VALUE),
            },
            A::CU_POINTER_ATTRIBUTE_MAPPING_SIZE => Value::Wide(extent.size),
            A::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => Value::Wide(extent.addr),
            A::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => match extent.kind {
                Kind::Mapped(handle) => Value::Wide(handle),
                _ => Value::Wide(extent.id),
            },
            _ => return Err(INVALID_VALUE),
        })
    }

    fn reservation_of(&self, extent: &Extent) -> (u64, u64) {
        match extent.kind {
            Kind::Mapped(_) => around(&self.space.reservations, extent.addr, |r| r.size)
                .map_or((extent.addr, extent.size), |(start, r)| (start, r.size)),
            _ => (extent.addr, extent.size),
        }
    }

    fn access_now(&self, extent: &Extent) -> Protection {
        let device = self.current_device().map_or(usize::MAX, |(_, d)| d);
        match extent.kind {
            Kind::Mapped(_) => self.space.mapping(extent.addr).map_or(Protection::None, |(_, m)| m.of(Some(device))),
            Kind::Pool(p) => self.pools.get(&p).map_or(Protection::None, |p| p.access_of(device)),
            _ => Protection::ReadWrite,
        }
    }

    fn sync_memops(&self, ptr: u64) -> bool {
        self.heap_at(ptr).and_then(|d| self.devices[d].heap.holding(ptr)).is_some_and(|b| b.sync_memops)
    }
}

pub(crate) unsafe fn cuPointerGetAttribute(data: *mut c_void, attribute: CUpointer_attribute, ptr: CUdeviceptr) -> R {
    need(data)?;
    let s = driver()?;
    let extent = s.extent(ptr);
    let needs_context = attribute == CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER;
    if needs_context {
        s.current()?;
    }
    // A reserved address that nothing is mapped to is known as such.
    let reserved = around(&s.space.reservations, ptr, |r| r.size).map(|(start, r)| (start, r.size));
    let value = match (extent, reserved) {
        (Some(extent), _) => s.attribute(&extent, attribute, ptr)?,
        (None, Some((start, size))) => match attribute {
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPED => Value::Bool(false),
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => Value::Wide(start),
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE => Value::Wide(size),
            _ => return Err(INVALID_VALUE),
        },
        (None, None) => return Err(INVALID_VALUE),
    };
    // SAFETY: checked above.
    unsafe { value.write(data) };
    Ok(())
}

pub(crate) unsafe fn cuPointerGetAttributes(
    num_attributes: c_uint,
    attributes: *mut CUpointer_attribute,
    data: *mut *mut c_void,
    ptr: CUdeviceptr,
) -> R {
    given(attributes)?;
    given(data)?;
    driver()?;
    for at in 0..num_attributes as usize {
        // SAFETY: the caller gave two arrays of `num_attributes` entries.
        let (attribute, place) = unsafe { (*attributes.add(at), *data.add(at)) };
        if place.is_null() {
            return Err(INVALID_VALUE);
        }
        // Unlike the single query this one answers zeroes for a pointer that the driver does not know.
        // SAFETY: the place has the attribute's type.
        unsafe {
            if cuPointerGetAttribute(place, attribute, ptr).is_err() {
                absent(attribute).write(place);
            }
        }
    }
    Ok(())
}

/// What an attribute is where there is nothing.
fn absent(attribute: CUpointer_attribute) -> Value {
    use CUpointer_attribute as A;
    match attribute {
        A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => Value::Int(-2),
        A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE | A::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => Value::Unsigned(0),
        A::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
        | A::CU_POINTER_ATTRIBUTE_IS_MANAGED
        | A::CU_POINTER_ATTRIBUTE_MAPPED
        | A::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
        | A::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE => Value::Bool(false),
        A::CU_POINTER_ATTRIBUTE_P2P_TOKENS => Value::P2pTokens,
        _ => Value::Wide(0),
    }
}

pub(crate) unsafe fn cuPointerSetAttribute(
    value: *const c_void,
    attribute: CUpointer_attribute,
    ptr: CUdeviceptr,
) -> R {
    given(value)?;
    let mut s = driver()?;
    if attribute != CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS {
        return Err(INVALID_VALUE);
    }
    let extent = s.extent(ptr).ok_or(INVALID_VALUE)?;
    let takes = config::get().sync_memops || config::fault("sync_memops_mapped");
    if matches!(extent.kind, Kind::Mapped(_)) && !takes {
        return Err(NOT_SUPPORTED);
    }
    // SAFETY: checked above; the attribute's type.
    let on = unsafe { value.cast::<c_uint>().read_unaligned() } != 0;
    if let Some(device) = s.heap_at(ptr)
        && let Some(block) = s.devices[device].heap.holding_mut(ptr)
    {
        block.sync_memops = on;
    }
    Ok(())
}

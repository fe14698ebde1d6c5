//! Memory: allocating, freeing and querying it.

use crate::context;
use crate::error::{Outcome, R, give};
use std::ptr::null_mut;
use weir_cuda::*;
use weir_vgpu_client::*;

/// What `cudaPointerGetAttributes` fills.
#[repr(C)]
pub(crate) struct PointerAttributes {
    kind: c_int,
    device: c_int,
    device_pointer: *mut c_void,
    host_pointer: *mut c_void,
}

const UNREGISTERED: c_int = 0;
const HOST: c_int = 1;
const MANAGED: c_int = 3;

runtime! {
    /// Takes memory of the thread's device; nothing for no bytes.
    context fn cudaMalloc(place: *mut CUdeviceptr, size: usize) =
        if size == 0 { give(place, 0) } else { cuMemAlloc_v2(place, size).outcome() };
    /// Gives memory back.
    context fn cudaFree(pointer: CUdeviceptr) = if pointer == 0 { Ok(()) } else { cuMemFree_v2(pointer).outcome() };
    /// Takes rows of memory.
    context fn cudaMallocPitch(place: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize) =
        cuMemAllocPitch_v2(place, pitch, width, height, 4);
    /// Takes memory that host and devices share.
    context fn cudaMallocManaged(place: *mut CUdeviceptr, size: usize, flags: c_uint) =
        cuMemAllocManaged(place, size, flags);
    /// Takes pinned memory.
    context fn cudaMallocHost(place: *mut *mut c_void, size: usize) = pinned(place, size, 0);
    /// Takes pinned memory with flags; the flags of both interfaces have the same values.
    context fn cudaHostAlloc(place: *mut *mut c_void, size: usize, flags: c_uint) = pinned(place, size, flags);
    /// Gives pinned memory back.
    context fn cudaFreeHost(pointer: *mut c_void) =
        if pointer.is_null() { Ok(()) } else { cuMemFreeHost(pointer).outcome() };
    /// Pins memory.
    context fn cudaHostRegister(pointer: *mut c_void, size: usize, flags: c_uint) =
        cuMemHostRegister_v2(pointer, size, flags);
    /// Unpins memory.
    context fn cudaHostUnregister(pointer: *mut c_void) = cuMemHostUnregister(pointer);
    /// Where a device sees pinned memory.
    context fn cudaHostGetDevicePointer(place: *mut CUdeviceptr, pointer: *mut c_void, flags: c_uint) =
        cuMemHostGetDevicePointer_v2(place, pointer, flags);
    /// The flags of pinned memory.
    context fn cudaHostGetFlags(flags: *mut c_uint, pointer: *mut c_void) = cuMemHostGetFlags(flags, pointer);
    /// Free and total memory of the thread's device.
    context fn cudaMemGetInfo(free: *mut usize, total: *mut usize) = cuMemGetInfo_v2(free, total);
    /// Takes memory in the order of a stream.
    context fn cudaMallocAsync(place: *mut CUdeviceptr, size: usize, stream: CUstream) =
        cuMemAllocAsync(place, size, stream);
    /// Gives memory back in the order of a stream.
    context fn cudaFreeAsync(pointer: CUdeviceptr, stream: CUstream) = cuMemFreeAsync(pointer, stream);
    /// Takes memory of a pool in the order of a stream.
    context fn cudaMallocFromPoolAsync(place: *mut CUdeviceptr, size: usize, pool: CUmemoryPool, stream: CUstream) =
        cuMemAllocFromPoolAsync(place, size, pool, stream);
    /// Makes a pool; the properties are laid out as the driver's.
    context fn cudaMemPoolCreate(pool: *mut CUmemoryPool, properties: *const CUmemPoolProps) =
        cuMemPoolCreate(pool, properties);
    /// Destroys a pool.
    context fn cudaMemPoolDestroy(pool: CUmemoryPool) = cuMemPoolDestroy(pool);
    /// Gives what a pool does not use back.
    context fn cudaMemPoolTrimTo(pool: CUmemoryPool, keep: usize) = cuMemPoolTrimTo(pool, keep);
    /// Sets a property of a pool.
    context fn cudaMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void) =
        cuMemPoolSetAttribute(pool, CUmemPool_attribute(attribute), value);
    /// A property of a pool.
    context fn cudaMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void) =
        cuMemPoolGetAttribute(pool, CUmemPool_attribute(attribute), value);
    /// Says which devices use a pool's memory.
    context fn cudaMemPoolSetAccess(pool: CUmemoryPool, list: *const CUmemAccessDesc, count: usize) =
        cuMemPoolSetAccess(pool, list, count);
    /// Whether a device uses a pool's memory.
    context fn cudaMemPoolGetAccess(flags: *mut CUmemAccess_flags, pool: CUmemoryPool, location: *mut CUmemLocation) =
        cuMemPoolGetAccess(flags, pool, location);
    /// What is known of a pointer.
    context fn cudaPointerGetAttributes(place: *mut PointerAttributes, pointer: CUdeviceptr) =
        attributes(pointer).and_then(|found| give(place, found));
    /// Moves shared memory to a device.
    context fn cudaMemPrefetchAsync(pointer: CUdeviceptr, count: usize, device: c_int, stream: CUstream) =
        cuMemPrefetchAsync(pointer, count, device, stream);
    /// Says how shared memory will be used.
    context fn cudaMemAdvise(pointer: CUdeviceptr, count: usize, advice: c_uint, device: c_int) =
        cuMemAdvise(pointer, count, CUmem_advise(advice), device);
    /// Makes a handle with which another process opens an allocation.
    context fn cudaIpcGetMemHandle(handle: *mut CUipcMemHandle, pointer: CUdeviceptr) =
        cuIpcGetMemHandle(handle, pointer);
    /// Opens another process's allocation.
    context fn cudaIpcOpenMemHandle(place: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) =
        cuIpcOpenMemHandle_v2(place, handle, flags);
    /// Closes it.
    context fn cudaIpcCloseMemHandle(pointer: CUdeviceptr) = cuIpcCloseMemHandle(pointer);
}

unsafe fn pinned(place: *mut *mut c_void, size: usize, flags: c_uint) -> R {
    // SAFETY: the caller's place.
    unsafe { if size == 0 { give(place, null_mut()) } else { cuMemHostAlloc(place, size, flags).outcome() } }
}

fn attributes(pointer: CUdeviceptr) -> R<PointerAttributes> {
    type A = CUpointer_attribute;
    let (mut kind, mut managed, mut device) = (0u32, 0u32, -2);
    let (mut on_device, mut on_host) = (0u64, 0u64);
    let mut wanted = [
        A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        A::CU_POINTER_ATTRIBUTE_IS_MANAGED,
        A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        A::CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        A::CU_POINTER_ATTRIBUTE_HOST_POINTER,
    ];
    let mut places: [*mut c_void; 5] = [
        (&raw mut kind).cast(),
        (&raw mut managed).cast(),
        (&raw mut device).cast(),
        (&raw mut on_device).cast(),
        (&raw mut on_host).cast(),
    ];
    // SAFETY: a place of the documented size for each attribute. Unlike the singular form this one
    // answers for unknown pointers too, with zeros.
    unsafe { cuPointerGetAttributes(5, wanted.as_mut_ptr(), places.as_mut_ptr(), pointer) }.outcome()?;
    let host_pointer = on_host as *mut c_void;
    let device_pointer = on_device as *mut c_void;
    Ok(match (kind, managed) {
        (0, _) => PointerAttributes {
            kind: UNREGISTERED,
            device: -1,
            device_pointer: null_mut(),
            host_pointer: pointer as *mut c_void,
        },
        (_, 1) => PointerAttributes { kind: MANAGED, device, device_pointer, host_pointer },
        (1, _) => PointerAttributes { kind: HOST, device: context::device()?, device_pointer, host_pointer },
        (kind, _) => PointerAttributes { kind: kind as c_int, device, device_pointer, host_pointer: null_mut() },
    })
}

//! Devices: choosing and querying them.

use crate::context;
use crate::error::{Outcome, R, give};
use crate::properties::{self, Properties};
use weir_cuda::*;
use weir_vgpu_client::*;

/// The version of the runtime interface: CUDA 12.5.
pub(crate) const VERSION: c_int = 12050;

runtime! {
    /// The runtime's version.
    bare fn cudaRuntimeGetVersion(version: *mut c_int) = give(version, VERSION);
    /// The driver's version; 0 without a driver.
    bare fn cudaDriverGetVersion(version: *mut c_int) = {
        if present() { cuDriverGetVersion(version).outcome() } else { give(version, 0) }
    };
    /// How many devices there are.
    bare fn cudaGetDeviceCount(count: *mut c_int) = match context::count() {
        Ok(found) => give(count, found),
        Err(code) => give(count, 0).and(Err(code)),
    };
    /// Makes a device the thread's own, and its primary context current.
    bare fn cudaSetDevice(device: c_int) = context::choose(device);
    /// The thread's device.
    bare fn cudaGetDevice(device: *mut c_int) = context::device().and_then(|found| give(device, found));
    /// Makes a device's context without making it current.
    bare fn cudaInitDevice(device: c_int, _device_flags: c_uint, _flags: c_uint) =
        context::known(device).and_then(|()| context::primary(device).map(|_| ()));
    /// What a device can do; the attributes of both interfaces have the same numbers.
    bare fn cudaDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: c_int) = {
        context::known(device).and_then(|()| cuDeviceGetAttribute(value, CUdevice_attribute(attribute), device).outcome())
    };
    /// All properties of a device.
    bare fn cudaGetDeviceProperties_v2(place: *mut Properties, device: c_int) =
        context::known(device).and_then(|()| give(place, properties::of(device)?));
    /// The memory pool that a device begins with.
    bare fn cudaDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: c_int) =
        context::known(device).and_then(|()| cuDeviceGetDefaultMemPool(pool, device).outcome());
    /// The memory pool that a device uses.
    bare fn cudaDeviceGetMemPool(pool: *mut CUmemoryPool, device: c_int) =
        context::known(device).and_then(|()| cuDeviceGetMemPool(pool, device).outcome());
    /// Makes a device use a memory pool.
    bare fn cudaDeviceSetMemPool(device: c_int, pool: CUmemoryPool) =
        context::known(device).and_then(|()| cuDeviceSetMemPool(device, pool).outcome());
    /// What two devices can do with each other.
    bare fn cudaDeviceGetP2PAttribute(value: *mut c_int, attribute: c_uint, from: c_int, to: c_int) =
        context::ready().and_then(|()| cuDeviceGetP2PAttribute(value, CUdevice_P2PAttribute(attribute), from, to).outcome());
    /// Whether one device can use the other's memory.
    bare fn cudaDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) =
        context::ready().and_then(|()| cuDeviceCanAccessPeer(can, device, peer).outcome());
    /// Lets the thread's device use another's memory.
    context fn cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) =
        context::known(peer).and_then(|()| cuCtxEnablePeerAccess(context::primary(peer)?, flags).outcome());
    /// Takes that back.
    context fn cudaDeviceDisablePeerAccess(peer: c_int) =
        context::known(peer).and_then(|()| cuCtxDisablePeerAccess(context::primary(peer)?).outcome());
    /// The device at a place on the bus.
    bare fn cudaDeviceGetByPCIBusId(device: *mut c_int, id: *const c_char) =
        context::ready().and_then(|()| cuDeviceGetByPCIBusId(device, id).outcome());
    /// A device's place on the bus.
    bare fn cudaDeviceGetPCIBusId(id: *mut c_char, len: c_int, device: c_int) =
        context::known(device).and_then(|()| cuDeviceGetPCIBusId(id, len, device).outcome());
    /// Waits for all work of the thread's device.
    context fn cudaDeviceSynchronize() = cuCtxSynchronize();
    /// The older name of the same.
    context fn cudaThreadSynchronize() = cuCtxSynchronize();
    /// Destroys everything on the thread's device.
    bare fn cudaDeviceReset() = context::reset();
    /// A limit of the thread's device.
    context fn cudaDeviceGetLimit(value: *mut usize, limit: c_uint) = cuCtxGetLimit(value, CUlimit(limit));
    /// Sets a limit of the thread's device.
    context fn cudaDeviceSetLimit(limit: c_uint, value: usize) = cuCtxSetLimit(CUlimit(limit), value);
    /// The priorities that streams may have.
    context fn cudaDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) =
        cuCtxGetStreamPriorityRange(least, greatest);
    /// How the cache is divided.
    context fn cudaDeviceGetCacheConfig(config: *mut CUfunc_cache) = cuCtxGetCacheConfig(config);
    /// Sets how the cache is divided.
    context fn cudaDeviceSetCacheConfig(config: c_uint) = cuCtxSetCacheConfig(CUfunc_cache(config));
    /// Width of the banks of shared memory.
    context fn cudaDeviceGetSharedMemConfig(config: *mut CUsharedconfig) = cuCtxGetSharedMemConfig(config);
    /// Sets the width of the banks of shared memory.
    context fn cudaDeviceSetSharedMemConfig(config: c_uint) = cuCtxSetSharedMemConfig(CUsharedconfig(config));
    /// The flags of the thread's device.
    bare fn cudaGetDeviceFlags(flags: *mut c_uint) = flags_of(flags);
    /// Sets the flags of the thread's device.
    bare fn cudaSetDeviceFlags(flags: c_uint) =
        context::device().and_then(|device| cuDevicePrimaryCtxSetFlags_v2(device, flags).outcome());
    /// Begins profiling: there is no profiler.
    bare fn cudaProfilerStart() = Ok(());
    /// Ends profiling.
    bare fn cudaProfilerStop() = Ok(());
    /// The address of a driver function, at the runtime's version.
    bare fn cudaGetDriverEntryPoint(symbol: *const c_char, function: *mut *mut c_void, flags: c_ulonglong, status: *mut c_uint) =
        entry_point(symbol, function, VERSION, flags, status);
    /// The address of a driver function, at a version.
    bare fn cudaGetDriverEntryPointByVersion(
        symbol: *const c_char, function: *mut *mut c_void, version: c_uint, flags: c_ulonglong, status: *mut c_uint,
    ) = entry_point(symbol, function, version as c_int, flags, status);
    /// There are no private tables.
    bare fn cudaGetExportTable(table: *mut *const c_void, _id: *const CUuuid) =
        give(table, std::ptr::null()).and(Err(CUresult::CUDA_ERROR_NOT_FOUND));
}

/// Flags of the primary context, before it is made too.
unsafe fn flags_of(flags: *mut c_uint) -> R {
    let device = context::device()?;
    let (mut found, mut active) = (0, 0);
    // SAFETY: places for results, and the caller's.
    unsafe {
        cuDevicePrimaryCtxGetState(device, &raw mut found, &raw mut active).outcome()?;
        give(flags, found)
    }
}

unsafe fn entry_point(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: c_ulonglong,
    status: *mut c_uint,
) -> R {
    if symbol.is_null() || function.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    context::ready()?;
    // SAFETY: not NULL, a C string by the function's contract.
    let (address, found) = match address(unsafe { core::ffi::CStr::from_ptr(symbol) }, version, flags) {
        Ok(address) => (address, 0),
        Err(why) => (std::ptr::null_mut(), why.0),
    };
    // SAFETY: the caller's places.
    unsafe {
        function.write(address);
        if !status.is_null() {
            status.write(found);
            return Ok(());
        }
    }
    // Without a place for the status, a missing function is the call's own failure.
    if found == 0 { Ok(()) } else { Err(CUresult::CUDA_ERROR_NOT_FOUND) }
}

//! Launches of kernels.

use super::given;
use crate::engine::Op;
use crate::error::*;
use crate::kernel::Geometry;
use crate::state::driver;
use std::sync::Arc;
use weir_cuda::*;

/// Events that a launch is to record. They may come as late as the kernel's end.
///
/// # Safety
/// The attributes are a list of so many.
unsafe fn events(config: &CUlaunchConfig) -> Vec<CUevent> {
    (0..config.numAttrs as usize)
        .filter_map(|at| {
            // SAFETY: as promised; each id determines which part of its value is set.
            unsafe {
                let attribute = &*config.attrs.add(at);
                match attribute.id {
                    CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT => {
                        Some(attribute.value.programmaticEvent.event)
                    }
                    CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT => {
                        Some(attribute.value.launchCompletionEvent.event)
                    }
                    _ => None,
                }
            }
        })
        .collect()
}

/// The shape of a launch with its attributes. Those that change nothing that a virtual device shows
/// are read over.
///
/// # Safety
/// The attributes are a list of so many.
pub(super) unsafe fn geometry(config: &CUlaunchConfig) -> R<Geometry> {
    let grid = [config.gridDimX, config.gridDimY, config.gridDimZ];
    let block = [config.blockDimX, config.blockDimY, config.blockDimZ];
    let mut geometry = Geometry::new(grid, block, config.sharedMemBytes);
    if config.numAttrs > 0 {
        given(config.attrs)?;
    }
    for at in 0..config.numAttrs as usize {
        // SAFETY: as promised.
        let attribute = unsafe { &*config.attrs.add(at) };
        // SAFETY: each id determines which part of its value is set.
        unsafe {
            match attribute.id {
                CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE => {
                    geometry.cooperative = attribute.value.cooperative != 0;
                }
                CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION => {
                    let cluster = attribute.value.clusterDim;
                    geometry.cluster = [cluster.x, cluster.y, cluster.z];
                }
                _ => {}
            }
        }
    }
    Ok(geometry)
}

unsafe fn launch(
    f: CUfunction,
    geometry: Geometry,
    stream: CUstream,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
    label: &'static str,
) -> R {
    let mut s = driver()?;
    let stream = s.stream(stream)?;
    let ctx = s.engine.context_of(stream).ok_or(INVALID_HANDLE)?;
    s.usable(ctx)?;
    // SAFETY: the caller's arguments are those of this kernel.
    let (launch, touches) = unsafe { s.make_launch(f as u64, ctx, geometry, params, extra)? };
    s.submit(stream, label, Op::Kernel(Arc::new(launch)), touches)?;
    Ok(())
}

pub(crate) unsafe fn cuLaunchKernel(
    f: CUfunction,
    grid_dim_x: c_uint,
    grid_dim_y: c_uint,
    grid_dim_z: c_uint,
    block_dim_x: c_uint,
    block_dim_y: c_uint,
    block_dim_z: c_uint,
    shared_mem_bytes: c_uint,
    h_stream: CUstream,
    kernel_params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> R {
    let (grid, block) = ([grid_dim_x, grid_dim_y, grid_dim_z], [block_dim_x, block_dim_y, block_dim_z]);
    let geometry = Geometry::new(grid, block, shared_mem_bytes);
    // SAFETY: the caller's arguments are those of this kernel.
    unsafe { launch(f, geometry, h_stream, kernel_params, extra, "cuLaunchKernel") }
}

pub(crate) unsafe fn cuLaunchKernelEx(
    config: *const CUlaunchConfig,
    f: CUfunction,
    kernel_params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> R {
    given(config)?;
    // SAFETY: not NULL, and the caller's.
    let config = unsafe { *config };
    // SAFETY: the caller's list of attributes.
    let (geometry, events) = unsafe { (geometry(&config)?, events(&config)) };
    if !events.is_empty() {
        let s = driver()?;
        if events.iter().any(|&event| !s.engine.events.contains_key(&(event as u64))) {
            return Err(INVALID_HANDLE);
        }
    }
    // SAFETY: the caller's arguments are those of this kernel.
    unsafe { launch(f, geometry, config.hStream, kernel_params, extra, "cuLaunchKernelEx")? };
    for event in events {
        // SAFETY: an event and a stream of the caller.
        unsafe { super::event::cuEventRecord(event, config.hStream)? };
    }
    Ok(())
}

pub(crate) unsafe fn cuLaunchCooperativeKernel(
    f: CUfunction,
    grid_dim_x: c_uint,
    grid_dim_y: c_uint,
    grid_dim_z: c_uint,
    block_dim_x: c_uint,
    block_dim_y: c_uint,
    block_dim_z: c_uint,
    shared_mem_bytes: c_uint,
    h_stream: CUstream,
    kernel_params: *mut *mut c_void,
) -> R {
    let (grid, block) = ([grid_dim_x, grid_dim_y, grid_dim_z], [block_dim_x, block_dim_y, block_dim_z]);
    let geometry = Geometry { cooperative: true, ..Geometry::new(grid, block, shared_mem_bytes) };
    // SAFETY: the caller's arguments are those of this kernel.
    unsafe { launch(f, geometry, h_stream, kernel_params, std::ptr::null_mut(), "cuLaunchCooperativeKernel") }
}

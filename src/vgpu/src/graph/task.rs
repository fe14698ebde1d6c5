//! What a node does: the parameters as the job gave them or would read them, and the work that the
//! engine gets for them.

use super::Conditional;
use crate::api::copy;
use crate::engine::{Extent3, Op, Plane, Source, Touches};
use crate::error::*;
use crate::heap::Use;
use crate::kernel::{Geometry, Launch};
use crate::memory::Toucher;
use crate::state::State;
use std::ffi::c_void;
use std::sync::Arc;
use weir_cuda::*;

/// Work for the engine, without the ids of what it touches renewed.
#[derive(Clone)]
pub(crate) struct Work {
    pub(crate) label: &'static str,
    pub(crate) op: Op,
    pub(crate) touches: Touches,
}

/// Parameters of a copy.
#[derive(Clone)]
pub(crate) struct CopyParams(Box<CUDA_MEMCPY3D>);

// SAFETY: the addresses in it are numbers to the driver, which only the engine follows, as it does
// for every copy.
unsafe impl Send for CopyParams {}

impl CopyParams {
    pub(crate) fn new(params: CUDA_MEMCPY3D) -> Self {
        Self(Box::new(params))
    }

    pub(crate) fn get(&self) -> &CUDA_MEMCPY3D {
        &self.0
    }
}

/// Parameters of a kernel.
#[derive(Clone)]
pub(crate) struct KernelParams {
    /// The function as it was given, or 0 if a kernel was.
    pub(crate) func: u64,
    pub(crate) kern: u64,
    pub(crate) launch: Arc<Launch>,
    /// Addresses of the arguments in `launch`, for the job to read.
    pointers: Arc<Vec<usize>>,
}

impl KernelParams {
    fn new(func: u64, kern: u64, launch: Arc<Launch>) -> Self {
        let base = launch.arguments.as_ptr() as usize;
        let known = if launch.arguments.is_empty() { &[][..] } else { &launch.entry.parameters[..] };
        let pointers = Arc::new(known.iter().map(|p| base + p.offset as usize).collect());
        Self { func, kern, launch, pointers }
    }

    /// As the job reads them; the arguments stay where they are as long as the node does.
    pub(crate) fn params(&self, ctx: u64) -> CUDA_KERNEL_NODE_PARAMS_v2 {
        let Geometry { grid, block, shared, .. } = self.launch.geometry;
        let arguments = if self.pointers.is_empty() { std::ptr::null_mut() } else { self.pointers.as_ptr() as *mut _ };
        CUDA_KERNEL_NODE_PARAMS_v2 {
            func: self.func as CUfunction,
            gridDimX: grid[0],
            gridDimY: grid[1],
            gridDimZ: grid[2],
            blockDimX: block[0],
            blockDimY: block[1],
            blockDimZ: block[2],
            sharedMemBytes: shared,
            kernelParams: arguments,
            extra: std::ptr::null_mut(),
            kern: self.kern as CUkernel,
            ctx: ctx as CUcontext,
        }
    }
}

/// Parameters of an allocation.
#[derive(Clone)]
pub(crate) struct AllocParams {
    pub(crate) props: CUmemPoolProps,
    pub(crate) access: Vec<CUmemAccessDesc>,
    pub(crate) size: u64,
    pub(crate) addr: u64,
}

// SAFETY: its one pointer is of another operating system, and never followed.
unsafe impl Send for AllocParams {}

impl AllocParams {
    /// As a pool of a device would allocate; graph memory has no handle for other processes.
    pub(crate) fn on_device(device: usize, size: u64) -> Self {
        let props = CUmemPoolProps {
            allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: CUmemLocation::of(CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, device as i32),
            ..CUmemPoolProps::default()
        };
        Self { props, access: Vec::new(), size, addr: 0 }
    }

    pub(crate) fn at(self, addr: u64) -> Self {
        Self { addr, ..self }
    }

    pub(crate) fn params(&self) -> CUDA_MEM_ALLOC_NODE_PARAMS_v1 {
        CUDA_MEM_ALLOC_NODE_PARAMS_v1 {
            poolProps: self.props,
            accessDescs: if self.access.is_empty() { std::ptr::null() } else { self.access.as_ptr() },
            accessDescCount: self.access.len(),
            bytesize: self.size as usize,
            dptr: self.addr,
        }
    }
}

/// What a node does.
#[derive(Clone)]
pub(crate) enum Task {
    Kernel(KernelParams),
    Copy(CopyParams),
    Set(CUDA_MEMSET_NODE_PARAMS_v1),
    Host(unsafe extern "C" fn(*mut c_void), usize),
    /// Runs a graph that belongs to the node.
    Child(u64),
    Empty,
    Wait(u64),
    Record(u64),
    Alloc(AllocParams),
    Free(u64),
    /// Waits for or writes values in memory, captured from a stream.
    Batch,
    Conditional(Conditional),
}

impl Task {
    pub(crate) fn kind(&self) -> CUgraphNodeType {
        use CUgraphNodeType as T;
        match self {
            Self::Kernel(_) => T::CU_GRAPH_NODE_TYPE_KERNEL,
            Self::Copy(_) => T::CU_GRAPH_NODE_TYPE_MEMCPY,
            Self::Set(_) => T::CU_GRAPH_NODE_TYPE_MEMSET,
            Self::Host(..) => T::CU_GRAPH_NODE_TYPE_HOST,
            Self::Child(_) => T::CU_GRAPH_NODE_TYPE_GRAPH,
            Self::Empty => T::CU_GRAPH_NODE_TYPE_EMPTY,
            Self::Wait(_) => T::CU_GRAPH_NODE_TYPE_WAIT_EVENT,
            Self::Record(_) => T::CU_GRAPH_NODE_TYPE_EVENT_RECORD,
            Self::Alloc(_) => T::CU_GRAPH_NODE_TYPE_MEM_ALLOC,
            Self::Free(_) => T::CU_GRAPH_NODE_TYPE_MEM_FREE,
            Self::Batch => T::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
            Self::Conditional(_) => T::CU_GRAPH_NODE_TYPE_CONDITIONAL,
        }
    }

    /// The graphs that belong to the node.
    pub(crate) fn graphs(&self) -> &[u64] {
        match self {
            Self::Child(child) => std::slice::from_ref(child),
            Self::Conditional(condition) => &condition.bodies,
            _ => &[],
        }
    }

    /// The parameters of a captured memset.
    pub(super) fn describe_set(target: Plane, extent: Extent3, value: u32, unit: u8) -> Self {
        Self::Set(CUDA_MEMSET_NODE_PARAMS_v1 {
            dst: target.base,
            pitch: target.pitch as usize,
            value,
            elementSize: u32::from(unit),
            width: (extent.width / u64::from(unit.max(1))) as usize,
            height: extent.height as usize,
        })
    }
}

impl Op {
    /// The addresses that a copy reads and writes, or a memset writes.
    pub(super) fn operands(&self) -> (Option<u64>, Option<u64>) {
        match self {
            Op::Copy { source: Source::Memory(from), target, .. } => (Some(from.base), Some(target.base)),
            Op::Copy { target, .. } | Op::Set { target, .. } => (None, Some(target.base)),
            _ => (None, None),
        }
    }
}

/// One side of a copy, as it is written in its parameters.
struct Described {
    kind: CUmemorytype,
    addr: u64,
    array: u64,
    at: [usize; 3],
    pitch: usize,
    height: usize,
}

impl State {
    /// The work of a copy node.
    pub(crate) fn copy_work(&self, params: &CUDA_MEMCPY3D) -> R<Work> {
        let (target, source, extent) = copy::sides(params)?;
        let label = "copy node of cuGraphLaunch";
        if extent.bytes() == 0 {
            return Ok(Work { label, op: Op::Nothing, touches: Touches::NONE });
        }
        let copy::Copy { op, touches, .. } = copy::prepare(self, &target, &source, extent, Toucher::Copier)?;
        Ok(Work { label, op, touches: Touches::Known(touches) })
    }

    /// The work of a memset node.
    pub(crate) fn set_work(&self, p: &CUDA_MEMSET_NODE_PARAMS_v1) -> R<Work> {
        let unit = u64::from(p.elementSize);
        let (width, height, pitch) = (p.width as u64, p.height as u64, p.pitch as u64);
        if !matches!(unit, 1 | 2 | 4) || width == 0 || height == 0 || !p.dst.is_multiple_of(unit) {
            return Err(INVALID_VALUE);
        }
        let bytes = width.checked_mul(unit).ok_or(INVALID_VALUE)?;
        if height > 1 && (pitch < bytes || !pitch.is_multiple_of(unit)) {
            return Err(INVALID_VALUE);
        }
        // Only memory that the driver knows can be set.
        self.extent(p.dst).ok_or(INVALID_VALUE)?;
        let mut list = Vec::new();
        for row in 0..height {
            let addr = row.checked_mul(pitch).and_then(|o| p.dst.checked_add(o)).ok_or(INVALID_VALUE)?;
            self.touch(&mut list, addr, bytes, true, Toucher::Copier)?;
        }
        let op = Op::Set {
            target: Plane { base: p.dst, pitch, slice: 0 },
            extent: Extent3 { width: bytes, height, depth: 1 },
            value: p.value,
            unit: p.elementSize as u8,
        };
        Ok(Work { label: "memset node of cuGraphLaunch", op, touches: Touches::Known(list) })
    }

    /// The context and the work of a kernel node.
    ///
    /// # Safety
    /// The arguments in `p` are as `cuLaunchKernel` takes them for this kernel.
    pub(crate) unsafe fn kernel_work(
        &mut self,
        p: &CUDA_KERNEL_NODE_PARAMS_v2,
        cooperative: bool,
    ) -> R<(u64, Task, Work)> {
        let (func, kern) = (p.func as u64, p.kern as u64);
        if func == 0 && kern == 0 {
            return Err(INVALID_VALUE);
        }
        let ctx = if p.ctx.is_null() { 0 } else { self.known(p.ctx)? };
        let (handle, ctx) = if func == 0 {
            (kern, if ctx == 0 { self.current()? } else { ctx })
        } else {
            let function = self.function_here(func)?;
            let home = self.modules.function(function)?.ctx;
            if ctx != 0 && ctx != home {
                return Err(INVALID_CONTEXT);
            }
            (function, home)
        };
        let grid = [p.gridDimX, p.gridDimY, p.gridDimZ];
        let block = [p.blockDimX, p.blockDimY, p.blockDimZ];
        let geometry = Geometry { cooperative, ..Geometry::new(grid, block, p.sharedMemBytes) };
        // SAFETY: as promised.
        let (launch, touches) = unsafe { self.make_launch(handle, ctx, geometry, p.kernelParams, p.extra)? };
        let launch = Arc::new(launch);
        let task = Task::Kernel(KernelParams::new(func, kern, launch.clone()));
        Ok((ctx, task, Work { label: "kernel node of cuGraphLaunch", op: Op::Kernel(launch), touches }))
    }

    /// The parameters of a captured launch.
    pub(super) fn describe_launch(launch: &Arc<Launch>) -> Task {
        Task::Kernel(KernelParams::new(launch.function, 0, launch.clone()))
    }

    /// The parameters of a captured copy.
    pub(super) fn describe_copy(&self, source: &Source, target: Plane, extent: Extent3) -> Task {
        let from = match source {
            Source::Memory(plane) => self.describe_side(*plane),
            Source::Staged(bytes) => {
                let (pitch, slice) = (extent.width, extent.width * extent.height);
                self.describe_side(Plane { base: bytes.as_ptr() as u64, pitch, slice })
            }
        };
        let to = self.describe_side(target);
        Task::Copy(CopyParams::new(CUDA_MEMCPY3D {
            srcXInBytes: from.at[0],
            srcY: from.at[1],
            srcZ: from.at[2],
            srcMemoryType: from.kind,
            srcHost: if from.kind == CUmemorytype::CU_MEMORYTYPE_HOST { from.addr as _ } else { std::ptr::null() },
            srcDevice: if from.kind == CUmemorytype::CU_MEMORYTYPE_DEVICE { from.addr } else { 0 },
            srcArray: from.array as CUarray,
            srcPitch: from.pitch,
            srcHeight: from.height,
            dstXInBytes: to.at[0],
            dstY: to.at[1],
            dstZ: to.at[2],
            dstMemoryType: to.kind,
            dstHost: if to.kind == CUmemorytype::CU_MEMORYTYPE_HOST { to.addr as _ } else { std::ptr::null_mut() },
            dstDevice: if to.kind == CUmemorytype::CU_MEMORYTYPE_DEVICE { to.addr } else { 0 },
            dstArray: to.array as CUarray,
            dstPitch: to.pitch,
            dstHeight: to.height,
            WidthInBytes: extent.width as usize,
            Height: extent.height as usize,
            Depth: extent.depth as usize,
            ..CUDA_MEMCPY3D::default()
        }))
    }

    fn describe_side(&self, plane: Plane) -> Described {
        let block = self.heap_at(plane.base).and_then(|d| self.devices[d].heap.holding(plane.base));
        if block.is_some_and(|b| b.used_as == Use::Array)
            && let Some((&array, known)) = self
                .arrays
                .iter()
                .find(|(_, a)| a.levels == 0 && (a.addr..a.addr + a.layout.bytes).contains(&plane.base))
        {
            let (offset, l) = (plane.base - known.addr, known.layout);
            let (row, z) = (offset % l.slice, offset / l.slice);
            let at = [(row % l.pitch) as usize, (row / l.pitch) as usize, z as usize];
            return Described { kind: CUmemorytype::CU_MEMORYTYPE_ARRAY, addr: 0, array, at, pitch: 0, height: 0 };
        }
        let on_device = self.extent(plane.base).is_some_and(|e| e.device.is_some());
        Described {
            kind: if on_device { CUmemorytype::CU_MEMORYTYPE_DEVICE } else { CUmemorytype::CU_MEMORYTYPE_HOST },
            addr: plane.base,
            array: 0,
            at: [0; 3],
            pitch: plane.pitch as usize,
            height: plane.slice.checked_div(plane.pitch).unwrap_or(0) as usize,
        }
    }
}

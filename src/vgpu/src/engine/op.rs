//! One thing that a device does, and the memory that it touches.

use crate::kernel::Launch;
use std::ffi::c_void;
use std::sync::Arc;
use weir_cuda::{CUresult, CUstream};

/// Where rows of a copy begin and how far apart they are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plane {
    pub(crate) base: u64,
    pub(crate) pitch: u64,
    pub(crate) slice: u64,
}

/// A box of bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent3 {
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
}

impl Extent3 {
    pub(crate) fn line(width: u64) -> Self {
        Self { width, height: 1, depth: 1 }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.width * self.height * self.depth
    }
}

/// What a copy reads.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// Memory at the time the copy runs.
    Memory(Plane),
    /// Pageable host memory, staged when the call was made.
    Staged(Arc<Vec<u8>>),
}

/// A host function of the job.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HostCall {
    /// `cuLaunchHostFunc`.
    Function(unsafe extern "C" fn(*mut c_void)),
    /// `cuStreamAddCallback`, with the stream that it receives.
    Callback(unsafe extern "C" fn(CUstream, CUresult, *mut c_void), u64),
}

/// One thing that a device does.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Only takes its place.
    Nothing,
    Copy {
        source: Source,
        target: Plane,
        extent: Extent3,
    },
    Set {
        target: Plane,
        extent: Extent3,
        value: u32,
        unit: u8,
    },
    Kernel(Arc<Launch>),
    Host {
        call: HostCall,
        data: usize,
    },
    Record {
        event: u64,
    },
    /// A stream-ordered allocation begins to live.
    Allocated {
        block: u64,
    },
    /// A stream-ordered allocation ends.
    Freed {
        block: u64,
    },
    /// Linear memory that was freed in stream order goes.
    FreedLinear {
        device: usize,
        addr: u64,
    },
    /// Memory of a graph begins or ends to live.
    GraphMemory {
        addr: u64,
        live: bool,
    },
    WriteValue {
        addr: u64,
        value: u64,
        wide: bool,
    },
    /// A record of an event that processes share is reached.
    Publish {
        at: u64,
        value: u64,
    },
    WaitValue {
        addr: u64,
        value: u64,
        wide: bool,
        flags: u32,
    },
}

/// Memory that work reads or writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) write: bool,
    /// The allocation that was meant when the work was submitted.
    pub(crate) id: u64,
}

/// What work may touch.
#[derive(Clone, Debug)]
pub(crate) enum Touches {
    Known(Vec<Touch>),
    /// A kernel whose arguments cannot be seen: anything that its context reaches.
    Opaque,
}

impl Touches {
    pub(crate) const NONE: Self = Self::Known(Vec::new());

    pub(super) fn meets(&self, addr: u64, len: u64) -> bool {
        match self {
            Self::Opaque => true,
            Self::Known(list) => list.iter().any(|t| t.addr < addr + len && addr < t.addr + t.len),
        }
    }
}

//! One thread of a program: what it holds, and what each operation means at this moment.
//!
//! After every operation the virtual GPU is asked for the most that it ever gave: above the cap, nothing excuses it.

use crate::driver::cu::*;
use crate::graphs::Graph;
use crate::note::Note;
use crate::op::{FEW, Op, SLOTS, What};
use crate::peer::Peer;
use crate::witness;
use std::ffi::{CStr, CString};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc;
use weir_cuda::*;

pub(crate) const OK: CUresult = CUresult::CUDA_SUCCESS;
pub(crate) const OUT_OF_MEMORY: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
pub(crate) const FD: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
/// Physical memory comes in portions of this size.
pub(crate) const PAGE: u64 = 2 << 20;
/// The driver's mempools grow by so much at a time.
pub(crate) const GROWTH: u64 = 32 << 20;

/// What all threads of a program know.
#[derive(Clone, Copy)]
pub(crate) struct World {
    pub(crate) note: &'static Note,
    pub(crate) cap: u64,
    /// `WEIR_ON_CAP=spill`: live bytes may be on the host.
    pub(crate) spills: bool,
    /// Requests of a size that fits may be refused for want of one piece: `WEIR_POOL=novmm`.
    pub(crate) fragments: bool,
    /// The only thread: what it knows of the device is all there is.
    pub(crate) alone: bool,
    /// One of several processes: the cap is the group's, and what is free others may take.
    pub(crate) shared: bool,
}

/// What a slot holds.
#[derive(Clone, Copy)]
pub(crate) enum Held {
    Plain(u64),
    Managed(u64),
    Ordered(u64),
    Array(CUarray),
    Mipmap(CUmipmappedArray),
    /// A handle with so many references, mapped at an address or not.
    Handle {
        handle: u64,
        users: u32,
        at: Option<u64>,
        /// Which physical memory it is: imports share it.
        id: u64,
    },
}

#[derive(Clone, Copy)]
pub(crate) struct Block {
    pub(crate) held: Held,
    pub(crate) bytes: u64,
    /// The most that it can cost.
    pub(crate) most: u64,
    /// The context and the stream of all work on it.
    pub(crate) ctx: usize,
    pub(crate) stream: usize,
    /// The second process may hold it.
    pub(crate) lent: bool,
}

/// A context with its streams and kernels.
#[derive(Clone, Copy)]
pub(crate) struct Context {
    pub(crate) ctx: CUcontext,
    pub(crate) streams: [CUstream; 3],
    pub(crate) spin: CUfunction,
    pub(crate) fill: CUfunction,
    /// References: by its making, and by every attach.
    pub(crate) users: u32,
    pub(crate) module: Option<(CUmodule, u64)>,
}

/// Another thread with an open capture.
struct Holder {
    end: mpsc::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

pub(crate) struct Actor {
    pub(crate) world: World,
    pub(crate) me: usize,
    pub(crate) blocks: Vec<Option<Block>>,
    pub(crate) pools: Vec<Option<CUmemoryPool>>,
    pub(crate) graphs: Vec<Option<Graph>>,
    /// The primary context first.
    pub(crate) contexts: Vec<Option<Context>>,
    pub(crate) current: usize,
    event: CUevent,
    holder: Option<Holder>,
    peer: Option<Peer>,
    next_id: u64,
    /// A segment of the driver's mempools: as large as the largest request, and kept by the smallest block in it.
    segment: u64,
    /// The most that the virtual GPU may show: the cap, and what code took beyond it as a fact.
    limit: u64,
    pub(crate) doing: Op,
}

pub(crate) fn rounded(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE)
}

pub(crate) fn grant(at: u64, bytes: usize) -> CUresult {
    let location = CUmemLocation::of(CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, 0);
    let access = CUmemAccessDesc { location, flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    cuMemSetAccess(at, bytes, &raw const access, 1)
}

pub(crate) fn properties(exportable: bool) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        location: CUmemLocation::of(CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, 0),
        requestedHandleTypes: if exportable { FD } else { CUmemAllocationHandleType(0) },
        ..CUmemAllocationProp::default()
    }
}

pub(crate) fn pool_properties(exportable: bool) -> CUmemPoolProps {
    CUmemPoolProps {
        allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        location: CUmemLocation::of(CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, 0),
        handleTypes: if exportable { FD } else { CUmemAllocationHandleType(0) },
        ..CUmemPoolProps::default()
    }
}

/// The kernels of a context. Without the variable of their text: they take no device memory.
fn kernels() -> [CUfunction; 2] {
    let text = include_str!("../../kernels.ptx").lines().filter(|line| !line.starts_with(".visible .global"));
    let text = CString::new(text.collect::<Vec<_>>().join("\n")).expect("no zero in the text");
    let mut module = null_mut();
    assert_eq!(cuModuleLoadData(&raw mut module, text.as_ptr().cast()), OK);
    [c"weir_spin", c"weir_fill"].map(|name: &CStr| {
        let mut function = null_mut();
        assert_eq!(cuModuleGetFunction(&raw mut function, module, name.as_ptr()), OK);
        function
    })
}

impl Context {
    /// Streams and kernels of the current context.
    pub(crate) fn furnish(ctx: CUcontext) -> Self {
        let [spin, fill] = kernels();
        let streams = [1, 1, 0].map(|flags| {
            let mut stream = null_mut();
            assert_eq!(cuStreamCreate(&raw mut stream, flags), OK);
            stream
        });
        Self { ctx, streams, spin, fill, users: 1, module: None }
    }
}

impl Actor {
    /// A thread with the primary context current.
    pub(crate) fn new(world: World, me: usize, primary: CUcontext, peer: Option<Peer>) -> Self {
        assert_eq!(cuCtxSetCurrent(primary), OK);
        let few = || (0..FEW).map(|_| None);
        let mut made = Self {
            world,
            me,
            blocks: vec![None; SLOTS as usize],
            pools: vec![None; FEW as usize],
            graphs: few().collect(),
            contexts: [Some(Context::furnish(primary))].into_iter().chain([None; FEW as usize]).collect(),
            current: 0,
            event: null_mut(),
            holder: None,
            peer,
            next_id: 0,
            segment: GROWTH,
            limit: world.cap,
            doing: Op { thread: 0, what: What::GetInfo, slot: 0, other: 0, stream: 0, bytes: 0 },
        };
        made.make_event();
        made
    }

    /// The event that orders streams of the primary context.
    pub(crate) fn make_event(&mut self) {
        let code = cuEventCreate(&raw mut self.event, 2);
        self.must("cuEventCreate", code);
    }

    pub(crate) fn forget_event(&mut self) {
        self.must("cuEventDestroy", cuEventDestroy_v2(self.event));
    }

    pub(crate) fn fail(&self, why: &str) -> ! {
        self.world.note.fail(&format!("{why} (at \"{}\")", self.doing))
    }

    /// The call must have succeeded.
    pub(crate) fn must(&self, name: &str, code: CUresult) {
        if code != OK {
            self.fail(&format!("answer: {name} was answered by {}", code.0));
        }
    }

    /// The call must have succeeded or been refused; a refusal must be one that the cap explains.
    pub(crate) fn taken(&self, name: &str, code: CUresult, most: u64) -> bool {
        if code == OUT_OF_MEMORY {
            self.world.note.refused.fetch_add(1, SeqCst);
            let (known, reserve) = (self.most(), 4 * PAGE);
            // Under an open capture nobody waits, and pieces of plain segments cannot be joined.
            let excused = self.world.fragments || !self.world.alone || self.world.shared || self.holder.is_some();
            if !excused && known + most + reserve <= self.world.cap {
                self.fail(&format!(
                    "refused: {name} of at most {most} bytes, with at most {known} bytes live of a cap of {}",
                    self.world.cap
                ));
            }
            return false;
        }
        self.must(name, code);
        true
    }

    /// An upper bound of what everything that this thread holds costs.
    fn most(&self) -> u64 {
        let blocks = self.blocks.iter().flatten();
        let mut seen = Vec::new();
        let blocks: u64 = blocks
            .filter(|block| match block.held {
                Held::Handle { id, .. } => !seen.contains(&id) && (seen.push(id), true).1,
                _ => true,
            })
            .map(|block| if matches!(block.held, Held::Ordered(_)) { self.segment } else { block.most })
            .sum();
        let graphs: u64 = self.graphs.iter().flatten().map(|graph| 2 * graph.bytes).sum();
        let code: u64 = self.contexts.iter().flatten().filter_map(|c| Some(c.module?.1 + 2 * PAGE)).sum();
        blocks + graphs + code
    }

    /// A lower bound of what everything that this thread holds costs.
    fn least(&self) -> u64 {
        let mut seen = Vec::new();
        self.blocks
            .iter()
            .flatten()
            .filter(|block| match block.held {
                Held::Handle { id, .. } => !seen.contains(&id) && (seen.push(id), true).1,
                _ => true,
            })
            .map(|block| block.bytes)
            .sum()
    }

    /// Does an operation, and looks at the device.
    pub(crate) fn act(&mut self, at: usize, op: Op) {
        self.doing = op;
        self.world.note.at[self.me].store(at as u32, SeqCst);
        let counter = if self.perform(op) { &self.world.note.done } else { &self.world.note.skipped };
        counter.fetch_add(1, SeqCst);
        self.look();
    }

    /// The witness: more than the cap is a failure.
    pub(crate) fn look(&self) {
        let most = witness::peak();
        if most > self.limit {
            let cap = self.world.cap;
            self.fail(&format!("above: {most} bytes of a cap of {cap}, {} too many", most - cap));
        }
    }

    pub(crate) fn context(&self, at: usize) -> Context {
        self.contexts[at].unwrap_or_else(|| self.fail("a context is not there"))
    }

    pub(crate) fn enter(&mut self, at: usize) {
        self.must("cuCtxSetCurrent", cuCtxSetCurrent(self.context(at).ctx));
        self.current = at;
    }

    pub(crate) fn stream(&self, ctx: usize, stream: usize) -> CUstream {
        self.context(ctx).streams.get(stream).copied().unwrap_or(null_mut())
    }

    pub(crate) fn spin(&self, ctx: usize, stream: usize, microseconds: u64) {
        let mut nanoseconds = microseconds * 1000;
        let mut arguments: [*mut c_void; 1] = [(&raw mut nanoseconds).cast()];
        let context = self.context(ctx);
        let at = self.stream(ctx, stream);
        let code = cuLaunchKernel(context.spin, 1, 1, 1, 1, 1, 1, 0, at, arguments.as_mut_ptr(), null_mut());
        self.must("cuLaunchKernel", code);
    }

    fn empty(&self, slot: u8) -> Option<usize> {
        (0..self.blocks.len()).map(|d| (slot as usize + d) % self.blocks.len()).find(|at| self.blocks[*at].is_none())
    }

    fn find(&self, slot: u8, wanted: impl Fn(&Block) -> bool) -> Option<usize> {
        let near = (0..self.blocks.len()).map(|d| (slot as usize + d) % self.blocks.len());
        near.into_iter().find(|at| self.blocks[*at].as_ref().is_some_and(&wanted))
    }

    fn keep(&mut self, slot: usize, held: Held, bytes: u64, most: u64, stream: usize) -> bool {
        self.blocks[slot] = Some(Block { held, bytes, most, ctx: self.current, stream, lent: false });
        true
    }

    fn perform(&mut self, op: Op) -> bool {
        match op.what {
            What::Alloc | What::AllocPitch | What::AllocManaged | What::AllocAsync | What::AllocFromPool => {
                self.allocate(op)
            }
            What::Array | What::SmallArray | What::Array3D | What::Mipmap => self.array(op),
            What::Create | What::Map | What::Unmap | What::Release | What::Retain | What::Import => self.handle(op),
            What::Prefetch => self.prefetch(op),
            What::Free => {
                let Some(at) = self.find(op.slot, |_| true) else { return false };
                self.free(at, false)
            }
            What::FreeAsync => {
                let wanted = |block: &Block| matches!(block.held, Held::Plain(_) | Held::Ordered(_));
                let Some(at) = self.find(op.slot, wanted) else { return false };
                if op.other & 1 == 0 {
                    let block = self.blocks[at].unwrap_or_else(|| self.fail("a block is not there"));
                    self.enter(block.ctx);
                    self.spin(block.ctx, block.stream, 100 + u64::from(op.other) * 4);
                }
                self.free(at, true)
            }
            What::Spin => {
                let long = if op.other < 8 { 3000 } else { 20 + u64::from(op.other) };
                self.spin(self.current, op.stream as usize, long);
                true
            }
            What::Fill => self.fill(op),
            What::Move => self.migrate(op),
            What::CtxSynchronize => {
                self.must("cuCtxSynchronize", cuCtxSynchronize());
                true
            }
            What::StreamSynchronize => {
                let stream = self.stream(self.current, op.stream as usize);
                self.must("cuStreamSynchronize", cuStreamSynchronize(stream));
                true
            }
            What::StreamQuery => {
                let code = cuStreamQuery(self.stream(self.current, op.stream as usize));
                if code != CUresult::CUDA_ERROR_NOT_READY {
                    self.must("cuStreamQuery", code);
                }
                true
            }
            What::GetInfo => self.info(),
            What::PoolCreate | What::PoolDestroy | What::PoolTrim | What::PoolThreshold | What::PoolCurrent => {
                self.mempool(op)
            }
            What::GraphNodes
            | What::GraphCapture
            | What::GraphUpload
            | What::GraphLaunch
            | What::GraphFree
            | What::GraphDestroy
            | What::GraphTrim => self.graph(op),
            What::CtxCreate
            | What::CtxUse
            | What::CtxAttach
            | What::CtxDetach
            | What::CtxDestroy
            | What::PrimaryReset
            | What::PrimaryRelease => self.world.alone && self.context_op(op),
            // Code is charged as a fact: where there is room for it, only a process that is alone can know.
            What::ModuleLoad | What::ModuleUnload => self.world.alone && !self.world.shared && self.module(op),
            What::CaptureHold => self.hold(op),
            What::CaptureEnd => self.end_hold(),
            What::PeerImport | What::PeerOpen | What::PeerDrop => self.lend(op),
        }
    }

    fn allocate(&mut self, op: Op) -> bool {
        let Some(slot) = self.empty(op.slot) else { return false };
        let (bytes, mut ptr, home) = (op.bytes, 0, op.stream as usize);
        let plain = rounded(bytes) + 2 * PAGE;
        let ordered = rounded(bytes).max(GROWTH);
        if matches!(op.what, What::AllocAsync | What::AllocFromPool) {
            self.segment = self.segment.max(ordered);
        }
        match op.what {
            What::Alloc => {
                self.taken("cuMemAlloc", cuMemAlloc_v2(&raw mut ptr, bytes as usize), plain)
                    && self.keep(slot, Held::Plain(ptr), bytes, plain, home)
            }
            What::AllocPitch => {
                let (width, rows) = ((bytes as usize).min(1500), (bytes as usize).div_ceil(1500));
                let (mut pitch, most) = (0, rounded(rows as u64 * 1536) + 2 * PAGE);
                let code = cuMemAllocPitch_v2(&raw mut ptr, &raw mut pitch, width, rows, 4);
                self.taken("cuMemAllocPitch", code, most)
                    && self.keep(slot, Held::Plain(ptr), (width * rows) as u64, most, home)
            }
            What::AllocManaged => {
                let code = cuMemAllocManaged(&raw mut ptr, bytes as usize, 1);
                self.taken("cuMemAllocManaged", code, plain) && self.keep(slot, Held::Managed(ptr), bytes, plain, home)
            }
            What::AllocAsync => {
                let stream = self.stream(self.current, home);
                let code = cuMemAllocAsync(&raw mut ptr, bytes as usize, stream);
                self.taken("cuMemAllocAsync", code, ordered)
                    && self.keep(slot, Held::Ordered(ptr), bytes, ordered, home)
            }
            _ => {
                let Some(pool) = self.pools[op.other as usize % self.pools.len()] else { return false };
                let stream = self.stream(self.current, home);
                let code = cuMemAllocFromPoolAsync(&raw mut ptr, bytes as usize, pool, stream);
                self.taken("cuMemAllocFromPoolAsync", code, ordered)
                    && self.keep(slot, Held::Ordered(ptr), bytes, ordered, home)
            }
        }
    }

    fn array(&mut self, op: Op) -> bool {
        let Some(slot) = self.empty(op.slot) else { return false };
        let kind = CUarray_format::CU_AD_FORMAT_FLOAT;
        let side = |bytes: u64| ((bytes as f64 / 4.0).sqrt() as usize).clamp(1, 32768);
        let shape = |width: usize, height: usize, depth: usize| CUDA_ARRAY3D_DESCRIPTOR {
            Width: width,
            Height: height,
            Depth: depth,
            Format: kind,
            NumChannels: 1,
            Flags: 0,
        };
        let size = |d: &CUDA_ARRAY3D_DESCRIPTOR| {
            (d.Width as u64 * 4).next_multiple_of(64) * d.Height.max(1) as u64 * d.Depth.max(1) as u64
        };
        let home = op.stream as usize;
        if op.what == What::Mipmap {
            let d = shape(side(op.bytes).max(4), side(op.bytes).max(4), 0);
            let (mut mipmap, levels) = (null_mut(), 1 + u32::from(op.other) % 3);
            let most = rounded(2 * size(&d) + 65536) + 2 * PAGE;
            let code = cuMipmappedArrayCreate(&raw mut mipmap, &raw const d, levels);
            return self.taken("cuMipmappedArrayCreate", code, most)
                && self.keep(slot, Held::Mipmap(mipmap), size(&d), most, home);
        }
        let d = match op.what {
            What::SmallArray => match op.other % 3 {
                0 => shape(1 + op.other as usize, 0, 0),
                1 => shape(64, 1 + op.other as usize, 0),
                _ => shape(256, 1 + (op.bytes % 1024) as usize, 0),
            },
            What::Array3D => shape(64, 64, ((op.bytes / (64 * 64 * 4)) as usize).clamp(1, 8192)),
            _ => shape(side(op.bytes), side(op.bytes), 0),
        };
        let (mut array, most) = (null_mut(), rounded(size(&d)) + 2 * PAGE);
        let code = cuArray3DCreate_v2(&raw mut array, &raw const d);
        self.taken("cuArray3DCreate", code, most) && self.keep(slot, Held::Array(array), size(&d), most, home)
    }

    fn handle(&mut self, op: Op) -> bool {
        if op.what == What::Create {
            let Some(slot) = self.empty(op.slot) else { return false };
            let (mut handle, bytes) = (0, rounded(op.bytes));
            let code = cuMemCreate(&raw mut handle, bytes as usize, &raw const *Box::new(properties(true)), 0);
            self.next_id += 1;
            let held = Held::Handle { handle, users: 1, at: None, id: self.next_id };
            return self.taken("cuMemCreate", code, bytes) && self.keep(slot, held, bytes, bytes, 0);
        }
        let wanted = |block: &Block| match (op.what, block.held) {
            (What::Map, Held::Handle { users, at, .. }) => users > 0 && at.is_none(),
            (What::Unmap | What::Retain, Held::Handle { at, .. }) => at.is_some(),
            (_, Held::Handle { users, .. }) => users > 0,
            _ => false,
        };
        let Some(slot) = self.find(op.slot, wanted) else { return false };
        let Some(block) = self.blocks[slot] else { return false };
        let Held::Handle { handle, mut users, mut at, id } = block.held else { return false };
        let size = block.bytes as usize;
        match (op.what, at) {
            (What::Map, _) => {
                let mut place = 0;
                self.must("cuMemAddressReserve", cuMemAddressReserve(&raw mut place, size, 0, 0, 0));
                self.must("cuMemMap", cuMemMap(place, size, 0, handle, 0));
                self.must("cuMemSetAccess", grant(place, size));
                at = Some(place);
            }
            (What::Unmap, Some(place)) => {
                self.must("cuMemUnmap", cuMemUnmap(place, size));
                self.must("cuMemAddressFree", cuMemAddressFree(place, size));
                at = None;
            }
            (What::Retain, Some(place)) => {
                let mut again = 0;
                let code = cuMemRetainAllocationHandle(&raw mut again, place as usize as *mut c_void);
                self.must("cuMemRetainAllocationHandle", code);
                users += 1;
            }
            (What::Release, _) => {
                self.must("cuMemRelease", cuMemRelease(handle));
                users -= 1;
            }
            _ => {
                let Some(free) = self.empty(op.slot) else { return false };
                let fd = self.export(handle);
                let mut imported = 0;
                let code = cuMemImportFromShareableHandle(&raw mut imported, fd as usize as *mut c_void, FD);
                // SAFETY: the descriptor that the export made.
                unsafe { libc::close(fd) };
                if !self.taken("cuMemImportFromShareableHandle", code, 0) {
                    return true;
                }
                let held = Held::Handle { handle: imported, users: 1, at: None, id };
                return self.keep(free, held, block.bytes, block.bytes, 0);
            }
        }
        let gone = users == 0 && at.is_none();
        self.blocks[slot] = (!gone).then_some(Block { held: Held::Handle { handle, users, at, id }, ..block });
        true
    }

    fn export(&self, handle: u64) -> i32 {
        let mut fd = -1;
        let code = cuMemExportToShareableHandle((&raw mut fd).cast(), handle, FD, 0);
        self.must("cuMemExportToShareableHandle", code);
        fd
    }

    fn prefetch(&mut self, op: Op) -> bool {
        let Some(at) = self.find(op.slot, |block| matches!(block.held, Held::Managed(_))) else { return false };
        let Some(Block { held: Held::Managed(ptr), bytes, ctx, stream, .. }) = self.blocks[at] else { return false };
        self.enter(ctx);
        let home = self.stream(ctx, stream);
        let code = match op.other % 4 {
            0 => cuMemPrefetchAsync(ptr, bytes as usize, -1, home),
            1 => cuMemsetD8Async(ptr, 1, bytes.min(4096) as usize, home),
            _ => cuMemPrefetchAsync(ptr, bytes as usize, 0, home),
        };
        self.must("cuMemPrefetchAsync", code);
        true
    }

    fn fill(&mut self, op: Op) -> bool {
        let wanted = |block: &Block| matches!(block.held, Held::Plain(_) | Held::Ordered(_)) && block.bytes >= 64;
        let Some(at) = self.find(op.slot, wanted) else { return false };
        let Some(Block { held: Held::Plain(ptr) | Held::Ordered(ptr), ctx, stream, .. }) = self.blocks[at] else {
            return false;
        };
        self.enter(ctx);
        let (mut ptr, mut words, mut value) = (ptr, 16_u64, 7_u32);
        let mut arguments: [*mut c_void; 3] = [(&raw mut ptr).cast(), (&raw mut words).cast(), (&raw mut value).cast()];
        let (fill, home) = (self.context(ctx).fill, self.stream(ctx, stream));
        let code = cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, home, arguments.as_mut_ptr(), null_mut());
        self.must("cuLaunchKernel", code);
        true
    }

    fn order(&self, from: CUstream, to: CUstream) {
        self.must("cuEventRecord", cuEventRecord(self.event, from));
        self.must("cuStreamWaitEvent", cuStreamWaitEvent(to, self.event, 0));
    }

    fn migrate(&mut self, op: Op) -> bool {
        let wanted = |block: &Block| matches!(block.held, Held::Plain(_) | Held::Ordered(_)) && block.ctx == 0;
        let Some(at) = self.find(op.slot, wanted) else { return false };
        let Some(block) = self.blocks[at] else { return false };
        self.enter(0);
        let to = op.stream as usize;
        self.order(self.stream(0, block.stream), self.stream(0, to));
        self.blocks[at] = Some(Block { stream: to, ..block });
        true
    }

    /// Gives back what a slot holds.
    pub(crate) fn free(&mut self, at: usize, in_order: bool) -> bool {
        let Some(block) = self.blocks[at].take() else { return false };
        if block.lent
            && let Some(peer) = &mut self.peer
        {
            peer.drop_all();
        }
        if !matches!(block.held, Held::Handle { .. }) {
            self.enter(block.ctx);
        }
        let stream = self.contexts[block.ctx].map_or(null_mut(), |_| self.stream(block.ctx, block.stream));
        match block.held {
            Held::Plain(ptr) | Held::Ordered(ptr) if in_order => {
                self.must("cuMemFreeAsync", cuMemFreeAsync(ptr, stream));
            }
            Held::Ordered(ptr) => {
                self.must("cuStreamSynchronize", cuStreamSynchronize(stream));
                self.must("cuMemFree", cuMemFree_v2(ptr));
            }
            Held::Plain(ptr) => self.must("cuMemFree", cuMemFree_v2(ptr)),
            Held::Managed(ptr) => self.must("cuMemFree of managed memory", cuMemFree_v2(ptr)),
            Held::Array(array) => self.must("cuArrayDestroy", cuArrayDestroy(array)),
            Held::Mipmap(array) => self.must("cuMipmappedArrayDestroy", cuMipmappedArrayDestroy(array)),
            Held::Handle { handle, users, at, .. } => {
                for _ in 0..users {
                    self.must("cuMemRelease", cuMemRelease(handle));
                }
                if let Some(place) = at {
                    self.must("cuMemUnmap", cuMemUnmap(place, block.bytes as usize));
                    self.must("cuMemAddressFree", cuMemAddressFree(place, block.bytes as usize));
                }
            }
        }
        true
    }

    /// What is told must be true: the cap as the total, and no byte free that is known to be live.
    fn info(&mut self) -> bool {
        let (mut free, mut total, mut device) = (0, 0, 0);
        self.must("cuMemGetInfo", cuMemGetInfo_v2(&raw mut free, &raw mut total));
        self.must("cuDeviceTotalMem", cuDeviceTotalMem_v2(&raw mut device, 0));
        let (free, cap) = (free as u64, self.world.cap);
        if total as u64 != cap || device as u64 != cap || free > cap {
            self.fail(&format!("query: {free} free of {total}, the device {device}, with a cap of {cap}"));
        }
        let live = self.least();
        if !self.world.spills && free + live > cap {
            self.fail(&format!("query: {free} free with {live} live of a cap of {cap}"));
        }
        true
    }

    fn mempool(&mut self, op: Op) -> bool {
        let at = op.slot as usize % self.pools.len();
        if op.what == What::PoolCreate {
            if self.pools[at].is_some() {
                return false;
            }
            let (mut pool, wanted) = (null_mut(), pool_properties(op.other.is_multiple_of(4)));
            self.must("cuMemPoolCreate", cuMemPoolCreate(&raw mut pool, &raw const wanted));
            self.pools[at] = Some(pool);
            return true;
        }
        if op.what == What::PoolCurrent {
            let mut pool = null_mut();
            // Other threads would allocate from it while it is destroyed.
            if !self.world.alone {
                return false;
            }
            match self.pools[at] {
                Some(own) if op.other & 1 == 0 => pool = own,
                _ => self.must("cuDeviceGetDefaultMemPool", cuDeviceGetDefaultMemPool(&raw mut pool, 0)),
            }
            self.must("cuDeviceSetMemPool", cuDeviceSetMemPool(0, pool));
            return true;
        }
        let mut pool = null_mut();
        match self.pools[at] {
            Some(own) => pool = own,
            None if op.what == What::PoolDestroy => return false,
            None => self.must("cuDeviceGetDefaultMemPool", cuDeviceGetDefaultMemPool(&raw mut pool, 0)),
        }
        match op.what {
            What::PoolDestroy => {
                self.pools[at] = None;
                self.must("cuMemPoolDestroy", cuMemPoolDestroy(pool));
            }
            What::PoolTrim => {
                let keep = if op.other & 1 == 0 { 0 } else { op.bytes as usize };
                self.must("cuMemPoolTrimTo", cuMemPoolTrimTo(pool, keep));
            }
            _ => {
                let mut keep = if op.other & 1 == 0 { 0 } else { u64::MAX };
                let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
                let code = cuMemPoolSetAttribute(pool, attribute, (&raw mut keep).cast());
                self.must("cuMemPoolSetAttribute", code);
            }
        }
        true
    }

    /// Loads code with a variable. It is charged as a fact: where there is no room it may pass the cap, by itself alone.
    fn module(&mut self, op: Op) -> bool {
        let at = self.current;
        let Some(context) = self.contexts[at] else { return false };
        if op.what == What::ModuleUnload {
            let Some((module, _)) = context.module else { return false };
            self.must("cuModuleUnload", cuModuleUnload(module));
            self.contexts[at] = Some(Context { module: None, ..context });
            return true;
        }
        let bytes = op.bytes.min(16 << 20).next_multiple_of(4);
        // A small variable may need a portion of its own.
        let cost = rounded(bytes);
        if context.module.is_some() || witness::physical() + cost > self.world.cap {
            return false;
        }
        let text =
            format!(".version 7.0\n.target sm_80\n.address_size 64\n.visible .global .align 4 .b8 big[{bytes}];\n\0");
        let mut module = null_mut();
        let code = cuModuleLoadData(&raw mut module, text.as_ptr().cast());
        if code == OUT_OF_MEMORY {
            self.world.note.refused.fetch_add(1, SeqCst);
            return true;
        }
        self.must("cuModuleLoadData", code);
        self.contexts[at] = Some(Context { module: Some((module, cost)), ..context });
        true
    }

    fn hold(&mut self, op: Op) -> bool {
        if self.holder.is_some() {
            return false;
        }
        let (end, told) = mpsc::channel();
        let (ready, begun) = mpsc::channel();
        let (primary, note) = (self.context(0).ctx as usize, self.world.note);
        let bytes = if op.other & 1 == 0 { 0 } else { op.bytes };
        let thread = std::thread::spawn(move || {
            let must = |name: &str, code: CUresult| {
                if code != OK {
                    note.fail(&format!("answer: {name} beside an open capture was answered by {}", code.0));
                }
            };
            let (mut stream, mut graph, mut ptr) = (null_mut(), null_mut(), 0);
            let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            must("cuCtxSetCurrent", cuCtxSetCurrent(primary as CUcontext));
            must("cuStreamCreate", cuStreamCreate(&raw mut stream, 1));
            must("cuStreamBeginCapture", cuStreamBeginCapture_v2(stream, mode));
            if bytes > 0 && cuMemAllocAsync(&raw mut ptr, bytes as usize, stream) == OK {
                must("cuMemFreeAsync", cuMemFreeAsync(ptr, stream));
            }
            ready.send(()).ok();
            told.recv().ok();
            must("cuStreamEndCapture", cuStreamEndCapture(stream, &raw mut graph));
            must("cuGraphDestroy", cuGraphDestroy(graph));
            must("cuStreamDestroy", cuStreamDestroy_v2(stream));
        });
        begun.recv().ok();
        self.holder = Some(Holder { end, thread });
        true
    }

    fn end_hold(&mut self) -> bool {
        let Some(holder) = self.holder.take() else { return false };
        drop(holder.end);
        holder.thread.join().is_ok()
    }

    /// Whether a capture is open beside this thread.
    pub(crate) fn holding(&self) -> bool {
        self.holder.is_some()
    }

    fn lend(&mut self, op: Op) -> bool {
        if self.peer.is_none() {
            return false;
        }
        if op.what == What::PeerDrop {
            self.peer.as_mut().into_iter().for_each(Peer::drop_all);
            self.blocks.iter_mut().flatten().for_each(|block| block.lent = false);
            return true;
        }
        let wanted = |block: &Block| match block.held {
            Held::Handle { users, .. } => op.what == What::PeerImport && users > 0,
            Held::Plain(_) => op.what == What::PeerOpen,
            _ => false,
        };
        let Some(at) = self.find(op.slot, wanted) else { return false };
        let Some(block) = self.blocks[at] else { return false };
        match block.held {
            Held::Handle { handle, .. } => {
                let fd = self.export(handle);
                if !self.peer.as_mut().is_some_and(|peer| peer.import(fd, block.bytes)) {
                    self.fail("answer: the second process could not import");
                }
                // SAFETY: the descriptor that the export made.
                unsafe { libc::close(fd) };
            }
            Held::Plain(ptr) => {
                self.enter(block.ctx);
                let mut handle = CUipcMemHandle::default();
                let code = cuIpcGetMemHandle(&raw mut handle, ptr);
                if self.world.spills && code == CUresult::CUDA_ERROR_INVALID_VALUE {
                    // Managed memory cannot be shared, and what is spilled may be that.
                    return true;
                }
                self.must("cuIpcGetMemHandle", code);
                if !self.peer.as_mut().is_some_and(|peer| peer.open(&handle)) {
                    self.fail("answer: the second process could not open");
                }
                self.blocks[at] = Some(Block { lent: true, ..block });
            }
            _ => return false,
        }
        true
    }

    /// Frees everything, in stream order and behind work where that is possible: afterwards nothing is live, and much
    /// is pending.
    pub(crate) fn finish(&mut self) {
        self.end_hold();
        if let Some(peer) = &mut self.peer {
            peer.drop_all();
        }
        for ctx in 0..self.contexts.len() {
            if self.contexts[ctx].is_some() {
                self.enter(ctx);
                (0..3).for_each(|stream| self.spin(ctx, stream, 1000));
            }
        }
        for at in 0..self.blocks.len() {
            self.free(at, true);
        }
        for at in 0..self.graphs.len() {
            self.destroy_graph(at);
        }
        for at in 0..self.pools.len() {
            if let Some(pool) = self.pools[at].take() {
                self.must("cuMemPoolDestroy", cuMemPoolDestroy(pool));
            }
        }
        for at in 0..self.contexts.len() {
            if let Some(Context { module: Some((module, _)), .. }) = self.contexts[at] {
                self.enter(at);
                self.must("cuModuleUnload", cuModuleUnload(module));
            }
        }
        self.enter(0);
        self.look();
    }

    /// Ends the contexts beside the primary one.
    pub(crate) fn end_contexts(&mut self) {
        for at in 1..self.contexts.len() {
            if let Some(context) = self.contexts[at].take() {
                self.must("cuCtxDestroy", cuCtxDestroy_v2(context.ctx));
            }
        }
        self.enter(0);
    }
}

/// Takes all that can be had in handles, gives it back and tells how much it was.
pub(crate) fn capacity(cap: u64) -> u64 {
    let (mut held, mut sum, mut size) = (Vec::new(), 0, cap / PAGE * PAGE);
    let wanted = properties(false);
    while size >= PAGE {
        let mut handle = 0;
        if cuMemCreate(&raw mut handle, size as usize, &raw const wanted, 0) == OK {
            held.push(handle);
            sum += size;
        } else {
            size = (size / 2).next_multiple_of(PAGE) - if size <= PAGE { PAGE } else { 0 };
        }
    }
    for handle in held {
        assert_eq!(cuMemRelease(handle), OK);
    }
    sum
}

/// One request for so many bytes; whether it was granted.
pub(crate) fn at_once(bytes: u64) -> bool {
    let (mut handle, wanted) = (0, properties(false));
    let code = cuMemCreate(&raw mut handle, bytes as usize, &raw const wanted, 0);
    code == OK && cuMemRelease(handle) == OK
}

/// Free and total bytes, as the job is told.
pub(crate) fn told() -> (usize, usize) {
    let (mut free, mut total) = (0, 0);
    assert_eq!(cuMemGetInfo_v2(&raw mut free, &raw mut total), OK);
    (free, total)
}

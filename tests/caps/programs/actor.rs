//! One thread of a program: what it holds, and what each operation means at this moment.
//!
//! After every operation the virtual GPU is queried for the most that it ever allocated: above the cap, nothing excuses it.

use crate::beside::Holder;
use crate::driver::cu::*;
use crate::graphs::Graph;
use crate::note::Note;
use crate::op::{FEW, Op, SLOTS, What};
use crate::peer::Peer;
use crate::witness;
use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::SeqCst;
use weir_cuda::*;

pub(crate) const OK: CUresult = CUresult::CUDA_SUCCESS;
pub(crate) const OUT_OF_MEMORY: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
pub(crate) const FD: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
/// Physical memory comes in chunks of this size.
pub(crate) const PAGE: u64 = 2 << 20;
/// What weir and the driver may need beside all that is known.
const RESERVE: u64 = 4 * PAGE;
/// The driver's mempools, and plain segments of weir's pool, grow by so much at a time.
pub(crate) const GROWTH: u64 = 32 << 20;

/// What all threads of a program know.
#[derive(Clone, Copy)]
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
pub(crate) struct World {
    pub(crate) note: &'static Note,
    pub(crate) cap: u64,
    /// `WEIR_ON_CAP=spill`: live bytes may be on the host.
    pub(crate) spills: bool,
    /// Plain blocks lie in segments that the smallest of them keeps: `WEIR_POOL=novmm`.
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

pub(crate) struct Actor {
    pub(crate) world: World,
    pub(crate) me: usize,
    pub(crate) blocks: Vec<Option<Block>>,
    pub(crate) pools: Vec<Option<CUmemoryPool>>,
    pub(crate) graphs: Vec<Option<Graph>>,
    /// The primary context first.
    pub(crate) contexts: Vec<Option<Context>>,
    pub(crate) current: usize,
    pub(crate) event: CUevent,
    pub(crate) holder: Option<Holder>,
    pub(crate) peer: Option<Peer>,
    pub(crate) next_id: u64,
    /// A segment of the driver's mempools, and with `fragments` of plain blocks: as large as the largest request, and kept
    /// by the smallest block in it.
    pub(crate) segment: u64,
    /// A request that fits was refused while a capture was open: it is looked at again when that has ended.
    doubted: Cell<bool>,
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
            doubted: Cell::new(false),
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
            let known = self.most();
            // What others hold is not known here.
            let unknown = !self.world.alone || self.world.shared;
            if unknown || known + most + RESERVE > self.world.cap {
                return false;
            }
            // Under an open capture nobody waits.
            self.doubted.set(true);
            if !self.holding() {
                self.fail(&format!(
                    "refused: {name} of at most {most} bytes, with at most {known} bytes live of a cap of {}; {} taken, account {}",
                    self.world.cap,
                    witness::physical(),
                    witness::account()
                ));
            }
            return false;
        }
        self.must(name, code);
        true
    }

    /// An upper bound of what everything that this thread holds costs.
    pub(crate) fn most(&self) -> u64 {
        let blocks = self.blocks.iter().flatten();
        let mut seen = Vec::new();
        let blocks: u64 = blocks
            .filter(|block| match block.held {
                Held::Handle { id, .. } => !seen.contains(&id) && (seen.push(id), true).1,
                _ => true,
            })
            .map(|block| match block.held {
                Held::Ordered(_) => self.segment,
                Held::Plain(_) if self.world.fragments => self.segment,
                _ => block.most,
            })
            .sum();
        let graphs: u64 = self.graphs.iter().flatten().map(|graph| 2 * graph.bytes).sum();
        // Each module may lie in chunks of others, and is charged with them: the kernels of a context, and one more.
        let code = |context: &Context| 2 * PAGE + context.module.map_or(0, |module| module.1 + 2 * PAGE);
        let code: u64 = self.contexts.iter().flatten().map(code).sum();
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
        let cap = self.world.cap;
        if most > cap {
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
            What::CaptureEnd => {
                let ended = self.end_hold();
                self.doubt();
                ended
            }
            What::PeerImport | What::PeerOpen | What::PeerDrop => self.lend(op),
        }
    }

    /// What is reported must be true: the cap as the total, and no byte free that is known to be live.
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

    /// Loads code with a variable. It is charged as a fact, so it is loaded only where there is room for it.
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
        // A small variable may need a chunk of its own.
        let cost = rounded(bytes);
        // Managed memory has its room, and is not yet on the device where nobody has prefetched it.
        let managed = self.blocks.iter().flatten().filter(|block| matches!(block.held, Held::Managed(_)));
        let promised: u64 = managed.map(|block| block.most).sum();
        if context.module.is_some() || witness::physical() + promised + cost > self.world.cap {
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

    /// Waits for everything that this thread has queued, with no capture open.
    pub(crate) fn rest(&mut self) {
        self.end_hold();
        for ctx in 0..self.contexts.len() {
            if self.contexts[ctx].is_some() {
                self.enter(ctx);
                self.must("cuCtxSynchronize", cuCtxSynchronize());
            }
        }
        self.enter(0);
    }

    /// Nothing is under way and at most `known` bytes are live in the whole process: what fits beside them is allocated.
    pub(crate) fn room_at_rest(&self, known: u64) {
        let room = self.world.cap.saturating_sub(known + RESERVE) / PAGE * PAGE;
        let refused = |name: &str, bytes: u64| {
            let (cap, taken, account) = (self.world.cap, witness::physical(), witness::account());
            self.fail(&format!(
                "refused at rest: {name} of {bytes} bytes, with at most {known} bytes live of a cap of {cap}; {taken} taken, account {account}"
            ));
        };
        if room > 0 && !at_once(room) {
            refused("cuMemCreate", room);
        }
        let (plain, mut ptr) =
            (if self.world.fragments { room / GROWTH * GROWTH } else { room.saturating_sub(2 * PAGE) }, 0);
        if plain > 0 {
            if cuMemAlloc_v2(&raw mut ptr, plain as usize) != OK {
                refused("cuMemAlloc", plain);
            }
            self.must("cuMemFree", cuMemFree_v2(ptr));
        }
        self.look();
    }

    /// A capture beside this thread has ended: was a request refused only because of it?
    fn doubt(&mut self) {
        if self.doubted.take() {
            let current = self.current;
            self.rest();
            self.room_at_rest(self.most());
            self.enter(current);
        }
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

/// Takes all that can be had in handles, frees it and returns how much it was.
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

/// Free and total bytes, as reported to the job.
pub(crate) fn reported() -> (usize, usize) {
    let (mut free, mut total) = (0, 0);
    assert_eq!(cuMemGetInfo_v2(&raw mut free, &raw mut total), OK);
    (free, total)
}

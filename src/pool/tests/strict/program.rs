//! Random programs of a job with several streams, events, contexts and mempools, run against the pool on
//! the strict device and compared with a plain model of what must be true. Touches nothing real.

use super::{Rng, Strict, Work};
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;
use weir_pool::{
    AllocError, Budget, Caching, Call, Config, Fence, Mempool, PeerAccess, Pool, Proof, Request, Reuse, UNIT,
};

/// What kind of job it is.
#[allow(clippy::struct_excessive_bools, reason = "independent switches")]
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) capacity: u64,
    pub(crate) large_handle: u64,
    pub(crate) vmm: bool,
    pub(crate) lazy: bool,
    /// One call in so many fails; 0 is none.
    pub(crate) faults: u64,
    /// Mostly blocks up to the small limit, which mesh.
    pub(crate) sparse: bool,
    /// Only tiny blocks, which mesh too, and large ones.
    pub(crate) tiny: bool,
    /// Streams have caches, and a few sizes come again and again.
    pub(crate) caches: bool,
}

impl Kind {
    pub(crate) fn config(&self) -> Config {
        Config {
            small_handle: 64 << 10,
            large_handle: self.large_handle,
            tiny_limit: 2 << 10,
            small_limit: 32 << 10,
            segment: 256 << 10,
            vmm: self.vmm,
            lazy: self.lazy,
            caching: if self.caches { Caching::Always } else { Caching::Never },
            ..Config::new(self.capacity * 4)
        }
    }
}

pub(crate) const KINDS: [Kind; 12] = [
    Kind {
        capacity: 2 << 20,
        large_handle: 64 << 10,
        vmm: true,
        lazy: true,
        faults: 0,
        sparse: false,
        tiny: false,
        caches: false,
    },
    Kind {
        capacity: 2 << 20,
        large_handle: 128 << 10,
        vmm: true,
        lazy: true,
        faults: 0,
        sparse: false,
        tiny: false,
        caches: false,
    },
    Kind {
        capacity: 1 << 20,
        large_handle: 64 << 10,
        vmm: true,
        lazy: true,
        faults: 0,
        sparse: true,
        tiny: false,
        caches: false,
    },
    Kind {
        capacity: 2 << 20,
        large_handle: 64 << 10,
        vmm: true,
        lazy: true,
        faults: 12,
        sparse: false,
        tiny: false,
        caches: false,
    },
    Kind {
        capacity: 2 << 20,
        large_handle: 128 << 10,
        vmm: false,
        lazy: true,
        faults: 20,
        sparse: false,
        tiny: false,
        caches: false,
    },
    Kind {
        capacity: 1 << 20,
        large_handle: 128 << 10,
        vmm: true,
        lazy: false,
        faults: 30,
        sparse: true,
        tiny: false,
        caches: false,
    },
    Kind {
        capacity: 1 << 20,
        large_handle: 64 << 10,
        vmm: true,
        lazy: true,
        faults: 0,
        sparse: false,
        tiny: true,
        caches: false,
    },
    Kind {
        capacity: 1 << 20,
        large_handle: 128 << 10,
        vmm: true,
        lazy: true,
        faults: 20,
        sparse: false,
        tiny: true,
        caches: false,
    },
    Kind {
        capacity: 2 << 20,
        large_handle: 64 << 10,
        vmm: true,
        lazy: true,
        faults: 0,
        sparse: false,
        tiny: false,
        caches: true,
    },
    Kind {
        capacity: 1 << 20,
        large_handle: 64 << 10,
        vmm: true,
        lazy: true,
        faults: 0,
        sparse: true,
        tiny: false,
        caches: true,
    },
    Kind {
        capacity: 1 << 20,
        large_handle: 128 << 10,
        vmm: true,
        lazy: false,
        faults: 30,
        sparse: true,
        tiny: false,
        caches: true,
    },
    Kind {
        capacity: 2 << 20,
        large_handle: 128 << 10,
        vmm: false,
        lazy: true,
        faults: 20,
        sparse: false,
        tiny: true,
        caches: true,
    },
];

#[derive(Clone, Copy, Debug)]
struct Live {
    addr: u64,
    bytes: u64,
    allocated: u64,
    buffer: u64,
    home: u64,
    context: u64,
    mempool: Mempool,
    pins: u32,
    number: usize,
}

struct Open {
    proof: Proof,
    fences: Vec<Fence>,
}

pub(crate) struct Program<'a> {
    kind: &'a Kind,
    rng: Rng,
    device: Strict,
    pool: Pool,
    live: Vec<Live>,
    /// Starts of live blocks, to find overlaps.
    taken: BTreeMap<u64, u64>,
    /// Freed while exported: address, bytes, pins.
    limbo: Vec<(u64, u64, u32)>,
    events: BTreeMap<u64, Fence>,
    mempools: Vec<(Mempool, u64)>,
    open: Option<Open>,
    buffers: HashSet<u64>,
    capture: Option<u64>,
    pub(crate) refused: u64,
}

const STREAMS: [u64; 6] = [1, 2, 3, 4, 11, 12];

fn context_of(stream: u64) -> u64 {
    stream / 10 + 1
}

impl<'a> Program<'a> {
    pub(crate) fn new(kind: &'a Kind, seed: u64) -> Self {
        let device = Strict::new(kind.capacity);
        device.lock().near_capacity = kind.capacity / 4;
        let pool = Pool::new(kind.config(), &device).expect("no fault yet");
        pool.context_created(1);
        pool.context_created(2);
        let second = pool.mempool_created().expect("there is room for one");
        pool.set_mempool(second, Reuse { follow_events: true, opportunistic: false, internal_waits: false }, 0);
        let third = pool.mempool_created().expect("there is room for one");
        pool.set_mempool(third, Reuse { follow_events: false, opportunistic: false, internal_waits: true }, 0);
        Self {
            kind,
            rng: Rng::new(seed),
            device,
            pool,
            live: Vec::new(),
            taken: BTreeMap::new(),
            limbo: Vec::new(),
            events: BTreeMap::new(),
            mempools: vec![(Mempool::default(), 0), (second, 0), (third, 0)],
            open: None,
            buffers: HashSet::new(),
            capture: None,
            refused: 0,
        }
    }

    /// Run `operations` random operations; the first thing that is wrong ends it.
    pub(crate) fn run(&mut self, operations: u64) -> Result<(), (u64, String)> {
        for at in 0..operations {
            let often = if self.kind.caches { 512 } else { 64 };
            let checked = if at % often == often - 1 { self.check() } else { Ok(()) };
            self.operation().and(checked).map_err(|what| (at, what))?;
            if let Some(violation) = self.device.lock().violations.first() {
                return Err((at, violation.clone()));
            }
        }
        self.finish().map_err(|what| (operations, what))
    }

    fn stream(&mut self) -> u64 {
        let few = [1, 2, 11];
        if self.kind.caches { few[self.rng.below(3) as usize] } else { STREAMS[self.rng.below(6) as usize] }
    }

    fn size(&mut self) -> u64 {
        let unit = UNIT;
        if self.kind.caches && !self.rng.chance(12) {
            return unit * [1, 8, 40][self.rng.below(3) as usize] - self.rng.below(unit);
        }
        if self.kind.caches && self.rng.chance(3) {
            return self.kind.capacity * (4 + self.rng.below(4)) / 8;
        }
        if self.kind.tiny && !self.rng.chance(16) {
            return 1 + self.rng.below(3 * unit);
        }
        if self.kind.tiny {
            return 64 * unit + self.rng.below(400 * unit);
        }
        match self.rng.below(if self.kind.sparse { 12 } else { 8 }) {
            0 => 1 + self.rng.below(unit),
            1 | 2 => 1 + self.rng.below(4 * unit),
            3 => 1 + self.rng.below(64 * unit),
            4 => 4 * unit + self.rng.below(60 * unit),
            5 => 64 * unit + self.rng.below(200 * unit),
            6 => 1 + self.rng.below(400 * unit),
            7 => 128 * unit * (1 + self.rng.below(6)),
            _ => 4 * unit + self.rng.below(28 * unit),
        }
    }

    fn operation(&mut self) -> Result<(), String> {
        if self.kind.faults > 0 && self.rng.chance(self.kind.faults) {
            let after = self.rng.below(6);
            let mut device = self.device.lock();
            (device.fail_in, device.fail_count) = (Some(after), 1);
        }
        // Where streams have caches, most requests find there what was freed lately.
        let growing = self.rng.below(1000) < 500 && (!self.kind.caches || self.live.len() < 24);
        match self.rng.below(100) {
            0..46 => {
                if growing || self.live.is_empty() {
                    let stream = self.stream();
                    self.allocate(stream)?;
                } else {
                    self.free_one()?;
                }
            }
            46..54 => self.free_one()?,
            54..62 => self.touch(),
            62..68 => self.move_home(),
            68..72 => self.record_event(),
            72..77 => self.wait_event()?,
            77 => self.destroy_event(),
            78 => self.sync_event(),
            79..81 => self.sync_stream(),
            81..85 => self.open_sync(),
            85..90 => self.close_sync()?,
            90 => self.destroy_stream(),
            91 => self.toggle_capture(),
            92 => self.pin(),
            93 => self.unpin()?,
            94 if !self.kind.caches || self.rng.chance(8) => self.lookup()?,
            95 => self.bad_pointers()?,
            96 if self.rng.chance(8) => self.destroy_context()?,
            97 if self.rng.chance(4) => self.trim(),
            98 if self.rng.chance(4) => {
                let _ = self.pool.grant(
                    &self.device,
                    PeerAccess { device: self.rng.below(3) as i32, write: true },
                    Duration::ZERO,
                );
            }
            99 => self.migrate()?,
            _ => {}
        }
        let steps = self.rng.below(4);
        self.device.progress(&mut self.rng, steps);
        Ok(())
    }

    fn allocate(&mut self, stream: u64) -> Result<(), String> {
        let bytes = self.size();
        if self.kind.caches && 2 * bytes >= self.kind.capacity {
            // What it is to lie in was freed just before, in the order of several streams.
            for at in (0..self.live.len()).rev() {
                self.free_at(at, true)?;
            }
        }
        self.allocate_bytes(stream, bytes)
    }

    fn allocate_bytes(&mut self, stream: u64, bytes: u64) -> Result<(), String> {
        if self.capture == Some(stream) {
            return Ok(());
        }
        // Other threads go on with their blocks as soon as the device is idle.
        let busy: Vec<usize> = (0..3).filter_map(|_| self.pick()).collect();
        let late = busy.into_iter().map(|at| self.live[at]).filter(|block| self.capture != Some(block.home));
        let works =
            late.map(|block| (block.home, Work::Check { addr: block.addr, bytes: block.allocated, tag: block.buffer }));
        let works: Vec<(u64, Work)> = works.collect();
        self.device.lock().late = works;
        let synchronous = self.rng.chance(4);
        let which =
            if self.rng.chance(if self.kind.caches { 12 } else { 3 }) { 1 + self.rng.below(2) as usize } else { 0 };
        let mempool = self.mempools[which].0;
        let context = context_of(stream);
        let request = Request { bytes, stream: (!synchronous).then_some(stream), context, mempool };
        let answer = self.pool.allocate(&self.device, &request, &Budget::default());
        self.device.lock().late.clear();
        let block = match answer {
            Ok(block) => block,
            Err(AllocError::OverCap | AllocError::OutOfMemory) => {
                self.refused += 1;
                self.rightly_refused(bytes)?;
                return self.refused_again(&request);
            }
            Err(AllocError::Driver(code)) if code == super::FAULT && self.kind.faults > 0 => return Ok(()),
            Err(error) => return Err(format!("{request:?}: {error}")),
        };
        if block.bytes != bytes || block.allocated < bytes || block.allocated - bytes >= UNIT || block.addr % UNIT != 0
        {
            return Err(format!("{request:?} got {block:?}"));
        }
        if !self.buffers.insert(block.buffer) {
            return Err(format!("buffer {} came again", block.buffer));
        }
        if self.live.iter().any(|live| live.number == block.number) {
            return Err(format!("{block:?} has the number of another live block"));
        }
        let before = self.taken.range(..block.addr + block.allocated).next_back();
        if before.is_some_and(|(start, end)| *end > block.addr && *start < block.addr + block.allocated) {
            return Err(format!("{block:?} overlaps the live block {before:?}"));
        }
        if self
            .limbo
            .iter()
            .any(|(addr, allocated, _)| *addr < block.addr + block.allocated && block.addr < addr + allocated)
        {
            return Err(format!("{block:?} is exported memory"));
        }
        if synchronous && let Some(pending) = self.device.lock().pending(block.addr, block.allocated) {
            return Err(format!("{block:?} was handed out while {pending:?} is queued"));
        }
        self.taken.insert(block.addr, block.addr + block.allocated);
        self.mempools[which].1 += block.allocated;
        self.device.push(stream, Work::Fill { addr: block.addr, bytes: block.allocated, tag: block.buffer });
        let allocated = block.allocated;
        self.live.push(Live {
            addr: block.addr,
            bytes,
            allocated,
            buffer: block.buffer,
            home: stream,
            context,
            mempool,
            pins: 0,
            number: block.number,
        });
        Ok(())
    }

    /// A refusal is right only if the device could not have held the block in the free memory that is left.
    fn rightly_refused(&mut self, bytes: u64) -> Result<(), String> {
        if self.kind.faults > 0 || self.capture.is_some() || !self.kind.vmm {
            return Ok(());
        }
        let stats = self.pool.stats();
        let handle = self.kind.large_handle;
        let held = stats.mapped_bytes;
        let refusable = held + bytes + 2 * handle > self.kind.capacity;
        // Everything is proven after the pool's own synchronisation; spare memory must not cover the request.
        let spare = stats.spare_bytes;
        if !refusable || spare >= bytes + 2 * handle {
            return Err(format!("{bytes} bytes refused although {stats:?}"));
        }
        Ok(())
    }

    /// The figures recall what streams keep in their caches; a refusal that this makes wrong was wrong.
    fn refused_again(&mut self, request: &Request) -> Result<(), String> {
        if !self.kind.caches || self.kind.faults > 0 || self.capture.is_some() {
            return Ok(());
        }
        match self.pool.allocate(&self.device, request, &Budget::default()) {
            Ok(block) => Err(format!("{request:?} was refused, and then got {block:?}")),
            Err(_) => Ok(()),
        }
    }

    fn pick(&mut self) -> Option<usize> {
        (!self.live.is_empty()).then(|| self.rng.below(self.live.len() as u64) as usize)
    }

    fn free_one(&mut self) -> Result<(), String> {
        let Some(at) = self.pick() else { return Ok(()) };
        let ordered = !self.rng.chance(3);
        self.free_at(at, ordered)
    }

    fn free_at(&mut self, at: usize, ordered: bool) -> Result<(), String> {
        if self.capture == Some(self.live[at].home) {
            return Ok(());
        }
        let block = self.live.swap_remove(at);
        self.device.push(block.home, Work::Check { addr: block.addr, bytes: block.allocated, tag: block.buffer });
        self.forget(&block);
        let ordered = ordered || (self.kind.caches && !self.rng.chance(8));
        let freed = if ordered {
            self.pool.free_async(block.addr, block.home, context_of(block.home), ())
        } else {
            self.pool.free(&self.device, block.addr, ())
        };
        match freed {
            Ok(freed) if (freed.bytes, freed.buffer, freed.number) == (block.bytes, block.buffer, block.number) => {
                Ok(())
            }
            other => Err(format!("freeing {block:?}: {other:?}")),
        }
    }

    fn forget(&mut self, block: &Live) {
        self.taken.remove(&block.addr);
        if let Some((_, used)) = self.mempools.iter_mut().find(|(mempool, _)| *mempool == block.mempool) {
            *used -= block.allocated;
        }
        if block.pins > 0 {
            self.limbo.push((block.addr, block.allocated, block.pins));
        }
    }

    fn touch(&mut self) {
        let Some(at) = self.pick() else { return };
        let block = self.live[at];
        if self.capture == Some(block.home) {
            return;
        }
        self.device.push(block.home, Work::Check { addr: block.addr, bytes: block.allocated, tag: block.buffer });
        if self.rng.chance(2) {
            self.device.push(block.home, Work::Fill { addr: block.addr, bytes: block.allocated, tag: block.buffer });
        }
    }

    fn record(&mut self, event: u64, stream: u64) {
        let proof = self.pool.began(Call::EventRecord { event, stream });
        let fence = self.device.signal(stream);
        self.events.insert(event, fence);
        self.pool.ended(proof, true);
    }

    fn wait(&mut self, event: u64, stream: u64) {
        let proof = self.pool.began(Call::EventWait { event, stream, context: context_of(stream) });
        if let Some(fence) = self.events.get(&event) {
            self.device.push(stream, Work::Wait(*fence));
        }
        self.pool.ended(proof, true);
    }

    /// A block is used on another stream from now on, ordered by an event as it must be.
    fn move_home(&mut self) {
        let Some(at) = self.pick() else { return };
        let (from, to) = (self.live[at].home, self.stream());
        if from == to || self.capture == Some(from) || self.capture == Some(to) {
            return;
        }
        let event = 200 + self.rng.below(4);
        self.record(event, from);
        self.wait(event, to);
        self.live[at].home = to;
    }

    fn record_event(&mut self) {
        let (event, stream) = (100 + self.rng.below(4), self.stream());
        if self.capture != Some(stream) {
            self.record(event, stream);
        }
    }

    /// A wait; sometimes another thread records the event anew while it is being made. What is requested
    /// afterwards is often just what was freed before the event, on the stream that it was recorded on.
    fn wait_event(&mut self) -> Result<(), String> {
        let (event, stream, other) = (100 + self.rng.below(4), self.stream(), self.stream());
        if self.capture == Some(stream) || self.capture == Some(other) {
            return Ok(());
        }
        let mut bytes = self.size();
        let some = [self.pick(), self.pick(), self.pick()];
        if let Some(at) = some.into_iter().flatten().max_by_key(|at| self.live[*at].bytes) {
            let block = self.live[at];
            if self.capture != Some(block.home) && self.rng.chance(2) {
                bytes = block.bytes;
                self.free_at(at, true)?;
                self.record(event, block.home);
            }
        }
        let proof = self.pool.began(Call::EventWait { event, stream, context: context_of(stream) });
        if self.rng.chance(2) {
            self.record(event, other);
        }
        if let Some(fence) = self.events.get(&event) {
            self.device.push(stream, Work::Wait(*fence));
        }
        self.pool.ended(proof, true);
        self.allocate_bytes(stream, bytes)?;
        self.allocate(stream)
    }

    fn destroy_event(&mut self) {
        let event = 100 + self.rng.below(4);
        self.events.remove(&event);
        self.pool.event_destroyed(event);
    }

    fn sync_event(&mut self) {
        if self.capture.is_some() {
            return;
        }
        let (event, other) = (100 + self.rng.below(4), self.stream());
        let proof = self.pool.began(Call::EventSync(event));
        if self.rng.chance(2) {
            self.record(event, other);
        }
        let Some(fence) = self.events.get(&event).copied() else { return };
        let done = if self.rng.chance(2) {
            self.device.run_to(&[fence]);
            true
        } else {
            self.device.is_done(fence)
        };
        self.pool.ended(proof, done);
    }

    fn sync_stream(&mut self) {
        let stream = self.stream();
        if self.capture.is_some() {
            return;
        }
        let proof = self.pool.began(Call::StreamSync(stream));
        let idle = if self.rng.chance(2) {
            let fence = self.device.signal(stream);
            self.device.run_to(&[fence]);
            true
        } else {
            self.device.is_idle(stream)
        };
        self.pool.ended(proof, idle);
    }

    /// A synchronisation by another thread begins: it covers what is queued now, and not what follows.
    fn open_sync(&mut self) {
        if self.open.is_some() || self.capture.is_some() {
            return;
        }
        let context = 1 + self.rng.below(2);
        let proof = self.pool.began(Call::ContextSync(context));
        let fences = self.device.mark(|stream| context_of(stream) == context);
        self.open = Some(Open { proof, fences });
    }

    fn close_sync(&mut self) -> Result<(), String> {
        let Some(open) = self.open.take() else { return Ok(()) };
        // What is freed only now, where its stream may keep it, is wanted by another stream right after.
        let mut late = None;
        let freed = if self.kind.caches { self.pick() } else { None };
        if let Some(at) = freed {
            let block = self.live[at];
            self.free_at(at, true)?;
            late = Some(block.bytes);
        }
        self.device.run_to(&open.fences);
        let ok = !self.rng.chance(8);
        self.pool.ended(open.proof, ok);
        if let Some(bytes) = late {
            let stream = self.stream();
            self.allocate_bytes(stream, bytes)?;
        }
        Ok(())
    }

    /// The handle goes and comes again; its queued work goes on without it.
    fn destroy_stream(&mut self) {
        let (stream, other) = (self.stream(), self.stream());
        if stream == other || self.capture.is_some() {
            return;
        }
        // Blocks in use there are carried over to another stream, in order.
        self.record(300, stream);
        self.wait(300, other);
        self.live.iter_mut().filter(|block| block.home == stream).for_each(|block| block.home = other);
        self.pool.stream_destroyed(&self.device, stream);
        self.device.destroy_stream(stream);
    }

    fn toggle_capture(&mut self) {
        match self.capture.take() {
            Some(stream) => {
                self.device.lock().capturing = false;
                self.pool.set_capturing(stream, context_of(stream), false);
            }
            None if self.open.is_none() => {
                let stream = self.stream();
                self.capture = Some(stream);
                self.pool.set_capturing(stream, context_of(stream), true);
                self.device.lock().capturing = true;
            }
            None => {}
        }
    }

    fn pin(&mut self) {
        let Some(at) = self.pick() else { return };
        if self.live[at].pins == 0
            && self.limbo.len() < 4
            && self.live.iter().filter(|block| block.pins > 0).count() < 4
        {
            let block = &mut self.live[at];
            block.pins += 1;
            let (addr, allocated) = (block.addr, block.allocated);
            assert_eq!(self.pool.pin(addr), Ok(()));
            self.device.lock().pinned.push((addr, allocated));
        }
    }

    fn unpin(&mut self) -> Result<(), String> {
        let pinned = self.live.iter_mut().find(|block| block.pins > 0);
        let addr = if let Some(block) = pinned {
            block.pins = 0;
            block.addr
        } else if let Some((addr, _, _)) = self.limbo.pop() {
            addr
        } else {
            return Ok(());
        };
        self.device.lock().pinned.retain(|(start, _)| *start != addr);
        self.pool.unpin(addr).map_err(|error| format!("{addr:#x} can't be unpinned: {error}"))
    }

    fn lookup(&mut self) -> Result<(), String> {
        let Some(at) = self.pick() else { return Ok(()) };
        let block = self.live[at];
        let addr = block.addr + self.rng.below(block.bytes);
        let info = self.pool.lookup(addr).ok_or(format!("{addr:#x} in {block:?} is unknown"))?;
        let found = (info.addr, info.bytes, info.buffer, info.context, info.mempool, info.number, info.pinned);
        let right = (block.addr, block.bytes, block.buffer, block.context, block.mempool, block.number, block.pins > 0);
        if found != right {
            return Err(format!("{addr:#x} in {block:?} gives {info:?}"));
        }
        let end = block.addr + block.allocated;
        let beyond = self.taken.contains_key(&end);
        if self.pool.lookup(end).is_some() != beyond {
            return Err(format!("{end:#x} behind {block:?} is known: {}", !beyond));
        }
        Ok(())
    }

    fn bad_pointers(&mut self) -> Result<(), String> {
        let inside = self.pick().map_or(0, |at| self.live[at].addr + 1 + self.rng.below(self.live[at].allocated - 1));
        for addr in [0, 1, u64::MAX, self.rng.next() << 9, inside] {
            if self.taken.contains_key(&addr) {
                continue;
            }
            if self.pool.free(&self.device, addr, ()).is_ok() || self.pool.free_async(addr, 1, 1, ()).is_ok() {
                return Err(format!("{addr:#x} was freed"));
            }
        }
        let wrong = Request { bytes: 0, context: 1, ..Request::default() };
        if self.pool.allocate(&self.device, &wrong, &Budget::default()) != Err(AllocError::Invalid) {
            return Err("0 bytes were handed out".into());
        }
        let huge = Request { bytes: u64::MAX - self.rng.below(1 << 20), context: 1, ..Request::default() };
        if self.pool.allocate(&self.device, &huge, &Budget::default()) != Err(AllocError::TooLarge) {
            return Err("2^64 bytes were not too many".into());
        }
        Ok(())
    }

    fn destroy_context(&mut self) -> Result<(), String> {
        if self.capture.is_some() || self.open.is_some() {
            return Ok(());
        }
        let context = 1 + self.rng.below(2);
        let fences = self.device.mark(|stream| context_of(stream) == context);
        self.device.run_to(&fences);
        for stream in STREAMS.into_iter().filter(|stream| context_of(*stream) == context) {
            self.device.destroy_stream(stream);
        }
        let mut gone = self.pool.context_destroyed(&self.device, context, |_| ());
        let (mine, rest): (Vec<Live>, Vec<Live>) = self.live.iter().partition(|block| block.context == context);
        self.live = rest;
        for block in &mine {
            self.forget(&Live { pins: 0, ..*block });
            self.device.lock().pinned.retain(|(start, _)| *start != block.addr);
        }
        gone.sort_by_key(|block| block.addr);
        let mut expected: Vec<u64> = mine.iter().map(|block| block.addr).collect();
        expected.sort_unstable();
        if gone.iter().map(|block| block.addr).collect::<Vec<u64>>() != expected {
            return Err(format!("context {context} gave back {} blocks, had {}", gone.len(), expected.len()));
        }
        // Blocks of the other context that were used here are used there from now on: this work is done.
        let other = if context == 1 { 11 } else { 1 };
        self.live.iter_mut().filter(|block| context_of(block.home) == context).for_each(|block| block.home = other);
        // What it had exported and freed is no longer held for anybody.
        let pinned_limbo = std::mem::take(&mut self.limbo);
        for (addr, _, _) in pinned_limbo {
            // Those of the destroyed context were unpinned with it.
            let _ = self.pool.unpin(addr);
            self.device.lock().pinned.retain(|(start, _)| *start != addr);
        }
        self.pool.context_created(context);
        Ok(())
    }

    /// Live blocks get better memory where the device is idle; mostly it has just become so.
    fn migrate(&mut self) -> Result<(), String> {
        if self.capture.is_none() && !self.rng.chance(4) {
            self.device.drain();
        }
        if self.rng.chance(3) {
            // What is free of the better memory is given up by itself.
            let near = self.device.lock().near.clone();
            self.pool.trim_handles(&self.device, |handle| near.contains(&handle));
        }
        match self.pool.migrate(&self.device, (1 + self.rng.below(8)) * self.kind.large_handle) {
            Err(error) if self.kind.faults == 0 => Err(format!("nothing was migrated: {error:?}")),
            _ => Ok(()),
        }
    }

    fn trim(&mut self) {
        let keep = self.rng.below(self.kind.capacity);
        if self.rng.chance(2) {
            self.pool.trim_to(&self.device, keep);
        } else {
            self.pool.trim_mempool(&self.device, Mempool::default(), keep);
        }
    }

    /// The pool's own invariants, and its figures against the model's.
    fn check(&mut self) -> Result<(), String> {
        self.pool.check()?;
        let stats = self.pool.stats();
        let live: u64 = self.live.iter().map(|block| block.bytes).sum();
        let allocated: u64 = self.live.iter().map(|block| block.allocated).sum();
        let used = self.device.lock().used;
        if (stats.live_blocks, stats.live_bytes, stats.allocated_bytes, stats.mapped_bytes)
            != (self.live.len() as u64, live, allocated, used)
        {
            return Err(format!(
                "{stats:?}, but {} blocks, {live} bytes, {allocated} allocated, {used} mapped",
                self.live.len()
            ));
        }
        for (mempool, used) in &self.mempools {
            let bytes = self.pool.mempool_bytes(*mempool);
            if bytes.used != *used || bytes.reserved < bytes.used || bytes.used_high < bytes.used {
                return Err(format!("{mempool:?} has {bytes:?}, not {used}"));
            }
        }
        Ok(())
    }

    /// Everything is freed, proven and trimmed: not a byte may be left.
    fn finish(&mut self) -> Result<(), String> {
        self.device.lock().fail_in = None;
        if self.capture.is_some() {
            self.toggle_capture();
        }
        self.close_sync()?;
        while !self.live.is_empty() {
            self.free_one()?;
        }
        for (addr, _, _) in std::mem::take(&mut self.limbo) {
            self.device.lock().pinned.retain(|(start, _)| *start != addr);
            assert_eq!(self.pool.unpin(addr), Ok(()));
        }
        for stream in STREAMS {
            self.pool.stream_destroyed(&self.device, stream);
        }
        // Twice: granules that shared a handle part at the first growth after the proof.
        for _ in 0..2 {
            for context in [1, 2] {
                let proof = self.pool.began(Call::ContextSync(context));
                self.device.drain();
                self.pool.ended(proof, true);
            }
            let request = Request { bytes: 3 * self.kind.capacity / 4, context: 1, ..Request::default() };
            if let Ok(block) = self.pool.allocate(&self.device, &request, &Budget::default()) {
                let _ = self.pool.free(&self.device, block.addr, ());
            }
        }
        for context in [1, 2] {
            let proof = self.pool.began(Call::ContextSync(context));
            self.pool.ended(proof, true);
        }
        self.check()?;
        self.pool.trim_to(&self.device, 0);
        self.check()?;
        let used = self.device.lock().used;
        if let Some(violation) = self.device.lock().violations.first() {
            return Err(violation.clone());
        }
        if used != 0 {
            return Err(format!("{used} bytes are never released: {:?}", self.pool.stats()));
        }
        Ok(())
    }

    pub(crate) fn stats(&self) -> weir_pool::Stats {
        self.pool.stats()
    }
}

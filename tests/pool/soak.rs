//! `pool-soak OPS [--seed N] [--streams N] [--threads N] [--resets] [--peer] [--plain] [--nothing-lost] [--focus epochs|events|waits] [--seconds N]`:
//! a random program of many streams and threads. Every block is filled by kernels with a pattern of its own and checked before
//! it is freed and at random; all work obeys CUDA's rules, so that a broken pattern is the pool's.
//! On the strict virtual GPU a touch of unmapped memory ends the process with a message.

mod api;
mod soak_peer;

use api::{Api, Kernels, OK, OUT_OF_MEMORY, context_on, ok};
use soak_peer::Peer;
use std::collections::BTreeMap;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};
use weir_cuda::*;
use weir_tests::rng::Rng;

/// A stretch of a block with a known pattern.
#[derive(Clone, Copy)]
struct Window {
    at: u64,
    words: u64,
    pattern: u32,
}

struct Block {
    ptr: u64,
    bytes: u64,
    /// From `cuMemAlloc`: freeing waits for nothing.
    plain: bool,
    /// The stream on which all its work is queued.
    home: usize,
    windows: Vec<Window>,
}

/// What all threads share.
struct Shared {
    api: &'static Api,
    /// Every live block, so that no two overlap.
    live: Mutex<BTreeMap<u64, u64>>,
    /// Events that any thread records and waits for, concluding nothing.
    noise: Vec<AtomicPtr<CUevent_st>>,
    ooms: AtomicU64,
}

#[allow(clippy::struct_excessive_bools)] // each is a switch of the command line
struct Options {
    ops: u64,
    seed: u64,
    streams: usize,
    threads: usize,
    resets: bool,
    peer: bool,
    /// Allocate synchronously only.
    plain: bool,
    /// The pool must not have given up any memory.
    nothing_lost: bool,
    focus: Focus,
    /// No more operations after this.
    end: Option<Instant>,
}

/// What the program does more often than else.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Focus {
    Nothing,
    /// Synchronisations of the context while other threads free.
    Epochs,
    /// Events that several threads record and wait for.
    Events,
    /// Streams that are far behind while memory is short.
    Waits,
}

fn number(arguments: &mut impl Iterator<Item = String>) -> u64 {
    arguments.next().and_then(|text| text.parse().ok()).expect("a number after the option")
}

fn options() -> Options {
    let mut options = Options {
        ops: 100_000,
        seed: 1,
        streams: 4,
        threads: 2,
        resets: false,
        peer: false,
        plain: false,
        nothing_lost: false,
        focus: Focus::Nothing,
        end: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seed" => options.seed = number(&mut arguments),
            "--streams" => options.streams = (number(&mut arguments) as usize).max(1),
            "--threads" => options.threads = (number(&mut arguments) as usize).max(1),
            "--focus" => {
                options.focus = match arguments.next().as_deref() {
                    Some("epochs") => Focus::Epochs,
                    Some("events") => Focus::Events,
                    Some("waits") => Focus::Waits,
                    _ => panic!("--focus is epochs, events or waits"),
                }
            }
            "--seconds" => options.end = Some(Instant::now() + Duration::from_secs(number(&mut arguments))),
            "--resets" => options.resets = true,
            "--peer" => options.peer = true,
            "--plain" => options.plain = true,
            "--nothing-lost" => options.nothing_lost = true,
            ops => options.ops = ops.replace('_', "").parse().expect("OPS is a number"),
        }
    }
    options
}

/// One thread of the program.
struct Worker<'a> {
    shared: &'a Shared,
    api: &'static Api,
    kernels: Kernels,
    rng: Rng,
    streams: Vec<CUstream>,
    pools: Vec<CUmemoryPool>,
    event: CUevent,
    blocks: Vec<Block>,
    bytes: u64,
    limit: u64,
    pattern: u32,
    errors: *mut u32,
    peer: Option<Peer>,
    exported: Vec<(Block, usize)>,
    since: u32,
    focus: Focus,
    /// The first of the threads.
    leader: bool,
    plain: bool,
}

impl Worker<'_> {
    /// A size as jobs request them: many small ones, few large ones.
    fn size(&mut self) -> u64 {
        let shift = match self.rng.below(100) {
            0..50 => 4 + self.rng.below(8),
            50..75 => 12 + self.rng.below(5),
            75..93 => 16 + self.rng.below(4),
            93..99 => 20 + self.rng.below(3),
            _ => 23 + self.rng.below(2),
        };
        (1 << shift) + self.rng.below(1 << shift)
    }

    fn refill(&mut self, at: usize) {
        let home = self.streams[self.blocks[at].home];
        let block = &mut self.blocks[at];
        self.pattern = self.pattern.wrapping_add(0x9E37_79B1) | 1;
        for window in &mut block.windows {
            window.pattern = self.pattern;
            self.kernels.fill(home, block.ptr + window.at, window.words, window.pattern);
        }
    }

    fn check(&self, block: &Block) {
        for window in &block.windows {
            let home = self.streams[block.home];
            self.kernels.check(home, block.ptr + window.at, window.words, window.pattern, self.errors as u64);
        }
    }

    /// The windows of a block: all of a small one, both ends and one place inside of a large one.
    fn windows(&mut self, bytes: u64) -> Vec<Window> {
        let words = bytes / 4;
        let window = |at: u64, words: u64| Window { at: at * 4, words, pattern: 0 };
        if words <= 1024 {
            return vec![window(0, words)];
        }
        let inside = 256 + self.rng.below(words - 768);
        vec![window(0, 256), window(words - 256, 256), window(inside, 128)]
    }

    fn allocate(&mut self) {
        let bytes = self.size();
        if self.bytes + bytes > self.limit || self.blocks.len() > 3000 {
            return self.free();
        }
        let home = self.rng.below(self.streams.len() as u64) as usize;
        let (api, stream, how) = (self.api, self.streams[home], self.rng.below(if self.plain { 40 } else { 100 }));
        let (mut ptr, mut pitch, mut given) = (0, 0, bytes);
        // SAFETY: all places are live locals.
        let result = unsafe {
            match how {
                0..35 => (api.cuMemAlloc_v2)(&raw mut ptr, bytes as usize),
                35..40 => {
                    let (width, rows) = ((bytes as usize).min(2000), (bytes as usize).div_ceil(2000));
                    let result = (api.cuMemAllocPitch_v2)(&raw mut ptr, &raw mut pitch, width, rows, 4);
                    given = (pitch * rows) as u64;
                    result
                }
                40..85 => (api.cuMemAllocAsync)(&raw mut ptr, bytes as usize, stream),
                _ => {
                    let pool = self.pools[self.rng.below(self.pools.len() as u64) as usize];
                    (api.cuMemAllocFromPoolAsync)(&raw mut ptr, bytes as usize, pool, stream)
                }
            }
        };
        if result == OUT_OF_MEMORY {
            self.shared.ooms.fetch_add(1, Ordering::Relaxed);
            for _ in 0..=self.blocks.len() / 8 {
                self.free();
            }
            return;
        }
        ok(result);
        let mut live = self.shared.live.lock().expect("no thread panics");
        if let Some((start, end)) = live.range(..ptr + given).next_back() {
            assert!(*end <= ptr, "blocks overlap: {start:#x}..{end:#x} and {ptr:#x}+{given:#x}");
        }
        live.insert(ptr, ptr + given);
        drop(live);
        self.bytes += given;
        let windows = self.windows(given);
        self.blocks.push(Block { ptr, bytes: given, plain: how < 40, home, windows });
        self.refill(self.blocks.len() - 1);
    }

    fn any(&mut self) -> Option<usize> {
        (!self.blocks.is_empty()).then(|| self.rng.below(self.blocks.len() as u64) as usize)
    }

    fn free(&mut self) {
        let Some(at) = self.any() else { return };
        let block = self.blocks.swap_remove(at);
        self.check(&block);
        // Work after the last check, which may still run when the block is somebody else's.
        if self.rng.below(4) == 0 {
            let stream = self.streams[block.home];
            self.kernels.fill(stream, block.ptr, block.windows[0].words, 0xDEAD_BEEF);
        }
        self.give_back(&block);
    }

    fn give_back(&mut self, block: &Block) {
        self.shared.live.lock().expect("no thread panics").remove(&block.ptr);
        self.bytes -= block.bytes;
        let stream = self.streams[block.home];
        let synchronously = if self.pools.is_empty() {
            true
        } else if block.plain {
            self.rng.below(10) < 8
        } else {
            self.rng.below(50) == 0
        };
        // SAFETY: a live block of ours.
        unsafe {
            if synchronously {
                if !block.plain {
                    // Freeing pool memory synchronously is allowed once its work is known to be done.
                    ok((self.api.cuStreamSynchronize)(stream));
                }
                ok((self.api.cuMemFree_v2)(block.ptr));
            } else {
                ok((self.api.cuMemFreeAsync)(block.ptr, stream));
            }
        }
    }

    /// Moves a block's work to another stream, ordered by an event.
    fn migrate(&mut self) {
        let Some(at) = self.any() else { return };
        let to = self.rng.below(self.streams.len() as u64) as usize;
        self.order(self.blocks[at].home, to);
        self.blocks[at].home = to;
    }

    fn order(&self, from: usize, to: usize) {
        // SAFETY: our own event and streams.
        unsafe {
            ok((self.api.cuEventRecord)(self.event, self.streams[from]));
            ok((self.api.cuStreamWaitEvent)(self.streams[to], self.event, 0));
        }
    }

    fn copy(&mut self) {
        let (Some(from), Some(to)) = (self.any(), self.any()) else { return };
        if from == to || self.blocks[from].home != self.blocks[to].home {
            return;
        }
        let source = self.blocks[from].windows[0];
        let (src, dst) = (self.blocks[from].ptr, self.blocks[to].ptr);
        let stream = self.streams[self.blocks[to].home];
        let target = &mut self.blocks[to].windows[0];
        if target.words <= source.words && target.words > 0 {
            target.pattern = source.pattern;
            // SAFETY: both ranges are live and not smaller than the window.
            ok(unsafe { (self.api.cuMemcpyDtoDAsync_v2)(dst, src, target.words as usize * 4, stream) });
        }
    }

    /// Events without meaning: whatever the pool concludes from them must be true all the same.
    fn noise(&mut self) {
        let event = self.shared.noise[self.rng.below(self.shared.noise.len() as u64) as usize].load(Ordering::Relaxed);
        let stream = self.streams[self.rng.below(self.streams.len() as u64) as usize];
        // SAFETY: events that live as long as the run, and our own stream.
        unsafe {
            match self.rng.below(5) {
                0 | 1 => ok((self.api.cuEventRecord)(event, stream)),
                2 | 3 => ok((self.api.cuStreamWaitEvent)(stream, event, 0)),
                _ => {
                    let result = (self.api.cuEventQuery)(event);
                    assert!(matches!(result, OK | CUresult::CUDA_ERROR_NOT_READY), "{result:?}");
                }
            }
        }
    }

    /// A stream goes, with work queued on it, and another comes.
    fn replace_stream(&mut self) {
        if self.streams.len() < 2 {
            return;
        }
        let gone = self.rng.below(self.streams.len() as u64) as usize;
        let heir = (gone + 1) % self.streams.len();
        self.order(gone, heir);
        for block in self.blocks.iter_mut().filter(|block| block.home == gone) {
            block.home = heir;
        }
        // SAFETY: our own stream.
        unsafe {
            ok((self.api.cuStreamDestroy_v2)(self.streams[gone]));
            ok((self.api.cuStreamCreate)(&raw mut self.streams[gone], (self.rng.below(2)) as u32));
        }
    }

    fn replace_pool(&mut self) {
        let at = self.rng.below(self.pools.len() as u64) as usize;
        // SAFETY: our own pool; blocks from it live on.
        ok(unsafe { (self.api.cuMemPoolDestroy)(self.pools[at]) });
        self.pools[at] = mempool(self.api, &mut self.rng);
    }

    /// Captures a fill and an allocation, and launches what was captured.
    fn capture(&mut self) {
        let Some(at) = self.any() else { return };
        let (api, home) = (self.api, self.blocks[at].home);
        let stream = self.streams[home];
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        let (mut graph, mut exec, mut inside) = (null_mut(), null_mut(), 0);
        // SAFETY: our own streams and blocks; all places are live locals.
        unsafe {
            ok((api.cuStreamBeginCapture_v2)(stream, mode));
            let captured = (api.cuMemAllocAsync)(&raw mut inside, 4096, stream);
            if captured == OK {
                self.kernels.fill(stream, inside, 1024, 5);
                ok((api.cuMemFreeAsync)(inside, stream));
            }
            self.refill(at);
            // While a capture is under way, others go on.
            let other = self.streams[(home + 1) % self.streams.len()];
            if other != stream {
                let mut beside = 0;
                if (api.cuMemAllocAsync)(&raw mut beside, 10_000, other) == OK {
                    self.kernels.fill(other, beside, 2500, 6);
                    ok((api.cuMemFreeAsync)(beside, other));
                }
            }
            ok((api.cuStreamEndCapture)(stream, &raw mut graph));
            // A graph needs memory of the driver's own; if there is none, its fill is made otherwise.
            let mut launched = (api.cuGraphInstantiateWithFlags)(&raw mut exec, graph, 0);
            if launched == OK {
                launched = (api.cuGraphLaunch)(exec, stream);
                ok((api.cuStreamSynchronize)(stream));
                ok((api.cuGraphExecDestroy)(exec));
            }
            if launched != OK {
                assert_eq!(launched, OUT_OF_MEMORY);
                self.refill(at);
            }
            ok((api.cuGraphDestroy)(graph));
        }
    }

    /// What the driver reports about a block must be about the block.
    fn describe(&mut self) {
        let Some(at) = self.any() else { return };
        let block = &self.blocks[at];
        let inside = block.ptr + self.rng.below(block.bytes);
        let (mut base, mut size, mut start) = (0, 0, 0u64);
        let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR;
        // SAFETY: all places are live locals of the right types.
        unsafe {
            ok((self.api.cuMemGetAddressRange_v2)(&raw mut base, &raw mut size, inside));
            ok((self.api.cuPointerGetAttribute)((&raw mut start).cast(), attribute, inside));
        }
        assert_eq!((base, size as u64, start), (block.ptr, block.bytes, block.ptr));
    }

    fn synchronise(&mut self) {
        // SAFETY: our own streams.
        unsafe {
            match self.rng.below(40) {
                0 => ok((self.api.cuCtxSynchronize)()),
                1..20 => {
                    ok((self.api.cuStreamSynchronize)(
                        self.streams[self.rng.below(self.streams.len() as u64) as usize],
                    ));
                }
                _ => {
                    let stream = self.streams[self.rng.below(self.streams.len() as u64) as usize];
                    let result = (self.api.cuStreamQuery)(stream);
                    assert!(matches!(result, OK | CUresult::CUDA_ERROR_NOT_READY), "{result:?}");
                }
            }
        }
        self.no_errors();
    }

    fn no_errors(&self) {
        // SAFETY: a word of page-locked memory that only kernels write to.
        let errors = unsafe { self.errors.read_volatile() };
        assert_eq!(errors, 0, "words with a broken pattern");
    }

    /// Exports a block to the other process, or has it checked there, or takes it back.
    fn share(&mut self) {
        let Some(peer) = &mut self.peer else { return };
        match self.rng.below(4) {
            0 if self.exported.len() < 12 => {
                let (mut ptr, bytes) = (0, (64 << 10) + self.rng.below(256 << 10));
                // SAFETY: the place is a live local.
                if unsafe { (self.api.cuMemAlloc_v2)(&raw mut ptr, bytes as usize) } != OK {
                    return;
                }
                let block = Block { ptr, bytes, plain: true, home: 0, windows: Vec::new() };
                let number = peer.open(self.api, ptr);
                self.shared.live.lock().expect("no thread panics").insert(ptr, ptr + bytes);
                self.bytes += bytes;
                self.exported.push((block, number));
            }
            1 if !self.exported.is_empty() => {
                let at = self.rng.below(self.exported.len() as u64) as usize;
                let (block, number) = self.exported.swap_remove(at);
                peer.close(number);
                self.give_back(&block);
            }
            _ if !self.exported.is_empty() => {
                let at = self.rng.below(self.exported.len() as u64) as usize;
                let (block, number) = &self.exported[at];
                self.pattern = self.pattern.wrapping_add(2);
                self.kernels.fill(self.streams[0], block.ptr, block.bytes / 4, self.pattern);
                // SAFETY: our own stream.
                ok(unsafe { (self.api.cuStreamSynchronize)(self.streams[0]) });
                peer.check(*number, block.bytes / 4, self.pattern);
            }
            _ => {}
        }
    }

    /// Keeps the queues short: the virtual GPU looks through them at every call.
    fn drain(&mut self) {
        self.since += 1;
        if self.since >= 48 {
            self.since = 0;
            let stream = self.streams[self.rng.below(self.streams.len() as u64) as usize];
            // SAFETY: our own stream.
            ok(unsafe { (self.api.cuStreamSynchronize)(stream) });
            self.no_errors();
        }
    }

    /// What the focus selects, one time in four.
    fn focus(&mut self) {
        let stream = self.streams[self.rng.below(self.streams.len() as u64) as usize];
        match self.focus {
            Focus::Nothing => {}
            // SAFETY: takes nothing.
            Focus::Epochs if self.leader => ok(unsafe { (self.api.cuCtxSynchronize)() }),
            Focus::Epochs => self.kernels.spin(stream, 1000 * self.rng.below(50)),
            Focus::Events => self.noise(),
            Focus::Waits => self.kernels.spin(stream, 1000 * self.rng.below(30)),
        }
    }

    fn step(&mut self) {
        self.drain();
        if self.rng.below(4) == 0 {
            self.focus();
        }
        match self.rng.below(2000) {
            0..640 => self.allocate(),
            640..1260 => self.free(),
            1260..1480 => {
                if let Some(at) = self.any() {
                    self.check(&self.blocks[at]);
                }
            }
            1480..1600 => {
                if let Some(at) = self.any() {
                    self.refill(at);
                }
            }
            1600..1680 => self.copy(),
            1680..1790 => self.migrate(),
            1790..1860 => self.noise(),
            1860..1910 => self.describe(),
            1910..1950 => self.synchronise(),
            1950..1980 => {
                let stream = self.streams[self.rng.below(self.streams.len() as u64) as usize];
                self.kernels.spin(stream, 1000 * self.rng.below(100));
            }
            1980..1985 => self.replace_stream(),
            1985..1990 => self.share(),
            1990..1992 if !self.pools.is_empty() => self.replace_pool(),
            1992..1994 if !self.pools.is_empty() => {
                let pool = self.pools[0];
                // SAFETY: our own pool.
                ok(unsafe { (self.api.cuMemPoolTrimTo)(pool, self.rng.below(64 << 20) as usize) });
            }
            1994 if !self.plain => self.capture(),
            _ => {
                let (mut free, mut total) = (0, 0);
                // SAFETY: both places are live locals.
                ok(unsafe { (self.api.cuMemGetInfo_v2)(&raw mut free, &raw mut total) });
                assert!(free <= total, "{free} of {total}");
            }
        }
    }

    /// Gives everything back, and looks a last time.
    fn finish(&mut self) {
        for (block, number) in std::mem::take(&mut self.exported) {
            if let Some(peer) = &mut self.peer {
                peer.close(number);
            }
            self.give_back(&block);
        }
        while !self.blocks.is_empty() {
            self.free();
        }
        // SAFETY: takes nothing.
        ok(unsafe { (self.api.cuCtxSynchronize)() });
        self.no_errors();
    }
}

fn mempool(api: &Api, rng: &mut Rng) -> CUmemoryPool {
    let properties = CUmemPoolProps {
        allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        location: CUmemLocation::of(CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, 0),
        ..CUmemPoolProps::default()
    };
    let mut pool = null_mut();
    // SAFETY: both places are live locals.
    ok(unsafe { (api.cuMemPoolCreate)(&raw mut pool, &raw const properties) });
    for attribute in [
        CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
        CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
        CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
    ] {
        let mut on = i32::from(rng.below(4) > 0);
        // SAFETY: these attributes are ints.
        ok(unsafe { (api.cuMemPoolSetAttribute)(pool, attribute, (&raw mut on).cast()) });
    }
    pool
}

/// One run of `ops` operations on each of the threads, from fresh streams to nothing left.
fn run(options: &Options, ops: u64, seed: u64) -> (u64, u64) {
    let api = Api::load();
    context_on(api, 0);
    // A device without memory pools has only synchronous allocation and freeing.
    let mut pool = null_mut();
    // SAFETY: the place is a live local.
    let pooled = unsafe { (api.cuDeviceGetDefaultMemPool)(&raw mut pool, 0) } == OK;
    let plain = options.plain || !pooled;
    let kernels = Kernels::load(api);
    let (mut free, mut total) = (0, 0);
    // SAFETY: both places are live locals.
    ok(unsafe { (api.cuMemGetInfo_v2)(&raw mut free, &raw mut total) });
    let event = || {
        let mut event = null_mut();
        // SAFETY: the place is a live local.
        ok(unsafe { (api.cuEventCreate)(&raw mut event, CUevent_flags::CU_EVENT_DISABLE_TIMING.0) });
        event
    };
    let shared = Shared {
        api,
        live: Mutex::new(BTreeMap::new()),
        noise: (0..8).map(|_| AtomicPtr::new(event())).collect(),
        ooms: AtomicU64::new(0),
    };
    let (start, done) = (Barrier::new(options.threads), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..options.threads {
            let (shared, start, done) = (&shared, &start, &done);
            scope.spawn(move || {
                let api = shared.api;
                context_on(api, 0);
                let mut rng = Rng::new(seed * 1000 + thread as u64);
                let stream = |rng: &mut Rng| {
                    let mut stream = null_mut();
                    // SAFETY: the place is a live local.
                    ok(unsafe { (api.cuStreamCreate)(&raw mut stream, rng.below(2) as u32) });
                    stream
                };
                let streams = (0..options.streams).map(|_| stream(&mut rng)).collect();
                let pools = if pooled { (0..2).map(|_| mempool(api, &mut rng)).collect() } else { Vec::new() };
                let mut place = null_mut();
                // SAFETY: the place is a live local; the memory is the kernels' to count in.
                let errors = unsafe {
                    ok((api.cuMemHostAlloc)(&raw mut place, 64, 0));
                    place.cast::<u32>().write(0);
                    place.cast::<u32>()
                };
                let mut own = null_mut();
                // SAFETY: the place is a live local.
                ok(unsafe { (api.cuEventCreate)(&raw mut own, CUevent_flags::CU_EVENT_DISABLE_TIMING.0) });
                let peer = (options.peer && thread == 0).then(Peer::start);
                let pattern = (seed as u32) << 8 ^ (thread as u32) << 28 | 1;
                // A little more than there is, so that the pool has to compact and to refuse.
                let limit = total as u64 * 102 / 100 / options.threads as u64;
                let mut worker = Worker {
                    shared,
                    api,
                    kernels,
                    rng,
                    streams,
                    pools,
                    event: own,
                    blocks: Vec::new(),
                    bytes: 0,
                    limit,
                    pattern,
                    errors,
                    peer,
                    exported: Vec::new(),
                    since: 0,
                    focus: options.focus,
                    leader: thread == 0,
                    plain,
                };
                start.wait();
                // A panic of one thread is the end of all: the others would wait for ever.
                let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    for number in 0..ops {
                        if number % 64 == 0 && options.end.is_some_and(|end| Instant::now() >= end) {
                            break;
                        }
                        worker.step();
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    worker.finish();
                }));
                if ended.is_err() {
                    std::process::exit(1);
                }
            });
        }
    });
    api::check_pools();
    assert!(!options.nothing_lost || api::lost_bytes() == 0, "{} bytes failed to come back", api::lost_bytes());
    if options.resets {
        // SAFETY: all threads have ended.
        unsafe {
            let mut ptr = 0;
            // What is still allocated goes with the context.
            ok((api.cuMemAlloc_v2)(&raw mut ptr, 3 << 20));
            ok((api.cuDevicePrimaryCtxReset_v2)(0));
        }
    }
    (shared.ooms.into_inner(), done.into_inner())
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("--importer") {
        return soak_peer::importer();
    }
    let options = options();
    let began = Instant::now();
    let each = options.ops / options.threads as u64;
    let (rounds, mut ooms, mut done) = (if options.resets { 10 } else { 1 }, 0, 0);
    for round in 0..rounds {
        let (refused, made) = run(&options, each / rounds, options.seed + round * 7919);
        (ooms, done) = (ooms + refused, done + made);
    }
    let [remaps, meshes, migrated] = api::moved();
    println!(
        "{{\"test\":\"pool-soak\",\"operations\":{},\"seed\":{},\"streams\":{},\"threads\":{},\"refused\":{ooms},\
         \"remaps\":{remaps},\"meshes\":{meshes},\"migrated\":{migrated},\"seconds\":{:.1}}}",
        done,
        options.seed,
        options.streams,
        options.threads,
        began.elapsed().as_secs_f64()
    );
}

//! What every thread of the program has: contexts, kernels, a stream, a word for errors, and the words in which
//! it judges a call. CUDA's rules are obeyed, so that a wrong answer is not this program's fault.

use crate::driver::cu::*;
use crate::watch::{self, Watched};
use std::ffi::CString;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use weir_cuda::*;
use weir_tests::rng::Rng;

pub(crate) const MIB: u64 = 1 << 20;

/// What became of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Done,
    /// Out of memory.
    Refused,
    /// A capture forbade it, or was lost by it.
    Disturbed,
}

/// What all threads share.
pub(crate) struct Shared {
    pub(crate) contexts: Vec<Context>,
    pub(crate) until: Instant,
    pub(crate) refused: AtomicU64,
    pub(crate) disturbed: AtomicU64,
}

// SAFETY: handles of the driver, which any thread may use.
unsafe impl Sync for Shared {}

/// A context with the test kernels in it.
#[derive(Clone, Copy)]
pub(crate) struct Context {
    pub(crate) handle: CUcontext,
    pub(crate) device: i32,
    fill: CUfunction,
    check: CUfunction,
    start: CUfunction,
    wait: CUfunction,
}

impl Context {
    /// The kernels in the context that is current, without the global of their module: the witness counts
    /// memory that the job requested.
    pub(crate) fn load(handle: CUcontext, device: i32, loads: impl Fn(*mut CUmodule, *const c_void)) -> Self {
        let text = include_str!("../kernels.ptx");
        let text: String =
            text.lines().filter(|line| !line.contains(".global .align")).fold(String::new(), |a, l| a + l + "\n");
        let text = CString::new(text).expect("no zero in the text");
        let mut module = null_mut();
        loads(&raw mut module, text.as_ptr().cast());
        let find = |name: &std::ffi::CStr| {
            let mut function = null_mut();
            must_be_done("cuModuleGetFunction", cuModuleGetFunction(&raw mut function, module, name.as_ptr()));
            function
        };
        let [fill, check, start, wait] = [c"weir_fill", c"weir_check", c"weir_start", c"weir_await"].map(find);
        Self { handle, device, fill, check, start, wait }
    }
}

/// Ends the process: the call gave what it must not.
pub(crate) fn fail(who: &str, what: &str, message: &str) -> ! {
    eprintln!("stress: FAILED: {who}: {what}: {message}");
    watch::print_all();
    watch::leave(1)
}

pub(crate) fn must_be_done(what: &str, code: CUresult) {
    if code != CUresult::CUDA_SUCCESS {
        fail("start", what, &format!("{code:?}"));
    }
}

/// Memory with a known content.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    pub(crate) ptr: u64,
    pub(crate) bytes: u64,
    pub(crate) pattern: u32,
}

impl Block {
    /// The words that are written and checked: both ends.
    fn ends(&self) -> [(u64, u64); 2] {
        let words = (self.bytes / 4).min(512);
        [(self.ptr, words), (self.ptr + self.bytes / 4 * 4 - words * 4, words)]
    }
}

/// One thread.
pub(crate) struct Job<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) watched: &'static Watched,
    pub(crate) rng: Rng,
    /// The context that is current.
    pub(crate) context: Context,
    pub(crate) stream: CUstream,
    errors: *mut u32,
    pattern: u32,
}

impl<'a> Job<'a> {
    pub(crate) fn new(shared: &'a Shared, name: String, seed: u64, device: usize) -> Self {
        let watched = Watched::begin(name);
        let context = shared.contexts[device % shared.contexts.len()];
        let mut job =
            Self { shared, watched, rng: Rng::new(seed), context, stream: null_mut(), errors: null_mut(), pattern: 1 };
        job.use_context(context);
        job.stream = job.new_stream();
        job.errors = job.pinned();
        job
    }

    pub(crate) fn over(&self) -> bool {
        Instant::now() >= self.shared.until
    }

    fn judge(&self, what: &str, code: CUresult) -> Verdict {
        match code.0 {
            0 => Verdict::Done,
            2 => {
                self.shared.refused.fetch_add(1, Relaxed);
                Verdict::Refused
            }
            // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED to CUDA_ERROR_STREAM_CAPTURE_IMPLICIT.
            900..=906 => {
                self.shared.disturbed.fetch_add(1, Relaxed);
                Verdict::Disturbed
            }
            _ => fail(&self.watched.name, what, &format!("{code:?}")),
        }
    }

    /// A call that may be refused or disturbed.
    pub(crate) fn call(&self, what: &'static str, call: impl FnOnce() -> CUresult) -> Verdict {
        self.watched.step(what);
        self.judge(what, call())
    }

    /// A call that must succeed, once no capture is in its way.
    pub(crate) fn must(&self, what: &'static str, call: impl Fn() -> CUresult) {
        self.watched.step(what);
        loop {
            match self.judge(what, call()) {
                Verdict::Done => return,
                Verdict::Refused => fail(&self.watched.name, what, "out of memory"),
                Verdict::Disturbed => std::thread::sleep(Duration::from_micros(100)),
            }
        }
    }

    pub(crate) fn use_context(&mut self, context: Context) {
        self.must("cuCtxSetCurrent", || cuCtxSetCurrent(context.handle));
        self.context = context;
    }

    pub(crate) fn new_stream(&mut self) -> CUstream {
        let flags = u32::from(!self.rng.one_in(4));
        self.new_stream_with(flags)
    }

    pub(crate) fn new_stream_with(&self, flags: u32) -> CUstream {
        let mut stream = null_mut();
        let place = &raw mut stream;
        self.must("cuStreamCreate", || cuStreamCreate(place, flags));
        stream
    }

    pub(crate) fn new_event(&self) -> CUevent {
        let mut event = null_mut();
        let place = &raw mut event;
        self.must("cuEventCreate", || cuEventCreate(place, 2));
        event
    }

    /// A word of pinned memory, which every device reaches.
    pub(crate) fn pinned(&self) -> *mut u32 {
        let mut word = null_mut();
        let place = &raw mut word;
        self.must("cuMemHostAlloc", || cuMemHostAlloc(place, 4096, 1));
        // SAFETY: fresh memory that no work knows.
        unsafe { word.cast::<u32>().write(0) };
        word.cast()
    }

    pub(crate) fn size(&mut self) -> u64 {
        match self.rng.below(10) {
            0..2 => 1024 + self.rng.below(64 << 10),
            2..5 => MIB / 4 + self.rng.below(2 * MIB),
            _ => 2 * MIB + self.rng.below(8 * MIB),
        }
    }

    /// Another mode of captures for the calls of this thread.
    pub(crate) fn exchange_mode(&mut self) {
        let mut mode = CUstreamCaptureMode(self.rng.below(3) as u32);
        let place = &raw mut mode;
        self.must("cuThreadExchangeStreamCaptureMode", || cuThreadExchangeStreamCaptureMode(place));
    }

    fn launch(&self, what: &'static str, f: CUfunction, stream: CUstream, arguments: &mut [*mut c_void]) -> Verdict {
        let arguments = arguments.as_mut_ptr();
        self.call(what, || cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, arguments, null_mut()))
    }

    /// A new pattern for a block, by kernels in a stream.
    pub(crate) fn fill_in(&mut self, block: &mut Block, stream: CUstream) -> Verdict {
        self.pattern = self.pattern.wrapping_add(0x9E37_79B1) | 1;
        block.pattern = self.pattern;
        let mut verdict = Verdict::Done;
        for (mut ptr, mut words) in block.ends() {
            let mut pattern = block.pattern;
            let mut arguments = [(&raw mut ptr).cast(), (&raw mut words).cast(), (&raw mut pattern).cast()];
            let now = self.launch("weir_fill", self.context.fill, stream, &mut arguments);
            if now != Verdict::Done {
                verdict = now;
            }
        }
        verdict
    }

    pub(crate) fn check_in(&self, block: &Block, stream: CUstream) -> Verdict {
        let mut verdict = Verdict::Done;
        for (mut ptr, mut words) in block.ends() {
            let (mut pattern, mut errors) = (block.pattern, self.errors as u64);
            let mut arguments =
                [(&raw mut ptr).cast(), (&raw mut words).cast(), (&raw mut pattern).cast(), (&raw mut errors).cast()];
            let now = self.launch("weir_check", self.context.check, stream, &mut arguments);
            if now != Verdict::Done {
                verdict = now;
            }
        }
        verdict
    }

    /// Work in a stream that does not capture is never disturbed.
    pub(crate) fn fill(&mut self, block: &mut Block, stream: CUstream) {
        let verdict = self.fill_in(block, stream);
        self.expect_done("weir_fill", verdict);
    }

    pub(crate) fn check(&self, block: &Block, stream: CUstream) {
        self.expect_done("weir_check", self.check_in(block, stream));
    }

    pub(crate) fn expect_done(&self, what: &str, verdict: Verdict) {
        if verdict != Verdict::Done {
            fail(&self.watched.name, what, &format!("{verdict:?} in a stream that does not capture"));
        }
    }

    /// Marks a word when it runs.
    pub(crate) fn start(&self, stream: CUstream, flag: *mut u32) {
        let mut flag = flag as u64;
        let verdict = self.launch("weir_start", self.context.start, stream, &mut [(&raw mut flag).cast()]);
        self.expect_done("weir_start", verdict);
    }

    /// Runs until the word is marked.
    pub(crate) fn wait(&self, stream: CUstream, flag: *mut u32) {
        let mut flag = flag as u64;
        let verdict = self.launch("weir_await", self.context.wait, stream, &mut [(&raw mut flag).cast()]);
        self.expect_done("weir_await", verdict);
    }

    pub(crate) fn alloc(&mut self, bytes: u64) -> Option<Block> {
        let mut ptr = 0;
        let place = &raw mut ptr;
        let done = self.call("cuMemAlloc", || cuMemAlloc_v2(place, bytes as usize)) == Verdict::Done;
        done.then_some(Block { ptr, bytes, pattern: 0 })
    }

    pub(crate) fn alloc_async(&mut self, bytes: u64, stream: CUstream) -> Option<Block> {
        let mut ptr = 0;
        let place = &raw mut ptr;
        let done = self.call("cuMemAllocAsync", || cuMemAllocAsync(place, bytes as usize, stream)) == Verdict::Done;
        done.then_some(Block { ptr, bytes, pattern: 0 })
    }

    pub(crate) fn free(&self, block: &Block) {
        self.must("cuMemFree", || cuMemFree_v2(block.ptr));
    }

    pub(crate) fn free_async(&self, block: &Block, stream: CUstream) {
        self.must("cuMemFreeAsync", || cuMemFreeAsync(block.ptr, stream));
    }

    pub(crate) fn synchronise(&self, stream: CUstream) {
        self.must("cuStreamSynchronize", || cuStreamSynchronize(stream));
    }

    /// The later work of a stream comes after the earlier work of another.
    pub(crate) fn follow(&self, later: CUstream, earlier: CUstream) {
        let event = self.new_event();
        self.must("cuEventRecord", || cuEventRecord(event, earlier));
        self.must("cuStreamWaitEvent", || cuStreamWaitEvent(later, event, 0));
        self.must("cuEventDestroy", || cuEventDestroy_v2(event));
    }

    /// The end of a thread: everything it requested has been right.
    pub(crate) fn end(&self) {
        self.synchronise(self.stream);
        // SAFETY: a pinned word of our own; the work on it was waited for.
        let errors = unsafe { self.errors.read_volatile() };
        if errors != 0 {
            fail(&self.watched.name, "content", &format!("{errors} words are not what was written"));
        }
        self.watched.end();
    }
}

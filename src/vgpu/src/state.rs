//! The driver's whole state behind one lock: devices, contexts, and everything that hangs on them.
//! Bodies of driver functions take the lock, change the state, and give it back; only host functions
//! of the job run outside it.

use crate::api::texture::Texture;
use crate::array::Array;
use crate::config;
use crate::device::Device;
use crate::engine::{Clock, Engine};
use crate::error::*;
use crate::graph::Graphs;
use crate::kernel::Modules;
use crate::pool::Pool;
use crate::space::Space;
use crate::violation;
use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use weir_cuda::{CUcontext, CUresult};

/// Hashes the driver's own handles, which are distinct numbers already.
#[derive(Default)]
pub(crate) struct HandleHasher(u64);

impl Hasher for HandleHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(u64::from(b));
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(26);
    }
}

/// A map keyed by handles or addresses.
pub(crate) type Map<T> = HashMap<u64, T, BuildHasherDefault<HandleHasher>>;

/// A context, primary or created.
pub(crate) struct Context {
    pub(crate) device: usize,
    pub(crate) primary: bool,
    /// How often a primary context is retained; a created one counts as one.
    pub(crate) users: u32,
    pub(crate) flags: u32,
    /// Unique for ever, for `cuCtxGetId`.
    pub(crate) id: u64,
    /// Its legacy default stream.
    pub(crate) legacy: u64,
    /// The default streams of threads.
    pub(crate) per_thread: Map<u64>,
    /// The stream in which events of the whole context are recorded; 0 before the first.
    pub(crate) marks: u64,
    /// What the work of streams that are made from now on waits for.
    pub(crate) gate: Clock,
    /// Contexts whose memory its kernels may touch.
    pub(crate) peers: Vec<u64>,
    /// An error that makes every later call fail.
    pub(crate) sticky: Option<CUresult>,
    pub(crate) limits: HashMap<u32, usize>,
    pub(crate) cache_config: u32,
    pub(crate) shared_config: u32,
    /// Device memory that the stacks of its threads hold.
    pub(crate) local: u64,
}

/// Everything.
pub(crate) struct State {
    pub(crate) devices: Vec<Device>,
    pub(crate) contexts: Map<Context>,
    pub(crate) engine: Engine,
    pub(crate) space: Space,
    pub(crate) pools: Map<Pool>,
    pub(crate) arrays: Map<Array>,
    pub(crate) textures: Map<Texture>,
    pub(crate) modules: Modules,
    pub(crate) graphs: Graphs,
    next: u64,
}

// SAFETY: the raw pointers in it are the job's opaque values, which are only kept and given back.
unsafe impl Send for State {}

static STATE: Mutex<Option<Box<State>>> = Mutex::new(None);
/// Notified whenever work completes or arrives.
pub(crate) static CHANGED: Condvar = Condvar::new();
static FORKED: AtomicBool = AtomicBool::new(false);

/// The locked state.
pub(crate) struct Driver(MutexGuard<'static, Option<Box<State>>>);

impl Deref for Driver {
    type Target = State;
    fn deref(&self) -> &State {
        self.0.as_ref().unwrap_or_else(|| violation::broken("state used before cuInit"))
    }
}

impl DerefMut for Driver {
    fn deref_mut(&mut self) -> &mut State {
        self.0.as_mut().unwrap_or_else(|| violation::broken("state used before cuInit"))
    }
}

impl Driver {
    /// Lets others work until they report a change or so much time has passed.
    pub(crate) fn wait(self, until: &Condvar, at_most: std::time::Duration) -> Self {
        let (guard, _) = match until.wait_timeout(self.0, at_most) {
            Ok(pair) => pair,
            Err(poisoned) => poisoned.into_inner(),
        };
        Self(guard)
    }
}

fn lock() -> MutexGuard<'static, Option<Box<State>>> {
    STATE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The locked state, once the driver is initialised.
pub(crate) fn driver() -> R<Driver> {
    let guard = lock();
    if guard.is_none() { Err(NOT_INITIALIZED) } else { Ok(Driver(guard)) }
}

/// Whether this process is a forked child of one that had initialised the driver.
pub(crate) fn forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// `cuInit`.
pub(crate) fn initialize() -> R {
    let mut guard = lock();
    if guard.is_some() {
        return Ok(());
    }
    let config = config::get();
    if config.error.is_some() {
        return Err(UNKNOWN);
    }
    let devices = Device::all(config)?;
    if devices.is_empty() {
        return Err(NO_DEVICE);
    }
    let mut state = Box::new(State {
        devices,
        contexts: Map::default(),
        engine: Engine::new(config.seed),
        space: Space::default(),
        pools: Map::default(),
        arrays: Map::default(),
        textures: Map::default(),
        modules: Modules::default(),
        graphs: Graphs::default(),
        next: 0x10_0000_0000,
    });
    state.make_default_pools();
    *guard = Some(state);
    // SAFETY: registers a function that only stores to an atomic.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    Ok(())
}

thread_local! {
    static STACK: Cell<[u64; 64]> = const { Cell::new([0; 64]) };
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static PER_THREAD: Cell<bool> = const { Cell::new(false) };
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
    static CAPTURE_MODE: Cell<u32> = const { Cell::new(0) };
}

/// What belongs to the calling thread.
pub(crate) mod thread {
    use super::*;

    /// The number of the calling thread.
    pub(crate) fn id() -> u64 {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        thread_local!(static ID: Cell<u64> = const { Cell::new(0) });
        ID.with(|id| {
            if id.get() == 0 {
                id.set(NEXT.fetch_add(1, Ordering::Relaxed));
            }
            id.get()
        })
    }

    pub(crate) fn current() -> u64 {
        let depth = DEPTH.get();
        if depth == 0 { 0 } else { STACK.get()[depth - 1] }
    }

    pub(crate) fn set_current(ctx: u64) {
        let mut stack = STACK.get();
        let depth = DEPTH.get();
        match (depth, ctx) {
            (0, 0) => {}
            (0, _) => {
                stack[0] = ctx;
                DEPTH.set(1);
            }
            (_, 0) => DEPTH.set(depth - 1),
            (_, _) => stack[depth - 1] = ctx,
        }
        STACK.set(stack);
    }

    pub(crate) fn push(ctx: u64) -> R {
        let mut stack = STACK.get();
        let depth = DEPTH.get();
        *stack.get_mut(depth).ok_or(OUT_OF_MEMORY)? = ctx;
        STACK.set(stack);
        DEPTH.set(depth + 1);
        Ok(())
    }

    pub(crate) fn pop() -> R<u64> {
        let depth = DEPTH.get();
        if depth == 0 {
            return Err(INVALID_CONTEXT);
        }
        DEPTH.set(depth - 1);
        Ok(STACK.get()[depth - 1])
    }

    /// Whether stream 0 of the present call means the thread's own default stream.
    pub(crate) fn per_thread() -> bool {
        PER_THREAD.get()
    }

    pub(crate) fn set_per_thread(on: bool) {
        PER_THREAD.set(on);
    }

    pub(crate) fn in_host_function() -> bool {
        IN_HOST_FUNCTION.get()
    }

    pub(crate) fn set_in_host_function(on: bool) {
        IN_HOST_FUNCTION.set(on);
    }

    /// `CUstreamCaptureMode` of the thread.
    pub(crate) fn capture_mode() -> u32 {
        CAPTURE_MODE.get()
    }

    pub(crate) fn set_capture_mode(mode: u32) {
        CAPTURE_MODE.set(mode);
    }
}

impl State {
    /// A handle, or the id of a block, that was never used before.
    pub(crate) fn fresh(&mut self) -> u64 {
        self.next += 0x10;
        self.next
    }

    /// The device behind an ordinal of the job.
    pub(crate) fn device(&self, ordinal: i32) -> R<usize> {
        usize::try_from(ordinal).ok().filter(|&d| d < self.devices.len()).ok_or(INVALID_DEVICE)
    }

    /// The calling thread's context, if it can be used.
    pub(crate) fn current(&self) -> R<u64> {
        let ctx = thread::current();
        if ctx == 0 {
            return Err(INVALID_CONTEXT);
        }
        self.usable(ctx)
    }

    /// A context that is alive and without a sticky error.
    pub(crate) fn usable(&self, ctx: u64) -> R<u64> {
        match self.contexts.get(&ctx) {
            Some(c) if c.users > 0 => c.sticky.map_or(Ok(ctx), Err),
            _ => Err(CONTEXT_IS_DESTROYED),
        }
    }

    /// The context of an argument: the given one, or the current one for NULL.
    pub(crate) fn context_or_current(&self, ctx: CUcontext) -> R<u64> {
        if ctx.is_null() { self.current() } else { self.known(ctx) }
    }

    /// A context given by the job.
    pub(crate) fn known(&self, ctx: CUcontext) -> R<u64> {
        let handle = ctx as u64;
        match self.contexts.get(&handle) {
            Some(c) if c.users > 0 => c.sticky.map_or(Ok(handle), Err),
            Some(_) => Err(CONTEXT_IS_DESTROYED),
            None if handle != 0 && handle <= self.next => Err(CONTEXT_IS_DESTROYED),
            None => Err(INVALID_CONTEXT),
        }
    }

    /// The device of the current context, with the context.
    pub(crate) fn current_device(&self) -> R<(u64, usize)> {
        let ctx = self.current()?;
        Ok((ctx, self.contexts[&ctx].device))
    }

    /// Makes a context on a device.
    pub(crate) fn make_context(&mut self, device: usize, flags: u32, primary: bool) -> R<u64> {
        let overhead = config::get().context_bytes;
        if !self.devices[device].take(overhead) {
            return Err(OUT_OF_MEMORY);
        }
        let handle = match self.devices[device].primary {
            known if primary && known != 0 => known,
            _ => self.fresh(),
        };
        let id = self.fresh();
        let legacy = self.fresh();
        self.engine.add_stream(legacy, handle, device, false, 0);
        let context = Context {
            device,
            primary,
            users: 1,
            flags,
            id,
            legacy,
            per_thread: Map::default(),
            marks: 0,
            gate: Clock::default(),
            peers: Vec::new(),
            sticky: None,
            limits: HashMap::new(),
            cache_config: 0,
            shared_config: 0,
            local: 0,
        };
        self.contexts.insert(handle, context);
        self.devices[device].context_made();
        if primary {
            self.devices[device].primary = handle;
        }
        Ok(handle)
    }

    /// Destroys a context with everything in it. Its queued work has been waited for.
    pub(crate) fn destroy_context(&mut self, ctx: u64) {
        let Some(context) = self.contexts.get_mut(&ctx) else { return };
        if config::fault("destroyed_context") {
            return;
        }
        context.users = 0;
        let device = context.device;
        self.free_all_of(ctx);
        self.engine.drop_context(ctx);
        self.unload_code_of(ctx);
        self.drop_local(ctx);
        self.modules.drop_context(ctx);
        self.graphs.drop_context(ctx);
        self.graph_memory_of_context_gone(ctx);
        for other in self.contexts.values_mut() {
            other.peers.retain(|&p| p != ctx);
        }
        self.devices[device].give(config::get().context_bytes);
        self.devices[device].context_gone();
        let keep = self.contexts.get(&ctx).is_some_and(|c| c.primary);
        if !keep {
            self.contexts.remove(&ctx);
        }
    }

    /// The stream of an argument: NULL, legacy and per-thread values resolved.
    pub(crate) fn stream(&mut self, stream: weir_cuda::CUstream) -> R<u64> {
        let handle = stream as u64;
        match handle {
            0 if thread::per_thread() => self.per_thread_stream(),
            0 | 1 => Ok(self.contexts[&self.current()?].legacy),
            2 => self.per_thread_stream(),
            _ => {
                let ctx = self.engine.context_of(handle).ok_or(INVALID_HANDLE)?;
                self.usable(ctx)?;
                Ok(handle)
            }
        }
    }

    fn per_thread_stream(&mut self) -> R<u64> {
        let (ctx, device) = self.current_device()?;
        let thread = thread::id();
        if let Some(&known) = self.contexts[&ctx].per_thread.get(&thread) {
            return Ok(known);
        }
        let handle = self.new_stream(ctx, device, false, 0);
        if let Some(context) = self.contexts.get_mut(&ctx) {
            context.per_thread.insert(thread, handle);
        }
        Ok(handle)
    }
}

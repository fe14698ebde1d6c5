//! One launch: its shape checked, its arguments copied, and the memory that they point at.

use super::builtin::Call;
use super::modules::{Function, TOO_LARGE};
use super::occupancy::Limits;
use super::ptx::Entry;
use super::published;
use crate::engine::{Touch, Touches};
use crate::error::*;
use crate::state::State;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use weir_cuda::CUresult;

/// Names of settings in the `extra` argument of a launch.
const EXTRA_END: usize = 0;
const EXTRA_BUFFER: usize = 1;
const EXTRA_SIZE: usize = 2;

/// The shape of a launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Geometry {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Dynamic shared memory of a block.
    pub(crate) shared: u32,
    /// Blocks of a cluster; ones without clusters.
    pub(crate) cluster: [u32; 3],
    /// All blocks run at once.
    pub(crate) cooperative: bool,
}

impl Geometry {
    pub(crate) fn new(grid: [u32; 3], block: [u32; 3], shared: u32) -> Self {
        Self { grid, block, shared, cluster: [1; 3], cooperative: false }
    }
}

/// One launch of a kernel.
#[derive(Debug)]
pub(crate) struct Launch {
    /// The function's handle.
    pub(crate) function: u64,
    pub(crate) entry: Arc<Entry>,
    pub(crate) geometry: Geometry,
    /// The parameters in the device's layout; empty where the layout is not known.
    pub(crate) arguments: Vec<u8>,
    pub(super) call: Option<Call>,
    /// When a kernel that takes its time will be over, in nanoseconds of [`now`]; 0 before it begins.
    over: AtomicU64,
}

/// Nanoseconds since some moment before the first launch, never 0.
fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1
}

impl Launch {
    /// Whether the kernel, which is first in its stream, is over by now. One that takes no time is;
    /// `weir_spin` begins with the first question, and `weir_await` is over when another has begun.
    pub(crate) fn over(&self, touches: &Touches) -> bool {
        let Some(Call::Spin { nanos }) = self.call else {
            return self.call.is_none_or(|call| call.marked(touches));
        };
        match self.over.load(Relaxed) {
            0 => {
                self.over.store(now().saturating_add(nanos), Relaxed);
                nanos == 0
            }
            over => now() >= over,
        }
    }

    /// A node of a graph runs again.
    pub(super) fn begin_anew(&self) {
        self.over.store(0, Relaxed);
    }
}

/// Refuses a shape that the device or the kernel cannot run.
fn check(geometry: &Geometry, f: &Function, dynamic_limit: u32) -> R {
    let limits = Limits::get();
    let within = |dims: &[u32; 3], most: &[u32; 3]| dims.iter().zip(most).all(|(d, m)| (1..=*m).contains(d));
    if !within(&geometry.grid, &limits.grid) || !within(&geometry.block, &limits.block) {
        return Err(INVALID_VALUE);
    }
    let threads: u32 = geometry.block.iter().product();
    let most = f.entry.max_threads.map_or(limits.threads_per_block, |t| t.clamp(1, limits.threads_per_block));
    if threads > most || geometry.shared > dynamic_limit {
        return Err(INVALID_VALUE);
    }
    Ok(())
}

fn check_cluster(geometry: &Geometry, beyond_portable: bool) -> R {
    if geometry.cluster == [1; 3] {
        return Ok(());
    }
    if !Limits::get().clusters {
        return Err(NOT_SUPPORTED);
    }
    let whole = geometry.grid.iter().zip(geometry.cluster).all(|(g, c)| c > 0 && g % c == 0);
    if !whole {
        return Err(INVALID_VALUE);
    }
    let size = geometry.cluster.iter().map(|&c| u64::from(c)).product::<u64>();
    if size > u64::from(Limits::get().cluster(beyond_portable)) {
        return Err(CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE);
    }
    Ok(())
}

/// The buffer that `extra` names.
///
/// # Safety
/// `extra` is a list of names and values as `cuLaunchKernel` takes it.
unsafe fn extra_buffer(extra: *mut *mut c_void) -> R<(*const u8, usize)> {
    let (mut buffer, mut size) = (std::ptr::null::<u8>(), None);
    let mut at = 0;
    loop {
        // SAFETY: the list goes on until its end mark.
        let name = unsafe { extra.add(at).read() } as usize;
        if name == EXTRA_END {
            break;
        }
        // SAFETY: a name is followed by its value.
        let value = unsafe { extra.add(at + 1).read() };
        match name {
            EXTRA_BUFFER => buffer = value.cast(),
            EXTRA_SIZE if value.is_null() => return Err(INVALID_VALUE),
            // SAFETY: this value points at a size.
            EXTRA_SIZE => size = Some(unsafe { value.cast::<usize>().read() }),
            _ => return Err(INVALID_VALUE),
        }
        at += 2;
    }
    // Without a size the buffer has no effect; a size needs a buffer.
    match size {
        None | Some(0) => Ok((std::ptr::null(), 0)),
        Some(_) if buffer.is_null() => Err(INVALID_VALUE),
        Some(size) => Ok((buffer, size)),
    }
}

/// Copies the arguments of a kernel whose layout is known.
///
/// # Safety
/// `params` and `extra` are as `cuLaunchKernel` takes them for this kernel.
unsafe fn arguments(entry: &Entry, params: *mut *mut c_void, extra: *mut *mut c_void) -> R<Vec<u8>> {
    let bytes = entry.parameter_bytes as usize;
    let mut copied = vec![0; bytes];
    if bytes == 0 {
        return Ok(copied);
    }
    if !extra.is_null() {
        // SAFETY: as promised.
        let (buffer, size) = unsafe { extra_buffer(extra)? };
        if size < bytes {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the job says that the buffer is so long, and it was just found long enough.
        unsafe { copied.as_mut_ptr().copy_from_nonoverlapping(buffer, bytes) };
        return Ok(copied);
    }
    if params.is_null() {
        return Err(INVALID_VALUE);
    }
    for (at, parameter) in entry.parameters.iter().enumerate() {
        // SAFETY: there is one pointer for each parameter.
        let from = unsafe { params.add(at).read() }.cast::<u8>();
        if from.is_null() {
            return Err(INVALID_VALUE);
        }
        let to = &mut copied[parameter.offset as usize..][..parameter.size as usize];
        // SAFETY: each points at a value of its parameter's size.
        unsafe { to.as_mut_ptr().copy_from_nonoverlapping(from, to.len()) };
    }
    Ok(copied)
}

impl State {
    /// Makes a launch of a function, or of a kernel in a context, and returns what it may touch.
    ///
    /// # Safety
    /// `params` and `extra` are as `cuLaunchKernel` takes them for this kernel.
    pub(crate) unsafe fn make_launch(
        &mut self,
        handle: u64,
        ctx: u64,
        geometry: Geometry,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> R<(Launch, Touches)> {
        let function = self.function_in(handle, ctx)?;
        let f = self.modules.function(function)?;
        check(&geometry, f, self.modules.dynamic_limit(f))?;
        if !params.is_null() && !extra.is_null() {
            return Err(INVALID_VALUE);
        }
        if geometry.cluster != [1; 3] {
            let attribute = weir_cuda::CUfunction_attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
            check_cluster(&geometry, self.modules.function_attribute(function, attribute)? != 0)?;
        }
        if geometry.cooperative {
            let threads = geometry.block.iter().product();
            let limits = Limits::get();
            let room = limits.blocks(&self.modules.needs(f), threads, geometry.shared) * limits.multiprocessors;
            if geometry.grid.iter().map(|&g| u64::from(g)).product::<u64>() > u64::from(room) {
                return Err(TOO_LARGE);
            }
        }
        let (entry, shown, builtin, module) = (f.entry.clone(), f.shown, f.builtin, f.module);
        self.load_function(function)?;
        self.grow_local(ctx, entry.local_bytes)?;
        if !shown {
            // How many arguments there are is written in code that cannot be read.
            if !extra.is_null() {
                // SAFETY: as promised.
                unsafe { extra_buffer(extra)? };
            }
            // SAFETY: as promised.
            let call = unsafe { self.generated(&entry.name, params) };
            let mut list = Vec::new();
            let call = call.filter(|call| self.reach(&mut list, ctx, call).is_ok());
            let touches = if call.is_some() { Touches::Known(list) } else { Touches::Opaque };
            let launch = Launch { function, entry, geometry, arguments: Vec::new(), call, over: AtomicU64::new(0) };
            return Ok((launch, touches));
        }
        // SAFETY: as promised.
        let arguments = unsafe { arguments(&entry, params, extra)? };
        // Of code that is not our own another release may have other parameters: what they cannot be is left undone.
        let mistaken = |call: &Call| {
            published::parameters(&entry.name).is_some() && self.reach(&mut Vec::new(), ctx, call).is_err()
        };
        let call =
            builtin.map(|builtin| Call::new(builtin, &arguments, geometry.grid[0])).filter(|call| !mistaken(call));
        let touches = self.touches_of(ctx, module, &entry, &arguments, call);
        Ok((Launch { function, entry, geometry, arguments, call, over: AtomicU64::new(0) }, touches))
    }

    /// What the arguments of a launch mean when it is made again; nothing where they are not known.
    pub(crate) fn touched_again(&self, ctx: u64, launch: &Launch) -> Vec<Touch> {
        let Ok(function) = self.modules.function(launch.function) else { return Vec::new() };
        match self.touches_of(ctx, function.module, &launch.entry, &launch.arguments, launch.call) {
            Touches::Known(list) if launch.call.is_some() || !launch.arguments.is_empty() => list,
            _ => Vec::new(),
        }
    }

    /// The memory that a launch may touch, as far as it is there. What is not is the kernel's fault
    /// when it runs, not the launch's.
    pub(super) fn touches_of(
        &self,
        ctx: u64,
        module: u64,
        entry: &Entry,
        arguments: &[u8],
        call: Option<Call>,
    ) -> Touches {
        let mut list = Vec::new();
        if let Some(call) = call {
            if self.reach(&mut list, ctx, &call).is_err() {
                list.clear();
            }
            return Touches::Known(list);
        }
        let mut whole = |addr: u64| {
            if let Some(extent) = self.extent(addr)
                && list.iter().all(|t: &Touch| t.id != extent.id)
            {
                list.push(Touch { addr: extent.addr, len: extent.size, write: true, id: extent.id });
            }
        };
        for parameter in &entry.parameters {
            // A structure may hold addresses, wherever one would be aligned.
            let (start, end) = (parameter.offset as usize, (parameter.offset + parameter.size) as usize);
            let words = arguments[start.next_multiple_of(8).min(end)..end].chunks_exact(8);
            words.filter_map(|word| word.try_into().ok()).map(u64::from_ne_bytes).for_each(&mut whole);
        }
        for global in self.modules.globals_of(module) {
            whole(global.addr);
        }
        Touches::Known(list)
    }
}

//! What every exported function does around its body: it is counted, takes the time that VGPU_COST
//! says, fails where VGPU_FAIL says, and is logged where VGPU_TRACE says. Touches no device state, but may wait for work.

mod trace;

use crate::config::{self, Config, Cost, FailRule, When};
use core::ffi::{CStr, c_char};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
pub(crate) use trace::Arg;
use weir_cuda::{COUNT, CUresult, FUNCTIONS, Function};

/// Calls of one function, on a cache line of its own: threads that call different functions must not
/// slow each other down.
#[repr(align(64))]
struct Counter(AtomicU64);

static CALLS: [Counter; COUNT] = [const { Counter(AtomicU64::new(0)) }; COUNT];
static UNSUPPORTED: [Counter; COUNT] = [const { Counter(AtomicU64::new(0)) }; COUNT];

/// Whether calls need more than counting. Read once a call.
static MODE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const PLAIN: u8 = 1;
const WATCHED: u8 = 2;

/// One call of an exported function, between its entry and its return.
pub(crate) struct Call {
    /// Set where the call is logged: which function, and when it began.
    traced: Option<(&'static Function, Instant)>,
}

impl Call {
    /// Begins a call of `FUNCTIONS[index]`; an error is what the function must return at once.
    #[inline]
    pub(crate) fn enter(index: usize) -> Result<Self, CUresult> {
        if let Some(counter) = CALLS.get(index) {
            counter.0.fetch_add(1, Relaxed);
        }
        if MODE.load(Relaxed) == PLAIN {
            return Ok(Self { traced: None });
        }
        Self::enter_watched(index)
    }

    #[cold]
    #[inline(never)]
    fn enter_watched(index: usize) -> Result<Self, CUresult> {
        let watch = Watch::get();
        let Some(function) = FUNCTIONS.get(index) else {
            return Ok(Self { traced: None });
        };
        let began = Instant::now();
        let call = Self { traced: watch.trace.then_some((function, began)) };
        match watch.cost(index) {
            config::WORK => crate::engine::wait_for_work(),
            nanos => burn(began, nanos),
        }
        match watch.failure(index) {
            None => Ok(call),
            Some(code) => {
                if watch.trace {
                    trace::write(function, began, code, &[], true);
                }
                Err(code)
            }
        }
    }

    /// Whether the call is logged: only then are its arguments worth collecting.
    #[inline]
    pub(crate) fn tracing(&self) -> bool {
        self.traced.is_some()
    }

    /// Ends the call: `args` in the order of the declaration, and empty where [`Call::tracing`] is not.
    #[inline]
    pub(crate) fn leave(self, result: CUresult, args: &[Arg]) -> CUresult {
        if let Some((function, began)) = self.traced {
            trace::write(function, began, result, args, false);
        }
        result
    }
}

/// Answers a function that is not implemented, inside its call, and remembers that it was called.
#[cold]
pub(crate) fn not_supported(index: usize) -> CUresult {
    if let Some(counter) = UNSUPPORTED.get(index) {
        counter.0.fetch_add(1, Relaxed);
    }
    CUresult::CUDA_ERROR_NOT_SUPPORTED
}

/// Whether a rule lets every request for this many bytes fail.
#[inline]
pub(crate) fn oom_above(bytes: u64) -> bool {
    MODE.load(Relaxed) != PLAIN && Watch::get().oom_above.is_some_and(|limit| bytes > limit)
}

/// What a call does that takes time of its own.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Units {
    pub(crate) bytes: u64,
    pub(crate) mappings: u64,
    /// Devices beyond the first.
    pub(crate) peers: u64,
}

/// Takes the time that VGPU_COST says for what a call of this name does, beyond what every call takes.
pub(crate) fn spend(name: &str, units: Units) {
    if MODE.load(Relaxed) == PLAIN || config::fault("cost_flat") {
        return;
    }
    let priced = FUNCTIONS.iter().zip(&Watch::get().costs).find(|(f, cost)| f.name == name && cost.varies());
    if let Some((_, cost)) = priced {
        let mebibytes = cost.mebibyte.saturating_mul(units.bytes.div_ceil(1 << 20));
        let mappings = cost.mapping.saturating_mul(units.mappings);
        // A device's rights are set mapping by mapping.
        let peers = cost.peer.saturating_mul(units.mappings).saturating_mul(units.peers);
        burn(Instant::now(), mebibytes.saturating_add(mappings).saturating_add(peers));
    }
}

/// The configuration in the form that calls need: by function, with a counter for each rule.
struct Watch {
    trace: bool,
    seed: u64,
    oom_above: Option<u64>,
    /// By function; empty without a cost table.
    costs: Vec<Cost>,
    rules: Vec<(FailRule, AtomicU64)>,
}

impl Watch {
    fn get() -> &'static Self {
        static WATCH: OnceLock<Watch> = OnceLock::new();
        WATCH.get_or_init(|| {
            let watch = Self::new(config::get());
            let plain = !watch.trace && watch.costs.is_empty() && watch.rules.is_empty() && watch.oom_above.is_none();
            MODE.store(if plain { PLAIN } else { WATCHED }, Relaxed);
            watch
        })
    }

    fn new(config: &Config) -> Self {
        let above = config.fail.iter().filter_map(|rule| match rule.when {
            When::Above(limit) => Some(limit),
            _ => None,
        });
        let by_call = config.fail.iter().filter(|rule| !matches!(rule.when, When::Above(_)));
        let costs = config.cost.as_ref().map(|table| FUNCTIONS.iter().map(|f| table.of(f)));
        Self {
            trace: config.trace.is_some(),
            seed: config.seed,
            oom_above: above.min(),
            costs: costs.map(Iterator::collect).unwrap_or_default(),
            rules: by_call.map(|rule| (rule.clone(), AtomicU64::new(0))).collect(),
        }
    }

    fn cost(&self, index: usize) -> u64 {
        self.costs.get(index).map_or(0, |cost| cost.call)
    }

    /// Counts this call for every rule that speaks of it, and says whether one lets it fail.
    fn failure(&self, index: usize) -> Option<CUresult> {
        let function = FUNCTIONS.get(index)?;
        let mut code = None;
        for (number, (rule, calls)) in self.rules.iter().enumerate() {
            if !rule.matches(function) {
                continue;
            }
            let call = calls.fetch_add(1, Relaxed) + 1;
            let fails = match rule.when {
                When::Calls(first, last) => (first..=last).contains(&call),
                When::Rate(rate) => share(self.seed, number as u64, call) < rate,
                When::Above(_) => false,
            };
            if fails {
                code = code.or(Some(rule.code));
            }
        }
        code
    }
}

/// A number between 0 and 1 that looks random and depends on nothing else than these three.
fn share(seed: u64, rule: u64, call: u64) -> f64 {
    let mut x = seed ^ rule.wrapping_mul(0xd1b5_4a32_d192_ed03);
    x = x.wrapping_add(call.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// Keeps the processor busy, as a driver call does: sleeping could not be as short as a microsecond. A call that takes long
/// leaves it to others first.
fn burn(began: Instant, nanos: u64) {
    const LONG: Duration = Duration::from_millis(20);
    let cost = Duration::from_nanos(nanos);
    if cost > LONG {
        std::thread::sleep(cost.saturating_sub(LONG).saturating_sub(began.elapsed()));
    }
    while nanos > 0 && began.elapsed() < cost {
        core::hint::spin_loop();
    }
}

/// How often the function with this symbol was called in this process; 0 for an unknown symbol.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn vgpu_call_count(symbol: *const c_char) -> u64 {
    if symbol.is_null() {
        return 0;
    }
    // SAFETY: the caller passes a C string.
    let symbol = unsafe { CStr::from_ptr(symbol) }.to_bytes();
    let index = FUNCTIONS.iter().position(|f| f.symbol.as_bytes() == symbol);
    let counter = index.and_then(|index| CALLS.get(index));
    counter.map_or(0, |counter| counter.0.load(Relaxed))
}

/// How many calls met a function that is not implemented.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn vgpu_unsupported_count() -> u64 {
    UNSUPPORTED.iter().map(|counter| counter.0.load(Relaxed)).sum()
}

/// Writes the symbols of the functions that were called but are not implemented, comma-separated and
/// NUL-terminated, as far as they fit; returns the length of the whole list without the NUL.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn vgpu_unsupported_names(buffer: *mut c_char, size: usize) -> usize {
    let called = FUNCTIONS.iter().zip(&UNSUPPORTED);
    let names: Vec<_> =
        called.filter(|(_, counter)| counter.0.load(Relaxed) > 0).map(|(function, _)| function.symbol).collect();
    let names = names.join(",");
    if !buffer.is_null() && size > 0 {
        let fits = names.len().min(size - 1);
        // SAFETY: the caller's buffer has `size` bytes, and at most `size - 1` plus a NUL are written.
        unsafe {
            buffer.cast::<u8>().copy_from_nonoverlapping(names.as_ptr(), fits);
            *buffer.add(fits) = 0;
        }
    }
    names.len()
}

#[cfg(test)]
mod tests;

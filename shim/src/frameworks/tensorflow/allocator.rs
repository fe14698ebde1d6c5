//! Which allocator serves TensorFlow's tensors: chosen once, when the driver is initialised in a process that has loaded
//! TensorFlow, by `TF_GPU_ALLOCATOR`, which TensorFlow reads when it makes its devices.
//!
//! With weir's pool TensorFlow uses `cuda_malloc_async`. That allocator ends the process on a device without memory pools,
//! takes no unified memory, and fails at once where BFC, TensorFlow's own, tries again for ten seconds.

use crate::process::{choices, job};
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use weir_settings::tensorflow::TfAllocator;

/// Says which of its allocators TensorFlow uses.
const VARIABLE: &CStr = c"TF_GPU_ALLOCATOR";
const ASYNC: &CStr = c"cuda_malloc_async";
/// The allocator whose tensors come through the same entry point as the memory of libraries.
const PLAIN: &CStr = c"cuda_malloc";
/// Requests managed memory.
const UNIFIED: &CStr = c"TF_FORCE_UNIFIED_MEMORY";
/// What the choice is about.
pub(crate) const SUBJECT: &str = "tensors";
/// How long BFC tries again before it gives up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Set once the choice is made.
static CHOSEN: AtomicBool = AtomicBool::new(false);
/// weir took BFC's place.
static IN_BFCS_PLACE: AtomicBool = AtomicBool::new(false);

/// What the process has set a variable to.
pub(super) fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: a C string; the answer is null or one, and TensorFlow itself changes no such variable at this stage.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value))
    }
}

/// What serves tensors, whether weir must say so to TensorFlow, and why. `memory_pools`: whether every visible device has
/// them, else which has not.
fn decide(setting: TfAllocator, memory_pools: impl FnOnce() -> Result<(), String>) -> (bool, String) {
    let own = |why: &str| (false, format!("TensorFlow's own allocator: {why}"));
    let off = |value: &&CStr| matches!(value.to_bytes(), b"" | b"0" | b"false" | b"False");
    match (setting, variable(VARIABLE)) {
        (TfAllocator::Pool, value) if value.is_none_or(|value| value == ASYNC) => {
            (true, "weir's pool: WEIR_TF_ALLOCATOR=pool".to_owned())
        }
        (_, Some(value)) => (false, format!("as the job chose: TF_GPU_ALLOCATOR={}", value.to_string_lossy())),
        (TfAllocator::Keep, _) => own("WEIR_TF_ALLOCATOR=keep"),
        _ if variable(UNIFIED).is_some_and(|value| !off(&value)) => own("TF_FORCE_UNIFIED_MEMORY is set"),
        _ => match memory_pools() {
            Ok(()) => (true, "weir's pool: every visible device has memory pools".to_owned()),
            Err(why) => own(&why),
        },
    }
}

/// What would be chosen in a process that loads TensorFlow. Changes nothing.
pub(crate) fn forecast(memory_pools: impl FnOnce() -> Result<(), String>) -> Option<String> {
    let setting = job::active()?.config.tf_allocator;
    Some(decide(setting, memory_pools).1)
}

/// TensorFlow is loaded and about to make its devices.
pub(super) fn choose(memory_pools: impl FnOnce() -> Result<(), String>) {
    let Some(job) = job::active() else { return };
    if CHOSEN.swap(true, Ordering::AcqRel) {
        return;
    }
    let (pool, text) = decide(job.config.tf_allocator, memory_pools);
    if pool {
        // SAFETY: both are C strings; 0: what is set stays. TensorFlow itself sets variables at this stage.
        unsafe { libc::setenv(VARIABLE.as_ptr(), ASYNC.as_ptr(), 0) };
        IN_BFCS_PLACE.store(true, Ordering::Release);
    }
    choices::keep(SUBJECT, text);
}

/// Whether tensors come through the same entry point as the memory of libraries.
pub(super) fn is_plain() -> bool {
    variable(VARIABLE) == Some(PLAIN)
}

/// How long a request that BFC would try again may wait for memory, where weir has taken BFC's place.
#[inline]
pub(crate) fn patience() -> Option<Duration> {
    IN_BFCS_PLACE.load(Ordering::Relaxed).then_some(PATIENCE)
}

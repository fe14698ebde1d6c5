//! TensorFlow inside the job: unmodified wheels, found only if they are loaded.
//!
//! | file | for |
//! |---|---|
//! | `loaded.rs` | TensorFlow's libraries in this process |
//! | `annotation.rs`, `shape.rs` | which operation a thread is running |
//! | `nodes.rs` | the Python lines that made a graph's nodes |
//! | `kernel.rs` | what the annotation does not say of compiled kernels: a data type, a cluster's name |
//! | `step.rs` | when a training step begins |

mod annotation;
mod kernel;
pub(crate) mod loaded;
pub(crate) mod nodes;
mod shape;
mod step;

use super::cache::{Cache, mix, mix_text};
use crate::process::job;
use crate::process::surroundings::Errno;
use annotation::Annotation;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};
use weir_journal::{Journal, Op};

/// From what an annotation says to the journal's id of it.
static OPERATIONS: Cache<1024> = Cache::new();

/// Says which of its allocators TensorFlow uses.
const VARIABLE: &core::ffi::CStr = c"TF_GPU_ALLOCATOR";
const ASYNC: &core::ffi::CStr = c"cuda_malloc_async";
/// The allocator whose tensors come through the same entry point as the memory of libraries.
const PLAIN: &core::ffi::CStr = c"cuda_malloc";

/// The region of memory that a library asks for while an operation runs it: cuBLAS for its handle, say.
const LIBRARY: &[u8] = b"library";
/// The region of what XLA asks for to run a cluster: one arena for all that the cluster's operations need.
const XLA: &[u8] = b"xla";
/// Whether tensors can be told from the memory of libraries.
static TOLD_APART: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread is inside TensorFlow's allocator. Constant and without a destructor.
    static FOR_TENSORS: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, what this thread asks for is for TensorFlow's tensors.
pub(crate) struct ForTensors {
    before: bool,
}

impl ForTensors {
    #[inline]
    pub(crate) fn begin() -> Self {
        Self { before: FOR_TENSORS.try_with(|flag| flag.replace(true)).unwrap_or(false) }
    }
}

impl Drop for ForTensors {
    #[inline]
    fn drop(&mut self) {
        let _ = FOR_TENSORS.try_with(|flag| flag.set(self.before));
    }
}

/// At each initialisation of the driver: TensorFlow may have been loaded since, and is about to choose its allocator.
pub(crate) fn begin() {
    let _kept = Errno::keep();
    let Some(loaded) = loaded::find() else {
        return;
    };
    super::appear();
    annotation::begin(&loaded);
    if job::active().is_some_and(|job| !job.config.keep_tensorflow) {
        // SAFETY: both are C strings; 0: what the user has set stays. TensorFlow itself sets variables at this stage.
        unsafe { libc::setenv(VARIABLE.as_ptr(), ASYNC.as_ptr(), 0) };
    }
    // SAFETY: a C string; the answer is null or one, and nobody changes it now.
    let plain = unsafe {
        let allocator = libc::getenv(VARIABLE.as_ptr());
        !allocator.is_null() && core::ffi::CStr::from_ptr(allocator) == PLAIN
    };
    TOLD_APART.store(!plain, Ordering::Relaxed);
}

/// Whether there is, or was, a journal to which operations are told.
static RECORDING: AtomicBool = AtomicBool::new(false);

/// From now on there is a journal.
pub(crate) fn record() {
    RECORDING.store(true, Ordering::Relaxed);
}

#[inline]
fn recording() -> bool {
    RECORDING.load(Ordering::Relaxed)
}

/// Forgets the ids of a journal that is no more.
pub(crate) fn forget() {
    OPERATIONS.clear();
    nodes::forget();
}

/// What the calling thread does for TensorFlow.
pub(crate) struct Running {
    name: &'static [u8],
    /// Of its name.
    hash: u64,
    /// Whether the operation is a node of a graph by its name: nodes have a scope, eager operations have none.
    pub(crate) is_node: bool,
    /// The journal's id of the operation.
    pub(crate) op: u32,
}

/// The operation that the calling thread runs; `steps`: a new run of a graph is a step; `for_tensors`: it is
/// for a tensor, as far as the caller knows.
#[inline]
pub(crate) fn here(journal: &Journal, steps: bool, for_tensors: bool) -> Option<Running> {
    let told = annotation::here();
    let launched = told.is_none();
    let mut annotation = match told {
        Some(annotation) => annotation,
        None => kernel::launched().map(|(op, step)| Annotation { op, region: b"", step, dtype: 0, shape: None })?,
    };
    if annotation.region.is_empty()
        && TOLD_APART.load(Ordering::Relaxed)
        && !for_tensors
        && !FOR_TENSORS.try_with(Cell::get).unwrap_or(true)
    {
        annotation.region = LIBRARY;
    } else if launched {
        annotation.region = XLA;
    }
    if annotation.dtype == 0 {
        annotation.dtype = kernel::result_type();
    }
    // Not `contains`: to set up a look at many bytes at once takes longer than the few until the first scope.
    let is_node = annotation.op.iter().position(|byte| *byte == b'/').is_some();
    if (is_node || launched) && steps {
        step::seen(journal, annotation.step);
    }
    let shape = annotation.shape.map_or(0, |shape| shape.hash());
    let hash = nodes::hash(annotation.op);
    let whole = mix_text(mix(mix(hash, shape), annotation.dtype.into()), annotation.region);
    let op = OPERATIONS.get(whole).unwrap_or_else(|| {
        let id = intern(journal, &annotation);
        if id != 0 {
            OPERATIONS.put(whole, id);
        }
        id
    });
    Some(Running { name: annotation.op, hash, is_node, op })
}

#[cold]
fn intern(journal: &Journal, annotation: &Annotation) -> u32 {
    let text = |bytes| core::str::from_utf8(bytes).unwrap_or_default();
    let shape = annotation.shape.map(|shape| shape.text());
    let shape = shape.as_ref().map_or("", shape::Text::as_str);
    // The shape of a tensor that is yet to be made, into which something is copied: its type is as little true.
    let (shape, dtype) = if shape == "[0]" { ("", 0) } else { (shape, annotation.dtype) };
    journal.op(&Op { name: text(annotation.op), region: text(annotation.region), shape, dtype })
}

impl Running {
    /// The Python lines that made the node; 0 if they are not known.
    #[inline]
    pub(crate) fn node_lines(&self) -> u32 {
        nodes::lines_of(self.name, self.hash)
    }
}

//! TensorFlow inside the job: unmodified wheels, found only if they are loaded.
//!
//! | file | for |
//! |---|---|
//! | `loaded.rs` | TensorFlow's libraries in this process |
//! | `allocator.rs` | which allocator serves tensors |
//! | `annotation.rs`, `shape.rs` | which operation a thread is running |
//! | `nodes.rs` | the Python lines that made a graph's nodes |
//! | `calls.rs` | the Python lines of the calls that are under way |
//! | `kernel.rs` | what the annotation does not say of kernels: a compiled one's data type, a cluster's name, what is copied |
//! | `tensor.rs` | data type and shape of the tensor that is made |
//! | `step.rs` | when a training step begins |
//! | `xla.rs` | what XLA is to leave of the arenas of compiled code |

pub(crate) mod allocator;
mod annotation;
pub(crate) mod calls;
mod kernel;
pub(crate) mod loaded;
pub(crate) mod nodes;
mod shape;
mod step;
mod tensor;
pub(crate) mod xla;

use super::cache::{Cache, mix, mix_text};
use crate::process::surroundings::Errno;
use annotation::Annotation;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};
use weir_journal::{Journal, Op};

/// From what an annotation says to the journal's id of it.
static OPERATIONS: Cache<1024> = Cache::new();

/// The region of memory that a library requests while an operation runs it: cuBLAS for its handle, say.
const LIBRARY: &[u8] = b"library";
/// The region of what XLA requests to run a cluster: one arena for all that the cluster's operations need.
const XLA: &[u8] = b"xla";
/// What TensorFlow calls a copy from one device to another, and the region under which the copied operation has it.
const COPIES: &[u8] = b"SameWorkerRecvDone";
const COPY: &[u8] = b"copy";
/// Whether tensors can be distinguished from the memory of libraries.
static DISTINGUISHED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread is inside TensorFlow's allocator. Constant and without a destructor.
    static FOR_TENSORS: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, what this thread requests is for TensorFlow's tensors.
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

/// At each initialisation of the driver, and when the journal is made: TensorFlow may have been loaded since. False: it
/// has not.
pub(crate) fn begin() -> bool {
    let _kept = Errno::keep();
    let Some(loaded) = loaded::find() else {
        return false;
    };
    super::appear();
    annotation::begin(&loaded);
    DISTINGUISHED.store(!allocator::is_plain(), Ordering::Relaxed);
    true
}

/// The driver was initialised: TensorFlow, if it is loaded, is about to choose its allocator. `memory_pools`: whether every
/// visible device has them, else which has not.
pub(crate) fn choose(memory_pools: impl FnOnce() -> Result<(), String>) {
    if begin() {
        let _kept = Errno::keep();
        allocator::choose(memory_pools);
    }
}

/// Whether there is, or was, a journal in which operations are recorded.
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
    /// Whether its name has a scope: nodes of graphs mostly have one, eager operations have none.
    scoped: bool,
    /// Whether it is known to be a node of a graph, by its scope or as the origin of a copy.
    pub(crate) is_node: bool,
    /// The journal's id of the operation.
    pub(crate) op: u32,
}

/// The operation that the calling thread runs; `steps`: a new run of a graph is a step; `for_tensors`: it is
/// for a tensor, as far as the caller knows.
#[inline]
pub(crate) fn here(journal: &Journal, steps: bool, for_tensors: bool) -> Option<Running> {
    let annotated = annotation::here();
    let launched = annotated.is_none();
    let mut annotation = match annotated {
        Some(annotation) => annotation,
        None => kernel::launched().map(|(op, step)| Annotation { op, region: b"", step, dtype: 0, shape: None })?,
    };
    if annotation.region.is_empty()
        && DISTINGUISHED.load(Ordering::Relaxed)
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
    let making = tensor::here();
    if let Some(making) = making {
        annotation.dtype = making.dtype;
    }
    // Not `contains`: to set up a look at many bytes at once takes longer than the few until the first scope.
    let scoped = annotation.op.iter().position(|byte| *byte == b'/').is_some();
    if (scoped || launched) && steps {
        step::seen(journal, annotation.step);
    }
    // A copy is an edge of a graph: it belongs to the node whose result is copied.
    let copied = if annotation.op == COPIES { kernel::copied() } else { None };
    if let Some(name) = copied {
        (annotation.op, annotation.region) = (name, COPY);
    }
    let shape = making.map_or(0, |making| making.hash());
    let shape = if shape == 0 { annotation.shape.map_or(0, |shape| shape.hash()) } else { shape };
    let hash = nodes::hash(annotation.op);
    let whole = mix_text(mix(mix(hash, shape), annotation.dtype.into()), annotation.region);
    let op = OPERATIONS.get(whole).unwrap_or_else(|| {
        let id = intern(journal, &annotation, making);
        if id != 0 {
            OPERATIONS.put(whole, id);
        }
        id
    });
    Some(Running { name: annotation.op, hash, scoped, is_node: scoped || copied.is_some(), op })
}

#[cold]
fn intern(journal: &Journal, annotation: &Annotation, making: Option<tensor::Making>) -> u32 {
    let text = |bytes| core::str::from_utf8(bytes).unwrap_or_default();
    let made = making.and_then(|making| making.text());
    let shape = made.or_else(|| annotation.shape.map(|shape| shape.text()));
    let shape = shape.as_ref().map_or("", shape::Text::as_str);
    // The shape of a tensor that is yet to be made, into which something is copied: its type is as little true.
    let (shape, dtype) = if made.is_none() && shape == "[0]" { ("", 0) } else { (shape, annotation.dtype) };
    journal.op(&Op { name: text(annotation.op), region: text(annotation.region), shape, dtype })
}

impl Running {
    /// The Python lines that call the operation now, where a thread of TensorFlow's own runs it; 0 if they are not known.
    pub(crate) fn call_lines(&self) -> u32 {
        if self.scoped { 0 } else { calls::of_name(self.hash) }
    }

    /// The Python lines that made the node; 0 if they are not known.
    #[inline]
    pub(crate) fn node_lines(&self) -> u32 {
        nodes::lines_of(self.name, self.hash)
    }
}

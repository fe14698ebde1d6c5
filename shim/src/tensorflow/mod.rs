//! TensorFlow inside the job: unmodified wheels, found only if they are loaded.
//!
//! | file | for |
//! |---|---|
//! | `loaded.rs` | TensorFlow's libraries in this process |
//! | `annotation.rs`, `shape.rs` | which operation a thread is running |
//! | `nodes.rs`, `graph.rs` | the Python lines that made a graph's nodes |
//! | `bfc.rs` | tensors inside the regions of TensorFlow's own allocator |
//! | `step.rs` | when a training step begins |

mod annotation;
mod bfc;
mod graph;
mod loaded;
mod nodes;
mod shape;
mod step;

use crate::attribution::cache::{Cache, mix, mix_text};
use crate::job;
use crate::surroundings::Errno;
use annotation::Annotation;
use weir_journal::{Journal, Op};

/// From what an annotation says to the journal's id of it.
static OPERATIONS: Cache<1024> = Cache::new();

/// Says which of its allocators TensorFlow uses.
const VARIABLE: &core::ffi::CStr = c"TF_GPU_ALLOCATOR";
const ASYNC: &core::ffi::CStr = c"cuda_malloc_async";

/// At each initialisation of the driver: TensorFlow may have been loaded since, and is about to choose its allocator.
pub(crate) fn begin() {
    let _kept = Errno::keep();
    let Some(loaded) = loaded::find() else {
        return;
    };
    annotation::begin(&loaded);
    if job::active().is_some_and(|job| !job.config.keep_tensorflow) {
        // SAFETY: both are C strings; 0: what the user has set stays. TensorFlow itself sets variables at this stage.
        unsafe { libc::setenv(VARIABLE.as_ptr(), ASYNC.as_ptr(), 0) };
    }
}

/// Forgets the ids of a journal that is no more.
pub(crate) fn forget() {
    OPERATIONS.clear();
    nodes::forget();
}

/// What the calling thread does for TensorFlow.
pub(crate) struct Running {
    name: &'static [u8],
    /// Whether the operation is a node of a graph by its name: nodes have a scope, eager operations have none.
    pub(crate) is_node: bool,
    /// The journal's id of the operation.
    pub(crate) op: u32,
}

/// The operation that the calling thread runs.
#[inline]
pub(crate) fn here(journal: &Journal) -> Option<Running> {
    let annotation = annotation::here()?;
    let is_node = annotation.op.contains(&b'/');
    if is_node {
        step::seen(journal, annotation.step);
    }
    let shape = annotation.shape.map_or(0, |shape| shape.hash());
    let hash = mix_text(mix(shape, annotation.dtype.into()), annotation.op);
    let hash = mix_text(hash, annotation.region);
    let op = OPERATIONS.get(hash).unwrap_or_else(|| {
        let id = intern(journal, &annotation);
        if id != 0 {
            OPERATIONS.put(hash, id);
        }
        id
    });
    Some(Running { name: annotation.op, is_node, op })
}

#[cold]
fn intern(journal: &Journal, annotation: &Annotation) -> u32 {
    let text = |bytes| core::str::from_utf8(bytes).unwrap_or_default();
    let shape = annotation.shape.map(|shape| shape.text());
    journal.op(&Op {
        name: text(annotation.op),
        region: text(annotation.region),
        shape: shape.as_ref().map_or("", shape::Text::as_str),
        dtype: annotation.dtype,
    })
}

impl Running {
    /// The Python lines that made the node; 0 if they are not known.
    #[inline]
    pub(crate) fn node_lines(&self) -> u32 {
        nodes::lines_of(self.name)
    }
}

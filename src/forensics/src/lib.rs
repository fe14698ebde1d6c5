//! What a recording means: the state at any event, why memory ran out, who holds it, replays, exports, the HTML page.
//!
//! Everything starts from a [`Run`], an opened journal or recording with its names resolved; `weir-journal` reads the
//! file's bytes. docs/reference/report.md describes causes and remedies, docs/reference/exports.md formats and replays.
#![forbid(unsafe_code)]

#[macro_use]
mod fault;

pub mod diff;
pub mod explain;
pub mod export;
mod failure;
pub mod growth;
pub mod holders;
pub mod host;
#[cfg(feature = "synthetic")]
pub mod hostile;
pub mod html;
pub mod lifelong;
mod modules;
pub mod names;
pub mod ranks;
pub mod remedies;
pub mod replay;
pub mod report;
pub mod roles;
mod run;
pub mod runs;
pub mod survey;
pub mod symbols;
#[cfg(feature = "synthetic")]
pub mod synthetic;
pub mod text;
pub mod trend;
pub mod verdict;
pub mod views;
pub mod words;
pub mod xla;

#[cfg(feature = "fault-injection")]
pub use fault::rules;
pub use run::{Error, Fate, Run};

use weir_journal::Class;

/// Whether memory of this class is device memory that the job itself holds: a tensor inside a region, a range of
/// addresses, the pool's own physical memory and host memory are not, or would be counted twice.
pub fn is_held(class: Class) -> bool {
    matches!(class, Class::Block | Class::Device | Class::Managed | Class::Array | Class::Overhead | Class::Other)
}

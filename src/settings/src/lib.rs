//! Every setting of weir, once: its variable, its flag of `weir run`, how it is read, its default, and what it is for.
//!
//! The library in the job, `weir run`, `weir doctor`, the journal's record of settings, replays, the manual and
//! docs/reference/environment.md all go by the rows of [`table::SETTINGS`]. Sizes are read and printed by [`size`] alone.
//!
//! | module | for |
//! |---|---|
//! | [`table`] | the rows: one a setting |
//! | [`mod@read`] | an environment and settings files read by the rows: what is in effect, and what is wrong |
//! | [`mod@file`] | settings files: where they are, and who can change them |
//! | [`scheduler`] | limits that a scheduler set: CUDA_DEVICE_MEMORY_LIMIT, GPU_MEMORY_LIMIT |
//! | [`limit`] | WEIR_CAP, WEIR_GROUP, WEIR_ON_CAP |
//! | [`pool`] | WEIR_POOL |
//! | [`record`] | WEIR_KEEP, WEIR_RING, WEIR_STACKS |
//! | [`tensorflow`] | WEIR_TF_ALLOCATOR |
//! | [`size`] | sizes, shares, counts and durations |
//! | [`profile`] | machines that the virtual GPU plays |
//! | [`mod@reference`] | the page about all of them |
//!
//! **The limit rule.** A bad setting costs only itself. An unknown variable costs one line and has no effect. A bad setting
//! of recording or diagnosis costs one line, and its default holds. A bad *limit* means that the job must not run without
//! it: cuInit fails with one line, unless `WEIR_STRICT=0`.
//!
//! Pure, but for [`mod@file`], which reads two files.

#![forbid(unsafe_code)]

pub mod file;
pub mod limit;
pub mod pool;
pub mod profile;
pub mod read;
pub mod record;
pub mod reference;
pub mod scheduler;
pub mod size;
pub mod table;
pub mod tensorflow;

pub use read::{Origin, Problem, Reading, Shown};
pub use table::{Kind, SETTINGS, Setting, Settings};

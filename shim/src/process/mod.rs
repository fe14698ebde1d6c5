//! The process that weir is loaded into: its settings, whether weir has an effect on it, and what weir must leave as it
//! found it. The bottom of the library: it knows neither CUDA nor anything above it.

pub(crate) mod calls;
pub(crate) mod choices;
pub(crate) mod config;
pub(crate) mod elf;
mod environment;
#[cfg(feature = "fault-injection")]
pub(crate) mod fault;
pub(crate) mod guard;
pub(crate) mod job;
pub(crate) mod journal;
pub(crate) mod limits;
pub(crate) mod linker;
pub(crate) mod note;
pub(crate) mod reserve;
pub(crate) mod stack;
pub(crate) mod surroundings;
pub(crate) mod termination;
pub(crate) mod third_parties;

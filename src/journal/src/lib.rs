//! The journal of a job: one file per process that records what happened to memory, in order, and what is live.
//!
//! The writer ([`Journal`]) lives inside the job. Everything it knows is in a mapped file, so it is kept however the
//! process dies. The reader ([`reader::Reader`]) trusts nothing in a file. docs/reference/journal-format.md describes the format.
//!
//! `unsafe` is confined to the `sys` module.
#![deny(unsafe_code)]

mod arena;
mod beside;
mod create;
mod devices;
mod event;
pub mod fault;
mod flight;
mod history;
mod host;
pub mod job;
pub mod layout;
mod live;
mod names;
mod nodes;
mod numbered;
mod oom;
pub mod reader;
mod retention;
mod sys;
pub mod text;
mod ticket;
mod unwind;
mod writer;

pub use arena::Item;
pub use beside::{XLA_MODULE, xla_folder};
pub use create::{Identity, Options, folders_in};
pub use event::{
    Attribution, Class, Event, FLAG_INTERNAL, FLAG_NOT_IN_TABLE, FLAG_POOL_HIT, FLAG_REBUILT, FLAG_UNKNOWN_ADDRESS,
    Kind, STREAM_UNKNOWN, long_from_short, short_from_long,
};
pub use flight::{InFlight, Intent};
pub use history::HELD;
pub use job::Job;
pub use layout::Geometry;
pub use live::LiveEntry;
pub use names::{Op, PYTHON_DEPTH, STACK_DEPTH, is_users};
pub use nodes::node_of;
pub use numbered::Numbering;
pub use oom::{Cause, Failure, HOLDERS, OOM_SCHEMA, OomHolder, OomReport, Outcome, Situation};
pub use retention::{Keep, Life, Removed, clear_up, journal_life, life_of, remove};
pub use sys::clock::{Anchor, Clock};
#[cfg(feature = "synthetic")]
pub use sys::clock::{advance, booted_earlier};
pub use sys::place::folders_instead_of;
pub use ticket::{FreeTicket, Ticket};
pub use unwind::{Walk, capture_stack, prepare_unwinding};
pub use writer::{Granted, Journal};

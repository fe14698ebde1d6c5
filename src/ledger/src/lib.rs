//! What may be allocated: caps for each device, of one process or shared exactly by the processes of a group.
//! docs/internals/caps.md describes what is charged.
//!
//! | module | for |
//! |---|---|
//! | [`directory`] | where ledger files are |
//! | [`ledger`] | what a job's process uses: reserve, commit, roll back, one view for all queries |
//! | [`control`] | what the command uses: find ledgers, show them, change a live cap |
//! | [`admission`], [`queue`] | the lock-free protocol, generic over its words so that a model checker can run it |
//! | [`table`], [`word`] | the layout of the shared words |
//!
//! **The rules of a cap**
//! - Amounts are rounded up to 512 bytes and caps down: the sum of what all members hold never passes the cap.
//! - A group's cap is the smallest that any living member was given. A cap ordered while the group lives (`weir cap`)
//!   replaces it, until no process is left that lived under the order. A member without a cap takes the group's.
//! - Lowering a cap below what is used takes nothing away: nothing is admitted until the use is below it, and every
//!   member sees at its next request that trimming is wanted.
//! - Each process sets a little aside on each device for tiny requests. It is charged from the beginning, so these
//!   requests are answered at the cap without passing it.
//! - What a killed process held is free at the next request after all of the process is gone: while it is being torn down
//!   the driver may still hold its memory. (In another pid namespace only its lock can be queried, which goes a moment
//!   before.)
//! - Whatever keeps a group from being counted as one is an error: a place that is not this user's alone, a damaged file
//!   with living members, no row left, a file that was deleted while a member lives.

#![deny(unsafe_code)]

pub mod admission;
pub mod control;
pub mod directory;
pub mod fault;
mod file;
pub mod ledger;
#[allow(unsafe_code, reason = "the crate's one mapping module")]
mod map;
mod members;
pub mod queue;
pub mod table;
pub mod word;

pub use directory::LedgerDir;
pub use file::LedgerError;
pub use ledger::{
    Category, Crossing, DeviceId, DeviceTerms, Ledger, News, Refusal, Reservation, Reserved, Urgency, Usage, View,
};

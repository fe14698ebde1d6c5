//! One allocation: where it goes, what it is charged, who serves it and what is recorded of it.
//!
//! A request comes from a hook body as one [`request::Request`]. There is one device pool a physical device, made at the first
//! request that it serves with the job's own context current, and never freed. A device without virtual memory management
//! has one for each context instead, because there the memory belongs to the context. docs/internals/architecture.md walks
//! one request through these files.
//!
//! | file | for |
//! |---|---|
//! | `request.rs`, `free.rs` | a request and a free on their way to a device pool or the driver |
//! | `device_pool.rs` | a device pool: serving a request, giving memory back |
//! | `registry.rs` | which device pools there are, and whose memory an address is |
//! | `construction.rs`, `footing.rs` | making a device pool; what it stands on, tried once |
//! | `backing.rs` | the real driver as a pool's `Backing`: charged and recorded |
//! | `charge.rs` | a request at the cap: making room, waiting for it |
//! | `patience.rs` | a request of TensorFlow's that waits as long as its own allocator would |
//! | `room.rs` | what makes room on a device, for the cap and for calls of the driver's |
//! | `passed.rs`, `oom.rs` | what the driver serves itself; what is known at an out-of-memory |
//! | `mempools.rs`, `pins.rs`, `ipc.rs`, `transport.rs` | the job's mempools; blocks that others use |
//! | `proofs.rs`, `events.rs`, `reach.rs`, `peers.rs` | what the job's calls prove; which work may touch which memory |
//! | `spill.rs`, `returns.rs` | the device pool of host memory beside a device's own, and when that comes back |
//! | `watcher.rs`, `context_end.rs`, `fork.rs` | what is learnt of contexts and captures; the end of a context; a fork |
//! | `test_hooks.rs` | what tests query from the pools |

pub(crate) mod backing;
mod charge;
mod construction;
mod context_end;
mod device_pool;
pub(crate) mod events;
mod footing;
mod fork;
pub(crate) mod free;
pub(crate) mod ipc;
pub(crate) mod mempools;
pub(crate) mod oom;
pub(crate) mod passed;
pub(crate) mod patience;
pub(crate) mod peers;
pub(crate) mod pins;
pub(crate) mod proofs;
mod reach;
mod registry;
mod request;
mod returns;
mod room;
pub(crate) mod spill;
#[cfg(feature = "fault-injection")]
mod test_hooks;
mod transport;
mod watcher;

pub(crate) use context_end::{Going, context_leaves};
pub(crate) use device_pool::DevicePool;
pub(crate) use reach::{grant, may_reach, pools_reached_by};
pub(crate) use registry::{any, block, on, owner, pools, watching};
pub(crate) use request::{Order, Request, here, unaccounted};
pub(crate) use room::{CALLBACKS, Effort, make_room, needed, with_room, with_room_for};
pub(crate) use watcher::begin;

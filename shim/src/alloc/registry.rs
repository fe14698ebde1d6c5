//! Which device pools there are, which of them serves a context, and whose memory an address is.

use super::Served;
use crate::cap;
use crate::process::job;
use core::sync::atomic::{AtomicPtr, AtomicUsize};
use weir_pool::BlockInfo;
use weir_pool::shared::List;

const POOLS: usize = 256;
pub(super) static LIST: List<AtomicPtr<Served>, AtomicUsize, POOLS> =
    List::new([const { AtomicPtr::new(core::ptr::null_mut()) }; POOLS], AtomicUsize::new(0));
/// Whether the pool has an effect on this process.
#[inline]
pub(crate) fn on() -> bool {
    job::pools()
}

/// Whether contexts and captures of this process must be known: for the pool, or for a cap without it.
#[inline]
pub(crate) fn watching() -> bool {
    on() || cap::on().is_some()
}

/// Whether any pool exists: without one there is nothing to notify or to describe.
#[inline]
pub(crate) fn any() -> bool {
    LIST.any() && on()
}

/// All pools. None in a forked child.
#[inline]
pub(crate) fn pools() -> impl Iterator<Item = &'static Served> {
    // SAFETY: a non-null pointer is a leaked `Served`.
    LIST.iter().filter_map(|served: *mut Served| unsafe { served.as_ref() })
}

/// The pool that an address belongs to, live or not.
#[inline]
pub(crate) fn owner(addr: u64) -> Option<&'static Served> {
    pools().find(|served| served.holds(addr))
}

/// The live block that holds an address.
pub(crate) fn block(addr: u64) -> Option<(&'static Served, BlockInfo)> {
    let served = owner(addr)?;
    Some((served, served.pool.lookup(addr)?))
}

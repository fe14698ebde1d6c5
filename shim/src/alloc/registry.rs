//! Which device pools there are, which of them serves a context, and whose memory an address is.

use super::DevicePool;
use crate::cap;
use crate::process::job;
use core::sync::atomic::{AtomicPtr, AtomicUsize};
use weir_pool::BlockInfo;
use weir_pool::shared::List;

const POOLS: usize = 256;
pub(super) static LIST: List<AtomicPtr<DevicePool>, AtomicUsize, POOLS> =
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
pub(crate) fn pools() -> impl Iterator<Item = &'static DevicePool> {
    // SAFETY: a non-null pointer is a leaked `DevicePool`.
    LIST.iter().filter_map(|device_pool: *mut DevicePool| unsafe { device_pool.as_ref() })
}

/// The pool that an address belongs to, live or not.
#[inline]
pub(crate) fn owner(addr: u64) -> Option<&'static DevicePool> {
    pools().find(|device_pool| device_pool.holds(addr))
}

/// The live block that holds an address.
pub(crate) fn block(addr: u64) -> Option<(&'static DevicePool, BlockInfo)> {
    let device_pool = owner(addr)?;
    Some((device_pool, device_pool.pool.lookup(addr)?))
}

//! Blocks of the pool that other processes or devices use: pinned until they are freed.
//! Whoever frees what others still use has ended their use, as with the driver's own memory.

use super::DevicePool;
use core::sync::atomic::AtomicUsize;
use weir_pool::ranks::Rank;
use weir_pool::shared::{Counted, Counts, Guarded};

/// Address and pool of every pinned block.
struct Pins(Vec<(u64, usize)>);

impl Counts<1> for Pins {
    fn counts(&self) -> [usize; 1] {
        [self.0.len()]
    }
}

static PINNED: Counted<Guarded<Pins>, AtomicUsize, 1> =
    Counted::new(Guarded::new(Rank::Pins, Pins(Vec::new())), [AtomicUsize::new(0)]);

fn key(device_pool: &DevicePool) -> usize {
    core::ptr::from_ref(device_pool) as usize
}

/// Pins a block, once however often it is shared. False: it is no block.
pub(crate) fn pin(device_pool: &'static DevicePool, addr: u64) -> bool {
    // A growth may be under way: no lock is held while it is waited for.
    if device_pool.pool.pin(addr).is_err() {
        return false;
    }
    PINNED.with(|pins: &mut Pins| pins.0.push((addr, key(device_pool))));
    // Freed before it was in the list: nobody else gets the block while it is pinned, so it is this one's.
    let live = device_pool.pool.lookup(addr).is_some_and(|block| block.addr == addr);
    if !live {
        release(device_pool, addr);
    }
    live
}

/// Pins a block that another device may come to know by its pages, for as long as it lives; called often, pinned once.
#[cold]
pub(crate) fn keep(device_pool: &'static DevicePool, addr: u64) {
    let known = || PINNED.with(|pins: &mut Pins| pins.0.contains(&(addr, key(device_pool))));
    if !PINNED.any() || !known() {
        pin(device_pool, addr);
    }
}

/// Undoes one [`pin`].
pub(crate) fn unpin(device_pool: &'static DevicePool, addr: u64) {
    PINNED.with(|pins: &mut Pins| {
        if let Some(at) = pins.0.iter().position(|known| *known == (addr, key(device_pool))) {
            pins.0.swap_remove(at);
            let _ = device_pool.pool.unpin(addr);
        }
    });
}

/// A block was freed, and so are its pins.
#[inline]
pub(crate) fn freed(device_pool: &'static DevicePool, addr: u64) {
    if PINNED.any() {
        release(device_pool, addr);
    }
}

#[cold]
fn release(device_pool: &'static DevicePool, addr: u64) {
    let count = PINNED.with(|pins: &mut Pins| {
        let before = pins.0.len();
        pins.0.retain(|known| *known != (addr, key(device_pool)));
        before - pins.0.len()
    });
    for _ in 0..count {
        let _ = device_pool.pool.unpin(addr);
    }
}

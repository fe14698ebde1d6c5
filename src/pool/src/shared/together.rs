//! Caches in front of a core, each with a lock of its own: served without the core's lock, filled only under both. Who
//! needs the whole takes the core's lock with those of all caches that may know something.
//!
//! Whoever holds the core's lock waits for no cache, so nobody waits in a circle; several caches are locked in their order.

/// What is locked. Which caches may know something is kept with the core and changes only under its lock.
pub trait Layers: Copy {
    /// A locked cache.
    type Cache;
    /// The locked core.
    type Core;
    /// Lock a cache.
    fn cache(self, at: usize) -> Self::Cache;
    /// Lock the core.
    fn core(self) -> Self::Core;
    /// The caches that may know something, a bit each.
    fn filled(core: &Self::Core) -> u64;
}

/// The core and all caches that may know something, locked. The caches may be unlocked first: while the core is locked
/// nothing comes into them.
#[inline(always)]
pub fn together<L: Layers>(layers: L) -> (L::Core, Vec<L::Cache>) {
    let core = layers.core();
    match L::filled(&core) {
        0 => (core, Vec::new()),
        filled => {
            drop(core);
            all_of(layers, filled)
        }
    }
}

#[inline(never)]
fn all_of<L: Layers>(layers: L, mut filled: u64) -> (L::Core, Vec<L::Cache>) {
    loop {
        let caches = (0..u64::BITS as usize).filter(|at| filled >> at & 1 == 1).map(|at| layers.cache(at)).collect();
        let core = layers.core();
        let more = L::filled(&core) & !filled;
        if more == 0 {
            return (core, caches);
        }
        // Another one was filled meanwhile. There are not many, so this comes to an end.
        filled |= more;
    }
}

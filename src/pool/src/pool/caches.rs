//! Hits and frees by the caches of streams, and what needs all of them together. Touches host memory only.

use super::Pool;
use crate::config::Caching;
use crate::core::{Core, Want};
use crate::fault::injected;
use crate::ranks::{Locked, Mutex, Rank};
use crate::shared::{Layers, together};
use crate::stream_cache::{CACHES, REST, StreamCache, place};
use crate::{AllocError, Allocation, Config, Fault, FreeError, Freed, Observer, Request};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// So often a thread finds the pool's lock taken before streams get caches.
const MEETINGS: u32 = 256;

/// A cache, on cache lines of its own.
#[repr(align(128))]
struct Own {
    cache: Mutex<StreamCache>,
    /// Frees until it is used again; a hint.
    rest: AtomicU32,
}

/// The caches of a pool; on cache lines that nobody writes to once they are on.
#[repr(align(128))]
pub(super) struct Caches {
    /// Whether they are used. A hint: what they know is what counts.
    on: AtomicBool,
    wanted: bool,
    meetings: AtomicU32,
    each: Box<[Own]>,
}

impl Caches {
    pub(super) fn new(config: &Config) -> Self {
        let cache = || Mutex::new(Rank::StreamCache, StreamCache::new(config));
        let one = |_| Own { cache: cache(), rest: AtomicU32::new(0) };
        Self {
            on: AtomicBool::new(config.caching == Caching::Always),
            wanted: config.caching != Caching::Never,
            meetings: AtomicU32::new(0),
            each: (0..CACHES).map(one).collect(),
        }
    }

    /// The cache that serves a stream, if streams have caches and this one does not rest.
    #[inline(always)]
    fn of(&self, stream: u64) -> Option<usize> {
        if !self.on.load(Ordering::Relaxed) {
            return None;
        }
        let place = place(stream);
        (self.each[place % CACHES].rest.load(Ordering::Relaxed) == 0).then_some(place)
    }

    /// The same for a free, of which a cache that rests counts some.
    #[inline(always)]
    fn of_free(&self, stream: u64) -> Option<usize> {
        if !self.on.load(Ordering::Relaxed) {
            return None;
        }
        let place = place(stream);
        let rest = &self.each[place % CACHES].rest;
        match rest.load(Ordering::Relaxed) {
            0 => Some(place),
            left => {
                rest.store(left - 1, Ordering::Relaxed);
                None
            }
        }
    }

    /// Two threads have met at the pool's lock.
    #[cold]
    pub(super) fn met(&self) {
        if self.wanted && !self.on.load(Ordering::Relaxed) && self.meetings.fetch_add(1, Ordering::Relaxed) >= MEETINGS
        {
            self.on.store(true, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    #[track_caller]
    fn lock(&self, at: usize) -> Locked<'_, StreamCache> {
        self.each[at % CACHES].cache.lock_by(|mutex| crate::lock::lock(mutex, || ()))
    }
}

/// The pool's locks.
#[derive(Clone, Copy)]
struct Locks<'a>(&'a Pool);

impl<'a> Layers for Locks<'a> {
    type Cache = Locked<'a, StreamCache>;
    type Core = Locked<'a, Core>;

    #[track_caller]
    fn cache(self, at: usize) -> Self::Cache {
        self.0.caches.lock(at)
    }

    #[inline(always)]
    #[track_caller]
    fn core(self) -> Self::Core {
        self.0.lock()
    }

    #[inline(always)]
    fn filled(core: &Self::Core) -> u64 {
        core.cached
    }
}

impl Pool {
    /// The pool's state, with everything that the caches knew: they stay empty while it is locked.
    #[inline]
    #[track_caller]
    pub(super) fn whole(&self) -> Locked<'_, Core> {
        let (mut core, mut caches) = together(Locks(self));
        for cache in &mut caches {
            core.recall(cache);
        }
        core.cached = 0;
        core
    }

    /// The same for a request that nothing serves.
    #[track_caller]
    pub(super) fn whole_for_growth(&self) -> Locked<'_, Core> {
        if injected(Fault::CachesForgotten) { self.lock() } else { self.whole() }
    }

    /// What `read` finds at a time that may prove something: whatever is freed after it is later.
    #[inline]
    #[track_caller]
    pub(super) fn dated<R>(&self, read: impl FnOnce(&mut Core) -> R) -> R {
        let (mut core, mut caches) = together(Locks(self));
        let found = read(&mut core);
        if !caches.is_empty() && !injected(Fault::CacheNotDated) {
            let stamp = core.order.tick();
            for cache in &mut caches {
                cache.date(stamp);
            }
        }
        found
    }

    /// Serve a request from what its stream may reuse at once.
    #[inline(always)]
    pub(super) fn hit(&self, request: &Request) -> Result<Result<Allocation, Want>, AllocError> {
        match request.stream.and_then(|stream| Some((stream, self.caches.of(stream)?))) {
            Some((stream, place)) => self.hit_cached(request, stream, place),
            None => Self::hit_in(&mut self.lock(), request),
        }
    }

    #[inline(always)]
    fn hit_in(core: &mut Core, request: &Request) -> Result<Result<Allocation, Want>, AllocError> {
        let want = core.want(request)?;
        Ok(core.hit(&want).ok_or(want))
    }

    fn hit_cached(&self, request: &Request, stream: u64, place: usize) -> Result<Result<Allocation, Want>, AllocError> {
        let mut cache = self.caches.lock(place);
        if let Some(allocation) = cache.take(request, stream) {
            return Ok(Ok(allocation));
        }
        let mut core = self.lock();
        core.supply(&mut cache);
        if cache.gives_up() {
            core.recall(&mut cache);
            core.cached &= !(1 << place);
            self.caches.each[place % CACHES].rest.store(REST, Ordering::Relaxed);
        }
        drop(cache);
        Self::hit_in(&mut core, request)
    }

    /// Take back a block in the order of a stream.
    #[inline(always)]
    pub(super) fn free_in_order(
        &self,
        addr: u64,
        stream: u64,
        context: u64,
        observer: impl Observer,
    ) -> Result<Freed, FreeError> {
        if let Some(place) = self.caches.of_free(stream) {
            return self.free_cached(place, addr, (stream, context), observer);
        }
        let mut core = self.lock();
        let freed = core.free(addr, Some((stream, context)), |number| observer.found(number));
        if let Ok(freed) = &freed {
            observer.freed(freed);
        } else if core.is_cached(addr) {
            drop(core);
            return self.free_cached(place(stream), addr, (stream, context), observer);
        }
        freed
    }

    fn free_cached(
        &self,
        place: usize,
        addr: u64,
        (stream, context): (u64, u64),
        observer: impl Observer,
    ) -> Result<Freed, FreeError> {
        let found = |number| observer.found(number);
        let mut cache = self.caches.lock(place);
        if let Some(freed) = cache.put(addr, stream, context, found) {
            observer.freed(&freed);
            return Ok(freed);
        }
        let mut core = self.lock();
        let mut freed = core.free_into(&mut cache, place, addr, (stream, context), found);
        drop(cache);
        if freed.is_err() && core.is_cached(addr) {
            // In the cache of another stream.
            drop(core);
            core = self.whole();
            freed = core.free(addr, Some((stream, context)), found);
        }
        if let Ok(freed) = &freed {
            observer.freed(freed);
        }
        freed
    }
}

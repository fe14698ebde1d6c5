//! What threads share without a lock, under a model checker: every interleaving of two or three threads, and every value
//! that a load may see by its ordering. The code is that of the job; each rule is also broken once, on purpose, and the
//! checker must find the fault.
//!
//! Accesses have their real orderings, but for those that are sequentially consistent: the checker knows less of that
//! order than the machine keeps, so it is given each of them as a read-modify-write, which never sees an old value.

mod contexts;
mod counted;
mod gate;
mod list;
mod once;
mod streams;
mod together;
mod waiting;

use loom::sync::atomic::{self, Ordering};
use loom::sync::{Condvar, Mutex};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use weir_pool::shared::{Atomic, Lock, Word};

pub(crate) use loom::cell::UnsafeCell;
pub(crate) use loom::thread;

/// Every access also touches a second word, with no order at all. The checker takes a load and a store of one word for
/// dependent only if nothing of the storing thread lies between them, and would leave out runs; with that word every two
/// accesses are.
macro_rules! watched {
    ($($watched:ident: $value:ty;)*) => {$(
        pub(crate) struct $watched(atomic::$watched, atomic::AtomicUsize);
        impl $watched {
            pub(crate) fn new(value: $value) -> Self {
                Self(atomic::$watched::new(value), atomic::AtomicUsize::new(0))
            }
            fn touched(&self) -> &atomic::$watched {
                self.1.fetch_add(1, Ordering::Relaxed);
                &self.0
            }
        }
        impl Atomic<$value> for $watched {
            fn load(&self, order: Ordering) -> $value {
                match order {
                    Ordering::SeqCst => self.touched().fetch_add(0, order),
                    order => self.touched().load(order),
                }
            }
            fn store(&self, value: $value, order: Ordering) {
                match order {
                    Ordering::SeqCst => _ = self.touched().swap(value, order),
                    order => self.touched().store(value, order),
                }
            }
            fn swap(&self, value: $value, order: Ordering) -> $value {
                self.touched().swap(value, order)
            }
            fn exchange(&self, from: $value, to: $value) -> Result<$value, $value> {
                self.touched().compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            }
        }
    )*};
}
watched! {
    AtomicU8: u8;
    AtomicU32: u32;
    AtomicU64: u64;
    AtomicUsize: usize;
}

impl Word for AtomicU64 {
    fn add(&self, amount: u64) -> u64 {
        self.touched().fetch_add(amount, Ordering::SeqCst)
    }
    fn sub(&self, amount: u64) -> u64 {
        self.touched().fetch_sub(amount, Ordering::SeqCst)
    }
}

/// A bound that nothing here comes to.
pub(crate) const LONG: Duration = Duration::MAX;

/// The lock of the job, made of the checker's.
pub(crate) struct Guarded<T> {
    value: Mutex<T>,
    changed: Condvar,
}

impl<T> Guarded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Condvar::new() }
    }
}

impl<T> Lock<T> for Guarded<T> {
    fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let result = work(&mut self.value.lock().expect("no thread panics"));
        self.changed.notify_all();
        result
    }
    /// Nobody gives up here: what ends without the bounds ends with them.
    fn when_within<R>(&self, _: Duration, mut look: impl FnMut(&mut T) -> Option<R>) -> Option<R> {
        let mut value = self.value.lock().expect("no thread panics");
        loop {
            if let Some(found) = look(&mut value) {
                return Some(found);
            }
            value = self.changed.wait(value).expect("no thread panics");
        }
    }
}

/// What several threads have. Never dropped: a run that the checker ends must not end in it twice.
pub(crate) struct Arc<T: 'static> {
    it: &'static T,
}

impl<T> Arc<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { it: Box::leak(Box::new(value)) }
    }
}

impl<T> Clone for Arc<T> {
    fn clone(&self) -> Self {
        Self { it: self.it }
    }
}

impl<T> std::ops::Deref for Arc<T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.it
    }
}

/// Whether every run of a scenario ends well.
pub(crate) fn holds(scenario: impl Fn() + Sync + Send + 'static) -> bool {
    catch_unwind(AssertUnwindSafe(|| loom::model(scenario))).is_ok()
}

/// The same with so many preemptions at most, where all runs are too many.
pub(crate) fn holds_within(preemptions: usize, scenario: impl Fn() + Sync + Send + 'static) -> bool {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    catch_unwind(AssertUnwindSafe(|| model.check(scenario))).is_ok()
}

/// Two threads and the caller's own.
pub(crate) fn beside(other: impl FnOnce() + 'static, here: impl FnOnce()) {
    let other = thread::spawn(other);
    here();
    other.join().expect("no thread panics");
}

/// Something that is written once, without any care, before it is shown: the checker sees who reads it too early.
pub(crate) struct Thing(UnsafeCell<u64>);

impl Thing {
    pub(crate) fn unmade() -> Self {
        Self(UnsafeCell::new(0))
    }
    pub(crate) fn make(&self, value: u64) {
        // SAFETY: the checker ends the run if anybody else is at it.
        self.0.with_mut(|place| unsafe { *place = value });
    }
    pub(crate) fn read(&self) -> u64 {
        // SAFETY: as above.
        self.0.with(|place| unsafe { *place })
    }
}

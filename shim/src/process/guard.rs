//! The boundary: a panic of weir's own never reaches the job, and no thread is cancelled inside weir: nothing but a panic
//! may unwind to here. Weir's own system calls are no cancellation points (`calls.rs`), and calls into the driver run with
//! the cancellation put off.

use super::calls::Uncancelled;
use super::job;
use super::stack::roomy;
use core::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use weir_cuda::Variant;
use weir_pool::ranks;

/// Runs `work` where the stack has room for it; if it panics, weir turns itself into a pass-through and the answer is
/// `None`.
#[inline]
pub(crate) fn run<R>(place: &str, work: impl FnOnce() -> R) -> Option<R> {
    roomy(|| run_quick(place, work))
}

/// The same for work that mostly needs little room, and requests it where it needs more.
#[inline]
pub(crate) fn run_quick<R>(place: &str, work: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => Some(result),
        Err(payload) => {
            let text = payload
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| payload.downcast_ref::<&str>().copied())
                .unwrap_or("no message");
            job::turn_off(format!("panic in {place}: {text}"));
            // The payload's own destructor could panic again; it is small and this happens once.
            core::mem::forget(payload);
            None
        }
    }
}

/// One call of an intercepted function that has a body. The body forwards through it, so that a
/// panic afterwards neither repeats the call nor loses its result.
pub(crate) struct Call<F, R> {
    real: F,
    result: Cell<Option<R>>,
    /// Which default stream the called variant means.
    pub(crate) variant: Variant,
}

impl<F: Copy, R: Copy> Call<F, R> {
    /// A call of `real`.
    pub(crate) fn new(real: F, variant: Variant) -> Self {
        Self { real, result: Cell::new(None), variant }
    }

    /// Calls the real function by `with`, and remembers its result.
    pub(crate) fn forward(&self, with: impl FnOnce(F) -> R) -> R {
        ranks::calling("the job's function", |_| false);
        let _uncancelled = Uncancelled::enter();
        let result = with(self.real);
        self.result.set(Some(result));
        result
    }

    /// The real function, for a call that is not the job's own.
    pub(crate) fn real(&self) -> F {
        self.real
    }

    /// What the real function has answered to the job's call, if it was called.
    pub(crate) fn result(&self) -> Option<R> {
        self.result.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_panics_after_the_call_keeps_its_result() {
        let calls = Cell::new(0);
        let real = |x: i32| {
            calls.set(calls.get() + 1);
            x * 2
        };
        let call = Call::new(&real, Variant::Legacy);
        let answer = run("a test", || {
            call.forward(|real| real(21));
            std::panic::panic_any("after")
        })
        .or_else(|| call.result())
        .unwrap_or_else(|| real(21));
        assert_eq!((answer, calls.get()), (42, 1));
        assert!(job::off().is_some_and(|r| r.contains("panic in a test: after")));
    }

    #[test]
    fn a_body_that_panics_before_the_call_is_replaced_by_it() {
        let call = Call::new(|x: i32| x * 2, Variant::Legacy);
        let answer: i32 = run("a test", || std::panic::panic_any("before"))
            .or_else(|| call.result())
            .unwrap_or_else(|| call.real()(4));
        assert_eq!(answer, 8);
    }
}

//! Trials that are data: each is listed, filtered and counted by `cargo test` like a test function.

use libtest_mimic::{Arguments, Failed, Trial};
use std::any::Any;
use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::{PoisonError, RwLock};

/// Held by every trial; for writing by those that need the machine for themselves.
static MACHINE: RwLock<()> = RwLock::new(());

thread_local! {
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The trials of one test program.
pub struct Suite {
    trials: Vec<Trial>,
    threads: usize,
}

impl Suite {
    /// No trial yet.
    #[expect(clippy::new_without_default, reason = "it changes how the process reports panics")]
    pub fn new() -> Self {
        std::panic::set_hook(Box::new(|info| {
            if let Some(place) = info.location() {
                PLACE.with(|p| *p.borrow_mut() = format!("{}:{}", place.file(), place.line()));
            }
        }));
        Self { trials: Vec::new(), threads: 2 }
    }

    /// Adds a trial, which fails by a panic.
    pub fn add(&mut self, name: impl Into<String>, body: impl FnOnce() + Send + 'static) {
        self.trials.push(Trial::test(name, move || {
            let _shared = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
            outcome(body)
        }));
    }

    /// Adds a trial beside which no other one runs.
    pub fn alone(&mut self, name: impl Into<String>, body: impl FnOnce() + Send + 'static) {
        self.trials.push(Trial::test(name, move || {
            let _whole = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
            outcome(body)
        }));
    }

    /// How many trials run at a time, if not two: for those that wait for their device most of the time.
    pub fn threads(&mut self, count: usize) {
        self.threads = count;
    }

    /// Runs what the arguments of the process select.
    pub fn run(self) -> ExitCode {
        let mut arguments = Arguments::from_args();
        arguments.test_threads.get_or_insert(self.threads);
        libtest_mimic::run(&arguments, self.trials).exit_code()
    }
}

fn outcome(body: impl FnOnce()) -> Result<(), Failed> {
    std::panic::catch_unwind(AssertUnwindSafe(body)).map_err(|panic| {
        let place = PLACE.with(|p| p.borrow().clone());
        Failed::from(format!("{}\nat {place}", words(&*panic)))
    })
}

fn words(panic: &(dyn Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<String>() {
        text
    } else {
        panic.downcast_ref::<&str>().copied().unwrap_or("panicked")
    }
}

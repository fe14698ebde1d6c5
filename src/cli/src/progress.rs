//! A progress bar on standard error, for work that takes more than a second; only on a terminal. A thread of its own draws
//! it, so that work of unknown length shows that it goes on, too. indicatif has no bar that appears only after a while and
//! none that changes from a known to an unknown length: with both written around it, the code would be longer than this.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::ascii;

/// How often the bar is drawn.
const EVERY: Duration = Duration::from_millis(100);
/// What is over sooner needs no bar.
const PATIENCE: Duration = Duration::from_secs(1);
/// Letters of the bar.
const LENGTH: u64 = 30;

/// A bar. It erases itself when it goes.
pub(crate) struct Progress {
    /// How much is done, and of how much.
    state: Arc<(AtomicU64, AtomicU64)>,
    drawer: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// A bar for this work.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self::followed(what, "")
    }

    /// A bar for this work, and for the work of unknown length that follows it.
    pub(crate) fn followed(what: impl Into<String>, then: &'static str) -> Self {
        let state = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        // A terminal that cannot erase would keep every picture of it.
        if !std::io::stderr().is_terminal() || ascii::is_dumb() {
            return Self { state, drawer: None };
        }
        let (what, shared, (end, over)) = (what.into(), Arc::clone(&state), channel());
        let draw = move || {
            let began = Instant::now();
            let mut drawn = false;
            while over.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                if began.elapsed() > PATIENCE {
                    let (done, all) = (shared.0.load(Ordering::Relaxed), shared.1.load(Ordering::Relaxed));
                    eprint!("\r{}\x1b[K", ascii::fit(&bar(&what, then, done, all, began.elapsed())));
                    let _ = std::io::stderr().flush();
                    drawn = true;
                }
            }
            if drawn {
                eprint!("\r\x1b[K");
            }
        };
        // Without a thread there is no bar.
        let drawer = std::thread::Builder::new().name("weir-progress".into()).spawn(draw).ok();
        Self { state, drawer: drawer.map(|thread| (end, thread)) }
    }

    /// So much of the whole is done.
    pub(crate) fn at(&mut self, done: u64, all: u64) {
        self.state.1.store(all, Ordering::Relaxed);
        self.state.0.store(done, Ordering::Relaxed);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.drawer.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}

/// The bar as text. Work of unknown length has a mark that wanders.
fn bar(what: &str, then: &str, done: u64, all: u64, since: Duration) -> String {
    let seconds = since.as_secs();
    if done >= all && all > 0 && !then.is_empty() {
        let place = since.as_millis() as u64 / 200 % LENGTH;
        let (before, after) = (dots(place), dots(LENGTH - 1 - place));
        return format!("{then} [{before}#{after}] {seconds} s ");
    }
    let filled = (u128::from(done.min(all)) * u128::from(LENGTH) / u128::from(all.max(1))) as u64;
    format!("{what} [{}{}] {seconds} s ", "#".repeat(filled as usize), dots(LENGTH - filled))
}

fn dots(count: u64) -> String {
    "·".repeat(count as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills_and_then_wanders() {
        let at = |done, then, millis| bar("reading", then, done, 100, Duration::from_millis(millis));
        assert_eq!(at(50, "", 2500), format!("reading [{}{}] 2 s ", "#".repeat(15), "·".repeat(15)));
        assert_eq!(at(100, "", 3000), format!("reading [{}] 3 s ", "#".repeat(30)));
        let wandering = at(100, "checking", 3000);
        assert_eq!(wandering, format!("checking [{}#{}] 3 s ", "·".repeat(15), "·".repeat(14)));
        assert_ne!(wandering, at(100, "checking", 3200), "it moves");
    }
}

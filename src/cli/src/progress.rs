//! A progress bar on standard error, for what takes more than a second; only on a terminal.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// A bar. It erases itself when it goes.
pub(crate) struct Progress {
    what: String,
    began: Instant,
    drawn: Option<Instant>,
    terminal: bool,
}

impl Progress {
    /// A bar for this work.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), began: Instant::now(), drawn: None, terminal: std::io::stderr().is_terminal() }
    }

    /// So much of the whole is done.
    pub(crate) fn at(&mut self, done: u64, all: u64) {
        let due = self
            .drawn
            .map_or(self.began.elapsed() > Duration::from_secs(1), |last| last.elapsed() > Duration::from_millis(100));
        if !self.terminal || !due {
            return;
        }
        self.drawn = Some(Instant::now());
        let filled = (done.min(all) * 30 / all.max(1)) as usize;
        let seconds = self.began.elapsed().as_secs();
        eprint!("\r{} [{}{}] {seconds} s \x1b[K", self.what, "#".repeat(filled), "·".repeat(30 - filled));
        let _ = std::io::stderr().flush();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            eprint!("\r\x1b[K");
        }
    }
}

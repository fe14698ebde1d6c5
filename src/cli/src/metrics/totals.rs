//! What happened since the exporter began, over all runs: counters that stay when a run has ended, also one that began and
//! ended between two looks. Each begins at 0, so that `increase()` sees the first one.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::watch::{Job, Life};

/// What of a run has been counted.
#[derive(Clone, Copy)]
struct Counted {
    ooms: u64,
    failed: bool,
    ended: bool,
}

/// The counters.
#[derive(Default)]
pub(super) struct Totals {
    known: HashMap<PathBuf, Counted>,
    looked: bool,
    /// Runs that began.
    pub(super) started: u64,
    /// Runs that ended in order, and those that did not.
    pub(super) ended: [u64; 2],
    /// Requests for memory that failed.
    pub(super) ooms: u64,
    /// Runs in which one failed.
    pub(super) failed: u64,
}

impl Totals {
    /// Counts what is new. What the first look finds happened before.
    pub(super) fn count(&mut self, jobs: &[Job]) {
        for job in jobs {
            let over = matches!(job.life, Life::Ended | Life::Killed);
            let now = Counted { ooms: job.ooms, failed: job.ooms > 0, ended: over };
            let before = self.known.insert(job.journal.clone(), now);
            if !self.looked {
                continue;
            }
            self.started += u64::from(before.is_none());
            let before = before.unwrap_or(Counted { ooms: 0, failed: false, ended: false });
            self.ooms += now.ooms.saturating_sub(before.ooms);
            self.failed += u64::from(now.failed && !before.failed);
            if now.ended && !before.ended {
                self.ended[usize::from(job.life == Life::Killed)] += 1;
            }
        }
        self.known.retain(|path, _| jobs.iter().any(|job| job.journal == *path));
        self.looked = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, life: Life, ooms: u64) -> Job {
        Job {
            pid: 1,
            life,
            command: String::new(),
            group: None,
            user: String::new(),
            scheduler_id: None,
            pod: None,
            started: 0.0,
            journal: name.into(),
            events: 0,
            ooms,
            last_oom: None,
            turned_off: None,
            resident: 0,
            gpus: Vec::new(),
        }
    }

    #[test]
    fn a_run_that_came_and_went_between_two_looks_is_counted() {
        let mut totals = Totals::default();
        let mut look = |jobs: &[Job]| {
            totals.count(jobs);
            (totals.started, totals.ended, totals.ooms, totals.failed)
        };
        assert_eq!(look(&[job("a", Life::Alive, 3)]), (0, [0, 0], 0, 0), "before the exporter");
        assert_eq!(look(&[job("a", Life::Alive, 5), job("b", Life::Killed, 1)]), (1, [0, 1], 3, 1));
        assert_eq!(look(&[job("a", Life::Ended, 5), job("b", Life::Killed, 1)]), (1, [1, 1], 3, 1));
        assert_eq!(
            look(&[job("a", Life::Ended, 5)]),
            (1, [1, 1], 3, 1),
            "a journal that is deleted takes nothing back"
        );
        assert_eq!(look(&[job("a", Life::Ended, 5), job("c", Life::Alive, 0)]), (2, [1, 1], 3, 1));
    }
}

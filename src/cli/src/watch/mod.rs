//! What the jobs under weir hold right now, for `weir top` and `weir metrics`: journals have who holds what, ledgers have
//! what is charged and capped. Only reads; a job does not notice that it is watched.

mod history;
mod holders;
mod job;
mod others;

use crate::settings;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use weir_forensics::runs;
use weir_journal::text;
use weir_ledger::LedgerDir;
use weir_ledger::control::{self, Target};

pub(crate) use holders::{LiveHolder, class_name, holders_of};
pub(crate) use job::{Gpu, Job, Life, user_name};

/// Journals looked at in one folder; the newest ones count.
const MOST_JOURNALS: usize = 512;

/// What a ledger records of one process on one device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Charge {
    /// Bytes charged to the process.
    pub(crate) charged: u64,
    /// The most that ever was.
    pub(crate) peak: u64,
    /// The cap in force, shared with the group if there is one.
    pub(crate) cap: Option<u64>,
    /// Bytes charged to other processes of the group.
    pub(crate) by_others: u64,
    /// Bytes the process waits for.
    pub(crate) waits_for: Option<u64>,
    /// The group.
    pub(crate) group: Option<String>,
}

/// Charges by process and device.
pub(crate) type Charges = HashMap<(u32, [u8; 16]), Charge>;

/// Which jobs are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    /// Those that live, and those that ended since the watch began.
    Living,
    /// All that left a journal.
    All,
}

/// Watches the jobs of one folder.
pub(crate) struct Watch {
    dir: PathBuf,
    /// Whether the jobs of all users are watched: by root, unless a folder is given.
    all_users: bool,
    place: LedgerDir,
    known: HashMap<PathBuf, job::Watched>,
    /// When the watch began, in seconds since 1970.
    began: f64,
    /// Files that cannot be read, with the reason, so that each is reported once.
    unreadable: Vec<String>,
}

impl Watch {
    /// The folder that the variables name, or the one given.
    pub(crate) fn new(dir: Option<&Path>) -> Result<Self, String> {
        let given = dir.map(std::path::absolute).transpose().map_err(|error| format!("--dir: {error}"))?;
        let settings = settings::own();
        let own = given.as_ref().or(settings.own_dir.as_ref());
        let place = LedgerDir::from_variables(own.map(PathBuf::as_path), settings.runtime_dir.as_deref());
        let all_users = own.is_none() && runs::is_root();
        let dir = given.map_or_else(settings::directory, Ok).map_err(|error| error.to_string())?;
        Ok(Self { dir, all_users, place, known: HashMap::new(), began: now(), unreadable: Vec::new() })
    }

    /// The folder.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Files with a journal's name that cannot be read, and why.
    pub(crate) fn unreadable(&self) -> &[String] {
        &self.unreadable
    }

    /// Looks at every job: those that live first, then the newest.
    pub(crate) fn look(&mut self, show: Show) -> Vec<Job> {
        let now = now();
        let charges = self.charges();
        let paths = self.journals();
        let there: HashSet<&PathBuf> = paths.iter().collect();
        self.known.retain(|path, _| there.contains(path));
        self.unreadable.clear();
        let mut jobs = Vec::new();
        for path in &paths {
            if !self.known.contains_key(path) {
                match job::Watched::open(path, now, self.began) {
                    Ok(watched) => self.known.insert(path.clone(), watched),
                    Err(error) => {
                        self.unreadable.push(format!("{} {error}", path.display()));
                        continue;
                    }
                };
            }
            let Some(watched) = self.known.get_mut(path) else { continue };
            if show == Show::All || watched.lived() {
                match watched.look(now, &charges) {
                    Ok(job) => jobs.push(job),
                    Err(error) => self.unreadable.push(format!("{} {error}", path.display())),
                }
            }
        }
        jobs.sort_by(|a, b| {
            let order = |job: &Job| (job.life != Life::Alive, -job.started);
            order(a).partial_cmp(&order(b)).unwrap_or(std::cmp::Ordering::Equal)
        });
        jobs
    }

    fn journals(&self) -> Vec<PathBuf> {
        // Newest first. A folder that cannot be read has no jobs to show.
        let mut found = runs::files(&self.dir).unwrap_or_default();
        found.retain(|path| path.extension().is_some_and(|end| end == "weir"));
        found.truncate(MOST_JOURNALS);
        if self.all_users {
            let known: HashSet<PathBuf> = found.iter().filter_map(|path| path.canonicalize().ok()).collect();
            found.extend(others::journals_of_living().into_iter().filter(|path| !known.contains(path)));
        }
        found
    }

    fn charges(&self) -> Charges {
        let mut charges = Charges::new();
        for visit in control::list(&self.place) {
            let group = match &visit.target {
                Target::Group(name) => Some(name.clone()),
                Target::Process(_) => None,
            };
            for device in visit.devices() {
                for holding in &device.holdings {
                    let charge = Charge {
                        charged: holding.charged,
                        peak: holding.peak,
                        cap: device.cap,
                        by_others: device.used.saturating_sub(holding.charged),
                        waits_for: holding.waits_for,
                        group: group.clone(),
                    };
                    charges.insert((holding.pid, device.uuid), charge);
                }
            }
        }
        charges
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Text from a journal, safe for a terminal and of bounded length: names come from the job and may hold anything.
pub(crate) fn clean(text: &str) -> String {
    const MOST: usize = 300;
    text::plain(text).chars().take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_steer_the_terminal() {
        assert_eq!(clean("a\x1b[2Jb\nc\u{202e}d"), "a·[2Jb·c·d");
        assert_eq!(clean(&"x".repeat(1000)).chars().count(), 300);
    }
}

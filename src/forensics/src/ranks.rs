//! One report over all processes of a job: which of them ran out of memory first, what became of the others after it, and
//! who holds how much more than the others, by operation. Reads runs; docs/reference/report.md describes the JSON.

mod member;
mod text;

pub use member::Member;
pub use text::text;

use crate::report::{At, Options, Report};
use crate::{Error, Fate, Run};

/// Version of the JSON.
pub const SCHEMA: u32 = 1;
/// Holders of each process that are compared.
const HOLDERS: usize = 64;
/// Rows of the comparison.
const ROWS: usize = 8;
/// Failures of a process that follow each other so closely are one.
const ONE_STORM_NS: u64 = 30_000_000_000;

/// One process of the job.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Rank {
    /// What to call it: its rank, else its process id.
    pub name: String,
    /// What the job's variables say of it.
    pub member: Member,
    /// The run's name.
    pub run: String,
    /// Its file.
    pub path: String,
    /// Process id.
    pub pid: u32,
    /// Command.
    pub command: String,
    /// How the process is, or ended.
    pub state: Fate,
    /// The status with which it ended in order, if that is known.
    pub exit_status: Option<u8>,
    /// Requests for memory that were refused.
    pub oom: u64,
    /// When it failed for want of memory, nanoseconds since 1970; none if it did not.
    pub failed_ns: Option<u64>,
    /// When it was last seen, nanoseconds since 1970; its end where it ended in order.
    pub seen_ns: u64,
    /// The device that it used most.
    pub device: u8,
    /// Cap; 0 is none.
    pub cap: u64,
    /// Most bytes live at once.
    pub peak: u64,
    /// Bytes live at the moment of the comparison.
    pub live: u64,
    /// What became of it, in words.
    pub course: String,
}

/// Who holds what, at one moment.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// Operation, or what else it is called.
    pub name: String,
    /// `file:line`, or empty.
    pub python: String,
    /// Bytes of each rank, in their order.
    pub bytes: Vec<u64>,
    /// What the rank with the most memory has more of it than the median of the others.
    pub excess: i64,
}

/// How evenly the memory is spread.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Balance {
    /// The place of the rank that holds most.
    pub most: usize,
    /// The median of what the others hold.
    pub others: u64,
    /// What makes the difference, the largest first.
    pub rows: Vec<Row>,
}

/// The report of a job.
#[derive(Clone, Debug, serde::Serialize)]
pub struct JobReport {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What the job was called.
    pub job: String,
    /// Its processes, by rank.
    pub ranks: Vec<Rank>,
    /// The place of the one that ran out first.
    pub first: Option<usize>,
    /// Its own report.
    pub report: Option<Box<Report>>,
    /// The moment of the comparison, nanoseconds since 1970; none where each is at its own peak.
    pub moment_ns: Option<u64>,
    /// Who holds more, where there are several.
    pub balance: Option<Balance>,
    /// Ranks of which there is no run.
    pub missing: Vec<u32>,
    /// What limits the report.
    pub notes: Vec<String>,
}

impl JobReport {
    /// Reports on the runs of a job.
    pub fn of(job: &str, runs: &[Run], mut progress: impl FnMut(u64, u64)) -> Result<Self, Error> {
        let mut members: Vec<(Member, &Run)> =
            runs.iter().map(|run| Ok((Member::of(run)?, run))).collect::<Result<_, Error>>()?;
        members.sort_by_key(|(member, run)| {
            (member.rank.is_none(), member.rank, run.header().started.realtime, run.pid())
        });
        let failures: Vec<Option<(usize, u64)>> = members.iter().map(|(_, run)| failure(run)).collect();
        let failed = failures.iter().enumerate().filter_map(|(place, failure)| Some((failure.as_ref()?.1, place)));
        let first = failed.min().map(|(_, place)| place);
        let moment_ns = first.and_then(|place| failures[place]).map(|(_, time)| time);
        let (mut ranks, mut notes) = (Vec::new(), Vec::new());
        let (mut reports, mut report) = (Vec::new(), None);
        for (place, (member, run)) in members.iter().enumerate() {
            let at = match moment_ns {
                Some(_) if first == Some(place) => At::Oom,
                Some(time) => At::Time(time),
                None => At::Peak,
            };
            let oom =
                failures[place].filter(|_| first == Some(place)).and_then(|(number, _)| (number > 0).then_some(number));
            let options = Options { oom, holders: HOLDERS, no_replay: true, at, ..Options::default() };
            let own = match (Report::of(run, &options, &mut progress), at) {
                // It began later, or its events of that time are overwritten: its peak is known all the same.
                (Err(_), At::Time(_)) => {
                    let mut own = Report::of(run, &Options { at: At::Peak, ..options }, &mut progress)?;
                    if own.evidence.overwritten == 0 {
                        own.holders.clear();
                        own.rest = 0;
                    } else {
                        notes.push(format!(
                            "pid {}: what is live is that of its peak; older events are overwritten",
                            run.pid()
                        ));
                    }
                    own
                }
                (own, _) => own?,
            };
            ranks.push(rank(member, run, &own, failures[place].map(|(_, time)| time)));
            if first == Some(place) {
                report = Some(Box::new(own.clone()));
            }
            reports.push(own);
        }
        name(&mut ranks);
        for place in 0..ranks.len() {
            ranks[place].course = course(&ranks, first, place);
        }
        let balance = (ranks.len() > 1).then(|| balance(&ranks, &reports));
        let missing = missing(&ranks);
        notes.extend(clocks(&ranks));
        Ok(Self { schema: SCHEMA, job: job.to_owned(), ranks, first, report, moment_ns, balance, missing, notes })
    }

    /// Whether a process of the job ran out of memory.
    pub fn is_oom(&self) -> bool {
        self.first.is_some()
    }
}

/// When a run failed for want of memory, and by which dump, counted from 1 (0: it has none): the first of those that led
/// to its end. A run that ended well did not.
fn failure(run: &Run) -> Option<(usize, u64)> {
    if !run.ran_out() || run.exit_status() == Some(0) {
        return None;
    }
    let times: Vec<u64> = run.ooms().iter().map(|dump| dump.realtime_ns).collect();
    let Some(last) = times.len().checked_sub(1) else { return Some((0, seen(run))) };
    let begin = (1..=last).rev().take_while(|place| times[*place].saturating_sub(times[*place - 1]) <= ONE_STORM_NS);
    let begin = last - begin.count();
    Some((begin + 1, times[begin]))
}

/// When a run was last seen, nanoseconds since 1970; its end where it ended in order.
pub fn seen(run: &Run) -> u64 {
    let header = run.header();
    let dump = run.ooms().last().map_or(0, |dump| dump.realtime_ns);
    header.later.map_or(header.started.realtime, |anchor| anchor.realtime).max(dump)
}

fn rank(member: &Member, run: &Run, report: &Report, failed_ns: Option<u64>) -> Rank {
    Rank {
        name: member.label().unwrap_or_else(|| format!("pid {}", run.pid())),
        member: member.clone(),
        run: run.name(),
        path: run.path().to_string_lossy().into_owned(),
        pid: run.pid(),
        command: run.command(),
        state: run.fate(),
        exit_status: run.exit_status(),
        oom: run.oom_count(),
        failed_ns,
        seen_ns: seen(run),
        device: report.device,
        cap: report.cap,
        peak: report.peak,
        live: report.holders.iter().map(|holder| holder.bytes).sum::<u64>() + report.rest,
        course: String::new(),
    }
}

/// Processes of one rank, or of several steps, get names of their own.
fn name(ranks: &mut [Rank]) {
    let names: Vec<String> = ranks.iter().map(|rank| rank.name.clone()).collect();
    for rank in ranks {
        if names.iter().filter(|name| **name == rank.name).count() > 1 {
            rank.name = format!("{} pid {}", rank.name, rank.pid);
        }
    }
}

/// What became of a process, in words, against the one that ran out first.
fn course(ranks: &[Rank], first: Option<usize>, place: usize) -> String {
    let own = &ranks[place];
    let end = match (own.state, own.exit_status) {
        (Fate::Alive, _) => "still runs".into(),
        (Fate::Killed, _) => "was killed or crashed".into(),
        (Fate::Unknown, _) => "has left no exit status, and its machine is another".into(),
        (Fate::Ended, Some(0)) => "ended well".into(),
        (Fate::Ended, Some(status)) => format!("ended with status {status}"),
        (Fate::Ended, None) => "ended".to_owned(),
    };
    let Some((first, began)) = first.and_then(|first| Some((first, ranks[first].failed_ns?))) else { return end };
    if first == place {
        return format!("ran out first, {end}");
    }
    let name = &ranks[first].name;
    let later = |time: u64| {
        let seconds = time.saturating_sub(began) as f64 / 1e9;
        format!("{} after {name}", crate::words::duration(seconds))
    };
    match (own.failed_ns, own.state, own.exit_status) {
        (Some(time), ..) => format!("ran out itself {}, {end}", later(time)),
        (None, Fate::Alive, _) => format!("{end}; nothing of it was refused: it may wait for {name}"),
        (None, Fate::Ended, Some(0)) => end,
        (None, Fate::Ended, _) if own.seen_ns >= began => {
            format!("{end} {}; nothing of it was refused: it lost {name}", later(own.seen_ns))
        }
        (None, Fate::Killed | Fate::Unknown, _) => {
            format!("{end}; nothing of it was refused: its job had lost {name}")
        }
        (None, ..) => format!("{end} before {name} ran out"),
    }
}

/// Who holds more than the others, and by what.
fn balance(ranks: &[Rank], reports: &[Report]) -> Balance {
    let most = (0..ranks.len()).max_by_key(|place| (ranks[*place].live, std::cmp::Reverse(*place))).unwrap_or(0);
    let mut rows: Vec<Row> = Vec::new();
    for (place, report) in reports.iter().enumerate() {
        for holder in &report.holders {
            let (name, python) = (holder.label(), holder.place().to_owned());
            let same = |row: &&mut Row| row.name == name && row.python == python;
            if let Some(row) = rows.iter_mut().find(same) {
                row.bytes[place] += holder.bytes;
            } else {
                let mut bytes = vec![0; ranks.len()];
                bytes[place] = holder.bytes;
                rows.push(Row { name, python, bytes, excess: 0 });
            }
        }
    }
    for row in &mut rows {
        row.excess = row.bytes[most] as i64 - median_of_others(&row.bytes, most) as i64;
    }
    rows.sort_by_key(|row| (std::cmp::Reverse(row.excess), std::cmp::Reverse(row.bytes.iter().max().copied())));
    rows.truncate(ROWS);
    let live: Vec<u64> = ranks.iter().map(|rank| rank.live).collect();
    Balance { most, others: median_of_others(&live, most), rows }
}

fn median_of_others(values: &[u64], left_out: usize) -> u64 {
    let mut others: Vec<u64> =
        values.iter().enumerate().filter(|(place, _)| *place != left_out).map(|(_, value)| *value).collect();
    others.sort_unstable();
    others.get(others.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

/// Ranks that the variables speak of and of which there is no run.
fn missing(ranks: &[Rank]) -> Vec<u32> {
    let all = ranks.iter().filter_map(|rank| rank.member.ranks).max().unwrap_or(0);
    // A number in a file may be anything.
    (0..all.min(1 << 16))
        .filter(|number| !ranks.iter().any(|rank| rank.member.rank == Some(*number)))
        .take(64)
        .collect()
}

/// What is to be known where times of several machines are compared.
fn clocks(ranks: &[Rank]) -> Option<String> {
    let several = ranks.iter().any(|rank| rank.member.host != ranks[0].member.host);
    let compared = several && ranks.iter().any(|rank| rank.failed_ns.is_some());
    compared.then(|| "times are those of each machine's own clock".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_that_of_the_others() {
        assert_eq!(median_of_others(&[9, 1, 3, 2], 0), 2);
        assert_eq!(median_of_others(&[9, 1], 0), 1);
        assert_eq!(median_of_others(&[9], 0), 0);
        assert_eq!(median_of_others(&[1, 9, 3], 1), 1, "the lower one of two");
    }
}

//! What a month of runs says: why memory ran out, at which lines, what that cost, and which caps are larger than what their
//! jobs ever need. Reads a lake; one day of it is in memory at a time.

use std::collections::{BTreeMap, BTreeSet};

use jiff::civil::Date;
use serde::Serialize;

use crate::lake::Lake;
use crate::row::Row;

/// Columns that are read.
const WANTED: &[&str] = &[
    "run",
    "started",
    "seconds",
    "host",
    "user",
    "name",
    "outcome",
    "cause",
    "line",
    "function",
    "op",
    "gpus",
    "gpu_memory",
    "cap",
    "peak",
    "remedy",
];
/// Rows of each table.
const ROWS: usize = 20;
/// Different jobs that are listed for a line.
const JOBS: usize = 3;
/// Different lines, or names of jobs, that are counted.
const MOST: usize = 200_000;
/// What is advised above a job's highest peak, in percent, and to which multiple that is rounded up.
const SPARE: u64 = 10;
const STEP: u64 = 256 << 20;

/// Runs and their hours.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Sum {
    pub(crate) runs: u64,
    pub(crate) gpu_hours: f64,
}

impl Sum {
    fn add(&mut self, row: &Row) {
        self.runs += 1;
        self.gpu_hours += row.gpu_hours();
    }
}

/// A day.
#[derive(Clone, Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names in the JSON")]
pub(crate) struct Day {
    pub(crate) day: String,
    pub(crate) runs: u64,
    pub(crate) oom: u64,
}

/// Why memory ran out.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cause {
    pub(crate) cause: String,
    #[serde(flatten)]
    pub(crate) lost: Sum,
}

/// A line at which memory ran out.
#[derive(Clone, Debug, Default, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names in the JSON")]
pub(crate) struct Line {
    pub(crate) line: String,
    pub(crate) op: String,
    #[serde(flatten)]
    pub(crate) lost: Sum,
    /// Names of jobs, a few of them.
    pub(crate) jobs: BTreeSet<String>,
    /// The most frequent cause, and what was advised last.
    pub(crate) cause: String,
    pub(crate) remedy: String,
    #[serde(skip)]
    causes: BTreeMap<String, u64>,
}

/// What jobs of one name may take and what they need.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Job {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) all: Sum,
    pub(crate) oom: u64,
    /// The highest cap, else the GPU's memory.
    pub(crate) limit: u64,
    /// The highest peak of a run that did not run out.
    pub(crate) peak: u64,
    /// A limit that all of them would fit into.
    pub(crate) advised: u64,
    /// What that frees, times the hours that it was held: GiB-hours.
    pub(crate) spare: f64,
}

/// See the file's first comment.
#[derive(Clone, Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names in the JSON")]
pub(crate) struct Month {
    pub(crate) schema: u32,
    /// `2026-11`, or `all`.
    pub(crate) month: String,
    pub(crate) all: Sum,
    /// Runs that ran out of memory and did not end well.
    pub(crate) lost: Sum,
    /// Runs that were refused memory and ended well.
    pub(crate) recovered: u64,
    pub(crate) users: u64,
    pub(crate) hosts: u64,
    pub(crate) days: Vec<Day>,
    pub(crate) causes: Vec<Cause>,
    pub(crate) lines: Vec<Line>,
    pub(crate) jobs: Vec<Job>,
    /// Files that cannot be read, and why.
    pub(crate) unreadable: Vec<String>,
}

impl Month {
    /// Of a month (`2026-11`), of `all`, or of the newest month that there is.
    pub(crate) fn of(lake: &Lake, month: Option<&str>) -> Result<Self, String> {
        let days = lake.days()?;
        let name = |day: &Date| format!("{:04}-{:02}", day.year(), day.month());
        let newest = days.last().map(name).ok_or("the lake has no runs; ship some with: weir ship LAKE")?;
        let month = month.unwrap_or(&newest);
        let days: Vec<Date> = days.into_iter().filter(|day| month == "all" || name(day) == month).collect();
        if days.is_empty() {
            return Err(format!("the lake has no runs of {month}; the newest month is {newest}"));
        }
        let mut gathered = Gathered::default();
        let mut unreadable = Vec::new();
        let mut each = Vec::new();
        for day in days {
            let (runs, oom) = (gathered.all.runs, gathered.lost.runs);
            unreadable.extend(lake.visit(day, WANTED, |row| gathered.add(&row))?);
            let (runs, oom) = (gathered.all.runs - runs, gathered.lost.runs - oom);
            each.push(Day { day: day.to_string(), runs, oom });
        }
        Ok(gathered.month(month, each, unreadable))
    }
}

#[derive(Default)]
struct Gathered {
    all: Sum,
    lost: Sum,
    recovered: u64,
    users: BTreeSet<String>,
    hosts: BTreeSet<String>,
    causes: BTreeMap<String, Sum>,
    lines: BTreeMap<(String, String), Line>,
    jobs: BTreeMap<String, Job>,
}

/// The value of a key; none for a new one where there are too many.
fn entry<K: Ord, V: Default>(map: &mut BTreeMap<K, V>, key: K) -> Option<&mut V> {
    (map.len() < MOST || map.contains_key(&key)).then(|| map.entry(key).or_default())
}

impl Gathered {
    fn add(&mut self, row: &Row) {
        let bytes = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok()).unwrap_or(0);
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        self.all.add(row);
        for (set, value) in [(&mut self.users, &row.user), (&mut self.hosts, &row.host)] {
            if let Some(value) = value.as_ref().filter(|value| set.len() < MOST && !set.contains(*value)) {
                set.insert(value.clone());
            }
        }
        let oom = row.outcome.as_deref() == Some("oom");
        self.recovered += u64::from(row.outcome.as_deref() == Some("recovered"));
        if let Some(job) = entry(&mut self.jobs, row.name.clone().unwrap_or_else(|| "(no name)".into())) {
            job.all.add(row);
            job.oom += u64::from(oom);
            job.limit = job.limit.max(match bytes(row.cap) {
                0 => bytes(row.gpu_memory),
                cap => cap,
            });
            if !oom {
                job.peak = job.peak.max(bytes(row.peak));
            }
        }
        if !oom {
            return;
        }
        self.lost.add(row);
        let cause = row.cause.clone().unwrap_or_else(|| "unknown".into());
        if let Some(line) = entry(&mut self.lines, (text(&row.line), text(&row.op))) {
            line.lost.add(row);
            if let Some(name) = row.name.as_ref().filter(|_| line.jobs.len() < JOBS) {
                line.jobs.insert(name.clone());
            }
            if row.remedy.is_some() {
                line.remedy = text(&row.remedy);
            }
            if let Some(count) = entry(&mut line.causes, cause.clone()) {
                *count += 1;
            }
        }
        if let Some(sum) = entry(&mut self.causes, cause) {
            sum.add(row);
        }
    }

    fn month(self, month: &str, days: Vec<Day>, unreadable: Vec<String>) -> Month {
        let mut causes: Vec<Cause> = self.causes.into_iter().map(|(cause, lost)| Cause { cause, lost }).collect();
        causes.sort_by_key(|cause| std::cmp::Reverse(cause.lost.runs));
        let mut lines: Vec<Line> = Vec::new();
        for ((place, op), mut line) in self.lines {
            (line.line, line.op) = (place, op);
            let most = line.causes.iter().max_by_key(|(_, count)| **count);
            line.cause = most.map(|(cause, _)| cause.clone()).unwrap_or_default();
            lines.push(line);
        }
        lines.sort_by(|a, b| b.lost.runs.cmp(&a.lost.runs).then(b.lost.gpu_hours.total_cmp(&a.lost.gpu_hours)));
        lines.truncate(ROWS);
        let mut jobs: Vec<Job> = Vec::new();
        for (name, mut job) in self.jobs {
            job.name = name;
            job.advise();
            jobs.push(job);
        }
        jobs.sort_by(|a, b| b.spare.total_cmp(&a.spare).then(b.all.gpu_hours.total_cmp(&a.all.gpu_hours)));
        jobs.truncate(ROWS);
        Month {
            schema: 1,
            month: month.to_owned(),
            all: self.all,
            lost: self.lost,
            recovered: self.recovered,
            users: self.users.len() as u64,
            hosts: self.hosts.len() as u64,
            days,
            causes,
            lines,
            jobs,
            unreadable,
        }
    }
}

impl Job {
    /// A lower limit is advised where all runs went well with less.
    fn advise(&mut self) {
        let needed = self.peak.saturating_add(self.peak / 100 * SPARE).div_ceil(STEP).saturating_mul(STEP);
        self.advised = if self.peak == 0 || self.oom > 0 || needed >= self.limit { self.limit } else { needed };
        self.spare = (self.limit - self.advised) as f64 / (1u64 << 30) as f64 * self.all.gpu_hours;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, outcome: &str, peak: i64, cap: Option<i64>) -> Row {
        Row {
            name: Some(name.into()),
            outcome: Some(outcome.into()),
            cause: (outcome == "oom").then(|| "growth".into()),
            line: (outcome == "oom").then(|| "train.py:7".into()),
            seconds: Some(1800.0),
            gpus: Some(2),
            gpu_memory: Some(80 << 30),
            peak: Some(peak << 30),
            cap: cap.map(|cap| cap << 30),
            ..Row::default()
        }
    }

    #[test]
    fn what_was_lost_and_what_caps_leave_unused() {
        let mut gathered = Gathered::default();
        for row in [
            run("a", "ok", 4, Some(16)),
            run("a", "ok", 5, Some(8)),
            run("c", "oom", 1, Some(16)),
            run("c", "ok", 1, Some(16)),
            run("b", "recovered", 70, None),
        ] {
            gathered.add(&row);
        }
        let month = gathered.month("2026-11", Vec::new(), Vec::new());
        assert_eq!(
            (month.all.clone(), month.lost.clone(), month.recovered),
            (Sum { runs: 5, gpu_hours: 5.0 }, Sum { runs: 1, gpu_hours: 1.0 }, 1)
        );
        assert_eq!((month.causes.len(), month.causes[0].cause.as_str()), (1, "growth"));
        assert_eq!(
            (month.lines[0].line.as_str(), month.lines[0].cause.as_str(), month.lines[0].lost.runs),
            ("train.py:7", "growth", 1)
        );
        let [a, b, c] = &month.jobs[..] else { panic!("{:?}", month.jobs) };
        assert_eq!((a.name.as_str(), a.limit, a.peak, a.oom), ("a", 16 << 30, 5 << 30, 0));
        assert_eq!(a.advised, 11 << 29, "5 GiB and a tenth, rounded up to 256 MiB");
        assert!((a.spare - 10.5 * 2.0).abs() < 1e-9);
        assert_eq!((b.limit, b.advised), (80 << 30, 77 << 30), "without a cap the limit is the GPU");
        assert_eq!((c.limit, c.advised, c.oom), (16 << 30, 16 << 30, 1), "one that ran out gets no lower limit");
    }
}

//! The lake: `runs/day=YYYY-MM-DD/RUN.parquet`, one row a run, and `events/day=…/RUN.parquet` for those whose events are
//! wanted. The day is that on which the run began, in UTC. A file's name is its run's, so writers on many machines never
//! meet, and who ships a run again stores nothing. `rows-HASH.parquet` and `merged-HASH.parquet` hold many rows.

use std::collections::{BTreeMap, HashSet};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::row::Row;
use crate::store::Store;
use crate::table;

const RUNS: &str = "runs";
const EVENTS: &str = "events";
/// Beginnings of the names of files that hold many rows.
const ROWS: &str = "rows-";
const MERGED: &str = "merged-";
/// Rows that are held before files are made of them.
const HELD: usize = 200_000;

/// See the file's first comment.
pub(crate) struct Lake {
    store: Store,
}

/// What a merge did.
#[derive(Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Merged {
    /// Days whose files are one now.
    pub(crate) days: u64,
    /// Files that are gone.
    pub(crate) files: u64,
    /// Rows that were in two files.
    pub(crate) twice: u64,
    /// Files that could not be read and were left alone, and why.
    pub(crate) left: Vec<String>,
}

impl Lake {
    /// Opens a lake; one that is not there is empty.
    pub(crate) fn open(place: &str) -> Result<Self, String> {
        Ok(Self { store: Store::open(place)? })
    }

    /// Which of these runs, each with its day, the lake does not have.
    pub(crate) fn missing(&self, runs: Vec<(String, String)>) -> Result<Vec<String>, String> {
        let mut by_day: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (day, run) in runs {
            by_day.entry(day).or_default().push(run);
        }
        let mut missing = Vec::new();
        for (day, runs) in by_day {
            let folder = format!("{RUNS}/day={day}");
            let names = self.store.files(&folder)?;
            let single: HashSet<&str> = names.iter().filter_map(|name| name.strip_suffix(".parquet")).collect();
            let mut left: Vec<String> = runs.into_iter().filter(|run| !single.contains(run.as_str())).collect();
            for name in names.iter().filter(|name| name.starts_with(ROWS) || name.starts_with(MERGED)) {
                if left.is_empty() {
                    break;
                }
                if let Some(file) = self.store.get(&format!("{folder}/{name}"))?
                    && let Ok(there) = table::ids(file)
                {
                    left.retain(|run| !there.contains(run));
                }
            }
            missing.extend(left);
        }
        Ok(missing)
    }

    /// Stores the row of a run under the run's name.
    pub(crate) fn put(&self, row: &Row) -> Result<(), String> {
        let (day, run) = (day(row)?, id(row)?);
        let file = table::written(std::slice::from_ref(row)).map_err(|error| error.to_string())?;
        self.store.put(&format!("{RUNS}/day={day}/{run}.parquet"), file)
    }

    /// Stores the events of a run, which a Parquet file has.
    pub(crate) fn put_events(&self, row: &Row, file: Vec<u8>) -> Result<(), String> {
        self.store.put(&format!("{EVENTS}/day={}/{}.parquet", day(row)?, id(row)?), file)
    }

    /// Stores many rows, in one file for each day and so many rows; how many files those are.
    pub(crate) fn put_all(&self, rows: impl Iterator<Item = Result<Row, String>>) -> Result<(u64, u64), String> {
        let (mut held, mut count) = (BTreeMap::<Date, Vec<Row>>::new(), 0);
        let (mut number, mut files) = (0, 0);
        for row in rows {
            let row = row?;
            id(&row)?;
            held.entry(day(&row)?).or_default().push(row);
            (count, number) = (count + 1, number + 1);
            if count >= HELD {
                files += self.put_days(std::mem::take(&mut held))?;
                count = 0;
            }
        }
        files += self.put_days(held)?;
        Ok((number, files))
    }

    fn put_days(&self, days: BTreeMap<Date, Vec<Row>>) -> Result<u64, String> {
        let mut number = 0;
        for (day, mut rows) in days {
            let ids = rows.iter().filter_map(|row| Some((day.to_string(), row.run.clone()?))).collect();
            let lacking: HashSet<String> = self.missing(ids)?.into_iter().collect();
            rows.retain(|row| row.run.as_ref().is_some_and(|run| lacking.contains(run)));
            if rows.is_empty() {
                continue;
            }
            number += 1;
            let place = format!("{RUNS}/day={day}/{ROWS}{:016x}.parquet", hash(&rows));
            self.store.put(&place, table::written(&rows).map_err(|error| error.to_string())?)?;
        }
        Ok(number)
    }

    /// The days of which the lake has runs, in order.
    pub(crate) fn days(&self) -> Result<Vec<Date>, String> {
        let folders = self.store.folders(RUNS)?;
        Ok(folders.iter().filter_map(|name| name.strip_prefix("day=")?.parse().ok()).collect())
    }

    /// Visits the rows of a day, with the columns that are wanted, each run once; the files that cannot be read.
    pub(crate) fn visit(&self, day: Date, wanted: &[&str], mut row: impl FnMut(Row)) -> Result<Vec<String>, String> {
        let (mut seen, mut left) = (HashSet::new(), Vec::new());
        let folder = format!("{RUNS}/day={day}");
        for name in self.store.files(&folder)?.iter().filter(|name| name.ends_with(".parquet")) {
            let Some(file) = self.store.get(&format!("{folder}/{name}"))? else { continue };
            match table::read(file, wanted) {
                // While files are merged, a run is in two of them.
                Ok(rows) => rows.into_iter().filter(|row| seen.insert(row.run.clone())).for_each(&mut row),
                Err(error) => left.push(format!("{folder}/{name}: {error}")),
            }
        }
        Ok(left)
    }

    /// Makes one file of the many of each day before that one. The new file is whole before the old ones go, so nothing is
    /// lost whoever else writes or merges; until they are gone, a row is there twice.
    pub(crate) fn merge(&self, before: Date) -> Result<Merged, String> {
        let mut merged = Merged::default();
        for day in self.days()?.into_iter().filter(|day| *day < before) {
            let folder = format!("{RUNS}/day={day}");
            let (mut rows, mut seen, mut read) = (Vec::new(), HashSet::new(), Vec::new());
            for name in self.store.files(&folder)?.into_iter().filter(|name| name.ends_with(".parquet")) {
                let place = format!("{folder}/{name}");
                let Some(file) = self.store.get(&place)? else { continue };
                match table::read(file, &[]) {
                    Ok(found) => {
                        let before = rows.len() + found.len();
                        rows.extend(found.into_iter().filter(|row| seen.insert(row.run.clone())));
                        merged.twice += (before - rows.len()) as u64;
                        read.push(place);
                    }
                    Err(error) => merged.left.push(format!("{place}: {error}")),
                }
            }
            if read.len() < 2 {
                continue;
            }
            rows.sort_by(|a, b| (&a.started, &a.run).cmp(&(&b.started, &b.run)));
            let place = format!("{folder}/{MERGED}{:016x}.parquet", hash(&rows));
            self.store.put(&place, table::written(&rows).map_err(|error| error.to_string())?)?;
            for old in read.iter().filter(|old| **old != place) {
                self.store.remove(old)?;
                merged.files += 1;
            }
            merged.days += 1;
        }
        Ok(merged)
    }
}

/// The day on which a run began, in UTC.
pub(crate) fn day(row: &Row) -> Result<Date, String> {
    let moment = row.started.and_then(|started| Timestamp::from_microsecond(started).ok());
    let moment = moment.ok_or("a row without `started`, microseconds since 1970")?;
    Ok(moment.to_zoned(TimeZone::UTC).date())
}

/// The run's id, which is the name of a file, too.
fn id(row: &Row) -> Result<&str, String> {
    let run = row.run.as_deref().unwrap_or_default();
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let reserved = [".", "_", ROWS, MERGED].iter().any(|begin| run.starts_with(begin));
    if run.is_empty() || run.len() > 128 || reserved || !run.chars().all(fits) {
        return Err(format!(
            "a row with `run` {run:?}: expected 1 to 128 letters, digits, '-', '_' or '.', first a letter or digit"
        ));
    }
    Ok(run)
}

/// Of the ids in their order (FNV-1a): the same rows get the same name.
fn hash(rows: &[Row]) -> u64 {
    let ids = rows.iter().flat_map(|row| row.run.iter().flat_map(|run| run.bytes()).chain([0]));
    ids.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    struct Scratch(PathBuf);

    impl Scratch {
        fn lake(name: &str) -> (Self, Lake) {
            let folder = std::env::temp_dir().join(format!("weir-lake-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&folder);
            let lake = Lake::open(&folder.to_string_lossy()).unwrap();
            (Self(folder), lake)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// 2026-11-01 and so many hours.
    fn row(run: &str, hours: i64) -> Row {
        Row { run: Some(run.into()), started: Some((1_793_491_200 + hours * 3600) * 1_000_000), ..Row::default() }
    }

    fn date(text: &str) -> Date {
        text.parse().unwrap()
    }

    fn found(lake: &Lake, day: &str) -> Vec<String> {
        let mut runs = Vec::new();
        lake.visit(date(day), &["run"], |row| runs.extend(row.run)).unwrap();
        runs.sort();
        runs
    }

    #[test]
    fn a_run_is_shipped_once_and_its_day_is_where_it_began() {
        let (_scratch, lake) = Scratch::lake("once");
        let ask = |runs: &[&str]| {
            lake.missing(runs.iter().map(|run| ("2026-11-01".to_owned(), (*run).to_owned())).collect()).unwrap()
        };
        assert_eq!(ask(&["a", "b"]), ["a", "b"], "of no lake");
        lake.put(&row("a", 0)).unwrap();
        lake.put(&row("a", 0)).unwrap();
        lake.put(&row("late", 23)).unwrap();
        lake.put(&row("next", 24)).unwrap();
        assert_eq!(ask(&["a", "b", "late"]), ["b"]);
        assert_eq!(found(&lake, "2026-11-01"), ["a", "late"]);
        assert_eq!(found(&lake, "2026-11-02"), ["next"]);
        assert_eq!(lake.put_all([Ok(row("b", 1)), Ok(row("c", 30))].into_iter()).unwrap(), (2, 2));
        assert_eq!(ask(&["b", "x"]), ["x"], "it is looked for in files of many rows, too");
        assert_eq!(lake.put_all([Ok(row("a", 0)), Ok(row("c", 30))].into_iter()).unwrap(), (2, 0), "nothing is new");
        for bad in ["", ".a", "_a", "../a", "a/b", "rows-a", "merged-1", "a b"] {
            assert!(lake.put(&row(bad, 0)).is_err(), "{bad}");
        }
        assert!(lake.put(&Row { run: Some("a".into()), ..Row::default() }).is_err(), "no time");
    }

    #[test]
    fn merging_loses_nothing_and_a_run_that_is_there_twice_is_one() {
        let (scratch, lake) = Scratch::lake("merge");
        let all = ["a", "b", "c", "d"];
        for run in all {
            lake.put(&row(run, 1)).unwrap();
        }
        // Two that shipped the same at the same time.
        let rows: Vec<Row> = all.iter().map(|run| row(run, 1)).collect();
        lake.store.put("runs/day=2026-11-01/rows-1.parquet", table::written(&rows).unwrap()).unwrap();
        lake.put(&row("today", 24)).unwrap();
        lake.put(&row("today-2", 24)).unwrap();
        let day = scratch.0.join("runs/day=2026-11-01");
        std::fs::write(day.join("foreign.parquet"), "no Parquet").unwrap();
        assert_eq!(found(&lake, "2026-11-01"), all);
        let merged = lake.merge(date("2026-11-02")).unwrap();
        assert_eq!((merged.days, merged.files, merged.twice, merged.left.len()), (1, 5, 4, 1));
        assert_eq!(found(&lake, "2026-11-01"), all);
        let names = lake.store.files("runs/day=2026-11-01").unwrap();
        assert!(
            matches!(&names[..], [foreign, one] if foreign == "foreign.parquet" && one.starts_with(MERGED)),
            "{names:?}"
        );
        assert_eq!(lake.store.files("runs/day=2026-11-02").unwrap().len(), 2, "a day that is not over is left");
        // A merge that was ended before the old files were gone, and a second one of the same files.
        lake.put(&row("b", 1)).unwrap();
        lake.put(&row("e", 1)).unwrap();
        assert_eq!(lake.merge(date("2026-11-02")).unwrap().twice, 1);
        assert_eq!(found(&lake, "2026-11-01"), ["a", "b", "c", "d", "e"]);
        assert_eq!(lake.merge(date("2026-11-02")).unwrap().days, 0, "nothing is left to do");
        let ask = vec![("2026-11-01".to_owned(), "c".to_owned())];
        assert!(lake.missing(ask).unwrap().is_empty(), "what was merged is not shipped again");
    }
}

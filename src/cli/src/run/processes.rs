//! Which processes of a job ran under weir, and with which cap: a folder that `weir run` makes, names in WEIR_RUN and
//! removes at the end. Each process under the library leaves a small file there when it initialises CUDA, which stays
//! however the process ends.

use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use weir_ledger::{LedgerDir, control};
use weir_settings::Reading;
use weir_settings::limit::CapSetting;
use weir_settings::size::Amount;

/// Files that are read at most, and bytes of each.
const MOST: usize = 4096;
const MOST_BYTES: u64 = 64 << 10;

/// The folder of one job.
pub(crate) struct Processes {
    own: Option<PathBuf>,
    /// Those of the `weir run` that this one runs under.
    outer: Vec<PathBuf>,
}

impl Processes {
    /// Makes the folder: beside the journals if that can be, so that processes in other namespaces and on other machines
    /// find it where they find those, else among the temporary files.
    pub(crate) fn begin(dir: Option<&Path>, outer: &[PathBuf]) -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let (start, pid) = (format!("run-{}-", machine()), std::process::id());
        let name = format!("{start}{pid}-{time:x}");
        let make = |parent: &Path| {
            DirBuilder::new().recursive(true).mode(0o700).create(parent).ok()?;
            sweep(parent, &start);
            let folder = parent.join(&name);
            // A colon would read as two folders.
            let fits = folder.to_str().is_some_and(|text| text.starts_with('/') && !text.contains(':'));
            (fits && DirBuilder::new().mode(0o700).create(&folder).is_ok()).then_some(folder)
        };
        Self { own: dir.and_then(make).or_else(|| make(&std::env::temp_dir())), outer: outer.to_vec() }
    }

    /// The value of WEIR_RUN.
    pub(crate) fn variable(&self) -> Option<OsString> {
        let mut text = self.own.as_ref()?.clone().into_os_string();
        for outer in &self.outer {
            text.push(":");
            text.push(outer);
        }
        Some(text)
    }

    /// Reads the last record of each process, and removes the folder.
    pub(crate) fn end(self) -> Vec<Value> {
        let Some(folder) = self.own else { return Vec::new() };
        let mut found: Vec<Value> = fs::read_dir(&folder)
            .into_iter()
            .flatten()
            .flatten()
            .take(MOST)
            .filter(|entry| entry.metadata().is_ok_and(|meta| meta.is_file() && meta.len() <= MOST_BYTES))
            .filter_map(|entry| serde_json::from_slice(&fs::read(entry.path()).ok()?).ok())
            .collect();
        remove(&folder);
        found.sort_by_key(|record: &Value| record["time"].as_u64());
        let mut last: Vec<Value> = Vec::new();
        for record in found {
            match last.iter_mut().find(|earlier| earlier["id"] == record["id"]) {
                Some(earlier) => *earlier = record,
                None => last.push(record),
            }
        }
        last
    }
}

/// Takes away a folder and the records in it, and nothing else.
fn remove(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().ends_with(".json") {
            let _ = fs::remove_file(entry.path());
        }
    }
    let _ = fs::remove_dir(folder);
}

/// Where a process id means what it means here: this boot of this machine, and this namespace of ids.
fn machine() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let digits: String = namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    format!("{}.{digits}", boot.get(..8).unwrap_or("0"))
}

/// The process id in a name that begins so and goes on with PID-TIME.
fn owner(name: &str, start: &str) -> Option<u32> {
    name.strip_prefix(start)?.split_once('-')?.0.parse().ok()
}

fn is_gone(pid: u32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

/// Takes away what a `weir run` left that was killed here. Folders of other machines, which may share this one's files, stay.
fn sweep(parent: &Path, start: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten().take(MOST) {
        let name = entry.file_name();
        let left = owner(&name.to_string_lossy(), start).is_some_and(is_gone);
        if left && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
}

/// Takes away the ledgers of jobs whose `weir run` was killed and in which nobody lives.
pub(crate) fn sweep_groups(place: &LedgerDir) {
    for entry in fs::read_dir(place.path()).into_iter().flatten().flatten().take(MOST) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let Some(group) = name.strip_prefix("group-").and_then(|name| name.strip_suffix(".ledger")) else { continue };
        if owner(group, super::JOB).is_some_and(is_gone) {
            control::remove_group(place, group);
        }
    }
}

/// What weir chose in the processes of a job, each choice once.
pub(crate) fn choices(records: &[Value]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for choice in records.iter().filter_map(|record| record["choices"].as_array()).flatten() {
        let text = |key: &str| choice[key].as_str().unwrap_or_default();
        let line = format!("{}: {}", text("subject"), text("choice"));
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// The limit that a job was to have.
pub(crate) struct Limit {
    cap: Option<String>,
    group: Option<String>,
}

impl Limit {
    /// What the settings require.
    pub(crate) fn of(reading: &Reading) -> Self {
        let cap = reading.shown.iter().find(|shown| shown.variable == "WEIR_CAP").map(|shown| shown.value.clone());
        Self { cap: cap.filter(|cap| !cap.is_empty()), group: reading.settings.group.clone() }
    }

    fn words(&self) -> Option<String> {
        match (&self.cap, &self.group) {
            (Some(cap), _) => Some(format!("the cap of {cap}")),
            (None, Some(group)) => Some(format!("the cap of the group {group}")),
            (None, None) => None,
        }
    }

    /// Why the limit was not in force, in one line; `None` where there was none, or where it was.
    pub(crate) fn verdict(&self, records: &[Value]) -> Option<String> {
        let limit = self.words()?;
        if records.is_empty() {
            return Some(format!(
                "no process of the job used CUDA under weir, so {limit} was not in force (weir is not loaded into processes \
                 without LD_PRELOAD, static, setuid and sudo programs, and other containers)"
            ));
        }
        let of = |state: &'static str| records.iter().filter(move |record| record["state"] == state);
        let why = |record: &Value| record["why"].as_str().unwrap_or_default().to_owned();
        if let Some(first) = of("off").chain(of("without")).next() {
            let many = of("off").chain(of("without")).count();
            return Some(format!("{many} of {} processes ran without {limit}: {}", records.len(), why(first)));
        }
        let on: Vec<_> = of("on").collect();
        // Started with another cap, or with none: the group's is that of the members which have one.
        let mut loose =
            on.iter().filter_map(|record| Some(record["cap"].as_str()).filter(|cap| !self.covers(record, *cap)));
        if let Some(first) = loose.next() {
            let with =
                first.map_or("WEIR_CAP was not in their environment".to_owned(), |cap| format!("with WEIR_CAP={cap}"));
            return Some(format!("{} of {} processes ran without {limit}: {with}", 1 + loose.count(), records.len()));
        }
        if on.is_empty() {
            return of("refused")
                .next()
                .map(|first| format!("cuInit failed because {limit} cannot be enforced: {}", why(first)));
        }
        let unseen = |record: &&&Value| record["unseen"].as_array().cloned().unwrap_or_default();
        let first = on.first().as_ref().map(unseen).unwrap_or_default();
        let by_nobody: Vec<_> =
            first.iter().filter(|name| on.iter().all(|record| unseen(&record).contains(name))).collect();
        let names: Vec<_> = by_nobody.iter().filter_map(|name| name.as_str()).collect();
        (!names.is_empty()).then(|| {
            let cap = self.cap.as_deref().unwrap_or_default();
            format!("no process of the job could see device {} of the cap {cap}", names.join(", "))
        })
    }

    /// Whether a process that was started with this cap is within the job's.
    fn covers(&self, record: &Value, cap: Option<&str>) -> bool {
        let Some(own) = self.cap.as_deref().filter(|_| record.get("cap").is_some()) else { return true };
        let read = |text: &str| CapSetting::parse(text).ok().filter(|cap| !cap.names_devices());
        let least = |text: &str| match read(text)?.default? {
            Amount::Bytes(bytes) => Some((true, bytes)),
            Amount::Share(share) => Some((false, u64::from(share))),
        };
        cap == Some(own)
            || cap.and_then(least).zip(least(own)).is_some_and(|(cap, own)| cap.0 == own.0 && cap.1 <= own.1)
    }

    /// For programs.
    pub(crate) fn json(&self, lost: Option<&str>) -> Value {
        let wanted = self.words().is_some();
        json!({"cap": self.cap, "group": self.group, "in_force": wanted && lost.is_none(), "problem": lost})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit() -> Limit {
        Limit { cap: Some("1GiB".into()), group: None }
    }

    #[test]
    fn a_limit_is_in_force_or_it_is_said_why_not() {
        let on = json!({"pid": 1, "state": "on", "unseen": [], "cap": "1GiB"});
        let verdict = |records: &[Value]| limit().verdict(records).unwrap_or_default();
        assert_eq!(verdict(std::slice::from_ref(&on)), "");
        assert!(verdict(&[]).contains("no process of the job used CUDA under weir"));
        let off = json!({"pid": 2, "state": "off", "why": "panic in x"});
        assert!(verdict(&[on.clone(), off]).contains("1 of 2 processes ran without the cap of 1GiB: panic in x"));
        let refused = json!({"pid": 2, "state": "refused", "why": "WEIR_CAP=7"});
        assert!(verdict(std::slice::from_ref(&refused)).contains("cuInit failed"));
        assert_eq!(verdict(&[on.clone(), refused]), "", "who was refused took nothing");
        let stripped = json!({"pid": 2, "state": "on", "unseen": [], "cap": null});
        assert!(
            verdict(&[on.clone(), stripped.clone()]).contains("1 of 2 processes ran without the cap of 1GiB: WEIR_CAP")
        );
        let other = |cap: &str| verdict(&[json!({"pid": 2, "state": "on", "unseen": [], "cap": cap})]);
        assert!(other("2GiB").contains("with WEIR_CAP=2GiB") && other("50%").contains("50%"));
        assert_eq!((other("1024MiB"), other("512MiB")), (String::new(), String::new()));
        let of_group = Limit { cap: None, group: Some("g".into()) };
        assert!(of_group.verdict(&[stripped]).is_none(), "the group's cap is that of other members");
        let blind = json!({"pid": 3, "state": "on", "unseen": ["5"]});
        assert!(verdict(std::slice::from_ref(&blind)).contains("could see device 5"));
        assert_eq!(verdict(&[on, blind]), "");
        assert!(Limit { cap: None, group: None }.verdict(&[]).is_none());
    }

    #[test]
    fn the_last_word_of_a_process_counts_and_the_folder_goes() {
        let dir = std::env::temp_dir().join(format!("weir-processes-{}", std::process::id()));
        let processes = Processes::begin(Some(&dir), &[PathBuf::from("/outer")]);
        let text = processes.variable().unwrap().into_string().unwrap();
        let folder = PathBuf::from(text.strip_suffix(":/outer").unwrap());
        for (name, record) in [
            ("7-1.json", r#"{"pid": 7, "id": "7-1", "time": 1, "state": "on"}"#),
            ("7-2.json", r#"{"pid": 7, "id": "7-1", "time": 2, "state": "off"}"#),
            ("7-3.json", r#"{"pid": 7, "id": "7-3", "time": 3, "state": "on"}"#),
            ("9-1.json", "{"),
        ] {
            fs::write(folder.join(name), record).unwrap();
        }
        let mut found: Vec<_> = processes.end().iter().map(|r| format!("{} {}", r["pid"], r["state"])).collect();
        found.sort();
        assert_eq!(found, [r#"7 "off""#, r#"7 "on""#]);
        assert!(fs::read_dir(&dir).unwrap().next().is_none());
        fs::create_dir(dir.join(format!("run-{}-4194305-0", machine()))).unwrap();
        fs::create_dir(dir.join("run-elsewhere-4194305-0")).unwrap();
        Processes::begin(Some(&dir), &[]).end();
        let left: Vec<_> = fs::read_dir(&dir).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["run-elsewhere-4194305-0"], "what a killed one left here goes, what is of others stays");
        fs::remove_dir_all(&dir).unwrap();
    }
}

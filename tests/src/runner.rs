//! Starts processes that show rules, watches over them and reports what came out. A crash, a hang or an
//! abort of one rule is that rule's failure and nobody else's.

use crate::rule::{Rule, Scope};
use crate::worker::MARK;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// No rule takes longer than this, a waiting one included.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// Few rules take as long: one that has, and has not ended when all time is over, hangs.
const LONG: Duration = Duration::from_secs(5);
/// Why a rule was not shown: the time was over.
pub const NOT_REACHED: &str = "not reached in time";
/// How many rules share a process.
const BATCH: usize = 16;

/// How a rule went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The driver keeps the rule.
    Passed,
    /// It does not, and this is what was seen.
    Failed(String),
    /// The rule cannot be shown here, and this is why.
    Skipped(String),
}

/// A rule and how it went.
pub struct Verdict {
    /// The rule.
    pub rule: Rule,
    /// How it went.
    pub outcome: Outcome,
    /// How long it took, its share of starting the process not included.
    pub took: Duration,
}

/// Which driver the processes of the suite will meet.
#[derive(Clone, Debug)]
pub struct Met {
    /// Whether it is the virtual GPU.
    pub is_virtual: bool,
    /// Its version.
    pub version: i32,
}

/// Gives a command that starts the program `conformance`, in the environment that its rules shall have.
pub type Start<'a> = &'a (dyn Fn() -> Command + Sync);

/// Queries a process of its own, so that the driver is never loaded here.
pub fn meet(suite: Start) -> Result<Met, String> {
    let out = suite().arg("--probe").output().map_err(|e| format!("the suite can't be started: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    let mut fields = text.trim().split('\t');
    match (fields.next(), fields.next().and_then(|v| v.parse().ok())) {
        (Some(kind), Some(version)) if out.status.success() => Ok(Met { is_virtual: kind == "virtual", version }),
        _ => Err(String::from_utf8_lossy(&out.stderr).trim().to_owned()),
    }
}

/// Shows `rules` in `jobs` processes at a time.
pub fn run(suite: Start, rules: &[Rule], jobs: usize) -> Vec<Verdict> {
    run_until(suite, rules, jobs, None, &|_| {})
}

/// The same, with each verdict handed to `each` as it comes. What has not ended at `end` is not reached.
pub fn run_until(
    suite: Start,
    rules: &[Rule],
    jobs: usize,
    end: Option<Instant>,
    each: &(dyn Fn(&Verdict) + Sync),
) -> Vec<Verdict> {
    let mut batches: Vec<Vec<Rule>> = Vec::new();
    let (alone, together): (Vec<Rule>, Vec<Rule>) = rules.iter().partition(|r| r.alone);
    batches.extend(together.chunks(BATCH).map(<[Rule]>::to_vec));
    batches.extend(alone.iter().map(|r| vec![*r]));
    let next = AtomicUsize::new(0);
    let verdicts = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let shown = run_batch(suite, batch, end);
                    shown.iter().for_each(each);
                    let mut all = verdicts.lock().unwrap_or_else(PoisonError::into_inner);
                    all.extend(shown.into_iter().map(|v| (v.rule.id, v)));
                }
            });
        }
    });
    let mut all = verdicts.into_inner().unwrap_or_else(PoisonError::into_inner);
    rules.iter().filter_map(|r| all.remove(r.id)).collect()
}

/// Shows all rules of a batch, in a new process after each one that ended its process.
fn run_batch(suite: Start, batch: &[Rule], end: Option<Instant>) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let mut left = batch;
    while !left.is_empty() {
        if end.is_some_and(|end| Instant::now() >= end) {
            let why = || Outcome::Skipped(NOT_REACHED.to_owned());
            verdicts.extend(left.iter().map(|rule| Verdict { rule: *rule, outcome: why(), took: Duration::ZERO }));
            break;
        }
        let shown = run_process(suite, left, end);
        let count = shown.len();
        verdicts.extend(shown);
        left = &left[count..];
    }
    verdicts
}

/// Starts one process for `rules` and gives the verdicts up to the end or the first rule that ended it:
/// at least one.
fn run_process(suite: Start, rules: &[Rule], end: Option<Instant>) -> Vec<Verdict> {
    let first = rules[0];
    let mut command = suite();
    command.arg("--worker").args(rules.iter().map(|r| r.id));
    if std::env::var_os("VGPU_STRICT").is_none() {
        command.env("VGPU_STRICT", "on");
    }
    // Loading a function at its first launch may wait for streams that a rule keeps busy: at once, unless the rule says otherwise.
    if !command.get_envs().any(|(name, _)| name == "CUDA_MODULE_LOADING") {
        command.env("CUDA_MODULE_LOADING", "EAGER");
    }
    let mut files = Vec::new();
    let switches = first.env.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
    let devices = (first.devices > 1).then(|| ("VGPU_DEVICES".to_owned(), first.devices.to_string()));
    for (name, value) in devices.into_iter().chain(switches) {
        let value = if value == "@file" { fresh_file(&mut files) } else { value };
        command.env(name, value);
    }
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let verdicts = match child {
        Ok(child) => watch(child, rules, TIME_LIMIT, end),
        Err(e) => vec![Verdict {
            rule: first,
            outcome: Outcome::Failed(format!("the process can't be started: {e}")),
            took: Duration::ZERO,
        }],
    };
    for file in files {
        // It exists only if the rule came so far.
        let _ = std::fs::remove_file(file);
    }
    verdicts
}

fn fresh_file(files: &mut Vec<String>) -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("weir-conformance-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name).to_string_lossy().into_owned();
    files.push(path.clone());
    path
}

/// Reads what a process says of its rules; `limit` is the time that each one has, and all of them have until `end`.
fn watch(mut child: Child, rules: &[Rule], limit: Duration, end: Option<Instant>) -> Vec<Verdict> {
    let lines = lines_of(child.stdout.take().expect("stdout is a pipe"));
    let errors = text_of(child.stderr.take().expect("stderr is a pipe"));
    let mut verdicts: Vec<Verdict> = Vec::new();
    let mut started = Instant::now();
    let mut hung = false;
    loop {
        let left = end.map_or(limit, |end| end.saturating_duration_since(Instant::now()));
        let line = match lines.recv_timeout(limit.saturating_sub(started.elapsed()).min(left)) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                hung = true;
                // It may have ended at this very moment: then there is nothing to end.
                let _ = child.kill();
                break;
            }
        };
        let mut fields = line.splitn(3, '\t');
        let (Some(id), Some(state)) = (fields.next(), fields.next()) else {
            continue;
        };
        let detail = fields.next().unwrap_or_default().to_owned();
        let Some(rule) = rules.get(verdicts.len()).filter(|r| r.id == id) else {
            continue;
        };
        let outcome = match state {
            "passed" => Outcome::Passed,
            "failed" => Outcome::Failed(detail),
            "skipped" => Outcome::Skipped(detail),
            _ => {
                started = Instant::now();
                continue;
            }
        };
        verdicts.push(Verdict { rule: *rule, outcome, took: started.elapsed() });
    }
    let status = child.wait();
    let said = errors.recv_timeout(Duration::from_secs(20)).unwrap_or_default();
    for v in &mut verdicts {
        if let (Some(word), Outcome::Passed) = (v.rule.aborts, &v.outcome) {
            v.outcome =
                Outcome::Failed(format!("must be reported and aborted with a message about {word:?}, but went on"));
        }
    }
    let finished_all = verdicts.len() == rules.len();
    let failed = verdicts.iter().any(|v| matches!(v.outcome, Outcome::Failed(_)));
    if !finished_all && !failed {
        let rule = rules[verdicts.len()];
        let had = started.elapsed();
        let outcome = if hung && had < limit && had < LONG {
            // It has not had its time.
            Outcome::Skipped(NOT_REACHED.to_owned())
        } else {
            ended_early(&rule, hung, status.ok(), &said)
        };
        verdicts.push(Verdict { rule, outcome, took: started.elapsed() });
    }
    verdicts
}

/// The verdict on a rule during which the process ended.
fn ended_early(rule: &Rule, hung: bool, status: Option<ExitStatus>, said: &str) -> Outcome {
    let last: Vec<&str> = said.lines().rev().take(2).collect();
    let signal = status.and_then(|s| s.signal());
    if hung {
        return Outcome::Failed("did not end in time".to_owned());
    }
    match (rule.aborts, signal) {
        (Some(word), Some(libc::SIGABRT)) if said.contains(word) => Outcome::Passed,
        (Some(word), Some(libc::SIGABRT)) => {
            Outcome::Failed(format!("aborted without a word about {word:?}: {}", last.join(" / ")))
        }
        (_, Some(signal)) => Outcome::Failed(format!("killed by signal {signal}: {}", last.join(" / "))),
        (_, None) => Outcome::Failed(format!("the process ended: {}", last.join(" / "))),
    }
}

fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if let Some(rest) = line.strip_prefix(MARK)
                && send.send(rest.to_owned()).is_err()
            {
                break;
            }
        }
    });
    receive
}

fn text_of(mut pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = channel();
    let text = Arc::new(Mutex::new(Vec::new()));
    std::thread::spawn(move || {
        let mut bytes = text.lock().unwrap_or_else(PoisonError::into_inner);
        // Whatever could be read is the message.
        let _ = pipe.read_to_end(&mut bytes);
        let _ = send.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receive
}

/// Whether a rule can be shown on the driver that was met.
pub fn applies(rule: &Rule, met: &Met) -> bool {
    met.is_virtual || rule.scope == Scope::Portable
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::rule;

    const PLAIN: Rule = rule("a.plain", "cuInit", "A rule of the tests.", || {});
    const OTHER: Rule = rule("b.other", "cuInit", "Another rule of the tests.", || {});
    const VIOLATION: Rule = rule("c.violation", "cuInit", "A rule that must be aborted.", || {}).aborts("violation");

    /// Lets a shell play the process.
    fn outcomes(rules: &[Rule], script: &str) -> Vec<Outcome> {
        outcomes_within(rules, script, Duration::from_secs(60))
    }

    fn outcomes_within(rules: &[Rule], script: &str, limit: Duration) -> Vec<Outcome> {
        let child = Command::new("sh")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a shell");
        let verdicts = watch(child, rules, limit, None);
        verdicts.into_iter().map(|v| v.outcome).collect()
    }

    fn failed_with(outcome: &Outcome, word: &str) -> bool {
        matches!(outcome, Outcome::Failed(why) if why.contains(word))
    }

    #[test]
    fn a_crash_is_the_failure_of_the_rule_it_happened_in() {
        let script =
            r"printf '@rule a.plain\tstarted\t\n@rule a.plain\tpassed\t\n@rule b.other\tstarted\t\n'; kill -SEGV $$";
        let got = outcomes(&[PLAIN, OTHER], script);
        assert_eq!(got[0], Outcome::Passed);
        assert!(failed_with(&got[1], "signal 11"), "{got:?}");
    }

    #[test]
    fn a_hang_is_a_failure() {
        let hanging = r"printf '@rule a.plain\tstarted\t\n'; exec sleep 600";
        let got = outcomes_within(&[PLAIN, OTHER], hanging, Duration::from_secs(1));
        assert_eq!(got.len(), 1);
        assert!(failed_with(&got[0], "in time"), "{got:?}");
    }

    #[test]
    fn what_the_time_of_all_cuts_off_is_not_reached() {
        let hanging = r"printf '@rule a.plain\tstarted\t\n'; exec sleep 600";
        let child = Command::new("sh").args(["-c", hanging]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let end = Some(Instant::now() + Duration::from_millis(200));
        let got = watch(child.expect("a shell"), &[PLAIN, OTHER], Duration::from_secs(60), end);
        assert!(matches!(&got[..], [one] if one.outcome == Outcome::Skipped(NOT_REACHED.to_owned())));
    }

    #[test]
    fn ending_without_a_word_is_a_failure() {
        let got = outcomes(&[PLAIN], "exit 0");
        assert!(failed_with(&got[0], "ended"), "{got:?}");
    }

    #[test]
    fn a_failed_rule_leaves_the_rest_to_another_process() {
        let script = r"printf '@rule a.plain\tstarted\t\n@rule a.plain\tfailed\tit is so\n'; exit 1";
        assert_eq!(outcomes(&[PLAIN, OTHER], script), [Outcome::Failed("it is so".to_owned())]);
    }

    #[test]
    fn an_abort_counts_only_where_it_must_be_and_with_its_reason() {
        let aborting = r"printf '@rule c.violation\tstarted\t\n'; echo 'violation: freed twice' >&2; kill -ABRT $$";
        assert_eq!(outcomes(&[VIOLATION], aborting), [Outcome::Passed]);
        let silent = r"printf '@rule c.violation\tstarted\t\n'; kill -ABRT $$";
        assert!(failed_with(&outcomes(&[VIOLATION], silent)[0], "without a word"));
        let went_on = r"printf '@rule c.violation\tstarted\t\n@rule c.violation\tpassed\t\n'";
        assert!(failed_with(&outcomes(&[VIOLATION], went_on)[0], "went on"));
        let unexpected = r"printf '@rule a.plain\tstarted\t\n'; kill -ABRT $$";
        assert!(failed_with(&outcomes(&[PLAIN], unexpected)[0], "signal 6"));
    }

    #[test]
    fn what_is_printed_besides_the_verdicts_is_left_alone() {
        let script = r"echo noise; printf '@rule a.plain\tstarted\t\nmore\n@rule a.plain\tskipped\tno device\n'";
        assert_eq!(outcomes(&[PLAIN], script), [Outcome::Skipped("no device".to_owned())]);
    }
}

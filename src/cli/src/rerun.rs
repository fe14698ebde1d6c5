//! `weir report --rerun`: runs the job of a run again on the virtual GPU, with more room, to see what it needs; then with
//! less, to find the smallest device or cap; then with settings that may help, on what the job has. Starts processes.

mod keras;
mod search;
mod seen;

use std::path::Path;
use std::time::{Duration, Instant};

use weir_forensics::Run;
use weir_forensics::remedies::{Act, Measured, Reached};
use weir_forensics::report::Report;
use weir_forensics::verdict::Cause;
use weir_forensics::words::{duration, size};
use weir_journal::text;

use crate::plan::gpus::Gpu;
use crate::plan::job::Job;
use crate::plan::trial::{Conditions, Ending, Output, Scratch, Trial};
use keras::Change;
use search::Search;
use seen::Seen;

/// Runs in all.
const MOST_RUNS: usize = 12;
/// How much more the job may have in its first run, and where that is not enough.
const MORE: u64 = 4;
const BOUNDLESS: u64 = 1 << 40;
/// Flags of XLA's that may make an arena smaller, or several of it: each is known to TensorFlow 2.17 to 2.21.
const XLA_FLAGS: [&str; 2] =
    ["XLA_FLAGS=--xla_gpu_memory_limit_slop_factor=50", "XLA_FLAGS=--xla_multiheap_size_constraint_per_heap=67108864"];
/// Letters of the job's last line that are shown when it fails for another reason.
const LAST_LETTERS: usize = 200;

/// How a run went.
enum Outcome {
    Well(Trial),
    RanOut(Trial),
    /// Nothing was refused until its time was over.
    Stopped(Trial),
    /// It failed, and not for want of memory.
    Failed(Trial),
}

/// What limits the job.
#[derive(Clone, Copy, PartialEq)]
enum Limit {
    Device,
    Cap,
}

struct Reruns {
    conditions: Conditions,
    began: Instant,
    total: Duration,
    runs: usize,
    limit: Limit,
    /// Memory of the device, and what others hold of it.
    device: u64,
    others: u64,
    output: Output,
}

fn say(text: &str) {
    eprintln!("weir report: {}", text::plain(text));
}

/// Why the job of a run cannot be run again; `None` where it can.
pub(crate) fn lacking(run: &Run) -> Option<String> {
    crate::library::find_vgpu(None).err().or_else(|| Job::recorded(run).err())
}

/// Runs the job of a run again, for so long in all, and returns what was seen. Its output goes to `log`, or nowhere. `Err`
/// says why nothing is known.
pub(crate) fn measure(run: &Run, plain: &Report, total: Duration, log: Option<&Path>) -> Result<Measured, String> {
    let job = Job::recorded(run)?;
    let (devices, context) = job.devices.unwrap_or((1, 0));
    let folder = job.folder().map(|folder| format!(" in {}", folder.display())).unwrap_or_default();
    say(&format!(
        "running {}{folder} on the virtual GPU, up to {MOST_RUNS} times and for {} in all",
        job.words(),
        duration(total.as_secs_f64())
    ));
    let scratch = Scratch::new().map_err(|error| format!("no directory for its output: {error}"))?;
    let file = log.map_or_else(|| scratch.0.join("output"), Path::to_owned);
    let total_memory = plain.driver.total;
    let others = plain.driver.of(weir_forensics::views::Part::Others);
    let capped = plain.cap > 0 && (total_memory == 0 || plain.cap < total_memory);
    let mut conditions = Conditions::new(job, None, devices, context)?;
    conditions.output = Output::File(file.clone());
    let mut reruns = Reruns {
        conditions,
        began: Instant::now(),
        total,
        runs: 0,
        limit: if capped { Limit::Cap } else { Limit::Device },
        device: total_memory,
        others,
        output: Output::File(file),
    };
    reruns.measured(run, plain)
}

impl Reruns {
    /// What the job may have as it is.
    fn at_hand(&self, plain: &Report) -> u64 {
        if self.limit == Limit::Cap { plain.cap } else { self.device }
    }

    fn measured(&mut self, run: &Run, plain: &Report) -> Result<Measured, String> {
        let limit = self.at_hand(plain);
        let mut room = limit.saturating_mul(MORE).clamp(1 << 30, BOUNDLESS);
        self.conditions.limit = Some(self.total / 4);
        let mut first = self.with_room(room)?;
        let mut seen = self.seen(&first, plain)?;
        let more_helps = |seen: &Seen| !seen.own_limit && seen.growth.is_none();
        if matches!(first, Outcome::RanOut(_)) && more_helps(&seen) && room < BOUNDLESS {
            room = BOUNDLESS;
            first = self.with_room(room)?;
            seen = self.seen(&first, plain)?;
        }
        let (reached, trial) = match &first {
            Outcome::Well(trial) => (Reached::End, trial),
            Outcome::Stopped(trial) => (Reached::Time, trial),
            Outcome::RanOut(trial) => (Reached::OutOfMemory, trial),
            Outcome::Failed(trial) => return Err(self.failed(trial, room)),
        };
        if reached == Reached::Time && plain.is_oom() && seen.events < run.header().counters.events {
            return Err(format!(
                "it was stopped after {} before it came to where it ran out of memory; give it more time with --for",
                duration(trial.seconds)
            ));
        }
        if reached != Reached::Time {
            // Runs with less take about as long; one that hangs does not take all of the time.
            self.conditions.limit = Some(Duration::from_secs_f64(trial.seconds * 3.0 + 30.0));
        }
        let mut measured = Measured {
            reached,
            room,
            seconds: trial.seconds,
            steps: seen.steps,
            peak: seen.peak,
            limit,
            as_it_was: false,
            device: None,
            cap: None,
            short: None,
            memory_limit: None,
            ran: Vec::new(),
            growth: seen.growth.clone(),
            runs: 0,
        };
        // What grows fills any size, later: none is looked for.
        if measured.growth.is_none() {
            if plain.request.as_ref().is_some_and(|request| request.compiled) {
                self.changed(&mut measured, plain)?;
            }
            self.within_the_limit(&mut measured, run, plain, &seen)?;
            if reached != Reached::OutOfMemory && !measured.as_it_was {
                self.smallest(&mut measured, plain, &seen)?;
            }
        }
        measured.runs = self.runs;
        Ok(measured)
    }

    /// What the job does with what it has: as it was, where that could be enough, and with settings.
    fn within_the_limit(
        &mut self,
        measured: &mut Measured,
        run: &Run,
        plain: &Report,
        seen: &Seen,
    ) -> Result<(), String> {
        if !plain.is_oom() || (measured.reached != Reached::OutOfMemory && seen.peak > measured.limit) {
            return Ok(());
        }
        if measured.reached != Reached::OutOfMemory && seen.enough.is_some_and(|enough| enough <= measured.limit) {
            measured.as_it_was = matches!(self.within("as it was", &[])?, Some(Outcome::Well(_)));
            if measured.as_it_was {
                return Ok(());
            }
        }
        for variables in settings(run, plain) {
            let Some(outcome) = self.within(variables, &pairs(variables))? else { break };
            measured.ran.push((Act::Environment(variables), matches!(outcome, Outcome::Well(_))));
            if let Outcome::Well(_) = outcome {
                if seen.own_limit {
                    // With room it ran out by its own limit: this is the run that shows what it needs.
                    let without = self.seen(&outcome, plain)?;
                    (measured.peak, measured.memory_limit) = (without.peak, without.region);
                }
                break;
            }
        }
        Ok(())
    }

    /// What a model that XLA compiles does with what it has, if its program is changed: the batch at first as it is
    /// estimated, then half of that.
    fn changed(&mut self, measured: &mut Measured, plain: &Report) -> Result<(), String> {
        let batch = |remedy: &weir_forensics::remedies::Remedy| match remedy.act {
            Act::SmallerBatch(parts) => Some(parts),
            _ => None,
        };
        let parts = plain.remedies.iter().find_map(batch).unwrap_or(2);
        let acts = [
            Act::WithoutXla,
            Act::SmallerBatch(parts),
            Act::SmallerBatch(2 * parts),
            Act::MixedPrecision,
            Act::Checkpoint,
        ];
        for act in acts {
            let smaller = |ran: &(Act, bool)| matches!(ran, (Act::SmallerBatch(_), true));
            if matches!(act, Act::SmallerBatch(_)) && measured.ran.iter().any(smaller) {
                continue;
            }
            let Some(change) = Change::of(&act)? else { continue };
            let Some(outcome) = self.within(change.name, &change.variables(&self.conditions.job))? else { break };
            // What is not Keras was not changed, and a job that fails for another reason shows nothing.
            match outcome {
                Outcome::Well(_) if change.was_made() => measured.ran.push((act, true)),
                Outcome::RanOut(_) if change.was_made() => measured.ran.push((act, false)),
                _ => {}
            }
        }
        // XLA's own limit and its division of an arena; they are no change of the program.
        for variables in XLA_FLAGS {
            let Some(outcome) = self.within(variables, &pairs(variables))? else { break };
            match outcome {
                Outcome::Well(_) => measured.ran.push((Act::Environment(variables), true)),
                Outcome::RanOut(_) => measured.ran.push((Act::Environment(variables), false)),
                _ => {}
            }
        }
        Ok(())
    }

    /// The smallest device, or the lowest cap.
    fn smallest(&mut self, measured: &mut Measured, plain: &Report, seen: &Seen) -> Result<(), String> {
        let guess = seen.enough.unwrap_or(seen.peak).saturating_add(self.beside());
        let short = Some(measured.limit).filter(|_| plain.is_oom());
        let mut search = Search::new(guess, Some(measured.room.max(guess)), short);
        while let Some(bytes) = search.next() {
            match self.of_size(bytes)? {
                Some(well) => search.note(bytes, well),
                None => break,
            }
        }
        let (enough, short) = search.found();
        // What had room is no find.
        let enough = enough.filter(|enough| *enough < measured.room);
        *if self.limit == Limit::Cap { &mut measured.cap } else { &mut measured.device } = enough;
        measured.short = short.filter(|_| enough.is_some());
        Ok(())
    }

    /// What a device must have beside the requests: other processes' memory. A context's is part of what was seen.
    fn beside(&self) -> u64 {
        if self.limit == Limit::Cap { 0 } else { self.others }
    }

    fn with_room(&mut self, room: u64) -> Result<Outcome, String> {
        let gpu = Gpu::sized(room);
        // Every event is needed, to see what it needs.
        let ring = [("WEIR_RING".to_owned(), "4M".to_owned())];
        let outcome = self.run(&gpu, &ring, &format!("with {}", size(room)))?;
        outcome.ok_or_else(|| "its time was over before it had room enough; give it more with --for".into())
    }

    /// With another size; `None` where there is no time left.
    fn of_size(&mut self, bytes: u64) -> Result<Option<bool>, String> {
        let (gpu, variables, name) = match self.limit {
            Limit::Device => (bytes.saturating_sub(self.others), Vec::new(), format!("with {}", size(bytes))),
            Limit::Cap => {
                let mut variables = self.limits();
                variables.push(("WEIR_CAP".into(), bytes.to_string()));
                let gpu = self.device.saturating_sub(self.others).max(bytes);
                (gpu, variables, format!("with a cap of {}", size(bytes)))
            }
        };
        let outcome = self.run(&Gpu::sized(gpu), &variables, &name)?;
        Ok(outcome.map(|outcome| matches!(outcome, Outcome::Well(_) | Outcome::Stopped(_))))
    }

    /// Within the limit that the job had, and with these variables; `None` where there is no time left.
    fn within(&mut self, name: &str, variables: &[(String, String)]) -> Result<Option<Outcome>, String> {
        let mut all = if self.limit == Limit::Cap { self.limits() } else { Vec::new() };
        let cap = self.conditions.job.limits.iter().find(|(name, _)| name == "WEIR_CAP");
        if let (Limit::Cap, Some((name, value))) = (self.limit, cap) {
            all.push((name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()));
        }
        all.extend(variables.iter().cloned());
        let gpu = Gpu::sized(self.device.saturating_sub(self.others));
        self.run(&gpu, &all, name)
    }

    /// Limits that the job had, but for the cap. Its group is one of this run alone.
    fn limits(&self) -> Vec<(String, String)> {
        let limits = self.conditions.job.limits.iter().filter(|(name, _)| name != "WEIR_CAP");
        let text = |text: &std::ffi::OsStr| text.to_string_lossy().into_owned();
        let own = |(name, value): &(std::ffi::OsString, std::ffi::OsString)| {
            if name == "WEIR_GROUP" { (text(name), "rerun".to_owned()) } else { (text(name), text(value)) }
        };
        limits.map(own).collect()
    }

    /// One run; `None` where there are no more runs or no time left for another one.
    fn run(&mut self, gpu: &Gpu, variables: &[(String, String)], name: &str) -> Result<Option<Outcome>, String> {
        let left = self.total.saturating_sub(self.began.elapsed());
        if self.runs > 0 && (self.runs >= MOST_RUNS || left < Duration::from_secs(1)) {
            return Ok(None);
        }
        let wanted = self.conditions.limit.unwrap_or(self.total);
        // A run that would be stopped only because the time in all is over shows nothing.
        let short = wanted > left;
        self.conditions.limit = Some(wanted.min(left));
        let trial = self.conditions.attempt(gpu, variables);
        self.conditions.limit = Some(wanted);
        let trial = trial?;
        self.runs += 1;
        let outcome = match (&trial.ending, trial.ran_out) {
            (Ending::Exit { code: 0 }, _) => Outcome::Well(trial),
            (_, true) => Outcome::RanOut(trial),
            (Ending::Stopped, false) if short && self.runs > 1 => return Ok(None),
            (Ending::Stopped, false) => Outcome::Stopped(trial),
            (_, false) => Outcome::Failed(trial),
        };
        let (result, trial) = match &outcome {
            Outcome::Well(trial) => ("ended well", trial),
            Outcome::RanOut(trial) => ("ran out of memory", trial),
            Outcome::Stopped(trial) => ("was stopped", trial),
            Outcome::Failed(trial) => ("failed", trial),
        };
        say(&format!("run {}, {name}: {result} after {}", self.runs, duration(trial.seconds)));
        Ok(Some(outcome))
    }

    fn seen(&self, outcome: &Outcome, plain: &Report) -> Result<Seen, String> {
        match outcome {
            Outcome::Failed(_) => Ok(Seen::default()),
            Outcome::Well(trial) | Outcome::RanOut(trial) | Outcome::Stopped(trial) => {
                Seen::of(&trial.journals.0, plain, self.at_hand(plain)).map_err(|error| error.to_string())
            }
        }
    }

    /// A job that failed, and not for want of memory.
    fn failed(&self, trial: &Trial, room: u64) -> String {
        let mut parts =
            vec![format!("run again with {}, it {}, and not for want of memory", size(room), trial.ending.words())];
        if trial.processes == 0 {
            parts.push("it never used a GPU".into());
        }
        if let Output::File(path) = &self.output {
            let output = std::fs::read(path).unwrap_or_default();
            let output = String::from_utf8_lossy(&output);
            if let Some(last) = output.lines().rev().map(str::trim).find(|line| !line.is_empty()) {
                parts.push(format!("it printed last: {}", last.chars().take(LAST_LETTERS).collect::<String>()));
            }
        }
        parts.join("; ")
    }
}

/// Settings that may help a job that has room enough for what it holds, most promising first.
fn settings(run: &Run, plain: &Report) -> Vec<&'static str> {
    let settings = run.settings();
    let mut found = Vec::new();
    let own_allocator = plain.tensors.is_some_and(|view| view.own_allocator);
    if own_allocator {
        found.push("WEIR_POOL=on WEIR_TF_ALLOCATOR=pool");
        let reserved = plain.findings.iter().any(|finding| finding.cause == Cause::ReservedIdle);
        if reserved {
            found.push("TF_FORCE_GPU_ALLOW_GROWTH=true");
        }
    } else if settings.pool.large_handle.is_none() {
        found.push("WEIR_POOL=handle=2MiB");
    }
    if plain.cap > 0 && plain.findings.iter().any(|finding| finding.cause == Cause::FreedTooLate) {
        found.push("WEIR_ON_CAP=wait:30s");
    }
    found
}

/// The variables of a remedy, and what `weir run` sets with them.
fn pairs(variables: &str) -> Vec<(String, String)> {
    let mut pairs: Vec<(String, String)> = variables
        .split(' ')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    if variables.contains("WEIR_TF_ALLOCATOR=pool") {
        pairs.push(("TF_GPU_ALLOCATOR".into(), "cuda_malloc_async".into()));
    }
    pairs
}

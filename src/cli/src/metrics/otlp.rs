//! The same figures for an OpenTelemetry receiver, and a record for each failure for want of memory. `weir-fleet` has the
//! crates that speak to it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;
use weir_forensics::Run;
use weir_journal::text;

use super::exposition::Page;
use super::totals::Totals;
use crate::fleet::Helper;
use crate::row;
use crate::watch::{Show, Watch};

/// Failures of a run that follow each other so closely are one.
const ONE_STORM: Duration = Duration::from_secs(60);

/// Sends until the process ends.
pub(super) fn send(endpoint: &str, every: Duration, watch: &mut Watch, holders: usize) -> Result<(), String> {
    let mut helper = Helper::start(&["otlp", endpoint], true)?;
    let mut totals = Totals::default();
    // Failures of each run that are known, and when one of it was sent. What was before is not sent.
    let mut known: Option<HashMap<PathBuf, (u64, Option<Instant>)>> = None;
    loop {
        let jobs = watch.look(Show::Living);
        totals.count(&jobs);
        let mut now = HashMap::new();
        for job in &jobs {
            let (before, mut sent) = match &known {
                None => (job.ooms, None),
                Some(known) => known.get(&job.journal).copied().unwrap_or((0, None)),
            };
            let is_new = job.ooms > before && sent.is_none_or(|at: Instant| at.elapsed() >= ONE_STORM);
            if is_new {
                match Run::open(&job.journal)
                    .map_err(|error| error.to_string())
                    .and_then(|run| row::of(&run, None, false))
                {
                    Ok(row) => helper.say(&json!({"oom": row}))?,
                    Err(why) => eprintln!("weir metrics: {}", text::plain(&why)),
                }
                sent = Some(Instant::now());
            }
            now.insert(job.journal.clone(), (job.ooms, sent));
        }
        known = Some(now);
        let figures = Page::of(&jobs, &totals, watch.unreadable().len(), holders).json();
        helper.say(&json!({"figures": figures}))?;
        std::thread::sleep(every);
    }
}

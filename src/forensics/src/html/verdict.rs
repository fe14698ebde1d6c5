//! The cause, first on the page: what was requested, why it was refused, what can be done, and where the device's
//! memory is. All of it is the report's; here it only becomes lines.

use serde::Serialize;

use super::commands;
use crate::names::base_name;
use crate::report::{Report, Request};
use crate::views::Part;
use crate::words::{count, size};
use crate::{Fate, Run};

/// Findings, things that grow and remedies, of each at most so many.
const MOST: usize = 3;
/// Holders that are listed where there is no table of all.
const MOST_HOLDERS: usize = 10;

/// A remedy.
#[derive(Debug, Serialize)]
pub(super) struct Try {
    pub(super) text: String,
    /// How it was shown to help.
    pub(super) how: String,
    /// What to copy, if that is all there is to do.
    pub(super) command: Option<String>,
}

/// What the top of the page says.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    /// Whether something went wrong.
    pub(super) alarm: bool,
    pub(super) title: String,
    /// The cause in a word or two.
    pub(super) cause: &'static str,
    /// Lines of a name and a text.
    pub(super) lines: Vec<(&'static str, String)>,
    /// What to do about it, the most promising first.
    pub(super) tries: Vec<Try>,
    /// Who holds most at the verdict's moment: operation, line, bytes, blocks.
    #[serde(skip)]
    pub(super) holders: Vec<(String, String, u64, u64)>,
    /// The device's memory, in parts that add up to it: in words, what, bytes.
    pub(super) parts: Vec<(&'static str, Part, u64)>,
}

impl Verdict {
    pub(super) fn of(run: &Run, report: &Report) -> Self {
        let mut lines = Vec::new();
        if let Some(request) = &report.request {
            lines.push((if request.only_tried { "Tried" } else { "Requested" }, requester(request)));
        }
        let whereabouts = report.whereabouts();
        if !whereabouts.is_empty() {
            lines.push(("Where", whereabouts));
        }
        for (place, finding) in report.findings.iter().take(MOST).enumerate() {
            match place {
                0 => lines.push(("Why", finding.evidence.clone())),
                _ => lines.push(("Also", format!("{}: {}", finding.cause.title(), finding.evidence))),
            }
            if let Some(explanation) = finding.explanation.as_ref().filter(|_| place == 0) {
                lines.push(("Full of", explanation.text.clone()));
            }
        }
        for growing in report.growth.iter().take(MOST) {
            // A finding may have said so already.
            if !lines.iter().any(|(_, text)| text.contains(&growing.text)) {
                lines.push(("Grows", growing.text.clone()));
            }
        }
        let tries = report.remedies.iter().take(MOST).map(|remedy| Try {
            text: remedy.text.clone(),
            how: remedy.how.clone(),
            command: commands::of(&remedy.act, &run.header().command),
        });
        let holders = report.holders.iter().take(MOST_HOLDERS);
        let holders = holders.map(|one| (one.label(), one.place().to_owned(), one.bytes, one.blocks));
        lines.extend(report.not_enough().map(|text| ("Not", text)));
        let above = report.above_driver();
        let nothing = if above.is_some() {
            "nothing was refused by the driver or by weir"
        } else {
            "nothing was refused for want of memory"
        };
        lines.extend(above.map(|text| ("Note", text)));
        let title = match (report.is_oom(), report.state, report.exit_status) {
            (true, ..) if report.only_tried() => "Failed after it tried for GPU memory in vain".to_owned(),
            (true, ..) => "GPU out of memory".to_owned(),
            (false, Fate::Alive, _) => format!("Running: {nothing}"),
            (false, Fate::Ended, None | Some(0)) => format!("Ended in order: {nothing}"),
            (false, Fate::Ended, Some(status)) => format!("Ended with status {status}: {nothing}"),
            (false, Fate::Killed, _) => format!("Killed or crashed: {nothing}"),
            (false, Fate::Unknown, _) => format!("State unknown: {nothing}"),
        };
        let step = if report.step > 0 { format!(", step {}", count(report.step)) } else { String::new() };
        Self {
            alarm: run.oom_count() > 0 || report.only_tried(),
            title: format!("{title}{step}"),
            cause: report.verdict().map_or("", |finding| finding.cause.title()),
            lines,
            tries: tries.collect(),
            holders: holders.collect(),
            parts: report.driver.parts.iter().map(|(part, bytes)| (part.word(), *part, *bytes)).collect(),
        }
    }
}

fn requester(request: &Request) -> String {
    let mut parts = vec![size(request.bytes)];
    if !request.op.is_empty() {
        parts.push(request.op.clone());
    } else if !request.library.is_empty() {
        parts.push(request.library.clone());
    }
    if !request.python.is_empty() {
        parts.push(base_name(&request.python).to_owned());
    }
    if !request.function.is_empty() && request.function != "<module>" {
        parts.push(format!("in {}", request.function));
    }
    match (request.times, request.only_tried) {
        (0 | 1, _) => {}
        (times, true) => parts.push(format!("({} times)", count(times))),
        (2, false) => parts.push("(refused twice)".into()),
        (times, false) => parts.push(format!("(refused {} times)", count(times))),
    }
    parts.join("  ")
}

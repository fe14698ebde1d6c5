//! The cause, first on the page: what was requested, why it was refused, what can be done, and where the device's
//! memory is. All of it is the report's; here it only becomes lines.

use serde::Serialize;

use crate::names::base_name;
use crate::report::{Report, Request};
use crate::views::Part;
use crate::words::{count, size};
use crate::{Fate, Run};

/// Findings, things that grow and remedies, of each at most so many.
const MOST: usize = 3;

/// What the top of the page says.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    /// Whether something went wrong.
    alarm: bool,
    title: String,
    /// The cause in a word or two.
    cause: &'static str,
    /// Lines of a name and a text.
    lines: Vec<(&'static str, String)>,
    /// The device's memory, in parts that add up to it: in words, what, bytes.
    parts: Vec<(&'static str, Part, u64)>,
}

impl Verdict {
    pub(super) fn of(run: &Run, report: &Report) -> Self {
        let mut lines = Vec::new();
        if let Some(request) = &report.request {
            lines.push((if request.only_tried { "Tried" } else { "Requested" }, requester(request)));
        }
        for (place, finding) in report.findings.iter().take(MOST).enumerate() {
            match place {
                0 => lines.push(("Why", finding.evidence.clone())),
                _ => lines.push(("Also", format!("{}: {}", finding.cause.title(), finding.evidence))),
            }
        }
        for growing in report.growth.iter().take(MOST) {
            // A finding may have said so already.
            if !lines.iter().any(|(_, text)| text.contains(&growing.text)) {
                lines.push(("Grows", growing.text.clone()));
            }
        }
        let remedies = report.remedies.iter().take(MOST);
        lines.extend(remedies.map(|remedy| ("Try", format!("{} ({})", remedy.text, remedy.how))));
        if !report.useless.is_empty() {
            lines.push(("Not", format!("{}: would not help (replayed)", report.useless.join(", "))));
        }
        let title = match (report.is_oom(), report.state) {
            (true, _) if report.only_tried() => "Failed after it tried for GPU memory in vain",
            (true, _) => "GPU out of memory",
            (false, Fate::Alive) => "Running: nothing was refused for want of memory",
            (false, Fate::Ended) => "Ended in order: nothing was refused for want of memory",
            (false, Fate::Killed) => "Killed or crashed: nothing was refused for want of memory",
            (false, Fate::Unknown) => "Nothing was refused for want of memory",
        };
        let step = if report.step > 0 { format!(", step {}", count(report.step)) } else { String::new() };
        Self {
            alarm: run.oom_count() > 0 || report.only_tried(),
            title: format!("{title}{step}"),
            cause: report.verdict().map_or("", |finding| finding.cause.title()),
            lines,
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
    if request.times > 1 {
        parts.push(format!("({} times)", count(request.times)));
    }
    parts.join("  ")
}

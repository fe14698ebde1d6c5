//! The cause, first on the page: what was asked for, why it was refused, and what can be done.

use serde::Serialize;

use crate::Run;

/// What the top of the page says.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    /// Whether something went wrong.
    alarm: bool,
    title: String,
    /// The cause in a word or two.
    cause: String,
    /// Lines of a name and a text.
    lines: Vec<(&'static str, String)>,
}

fn gib(bytes: u64) -> String {
    format!("{:.2} GiB", bytes as f64 / (1_u64 << 30) as f64)
}

impl Verdict {
    pub(super) fn of(run: &Run) -> Self {
        let Some(oom) = run.ooms().first() else {
            return Self {
                alarm: false,
                title: "No out-of-memory in this recording".into(),
                cause: String::new(),
                lines: Vec::new(),
            };
        };
        let asker = [oom.op.as_str(), oom.python.as_str()].into_iter().filter(|text| !text.is_empty());
        let asker: Vec<_> = asker.collect();
        Self {
            alarm: true,
            title: "GPU out of memory".into(),
            cause: format!("{:?}", oom.cause),
            lines: vec![("Asked", format!("{}  {}", gib(oom.asked), asker.join("  ")))],
        }
    }
}

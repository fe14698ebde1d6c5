//! The report of a job's ranks as text.

use std::fmt::Write as _;

use weir_journal::text::plain;
use weir_settings::size::human;

use super::JobReport;
use crate::words::{calendar, several};

/// Columns of a table at most; the others are in the JSON.
const MOST_COLUMNS: usize = 6;

/// The report as text; `offset` is what local time is ahead of UTC, in seconds.
pub fn text(report: &JobReport, offset: i64) -> String {
    let mut out = String::new();
    let time = |ns: u64| calendar(ns, offset).strftime("%T").to_string();
    let mut hosts: Vec<&str> = report.ranks.iter().map(|rank| rank.member.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let command = report.ranks.first().map(|rank| rank.command.as_str()).unwrap_or_default();
    let heading = if report.is_oom() { "GPU OUT OF MEMORY" } else { "NO RANK RAN OUT OF GPU MEMORY" };
    let many = if report.ranks.len() == 1 { "1 process".into() } else { format!("{} processes", report.ranks.len()) };
    let _ = writeln!(
        out,
        "━━ {heading} ━━ job {}  {}  {many} on {}",
        plain(&report.job),
        plain(command),
        plain(&hosts.join(", "))
    );
    if let (Some(first), Some(own)) = (report.first.and_then(|place| report.ranks.get(place)), &report.report) {
        let when = report.moment_ns.map(time).unwrap_or_default();
        let _ = writeln!(
            out,
            "First     {} ran out at {when} on {}, pid {}",
            plain(&first.name),
            plain(&first.member.host),
            first.pid
        );
        if let Some(request) = &own.request {
            let place = [request.op.as_str(), crate::names::base_name(&request.python)].join("  ");
            let _ = writeln!(out, "Requested {}  {}", human(request.bytes), plain(place.trim()));
        }
        if let Some(finding) = own.verdict() {
            let _ = writeln!(out, "Why       {}: {}", finding.cause.title(), plain(&finding.evidence));
        }
    }
    let _ = writeln!(
        out,
        "\n{:<16} {:<10} {:>10} {:>10} {:>10}  what became of it",
        "process", "on", "cap", "peak", "live"
    );
    for rank in &report.ranks {
        let cap = if rank.cap == 0 { "-".into() } else { human(rank.cap) };
        let (name, host) = (plain(&rank.name), plain(&rank.member.host));
        let _ = writeln!(
            out,
            "{name:<16} {host:<10} {cap:>10} {:>10} {:>10}  {}",
            human(rank.peak),
            human(rank.live),
            plain(&rank.course)
        );
    }
    if let Some(balance) = &report.balance {
        let most = &report.ranks[balance.most];
        let when = report.moment_ns.map_or("at its peak".into(), |ns| format!("at {}", time(ns)));
        let excess = most.live.saturating_sub(balance.others);
        let _ = if excess.saturating_mul(10) > most.live {
            let (name, held, more) = (plain(&most.name), human(most.live), human(excess));
            writeln!(out, "\nImbalance {name} holds {held} {when}, {more} more than the median of the others")
        } else {
            writeln!(out, "\nBalanced  all hold about the same {when}")
        };
        let columns = report.ranks.len().min(MOST_COLUMNS);
        let _ = write!(out, "{:<40}", "live, by operation");
        for rank in report.ranks.iter().take(columns) {
            let _ = write!(out, " {:>12}", plain(&rank.name).chars().take(12).collect::<String>());
        }
        let _ = writeln!(out);
        for row in &balance.rows {
            let name: String =
                plain(&format!("{} {}", crate::names::tail(&row.name, 24), row.python)).chars().take(40).collect();
            let _ = write!(out, "{name:<40}");
            for bytes in row.bytes.iter().take(columns) {
                let _ = write!(out, " {:>12}", human(*bytes));
            }
            let _ = writeln!(out);
        }
        if report.ranks.len() > columns {
            let _ = writeln!(out, "and {} more; see --json", several((report.ranks.len() - columns) as u64, "column"));
        }
    }
    if !report.missing.is_empty() {
        let numbers: Vec<String> = report.missing.iter().map(u32::to_string).collect();
        let _ = writeln!(out, "\nNo journal of rank {}: see weir gather", numbers.join(", "));
    }
    for note in &report.notes {
        let _ = writeln!(out, "Note      {note}");
    }
    if let Some(first) = report.first.and_then(|place| report.ranks.get(place)) {
        let _ = writeln!(out, "More      weir report {}", plain(&first.path));
    }
    out
}

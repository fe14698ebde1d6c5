//! The report on one screen of 80 columns: the cause first, then the parts that add up to the device, who holds it,
//! what to do, and how good the evidence is.

use std::fmt::Write as _;

use crate::Fate;
use crate::holders::Holder;
use crate::host::HostHolder;
use crate::names::tail;
use crate::report::{Asked, Report};
use crate::verdict::Cause;
use crate::views::Part;
use crate::words::{calendar, change, count, duration, size};

/// How to show it.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Columns.
    pub width: usize,
    /// Whether colour may be used.
    pub colour: bool,
    /// Seconds that local time is ahead of UTC.
    pub offset: i64,
}

const BOLD: &str = "1";
const RED: &str = "1;31";
const YELLOW: &str = "33";
const DIM: &str = "2";

struct Page {
    text: String,
    look: Look,
}

impl Page {
    fn painted(&self, code: &str, text: &str) -> String {
        if self.look.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn line(&mut self, text: &str) {
        self.text.push_str(text.trim_end());
        self.text.push('\n');
    }

    /// A labelled text, broken at words and indented under its label.
    fn paragraph(&mut self, label: &str, text: &str) {
        let room = self.look.width.saturating_sub(8).max(20);
        let mut lines: Vec<String> = vec![String::new()];
        for word in text.split(' ') {
            let used = lines.last().map_or(0, |line| line.chars().count());
            if used > 0 && used + 1 + word.chars().count() > room {
                lines.push(String::new());
            }
            if let Some(line) = lines.last_mut() {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
        }
        for (place, line) in lines.iter().enumerate() {
            let label = if place == 0 { label } else { "" };
            self.line(&format!("{label:<8}{line}"));
        }
    }

    fn time(&self, realtime_ns: u64) -> String {
        let (_, _, _, hour, minute, second) = calendar(realtime_ns, self.look.offset);
        format!("{hour:02}:{minute:02}:{second:02}")
    }
}

/// The report as text.
pub fn screen(report: &Report, look: &Look) -> String {
    let mut page = Page { text: String::new(), look: *look };
    title(&mut page, report);
    why(&mut page, report);
    page.line("");
    bar(&mut page, report);
    page.line("");
    who(&mut page, report);
    growth(&mut page, report);
    remedies(&mut page, report);
    evidence(&mut page, report);
    page.text
}

fn title(page: &mut Page, report: &Report) {
    let what = match (report.oom, report.state) {
        (1.., _) => "GPU OUT OF MEMORY",
        (0, Fate::Alive) => "RUNNING",
        (0, Fate::Ended) => "ENDED",
        (0, Fate::Killed) => "KILLED OR CRASHED",
        (0, Fate::Unknown) => "IN ANOTHER CONTAINER",
    };
    let code = if report.oom > 0 { RED } else { BOLD };
    let time = page.time(report.realtime_ns);
    let room = page.look.width.saturating_sub(what.chars().count() + time.len() + 10).max(12);
    let command: String = report.command.chars().take(room).collect();
    let heading = page.painted(code, &format!("━━ {what} ━━"));
    page.line(&format!("{heading} {command}  {time}"));
    let mut job = vec![format!("pid {}", report.pid)];
    job.push(format!("GPU {} {}", report.device, tail(&report.device_name, 30)).trim_end().to_owned());
    if report.step > 0 {
        job.push(format!("step ≈ {}", count(report.step)));
    }
    match report.state {
        Fate::Alive if report.oom > 0 => job.push("still running".into()),
        Fate::Killed if report.oom > 0 => job.push("then killed or crashed".into()),
        _ => {}
    }
    page.paragraph("Job", &job.join(", "));
}

fn why(page: &mut Page, report: &Report) {
    if let Some(asked) = &report.asked {
        let times = if asked.times > 1 { format!("   ({} times)", count(asked.times)) } else { String::new() };
        page.paragraph("Asked", &format!("{}   {}{times}", size(asked.bytes), asker(asked)));
    }
    for (place, finding) in report.findings.iter().take(3).enumerate() {
        let label = if place == 0 { "Why" } else { "" };
        let also = if place == 0 { "" } else { "also " };
        let title = finding.cause.title();
        let start = page.text.len();
        page.paragraph(label, &format!("{also}{title}: {}", finding.evidence));
        // Painted when the lines are broken, so that colour takes no columns.
        let painted = page.painted(if place == 0 { RED } else { DIM }, title);
        let written = page.text.split_off(start).replacen(title, &painted, 1);
        page.text.push_str(&written);
    }
    if report.findings.is_empty() {
        let on =
            if report.oom > 0 { "nothing was refused on this GPU" } else { "nothing was refused for want of memory" };
        page.paragraph("Why", on);
    }
    if let Some(reason) = &report.turned_off {
        page.paragraph("Note", &format!("weir turned itself off in this job: {reason}"));
    }
}

fn asker(asked: &Asked) -> String {
    let mut parts = Vec::new();
    if !asked.op.is_empty() {
        parts.push(tail(&asked.op, 44));
    } else if !asked.library.is_empty() {
        parts.push(asked.library.clone());
    }
    if !asked.python.is_empty() {
        let place = crate::names::base_name(&asked.python);
        let inside = asked.function.as_str();
        let named = !inside.is_empty() && inside != "<module>";
        parts.push(if named { format!("{place} in {inside}") } else { place.to_owned() });
    }
    if parts.is_empty() { "by nobody known".into() } else { parts.join("   ") }
}

fn bar(page: &mut Page, report: &Report) {
    let view = &report.driver;
    if view.total == 0 {
        return page.line("Device of unknown size");
    }
    let head = format!("Device {:>9}  ", size(view.total));
    let room = page.look.width.saturating_sub(head.chars().count()).clamp(10, 60);
    let mut bar = String::new();
    let mut before = 0_u64;
    for (part, bytes) in &view.parts {
        let cell = |bytes: u64| (u128::from(bytes) * room as u128 / u128::from(view.total)) as usize;
        let cells = cell(before + bytes) - cell(before);
        bar.extend(std::iter::repeat_n(part.mark(), cells));
        before += bytes;
    }
    page.line(&format!("{head}{bar}"));
    for (part, bytes) in &view.parts {
        let note = match part {
            Part::Live => format!("{} blocks", count(report.blocks)),
            Part::PoolFree if report.pool.2 > 0 => {
                format!("{} holes, up to {}", count(report.pool.2), size(report.pool.1))
            }
            Part::Overhead => "contexts, code, mappings".into(),
            Part::Others if !report.neighbours.is_empty() => report.neighbours.join(", "),
            Part::Others => "and the driver's own".into(),
            Part::Free if !view.measured => "or others': not measured".into(),
            _ => String::new(),
        };
        let share = *bytes as f64 * 100.0 / view.total as f64;
        let line = format!("  {} {:<24} {:>11} {share:>5.1} %   {note}", part.mark(), part.word(), size(*bytes));
        page.line(&cut(&line, page.look.width));
    }
    if view.spilled > 0 {
        page.line(&format!("  spilled to the host        {:>11}           beside the device", size(view.spilled)));
    }
    let mut facts = Vec::new();
    if report.cap > 0 {
        let place = report.findings.iter().position(|finding| finding.cause == Cause::Cap);
        let blame = match place {
            Some(0) => "",
            Some(_) => " (reached)",
            None if report.oom > 0 => " (not the cause)",
            None => "",
        };
        facts.push(format!("Cap {}{blame}", size(report.cap)));
    }
    if report.peak > 0 {
        facts.push(format!("Peak {} at {}", size(report.peak), page.time(report.peak_ns)));
    }
    page.line(&facts.join("   "));
    if report.host.resident > 0 {
        page.line(&format!("Host {} resident, {} pinned", size(report.host.resident), size(report.host.pinned)));
    }
    if let Some(view) = report.tensors {
        let held = match (view.own_allocator, count(view.tensors), size(view.used)) {
            (true, tensors, used) => format!(
                "TensorFlow reserved {}, its {tensors} tensors use {used}, idle {}",
                size(view.reserved),
                size(view.idle)
            ),
            (false, tensors, used) => format!("TensorFlow's {tensors} tensors use {used}, none idle"),
        };
        page.paragraph("Tensors", &format!("{held}; beside it {}", size(view.beside)));
    }
    let shares: Vec<String> =
        report.roles.iter().take(6).map(|share| format!("{} {}", share.role.word(), size(share.bytes))).collect();
    if !shares.is_empty() {
        page.paragraph("By role", &shares.join(", "));
    }
}

fn who(page: &mut Page, report: &Report) {
    if report.holders.is_empty() {
        return;
    }
    let wide = page.look.width.saturating_sub(80).min(40);
    let (op_room, place_room) = (24 + wide * 2 / 3, 15 + wide / 3);
    let head = format!(
        "{:<width$} {:>10} {:>6} {:>10}",
        "Who holds it",
        "live",
        "blocks",
        "last 60 s",
        width = 3 + op_room + 1 + place_room
    );
    let head = page.painted(BOLD, &head);
    page.line(&head);
    for (place, holder) in report.holders.iter().enumerate() {
        let mark = if holder.grows { page.painted(YELLOW, &spark(holder)) } else { spark(holder) };
        page.line(&format!(
            "{:>2} {:<op_room$} {:<place_room$} {:>10} {:>6} {:>10} {mark}",
            place + 1,
            tail(&holder.label(), op_room),
            tail(holder.place(), place_room),
            size(holder.bytes),
            short_count(holder.blocks),
            change(holder.recent),
        ));
    }
    if report.rest > 0 {
        page.line(&format!("   and others together: {}", size(report.rest)));
    }
}

/// Counts in six columns.
fn short_count(number: u64) -> String {
    match number {
        0..1_000_000 => number.to_string(),
        1_000_000..1_000_000_000 => format!("{:.1}M", number as f64 / 1e6),
        _ => format!("{:.1}G", number as f64 / 1e9),
    }
}

/// Five little columns of a holder's course.
fn spark(holder: &Holder) -> String {
    const COLUMNS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let points: Vec<u64> = holder.course.iter().copied().skip(holder.course.len() - 5).collect();
    let most = holder.course.iter().copied().max().unwrap_or(0).max(1);
    points.iter().map(|point| COLUMNS[((point * 7).div_ceil(most) as usize).min(7)]).collect()
}

fn growth(page: &mut Page, report: &Report) {
    // What the verdict has said already is not said again, nor what several owners on one line tell alike.
    let mut told: Vec<&str> = report.findings.iter().map(|finding| finding.evidence.as_str()).collect();
    let most = told.len() + 2;
    for growing in &report.growth {
        if told.len() == most || told.contains(&growing.text.as_str()) {
            continue;
        }
        told.push(&growing.text);
        let until = match growing.until_full {
            Some(left) if report.oom == 0 && growing.unit == "step" => {
                format!("; full in about {} steps", count(left as u64))
            }
            Some(left) if report.oom == 0 => format!("; full in about {}", duration(left)),
            _ => String::new(),
        };
        page.paragraph("Growth", &format!("{}{until}", growing.text));
    }
    if let Some(slope) = report.host.slope {
        let unit = if report.step > 0 { "step" } else { "second" };
        page.paragraph("Host", &format!("resident memory grows by {} a {unit}", size(slope as u64)));
    }
    // Who has the host's memory matters where that ran out, or where it is much.
    let ran_out = report.findings.iter().any(|finding| finding.cause == Cause::HostMemory);
    let much = |holder: &&HostHolder| ran_out || holder.bytes * 4 >= report.host.resident.max(1);
    for (place, holder) in report.host.holders.iter().filter(much).take(3).enumerate() {
        let label = if place == 0 && report.host.slope.is_none() { "Host" } else { "" };
        page.paragraph(label, &holder.told());
    }
}

fn remedies(page: &mut Page, report: &Report) {
    for (place, remedy) in report.remedies.iter().enumerate() {
        let label = if place == 0 { "Try" } else { "" };
        page.paragraph(label, &format!("{}. {} ({})", place + 1, remedy.text, remedy.check.word()));
    }
}

fn evidence(page: &mut Page, report: &Report) {
    let evidence = &report.evidence;
    let lost = evidence.losses.unwritten + evidence.losses.lapped + evidence.losses.cut + evidence.dropped;
    let mut facts = vec![
        format!("{} events", count(evidence.events)),
        format!("{} torn", count(evidence.losses.torn)),
        format!("{} lost", count(lost)),
    ];
    if evidence.overwritten > 0 {
        facts.push(format!("{} older ones overwritten", count(evidence.overwritten)));
    }
    if evidence.untracked > 0 {
        facts.push(format!("{} allocations untracked", count(evidence.untracked)));
    }
    if evidence.damaged > 0 {
        facts.push(format!("{} entries damaged", count(evidence.damaged)));
    }
    if evidence.in_flight > 0 {
        facts.push(format!("{} calls in flight", evidence.in_flight));
    }
    facts.push(format!("{:.0} % of live bytes have a name", evidence.named * 100.0));
    if evidence.truncated {
        facts.push("the file is cut off".into());
    }
    if evidence.moving {
        facts.push("the job runs: a picture taken while things move".into());
    }
    if !evidence.exact {
        facts.push("holders are those that the library wrote down then".into());
    }
    let whole = lost == 0 && evidence.losses.torn == 0 && evidence.damaged == 0 && evidence.untracked == 0;
    let whole = whole && !evidence.truncated;
    let label = if whole { "Log complete: " } else { "Log INCOMPLETE: " };
    let mut text = String::new();
    let _ = write!(text, "{label}{}", facts.join(", "));
    page.paragraph("Log", text.strip_prefix("Log ").unwrap_or(&text));
    page.paragraph("More", &format!("weir report --html FILE, weir export, weir replay; this run is {}", report.run));
}

fn cut(line: &str, width: usize) -> String {
    line.chars().take(width).collect()
}

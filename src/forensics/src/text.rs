//! The report on one screen: the cause first, then the parts that add up to the device, who holds it, what to do, and
//! how good the evidence is. What does not fit is left to `--details`.

mod page;

use crate::Fate;
use crate::holders::Holder;
use crate::host::HostHolder;
use crate::names::{short, tail};
use crate::report::{At, Mark, Place, Report, Request};
use crate::verdict::Cause;
use crate::views::Part;
use crate::words::{adding_up, change, count, several, size, size_down};
use crate::xla::Arena;
pub use page::Look;
use page::{BOLD, DIM, LABEL, Page, RED, Room, YELLOW, columns, painted};

/// From what one would like to what there is room for.
const LADDER: [Room; 7] = [
    Room { findings: 3, holders: 5, remedies: 3, air: true },
    Room { findings: 3, holders: 5, remedies: 2, air: true },
    Room { findings: 2, holders: 4, remedies: 2, air: true },
    Room { findings: 2, holders: 3, remedies: 1, air: true },
    Room { findings: 2, holders: 3, remedies: 1, air: false },
    Room { findings: 1, holders: 3, remedies: 1, air: false },
    Room { findings: 1, holders: 2, remedies: 1, air: false },
];

/// The report as text.
pub fn screen(report: &Report, look: &Look) -> String {
    let mut text = String::new();
    let all = Room { findings: usize::MAX, holders: usize::MAX, remedies: usize::MAX, air: true };
    let ladder = if look.details { &[all][..] } else { &LADDER };
    for room in ladder {
        let holders = look.holders.unwrap_or(room.holders);
        let mut page = Page { text: String::new(), look: *look, room: Room { holders, ..*room } };
        title(&mut page, report);
        why(&mut page, report);
        page.gap();
        bar(&mut page, report);
        page.gap();
        who(&mut page, report);
        arenas(&mut page, report);
        on_the_host(&mut page, report);
        if look.details {
            details(&mut page, report);
        }
        remedies(&mut page, report);
        evidence(&mut page, report);
        text = page.finished();
        if text.lines().count() <= look.height {
            break;
        }
    }
    text
}

fn title(page: &mut Page, report: &Report) {
    let failed = report.exit_status.filter(|status| *status != 0);
    let what = match (report.oom, report.state, failed) {
        (1.., ..) => "GPU OUT OF MEMORY".into(),
        (0, Fate::Alive, _) => "RUNNING".into(),
        (0, Fate::Ended, None) => "ENDED".into(),
        (0, Fate::Ended, Some(status)) => format!("ENDED WITH STATUS {status}"),
        (0, Fate::Killed, _) => "KILLED OR CRASHED".to_owned(),
        (0, Fate::Unknown, _) => "IN ANOTHER CONTAINER".into(),
    };
    let heading = format!("━━ {what} ━━");
    let mut job =
        vec![String::new(), format!("pid {}", report.pid), String::new(), page.time(report.realtime_ns, page.look.now)];
    if report.step > 0 {
        job.push(format!("step ≈ {}", count(report.step)));
    }
    match report.state {
        Fate::Alive if report.oom > 0 => job.push("still running".into()),
        Fate::Killed if report.oom > 0 => job.push("then killed or crashed".into()),
        // It caught the failure, or could do without what was refused.
        Fate::Ended if report.oom > 0 && report.exit_status == Some(0) => job.push("then ended well".into()),
        _ => {}
    }
    let gpu = format!("GPU {} {}", report.device, short(&report.device_name, 30));
    // On a narrow screen first the device's name goes, then the end of the command.
    for gpu in [gpu.trim_end(), &format!("GPU {}", report.device)] {
        gpu.clone_into(&mut job[2]);
        let used: usize = job.iter().skip(1).map(|part| columns(part) + 2).sum();
        let room = page.look.width.saturating_sub(columns(&heading) + 1 + used);
        job[0] = start(&report.command, room.max(16));
        if columns(&report.command) <= room {
            break;
        }
    }
    let colour = if report.oom > 0 { RED } else { BOLD };
    let parts: Vec<String> =
        std::iter::once(format!("{} {}", painted(colour, &heading), job[0])).chain(job.into_iter().skip(1)).collect();
    page.wrapped("", 0, parts.iter().map(String::as_str), "  ");
}

/// The beginning of a text.
fn start(text: &str, most: usize) -> String {
    if columns(text) <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

fn why(page: &mut Page, report: &Report) {
    if let Some(request) = &report.request {
        let width = if page.look.details { usize::MAX } else { page.look.width.saturating_sub(LABEL) };
        let line = requester(request, width);
        page.paragraph(if request.only_tried { "Tried" } else { "Requested" }, &line);
    }
    let shown = page.room.findings;
    let whereabouts = report.whereabouts();
    if !whereabouts.is_empty() {
        page.paragraph("Where", &whereabouts);
    }
    for (place, finding) in report.findings.iter().take(shown).enumerate() {
        let (label, also, colour) = if place == 0 { ("Why", "", RED) } else { ("", "also ", DIM) };
        let until = if finding.cause == Cause::Growth { forecast(report) } else { String::new() };
        let title = painted(colour, finding.cause.title());
        page.paragraph(label, &format!("{also}{title}: {}{until}", finding.evidence));
        if let Some(explanation) = finding.explanation.as_ref().filter(|_| place == 0 || page.look.details) {
            page.paragraph("Full of", &explanation.text);
        }
    }
    let hidden: Vec<&str> = report.findings.iter().skip(shown).map(|finding| finding.cause.title()).collect();
    if !hidden.is_empty() {
        page.paragraph("", &format!("also {}", hidden.join(", ")));
    }
    if report.findings.is_empty() {
        let on = match (report.oom, report.tried) {
            (0, 0) if report.above_driver().is_some() => "nothing was refused by the driver or by weir",
            (0, 0) => "nothing was refused for want of memory",
            (0, _) => "nothing was refused for want of memory that the job could not do without",
            _ if report.at != At::Oom => "nothing was refused at this moment (the failure: --at oom)",
            _ => "nothing was refused on this GPU",
        };
        let shown = match report.at {
            At::Peak => "; this is the moment at which most was live",
            At::Step(_) | At::Time(_) => "; this is the moment that was chosen",
            _ => "",
        };
        page.paragraph("Why", &format!("{on}{shown}"));
    }
    if let Some(above) = report.above_driver() {
        page.paragraph("Note", &above);
    }
    let inside = report.request.as_ref().filter(|request| request.compiled).and_then(|request| {
        let mut arenas = report.compiled.iter();
        arenas.find(|arena| arena.requested && arena.bytes <= request.bytes && request.bytes - arena.bytes < 4096)
    });
    if let Some(arena) = inside {
        page.paragraph("Compiled", &arena_sentence(arena));
    } else if report.request.as_ref().is_some_and(|request| request.compiled) {
        let note = "XLA requests memory once for all operations of what it compiled; weir run --xla on records what is inside, and with jit_compile=False each operation requests its own";
        page.paragraph("Note", note);
    }
    if report.only_tried() {
        let note = "TensorFlow can go on without what it tried for, unless every try fails (\"No algorithm worked!\"); this job \
                    then failed";
        page.paragraph("Note", note);
    } else if report.tried > 0 && page.look.details {
        let tries = several(report.tried, "request");
        page.paragraph("Tried", &format!("{tries} for memory that TensorFlow can do without got nothing"));
    }
    if page.look.details {
        for chosen in &report.choices {
            page.paragraph("Chosen", &format!("{}: {}", chosen.subject, chosen.choice));
        }
    }
    if let Some(reason) = &report.turned_off {
        page.paragraph("Note", &format!("weir turned itself off in this job: {reason}"));
    }
}

/// When all will be full, where the job has not run out of memory yet.
fn forecast(report: &Report) -> String {
    match report.growth.first().and_then(|growing| Some((growing.unit, growing.full_at?))) {
        Some((unit, at)) if report.oom == 0 => format!("; full at about {unit} {}", count(at as u64)),
        _ => String::new(),
    }
}

/// Size, operation and line on one line.
fn requester(request: &Request, width: usize) -> String {
    let bytes = size(request.bytes);
    let times = match (request.times, request.only_tried) {
        (0 | 1, _) => String::new(),
        (times, true) => format!("   ({} times)", count(times)),
        (2, false) => "   (refused twice)".into(),
        (times, false) => format!("   (refused {} times)", count(times)),
    };
    let who = if request.op.is_empty() { &request.library } else { &request.op };
    let place = crate::names::base_name(&request.python);
    if who.is_empty() && place.is_empty() {
        return format!("{bytes}   by nobody known{times}");
    }
    let function = request.function.as_str();
    let named = !function.is_empty() && function != "<module>";
    let inside = if named { format!("{place} in {function}") } else { place.to_owned() };
    // A function's name is left out where the operation would have no room beside it.
    let fixed = columns(&bytes) + columns(&times) + 6;
    let least = fixed + columns(who).min(24);
    let inside = if columns(&inside) + least > width { short(place, width.saturating_sub(least)) } else { inside };
    let op = short(who, width.saturating_sub(fixed + columns(&inside)).max(20));
    let parts: Vec<String> = [bytes, op, inside].into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("   ") + &times
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
    let sizes = adding_up(&view.parts.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>());
    for ((part, bytes), shown) in view.parts.iter().zip(sizes) {
        let note = match part {
            Part::Live => several(report.blocks, "block"),
            Part::PoolFree if report.pool.2 > 0 => {
                format!("{}, up to {}", several(report.pool.2, "free range"), size_down(report.pool.1))
            }
            Part::Overhead => "contexts, code, mappings".into(),
            Part::Others if !report.other_processes.is_empty() => report.other_processes.join(", "),
            Part::Others => "and the driver's own".into(),
            Part::Free if !view.measured => "or held by others".into(),
            _ => String::new(),
        };
        let share = *bytes as f64 * 100.0 / view.total as f64;
        let line = format!("  {} {:<24} {:>11} {share:>5.1} %   ", part.mark(), part.word(), shown);
        let room = page.look.width.saturating_sub(columns(&line)).max(1);
        // How large the largest is comes first where there is no room for all of it.
        let note = match part {
            Part::PoolFree if columns(&note) > room => {
                let (largest, ranges) = (size_down(report.pool.1), count(report.pool.2));
                let short = format!("{ranges} ranges, up to {largest}");
                if columns(&short) > room { format!("largest range {largest}") } else { short }
            }
            _ => note,
        };
        let note = start(&note, room);
        page.line(&format!("{line}{note}"));
    }
    if view.spilled > 0 {
        page.line(&format!("  spilled to the host        {:>11}           beside the device", size(view.spilled)));
    }
    facts(page, report);
    if let Some(view) = report.tensors.filter(|view| view.own_allocator) {
        // From a mebibyte and a hundredth on it is worth a word.
        let beyond = if view.slack < 1 << 20 || view.slack * 100 < view.used {
            String::new()
        } else {
            format!(" ({} more than they requested)", size(view.slack))
        };
        let (tensors, used, reserved) = (count(view.tensors), size(view.used), size(view.reserved));
        let (idle, beside) = (size(view.idle), size(view.beside));
        let sentence = format!("{tensors} use {used}{beyond} of {reserved} reserved, idle {idle}; beside it {beside}");
        page.paragraph("Tensors", &sentence);
    }
    if page.room.air {
        roles(page, report);
        regions(page, report);
    }
}

/// What the job's regions took and left; on one screen the first three.
fn regions(page: &mut Page, report: &Report) {
    let most = if page.look.details { usize::MAX } else { 3 };
    let one = |place: &Place| {
        let (runs, peak) = (several(place.runs, "run"), size(place.peak));
        format!("{} {runs}, up to {peak} live, {} kept", place.name, change(place.kept))
    };
    let mut parts: Vec<String> = report.regions.iter().take(most).map(one).collect();
    if report.regions.len() > most {
        parts.push("…".into());
    }
    if !parts.is_empty() {
        page.wrapped("Regions", LABEL, parts.iter().map(String::as_str), "; ");
    }
}

/// Cap, peak and host in a line.
fn facts(page: &mut Page, report: &Report) {
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
        facts.push(format!("Peak {} at {}", size(report.peak), page.time(report.peak_ns, report.realtime_ns)));
    }
    if report.host.resident > 0 {
        let unit = if report.step > 0 { "step" } else { "second" };
        let grows = report.host.slope.map(|slope| format!(", +{} a {unit}", size(slope as u64))).unwrap_or_default();
        facts.push(format!("Host {} resident{grows}", size(report.host.resident)));
    }
    page.wrapped("", 0, facts.iter().map(String::as_str), "   ");
}

/// The largest roles, as many as a line has room for.
fn roles(page: &mut Page, report: &Report) {
    let mut line = String::new();
    for share in &report.roles {
        let next = format!("{} {}", share.role.word(), size(share.bytes));
        let fits = LABEL + columns(&line) + 2 + columns(&next) + 3 <= page.look.width;
        if !page.look.details && !line.is_empty() && !fits {
            line.push_str(", …");
            break;
        }
        line = if line.is_empty() { next } else { format!("{line}, {next}") };
    }
    if !line.is_empty() {
        page.paragraph("By role", &line);
    }
}

fn who(page: &mut Page, report: &Report) {
    if report.holders.is_empty() {
        return;
    }
    let wide = page.look.width.saturating_sub(80).min(40);
    // From this width on there is room for a word.
    let grows = if wide >= 10 { " growing" } else { " ↑" };
    let wide = if wide >= 10 { wide - 6 } else { wide };
    let (op_room, place_room) = (24 + wide * 2 / 3, 15 + wide / 3);
    let head = format!(
        "{:<width$} {:>10} {:>6} {:>10}",
        "Who holds it",
        "live",
        "blocks",
        "last 60 s",
        width = 3 + op_room + 1 + place_room
    );
    page.line(&painted(BOLD, &head));
    for (place, holder) in report.holders.iter().take(page.room.holders).enumerate() {
        let mark = if holder.grows { painted(YELLOW, &(spark(holder) + grows)) } else { spark(holder) };
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
    let unlisted: u64 = report.holders.iter().skip(page.room.holders).map(|holder| holder.bytes).sum();
    if unlisted + report.rest > 0 {
        page.line(&format!("   and others together: {}", size(unlisted + report.rest)));
    }
}

/// What an arena is and what most of it is for.
fn arena_sentence(arena: &Arena) -> String {
    let largest: Vec<String> =
        arena.parts.iter().take(2).map(|part| format!("{} {}", size(part.bytes), part.words())).collect();
    let module = if arena.certain { "" } else { " (or something else of this size: not certain)" };
    let (name, bytes) = (arena.function(), size(arena.bytes));
    let mut said = vec![format!("{name}{module}: {bytes}, of which {} at its peak", largest.join(", "))];
    said.extend(arena.estimates());
    said.join("; ")
}

/// What is inside the arenas of compiled code.
fn arenas(page: &mut Page, report: &Report) {
    // What to do comes first where there is not room for both.
    let (all, air) = (page.look.details, page.room.air && page.room.remedies > 1);
    let arenas = report.compiled.iter().filter(|_| all || air);
    for arena in arenas.take(if all { usize::MAX } else { 1 }) {
        let exact = if arena.exact { "" } else { " at least" };
        let head = format!(
            "Inside {}, compiled by XLA: {} at its peak{exact} of {}{}",
            arena.function(),
            size(arena.peak),
            size(arena.bytes),
            arena.doubts(),
        );
        page.line(&painted(BOLD, &start(&head, page.look.width)));
        let most = if page.look.details { 20 } else { page.room.holders.min(4) };
        let room = page.look.width.saturating_sub(50).max(19);
        for part in arena.parts.iter().take(most) {
            page.line(&format!(
                "   {:<room$} {:<18} {:>15} {:>10} {}",
                tail(crate::names::short_op(&part.op), room),
                tail(crate::names::base_name(&part.python), 18),
                part.role.word(),
                size(part.bytes),
                if page.look.details { format!("{}   {}", part.shape, part.instruction) } else { String::new() },
            ));
        }
        let unlisted = arena.parts.iter().skip(most).fold(arena.rest, |rest, part| rest.saturating_add(part.bytes));
        if unlisted > 0 {
            page.line(&format!("   and others together: {}", size(unlisted)));
        }
        for said in arena.estimates().into_iter().filter(|_| all) {
            page.line(&format!("   {said}"));
        }
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

/// Who has the host's memory, where that ran out or where it is much.
fn on_the_host(page: &mut Page, report: &Report) {
    let ran_out = report.findings.iter().any(|finding| finding.cause == Cause::HostMemory);
    let much = |holder: &&HostHolder| ran_out || holder.bytes * 4 >= report.host.resident.max(1);
    for (place, holder) in report.host.holders.iter().filter(much).take(page.room.findings.min(3)).enumerate() {
        page.paragraph(if place == 0 { "Host" } else { "" }, &holder.sentence());
    }
}

/// What the screen leaves out.
fn details(page: &mut Page, report: &Report) {
    // Several owners on one line have the same text.
    let mut shown: Vec<&str> = Vec::new();
    for growing in &report.growth {
        if !shown.contains(&growing.text.as_str()) {
            shown.push(&growing.text);
            page.paragraph("Growth", &growing.text);
        }
    }
    if report.host.resident > 0 {
        let (resident, pinned) = (size(report.host.resident), size(report.host.pinned));
        page.paragraph("Host", &format!("{resident} resident, {pinned} pinned"));
    }
    if let Some(view) = report.tensors.filter(|view| !view.own_allocator) {
        let (tensors, used, beside) = (count(view.tensors), size(view.used), size(view.beside));
        page.paragraph("Tensors", &format!("{tensors} use {used}, none idle; beside it {beside}"));
    }
    if !report.marks.is_empty() {
        let one = |mark: &Mark| format!("{} {}", page.time(mark.realtime_ns, report.realtime_ns), mark.name);
        let marks: Vec<String> = report.marks.iter().map(one).collect();
        page.paragraph("Marks", &marks.join("; "));
    }
    for finding in &report.findings {
        let (title, strength, rule) = (finding.cause.title(), finding.strength, finding.rule);
        page.paragraph("Rule", &format!("{title}, strength {strength}: {rule}"));
    }
    page.paragraph("Device", &format!("GPU {} {}, journal {}", report.device, report.device_name, report.path));
}

fn remedies(page: &mut Page, report: &Report) {
    for (place, remedy) in report.remedies.iter().take(page.room.remedies).enumerate() {
        let label = if place == 0 { "Try" } else { "" };
        page.paragraph(label, &format!("{}. {} ({})", place + 1, remedy.text, remedy.how));
    }
    if let Some(text) = report.not_enough() {
        page.paragraph("Not", &text);
    }
    let more = report.remedies.len().saturating_sub(page.room.remedies);
    if more > 0 {
        let what = if more == 1 { "remedy" } else { "remedies" };
        page.paragraph("", &format!("{more} more {what} with --details"));
    }
    if let Some(measured) = &report.measured {
        page.paragraph("Run again", &measured.sentence());
    } else if report.rerun && report.is_oom() {
        page.paragraph(
            "Measure",
            &format!(
                "weir report {} --rerun runs the job again, without a GPU, to see what it needs",
                short(&report.run, 40)
            ),
        );
    }
}

fn evidence(page: &mut Page, report: &Report) {
    let evidence = &report.evidence;
    let lost = evidence.losses.unwritten + evidence.losses.lapped + evidence.losses.cut;
    let mut facts = vec![format!("{} events", count(evidence.events))];
    if evidence.losses.torn > 0 {
        facts.push(format!("{} written in part", count(evidence.losses.torn)));
    }
    if lost > 0 {
        facts.push(format!("{} lost", count(lost)));
    }
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
    let label = if whole { "complete" } else { "INCOMPLETE" };
    let facts = facts.join(", ");
    page.wrapped("", 0, format!("Log {label}: {facts}").split(' '), " ");
    let details = if page.look.details { "" } else { " --details," };
    let run = short(&report.run, 40);
    let more = format!("More: weir report {run}{details} --html FILE; weir export, replay");
    page.wrapped("", 0, more.split(' '), " ");
}

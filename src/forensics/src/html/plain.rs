//! Markup that needs no script: the verdict (cause, evidence, what to try, where the device's memory is, who holds it), and
//! the inside of arenas of compiled code.

use super::markup_free;
use super::verdict::Verdict;
use crate::words::{count, size};
use crate::xla::Arena;
use std::fmt::Write;

/// The verdict for a browser without JavaScript.
pub(super) fn markup(verdict: &Verdict) -> String {
    let text = |text: &str| markup_free(text);
    let mut page = String::new();
    let alarm = if verdict.alarm { " alarm" } else { "" };
    let _ = write!(
        page,
        "<section class=\"card verdict plain{alarm}\"><p class=\"headline\"><strong>{}</strong>",
        text(&verdict.title)
    );
    if !verdict.cause.is_empty() {
        let _ = write!(page, " <span class=\"cause\">{}</span>", text(verdict.cause));
    }
    page += "</p>\n<dl>";
    for (name, said) in &verdict.lines {
        let _ = writeln!(page, "<div class=\"said\"><dt>{}</dt> <dd>{}</dd></div>", text(name), text(said));
    }
    page += "</dl>\n";
    if !verdict.tries.is_empty() {
        page += "<h2>Try</h2><ol class=\"tries\">\n";
        for one in &verdict.tries {
            let _ = write!(page, "<li>{} ({})", text(&one.text), text(&one.how));
            if let Some(command) = &one.command {
                let _ = write!(page, "<div class=\"command\"><code>{}</code></div>", text(command));
            }
            page += "</li>\n";
        }
        page += "</ol>\n";
    }
    if !verdict.holders.is_empty() {
        page += "<h2>Who holds it</h2><table><tr><th class=\"words\">Operation</th><th class=\"words\">Line</th><th>Live</th><th>Blocks</th></tr>\n";
        for (name, line, bytes, blocks) in &verdict.holders {
            let (name, line) = (text(name), text(line));
            let _ = writeln!(
                page,
                "<tr><td class=\"words\">{name}</td><td class=\"words\">{line}</td><td>{}</td><td>{}</td></tr>",
                size(*bytes),
                count(*blocks)
            );
        }
        page += "</table>\n";
    }
    if verdict.parts.iter().any(|(.., bytes)| *bytes > 0) {
        page += "<h2>The device's memory</h2><table>\n";
        for (what, _, bytes) in verdict.parts.iter().filter(|(.., bytes)| *bytes > 0) {
            let _ = writeln!(page, "<tr><td class=\"words\">{}</td><td>{}</td></tr>", text(what), size(*bytes));
        }
        page += "</table>\n";
    }
    page + "<p class=\"note\">The charts, the address space and the search need JavaScript.</p></section>\n"
}

/// The inside of arenas of compiled code; empty where there is none.
pub(super) fn compiled(arenas: &[Arena]) -> String {
    let text = |text: &str| markup_free(text);
    let mut page = String::new();
    for arena in arenas {
        let mut estimates = String::new();
        for estimate in arena.estimates() {
            let _ = write!(estimates, "; {estimate}");
        }
        let least = if arena.exact { "" } else { "at least " };
        let _ = write!(
            page,
            "<section class=\"card plain compiled\"><h2>Inside {}, compiled by XLA</h2><p class=\"note\">{least}{} at its \
             peak of {} for the whole step{}; module {}{estimates}</p>\n<div class=\"scroll\"><table><tr><th \
             class=\"words\">Operation</th><th class=\"words\">Line</th><th class=\"words\">Role</th><th \
             class=\"words\">Shape</th><th class=\"words\">Instruction</th><th>Bytes</th><th>Buffers</th></tr>\n",
            text(arena.function()),
            size(arena.peak),
            size(arena.bytes),
            arena.doubts(),
            text(&arena.module)
        );
        for part in &arena.parts {
            let op = if part.op.is_empty() { "(no operation known)" } else { crate::names::short_op(&part.op) };
            let _ = writeln!(
                page,
                "<tr><td class=\"words\">{}</td><td class=\"words\">{}</td><td class=\"words\">{}</td><td \
                 class=\"words\">{}</td><td class=\"words\">{}</td><td>{}</td><td>{}</td></tr>",
                text(op),
                text(crate::names::base_name(&part.python)),
                part.role.word(),
                text(&part.shape),
                text(&part.instruction),
                size(part.bytes),
                count(part.buffers)
            );
        }
        if arena.rest > 0 {
            let _ = writeln!(
                page,
                "<tr><td class=\"words\">others together</td><td></td><td></td><td></td><td></td><td>{}</td><td></td></tr>",
                size(arena.rest)
            );
        }
        page += "</table></div></section>\n";
    }
    page
}

//! CSV and JSON lines: the rows of `rows.rs` as text.

use std::io::Write;

use super::rows::{NUMBERS, TEXTS, for_each_row};
use super::{Export, Failure};

/// Addresses are written in hexadecimal: JSON readers lose the low bits of large numbers.
const ADDRESS: usize = 4;

/// The columns of texts that are written: whole stacks only when they are wanted.
fn columns(stacks: bool) -> usize {
    if stacks { TEXTS.len() } else { TEXTS.len() - 1 }
}

pub(super) fn csv(export: &mut Export<'_, '_>, to: &mut dyn Write) -> Result<(), Failure> {
    let count = columns(export.stacks);
    let head: Vec<&str> = NUMBERS.iter().chain(&TEXTS[..count]).copied().collect();
    writeln!(to, "{}", head.join(","))?;
    let mut line = String::new();
    let Export { timeline, names, progress, stacks, .. } = export;
    let mut done = 0;
    for_each_row(timeline, names, *stacks, |row, names| {
        use std::fmt::Write;
        line.clear();
        for (place, number) in row.numbers.iter().enumerate() {
            let _ = if place == ADDRESS { write!(line, "{:#x},", *number as u64) } else { write!(line, "{number},") };
        }
        for (place, text) in row.texts[..count].iter().enumerate() {
            line.push_str(if place > 0 { "," } else { "" });
            push_csv(&mut line, &names.text_of(*text));
        }
        line.push('\n');
        done += 1;
        progress(done, timeline.length());
        to.write_all(line.as_bytes()).map_err(Failure::from)
    })
}

/// A field, quoted where it must be (RFC 4180). A spreadsheet takes a field that begins like a formula for one: a quote
/// before it keeps it a text.
fn push_csv(line: &mut String, text: &str) {
    let guarded;
    let text = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        guarded = format!("'{text}");
        &guarded
    } else {
        text
    };
    if text.contains([',', '"', '\n', '\r']) {
        line.push('"');
        line.push_str(&text.replace('"', "\"\""));
        line.push('"');
    } else {
        line.push_str(text);
    }
}

pub(super) fn jsonl(export: &mut Export<'_, '_>, to: &mut dyn Write) -> Result<(), Failure> {
    let count = columns(export.stacks);
    let mut line = String::new();
    // Texts come again and again; they are quoted once.
    let mut quoted: Vec<Option<String>> = Vec::new();
    let Export { timeline, names, progress, stacks, .. } = export;
    let mut done = 0;
    for_each_row(timeline, names, *stacks, |row, names| {
        use std::fmt::Write;
        line.clear();
        for (place, (name, number)) in NUMBERS.iter().zip(&row.numbers).enumerate() {
            let start = if place == 0 { '{' } else { ',' };
            let _ = if place == ADDRESS {
                write!(line, "{start}\"{name}\":\"{:#x}\"", *number as u64)
            } else {
                write!(line, "{start}\"{name}\":{number}")
            };
        }
        for (name, text) in TEXTS.iter().zip(&row.texts[..count]) {
            let place = *text as usize;
            if quoted.len() <= place {
                quoted.resize(place + 1, None);
            }
            let json = quoted[place].get_or_insert_with(|| serde_json::Value::from(&*names.text_of(*text)).to_string());
            let _ = write!(line, ",\"{name}\":{json}");
        }
        line.push_str("}\n");
        done += 1;
        progress(done, timeline.length());
        to.write_all(line.as_bytes()).map_err(Failure::from)
    })
}

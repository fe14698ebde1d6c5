//! Prints the events of a journal, oldest first, as JSON lines with the names spelt out: `journal-events FILE`.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use weir_journal::reader::{Error, Reader, Slot};

fn print(file: &str) -> Result<(), Error> {
    let reader = Reader::open(Path::new(file))?;
    let (mut ops, mut lines) = (HashMap::new(), HashMap::new());
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for slot in reader.events() {
        let event = match slot? {
            Slot::Event(event) => event,
            Slot::Lost(loss) => {
                writeln!(out, "{}", serde_json::json!({"kind": "lost", "count": loss.count}))?;
                continue;
            }
        };
        let by = event.by;
        if let std::collections::hash_map::Entry::Vacant(place) = ops.entry(by.op) {
            place.insert(reader.op(by.op)?.unwrap_or_default());
        }
        if let std::collections::hash_map::Entry::Vacant(place) = lines.entry(by.python) {
            let spelt = |line: &weir_journal::reader::Line| format!("{}:{} in {}", line.file, line.line, line.function);
            place.insert(reader.python(by.python)?.iter().map(spelt).collect::<Vec<_>>());
        }
        let op = &ops[&by.op];
        let line = serde_json::json!({
            "seq": event.seq, "kind": event.kind, "class": event.class, "device": event.device, "thread": event.thread,
            "address": event.address, "requested": event.requested, "allocated": event.allocated, "result": event.result,
            "time": event.time, "flags": event.flags, "stack": by.stack != 0,
            "op": op.name, "region": op.region, "shape": op.shape, "dtype": op.dtype,
            "python": lines[&by.python],
        });
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn main() {
    for file in std::env::args().skip(1) {
        if let Err(error) = print(&file) {
            eprintln!("{file} {error}");
            std::process::exit(1);
        }
    }
}

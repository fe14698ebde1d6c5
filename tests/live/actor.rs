//! A process that writes the journal of a synthetic job: what it is ordered, line by line in JSON on standard input. For
//! tests of what reads journals, where names, sizes and ends must be chosen freely.
//!
//! `{"do":"device","number":0,"total":N,"name":"…"}`, `{"do":"cap","number":0,"bytes":N}`,
//! `{"do":"alloc","address":N,"bytes":N,"class":"device|block|tensor|handle","op":"…","lines":[["file","function",7]]}`,
//! `{"do":"free","address":N,"class":"…"}`, `{"do":"oom","requested":N,…as alloc}`, `{"do":"off","reason":"…"}`,
//! `{"do":"exit"}` (in order), `{"do":"kill"}`. Each is answered by one line.

use std::io::BufRead;
use std::path::PathBuf;

use serde_json::Value;
use weir_journal::{
    Attribution, Class, Failure, Geometry, Granted, Intent, Journal, Kind, Op, Options, STREAM_UNKNOWN, Situation,
};

fn main() {
    let dir = std::env::args().nth(1).map(PathBuf::from).expect("usage: live-actor FOLDER");
    let geometry = Geometry { events: 1 << 14, live: 1 << 12, ..Geometry::tiny() };
    let journal = Journal::create(&Options::in_dir(dir).sized(geometry)).expect("a journal");
    assert_eq!(journal.fallback_reason(), None);
    println!("{}", journal.path().expect("a file").display());
    for line in std::io::stdin().lock().lines() {
        let order: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        obey(&journal, &order);
        println!("done");
    }
}

fn number(order: &Value, name: &str) -> u64 {
    order[name].as_u64().unwrap_or(0)
}

fn class(order: &Value) -> Class {
    match order["class"].as_str() {
        Some("block") => Class::Block,
        Some("tensor") => Class::Tensor,
        Some("handle") => Class::Handle,
        _ => Class::Device,
    }
}

fn attribution(journal: &Journal, order: &Value) -> Attribution {
    let name = order["op"].as_str().unwrap_or_default();
    let lines: Vec<u32> = order["lines"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|line| {
            let text = |place: usize| line[place].as_str().unwrap_or_default();
            journal.line(text(0), text(1), line[2].as_u64().unwrap_or(0) as u32)
        })
        .collect();
    Attribution { stack: 0, op: journal.op(&Op { name, ..Op::default() }), python: journal.python(&lines) }
}

fn obey(journal: &Journal, order: &Value) {
    let device = number(order, "number") as u8;
    let text = |name: &str| order[name].as_str().unwrap_or_default();
    match text("do") {
        "device" => journal.set_device(device, [7; 16], number(order, "total"), text("name")),
        "cap" => journal.set_cap(device, number(order, "bytes")),
        "alloc" => {
            let bytes = number(order, "bytes");
            let intent = Intent {
                kind: Kind::Alloc,
                class: class(order),
                device,
                stream: STREAM_UNKNOWN,
                requested: bytes,
                address: 0,
                by: attribution(journal, order),
            };
            journal.begin(intent).granted(Granted { address: number(order, "address"), allocated: bytes });
        }
        "free" => {
            journal.free(number(order, "address"), class(order), STREAM_UNKNOWN).expect("a known address");
        }
        "oom" => {
            let failure = Failure {
                device,
                class: class(order),
                stream: STREAM_UNKNOWN,
                requested: number(order, "requested"),
                result: 2,
                by: attribution(journal, order),
            };
            let _ =
                journal.out_of_memory(&failure, &Situation { cap: 1 << 30, charged: 1 << 30, ..Situation::default() });
        }
        "off" => journal.turned_off(1, text("reason")),
        "exit" => {
            journal.exiting(Some(0));
            std::process::exit(0);
        }
        "kill" => std::process::abort(),
        other => panic!("unknown order '{other}'"),
    }
}

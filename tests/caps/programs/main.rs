//! `caps-programs programs|replay|storm …`: random legal programs under a cap, held to it by the virtual GPU.
//!
//! `programs --cap BYTES --operations N [--seed N] [--length N] [--family NAME]… [--without OPERATION]… [--keep-going] [--ignore KIND]…` runs programs until so many
//! operations are done, each in a process of its own. A program that fails is shrunk and printed.
//! `replay --cap BYTES FILE` runs one program of that text, `-` being the standard input.
//! `storm --cap BYTES --kills N [--seed N] [--members N] [--family NAME]… [--without OPERATION]…` lets members of a group run programs for ever on a shared
//! device and kills and stops them at random moments.
//! Each ends with one JSON line, and with 1 if something was found.

mod actor;
mod beside;
mod blocks;
mod contexts;
#[path = "../../src/driver.rs"]
#[allow(dead_code)]
mod driver;
mod graphs;
mod note;
mod op;
mod peer;
mod rule;
mod run;
mod storm;
mod witness;

use note::Note;
use op::{FAMILIES, Program, Shape, generate};
use run::{Ended, Terms};
use std::io::Read;
use std::process::ExitCode;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

struct Options {
    cap: u64,
    operations: u64,
    seed: u64,
    length: usize,
    kills: u64,
    members: usize,
    shape: Shape,
    keep_going: bool,
    /// Kinds of failures that are known.
    ignored: Vec<String>,
    file: Option<String>,
}

fn options(mut words: impl Iterator<Item = String>) -> Options {
    let mut options = Options {
        cap: 128 << 20,
        operations: 10_000,
        seed: 1,
        length: 400,
        kills: 100,
        members: 6,
        shape: Shape::default(),
        keep_going: false,
        ignored: Vec::new(),
        file: None,
    };
    fn number(word: Option<String>) -> u64 {
        word.and_then(|text| text.parse().ok()).expect("a number after the option")
    }
    while let Some(word) = words.next() {
        match word.as_str() {
            "--cap" => options.cap = number(words.next()),
            "--operations" => options.operations = number(words.next()),
            "--seed" => options.seed = number(words.next()),
            "--length" => options.length = number(words.next()) as usize,
            "--kills" => options.kills = number(words.next()),
            "--members" => options.members = number(words.next()) as usize,
            "--without" => options.shape.without.extend(words.next()),
            "--ignore" => options.ignored.extend(words.next()),
            "--keep-going" => options.keep_going = true,
            "--family" => {
                let name = words.next().unwrap_or_default();
                let found = FAMILIES.iter().find(|row| row.1 == name);
                options.shape.families.push(found.unwrap_or_else(|| panic!("no family {name:?}")).0);
            }
            _ => options.file = Some(word),
        }
    }
    options
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let options = options(words);
    witness::load();
    match command.as_str() {
        "programs" => programs(&options),
        "replay" => replay(&options),
        "storm" => storm::storm(options.cap, options.kills, options.seed, options.members, &options.shape),
        _ => {
            eprintln!("usage: caps-programs programs|replay|storm …");
            ExitCode::from(2)
        }
    }
}

/// Runs random programs until enough operations are done.
fn programs(options: &Options) -> ExitCode {
    let note = Note::new();
    let terms = Terms::from_environment(options.cap);
    let (mut found, mut ran) = (0_u64, 0_u64);
    while note.done.load(SeqCst) < options.operations {
        let seed = options.seed.wrapping_mul(1_000_003).wrapping_add(ran);
        let program = generate(seed, options.length, options.cap, &options.shape);
        let ended = run::in_process(&program, terms, note, false);
        ran += 1;
        if let Ended::Badly(why) = ended
            && !options.ignored.iter().any(|known| known == kind(&why))
        {
            found += 1;
            let (small, why) = shrink(&program, terms, note, why);
            println!("FOUND by seed {seed}: {why}");
            println!("shrunk from {} to {} operations:\n{}", program.ops.len(), small.ops.len(), small.text());
            if !options.keep_going {
                break;
            }
        }
    }
    let (done, skipped) = (note.done.load(SeqCst), note.skipped.load(SeqCst));
    let (refused, most) = (note.refused.load(SeqCst), note.most.load(SeqCst));
    println!(
        "{}",
        serde_json::json!({"programs": ran, "done": done, "skipped": skipped, "refused": refused, "most": most, "found": found})
    );
    ExitCode::from(u8::from(found > 0))
}

/// What a failure is called: shrinking must not turn it into another one.
fn kind(why: &str) -> &str {
    why.split(':').next().unwrap_or(why)
}

/// Leaves operations out as long as what is left fails in the same way.
fn shrink(program: &Program, terms: Terms, note: &'static Note, why: String) -> (Program, String) {
    // How long it may take decides how small it becomes, never whether it is found.
    let until = Instant::now() + Duration::from_secs(20);
    let tries = if program.threads() > 1 { 4 } else { 2 };
    let (mut best, mut best_why) = (program.clone(), why);
    let last = |note: &Note| note.at.iter().map(|at| at.load(SeqCst)).max().unwrap_or(0) as usize;
    let mut length = last(note) + 1;
    let mut part = best.ops.len();
    let fails = |candidate: &Program, best_why: &mut String| {
        for _ in 0..tries {
            if let Ended::Badly(why) = run::in_process(candidate, terms, note, true)
                && kind(&why) == kind(best_why)
            {
                *best_why = why;
                return Some(last(note) + 1);
            }
        }
        None
    };
    // What came after the failure is not needed.
    let head = Program { ops: best.ops.iter().take(length).copied().collect() };
    if let Some(at) = fails(&head, &mut best_why) {
        (best, length) = (head, at);
    }
    let _ = length;
    while part > 0 && Instant::now() < until {
        let mut begin = 0;
        let mut better = false;
        while begin < best.ops.len() && Instant::now() < until {
            let rest = best.ops.iter().enumerate().filter(|(at, _)| !(begin..begin + part).contains(at));
            let candidate = Program { ops: rest.map(|(_, op)| *op).collect() };
            if fails(&candidate, &mut best_why).is_some() {
                best = candidate;
                better = true;
            } else {
                begin += part;
            }
        }
        if !(better && part == 1) {
            part /= 2;
        }
    }
    (best, best_why)
}

/// Runs one program that was written down.
fn replay(options: &Options) -> ExitCode {
    let file = options.file.clone().expect("a file with a program");
    let text = if file == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(file)
    };
    let program = Program::parse(&text.expect("a readable program")).expect("a program");
    match run::in_process(&program, Terms::from_environment(options.cap), Note::new(), false) {
        Ended::Well => ExitCode::SUCCESS,
        Ended::Badly(why) => {
            println!("{why}");
            ExitCode::FAILURE
        }
    }
}

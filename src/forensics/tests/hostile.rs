//! Journals whose names and numbers are made to do harm, through everything that reads them. Sums that overflow are panics
//! here; memory and time are measured from outside, by the suite `cli` of weir-tests.

mod scratch;

use std::path::Path;

use weir_forensics::export::{self, Format};
use weir_forensics::replay::{self, Policy, Requests, Settings};
use weir_forensics::report::{Options, Report};
use weir_forensics::synthetic::{End, Job};
use weir_forensics::text::{self, Look};
use weir_forensics::{Run, diff, hostile, html};
use weir_journal::layout::LARGEST_BLOCK;
use weir_journal::text::steers;
use weir_journal::{Attribution, Class, Event, Geometry, Granted, Intent, Kind};

use scratch::Scratch;

/// Everything that can be made of a journal: name and content.
fn everything(path: &Path) -> Vec<(String, Vec<u8>)> {
    let run = Run::open(path).expect("a journal");
    let mut made = Vec::new();
    for format in Format::ALL {
        let mut bytes = Vec::new();
        let options = export::Options { stacks: true, ..export::Options::default() };
        export::write(run.reader(), format, options, &mut bytes, &mut |_, _| {}).expect("written");
        made.push((format.name().to_owned(), bytes));
    }
    for device in [None, Some(0), Some(1), Some(62)] {
        let options = Options { device, ..Options::default() };
        let Ok(report) = Report::of(&run, &options, |_, _| {}) else { continue };
        let json = serde_json::to_string(&report).expect("serialisable");
        made.push((format!("report --json {device:?}"), json.into_bytes()));
        for (details, colour) in [(false, true), (true, false)] {
            let look = Look { width: 80, height: 30, colour, offset: 0, now: 0, holders: None, details };
            made.push((format!("report {device:?} {details}"), text::screen(&report, &look).into_bytes()));
        }
        let mut page = Vec::new();
        if html::write(&run, &[], &options, &mut page, |_, _| {}).is_ok() {
            made.push((format!("page {device:?}"), page));
        }
        if let Ok(found) = diff::diff(&run, &run, device.unwrap_or(0), &mut |_, _| {}) {
            made.push((format!("diff {device:?}"), serde_json::to_vec(&found).expect("serialisable")));
        }
        let requests = Requests::from_journal("x", run.reader(), device).expect("readable");
        for policy in [Policy::Weir, Policy::BfcGrowth, Policy::Torch] {
            replay::replay(&requests, &Settings::new(policy, 1 << 40), &mut |_, _| {});
            replay::smallest_cap(&requests, &Settings::new(policy, 0), &mut |_, _| {});
        }
    }
    made
}

#[test]
fn numbers_at_the_ends_of_their_ranges_are_numbers() {
    for how in 0..5 {
        let dir = Scratch::new(&format!("hostile-numbers-{how}"));
        let path = hostile::numbers(&dir.0, how).expect("a journal");
        for (what, bytes) in everything(&path) {
            assert!(!bytes.is_empty() || what == "folded", "{what}");
            let text = String::from_utf8_lossy(&bytes);
            assert!(!what.starts_with("report") || !text.contains("NaN") && !text.contains("inf"), "{what}: {text}");
        }
    }
}

#[test]
fn names_that_steer_are_hidden() {
    let dir = Scratch::new("hostile-names");
    let path = hostile::names(&dir.0).expect("a journal");
    for (what, bytes) in everything(&path) {
        // In JSON of reports they are there, escaped where they are printed.
        if what.contains("json") || what.starts_with("diff") || what.starts_with("page") || what == "parquet" {
            continue;
        }
        let text = String::from_utf8_lossy(&bytes);
        if ["csv", "jsonl", "folded"].contains(&&*what) {
            let odd = text.chars().find(|letter| steers(*letter) && *letter != '\n');
            assert_eq!(odd, None, "{what}: {text}");
            assert!(!text.contains("\nForged"), "{what}: {text}");
        }
        if what.starts_with("report") {
            // Only the colours of the report itself.
            let known = ["\x1b[0m", "\x1b[1m", "\x1b[1;31m", "\x1b[33m", "\x1b[2m"];
            let bare = known.iter().fold(text.into_owned(), |text, colour| text.replace(colour, ""));
            assert_eq!(bare.chars().find(|letter| steers(*letter) && *letter != '\n'), None, "{what}: {bare:?}");
            assert!(!bare.contains("\nForged"), "{what}: {bare}");
        }
    }
}

/// A number that breaks things, below a limit.
fn odd(dice: &mut u64, limit: u64) -> u64 {
    *dice ^= *dice << 13;
    *dice ^= *dice >> 7;
    *dice ^= *dice << 17;
    let roll = dice.wrapping_mul(0x2545_F491_4F6C_DD1D);
    let number = match roll >> 60 {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => 1 << (roll >> 32 & 63),
        4 => (1 << (roll >> 32 & 63)) - 1,
        5 => 512 * (roll >> 32 & 63),
        6 | 7 => 1 << 20,
        8 => LARGEST_BLOCK,
        _ => roll >> (roll & 63),
    };
    number % limit
}

/// Journals of records with right checksums and any content. `WEIR_FUZZ` says how many, `WEIR_SEED` where they begin.
#[test]
fn any_records_can_be_read_and_exported() {
    let number = |name: &str, default| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let seed: u64 = number("WEIR_SEED", 1);
    for input in seed..seed + number("WEIR_FUZZ", 40) {
        let scratch = Scratch::new(&format!("hostile-any-{input}"));
        let dice = &mut (input.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let geometry = Geometry { events: 256, live: 128, flights: 8, names: 64 << 10, stacks: 64 << 10 };
        let job = Job::sized(&scratch.0, geometry).expect("a journal");
        for _ in 0..3 {
            let device = odd(dice, 64) as u8;
            job.journal.set_device(device, [device; 16], odd(dice, u64::MAX), hostile::NAMES[odd(dice, 16) as usize]);
            job.journal.set_cap(device, odd(dice, u64::MAX));
        }
        for _ in 0..300 {
            let name = hostile::NAMES[odd(dice, 16) as usize];
            let mut by = job.by(name, name, &[(name, name, odd(dice, 1 << 32) as u32)]);
            if odd(dice, 4) == 0 {
                by = Attribution { stack: odd(dice, 1 << 24) as u32, op: odd(dice, 1 << 20) as u32, python: 1 };
            }
            let (kind, class) = (
                Kind::ALL[odd(dice, Kind::ALL.len() as u64) as usize],
                Class::ALL[odd(dice, Class::ALL.len() as u64) as usize],
            );
            let device = [0, 0, 1, 63, odd(dice, 64) as u8][odd(dice, 5) as usize];
            let (requested, allocated, address) = (odd(dice, 1 << 48), odd(dice, 1 << 48), odd(dice, u64::MAX));
            let stream = odd(dice, 1 << 16) as u16;
            match odd(dice, 4) {
                0 => {
                    let kind = Kind::Alloc;
                    let intent = Intent { kind, class, device, stream, requested, address, by };
                    job.journal.pool_hit(&intent, Granted { address, allocated });
                }
                1 => drop(job.journal.free(address, class, stream)),
                _ => {
                    let (time, live_after, latency) = (odd(dice, u64::MAX), odd(dice, 1 << 48), odd(dice, u64::MAX));
                    let (result, aux, flags) =
                        (odd(dice, 1 << 16) as u16, odd(dice, 1 << 16) as u16, odd(dice, 256) as u8);
                    let event = Event {
                        stream,
                        address,
                        requested,
                        allocated,
                        live_after,
                        by,
                        ..Event::new(kind, class, device)
                    };
                    job.journal.record(Event { time, result, latency, aux, flags, ..event });
                }
            }
        }
        let path = job.end(End::Killed).expect("a journal");
        let made = std::panic::catch_unwind(|| everything(&path));
        assert!(made.is_ok(), "WEIR_FUZZ=1 WEIR_SEED={input}");
    }
}

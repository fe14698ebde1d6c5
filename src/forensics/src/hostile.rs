//! Journals that no job writes, with right checksums: names that steer terminals and spreadsheets, numbers at the ends of
//! their ranges, names that are huge when they are written out. For tests of everything that reads.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use weir_journal::layout::{DEVICE_WORDS, HEADER_BYTES, Section, word};
use weir_journal::reader::Reader;
use weir_journal::{Attribution, Class, Event, Geometry, Granted, Intent, Kind, Op, STREAM_UNKNOWN, Situation};

use crate::synthetic::{End, Job, MIB, edit_header};

/// Names that are made to do something to what shows them.
pub const NAMES: [&str; 16] = [
    "esc\x1b[31;7mred\x1b[2J",
    "csi\u{9b}2Jx",
    "osc\x1b]52;c;ZXZpbA==\x07",
    "title\x1b]0;owned\x1b\\",
    "bidi\u{202e}txt.exe\u{2066}",
    "line\nForged: all is well",
    "return\rForged",
    "nul\0byte",
    "del\x7f\x08\x08\x08",
    "separators\u{2028}\u{2029}\u{85}",
    "wide\u{200b}\u{feff}\u{e0041}",
    "mark\u{fdd2}red",
    "=cmd|'/C calc'!A0",
    "+1+cmd|' /C calc'!A0",
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "\t=1+1</script><script>alert(1)</script>`\"'\\,;$(x)",
];

/// A job whose names, command, device and last words are all of [`NAMES`].
pub fn names(dir: &Path) -> io::Result<PathBuf> {
    let mut job = Job::new(dir, 1 << 12)?.called(&["python3", NAMES[0], NAMES[5], NAMES[1]]);
    job.journal.set_device(0, [7; 16], 1 << 35, &format!("{}{}", NAMES[1], NAMES[0]));
    for step in 0..40 {
        job.step();
        for (place, name) in NAMES.iter().enumerate() {
            let other = NAMES[(place + 5) % NAMES.len()];
            let lines = [(*name, other, 1 + place as u32), ("/home/me/train.py", *name, 7)];
            let op = Op { name, region: other, shape: name, dtype: 1 };
            let by = Attribution { op: job.journal.op(&op), ..job.by("", "", &lines) };
            let address = job.alloc(by, (1 + place as u64) * MIB);
            if (step + place) % 3 != 0 {
                job.free(address);
            }
        }
        job.wait(0.5);
    }
    let by = job.by(NAMES[0], NAMES[1], &[(NAMES[5], NAMES[2], 3)]);
    job.refused(by, 1 << 34, &Situation { device_total: 1 << 35, device_free: 1 << 30, ..Situation::default() });
    job.journal.turned_off(1, &format!("{}{}", NAMES[0], NAMES[5]));
    job.end(End::Killed)
}

/// A job whose numbers are at the ends of their ranges. `how` chooses what the clocks say.
pub fn numbers(dir: &Path, how: u64) -> io::Result<PathBuf> {
    const MOST: u64 = (1 << 48) - 1;
    const LARGEST: u64 = weir_journal::layout::LARGEST_BLOCK;
    let mut job = Job::new(dir, 1 << 13)?;
    let all = Situation {
        device_total: u64::MAX,
        device_free: u64::MAX,
        cap: u64::MAX,
        charged: u64::MAX,
        charged_by_others: u64::MAX,
        pool_free: u64::MAX,
        pool_largest: u64::MAX,
        pool_holes: u64::MAX,
        pool_deferred: u64::MAX,
        pinned: u64::MAX,
        resident: u64::MAX,
    };
    for device in [0, 1, 62, 63] {
        job.journal.set_device(device, [device; 16], u64::MAX, "the largest");
        job.journal.set_cap(device, u64::MAX);
    }
    let owners =
        [Attribution::default(), job.who("MatMul", u32::MAX), Attribution { stack: u32::MAX, ..job.who("a", 1) }];
    let addresses = [0, 1, 1 << 20, 1 << 47, (1 << 48) - 1, 1 << 50, 1 << 63, u64::MAX - 4096, u64::MAX];
    for (turn, class) in Class::ALL.iter().enumerate() {
        for (place, address) in addresses.into_iter().enumerate() {
            let by = owners[(turn + place) % owners.len()];
            for (allocated, requested) in [(MOST, MOST), (LARGEST, MOST), (1 << 47, 0), (LARGEST, 0), (0, MOST), (1, 1)]
            {
                let device = [0, 1, 62][place % 3];
                let intent =
                    Intent { kind: Kind::Alloc, class: *class, device, stream: STREAM_UNKNOWN, requested, address, by };
                let spread = address.wrapping_add(allocated >> 30 << 21);
                job.journal.pool_hit(&intent, Granted { address: spread, allocated });
                if (turn + place) % 4 == 1 {
                    job.journal.free(spread, *class, u16::MAX);
                }
            }
        }
    }
    for kind in Kind::ALL {
        for (turn, time) in [1, u64::MAX, 1 << 63].into_iter().enumerate() {
            let event = Event::new(kind, Class::ALL[turn], [0, 63, 1][turn]);
            let by = owners[turn];
            let (address, live_after, result) = (u64::MAX - turn as u64, MOST, u16::MAX);
            let numbers = Event { time, address, requested: MOST, allocated: MOST, live_after, result, by, ..event };
            job.journal.record(Event { latency: u64::MAX, aux: u16::MAX, flags: u8::MAX >> turn, ..numbers });
            job.journal.record(Event { aux: 1, flags: 0, ..numbers });
        }
    }
    job.refused(owners[1], u64::MAX, &all);
    job.tried(Class::Tensor, owners[2], u64::MAX);
    let path = job.end(End::Killed)?;
    let file = OpenOptions::new().read(true).write(true).open(&path)?;
    let devices =
        Reader::open(&path).map_err(|error| io::Error::other(error.to_string()))?.header().section(Section::Devices);
    // What is live and was live at most, of each class, behind what a checksum covers.
    for device in [0_u64, 1] {
        let entry = devices.offset + device * DEVICE_WORDS as u64 * 8;
        for place in 32..DEVICE_WORDS as u64 {
            file.write_all_at(&u64::MAX.to_le_bytes(), entry + place * 8)?;
        }
    }
    // Counters of the header, and its anchors; the number of events stays, or there would be none to read.
    for place in (word::HEAD + 1..HEADER_BYTES as usize / 8).filter(|place| *place != word::CLEAN_EXIT) {
        file.write_all_at(&u64::MAX.to_le_bytes(), place as u64 * 8)?;
    }
    edit_header(&file, |words| match how {
        0 => {}
        1 => words[word::TICK_HZ] = 0,
        2 => words[word::ANCHOR..word::ANCHOR + 3].fill(u64::MAX),
        3 => (words[word::TICK_HZ], words[word::ANCHOR]) = (1, 0),
        _ => (words[word::TICK_HZ], words[word::ANCHOR + 2]) = (u64::MAX, u64::MAX),
    })?;
    Ok(path)
}

/// A job of long names, each of which is in thousands of stacks: a few megabytes that come to gigabytes of text.
pub fn crowd(dir: &Path, events: u64) -> io::Result<PathBuf> {
    let geometry = Geometry { events, live: 60_000, names: 16 << 20, ..Geometry::default() };
    let job = Job::sized(dir, geometry)?;
    let long = |number: u64| format!("{number:04}{}", "x".repeat(1020));
    let texts: Vec<String> = (0..64).map(long).collect();
    let lines: Vec<u32> = (0..20_000_u32)
        .map(|number| job.journal.line(&texts[number as usize % 64], &texts[number as usize / 64 % 64], number))
        .collect();
    for number in 0..events {
        let first = number as usize;
        let chain: Vec<u32> =
            (0..16).map(|step| lines[(first * 7 + step * (1 + first / lines.len())) % lines.len()]).collect();
        let op = Op { name: &format!("{number}/{}", &texts[first % 64][..1000]), region: "", shape: "", dtype: 0 };
        let by = Attribution {
            stack: 0,
            op: if first < 2000 { job.journal.op(&op) } else { 0 },
            python: job.journal.python(&chain),
        };
        let intent =
            Intent { kind: Kind::Alloc, class: Class::Block, device: 0, stream: 0, requested: 512, address: 0, by };
        job.journal.pool_hit(&intent, Granted { address: (1 << 40) + number * 512, allocated: 512 });
    }
    job.end(End::Killed)
}

/// A job whose stacks lie in a module of this path.
pub fn module(dir: &Path, path: &str) -> io::Result<PathBuf> {
    let mut job = Job::new(dir, 1 << 10)?;
    job.journal.made_up_module(path, 1 << 32, 1 << 24);
    for place in 0..8 {
        let by =
            Attribution { stack: job.journal.stack(&[(1 << 32) + 0x1000 * (place + 1)]), ..Attribution::default() };
        job.alloc(by, MIB);
    }
    job.end(End::Killed)
}

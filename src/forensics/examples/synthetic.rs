//! Writes the journal of a made-up job and prints its path: for the tests of the command and for the benchmark.
//!
//! usage: synthetic DIR growth|fragmentation|cap|well
//!        synthetic DIR busy EVENTS        a recording of so many events, of a job that allocates and frees
//!        synthetic DIR alive PID          as growth, by a process that lives
//!        synthetic DIR rebooted PID       the same, from before the machine was booted: it had been up for a year
//!        synthetic DIR names              a job whose every name is made to steer a terminal or a spreadsheet
//!        synthetic DIR numbers HOW        a job whose every number is the largest there is, or the smallest
//!        synthetic DIR crowd EVENTS       a small file whose names are huge when they are written out
//!        synthetic DIR module FILE        a job whose stacks lie in this file
//!        synthetic FILE reboot            makes a journal, which stays where it is, one from before that

use std::path::{Path, PathBuf};
use weir_forensics::hostile;
use weir_forensics::synthetic::{End, GIB, Job, MIB, reboot};
use weir_journal::reader::Reader;
use weir_journal::reader::record::Recorder;
use weir_journal::{Situation, booted_earlier};

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (Some(dir), Some(kind)) = (arguments.first().map(Path::new), arguments.get(1)) else {
        return Err(std::io::Error::other("usage: synthetic DIR KIND [EVENTS]"));
    };
    let events = arguments.get(2).and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let path = match kind.as_str() {
        "busy" => busy(dir, events)?,
        "names" => hostile::names(dir)?,
        "numbers" => hostile::numbers(dir, events)?,
        "crowd" => hostile::crowd(dir, events)?,
        "module" => hostile::module(dir, arguments.get(2).map_or("", String::as_str))?,
        "reboot" => reboot(dir).map(|()| dir.to_owned())?,
        kind => {
            // What a second argument is depends on the kind.
            let pid = u32::try_from(events).unwrap_or(0);
            let end = match kind {
                "alive" => End::Of { pid, rebooted: false },
                "rebooted" => End::Of { pid, rebooted: true },
                "growth" => End::Killed,
                _ => End::Exit,
            };
            if kind == "rebooted" {
                booted_earlier(365 * 86_400_000_000_000);
            }
            trained(dir, kind, end)?
        }
    };
    println!("{}", path.display());
    Ok(())
}

/// Two hundred steps, then the end that the kind says.
fn trained(dir: &Path, kind: &str, end: End) -> std::io::Result<PathBuf> {
    let growing = matches!(kind, "growth" | "alive" | "rebooted");
    let mut job = Job::new(dir, 1 << 14)?.called(&["python3", "/home/me/train.py", "--batch", "64"]);
    let weights = job.by(
        "StatelessRandomUniformV2",
        "output",
        &[
            ("/v/lib/python3.11/site-packages/keras/src/layers/layer.py", "add_weight", 551),
            ("/home/me/train.py", "build", 31),
        ],
    );
    let slots = job.by(
        "Fill",
        "output",
        &[
            ("/v/lib/python3.11/site-packages/keras/src/optimizers/adam.py", "build", 104),
            ("/home/me/train.py", "<module>", 140),
        ],
    );
    for _ in 0..16 {
        job.alloc(weights, GIB / 16);
        job.alloc(slots, GIB / 8);
    }
    let forward = job.who("StatefulPartitionedCall/model/conv4/Conv2D", 118);
    let backward = job.who("StatefulPartitionedCall/gradient_tape/model/conv4/Conv2DBackpropInput", 121);
    let input = job.by("IteratorGetNext", "output", &[("/home/me/train.py", "train_step", 112)]);
    for _ in 0..200 {
        job.step();
        job.host(2 * GIB, 64 * MIB);
        let mut made = vec![job.alloc(input, 192 * MIB)];
        made.extend((0..6).map(|_| job.alloc(forward, 256 * MIB)));
        job.wait(0.3);
        made.push(job.alloc(backward, 512 * MIB));
        if growing {
            job.alloc(job.who("StatefulPartitionedCall/model/head/Softmax", 131), 22 * MIB);
        }
        for address in made {
            job.free(address);
        }
        job.wait(0.2);
    }
    let now = match kind {
        _ if growing || kind == "cap" => {
            job.journal.set_cap(0, 8 * GIB);
            let charged = 7 * GIB + 500 * MIB;
            Situation { device_total: 40 * GIB, device_free: 30 * GIB, cap: 8 * GIB, charged, ..Situation::default() }
        }
        _ => {
            let (pool_free, pool_largest, pool_holes) = (35 * GIB, GIB, 212);
            let device_free = 200 * MIB;
            Situation {
                device_total: 40 * GIB,
                device_free,
                pool_free,
                pool_largest,
                pool_holes,
                ..Situation::default()
            }
        }
    };
    if kind != "well" {
        job.refused(backward, 2 * GIB, &now);
    }
    job.end(end)
}

/// A job of many operations and lines, drained while it runs: what its ring overwrites is in the recording.
fn busy(dir: &Path, events: u64) -> std::io::Result<PathBuf> {
    let failed = |error: weir_journal::reader::Error| std::io::Error::other(error.to_string());
    let mut job = Job::new(dir, 1 << 18)?;
    let journal = job.journal.path().ok_or_else(|| std::io::Error::other("no file"))?;
    let path = dir.join("busy.weirrec");
    let reader = Reader::open(&journal).map_err(failed)?;
    let mut recorder = Recorder::new(reader, std::fs::File::create_new(&path)?)?;
    let owners: Vec<_> = (0..2000).map(|n| job.who(&format!("model/layer{n}/MatMul"), 100 + n % 300)).collect();
    let mut live = std::collections::VecDeque::new();
    let mut dice = 1_u64;
    let mut written = 0;
    while written < events {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let by = owners[(dice >> 33) as usize % owners.len()];
        live.push_back(job.alloc(by, (dice >> 44) + 512));
        written += 1;
        if live.len() > 20_000 {
            if let Some(address) = live.pop_front() {
                job.free(address);
            }
            written += 1;
        }
        if written % 50_000 < 2 {
            job.step();
            job.wait(0.5);
            written += 1;
            recorder.poll(false).map_err(failed)?;
        }
    }
    let requested = 2 * GIB;
    let now = Situation { device_total: 40 * GIB, device_free: GIB, ..Situation::default() };
    job.refused(owners[7], requested, &now);
    recorder.poll(true).map_err(failed)?;
    recorder.checkpoint().map_err(failed)?;
    job.end(End::Exit)?;
    std::fs::remove_file(&journal)?;
    Ok(path)
}

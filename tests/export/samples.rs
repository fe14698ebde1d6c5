//! Writes the journals that the exporters are tested with, and beside each what is live in it, as counted while it was
//! made: `NAME.weir` and `NAME.expected` (JSON). Touches the folder that it is given.
//!
//!     export-samples DIR

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};

use serde_json::json;
use weir_forensics::synthetic::{End, Job, MIB};
use weir_journal::{Attribution, Class, Situation, Walk, prepare_unwinding};

/// What a sample must add up to.
#[derive(Default)]
struct Expected {
    live: BTreeMap<(u8, String), (u64, u64)>,
    allocated: u64,
    allocations: u64,
}

/// A job that keeps books.
struct Sample {
    job: Job,
    expected: Expected,
    held: Vec<(Class, u64, u64)>,
    seed: u64,
}

fn name_of(class: Class) -> String {
    serde_json::to_value(class).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

impl Sample {
    fn new(dir: &Path, events: u64) -> Result<Self, Box<dyn Error>> {
        let job = Job::new(dir, events)?.called(&["python3", "train, \"quoted\".py", "--batch", "64"]);
        Ok(Self { job, expected: Expected::default(), held: Vec::new(), seed: 7 })
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.seed >> 33) % below
    }

    fn alloc(&mut self, class: Class, device: u8, by: Attribution, bytes: u64) -> u64 {
        let address = self.job.alloc_as(class, device, by, bytes);
        self.note(class, device, bytes, address);
        address
    }

    fn note(&mut self, class: Class, device: u8, bytes: u64, address: u64) {
        let given = bytes.next_multiple_of(512);
        let live = self.expected.live.entry((device, name_of(class))).or_default();
        *live = (live.0 + given, live.1 + 1);
        self.expected.allocated += given;
        self.expected.allocations += 1;
        if device == 0 {
            self.held.push((class, address, given));
        }
    }

    fn free(&mut self, place: usize) {
        let (class, address, given) = self.held.swap_remove(place);
        self.job.free_as(class, address);
        let live = self.expected.live.entry((0, name_of(class))).or_default();
        *live = (live.0 - given, live.1 - 1);
    }

    /// Allocations and frees at random, with names of all sorts.
    fn churn(&mut self, rounds: u64) {
        let names = ["model/conv1/Conv2D", "gradient_tape/a;b/MatMul", "größe, \"x\"", ""];
        let who: Vec<Attribution> = (0..16).map(|n| self.job.who(names[n % 4], (n as u32 % 5) * 10)).collect();
        for round in 0..rounds {
            if round % 200 == 0 {
                self.job.step();
                self.job.wait(0.01);
            }
            if self.held.len() > 40 && self.random(2) == 0 {
                let place = self.random(self.held.len() as u64) as usize;
                self.free(place);
            } else {
                let (pick, bytes) = (self.random(16) as usize, 1 + self.random(3 * MIB));
                self.alloc(Class::Block, 0, who[pick], bytes);
            }
        }
    }

    fn end(self, dir: &Path, name: &str) -> Result<(), Box<dyn Error>> {
        let path = self.job.end(End::Killed)?;
        std::fs::rename(&path, dir.join(format!("{name}.weir")))?;
        let held =
            |class: &str| !["handle", "reservation", "tensor", "pinned", "registered", "imported"].contains(&class);
        let live: Vec<_> = self
            .expected
            .live
            .iter()
            .map(|((device, class), (bytes, blocks))| {
                json!({"device": device, "class": class, "bytes": bytes, "blocks": blocks, "held": held(class)})
            })
            .collect();
        let total: u64 = live.iter().filter(|row| row["held"] == true).filter_map(|row| row["bytes"].as_u64()).sum();
        let (allocated, allocations) = (self.expected.allocated, self.expected.allocations);
        let whole = json!({"live": live, "held_bytes": total, "allocated": allocated, "allocations": allocations});
        std::fs::write(dir.join(format!("{name}.expected")), format!("{whole:#}\n"))?;
        Ok(())
    }
}

#[inline(never)]
fn deep_function_of_the_sample(sample: &mut Sample, depth: u32, bytes: u64) {
    if depth > 0 {
        deep_function_of_the_sample(sample, depth - 1, bytes);
        return;
    }
    let stack = sample.job.journal.native_stack(Walk::Best);
    sample.alloc(Class::Device, 0, Attribution { stack, ..Attribution::default() }, bytes);
}

/// All sorts of memory on two devices, native stacks, and an OOM.
fn plain(dir: &Path) -> Result<(), Box<dyn Error>> {
    let mut sample = Sample::new(dir, 1 << 15)?;
    sample.job.journal.set_device(1, [3; 16], 8 << 30, "Second");
    sample.churn(4000);
    deep_function_of_the_sample(&mut sample, 3, 5 * MIB);
    let nobody = Attribution::default();
    for (class, device, bytes) in [
        (Class::Managed, 0, 7 * MIB),
        (Class::Array, 0, 3 * MIB),
        (Class::Array, 0, 3 * MIB),
        (Class::Overhead, 0, 300 * MIB),
        (Class::Handle, 0, 64 * MIB),
        (Class::Reservation, 0, 1 << 40),
        (Class::Pinned, 63, 10 * MIB),
        (Class::Block, 1, 11 * MIB),
    ] {
        sample.alloc(class, device, nobody, bytes);
    }
    let situation = Situation { device_free: 77 * MIB, ..Situation::default() };
    let who = sample.job.who("model/big/MatMul", 118);
    sample.job.refused(who, 4 << 30, &situation);
    sample.job.journal.refresh_modules();
    sample.end(dir, "plain")
}

/// Most events are overwritten: much of what is live, or was freed, began before the oldest one.
fn lapped(dir: &Path) -> Result<(), Box<dyn Error>> {
    let mut sample = Sample::new(dir, 1 << 10)?;
    sample.churn(20_000);
    sample.end(dir, "lapped")
}

/// TensorFlow's own allocator cuts up a region.
fn regions(dir: &Path) -> Result<(), Box<dyn Error>> {
    let mut sample = Sample::new(dir, 1 << 12)?;
    let nobody = Attribution::default();
    let region = sample.alloc(Class::Device, 0, nobody, 256 * MIB);
    for part in 0..40 {
        let who = sample.job.who("dense/MatMul", 1 + part as u32 % 3);
        let address = region + part * 4 * MIB;
        sample.job.alloc_at(Class::Tensor, 0, who, 3 * MIB, address);
        sample.note(Class::Tensor, 0, 3 * MIB, address);
    }
    // The region is the first that is held; tensors are freed from behind.
    for _ in 0..10 {
        let last = sample.held.len() - 1;
        sample.free(last);
    }
    sample.end(dir, "regions")
}

fn main() -> Result<(), Box<dyn Error>> {
    let dir = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: export-samples DIR")?);
    std::fs::create_dir_all(&dir)?;
    prepare_unwinding();
    plain(&dir)?;
    lapped(&dir)?;
    regions(&dir)
}

//! Journals for the tests of the HTML page, and what is true of a journal, by the plainest way of counting.
//!
//! usage: html_journals training DIR          a leaking training job that meets its cap; prints its path
//!        html_journals storm DIR EVENTS [RING]  short-lived blocks without end, the last RING events kept
//!        html_journals fails DIR             a job that fails on one device, on another and on the first again
//!        html_journals rank DIR N            one rank of a job of several: the second runs out, then the first
//!        html_journals page FILE PAGE [oom=N] [device=N] [rows=N] [beside=FILE]...   writes the page of a journal
//!        html_journals truth FILE SEQ...     live bytes and blocks after these events, peak, bytes by op; JSON

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use weir_forensics::Run;
use weir_forensics::report::Options;
use weir_forensics::synthetic::{End, GIB, Job, MIB};
use weir_journal::layout::HOST_DEVICE;
use weir_journal::reader::Slot;
use weir_journal::{Attribution, Class, Event, Failure, Kind, LiveEntry, Op, STREAM_UNKNOWN, Situation};

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Names that would break a careless page. The first would end a script, the second would be markup.
const HOSTILE: [&str; 4] = [
    "</script><script>window.broken=1</script>",
    "<img src=x onerror=\"window.broken=2\">",
    "'\"`${window.broken=3}\\u003c!--\u{2028}",
    "naïve/ops/💧/Größe&amp;",
];

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["training", dir] => training(Path::new(dir)),
        ["storm", dir, events] => storm(Path::new(dir), events.parse()?, events.parse()?),
        ["storm", dir, events, ring] => storm(Path::new(dir), events.parse()?, ring.parse()?),
        ["fails", dir] => fails(Path::new(dir)),
        ["rank", dir, number] => rank(Path::new(dir), number.parse()?),
        ["page", file, to, ref chosen @ ..] => {
            let mut options = Options::default();
            let mut runs = vec![Run::open(Path::new(file))?];
            for (name, value) in chosen.iter().filter_map(|word| word.split_once('=')) {
                match name {
                    "oom" => options.oom = Some(value.parse()?),
                    "device" => options.device = Some(value.parse()?),
                    "beside" => runs.push(Run::open(Path::new(value))?),
                    _ => options.holders = value.parse()?,
                }
            }
            let mut page = std::io::BufWriter::new(std::fs::File::create(to)?);
            let shown = weir_forensics::html::first_to_fail(&runs).ok_or("no run")?;
            Ok(weir_forensics::html::write(&runs[shown], &runs, &options, &mut page, |_, _| ())?)
        }
        ["truth", file, ref seqs @ ..] => truth(Path::new(file), seqs),
        _ => Err("see the first lines of this file".into()),
    }
}

fn fails(dir: &Path) -> Outcome {
    let mut job = Job::new(dir, 4096)?;
    job.journal.set_device(1, *b"weir-synthetic-1", 24 * GIB, "Made-up GPU");
    for (place, device) in [(0, 0), (1, 1), (2, 0)] {
        for line in 1..=8 {
            let by = job.who(&format!("model/layer{line}/MatMul"), line);
            job.alloc_as(Class::Block, device, by, GIB);
            job.wait(0.5);
        }
        let (by, requested) = (job.who("model/last/MatMul", 90 + place), (50 + u64::from(place)) * GIB);
        let failure = Failure { device, class: Class::Block, stream: STREAM_UNKNOWN, requested, result: 2, by };
        job.journal.out_of_memory(&failure, &Situation::default());
    }
    println!("{}", job.end(End::Exit)?.display());
    Ok(())
}

/// One process of a job of several: number 1 runs out after 200 seconds, number 0 after 320, and others end in order.
fn rank(dir: &Path, number: u32) -> Outcome {
    let mut job = Job::new(dir, 4096)?.called(&["python3", "/home/me/train.py", "--rank", &number.to_string()]);
    for step in 1..=if number == 1 { 20 } else { 32 } {
        job.alloc(job.who("model/layer/MatMul", 10 + number), GIB + u64::from(number) * 64 * MIB);
        job.wait(10.0);
        if step % 4 == 0 {
            job.step();
        }
    }
    if number < 2 {
        job.refused(
            job.who("model/last/MatMul", 90),
            64 * GIB,
            &Situation { device_total: 40 * GIB, ..Situation::default() },
        );
    }
    println!("{}", job.end(if number < 2 { End::Killed } else { End::Exit })?.display());
    Ok(())
}

/// Memory with addresses, first fit, so that the address space looks like one.
struct Space {
    job: Job,
    /// Start and end of what is taken.
    taken: BTreeMap<u64, u64>,
    bytes: u64,
    /// Physical memory is mapped up to here.
    mapped: u64,
}

/// Physical memory comes in pieces of this size.
const GRANULE: u64 = 64 * MIB;

const BASE: u64 = 0x7f20_0000_0000;

impl Space {
    fn take(&mut self, by: Attribution, bytes: u64) -> u64 {
        let allocated = bytes.next_multiple_of(512);
        let mut at = BASE;
        for (start, end) in &self.taken {
            if at + allocated <= *start {
                break;
            }
            at = *end;
        }
        while self.mapped < at + allocated {
            let handle = self.mapped >> 20;
            self.job.alloc_at(Class::Handle, 0, Attribution::default(), GRANULE, handle);
            let map = Event { address: self.mapped, allocated: GRANULE, ..Event::new(Kind::Map, Class::Handle, 0) };
            self.job.journal.record(map);
            self.mapped += GRANULE;
        }
        self.taken.insert(at, at + allocated);
        self.bytes += allocated;
        self.job.alloc_at(Class::Block, 0, by, bytes, at);
        at
    }

    fn give(&mut self, at: u64) {
        if let Some(end) = self.taken.remove(&at) {
            self.bytes -= end - at;
            self.job.free(at);
        }
    }
}

fn training(dir: &Path) -> Outcome {
    const CAP: u64 = 8 * GIB;
    let mut job = Job::new(dir, 1 << 16)?.called(&["python3", "/home/me/train.py", "--batch", "64"]);
    job.journal.set_cap(0, CAP);
    let main = |line| ("/home/me/train.py", "main", line);
    let layers: Vec<(String, u64, u64)> = (1..=16_u64)
        .map(|n| {
            let (block, unit) = (2 + (n - 1) / 4, 1 + (n - 1) % 4);
            (format!("resnet50/conv{block}_block{unit}/Conv2D"), (4 + n * n / 2) * MIB, (230 - n * 9) * MIB)
        })
        .collect();
    let overhead = job.by("", "", &[]);
    job.alloc_as(Class::Overhead, 0, overhead, 320 * MIB);
    // A second device and host memory, which must not be mixed up with the first.
    job.journal.set_device(1, *b"weir-synthetic-1", 24 * GIB, "Made-up GPU, smaller");
    let replica = job.by("replica/weights", "persist", &[main(95)]);
    job.alloc_as(Class::Block, 1, replica, 512 * MIB);
    let staging = job.by("", "", &[main(42)]);
    job.alloc_as(Class::Pinned, HOST_DEVICE, staging, 256 * MIB);
    let mut space = Space { job, taken: BTreeMap::new(), bytes: 0, mapped: BASE };
    let mut resident = 2 * GIB;
    for (name, weights, _) in &layers {
        let variable = name.replace("Conv2D", "kernel");
        let lines = [
            ("/v/lib/python3.11/site-packages/keras/src/layers/layer.py", "add_weight", 9),
            ("/home/me/model.py", "build", 31),
            ("/v/lib/python3.11/site-packages/keras/src/layers/layer.py", "__call__", 21),
            ("/v/lib/python3.11/site-packages/tensorflow/python/eager/run.py", "call", 22),
            ("/usr/lib/python3.11/contextlib.py", "inner", 23),
            main(88),
        ];
        let op = Op { name: &variable, region: "persist", shape: "[3,3,64,256]", dtype: 1 };
        let by = Attribution { op: space.job.journal.op(&op), ..space.job.by("", "", &lines) };
        space.take(by, *weights);
        space.job.wait(0.004);
    }
    for slot in ["m", "v"] {
        for (name, weights, _) in &layers {
            let variable = format!("Adam/{slot}/{}", name.replace("Conv2D", "kernel"));
            let by = space.job.by(&variable, "persist", &[("/home/me/train.py", "compile_model", 61), main(90)]);
            space.take(by, *weights);
            space.job.wait(0.001);
        }
    }
    for name in HOSTILE {
        let by = space.job.by(name, "output", &[("/home/me/<b>lib</b>.py", "<lambda>", 13), main(104)]);
        space.take(by, 24 * MIB);
    }
    let step_lines = [("/home/me/train.py", "train_step", 118), main(140)];
    loop {
        let step = space.job.step();
        space.job.journal.said(Kind::Mark, &format!("epoch {step}"));
        space.job.journal.said(Kind::RegionBegin, "train");
        resident += 9 * MIB;
        space.job.host(resident, 256 * MIB + (step % 4) * 64 * MIB);
        let images = space.job.by("IteratorGetNext", "output", &[("/home/me/train.py", "batches", 42), main(139)]);
        space.job.journal.said(Kind::RegionBegin, HOSTILE[0]);
        let input = space.take(images, 74 * MIB);
        space.job.wait(0.004);
        space.job.journal.said(Kind::RegionEnd, HOSTILE[0]);
        let mut activations = Vec::new();
        for (name, _, bytes) in &layers {
            let by = space.job.by(name, "output", &step_lines);
            let bytes = bytes + (step * 7 % 5) * MIB;
            if space.bytes + bytes > CAP - 320 * MIB - 64 * MIB {
                return end_in_oom(space, by, bytes, CAP);
            }
            activations.push(space.take(by, bytes));
            let by = space.job.by("cudnn/workspace", "temp", &step_lines);
            let scratch = space.take(by, 96 * MIB);
            space.job.wait(0.0012);
            space.give(scratch);
        }
        let history =
            space.job.by("history/Identity", "output", &[("/home/me/train.py", "train_step", 131), main(140)]);
        space.take(history, 22 * MIB);
        let mut gradients = Vec::new();
        if space.bytes + layers.iter().map(|(_, weights, _)| weights).sum::<u64>() > CAP - 320 * MIB {
            let by = space.job.by("gradient_tape/resnet50/conv5_block4/Conv2DBackpropFilter", "output", &step_lines);
            return end_in_oom(space, by, 132 * MIB, CAP);
        }
        for ((name, weights, _), activation) in layers.iter().zip(activations).rev() {
            let by = space.job.by(&format!("gradient_tape/{name}BackpropFilter"), "output", &step_lines);
            gradients.push(space.take(by, *weights));
            space.job.wait(0.0021);
            space.give(activation);
        }
        for gradient in gradients {
            space.give(gradient);
            space.job.wait(0.0003);
        }
        space.give(input);
        space.job.journal.said(Kind::RegionEnd, "train");
        space.job.wait(0.012);
    }
}

fn end_in_oom(mut space: Space, by: Attribution, requested: u64, cap: u64) -> Outcome {
    let mut ends: Vec<u64> = vec![BASE];
    let mut largest = 0;
    for (start, end) in &space.taken {
        largest = largest.max(start.saturating_sub(*ends.last().unwrap_or(&BASE)));
        ends.push(*end);
    }
    let charged = space.bytes + 320 * MIB;
    let situation = Situation {
        device_total: 40 * GIB,
        device_free: 31 * GIB,
        cap,
        charged,
        pool_free: cap - charged,
        pool_largest: largest,
        pool_holes: 3,
        pinned: 256 * MIB,
        resident: 3 * GIB,
        ..Situation::default()
    };
    space.job.refused(by, requested, &situation);
    println!("{}", space.job.end(End::Killed)?.display());
    Ok(())
}

fn storm(dir: &Path, events: u64, ring: u64) -> Outcome {
    let mut job = Job::new(dir, ring.next_power_of_two())?.called(&["python3", "/home/me/storm.py"]);
    let owners: Vec<Attribution> = (0..400_u32)
        .map(|n| {
            let op = format!(
                "model/layer{}/{}",
                n / 8,
                ["MatMul", "Relu", "Conv2D", "BiasAdd", "Mul", "Sum", "Cast", "Tile"][n as usize % 8]
            );
            job.by(&op, "output", &[("/home/me/layers.py", "call", 20 + n / 4), ("/home/me/storm.py", "main", 9)])
        })
        .collect();
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = |most: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % most
    };
    let mut live: Vec<u64> = Vec::new();
    let mut free: Vec<u64> = (0..40_000_u64).rev().collect();
    let mut written = 0;
    while written < events {
        if written % 2000 == 0 {
            job.step();
            job.host(3 * GIB + next(GIB), 512 * MIB);
            written += 2;
        }
        // The wave rises and falls, and every tenth block stays long.
        let wanted = 6000 + 5000 * (written / 50_000 % 3) + written / 200;
        if (live.len() as u64) < wanted && !free.is_empty() && next(5) != 0 {
            let place = free.pop().unwrap_or(0);
            let by = owners[(next(20) * next(20)) as usize];
            job.alloc_at(Class::Block, 0, by, 4096 + next(1 << 18), BASE + place * (1 << 19));
            live.push(place);
        } else if !live.is_empty() {
            let at = (live.len() as u64 - 1 - next((live.len() as u64).min(3000))) as usize;
            let place = live.swap_remove(at);
            job.free(BASE + place * (1 << 19));
            free.push(place);
        }
        job.wait(20e-6);
        written += 1;
    }
    println!("{}", job.end(End::Exit)?.display());
    Ok(())
}

fn counts(class: Class, device: u8) -> bool {
    device == 0 && weir_forensics::is_held(class)
}

fn sum(live: &[LiveEntry]) -> (u64, usize) {
    let mine: Vec<_> = live.iter().filter(|entry| counts(entry.class, entry.device)).collect();
    (mine.iter().map(|entry| entry.allocated).sum(), mine.len())
}

fn truth(file: &Path, seqs: &[&str]) -> Outcome {
    let run = Run::open(file)?;
    let reader = run.reader();
    let mut at = Vec::new();
    for seq in seqs {
        let seq: u64 = seq.parse()?;
        let (bytes, blocks) = sum(&reader.live_at(seq)?.ok_or("no such event")?);
        at.push(serde_json::json!({ "seq": seq, "bytes": bytes, "blocks": blocks }));
    }
    // Forward, by nothing but adding and taking away.
    let (mut live, mut peak, mut peak_seq, mut ooms) = (0_u64, 0_u64, 0_u64, Vec::new());
    for slot in reader.events() {
        let Slot::Event(event) = slot? else { continue };
        match event.kind {
            Kind::Alloc if counts(event.class, event.device) => live += event.allocated,
            Kind::Free if counts(event.class, event.device) => live -= event.allocated,
            Kind::Oom => ooms.push(event.seq),
            _ => {}
        }
        if live > peak {
            (peak, peak_seq) = (live, event.seq);
        }
    }
    let mut ops: HashMap<String, (u64, u64)> = HashMap::new();
    for entry in run.live()?.iter().filter(|entry| counts(entry.class, entry.device)) {
        let sums = ops.entry(run.who(entry.by).op_name().to_owned()).or_default();
        *sums = (sums.0 + entry.allocated, sums.1 + 1);
    }
    let (bytes, blocks) = sum(run.live()?);
    let truth = serde_json::json!({
        "at": at, "peak": peak, "peak_seq": peak_seq, "end": bytes, "end_blocks": blocks, "ops": ops, "ooms": ooms,
        "events": reader.header().counters.events,
    });
    println!("{truth}");
    Ok(())
}

//! Hostile journals: a seeded fuzzer that knows the format. It takes a good journal and a good recording, damages
//! them, often with right checksums, and reads everything. The reader must not panic, must stay within a few MiB, must
//! come to an end, and must not accept a damaged record whose checksum was not repaired.
//!
//! `WEIR_FUZZ=10000000 cargo test --release -p weir-journal --test fuzz` for a long run, `WEIR_SEED` for another one.
//! Inputs that once looked unlike all before them are kept by their numbers in `fuzz.corpus` and come first in every run;
//! `WEIR_FUZZ_SAVE=FILE` writes such a list.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use weir_journal::layout::{self, SECTIONS, Section, crc_words, word};
use weir_journal::reader::record::Recorder;
use weir_journal::reader::{Follower, Reader, Slot, Source};
use weir_journal::*;

/// Counts what is allocated, and its peak.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator; only sizes are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Most memory for reading one of these files, which are below a megabyte.
const MOST_MEMORY: usize = 8 << 20;
/// Inputs kept at most.
const MOST_KEPT: usize = 150;
/// For a reader that does not come to an end: a file takes a millisecond, a busy machine a thousand times as long.
const MOST_TIME: Duration = Duration::from_secs(30);

/// A good file with some bytes replaced, without copying it.
#[derive(Clone, Debug)]
struct Damaged {
    good: Arc<Vec<u8>>,
    patches: BTreeMap<usize, u8>,
    size: usize,
}

impl Source for Damaged {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.size);
        let count = buffer.len().min(self.size - start);
        buffer[..count].copy_from_slice(&self.good[start..start + count]);
        for (at, byte) in self.patches.range(start..start + count) {
            buffer[at - start] = *byte;
        }
        Ok(count)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.size as u64)
    }
}

impl Damaged {
    fn word(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        self.read_at(&mut bytes, at as u64).unwrap();
        u64::from_le_bytes(bytes)
    }

    fn set_word(&mut self, at: usize, value: u64) {
        for (step, byte) in value.to_le_bytes().into_iter().enumerate().filter(|(step, _)| at + step < self.size) {
            self.patches.insert(at + step, byte);
        }
    }

    fn words(&self, at: usize, count: usize) -> Vec<u64> {
        (0..count).map(|word| self.word(at + word * 8)).collect()
    }
}

fn roll(dice: &mut u64) -> u64 {
    *dice ^= *dice << 13;
    *dice ^= *dice >> 7;
    *dice ^= *dice << 17;
    dice.wrapping_mul(0x2545_F491_4F6C_DD1D)
}

fn below(dice: &mut u64, limit: usize) -> usize {
    (roll(dice) >> 16) as usize % limit.max(1)
}

/// Values that break things.
fn odd(dice: &mut u64, size: usize) -> u64 {
    let near = (size as u64).wrapping_add(roll(dice) % 17).wrapping_sub(8);
    match below(dice, 12) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => 1 << 63,
        4 => (1 << 56) - 1,
        5 => 1 << below(dice, 64),
        6 => near,
        7 => 0xffff_ffff,
        8 => roll(dice) & 0xffff,
        9 => (roll(dice) & 0xffff) << 32,
        10 => 4096 + 64 * (roll(dice) % 1024),
        _ => roll(dice),
    }
}

/// The good files, and what is true of them.
struct Seeds {
    journal: Arc<Vec<u8>>,
    recording: Arc<Vec<u8>>,
    events: HashMap<u64, Event>,
    births: HashMap<u64, LiveEntry>,
    sections: Vec<(usize, usize)>,
}

fn seeds() -> Seeds {
    let dir = std::env::temp_dir().join(format!("weir-fuzz-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let geometry = Geometry { events: 256, live: 96, flights: 8, names: 4096, stacks: 4096 };
    let journal = Journal::create(&Options::in_dir(&dir).sized(geometry)).unwrap();
    let path = journal.path().unwrap();
    let recording = dir.join("recording");
    let mut recorder =
        Recorder::new(Reader::open(&path).unwrap(), std::fs::File::create_new(&recording).unwrap()).unwrap();
    journal.set_device(0, [1; 16], 1 << 33, "fuzz");
    journal.set_cap(0, 1 << 32);
    journal.refresh_modules();
    let lines = [journal.line("train.py", "step", 3), journal.line("train.py", "main", 9)];
    let mut by = Attribution { stack: 0, op: 0, python: journal.python(&lines) };
    for n in 0..200_u64 {
        by.stack = journal.stack(&[n % 7, 2, 3]);
        by.op = journal.op(&Op { name: "MatMul", region: "output", shape: "[1]", dtype: n as u32 % 3 });
        let intent =
            Intent { kind: Kind::Alloc, class: Class::Block, device: 0, stream: 1, requested: n + 1, address: 0, by };
        journal.begin(intent).granted(Granted { address: (n + 1) << 12, allocated: 4096 });
        if n % 3 != 0 {
            journal.free((n + 1) << 12, Class::Block, 1);
        }
        if n == 100 {
            recorder.poll(false).unwrap();
            recorder.checkpoint().unwrap();
            std::mem::forget(journal.begin(intent));
        }
    }
    std::mem::forget(journal.begin_free(1 << 12, Class::Block));
    journal.out_of_memory(
        &Failure { device: 0, class: Class::Block, stream: 0, requested: 1, result: 2, by },
        &Situation::default(),
    );
    recorder.poll(true).unwrap();
    recorder.checkpoint().unwrap();
    let reader = Reader::open(&path).unwrap();
    let events = reader.events().filter_map(|slot| match slot.unwrap() {
        Slot::Event(event) => Some((event.seq, event)),
        Slot::Lost(_) => None,
    });
    let sections = SECTIONS.map(|section| {
        let range = reader.header().section(section);
        (range.offset as usize, range.claimed as usize)
    });
    let births = reader.state().unwrap().live.into_iter().map(|entry| (entry.birth, entry)).collect();
    let seeds = Seeds {
        journal: Arc::new(std::fs::read(&path).unwrap()),
        recording: Arc::new(std::fs::read(&recording).unwrap()),
        events: events.collect(),
        births,
        sections: sections.to_vec(),
    };
    std::fs::remove_dir_all(&dir).unwrap();
    seeds
}

/// Damages a journal. Says whether any checksum of a record or an entry was made right again.
fn damage_journal(file: &mut Damaged, seeds: &Seeds, dice: &mut u64) -> bool {
    let mut repaired = false;
    for _ in 0..=below(dice, 4) {
        let (start, size) = seeds.sections[below(dice, seeds.sections.len())];
        let at = start + below(dice, size) / 8 * 8;
        match below(dice, 10) {
            0 => _ = file.patches.insert(at, roll(dice) as u8),
            1 => file.set_word(at, odd(dice, file.size)),
            2 => file.size = below(dice, file.good.len() + 1),
            3 => {
                // A fixed header field, with the right checksum: sections that lie.
                let field = if below(dice, 3) == 0 {
                    below(dice, word::STATIC_CRC)
                } else {
                    word::SECTIONS + below(dice, 2 * SECTIONS.len())
                };
                file.set_word(field * 8, odd(dice, file.size));
                let crc = crc_words(&file.words(8, word::STATIC_CRC - 1));
                file.set_word(word::STATIC_CRC * 8, crc.into());
                repaired = true;
            }
            4 => {
                let field = word::HEAD + below(dice, layout::HEADER_WORDS - word::HEAD);
                file.set_word(field * 8, odd(dice, file.size));
            }
            5 => {
                // A whole record of somebody else's making.
                let (ring, bytes) = seeds.sections[Section::Ring as usize];
                let slot = below(dice, bytes / 64);
                let mut event = Event::new(
                    Kind::ALL[below(dice, Kind::ALL.len())],
                    Class::ALL[below(dice, Class::ALL.len())],
                    roll(dice) as u8,
                );
                event.seq = slot as u64 + 256 * (roll(dice) % 3);
                event.address = odd(dice, file.size);
                event.time = odd(dice, file.size);
                event.aux = roll(dice) as u16;
                event.by = Attribution { stack: roll(dice) as u32, op: roll(dice) as u32, python: roll(dice) as u32 };
                event
                    .pack()
                    .iter()
                    .enumerate()
                    .for_each(|(word, value)| file.set_word(ring + slot * 64 + word * 8, *value));
                repaired = true;
            }
            6 => {
                // A live entry with odd content and the right checksum.
                let (table, bytes) = seeds.sections[Section::Live as usize];
                let entry = table + below(dice, bytes / 64) * 64;
                file.set_word(entry + 8 * (1 + below(dice, 7)), odd(dice, file.size));
                let mut words = file.words(entry, 8);
                words[0] = (roll(dice) & 0xff_ffff) << 8;
                words[7] = 0;
                let state = 1 + roll(dice) % 2;
                file.set_word(entry, u64::from(crc_words(&words)) << 32 | words[0] | state);
                repaired = true;
            }
            7 => {
                // A name that points anywhere, with the right checksum.
                let (names, bytes) = seeds.sections[[Section::Names, Section::Stacks][below(dice, 2)] as usize];
                let item = names + below(dice, bytes / 16) * 16;
                let length = below(dice, 40);
                let meta = (1 + roll(dice) % 5) << 56 | (length as u64) << 32;
                file.set_word(item + 8, odd(dice, file.size));
                let words = file.words(item + 8, if meta >> 56 == 1 { length.div_ceil(8) } else { length });
                let crc = crc32c::crc32c_append(crc_words(&words), &(meta >> 32).to_le_bytes());
                file.set_word(item, meta | u64::from(crc));
            }
            8 => {
                // Two records change places.
                let (ring, bytes) = seeds.sections[Section::Ring as usize];
                let (a, b) = (ring + below(dice, bytes / 64) * 64, ring + below(dice, bytes / 64) * 64);
                let (one, two) = (file.words(a, 8), file.words(b, 8));
                for word in 0..8 {
                    file.set_word(a + word * 8, two[word]);
                    file.set_word(b + word * 8, one[word]);
                }
            }
            _ => {
                let stop = (at + below(dice, 256)).min(file.size);
                (at..stop).for_each(|place| _ = file.patches.insert(place, roll(dice) as u8));
            }
        }
    }
    repaired
}

/// Frames of a recording: where each one starts.
fn frames(recording: &[u8]) -> Vec<usize> {
    let mut found = vec![];
    let mut at = 16;
    while at + 32 <= recording.len() {
        found.push(at);
        at += 32 + u32::from_le_bytes(recording[at + 16..at + 20].try_into().unwrap()) as usize;
    }
    found
}

/// A frame that expands far beyond what it says.
fn bomb(claims: u64) -> Vec<u8> {
    let mut packer = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    (0..64).for_each(|_| packer.write_all(&vec![0; 1 << 20]).unwrap());
    let packed = packer.finish().unwrap();
    let words = [1 | claims << 32, 0, packed.len() as u64 | (claims / 64) << 32];
    let crcs = u64::from(crc_words(&words)) | u64::from(crc32c::crc32c(&packed)) << 32;
    words.into_iter().chain([crcs]).flat_map(u64::to_le_bytes).chain(packed).collect()
}

fn damage_recording(file: &mut Damaged, starts: &[usize], dice: &mut u64) {
    for _ in 0..=below(dice, 3) {
        let frame = starts[below(dice, starts.len())];
        match below(dice, 4) {
            0 => _ = file.patches.insert(below(dice, file.size), roll(dice) as u8),
            1 => file.size = below(dice, file.good.len() + 1),
            2 => file.set_word(frame + 8 * below(dice, 4), odd(dice, file.size)),
            _ => {
                let field = frame + 8 * below(dice, 3);
                let value =
                    if below(dice, 2) == 0 { file.word(field) ^ 1 << below(dice, 64) } else { odd(dice, file.size) };
                file.set_word(field, value);
                let crcs = file.word(frame + 24) & !0xffff_ffff | u64::from(crc_words(&file.words(frame, 3)));
                file.set_word(frame + 24, crcs);
            }
        }
    }
}

/// Reads everything there is, and returns what it looked like. `strict` says that only true events and entries may come out.
fn read_everything(file: Damaged, whole: bool, strict: Option<&Seeds>) -> Result<String, String> {
    let reader = match Reader::of(Box::new(file.clone())) {
        Ok(reader) => reader,
        Err(error) => return Ok(format!("{error:?}").chars().take_while(char::is_ascii_alphabetic).collect()),
    };
    let mut losses = [0_u32; 4];
    let mut ids = vec![Attribution { stack: 1, op: 1, python: 1 }];
    for slot in reader.events() {
        let event = match slot {
            Ok(Slot::Event(event)) => event,
            Ok(Slot::Lost(loss)) => {
                losses[loss.why as usize] = 1;
                continue;
            }
            Err(_) => continue,
        };
        if let Some(seeds) = strict
            && seeds.events.get(&event.seq) != Some(&event)
        {
            return Err(format!("an event that never was: {event:?}"));
        }
        ids.push(event.by);
    }
    let Ok(state) = reader.state() else {
        return Ok("read, without a state".into());
    };
    let looks = format!(
        "read, lost {losses:?}, {} live, in flight {}, rebuilt {}, damaged {}, cut {}, truncated {}, off {}",
        state.live.len().min(3),
        state.in_flight.len().min(2),
        state.rebuilt.len().min(2),
        state.damaged.min(2),
        state.cut.min(1),
        reader.header().truncated,
        reader.header().turned_off.is_some()
    );
    for entry in &state.live {
        if let Some(seeds) = strict
            && seeds.births.get(&entry.birth) != Some(entry)
        {
            return Err(format!("an allocation that never was: {entry:?}"));
        }
    }
    if let Ok(mut replay) = reader.replay() {
        while let Ok(Some(_)) = replay.back() {}
    }
    if !whole {
        return Ok(looks);
    }
    for by in ids.iter().take(50) {
        let _ = (reader.stack(by.stack), reader.op(by.op), reader.python(by.python));
    }
    let _ = (reader.modules(), reader.devices(), reader.config(), reader.job(), reader.oom_dumps(), reader.causes());
    let _ = (reader.header().realtime_ns(u64::MAX), reader.header().elapsed_ns(u64::MAX, 0));
    let _ = reader.live_at(10);
    if let Ok(other) = Reader::of(Box::new(file)) {
        let mut follower = Follower::new(other, false);
        for _ in 0..4 {
            let _ = follower.poll(1000, true);
        }
    }
    Ok(looks)
}

/// The kept inputs: seed and number.
fn corpus() -> Vec<(u64, u64)> {
    let number = |text: Option<&str>| text.and_then(|text| text.parse().ok());
    include_str!("fuzz.corpus")
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((number(words.next())?, number(words.next())?))
        })
        .collect()
}

fn main() -> ExitCode {
    let number = |name: &str, usual: u64| std::env::var(name).map_or(usual, |text| text.parse().expect(name));
    #[cfg(feature = "fault-injection")]
    if std::env::var_os("WEIR_FUZZ_GUARDS").is_none() {
        return prove_guards(number("WEIR_FUZZ", 100_000));
    }
    let seeds = seeds();
    #[cfg(feature = "fault-injection")]
    fault::inject(number("WEIR_FUZZ_GUARDS", 0) as u32);
    let (inputs, seed) = (number("WEIR_FUZZ", 100_000), number("WEIR_SEED", 1));
    let save = std::env::var_os("WEIR_FUZZ_SAVE");
    let starts = frames(&seeds.recording);
    let bombs: Vec<Arc<Vec<u8>>> = [64, 4096, 1 << 18, 1 << 26]
        .iter()
        .map(|claims| {
            Arc::new(
                seeds.recording[..16]
                    .iter()
                    .copied()
                    .chain(bomb(*claims))
                    .chain(seeds.recording[16..].iter().copied())
                    .collect(),
            )
        })
        .collect();
    std::panic::set_hook(Box::new(|what| println!("{what}")));
    let (begin, base, mut peak) = (Instant::now(), NOW.load(Ordering::Relaxed), 0);
    let mut seen: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let kept = corpus();
    for (seed, input) in kept.iter().copied().chain((0..inputs).map(|input| (seed, input))) {
        let mut dice = (seed << 32 | input).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let recording = input % 8 == 7;
        let good = if recording { &seeds.recording } else { &seeds.journal };
        let mut file = Damaged { good: Arc::clone(good), patches: BTreeMap::new(), size: good.len() };
        let mut strict = None;
        if input % 997 == 7 {
            let good = &bombs[below(&mut dice, bombs.len())];
            file = Damaged { good: Arc::clone(good), patches: BTreeMap::new(), size: good.len() };
        } else if recording {
            damage_recording(&mut file, &starts, &mut dice);
        } else if !damage_journal(&mut file, &seeds, &mut dice) {
            strict = Some(&seeds);
        }
        PEAK.store(NOW.load(Ordering::Relaxed), Ordering::Relaxed);
        let start = Instant::now();
        let whole = input % 16 == 0 || recording;
        let read = std::panic::catch_unwind(|| read_everything(file, whole, strict));
        let used = PEAK.load(Ordering::Relaxed).saturating_sub(base);
        peak = peak.max(used);
        let wrong = match read {
            Err(_) => Some("a panic".to_owned()),
            Ok(Err(why)) => Some(why),
            Ok(Ok(_)) if used > MOST_MEMORY => Some(format!("{used} bytes of memory")),
            Ok(Ok(_)) if start.elapsed() > MOST_TIME => Some(format!("{:?}", start.elapsed())),
            Ok(Ok(looks)) => {
                if save.is_some() && seen.len() < MOST_KEPT {
                    seen.entry(looks).or_insert((seed, input));
                }
                None
            }
        };
        if let Some(wrong) = wrong {
            println!("FAILED: input {input} of seed {seed}: {wrong}");
            return ExitCode::FAILURE;
        }
    }
    if let Some(path) = save {
        let lines = seen.iter().map(|(looks, (seed, input))| format!("{seed} {input} {looks}\n"));
        std::fs::write(path, lines.collect::<String>()).unwrap();
    }
    println!(
        "ok: {inputs} hostile files and {} kept ones in {:.0?}, at most {} KiB of memory",
        kept.len(),
        begin.elapsed(),
        peak >> 10
    );
    ExitCode::SUCCESS
}

/// Each guard of the reader, taken away, must make the fuzzer fail; with all of them it must not.
#[cfg(feature = "fault-injection")]
fn prove_guards(inputs: u64) -> ExitCode {
    use fault::Fault;
    // A reader that does not come to an end counts as a failure too: after a minute of processor time, whatever else runs.
    let run = |guards: u32| {
        let mut child = std::process::Command::new("sh");
        child.args(["-c", "ulimit -t $1; exec \"$0\""]).arg(std::env::current_exe().unwrap());
        child.arg(if guards == 0 { "unlimited" } else { "60" });
        child.env("WEIR_FUZZ_GUARDS", guards.to_string()).env("WEIR_FUZZ", inputs.to_string());
        child.stderr(std::process::Stdio::null()).status().unwrap().success()
    };
    let mut good = run(0);
    for fault in [Fault::RecordCrc, Fault::EntryCrc, Fault::Bounds, Fault::FrameLimit] {
        let noticed = !run(fault as u32);
        println!("without {fault:?}: {}", if noticed { "noticed" } else { "NOT NOTICED" });
        good &= noticed;
    }
    ExitCode::from(u8::from(!good))
}

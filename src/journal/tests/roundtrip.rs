//! What the writer wrote, the reader reads: seen from outside, on files.

use std::path::PathBuf;

use weir_journal::layout::{crc_words, word};
use weir_journal::reader::record::Recorder;
use weir_journal::reader::{Error, FlightOf, Follower, Reader, Slot, Why};
use weir_journal::*;

/// A scratch directory that goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-journal-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn journal(&self, events: u64) -> Journal {
        let geometry = Geometry { events, ..Geometry::tiny() };
        let mut options = Options::in_dir(&self.0).sized(geometry);
        options.config = "cap = 8GiB\n".into();
        let journal = Journal::create(&options).unwrap();
        assert_eq!(journal.fallback_reason(), None);
        journal
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn wants(requested: u64) -> Intent {
    Intent {
        kind: Kind::Alloc,
        class: Class::Device,
        device: 0,
        stream: 0,
        requested,
        address: 0,
        by: Attribution::default(),
    }
}

fn alloc(journal: &Journal, address: u64, bytes: u64) -> u64 {
    journal.begin(wants(bytes)).granted(Granted { address, allocated: bytes.next_multiple_of(512) })
}

fn open(journal: &Journal) -> Reader {
    Reader::open(&journal.path().unwrap()).unwrap()
}

fn addresses(reader: &Reader) -> Vec<u64> {
    let mut all: Vec<u64> = reader.state().unwrap().live.iter().map(|entry| entry.address).collect();
    all.sort_unstable();
    all
}

#[test]
fn everything_that_was_written_is_read() {
    let scratch = Scratch::new("all");
    let journal = scratch.journal(1024);
    journal.set_device(0, [7; 16], 40 << 30, "Virtual A100");
    journal.set_cap(0, 8 << 30);
    let op = journal.op(&Op { name: "dense/MatMul", region: "output", shape: "[64,10]", dtype: 1 });
    let line = journal.line("train.py", "train_step", 118);
    let python = journal.python(&[line, journal.line("train.py", "main", 7)]);
    let stack = journal.stack(&[0x1000, 0x2000, 0x3000]);
    assert!(journal.refresh_modules() > 1);
    assert_eq!(journal.refresh_modules(), 0, "known modules must not be listed again");
    let mut intent = wants(1000);
    intent.by = Attribution { stack, op, python };
    journal.begin(intent).granted(Granted { address: 0x7000_0000, allocated: 1024 });
    assert!(journal.sample_host(1000).is_some());
    assert!(journal.sample_host(1000).is_none(), "a second sample came too early");
    journal.exiting(Some(3));

    let reader = open(&journal);
    let header = reader.header();
    assert!(header.clean_exit && !header.truncated);
    assert_eq!(header.exit_status, Some(3));
    assert_eq!(header.identity, Identity::own());
    assert!(header.command[0].contains("roundtrip"));
    assert!(header.resident > 1 << 20);
    assert_eq!(reader.config().unwrap().unwrap(), "cap = 8GiB\n");
    let job = reader.job().unwrap().unwrap();
    assert!(!job.cut && job.exe == std::env::current_exe().unwrap() && job.folder == std::env::current_dir().unwrap());
    let devices = reader.devices().unwrap();
    assert_eq!((devices[0].name.as_str(), devices[0].uuid, devices[0].cap), ("Virtual A100", [7; 16], 8 << 30));
    assert_eq!(devices[0].usage, [(Class::Device, 1024, 1024)]);

    let events: Vec<Event> = reader
        .events()
        .map(|slot| match slot.unwrap() {
            Slot::Event(event) => event,
            Slot::Lost(loss) => panic!("{loss:?}"),
        })
        .collect();
    let kinds: Vec<Kind> = events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [Kind::CapChange, Kind::Alloc, Kind::HostSample, Kind::Exit]);
    let got = events[1];
    assert_eq!((got.address, got.requested, got.allocated, got.live_after), (0x7000_0000, 1000, 1024, 1024));
    assert_eq!(reader.op(got.by.op).unwrap().unwrap().name, "dense/MatMul");
    assert_eq!(reader.python(got.by.python).unwrap()[0].line, 118);
    assert_eq!(reader.stack(got.by.stack).unwrap(), [0x1000, 0x2000, 0x3000]);
    let modules = reader.modules().unwrap();
    assert!(modules.iter().any(|module| module.path.contains("libc.so") && module.build_id.len() >= 16));
    let age = header
        .realtime_ns(got.time)
        .abs_diff(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64);
    assert!(age < 5_000_000_000, "the event seems {age} ns old");
}

#[test]
fn in_flight_calls_are_reported_as_such() {
    let scratch = Scratch::new("flight");
    let journal = scratch.journal(64);
    alloc(&journal, 4096, 100);
    alloc(&journal, 8192, 200);
    let request = journal.begin(wants(4711));
    let free = journal.begin_free(8192, Class::Device);
    let state = open(&journal).state().unwrap();
    assert_eq!(state.live.len(), 2);
    assert!(state.in_flight.iter().any(|f| matches!(f, FlightOf::Request(r) if r.intent.requested == 4711)));
    assert!(state.in_flight.iter().any(|f| matches!(f, FlightOf::Free(e, t) if e.address == 8192 && *t > 0)));
    request.ended(Kind::Failed, 0, 2);
    drop(free);
    let state = open(&journal).state().unwrap();
    assert_eq!((state.live.len(), state.in_flight.len()), (2, 0));
    let free = journal.begin_free(8192, Class::Device);
    free.failed(700);
    journal.free(4096, Class::Device, 3);
    assert_eq!(journal.free(4096, Class::Device, 3), None, "a double free must not be found");
    assert_eq!(journal.begin_free(4096, Class::Device).freed(3), None, "nor this one, but it is counted");
    let reader = open(&journal);
    assert_eq!(addresses(&reader), [8192]);
    assert_eq!(reader.header().counters.unknown_frees, 1);
}

/// A driver hands an address out again while the thread that freed it has not come to say so: the free comes first.
#[test]
fn an_address_that_is_handed_out_again_was_freed_before() {
    let scratch = Scratch::new("again");
    let journal = scratch.journal(64);
    alloc(&journal, 4096, 100);
    let slow = journal.begin_free(4096, Class::Device);
    alloc(&journal, 4096, 200);
    assert_eq!(journal.live_bytes(0, Class::Device), 512);
    assert_eq!(slow.freed(3).map(|entry| entry.requested), Some(100));
    let reader = open(&journal);
    assert_eq!(addresses(&reader), [4096]);
    let kinds: Vec<_> = reader
        .events()
        .filter_map(|slot| match slot.unwrap() {
            Slot::Event(event) => Some((event.kind, event.requested)),
            Slot::Lost(_) => None,
        })
        .collect();
    assert_eq!(kinds, [(Kind::Alloc, 100), (Kind::Free, 100), (Kind::Alloc, 200)]);
    assert_eq!(journal.live_bytes(0, Class::Device), 512);
    let again = journal.begin_free(4096, Class::Device);
    assert_eq!(again.freed(0).map(|entry| entry.requested), Some(200));
}

#[test]
fn state_is_exact_at_every_event_still_there() {
    let scratch = Scratch::new("replay");
    let journal = scratch.journal(128);
    let mut truth: Vec<(u64, std::collections::BTreeMap<u64, u64>)> = Vec::new();
    let mut live = std::collections::BTreeMap::new();
    let mut dice = 12345_u64;
    for _ in 0..1000 {
        dice = dice.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let address = (dice >> 33) % 60 * 512 + 512;
        if live.remove(&address).is_some() {
            journal.free(address, Class::Device, 0).unwrap();
        } else {
            live.insert(address, dice >> 50);
            alloc(&journal, address, dice >> 50);
        }
        truth.push((truth.len() as u64, live.clone()));
    }
    let reader = open(&journal);
    assert_eq!(reader.range(), (1000 - 128, 1000));
    let mut replay = reader.replay().unwrap();
    for (seq, expected) in truth.iter().rev().take(128) {
        assert_eq!(replay.position(), seq + 1);
        let found = replay.live().map(|entry| (entry.address, entry.requested)).collect();
        assert_eq!(expected, &found, "after event {seq}");
        replay.back().unwrap().unwrap();
    }
    assert_eq!((replay.back().unwrap(), replay.missed()), (None, 0));
    let found = reader.live_at(950).unwrap().unwrap();
    assert_eq!(found.len(), truth[950].1.len());
    assert_eq!(reader.live_at(5).unwrap(), None);
}

/// A thread was stopped inside a free for good while others got the address again and again.
#[test]
fn going_back_past_two_owners_of_an_address_leaves_nothing() {
    let scratch = Scratch::new("owners");
    let journal = scratch.journal(128);
    alloc(&journal, 4096, 1);
    for size in 2..9 {
        alloc(&journal, 4096, size);
        journal.free(4096, Class::Device, 0).unwrap();
    }
    alloc(&journal, 4096, 9);
    let reader = open(&journal);
    let mut replay = reader.replay().unwrap();
    let mut counts = vec![replay.live().count()];
    while replay.back().unwrap().is_some() {
        counts.push(replay.live().count());
    }
    let mut expected = [2, 1].repeat(8);
    expected.push(0);
    assert_eq!((counts, replay.missed()), (expected, 0));
}

#[test]
fn a_follower_sees_everything_or_says_what_it_missed() {
    let scratch = Scratch::new("follow");
    let journal = scratch.journal(64);
    let mut follower = Follower::new(open(&journal), false);
    for n in 0..50 {
        alloc(&journal, (n + 1) * 4096, n);
    }
    let seen = follower.poll(30, false).unwrap();
    assert_eq!(seen.len(), 30);
    assert_eq!(follower.poll(1000, false).unwrap().len(), 20);
    assert!(follower.poll(1000, false).unwrap().is_empty());
    for n in 50..250 {
        alloc(&journal, (n + 1) * 4096, n);
    }
    let seen = follower.poll(1000, false).unwrap();
    assert!(matches!(seen[0], Slot::Lost(loss) if loss.first == 50 && loss.count == 136 && loss.why == Why::Lapped));
    assert_eq!(seen.len(), 65);
}

#[test]
fn a_recording_keeps_every_event_of_a_long_run() {
    let scratch = Scratch::new("record");
    let journal = scratch.journal(256);
    let path = scratch.0.join("run.weirrec");
    let mut recorder = Recorder::new(open(&journal), std::fs::File::create_new(&path).unwrap()).unwrap();
    for n in 0..5000_u64 {
        alloc(&journal, (n + 1) * 4096, n);
        if n >= 20 {
            journal.free((n - 19) * 4096, Class::Device, 0).unwrap();
        }
        if n % 50 == 0 {
            recorder.poll(false).unwrap();
        }
        if n % 1000 == 0 {
            recorder.checkpoint().unwrap();
        }
    }
    recorder.poll(true).unwrap();
    recorder.checkpoint().unwrap();
    assert_eq!(recorder.totals(), (9980, 0));
    let recording = Reader::open(&path).unwrap();
    let events = recording.events().filter(|slot| matches!(slot, Ok(Slot::Event(_)))).count();
    assert_eq!(events, 9980);
    assert_eq!(recording.range(), (0, 9980));
    assert_eq!(addresses(&recording), addresses(&open(&journal)));
    // Back to the very beginning, far beyond what the ring holds.
    let mut replay = recording.replay().unwrap();
    while replay.back().unwrap().is_some() {}
    assert_eq!((replay.live().count(), replay.missed(), replay.position()), (0, 0, 0));
    // A recording that was cut is good up to the cut.
    let bytes = std::fs::read(&path).unwrap();
    let cut = Reader::of(Box::new(bytes[..bytes.len() / 2].to_vec())).unwrap();
    assert!(cut.range().1 > 1000 && cut.range().1 < 9980);
    assert!(bytes.len() < 9980 * 64, "{} bytes are not compressed", bytes.len());
}

#[test]
fn what_follows_a_journal_in_its_file_is_not_recorded() {
    let scratch = Scratch::new("long");
    let journal = scratch.journal(64);
    alloc(&journal, 4096, 1);
    let bytes = |name: &str| {
        let path = scratch.0.join(name);
        let mut recorder = Recorder::new(open(&journal), std::fs::File::create_new(&path).unwrap()).unwrap();
        recorder.poll(true).unwrap();
        recorder.checkpoint().unwrap();
        assert_eq!(addresses(&Reader::open(&path).unwrap()), addresses(&open(&journal)));
        std::fs::metadata(&path).unwrap().len()
    };
    let before = bytes("before.weirrec");
    std::fs::File::options().write(true).open(journal.path().unwrap()).unwrap().set_len(256 << 20).unwrap();
    let after = bytes("after.weirrec");
    assert!(after < before + 4096, "{before} bytes before, {after} after");
}

#[test]
fn hostile_and_foreign_files_are_refused_with_a_reason() {
    let scratch = Scratch::new("foreign");
    let journal = scratch.journal(64);
    let good = std::fs::read(journal.path().unwrap()).unwrap();
    let read = |bytes: &[u8]| Reader::of(Box::new(bytes.to_vec()));
    assert!(matches!(read(b""), Err(Error::NotAJournal | Error::Unfinished)));
    assert!(matches!(read(b"#!/bin/sh\necho hello\n"), Err(Error::NotAJournal)));
    let mut unfinished = good.clone();
    unfinished[..8].fill(0);
    assert!(matches!(read(&unfinished), Err(Error::Unfinished)));
    let mut foreign = good.clone();
    foreign[8] = 99;
    let error = read(&foreign).unwrap_err();
    assert!(matches!(error, Error::ForeignVersion { major: 99, .. }));
    assert!(error.to_string().contains("99"), "{error}");
    let mut damaged = good.clone();
    damaged[40] ^= 1;
    assert!(matches!(read(&damaged), Err(Error::DamagedHeader)));
    assert!(matches!(read(&good[..1000]), Err(Error::TooShort { size: 1000 })));
}

#[test]
fn a_journal_of_the_first_version_is_read_without_a_job() {
    let scratch = Scratch::new("older");
    let journal = scratch.journal(64);
    let mut old = std::fs::read(journal.path().unwrap()).unwrap();
    let read = |bytes: &[u8]| Reader::of(Box::new(bytes.to_vec()));
    let mut set = |word: usize, value: u64| old[word * 8..][..8].copy_from_slice(&value.to_le_bytes());
    // Version 1.0 has twelve sections.
    set(word::VERSION, 1);
    set(word::SECTIONS + 24, 0);
    set(word::SECTIONS + 25, 0);
    let fixed: Vec<u64> = old.as_chunks().0[1..word::STATIC_CRC].iter().map(|word| u64::from_le_bytes(*word)).collect();
    old[word::STATIC_CRC * 8..][..8].copy_from_slice(&u64::from(crc_words(&fixed)).to_le_bytes());
    let reader = read(&old).unwrap();
    assert_eq!((reader.header().minor, reader.job().unwrap()), (0, None));
    assert_eq!(
        reader.config().unwrap(),
        read(&std::fs::read(journal.path().unwrap()).unwrap()).unwrap().config().unwrap()
    );
}

#[test]
fn a_cut_file_gives_what_it_has() {
    let scratch = Scratch::new("cut");
    let journal = scratch.journal(64);
    for n in 0..64 {
        alloc(&journal, (n + 1) * 4096, n);
    }
    let good = std::fs::read(journal.path().unwrap()).unwrap();
    let reader = Reader::of(Box::new(good[..4096 + 10 * 64 + 13].to_vec())).unwrap();
    assert!(reader.header().truncated);
    let slots: Vec<Slot> = reader.events().map(Result::unwrap).collect();
    assert_eq!(slots.len(), 11);
    assert!(matches!(slots[10], Slot::Lost(loss) if loss.count == 54 && loss.why == Why::Cut));
    let state = reader.state().unwrap();
    assert!(state.live.is_empty() && state.cut > 0);
}

#[test]
fn a_full_live_table_is_loud() {
    let scratch = Scratch::new("overflow");
    let journal = scratch.journal(4096);
    for n in 0..2000 {
        alloc(&journal, (n + 1) * 4096, n);
    }
    let reader = open(&journal);
    let counters = reader.header().counters;
    assert_eq!(counters.live_overflow + addresses(&reader).len() as u64, 2000);
    assert!(counters.live_overflow > 0);
    let flagged = reader
        .events()
        .filter(|slot| matches!(slot, Ok(Slot::Event(event)) if event.flags & FLAG_NOT_IN_TABLE != 0))
        .count();
    assert_eq!(flagged as u64, counters.live_overflow);
}

fn block(journal: &Journal, numbering: &Numbering, number: usize, address: u64) -> u64 {
    let intent = Intent { class: Class::Block, ..wants(1000) };
    journal.block_taken(numbering, number, &intent, Granted { address, allocated: 1024 })
}

#[test]
fn blocks_stand_at_the_places_of_their_numbers() {
    let scratch = Scratch::new("numbers");
    let journal = scratch.journal(1024);
    // Two pools use the same numbers, and addresses of one come again in the other.
    let (one, other) = (Numbering::default(), Numbering::default());
    for number in 0..100 {
        block(&journal, &one, number, 1 << 40 | (number as u64) << 10);
        block(&journal, &other, number, 1 << 41 | (number as u64) << 10);
    }
    assert_eq!(addresses(&open(&journal)).len(), 200);
    for number in (0..100).step_by(2) {
        let address = 1 << 40 | (number as u64) << 10;
        assert!(!journal.block_freed(&one, number + 1, address, 0, 1), "another block of that number");
        assert!(journal.block_freed(&one, number, address, 7, 1));
        assert!(!journal.block_freed(&one, number, address, 7, 1), "freed twice");
    }
    let reader = open(&journal);
    let state = reader.state().unwrap();
    assert_eq!((state.live.len(), state.damaged, state.in_flight.len()), (150, 0, 0));
    assert!(
        state
            .live
            .iter()
            .all(|entry| entry.class == Class::Block && (entry.allocated, entry.requested) == (1024, 1000))
    );
    let events: Vec<Event> = reader
        .events()
        .map(|slot| if let Slot::Event(event) = slot.unwrap() { event } else { panic!("a gap") })
        .collect();
    assert_eq!(events.len(), 250);
    let frees: Vec<&Event> = events.iter().filter(|event| event.kind == Kind::Free).collect();
    assert_eq!(frees.len(), 50);
    for free in frees {
        assert_eq!((free.allocated, free.requested, free.stream, free.class), (1024, 1000, 7, Class::Block));
        let birth = events.iter().find(|event| event.kind == Kind::Alloc && event.address == free.address).unwrap();
        assert!(free.time >= birth.time && free.age().unwrap() <= free.time - birth.time);
    }
    assert_eq!(events.last().unwrap().live_after, 150 * 1024);
    // In flight until its address is recorded.
    let ticket = journal.begin(Intent { class: Class::Block, ..wants(5000) });
    assert_eq!(open(&journal).state().unwrap().in_flight.len(), 1);
    ticket.granted_block(&one, 0, Granted { address: 99 << 12, allocated: 5120 });
    let state = open(&journal).state().unwrap();
    assert_eq!((state.in_flight.len(), state.live.iter().filter(|entry| entry.address == 99 << 12).count()), (0, 1));
}

#[test]
fn numbers_beyond_the_table_are_kept_elsewhere() {
    let scratch = Scratch::new("beyond");
    let journal = scratch.journal(8192);
    let numbering = Numbering::default();
    // Room for 128 buckets, then the hashed half, then none: and every block is found again for its free.
    let blocks: Vec<(usize, u64)> = (0..2000_usize).chain([1 << 20]).map(|n| (n, (n as u64 + 1) << 12)).collect();
    for (number, address) in &blocks {
        block(&journal, &numbering, *number, *address);
    }
    let known = addresses(&open(&journal)).len();
    assert!(known > 128 * 7 + 512 && known < blocks.len(), "{known}");
    let lost = open(&journal).header().counters.live_overflow;
    assert_eq!(lost, (blocks.len() - known) as u64, "what has no place is counted");
    let freed =
        blocks.iter().filter(|(number, address)| journal.block_freed(&numbering, *number, *address, 0, 1)).count();
    assert_eq!((freed, addresses(&open(&journal)).len()), (known, 0));
}

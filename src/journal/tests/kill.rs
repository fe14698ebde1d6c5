//! A process that writes a journal dies in every way there is, at random instants; afterwards the journal must say
//! what the process's own truth says. The truth is a second mapped file that the child keeps beside the journal: it
//! plays the driver. Not a usual test harness: the program starts itself again as the child.
//!
//! `WEIR_KILLS=5000 cargo test -p weir-journal --test kill` for a long run, `WEIR_SEED` for another one.

#[path = "../../../tests/journal/dying.rs"]
mod dying;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use dying::{dies, map_truth, unmap};
use weir_journal::reader::{FlightOf, Reader, Slot};
use weir_journal::*;

/// Addresses that one thread of the child uses.
const SLOTS: usize = 64;
/// Words of truth for one thread: thread id, intent, then the size at each address.
const THREAD_WORDS: usize = 2 + SLOTS;
const THREADS: usize = 8;
const WANTS_ALLOC: u64 = 1 << 32;
const WANTS_FREE: u64 = 2 << 32;

const TRUTH_WORDS: usize = 1 + THREADS * THREAD_WORDS;

fn address_of(thread: usize, slot: usize) -> u64 {
    0x7f00_0000_0000 + ((thread * SLOTS + slot) as u64) * 4096
}

/// Attribution that follows from the rest of a record, so that a mixture of two records shows.
fn marks(address: u64, requested: u64) -> Attribution {
    let mix = (address ^ requested.rotate_left(20)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    Attribution { stack: mix as u32 & 0xff_ffff, op: (mix >> 24) as u32 & 0xf_ffff, python: (mix >> 44) as u32 }
}

fn roll(dice: &mut u64) -> u64 {
    *dice ^= *dice << 13;
    *dice ^= *dice >> 7;
    *dice ^= *dice << 17;
    *dice
}

fn dying_thread(journal: &Journal, truth: &[AtomicU64], thread: usize, seed: u64, death: &str) {
    let mine = &truth[1 + thread * THREAD_WORDS..][..THREAD_WORDS];
    // SAFETY: gettid takes nothing and cannot fail.
    mine[0].store(unsafe { libc::gettid() } as u64, Ordering::Relaxed);
    let mut dice = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let dies_at = roll(&mut dice) % 20_000 + 100;
    for step in 0_u64.. {
        if thread == 0 && step == dies_at {
            match death {
                // SAFETY: raising a signal is the purpose here.
                "segfault" => unsafe { std::ptr::null_mut::<u8>().wrapping_add(8).write_volatile(1) },
                "abort" => std::process::abort(),
                // SAFETY: the handler only calls _exit, which is allowed in a handler.
                "handler" => unsafe { _ = libc::raise(libc::SIGUSR1) },
                "exit" => {
                    journal.exiting(Some(0));
                    std::process::exit(0);
                }
                _ => {}
            }
        }
        let slot = roll(&mut dice) as usize % SLOTS;
        let address = address_of(thread, slot);
        // A driver call takes its time; a kill must often fall into it.
        let call_takes = roll(&mut dice) % 200;
        let driver = |size: u64| {
            (0..call_takes).for_each(|_| std::hint::spin_loop());
            mine[2 + slot].store(size, Ordering::SeqCst);
            (0..call_takes).for_each(|_| std::hint::spin_loop());
        };
        if mine[2 + slot].load(Ordering::Relaxed) == 0 {
            let requested = roll(&mut dice) % (1 << 40) + 1;
            let intent = Intent {
                kind: Kind::Alloc,
                class: Class::Device,
                device: 0,
                stream: 0,
                requested,
                address: 0,
                by: marks(address, requested),
            };
            mine[1].store(WANTS_ALLOC | slot as u64, Ordering::SeqCst);
            let ticket = journal.begin(intent);
            driver(requested);
            ticket.granted(Granted { address, allocated: requested });
        } else {
            mine[1].store(WANTS_FREE | slot as u64, Ordering::SeqCst);
            let ticket = journal.begin_free(address, Class::Device);
            driver(0);
            ticket.freed(0);
        }
        mine[1].store(0, Ordering::SeqCst);
    }
}

extern "C" fn exit_now(_: i32) {
    // SAFETY: _exit may be called in a signal handler and does not return.
    unsafe { libc::_exit(3) }
}

fn child(args: &[String]) {
    let [dir, threads, events, seed, death, guards] = args else { panic!("usage") };
    let (threads, events, seed): (usize, u64, u64) =
        (threads.parse().unwrap(), events.parse().unwrap(), seed.parse().unwrap());
    #[cfg(feature = "fault-injection")]
    fault::inject(guards.parse().unwrap());
    #[cfg(not(feature = "fault-injection"))]
    assert_eq!(guards, "0");
    let dir = Path::new(dir);
    let geometry = Geometry { events, live: 1024, ..Geometry::tiny() };
    let journal: &Journal = Box::leak(Box::new(Journal::create(&Options::in_dir(dir).sized(geometry)).unwrap()));
    assert_eq!(journal.fallback_reason(), None);
    let truth = map_truth(&dir.join("truth"), TRUTH_WORDS);
    // SAFETY: the handler only calls _exit.
    unsafe { libc::signal(libc::SIGUSR1, exit_now as *const () as libc::sighandler_t) };
    let death: &'static str = death.clone().leak();
    truth[0].store(1, Ordering::SeqCst);
    for thread in 1..threads {
        std::thread::spawn(move || dying_thread(journal, truth, thread, seed + thread as u64, death));
    }
    dying_thread(journal, truth, 0, seed, death);
}

fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("weir-kill-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir(&path).unwrap();
    path
}

fn start(args: &[&str]) -> Child {
    let me = std::env::current_exe().unwrap();
    Command::new(me).args(args).stderr(Stdio::null()).spawn().unwrap()
}

/// What the journal of a dead child says, against the truth. Returns (in flight, events, torn).
fn judge(dir: &Path, truth: &[AtomicU64]) -> Result<(usize, u64, u64), String> {
    let path = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|end| end == "weir"))
        .ok_or("there is no journal")?;
    let reader = Reader::open(&path).map_err(|error| error.to_string())?;
    let state = reader.state().map_err(|error| error.to_string())?;
    if state.damaged != 0 || state.cut != 0 {
        return Err(format!("{} damaged entries, {} bytes cut", state.damaged, state.cut));
    }
    let mut live: BTreeMap<u64, &LiveEntry> = BTreeMap::new();
    for entry in &state.live {
        if entry.by != marks(entry.address, entry.requested) {
            return Err(format!("a mixed entry was accepted: {entry:?}"));
        }
        if live.insert(entry.address, entry).is_some() {
            return Err(format!("{:#x} is live twice", entry.address));
        }
    }
    let mut flights = state.in_flight.clone();
    for thread in 0..THREADS {
        let words = &truth[1 + thread * THREAD_WORDS..][..THREAD_WORDS];
        let (id, intent) = (words[0].load(Ordering::SeqCst), words[1].load(Ordering::SeqCst));
        for slot in 0..SLOTS {
            let address = address_of(thread, slot);
            let (real, found) = (words[2 + slot].load(Ordering::SeqCst), live.remove(&address));
            let matches = intent & 0xffff_ffff == slot as u64;
            let request = |flight: &FlightOf| matches!(flight, FlightOf::Request(f) if u64::from(f.thread) == id);
            let freeing = |flight: &FlightOf| matches!(flight, FlightOf::Free(entry, _) if entry.address == address);
            match found {
                None if real == 0 => {}
                None if matches && intent & WANTS_ALLOC != 0 && state.in_flight.iter().any(request) => {}
                Some(entry) if real == entry.requested => {}
                Some(_) if real == 0 && matches && intent & WANTS_FREE != 0 && state.in_flight.iter().any(freeing) => {}
                found => {
                    return Err(format!(
                        "thread {thread} ({id}) slot {slot}: truth {real}, intent {intent:#x}, journal {found:?}, \
                         in flight {:?}",
                        state.in_flight
                    ));
                }
            }
            if matches && intent & WANTS_FREE != 0 {
                flights.retain(|flight| !freeing(flight));
            }
        }
        if intent & WANTS_ALLOC != 0 {
            flights.retain(|flight| !matches!(flight, FlightOf::Request(f) if u64::from(f.thread) == id));
        }
    }
    if let Some(entry) = live.values().next() {
        return Err(format!("the journal has an allocation from nowhere: {entry:?}"));
    }
    if let Some(flight) = flights.first() {
        return Err(format!("the journal reports a call that was not in flight: {flight:?}"));
    }
    let (mut events, mut torn, mut last) = (0, 0, None);
    for slot in reader.events() {
        match slot.map_err(|error| error.to_string())? {
            Slot::Lost(loss) => torn += loss.count,
            Slot::Event(event) => {
                if last.is_some_and(|last| event.seq <= last) {
                    return Err(format!("event {} comes after {last:?}", event.seq));
                }
                last = Some(event.seq);
                events += 1;
                if matches!(event.kind, Kind::Alloc | Kind::Free) && event.by != marks(event.address, event.requested) {
                    return Err(format!("a mixed record was accepted: {event:?}"));
                }
            }
        }
    }
    let mut replay = reader.replay().map_err(|error| error.to_string())?;
    while replay.back().map_err(|error| error.to_string())?.is_some() {}
    if replay.position() == 0 && replay.missed() == 0 && replay.live().next().is_some() {
        return Err(format!("going back to the start leaves {:?}", replay.live().next()));
    }
    Ok((state.in_flight.len(), events, torn))
}

#[derive(Default)]
struct Tally {
    runs: u64,
    in_flight: u64,
    events: u64,
    torn: u64,
    failures: Vec<String>,
}

/// Lets children die `count` times.
fn deaths(name: &str, count: u64, death: &str, guards: u32, dice: &mut u64) -> Tally {
    let mut tally = Tally::default();
    for run in 0..count {
        let dir = scratch(name);
        let threads = [1, 2, 8][run as usize % 3];
        let events = [64, 16384][run as usize / 3 % 2];
        let truth = map_truth(&dir.join("truth"), TRUTH_WORDS);
        let path = dir.to_str().unwrap();
        let seed = roll(dice) >> 8;
        let child = start(&[
            "child",
            path,
            &threads.to_string(),
            &events.to_string(),
            &seed.to_string(),
            death,
            &guards.to_string(),
        ]);
        dies(child, truth, death, roll(dice) % 8_000_000).unwrap();
        match judge(&dir, truth) {
            Ok((in_flight, events, torn)) => {
                tally.in_flight += in_flight as u64;
                tally.events += events;
                tally.torn += torn;
            }
            Err(why) => {
                tally.failures.push(format!("{death}, {threads} threads, ring of {events}, seed {seed}: {why}"));
            }
        }
        tally.runs += 1;
        // SAFETY: it was made for this run alone, and is not used after this.
        unsafe { unmap(truth) };
        std::fs::remove_dir_all(&dir).unwrap();
        // A missing guard is noticed once.
        if guards != 0 && !tally.failures.is_empty() {
            break;
        }
    }
    tally
}

/// A thousand children of one process: none disturbs the parent's journal, each has its own.
fn forks(count: u32) {
    let dir = scratch("fork");
    let options = Options::in_dir(&dir).sized(Geometry::tiny());
    let journal = Journal::create(&options).unwrap();
    let intent = Intent {
        kind: Kind::Alloc,
        class: Class::Device,
        device: 0,
        stream: 0,
        requested: 77,
        address: 0,
        by: marks(4096, 77),
    };
    journal.begin(intent).granted(Granted { address: 4096, allocated: 77 });
    for _ in 0..count {
        // SAFETY: this process has one thread, so the child may do what it likes.
        let child = unsafe { libc::fork() };
        if child == 0 {
            journal.detach_in_child();
            // What still goes through the old reference must not reach the parent.
            journal.begin(intent).granted(Granted { address: 8192, allocated: 77 });
            journal.turned_off(1, "written by a child");
            let own = Journal::create(&options).unwrap();
            let good = own.fallback_reason().is_none() && own.path() != journal.path();
            own.begin(intent).granted(Granted { address: 4096, allocated: 77 });
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(i32::from(!good)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child just made.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0, "a child failed");
        journal.forked(child as u32);
    }
    let mut owners = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        let reader = Reader::open(&path).unwrap();
        assert_eq!(reader.state().unwrap().live.len(), 1, "{}", path.display());
        assert!(owners.insert((reader.header().identity.pid, reader.header().identity.start)));
        if Some(&path) == journal.path().as_ref() {
            assert_eq!(reader.header().counters.events, 1 + u64::from(count));
            assert_eq!(reader.header().turned_off, None);
        } else {
            assert_eq!(reader.header().identity.parent, std::process::id());
            assert_eq!(reader.header().counters.events, 1);
        }
    }
    assert_eq!(owners.len(), count as usize + 1);
    std::fs::remove_dir_all(&dir).unwrap();
    println!("ok: {count} fork children, each with its own journal");
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|word| word == "child") {
        child(&args[1..]);
        return ExitCode::SUCCESS;
    }
    let number = |name: &str, usual: u64| std::env::var(name).map_or(usual, |text| text.parse().expect(name));
    let kills = number("WEIR_KILLS", 300);
    let mut dice = number("WEIR_SEED", 4711) | 1;
    let mut failed = false;
    for (death, count) in [("kill", kills), ("segfault", 12), ("abort", 12), ("handler", 12), ("exit", 12)] {
        let tally = deaths(death, count, death, 0, &mut dice);
        println!(
            "{}: {} deaths by {death}: {} calls in flight, {} events read, {} records not finished, {} wrong",
            if tally.failures.is_empty() { "ok" } else { "FAILED" },
            tally.runs,
            tally.in_flight,
            tally.events,
            tally.torn,
            tally.failures.len()
        );
        for failure in tally.failures.iter().take(5) {
            println!("  {failure}");
            failed = true;
        }
    }
    forks(number("WEIR_FORKS", 1000) as u32);
    #[cfg(feature = "fault-injection")]
    for fault in [fault::Fault::Pending, fault::Fault::Freeing] {
        let tally = deaths("fault", 200, "kill", fault as u32, &mut dice);
        println!("without {fault:?}: {} of {} kills noticed", tally.failures.len(), tally.runs);
        failed |= tally.failures.is_empty();
    }
    ExitCode::from(u8::from(failed))
}

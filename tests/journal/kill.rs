//! `journal-kill [--kills N] [--others N] [--seed S] [--keep] [--until-wrong] [--without-pool]`: jobs under libweir.so on the
//! virtual GPU die in every way there is, at random instants. Afterwards each journal must say what two witnesses say: the virtual GPU's own log of calls, and a
//! mapped file in which the job writes down what it is about to do and what it holds.
//!
//! A call may be cut short by the death, one a thread. The journal must then have reported it as in flight, where the
//! driver was called; a request that the pool answers by itself is recorded in one go, or not at all.
//!
//! The program starts itself as the job. The suite `journal` sets the environment. `journal-kill show FILE` shows what is in a
//! journal as JSON, `journal-kill judge FOLDER` what is wrong with a kept run.
#![allow(clippy::pedantic, reason = "a test: it may panic, and reads better without the ceremony")]

#[path = "../pool/api.rs"]
mod api;
mod dying;

use api::{Api, OK, OUT_OF_MEMORY, context_on, ok};
use dying::{dies, map_truth, unmap};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use weir_cuda::*;
use weir_journal::reader::{FlightOf, Reader, Slot};
use weir_journal::{Class, Kind, LiveEntry};
use weir_tests::rng::Rng;

const THREADS: usize = 8;
const SLOTS: usize = 24;
/// Words of one thread: id, intent, its slot, its size and sort; then for each slot an address and a size and sort.
const THREAD_WORDS: usize = 4 + 2 * SLOTS;
const ALLOC: u64 = 1;
const FREE: u64 = 2;

/// What a slot holds. The sort lies above the size.
const SORTS: [Sort; 5] = [Sort::Plain, Sort::Ordered, Sort::Managed, Sort::Host, Sort::Physical];
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Plain,
    Ordered,
    Managed,
    Host,
    Physical,
}

fn pack(sort: Sort, size: u64) -> u64 {
    size | (sort as u64) << 56
}

fn unpack(word: u64) -> (Sort, u64) {
    (SORTS[(word >> 56) as usize], word & ((1 << 56) - 1))
}

const TRUTH_WORDS: usize = 1 + THREADS * THREAD_WORDS;

// ---- the job

struct Worker {
    api: &'static Api,
    stream: CUstream,
    dice: Rng,
}

impl Worker {
    fn take(&self, sort: Sort, size: u64) -> Option<u64> {
        let (mut ptr, mut host) = (0, null_mut());
        let bytes = size as usize;
        // SAFETY: every place is a live local.
        let result = unsafe {
            match sort {
                Sort::Plain => (self.api.cuMemAlloc_v2)(&raw mut ptr, bytes),
                Sort::Ordered => (self.api.cuMemAllocAsync)(&raw mut ptr, bytes, self.stream),
                Sort::Managed => (self.api.cuMemAllocManaged)(&raw mut ptr, bytes, 1),
                Sort::Host => {
                    let result = (self.api.cuMemHostAlloc)(&raw mut host, bytes, 0);
                    ptr = host as u64;
                    result
                }
                Sort::Physical => {
                    let properties = CUmemAllocationProp {
                        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
                        location: CUmemLocation::of(CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, 0),
                        ..CUmemAllocationProp::default()
                    };
                    (self.api.cuMemCreate)(&raw mut ptr, bytes, &raw const properties, 0)
                }
            }
        };
        assert!(result == OK || result == OUT_OF_MEMORY, "{sort:?} of {size}: {result:?}");
        (result == OK).then_some(ptr)
    }

    fn give(&self, sort: Sort, ptr: u64) {
        // SAFETY: live memory of this thread's own.
        ok(unsafe {
            match sort {
                Sort::Plain | Sort::Managed => (self.api.cuMemFree_v2)(ptr),
                Sort::Ordered => (self.api.cuMemFreeAsync)(ptr, self.stream),
                Sort::Host => (self.api.cuMemFreeHost)(ptr as *mut _),
                Sort::Physical => (self.api.cuMemRelease)(ptr),
            }
        });
    }

    fn work(mut self, truth: &[AtomicU64], thread: usize, death: &str) {
        let mine = &truth[1 + thread * THREAD_WORDS..][..THREAD_WORDS];
        // SAFETY: takes nothing and cannot fail.
        mine[0].store(unsafe { libc::gettid() } as u64, SeqCst);
        let dies_at = self.dice.below(2000) + 50;
        for step in 0.. {
            if thread == 0 && step == dies_at {
                die(death);
            }
            if self.dice.below(50) == 0 {
                // SAFETY: takes nothing.
                ok(unsafe { (self.api.cuCtxSynchronize)() });
            }
            let slot = self.dice.below(SLOTS as u64) as usize;
            let (address, what) = (&mine[4 + 2 * slot], &mine[5 + 2 * slot]);
            mine[2].store(slot as u64, SeqCst);
            let held = address.load(SeqCst);
            if held == 0 {
                let sort = match self.dice.below(20) {
                    0 => Sort::Managed,
                    1 => Sort::Host,
                    2 => Sort::Physical,
                    n if n < 11 => Sort::Plain,
                    _ => Sort::Ordered,
                };
                // Every size is another one, so that nothing passes for something else.
                let size = match sort {
                    Sort::Physical => (self.dice.below(3) + 1) << 21,
                    _ => (256 << self.dice.below(14)) + self.dice.below(256),
                };
                mine[3].store(pack(sort, size), SeqCst);
                mine[1].store(ALLOC, SeqCst);
                if let Some(ptr) = self.take(sort, size) {
                    what.store(pack(sort, size), SeqCst);
                    address.store(ptr, SeqCst);
                }
            } else {
                mine[1].store(FREE, SeqCst);
                self.give(unpack(what.load(SeqCst)).0, held);
                address.store(0, SeqCst);
            }
            mine[1].store(0, SeqCst);
        }
    }
}

fn die(death: &str) {
    match death {
        // SAFETY: a store to where nothing is mapped is the purpose here.
        "segfault" => unsafe { null_mut::<u8>().wrapping_add(8).write_volatile(1) },
        "abort" => std::process::abort(),
        // SAFETY: the handler only calls _exit, which is allowed in a handler.
        "handler" => unsafe { _ = libc::raise(libc::SIGUSR1) },
        "exit" => std::process::exit(0),
        _ => {}
    }
}

extern "C" fn exit_now(_: i32) {
    // SAFETY: may be called in a signal handler and does not return.
    unsafe { libc::_exit(3) }
}

fn job(truth: &str, threads: usize, seed: u64, death: &str) {
    // SAFETY: the handler only calls _exit.
    unsafe { libc::signal(libc::SIGUSR1, exit_now as *const () as libc::sighandler_t) };
    let api = Api::load();
    let truth = map_truth(Path::new(truth), TRUTH_WORDS);
    let worker = move |thread: usize| {
        context_on(api, 0);
        let mut stream = null_mut();
        // SAFETY: the place is a live local.
        ok(unsafe { (api.cuStreamCreate)(&raw mut stream, 1) });
        Worker { api, stream, dice: Rng::new(seed * 16 + thread as u64) }
    };
    let first = worker(0);
    truth[0].store(1, SeqCst);
    for thread in 1..threads {
        let death = death.to_owned();
        std::thread::spawn(move || worker(thread).work(truth, thread, &death));
    }
    first.work(truth, 0, death);
}

// ---- the judge

fn number(value: &serde_json::Value) -> u64 {
    match value {
        serde_json::Value::String(text) => u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or(0),
        value => value.as_u64().unwrap_or(0),
    }
}

/// Memory by whether it is a handle, and its address or handle.
type Key = (bool, u64);

/// What the virtual GPU says that the job holds on the device, and the sizes that each ever had. The log does not show
/// where host memory came to lie. The order of lines is not that of the calls, so allocations and frees of an address
/// are counted, and which of its sizes was the last is for the other witness to say.
fn witness(trace: &Path) -> HashMap<Key, Vec<u64>> {
    let mut counts: HashMap<Key, (i64, Vec<u64>)> = HashMap::new();
    for line in std::fs::read_to_string(trace).unwrap_or_default().lines() {
        let Ok(call) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        if call["result"] != "CUDA_SUCCESS" {
            continue;
        }
        let arg = |name: &str| number(&call["args"][name]);
        let (key, size) = match call["fn"].as_str().unwrap_or_default() {
            "cuMemAlloc_v2" | "cuMemAllocManaged" | "cuMemAllocAsync" => ((false, arg("*dptr")), arg("bytesize")),
            "cuMemCreate" => ((true, arg("*handle")), arg("size")),
            "cuMemFree_v2" | "cuMemFreeAsync" => ((false, arg("dptr")), 0),
            "cuMemRelease" => ((true, arg("handle")), 0),
            _ => continue,
        };
        let entry = counts.entry(key).or_default();
        entry.0 += if size > 0 { 1 } else { -1 };
        entry.1.extend((size > 0).then_some(size));
    }
    counts.into_iter().filter(|(_, (count, _))| *count > 0).map(|(key, (_, sizes))| (key, sizes)).collect()
}

fn journal_in(dir: &Path) -> Option<PathBuf> {
    let mut paths = std::fs::read_dir(dir).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    paths.find(|path| path.extension().is_some_and(|end| end == "weir"))
}

/// The pool's handles, and the job's own, which count as device memory by their handle: no address is that small.
fn is_handle(entry: &LiveEntry) -> bool {
    entry.class == Class::Handle || entry.class == Class::Device && entry.address < 1 << 40
}

#[derive(Default)]
struct Tally {
    runs: u64,
    in_flight: u64,
    events: u64,
    torn: u64,
    live: u64,
    before: u64,
    failures: Vec<String>,
}

fn judge(dir: &Path, truth: &[AtomicU64], tally: &mut Tally) -> Result<(), String> {
    let Some(path) = journal_in(dir) else {
        // Killed before its first allocation.
        tally.before += 1;
        let busy = (0..THREADS).any(|thread| truth[1 + thread * THREAD_WORDS + 1].load(SeqCst) != 0);
        return if busy { Err("there is no journal".into()) } else { Ok(()) };
    };
    let say = |error: weir_journal::reader::Error| format!("{}: {error}", path.display());
    let reader = Reader::open(&path).map_err(say)?;
    let state = reader.state().map_err(say)?;
    if state.damaged != 0 || state.cut != 0 || reader.header().counters.live_overflow != 0 {
        return Err(format!("{} damaged, {} cut, {:?}", state.damaged, state.cut, reader.header().counters));
    }
    // First witness: the driver. Everything that it has handed out is live in the journal, and nothing else.
    let mut driver = witness(&dir.join("trace"));
    let mut held: HashMap<Key, &LiveEntry> = HashMap::new();
    let freeing = |wanted: &LiveEntry| {
        state.in_flight.iter().any(|flight| matches!(flight, FlightOf::Free(entry, _) if entry.birth == wanted.birth))
    };
    for entry in state.live.iter().filter(|entry| matches!(entry.class, Class::Handle | Class::Device | Class::Managed))
    {
        // Freed by one thread, and handed out to another before the first could say so.
        if let Some(other) = held.insert((is_handle(entry), entry.address), entry) {
            let stays = match (freeing(entry), freeing(other)) {
                (false, true) => entry,
                (true, false) => other,
                _ => return Err(format!("{entry:?} is live twice")),
            };
            held.insert((is_handle(stays), stays.address), stays);
        }
    }
    for (key, entry) in &held {
        match driver.remove(key) {
            // Freed, and handed out to another thread that could not write it down any more.
            Some(sizes) if freeing(entry) => {
                if !sizes.contains(&entry.allocated) || sizes.len() > 1 {
                    driver.insert(*key, sizes);
                }
            }
            Some(sizes) if sizes.contains(&entry.allocated) => {}
            None if freeing(entry) => {}
            found => return Err(format!("the driver says {found:?} of {entry:?}, in flight {:?}", state.in_flight)),
        }
    }
    for (key, sizes) in &driver {
        let explained = state.in_flight.iter().any(|flight| {
            let intent = flight.intent();
            intent.kind == Kind::Alloc && sizes.contains(&intent.requested)
        });
        // A free may have begun and not have reached the driver: then the driver still has what is listed as live.
        let still_there = held.get(key).is_some_and(|entry| freeing(entry) && sizes.contains(&entry.allocated));
        // Or it was freed, handed out again, and the new owner wrote the free down: only the log could not any more.
        let cut_short = (0..THREADS).any(|thread| {
            let words = &truth[1 + thread * THREAD_WORDS..][..THREAD_WORDS];
            let at = words[2].load(SeqCst) as usize;
            words[1].load(SeqCst) == FREE && words[4 + 2 * at].load(SeqCst) == key.1
        });
        if !explained && !still_there && !cut_short {
            return Err(format!("the driver has handed out {key:x?} of {sizes:?}, in flight {:?}", state.in_flight));
        }
    }
    // Second witness: the job.
    let mut jobs: BTreeMap<(u64, u64), Vec<&LiveEntry>> = BTreeMap::new();
    let own = |class: Class| matches!(class, Class::Block | Class::Device | Class::Managed | Class::Pinned);
    for entry in state.live.iter().filter(|entry| own(entry.class)) {
        jobs.entry((entry.address, entry.requested)).or_default().push(entry);
    }
    tally.live += jobs.len() as u64;
    let threads = || truth[1..].chunks(THREAD_WORDS).enumerate();
    let intent_of = |words: &[AtomicU64]| (words[1].load(SeqCst), words[2].load(SeqCst) as usize);
    // Calls that were cut short last: what one was giving back may be another's by now, and of the very same size.
    for cut_short in [false, true] {
        for (thread, words) in threads() {
            let (intent, at) = intent_of(words);
            for slot in (0..SLOTS).filter(|slot| (intent != 0 && at == *slot) == cut_short) {
                let address = words[4 + 2 * slot].load(SeqCst);
                let (sort, size) = unpack(words[5 + 2 * slot].load(SeqCst));
                let known = address != 0 && jobs.get_mut(&(address, size)).is_some_and(|list| list.pop().is_some());
                if address != 0 && !known && !cut_short {
                    let id = words[0].load(SeqCst);
                    return Err(format!(
                        "thread {thread} ({id}) holds {sort:?} {address:#x} of {size}, not in the journal"
                    ));
                }
            }
        }
    }
    for (_, words) in threads().filter(|(_, words)| intent_of(words).0 == ALLOC) {
        // One that the job did not see any more; whether the driver has more is the first witness's matter.
        let (id, (_, size)) = (words[0].load(SeqCst), unpack(words[3].load(SeqCst)));
        let is_it = |entry: &&LiveEntry| entry.requested == size && u64::from(entry.thread) == id;
        if let Some(list) = jobs.values_mut().find(|list| list.iter().any(is_it)) {
            list.pop();
        }
    }
    if let Some(entry) = jobs.values().flatten().next() {
        return Err(format!("the journal has {entry:?} from nowhere"));
    }
    tally.in_flight += state.in_flight.len() as u64;
    let mut last = None;
    for slot in reader.events() {
        match slot.map_err(say)? {
            Slot::Lost(loss) => tally.torn += loss.count,
            Slot::Event(event) => {
                if last.is_some_and(|last| event.seq <= last) {
                    return Err(format!("event {} comes after {last:?}", event.seq));
                }
                last = Some(event.seq);
                tally.events += 1;
            }
        }
    }
    let mut replay = reader.replay().map_err(say)?;
    while replay.back().map_err(say)?.is_some() {}
    if replay.position() == 0 && replay.missed() == 0 && replay.live().next().is_some() {
        return Err(format!("going back to the start leaves {:?}", replay.live().next()));
    }
    Ok(())
}

/// What a journal says.
fn show(path: &Path) -> Result<serde_json::Value, weir_journal::reader::Error> {
    let reader = Reader::open(path)?;
    let (header, state) = (reader.header(), reader.state()?);
    let (mut kinds, mut classes, mut torn, mut stacks) = (BTreeMap::new(), BTreeMap::new(), 0, 0);
    for slot in reader.events() {
        match slot? {
            Slot::Lost(loss) if loss.why == weir_journal::reader::Why::Lapped => {}
            Slot::Lost(loss) => torn += loss.count,
            Slot::Event(event) => {
                let name = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
                *kinds.entry(name(serde_json::to_value(event.kind).unwrap_or_default())).or_insert(0) += 1;
                *classes.entry(name(serde_json::to_value(event.class).unwrap_or_default())).or_insert(0) += 1;
                stacks += u64::from(event.by.stack != 0);
            }
        }
    }
    Ok(serde_json::json!({
        "pid": header.identity.pid, "parent": header.identity.parent, "clean_exit": header.clean_exit,
        "turned_off": header.turned_off, "truncated": header.truncated, "events": header.counters.events,
        "oom": {"seen": header.counters.oom_seen, "dumps": header.counters.oom_dumps},
        "live": state.live, "in_flight": state.in_flight.len(), "damaged": state.damaged, "kinds": kinds,
        "classes": classes, "torn": torn, "stacks": stacks, "modules": reader.modules()?.len(),
    }))
}

// ---- the executioner

fn start(dir: &Path, pool: bool, ring: &str, threads: usize, seed: u64, death: &str) -> Child {
    let me = std::env::current_exe().unwrap();
    Command::new(me)
        .args(["job", dir.join("truth").to_str().unwrap(), &threads.to_string(), &seed.to_string(), death])
        .env("LD_PRELOAD", std::env::var("JOURNAL_WEIR").expect("JOURNAL_WEIR: which library"))
        .env("WEIR_DIR", dir)
        .env("WEIR_RING", ring)
        .env("WEIR_POOL", if pool { "on" } else { "off" })
        .env("WEIR_OOM_TEXT", "off")
        .env("VGPU_TRACE", dir.join("trace"))
        .env("VGPU_MEM", "1GiB")
        .env("VGPU_BACKING", "none")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn deaths(
    scratch: &Path,
    count: u64,
    death: &str,
    dice: &mut Rng,
    [keep, until_wrong, without_pool]: [bool; 3],
) -> Tally {
    let mut tally = Tally::default();
    for run in 0..count {
        let _ = std::fs::remove_dir_all(scratch);
        std::fs::create_dir_all(scratch).unwrap();
        let threads = [1, 2, 8][run as usize % 3];
        let ring = ["64,1024", "16384,1024"][run as usize / 3 % 2];
        let pool = run / 6 % 2 == 0 && !without_pool;
        let seed = dice.below(1 << 40);
        let truth = map_truth(&scratch.join("truth"), TRUTH_WORDS);
        let child = start(scratch, pool, ring, threads, seed, death);
        let verdict =
            dies(child, truth, death, dice.below(12_000_000)).and_then(|()| judge(scratch, truth, &mut tally));
        if let Err(why) = verdict {
            tally.failures.push(format!("run {run}, {threads} threads, ring {ring}, pool {pool}, seed {seed}: {why}"));
            if keep {
                let place = scratch.with_extension(format!("{death}-{run}"));
                let _ = std::fs::rename(scratch, &place);
                println!("  kept {}", place.display());
            }
        }
        tally.runs += 1;
        // SAFETY: it was made for this run alone, and is not used after this.
        unsafe { unmap(truth) };
        if until_wrong && !tally.failures.is_empty() {
            break;
        }
    }
    let _ = std::fs::remove_dir_all(scratch);
    tally
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [word, truth, threads, seed, death] = &args[..]
        && word == "job"
    {
        job(truth, threads.parse().unwrap(), seed.parse().unwrap(), death);
        return ExitCode::SUCCESS;
    }
    if let [word, dir] = &args[..]
        && word == "judge"
    {
        let truth = map_truth(&Path::new(dir).join("truth"), TRUTH_WORDS);
        println!("{:?}", judge(Path::new(dir), truth, &mut Tally::default()));
        return ExitCode::SUCCESS;
    }
    if let [word, file] = &args[..]
        && word == "show"
    {
        return match show(Path::new(file)) {
            Ok(text) => {
                println!("{text}");
                ExitCode::SUCCESS
            }
            Err(why) => {
                println!("{why}");
                ExitCode::FAILURE
            }
        };
    }
    let value = |name: &str, usual: u64| {
        let place = args.iter().position(|arg| arg == name);
        place.and_then(|at| args.get(at + 1)).map_or(usual, |text| text.parse().expect("a number"))
    };
    let mut dice = Rng::new(value("--seed", 4711));
    let others = value("--others", 12);
    let how = ["--keep", "--until-wrong", "--without-pool"].map(|flag| args.iter().any(|arg| arg == flag));
    let scratch = std::env::temp_dir().join(format!("weir-journal-kill-{}", std::process::id()));
    let (mut passed, mut failed) = (0, 0);
    for (death, count) in [
        ("kill", value("--kills", 300)),
        ("segfault", others),
        ("abort", others),
        ("handler", others),
        ("exit", others),
    ] {
        let tally = deaths(&scratch, count, death, &mut dice, how);
        passed += tally.runs - tally.failures.len() as u64;
        failed += tally.failures.len();
        println!(
            "{}: {} deaths by {death}: {} live, {} calls in flight, {} before the first event, {} events read, {} not finished, {} wrong",
            if tally.failures.is_empty() { "ok" } else { "FAIL" },
            tally.runs,
            tally.live,
            tally.in_flight,
            tally.before,
            tally.events,
            tally.torn,
            tally.failures.len()
        );
        tally.failures.iter().take(5).for_each(|failure| println!("  {failure}"));
    }
    println!("{passed} passed, {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}

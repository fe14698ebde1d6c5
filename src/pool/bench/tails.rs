//! How long single calls take: hits, misses, and misses at the cap, of two threads at once; weir's pool, TensorFlow's BFC
//! under its one lock, and a driver call for every request, under the same load. Touches the clock only.
//!
//! Each thread has a stream of its own and holds about half of the capacity, in blocks of 4 KiB to 32 MiB that are replaced
//! at random. A request is a miss if the driver is called for it, and one at the cap if the device has less left than a
//! handle. Driver calls cost nothing, or what others published for an A100.

use crate::peers::{Bfc, Peer};
use std::cell::Cell;
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};
use weir_pool::sim::{COSTS, SimulatedDevice};
use weir_pool::{Backing, BackingError, Budget, Call, Config, Fence, Handle, PeerAccess, Pool, Request};

const CAPACITY: u64 = 2 << 30;
const HANDLE: u64 = 2 << 20;
/// Of the capacity, each of two threads holds so many thousandths.
const SHARE: u64 = 490;

thread_local! {
    /// Driver calls of this thread.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// A simulated device whose calls take their time, if they are to.
struct Priced {
    device: SimulatedDevice,
    costs: bool,
}

impl Priced {
    fn new(costs: bool) -> Self {
        Self { device: SimulatedDevice::new(CAPACITY), costs }
    }

    fn pay(&self, micros: f64) {
        CALLS.set(CALLS.get() + 1);
        if self.costs {
            let until = Instant::now() + Duration::from_nanos((micros * 1000.0) as u64);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        }
    }

    fn full(&self) -> bool {
        self.device.used() + HANDLE > CAPACITY
    }
}

fn handles(bytes: u64) -> f64 {
    (bytes as f64 / HANDLE as f64).max(1.0)
}

impl Backing for Priced {
    fn reserve(&self, bytes: u64, align: u64) -> Result<u64, BackingError> {
        self.device.reserve(bytes, align)
    }
    fn unreserve(&self, addr: u64, bytes: u64) -> Result<(), BackingError> {
        self.device.unreserve(addr, bytes)
    }
    fn create(&self, bytes: u64, budget: &Budget) -> Result<Handle, BackingError> {
        let handle = self.device.create(bytes, budget)?;
        self.pay(COSTS.create);
        Ok(handle)
    }
    fn release(&self, handle: Handle, bytes: u64) -> Result<(), BackingError> {
        self.pay(COSTS.release);
        self.device.release(handle, bytes)
    }
    fn map(&self, addr: u64, bytes: u64, handle: Handle) -> Result<(), BackingError> {
        self.pay(COSTS.map);
        self.device.map(addr, bytes, handle)
    }
    fn unmap(&self, addr: u64, bytes: u64) -> Result<(), BackingError> {
        self.pay(COSTS.unmap * handles(bytes));
        self.device.unmap(addr, bytes)
    }
    fn set_access(&self, addr: u64, bytes: u64, grants: &[PeerAccess]) -> Result<(), BackingError> {
        self.pay(COSTS.set_access * handles(bytes));
        self.device.set_access(addr, bytes, grants)
    }
    fn segment_alloc(&self, bytes: u64, budget: &Budget) -> Result<u64, BackingError> {
        self.pay(COSTS.alloc);
        self.device.segment_alloc(bytes, budget)
    }
    fn segment_free(&self, addr: u64, bytes: u64) -> Result<(), BackingError> {
        self.pay(COSTS.free);
        self.device.segment_free(addr, bytes)
    }
    fn fence_record(&self, stream: u64) -> Result<Fence, BackingError> {
        self.pay(0.0);
        self.device.fence_record(stream)
    }
    fn fence_query(&self, fence: Fence) -> Result<bool, BackingError> {
        self.device.fence_query(fence)
    }
    fn fence_wait(&self, stream: u64, fence: Fence) -> Result<(), BackingError> {
        self.device.fence_wait(stream, fence)
    }
    fn fence_drop(&self, fence: Fence) {
        self.device.fence_drop(fence);
    }
    fn synchronise(&self) -> Result<(), BackingError> {
        self.pay(0.0);
        self.device.synchronise()
    }
    fn quiesce(&self) -> Result<bool, BackingError> {
        self.pay(0.0);
        self.device.quiesce()
    }
    fn resume(&self) {
        self.device.resume();
    }
    fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), BackingError> {
        self.pay(0.0);
        self.device.copy(to, from, bytes)
    }
}

/// What kind of call it was.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Hit,
    Miss,
    AtTheCap,
    Free,
}

const CLASSES: [(Class, &str); 4] =
    [(Class::Hit, "hit"), (Class::Miss, "miss"), (Class::AtTheCap, "miss at the cap"), (Class::Free, "free")];

/// An allocator that two threads use.
trait Served: Sync {
    fn take(&self, stream: u64, bytes: u64) -> Option<u64>;
    fn give(&self, stream: u64, addr: u64, bytes: u64);
    fn full(&self) -> bool;
    fn waits(&self) {}
}

struct Weir {
    device: Priced,
    pool: Pool,
}

impl Served for Weir {
    fn take(&self, stream: u64, bytes: u64) -> Option<u64> {
        let request = Request { bytes, stream: Some(stream), context: 1, ..Request::default() };
        self.pool.allocate(&self.device, &request, &Budget::default()).ok().map(|block| block.addr)
    }
    fn give(&self, stream: u64, addr: u64, _: u64) {
        let _ = self.pool.free_async(addr, stream, 1, ());
    }
    fn full(&self) -> bool {
        self.device.full()
    }
    fn waits(&self) {
        let proof = self.pool.began(Call::ContextSync(1));
        self.device.device.finish();
        self.pool.ended(proof, true);
    }
}

impl Served for Mutex<Bfc> {
    fn take(&self, _: u64, bytes: u64) -> Option<u64> {
        self.lock().ok()?.allocate(bytes)
    }
    fn give(&self, _: u64, addr: u64, _: u64) {
        if let Ok(mut bfc) = self.lock() {
            bfc.free(addr);
        }
    }
    fn full(&self) -> bool {
        false
    }
}

impl Served for Priced {
    fn take(&self, _: u64, bytes: u64) -> Option<u64> {
        self.segment_alloc(bytes, &Budget::default()).ok()
    }
    fn give(&self, _: u64, addr: u64, bytes: u64) {
        let _ = self.segment_free(addr, bytes);
    }
    fn full(&self) -> bool {
        Priced::full(self)
    }
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 8
}

/// One thread's calls: what kind, and nanoseconds.
fn one(served: &dyn Served, stream: u64, calls: u64, together: &Barrier) -> Vec<(Class, u32)> {
    let mut state = stream * 77 + 1;
    let mut held: Vec<(u64, u64)> = Vec::new();
    let (mut live, mut times) = (0, Vec::with_capacity(calls as usize));
    together.wait();
    for number in 0..calls {
        let shift = 12 + random(&mut state) % 13;
        let bytes = (1 << shift) + random(&mut state) % (1 << shift);
        if live + bytes > CAPACITY / 1000 * SHARE && !held.is_empty() {
            let (addr, bytes) = held.swap_remove((random(&mut state) % held.len() as u64) as usize);
            let began = Instant::now();
            served.give(stream, addr, bytes);
            times.push((Class::Free, began.elapsed().as_nanos() as u32));
            live -= bytes;
            continue;
        }
        let (before, full) = (CALLS.get(), served.full());
        let began = Instant::now();
        let addr = served.take(stream, bytes);
        let nanos = began.elapsed().as_nanos() as u32;
        let class = match (CALLS.get() == before && addr.is_some(), full) {
            (true, _) => Class::Hit,
            (false, true) => Class::AtTheCap,
            (false, false) => Class::Miss,
        };
        times.push((class, nanos));
        if let Some(addr) = addr {
            held.push((addr, bytes));
            live += bytes;
        } else if let Some((addr, bytes)) = held.pop() {
            served.give(stream, addr, bytes);
            live -= bytes;
        }
        // The job fetches its loss.
        if number % 512 == 511 {
            served.waits();
        }
    }
    for (addr, bytes) in held {
        served.give(stream, addr, bytes);
    }
    times
}

/// Pairs of one small size, beside a thread that misses.
fn hits(
    served: &dyn Served,
    stream: u64,
    together: &Barrier,
    done: &std::sync::atomic::AtomicBool,
) -> Vec<(Class, u32)> {
    let mut times = Vec::with_capacity(1 << 22);
    let pair = |times: &mut Vec<(Class, u32)>| {
        let began = Instant::now();
        let addr = served.take(stream, 4096);
        times.push((Class::Hit, began.elapsed().as_nanos() as u32));
        if let Some(addr) = addr {
            served.give(stream, addr, 4096);
        }
    };
    (0..16).for_each(|_| pair(&mut times));
    times.clear();
    together.wait();
    while !done.load(std::sync::atomic::Ordering::Relaxed) && times.len() < times.capacity() {
        pair(&mut times);
    }
    times
}

fn print(allocator: &str, load: &str, costs: bool, mut times: Vec<(Class, u32)>) {
    times.sort_unstable_by_key(|(_, nanos)| *nanos);
    for (class, name) in CLASSES {
        let of: Vec<u32> = times.iter().filter(|(of, _)| *of == class).map(|(_, nanos)| *nanos).collect();
        let Some(max) = of.last() else { continue };
        let at = |part: f64| of.get((of.len() as f64 * part) as usize).copied().unwrap_or(*max);
        let slow = of.iter().filter(|nanos| **nanos > 1_000_000).count();
        println!(
            "{{\"bench\":\"tails\",\"allocator\":\"{allocator}\",\"load\":\"{load}\",\"driver_costs\":\"{}\",\"call\":\"{name}\",\"calls\":{},\"p50_ns\":{},\"p99_ns\":{},\"p99_99_ns\":{},\"max_ns\":{max},\"above_1ms\":{slow}}}",
            if costs { "a100" } else { "none" },
            of.len(),
            at(0.5),
            at(0.99),
            at(0.9999),
        );
    }
}

/// An allocator, if it could be made.
type Made = Option<Box<dyn Served>>;

/// Every allocator under both loads, with and without what driver calls cost.
pub(crate) fn all() {
    for costs in [false, true] {
        let calls = if costs { 8_000 } else { 40_000 };
        let weir = || {
            let device = Priced::new(costs);
            let config = Config { large_handle: HANDLE, ..Config::new(CAPACITY) };
            let pool = Pool::new(config, &device).ok()?;
            Some(Box::new(Weir { device, pool }) as Box<dyn Served>)
        };
        let makers: [(&str, &dyn Fn() -> Made); 3] = [
            ("weir", &weir),
            ("tensorflow_bfc", &|| Some(Box::new(Mutex::new(Bfc::new(CAPACITY))))),
            ("a driver call each", &|| Some(Box::new(Priced::new(costs)))),
        ];
        for (name, make) in makers {
            let Some(served) = make() else { continue };
            let (served, together) = (&*served, Barrier::new(2));
            let times = std::thread::scope(|scope| {
                let other = scope.spawn(|| one(served, 2, calls / 2, &together));
                let mut times = one(served, 1, calls / 2, &together);
                times.extend(other.join().unwrap_or_default());
                times
            });
            print(name, "two threads at the cap", costs, times);
            let Some(served) = make() else { continue };
            let (served, together) = (&*served, Barrier::new(2));
            let done = std::sync::atomic::AtomicBool::new(false);
            let times = std::thread::scope(|scope| {
                let other = scope.spawn(|| hits(served, 2, &together, &done));
                one(served, 1, calls / 4, &together);
                done.store(true, std::sync::atomic::Ordering::Relaxed);
                other.join().unwrap_or_default()
            });
            print(name, "pairs of 4 KiB beside a thread at the cap", costs, times);
        }
    }
}

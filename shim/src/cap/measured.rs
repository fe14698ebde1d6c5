//! Memory that only the driver can tell: what its own mempools hold in reserve, and what its graphs keep.
//!
//! Both are charged by the driver's figure, read again whenever it matters. A call that may let one grow reserves the
//! most that it could grow by, and the charge is corrected by what was really taken when it has returned. No lock is held
//! over such a call: others may be under way beside it.

use super::fences::Fence;
use super::watch::Change;
use super::{Caps, Device, Fact, PAGE, lock, on};
use crate::driver::graph_memory;
use crate::driver::guards::RelaxedCapture;
use crate::driver::real::{self, done};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::HashMap;
use weir_cuda::*;
use weir_ledger::{Category, DeviceId, Urgency};

/// The driver lets a mempool grow by so much at a time, where the device has it.
const GROWTH: u64 = 32 << 20;

/// A mempool of the driver's.
#[derive(Clone, Copy, Default)]
struct Reserve {
    ordinal: i32,
    charged: u64,
    /// Calls that may let it grow and have not returned. What they may take is reserved besides `charged`.
    growing: u32,
    /// The job has destroyed it, and the driver will be told once it holds nothing.
    destroyed: bool,
}

/// Work of a graph that may not have run: until then it may use memory that is free again in the order of submission.
struct Flight {
    /// The number of the call.
    call: u64,
    /// Its stream; work in one stream follows each other and shares memory.
    stream: u64,
    bytes: u64,
    /// `None`: the call has not returned.
    fence: Option<Fence>,
}

/// The graph memory of a device. Physically never more than `charged`.
#[derive(Default)]
struct Graphs {
    charged: u64,
    flights: Vec<Flight>,
    /// Calls so far.
    calls: u64,
}

impl Graphs {
    /// A call is about to be made that may need `bytes` until its work has run; its number.
    fn begin(&mut self, stream: u64, bytes: u64) -> u64 {
        self.calls += 1;
        self.flights.push(Flight { call: self.calls, stream, bytes, fence: None });
        self.calls
    }

    /// It has returned: its work is in flight, or there is none.
    fn end(&mut self, call: u64, fence: Option<Fence>) {
        match self.flights.iter_mut().find(|flight| flight.call == call) {
            Some(flight) if fence.is_some() => flight.fence = fence,
            _ => self.flights.retain(|flight| flight.call != call),
        }
    }

    /// Forgets what has run.
    fn land(&mut self, caps: &Caps) {
        self.flights.retain(|flight| flight.fence.is_none_or(|fence| !caps.linear.fences.passed(fence)));
    }

    /// Whether a call has not returned that may take memory: then what is charged for it may not be taken yet.
    fn growing(&self) -> bool {
        self.flights.iter().any(|flight| flight.fence.is_none())
    }

    /// The most bytes that all graphs may need together while a launch of `bytes` in `stream` runs. Work in one stream
    /// shares, but not for a call in another one that has not returned: that may come to the driver after this one, and
    /// then all of it runs beside.
    fn most(&self, used: u64, bytes: u64, stream: u64) -> u64 {
        let shares = self.flights.iter().all(|flight| flight.stream == stream || flight.fence.is_some());
        let beside = |flight: &&Flight| !shares || flight.stream != stream || flight.fence.is_none();
        let beside = self.flights.iter().filter(beside);
        beside.map(|flight| flight.bytes).fold(used.saturating_add(bytes), u64::saturating_add)
    }
}

/// What a graph may need on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Appetite {
    /// The device.
    pub(crate) ordinal: i32,
    /// Bytes of its allocation nodes together, whole chunks each.
    pub(crate) bytes: u64,
    /// Bytes that it frees and others have allocated.
    frees: u64,
}

/// What is charged by the driver's figures.
#[derive(Default)]
pub(crate) struct Measured {
    mempools: HashMap<u64, Reserve>,
    graphs: HashMap<i32, Graphs>,
    /// Instantiated graphs that allocate or free.
    execs: HashMap<u64, Vec<Appetite>>,
}

/// Mempools that the job has destroyed and the driver has not.
static DESTROYED: AtomicUsize = AtomicUsize::new(0);

fn reserved(pool: u64) -> Option<u64> {
    let _relaxed = RelaxedCapture::enter();
    let mut bytes = 0_u64;
    let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
    // SAFETY: the place is a live local of the attribute's type; the mempool is one that the job uses.
    done(unsafe { real::cuMemPoolGetAttribute(pool as CUmemoryPool, attribute, (&raw mut bytes).cast()) }).ok()?;
    Some(bytes)
}

impl Measured {
    /// Reads all figures of a device again; tells how many bytes came free.
    fn refresh(&mut self, caps: &Caps, (device, account): (&Device, DeviceId)) -> u64 {
        let mut free = 0;
        let mut correct = |charged: &mut u64, now: u64| {
            if now < *charged {
                caps.ledger.release(account, Category::Device, *charged - now);
                free += *charged - now;
            } else if now > *charged {
                caps.fact((device, account), Category::Device, now - *charged);
            }
            *charged = now;
        };
        for (handle, reserve) in self.mempools.iter_mut().filter(|(_, reserve)| reserve.ordinal == device.ordinal) {
            // What grows meanwhile is reserved by the call that lets it grow.
            if let Some(now) = reserved(*handle).filter(|now| reserve.growing == 0 || *now < reserve.charged) {
                correct(&mut reserve.charged, now);
            }
        }
        self.mempools.retain(|handle, reserve| !(reserve.destroyed && reserve.charged == 0 && bury(*handle)));
        if let Some(graphs) = self.graphs.get_mut(&device.ordinal) {
            graphs.land(caps);
            if !graphs.growing() {
                correct(&mut graphs.charged, graph_memory::reserved(device.ordinal));
            }
        }
        free
    }
}

/// The driver destroys a mempool that the job has destroyed and that holds nothing any more.
fn bury(pool: u64) -> bool {
    let _relaxed = RelaxedCapture::enter();
    // SAFETY: a mempool that the job has destroyed, so nobody uses it; the driver still knows it.
    let gone = done(unsafe { real::cuMemPoolDestroy(pool as CUmemoryPool) }).is_ok();
    if gone {
        DESTROYED.fetch_sub(1, Ordering::Relaxed);
    }
    gone
}

/// Reads the figures of a device again.
pub(crate) fn refresh(caps: &Caps, device: &Device) {
    caps.settle_all_frees();
    if let Some(account) = caps.account(device) {
        lock(&caps.measured).refresh(caps, (device, account));
    }
}

/// Reads the figures of the device with this number again.
pub(crate) fn refresh_at(ordinal: i32) {
    if let Some(caps) = on()
        && let Some(device) = caps.device(ordinal)
    {
        refresh(caps, device);
    }
}

/// What the driver keeps in its mempools and for graphs on a device.
pub(super) fn kept(caps: &Caps, device: &Device) -> u64 {
    let measured = lock(&caps.measured);
    let mempools = measured.mempools.iter().filter(|(_, reserve)| reserve.ordinal == device.ordinal);
    let graphs = if measured.graphs.contains_key(&device.ordinal) { graph_memory::reserved(device.ordinal) } else { 0 };
    mempools.filter_map(|(handle, _)| reserved(*handle)).fold(graphs, u64::saturating_add)
}

/// What `look` tells, if all that the driver keeps on a device in its mempools and for graphs is charged exactly, before
/// it and after it.
pub(super) fn while_exact<R>(caps: &Caps, device: &Device, look: impl FnOnce() -> R) -> Option<R> {
    let mut measured = lock(&caps.measured);
    let ordinal = device.ordinal;
    let mut exact = || {
        let mut mempools = measured.mempools.iter().filter(|(_, reserve)| reserve.ordinal == ordinal);
        mempools.all(|(handle, reserve)| reserve.growing == 0 && reserved(*handle) == Some(reserve.charged))
            && measured.graphs.get_mut(&ordinal).is_none_or(|graphs| {
                graphs.land(caps);
                graphs.flights.is_empty() && graphs.charged == graph_memory::reserved(ordinal)
            })
    };
    if !exact() {
        return None;
    }
    let seen = look();
    exact().then_some(seen)
}

/// Takes off the account what the driver has let go of, after making it let go of what it keeps for nobody. Waits for
/// nothing: what a stream has yet to come to stays charged. Tells how many bytes came free.
pub(crate) fn trim(caps: &Caps, device: &Device) -> u64 {
    let free = let_go(caps, device);
    // Only when the rest is as the driver says can what is left be told to be code.
    free + caps.account(device).map_or(0, |account| super::contexts::look_again(caps, (device, account)))
}

fn let_go(caps: &Caps, device: &Device) -> u64 {
    let free = caps.settle_all_frees();
    let Some(account) = caps.account(device) else { return free };
    let _change = Change::begin();
    let mut measured = lock(&caps.measured);
    if measured.mempools.is_empty() && measured.graphs.is_empty() {
        return free;
    }
    {
        let _relaxed = RelaxedCapture::enter();
        for (handle, _) in measured.mempools.iter().filter(|(_, reserve)| reserve.ordinal == device.ordinal) {
            // SAFETY: a mempool that the driver knows: it is destroyed under the lock.
            unsafe { real::cuMemPoolTrimTo(*handle as CUmemoryPool, 0) };
        }
        if measured.graphs.contains_key(&device.ordinal) {
            // SAFETY: takes a device's number.
            unsafe { real::cuDeviceGraphMemTrim(device.ordinal) };
            caps.around.happened(device.ordinal, Fact::GraphMemory);
        }
    }
    free + measured.refresh(caps, (device, account))
}

/// Whether more may come free of itself once the device has done its work.
pub(crate) fn may_shrink(caps: &Caps, device: &Device) -> bool {
    let measured = lock(&caps.measured);
    let held = |reserve: &Reserve| reserve.ordinal == device.ordinal && reserve.charged > 0;
    measured.mempools.values().any(held)
        || measured.graphs.get(&device.ordinal).is_some_and(|graphs| graphs.charged > 0)
        || caps.linear.any_leaving()
}

/// The device of a mempool: the one that it was made on, or whose default it is.
fn device_of(measured: &Measured, caps: &Caps, pool: u64) -> Option<i32> {
    if let Some(known) = measured.mempools.get(&pool) {
        return Some(known.ordinal);
    }
    caps.devices().iter().map(|device| device.ordinal).find(|ordinal| {
        let mut default: CUmemoryPool = core::ptr::null_mut();
        // SAFETY: the place is a live local.
        let found = unsafe { real::cuDeviceGetDefaultMemPool(&raw mut default, *ordinal) };
        done(found).is_ok() && default as u64 == pool
    })
}

/// The job made a mempool on a device.
pub(crate) fn mempool_made(pool: u64, ordinal: i32) {
    if let Some(caps) = on() {
        lock(&caps.measured).mempools.insert(pool, Reserve { ordinal, ..Reserve::default() });
    }
}

/// Whether the job has destroyed a mempool that the driver still knows.
pub(crate) fn is_destroyed(pool: u64) -> bool {
    DESTROYED.load(Ordering::Relaxed) > 0
        && on().is_some_and(|caps| lock(&caps.measured).mempools.get(&pool).is_some_and(|reserve| reserve.destroyed))
}

/// The mempool that is a device's default.
fn default_of(ordinal: i32) -> u64 {
    let mut default: CUmemoryPool = core::ptr::null_mut();
    // SAFETY: the place is a live local.
    unsafe { real::cuDeviceGetDefaultMemPool(&raw mut default, ordinal) };
    default as u64
}

/// The job destroys a mempool by `call`. Once the driver is told nobody can ask any more when the last of its memory
/// goes: so it is told at once only if nothing is left, and else when nothing is (see [`trim`]).
pub(crate) fn mempool_destroy(pool: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(caps) = on() else { return call() };
    let mut measured = lock(&caps.measured);
    let known = measured.mempools.get(&pool).copied();
    let Some((reserve, at)) = known.and_then(|reserve| Some((reserve, caps.at(reserve.ordinal)?))) else {
        return call();
    };
    if reserve.destroyed {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    }
    let _change = Change::begin();
    let ordinal = reserve.ordinal;
    let default = default_of(ordinal);
    let left = {
        let _relaxed = RelaxedCapture::enter();
        // SAFETY: the job's own mempool, which it is about to destroy.
        unsafe { real::cuMemPoolTrimTo(pool as CUmemoryPool, 0) };
        reserved(pool)
    };
    if pool == default || left.is_none_or(|left| left == 0) {
        let result = call();
        if result == CUresult::CUDA_SUCCESS {
            measured.mempools.remove(&pool);
            caps.ledger.release(at.1, Category::Device, reserve.charged);
        }
        return result;
    }
    let mut current: CUmemoryPool = core::ptr::null_mut();
    // SAFETY: the place is a live local; a mempool of the device itself takes the place of the one that goes.
    unsafe {
        if done(real::cuDeviceGetMemPool(&raw mut current, ordinal)).is_ok() && current as u64 == pool {
            real::cuDeviceSetMemPool(ordinal, default as CUmemoryPool);
        }
    }
    if let Some(reserve) = measured.mempools.get_mut(&pool) {
        reserve.destroyed = true;
        DESTROYED.fetch_add(1, Ordering::Relaxed);
    }
    measured.refresh(caps, at);
    CUresult::CUDA_SUCCESS
}

/// A stream-ordered allocation that the driver serves. `pool` is its mempool; `None` the device's current one.
///
/// # Safety
/// `place` is the caller's place for the address, written by `call` if it succeeds.
pub(crate) unsafe fn allocate(
    bytes: u64,
    pool: Option<u64>,
    ordinal: Option<i32>,
    place: *const CUdeviceptr,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let Some(caps) = on() else { return call() };
    let pool = pool.or_else(|| {
        let mut current: CUmemoryPool = core::ptr::null_mut();
        // SAFETY: the place is a live local.
        done(unsafe { real::cuDeviceGetMemPool(&raw mut current, ordinal?) }).ok().map(|()| current as u64)
    });
    if pool.is_some_and(is_destroyed) {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    }
    let known = pool.and_then(|pool| Some((pool, device_of(&lock(&caps.measured), caps, pool)?)));
    let at = known.and_then(|(pool, ordinal)| Some((pool, caps.at(ordinal)?)));
    let Some((pool, at)) = at.filter(|_| bytes > 0 && !place.is_null()) else { return call() };
    let most = bytes.next_multiple_of(PAGE).max(GROWTH);
    let reservation = match caps.admit(at, most, Category::Device, super::admit::urgency(bytes)) {
        Ok(reservation) => reservation,
        Err(code) => return code,
    };
    let _change = Change::begin();
    let fresh = Reserve { ordinal: at.0.ordinal, ..Reserve::default() };
    lock(&caps.measured).mempools.entry(pool).or_insert(fresh).growing += 1;
    let result = call();
    let mut measured = lock(&caps.measured);
    let now = reserved(pool);
    let mut grown = None;
    if let Some(reserve) = measured.mempools.get_mut(&pool) {
        reserve.growing -= 1;
        // Of what it holds now, what this call has not reserved is charged already, or reserved by calls beside it.
        let charged = reserve.charged;
        let most = charged.saturating_add(reservation.bytes());
        reserve.charged = now.map_or(most, |now| now.min(most));
        caps.ledger.release(at.1, Category::Device, charged.saturating_sub(reserve.charged));
        grown = Some(reserve.charged.saturating_sub(charged));
    }
    caps.settle(at, reservation, Category::Device, grown);
    drop(measured);
    if result == CUresult::CUDA_SUCCESS {
        let block =
            super::linear::Block { ordinal: at.0.ordinal, ctx: 0, bytes, category: Category::Device, mempool: pool };
        // SAFETY: after success the address is there.
        caps.linear.enter(unsafe { *place }, block);
    }
    result
}

/// What a graph may need, for each device; asked where it is charged or `recorded`.
pub(crate) fn appetite(graph: CUgraph, recorded: bool) -> Vec<Appetite> {
    let mut sum = Sum::default();
    if on().is_some() || recorded {
        sum.add(graph, 0);
    }
    sum.total()
}

/// The allocations and frees of a graph and its children.
#[derive(Default)]
struct Sum {
    allocated: HashMap<u64, (i32, u64)>,
    freed: Vec<u64>,
}

impl Sum {
    fn add(&mut self, graph: CUgraph, depth: u32) {
        let mut count = 0;
        // SAFETY: without a list only the number is told.
        let asked = unsafe { real::cuGraphGetNodes(graph, core::ptr::null_mut(), &raw mut count) };
        if done(asked).is_err() || count == 0 || depth > 16 {
            return;
        }
        let mut nodes = vec![core::ptr::null_mut(); count];
        // SAFETY: the list has the room that `count` says.
        if done(unsafe { real::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count) }).is_err() {
            return;
        }
        for node in nodes.into_iter().take(count) {
            self.add_node(node, depth);
        }
    }

    fn add_node(&mut self, node: CUgraphNode, depth: u32) {
        let mut kind = CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
        // SAFETY: a node of the job's graph, and a live local.
        unsafe { real::cuGraphNodeGetType(node, &raw mut kind) };
        if kind == CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC {
            let mut told = CUDA_MEM_ALLOC_NODE_PARAMS::default();
            // SAFETY: an allocation node, and a live local.
            if done(unsafe { real::cuGraphMemAllocNodeGetParams(node, &raw mut told) }).is_ok()
                && told.poolProps.location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE
            {
                let bytes = (told.bytesize as u64).next_multiple_of(PAGE);
                self.allocated.insert(told.dptr, (told.poolProps.location.id(), bytes));
            }
        } else if kind == CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_FREE {
            let mut dptr = 0;
            // SAFETY: a free node, and a live local.
            if done(unsafe { real::cuGraphMemFreeNodeGetParams(node, &raw mut dptr) }).is_ok() {
                self.freed.push(dptr);
            }
        } else if kind == CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH {
            let mut child = core::ptr::null_mut();
            // SAFETY: a child graph node, and a live local.
            if done(unsafe { real::cuGraphChildGraphNodeGetGraph(node, &raw mut child) }).is_ok() {
                self.add(child, depth + 1);
            }
        }
    }

    fn total(self) -> Vec<Appetite> {
        let mut sum: Vec<Appetite> = Vec::new();
        let mut enter = |ordinal: i32, bytes: u64, frees: u64| match sum.iter_mut().find(|a| a.ordinal == ordinal) {
            Some(known) => (known.bytes, known.frees) = (known.bytes + bytes, known.frees + frees),
            None => sum.push(Appetite { ordinal, bytes, frees }),
        };
        for (ordinal, bytes) in self.allocated.values() {
            enter(*ordinal, *bytes, 0);
        }
        for addr in self.freed.iter().filter(|addr| !self.allocated.contains_key(addr)) {
            if let Some((ordinal, bytes)) = graph_block(*addr) {
                enter(ordinal, 0, bytes);
            }
        }
        sum
    }
}

/// The device and the bytes of memory that a graph has allocated.
fn graph_block(addr: u64) -> Option<(i32, u64)> {
    let (mut start, mut size, mut ordinal) = (0, 0, 0_i32);
    let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    // SAFETY: all places are live locals of the right types; the driver judges the address.
    unsafe {
        done(real::cuMemGetAddressRange_v2(&raw mut start, &raw mut size, addr)).ok()?;
        done(real::cuPointerGetAttribute((&raw mut ordinal).cast(), attribute, addr)).ok()?;
    }
    Some((ordinal, (size as u64).next_multiple_of(PAGE)))
}

/// A graph that allocates or frees was instantiated.
pub(crate) fn instantiated(exec: u64, appetite: Vec<Appetite>) {
    if let Some(caps) = on().filter(|_| !appetite.is_empty()) {
        lock(&caps.measured).execs.insert(exec, appetite);
    }
}

/// An instantiated graph is gone.
pub(crate) fn exec_gone(exec: u64) {
    if let Some(caps) = on() {
        lock(&caps.measured).execs.remove(&exec);
    }
}

/// What an instantiated graph takes.
pub(crate) fn appetite_of(exec: u64) -> Vec<Appetite> {
    on().and_then(|caps| lock(&caps.measured).execs.get(&exec).cloned()).unwrap_or_default()
}

/// Room for a launch, charged to the graphs of its device before the call, and the number of the call. An error: what is
/// lacking.
fn make_way(caps: &Caps, at: (&Device, DeviceId), wanted: &Appetite, stream: u64, granted: u64) -> Result<u64, u64> {
    let mut measured = lock(&caps.measured);
    let graphs = measured.graphs.entry(wanted.ordinal).or_default();
    graphs.charged += granted;
    graphs.land(caps);
    let lacking = graphs.most(graph_memory::used(wanted.ordinal), wanted.bytes, stream).saturating_sub(graphs.charged);
    if lacking > 0 {
        match caps.admit_more(at, lacking, Category::Device) {
            Ok(reservation) => {
                graphs.charged += reservation.bytes();
                caps.ledger.commit(reservation);
            }
            Err(_) => return Err(lacking),
        }
    }
    Ok(graphs.begin(stream, wanted.bytes + wanted.frees))
}

/// The same, after making room and waiting for it if need be.
fn way_for(caps: &Caps, at: (&Device, DeviceId), wanted: &Appetite, stream: u64) -> Result<u64, CUresult> {
    let ask = |granted| make_way(caps, at, wanted, stream, granted);
    if let Ok(call) = ask(0) {
        return Ok(call);
    }
    for idle in [false, true] {
        caps.make_room(at.0, idle);
        if let Ok(call) = ask(0) {
            return Ok(call);
        }
    }
    let lacking = match ask(0) {
        Ok(call) => return Ok(call),
        Err(lacking) => lacking,
    };
    let reservation = caps.admit(at, lacking, Category::Device, Urgency::Normal)?;
    let granted = reservation.bytes();
    caps.ledger.commit(reservation);
    ask(granted).map_err(|_| {
        refresh(caps, at.0);
        CUresult::CUDA_ERROR_OUT_OF_MEMORY
    })
}

/// The call that a way was made for has returned: its work is in flight, or there is none.
fn landed(caps: &Caps, at: (&Device, DeviceId), call: u64, fence: Option<Fence>) {
    let mut measured = lock(&caps.measured);
    if let Some(graphs) = measured.graphs.get_mut(&at.0.ordinal) {
        graphs.end(call, fence);
    }
    measured.refresh(caps, at);
}

/// A name for a stream that no other stream has.
fn name_of(stream: CUstream, own: bool) -> u64 {
    static STRANGERS: AtomicUsize = AtomicUsize::new(0);
    let known = crate::driver::stream::find(stream, own).map(|(stream_ref, _)| stream_ref.id);
    known.unwrap_or_else(|| !(STRANGERS.fetch_add(1, Ordering::Relaxed) as u64))
}

/// A call that may take the memory of a graph's allocation nodes, in `stream`. `own`: stream 0 is the thread's own.
pub(crate) fn launch(appetite: &[Appetite], stream: CUstream, own: bool, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(caps) = on().filter(|_| !appetite.is_empty()) else { return call() };
    let name = name_of(stream, own);
    let _change = Change::begin();
    let mut held = Vec::new();
    let mut refused = None;
    for wanted in appetite {
        let Some(at) = caps.at(wanted.ordinal) else { continue };
        match way_for(caps, at, wanted, name) {
            Ok(call) => held.push((at, call)),
            Err(code) => refused = Some(code),
        }
        if refused.is_some() {
            break;
        }
    }
    let result = refused.unwrap_or_else(call);
    let runs = result == CUresult::CUDA_SUCCESS;
    for (at, call) in held {
        landed(caps, at, call, runs.then(|| caps.linear.fences.behind(stream, own)));
    }
    result
}

/// `cuMemFreeAsync` of what is no block of the books: memory that a graph has allocated is in use until the stream has
/// come to the free.
pub(super) fn free_in_order(
    caps: &Caps,
    addr: u64,
    stream: CUstream,
    own: bool,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let block = if lock(&caps.measured).graphs.is_empty() { None } else { graph_block(addr) };
    let Some((ordinal, bytes)) = block else { return call() };
    // Before the call: the driver takes it for unused from then on, and a launch beside it must not.
    let begin = |graphs: &mut Graphs| graphs.begin(name_of(stream, own), bytes);
    let number = lock(&caps.measured).graphs.get_mut(&ordinal).map(begin);
    let result = call();
    let Some(number) = number else { return result };
    let fence = (result == CUresult::CUDA_SUCCESS).then(|| caps.linear.fences.behind(stream, own));
    if let Some(graphs) = lock(&caps.measured).graphs.get_mut(&ordinal) {
        graphs.end(number, fence);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_ends_its_own_flight() {
        let mut graphs = Graphs::default();
        let (first, second) = (graphs.begin(1, 64), graphs.begin(1, 2));
        assert_eq!(graphs.most(8, 1, 1), 8 + 1 + 64 + 2, "neither has returned");
        graphs.end(second, Some(5));
        assert_eq!((graphs.most(8, 1, 1), graphs.most(8, 1, 3)), (8 + 1 + 64, 8 + 1 + 64 + 2));
        assert!(graphs.growing());
        graphs.end(first, None);
        assert_eq!((graphs.most(8, 1, 1), graphs.most(8, 1, 3)), (8 + 1, 8 + 1 + 2));
        assert!(!graphs.growing());
    }

    #[test]
    fn work_of_one_stream_does_not_share_for_a_call_in_another() {
        let mut graphs = Graphs::default();
        let before = graphs.begin(1, 64);
        graphs.end(before, Some(5));
        assert_eq!(graphs.most(8, 1, 1), 8 + 1, "they follow each other");
        let other = graphs.begin(2, 16);
        assert_eq!(graphs.most(8, 1, 1), 8 + 1 + 64 + 16, "the other one may run beside both");
        graphs.end(other, Some(6));
        assert_eq!(graphs.most(8, 1, 1), 8 + 1 + 16);
    }
}

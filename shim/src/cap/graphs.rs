//! The memory of graphs: what the driver keeps for their allocation nodes on a device, charged by the most that all graphs
//! can need together.
//!
//! The driver is queried without the lock ([`Snapshot`]), and what it answers counts only if nothing has changed meanwhile.

use super::fences::Fence;
use super::measured::{RETRIES, refresh};
use super::watch::Change;
use super::{CapDevice, Caps, PAGE, lock, on};
use crate::driver::graph_memory;
use crate::driver::real::{self, done};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::HashMap;
use weir_cuda::*;
use weir_ledger::{Category, DeviceId, Urgency};

/// Work of a graph that may not have run: until then it may use memory that is free again in the order of submission.
struct InFlight {
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
pub(super) struct Graphs {
    charged: u64,
    in_flight: Vec<InFlight>,
    /// Calls so far.
    calls: u64,
    /// Another one after each change of the charge and each call that begins or returns.
    stamp: u64,
}

/// What is to be found out of the driver without the lock.
pub(super) struct Snapshot {
    stamp: u64,
    /// Calls that have returned, and the fences behind their work.
    fences: Vec<(u64, Fence)>,
}

impl Snapshot {
    /// The calls whose work has run.
    fn completed(&self, caps: &Caps) -> Vec<u64> {
        let passed = |(_, fence): &&(u64, Fence)| caps.linear.fences.passed(*fence);
        self.fences.iter().filter(passed).map(|(call, _)| *call).collect()
    }
}

impl Graphs {
    /// A call is about to be made that may need `bytes` until its work has run; its number.
    fn begin(&mut self, stream: u64, bytes: u64) -> u64 {
        self.calls += 1;
        self.stamp += 1;
        self.in_flight.push(InFlight { call: self.calls, stream, bytes, fence: None });
        self.calls
    }

    /// It has returned: its work is in flight, or there is none.
    fn end(&mut self, call: u64, fence: Option<Fence>) {
        self.stamp += 1;
        match self.in_flight.iter_mut().find(|work| work.call == call) {
            Some(work) if fence.is_some() => work.fence = fence,
            _ => self.in_flight.retain(|work| work.call != call),
        }
    }

    /// What is to be found out of the driver.
    pub(super) fn snapshot(&self) -> Snapshot {
        let returned = |work: &InFlight| Some((work.call, work.fence?));
        Snapshot { stamp: self.stamp, fences: self.in_flight.iter().filter_map(returned).collect() }
    }

    /// Forgets calls whose work has run.
    fn forget(&mut self, completed: &[u64]) {
        self.in_flight.retain(|work| !completed.contains(&work.call));
    }

    /// What is charged.
    pub(super) fn charged(&self) -> u64 {
        self.charged
    }

    /// Whether the charge is `reserved`, the driver's figure, and nothing is in flight.
    pub(super) fn is_exact(&self, reserved: u64) -> bool {
        self.in_flight.is_empty() && self.charged == reserved
    }

    /// The driver has `reserved` so much. `Err`: something has changed since `snapshot`. Else what was charged before, if that
    /// was another amount.
    fn correct(&mut self, snapshot: &Snapshot, reserved: u64) -> Result<Option<u64>, ()> {
        if self.stamp != snapshot.stamp {
            return Err(());
        }
        if self.growing() || self.charged == reserved {
            return Ok(None);
        }
        self.stamp += 1;
        Ok(Some(std::mem::replace(&mut self.charged, reserved)))
    }

    /// Whether a call has not returned that may take memory: then what is charged for it may not be taken yet.
    fn growing(&self) -> bool {
        self.in_flight.iter().any(|work| work.fence.is_none())
    }

    /// The most bytes that all graphs may need together while a launch of `bytes` in `stream` runs. Work in one stream
    /// shares, but not for a call in another one that has not returned: that may come to the driver after this one, and
    /// then all of it runs beside.
    fn most(&self, used: u64, bytes: u64, stream: u64) -> u64 {
        let shares = self.in_flight.iter().all(|work| work.stream == stream || work.fence.is_some());
        let beside = |work: &&InFlight| !shares || work.stream != stream || work.fence.is_none();
        let beside = self.in_flight.iter().filter(beside);
        beside.map(|work| work.bytes).fold(used.saturating_add(bytes), u64::saturating_add)
    }
}

/// The device memory that a graph may need on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// The device.
    pub(crate) ordinal: i32,
    /// Bytes of its allocation nodes together, whole chunks each.
    pub(crate) bytes: u64,
    /// Bytes that it frees and others have allocated.
    frees: u64,
}

/// Corrects what is charged for the graphs of a device by the driver's figure. The bytes that came free, and whether the
/// figure is to be read again because something has changed meanwhile.
pub(super) fn correct(caps: &Caps, (device, account): (&CapDevice, DeviceId)) -> (u64, bool) {
    let snapshot = lock(&caps.measured).graphs.get(&device.ordinal).map(Graphs::snapshot);
    let Some(snapshot) = snapshot else { return (0, false) };
    let completed = snapshot.completed(caps);
    let reserved = graph_memory::reserved(device.ordinal);
    let mut measured = lock(&caps.measured);
    let Some(graphs) = measured.graphs.get_mut(&device.ordinal) else { return (0, false) };
    let again = graphs.stamp != snapshot.stamp;
    graphs.forget(&completed);
    match graphs.correct(&snapshot, reserved) {
        Ok(Some(before)) if before > reserved => {
            caps.ledger.release(account, Category::Device, before - reserved);
            (before - reserved, false)
        }
        Ok(Some(before)) => {
            let crossing = caps.ledger.charge(account, Category::Device, reserved - before);
            drop(measured);
            caps.warn(device, crossing);
            (0, false)
        }
        _ => (0, again),
    }
}

/// Whether all that the driver keeps for graphs on a device is charged exactly; the stamp of that moment.
pub(super) fn exact(caps: &Caps, ordinal: i32) -> Option<u64> {
    let snapshot = lock(&caps.measured).graphs.get(&ordinal).map(Graphs::snapshot);
    let Some(snapshot) = snapshot else { return Some(0) };
    let completed = snapshot.completed(caps);
    let reserved = graph_memory::reserved(ordinal);
    let mut measured = lock(&caps.measured);
    let graphs = measured.graphs.get_mut(&ordinal)?;
    graphs.forget(&completed);
    (graphs.stamp == snapshot.stamp && graphs.is_exact(reserved)).then_some(snapshot.stamp)
}

/// What a graph may need, for each device; read where it is charged or `recorded`.
pub(crate) fn needs_of(graph: CUgraph, recorded: bool) -> Vec<Need> {
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
        // SAFETY: without a list only the number is written.
        let counted = unsafe { real::cuGraphGetNodes(graph, core::ptr::null_mut(), &raw mut count) };
        if done(counted).is_err() || count == 0 || depth > 16 {
            return;
        }
        let mut nodes = vec![core::ptr::null_mut(); count];
        // SAFETY: the list has room for `count`.
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
            let mut parameters = CUDA_MEM_ALLOC_NODE_PARAMS::default();
            // SAFETY: an allocation node, and a live local.
            if done(unsafe { real::cuGraphMemAllocNodeGetParams(node, &raw mut parameters) }).is_ok()
                && parameters.poolProps.location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE
            {
                let bytes = (parameters.bytesize as u64).next_multiple_of(PAGE);
                self.allocated.insert(parameters.dptr, (parameters.poolProps.location.id(), bytes));
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

    fn total(self) -> Vec<Need> {
        let mut sum: Vec<Need> = Vec::new();
        let mut enter = |ordinal: i32, bytes: u64, frees: u64| match sum.iter_mut().find(|a| a.ordinal == ordinal) {
            Some(known) => (known.bytes, known.frees) = (known.bytes + bytes, known.frees + frees),
            None => sum.push(Need { ordinal, bytes, frees }),
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
pub(crate) fn instantiated(exec: u64, needs: Vec<Need>) {
    if let Some(caps) = on().filter(|_| !needs.is_empty()) {
        lock(&caps.measured).execs.insert(exec, needs);
    }
}

/// An instantiated graph is about to go; what it takes.
pub(crate) fn exec_leaves(exec: u64) -> Vec<Need> {
    on().and_then(|caps| lock(&caps.measured).execs.remove(&exec)).unwrap_or_default()
}

/// What an instantiated graph takes.
pub(crate) fn needs_of_exec(exec: u64) -> Vec<Need> {
    on().and_then(|caps| lock(&caps.measured).execs.get(&exec).cloned()).unwrap_or_default()
}

/// Room for a launch, charged to the graphs of its device before the call, and the number of the call. An error: what is
/// lacking.
fn try_reserve(caps: &Caps, at: (&CapDevice, DeviceId), wanted: &Need, stream: u64, granted: u64) -> Result<u64, u64> {
    if granted > 0 {
        let mut measured = lock(&caps.measured);
        let graphs = measured.graphs.entry(wanted.ordinal).or_default();
        (graphs.charged, graphs.stamp) = (graphs.charged + granted, graphs.stamp + 1);
    }
    for _ in 0..RETRIES {
        let snapshot = lock(&caps.measured).graphs.entry(wanted.ordinal).or_default().snapshot();
        let completed = snapshot.completed(caps);
        let used = graph_memory::used(wanted.ordinal);
        let mut measured = lock(&caps.measured);
        let graphs = measured.graphs.entry(wanted.ordinal).or_default();
        if graphs.stamp != snapshot.stamp {
            // What is used may be more by now.
            continue;
        }
        graphs.forget(&completed);
        let lacking = graphs.most(used, wanted.bytes, stream).saturating_sub(graphs.charged);
        let mut crossing = None;
        if lacking > 0 {
            let Ok(grant) = caps.ledger.reserve(at.1, lacking, Category::Device, Urgency::Normal) else {
                return Err(lacking);
            };
            graphs.charged += grant.reservation.bytes();
            crossing = grant.crossed_mark;
            caps.ledger.commit(grant.reservation);
        }
        let call = graphs.begin(stream, wanted.bytes + wanted.frees);
        drop(measured);
        caps.warn(at.0, crossing);
        return Ok(call);
    }
    Err(wanted.bytes)
}

/// The same, after making room and waiting for it if need be.
fn reserve(caps: &Caps, at: (&CapDevice, DeviceId), wanted: &Need, stream: u64) -> Result<u64, CUresult> {
    let attempt = |granted| try_reserve(caps, at, wanted, stream, granted);
    if let Ok(call) = attempt(0) {
        return Ok(call);
    }
    for idle in [false, true] {
        caps.make_room(at.0, idle);
        if let Ok(call) = attempt(0) {
            return Ok(call);
        }
    }
    let lacking = match attempt(0) {
        Ok(call) => return Ok(call),
        Err(lacking) => lacking,
    };
    let reservation = caps.admit(at, lacking, Category::Device, Urgency::Normal)?;
    let granted = reservation.bytes();
    caps.ledger.commit(reservation);
    attempt(granted).map_err(|_| {
        refresh(caps, at.0);
        CUresult::CUDA_ERROR_OUT_OF_MEMORY
    })
}

/// The call that room was reserved for has returned: its work is in flight, or there is none.
fn returned(caps: &Caps, at: (&CapDevice, DeviceId), call: u64, fence: Option<Fence>) {
    if let Some(graphs) = lock(&caps.measured).graphs.get_mut(&at.0.ordinal) {
        graphs.end(call, fence);
    }
    refresh(caps, at.0);
}

/// A number for a stream that no other stream has.
fn key_of(stream: CUstream, own: bool) -> u64 {
    static UNKNOWN: AtomicUsize = AtomicUsize::new(0);
    let known = crate::driver::stream::find(stream, own).map(|(stream_ref, _)| stream_ref.id);
    known.unwrap_or_else(|| !(UNKNOWN.fetch_add(1, Ordering::Relaxed) as u64))
}

/// A call that may take the memory of a graph's allocation nodes, in `stream`. `own`: stream 0 is the thread's own.
pub(crate) fn launch(needs: &[Need], stream: CUstream, own: bool, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(caps) = on().filter(|_| !needs.is_empty()) else { return call() };
    let name = key_of(stream, own);
    let mut held = Vec::new();
    let mut refused = None;
    for wanted in needs {
        let Some(at) = caps.at(wanted.ordinal) else { continue };
        match reserve(caps, at, wanted, name) {
            Ok(call) => held.push((at, call)),
            Err(code) => refused = Some(code),
        }
        if refused.is_some() {
            break;
        }
    }
    // Not before: while room is made, what code takes is looked at again, and that needs a moment without a change.
    let _change = Change::begin();
    let result = refused.unwrap_or_else(call);
    let runs = result == CUresult::CUDA_SUCCESS;
    for (at, call) in held {
        returned(caps, at, call, runs.then(|| caps.linear.fences.behind(stream, own)));
    }
    result
}

/// `cuMemFreeAsync` of an address that is not in the table: memory that a graph has allocated is in use until the stream has
/// come to the free.
pub(super) fn free_in_order(
    caps: &Caps,
    addr: u64,
    stream: CUstream,
    own: bool,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let none = lock(&caps.measured).graphs.is_empty();
    let Some((ordinal, bytes)) = (if none { None } else { graph_block(addr) }) else { return call() };
    let name = key_of(stream, own);
    // Before the call: the driver takes it for unused from then on, and a launch beside it must not.
    let number = lock(&caps.measured).graphs.get_mut(&ordinal).map(|graphs| graphs.begin(name, bytes));
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
    fn each_call_ends_its_own_work() {
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

    #[test]
    fn a_figure_that_is_older_than_a_change_does_not_count() {
        let mut graphs = Graphs { charged: 64, ..Graphs::default() };
        let snapshot = graphs.snapshot();
        let call = graphs.begin(1, 8);
        assert_eq!(graphs.correct(&snapshot, 0), Err(()), "a call has begun");
        let snapshot = graphs.snapshot();
        assert_eq!(graphs.correct(&snapshot, 0), Ok(None), "it may take memory");
        graphs.end(call, None);
        assert_eq!(graphs.correct(&snapshot, 0), Err(()), "it has returned");
        let (one, other) = (graphs.snapshot(), graphs.snapshot());
        assert_eq!(graphs.correct(&one, 16), Ok(Some(64)));
        assert_eq!(graphs.correct(&other, 32), Err(()), "another thread was faster");
        assert_eq!(graphs.charged, 16);
    }
}

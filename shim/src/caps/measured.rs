//! Memory that only the driver can tell: what its own mempools hold in reserve, and what its graphs keep.
//!
//! Both are charged by the driver's figure, read again whenever it matters. A call that may let one grow reserves the
//! most that it could grow by, makes the call with the gate closed, and corrects the charge by what was really taken.

use super::{Caps, Device, PAGE, lock, on};
use crate::recorder;
use crate::served::quiet::Relaxed;
use crate::served::real::{self, done};
use std::collections::{HashMap, HashSet};
use weir_cuda::*;
use weir_ledger::{Category, DeviceId, Urgency};

/// The driver lets a mempool grow by so much at a time, where the device has it.
const GROWTH: u64 = 32 << 20;

#[derive(Clone, Copy, Default)]
struct Reserve {
    ordinal: i32,
    charged: u64,
    /// Live allocations.
    blocks: u64,
    /// The job has destroyed it: it can't be asked any more, and ends with its last allocation.
    destroyed: bool,
}

/// What is charged by the driver's figures. Its lock is the gate.
#[derive(Default)]
pub(crate) struct Measured {
    mempools: HashMap<u64, Reserve>,
    /// Bytes kept for graphs, for each device.
    graphs: HashMap<i32, u64>,
    /// Instantiated graphs that allocate: bytes for each device.
    execs: HashMap<u64, Vec<(i32, u64)>>,
    /// Streams in which such graphs were launched since the last time that all work was known to be done.
    streams: HashSet<u64>,
    /// Reserves of destroyed mempools whose last free may still be queued.
    leaving: HashMap<i32, u64>,
}

fn reserved(pool: u64) -> Option<u64> {
    let _relaxed = Relaxed::enter();
    let mut bytes = 0_u64;
    let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
    // SAFETY: the place is a live local of the attribute's type; the mempool is one that the job uses.
    done(unsafe { real::cuMemPoolGetAttribute(pool as CUmemoryPool, attribute, (&raw mut bytes).cast()) }).ok()?;
    Some(bytes)
}

fn graph_figure(ordinal: i32, attribute: CUgraphMem_attribute) -> Option<u64> {
    let _relaxed = Relaxed::enter();
    let mut bytes = 0_u64;
    // SAFETY: the place is a live local of the attribute's type.
    done(unsafe { real::cuDeviceGetGraphMemAttribute(ordinal, attribute, (&raw mut bytes).cast()) }).ok()?;
    Some(bytes)
}

/// What the driver keeps for the graphs of a device.
pub(crate) fn graph_reserved(ordinal: i32) -> u64 {
    graph_figure(ordinal, CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT).unwrap_or(0)
}

fn graph_used(ordinal: i32) -> u64 {
    graph_figure(ordinal, CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT).unwrap_or(0)
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
        for (handle, reserve) in &mut self.mempools {
            if reserve.ordinal == device.ordinal
                && !reserve.destroyed
                && let Some(now) = reserved(*handle)
            {
                correct(&mut reserve.charged, now);
            }
        }
        if let Some(charged) = self.graphs.get_mut(&device.ordinal) {
            correct(charged, graph_reserved(device.ordinal));
        }
        free
    }
}

/// Reads the figures of a device again.
pub(crate) fn refresh(caps: &Caps, device: &Device) {
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

/// Gives back what the driver keeps for nobody; `idle`: all work of the device is done.
pub(super) fn trim(caps: &Caps, device: &Device, idle: bool) -> u64 {
    let Some(account) = caps.account(device) else { return 0 };
    let mut measured = lock(&caps.measured);
    if measured.mempools.is_empty() && measured.graphs.is_empty() && measured.leaving.is_empty() {
        return 0;
    }
    let mut free = 0;
    {
        let _relaxed = Relaxed::enter();
        for (handle, reserve) in &measured.mempools {
            if reserve.ordinal == device.ordinal && !reserve.destroyed {
                // SAFETY: a mempool that the job has not destroyed.
                unsafe { real::cuMemPoolTrimTo(*handle as CUmemoryPool, 0) };
            }
        }
        if measured.graphs.contains_key(&device.ordinal) {
            // SAFETY: takes a device's number.
            unsafe { real::cuDeviceGraphMemTrim(device.ordinal) };
            recorder::graphs::changed(device.ordinal);
        }
    }
    if idle {
        measured.streams.clear();
        let left = measured.leaving.remove(&device.ordinal).unwrap_or(0);
        caps.ledger.release(account, Category::Device, left);
        free += left;
    }
    free + measured.refresh(caps, (device, account))
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

/// The job destroys a mempool: its reserve stays charged until the last of its blocks is provably gone.
pub(crate) fn mempool_destroyed(pool: u64) {
    let Some(caps) = on() else { return };
    let mut measured = lock(&caps.measured);
    let Some(reserve) = measured.mempools.get_mut(&pool) else { return };
    reserve.destroyed = true;
    let reserve = *reserve;
    if reserve.blocks == 0 {
        measured.mempools.remove(&pool);
        *measured.leaving.entry(reserve.ordinal).or_insert(0) += reserve.charged;
    }
}

/// A block of a mempool was freed.
pub(super) fn freed(caps: &Caps, pool: u64) {
    let mut measured = lock(&caps.measured);
    let Some(reserve) = measured.mempools.get_mut(&pool) else { return };
    reserve.blocks = reserve.blocks.saturating_sub(1);
    let reserve = *reserve;
    if reserve.destroyed && reserve.blocks == 0 {
        measured.mempools.remove(&pool);
        *measured.leaving.entry(reserve.ordinal).or_insert(0) += reserve.charged;
    }
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
    let known = pool.and_then(|pool| Some((pool, device_of(&lock(&caps.measured), caps, pool)?)));
    let at = known.and_then(|(pool, ordinal)| Some((pool, caps.at(ordinal)?)));
    let Some((pool, at)) = at.filter(|_| bytes > 0 && !place.is_null()) else { return call() };
    let most = bytes.next_multiple_of(PAGE).max(GROWTH);
    let reservation = match caps.admit(at, most, Category::Device, super::admit::urgency(bytes)) {
        Ok(reservation) => reservation,
        Err(code) => return code,
    };
    let mut measured = lock(&caps.measured);
    let fresh = Reserve { ordinal: at.0.ordinal, ..Reserve::default() };
    let before = *measured.mempools.entry(pool).or_insert(fresh);
    let shrunk = reserved(pool).unwrap_or(before.charged).min(before.charged);
    caps.ledger.release(at.1, Category::Device, before.charged - shrunk);
    let result = call();
    let now = reserved(pool).unwrap_or(shrunk);
    caps.settle(at, reservation, Category::Device, Some(now.saturating_sub(shrunk)));
    if let Some(reserve) = measured.mempools.get_mut(&pool) {
        reserve.charged = now.max(shrunk);
        reserve.blocks += u64::from(result == CUresult::CUDA_SUCCESS);
    }
    if result == CUresult::CUDA_SUCCESS {
        let block =
            super::linear::Block { ordinal: at.0.ordinal, ctx: 0, bytes, category: Category::Device, mempool: pool };
        // SAFETY: after success the address is there.
        caps.linear.enter(unsafe { *place }, block);
    }
    result
}

/// What the allocation nodes of a graph take together, for each device, whole portions each.
pub(crate) fn appetite(graph: CUgraph) -> Vec<(i32, u64)> {
    let mut sum = Vec::new();
    if on().is_some() || recorder::open().is_some() {
        add_up(graph, &mut sum, 0);
    }
    sum
}

fn add_up(graph: CUgraph, sum: &mut Vec<(i32, u64)>, depth: u32) {
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
        let mut kind = CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
        // SAFETY: a node of the job's graph, and a live local.
        unsafe { real::cuGraphNodeGetType(node, &raw mut kind) };
        if kind == CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC {
            let mut told = CUDA_MEM_ALLOC_NODE_PARAMS::default();
            // SAFETY: an allocation node, and a live local.
            if done(unsafe { real::cuGraphMemAllocNodeGetParams(node, &raw mut told) }).is_ok()
                && told.poolProps.location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE
            {
                let (ordinal, bytes) = (told.poolProps.location.id(), (told.bytesize as u64).next_multiple_of(PAGE));
                match sum.iter_mut().find(|(known, _)| *known == ordinal) {
                    Some((_, total)) => *total += bytes,
                    None => sum.push((ordinal, bytes)),
                }
            }
        } else if kind == CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH {
            let mut child = core::ptr::null_mut();
            // SAFETY: a child graph node, and a live local.
            if done(unsafe { real::cuGraphChildGraphNodeGetGraph(node, &raw mut child) }).is_ok() {
                add_up(child, sum, depth + 1);
            }
        }
    }
}

/// A graph that allocates was instantiated.
pub(crate) fn instantiated(exec: u64, appetite: Vec<(i32, u64)>) {
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
pub(crate) fn appetite_of(exec: u64) -> Vec<(i32, u64)> {
    on().and_then(|caps| lock(&caps.measured).execs.get(&exec).cloned()).unwrap_or_default()
}

/// A call that may take the memory of a graph's allocation nodes, in `stream`.
pub(crate) fn launch(appetite: &[(i32, u64)], stream: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(caps) = on().filter(|_| !appetite.is_empty()) else { return call() };
    let mut held = Vec::new();
    for (ordinal, bytes) in appetite {
        let Some(at) = caps.at(*ordinal) else { continue };
        // Launches in one stream follow each other and share; beside those of others there is nothing to share.
        let alone = {
            let mut measured = lock(&caps.measured);
            measured.streams.insert(stream);
            measured.streams.len() == 1
        };
        let lacking = |alone: bool| {
            let kept = if alone { graph_reserved(*ordinal).saturating_sub(graph_used(*ordinal)) } else { 0 };
            bytes.saturating_sub(kept)
        };
        let mut asked = caps.admit_more(at, lacking(alone), Category::Device);
        if asked.is_err() {
            // All work done, unused memory given back: then what is lacking is known exactly.
            let idle = caps.make_room(at.0, true);
            asked = caps.admit_more(at, lacking(idle || alone), Category::Device);
        }
        match asked.or_else(|_| caps.admit(at, lacking(false), Category::Device, Urgency::Normal)) {
            Ok(reservation) => held.push((at, reservation)),
            Err(code) => {
                for (_, reservation) in held {
                    caps.ledger.give_back(reservation);
                }
                return code;
            }
        }
    }
    let mut measured = lock(&caps.measured);
    let result = call();
    measured.streams.insert(stream);
    for (at, reservation) in held {
        let now = graph_reserved(at.0.ordinal);
        let charged = measured.graphs.entry(at.0.ordinal).or_insert(0);
        let before = std::mem::replace(charged, now);
        caps.settle(at, reservation, Category::Device, Some(now.saturating_sub(before)));
        caps.ledger.release(at.1, Category::Device, before.saturating_sub(now));
    }
    result
}

//! Memory of graphs. An allocation node has its address from the moment it is added; physical memory
//! is taken when a graph with it is launched, and stays with the device for later launches until it
//! is trimmed. Whether the bytes are there at a given moment is known when the work runs.

use super::{Step, Task};
use crate::engine::{Op, Point, Touch, Touches};
use crate::error::*;
use crate::heap::{PAGE, Use};
use crate::memory::{Extent, Kind};
use crate::state::State;
use std::collections::BTreeMap;

/// What an allocation node owns.
#[derive(Clone, Debug)]
pub(crate) struct Owned {
    pub(crate) device: usize,
    pub(crate) ctx: u64,
    pub(crate) size: u64,
    pub(crate) id: u64,
    /// The graph of the allocation node.
    owner: u64,
    /// The node and the executable graphs made of it.
    holders: u32,
    /// Graphs with a node that frees it.
    freed_in: Vec<u64>,
    /// Allocated by a launch, and nothing submitted since has freed it.
    pub(crate) unfreed: bool,
    /// The device has come to the allocation and not to the free.
    live: bool,
    /// The newest work that allocates or frees it.
    last: Option<Point>,
}

impl Owned {
    fn pages(&self) -> u64 {
        self.size.next_multiple_of(PAGE)
    }
}

/// Memory that work in flight still needs, though it is free again in the order of submission.
pub(crate) struct Flight {
    device: usize,
    point: Point,
    bytes: u64,
}

/// What a launch does to graph memory: decided before anything changes.
pub(crate) struct Plan {
    /// Unfreed allocations of an earlier launch, to be freed first.
    pub(crate) free_first: Vec<u64>,
    /// Per device: in use at most, in use at the end.
    bytes: BTreeMap<usize, (u64, u64)>,
}

impl State {
    /// An address for an allocation node of a graph.
    pub(crate) fn graph_memory_reserve(&mut self, graph: u64, ctx: u64, device: usize, size: u64) -> R<u64> {
        if size == 0 {
            return Err(INVALID_VALUE);
        }
        crate::pool::pools_supported()?;
        self.graph_memory_sweep();
        if size > self.devices[device].total.saturating_mul(4) {
            return Err(OUT_OF_MEMORY);
        }
        let id = self.fresh();
        // Whole pages of their own, and no context: charged and freed here, never by the heap.
        let addr = self.devices[device].heap.take(size.next_multiple_of(PAGE), (0, id, Use::Graph), |_| true)?;
        let owned = Owned {
            device,
            ctx,
            size,
            id,
            owner: graph,
            holders: 1,
            freed_in: Vec::new(),
            unfreed: false,
            live: false,
            last: None,
        };
        self.graphs.memory.insert(addr, owned);
        Ok(addr)
    }

    /// A free node for `addr` is added to a graph.
    pub(crate) fn graph_memory_add_free(&mut self, graph: u64, addr: u64) -> R {
        let owned = self.graphs.memory.get_mut(&addr).ok_or(INVALID_VALUE)?;
        let foreign = graph != owned.owner;
        let taken = if foreign { owned.freed_in.contains(&owned.owner) } else { !owned.freed_in.is_empty() };
        if taken || owned.freed_in.contains(&graph) {
            return Err(INVALID_VALUE);
        }
        owned.freed_in.push(graph);
        Ok(())
    }

    pub(crate) fn graph_memory_free_node_gone(&mut self, addr: u64, graph: u64) {
        if let Some(owned) = self.graphs.memory.get_mut(&addr) {
            owned.freed_in.retain(|&g| g != graph);
        }
    }

    /// An executable graph with the allocation node exists.
    pub(crate) fn graph_memory_hold(&mut self, addr: u64) {
        if let Some(owned) = self.graphs.memory.get_mut(&addr) {
            owned.holders += 1;
        }
    }

    /// The node, or an executable graph of it, is gone.
    pub(crate) fn graph_memory_let_go(&mut self, addr: u64) {
        if let Some(owned) = self.graphs.memory.get_mut(&addr) {
            owned.holders = owned.holders.saturating_sub(1);
        }
    }

    /// Gives back addresses that no node, no launch and no user needs.
    pub(crate) fn graph_memory_sweep(&mut self) {
        let engine = &self.engine;
        let over = |o: &Owned| o.holders == 0 && !o.unfreed && o.last.is_none_or(|p| engine.reached(p));
        let gone: Vec<(u64, usize)> =
            self.graphs.memory.iter().filter(|(_, o)| over(o)).map(|(&a, o)| (a, o.device)).collect();
        for (addr, device) in gone {
            self.graphs.memory.remove(&addr);
            self.devices[device].heap.give(addr);
        }
    }

    /// The graph allocation around an address.
    pub(crate) fn graph_extent(&self, addr: u64) -> Option<Extent> {
        let (addr, owned) = self.graph_around(addr)?;
        let (size, id, ctx, device) = (owned.size, owned.id, owned.ctx, Some(owned.device));
        Some(Extent { addr, size, id, ctx, device, kind: Kind::Linear })
    }

    /// The address and the owner of graph memory around an address.
    pub(crate) fn graph_around(&self, addr: u64) -> Option<(u64, &Owned)> {
        crate::space::around(&self.graphs.memory, addr, |o| o.size)
    }

    /// Whether graph memory is there at this moment of the device.
    pub(crate) fn graph_still(&self, touch: &Touch) -> Result<(), &'static str> {
        match self.graph_around(touch.addr) {
            Some((_, owned)) if owned.id == touch.id && owned.live => Ok(()),
            Some((_, owned)) if owned.id == touch.id => Err("its graph has not allocated it, or it is freed"),
            _ => Err("it belonged to a graph that is gone"),
        }
    }

    /// The device comes to an allocation or a free.
    pub(crate) fn graph_memory_ran(&mut self, ctx: u64, addr: u64, live: bool) {
        let Some(owned) = self.graphs.memory.get_mut(&addr) else { return };
        let was = std::mem::replace(&mut owned.live, live);
        if was == live {
            let what = if live { "allocated again before it was freed" } else { "freed before it was allocated" };
            let _ = self.violation(ctx, &format!("graph memory {addr:#x} is {what}: no order between the two"));
        }
    }

    /// Whether an address is that of a graph's allocation.
    pub(crate) fn graph_owned(&self, addr: u64) -> bool {
        self.graphs.memory.contains_key(&addr)
    }

    /// `cuMemFreeAsync` in a stream, or `cuMemFree`, of memory that a graph has allocated.
    pub(crate) fn graph_free(&mut self, addr: u64, stream: Option<u64>) -> R {
        let owned = self.graphs.memory.get(&addr).ok_or(INVALID_VALUE)?;
        if !owned.unfreed {
            return Err(INVALID_VALUE);
        }
        let (device, pages, id, ctx) = (owned.device, owned.pages(), owned.id, owned.ctx);
        if let Some(stream) = stream {
            self.refuse_unordered_free(ctx, addr, id, stream)?;
            let op = Op::GraphMemory { addr, live: false };
            let point = (stream, self.enqueue(stream, "cuMemFreeAsync", op, Touches::NONE)?);
            self.graphs.flights.push(Flight { device, point, bytes: pages });
            self.graph_memory_submitted(addr, false, point);
        } else if let Some(owned) = self.graphs.memory.get_mut(&addr) {
            (owned.unfreed, owned.live) = (false, false);
        }
        let memory = &mut self.devices[device].graph_memory;
        memory.used = memory.used.saturating_sub(pages);
        self.graph_memory_sweep();
        Ok(())
    }

    /// Everything that a context allocated with graphs goes with it; its work has been waited for.
    pub(crate) fn graph_memory_of_context_gone(&mut self, ctx: u64) {
        for device in 0..self.devices.len() {
            let gone = self.graphs.memory.values_mut().filter(|o| o.ctx == ctx && o.device == device && o.unfreed);
            let mut bytes = 0;
            for owned in gone {
                (owned.unfreed, owned.live) = (false, false);
                bytes += owned.pages();
            }
            let memory = &mut self.devices[device].graph_memory;
            memory.used = memory.used.saturating_sub(bytes);
            self.graph_memory_trim(device);
        }
        self.graph_memory_sweep();
    }

    fn graph_memory_submitted(&mut self, addr: u64, unfreed: bool, point: Point) {
        if let Some(owned) = self.graphs.memory.get_mut(&addr) {
            owned.unfreed = unfreed;
            owned.last = Some(point);
        }
    }

    /// What a launch of `steps`, in this order, means for graph memory.
    pub(crate) fn graph_memory_plan(&self, steps: &[Step], auto_free: bool) -> R<Plan> {
        let mut plan = Plan { free_first: Vec::new(), bytes: BTreeMap::new() };
        let mut used: BTreeMap<usize, u64> = BTreeMap::new();
        let mut unfreed: BTreeMap<u64, bool> = BTreeMap::new();
        let of = |device: usize| self.devices[device].graph_memory.used;
        for step in steps {
            let Task::Alloc(params) = &step.task else { continue };
            let owned = self.graphs.memory.get(&params.addr).ok_or(INVALID_VALUE)?;
            if !owned.unfreed {
                continue;
            }
            if !auto_free {
                return Err(INVALID_VALUE);
            }
            plan.free_first.push(params.addr);
            unfreed.insert(params.addr, false);
            let now = used.entry(owned.device).or_insert_with(|| of(owned.device));
            *now = now.saturating_sub(owned.pages());
        }
        for step in steps {
            let (addr, alloc) = match &step.task {
                Task::Alloc(params) => (params.addr, true),
                Task::Free(addr) => (*addr, false),
                _ => continue,
            };
            let owned = self.graphs.memory.get(&addr).ok_or(INVALID_VALUE)?;
            let state = unfreed.entry(addr).or_insert(owned.unfreed);
            if *state == alloc {
                return Err(INVALID_VALUE);
            }
            *state = alloc;
            let now = used.entry(owned.device).or_insert_with(|| of(owned.device));
            *now = if alloc { *now + owned.pages() } else { now.saturating_sub(owned.pages()) };
            if alloc && crate::call::oom_above(owned.size) {
                return Err(OUT_OF_MEMORY);
            }
            let (peak, end) = plan.bytes.entry(owned.device).or_insert((0, 0));
            *peak = (*peak).max(*now);
            *end = *now;
        }
        Ok(plan)
    }

    /// Takes the physical memory that a plan needs in `stream`, or nothing.
    pub(crate) fn graph_memory_take(&mut self, plan: &Plan, stream: u64) -> R {
        self.graph_memory_landed();
        let mut taken: Vec<(usize, u64)> = Vec::new();
        for (&device, &(peak, _)) in &plan.bytes {
            // Launches in the same stream follow each other and share; others run beside this one.
            let beside: u64 =
                self.graphs.flights.iter().filter(|f| f.device == device && f.point.0 != stream).map(|f| f.bytes).sum();
            let more = (peak + beside).saturating_sub(self.devices[device].graph_memory.reserved);
            if more > 0 && !self.devices[device].take(more) {
                for &(device, bytes) in &taken {
                    self.devices[device].give(bytes);
                    self.devices[device].graph_memory.reserved -= bytes;
                }
                return Err(OUT_OF_MEMORY);
            }
            self.devices[device].graph_memory.reserved += more;
            taken.push((device, more));
        }
        for (&device, &(peak, end)) in &plan.bytes {
            let memory = &mut self.devices[device].graph_memory;
            memory.used = end;
            memory.used_high = memory.used_high.max(peak);
            memory.reserved_high = memory.reserved_high.max(memory.reserved);
        }
        Ok(())
    }

    /// The launch with this plan ends at `point`.
    pub(crate) fn graph_memory_flies(&mut self, plan: &Plan, point: Point) {
        for (&device, &(peak, end)) in &plan.bytes {
            if peak > end {
                self.graphs.flights.push(Flight { device, point, bytes: peak - end });
            }
        }
    }

    /// Queues an allocation or a free of a launch.
    pub(crate) fn graph_memory_queue(&mut self, stream: u64, addr: u64, live: bool) -> R<u64> {
        let label = if live { "allocation node of cuGraphLaunch" } else { "free node of cuGraphLaunch" };
        let number = self.enqueue(stream, label, Op::GraphMemory { addr, live }, Touches::NONE)?;
        self.graph_memory_submitted(addr, live, (stream, number));
        Ok(number)
    }

    fn graph_memory_landed(&mut self) {
        let engine = &self.engine;
        self.graphs.flights.retain(|f| !engine.reached(f.point));
    }

    /// `cuDeviceGraphMemTrim`: what no graph uses or will use goes back to the device.
    pub(crate) fn graph_memory_trim(&mut self, device: usize) {
        self.graph_memory_landed();
        let flying: u64 = self.graphs.flights.iter().filter(|f| f.device == device).map(|f| f.bytes).sum();
        let memory = &mut self.devices[device].graph_memory;
        let idle = memory.reserved.saturating_sub(memory.used + flying);
        memory.reserved -= idle;
        self.devices[device].give(idle);
    }
}

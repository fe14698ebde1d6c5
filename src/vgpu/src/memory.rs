//! What an address means: the allocation around it, whether work may touch it, and whether it is
//! still the allocation that was meant. Also takes and frees linear memory.

use crate::config;
use crate::engine::{Clock, Touch};
use crate::error::*;
use crate::heap::{PAGE, Use};
use crate::pool::Stage;
use crate::space::{HostKind, Location, around};
use crate::state::State;
use crate::store::Protection;

/// What kind of memory an address is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Linear,
    Global,
    Pool(u64),
    Mapped(u64),
    Pinned,
    Registered,
    Managed,
    Import,
}

/// The allocation around an address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) addr: u64,
    pub(crate) size: u64,
    pub(crate) id: u64,
    pub(crate) ctx: u64,
    /// The device whose memory it is; none for host memory.
    pub(crate) device: Option<usize>,
    pub(crate) kind: Kind,
}

/// Who touches memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Toucher {
    /// A copy that the driver routes between devices itself.
    Copier,
    /// A copy or memset that a device executes.
    Engine(usize),
    /// A kernel of a context.
    Kernel(u64),
}

impl State {
    /// The device whose linear memory spans an address.
    pub(crate) fn heap_at(&self, addr: u64) -> Option<usize> {
        self.devices.iter().position(|d| d.heap.contains(addr))
    }

    /// The allocation around an address, if the driver knows one.
    pub(crate) fn extent(&self, addr: u64) -> Option<Extent> {
        if let Some(device) = self.heap_at(addr) {
            let block = self.devices[device].heap.holding(addr)?;
            let kind = match block.used_as {
                Use::Linear if block.leaving => return None,
                Use::Linear => Kind::Linear,
                Use::Global => Kind::Global,
                Use::Array => return None,
                Use::Graph => return self.graph_extent(addr),
                Use::Segment(pool) => {
                    let (start, piece) = self.pools.get(&pool)?.live_at(addr)?;
                    let (size, id, ctx) = (piece.size, piece.id, piece.ctx);
                    return Some(Extent { addr: start, size, id, ctx, device: Some(device), kind: Kind::Pool(pool) });
                }
            };
            return Some(Extent {
                addr: block.addr,
                size: block.size,
                id: block.id,
                ctx: block.ctx,
                device: Some(device),
                kind,
            });
        }
        if let Some((start, m)) = self.space.mapping(addr) {
            let device = match self.space.handles.get(&m.handle)?.location {
                Location::Device(d) => Some(d),
                Location::HostNuma(_) => None,
            };
            return Some(Extent { addr: start, size: m.size, id: m.id, ctx: 0, device, kind: Kind::Mapped(m.handle) });
        }
        if let Some((start, h)) = around(&self.space.host, addr, |h| h.size) {
            let kind = if h.kind == HostKind::Allocated { Kind::Pinned } else { Kind::Registered };
            return Some(Extent { addr: start, size: h.size, id: h.id, ctx: h.ctx, device: None, kind });
        }
        if let Some((start, m)) = around(&self.space.managed, addr, |m| m.size) {
            return Some(Extent { addr: start, size: m.size, id: m.id, ctx: m.ctx, device: None, kind: Kind::Managed });
        }
        let (start, i) = around(&self.space.imports, addr, |i| i.size)?;
        let device = Some(i.device);
        Some(Extent { addr: start, size: i.size, id: i.id, ctx: i.ctx, device, kind: Kind::Import })
    }

    /// Whether an address belongs to ranges that only the driver hands out.
    pub(crate) fn is_driver_range(&self, addr: u64) -> bool {
        self.heap_at(addr).is_some() || self.space.reserved(addr)
    }

    fn may(&self, extent: &Extent, at: u64, who: Toucher, write: bool) -> bool {
        let enough = |p: Protection| p == Protection::ReadWrite || (!write && p == Protection::Read);
        match (extent.kind, who) {
            _ if config::fault("access_without_setaccess") => true,
            (Kind::Mapped(_), Toucher::Engine(device)) if config::get().copies_need_access => {
                let any = config::fault("copy_without_access");
                self.space.mapping(at).is_some_and(|(_, m)| enough(if any { m.widest() } else { m.of(Some(device)) }))
            }
            (Kind::Mapped(_), Toucher::Copier | Toucher::Engine(_)) => {
                self.space.mapping(at).is_some_and(|(_, m)| enough(m.widest()))
            }
            (Kind::Mapped(_), Toucher::Kernel(ctx)) => {
                let device = self.contexts.get(&ctx).map(|c| c.device);
                self.space.mapping(at).is_some_and(|(_, m)| enough(m.of(device)))
            }
            (Kind::Pool(pool), Toucher::Kernel(ctx)) => {
                let device = self.contexts.get(&ctx).map_or(usize::MAX, |c| c.device);
                self.pools.get(&pool).is_some_and(|p| enough(p.access_of(device)))
            }
            (Kind::Linear | Kind::Global, Toucher::Kernel(ctx)) => {
                let Some(context) = self.contexts.get(&ctx) else { return false };
                extent.device == Some(context.device) || context.peers.contains(&extent.ctx)
            }
            _ => true,
        }
    }

    /// Adds what touching `len` bytes at `addr` means to `list`; refuses what is not there.
    pub(crate) fn touch(&self, list: &mut Vec<Touch>, addr: u64, len: u64, write: bool, who: Toucher) -> R {
        let end = addr.checked_add(len).ok_or(INVALID_VALUE)?;
        let mut at = addr;
        while at < end {
            let Some(extent) = self.extent(at) else {
                if config::fault("use_after_free") && self.is_driver_range(at) {
                    return Ok(());
                }
                // Pageable host memory: the driver cannot know it. A kernel cannot reach it.
                return if self.is_driver_range(at) || matches!(who, Toucher::Kernel(_)) {
                    Err(INVALID_VALUE)
                } else {
                    Ok(())
                };
            };
            if !self.may(&extent, at, who, write) {
                return Err(INVALID_VALUE);
            }
            let stop = end.min(extent.addr + extent.size);
            // Only mapped ranges may go on in their neighbour: elsewhere it is another allocation.
            if stop < end && !matches!(extent.kind, Kind::Mapped(_) | Kind::Registered | Kind::Pinned) {
                return Err(INVALID_VALUE);
            }
            list.push(Touch { addr: at, len: stop - at, write, id: extent.id });
            at = stop;
        }
        Ok(())
    }

    /// Whether the rights of mapped memory still let a context touch it; other memory has none to lose.
    pub(crate) fn mapping_allows(&self, ctx: u64, touch: &Touch) -> bool {
        let extent = self.extent(touch.addr).filter(|e| matches!(e.kind, Kind::Mapped(_)));
        extent.is_none_or(|e| self.may(&e, touch.addr, Toucher::Kernel(ctx), touch.write))
    }

    /// Whether a touch still means the allocation that it meant when it was submitted.
    pub(crate) fn still(&self, touch: &Touch) -> Result<(), &'static str> {
        if config::fault("use_after_free") {
            return Ok(());
        }
        if let Some(device) = self.heap_at(touch.addr)
            && let Some(block) = self.devices[device].heap.holding(touch.addr)
            && let Use::Segment(pool) = block.used_as
        {
            return match self.pools.get(&pool).and_then(|p| p.stage(touch.id)) {
                Some(Stage::Live | Stage::FreeQueued) => Ok(()),
                Some(Stage::Queued) => Err("its stream-ordered allocation has not happened yet"),
                None => Err("it was freed in stream order before"),
            };
        }
        if self.graph_around(touch.addr).is_some() {
            return self.graph_still(touch);
        }
        match self.extent(touch.addr) {
            None if self.hidden_bytes(touch) => Ok(()),
            None => Err("it was freed or unmapped meanwhile"),
            Some(extent) if extent.id != touch.id => Err("it was freed and handed out again meanwhile"),
            Some(_) => Ok(()),
        }
    }

    /// Bytes without an address for the job: those of arrays, and of blocks on their way out.
    fn hidden_bytes(&self, touch: &Touch) -> bool {
        self.heap_at(touch.addr)
            .and_then(|d| self.devices[d].heap.holding(touch.addr))
            .is_some_and(|b| (b.used_as == Use::Array || b.leaving) && b.id == touch.id)
    }

    /// Work on a stream-ordered allocation must come after it in stream order.
    pub(crate) fn require_ordered(&mut self, ctx: u64, touch: &Touch, clock: &Clock, label: &str) -> R {
        let Some(device) = self.heap_at(touch.addr) else { return Ok(()) };
        let Some(block) = self.devices[device].heap.holding(touch.addr) else { return Ok(()) };
        let Use::Segment(pool) = block.used_as else { return Ok(()) };
        let Some(piece) = self.pools.get(&pool).and_then(|p| p.piece(touch.id)) else { return Ok(()) };
        let (stream, number) = piece.born;
        let gone = !self.engine.streams.contains_key(&stream);
        if gone || clock.at(stream) >= number || config::fault("ignore_stream_order") {
            return Ok(());
        }
        let what = format!(
            "{label} uses {:#x}, allocated in stream {stream:#x}, from another stream without an order between them",
            touch.addr
        );
        self.violation(ctx, &what)
    }

    /// Bytes at an address were written.
    pub(crate) fn written(&mut self, addr: u64) {
        if let Some(device) = self.heap_at(addr) {
            self.devices[device].heap.written(addr);
        }
    }

    /// Linear memory of a device.
    pub(crate) fn take_linear(&mut self, ctx: u64, device: usize, size: u64, used_as: Use) -> R<u64> {
        if size > self.devices[device].total.saturating_mul(4) || crate::call::oom_above(size) {
            return Err(OUT_OF_MEMORY);
        }
        let id = self.fresh();
        let crate::device::Device { heap, meter, .. } = &mut self.devices[device];
        heap.take(size, (ctx, id, used_as), |bytes| meter.take(bytes))
    }

    /// Gives linear memory back.
    pub(crate) fn give_linear(&mut self, device: usize, addr: u64) {
        if let Some(freed) = self.devices[device].heap.give(addr)
            && freed > 0
        {
            self.devices[device].give(freed);
        }
    }

    /// Frees everything that a context allocated, when it is destroyed or reset.
    pub(crate) fn free_all_of(&mut self, ctx: u64) {
        for device in 0..self.devices.len() {
            let gone: Vec<u64> = self.devices[device]
                .heap
                .live()
                .filter(|b| b.ctx == ctx && !matches!(b.used_as, Use::Segment(_)))
                .map(|b| b.addr)
                .collect();
            for addr in gone {
                self.give_linear(device, addr);
            }
        }
        self.arrays.retain(|_, a| a.ctx != ctx);
        self.textures.retain(|_, t| t.ctx != ctx);
        let hosts: Vec<u64> = self.space.host.iter().filter(|(_, h)| h.ctx == ctx).map(|(&a, _)| a).collect();
        for addr in hosts {
            self.forget_host(addr);
        }
        let managed: Vec<u64> = self.space.managed.iter().filter(|(_, m)| m.ctx == ctx).map(|(&a, _)| a).collect();
        for addr in managed {
            self.free_managed(addr);
        }
        let imports: Vec<u64> = self.space.imports.iter().filter(|(_, i)| i.ctx == ctx).map(|(&a, _)| a).collect();
        for addr in imports {
            self.close_import(addr);
        }
    }

    /// Managed memory comes to the device that touches it, unless it prefers the host, where the device reaches it.
    pub(crate) fn attract(&mut self, addr: u64, device: usize) {
        let Some((_, m)) = around(&self.space.managed, addr, |m| m.size) else { return };
        if m.advice.preferred != -1 || m.resident.is_some() {
            self.migrate(addr, Some(device));
        }
    }

    /// Managed memory moves to a device as far as there is room, or back to the host.
    pub(crate) fn migrate(&mut self, addr: u64, to: Option<usize>) {
        let Some((start, m)) = around(&self.space.managed, addr, |m| m.size) else { return };
        let (size, resident) = (m.size.next_multiple_of(PAGE), m.resident);
        if let (Some((d, _)), Some(t)) = (resident, to)
            && d == t
        {
            return;
        }
        if let Some((device, bytes)) = resident {
            self.devices[device].give(bytes);
        }
        let now = to.and_then(|device| {
            let bytes = size.min(self.devices[device].free() / PAGE * PAGE);
            (bytes > 0 && self.devices[device].take(bytes)).then_some((device, bytes))
        });
        if let Some(m) = self.space.managed.get_mut(&start) {
            m.resident = now;
        }
    }
}

//! Meshing: two granules of small blocks whose live bytes don't collide share one handle. Pointers and
//! contents stay; the other handle comes free. Only with the device stopped, as the last resort.
//! Plans under the lock, copies and remaps without it.

use crate::Fault;
use crate::backing::{Backing, BackingError, Handle, PeerAccess};
use crate::block::{Block, DEVICE, Id, NIL, State};
use crate::config::UNIT_SHIFT;
use crate::core::{Core, LOST, SMALL};
use crate::fault::injected;
use crate::replace::{Place, Replaced};
use crate::stats::DriverCalls;

const WORDS: usize = 8;
const BITS: u32 = WORDS as u32 * 64;
/// Pairs tried per granule before it is left alone.
const TRIES: usize = 512;

/// Which parts of a granule hold live bytes.
type Occupied = [u64; WORDS];

/// Granules that share a handle. One that stands alone is about to be joined or was just left.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mesh {
    handle: Handle,
    members: Vec<u32>,
}

/// One granule moves its live bytes into another's handle.
pub(crate) struct Move {
    group: u32,
    from: u32,
    from_addr: u64,
    from_handle: Handle,
    to_handle: Handle,
    bytes: u64,
    copies: Vec<(u64, u64, u64)>,
    grants: Vec<PeerAccess>,
}

impl Move {
    pub(crate) fn run(&self, backing: &impl Backing, calls: &mut DriverCalls) -> Replaced {
        for (to, from, bytes) in &self.copies {
            calls.copy += 1;
            if backing.copy(*to, *from, *bytes).is_err() {
                return Replaced::No;
            }
        }
        let place = Place { addr: self.from_addr, bytes: self.bytes, grants: &self.grants };
        place.replace(backing, self.from_handle, self.to_handle, calls)
    }
}

/// A granule without live bytes leaves its group.
pub(crate) struct Leave {
    group: u32,
    index: u32,
    block: Id,
    addr: u64,
    bytes: u64,
}

impl Leave {
    pub(crate) fn run(&self, backing: &impl Backing) -> Result<(), BackingError> {
        backing.unmap(self.addr, self.bytes)
    }
}

impl Core {
    /// The block that covers the first unit of a granule.
    fn first_block(&self, index: u32) -> Id {
        let arena = &self.arenas[SMALL];
        let (start, end) = (index << arena.granule_shift, (index + 1) << arena.granule_shift);
        let mut id =
            arena.live_over(&self.blocks, start).or_else(|| arena.live_within(&self.blocks, start, end)).unwrap_or(NIL);
        while id != NIL && self.blocks.get(id).start > start {
            id = self.blocks.get(id).prev;
        }
        id
    }

    /// All blocks that touch a granule which holds at least one live block.
    fn blocks_of(&self, index: u32) -> Vec<Id> {
        let end = (index + 1) << self.arenas[SMALL].granule_shift;
        let first = self.first_block(index);
        std::iter::successors(Some(first), |id| Some(self.blocks.get(*id).next))
            .take_while(|id| *id != NIL && self.blocks.get(*id).start < end)
            .collect()
    }

    /// Where a granule's live bytes are, or `None` if it can't take part.
    fn occupied(&self, index: u32) -> Option<Occupied> {
        let arena = &self.arenas[SMALL];
        let granule = arena.granule(index);
        if granule.handle == 0 || granule.handle == LOST || (granule.pins > 0 && !injected(Fault::PinIgnored)) {
            return None;
        }
        let (start, units) = (index << arena.granule_shift, arena.granule_units());
        let step = units.div_ceil(BITS).max(1);
        let mut map = [0; WORDS];
        for id in self.blocks_of(index) {
            let block = self.blocks.get(id);
            match block.state {
                State::Free | State::Dead => {}
                State::Live => {
                    let from = block.start.max(start) - start;
                    let to = block.end().min(start + units) - start;
                    for bit in from / step..to.div_ceil(step) {
                        if let Some(word) = map.get_mut((bit / 64) as usize) {
                            *word |= 1 << (bit % 64);
                        }
                    }
                }
                _ => return None,
            }
        }
        Some(map)
    }

    /// Moves that free about `need` handles. The device is stopped and everything deferred is done.
    pub(crate) fn plan_mesh(&mut self, need: usize) -> Vec<Move> {
        self.flush_free_lists(self.arenas[SMALL].handle_class);
        let mut sparse: Vec<(u32, u32, Occupied)> = Vec::new();
        let arena = &self.arenas[SMALL];
        for index in 0..arena.granule_count() {
            let granule = arena.granule(index);
            let alone = granule.mesh == 0;
            if let Some(map) = self.occupied(index).filter(|map| alone && *map != [0; WORDS]) {
                sparse.push((map.iter().map(|word| word.count_ones()).sum(), index, map));
            }
        }
        sparse.sort_by_key(|(fill, index, _)| (*fill, *index));
        let mut taken = vec![false; sparse.len()];
        let mut moves = Vec::new();
        for at in 0..sparse.len() {
            if moves.len() >= need || taken.get(at).copied().unwrap_or(true) {
                continue;
            }
            let Some((_, host, mut map)) = sparse.get(at).copied() else { break };
            let mut group = 0;
            for (other, (_, guest, theirs)) in sparse.iter().enumerate().skip(at + 1).take(TRIES) {
                let collide = map.iter().zip(theirs).any(|(ours, theirs)| ours & theirs != 0);
                if taken.get(other).copied().unwrap_or(true) || (collide && !injected(Fault::MeshWithCollision)) {
                    continue;
                }
                if group == 0 {
                    group = self.new_group(host);
                }
                moves.push(self.plan_move(group, host, *guest));
                map.iter_mut().zip(theirs).for_each(|(ours, theirs)| *ours |= theirs);
                if let Some(flag) = taken.get_mut(other) {
                    *flag = true;
                }
                if moves.len() >= need {
                    break;
                }
            }
        }
        moves
    }

    fn new_group(&mut self, host: u32) -> u32 {
        let handle = self.arenas[SMALL].granule(host).handle;
        let mesh = Mesh { handle, members: vec![host] };
        let unused = self.meshes.iter().position(|mesh| mesh.members.is_empty());
        let at = unused.unwrap_or(self.meshes.len());
        if let Some(slot) = self.meshes.get_mut(at) {
            *slot = mesh;
        } else {
            self.meshes.push(mesh);
        }
        let group = at as u32 + 1;
        self.shroud(host, group);
        group
    }

    fn mesh_at(&mut self, group: u32) -> Option<&mut Mesh> {
        self.meshes.get_mut((group as usize).checked_sub(1)?)
    }

    /// Take the free bytes of a granule out of circulation.
    fn shroud(&mut self, index: u32, group: u32) {
        let shift = self.arenas[SMALL].granule_shift;
        let (start, end) = (index << shift, (index + 1) << shift);
        for id in self.blocks_of(index) {
            if self.blocks.get(id).state == State::Free {
                let piece = self.cut_out(id, start, end);
                self.blocks.at(piece).state = State::Dead;
            }
        }
        let arena = &mut self.arenas[SMALL];
        if let Some(granule) = arena.granule_at(index) {
            granule.mesh = group;
            arena.meshed += 1;
        }
    }

    fn plan_move(&mut self, group: u32, host: u32, guest: u32) -> Move {
        self.shroud(guest, group);
        let arena = &self.arenas[SMALL];
        let (start, end) = (guest << arena.granule_shift, (guest + 1) << arena.granule_shift);
        let host_addr = arena.addr_of(host << arena.granule_shift);
        let from_addr = arena.addr_of(start);
        let copies = self
            .blocks_of(guest)
            .into_iter()
            .map(|id| self.blocks.get(id))
            .filter(|block| block.state == State::Live)
            .map(|block| {
                let offset = u64::from(block.start.max(start) - start) << UNIT_SHIFT;
                let bytes = u64::from(block.end().min(end) - block.start.max(start)) << UNIT_SHIFT;
                (host_addr + offset, from_addr + offset, bytes)
            })
            .collect();
        Move {
            group,
            from: guest,
            from_addr,
            from_handle: arena.granule(guest).handle,
            to_handle: arena.granule(host).handle,
            bytes: arena.granule_bytes(),
            copies,
            grants: self.grants.clone(),
        }
    }

    /// Commit one move.
    pub(crate) fn finish_move(&mut self, plan: &Move, moved: &Replaced) {
        match moved {
            Replaced::Yes => {
                if let Some(granule) = self.arenas[SMALL].granule_at(plan.from) {
                    granule.handle = plan.to_handle;
                }
                if let Some(mesh) = self.mesh_at(plan.group) {
                    mesh.members.push(plan.from);
                }
                let class = self.arenas[SMALL].handle_class;
                self.spare[class].push(plan.from_handle);
                self.counters.meshes += 1;
            }
            Replaced::No => self.unshroud(plan.from),
            Replaced::Lost(_) => {
                if let Some(granule) = self.arenas[SMALL].granule_at(plan.from) {
                    granule.handle = LOST;
                }
                self.counters.lost_bytes += plan.bytes;
            }
        }
    }

    /// After all moves: a host that nobody joined stands on its own again.
    pub(crate) fn finish_mesh(&mut self) {
        for at in 0..self.meshes.len() {
            let alone = self.meshes.get(at).map(|mesh| mesh.members.clone()).filter(|members| members.len() == 1);
            if let Some(index) = alone.and_then(|members| members.first().copied()) {
                self.unshroud(index);
                if let Some(mesh) = self.meshes.get_mut(at) {
                    mesh.members.clear();
                }
            }
        }
        while self.meshes.last().is_some_and(|mesh| mesh.members.is_empty()) {
            self.meshes.pop();
        }
    }

    /// A granule has its handle to itself again: its dead bytes circulate once they are proven.
    fn unshroud(&mut self, index: u32) {
        let arena = &mut self.arenas[SMALL];
        let shift = arena.granule_shift;
        if let Some(granule) = arena.granule_at(index) {
            granule.mesh = 0;
            arena.meshed = arena.meshed.saturating_sub(1);
        }
        let (start, end) = (index << shift, (index + 1) << shift);
        let dead: Vec<Id> = self.dead_within(start, end);
        for id in dead {
            if self.blocks.get(id).state == State::Dead {
                let stamp = self.order.tick();
                self.defer(id, stamp);
            }
        }
        let stamp = self.order.now;
        self.arenas[SMALL].touch(start, end, stamp);
    }

    /// Dead blocks of a granule, which may hold no live block to find them by.
    fn dead_within(&self, start: u32, end: u32) -> Vec<Id> {
        (1..self.blocks.len())
            .filter(|id| {
                let block = self.blocks.get(*id);
                block.state == State::Dead
                    && usize::from(block.arena) == SMALL
                    && block.start >= start
                    && block.start < end
            })
            .collect()
    }

    /// A block is freed in an arena where granules share: what lies in such a granule stays out of circulation.
    pub(crate) fn free_among_meshed(&mut self, id: Id, domain: u16, safe: bool, stamp: u64) {
        let mut id = id;
        while id != NIL {
            let Block { start, .. } = *self.blocks.get(id);
            let arena = &self.arenas[SMALL];
            let border = ((start >> arena.granule_shift) + 1) << arena.granule_shift;
            let shared = arena.granule(start >> arena.granule_shift).mesh != 0;
            let end = self.blocks.get(id).end();
            let rest = if end > border { self.blocks.split(id, border - start) } else { NIL };
            if shared {
                let block = self.blocks.at(id);
                (block.state, block.stamp, block.domain) = (State::Dead, stamp, DEVICE);
            } else {
                self.retire(id, domain, safe, stamp);
            }
            id = rest;
        }
    }

    /// Granules of groups that hold no live bytes any more, and whose last work is proven done.
    pub(crate) fn plan_unmesh(&mut self) -> Option<Vec<Leave>> {
        if self.arenas[SMALL].meshed == 0 {
            return None;
        }
        let mut leaves = Vec::new();
        for at in 0..self.meshes.len() {
            for index in self.meshes.get(at).map(|mesh| mesh.members.clone()).unwrap_or_default() {
                let arena = &self.arenas[SMALL];
                let (start, end) = (index << arena.granule_shift, (index + 1) << arena.granule_shift);
                let granule = arena.granule(index);
                let live = arena.live_over(&self.blocks, start).is_some()
                    || arena.live_within(&self.blocks, start, end).is_some();
                if live || granule.stamp > self.order.device_done || granule.pins > 0 {
                    continue;
                }
                let (addr, bytes) = (arena.addr_of(start), arena.granule_bytes());
                let mut dead = self.dead_within(start, end);
                let units: u32 = dead.iter().map(|id| self.blocks.get(*id).len).sum();
                if units != end - start {
                    continue;
                }
                dead.sort_by_key(|id| self.blocks.get(*id).start);
                let block = dead.first().copied().unwrap_or(NIL);
                for id in dead.into_iter().skip(1) {
                    self.blocks.join(block, id);
                }
                self.blocks.at(block).state = State::Busy;
                leaves.push(Leave { group: at as u32 + 1, index, block, addr, bytes });
            }
        }
        (!leaves.is_empty()).then_some(leaves)
    }

    /// Commit one granule's leaving.
    pub(crate) fn finish_leave(&mut self, leave: &Leave, result: Result<(), BackingError>) {
        self.counters.calls.unmap += 1;
        if result.is_err() {
            // Still mapped, still shared; tried again after the next proof.
            let now = self.order.tick();
            self.blocks.at(leave.block).state = State::Dead;
            self.arenas[SMALL].touch(
                leave.index << self.arenas[SMALL].granule_shift,
                (leave.index + 1) << self.arenas[SMALL].granule_shift,
                now,
            );
            return;
        }
        let arena = &mut self.arenas[SMALL];
        if let Some(granule) = arena.granule_at(leave.index) {
            (granule.handle, granule.stamp, granule.mesh) = (0, 0, 0);
            arena.meshed = arena.meshed.saturating_sub(1);
        }
        let class = arena.handle_class;
        self.put_void(leave.block);
        if let Some(mesh) = self.mesh_at(leave.group) {
            mesh.members.retain(|index| *index != leave.index);
            if mesh.members.is_empty() {
                let handle = mesh.handle;
                self.spare[class].push(handle);
            }
        }
    }
}

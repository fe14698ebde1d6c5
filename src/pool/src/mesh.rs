//! Meshing: granules of small blocks whose live bytes don't collide share one handle. Pointers and
//! contents stay; the other handles come free. Only with the device stopped, as the last resort, and in
//! slices: one stop looks at a bounded number of granules and moves a bounded number of them.
//! Plans under the lock, copies and remaps without it.

use crate::Fault;
use crate::backing::{Backing, BackingError, Handle, PeerAccess};
use crate::block::{Block, DEVICE, Id, NIL, State};
use crate::config::UNIT_SHIFT;
use crate::core::{Core, LOST, SMALL, TINY};
use crate::fault::injected;
use crate::replace::{Place, Replaced};
use crate::stats::DriverCalls;

const WORDS: usize = 64;
const BITS: u32 = WORDS as u32 * 64;
/// Sparse granules of an arena that one stop looks at.
const GRANULES: usize = 512;
/// A granule with more blocks than this is not looked at: that two of them do not collide is next to impossible.
const MOST_BLOCKS: u32 = 256;
/// Pairs of granules that one stop compares, in each arena.
const PAIRS: usize = 1 << 14;
/// Granules that one stop moves.
pub(crate) const SLICE: usize = 32;
/// Where nothing could be meshed, it is tried again after so much of a granule was freed, as a divisor: at the cap every
/// request would stop the device else.
const BARREN: u64 = 8;
/// Free bits between live ones that are copied with them, where nothing of the others lies there: a call costs more.
const GAP: u32 = 128;

/// Which parts of a granule hold live bytes; a unit a bit, but for granules of more units than bits.
type Occupied = [u64; WORDS];

fn fill(map: &Occupied) -> u32 {
    map.iter().map(|word| word.count_ones()).sum()
}

/// Set the bits `from..to`, a word at a time.
fn mark(map: &mut Occupied, from: u32, to: u32) {
    for word in from / 64..to.div_ceil(64) {
        let low = u64::MAX << from.saturating_sub(word * 64);
        let high = u64::MAX >> (64 - (to - word * 64).min(64));
        if let Some(place) = map.get_mut(word as usize) {
            *place |= low & high;
        }
    }
}

fn has(map: &Occupied, bit: u32) -> bool {
    map.get((bit / 64) as usize).is_some_and(|word| word >> (bit % 64) & 1 == 1)
}

/// Runs of bits of `map`, joined over short gaps in which `others` has nothing.
fn runs(map: &Occupied, others: &Occupied) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    let bits = map.iter().zip(0_u32..).flat_map(|(word, at)| {
        let set = std::iter::successors(Some(*word), |left| Some(left & left.wrapping_sub(1)));
        set.take_while(|left| *left != 0).map(move |left| at * 64 + left.trailing_zeros())
    });
    for bit in bits {
        match runs.last_mut() {
            Some((_, end)) if bit - *end < GAP && !(*end..bit).any(|gap| has(others, gap)) => *end = bit + 1,
            _ => runs.push((bit, bit + 1)),
        }
    }
    runs
}

/// Granules of an arena that share a handle. One that stands alone is about to be joined or was just left.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mesh {
    arena: usize,
    handle: Handle,
    members: Vec<u32>,
}

/// Granules that others may join: a group, or a granule on its own (group 0).
struct Host {
    group: u32,
    index: u32,
    fill: u32,
    map: Occupied,
}

/// One granule moves its live bytes into another's handle.
pub(crate) struct Move {
    arena: usize,
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
    arena: usize,
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
    /// The block that covers a unit of an arena.
    fn covering(&self, arena: usize, unit: u32) -> Id {
        let mut id = self.arenas[arena].near(unit);
        if id == NIL {
            // Nothing of the arena is indexed: any of its blocks will do to begin with.
            let known = |id: &Id| {
                let block = self.blocks.get(*id);
                usize::from(block.arena) == arena && block.state != State::Unused
            };
            id = (1..self.blocks.len()).find(known).unwrap_or(NIL);
        }
        while id != NIL && self.blocks.get(id).start > unit {
            id = self.blocks.get(id).prev;
        }
        while id != NIL && self.blocks.get(id).end() <= unit {
            id = self.blocks.get(id).next;
        }
        id
    }

    /// All blocks that touch a granule.
    fn blocks_of(&self, arena: usize, index: u32) -> Vec<Id> {
        let (start, end) = self.arenas[arena].bounds(index);
        std::iter::successors(Some(self.covering(arena, start)), |id| Some(self.blocks.get(*id).next))
            .take_while(|id| *id != NIL && self.blocks.get(*id).start < end)
            .collect()
    }

    /// Where a granule's live bytes are, or `None` if it can't take part.
    fn occupied(&self, number: usize, index: u32) -> Option<Occupied> {
        let arena = &self.arenas[number];
        let granule = arena.granule(index);
        if granule.handle == 0 || granule.handle == LOST || (granule.pins > 0 && !injected(Fault::PinIgnored)) {
            return None;
        }
        let (start, end) = arena.bounds(index);
        let step = arena.granule_units().div_ceil(BITS).max(1);
        let mut map = [0; WORDS];
        for id in self.blocks_of(number, index) {
            let block = self.blocks.get(id);
            match block.state {
                State::Free | State::Dead => {}
                State::Live => {
                    let from = block.start.max(start) - start;
                    let to = block.end().min(end) - start;
                    mark(&mut map, from / step, to.div_ceil(step));
                }
                _ => return None,
            }
        }
        Some(map)
    }

    /// The sparsest granules of an arena that share with nobody, the sparsest first.
    fn sparse(&self, number: usize) -> Vec<Host> {
        let arena = &self.arenas[number];
        let mut few: Vec<(u32, u32)> = (0..arena.granule_count())
            .filter(|index| arena.granule(*index).mesh == 0 && !matches!(arena.granule(*index).handle, 0 | LOST))
            .map(|index| {
                let (start, end) = arena.bounds(index);
                (arena.starts_within(start, end), index)
            })
            .filter(|(blocks, _)| *blocks <= MOST_BLOCKS)
            .collect();
        few.sort_unstable();
        few.truncate(GRANULES);
        let hosts = few.into_iter().filter_map(|(_, index)| {
            let map = self.occupied(number, index).filter(|map| *map != [0; WORDS])?;
            Some(Host { group: 0, index, fill: fill(&map), map })
        });
        let mut hosts: Vec<Host> = hosts.collect();
        hosts.sort_by_key(|host| (host.fill, host.index));
        hosts
    }

    /// The groups of an arena that more granules may join, the fullest first.
    fn groups(&self, number: usize) -> Vec<Host> {
        let mut hosts = Vec::new();
        for (mesh, group) in self.meshes.iter().zip(1_u32..).filter(|(mesh, _)| mesh.arena == number) {
            let Some(index) = mesh.members.first().copied() else { continue };
            let members = if injected(Fault::GuestsForgotten) { &mesh.members[..1] } else { &mesh.members[..] };
            let joined = members.iter().try_fold([0; WORDS], |mut all, member| {
                let map = self.occupied(number, *member)?;
                all.iter_mut().zip(map).for_each(|(ours, theirs): (&mut u64, u64)| *ours |= theirs);
                Some(all)
            });
            hosts.extend(joined.map(|map| Host { group, index, fill: fill(&map), map }));
        }
        hosts.sort_by_key(|host| (std::cmp::Reverse(host.fill), host.index));
        hosts.truncate(GRANULES);
        hosts
    }

    /// Nothing could be meshed the last time, and too little was freed since to change that.
    pub(crate) fn mesh_is_barren(&self) -> bool {
        let freed = self.counters.freed_units.saturating_sub(self.barren);
        self.barren > 0 && freed < u64::from(self.arenas[SMALL].granule_units()) / BARREN
    }

    /// One slice: moves that free a handle each. More than the request lacks, perhaps, for the stop is what is dear. The
    /// device is stopped and everything deferred is done.
    pub(crate) fn plan_mesh(&mut self) -> Vec<Move> {
        self.flush_free_lists(self.arenas[SMALL].handle_class);
        let mut moves = Vec::with_capacity(SLICE);
        for arena in [SMALL, TINY] {
            self.plan_moves(arena, &mut moves);
        }
        self.barren = if moves.is_empty() { self.counters.freed_units.max(1) } else { 0 };
        moves
    }

    fn plan_moves(&mut self, arena: usize, moves: &mut Vec<Move>) {
        if moves.len() >= SLICE {
            return;
        }
        let sparse = self.sparse(arena);
        let mut taken = vec![false; sparse.len()];
        let mut pairs = PAIRS;
        // Groups get half of the pairs, so that however many there are, others meet.
        for mut host in self.groups(arena) {
            self.plan_guests(arena, &mut host, (&sparse, &mut taken), 0, &mut pairs, moves);
            if pairs < PAIRS / 2 {
                break;
            }
        }
        for at in 0..sparse.len() {
            if taken.get(at).copied().unwrap_or(true) {
                continue;
            }
            let Some(Host { index, fill, map, .. }) = sparse.get(at) else { break };
            let mut host = Host { group: 0, index: *index, fill: *fill, map: *map };
            self.plan_guests(arena, &mut host, (&sparse, &mut taken), at + 1, &mut pairs, moves);
        }
    }

    /// Whoever of `sparse`, from the `first` on, does not collide with a host or those who join it moves in.
    fn plan_guests(
        &mut self,
        arena: usize,
        host: &mut Host,
        (sparse, taken): (&[Host], &mut [bool]),
        first: usize,
        pairs: &mut usize,
        moves: &mut Vec<Move>,
    ) {
        for (guest, taken) in sparse.iter().zip(taken).skip(first).filter(|(_, taken)| !**taken) {
            if *pairs == 0 || moves.len() >= SLICE {
                return;
            }
            *pairs -= 1;
            let collide = host.map.iter().zip(&guest.map).any(|(ours, theirs)| ours & theirs != 0);
            if collide && !injected(Fault::MeshWithCollision) {
                continue;
            }
            if host.group == 0 {
                host.group = self.new_group(arena, host.index);
            }
            moves.push(self.plan_move(arena, host, guest));
            host.map.iter_mut().zip(&guest.map).for_each(|(ours, theirs)| *ours |= theirs);
            *taken = true;
        }
    }

    fn new_group(&mut self, arena: usize, host: u32) -> u32 {
        let handle = self.arenas[arena].granule(host).handle;
        let mesh = Mesh { arena, handle, members: vec![host] };
        let unused = self.meshes.iter().position(|mesh| mesh.members.is_empty());
        let at = unused.unwrap_or(self.meshes.len());
        if let Some(slot) = self.meshes.get_mut(at) {
            *slot = mesh;
        } else {
            self.meshes.push(mesh);
        }
        let group = at as u32 + 1;
        self.withdraw(arena, host, group);
        group
    }

    fn mesh_at(&mut self, group: u32) -> Option<&mut Mesh> {
        self.meshes.get_mut((group as usize).checked_sub(1)?)
    }

    /// Take the free bytes of a granule out of circulation.
    fn withdraw(&mut self, number: usize, index: u32, group: u32) {
        let (start, end) = self.arenas[number].bounds(index);
        for id in self.blocks_of(number, index) {
            if self.blocks.get(id).state == State::Free {
                let piece = self.cut_out(id, start, end);
                let stamp = self.blocks.get(piece).stamp;
                self.mark_dead(piece, stamp);
            }
        }
        let arena = &mut self.arenas[number];
        if let Some(granule) = arena.granule_at(index) {
            granule.mesh = group;
            arena.meshed += 1;
        }
    }

    /// A free piece of a granule that shares its handle, joined with its like in the same granule.
    fn mark_dead(&mut self, id: Id, stamp: u64) {
        let Block { start, prev, next, arena, .. } = *self.blocks.get(id);
        let shift = self.arenas[usize::from(arena).min(SMALL)].granule_shift;
        let like = |core: &Self, other: Id| {
            let block = core.blocks.get(other);
            other != NIL && block.state == State::Dead && block.start >> shift == start >> shift
        };
        let block = self.blocks.at(id);
        (block.state, block.stamp, block.domain) = (State::Dead, stamp, DEVICE);
        if like(self, next) {
            self.blocks.join(id, next);
        }
        if like(self, prev) {
            self.blocks.join(prev, id);
        }
    }

    fn plan_move(&mut self, number: usize, host: &Host, guest: &Host) -> Move {
        self.withdraw(number, guest.index, host.group);
        let arena = &self.arenas[number];
        let host_addr = arena.addr_of(arena.bounds(host.index).0);
        let from_addr = arena.addr_of(arena.bounds(guest.index).0);
        let step = u64::from(arena.granule_units().div_ceil(BITS).max(1)) << UNIT_SHIFT;
        let copies = runs(&guest.map, &host.map).into_iter().map(|(from, to)| {
            let offset = u64::from(from) * step;
            (host_addr + offset, from_addr + offset, u64::from(to - from) * step)
        });
        Move {
            arena: number,
            group: host.group,
            from: guest.index,
            from_addr,
            from_handle: arena.granule(guest.index).handle,
            to_handle: arena.granule(host.index).handle,
            bytes: arena.granule_bytes(),
            copies: copies.collect(),
            grants: self.grants.clone(),
        }
    }

    /// Commit one move.
    pub(crate) fn finish_move(&mut self, plan: &Move, moved: &Replaced) {
        match moved {
            Replaced::Yes => {
                if let Some(granule) = self.arenas[plan.arena].granule_at(plan.from) {
                    granule.handle = plan.to_handle;
                }
                if let Some(mesh) = self.mesh_at(plan.group) {
                    mesh.members.push(plan.from);
                }
                let class = self.arenas[plan.arena].handle_class;
                self.spare[class].push(plan.from_handle);
                self.counters.meshes += 1;
            }
            Replaced::No => self.reinstate(plan.arena, plan.from),
            Replaced::Lost(_) => {
                if let Some(granule) = self.arenas[plan.arena].granule_at(plan.from) {
                    granule.handle = LOST;
                }
                self.counters.lost_bytes += plan.bytes;
            }
        }
    }

    /// After all moves: a host that nobody joined stands on its own again.
    pub(crate) fn finish_mesh(&mut self) {
        for at in 0..self.meshes.len() {
            let Some(mesh) = self.meshes.get_mut(at) else { continue };
            if let [index] = mesh.members[..] {
                let arena = mesh.arena;
                mesh.members.clear();
                self.reinstate(arena, index);
            }
        }
        while self.meshes.last().is_some_and(|mesh| mesh.members.is_empty()) {
            self.meshes.pop();
        }
    }

    /// A granule has its handle to itself again: its dead bytes circulate once they are proven.
    fn reinstate(&mut self, number: usize, index: u32) {
        let arena = &mut self.arenas[number];
        if let Some(granule) = arena.granule_at(index) {
            granule.mesh = 0;
            arena.meshed = arena.meshed.saturating_sub(1);
        }
        let (start, end) = arena.bounds(index);
        for id in self.blocks_of(number, index) {
            if self.blocks.get(id).state == State::Dead {
                let stamp = self.order.tick();
                self.defer(id, stamp);
            }
        }
        let stamp = self.order.now;
        self.arenas[number].touch(start, end, stamp);
    }

    /// A block is freed that touches a granule which shares: what lies in such a granule stays out of circulation.
    pub(crate) fn free_among_meshed(&mut self, id: Id, domain: u16, safe: bool, stamp: u64) {
        let mut id = id;
        while id != NIL {
            let Block { start, arena, .. } = *self.blocks.get(id);
            let arena = &self.arenas[usize::from(arena).min(SMALL)];
            let border = ((start >> arena.granule_shift) + 1) << arena.granule_shift;
            let shared = arena.granule(start >> arena.granule_shift).mesh != 0;
            let end = self.blocks.get(id).end();
            let rest = if end > border { self.blocks.split(id, border - start) } else { NIL };
            if shared {
                self.mark_dead(id, stamp);
            } else {
                self.retire(id, domain, safe, stamp);
            }
            id = rest;
        }
    }

    /// Granules of groups that hold no live bytes any more, and whose last work is proven done.
    pub(crate) fn plan_unmesh(&mut self) -> Option<Vec<Leave>> {
        if self.arenas[TINY].meshed + self.arenas[SMALL].meshed == 0 {
            return None;
        }
        let mut leaves = Vec::new();
        for at in 0..self.meshes.len() {
            let Some(Mesh { arena: number, members, .. }) = self.meshes.get(at).cloned() else { continue };
            for index in members {
                let arena = &self.arenas[number];
                let (start, end) = arena.bounds(index);
                let granule = arena.granule(index);
                let live = arena.live_over(&self.blocks, start).is_some()
                    || arena.live_within(&self.blocks, start, end).is_some();
                if live || granule.stamp > self.order.device_done || granule.pins > 0 {
                    continue;
                }
                // Dead bytes are joined: without a live block the granule is one of them, or something else is in it.
                let id = self.covering(number, start);
                let Block { state, start: from, len, .. } = *self.blocks.get(id);
                if (state, from, len) != (State::Dead, start, end - start) {
                    continue;
                }
                self.blocks.at(id).state = State::Busy;
                let (addr, bytes) = (arena.addr_of(start), arena.granule_bytes());
                leaves.push(Leave { arena: number, group: at as u32 + 1, index, block: id, addr, bytes });
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
            let (start, end) = self.arenas[leave.arena].bounds(leave.index);
            self.arenas[leave.arena].touch(start, end, now);
            return;
        }
        let arena = &mut self.arenas[leave.arena];
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_marked_is_what_lies_between() {
        for (from, to) in [(0, 1), (0, 64), (63, 65), (5, 9), (64, 128), (100, 4096), (4095, 4096), (0, 4096), (7, 7)] {
            let mut map = [0; WORDS];
            mark(&mut map, from, to);
            assert!((0..BITS).all(|bit| has(&map, bit) == (from..to).contains(&bit)), "{from}..{to}");
        }
    }

    #[test]
    fn copies_span_only_gaps_that_nobody_uses() {
        let map = |bits: &[u32]| {
            bits.iter().fold([0; WORDS], |mut map: Occupied, bit| {
                map[(bit / 64) as usize] |= 1 << (bit % 64);
                map
            })
        };
        let guest = map(&[3, 4, 63, 64, 100, 1000, 4095]);
        assert_eq!(runs(&guest, &map(&[])), [(3, 101), (1000, 1001), (4095, 4096)]);
        assert_eq!(runs(&guest, &map(&[5, 99])), [(3, 5), (63, 65), (100, 101), (1000, 1001), (4095, 4096)]);
        assert_eq!(runs(&map(&[]), &guest), []);
    }
}

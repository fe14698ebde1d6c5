//! A device that is strict where a real one is merely undefined: it knows all queued work and what it
//! will touch, runs it late and in an order that a seed decides, and notes every violation.
//! Deliberately simple: one lock, maps, no cleverness. Touches nothing real.
#![allow(dead_code)]

pub(crate) mod program;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard};
use weir_pool::{Backing, BackingError, Budget, Fence, Handle, PeerAccess, UNIT};

/// A small generator, so that a seed is all that is needed to see a failure again.
#[derive(Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
    pub(crate) fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

/// One piece of queued work.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Work {
    Fill { addr: u64, bytes: u64, tag: u64 },
    Check { addr: u64, bytes: u64, tag: u64 },
    Signal(Fence),
    Wait(Fence),
}

impl Work {
    fn touches(&self, addr: u64, bytes: u64) -> bool {
        match self {
            Self::Fill { addr: from, bytes: len, .. } | Self::Check { addr: from, bytes: len, .. } => {
                *from < addr + bytes && addr < from + len
            }
            _ => false,
        }
    }
}

#[derive(Default)]
pub(crate) struct Inner {
    pub(crate) capacity: u64,
    pub(crate) used: u64,
    /// Room for better memory, and what of it is used by which handles.
    pub(crate) near_capacity: u64,
    pub(crate) near: HashSet<Handle>,
    near_used: u64,
    next: u64,
    space: u64,
    /// Contents, one word per unit.
    handles: HashMap<Handle, Vec<u64>>,
    /// Start of a mapping: its handle, bytes, accessible.
    maps: BTreeMap<u64, (Handle, u64, bool)>,
    /// Queues by the device's own number of a stream, which is never used again.
    queues: BTreeMap<u64, VecDeque<Work>>,
    /// Stream handles of the job.
    streams: HashMap<u64, u64>,
    /// Which stream handle a queue had, also after the handle is gone.
    owners: HashMap<u64, u64>,
    done: HashSet<Fence>,
    pub(crate) violations: Vec<String>,
    pub(crate) pinned: Vec<(u64, u64)>,
    pub(crate) capturing: bool,
    pub(crate) quiesced: bool,
    /// The n-th call from now fails.
    pub(crate) fail_in: Option<u64>,
    /// How many calls in a row fail then.
    pub(crate) fail_count: u64,
    pub(crate) calls: u64,
    pub(crate) segments: BTreeMap<u64, u64>,
    pub(crate) grants: HashMap<u64, usize>,
    /// What another thread queues as soon as a synchronisation is over.
    pub(crate) late: Vec<(u64, Work)>,
}

pub(crate) struct Strict(Mutex<Inner>);

pub(crate) const FAULT: i32 = 999;

impl Inner {
    fn fault(&mut self) -> Result<(), BackingError> {
        self.calls += 1;
        if let Some(left) = self.fail_in {
            if left == 0 {
                if self.fail_count <= 1 {
                    self.fail_in = None;
                } else {
                    self.fail_count -= 1;
                }
                return Err(BackingError::Driver(FAULT));
            }
            self.fail_in = Some(left - 1);
        }
        Ok(())
    }

    pub(crate) fn violation(&mut self, what: String) {
        if self.violations.len() < 20 {
            self.violations.push(what);
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Handle, unit offset of an address, if it is mapped and accessible.
    fn translate(&self, addr: u64) -> Option<(Handle, usize)> {
        if let Some((start, bytes)) = self.segments.range(..=addr).next_back()
            && addr < start + bytes
        {
            return Some((*start, ((addr - start) / UNIT) as usize));
        }
        let (start, (handle, bytes, access)) = self.maps.range(..=addr).next_back()?;
        (addr < start + bytes && *access).then_some((*handle, ((addr - start) / UNIT) as usize))
    }

    fn unit(&mut self, addr: u64) -> Option<&mut u64> {
        let (handle, offset) = self.translate(addr)?;
        self.handles.get_mut(&handle)?.get_mut(offset)
    }

    fn perform(&mut self, work: &Work) {
        match *work {
            Work::Fill { addr, bytes, tag } => {
                for at in (addr..addr + bytes).step_by(UNIT as usize) {
                    if let Some(unit) = self.unit(at) {
                        *unit = tag;
                    } else {
                        self.violation(format!("{work:?} writes to {at:#x}, which is not mapped"));
                        return;
                    }
                }
            }
            Work::Check { addr, bytes, tag } => {
                for at in (addr..addr + bytes).step_by(UNIT as usize) {
                    let found = self.unit(at).copied();
                    if found != Some(tag) {
                        self.violation(format!("{work:?} finds {found:?} at {at:#x}"));
                        return;
                    }
                }
            }
            Work::Signal(fence) => {
                self.done.insert(fence);
            }
            Work::Wait(_) => {}
        }
    }

    fn runnable(&self, queue: u64) -> bool {
        match self.queues.get(&queue).and_then(VecDeque::front) {
            Some(Work::Wait(fence)) => self.done.contains(fence),
            Some(_) => true,
            None => false,
        }
    }

    fn run_one(&mut self, queue: u64) -> bool {
        if !self.runnable(queue) {
            return false;
        }
        let work = self.queues.get_mut(&queue).and_then(VecDeque::pop_front);
        if let Some(work) = work {
            self.perform(&work);
        }
        true
    }

    /// Run what is runnable until `until` holds.
    fn run_until(&mut self, until: impl Fn(&Self) -> bool) {
        while !until(self) {
            let queues: Vec<u64> = self.queues.keys().copied().collect();
            let mut ran = false;
            for queue in queues {
                while !until(self) && self.run_one(queue) {
                    ran = true;
                }
            }
            if !ran && !until(self) {
                self.violation("the device is stuck".into());
                return;
            }
        }
    }

    fn idle(&self) -> bool {
        self.queues.values().all(VecDeque::is_empty)
    }

    pub(crate) fn pending(&self, addr: u64, bytes: u64) -> Option<(u64, &Work)> {
        self.queues
            .iter()
            .find_map(|(queue, works)| works.iter().find(|work| work.touches(addr, bytes)).map(|work| (*queue, work)))
    }

    fn queue(&mut self, stream: u64) -> u64 {
        if let Some(queue) = self.streams.get(&stream) {
            return *queue;
        }
        let queue = self.number();
        self.streams.insert(stream, queue);
        self.owners.insert(queue, stream);
        self.queues.insert(queue, VecDeque::new());
        queue
    }

    /// The device is idle, and other threads queue the next work.
    fn others_go_on(&mut self) {
        for (stream, work) in std::mem::take(&mut self.late) {
            let queue = self.queue(stream);
            self.queues.get_mut(&queue).expect("made above").push_back(work);
        }
    }

    fn forbid_in_capture(&mut self, what: &str) {
        if self.capturing {
            self.violation(format!("{what} during a capture"));
        }
    }
}

impl Strict {
    pub(crate) fn new(capacity: u64) -> Self {
        Self(Mutex::new(Inner { capacity, space: 1 << 40, ..Inner::default() }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("the device does not panic")
    }

    pub(crate) fn push(&self, stream: u64, work: Work) {
        let mut inner = self.lock();
        while inner.quiesced {
            // Nothing can be queued while the device is stopped.
            drop(inner);
            std::thread::yield_now();
            inner = self.lock();
        }
        let queue = inner.queue(stream);
        inner.queues.get_mut(&queue).expect("made above").push_back(work);
    }

    pub(crate) fn signal(&self, stream: u64) -> Fence {
        let fence = self.lock().number();
        self.push(stream, Work::Signal(fence));
        fence
    }

    /// Markers behind everything that is queued now on some streams, destroyed ones included.
    pub(crate) fn mark(&self, streams: impl Fn(u64) -> bool) -> Vec<Fence> {
        let mut inner = self.lock();
        let queues: Vec<u64> = inner.queues.keys().copied().collect();
        queues
            .into_iter()
            .filter(|queue| streams(inner.owners.get(queue).copied().unwrap_or(0)))
            .collect::<Vec<u64>>()
            .into_iter()
            .map(|queue| {
                let fence = inner.number();
                inner.queues.get_mut(&queue).expect("listed above").push_back(Work::Signal(fence));
                fence
            })
            .collect()
    }

    pub(crate) fn run_to(&self, fences: &[Fence]) {
        self.lock().run_until(|inner| fences.iter().all(|fence| inner.done.contains(fence)));
    }

    pub(crate) fn drain(&self) {
        self.lock().run_until(Inner::idle);
    }

    pub(crate) fn is_idle(&self, stream: u64) -> bool {
        let mut inner = self.lock();
        let queue = inner.queue(stream);
        inner.queues.get(&queue).is_none_or(VecDeque::is_empty)
    }

    pub(crate) fn is_done(&self, fence: Fence) -> bool {
        self.lock().done.contains(&fence)
    }

    /// A little progress.
    pub(crate) fn progress(&self, rng: &mut Rng, steps: u64) {
        let mut inner = self.lock();
        for _ in 0..steps {
            let queues: Vec<u64> = inner.queues.keys().copied().collect();
            let Some(queue) = queues.get(rng.below(queues.len() as u64) as usize) else { return };
            inner.run_one(*queue);
        }
    }

    /// The handle is gone; the work goes on.
    pub(crate) fn destroy_stream(&self, stream: u64) {
        self.lock().streams.remove(&stream);
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.lock().violations.clone()
    }
}

impl Backing for Strict {
    fn reserve(&self, bytes: u64, align: u64) -> Result<u64, BackingError> {
        let mut inner = self.lock();
        inner.fault()?;
        let addr = inner.space.next_multiple_of(align);
        inner.space = addr + bytes;
        Ok(addr)
    }
    fn unreserve(&self, _: u64, _: u64) -> Result<(), BackingError> {
        Ok(())
    }
    fn create(&self, bytes: u64, _: &Budget) -> Result<Handle, BackingError> {
        let mut inner = self.lock();
        inner.fault()?;
        if inner.used - inner.near_used + bytes > inner.capacity {
            return Err(BackingError::OverCap);
        }
        inner.used += bytes;
        let handle = inner.number();
        inner.handles.insert(handle, vec![0; (bytes / UNIT) as usize]);
        Ok(handle)
    }
    fn release(&self, handle: Handle, bytes: u64) -> Result<(), BackingError> {
        let mut inner = self.lock();
        inner.fault()?;
        if inner.maps.values().any(|(mapped, _, _)| *mapped == handle) {
            inner.violation(format!("handle {handle} released while mapped"));
        }
        if inner.handles.remove(&handle).is_none() {
            inner.violation(format!("handle {handle} released twice"));
        }
        if inner.near.remove(&handle) {
            inner.near_used -= bytes;
        }
        inner.used -= bytes;
        Ok(())
    }
    fn map(&self, addr: u64, bytes: u64, handle: Handle) -> Result<(), BackingError> {
        let mut inner = self.lock();
        inner.fault()?;
        if inner.maps.range(..addr + bytes).next_back().is_some_and(|(start, (_, len, _))| start + len > addr) {
            inner.violation(format!("{addr:#x} is mapped already"));
        }
        if !inner.handles.contains_key(&handle) {
            inner.violation(format!("handle {handle} does not exist"));
        }
        inner.maps.insert(addr, (handle, bytes, false));
        Ok(())
    }
    fn unmap(&self, addr: u64, bytes: u64) -> Result<(), BackingError> {
        let mut inner = self.lock();
        inner.fault()?;
        if let Some(violation) =
            inner.pending(addr, bytes).map(|(_, work)| format!("{work:?} is pending on unmapped {addr:#x}"))
        {
            inner.violation(violation);
        }
        if inner.pinned.iter().any(|(start, len)| *start < addr + bytes && addr < start + len) {
            inner.violation(format!("exported memory in {addr:#x}+{bytes:#x} is unmapped"));
        }
        let mut at = addr;
        while at < addr + bytes {
            let Some((_, len, _)) = inner.maps.remove(&at) else {
                inner.violation(format!("unmap of {at:#x}, where no mapping starts"));
                break;
            };
            at += len;
        }
        if at > addr + bytes {
            inner.violation(format!("unmap of a part of a mapping at {addr:#x}"));
        }
        Ok(())
    }
    fn set_access(&self, addr: u64, bytes: u64, grants: &[PeerAccess]) -> Result<(), BackingError> {
        let mut inner = self.lock();
        inner.fault()?;
        let mut at = addr;
        while at < addr + bytes {
            let Some((_, len, access)) = inner.maps.get_mut(&at) else {
                inner.violation(format!("access for {at:#x}, where no mapping starts"));
                break;
            };
            *access = true;
            let len = *len;
            inner.grants.insert(at, grants.len());
            at += len;
        }
        Ok(())
    }
    fn segment_alloc(&self, bytes: u64, _: &Budget) -> Result<u64, BackingError> {
        let mut inner = self.lock();
        inner.fault()?;
        if inner.used + bytes > inner.capacity {
            return Err(BackingError::OutOfMemory);
        }
        inner.used += bytes;
        let addr = inner.space;
        inner.space += bytes;
        inner.segments.insert(addr, bytes);
        inner.handles.insert(addr, vec![0; (bytes / UNIT) as usize]);
        Ok(addr)
    }
    fn segment_free(&self, addr: u64, bytes: u64) -> Result<(), BackingError> {
        let mut inner = self.lock();
        inner.fault()?;
        if let Some(violation) =
            inner.pending(addr, bytes).map(|(_, work)| format!("{work:?} is pending on a freed segment"))
        {
            inner.violation(violation);
        }
        if inner.segments.remove(&addr) != Some(bytes) {
            inner.violation(format!("segment {addr:#x} freed wrongly"));
        }
        inner.handles.remove(&addr);
        inner.used -= bytes;
        Ok(())
    }
    fn fence_record(&self, stream: u64) -> Result<Fence, BackingError> {
        let mut inner = self.lock();
        inner.fault()?;
        inner.forbid_in_capture("fence");
        let fence = inner.number();
        let queue = inner.queue(stream);
        inner.queues.get_mut(&queue).expect("made above").push_back(Work::Signal(fence));
        Ok(fence)
    }
    fn fence_query(&self, fence: Fence) -> Result<bool, BackingError> {
        let mut inner = self.lock();
        inner.fault()?;
        inner.forbid_in_capture("query");
        Ok(inner.done.contains(&fence))
    }
    fn fence_wait(&self, stream: u64, fence: Fence) -> Result<(), BackingError> {
        let mut inner = self.lock();
        inner.fault()?;
        inner.forbid_in_capture("wait");
        let queue = inner.queue(stream);
        inner.queues.get_mut(&queue).expect("made above").push_back(Work::Wait(fence));
        Ok(())
    }
    fn fence_drop(&self, _: Fence) {}
    fn synchronise(&self) -> Result<(), BackingError> {
        let mut inner = self.lock();
        inner.fault()?;
        inner.forbid_in_capture("sync");
        inner.run_until(Inner::idle);
        inner.others_go_on();
        Ok(())
    }
    fn idle(&self) -> bool {
        let mut inner = self.lock();
        inner.forbid_in_capture("look");
        let idle = inner.idle();
        if idle {
            inner.others_go_on();
        }
        idle
    }
    fn quiesce(&self) -> Result<bool, BackingError> {
        let mut inner = self.lock();
        inner.fault()?;
        inner.forbid_in_capture("quiesce");
        inner.run_until(Inner::idle);
        inner.quiesced = true;
        Ok(true)
    }
    fn resume(&self) {
        self.lock().quiesced = false;
    }
    fn quiesce_if_idle(&self) -> Result<bool, BackingError> {
        let mut inner = self.lock();
        inner.fault()?;
        inner.quiesced = inner.idle();
        Ok(inner.quiesced)
    }
    fn better(&self, handle: Handle, bytes: u64) -> Result<Option<Handle>, BackingError> {
        let mut inner = self.lock();
        inner.fault()?;
        if inner.near.contains(&handle) {
            return Ok(None);
        }
        if inner.near_used + bytes > inner.near_capacity {
            return Err(BackingError::OverCap);
        }
        inner.near_used += bytes;
        inner.used += bytes;
        let new = inner.number();
        inner.near.insert(new);
        inner.handles.insert(new, vec![0; (bytes / UNIT) as usize]);
        Ok(Some(new))
    }
    fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), BackingError> {
        let mut inner = self.lock();
        inner.fault()?;
        if let Some(violation) =
            inner.pending(from, bytes).map(|(_, work)| format!("{work:?} is pending on copied bytes"))
        {
            inner.violation(violation);
        }
        for at in (0..bytes).step_by(UNIT as usize) {
            let word = inner.unit(from + at).copied();
            match (word, inner.unit(to + at)) {
                (Some(word), Some(unit)) => *unit = word,
                _ => inner.violation(format!("copy touches unmapped memory at {:#x}", from + at)),
            }
        }
        Ok(())
    }
}

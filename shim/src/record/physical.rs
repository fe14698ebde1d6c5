//! What lies behind the pool: physical handles, where they are mapped, and the address space. A handle that is mapped
//! again elsewhere is remapped from where it lay free; one that is mapped in a second place is shared by a mesh.

use super::{Recorder, device, on, open};
use std::collections::{BTreeMap, HashMap};
use weir_journal::{Class, Event, FLAG_INTERNAL, Granted, Kind, STREAM_UNKNOWN, Ticket};
use weir_pool::BackingError;

/// Where the pool's handles are mapped now, and where each was last.
#[derive(Default)]
pub(crate) struct Mappings {
    /// Address to handle.
    at: BTreeMap<u64, u64>,
    /// Handle to the address that it was mapped at last, and how often it is mapped now.
    last: HashMap<u64, (u64, u32)>,
}

impl Mappings {
    fn mapped(&mut self, addr: u64, handle: u64) -> (Kind, u64) {
        self.at.insert(addr, handle);
        match self.last.insert(handle, (addr, 1)) {
            None => (Kind::Map, 0),
            Some((old, 0)) if old == addr => (Kind::Map, 0),
            Some((old, 0)) => (Kind::Remap, old),
            Some((old, times)) => {
                self.last.insert(handle, (addr, times + 1));
                (Kind::Mesh, old)
            }
        }
    }

    fn unmapped(&mut self, addr: u64, bytes: u64) {
        let gone: Vec<u64> = self.at.range(addr..addr.saturating_add(bytes)).map(|(at, _)| *at).collect();
        for at in gone {
            if let Some((_, times)) = self.at.remove(&at).and_then(|handle| self.last.get_mut(&handle)) {
                *times = times.saturating_sub(1);
            }
        }
    }
}

fn code(error: BackingError) -> u16 {
    match error {
        BackingError::OutOfMemory | BackingError::OverCap => 2,
        BackingError::Driver(code) => code as u16,
        BackingError::Busy => 600,
    }
}

/// A call of the pool's own, while it is under way.
fn begin(
    kind: Kind,
    class: Class,
    ordinal: i32,
    requested: u64,
    address: u64,
) -> Option<(&'static Recorder, Ticket<'static>)> {
    on().map(|recorder| {
        let ticket = recorder.begin(kind, class, device(ordinal), STREAM_UNKNOWN, requested, address);
        (recorder, ticket.internal())
    })
}

/// Memory that the pool takes from the driver: a handle, a segment, or address space.
pub(crate) fn take(
    class: Class,
    ordinal: i32,
    bytes: u64,
    run: impl FnOnce() -> Result<u64, BackingError>,
) -> Result<u64, BackingError> {
    let Some((_, ticket)) = begin(Kind::Alloc, class, ordinal, bytes, 0) else { return run() };
    let result = run();
    match result {
        Ok(address) => ticket.granted(Granted { address, allocated: bytes }),
        Err(BackingError::OverCap) => ticket.ended(Kind::Refused, 0, code(BackingError::OverCap)),
        Err(error) => ticket.ended(Kind::Failed, 0, code(error)),
    };
    result
}

/// Memory that the pool gives back to the driver.
pub(crate) fn give(
    class: Class,
    address: u64,
    run: impl FnOnce() -> Result<(), BackingError>,
) -> Result<(), BackingError> {
    let Some(recorder) = open() else { return run() };
    let ticket = recorder.journal.begin_free(address, class);
    let result = run();
    match result {
        Ok(()) => _ = ticket.freed(STREAM_UNKNOWN),
        Err(error) => ticket.failed(code(error)),
    }
    if result.is_ok() && class == Class::Handle {
        recorder.physical.lock().last.remove(&address);
    }
    result
}

/// Segments that went with their context.
pub(crate) fn segment_gone(address: u64) {
    if let Some(recorder) = open() {
        recorder.journal.free(address, Class::Handle, STREAM_UNKNOWN);
    }
}

/// A handle is mapped.
pub(crate) fn map(
    ordinal: i32,
    addr: u64,
    bytes: u64,
    handle: u64,
    run: impl FnOnce() -> Result<(), BackingError>,
) -> Result<(), BackingError> {
    let Some((recorder, mut ticket)) = begin(Kind::Map, Class::Handle, ordinal, bytes, addr) else { return run() };
    let result = run();
    if let Err(error) = result {
        ticket.ended(Kind::Failed, 0, code(error));
        return result;
    }
    let (kind, old) = recorder.physical.lock().mapped(addr, handle);
    if old != 0 {
        ticket.set_requested(old);
    }
    ticket.ended(kind, bytes, 0);
    result
}

/// Mappings are taken away.
pub(crate) fn unmap(
    ordinal: i32,
    addr: u64,
    bytes: u64,
    run: impl FnOnce() -> Result<(), BackingError>,
) -> Result<(), BackingError> {
    let Some((recorder, ticket)) = begin(Kind::Unmap, Class::Handle, ordinal, bytes, addr) else { return run() };
    let result = run();
    match result {
        Ok(()) => {
            recorder.physical.lock().unmapped(addr, bytes);
            ticket.ended(Kind::Unmap, bytes, 0);
        }
        Err(error) => _ = ticket.ended(Kind::Failed, 0, code(error)),
    }
    result
}

/// A block got host memory, for there was no room on its device.
pub(crate) fn spilled(ordinal: i32, address: u64, requested: u64, allocated: u64) {
    if let Some(recorder) = open() {
        let event = Event::new(Kind::Spill, Class::Block, device(ordinal));
        recorder.journal.record(Event { address, requested, allocated, flags: FLAG_INTERNAL, ..event });
    }
}

/// So much of what was spilled has device memory now.
pub(crate) fn came_back(ordinal: i32, bytes: u64) {
    if let Some(recorder) = open().filter(|_| bytes > 0) {
        let event = Event::new(Kind::Unspill, Class::Handle, device(ordinal));
        recorder.journal.record(Event { allocated: bytes, flags: FLAG_INTERNAL, ..event });
    }
}

/// So much went back to the driver at once.
pub(crate) fn trimmed(ordinal: i32, bytes: u64) {
    if let Some(recorder) = open().filter(|_| bytes > 0) {
        let event = Event::new(Kind::Trim, Class::Handle, device(ordinal));
        recorder.journal.record(Event { allocated: bytes, flags: FLAG_INTERNAL, ..event });
    }
}

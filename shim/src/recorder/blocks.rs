//! Blocks of the pool: what it hands out by itself is one record and one entry of the live table, nothing more.

use super::{Recorder, device, on, open, shortage};
use crate::attribution::{self, What};
use weir_cuda::CUresult;
use weir_journal::{Class, Granted, Intent, Kind, STREAM_UNKNOWN, Ticket};
use weir_pool::{Allocation, Request};

impl Recorder {
    #[inline]
    fn wanted(&self, ordinal: i32, request: &Request, what: What) -> Intent {
        Intent {
            kind: Kind::Alloc,
            class: Class::Block,
            device: device(ordinal),
            stream: self.stream(request.stream),
            asked: request.bytes,
            address: 0,
            by: attribution::here(&self.journal, what),
        }
    }
}

fn granted(allocation: &Allocation) -> Granted {
    Granted { address: allocation.addr, given: allocation.given }
}

/// The pool had a block ready.
#[inline]
pub(crate) fn hit(ordinal: i32, request: &Request, allocation: &Allocation) {
    if let Some(recorder) = on() {
        let wanted = recorder.wanted(ordinal, request, What::Hit(request.bytes));
        let number = recorder.journal.pool_hit(&wanted, granted(allocation));
        // A job in its stride calls the driver no more; its host memory is looked at all the same. An odd number:
        // where allocations and frees take turns, the numbers of allocations are all even or all odd.
        if number.is_multiple_of(7) {
            recorder.journal.sample_host(super::SAMPLE_MS);
        }
    }
}

/// A request that needs more than the pool has ready, while it is under way.
pub(crate) struct Growth(Option<(&'static Recorder, Ticket<'static>)>);

/// The pool must grow, compact or wait for a request.
pub(crate) fn growing(ordinal: i32, request: &Request) -> Growth {
    Growth(on().map(|recorder| {
        recorder.journal.sample_host(super::SAMPLE_MS);
        let wanted = recorder.wanted(ordinal, request, What::DriverCall);
        (recorder, recorder.journal.begin(wanted))
    }))
}

impl Growth {
    /// It was served.
    pub(crate) fn served(self, allocation: &Allocation) {
        if let Some((_, ticket)) = self.0 {
            ticket.granted(granted(allocation));
        }
    }

    /// It was not; `capped`: the cap forbade it. The job is told `code`.
    pub(crate) fn refused(self, ordinal: i32, request: &Request, capped: bool, code: CUresult) {
        let Some((recorder, ticket)) = self.0 else { return };
        ticket.ended(if capped { Kind::Refused } else { Kind::Failed }, 0, code.0 as u16);
        if code == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            let stream = recorder.stream(request.stream);
            shortage::tell(recorder, ordinal, Class::Block, stream, request.bytes);
        }
    }
}

/// A free of a block. It is recorded before the pool can hand the address out again; what the live table does not know
/// is recorded once the pool has judged it.
#[inline]
pub(crate) fn free<E>(addr: u64, stream: Option<u64>, free: impl FnOnce() -> Result<u64, E>) -> Result<(), E> {
    let Some(recorder) = open() else { return free().map(drop) };
    let number = recorder.stream(stream);
    if recorder.journal.free(addr, Class::Block, number).is_none() {
        return unknown(recorder, addr, number, free);
    }
    free().map(drop)
}

/// A free of what the live table does not know: it was full, or the pointer is wrong.
#[cold]
fn unknown<E>(recorder: &Recorder, addr: u64, stream: u16, free: impl FnOnce() -> Result<u64, E>) -> Result<(), E> {
    let ticket = recorder.journal.begin_free(addr, Class::Block);
    let freed = free();
    match &freed {
        Ok(_) => _ = ticket.freed(stream),
        Err(_) => ticket.failed(CUresult::CUDA_ERROR_INVALID_VALUE.0 as u16),
    }
    freed.map(drop)
}

/// Blocks went with their context.
pub(crate) fn gone(addr: u64) {
    if let Some(recorder) = open() {
        recorder.journal.free(addr, Class::Block, STREAM_UNKNOWN);
    }
}

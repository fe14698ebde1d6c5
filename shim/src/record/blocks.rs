//! Blocks of the pool: what it hands out by itself is one record and one entry of the live table, nothing more.

use super::{Recorder, device, on, oom, open};
use crate::attribute::{self, What};
use weir_cuda::CUresult;
use weir_journal::{Class, Granted, Intent, Kind, Numbering, Situation, Ticket};
use weir_pool::{Allocation, Request};

impl Recorder {
    #[inline(always)]
    fn wanted(&self, ordinal: i32, request: &Request, what: What) -> Intent {
        self.journal.event_comes();
        Intent {
            kind: Kind::Alloc,
            class: Class::Block,
            device: device(ordinal),
            stream: self.stream(request.stream),
            requested: request.bytes,
            address: 0,
            by: attribute::here(&self.journal, what),
        }
    }
}

fn granted(allocation: &Allocation) -> Granted {
    Granted { address: allocation.addr, allocated: allocation.allocated }
}

/// The pool had a block ready.
#[inline(always)]
pub(crate) fn hit(ordinal: i32, numbering: &Numbering, request: &Request, allocation: &Allocation) {
    if let Some(recorder) = on() {
        let wanted = recorder.wanted(ordinal, request, What::Hit(request.bytes, request.stream.is_some()));
        let granted = granted(allocation);
        let number = recorder.journal.block_taken(numbering, allocation.number, &wanted, granted);
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
    /// It was granted.
    pub(crate) fn granted(self, numbering: &Numbering, allocation: &Allocation) {
        if let Some((_, ticket)) = self.0 {
            ticket.granted_block(numbering, allocation.number, granted(allocation));
        }
    }

    /// It was not; `capped`: the cap forbade it. The job gets `code`.
    pub(crate) fn refused(
        self,
        ordinal: i32,
        request: &Request,
        capped: bool,
        code: CUresult,
        situation: impl FnOnce(i32) -> Situation,
    ) {
        let Some((recorder, ticket)) = self.0 else { return };
        ticket.ended(if capped { Kind::Refused } else { Kind::Failed }, 0, code.0 as u16);
        if code == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            let stream = recorder.stream(request.stream);
            oom::report(recorder, ordinal, Class::Block, stream, request.bytes, situation);
        }
    }
}

/// A free of a block, recorded when the pool has taken it and before the pool can hand it out again.
pub(crate) struct Freeing(Option<(&'static Recorder, u16, u32)>);

impl Freeing {
    /// A block is about to be freed, in the order of `stream` if there is one.
    #[inline]
    pub(crate) fn begin(stream: Option<u64>) -> Self {
        Self(open().map(|recorder| (recorder, recorder.stream(stream), recorder.journal.thread())))
    }

    /// The pool has found its number.
    #[inline(always)]
    pub(crate) fn going(&self, numbering: &Numbering, number: usize) {
        if let Some((recorder, ..)) = self.0 {
            recorder.journal.block_going(numbering, number);
        }
    }

    /// The pool has taken it, and holds its lock still.
    #[inline]
    pub(crate) fn freed(&self, numbering: &Numbering, addr: u64, number: usize) {
        if let Some((recorder, stream, thread)) = self.0
            && !recorder.journal.block_freed(numbering, number, addr, stream, thread)
        {
            unknown(recorder, addr, stream);
        }
    }

    /// The pool does not know it.
    #[cold]
    pub(crate) fn refused(&self, addr: u64) {
        if let Some((recorder, ..)) = self.0 {
            let ticket = recorder.journal.begin_free(addr, Class::Block);
            ticket.failed(CUresult::CUDA_ERROR_INVALID_VALUE.0 as u16);
        }
    }
}

/// A free of what the live table does not know, because it was full.
#[cold]
fn unknown(recorder: &Recorder, addr: u64, stream: u16) {
    recorder.journal.begin_free(addr, Class::Block).freed(stream);
}

/// A block went with its context; the pool holds its lock still.
pub(crate) fn gone(numbering: &Numbering, addr: u64, number: usize) {
    Freeing::begin(None).freed(numbering, addr, number);
}

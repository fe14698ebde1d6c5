//! The job's own physical memory (cuMemCreate), and that of others which it imports. It is gone after the last release and
//! the last unmap, in whatever order; the journal has it by its handle, as device memory, because nothing else counts it,
//! or as imported from its first mapping on, which shows its size.

use super::passed::{self, Wanted};
use super::{Recorder, device, on, open};
use crate::driver::guards::current_device;
use crate::process::guard::Call;
use std::collections::{BTreeMap, HashMap};
use weir_cuda::CUresult;
use weir_journal::{Class, FreeTicket, Granted, Kind, STREAM_UNKNOWN, Situation};
use weir_pool::ranks::Locked;

struct Recorded {
    /// `None`: imported and not mapped yet.
    class: Option<Class>,
    /// Handles returned for it and not released.
    owners: u32,
    mappings: u32,
}

/// What the job has created.
#[derive(Default)]
pub(crate) struct Handles {
    known: HashMap<u64, Recorded>,
    /// Mappings of known handles, by address.
    mapped: BTreeMap<u64, u64>,
}

impl Handles {
    fn is_last(&self, handle: u64, owners: u32, mappings: u32) -> Option<Class> {
        let known = self.known.get(&handle)?;
        if known.owners <= owners && known.mappings <= mappings { known.class } else { None }
    }
}

impl Recorder {
    fn handles(&self) -> Locked<'_, Handles> {
        self.handles.lock()
    }
}

/// `cuMemCreate`; `ordinal`: `None` for memory of the host.
pub(crate) fn create<F: Copy>(
    call: &Call<F, CUresult>,
    ordinal: Option<i32>,
    bytes: u64,
    run: impl FnOnce() -> CUresult,
    made: impl FnOnce() -> u64,
    situation: impl FnOnce(i32) -> Situation,
) -> CUresult {
    let class = if ordinal.is_some() { Class::Device } else { Class::Pinned };
    let wanted = Wanted { owned: false, ordinal, ..Wanted::here(class, bytes) };
    let made = || {
        let handle = made();
        if let Some(recorder) = open() {
            recorder.handles().known.insert(handle, Recorded { class: Some(class), owners: 1, mappings: 0 });
        }
        Granted { address: handle, allocated: bytes }
    };
    passed::allocate(call, wanted, run, made, situation)
}

/// `cuMemRetainAllocationHandle` gave a handle again.
pub(crate) fn retained(handle: u64) {
    if let Some(recorder) = open()
        && let Some(known) = recorder.handles().known.get_mut(&handle)
    {
        known.owners += 1;
    }
}

/// `cuMemImportFromShareableHandle` gave a handle, or one again that is known.
pub(crate) fn imported(handle: u64) {
    if let Some(recorder) = on() {
        let mut handles = recorder.handles();
        handles.known.entry(handle).or_insert(Recorded { class: None, owners: 0, mappings: 0 }).owners += 1;
    }
}

/// `cuMemRelease`.
pub(crate) fn release(handle: u64, run: impl FnOnce() -> CUresult) -> CUresult {
    let Some(recorder) = open() else { return run() };
    // The last one is taken off before the call: then the driver may give the number to another thread.
    let last = {
        let mut handles = recorder.handles();
        let class = handles.is_last(handle, 1, 0);
        class.and_then(|class| Some((class, handles.known.remove(&handle)?)))
    };
    let ticket = last.as_ref().map(|(class, _)| recorder.journal.begin_free(handle, *class));
    let result = run();
    match last {
        Some((class, _)) if result == CUresult::CUDA_SUCCESS => ended(ticket, handle, Some(class)),
        Some((_, known)) => {
            recorder.handles().known.insert(handle, known);
            if let Some(ticket) = ticket {
                ticket.failed(result.0 as u16);
            }
        }
        None if result == CUresult::CUDA_SUCCESS => {
            let mut handles = recorder.handles();
            if let Some(known) = handles.known.get_mut(&handle) {
                known.owners = known.owners.saturating_sub(1);
                if known.owners == 0 && known.class.is_none() {
                    handles.known.remove(&handle);
                }
            }
        }
        None => {}
    }
    result
}

fn ended(ticket: Option<FreeTicket<'_>>, handle: u64, class: Option<Class>) {
    if let (Some(ticket), Some(class)) = (ticket, class) {
        passed::forget(handle, class);
        ticket.freed(STREAM_UNKNOWN);
    }
}

/// `cuMemMap`.
pub(crate) fn map(addr: u64, size: u64, handle: u64, run: impl FnOnce() -> CUresult) -> CUresult {
    let Some(recorder) = on() else { return run() };
    let here = current_device().map_or(weir_journal::layout::HOST_DEVICE, device);
    let ticket = recorder.begin(Kind::Map, Class::Device, here, STREAM_UNKNOWN, size, addr);
    let result = run();
    if result != CUresult::CUDA_SUCCESS {
        ticket.ended(Kind::Failed, 0, result.0 as u16);
        return result;
    }
    ticket.ended(Kind::Map, size, 0);
    let mut handles = recorder.handles();
    if let Some(known) = handles.known.get_mut(&handle) {
        known.mappings += 1;
        let first = known.class.replace(known.class.unwrap_or(Class::Imported)).is_none();
        handles.mapped.insert(addr, handle);
        drop(handles);
        if first {
            let ticket = recorder.begin(Kind::Alloc, Class::Imported, here, STREAM_UNKNOWN, size, handle);
            ticket.granted(Granted { address: handle, allocated: size });
        }
    }
    result
}

/// `cuMemUnmap`: one or several whole mappings.
pub(crate) fn unmap(addr: u64, size: u64, run: impl FnOnce() -> CUresult) -> CUresult {
    let Some(recorder) = on() else { return run() };
    let here = current_device().map_or(weir_journal::layout::HOST_DEVICE, device);
    let ticket = recorder.begin(Kind::Unmap, Class::Device, here, STREAM_UNKNOWN, size, addr);
    let result = run();
    if result != CUresult::CUDA_SUCCESS {
        ticket.ended(Kind::Failed, 0, result.0 as u16);
        return result;
    }
    ticket.ended(Kind::Unmap, size, 0);
    let mut handles = recorder.handles();
    let ends: Vec<(u64, u64)> =
        handles.mapped.range(addr..addr.saturating_add(size)).map(|(at, handle)| (*at, *handle)).collect();
    for (at, handle) in ends {
        handles.mapped.remove(&at);
        if let Some(known) = handles.known.get_mut(&handle) {
            known.mappings = known.mappings.saturating_sub(1);
        }
        if let Some(class) = handles.is_last(handle, 0, 0) {
            handles.known.remove(&handle);
            ended(Some(recorder.journal.begin_free(handle, class)), handle, Some(class));
        }
    }
    result
}

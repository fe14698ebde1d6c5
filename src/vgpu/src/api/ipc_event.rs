//! Events of several processes: each has a page that they share, with how often the event was recorded and how far the work
//! before it has come. Whoever opens a handle maps that page through `/proc`.

use super::ipc::{bytes, started, words};
use super::{need, put};
use crate::config;
use crate::engine::{Event, Op, Touches};
use crate::error::*;
use crate::state::{CHANGED, Driver, State, driver};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use weir_cuda::*;

const MAGIC: u64 = 0x7667_7075_2d65_7665;
const PAGE: usize = 4096;
/// CU_EVENT_DISABLE_TIMING and CU_EVENT_INTERPROCESS.
const FLAGS: u32 = 2 | 4;
/// How often a waiting thread looks.
const LOOK: Duration = Duration::from_millis(1);

/// The page of an event. It stays mapped for good: queued work may still write to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    at: u64,
    /// The file of the process that created the event; −1 where it was opened.
    fd: i32,
}

impl Page {
    pub(crate) fn new() -> R<Self> {
        let fd = crate::store::memory_file(c"vgpu-event");
        // SAFETY: the descriptor is ours.
        if fd < 0 || unsafe { libc::ftruncate(fd, PAGE as libc::off_t) } != 0 {
            return Err(OUT_OF_MEMORY);
        }
        Self::map(fd).map(|at| Self { at, fd })
    }

    fn map(fd: i32) -> R<u64> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: maps a whole file that is one page long, where the kernel likes.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, rights, libc::MAP_SHARED, fd, 0) };
        if at == libc::MAP_FAILED { Err(OUT_OF_MEMORY) } else { Ok(at as u64) }
    }

    fn counter(&self, place: u64) -> &'static AtomicU64 {
        // SAFETY: two counters at the beginning of a page that stays mapped.
        unsafe { &*((self.at + place) as *const AtomicU64) }
    }

    /// How often the event was recorded, by any process.
    fn recorded(&self) -> &'static AtomicU64 {
        self.counter(0)
    }

    /// The latest record whose work is done.
    fn done(&self) -> &'static AtomicU64 {
        self.counter(8)
    }

    pub(crate) fn complete(&self) -> bool {
        self.done().load(SeqCst) >= self.recorded().load(SeqCst) || config::fault("ipc_event_ignored")
    }

    /// The exporter's descriptor goes with its event.
    pub(crate) fn close(&self) {
        if self.fd >= 0 {
            // SAFETY: a descriptor of our own, closed once: the event is gone.
            unsafe { libc::close(self.fd) };
        }
    }
}

/// The work before a record is done.
pub(crate) fn publish(at: u64, value: u64) {
    // SAFETY: the second counter of a page that stays mapped.
    unsafe { &*(at as *const AtomicU64) }.fetch_max(value, SeqCst);
}

impl State {
    /// An event was recorded in a stream: notify all processes when the stream comes there.
    pub(crate) fn record_for_all(&mut self, page: Page, stream: u64) -> R {
        let value = page.recorded().fetch_add(1, SeqCst) + 1;
        let op = Op::Publish { at: page.at + 8, value };
        self.enqueue(stream, "cuEventRecord", op, Touches::NONE).map(|_| ())
    }

    /// A stream waits for the latest record of any process.
    pub(crate) fn wait_for_all(&mut self, page: Page, stream: u64) -> R {
        if page.complete() {
            return Ok(());
        }
        let value = page.recorded().load(SeqCst);
        let op = Op::WaitValue { addr: page.at + 8, value, wide: true, flags: 0 };
        self.submit(stream, "cuStreamWaitEvent", op, Touches::NONE).map(|_| ())
    }
}

/// The calling thread waits for the latest record of any process.
pub(crate) fn synchronize(mut s: Driver, page: Page) -> Driver {
    let target = page.recorded().load(SeqCst);
    while page.done().load(SeqCst) < target {
        s = s.wait(&CHANGED, LOOK);
        s.advance();
    }
    s
}

pub(crate) unsafe fn cuIpcGetEventHandle(p_handle: *mut CUipcEventHandle, event: CUevent) -> R {
    need(p_handle)?;
    let s = driver()?;
    let page = s.engine.events.get(&(event as u64)).and_then(|e| e.page).ok_or(INVALID_HANDLE)?;
    // An opened event belongs to another process.
    if page.fd < 0 {
        return Err(INVALID_HANDLE);
    }
    let pid = u64::from(std::process::id());
    let words = [MAGIC, pid, started(pid).ok_or(UNKNOWN)?, page.fd as u64, 0, 0, 0, 0];
    // SAFETY: checked above.
    unsafe { put(p_handle, CUipcEventHandle { reserved: bytes(words) }) };
    Ok(())
}

pub(crate) unsafe fn cuIpcOpenEventHandle(ph_event: *mut CUevent, handle: CUipcEventHandle) -> R {
    need(ph_event)?;
    let mut s = driver()?;
    let ctx = s.current()?;
    let [magic, pid, since, fd, ..] = words(handle.reserved);
    if magic != MAGIC || started(pid) != Some(since) {
        return Err(INVALID_HANDLE);
    }
    // A handle is for other processes.
    if pid == u64::from(std::process::id()) {
        return Err(INVALID_CONTEXT);
    }
    let path = std::ffi::CString::new(format!("/proc/{pid}/fd/{fd}")).map_err(|_| INVALID_HANDLE)?;
    // SAFETY: a NUL-terminated path; the descriptor is closed below.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(INVALID_HANDLE);
    }
    let mapped = Page::map(fd);
    // SAFETY: the descriptor opened above; the mapping does not need it.
    unsafe { libc::close(fd) };
    let page = Page { at: mapped.map_err(|_| CUresult::CUDA_ERROR_MAP_FAILED)?, fd: -1 };
    let made = s.fresh();
    s.engine.events.insert(made, Event { ctx, flags: FLAGS, page: Some(page), ..Default::default() });
    // SAFETY: checked above.
    unsafe { put(ph_event, made as CUevent) };
    Ok(())
}

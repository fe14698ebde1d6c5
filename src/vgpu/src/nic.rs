//! A third party that pins device memory by address and reaches it later, as a network card does with a registered region:
//! C functions for tests. What is pinned are the pages behind the address at that moment. Whatever is mapped there
//! afterwards, the card still reads and writes those pages: memory that was moved under a registration is found by its bytes.

use crate::config::{self, Backing, Rdma};
use crate::error::*;
use crate::memory::Kind;
use crate::state::{State, driver};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

/// Pages that lie one after the other in a memory file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Span {
    addr: u64,
    fd: i32,
    offset: u64,
    len: u64,
}

static REGISTERED: Mutex<Option<HashMap<u64, Vec<Span>>>> = Mutex::new(None);

fn with<T>(act: impl FnOnce(&mut HashMap<u64, Vec<Span>>) -> T) -> T {
    act(REGISTERED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

impl State {
    /// The pages behind a range of addresses; refuses what third parties cannot reach.
    fn pages(&mut self, addr: u64, bytes: u64) -> R<Vec<Span>> {
        let end = addr.checked_add(bytes).filter(|end| *end > addr).ok_or(INVALID_VALUE)?;
        let (mut at, mut spans) = (addr, Vec::new());
        while at < end {
            let extent = self.extent(at).ok_or(INVALID_VALUE)?;
            let stop = end.min(extent.addr + extent.size);
            let (fd, offset) = match extent.kind {
                Kind::Linear => {
                    let device = extent.device.ok_or(INVALID_VALUE)?;
                    let (file, base) = self.devices[device].heap.file().ok_or(NOT_SUPPORTED)?;
                    (file.fd(), at - base)
                }
                Kind::Mapped(handle) => {
                    let known = self.space.handles.get(&handle).ok_or(INVALID_VALUE)?;
                    if known.prop.allocFlags.gpuDirectRDMACapable == 0 {
                        return Err(NOT_SUPPORTED);
                    }
                    let (fd, offset) = self.bytes_of(handle)?;
                    (fd, offset + at - extent.addr)
                }
                _ => return Err(NOT_SUPPORTED),
            };
            spans.push(Span { addr: at, fd, offset, len: stop - at });
            at = stop;
        }
        Ok(spans)
    }
}

fn code(outcome: R) -> c_int {
    outcome.err().map_or(0, |code| code.0 as c_int)
}

fn register(addr: u64, bytes: u64) -> R<u64> {
    if config::get().rdma == Rdma::Off || config::get().backing == Backing::None {
        return Err(NOT_SUPPORTED);
    }
    let mut s = driver()?;
    let spans = s.pages(addr, bytes)?;
    let key = s.fresh();
    with(|all| all.insert(key, spans));
    Ok(key)
}

/// Pins the pages behind a range of device addresses; 0 and a key, or the code of the refusal.
///
/// # Safety
/// `key` is NULL or the caller's place.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn vgpu_nic_register(addr: u64, bytes: u64, key: *mut u64) -> c_int {
    code(register(addr, bytes).map(|made| {
        if !key.is_null() {
            // SAFETY: not NULL, and the caller's place.
            unsafe { key.write(made) };
        }
    }))
}

/// Lets the pages of a key go.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn vgpu_nic_deregister(key: u64) -> c_int {
    code(with(|all| all.remove(&key)).map(|_| ()).ok_or(INVALID_HANDLE))
}

/// How many bytes of a key's pages no longer lie behind the address at which they were pinned; −1 for no key.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn vgpu_nic_stale(key: u64) -> i64 {
    let Some(spans) = with(|all| all.get(&key).cloned()) else { return -1 };
    let Ok(mut s) = driver() else { return -1 };
    let mut stale = 0;
    for span in spans {
        let now = s.pages(span.addr, span.len).unwrap_or_default();
        let kept = now.iter().filter(|n| n.fd == span.fd && n.offset == span.offset + (n.addr - span.addr));
        stale += span.len - kept.map(|n| n.len).sum::<u64>();
    }
    stale as i64
}

/// Moves bytes between the caller and a key's pages.
fn transfer(key: u64, at: u64, bytes: u64, mut act: impl FnMut(i32, u64, u64, u64) -> isize) -> R {
    let mut spans = with(|all| all.get(&key).cloned()).ok_or(INVALID_HANDLE)?;
    let end = at.checked_add(bytes).ok_or(INVALID_VALUE)?;
    if end > spans.iter().map(|s| s.len).sum() {
        return Err(INVALID_VALUE);
    }
    if config::fault("nic_by_address") {
        spans = driver()?.pages(spans.first().map_or(0, |s| s.addr), spans.iter().map(|s| s.len).sum())?;
    }
    let mut start = 0;
    for span in spans {
        let (from, to) = (at.max(start), end.min(start + span.len));
        if from < to && act(span.fd, span.offset + from - start, from - at, to - from) != (to - from) as isize {
            return Err(UNKNOWN);
        }
        start += span.len;
    }
    Ok(())
}

/// The card writes bytes into the pages of a key.
///
/// # Safety
/// `from` holds so many bytes.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn vgpu_nic_write(key: u64, offset: u64, from: *const c_void, bytes: u64) -> c_int {
    code(transfer(key, offset, bytes, |fd, at, skip, len| {
        // SAFETY: our own memory file, and bytes that the caller has.
        unsafe { libc::pwrite(fd, from.byte_add(skip as usize), len as usize, at as libc::off_t) }
    }))
}

/// The card reads bytes of the pages of a key.
///
/// # Safety
/// `to` has room for so many bytes.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn vgpu_nic_read(key: u64, offset: u64, to: *mut c_void, bytes: u64) -> c_int {
    code(transfer(key, offset, bytes, |fd, at, skip, len| {
        // SAFETY: our own memory file, and room that the caller has.
        unsafe { libc::pread(fd, to.byte_add(skip as usize), len as usize, at as libc::off_t) }
    }))
}

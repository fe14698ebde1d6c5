//! Memory of other processes: legacy IPC handles, and pointers of exported pools.
//!
//! A handle names the exporting process, its memory file and a range of it; whoever opens it maps
//! that file through `/proc`. The exporter must be alive and run as the same user.

use super::{given, need, put};
use crate::error::*;
use crate::heap::PAGE;
use crate::memory::Kind;
use crate::space::Import;
use crate::state::{State, driver};
use crate::store;
use weir_cuda::*;

const MAGIC: u64 = 0x7667_7075_2d69_7063;
const LAZY_PEER_ACCESS: c_uint = 1;
const POSIX_FD: c_uint = 1;
/// Marks imports of a pool's pointer, which are freed instead of closed.
pub(crate) const POOL_IMPORT: u64 = 0x7667_7075_706f_6f6c;

/// What stands in the 64 bytes of a handle.
#[derive(Clone, Copy)]
struct Share {
    magic: u64,
    pid: u64,
    started: u64,
    fd: u64,
    offset: u64,
    size: u64,
    physical: u64,
    id: u64,
}

impl Share {
    fn words(self) -> [u64; 8] {
        [self.magic, self.pid, self.started, self.fd, self.offset, self.size, self.physical, self.id]
    }

    fn from(words: [u64; 8]) -> Self {
        let [magic, pid, started, fd, offset, size, physical, id] = words;
        Self { magic, pid, started, fd, offset, size, physical, id }
    }
}

/// When a process started, which distinguishes it from a later one of the same number. Its first thread began with it; an
/// emulator (QEMU) makes up what a process reads of itself in /proc/PID/stat.
pub(super) fn started(pid: u64) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

impl State {
    fn share(&self, addr: u64, kinds: impl Fn(Kind) -> bool) -> R<Share> {
        let extent = self.extent(addr).filter(|e| kinds(e.kind)).ok_or(INVALID_VALUE)?;
        let device = extent.device.ok_or(INVALID_VALUE)?;
        let (file, base) = self.devices[device].heap.file().ok_or(NOT_SUPPORTED)?;
        let pid = u64::from(std::process::id());
        Ok(Share {
            magic: MAGIC,
            pid,
            started: started(pid).ok_or(UNKNOWN)?,
            fd: file.fd() as u64,
            offset: extent.addr - base,
            size: extent.size,
            physical: u64::from(self.devices[device].physical),
            id: extent.id,
        })
    }

    /// Maps what another process shares.
    fn open_share(&mut self, share: Share, key: [u64; 8]) -> R<u64> {
        let (ctx, _) = self.current_device()?;
        let own = u64::from(std::process::id()) == share.pid;
        if share.magic != MAGIC || started(share.pid) != Some(share.started) {
            return Err(INVALID_HANDLE);
        }
        let device = self.devices.iter().position(|d| u64::from(d.physical) == share.physical).ok_or(INVALID_DEVICE)?;
        if own && key[0] != POOL_IMPORT {
            // A handle is for other processes.
            return Err(INVALID_CONTEXT);
        }
        let path =
            std::ffi::CString::new(format!("/proc/{}/fd/{}", share.pid, share.fd)).map_err(|_| INVALID_HANDLE)?;
        // SAFETY: a NUL-terminated path; the descriptor is closed below.
        let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        if fd < 0 {
            return Err(INVALID_HANDLE);
        }
        let first = share.offset / PAGE * PAGE;
        let span = (share.offset + share.size).next_multiple_of(PAGE) - first;
        let mapped = store::reserve_device(span, PAGE, 0).and_then(|at| {
            let done = store::map_device(fd, at, span, first).map(|()| at);
            if done.is_err() {
                store::unreserve_device(at);
            }
            done
        });
        // SAFETY: the descriptor opened above; the mapping does not need it.
        unsafe { libc::close(fd) };
        let at = mapped.map_err(|_| CUresult::CUDA_ERROR_MAP_FAILED)?;
        let addr = at + share.offset - first;
        let id = self.fresh();
        self.space.imports.insert(addr, Import { span: at, size: share.size, device, ctx, id, users: 1, key });
        Ok(addr)
    }

    /// Unmaps memory of another process.
    pub(crate) fn close_import(&mut self, addr: u64) {
        if let Some(import) = self.space.imports.remove(&addr) {
            store::unreserve_device(import.span);
        }
    }
}

pub(super) fn words(bytes: [c_char; 64]) -> [u64; 8] {
    let bytes = bytes.map(|b| b as u8);
    std::array::from_fn(|i| u64::from_ne_bytes(std::array::from_fn(|j| bytes[i * 8 + j])))
}

pub(super) fn bytes(words: [u64; 8]) -> [c_char; 64] {
    std::array::from_fn(|i| words[i / 8].to_ne_bytes()[i % 8] as c_char)
}

pub(crate) unsafe fn cuIpcGetMemHandle(p_handle: *mut CUipcMemHandle, dptr: CUdeviceptr) -> R {
    need(p_handle)?;
    let s = driver()?;
    s.current()?;
    // Mapped and stream-ordered memory have ways of their own.
    let share = s.share(dptr, |kind| kind == Kind::Linear)?;
    // SAFETY: checked above.
    unsafe { put(p_handle, CUipcMemHandle { reserved: bytes(share.words()) }) };
    Ok(())
}

pub(crate) unsafe fn cuIpcOpenMemHandle_v2(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) -> R {
    need(pdptr)?;
    let mut s = driver()?;
    let ctx = s.current()?;
    if flags != LAZY_PEER_ACCESS {
        return Err(INVALID_VALUE);
    }
    let key = words(handle.reserved);
    let known = s.space.imports.iter_mut().find(|(_, i)| i.key == key && i.ctx == ctx);
    let addr = match known {
        Some((&addr, import)) => {
            import.users += 1;
            addr
        }
        None => s.open_share(Share::from(key), key)?,
    };
    // SAFETY: checked above.
    unsafe { put(pdptr, addr) };
    Ok(())
}

pub(crate) unsafe fn cuIpcOpenMemHandle(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) -> R {
    // SAFETY: passed on as promised.
    unsafe { cuIpcOpenMemHandle_v2(pdptr, handle, flags) }
}

pub(crate) unsafe fn cuIpcCloseMemHandle(dptr: CUdeviceptr) -> R {
    let mut s = driver()?;
    s.current()?;
    let import = s.space.imports.get_mut(&dptr).filter(|i| i.key[0] != POOL_IMPORT).ok_or(INVALID_VALUE)?;
    import.users -= 1;
    if import.users == 0 {
        let points = s.engine.tails(|_, _| true);
        s = crate::engine::wait_points(s, &points);
        s.close_import(dptr);
    }
    Ok(())
}

pub(crate) unsafe fn cuMemPoolExportToShareableHandle(
    handle_out: *mut c_void,
    pool: CUmemoryPool,
    handle_type: CUmemAllocationHandleType,
    flags: c_ulonglong,
) -> R {
    need(handle_out)?;
    let s = driver()?;
    let known = s.pool(pool as u64)?;
    if flags != 0 || handle_type.0 != POSIX_FD || known.handle_types & POSIX_FD == 0 || known.is_default {
        return Err(INVALID_VALUE);
    }
    let device = known.device;
    let (file, _) = s.devices[device].heap.file().ok_or(NOT_SUPPORTED)?;
    // SAFETY: duplicates our own descriptor; the copy is the caller's.
    let fd = unsafe { libc::fcntl(file.fd(), libc::F_DUPFD_CLOEXEC, 3) };
    if fd < 0 {
        return Err(OUT_OF_MEMORY);
    }
    // SAFETY: for this handle type the caller's place is that of an int.
    unsafe { put(handle_out.cast::<c_int>(), fd) };
    Ok(())
}

pub(crate) unsafe fn cuMemPoolImportFromShareableHandle(
    pool_out: *mut CUmemoryPool,
    handle: *mut c_void,
    handle_type: CUmemAllocationHandleType,
    flags: c_ulonglong,
) -> R {
    need(pool_out)?;
    let mut s = driver()?;
    crate::pool::pools_supported()?;
    if flags != 0 || handle_type.0 != POSIX_FD {
        return Err(INVALID_VALUE);
    }
    let fd = c_int::try_from(handle as i64).map_err(|_| INVALID_VALUE)?;
    let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).map_err(|_| INVALID_VALUE)?;
    if !link.to_string_lossy().starts_with("/memfd:vgpu-heap") {
        return Err(INVALID_VALUE);
    }
    // SAFETY: duplicates the caller's descriptor; the copy is ours.
    let kept = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 200) };
    if kept < 0 {
        return Err(OUT_OF_MEMORY);
    }
    let (_, device) = s.current_device().unwrap_or((0, 0));
    let made = s.fresh();
    let mut pool = crate::pool::Pool::new(device, false);
    pool.imported = Some(kept);
    s.pools.insert(made, pool);
    // SAFETY: checked above.
    unsafe { put(pool_out, made as CUmemoryPool) };
    Ok(())
}

pub(crate) unsafe fn cuMemPoolExportPointer(share_data_out: *mut CUmemPoolPtrExportData, ptr: CUdeviceptr) -> R {
    need(share_data_out)?;
    let s = driver()?;
    let exportable = |kind| matches!(kind, Kind::Pool(p) if s.pool(p).is_ok_and(|p| p.handle_types & POSIX_FD != 0));
    let share = s.share(ptr, exportable)?;
    // SAFETY: checked above.
    unsafe { put(share_data_out, CUmemPoolPtrExportData { reserved: bytes(share.words()).map(|b| b as c_uchar) }) };
    Ok(())
}

pub(crate) unsafe fn cuMemPoolImportPointer(
    ptr_out: *mut CUdeviceptr,
    pool: CUmemoryPool,
    share_data: *mut CUmemPoolPtrExportData,
) -> R {
    need(ptr_out)?;
    given(share_data)?;
    let mut s = driver()?;
    if s.pool(pool as u64)?.imported.is_none() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: checked above.
    let words = words(unsafe { share_data.read_unaligned() }.reserved.map(|b| b as c_char));
    let share = Share::from(words);
    let mut key = words;
    key[0] = POOL_IMPORT;
    let addr = s.open_share(share, key)?;
    // SAFETY: checked above.
    unsafe { put(ptr_out, addr) };
    Ok(())
}

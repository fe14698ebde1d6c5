//! Legacy sharing of the pool's blocks between processes. Mapped memory has no legacy handle, and that of a block in a
//! plain segment would be the segment's, which begins with another block; so an opaque one is made: it names an abstract
//! socket of the exporting process and a secret. Who knows both and runs as the same user is sent the descriptors of the
//! memory behind the block, and maps them, or the driver's handle of the segment and where the block lies in it. The
//! exporter answers from a thread of its own, started at the first export; the block stays where it is until it is freed.

use super::transport::{self, Part};
use super::{DevicePool, pins};
use crate::driver::contexts;
use crate::driver::guards::{RelaxedCapture, current};
use crate::driver::real::{self, done};
use crate::driver::wait::{self, Whose};
use core::sync::atomic::AtomicUsize;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use weir_cuda::*;
use weir_pool::BlockInfo;
use weir_pool::ranks::{self, Mutex, Rank};
use weir_pool::shared::{Counted, Counts, Guarded};

/// What an opaque handle begins with.
const MAGIC: [u8; 8] = *b"\x7fweirIPC";
const FD: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// What an opaque handle contains.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Ticket {
    /// The exporter.
    pid: u32,
    /// Its socket.
    socket: u64,
    /// The secret of the block.
    secret: [u8; 16],
}

/// A block that was exported.
struct Exported {
    device_pool: &'static DevicePool,
    addr: u64,
    bytes: u64,
    buffer: u64,
    /// The mappings behind it, which stay where they are.
    extents: Vec<(u64, u64)>,
    /// Of a block in a plain segment: the driver's handle of the segment.
    segment: Option<[u64; 8]>,
    ticket: Ticket,
}

/// Memory of another process, mapped here.
struct Opened {
    ticket: Ticket,
    ptr: u64,
    bytes: u64,
    /// Of mapped parts their space; of a segment, which has no parts, its address and 0.
    space: (u64, u64),
    parts: Vec<(u64, u64)>,
    users: usize,
}

struct Imports(Vec<Opened>);

impl Counts<1> for Imports {
    fn counts(&self) -> [usize; 1] {
        [self.0.len()]
    }
}

static EXPORTED: Mutex<Vec<Exported>> = Mutex::new(Rank::Exports, Vec::new());
static OPENED: Counted<Guarded<Imports>, AtomicUsize, 1> =
    Counted::new(Guarded::new(Rank::Imports, Imports(Vec::new())), [AtomicUsize::new(0)]);
static SOCKET: Mutex<Option<u64>> = Mutex::new(Rank::Socket, None);

impl Ticket {
    fn write(&self) -> CUipcMemHandle {
        let mut bytes = [0u8; 64];
        let fields = MAGIC.into_iter().chain(self.pid.to_le_bytes()).chain(self.socket.to_le_bytes());
        for (to, from) in bytes.iter_mut().zip(fields.chain(self.secret)) {
            *to = from;
        }
        CUipcMemHandle { reserved: bytes.map(|byte| byte as core::ffi::c_char) }
    }

    fn read(handle: &CUipcMemHandle) -> Option<Self> {
        let bytes = handle.reserved.map(|byte| byte as u8);
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (pid, rest) = rest.split_first_chunk::<4>()?;
        let (socket, rest) = rest.split_first_chunk::<8>()?;
        let (secret, _) = rest.split_first_chunk::<16>()?;
        let ticket = Self { pid: u32::from_le_bytes(*pid), socket: u64::from_le_bytes(*socket), secret: *secret };
        (*magic == MAGIC).then_some(ticket)
    }
}

/// Whether a handle is weir's own.
pub(crate) fn is_own(handle: &CUipcMemHandle) -> bool {
    Ticket::read(handle).is_some()
}

/// The opaque handle of a block: the same each time.
pub(crate) fn export(device_pool: &'static DevicePool, block: &BlockInfo) -> Result<CUipcMemHandle, CUresult> {
    const FAILED: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    let known = |exported: &[Exported]| {
        let known = exported.iter().find(|known| known.addr == block.addr && known.buffer == block.buffer);
        known.map(|known| known.ticket.write())
    };
    if let Some(handle) = known(&EXPORTED.lock()) {
        return Ok(handle);
    }
    let socket = serve().ok_or(FAILED)?;
    let secret = transport::secret().ok_or(FAILED)?;
    // A growth may be under way: nothing is held while it is waited for.
    if !pins::pin(device_pool, block.addr) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let Some(extents) = extents(block.addr, block.addr + block.bytes) else {
        pins::unpin(device_pool, block.addr);
        return Err(FAILED);
    };
    let mut segment = None;
    if !device_pool.mapped() {
        match segment_handle(block.addr) {
            Ok(words) => segment = Some(words),
            Err(code) => {
                pins::unpin(device_pool, block.addr);
                return Err(code);
            }
        }
    }
    let ticket = Ticket { pid: std::process::id(), socket, secret };
    let mut exported = EXPORTED.lock();
    if let Some(handle) = known(&exported) {
        // Another thread has exported it meanwhile.
        drop(exported);
        pins::unpin(device_pool, block.addr);
        return Ok(handle);
    }
    // What was exported and freed since is forgotten here, where it is cheap to look.
    exported
        .retain(|known| known.device_pool.pool.lookup(known.addr).is_some_and(|block| block.buffer == known.buffer));
    exported.push(Exported {
        device_pool,
        addr: block.addr,
        bytes: block.bytes,
        buffer: block.buffer,
        extents,
        segment,
        ticket,
    });
    Ok(ticket.write())
}

/// Starts the thread that answers importers, once.
fn serve() -> Option<u64> {
    let mut socket = SOCKET.lock();
    if socket.is_none() {
        let name = u64::from_le_bytes(*transport::secret()?.first_chunk()?);
        let listener = transport::listen(std::process::id(), name)?;
        transport::spawn(move || transport::serve(listener, offer))?;
        *socket = Some(name);
    }
    *socket
}

/// A block that an importer has requested by its secret, as it was exported.
struct Offered {
    device_pool: &'static DevicePool,
    addr: u64,
    bytes: u64,
    buffer: u64,
    extents: Vec<(u64, u64)>,
    segment: Option<[u64; 8]>,
}

/// The block whose secret the importer knows.
fn offer(secret: &[u8; 16]) -> Option<Offered> {
    let exported = EXPORTED.lock();
    let known = exported.iter().find(|known| known.ticket.secret == *secret)?;
    let Exported { device_pool, addr, bytes, buffer, segment, .. } = *known;
    Some(Offered { device_pool, addr, bytes, buffer, extents: known.extents.clone(), segment })
}

impl transport::Offer for Offered {
    fn header(&self) -> [u64; 3] {
        let offset = self.extents.first().map_or(0, |(base, _)| self.addr - base);
        let parts = if self.segment.is_some() { 0 } else { self.extents.len() as u64 };
        [parts, offset, self.bytes]
    }

    fn whole(&self) -> Option<[u64; 8]> {
        // It may be freed before the importer has it.
        self.device_pool.pool.lookup(self.addr).filter(|block| block.buffer == self.buffer)?;
        self.segment
    }

    fn part(&self, number: u64) -> Option<Part> {
        // It may be freed before the importer has it all.
        self.device_pool.pool.lookup(self.addr).filter(|block| block.buffer == self.buffer)?;
        let (base, size) = *self.extents.get(usize::try_from(number).ok()?)?;
        Some(Part { size, fd: descriptor(base)? })
    }
}

/// The mappings behind a range, in order.
fn extents(start: u64, end: u64) -> Option<Vec<(u64, u64)>> {
    let _relaxed = RelaxedCapture::enter();
    let mut extents = Vec::new();
    let mut at = start;
    while at < end {
        let (mut base, mut size) = (0, 0);
        // SAFETY: both places are live locals. The real answer is about the one mapping.
        done(unsafe { real::cuMemGetAddressRange_v2(&raw mut base, &raw mut size, at) }).ok()?;
        extents.push((base, size as u64));
        at = (base + size as u64).max(at + 1);
    }
    Some(extents)
}

/// The driver's handle of the segment that an address lies in, or its answer: what is spilled may be managed memory, which
/// has none.
fn segment_handle(addr: u64) -> Result<[u64; 8], CUresult> {
    let mut handle = CUipcMemHandle::default();
    // SAFETY: the place is a live local.
    let result = unsafe { real::cuIpcGetMemHandle(&raw mut handle, addr) };
    if result != CUresult::CUDA_SUCCESS {
        return Err(result);
    }
    let bytes = handle.reserved.map(|byte| byte as u8);
    let mut words = [0; 8];
    for (word, chunk) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*chunk);
    }
    Ok(words)
}

/// Opens the segment of another process that a block lies in. The driver gives the same address as often as it is opened,
/// and counts.
fn open_segment(words: [u64; 8], ticket: Ticket, offset: u64, bytes: u64) -> Result<Opened, CUresult> {
    let mut handle = CUipcMemHandle::default();
    for (to, from) in handle.reserved.iter_mut().zip(words.into_iter().flat_map(u64::to_le_bytes)) {
        *to = from as core::ffi::c_char;
    }
    let mut base = 0;
    let flags = CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.0;
    // SAFETY: the place is a live local; the handle is one that the driver of the other process has made.
    done(unsafe { real::cuIpcOpenMemHandle_v2(&raw mut base, handle, flags) })?;
    Ok(Opened { ticket, ptr: base + offset, bytes, space: (base, 0), parts: Vec::new(), users: 1 })
}

/// A descriptor of the physical memory that is mapped at `addr`.
fn descriptor(addr: u64) -> Option<OwnedFd> {
    let mut handle = 0;
    // SAFETY: the place is a live local; the address is mapped and pinned.
    done(unsafe { real::cuMemRetainAllocationHandle(&raw mut handle, addr as *mut c_void) }).ok()?;
    let mut fd: c_int = -1;
    // SAFETY: for this handle type the place is that of an int.
    let result = unsafe { real::cuMemExportToShareableHandle((&raw mut fd).cast(), handle, FD, 0) };
    // SAFETY: gives back what was retained above.
    unsafe { real::cuMemRelease(handle) };
    done(result).ok()?;
    // SAFETY: the driver has just made it for us.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Opens a handle: the same address as often as it is opened.
pub(crate) fn open(handle: &CUipcMemHandle) -> Result<CUdeviceptr, CUresult> {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    let ticket = Ticket::read(handle).ok_or(invalid)?;
    // A handle is for other processes, as with plain memory.
    if ticket.pid == std::process::id() {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    let device = contexts::seen(current()).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?.ordinal();
    if let Some(ptr) = OPENED.with(|opened: &mut Imports| again(opened, &ticket)) {
        return Ok(ptr);
    }
    // Nothing is held while the other process is waited for.
    ranks::waiting("another process");
    let exporter = transport::connect(ticket.pid, ticket.socket, &ticket.secret).ok_or(invalid)?;
    let [count, offset, bytes] = transport::receive_header(&exporter).ok_or(invalid)?;
    let parts: Option<Vec<Part>> = (0..count).map(|_| transport::receive_part(&exporter)).collect();
    let parts = parts.ok_or(invalid)?;
    let segment = if count == 0 { Some(transport::receive_whole(&exporter).ok_or(invalid)?) } else { None };
    let _relaxed = RelaxedCapture::enter();
    let fresh = match segment {
        Some(words) => open_segment(words, ticket, offset, bytes)?,
        None => map(device, &parts, ticket, offset, bytes)?,
    };
    let ptr = fresh.ptr;
    // Another thread may have opened it meanwhile.
    let spare = OPENED.with(|opened: &mut Imports| {
        let Some(known) = again(opened, &ticket) else {
            opened.0.push(fresh);
            return None;
        };
        Some((known, fresh))
    });
    let Some((known, fresh)) = spare else { return Ok(ptr) };
    unmap(&fresh);
    Ok(known)
}

/// The address of what is open already, for one more user.
fn again(opened: &mut Imports, ticket: &Ticket) -> Option<CUdeviceptr> {
    let known = opened.0.iter_mut().find(|known| known.ticket == *ticket)?;
    known.users += 1;
    Some(known.ptr)
}

/// Maps the parts one behind the other.
fn map(device: i32, parts: &[Part], ticket: Ticket, offset: u64, bytes: u64) -> Result<Opened, CUresult> {
    let total: u64 = parts.iter().map(|part| part.size).sum();
    let mut start = 0;
    // SAFETY: the place is a live local; the driver chooses the address.
    done(unsafe { real::cuMemAddressReserve(&raw mut start, total as usize, 0, 0, 0) })?;
    let mut opened = Opened { ticket, ptr: start + offset, bytes, space: (start, total), parts: Vec::new(), users: 1 };
    let mut at = start;
    for part in parts {
        let mut handle = 0;
        let fd = part.fd.as_raw_fd() as usize as *mut c_void;
        // SAFETY: the descriptor is open; the driver takes its number as a pointer's value.
        let mut result = unsafe { real::cuMemImportFromShareableHandle(&raw mut handle, fd, FD) };
        if result == CUresult::CUDA_SUCCESS {
            // SAFETY: our own space and handle; the mapping keeps the memory after the release.
            unsafe {
                result = real::cuMemMap(at, part.size as usize, 0, handle, 0);
                real::cuMemRelease(handle);
            }
        }
        if let Err(code) = done(result) {
            unmap(&opened);
            return Err(code);
        }
        opened.parts.push((at, part.size));
        at += part.size;
    }
    let access = CUmemAccessDesc {
        location: CUmemLocation::of(CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, device),
        flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    // SAFETY: our own mappings; the description lives through the call.
    if let Err(code) = done(unsafe { real::cuMemSetAccess(start, total as usize, &raw const access, 1) }) {
        unmap(&opened);
        return Err(code);
    }
    Ok(opened)
}

fn unmap(opened: &Opened) {
    // SAFETY: our own mappings and space, or a segment that was opened as often as it is closed; whoever closed them is
    // through with them.
    unsafe {
        if opened.space.1 == 0 {
            real::cuIpcCloseMemHandle(opened.space.0);
            return;
        }
        for (at, size) in &opened.parts {
            real::cuMemUnmap(*at, *size as usize);
        }
        real::cuMemAddressFree(opened.space.0, opened.space.1 as usize);
    }
}

/// Closes what [`open`] gave; `None`: it is none of weir's.
pub(crate) fn close(ptr: CUdeviceptr) -> Option<CUresult> {
    if !OPENED.any() {
        return None;
    }
    let gone = OPENED.with(|opened: &mut Imports| {
        let at = opened.0.iter().position(|known| known.ptr == ptr)?;
        let known = opened.0.get_mut(at)?;
        if known.users > 1 {
            known.users -= 1;
            return Some(None);
        }
        Some(Some(opened.0.swap_remove(at)))
    })?;
    // Unmapping is no fence: work that was queued on the memory must have finished. Where that can't be seen it stays
    // mapped, and the address is never used again.
    if let Some(gone) = gone
        && wait::for_work(Whose::Context(current()), wait::PATIENCE).is_ok()
    {
        let _relaxed = RelaxedCapture::enter();
        unmap(&gone);
    }
    Some(CUresult::CUDA_SUCCESS)
}

/// Start and size of the opened block that holds `ptr`.
pub(crate) fn opened(ptr: CUdeviceptr) -> Option<(u64, u64)> {
    if !OPENED.any() {
        return None;
    }
    OPENED.with(|opened: &mut Imports| {
        let known = opened.0.iter().find(|known| (known.ptr..known.ptr + known.bytes).contains(&ptr))?;
        Some((known.ptr, known.bytes))
    })
}

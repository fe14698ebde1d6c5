//! Physical memory by handle: where its bytes are, how it is shared with other processes, and when
//! it goes. One memory file holds the bytes of every handle of this process; a directory at its
//! beginning lets a process that receives a descriptor find the size of what was exported.

use crate::config::{self, Backing};
use crate::error::*;
use crate::ranges::Ranges;
use crate::space::{Handle, Location};
use crate::state::{Map, State};
use crate::store::{self, File, Protection};
use std::sync::atomic::Ordering;
use weir_cuda::{CUmemAllocationProp, CUmemLocationType};

const RECORD: u64 = 64;
const MAGIC: u64 = 0x7667_7075_2d76_6d6d;
/// Bytes of host memory that HOST_NUMA handles may take together.
const HOST_ROOM: u64 = 64 << 30;

/// The common memory file and what is free in it.
#[derive(Default)]
pub(crate) struct Files {
    common: Option<Common>,
}

struct Common {
    file: File,
    ranges: Ranges,
    units: u64,
    blocks: Map<u32>,
}

impl Common {
    fn data(&self) -> u64 {
        (self.units * RECORD).next_multiple_of(config::get().granularity)
    }
}

/// What the directory records of an exported handle.
#[derive(Clone, Copy)]
#[repr(C)]
struct Record {
    magic: u64,
    size: u64,
    /// Physical number of the device, or −1 − node for host memory.
    place: i64,
    handle_types: u64,
    rdma: u64,
    unused: [u64; 3],
}

fn same_file(a: i32, b: i32) -> bool {
    // SAFETY: plain data that the kernel fills.
    unsafe {
        let mut x: libc::stat = std::mem::zeroed();
        let mut y: libc::stat = std::mem::zeroed();
        libc::fstat(a, &raw mut x) == 0
            && libc::fstat(b, &raw mut y) == 0
            && (x.st_dev, x.st_ino) == (y.st_dev, y.st_ino)
    }
}

impl State {
    fn common(&mut self) -> R<&mut Common> {
        if self.space.files.common.is_none() {
            let unit = config::get().granularity;
            let room: u64 = self.devices.iter().map(|d| d.total).sum::<u64>() * 2 + HOST_ROOM;
            let units = room / unit;
            let data = (units * RECORD).next_multiple_of(unit);
            let common = Common {
                file: File::new(c"vgpu-vmm", data + units * unit)?,
                ranges: u32::try_from(units).ok().and_then(Ranges::new).ok_or(OUT_OF_MEMORY)?,
                units,
                blocks: Map::default(),
            };
            self.space.files.common = Some(common);
        }
        self.space.files.common.as_mut().ok_or(OUT_OF_MEMORY)
    }

    /// The device or node that a property names.
    pub(crate) fn location(&self, kind: CUmemLocationType, id: i32) -> R<Location> {
        match kind {
            CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => {
                if config::fault("wrong_device_handle") {
                    return Ok(Location::Device(0));
                }
                self.device(id).map(Location::Device)
            }
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA if id == 0 && config::get().maps_host_memory() => {
                Ok(Location::HostNuma(id))
            }
            _ => Err(INVALID_VALUE),
        }
    }

    /// `cuMemCreate`.
    pub(crate) fn create_handle(&mut self, size: u64, prop: CUmemAllocationProp) -> R<u64> {
        let location = self.location(prop.location.type_, prop.location.id())?;
        if let Location::Device(device) = location
            && (crate::call::oom_above(size) || !self.devices[device].take(size))
        {
            return Err(OUT_OF_MEMORY);
        }
        let unit = config::get().granularity;
        let placed = self.common().and_then(|common| {
            let units = u32::try_from(size.div_ceil(unit)).map_err(|_| OUT_OF_MEMORY)?;
            let (index, start) = common.ranges.take(units).ok_or(OUT_OF_MEMORY)?;
            let offset = common.data() + u64::from(start) * unit;
            common.blocks.insert(offset, index);
            Ok(offset)
        });
        let offset = match placed {
            Ok(offset) => offset,
            Err(code) => {
                if let Location::Device(device) = location {
                    self.devices[device].give(size);
                }
                return Err(code);
            }
        };
        if matches!(location, Location::HostNuma(_)) {
            store::ON_HOST.fetch_add(size, Ordering::Relaxed);
        }
        let handle = self.fresh();
        let made = Handle { size, location, prop, users: 1, maps: 0, offset, foreign: None, exported: false };
        self.space.handles.insert(handle, made);
        Ok(handle)
    }

    /// The memory of a handle goes when nobody holds or maps it.
    pub(crate) fn drop_handle_if_unused(&mut self, handle: u64) {
        if !self.space.handles.get(&handle).is_some_and(|h| h.users == 0 && h.maps == 0) {
            return;
        }
        let Some(gone) = self.space.handles.remove(&handle) else { return };
        if let Some(fd) = gone.foreign {
            // SAFETY: the descriptor that the import duplicated for itself.
            unsafe { libc::close(fd) };
            return;
        }
        match gone.location {
            Location::Device(device) => self.devices[device].give(gone.size),
            Location::HostNuma(_) => _ = store::ON_HOST.fetch_sub(gone.size, Ordering::Relaxed),
        }
        if let Ok(common) = self.common()
            && !gone.exported
            && let Some(index) = common.blocks.remove(&gone.offset)
        {
            common.ranges.give(index);
            common.file.clear(gone.offset, gone.size);
        }
    }

    /// Puts the bytes of a handle behind an address; the host touches them only if rights are given to it.
    pub(crate) fn map_bytes(&mut self, handle: u64, addr: u64, from: u64, size: u64) -> R {
        if config::get().backing == Backing::None {
            return Ok(());
        }
        if config::fault("alias_not_shared") {
            let file = File::new(c"vgpu-alias", size)?;
            return file.map(addr, size, 0);
        }
        let (fd, offset) = self.bytes_of(handle)?;
        store::map_device(fd, addr, size, offset + from)
    }

    /// Gives instructions of the host the rights that `cuMemSetAccess` gave to the host.
    pub(crate) fn let_host_touch(&mut self, handle: u64, addr: u64, size: u64, rights: Protection) -> R {
        let (fd, offset) = self.bytes_of(handle)?;
        store::map_for_host(fd, addr, size, offset, rights)
    }

    /// The memory file of a handle, and where its bytes begin there.
    pub(crate) fn bytes_of(&mut self, handle: u64) -> R<(i32, u64)> {
        let known = self.space.handles.get(&handle).ok_or(INVALID_VALUE)?;
        let offset = known.offset;
        match known.foreign {
            Some(fd) => Ok((fd, offset)),
            None => Ok((self.common()?.file.fd(), offset)),
        }
    }

    /// A descriptor through which another process can map a handle.
    pub(crate) fn export_handle(&mut self, handle: u64) -> R<i32> {
        let known = self.space.handles.get_mut(&handle).ok_or(INVALID_VALUE)?;
        known.exported = true;
        let (offset, size, location, prop, foreign) =
            (known.offset, known.size, known.location, known.prop, known.foreign);
        let place = match location {
            Location::Device(d) => i64::from(self.devices[d].physical),
            Location::HostNuma(node) => -1 - i64::from(node),
        };
        let unit = config::get().granularity;
        let common = self.common()?;
        let fd = foreign.unwrap_or_else(|| common.file.fd());
        if foreign.is_none() {
            let record = Record {
                magic: MAGIC,
                size,
                place,
                handle_types: u64::from(prop.requestedHandleTypes.0),
                rdma: 0,
                unused: [0; 3],
            };
            let at = (offset - common.data()) / unit * RECORD;
            // SAFETY: writes one plain record into the directory of our own file.
            let wrote = unsafe { libc::pwrite(fd, (&raw const record).cast(), RECORD as usize, at as libc::off_t) };
            if wrote != RECORD as isize {
                return Err(OUT_OF_MEMORY);
            }
        }
        // A descriptor with a position of its own, which shows the receiver where the handle begins.
        let path = std::ffi::CString::new(format!("/proc/self/fd/{fd}")).map_err(|_| UNKNOWN)?;
        // SAFETY: a NUL-terminated path; the descriptor returned is the caller's.
        unsafe {
            let new = libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            if new < 0 || libc::lseek(new, offset as libc::off_t, libc::SEEK_SET) < 0 {
                return Err(OUT_OF_MEMORY);
            }
            Ok(new)
        }
    }

    /// The handle behind a received descriptor.
    pub(crate) fn import_handle(&mut self, fd: i32) -> R<u64> {
        let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).map_err(|_| INVALID_VALUE)?;
        if !link.to_string_lossy().starts_with("/memfd:vgpu-vmm") {
            return Err(INVALID_VALUE);
        }
        // SAFETY: queries the position of a descriptor that the caller gave.
        let offset = unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) };
        let offset = u64::try_from(offset).map_err(|_| INVALID_VALUE)?;
        let own = self.common()?.file.fd();
        if same_file(fd, own) {
            let found = self.space.handles.iter_mut().find(|(_, h)| h.offset == offset && h.foreign.is_none());
            if let Some((&handle, known)) = found {
                known.users += 1;
                return Ok(handle);
            }
        }
        let unit = config::get().granularity;
        // The exporter's directory: its size follows from the file's.
        // SAFETY: plain data that the kernel fills.
        let length = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            if libc::fstat(fd, &raw mut stat) != 0 {
                return Err(INVALID_VALUE);
            }
            stat.st_size as u64
        };
        let mut units = length / (unit + RECORD);
        while (units * RECORD).next_multiple_of(unit) + units * unit > length {
            units -= 1;
        }
        let data = (units * RECORD).next_multiple_of(unit);
        let at = offset.checked_sub(data).ok_or(INVALID_VALUE)? / unit * RECORD;
        // SAFETY: an all-zero record is valid, and at most its size is read into it.
        let record = unsafe {
            let mut record: Record = std::mem::zeroed();
            let read = libc::pread(fd, (&raw mut record).cast(), RECORD as usize, at as libc::off_t);
            if read != RECORD as isize || record.magic != MAGIC {
                return Err(INVALID_VALUE);
            }
            record
        };
        let location = if record.place < 0 {
            Location::HostNuma((-1 - record.place) as i32)
        } else {
            let physical = record.place as u32;
            let device = self.devices.iter().position(|d| d.physical == physical).ok_or(INVALID_DEVICE)?;
            Location::Device(device)
        };
        // SAFETY: duplicates the caller's descriptor; the copy is ours.
        let kept = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 200) };
        if kept < 0 {
            return Err(OUT_OF_MEMORY);
        }
        let mut prop = CUmemAllocationProp {
            type_: weir_cuda::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: weir_cuda::CUmemAllocationHandleType(record.handle_types as u32),
            ..Default::default()
        };
        let (kind, id) = match location {
            Location::Device(d) => (CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, d as i32),
            Location::HostNuma(n) => (CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, n),
        };
        prop.location = weir_cuda::CUmemLocation::of(kind, id);
        let handle = self.fresh();
        let made = Handle {
            size: record.size,
            location,
            prop,
            users: 1,
            maps: 0,
            offset,
            foreign: Some(kept),
            exported: true,
        };
        self.space.handles.insert(handle, made);
        Ok(handle)
    }
}

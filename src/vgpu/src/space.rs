//! Addresses that are not linear memory of a device: reservations and what is mapped into them,
//! pinned and registered host memory, managed memory, and memory of other processes.

use crate::store::Protection;
use std::collections::BTreeMap;
use weir_cuda::CUmemAllocationProp;

/// Where a handle's bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Location {
    Device(usize),
    HostNuma(i32),
}

/// Physical memory made by `cuMemCreate` or imported.
pub(crate) struct Handle {
    pub(crate) size: u64,
    pub(crate) location: Location,
    pub(crate) prop: CUmemAllocationProp,
    /// Creations, imports and retains not yet released.
    pub(crate) users: u32,
    /// Mappings.
    pub(crate) maps: u32,
    /// Its place in the memory file.
    pub(crate) offset: u64,
    /// A descriptor of its own where another process made it, else the common file's.
    pub(crate) foreign: Option<i32>,
    /// Another process may hold it: its place in the file is never given to anyone else.
    pub(crate) exported: bool,
}

/// A handle mapped into a reservation.
pub(crate) struct Mapping {
    pub(crate) size: u64,
    pub(crate) handle: u64,
    pub(crate) id: u64,
    /// Rights by device ordinal, and of the host (`None`).
    pub(crate) access: Vec<(Option<usize>, Protection)>,
    /// Devices with page tables for it: its own since it is mapped, and each since it got rights.
    pub(crate) tables: Vec<usize>,
    /// How many of them are for the mapping itself.
    pub(crate) own_tables: usize,
}

impl Mapping {
    /// The rights of a device.
    pub(crate) fn of(&self, who: Option<usize>) -> Protection {
        self.access.iter().find(|(w, _)| *w == who).map_or(Protection::None, |(_, p)| *p)
    }

    /// The widest right that anyone has.
    pub(crate) fn widest(&self) -> Protection {
        let has = |wanted| self.access.iter().any(|(_, p)| *p == wanted);
        if has(Protection::ReadWrite) {
            Protection::ReadWrite
        } else if has(Protection::Read) {
            Protection::Read
        } else {
            Protection::None
        }
    }
}

/// Reserved address space.
pub(crate) struct Reservation {
    pub(crate) size: u64,
    pub(crate) maps: BTreeMap<u64, Mapping>,
}

/// How host memory became known to the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HostKind {
    Allocated,
    Registered,
}

/// Pinned host memory.
pub(crate) struct Host {
    pub(crate) size: u64,
    pub(crate) kind: HostKind,
    pub(crate) flags: u32,
    pub(crate) ctx: u64,
    pub(crate) id: u64,
}

/// Managed memory.
pub(crate) struct Managed {
    pub(crate) size: u64,
    pub(crate) ctx: u64,
    pub(crate) id: u64,
    /// Where it is: bytes counted on a device.
    pub(crate) resident: Option<(usize, u64)>,
    pub(crate) advice: Advice,
}

/// What `cuMemAdvise` and `cuMemPrefetchAsync` said.
#[derive(Clone, Copy)]
pub(crate) struct Advice {
    pub(crate) read_mostly: bool,
    pub(crate) preferred: i32,
    pub(crate) accessed_by: u64,
    pub(crate) last_prefetch: i32,
}

impl Default for Advice {
    fn default() -> Self {
        // CU_DEVICE_INVALID: never said.
        Self { read_mostly: false, preferred: -2, accessed_by: 0, last_prefetch: -2 }
    }
}

/// Memory of another process, opened by legacy IPC.
pub(crate) struct Import {
    /// Where the mapping begins, which is whole pages around the block.
    pub(crate) span: u64,
    pub(crate) size: u64,
    pub(crate) device: usize,
    pub(crate) ctx: u64,
    pub(crate) id: u64,
    pub(crate) users: u32,
    pub(crate) key: [u64; 8],
}

/// All of them, by first address.
#[derive(Default)]
pub(crate) struct Space {
    pub(crate) reservations: BTreeMap<u64, Reservation>,
    pub(crate) handles: crate::state::Map<Handle>,
    pub(crate) host: BTreeMap<u64, Host>,
    pub(crate) managed: BTreeMap<u64, Managed>,
    pub(crate) imports: BTreeMap<u64, Import>,
    pub(crate) files: crate::vmm::Files,
}

/// The entry of a map whose range holds `addr`.
pub(crate) fn around<T>(map: &BTreeMap<u64, T>, addr: u64, size: impl Fn(&T) -> u64) -> Option<(u64, &T)> {
    let (&start, item) = map.range(..=addr).next_back()?;
    (addr - start < size(item)).then_some((start, item))
}

impl Space {
    /// The reservation and mapping at an address.
    pub(crate) fn mapping(&self, addr: u64) -> Option<(u64, &Mapping)> {
        let (_, reservation) = around(&self.reservations, addr, |r| r.size)?;
        around(&reservation.maps, addr, |m| m.size)
    }

    pub(crate) fn reserved(&self, addr: u64) -> bool {
        around(&self.reservations, addr, |r| r.size).is_some()
    }
}

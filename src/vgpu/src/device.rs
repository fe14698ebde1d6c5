//! One device as the job sees it: its size, its linear memory, and what is taken of it, by this
//! process and, where the device is shared, by others.

use crate::attributes;
use crate::config::{self, Config};
use crate::error::*;
use crate::heap::Heap;
use crate::shared::Shared;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Physical bytes that this process holds, by physical device: read without the lock.
static PHYSICAL: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Bytes of a device that this process holds.
pub(crate) fn physical_bytes(physical: usize) -> u64 {
    PHYSICAL.get(physical).map_or(0, |p| p.load(Ordering::Relaxed))
}

/// The most that it ever held.
static MOST: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// The most bytes of a device that this process ever held.
pub(crate) fn physical_peak(physical: usize) -> u64 {
    MOST.get(physical).map_or(0, |p| p.load(Ordering::Relaxed))
}

/// Contexts of this process that are alive, by physical device: read without the lock.
static CONTEXTS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Whether this process has a context on a device.
pub(crate) fn in_use(physical: usize) -> bool {
    CONTEXTS.get(physical).is_some_and(|c| c.load(Ordering::Relaxed) > 0)
}

/// The file in which processes share devices, if there is one.
pub(crate) fn shared() -> Option<Arc<Shared>> {
    static FILE: OnceLock<Option<Arc<Shared>>> = OnceLock::new();
    FILE.get_or_init(|| {
        let config = config::get();
        let path = config.shared.as_ref()?;
        let totals: Vec<u64> = (0..config.devices).map(|d| config.memory_of(d)).collect();
        match Shared::open(path, &totals) {
            Ok(file) => Some(Arc::new(file)),
            Err(error) => {
                eprintln!("vgpu: VGPU_SHARED={}: {error}", path.display());
                None
            }
        }
    })
    .clone()
}

/// What is taken of a device.
pub(crate) struct Meter {
    physical: u32,
    total: u64,
    shared: Option<Arc<Shared>>,
}

impl Meter {
    /// Takes physical memory, if there is so much left.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let counter = &PHYSICAL[self.physical as usize];
        let mine = counter.load(Ordering::Relaxed);
        let fits = match &self.shared {
            Some(file) => file.take(self.physical as usize, bytes),
            None => mine + bytes <= self.total,
        };
        if fits || config::fault("oom_ignored") {
            // Every caller holds the state's lock: nobody else writes.
            counter.store(mine + bytes, Ordering::Relaxed);
            MOST[self.physical as usize].fetch_max(mine + bytes, Ordering::Relaxed);
            return true;
        }
        false
    }

    /// Gives physical memory back.
    pub(crate) fn give(&self, bytes: u64) {
        let counter = &PHYSICAL[self.physical as usize];
        counter.store(counter.load(Ordering::Relaxed).saturating_sub(bytes), Ordering::Relaxed);
        if let Some(file) = &self.shared {
            file.give(self.physical as usize, bytes);
        }
    }

    /// Bytes held by all processes.
    pub(crate) fn used(&self) -> u64 {
        match &self.shared {
            Some(file) => file.used(self.physical as usize),
            None => physical_bytes(self.physical as usize),
        }
    }
}

/// A visible device.
pub(crate) struct Device {
    /// Its number among all devices, whatever CUDA_VISIBLE_DEVICES says.
    pub(crate) physical: u32,
    pub(crate) total: u64,
    pub(crate) meter: Meter,
    pub(crate) heap: Heap,
    /// Handle of its primary context, 0 before there ever was one.
    pub(crate) primary: u64,
    pub(crate) primary_flags: u32,
    pub(crate) default_pool: u64,
    pub(crate) current_pool: u64,
    /// Memory held for graphs: now and at most, in use and reserved.
    pub(crate) graph_memory: GraphMemory,
}

/// What graphs hold on a device.
#[derive(Default, Clone, Copy)]
pub(crate) struct GraphMemory {
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
}

impl Device {
    /// The devices that CUDA_VISIBLE_DEVICES leaves, in its order.
    pub(crate) fn all(config: &Config) -> R<Vec<Self>> {
        if config.shared.is_some() && shared().is_none() {
            return Err(UNKNOWN);
        }
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        attributes::visible_devices(config, visible.as_deref())
            .into_iter()
            .map(|physical| {
                let total = config.memory_of(physical);
                Ok(Self {
                    physical,
                    total,
                    meter: Meter { physical, total, shared: shared() },
                    heap: Heap::new(total)?,
                    primary: 0,
                    primary_flags: 0,
                    default_pool: 0,
                    current_pool: 0,
                    graph_memory: GraphMemory::default(),
                })
            })
            .collect()
    }

    /// Takes physical memory, if there is so much left.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        self.meter.take(bytes)
    }

    /// Gives physical memory back.
    pub(crate) fn give(&self, bytes: u64) {
        self.meter.give(bytes);
    }

    /// A context was made on the device.
    pub(crate) fn context_made(&self) {
        CONTEXTS[self.physical as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A context of the device was destroyed.
    pub(crate) fn context_gone(&self) {
        CONTEXTS[self.physical as usize].fetch_sub(1, Ordering::Relaxed);
    }

    /// Bytes that nobody holds.
    pub(crate) fn free(&self) -> u64 {
        self.total.saturating_sub(self.meter.used())
    }
}

//! What a device pool stands on: tried once when the pool is made, and the next simpler way taken where the driver refuses.
//!
//! Attributes say what a device can, and some say too much: under WSL2 the attribute for RDMA is 1, handles with the flag
//! are created and mapped, and access to them is refused. So one handle is reserved for, created, mapped, made accessible
//! and released: with all flags, without RDMA, without a handle type. Then less address space ([`Pool::new`]), then plain
//! segments of the context, at last no pool.

use super::backing::{Driver, Traits};
use crate::driver::real::device_attribute;
use core::fmt::Write as _;
use weir_cuda::CUdevice_attribute;
use weir_pool::{Backing, BackingError, Budget, Config, Pool};
use weir_settings::size::human;

/// What a pool stands on.
pub(super) struct Footing {
    pub(super) driver: Driver,
    pub(super) pool: Pool,
    /// In words, with what was refused.
    pub(super) words: String,
}

/// A call that the driver refused.
struct Refusal {
    call: &'static str,
    error: BackingError,
}

/// Which call an error came from.
fn by(call: &'static str) -> impl Fn(BackingError) -> Refusal {
    move |error| Refusal { call, error }
}

impl Refusal {
    /// Whether it says nothing about what the device can: there was no memory to try it with.
    fn proves_nothing(&self) -> bool {
        !matches!(self.error, BackingError::Driver(_)) && self.call != "cuMemAddressReserve"
    }

    fn words(&self) -> String {
        match self.error {
            BackingError::Driver(code) => format!("{} returned {code}", self.call),
            BackingError::OutOfMemory => format!("{} found no memory", self.call),
            BackingError::OverCap | BackingError::Busy => format!("{} was not tried", self.call),
        }
    }
}

/// Finds the best footing for a pool of a device, whose context `ctx` is current. An error: why there is none.
pub(super) fn find(ordinal: i32, ctx: u64, mut config: Config) -> Result<Footing, String> {
    let mut refused = String::new();
    let vmm = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    if !config.vmm {
        refused.push_str("; WEIR_POOL=novmm");
    } else if device_attribute(ordinal, vmm) != Some(1) {
        refused.push_str("; the device has no virtual memory management");
        config.vmm = false;
    } else if let Some(footing) = mapped(ordinal, &config, &mut refused) {
        return Ok(footing);
    }
    if config.vmm && !ample() {
        return Err(format!("no pool, requests go to the driver: the process has little address space left{refused}"));
    }
    config.vmm = false;
    let driver = Driver::new(ordinal, ctx, Traits::default());
    let words = format!("plain segments{refused}");
    match Pool::new(config, &driver) {
        Ok(pool) => Ok(Footing { driver, pool, words }),
        Err(_) => Err(format!("no pool, requests go to the driver{refused}")),
    }
}

/// Whether this process has address space for a pool's tables: where it has not (RLIMIT_AS), that is why the driver could
/// reserve none.
fn ample() -> bool {
    const TABLES: usize = 256 << 20;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice, taken away at once.
    unsafe {
        let at = libc::mmap(core::ptr::null_mut(), TABLES, libc::PROT_NONE, flags, -1, 0);
        at != libc::MAP_FAILED && libc::munmap(at, TABLES) == 0
    }
}

/// The best footing of mapped memory; what is refused is added to `refused`.
fn mapped(ordinal: i32, config: &Config, refused: &mut String) -> Option<Footing> {
    let all = Traits::of(ordinal);
    let mut rungs = vec![all, Traits { rdma: false, ..all }, Traits::default()];
    rungs.dedup();
    for traits in rungs {
        let driver = Driver::new(ordinal, 0, traits);
        let tried = driver
            .granularity()
            .ok_or(Refusal { call: "cuMemGetAllocationGranularity", error: BackingError::OutOfMemory });
        let tried = tried.and_then(|least| try_one(&driver, least).map(|()| least));
        let least = match tried {
            Ok(least) => least,
            Err(refusal) => {
                let least = driver.granularity().filter(|_| refusal.proves_nothing());
                if least.is_none() {
                    let _ = write!(refused, "; {}: {}", named(traits), refusal.words());
                }
                let Some(least) = least else { continue };
                least
            }
        };
        let mut config = config.clone();
        config.small_handle = config.small_handle.max(least);
        config.large_handle = config.large_handle.max(config.small_handle);
        let pool = match Pool::new(config, &driver) {
            Ok(pool) => pool,
            Err(error) => {
                let _ = write!(refused, "; {}", by("cuMemAddressReserve")(error).words());
                return None;
            }
        };
        let space: u64 = pool.address_ranges().map(|range| range.end - range.start).sum();
        let words = format!("{}, {} of address space{refused}", named(traits), human(space));
        return Some(Footing { driver, pool, words });
    }
    None
}

fn named(traits: Traits) -> &'static str {
    match traits {
        Traits { shareable: true, rdma: true } => "mapped memory, shareable, for RDMA",
        Traits { shareable: false, rdma: true } => "mapped memory, for RDMA",
        Traits { shareable: true, rdma: false } => "mapped memory, shareable, without RDMA",
        Traits { shareable: false, rdma: false } => "mapped memory, not shareable, without RDMA",
    }
}

/// Does with one handle what the pool does with each, and gives all of it back. What cannot be unmapped stays charged.
fn try_one(driver: &Driver, bytes: u64) -> Result<(), Refusal> {
    let addr = driver.reserve(bytes, bytes).map_err(by("cuMemAddressReserve"))?;
    let used = use_one(driver, addr, bytes);
    if used.as_ref().is_err_and(|refusal| refusal.call == UNMAP) {
        return used;
    }
    used.and(driver.unreserve(addr, bytes).map_err(by("cuMemAddressFree")))
}

const UNMAP: &str = "cuMemUnmap";

fn use_one(driver: &Driver, addr: u64, bytes: u64) -> Result<(), Refusal> {
    let handle = driver.create(bytes, &Budget::default()).map_err(by("cuMemCreate"))?;
    let mapped = driver.map(addr, bytes, handle).map_err(by("cuMemMap"));
    let accessible = mapped.and_then(|()| {
        let access = driver.set_access(addr, bytes, &[]).map_err(by("cuMemSetAccess"));
        driver.unmap(addr, bytes).map_err(by(UNMAP))?;
        access
    });
    if accessible.as_ref().is_err_and(|refusal| refusal.call == UNMAP) {
        return accessible;
    }
    accessible.and(driver.release(handle, bytes).map_err(by("cuMemRelease")))
}

//! What this job may take: every byte of device memory that it causes is asked for here before the driver is asked.
//!
//! Without WEIR_CAP and WEIR_GROUP [`on`] is one load and one branch, and nothing else of this folder runs. With them,
//! the account is made in cuInit, kept in a ledger file (`weir-ledger`), and never freed. What is charged, and when, is
//! told in docs/CAPS.md.
//!
//! | file | for |
//! |---|---|
//! | `terms.rs` | what the environment asks for |
//! | `machine.rs` | the devices, by UUID and physical index |
//! | `admit.rs` | asking for room, making room, waiting for it |
//! | `linear.rs` | passed-through allocations, by address |
//! | `fences.rs` | how far streams have come, asked and never waited for |
//! | `arrays.rs` | arrays and mipmaps |
//! | `handles.rs` | the job's own physical handles and their mappings |
//! | `measured.rs` | what only the driver can tell: its mempools and its graphs' memory |
//! | `contexts.rs` | what contexts take for themselves, and what goes with them |
//! | `pool.rs` | the pool's handles |
//! | `watch.rs` | whether a figure that was read twice tells what one call did |
//! | `view.rs` | the one truth behind every query |
//! | `spill.rs`, `host.rs` | host memory in place of device memory, and what the host has |
//! | `wake.rs` | telling those who wait that memory came free |

pub(crate) mod admit;
pub(crate) mod arrays;
pub(crate) mod contexts;
mod fences;
pub(crate) mod handles;
mod host;
pub(crate) mod linear;
mod machine;
pub(crate) mod measured;
pub(crate) mod pool;
pub(crate) mod spill;
pub(crate) mod terms;
pub(crate) mod view;
pub(crate) mod wake;
pub(crate) mod watch;

use crate::config::Config;
use crate::served::real::{self, done};
use crate::{job, recorder, surroundings};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::OnceLock;
use terms::Terms;
use weir_cuda::CUresult;
use weir_ledger::settings::uuid_text;
use weir_ledger::{DeviceId, DeviceTerms, Ledger};
use weir_pool::ranks::{Locked, Mutex, Rank};

/// Physical memory comes in portions of this size; plain allocations share them.
pub(crate) const PAGE: u64 = 2 << 20;
/// Each device's account sets a little aside for tiny requests, unless the cap is smaller than this.
const ASIDE_FROM: u64 = 16 * PAGE;

/// A device that the job sees.
pub(crate) struct Device {
    /// Its number in this process.
    pub(crate) ordinal: i32,
    /// Its name everywhere.
    pub(crate) uuid: [u8; 16],
    /// Its bytes.
    pub(crate) physical: u64,
    cap: Option<u64>,
    opened: OnceLock<Option<DeviceId>>,
}

/// The job's account.
pub(crate) struct Caps {
    /// Where it is kept.
    pub(crate) ledger: Ledger,
    terms: &'static Terms,
    devices: Vec<Device>,
    linear: linear::Books,
    arrays: Mutex<arrays::Arrays>,
    handles: Mutex<handles::Handles>,
    measured: Mutex<measured::Measured>,
    contexts: Mutex<contexts::Contexts>,
}

static CAPS: AtomicPtr<Caps> = AtomicPtr::new(core::ptr::null_mut());
static OPENING: Mutex<()> = Mutex::new(Rank::Opening, ());

/// The job's account, if it has one.
#[inline]
pub(crate) fn on() -> Option<&'static Caps> {
    // SAFETY: a non-null pointer comes from `open`, which leaks what it points to.
    let caps = unsafe { CAPS.load(Ordering::Acquire).as_ref() }?;
    if caps.ledger.is_here() { job::active().map(|_| caps) } else { in_child() }
}

/// A fork has no part in its parent's account: it opens its own.
#[cold]
fn in_child() -> Option<&'static Caps> {
    let config = &job::active()?.config;
    open(config).ok()?;
    // SAFETY: as above.
    unsafe { CAPS.load(Ordering::Acquire).as_ref() }.filter(|caps| caps.ledger.is_here())
}

/// What cuInit does after the driver's own: opens the account. An answer is what cuInit shall say instead.
pub(crate) fn begin(config: &'static Config) -> Option<CUresult> {
    if !config.caps.any() || job::active().is_none() || on().is_some() {
        return None;
    }
    let _kept = surroundings::Errno::keep();
    let problem = open(config).err()?;
    surroundings::say(&format!("{problem}; the job runs without weir's effect"));
    job::turn_off(problem);
    config.strict.then_some(CUresult::CUDA_ERROR_INVALID_VALUE)
}

fn open(config: &'static Config) -> Result<(), String> {
    let _opening = OPENING.lock();
    // SAFETY: as in `on`.
    if unsafe { CAPS.load(Ordering::Acquire).as_ref() }.is_some_and(|caps| caps.ledger.is_here()) {
        return Ok(());
    }
    let terms = &config.caps;
    let seen = machine::visible();
    let facts = machine::facts(&seen, terms.cap.as_ref());
    let caps = match &terms.cap {
        Some(setting) => setting.resolve(&facts).map_err(|bad| format!("WEIR_CAP={bad}"))?,
        None => vec![None; facts.len()],
    };
    let cap_of = |uuid: [u8; 16]| facts.iter().zip(&caps).find(|(fact, _)| fact.uuid == uuid).and_then(|(_, cap)| *cap);
    let devices = (0..)
        .zip(&seen)
        .map(|(ordinal, fact)| Device {
            ordinal,
            uuid: fact.uuid,
            physical: fact.physical,
            cap: cap_of(fact.uuid),
            opened: OnceLock::new(),
        })
        .collect();
    let ledger = match &terms.group {
        Some(group) => Ledger::join_group(&terms.place, group).map_err(|e| format!("WEIR_GROUP={group}: {e}"))?,
        None => Ledger::for_process(&terms.place)
            .or_else(|_| {
                job::remember("the ledger has no file: the cap holds, but `weir cap` cannot change it");
                Ledger::private()
            })
            .map_err(|e| format!("WEIR_CAP: {e}"))?,
    };
    let caps = Box::new(Caps {
        ledger,
        terms,
        devices,
        linear: linear::Books::new(),
        arrays: Mutex::new(Rank::Arrays, arrays::Arrays::default()),
        handles: Mutex::new(Rank::Handles, handles::Handles::default()),
        measured: Mutex::new(Rank::Measured, measured::Measured::default()),
        contexts: Mutex::new(Rank::Overhead, contexts::Contexts::default()),
    });
    CAPS.store(Box::into_raw(caps), Ordering::Release);
    Ok(())
}

impl Caps {
    /// The devices that the job sees.
    pub(crate) fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// A device by its number in this process.
    pub(crate) fn device(&self, ordinal: i32) -> Option<&Device> {
        self.devices.get(usize::try_from(ordinal).ok()?)
    }

    /// The account of a device; `None` where it has neither a cap nor a group.
    pub(crate) fn account(&self, device: &Device) -> Option<DeviceId> {
        *device.opened.get_or_init(|| {
            if device.cap.is_none() && self.terms.group.is_none() {
                return None;
            }
            let terms = DeviceTerms {
                uuid: device.uuid,
                physical: device.physical,
                cap: device.cap,
                warn: self.terms.warn,
                set_aside: device.cap.map(|cap| if cap >= ASIDE_FROM { linear::aside() } else { 0 }),
            };
            let opened = self.ledger.open_device(&terms);
            if let Err(problem) = &opened {
                surroundings::say(&format!("{}: {problem}; it has no cap", uuid_text(device.uuid)));
            }
            if let Ok(account) = &opened {
                let cap = self.ledger.view(*account).and_then(|view| view.cap);
                recorder::cap_changed(device.ordinal, cap);
            }
            opened.ok()
        })
    }

    /// The cap of a device, as far as it is known without opening its account.
    pub(crate) fn known_cap(&self, ordinal: i32) -> Option<u64> {
        let device = self.device(ordinal)?;
        match device.opened.get() {
            Some(opened) => self.ledger.view((*opened)?)?.cap,
            None => device.cap,
        }
    }

    /// A device of the job and its account.
    pub(crate) fn at(&self, ordinal: i32) -> Option<(&Device, DeviceId)> {
        let device = self.device(ordinal)?;
        Some((device, self.account(device)?))
    }

    /// The device of the calling thread's current context and its account.
    pub(crate) fn here(&self) -> Option<(&Device, DeviceId)> {
        self.at(current_device()?)
    }
}

/// The device of the calling thread's current context.
pub(crate) fn current_device() -> Option<i32> {
    let mut device = -1;
    // SAFETY: the place is a live local.
    done(unsafe { real::cuCtxGetDevice(&raw mut device) }).ok().map(|()| device)
}

/// Takes a lock.
#[track_caller]
fn lock<T>(mutex: &Mutex<T>) -> Locked<'_, T> {
    mutex.lock()
}

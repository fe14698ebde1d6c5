//! What this job may allocate: every byte of device memory that it causes is reserved here before the driver is called.
//!
//! Without WEIR_CAP and WEIR_GROUP [`on`] is one load and one branch, and nothing else of this folder runs. With them,
//! the account is made in cuInit, kept in a ledger file (`weir-ledger`), and never freed. What is charged, and when, is
//! written in docs/internals/caps.md.
//!
//! | file | for |
//! |---|---|
//! | `machine.rs` | the devices, by UUID and physical index |
//! | `admit.rs` | reserving room, making room, waiting for it |
//! | `linear.rs` | passed-through allocations, by address |
//! | `fences.rs` | how far streams have come, queried and never waited for |
//! | `arrays.rs` | arrays and mipmaps |
//! | `handles.rs` | the job's own physical handles and their mappings |
//! | `measured.rs` | what only the driver knows: what its mempools hold |
//! | `graphs.rs` | the memory of graphs |
//! | `contexts.rs` | what contexts take for themselves, and what goes with them |
//! | `pool.rs` | the pool's handles |
//! | `watch.rs` | what one call did, by a figure that is read twice |
//! | `view.rs` | the one truth behind every query |
//! | `spill.rs`, `host.rs` | host memory in place of device memory, and what the host has |
//! | `wake.rs` | waking those who wait when memory comes free |

pub(crate) mod admit;
pub(crate) mod arrays;
pub(crate) mod contexts;
mod fences;
pub(crate) mod graphs;
pub(crate) mod handles;
mod host;
pub(crate) mod linear;
mod machine;
pub(crate) mod measured;
pub(crate) mod pool;
pub(crate) mod spill;
pub(crate) mod view;
pub(crate) mod wake;
pub(crate) mod watch;

use crate::driver::guards::current_device;
use crate::process::config::Config;
use crate::process::limits::Terms;
use crate::process::{job, surroundings};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::OnceLock;
use weir_ledger::{DeviceId, DeviceTerms, Ledger, LedgerError};
use weir_pool::ranks::{Locked, Mutex, Rank};
use weir_settings::limit::{DeviceFacts, OnCap, uuid_text};
use weir_settings::read::{FAILS, WITHOUT};
use weir_settings::size::Human;

/// Physical memory comes in chunks of this size; plain allocations share them.
pub(crate) const PAGE: u64 = 2 << 20;
/// Each device's account sets a little aside for tiny requests, unless the cap is smaller than this.
const ASIDE_FROM: u64 = 16 * PAGE;

/// What is said where a device's account cannot be opened.
const CLOSED: &str = "every request for its memory is refused (WEIR_STRICT=0 would run the job without this limit)";

/// What the layer above does for the account: it makes room on a device, and records what happens.
pub(crate) trait Callbacks: Sync {
    /// The pools return idle memory of a device to the driver. How many bytes.
    fn trim(&self, ordinal: i32) -> u64;
    /// Waits for all work of a device, but not for ever. False: nothing is proven.
    fn wait_for(&self, ordinal: i32) -> bool;
    /// Bytes of a device that its pools could hand out.
    fn reusable(&self, ordinal: i32) -> u64;
    /// A request of so many bytes waits for room while `wait` lasts, which returns whether it got it.
    fn waiting(&self, ordinal: i32, bytes: u64, wait: &mut dyn FnMut() -> bool);
    /// Something is to be recorded.
    fn happened(&self, ordinal: i32, fact: Fact);
}

/// What is to be recorded of a device.
#[derive(Clone, Copy)]
pub(crate) enum Fact {
    /// Its cap is known, or another than before.
    Cap(Option<u64>),
    /// The job's use crossed its soft mark: the mark and the use.
    Crossed(u64, u64),
    /// What the driver keeps for graphs may be another amount than before.
    GraphMemory,
}

/// The account and a device of it.
pub(crate) type Account = (&'static Caps, (&'static CapDevice, DeviceId));

/// A device that the job sees.
pub(crate) struct CapDevice {
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
    callbacks: &'static dyn Callbacks,
    terms: &'static Terms,
    strict: bool,
    devices: Vec<CapDevice>,
    /// Why it could not be opened.
    lost: Option<String>,
    /// Entries of WEIR_CAP that name no device which the process sees.
    unseen: Vec<String>,
    linear: linear::Allocations,
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
    if caps.ledger.is_here() { job::active().map(|_| caps) } else { in_child(caps.callbacks) }
}

/// The account of a device, after a look whether somebody lacks memory or the cap was lowered: then what is free goes back.
#[inline]
pub(crate) fn enter(ordinal: i32) -> Option<Account> {
    let (caps, (device, account)) = at(ordinal)?;
    caps.look(device, account);
    Some((caps, (device, account)))
}

/// The account of a device.
#[inline]
pub(crate) fn at(ordinal: i32) -> Option<Account> {
    let caps = on()?;
    Some((caps, caps.at(ordinal)?))
}

/// A fork has no part in its parent's account: it opens its own.
#[cold]
fn in_child(callbacks: &'static dyn Callbacks) -> Option<&'static Caps> {
    start(&job::active()?.config, callbacks);
    job::report();
    // SAFETY: as above.
    unsafe { CAPS.load(Ordering::Acquire).as_ref() }.filter(|caps| caps.ledger.is_here())
}

/// What cuInit does after the driver's own: opens the account. Where that cannot be done, cuInit fails and every request
/// is refused; or, with WEIR_STRICT=0, there is no account.
pub(crate) fn begin(config: &'static Config, callbacks: &'static dyn Callbacks) {
    if config.caps.any() && job::active().is_some() && on().is_none() {
        start(config, callbacks);
    }
}

fn start(config: &'static Config, callbacks: &'static dyn Callbacks) {
    let _kept = surroundings::Errno::keep();
    let seen = machine::visible();
    let (opened, lines) = open_once(config, callbacks, &seen);
    for line in &lines {
        surroundings::say(line);
    }
    if opened && let Some(caps) = on() {
        for device in caps.devices() {
            callbacks.happened(device.ordinal, Fact::Cap(caps.known_cap(device.ordinal)));
        }
    }
}

/// Opens the account, unless another thread has. Whether this one has, and what is to be said of it.
fn open_once(config: &'static Config, callbacks: &'static dyn Callbacks, seen: &[DeviceFacts]) -> (bool, Vec<String>) {
    let _opening = OPENING.lock();
    let mut lines = Vec::new();
    // SAFETY: as in `on`.
    if unsafe { CAPS.load(Ordering::Acquire).as_ref() }.is_some_and(|caps| caps.ledger.is_here()) {
        return (false, lines);
    }
    let caps = open(config, callbacks, seen, &mut lines).or_else(|lost| {
        let then = if config.strict { FAILS } else { WITHOUT };
        lines.push(format!("{lost}; {then}"));
        if config.strict {
            job::refuse(lost.clone());
        }
        unopened(config, callbacks, seen, lost)
    });
    let Ok(caps) = caps else { return (false, lines) };
    CAPS.store(Box::into_raw(Box::new(caps)), Ordering::Release);
    (true, lines)
}

/// An account that was not opened: each device is closed or, with WEIR_STRICT=0, has none.
fn unopened(
    config: &'static Config,
    callbacks: &'static dyn Callbacks,
    seen: &[DeviceFacts],
    lost: String,
) -> Result<Caps, LedgerError> {
    let account = config.strict.then_some(DeviceId::CLOSED);
    let devices = devices(seen, |_| None, || OnceLock::from(account));
    Ok(Caps { lost: Some(lost), ..Caps::new(Ledger::private()?, callbacks, config, devices) })
}

fn devices(
    seen: &[DeviceFacts],
    cap_of: impl Fn([u8; 16]) -> Option<u64>,
    opened: impl Fn() -> OnceLock<Option<DeviceId>>,
) -> Vec<CapDevice> {
    (0..)
        .zip(seen)
        .map(|(ordinal, fact)| CapDevice {
            ordinal,
            uuid: fact.uuid,
            physical: fact.physical,
            cap: cap_of(fact.uuid),
            opened: opened(),
        })
        .collect()
}

fn open(
    config: &'static Config,
    callbacks: &'static dyn Callbacks,
    seen: &[DeviceFacts],
    lines: &mut Vec<String>,
) -> Result<Caps, String> {
    let terms = &config.caps;
    let facts = machine::facts(seen, terms.cap.as_ref());
    let caps = match &terms.cap {
        Some(setting) => setting.resolve(&facts).map_err(|bad| format!("WEIR_CAP={bad}"))?,
        None => vec![None; facts.len()],
    };
    let cap_of = |uuid: [u8; 16]| facts.iter().zip(&caps).find(|(fact, _)| fact.uuid == uuid).and_then(|(_, cap)| *cap);
    let ledger = match &terms.group {
        Some(group) => Ledger::join_group(&terms.place, group).map_err(|e| format!("WEIR_GROUP={group}: {e}"))?,
        None => Ledger::for_process(&terms.place)
            .or_else(|_| {
                job::remember("the ledger has no file: the cap holds, but `weir cap` cannot change it");
                Ledger::private()
            })
            .map_err(|e| format!("WEIR_CAP: {e}"))?,
    };
    let unseen = terms.cap.as_ref().map(|cap| cap.unseen(&in_order(seen, &facts))).unwrap_or_default();
    let above = terms.cap.as_ref().map(|cap| cap.above(&in_order(seen, &facts))).unwrap_or_default();
    if !above.is_empty() {
        let devices: Vec<_> =
            above.iter().map(|(uuid, bytes)| format!("{} has {}", uuid_text(*uuid), Human(*bytes))).collect();
        lines.push(format!("WEIR_CAP is above the device, which is the cap then: {}", devices.join(", ")));
    }
    let devices = devices(seen, cap_of, OnceLock::new);
    Ok(Caps { unseen, ..Caps::new(ledger, callbacks, config, devices) })
}

/// The devices that the job sees, with all that is known of them.
fn in_order(seen: &[DeviceFacts], facts: &[DeviceFacts]) -> Vec<DeviceFacts> {
    seen.iter().filter_map(|device| facts.iter().find(|fact| fact.uuid == device.uuid)).copied().collect()
}

/// Why there is no account although there should be one.
pub(crate) fn lost() -> Option<String> {
    // SAFETY: as in `on`.
    unsafe { CAPS.load(Ordering::Acquire).as_ref() }.and_then(|caps| caps.lost.clone())
}

/// The entries of WEIR_CAP that name no device which this process sees.
pub(crate) fn unseen() -> Vec<String> {
    on().map(|caps| caps.unseen.clone()).unwrap_or_default()
}

impl Caps {
    fn new(
        ledger: Ledger,
        callbacks: &'static dyn Callbacks,
        config: &'static Config,
        devices: Vec<CapDevice>,
    ) -> Self {
        Self {
            ledger,
            callbacks,
            terms: &config.caps,
            strict: config.strict,
            devices,
            lost: None,
            unseen: Vec::new(),
            linear: linear::Allocations::new(),
            arrays: Mutex::new(Rank::Arrays, arrays::Arrays::default()),
            handles: Mutex::new(Rank::Handles, handles::Handles::default()),
            measured: Mutex::new(Rank::Measured, measured::Measured::default()),
            contexts: Mutex::new(Rank::Overhead, contexts::Contexts::default()),
        }
    }

    /// Looks whether somebody lacks memory or the cap was lowered: then what is free goes back.
    #[inline]
    fn look(&self, device: &CapDevice, account: DeviceId) {
        if let Some(news) = self.ledger.news(account) {
            self.react(device, &news);
        }
    }

    /// What happens at the cap.
    pub(crate) fn on_cap(&self) -> OnCap {
        self.terms.on_cap
    }

    /// The devices that the job sees.
    pub(crate) fn devices(&self) -> &[CapDevice] {
        &self.devices
    }

    /// A device by its number in this process.
    pub(crate) fn device(&self, ordinal: i32) -> Option<&CapDevice> {
        self.devices.get(usize::try_from(ordinal).ok()?)
    }

    /// The account of a device; `None` where it has neither a cap nor a group. One that cannot be opened is closed: every
    /// request is refused, because the device must not be used without its cap.
    pub(crate) fn account(&self, device: &CapDevice) -> Option<DeviceId> {
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
            match self.ledger.open_device(&terms) {
                Ok(account) => {
                    let cap = self.ledger.view(account).and_then(|view| view.cap);
                    self.callbacks.happened(device.ordinal, Fact::Cap(cap));
                    Some(account)
                }
                Err(problem) => {
                    let then = if self.strict { CLOSED } else { WITHOUT };
                    surroundings::say(&format!("{}: {problem}; {then}", uuid_text(device.uuid)));
                    self.strict.then_some(DeviceId::CLOSED)
                }
            }
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
    pub(crate) fn at(&self, ordinal: i32) -> Option<(&CapDevice, DeviceId)> {
        let device = self.device(ordinal)?;
        Some((device, self.account(device)?))
    }

    /// The device of the calling thread's current context and its account.
    pub(crate) fn here(&self) -> Option<(&CapDevice, DeviceId)> {
        self.at(current_device()?)
    }
}

/// Takes a lock.
#[track_caller]
fn lock<T>(mutex: &Mutex<T>) -> Locked<'_, T> {
    mutex.lock()
}

//! What a job's process uses: reserve before asking the driver, then commit or give back; one truth for all queries.
//!
//! A process with a cap has a ledger: that of its group, or one of its own which only differs by having a single row.
//! On the way that fits there is no system call and no allocation: a short process-local lock (one for each device) and
//! the lock-free protocol of [`crate::admission`]. Only when a request does not fit are files and processes looked at.
//!
//! It touches the ledger's words and, through the `members` module, its file. After `fork` the child's copy answers
//! [`Refusal::Forked`] and touches nothing: the child joins on its own.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::admission::{self, Admitted, Refused};
use crate::fault::{Fault, injected};
use crate::file::{Book, LedgerError};
use crate::map;
use crate::members::{self, Census, Identity};
use crate::place::Place;
use crate::queue;
use crate::table::{CATEGORIES, MAX_DEVICES, Table};
use crate::word::{self, MAX_UNITS, SharedWord, UNIT, Word, units_up};
use weir_settings::size::{Amount, Human};

/// Each process sets so much aside on each device for tiny requests, at most: one small granule of the pool.
pub const SET_ASIDE: u64 = 2 << 20;
/// Requests up to this size may use what was set aside.
pub const TINY: u64 = 4096;
/// How often one who waits looks whether somebody died; a death wakes nobody.
const LOOK: Duration = Duration::from_millis(20);
/// After so many waits in a row during which nothing came free the next ones are shorter.
const VAIN_WAITS: u32 = 2;
/// But no shorter than this, so that it is seen when something comes free again.
const SHORTEST: Duration = Duration::from_millis(1);
/// How often it compares start times of processes at most.
const THOROUGH_MS: u64 = 1000;

/// What memory is used for. All but `Spilled` is physical memory of the device and counts against the cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Category {
    /// Handles of the pool.
    Pool = 0,
    /// Device allocations passed through.
    Device = 1,
    /// Managed memory.
    Managed = 2,
    /// Arrays and mipmaps.
    Array = 3,
    /// Handles that the job itself created.
    Vmm = 4,
    /// Memory imported from elsewhere, where it counts.
    Imported = 5,
    /// The context's own memory.
    Context = 6,
    /// Host memory behind device pointers: shown apart, not charged.
    Spilled = 7,
}

impl Category {
    /// All of them, in the order of [`Usage::by_category`].
    pub const ALL: [Self; CATEGORIES] =
        [Self::Pool, Self::Device, Self::Managed, Self::Array, Self::Vmm, Self::Imported, Self::Context, Self::Spilled];
}

/// How badly a request is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Urgency {
    /// An ordinary request.
    #[default]
    Normal,
    /// Made for a request of at most [`TINY`] bytes: may use what was set aside.
    Tiny,
}

/// A device opened in a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceId(usize);

impl DeviceId {
    /// A device whose account could not be opened: every request is refused, and it has no memory to show.
    pub const CLOSED: Self = Self(usize::MAX);

    /// Its place in the ledger's table.
    pub fn index(self) -> usize {
        self.0
    }
}

/// Bytes that are charged but not yet used. A plain value: nothing happens when it is dropped, copied by a fork or lost
/// with its process. Give it to [`Ledger::commit`] or [`Ledger::give_back`].
#[must_use = "a reservation stays charged until it is committed or given back"]
#[derive(Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Reservation {
    units: u64,
    owner: u32,
    device: u16,
    category: u8,
}

impl Reservation {
    /// The bytes charged: the request rounded up to the unit of account.
    pub fn bytes(&self) -> u64 {
        self.units * UNIT
    }
}

/// A granted request.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct Grant {
    /// To be committed or given back.
    pub reservation: Reservation,
    /// Set when this request made the use cross the soft mark: once for each crossing.
    pub crossed_mark: Option<Crossing>,
    /// How long it had to wait.
    pub waited: Duration,
}

/// The soft mark was crossed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// Bytes used by all members.
    pub used: u64,
    /// The cap in bytes.
    pub cap: u64,
}

/// Why a request was not granted. Nothing is charged then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It can never fit: larger than the cap less what is set aside. Waiting is of no use.
    TooLarge {
        /// The largest request that could ever be granted, in bytes.
        largest: u64,
    },
    /// It does not fit now.
    Full {
        /// Free bytes under the cap.
        free: u64,
    },
    /// It waited in vain.
    TimedOut {
        /// Free bytes under the cap at the end.
        free: u64,
    },
    /// The one who waited needs it no more.
    Withdrawn,
    /// This is a fork of the process that joined: join again.
    Forked,
    /// The account of the device could not be opened: nothing is granted.
    Closed,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLarge { largest } => {
                write!(f, "larger than the cap allows at all ({})", Human(*largest))
            }
            Self::Full { free } => write!(f, "only {} free under the cap", Human(*free)),
            Self::TimedOut { free } => write!(f, "waited in vain, only {} free under the cap", Human(*free)),
            Self::Withdrawn => write!(f, "no longer wanted"),
            Self::Forked => write!(f, "the ledger belongs to the parent process"),
            Self::Closed => write!(f, "the account of the device could not be opened"),
        }
    }
}

impl std::error::Error for Refusal {}

/// What is given when a device is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceTerms {
    /// The device's UUID.
    pub uuid: [u8; 16],
    /// Its physical bytes.
    pub physical: u64,
    /// The cap in bytes, if this process was given one.
    pub cap: Option<u64>,
    /// The soft mark, as a share of the cap or a size.
    pub warn: Option<Amount>,
    /// Bytes to set aside for tiny requests; `None` for the default: [`SET_ASIDE`], at most a 32nd of the cap.
    pub set_aside: Option<u64>,
}

/// What this process uses on one device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Usage {
    /// By [`Category`]; the last, spilled, is host memory.
    pub by_category: [u64; CATEGORIES],
    /// Reserved and neither committed nor given back.
    pub pending: u64,
    /// Set aside for tiny requests.
    pub set_aside: u64,
    /// All that is charged to this process.
    pub charged: u64,
    /// The most that ever was.
    pub peak: u64,
}

/// One moment's truth about a device, behind every query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Physical bytes.
    pub physical: u64,
    /// The cap in force.
    pub cap: Option<u64>,
    /// Bytes charged to all members.
    pub used: u64,
    /// The most that ever was.
    pub peak: u64,
    /// This process's part.
    pub own: Usage,
}

impl View {
    /// What the job is told as the device's size.
    pub fn total(&self) -> u64 {
        self.cap.map_or(self.physical, |cap| cap.min(self.physical))
    }

    /// What the job is told as free: what a request could really get. `cached` is what the pool could hand out without
    /// the driver, `driver_free` what the driver says is free on the whole device.
    pub fn free(&self, driver_free: Option<u64>, cached: u64) -> u64 {
        let under_cap = self.total().saturating_sub(self.used);
        let fresh = driver_free.map_or(under_cap, |d| d.min(under_cap));
        fresh.saturating_add(cached).min(self.total())
    }
}

/// News that a process sees at its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct News {
    /// The cap is another than at the last look.
    pub cap_changed: bool,
    /// Somebody found no room since the last look, or the cap is exceeded: give back what is not in use.
    pub trim_wanted: bool,
    /// Bytes above the cap: nothing is admitted until they are gone.
    pub over: u64,
    /// The cap in force.
    pub cap: Option<u64>,
}

/// What the process keeps for itself about one device.
#[derive(Default)]
struct Local {
    categories: [u64; CATEGORIES],
    pending: u64,
    aside: u64,
    aside_target: u64,
    warn: Option<Amount>,
    above_mark: bool,
    cap_seen: u64,
    trim_seen: u64,
    turns: VecDeque<u64>,
    next_turn: u64,
    /// Frees that those who wait were told of.
    freed: u64,
    /// Waits in a row that ended without the sum or `freed` having changed.
    vain: u32,
}

/// A process's seat in a ledger.
pub struct Ledger {
    book: Book,
    slot: usize,
    own: Identity,
    group: bool,
    last_thorough: AtomicU64,
    local: [Mutex<Local>; MAX_DEVICES],
}

impl Ledger {
    /// Joins the ledger that the processes of a group share.
    pub fn join_group(place: &Place, name: &str) -> Result<Self, LedgerError> {
        let (book, slot) = Book::join_group(place, name)?;
        Ok(Self::seated(book, slot, true))
    }

    /// A ledger for this process alone, with a file through which the cap can be changed.
    pub fn for_process(place: &Place) -> Result<Self, LedgerError> {
        let own = Identity::own();
        Ok(Self::seated(Book::of_process(place, own.start)?, 0, false))
    }

    /// A ledger for this process alone, without a file: the cap holds, but nobody can change it from outside.
    pub fn private() -> Result<Self, LedgerError> {
        let book = Book::private().map_err(|error| LedgerError::System {
            path: std::path::PathBuf::new(),
            doing: "get memory for a ledger",
            error,
        })?;
        Ok(Self::seated(book, 0, false))
    }

    fn seated(book: Book, slot: usize, group: bool) -> Self {
        let own = Identity::own();
        members::move_in(&book, slot, own);
        if group {
            Census::new(&book, own).bury_dead(Some(slot));
        }
        Self {
            book,
            slot,
            own,
            group,
            last_thorough: AtomicU64::new(0),
            local: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// Gives everything back and leaves. Without it the kernel does the same when the process ends.
    pub fn leave(self) {
        if !self.book.mapping.is_here() {
            return;
        }
        members::move_out(&self.book, self.slot);
        for device in 0..MAX_DEVICES {
            self.kick(DeviceId(device));
        }
        if !self.group {
            let _ = std::fs::remove_file(&self.book.path);
        }
    }

    /// Whether this is the process that joined, and not a fork of it.
    pub fn is_here(&self) -> bool {
        self.book.mapping.is_here()
    }

    /// The ledger's file; empty for a private one.
    pub fn path(&self) -> &std::path::Path {
        &self.book.path
    }

    /// The words, for a device with an account.
    fn table_of(&self, device: DeviceId) -> Result<Table<'_, SharedWord>, Refusal> {
        if device == DeviceId::CLOSED {
            return Err(Refusal::Closed);
        }
        self.book.table().ok_or(Refusal::Forked)
    }

    fn local(&self, device: DeviceId) -> MutexGuard<'_, Local> {
        self.local[device.0 % MAX_DEVICES].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a device: declares the cap, and sets a little aside for tiny requests if there is room.
    pub fn open_device(&self, terms: &DeviceTerms) -> Result<DeviceId, LedgerError> {
        let table = self.book.table().ok_or(LedgerError::NotFound { wanted: "the parent process".into() })?;
        let index = table.device_of(terms.uuid, terms.physical).ok_or(LedgerError::TooManyDevices)?;
        let shared = table.device(index);
        let cell = table.cell(self.slot, index);
        let mut local = self.local(DeviceId(index));
        // An order given to the group holds for newcomers too, as long as the group is not empty in between.
        let order = (0..table.members())
            .filter(|s| table.is_owned(*s))
            .map(|s| word::Amount::unpack(table.cell(s, index).ordered.load()))
            .filter(|a| a.units != 0)
            .max_by_key(|a| a.number);
        if let Some(order) = order {
            cell.ordered.store(order.pack());
        }
        cell.declared.store(terms.cap.map_or(0, |cap| (cap / UNIT).clamp(1, MAX_UNITS)));
        let (cap, _) = admission::refresh_cap(table, index, true, |s| table.is_owned(s));
        local.warn = terms.warn;
        local.cap_seen = cap;
        local.trim_seen = shared.trim.load();
        let default = if cap == 0 { 0 } else { SET_ASIDE.min(cap * UNIT / 32) };
        local.aside_target = terms.set_aside.unwrap_or(default) / UNIT;
        let missing = local.aside_target.saturating_sub(local.aside);
        if missing != 0 && admission::take(table, self.slot, index, missing, true).is_ok() {
            local.aside += missing;
        }
        Ok(DeviceId(index))
    }

    /// Reserves memory; answers at once.
    pub fn reserve(
        &self,
        device: DeviceId,
        bytes: u64,
        category: Category,
        urgency: Urgency,
    ) -> Result<Grant, Refusal> {
        let table = self.table_of(device)?;
        let first = self.try_reserve(table, device, bytes, category, urgency);
        let Err(Refusal::Full { .. }) = first else {
            return first;
        };
        // Before it is refused: are there dead members, is the cap still what it was, does the sum add up?
        self.look_around(table, device);
        let second = self.try_reserve(table, device, bytes, category, urgency);
        if second.is_err() {
            table.device(device.0).trim.add(1);
        }
        second
    }

    /// Reserves memory; waits for its turn if it does not fit, at most so long.
    pub fn reserve_waiting(
        &self,
        device: DeviceId,
        bytes: u64,
        category: Category,
        urgency: Urgency,
        patience: Duration,
    ) -> Result<Grant, Refusal> {
        self.reserve_waiting_unless(device, bytes, category, urgency, patience, &mut || false)
    }

    /// The same; `served` is asked again and again meanwhile, and ends the waiting by saying that the need was met
    /// otherwise. It must not wait itself.
    ///
    /// Once several requests in a row have waited in vain and seen nothing come free all the time, each waits half as
    /// long as the one before: those who could free something wait themselves, or nobody will. What comes free while
    /// somebody waits ends that.
    pub fn reserve_waiting_unless(
        &self,
        device: DeviceId,
        bytes: u64,
        category: Category,
        urgency: Urgency,
        patience: Duration,
        served: &mut dyn FnMut() -> bool,
    ) -> Result<Grant, Refusal> {
        let table = self.table_of(device)?;
        let begin = Instant::now();
        if self.local(device).turns.is_empty() && queue::is_empty(table, self.slot, device.0, map::now_ms()) {
            match self.reserve(device, bytes, category, urgency) {
                Err(Refusal::Full { .. }) => {}
                answer => return answer,
            }
        }
        let sum = || table.device(device.0).sum.load();
        let sum_before = sum();
        let (turn, freed, vain) = {
            let mut local = self.local(device);
            let turn = local.next_turn;
            local.next_turn += 1;
            local.turns.push_back(turn);
            (turn, local.freed, local.vain)
        };
        let deadline = begin + patience_after(patience, vain);
        let answer = self.wait(table, device, bytes, category, urgency, turn, deadline, served);
        {
            let mut local = self.local(device);
            local.turns.retain(|t| *t != turn);
            let in_vain =
                matches!(answer, Err(Refusal::TimedOut { .. })) && local.freed == freed && sum() == sum_before;
            local.vain = if in_vain { local.vain.saturating_add(1) } else { 0 };
        }
        self.kick(device); // whoever is next
        answer.map(|grant| Grant { waited: begin.elapsed(), ..grant })
    }

    #[expect(clippy::too_many_arguments, reason = "the request's own terms, its turn, its deadline and its way out")]
    fn wait(
        &self,
        table: Table<'_, SharedWord>,
        device: DeviceId,
        bytes: u64,
        category: Category,
        urgency: Urgency,
        turn: u64,
        deadline: Instant,
        served: &mut dyn FnMut() -> bool,
    ) -> Result<Grant, Refusal> {
        let shared = table.device(device.0);
        let cell = table.cell(self.slot, device.0);
        let mut ticket = None;
        let answer = loop {
            let seen = shared.wake.load();
            shared.hint.store(1);
            let now = map::now_ms();
            let mut free = 0;
            if self.local(device).turns.front() == Some(&turn) {
                let ticket = *ticket
                    .get_or_insert_with(|| queue::stand_in_line(table, self.slot, device.0, units_up(bytes), now));
                cell.beat.store(now);
                if queue::is_first(table, self.slot, device.0, ticket, now) {
                    match self.reserve(device, bytes, category, urgency) {
                        Err(Refusal::Full { free: left }) => free = left,
                        answer => break answer,
                    }
                } else {
                    self.look_around(table, device);
                }
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) else {
                break Err(Refusal::TimedOut { free });
            };
            if served() {
                break Err(Refusal::Withdrawn);
            }
            map::sleep_on(shared.wake, seen, left.min(LOOK));
        };
        if ticket.is_some() {
            queue::leave_line(table, self.slot, device.0);
        }
        answer
    }

    fn look_around(&self, table: Table<'_, SharedWord>, device: DeviceId) {
        if self.group {
            let now = map::now_ms();
            let last = self.last_thorough.load(Relaxed);
            let census = if now.abs_diff(last) > THOROUGH_MS {
                self.last_thorough.store(now, Relaxed);
                Census::thorough(&self.book, self.own)
            } else {
                Census::new(&self.book, self.own)
            };
            census.bury_dead(Some(self.slot));
        }
        admission::refresh_cap(table, device.0, false, |s| table.is_owned(s));
        admission::audit(table, device.0);
    }

    fn try_reserve(
        &self,
        table: Table<'_, SharedWord>,
        device: DeviceId,
        bytes: u64,
        category: Category,
        urgency: Urgency,
    ) -> Result<Grant, Refusal> {
        let units = units_up(bytes);
        let mut local = self.local(device);
        let grant = |crossed_mark| Grant {
            reservation: Reservation { units, owner: self.own.pid, device: device.0 as u16, category: category as u8 },
            crossed_mark,
            waited: Duration::ZERO,
        };
        let cap = word::Amount::unpack(table.device(device.0).cap.load()).units;
        // What was set aside counts. A fact or a lowered cap may have put the sum above the cap: then it is not there.
        let fits = |left: u64| {
            cap == 0 || word::Sum::unpack(table.device(device.0).sum.load()).units.saturating_sub(left) <= cap
        };
        if urgency == Urgency::Tiny && units <= local.aside && fits(local.aside - units) {
            local.aside -= units;
            local.pending += units;
            return Ok(grant(None));
        }
        let largest = if cap == 0 { MAX_UNITS } else { cap.saturating_sub(local.aside_target) };
        if units > largest {
            return Err(Refusal::TooLarge { largest: largest * UNIT });
        }
        match admission::take(table, self.slot, device.0, units, true) {
            Ok(admitted) => {
                local.pending += units;
                Ok(grant(mark(&mut local, admitted)))
            }
            Err(Refused::Full { free }) => Err(Refusal::Full { free: free * UNIT }),
            Err(Refused::Absurd) => Err(Refusal::TooLarge { largest: MAX_UNITS * UNIT }),
        }
    }

    /// The driver has given the memory.
    #[expect(clippy::needless_pass_by_value, reason = "a reservation is used once")]
    pub fn commit(&self, reservation: Reservation) {
        let Some((table, device)) = self.own_reservation(&reservation) else {
            return;
        };
        let mut local = self.local(device);
        let units = reservation.units.min(local.pending);
        local.pending -= units;
        let category = reservation.category as usize % CATEGORIES;
        local.categories[category] += units * UNIT;
        table.cell(self.slot, device.0).categories[category].store(local.categories[category]);
    }

    /// The driver has not given the memory.
    #[expect(clippy::needless_pass_by_value, reason = "a reservation is used once")]
    pub fn give_back(&self, reservation: Reservation) {
        let Some((table, device)) = self.own_reservation(&reservation) else {
            return;
        };
        if injected(Fault::KeepOnGiveBack) {
            return;
        }
        let mut local = self.local(device);
        let units = reservation.units.min(local.pending);
        local.pending -= units;
        self.free_units(table, device, local, units);
    }

    fn own_reservation(&self, reservation: &Reservation) -> Option<(Table<'_, SharedWord>, DeviceId)> {
        let table = self.book.table()?;
        (reservation.owner == self.own.pid).then_some((table, DeviceId(reservation.device as usize % MAX_DEVICES)))
    }

    /// Committed memory went back to the driver. Tells how many bytes were really charged in that category: never more
    /// than there were, so that no account goes below 0.
    pub fn release(&self, device: DeviceId, category: Category, bytes: u64) -> u64 {
        let Ok(table) = self.table_of(device) else {
            return 0;
        };
        let mut local = self.local(device);
        let at = category as usize;
        let bytes = units_up(bytes).saturating_mul(UNIT).min(local.categories[at]);
        local.categories[at] -= bytes;
        table.cell(self.slot, device.0).categories[at].store(local.categories[at]);
        if category != Category::Spilled {
            self.free_units(table, device, local, bytes / UNIT);
        }
        bytes
    }

    /// Charges memory that is there already, such as the context's own: it is a fact, so the cap is not asked.
    pub fn charge(&self, device: DeviceId, category: Category, bytes: u64) -> Option<Crossing> {
        let table = self.table_of(device).ok()?;
        let mut local = self.local(device);
        let at = category as usize;
        let mut crossed = None;
        if category != Category::Spilled {
            let admitted = admission::take(table, self.slot, device.0, units_up(bytes), false).ok()?;
            crossed = mark(&mut local, admitted);
        }
        local.categories[at] = local.categories[at].saturating_add(units_up(bytes).saturating_mul(UNIT));
        table.cell(self.slot, device.0).categories[at].store(local.categories[at]);
        crossed
    }

    /// Gives units back to the group, after what is missing was set aside again.
    fn free_units(&self, table: Table<'_, SharedWord>, device: DeviceId, mut local: MutexGuard<'_, Local>, units: u64) {
        let aside = local.aside_target.saturating_sub(local.aside).min(units);
        local.aside += aside;
        if units > aside {
            let (_, sum) = admission::give_back(table, self.slot, device.0, units - aside);
            let cap = word::Amount::unpack(table.device(device.0).cap.load()).units;
            mark(&mut local, Admitted { sum, cap });
            drop(local);
            self.kick(device);
        }
    }

    /// Whether somebody waits for memory of a device, here or in another process of the group. One load.
    #[inline]
    pub fn somebody_waits(&self, device: DeviceId) -> bool {
        self.book.table().is_some_and(|table| table.device(device.0).hint.load() != 0)
    }

    /// Memory came free that this process keeps: those who wait look again now.
    pub fn freed(&self, device: DeviceId) {
        {
            let mut local = self.local(device);
            local.freed = local.freed.wrapping_add(1);
        }
        self.kick(device);
    }

    /// Wakes those who wait, if there are any.
    fn kick(&self, device: DeviceId) {
        let Some(table) = self.book.table() else {
            return;
        };
        let shared = table.device(device.0);
        if shared.hint.load() != 0 {
            shared.hint.store(0);
            shared.wake.add(1);
            map::wake_all(shared.wake);
        }
    }

    /// One moment's truth about a device; `None` in a fork.
    pub fn view(&self, device: DeviceId) -> Option<View> {
        if device == DeviceId::CLOSED {
            return Some(View { physical: 0, cap: Some(0), used: 0, peak: 0, own: Usage::default() });
        }
        let table = self.book.table()?;
        let local = self.local(device);
        let shared = table.device(device.0);
        let cell = table.cell(self.slot, device.0);
        let charged = admission::held(table, self.slot, device.0) * UNIT;
        let cap = word::Amount::unpack(shared.cap.load()).units;
        Some(View {
            physical: shared.physical.load(),
            cap: (cap != 0).then_some(cap * UNIT),
            used: word::Sum::unpack(shared.sum.load()).units * UNIT,
            peak: shared.peak.load().min(MAX_UNITS) * UNIT,
            own: Usage {
                by_category: local.categories,
                pending: local.pending * UNIT,
                set_aside: local.aside * UNIT,
                charged,
                peak: cell.peak.load().min(MAX_UNITS) * UNIT,
            },
        })
    }

    /// What has happened since the last call; `None` when nothing has. Two loads: cheap enough for every request.
    pub fn news(&self, device: DeviceId) -> Option<News> {
        let table = self.table_of(device).ok()?;
        let shared = table.device(device.0);
        let cap = word::Amount::unpack(shared.cap.load()).units;
        let trim = shared.trim.load();
        let mut local = self.local(device);
        let cap_changed = std::mem::replace(&mut local.cap_seen, cap) != cap;
        let asked = std::mem::replace(&mut local.trim_seen, trim) != trim;
        if !cap_changed && !asked {
            return None;
        }
        let used = word::Sum::unpack(shared.sum.load()).units;
        let over = if cap == 0 { 0 } else { used.saturating_sub(cap) };
        Some(News {
            cap_changed,
            trim_wanted: asked || over != 0,
            over: over * UNIT,
            cap: (cap != 0).then_some(cap * UNIT),
        })
    }
}

/// How long a request waits after `vain` others in a row saw nothing come free.
fn patience_after(patience: Duration, vain: u32) -> Duration {
    let shorter = patience / 1_u32.checked_shl(vain.saturating_sub(VAIN_WAITS - 1)).unwrap_or(u32::MAX);
    shorter.max(SHORTEST).min(patience)
}

/// Tells a crossing of the soft mark, once; the next is told after the use has been a twentieth of the cap below it.
fn mark(local: &mut Local, admitted: Admitted) -> Option<Crossing> {
    let level = local.warn?.of(admitted.cap * UNIT).min(admitted.cap * UNIT) / UNIT;
    if admitted.cap == 0 || level == 0 {
        return None;
    }
    if admitted.sum >= level {
        return (!std::mem::replace(&mut local.above_mark, true))
            .then_some(Crossing { used: admitted.sum * UNIT, cap: admitted.cap * UNIT });
    }
    if admitted.sum < level.saturating_sub(admitted.cap / 20) {
        local.above_mark = false;
    }
    None
}

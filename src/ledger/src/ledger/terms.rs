//! The words of a request: what memory is for, how badly it is needed, what is granted and why not. Plain values.

use std::time::Duration;

use crate::table::CATEGORIES;
use crate::word::UNIT;
use weir_settings::size::{Amount, Human};

/// Each process sets so much aside on each device for tiny requests, at most: one small granule of the pool.
pub const SET_ASIDE: u64 = 2 << 20;
/// Requests up to this size may use what was set aside.
pub const TINY: u64 = 4096;
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
    /// All of them, in the order of [`by_category`](super::Usage::by_category).
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
pub struct DeviceId(pub(super) usize);

impl DeviceId {
    /// A device whose account could not be opened: every request is refused, and it has no memory to show.
    pub const CLOSED: Self = Self(usize::MAX);

    /// Its place in the ledger's table.
    pub fn index(self) -> usize {
        self.0
    }
}

/// Bytes that are charged but not yet used. A plain value: nothing happens when it is dropped, copied by a fork or lost
/// with its process. Give it to [`super::Ledger::commit`] or [`super::Ledger::roll_back`].
#[must_use = "a reservation stays charged until it is committed or rolled back"]
#[derive(Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Reservation {
    pub(super) units: u64,
    pub(super) owner: u32,
    pub(super) device: u16,
    pub(super) category: u8,
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
pub struct Reserved {
    /// To be committed or rolled back.
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

//! Who is there: contexts, found without a lock, and the rule by which they and the pools get to know each other.
//!
//! Whoever comes is first made known to those who are there, then seen, all of it one at a time: of two that come at the
//! same moment the later one meets the earlier one, and nobody is seen who is not yet known everywhere.
//!
//! Whoever goes may turn out to stay, so its seat is kept until that is certain. Until its end was announced to everybody its
//! key may be the driver's to give again, but nobody takes a seat under it.

use super::{Atomic, Lock};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

/// A seat: empty, or somebody's by a key that is not 0, with one value.
pub struct Seat<W> {
    key: W,
    serial: W,
    value: W,
}

impl<W: Atomic<u64>> Seat<W> {
    /// An empty seat out of three words that are 0.
    pub const fn new(key: W, serial: W, value: W) -> Self {
        Self { key, serial, value }
    }

    /// Whose it is, 0 for nobody's.
    #[inline(always)]
    pub fn key(&self) -> u64 {
        self.key.load(Acquire)
    }

    /// Unique among all who ever had a seat. For those who know that its owner is there.
    #[inline]
    pub fn serial(&self) -> u64 {
        self.serial.load(Relaxed)
    }

    /// The owner's value. For those who know that its owner is there.
    #[inline(always)]
    pub fn value(&self) -> u64 {
        self.value.load(Relaxed)
    }

    /// Owner and value as they belong together, while others may come and go.
    ///
    /// Whoever has read the value of a later owner reads the key of that one, of one still later, or none, at last; where
    /// that is the same key as before, the serial is another.
    pub fn seen(&self) -> Option<(u64, u64)> {
        let key = self.key.load(Acquire);
        let serial = self.serial.load(Acquire);
        let value = self.value.load(Acquire);
        let same = self.key.load(Acquire) == key && self.serial.load(Relaxed) == serial;
        (key != 0 && same).then_some((key, value))
    }

    /// Somebody takes an empty seat. One thread at a time.
    pub fn take(&self, key: u64, serial: u64, value: u64) {
        self.value.store(value, Release);
        self.serial.store(serial, Release);
        self.key.store(key, Release);
    }

    /// Its owner leaves it. One thread at a time.
    pub fn leave(&self) {
        self.key.store(0, Release);
    }
}

/// What has a seat in it.
pub trait Seated {
    /// The words of the seat.
    type Word: Atomic<u64>;
    /// The seat.
    fn seat(&self) -> &Seat<Self::Word>;
}

/// Somebody is there whom nobody sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unseen;

/// Somebody on its way out.
struct Going {
    key: u64,
    value: u64,
    place: usize,
    /// The thread that makes it go.
    by: u64,
    /// It is certain.
    ended: bool,
}

/// What only one thread at a time changes.
#[derive(Default)]
pub struct Coming {
    going: Vec<Going>,
    serials: u64,
}

impl Coming {
    /// Nobody came yet.
    pub const fn new() -> Self {
        Self { going: Vec::new(), serials: 0 }
    }

    fn goes(&self, key: u64, me: u64) -> bool {
        self.going.iter().any(|going| going.key == key && going.by != me)
    }

    fn certain(&self, me: u64) -> bool {
        self.going.iter().all(|going| going.ended || going.by == me)
    }
}

/// The seats.
pub struct Roster<L, S, U, const N: usize> {
    coming: L,
    seats: [S; N],
    used: U,
}

impl<L: Lock<Coming>, S: Seated, U: Atomic<usize>, const N: usize> Roster<L, S, U, N> {
    /// A roster out of empty seats.
    pub const fn new(coming: L, seats: [S; N], used: U) -> Self {
        Self { coming, seats, used }
    }

    #[inline(always)]
    fn taken(&self) -> impl Iterator<Item = &S> {
        self.seats.iter().take(self.used.load(Acquire))
    }

    /// The seat of somebody who is there.
    #[inline(always)]
    pub fn find(&self, key: u64) -> Option<&S> {
        if key == 0 { None } else { self.taken().find(|at| at.seat().key() == key) }
    }

    /// All who are there, each with its value.
    pub fn all(&self) -> impl Iterator<Item = (u64, u64)> {
        self.taken().filter_map(|at| at.seat().seen())
    }

    /// Somebody is there, and may not have been before: `fresh` prepares its seat and `announce` makes it known. The thread
    /// `me` waits for the end of whoever had the key before, but only for so long. An error: that was not long enough, or
    /// there is no room: somebody is there whom nobody sees. `None`: it is `me` who makes it go.
    pub fn add(
        &self,
        key: u64,
        value: u64,
        me: u64,
        patience: Duration,
        fresh: impl FnOnce(&S),
        announce: impl FnOnce(),
    ) -> Result<Option<&S>, Unseen> {
        let mut first = Some((fresh, announce));
        let added = self.coming.when_within(patience, |coming| {
            if let Some(known) = self.find(key) {
                return Some(Ok(Some(known)));
            }
            if let Some(before) = coming.going.iter().find(|going| going.key == key) {
                return (before.by == me).then_some(Ok(None));
            }
            let kept = |place: usize| coming.going.iter().any(|going| going.place == place);
            let free = |(place, at): &(usize, &S)| at.seat().key.load(Relaxed) == 0 && !kept(*place);
            let Some((place, at)) = self.seats.iter().enumerate().find(free).filter(|_| key != 0) else {
                return Some(Err(Unseen));
            };
            let (fresh, announce) = first.take()?;
            fresh(at);
            announce();
            coming.serials += 1;
            at.seat().take(key, coming.serials, value);
            self.used.store((place + 1).max(self.used.load(Relaxed)), Release);
            Some(Ok(Some(at)))
        });
        added.unwrap_or(Err(Unseen))
    }

    /// Wait until no other thread than `me` makes somebody go. False: one still does.
    pub fn await_end(&self, key: u64, me: u64, patience: Duration) -> bool {
        self.coming.when_within(patience, |coming| (!coming.goes(key, me)).then_some(())).is_some()
    }

    /// Somebody is about to go: from now on nobody finds it. Returns its value; nothing if it is not there, and `None` if
    /// another thread makes it go at the moment.
    pub fn leave(&self, key: u64, me: u64) -> Option<Option<u64>> {
        self.coming.with(|coming| {
            if coming.goes(key, me) {
                return None;
            }
            let mut seats = self.seats.iter().enumerate().filter(|_| key != 0);
            let Some((place, at)) = seats.find(|(_, at)| at.seat().key() == key) else { return Some(None) };
            at.seat().leave();
            let value = at.seat().value();
            coming.going.push(Going { key, value, place, by: me, ended: false });
            Some(Some(value))
        })
    }

    /// It stays after all, as it was.
    pub fn stay(&self, key: u64) {
        self.coming.with(|coming| {
            if let Some(at) = coming.going.iter().position(|going| going.key == key) {
                let going = coming.going.swap_remove(at);
                if let Some(at) = self.seats.get(going.place) {
                    at.seat().key.store(key, Release);
                }
            }
        });
    }

    /// It is gone: who comes from now on does not get to know it. Its end is to be announced to those who are there now.
    pub fn ended(&self, key: u64) {
        self.coming.with(|coming| {
            coming.going.iter_mut().filter(|going| going.key == key).for_each(|going| going.ended = true);
        });
    }

    /// Its end was announced to everybody: its seat and its key are free.
    pub fn left(&self, key: u64) {
        self.coming.with(|coming| coming.going.retain(|going| going.key != key));
    }

    /// Whether it is certain of everybody who begins to go that it does. Not of those whom the thread `me` makes go.
    pub fn certain(&self, me: u64) -> bool {
        self.coming.with(|coming| coming.certain(me))
    }

    /// Something else comes that has to know of all who are there, or that all have to know: `meet` gets them, with
    /// those who may still stay, and nobody comes or goes meanwhile.
    pub fn announce<R>(&self, meet: impl FnOnce(&[(u64, u64)]) -> R) -> R {
        self.coming.with(|coming| {
            let staying = coming.going.iter().filter(|going| !going.ended).map(|going| (going.key, going.value));
            let known: Vec<(u64, u64)> = self.all().chain(staying).collect();
            meet(&known)
        })
    }
}

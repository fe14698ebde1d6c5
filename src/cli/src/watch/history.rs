//! How much a job held over the last minute: seen while watching, and, for the time before, worked out from the journal by
//! going backwards from what is live.

use std::collections::{HashMap, VecDeque};
use std::path::Path;

use weir_forensics::is_held;
use weir_forensics::trend::{Sample, Trend};
use weir_forensics::xla::Live;
use weir_journal::Kind;
use weir_journal::reader::{Error, Reader, Slot};

use super::holders::{Key, Names, sums};

/// Seconds that are kept.
pub(super) const WINDOW: f64 = 60.0;
/// Events gone back at most when a job is first seen.
const MOST_EVENTS: u64 = 200_000;
/// Seconds between two points of the past.
const STEP: f64 = 1.0;

/// Bytes by holder at one time.
type Holdings = HashMap<Key, (u64, u64)>;

/// What a job held at some times, oldest first.
#[derive(Debug, Default)]
pub(super) struct History {
    /// When, and bytes by device.
    points: VecDeque<(f64, HashMap<u8, u64>)>,
    /// When, and bytes by holder; few of them.
    holders: VecDeque<(f64, Holdings)>,
}

impl History {
    /// What the journal still holds of the last minute before `now`.
    pub(super) fn from_journal(
        reader: &Reader,
        now: f64,
        names: &mut Names,
        xla: (&mut Live, &Path),
    ) -> Result<Self, Error> {
        let mut history = Self::default();
        let mut replay = reader.replay()?;
        let mut totals: HashMap<u8, u64> = HashMap::new();
        for entry in replay.live().filter(|entry| is_held(entry.class)) {
            *totals.entry(entry.device).or_default() += entry.allocated;
        }
        let (mut mark, mut last) = (now, now);
        for _ in 0..MOST_EVENTS {
            let Some(slot) = replay.back()? else { break };
            let Slot::Event(event) = slot else { continue };
            let at = reader.header().realtime_ns(event.time) as f64 / 1e9;
            while at < mark - STEP && mark > now - WINDOW {
                mark -= STEP;
                history.points.push_front((mark, totals.clone()));
            }
            if at < now - WINDOW {
                break;
            }
            last = at;
            if is_held(event.class) {
                let total = totals.entry(event.device).or_default();
                match event.kind {
                    Kind::Alloc => *total = total.saturating_sub(event.allocated),
                    Kind::Free => *total = total.saturating_add(event.allocated),
                    _ => {}
                }
            }
        }
        let live: Vec<_> = replay.live().copied().collect();
        history.holders.push_back((last.max(now - WINDOW), sums(&live, reader, names, Some(xla))));
        Ok(history)
    }

    /// Notes what is held now.
    pub(super) fn note(&mut self, now: f64, totals: HashMap<u8, u64>, holders: &Holdings) {
        self.points.push_back((now, totals));
        while self.points.front().is_some_and(|(at, _)| *at < now - WINDOW) {
            self.points.pop_front();
        }
        // A few are enough to compute the change over about a minute.
        if self.holders.back().is_none_or(|(at, _)| now - at > WINDOW / 12.0) {
            self.holders.push_back((now, holders.clone()));
        }
        while self.holders.get(1).is_some_and(|(at, _)| *at < now - WINDOW) {
            self.holders.pop_front();
        }
    }

    /// What a holder held at the beginning, and how long ago that was.
    pub(super) fn before(&self, key: &Key) -> u64 {
        self.holders.front().and_then(|(_, holders)| holders.get(key)).map_or(0, |(bytes, _)| *bytes)
    }

    /// Seconds from the beginning of what is known until now.
    pub(super) fn span(&self, now: f64) -> f64 {
        self.holders.front().map_or(0.0, |(at, _)| (now - at).clamp(0.0, WINDOW))
    }

    /// Age in seconds and bytes of a device, oldest first.
    pub(super) fn of_device(&self, device: u8, now: f64) -> Vec<(f64, u64)> {
        let bytes = |totals: &HashMap<u8, u64>| totals.get(&device).copied().unwrap_or(0);
        self.points.iter().map(|(at, totals)| (now - at, bytes(totals))).collect()
    }

    /// The line through a device's points.
    pub(super) fn trend(&self, device: u8, now: f64) -> Option<Trend> {
        let samples: Vec<_> =
            self.of_device(device, now).iter().map(|(age, bytes)| Sample { at: -age, bytes: *bytes as f64 }).collect();
        // Below ten seconds a start looks like a growth.
        let span = samples.first().map_or(0.0, |first| -first.at);
        if span < 10.0 { None } else { Trend::through(&samples) }
    }
}

//! The course of memory over the whole run, as a reader sees it.

use std::collections::BTreeMap;

use super::{Error, Reader};
use crate::history::moment_word;
use crate::layout::{HISTORY_BYTES, HISTORY_DEVICES, HISTORY_WORDS, LARGEST_SUM, Section, crc_words, moments_apart};

/// A moment of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The number of its event.
    pub event: u64,
    /// When, in ticks.
    pub time: u64,
    /// The step that the job was in; 0 is unknown.
    pub step: u64,
    /// Resident bytes at the last sample.
    pub resident: u64,
    /// Out-of-memory failures so far.
    pub ooms: u64,
    /// Bytes held on devices 0 to 7.
    pub held: [u64; HISTORY_DEVICES],
}

impl Reader {
    /// Moments of the whole run, oldest first, with more detail towards the end. None in a file of a version without them. What
    /// is damaged or not written yet is left out.
    pub fn history(&self) -> Result<Vec<Moment>, Error> {
        let words = self.section_words(Section::History, HISTORY_BYTES as u64)?;
        let (apart, end) = (moments_apart(self.header().ring_slots()), self.header().counters.events);
        let mut found = BTreeMap::new();
        for words in words.as_chunks::<HISTORY_WORDS>().0 {
            let event = words[moment_word::EVENT];
            // A place that was never written is all zero, which no CRC is.
            let whole = words[0] == u64::from(crc_words(&words[1..]));
            if whole && event % apart == 0 && event < end {
                let mut held = [0; HISTORY_DEVICES];
                for (to, from) in held.iter_mut().zip(&words[moment_word::HELD..]) {
                    *to = (*from).min(LARGEST_SUM);
                }
                let at = |index: usize| words[index];
                let moment = Moment {
                    event,
                    time: at(moment_word::TIME),
                    step: at(moment_word::STEP),
                    resident: at(moment_word::RESIDENT).min(LARGEST_SUM),
                    ooms: at(moment_word::OOMS).min(LARGEST_SUM),
                    held,
                };
                found.insert(event, moment);
            }
        }
        Ok(found.into_values().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attribution, Class, Geometry, Granted, Intent, Journal, Kind, Options};

    fn folder(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("weir-history-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        path
    }

    fn taken(journal: &Journal, address: u64, bytes: u64) {
        let by = Attribution::default();
        let (kind, class) = (Kind::Alloc, Class::Block);
        let intent = Intent { kind, class, device: 1, stream: 0, requested: bytes, address: 0, by };
        journal.pool_hit(&intent, Granted { address, allocated: bytes });
    }

    #[test]
    fn a_long_run_is_known_from_its_beginning_with_less_detail_the_older_it_is() {
        let path = folder("long");
        let journal = Journal::create(&Options::in_dir(&path).sized(Geometry::tiny())).unwrap();
        // A ring of 64 events, a moment for each; what is kept grows by 64 bytes every thousand turns.
        const TURNS: u64 = 200_000;
        for turn in 0..TURNS {
            if turn % 1000 == 0 {
                taken(&journal, 1 << 40 | turn, 64);
                journal.step(turn);
            }
            taken(&journal, 1 << 41, 4096);
            journal.free(1 << 41, Class::Block, 0).unwrap();
        }
        let reader = Reader::open(&journal.path().unwrap()).unwrap();
        let moments = reader.history().unwrap();
        let end = reader.header().counters.events;
        assert!(reader.range().0 > end - 100, "the ring has only the end");
        let first = moments.first().unwrap();
        assert!(first.event < end / 8, "{} of {end}", first.event);
        for pair in moments.windows(2) {
            let (age, gap) = (end - pair[0].event, pair[1].event - pair[0].event);
            assert!(gap <= (age / 64).max(1), "a gap of {gap} events at an age of {age}");
        }
        for moment in &moments {
            // Two events a turn, two more every thousand.
            let turn = (moment.event - moment.event / 2002 * 2) / 2;
            let kept = turn / 1000 * 64;
            let held = moment.held[1] % 4096;
            assert!(
                held.abs_diff(kept % 4096) <= 64 || held.abs_diff(kept % 4096) >= 4032,
                "{moment:?}: {held}, not {kept}"
            );
            assert!(moment.step.abs_diff(turn) <= 1001, "{moment:?} at turn {turn}");
            assert_eq!(moment.held[0], 0);
        }
        assert!(moments.windows(2).all(|pair| pair[0].time <= pair[1].time));
        drop(journal);
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_damaged_moment_is_left_out() {
        let path = folder("damaged");
        let journal = Journal::create(&Options::in_dir(&path).sized(Geometry::tiny())).unwrap();
        (0..40).for_each(|number| taken(&journal, number << 20, 64));
        let file = journal.path().unwrap();
        let whole = Reader::open(&file).unwrap();
        assert_eq!(whole.history().unwrap().len(), 40);
        let offset = whole.header().section(Section::History).offset;
        use std::os::unix::fs::FileExt;
        let bytes = (HISTORY_WORDS * 8) as u64;
        // Event 3, which only level 0 has.
        std::fs::File::options().write(true).open(&file).unwrap().write_all_at(&[7], offset + 3 * bytes + 70).unwrap();
        assert_eq!(Reader::open(&file).unwrap().history().unwrap().len(), 39);
        drop(journal);
        std::fs::remove_dir_all(path).unwrap();
    }
}

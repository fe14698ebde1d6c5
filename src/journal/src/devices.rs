//! The devices of a journal: what they are, their caps, and the live and peak bytes of each class. Works only on the words
//! of the mapping.

use std::sync::atomic::Ordering;

use crate::create::{store_bytes, store_text};
use crate::event::{Class, Event, Kind};
use crate::layout::{DEVICES, crc_words};
use crate::writer::Journal;

/// Word offsets inside a device entry.
pub(crate) mod device_word {
    /// 1 when the entry is in use.
    pub(crate) const USED: usize = 0;
    pub(crate) const UUID: usize = 1;
    pub(crate) const TOTAL: usize = 3;
    pub(crate) const NAME: usize = 4;
    pub(crate) const NAME_BYTES: usize = 64;
    pub(crate) const CRC: usize = 15;
    pub(crate) const CAP: usize = 16;
    pub(crate) const SOFT_MARK: usize = 17;
    pub(crate) const LIVE: usize = 32;
    pub(crate) const PEAK: usize = 48;
}

impl Journal {
    #[inline]
    pub(crate) fn add_live(&self, device: u8, class: Class, bytes: u64) -> u64 {
        let Some(entry) = self.devices.get(usize::from(device) % DEVICES) else {
            return 0;
        };
        let class = class as usize & 15;
        let (Some(live), Some(peak)) = (entry.get(device_word::LIVE + class), entry.get(device_word::PEAK + class))
        else {
            return 0;
        };
        let after = live.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes);
        if after > peak.load(Ordering::Relaxed) {
            peak.fetch_max(after, Ordering::Relaxed);
        }
        after
    }

    #[inline]
    pub(crate) fn sub_live(&self, device: u8, class: Class, bytes: u64) -> u64 {
        let live = self
            .devices
            .get(usize::from(device) % DEVICES)
            .and_then(|entry| entry.get(device_word::LIVE + (class as usize & 15)));
        live.map_or(0, |live| live.fetch_sub(bytes, Ordering::Relaxed).wrapping_sub(bytes))
    }

    /// Bytes of a class that are live on a device.
    pub fn live_bytes(&self, device: u8, class: Class) -> u64 {
        self.device_word(device, device_word::LIVE + (class as usize & 15))
    }

    fn device_word(&self, device: u8, index: usize) -> u64 {
        let entry = self.devices.get(usize::from(device) % DEVICES);
        entry.and_then(|entry| entry.get(index)).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Describes a device. Not for the hot path.
    pub fn set_device(&self, device: u8, uuid: [u8; 16], total: u64, name: &str) {
        let Some(entry) = self.devices.get(usize::from(device) % DEVICES) else {
            return;
        };
        store_bytes(entry, device_word::UUID, &uuid);
        if let Some(word) = entry.get(device_word::TOTAL) {
            word.store(total, Ordering::Relaxed);
        }
        store_text(entry, device_word::NAME, name.as_bytes(), device_word::NAME_BYTES);
        let mut fixed = [0; device_word::CRC];
        for (to, from) in fixed.iter_mut().zip(entry).skip(1) {
            *to = from.load(Ordering::Relaxed);
        }
        if let (Some(crc), Some(used)) = (entry.get(device_word::CRC), entry.get(device_word::USED)) {
            crc.store(u64::from(crc_words(&fixed)), Ordering::Relaxed);
            used.store(1, Ordering::Release);
        }
    }

    /// The cap of a device changed. Records it.
    pub fn set_cap(&self, device: u8, cap: u64) {
        let Some(word) = self.devices.get(usize::from(device) % DEVICES).and_then(|entry| entry.get(device_word::CAP))
        else {
            return;
        };
        let before = word.swap(cap, Ordering::Relaxed);
        self.record(Event { requested: before, allocated: cap, ..Event::new(Kind::CapChange, Class::Other, device) });
    }

    /// The soft mark of a device was set to this many bytes and has been crossed. Records it.
    pub fn crossed_soft_mark(&self, device: u8, mark: u64, live: u64) {
        let entry = self.devices.get(usize::from(device) % DEVICES);
        if let Some(word) = entry.and_then(|entry| entry.get(device_word::SOFT_MARK)) {
            word.store(mark, Ordering::Relaxed);
        }
        self.record(Event { allocated: mark, live_after: live, ..Event::new(Kind::SoftMark, Class::Other, device) });
    }
}

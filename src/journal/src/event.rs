//! An event and its 64-byte record. Pure packing and unpacking; nothing here touches memory of a journal.

use crate::fault::{Fault, injected};
use crate::layout::{LARGEST_BLOCK, RECORD_WORDS};
use crate::sys::crc::crc_record;

/// What happened. Numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Kind {
    /// Memory was handed out; the live table has it.
    Alloc = 1,
    /// Memory was freed. Sizes and attribution are those of the allocation, `aux` is its age.
    Free = 2,
    /// The driver refused a request; `result` is its code.
    Failed = 3,
    /// A cap refused a request.
    Refused = 4,
    /// A request that the job can do without got nothing.
    Attempt = 5,
    /// A free failed; the memory is still there.
    FreeFailed = 6,
    /// Physical memory was mapped at an address.
    Map = 7,
    /// Physical memory was unmapped.
    Unmap = 8,
    /// Free granules were moved from `requested` (their old address) to `address`.
    Remap = 9,
    /// Memory went back to the driver.
    Trim = 10,
    /// Two sparse granules now share one physical granule.
    Mesh = 11,
    /// Memory moved behind the same pointer to the host.
    Spill = 12,
    /// Spilled memory came back to the device.
    Unspill = 13,
    /// A request waited for memory; the latency is how long.
    Wait = 14,
    /// A synchronisation that advanced the epoch to `address`.
    Sync = 15,
    /// The cap changed from `requested` to `allocated`.
    CapChange = 16,
    /// A context came to life.
    ContextCreate = 17,
    /// A context ended.
    ContextDestroy = 18,
    /// A stream came to life; `address` is its handle, `stream` its number from now on.
    StreamCreate = 19,
    /// A stream ended.
    StreamDestroy = 20,
    /// Out of memory; `aux` is the number of the cause.
    Oom = 21,
    /// The process forked; `address` is the child's pid.
    Fork = 22,
    /// The library disabled itself; the header has the reason.
    TurnedOff = 23,
    /// Live memory crossed a soft mark (`allocated`).
    SoftMark = 24,
    /// Host memory: `allocated` is resident bytes, `requested` pinned bytes.
    HostSample = 25,
    /// A training step began; `address` is its number.
    Step = 26,
    /// A clean exit.
    Exit = 27,
    /// The job set a mark; its name is that of the operation. See [`Journal::said`](crate::Journal::said).
    Mark = 28,
    /// A thread of the job entered a region of its own; the name as in a mark.
    RegionBegin = 29,
    /// It left that region.
    RegionEnd = 30,
}

impl Kind {
    /// Every kind, by number.
    pub const ALL: [Self; 30] = [
        Self::Alloc,
        Self::Free,
        Self::Failed,
        Self::Refused,
        Self::Attempt,
        Self::FreeFailed,
        Self::Map,
        Self::Unmap,
        Self::Remap,
        Self::Trim,
        Self::Mesh,
        Self::Spill,
        Self::Unspill,
        Self::Wait,
        Self::Sync,
        Self::CapChange,
        Self::ContextCreate,
        Self::ContextDestroy,
        Self::StreamCreate,
        Self::StreamDestroy,
        Self::Oom,
        Self::Fork,
        Self::TurnedOff,
        Self::SoftMark,
        Self::HostSample,
        Self::Step,
        Self::Exit,
        Self::Mark,
        Self::RegionBegin,
        Self::RegionEnd,
    ];

    /// The kind with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// What sort of memory an event is about. Numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Class {
    /// A block of the pool.
    Block = 1,
    /// Device memory taken straight from the driver.
    Device = 2,
    /// Managed memory.
    Managed = 3,
    /// Arrays and mipmaps.
    Array = 4,
    /// A physical handle (cuMemCreate); the address is the handle.
    Handle = 5,
    /// Pinned host memory.
    Pinned = 6,
    /// Host memory of the job, registered with the driver.
    Registered = 7,
    /// Memory imported from another process.
    Imported = 8,
    /// A tensor inside a region that TensorFlow's own allocator holds.
    Tensor = 9,
    /// The context itself, modules, the driver's own memory.
    Overhead = 10,
    /// A reserved range of addresses; no memory.
    Reservation = 11,
    /// A tensor of TensorFlow's in host memory, page-locked or not. One in page-locked memory lies inside a pinned region.
    HostTensor = 12,
    /// Nothing of the above.
    Other = 15,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 13] = [
        Self::Block,
        Self::Device,
        Self::Managed,
        Self::Array,
        Self::Handle,
        Self::Pinned,
        Self::Registered,
        Self::Imported,
        Self::Tensor,
        Self::Overhead,
        Self::Reservation,
        Self::HostTensor,
        Self::Other,
    ];

    /// The class with this number; unknown numbers are `Other`.
    pub fn from_number(number: u8) -> Self {
        Self::ALL.get(usize::from(number).wrapping_sub(1)).copied().unwrap_or(Self::Other)
    }
}

/// Who requested it: ids of the native stack, the TensorFlow operation and the Python lines; 0 is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize)]
pub struct Attribution {
    /// Native stack, 24 bits.
    pub stack: u32,
    /// Operation, 20 bits.
    pub op: u32,
    /// Python lines, 20 bits.
    pub python: u32,
}

impl Attribution {
    #[inline]
    pub(crate) fn pack(self) -> u64 {
        bits(self.stack.into(), 24) | bits(self.op.into(), 20) << 24 | bits(self.python.into(), 20) << 44
    }

    pub(crate) fn unpack(word: u64) -> Self {
        Self { stack: bits(word, 24) as u32, op: bits(word >> 24, 20) as u32, python: bits(word >> 44, 20) as u32 }
    }
}

/// Flag: the live table was full, this allocation is not in it.
pub const FLAG_NOT_IN_TABLE: u8 = 1;
/// Flag: the address was not in the live table.
pub const FLAG_UNKNOWN_ADDRESS: u8 = 2;
/// Flag: made by weir itself, not by the job.
pub const FLAG_INTERNAL: u8 = 4;
/// Flag: the request was answered by the pool without a driver call.
pub const FLAG_POOL_HIT: u8 = 8;
/// Flag: rebuilt by the reader from the live table; the record itself was not finished.
pub const FLAG_REBUILT: u8 = 16;

/// The number of an unknown stream.
pub const STREAM_UNKNOWN: u16 = 0xffff;

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Event {
    /// Its place in the one global order.
    pub seq: u64,
    /// When, in ticks of the journal's clock.
    pub time: u64,
    /// What happened.
    pub kind: Kind,
    /// To what sort of memory.
    pub class: Class,
    /// On which device.
    pub device: u8,
    /// On which stream, by the journal's own numbering.
    pub stream: u16,
    /// Address or handle.
    pub address: u64,
    /// Bytes requested, 48 bits.
    pub requested: u64,
    /// Bytes allocated, 48 bits.
    pub allocated: u64,
    /// Bytes of this class live on this device afterwards, 48 bits.
    pub live_after: u64,
    /// The driver's result.
    pub result: u16,
    /// How long the call took, in ticks, to three digits.
    pub latency: u64,
    /// Thread id, 24 bits.
    pub thread: u32,
    /// Who requested it.
    pub by: Attribution,
    /// Depends on the kind: the age of a freed block (see [`Event::age`]), the cause of an OOM.
    pub aux: u16,
    /// `FLAG_…`.
    pub flags: u8,
}

impl Event {
    /// An event of this kind with everything else unknown.
    pub const fn new(kind: Kind, class: Class, device: u8) -> Self {
        Self {
            seq: 0,
            time: 0,
            kind,
            class,
            device,
            stream: STREAM_UNKNOWN,
            address: 0,
            requested: 0,
            allocated: 0,
            live_after: 0,
            result: 0,
            latency: 0,
            thread: 0,
            by: Attribution { stack: 0, op: 0, python: 0 },
            aux: 0,
            flags: 0,
        }
    }

    /// Ticks between allocation and free, for a free.
    pub fn age(&self) -> Option<u64> {
        (self.kind == Kind::Free && self.flags & FLAG_UNKNOWN_ADDRESS == 0).then(|| long_from_short(self.aux))
    }

    /// The record, with its CRC.
    #[inline(always)]
    pub fn pack(&self) -> [u64; RECORD_WORDS] {
        let mut words = [
            self.seq,
            self.time,
            self.address,
            bits(self.allocated, 48)
                | bits(self.kind as u64, 6) << 48
                | bits(self.class as u64, 4) << 54
                | bits(self.device.into(), 6) << 58,
            bits(self.requested, 48) | u64::from(self.result) << 48,
            bits(self.live_after, 48) | u64::from(self.stream) << 48,
            self.by.pack(),
            bits(self.thread.into(), 24)
                | u64::from(short_from_long(self.latency)) << 24
                | u64::from(self.aux) << 40
                | u64::from(self.flags) << 56,
        ];
        // The CRC covers the whole number, the record keeps its low half: a record of an earlier lap cannot pass.
        let crc = crc_record(&words);
        words[0] = u64::from(crc) | self.seq << 32;
        words
    }

    /// The event number `seq`, if that is what the record holds, whole.
    pub fn unpack(record: &[u64; RECORD_WORDS], seq: u64) -> Option<Self> {
        if record[0] >> 32 != seq & 0xffff_ffff {
            return None;
        }
        let mut words = *record;
        words[0] = seq;
        if crc_record(&words) != record[0] as u32 && !injected(Fault::RecordCrc) {
            return None;
        }
        let kind = Kind::from_number(bits(words[3] >> 48, 6) as u8)?;
        if matches!(kind, Kind::Alloc | Kind::Free) && bits(words[3], 48) > LARGEST_BLOCK {
            return None;
        }
        Some(Self {
            seq,
            time: words[1],
            address: words[2],
            allocated: bits(words[3], 48),
            kind,
            class: Class::from_number(bits(words[3] >> 54, 4) as u8),
            device: (words[3] >> 58) as u8,
            requested: bits(words[4], 48),
            result: (words[4] >> 48) as u16,
            live_after: bits(words[5], 48),
            stream: (words[5] >> 48) as u16,
            by: Attribution::unpack(words[6]),
            thread: bits(words[7], 24) as u32,
            latency: long_from_short((words[7] >> 24) as u16),
            aux: (words[7] >> 40) as u16,
            flags: (words[7] >> 56) as u8,
        })
    }
}

/// The low `count` bits.
#[inline]
pub(crate) const fn bits(value: u64, count: u32) -> u64 {
    value & ((1 << count) - 1)
}

/// A duration in 16 bits: ten bits of value, six bits of shift. Exact below 1024, else to one part in 512.
#[inline]
pub fn short_from_long(value: u64) -> u16 {
    let shift = (64 - value.leading_zeros()).saturating_sub(10);
    (value >> shift) as u16 | (shift as u16) << 10
}

/// The duration that [`short_from_long`] stored.
pub fn long_from_short(short: u16) -> u64 {
    u64::from(short & 0x3ff).checked_shl(u32::from(short >> 10)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_of_kinds_and_classes_are_stable() {
        for (place, kind) in Kind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, place + 1);
        }
        for class in Class::ALL {
            assert_eq!(Class::from_number(class as u8), class);
        }
        assert_eq!(Class::from_number(0), Class::Other);
    }

    proptest! {
        #[test]
        fn a_record_comes_back_as_it_went(
            (seq, time, address) in any::<(u64, u64, u64)>(),
            (kind, class, device, stream) in (0..30_usize, 0..13_usize, 0..64_u8, any::<u16>()),
            (requested, allocated, live_after) in (0..1_u64 << 48, 0..1_u64 << 48, 0..1_u64 << 48),
            (result, latency, thread) in (any::<u16>(), any::<u64>(), 0..1_u32 << 24),
            (stack, op, python) in (0..1_u32 << 24, 0..1_u32 << 20, 0..1_u32 << 20),
            (aux, flags) in any::<(u16, u8)>(),
        ) {
            let event = Event {
                seq, time, kind: Kind::ALL[kind], class: Class::ALL[class], device, stream, address, requested, allocated,
                live_after, result, latency: long_from_short(short_from_long(latency)), thread,
                by: Attribution { stack, op, python }, aux, flags,
            };
            let accepted = !matches!(event.kind, Kind::Alloc | Kind::Free) || allocated <= LARGEST_BLOCK;
            prop_assert_eq!(Event::unpack(&event.pack(), seq), accepted.then_some(event));
            prop_assert_eq!(Event::unpack(&event.pack(), seq.wrapping_add(1)), None);
            prop_assert_eq!(Event::unpack(&event.pack(), seq.wrapping_add(1 << 32)), None);
        }

        #[test]
        fn one_flipped_bit_is_noticed(seq in any::<u64>(), address in any::<u64>(), word in 0..8_usize, bit in 0..64_u32) {
            let mut event = Event::new(Kind::Alloc, Class::Block, 0);
            event.seq = seq;
            event.address = address;
            let mut record = event.pack();
            record[word] ^= 1 << bit;
            prop_assert_eq!(Event::unpack(&record, seq), None);
        }

        #[test]
        fn short_durations_lose_little(value in any::<u64>()) {
            let back = long_from_short(short_from_long(value));
            prop_assert!(back <= value && value - back <= value / 512);
        }
    }
}

//! Attribution, devices and configuration as the reader returns them. Ids come from events and may be anything.

use crate::arena::{Item, LONGEST_TEXT, claims, header};
use crate::devices::device_word;
use crate::event::{Attribution, Class};
use crate::job::Job;
use crate::layout::{
    CAUSE_WORDS, CAUSES, CONFIG_BYTES, DEVICE_WORDS, DEVICES, JOB_BYTES, LARGEST_SUM, MODULES, OOM_KEPT,
    OOM_SLOT_BYTES, RECORD_BYTES, RECORD_WORDS, Section, UNIT_WORDS, crc_words,
};
use crate::names::{PYTHON_DEPTH, STACK_DEPTH};
use crate::oom::slot_crc;
use crate::reader::source::read_words;
use crate::reader::{Error, Reader};
use crate::sys::crc::crc_record;

/// An operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct OpName {
    /// Name.
    pub name: String,
    /// Region, for example `output`.
    pub region: String,
    /// Shape as text.
    pub shape: String,
    /// TensorFlow's number of the data type.
    pub dtype: u32,
}

/// A Python line.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Line {
    /// File.
    pub file: String,
    /// Function.
    pub function: String,
    /// Line number.
    pub line: u32,
}

/// A module of the process.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ModuleEntry {
    /// Path.
    pub path: String,
    /// Address in memory minus address in the file.
    pub bias: u64,
    /// First mapped address.
    pub start: u64,
    /// Mapped bytes, in whole pages.
    pub size: u64,
    /// Build id.
    pub build_id: Vec<u8>,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Device {
    /// Its number in events.
    pub number: u8,
    /// UUID.
    pub uuid: [u8; 16],
    /// Name.
    pub name: String,
    /// Memory of the device.
    pub total: u64,
    /// Cap; 0 is none.
    pub cap: u64,
    /// Soft mark; 0 is none.
    pub soft_mark: u64,
    /// Live bytes and peak by class, where not 0.
    pub usage: Vec<(Class, u64, u64)>,
}

impl Reader {
    fn item(&self, section: Section, kind: Item, id: u32) -> Result<Option<(usize, Vec<u64>)>, Error> {
        let range = self.header().section(section);
        let start = u64::from(id) * UNIT_WORDS as u64 * 8;
        if id == 0 || start + 8 > range.present {
            return Ok(None);
        }
        // No writer makes a longer one; many that each name the same long texts would take far more memory than the file.
        let longest = match kind {
            Item::Text => LONGEST_TEXT,
            Item::Python => PYTHON_DEPTH,
            Item::Stack => STACK_DEPTH,
            Item::Op | Item::Line => 2,
            Item::Note | Item::Node => 1,
        };
        let present = ((range.present - start) / 8).min(longest as u64 + 1) as usize;
        let mut words = read_words(&*self.source, range.offset + start, present)?;
        let Some(head) = words.first().copied() else { return Ok(None) };
        let (found, length) = claims(head);
        let count = if kind == Item::Text { length.div_ceil(8) } else { length };
        if found != kind as u8 || count + 1 > words.len() {
            return Ok(None);
        }
        words.truncate(count + 1);
        words.remove(0);
        Ok((header(kind, length, &words) == head).then_some((length, words)))
    }

    /// A text.
    pub fn text(&self, id: u32) -> Result<Option<String>, Error> {
        Ok(self.item(Section::Names, Item::Text, id)?.map(|(length, words)| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take(length).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        }))
    }

    /// An operation.
    pub fn op(&self, id: u32) -> Result<Option<OpName>, Error> {
        let Some((_, words)) = self.item(Section::Names, Item::Op, id)? else {
            return Ok(None);
        };
        let [first, second] = words[..] else {
            return Ok(None);
        };
        Ok(Some(OpName {
            name: self.text(first as u32)?.unwrap_or_default(),
            region: self.text((first >> 32) as u32)?.unwrap_or_default(),
            shape: self.text(second as u32)?.unwrap_or_default(),
            dtype: (second >> 32) as u32,
        }))
    }

    /// Python lines, innermost first.
    pub fn python(&self, id: u32) -> Result<Vec<Line>, Error> {
        let Some((_, ids)) = self.item(Section::Names, Item::Python, id)? else {
            return Ok(Vec::new());
        };
        let mut lines = Vec::new();
        for id in ids {
            let Some((_, words)) = self.item(Section::Names, Item::Line, id as u32)? else {
                continue;
            };
            let [place, line] = words[..] else { continue };
            lines.push(Line {
                file: self.text(place as u32)?.unwrap_or_default(),
                function: self.text((place >> 32) as u32)?.unwrap_or_default(),
                line: line as u32,
            });
        }
        Ok(lines)
    }

    /// What the library chose and why, in the order in which it did: subject and text. Looks at all names.
    pub fn notes(&self) -> Result<Vec<(String, String)>, Error> {
        let mut notes = Vec::new();
        for (subject, text) in self.pairs(Item::Note)? {
            notes.extend(self.text(subject)?.zip(self.text(text)?));
        }
        Ok(notes)
    }

    /// The nodes of graphs and the ids of the Python lines that made them, in the order in which they were made. Looks at
    /// all names.
    pub fn nodes(&self) -> Result<Vec<(String, u32)>, Error> {
        let mut nodes = Vec::new();
        for (name, python) in self.pairs(Item::Node)? {
            nodes.extend(self.text(name)?.map(|name| (name, python)));
        }
        Ok(nodes)
    }

    /// Every item of a kind that is two ids.
    fn pairs(&self, kind: Item) -> Result<Vec<(u32, u32)>, Error> {
        let range = self.header().section(Section::Names);
        let words = self.section_words(Section::Names, range.present)?;
        // Of what was cut short by the end of the process no length is known: every place is looked at.
        let units = words.as_chunks::<UNIT_WORDS>().0.iter().skip(1);
        let found = units.filter(|[head, ids]| claims(*head) == (kind as u8, 1) && header(kind, 1, &[*ids]) == *head);
        Ok(found.map(|[_, ids]| (*ids as u32, (*ids >> 32) as u32)).collect())
    }

    /// A native stack: return addresses, innermost first.
    pub fn stack(&self, id: u32) -> Result<Vec<u64>, Error> {
        Ok(self.item(Section::Stacks, Item::Stack, id)?.map_or(Vec::new(), |(_, words)| words))
    }

    /// The modules of the process.
    pub fn modules(&self) -> Result<Vec<ModuleEntry>, Error> {
        let words = self.section_words(Section::Modules, MODULES as u64 * RECORD_BYTES)?;
        let mut modules = Vec::new();
        for slot in words.as_chunks::<RECORD_WORDS>().0 {
            let mut covered = *slot;
            covered[0] = 0;
            if slot[0] & 0xff != 1 || u64::from(crc_record(&covered)) != slot[0] >> 32 {
                continue;
            }
            let length = (slot[0] >> 8 & 0xff) as usize;
            modules.push(ModuleEntry {
                path: self.text(slot[3] as u32)?.unwrap_or_default(),
                bias: slot[1],
                start: slot[2],
                size: (slot[3] >> 32) * 4096,
                build_id: slot.iter().skip(4).take(3).flat_map(|word| word.to_le_bytes()).take(length).collect(),
            });
        }
        Ok(modules)
    }

    /// The devices that were described, and any other one that something was recorded for.
    pub fn devices(&self) -> Result<Vec<Device>, Error> {
        let words = self.section_words(Section::Devices, (DEVICES * DEVICE_WORDS * 8) as u64)?;
        let mut devices = Vec::new();
        for (number, entry) in words.as_chunks::<DEVICE_WORDS>().0.iter().enumerate() {
            let at = |index: usize| entry.get(index).copied().unwrap_or(0);
            let bytes = |index: usize| at(index).min(LARGEST_SUM);
            let usage: Vec<_> = Class::ALL
                .iter()
                .map(|class| {
                    let place = *class as usize;
                    (*class, bytes(device_word::LIVE + place), bytes(device_word::PEAK + place))
                })
                .filter(|(_, live, peak)| *live != 0 || *peak != 0)
                .collect();
            let mut fixed = [0; device_word::CRC];
            for (to, from) in fixed.iter_mut().zip(entry).skip(1) {
                *to = *from;
            }
            let described = at(device_word::USED) == 1 && u64::from(crc_words(&fixed)) == at(device_word::CRC);
            if !described && usage.is_empty() && at(device_word::CAP) == 0 {
                continue;
            }
            let mut uuid = [0; 16];
            let number_bytes = fixed.iter().skip(device_word::UUID).take(2).flat_map(|word| word.to_le_bytes());
            let length = at(device_word::NAME).min(device_word::NAME_BYTES as u64) as usize;
            let name: Vec<u8> =
                fixed.iter().skip(device_word::NAME + 1).flat_map(|word| word.to_le_bytes()).take(length).collect();
            if described {
                uuid.iter_mut().zip(number_bytes).for_each(|(to, from)| *to = from);
            }
            devices.push(Device {
                number: number as u8,
                uuid,
                name: if described { String::from_utf8_lossy(&name).into_owned() } else { String::new() },
                total: if described { bytes(device_word::TOTAL) } else { 0 },
                cap: bytes(device_word::CAP),
                soft_mark: bytes(device_word::SOFT_MARK),
                usage,
            });
        }
        Ok(devices)
    }

    /// The configuration text.
    pub fn config(&self) -> Result<Option<String>, Error> {
        let bytes = self.checked_text(Section::Config, CONFIG_BYTES)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// What it takes to run the job again; `None` in a file of a version without it, and where it is damaged.
    pub fn job(&self) -> Result<Option<Job>, Error> {
        let bytes = self.checked_text(Section::Job, JOB_BYTES)?;
        Ok(bytes.filter(|bytes| !bytes.is_empty()).map(|bytes| Job::unpacked(&bytes)))
    }

    /// A checksum, a length and a text of that length.
    fn checked_text(&self, which: Section, most: usize) -> Result<Option<Vec<u8>>, Error> {
        let words = self.section_words(which, most as u64)?;
        let length = words.get(1).map_or(0, |length| (*length).min(most as u64)) as usize;
        let bytes: Vec<u8> = words.iter().skip(2).flat_map(|word| word.to_le_bytes()).take(length).collect();
        let whole = words.first() == Some(&u64::from(crc32c::crc32c(&bytes)));
        Ok(whole.then_some(bytes))
    }
}

/// A dump of an out-of-memory failure, as it lies in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OomSlot {
    /// Its number among the dumps, from 1.
    pub number: u64,
    /// The report as JSON.
    pub json: String,
}

/// A cause of out-of-memory failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct CauseCount {
    /// How often it was seen.
    pub times: u64,
    /// First seen, in ticks.
    pub first: u64,
    /// Last seen, in ticks.
    pub last: u64,
    /// Most bytes requested.
    pub largest: u64,
    /// Bytes requested the last time.
    pub latest: u64,
    /// Who requested them.
    pub by: Attribution,
    /// Device.
    pub device: u8,
    /// What sort of memory.
    pub class: Class,
}

impl Reader {
    /// The out-of-memory dumps that the journal holds, oldest first.
    pub fn oom_dumps(&self) -> Result<Vec<OomSlot>, Error> {
        let words = self.section_words(Section::Oom, (2 * OOM_KEPT * OOM_SLOT_BYTES) as u64)?;
        let mut dumps = Vec::new();
        for slot in words.chunks(OOM_SLOT_BYTES / 8) {
            let [crc, number, length, text @ ..] = slot else {
                continue;
            };
            let length = (*length).min(OOM_SLOT_BYTES as u64) as usize;
            let text: Vec<u8> = text.iter().flat_map(|word| word.to_le_bytes()).take(length).collect();
            if *number != 0 && slot_crc(*number, &text) == *crc {
                dumps.push(OomSlot { number: *number, json: String::from_utf8_lossy(&text).into_owned() });
            }
        }
        dumps.sort_by_key(|dump| dump.number);
        Ok(dumps)
    }

    /// The causes of out-of-memory failures, in the order in which they were first seen.
    pub fn causes(&self) -> Result<Vec<CauseCount>, Error> {
        let words = self.section_words(Section::Causes, (CAUSES * CAUSE_WORDS * 8) as u64)?;
        let used = words.as_chunks::<CAUSE_WORDS>().0.iter().filter(|entry| entry[0] != 0);
        Ok(used
            .map(|entry| CauseCount {
                times: entry[1].min(LARGEST_SUM),
                first: entry[2],
                last: entry[3],
                largest: entry[4].min(LARGEST_SUM),
                latest: entry[5].min(LARGEST_SUM),
                by: Attribution::unpack(entry[6]),
                device: entry[7] as u8,
                class: Class::from_number((entry[7] >> 8) as u8),
            })
            .collect())
    }
}

//! Out of memory: the report that the library itself writes, into the journal, beside it as JSON, and as one screen of
//! text. Failures with one cause are collapsed: TensorFlow alone asks again and again for nine tenths of the last size.
//! Allocates and makes system calls; an OOM is rare.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use weir_settings::size::human;

use crate::event::{Attribution, Class, Event, Kind};
use crate::layout::{CAUSE_WORDS, OOM_KEPT, OOM_SLOT_BYTES, word};
use crate::names::STACK_DEPTH;
use crate::sys::clock;
use crate::sys::files;
use crate::text;
use crate::writer::Journal;

/// Version of the JSON schema, which docs/JOURNAL.md describes.
pub const OOM_SCHEMA: u32 = 1;
/// Quiet time after which the same cause is reported again.
const QUIET_SECONDS: u64 = 60;
/// Dumps of one process at most; later ones are only counted.
const MOST_DUMPS: u64 = 64;
/// Holders listed.
pub const HOLDERS: usize = 10;

/// What was asked for and refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Device.
    pub device: u8,
    /// What sort of memory.
    pub class: Class,
    /// Stream.
    pub stream: u16,
    /// Bytes asked for.
    pub asked: u64,
    /// The result that the job gets.
    pub result: u16,
    /// Who asked.
    pub by: Attribution,
}

/// Device, pool and cap at that moment, as far as the caller knows; 0 is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Situation {
    /// Memory of the device.
    pub device_total: u64,
    /// Free by the driver.
    pub device_free: u64,
    /// Cap of this process or its group; 0 is none.
    pub cap: u64,
    /// Charged against the cap.
    pub charged: u64,
    /// Of that, charged by other processes of the group.
    pub charged_by_others: u64,
    /// Free inside the pool.
    pub pool_free: u64,
    /// Largest hole in the pool.
    pub pool_largest: u64,
    /// Holes in the pool.
    pub pool_holes: u64,
    /// Freed by the job, not yet reusable because device work may still touch it.
    pub pool_deferred: u64,
    /// Pinned host memory.
    pub pinned: u64,
    /// Resident host memory.
    pub resident: u64,
}

/// A pool takes memory from the device in handles: of less than the largest one's size it can make nothing.
const LAST_HANDLE: u64 = 8 << 20;
/// Owners whose names are looked up for a dump; the smaller ones are left out.
const NAMED: usize = 64;

/// Why a request could not be met, from the numbers alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The cap was reached.
    Cap,
    /// There was room, but not in one piece.
    Fragmentation,
    /// There was room that is still waiting for device work to end.
    Deferred,
    /// The device is full.
    Device,
    /// The numbers do not tell.
    Unknown,
}

impl Situation {
    /// The cause that these numbers show for a request of this size.
    pub fn cause(&self, asked: u64) -> Cause {
        if self.pool_free >= asked && self.pool_largest < asked {
            Cause::Fragmentation
        } else if self.pool_free.saturating_add(self.pool_deferred) >= asked && self.pool_deferred > 0 {
            Cause::Deferred
        } else if self.cap > 0 && self.charged.saturating_add(asked) > self.cap {
            Cause::Cap
        } else if self.device_total > 0 && self.device_free < asked.saturating_add(LAST_HANDLE) {
            Cause::Device
        } else {
            Cause::Unknown
        }
    }
}

/// One group of live allocations with the same owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Operation, or empty.
    pub op: String,
    /// Innermost Python line, or empty.
    pub python: String,
    /// What sort of memory.
    pub class: Class,
    /// Bytes live.
    pub bytes: u64,
    /// Allocations live.
    pub blocks: u64,
}

/// A report of an OOM. Its JSON is the content of an OOM slot and of `<journal>.oom.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OomReport {
    /// Schema version, [`OOM_SCHEMA`].
    pub schema: u32,
    /// Process id.
    pub pid: u32,
    /// Thread that asked.
    pub thread: u32,
    /// Number of the OOM event in the journal.
    pub event: u64,
    /// Nanoseconds since 1970.
    pub realtime_ns: u64,
    /// Device.
    pub device: u8,
    /// What sort of memory.
    pub class: Class,
    /// Bytes asked for.
    pub asked: u64,
    /// The result that the job gets.
    pub result: u16,
    /// Why.
    pub cause: Cause,
    /// Operation that asked, or empty.
    pub op: String,
    /// Python line that asked, or empty.
    pub python: String,
    /// Native stack, innermost first, as hexadecimal addresses.
    pub stack: Vec<String>,
    /// Device, pool and cap.
    pub situation: Situation,
    /// Bytes live on the device, all classes that are the job's own.
    pub live_bytes: u64,
    /// Allocations live on the device.
    pub live_blocks: u64,
    /// The largest holders, largest first.
    pub holders: Vec<Holder>,
    /// Dumps so far, this one included.
    pub dumps: u64,
    /// Failures so far, collapsed ones included.
    pub failures: u64,
}

/// What became of a failure.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// A new cause: it was reported. The text fits one screen.
    Reported {
        /// The report.
        report: Box<OomReport>,
        /// For stderr.
        text: String,
    },
    /// A cause that was reported before: it was counted.
    Counted {
        /// How often it was seen, with this one.
        times: u64,
    },
}

impl Journal {
    /// A request failed for want of memory: records the event, and reports it unless its cause is known already.
    pub fn out_of_memory(&self, failure: &Failure, situation: &Situation) -> Outcome {
        let cause = situation.cause(failure.asked);
        let seen = self.words.get(word::OOM_SEEN).map_or(0, |count| count.fetch_add(1, Ordering::Relaxed)) + 1;
        let (number, times, fresh) = self.count_cause(failure, cause);
        let event = self.record(Event {
            asked: failure.asked,
            stream: failure.stream,
            result: failure.result,
            by: failure.by,
            aux: number,
            live_after: self.live_bytes(failure.device, failure.class),
            ..Event::new(Kind::Oom, failure.class, failure.device)
        });
        let dumps = self.words.get(word::OOM_DUMPS);
        if !fresh || dumps.is_none_or(|count| count.load(Ordering::Relaxed) >= MOST_DUMPS) {
            return Outcome::Counted { times };
        }
        let dump = dumps.map_or(0, |count| count.fetch_add(1, Ordering::Relaxed));
        self.refresh_anchor();
        self.refresh_modules();
        let report = self.report(failure, situation, cause, event, (dump + 1, seen));
        self.fill_slot(dump, &report);
        let written = self.write_json(&report);
        let text = self.text_of_report(&report, written.as_deref());
        Outcome::Reported { report: Box::new(report), text }
    }

    /// A request that the job can do without got nothing: it is counted, and the event is all that is recorded.
    pub fn tried_in_vain(&self, failure: &Failure) {
        if let Some(count) = self.words.get(word::TRIED) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.record(Event {
            asked: failure.asked,
            stream: failure.stream,
            result: failure.result,
            by: failure.by,
            live_after: self.live_bytes(failure.device, failure.class),
            ..Event::new(Kind::Attempt, failure.class, failure.device)
        });
    }

    /// Finds or makes the entry of a cause: its number, how often it was seen, and whether to report it.
    fn count_cause(&self, failure: &Failure, cause: Cause) -> (u16, u64, bool) {
        let by = failure.by;
        // A request that is made again comes by another way through the code: the stack tells requests apart only where
        // nothing else does.
        let owner = if by.op == 0 && by.python == 0 { by } else { Attribution { stack: 0, ..by } };
        let mut key = owner.pack() ^ u64::from(failure.device) << 8 ^ (failure.class as u64) ^ (cause as u64) << 16;
        key = (key ^ key >> 31).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let hz = self.words.get(word::TICK_HZ).map_or(1, |hz| hz.load(Ordering::Relaxed));
        let now = self.now();
        let causes = self.causes.as_chunks::<CAUSE_WORDS>().0;
        for (number, entry) in causes.iter().enumerate() {
            let found = match entry[0].compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => key,
                Err(other) => other,
            };
            // The last entry takes all causes that found no place of their own.
            if found != key && number + 1 < causes.len() {
                continue;
            }
            let times = entry[1].fetch_add(1, Ordering::Relaxed) + 1;
            let last = entry[3].swap(now, Ordering::Relaxed);
            entry[2].compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).ok();
            entry[4].fetch_max(failure.asked, Ordering::Relaxed);
            entry[5].store(failure.asked, Ordering::Relaxed);
            entry[6].store(by.pack(), Ordering::Relaxed);
            let place = u64::from(failure.device) | (failure.class as u64) << 8 | (cause as u64) << 16;
            entry[7].store(place, Ordering::Relaxed);
            let quiet = now.saturating_sub(last) > hz.saturating_mul(QUIET_SECONDS);
            return (number as u16, times, times == 1 || quiet);
        }
        (u16::MAX, 1, true)
    }

    fn report(
        &self,
        failure: &Failure,
        situation: &Situation,
        cause: Cause,
        event: u64,
        counts: (u64, u64),
    ) -> OomReport {
        let mut groups: std::collections::HashMap<(u32, u32, Class), (u64, u64)> = std::collections::HashMap::new();
        let (mut live_bytes, mut live_blocks) = (0_u64, 0);
        self.for_each_live(|entry| {
            if entry.device == failure.device && is_jobs_own(entry.class) {
                let group = groups.entry((entry.by.op, entry.by.python, entry.class)).or_default();
                group.0 = group.0.saturating_add(entry.given);
                group.1 += 1;
                live_bytes = live_bytes.saturating_add(entry.given);
                live_blocks += 1;
            }
        });
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_unstable_by_key(|(owner, (bytes, _))| (std::cmp::Reverse(*bytes), owner.0, owner.1));
        let mut holders: Vec<Holder> = Vec::new();
        for ((op, python, class), (bytes, blocks)) in groups.into_iter().take(NAMED) {
            let op = self.op_name(op).unwrap_or_default();
            let python = self.python_line(python).unwrap_or_default();
            // Shapes and outer lines differ, what is told of them does not.
            match holders.iter_mut().find(|h| h.op == op && h.python == python && h.class == class) {
                Some(same) => {
                    same.bytes = same.bytes.saturating_add(bytes);
                    same.blocks += blocks;
                }
                None => holders.push(Holder { op, python, class, bytes, blocks }),
            }
        }
        holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
        holders.truncate(HOLDERS);
        let stack = self.stacks.get(crate::arena::Item::Stack, failure.by.stack).map_or(Vec::new(), |(_, words)| words);
        OomReport {
            schema: OOM_SCHEMA,
            pid: std::process::id(),
            thread: clock::thread_id(),
            event,
            realtime_ns: self.clock.anchor().realtime,
            device: failure.device,
            class: failure.class,
            asked: failure.asked,
            result: failure.result,
            cause,
            op: self.op_name(failure.by.op).unwrap_or_default(),
            python: self.python_line(failure.by.python).unwrap_or_default(),
            stack: stack.iter().take(STACK_DEPTH).map(|address| format!("{address:#x}")).collect(),
            situation: *situation,
            live_bytes,
            live_blocks,
            holders,
            dumps: counts.0,
            failures: counts.1,
        }
    }

    /// The first dumps keep their slots; later ones take turns in the others.
    fn fill_slot(&self, dump: u64, report: &OomReport) {
        let kept = OOM_KEPT as u64;
        let slot = if dump < kept { dump } else { kept + (dump - kept) % kept } as usize;
        let words = OOM_SLOT_BYTES / 8;
        let Some(place) = self.oom.get(slot * words..(slot + 1) * words) else {
            return;
        };
        let mut report = report.clone();
        let mut text = serde_json::to_vec(&report).unwrap_or_default();
        // What does not fit loses its tail: first the stack, then holders one by one.
        while text.len() > OOM_SLOT_BYTES - 24 && (!report.stack.is_empty() || !report.holders.is_empty()) {
            if report.stack.is_empty() {
                report.holders.pop();
            } else {
                report.stack.clear();
            }
            text = serde_json::to_vec(&report).unwrap_or_default();
        }
        if text.len() > OOM_SLOT_BYTES - 24 {
            return;
        }
        let [crc, number, rest @ ..] = place else {
            return;
        };
        crc.store(0, Ordering::Release);
        number.store(dump + 1, Ordering::Relaxed);
        crate::create::store_text(rest, 0, &text, OOM_SLOT_BYTES - 24);
        crc.store(slot_crc(dump + 1, &text), Ordering::Release);
    }

    /// Writes `<journal>.oom.json`, all reports of this process so far that the slots hold, whole or not at all.
    fn write_json(&self, report: &OomReport) -> Option<String> {
        let dir = self.backing.dir.as_ref()?;
        let (name, draft) = (format!("{}.oom.json", self.backing.name), format!(".{}.oom.draft", self.backing.name));
        let text = text::json(&serde_json::to_string_pretty(report).ok()?).into_owned() + "\n";
        if text.len() as u64 > files::file_size_limit() {
            return None;
        }
        let _ = dir.remove(&draft);
        let mut file = dir.create(&draft).ok()?;
        let done = file.write_all(text.as_bytes()).and_then(|()| dir.rename(&draft, &name));
        if done.is_err() {
            let _ = dir.remove(&draft);
            return None;
        }
        Some(dir.path().join(name).to_string_lossy().into_owned())
    }

    fn text_of_report(&self, report: &OomReport, json: Option<&str>) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_text(&mut text, report, json);
        text
    }

    fn write_text(&self, to: &mut String, report: &OomReport, json: Option<&str>) -> std::fmt::Result {
        let now = &report.situation;
        writeln!(to, "weir: GPU OUT OF MEMORY   pid {}   GPU {}", report.pid, report.device)?;
        let who = [report.op.as_str(), last_part(&report.python)];
        let who: Vec<_> = who.into_iter().filter(|text| !text.is_empty()).map(|text| shortened(text, 60)).collect();
        writeln!(to, "Asked   {:>10}   {}", human(report.asked), who.join("   "))?;
        let why = match report.cause {
            Cause::Cap => format!("the cap is reached: {} of {} charged", human(now.charged), human(now.cap)),
            Cause::Fragmentation => format!(
                "FRAGMENTATION: {} free in the pool, largest hole {}",
                human(now.pool_free),
                human(now.pool_largest)
            ),
            Cause::Deferred => format!("{} freed memory may still be in use by the device", human(now.pool_deferred)),
            Cause::Device if report.asked > now.device_total => {
                format!("the request is larger than the device, which has {}", human(now.device_total))
            }
            Cause::Device => {
                format!("the device is full: {} of {} free", human(now.device_free), human(now.device_total))
            }
            Cause::Unknown if report.class == Class::Tensor => {
                "TensorFlow's own allocator found no room in the regions that it holds".to_owned()
            }
            Cause::Unknown => "the driver refused; the numbers do not tell why".to_owned(),
        };
        writeln!(to, "Why     {why}")?;
        writeln!(to, "Live    {:>10}   {} blocks", human(report.live_bytes), report.live_blocks)?;
        writeln!(
            to,
            "Pool    {:>10} free   {} holes   {} deferred",
            human(now.pool_free),
            now.pool_holes,
            human(now.pool_deferred)
        )?;
        if now.cap > 0 {
            writeln!(
                to,
                "Cap     {:>10}   {} charged, {} by others",
                human(now.cap),
                human(now.charged),
                human(now.charged_by_others)
            )?;
        }
        writeln!(to, "Host    {:>10} resident   {} pinned", human(now.resident), human(now.pinned))?;
        if !report.holders.is_empty() {
            writeln!(to, "Who holds it")?;
        }
        for (place, holder) in report.holders.iter().enumerate() {
            let op = if holder.op.is_empty() { "(no operation known)" } else { &holder.op };
            let (op, python) = (shortened(op, 40), shortened(last_part(&holder.python), 30));
            writeln!(to, "{:>2} {op:<40} {python:<30} {:>10} {:>7}", place + 1, human(holder.bytes), holder.blocks)?;
        }
        if let Some(json) = json {
            writeln!(to, "More    {}", text::plain(json))?;
        }
        if let Some(path) = self.path() {
            writeln!(to, "        weir report {}", text::plain(&path.to_string_lossy()))?;
        }
        Ok(())
    }
}

/// Whether the job itself holds memory of this class, so that bytes are not counted twice.
fn is_jobs_own(class: Class) -> bool {
    !matches!(class, Class::Handle | Class::Reservation | Class::Tensor | Class::HostTensor)
}

/// Checksum of an OOM slot.
pub(crate) fn slot_crc(number: u64, text: &[u8]) -> u64 {
    u64::from(crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), text)) | 1 << 32
}

/// `file:line in function` without the folders.
fn last_part(place: &str) -> &str {
    place.rsplit('/').next().unwrap_or(place)
}

/// The end of a text, which says more than its beginning, in at most `most` characters.
fn shortened(text: &str, most: usize) -> String {
    let text = &*text::plain(text);
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let tail: String = text.chars().skip(count + 1 - most).collect();
    format!("…{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_follow_from_the_numbers() {
        let free = Situation { pool_free: 4 << 30, pool_largest: 1 << 30, ..Situation::default() };
        assert_eq!(free.cause(2 << 30), Cause::Fragmentation);
        let cap = Situation { cap: 8 << 30, charged: 7 << 30, ..Situation::default() };
        assert_eq!(cap.cause(2 << 30), Cause::Cap);
        let deferred = Situation { pool_free: 1 << 30, pool_deferred: 4 << 30, ..cap };
        assert_eq!(deferred.cause(2 << 30), Cause::Deferred);
        let device = Situation { device_total: 8 << 30, device_free: 1 << 20, ..Situation::default() };
        assert_eq!(device.cause(2 << 30), Cause::Device);
        assert_eq!(Situation::default().cause(1), Cause::Unknown);
    }

    #[test]
    fn long_names_keep_their_end() {
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("gradient_tape/x/MatMul", 7), "…MatMul");
    }
}

//! The report of an out-of-memory: who holds the memory, in a slot of the journal and beside it as JSON.

use std::io::Write as _;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};

use super::{Cause, Failure, Situation};
use crate::event::Class;
use crate::layout::{OOM_KEPT, OOM_SLOT_BYTES};
use crate::names::STACK_DEPTH;
use crate::sys::{clock, files};
use crate::text;
use crate::writer::Journal;

/// Version of the JSON schema, which docs/reference/journal-format.md describes.
pub const OOM_SCHEMA: u32 = 2;
/// Holders listed.
pub const HOLDERS: usize = 10;
/// Owners whose names are looked up for a dump; the smaller ones are left out.
const NAMED: usize = 64;

/// One group of live allocations with the same owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OomHolder {
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
    /// Thread that made the request.
    pub thread: u32,
    /// Number of the OOM event in the journal.
    pub event: u64,
    /// Nanoseconds since 1970.
    pub realtime_ns: u64,
    /// Device.
    pub device: u8,
    /// What sort of memory.
    pub class: Class,
    /// Bytes requested.
    #[serde(alias = "asked")]
    pub requested: u64,
    /// The result that the job gets.
    pub result: u16,
    /// Why.
    pub cause: Cause,
    /// Operation that made the request, or empty.
    pub op: String,
    /// Python line that made the request, or empty.
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
    pub holders: Vec<OomHolder>,
    /// Dumps so far, this one included.
    pub dumps: u64,
    /// Failures so far, collapsed ones included.
    pub failures: u64,
}

impl Journal {
    pub(super) fn report(
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
                group.0 = group.0.saturating_add(entry.allocated);
                group.1 += 1;
                live_bytes = live_bytes.saturating_add(entry.allocated);
                live_blocks += 1;
            }
        });
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_unstable_by_key(|(owner, (bytes, _))| (std::cmp::Reverse(*bytes), owner.0, owner.1));
        let mut holders: Vec<OomHolder> = Vec::new();
        for ((op, python, class), (bytes, blocks)) in groups.into_iter().take(NAMED) {
            let op = self.op_name(op).unwrap_or_default();
            let python = self.python_line(python).unwrap_or_default();
            // Shapes and outer lines differ, what is reported of them does not.
            match holders.iter_mut().find(|h| h.op == op && h.python == python && h.class == class) {
                Some(same) => {
                    same.bytes = same.bytes.saturating_add(bytes);
                    same.blocks += blocks;
                }
                None => holders.push(OomHolder { op, python, class, bytes, blocks }),
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
            requested: failure.requested,
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
    pub(super) fn fill_slot(&self, dump: u64, report: &OomReport) {
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
    pub(super) fn write_json(&self, report: &OomReport) -> Option<String> {
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
}

/// Whether the job itself holds memory of this class, so that bytes are not counted twice.
fn is_jobs_own(class: Class) -> bool {
    !matches!(class, Class::Handle | Class::Reservation | Class::Tensor | Class::HostTensor)
}

/// Checksum of an OOM slot.
pub(crate) fn slot_crc(number: u64, text: &[u8]) -> u64 {
    u64::from(crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), text)) | 1 << 32
}

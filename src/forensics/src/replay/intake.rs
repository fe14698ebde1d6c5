//! What a job requested, from its journal or recording: all of it, or the last part before a moment. Reads files.

use std::collections::{HashMap, HashSet};

use weir_journal::reader::{Error, Reader, Slot};
use weir_journal::{Attribution, Class, Event, FLAG_INTERNAL, FLAG_UNKNOWN_ADDRESS, Kind, LiveEntry};

use super::requests::{Requester, Requests, What};
use crate::export::holdings::regions;
use crate::export::timeline::Timeline;

/// Allocations after a failed request from which on the job counts as having got over it.
const SURVIVED: u64 = 1000;

/// Which requests are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// The device's, of every tensor where TensorFlow's own allocator serves them.
    Tensors,
    /// The device's, of the regions that TensorFlow's own allocator takes.
    Regions,
    /// Of pinned host memory.
    Pinned,
}

/// The part of a recording that leads to a moment.
#[derive(Clone, Copy, Debug)]
pub struct Excerpt {
    /// Number of the last event that counts.
    pub moment: u64,
    /// Events that are read at most; of older ones, what they left behind is known.
    pub most: u64,
    /// Bytes of the request that was refused at the moment; none if none was.
    pub refused: Option<u64>,
    /// What it is about.
    pub view: View,
}

impl Requests {
    /// Reads what a job requested on one device; without one, on the device that the job used most.
    pub fn from_journal(name: &str, reader: &Reader, device: Option<u8>) -> Result<Self, Error> {
        let devices = reader.devices()?;
        let most = devices.iter().max_by_key(|device| device.usage.iter().map(|(_, _, peak)| peak).max());
        let number = device.or(most.map(|device| device.number)).unwrap_or(0);
        let timeline = Timeline::of(reader)?;
        let mut intake = Intake::new(name, reader, number)?;
        if intake.tensors {
            intake.set_regions(regions(&timeline, timeline.opening()?, 0, number)?);
        }
        let first = reader.range().0;
        for entry in timeline.live().iter().filter(|entry| entry.birth < first) {
            intake.opened(entry);
        }
        for slot in timeline.events() {
            match slot? {
                Slot::Event(event) => intake.event(&event),
                Slot::Lost(loss) => intake.requests.lost += loss.count,
            }
        }
        intake.requests.refused = intake.failed.map(|(_, bytes, _)| bytes);
        Ok(intake.requests.finish())
    }

    /// Reads what led to a moment on one device, and the requesters. Of the requests that were refused only the one of the
    /// moment counts: the job got over the others.
    pub fn before(name: &str, reader: &Reader, device: u8, excerpt: Excerpt) -> Result<Self, Error> {
        let timeline = Timeline::of(reader)?;
        let (oldest, end) = reader.range();
        let moment = excerpt.moment.min(end.saturating_sub(1));
        let first = oldest.max((moment + 1).saturating_sub(excerpt.most));
        let mut intake =
            Intake { requesters: Some(HashMap::new()), view: excerpt.view, ..Intake::new(name, reader, device)? };
        intake.tensors &= excerpt.view == View::Tensors;
        intake.requests.left_out = first - oldest;
        let opening = timeline.live_before(first)?;
        if intake.tensors {
            intake.set_regions(regions(&timeline, opening.clone(), first, device)?);
        }
        for entry in &opening {
            intake.opened(entry);
        }
        for slot in timeline.events_from(first) {
            match slot? {
                Slot::Event(event) if event.seq > moment => break,
                Slot::Event(event)
                    if matches!(event.kind, Kind::Failed | Kind::Refused | Kind::Oom | Kind::Attempt) =>
                {
                    if let Some(bytes) = excerpt.refused.filter(|_| event.seq == moment) {
                        intake.refused(&event, bytes);
                    }
                }
                Slot::Event(event) => intake.event(&event),
                Slot::Lost(loss) => intake.requests.lost += loss.count,
            }
        }
        if excerpt.refused.is_some() {
            intake.requests.add_rest();
        } else {
            intake.requests.whole = intake.steps > 0;
        }
        Ok(intake.requests.finish())
    }
}

/// Turns events into steps.
struct Intake {
    requests: Requests,
    regions: HashSet<u64>,
    /// Whether TensorFlow's own allocator served the job.
    tensors: bool,
    /// Whether weir's pool served the job: then a handle of unknown origin is the pool's.
    pooled: bool,
    view: View,
    /// Numbers of requesters; none where they are not distinguished.
    requesters: Option<HashMap<Requester, u32>>,
    live: HashMap<(Class, u64), u32>,
    /// Training steps seen.
    steps: u64,
    /// Step of the last failed request, its size, and the allocations since.
    failed: Option<(u64, u64, u64)>,
}

impl Intake {
    fn new(name: &str, reader: &Reader, device: u8) -> Result<Self, Error> {
        let mut requests = Requests::none(name, device);
        let devices = reader.devices()?;
        let found = devices.iter().find(|found| found.number == device);
        if let Some(device) = found {
            (requests.device_bytes, requests.cap) = (device.total, device.cap);
        }
        let has = |wanted: Class| {
            found.is_some_and(|device| device.usage.iter().any(|(class, _, peak)| *class == wanted && *peak > 0))
        };
        Ok(Self {
            requests,
            regions: HashSet::new(),
            tensors: has(Class::Tensor),
            pooled: has(Class::Block),
            view: View::Tensors,
            requesters: None,
            live: HashMap::new(),
            steps: 0,
            failed: None,
        })
    }

    fn set_regions(&mut self, regions: HashSet<u64>) {
        self.requests.regions = regions.len();
        self.regions = regions;
    }

    /// What to do with an allocation of this class.
    fn role(&self, class: Class, device: u8, internal: bool, address: u64) -> Option<What> {
        if self.view == View::Pinned {
            return matches!(class, Class::Pinned | Class::Registered).then_some(What::Hold);
        }
        if device != self.requests.device {
            return None;
        }
        match class {
            Class::Block | Class::Device if !self.regions.contains(&address) && !internal => {
                Some(if self.tensors { What::Beside } else { What::Request })
            }
            Class::Tensor => self.tensors.then_some(What::Request),
            Class::Handle | Class::Overhead | Class::Managed | Class::Array | Class::Imported | Class::Other
                if !internal =>
            {
                Some(What::Hold)
            }
            _ => None,
        }
    }

    fn requester(&mut self, class: Class, by: Attribution) -> u32 {
        let Some(requesters) = &mut self.requesters else { return 0 };
        let stack = if by.op == 0 && by.python == 0 { by.stack } else { 0 };
        let requester = Requester { class, by: Attribution { stack, ..by } };
        *requesters.entry(requester).or_insert_with(|| {
            self.requests.requesters.push(requester);
            self.requests.requesters.len() as u32 - 1
        })
    }

    fn opened(&mut self, entry: &LiveEntry) {
        let internal = self.pooled && entry.class == Class::Handle;
        if let Some(what) = self.role(entry.class, entry.device, internal, entry.address) {
            let bytes = if entry.requested == 0 { entry.allocated } else { entry.requested };
            let requester = self.requester(entry.class, entry.by);
            self.take(what, (entry.class, entry.address), entry.stream, bytes, requester);
        }
    }

    fn take(&mut self, what: What, place: (Class, u64), stream: u16, bytes: u64, requester: u32) {
        if let Some(block) = self.live.remove(&place) {
            // Its free is missing.
            self.requests.free(stream, block);
        }
        if let Some(block) = self.requests.request(what, stream, bytes, requester) {
            self.live.insert(place, block);
        }
    }

    /// The request that the job did not get.
    fn refused(&mut self, event: &Event, bytes: u64) {
        let requester = self.requester(event.class, event.by);
        self.requests.refused_block = self.requests.new_number();
        let block = self.requests.refused_block.unwrap_or(0);
        self.requests.push(What::Refused, event.stream, block, bytes, requester);
        (self.requests.refused, self.requests.refused_by) = (Some(bytes), Some(requester));
        self.requests.refused_beside = self.tensors && event.class != Class::Tensor;
    }

    fn event(&mut self, event: &Event) {
        if event.device != self.requests.device && event.kind != Kind::Step && self.view != View::Pinned {
            return;
        }
        let bytes = if event.requested == 0 { event.allocated } else { event.requested };
        let internal = event.flags & FLAG_INTERNAL != 0;
        let place = (event.class, event.address);
        let role = || self.role(event.class, event.device, internal, event.address);
        match event.kind {
            Kind::Alloc => {
                let Some(what) = role() else { return };
                let requester = self.requester(event.class, event.by);
                self.take(what, place, event.stream, bytes, requester);
                if let Some((_, requested, since)) = &mut self.failed {
                    *since += 1;
                    if bytes >= *requested || *since > SURVIVED {
                        self.survived();
                    }
                }
            }
            Kind::Free if event.flags & FLAG_UNKNOWN_ADDRESS == 0 => match (self.live.get(&place).copied(), role()) {
                (Some(block), _) => {
                    self.live.remove(&place);
                    self.requests.free(event.stream, block);
                }
                // A free does not say whose it was.
                (None, Some(_)) if self.pooled && event.class == Class::Handle => {}
                (None, Some(what)) => {
                    let requester = self.requester(event.class, event.by);
                    self.requests.free_early(what, event.stream, bytes, requester);
                }
                (None, None) => {}
            },
            Kind::Failed | Kind::Refused | Kind::Oom if bytes > 0 && role().is_some() => {
                self.survived();
                let step = self.requests.push(What::Refused, event.stream, 0, bytes, 0);
                self.requests.refused_beside = self.tensors && event.class != Class::Tensor;
                self.failed = Some((step, bytes, 0));
            }
            // A step fetches its loss, and so waits for the device.
            Kind::Step => {
                self.steps += 1;
                self.requests.note(What::Step);
            }
            Kind::Sync => self.requests.note(What::Sync),
            _ => {}
        }
    }

    /// The job went on after a failed request: it could do without.
    fn survived(&mut self) {
        let Some((step, _, _)) = self.failed.take() else { return };
        let place = step.checked_sub(self.requests.dropped).map(|place| place as usize);
        if let Some(word) = place.and_then(|place| self.requests.steps.get_mut(place)) {
            *word = *word & !7 | What::Nothing as u64;
        }
    }
}

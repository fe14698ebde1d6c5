//! What remedies are tried with: the requests that led to the moment, who made them, the allocator that served them and the
//! room that it had. Reads a run.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use weir_journal::Class;

use super::{Check, Tried};
use crate::names::Who;
use crate::replay::{Excerpt, Policy, Requester, Requests, Settings, View, WhatIf, replay_if};
use crate::roles::{self, Region, Role};
use crate::survey::{BUCKETS, Owner, Survey};
use crate::verdict::Facts;
use crate::words::count;
use crate::{Error, Run};

/// Events that are replayed at most: a report takes seconds however long the run was. Of older ones, what they left
/// behind counts.
const MOST_EVENTS: u64 = 1 << 20;

/// See the file's first comment.
#[derive(Debug)]
pub struct Bench<'run> {
    pub(super) run: &'run Run,
    pub(super) survey: &'run Survey,
    pub(super) device: u8,
    facts: &'run Facts,
    lacking: Option<String>,
    scene: OnceCell<Result<Scene, String>>,
}

/// An requester, with what is known of it.
#[derive(Debug)]
pub(super) struct RequesterFacts {
    pub(super) role: Role,
    /// TensorFlow's number of the data type; of an operation that does not report it, that of most bytes of its line.
    pub(super) dtype: u32,
    /// Whether an operation or a line is known.
    pub(super) named: bool,
    /// Its place among the survey's owners.
    pub(super) owner: Option<usize>,
    /// A set of data that was brought to the device to stay there.
    pub(super) data: bool,
    line: String,
}

/// What led to the moment.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) requests: Requests,
    /// Where the refused one went past TensorFlow's own allocator, `requests` are of its regions, and these of its tensors.
    tensors: Option<Requests>,
    /// By requester.
    pub(super) known: Vec<RequesterFacts>,
    /// Bytes live at the moment, by requester.
    left: Vec<u64>,
    /// Sizes of parameters: a gradient of such a size is a parameter's.
    pub(super) of_parameters: HashSet<u64>,
    /// The allocator that served the job, and the room that it had.
    pub(super) job: Settings,
    /// By which part of the room the replay runs out earlier or later than the job did.
    tolerance: f64,
    /// Why a trial with less memory would prove nothing.
    unproven: Option<String>,
}

impl<'run> Bench<'run> {
    /// A bench. `moment` is whether the log still has the moment's event; without `replay`, nothing is replayed.
    pub fn new(
        run: &'run Run,
        survey: &'run Survey,
        device: u8,
        facts: &'run Facts,
        moment: bool,
        replay: bool,
    ) -> Self {
        let lacking = if !replay {
            Some("--no-replay says so".to_owned())
        } else if !moment {
            let lost = run.header().counters.lapped;
            Some(format!("the log begins after the failure, {} older events are overwritten", count(lost)))
        } else if facts.refused && facts.requested == 0 {
            Some("the log does not show how much was requested".into())
        } else {
            None
        };
        Self { run, survey, device, facts, lacking, scene: OnceCell::new() }
    }

    /// How a remedy that was tried was shown, and the same in words.
    pub(super) fn shown(&self) -> (Check, String) {
        match self.scene.get() {
            Some(Ok(scene)) if !scene.requests.whole => {
                (Check::Estimated, "estimated from the requests up to the refused one".into())
            }
            Some(Ok(scene)) => {
                let mut how = "replayed".to_owned();
                // Below half a percent nothing is printed of it.
                if scene.tolerance >= 0.005 {
                    let _ = write!(how, " to within {:.0} %", (scene.tolerance * 100.0).ceil());
                }
                if scene.requests.left_out > 0 {
                    let _ = write!(how, ": the last {} events", count(self.events(scene.requests.left_out)));
                }
                (Check::Replayed, how)
            }
            _ => (Check::Estimated, "estimated from the requests in the log".into()),
        }
    }

    fn events(&self, left_out: u64) -> u64 {
        (self.survey.at + 1).saturating_sub(self.run.reader().range().0 + left_out)
    }

    /// What led to the moment, or what is lacking.
    pub(super) fn scene(&self) -> Result<&Scene, String> {
        self.scene.get_or_init(|| self.set_up()).as_ref().map_err(Clone::clone)
    }

    /// Requests up to the moment.
    pub(super) fn requests(&self, view: View) -> Result<Requests, String> {
        if let Some(lacking) = &self.lacking {
            return Err(lacking.clone());
        }
        let refused = Some(self.facts.requested).filter(|_| self.facts.refused);
        let excerpt = Excerpt { moment: self.survey.at, most: MOST_EVENTS, refused, view };
        let read = Requests::before(&self.run.name(), self.run.reader(), self.device, excerpt);
        read.map_err(|error| Error::at(self.run.path(), error).to_string())
    }

    fn set_up(&self) -> Result<Scene, String> {
        let mut requests = self.requests(View::Tensors)?;
        if requests.is_empty() && requests.refused.is_none() {
            return Err("the log has no allocation on this device".into());
        }
        let mut tensors = None;
        if requests.refused_beside {
            // Regions do not follow their tensors: the driver, or the pool below, gets the same requests.
            tensors = Some(std::mem::replace(&mut requests, self.requests(View::Regions)?));
        }
        let left = requests.left();
        let mut known = self.known(&requests.requesters);
        complete_types(&mut known, &left);
        let parameter = |requester: usize| known.get(requester).is_some_and(|known| known.role == Role::Parameters);
        let of_parameters = requests.sizes_of(parameter);
        let job = self.job(&requests);
        let mut scene = Scene { requests, tensors, known, left, of_parameters, job, tolerance: 0.0, unproven: None };
        if scene.requests.refused.is_some() {
            scene.unproven = self.reproduce(&mut scene).err();
        }
        Ok(scene)
    }

    /// The allocator that served the job.
    fn job(&self, requests: &Requests) -> Settings {
        let room = self.room();
        match requests.regions {
            0 => {
                let pool = weir_pool::Config::switched(&self.run.settings().pool, room, room);
                Settings { pool, ..Settings::new(Policy::Weir, room) }
            }
            1 => Settings { region: Some(self.facts.tf_reserved), ..Settings::new(Policy::Bfc, room) },
            _ => {
                let region = self.facts.by_own_limit().then_some(self.facts.tf_reserved);
                Settings { region, ..Settings::new(Policy::BfcGrowth, room) }
            }
        }
    }

    /// What the job could have: its cap or the device, less what is not its own or not in the log.
    fn room(&self) -> u64 {
        let facts = self.facts;
        let overhead = self.survey.of_class(self.device, Class::Overhead);
        let own = facts.live + facts.pool_free + facts.pool_deferred + overhead;
        let beside = facts.charged.saturating_sub(own);
        let under_cap = if facts.cap > 0 { facts.cap.saturating_sub(beside) } else { u64::MAX };
        let unknown = beside.saturating_sub(facts.charged_by_others);
        let on_device = if facts.total > 0 { facts.total.saturating_sub(facts.others + unknown) } else { u64::MAX };
        under_cap.min(on_device)
    }

    /// The job as it was must run out in a replay too, or one in which it does not proves nothing. A device that works at
    /// its own pace frees at other times than a simulated one, so that a replay runs out a little earlier or later than
    /// the job did: its room is corrected by as much as an eighth, and by how much is its tolerance.
    fn reproduce(&self, scene: &mut Scene) -> Result<(), String> {
        let requests = &scene.requests;
        let as_it_was = WhatIf { ends: true, ..WhatIf::default() };
        let refused_with = |cap: u64| replay_if(requests, &as_it_was, &Settings { cap, ..scene.job.clone() }).refusal;
        // What was freed and still waited for the device was not there to be had.
        let deferred = self.facts.pool_deferred;
        let counted = scene.job.cap.saturating_sub(deferred);
        let most = (counted / 8).max(8 << 20);
        // Between a room in which it runs out and one in which it does not: the largest in which it does.
        let between = |mut short: u64, mut enough: u64| {
            while enough.saturating_sub(short) > (enough / 256).max(2 << 20) {
                let middle = short + (enough - short) / 2;
                *if refused_with(middle).is_some() { &mut short } else { &mut enough } = middle;
            }
            short
        };
        let mut room = counted;
        match refused_with(counted) {
            // What it got shows that there was room for it.
            Some(refusal) if !refusal.recorded && deferred == 0 => loop {
                let more = room + (room / 64).max(2 << 20);
                if more - counted > most {
                    return Err("a replay of the job as it was runs out much earlier".into());
                }
                match refused_with(more) {
                    Some(refusal) if refusal.recorded => {
                        room = more;
                        break;
                    }
                    Some(_) => room = more,
                    None => {
                        room = between(room, more);
                        break;
                    }
                }
            },
            Some(_) => {}
            // What it did not get shows that there was none.
            None => {
                let least = as_it_was.peak(requests).saturating_sub(1);
                room = if least >= counted - most.min(counted) { between(least, counted) } else { least };
                if counted - room.min(counted) > most {
                    let missing = requests.lost + self.run.header().counters.live_overflow;
                    return Err(match missing {
                        0 => "a replay of the job as it was does not run out".into(),
                        missing => format!("{} events are missing from the log", count(missing)),
                    });
                }
            }
        }
        scene.tolerance = room.abs_diff(counted) as f64 / counted.max(1) as f64;
        scene.job.cap = room.saturating_add(deferred);
        Ok(())
    }

    fn known(&self, requesters: &[Requester]) -> Vec<RequesterFacts> {
        type Key = (Class, String, String, Region, u32);
        let key = |class: Class, who: &Who| -> Key {
            let line = who.line().map(|line| format!("{}:{}", line.file, line.line)).unwrap_or_default();
            (class, who.op_name().to_owned(), line, roles::region(who), if who.is_nameless() { who.stack } else { 0 })
        };
        let own = self.survey.owners.iter().enumerate().filter(|(_, owner)| owner.device == self.device);
        let places: HashMap<Key, usize> = own.map(|(place, owner)| (key(owner.class, &owner.who), place)).collect();
        let of = |requester: &Requester| {
            let who: Arc<Who> = self.run.who(requester.by);
            let place = places.get(&key(requester.class, &who)).copied();
            let owner: Option<&Owner> = place.and_then(|place| self.survey.owners.get(place));
            let ruling = owner.map_or_else(
                || roles::by_name(&who, requester.class, self.device),
                |owner| roles::of(owner, &self.survey.steps),
            );
            let stays = owner.is_some_and(|owner| owner.frees == 0 && owner.ends[BUCKETS / 4] == owner.bytes as i64);
            let huge = owner.is_none() && self.facts.requested >= self.facts.limit() / 2;
            RequesterFacts {
                role: ruling.0,
                dtype: who.op.dtype,
                named: !who.is_nameless(),
                owner: place,
                data: ruling.0 == Role::Inputs && (stays || huge),
                line: key(requester.class, &who).2,
            }
        };
        requesters.iter().map(of).collect()
    }
}

/// Gives operations that do not report their type that of most bytes on their line.
fn complete_types(known: &mut [RequesterFacts], left: &[u64]) {
    let mut by_line: HashMap<String, HashMap<u32, u64>> = HashMap::new();
    for (known, bytes) in known.iter().zip(left).filter(|(known, _)| known.dtype > 0 && !known.line.is_empty()) {
        *by_line.entry(known.line.clone()).or_default().entry(known.dtype).or_default() += bytes;
    }
    for known in known.iter_mut().filter(|known| known.dtype == 0) {
        let types = by_line.get(&known.line).into_iter().flatten();
        known.dtype = types.max_by_key(|(_, bytes)| **bytes).map_or(0, |(dtype, _)| *dtype);
    }
}

fn tried(requests: &Requests, what_if: &WhatIf, settings: &Settings) -> Tried {
    // What is live must fit at least; that is quick to check.
    if what_if.peak(requests) > settings.cap {
        return Tried::Fails;
    }
    let outcome = replay_if(requests, what_if, settings);
    if outcome.fits { Tried::Helps(outcome) } else { Tried::Fails }
}

impl Scene {
    /// Tries a job that acts differently, as far as a trial proves anything.
    pub(super) fn try_less(&self, what_if: &WhatIf, settings: &Settings) -> Tried {
        match &self.unproven {
            Some(lacking) => Tried::Impossible(lacking.clone()),
            None => tried(&self.requests, what_if, settings),
        }
    }

    /// Tries another allocator, of which TensorFlow's may take so much: that it serves everything is proof enough.
    pub(super) fn try_anew(&self, policy: Policy, region: Option<u64>) -> Tried {
        let requests = self.tensors.as_ref().unwrap_or(&self.requests);
        tried(requests, &WhatIf::default(), &Settings { region, ..Settings::new(policy, self.job.cap) })
    }

    /// Whether the rest of the step is known, so that a trial shows more than the requests so far.
    pub(super) fn is_whole(&self) -> bool {
        self.requests.whole
    }

    /// Whether steps are alike, so that a size that serves this one serves the next.
    pub(super) fn is_steady(&self) -> bool {
        self.requests.whole && self.requests.steady
    }

    /// Whether tensors are what was requested, and not regions for them.
    pub(super) fn has_tensors(&self) -> bool {
        self.tensors.is_none()
    }

    /// Why a trial with less memory would prove nothing.
    pub(super) fn unproven(&self) -> Option<&str> {
        self.unproven.as_deref()
    }

    /// Bytes live at the moment of the requesters that are wanted.
    pub(super) fn held(&self, wanted: impl Fn(&RequesterFacts) -> bool) -> u64 {
        self.known.iter().zip(&self.left).filter(|(known, _)| wanted(known)).map(|(_, bytes)| bytes).sum()
    }
}

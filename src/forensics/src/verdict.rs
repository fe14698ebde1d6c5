//! Why a job ran out of memory: every cause that the facts allow, the strongest first, each with the rule that found it
//! and the numbers that it rests on. Pure: facts in, findings out.

use weir_journal::Class;

use crate::Fate;
use crate::words::{count, size};

/// A cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The cap was reached, and the device had room.
    Cap,
    /// There was room, but not in one piece.
    Fragmentation,
    /// Memory grew from step to step and was never given back.
    Leak,
    /// One request was too large for the whole.
    RequestTooLarge,
    /// Other processes hold what is missing.
    Neighbour,
    /// The host ran out of memory, or of memory that can be pinned.
    HostMemory,
    /// TensorFlow's allocator holds memory that its tensors do not use.
    Hoarding,
    /// TensorFlow's allocator may not take more, and the device has it.
    OwnLimit,
    /// What is missing was freed, and waits for device work to end.
    Deferred,
    /// The job needs more than there is.
    Demand,
    /// The numbers do not tell.
    Unknown,
}

impl Cause {
    /// As the report says it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Cap => "CAP",
            Self::Fragmentation => "FRAGMENTATION",
            Self::Leak => "GROWTH",
            Self::RequestTooLarge => "ONE REQUEST TOO LARGE",
            Self::Neighbour => "OTHER PROCESSES",
            Self::HostMemory => "HOST MEMORY",
            Self::Hoarding => "HELD BY TENSORFLOW",
            Self::OwnLimit => "TENSORFLOW'S OWN LIMIT",
            Self::Deferred => "FREED TOO LATE",
            Self::Demand => "DEVICE FULL",
            Self::Unknown => "UNKNOWN",
        }
    }
}

/// A cause, how strongly it is held, the rule and the evidence.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// The cause.
    pub cause: Cause,
    /// 0 to 100; the first of several is the verdict.
    pub strength: u32,
    /// The rule that found it.
    pub rule: &'static str,
    /// The numbers.
    pub evidence: String,
}

/// What the verdict rests on. Bytes; 0 is unknown.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Whether a request was refused for want of memory.
    pub refused: bool,
    /// Bytes asked for.
    pub asked: u64,
    /// Of which sort.
    pub class: Option<Class>,
    /// Whether an operation of TensorFlow asked.
    pub by_op: bool,
    /// Memory of the device.
    pub total: u64,
    /// Free by the driver; only where it was asked.
    pub free: Option<u64>,
    /// Cap.
    pub cap: u64,
    /// Charged against the cap.
    pub charged: u64,
    /// Of that, by other processes of the group.
    pub charged_by_others: u64,
    /// Free in the pool.
    pub pool_free: u64,
    /// Largest hole in the pool.
    pub pool_largest: u64,
    /// Freed and not reusable yet.
    pub pool_deferred: u64,
    /// Held by the job.
    pub live: u64,
    /// Held by other processes on the device.
    pub others: u64,
    /// Grown since the job was built up.
    pub grown: u64,
    /// Where, and how fast, in words.
    pub growing: String,
    /// Reserved by TensorFlow's own allocator; 0 if it is not in charge.
    pub tf_reserved: u64,
    /// Chunks of tensors inside.
    pub tf_used: u64,
    /// Of these, bytes beyond the tensors' own.
    pub tf_slack: u64,
    /// Resident host memory at the end.
    pub resident: u64,
    /// Host memory of the machine, where it is the machine of the run.
    pub host_total: u64,
    /// Whether resident memory grew steadily.
    pub host_grows: bool,
    /// By how much since the run began.
    pub host_grown: u64,
    /// Who accounts for that: the place, and what it did, in words.
    pub host_by: Option<(String, String)>,
    /// How the process ended.
    pub fate: Option<Fate>,
    /// Times that memory moved to the host because the cap was reached.
    pub spills: u64,
}

impl Facts {
    /// What the job may have: its cap, else the device.
    pub fn limit(&self) -> u64 {
        if self.cap > 0 && (self.total == 0 || self.cap < self.total) { self.cap } else { self.total }
    }

    /// Whether host memory was asked for.
    pub fn is_pinned(&self) -> bool {
        matches!(self.class, Some(Class::Pinned | Class::Registered))
    }

    /// Whether TensorFlow's own allocator was asked for a tensor.
    pub fn is_tensor(&self) -> bool {
        self.class == Some(Class::Tensor) && self.tf_reserved > 0
    }

    /// Whether TensorFlow's allocator refused what device and cap have.
    pub fn by_own_limit(&self) -> bool {
        self.is_tensor() && self.missing_under_cap() == 0 && self.missing_on_device() == 0
    }

    /// Bytes that are missing under the cap; 0 if the cap allows the request.
    fn missing_under_cap(&self) -> u64 {
        if self.cap == 0 { 0 } else { (self.charged + self.asked).saturating_sub(self.cap) }
    }

    /// Bytes that are missing on the device; 0 if it has them, or if nobody asked it.
    fn missing_on_device(&self) -> u64 {
        self.free.map_or(0, |free| self.asked.saturating_sub(free))
    }
}

/// Growth of resident memory that is worth a word when nothing was refused.
const MUCH_HOST: u64 = 1 << 30;

/// Every cause that the facts allow, the strongest first. Empty if nothing went wrong.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found: Vec<Finding> = if facts.refused {
        [request_too_large, host, fragmentation, deferred, leak, hoarding, unsplit, own_limit, neighbour, cap, demand]
            .iter()
            .filter_map(|rule| rule(facts))
            .collect()
    } else {
        [host, leak].iter().filter_map(|rule| rule(facts)).collect()
    };
    // Stable: at the same strength, the rule that comes first is the more particular one.
    found.sort_by_key(|finding| std::cmp::Reverse(finding.strength));
    if found.is_empty() && facts.refused {
        let rule = "a request was refused, and no rule explains it";
        found.push(Finding { cause: Cause::Unknown, strength: 1, rule, evidence: "the driver refused".into() });
    }
    found
}

fn finding(cause: Cause, strength: u32, rule: &'static str, evidence: String) -> Finding {
    Finding { cause, strength, rule, evidence }
}

fn request_too_large(facts: &Facts) -> Option<Finding> {
    let limit = facts.limit();
    if limit > 0 && facts.asked > limit {
        let evidence = format!("{} asked for, {} is all there is", size(facts.asked), size(limit));
        return Some(finding(Cause::RequestTooLarge, 100, "the request is larger than cap or device", evidence));
    }
    // Half of everything at once, and more than all the rest together.
    if limit > 0 && facts.asked >= limit / 2 && facts.asked > facts.live {
        let evidence = format!("{} asked for, everything else holds {}", size(facts.asked), size(facts.live));
        let rule = "the request is half the limit or more, and larger than all that is live";
        return Some(finding(Cause::RequestTooLarge, 74, rule, evidence));
    }
    None
}

fn host(facts: &Facts) -> Option<Finding> {
    let by = facts.host_by.as_ref().map_or_else(String::new, |(_, told)| format!("; {told}"));
    if facts.refused && facts.is_pinned() {
        let evidence =
            format!("{} of pinned host memory refused, {} resident{by}", size(facts.asked), size(facts.resident));
        return Some(finding(Cause::HostMemory, 99, "the refused request was for host memory", evidence));
    }
    let heavy = facts.host_total > 0 && facts.resident >= facts.host_total / 10 * 7;
    if facts.fate == Some(Fate::Killed) && heavy {
        let grows = if facts.host_grows { ", growing" } else { "" };
        let evidence = format!(
            "{} of {} resident{grows}, and the process ended without a word{by}",
            size(facts.resident),
            size(facts.host_total)
        );
        let strength = if facts.refused { 55 } else { 80 };
        return Some(finding(
            Cause::HostMemory,
            strength,
            "killed while most of the host's memory was resident",
            evidence,
        ));
    }
    if !facts.refused && facts.host_grows && facts.host_grown >= MUCH_HOST && facts.host_grown >= facts.resident / 2 {
        let evidence =
            format!("{} resident, {} more than at the start{by}", size(facts.resident), size(facts.host_grown));
        let rule = "resident memory rises steadily, by a gibibyte and half of all or more";
        return Some(finding(Cause::HostMemory, 60, rule, evidence));
    }
    None
}

fn fragmentation(facts: &Facts) -> Option<Finding> {
    if facts.pool_free >= facts.asked && facts.pool_largest < facts.asked {
        let hole = match facts.pool_largest {
            0 => "in no piece large enough".into(),
            largest => format!("largest hole {}", size(largest)),
        };
        let evidence = format!("{} free in the pool, {hole}", size(facts.pool_free));
        return Some(finding(Cause::Fragmentation, 90, "the pool's free bytes suffice, no hole does", evidence));
    }
    let idle = facts.tf_reserved.saturating_sub(facts.tf_used);
    if facts.class == Some(Class::Tensor) && facts.by_op && idle >= facts.asked && idle > 0 {
        let evidence = format!("{} free inside TensorFlow's regions, in no piece large enough", size(idle));
        let rule = "an operation was refused although its allocator has the bytes";
        return Some(finding(Cause::Fragmentation, 86, rule, evidence));
    }
    None
}

fn deferred(facts: &Facts) -> Option<Finding> {
    let enough = facts.pool_free.saturating_add(facts.pool_deferred) >= facts.asked;
    if facts.pool_deferred > 0 && enough && facts.pool_free < facts.asked {
        let evidence = format!("{} was freed, and device work may still touch it", size(facts.pool_deferred));
        return Some(finding(
            Cause::Deferred,
            88,
            "what is free and what waits for the device suffice together",
            evidence,
        ));
    }
    None
}

fn leak(facts: &Facts) -> Option<Finding> {
    let limit = facts.limit().max(1);
    if facts.grown == 0 {
        return None;
    }
    let missing = facts.missing_under_cap().max(facts.missing_on_device());
    let share = facts.grown as f64 / limit as f64;
    // What grew without end is the cause even where a cap, a neighbour or a hole in the pool decided when.
    let strength = if share >= 0.25 {
        95
    } else if facts.grown >= missing && share >= 0.05 {
        80
    } else {
        40
    };
    Some(finding(Cause::Leak, strength, "memory rises from step to step and is not given back", facts.growing.clone()))
}

fn hoarding(facts: &Facts) -> Option<Finding> {
    let idle = facts.tf_reserved.saturating_sub(facts.tf_used);
    if facts.tf_reserved > 0 && !facts.by_op && idle >= facts.asked && facts.asked > 0 {
        let evidence = format!(
            "TensorFlow reserved {}, its tensors use {}; {} lie idle",
            size(facts.tf_reserved),
            size(facts.tf_used),
            size(idle)
        );
        let rule = "the request came from outside TensorFlow's allocator, which has the bytes and does not use them";
        return Some(finding(Cause::Hoarding, 92, rule, evidence));
    }
    None
}

fn unsplit(facts: &Facts) -> Option<Finding> {
    if !facts.is_tensor() || facts.tf_slack < facts.asked {
        return None;
    }
    let evidence = format!(
        "{} of {} in use are beyond what the tensors asked for: TensorFlow gives a chunk whole rather than split it",
        size(facts.tf_slack),
        size(facts.tf_used)
    );
    Some(finding(Cause::Hoarding, 84, "the chunks of tensors are larger than these by what was asked for", evidence))
}

fn own_limit(facts: &Facts) -> Option<Finding> {
    if !facts.by_own_limit() {
        return None;
    }
    let free = facts.free.map_or_else(String::new, |free| format!("; the device has {} free", size(free)));
    let evidence = format!(
        "{} is all that TensorFlow takes (memory_limit, a fraction, or what was free when it began), and tensors use {} of \
         it{free}",
        size(facts.tf_reserved),
        size(facts.tf_used)
    );
    let rule = "TensorFlow's allocator refused a tensor without asking for what device and cap have";
    Some(finding(Cause::OwnLimit, 76, rule, evidence))
}

fn neighbour(facts: &Facts) -> Option<Finding> {
    let missing = facts.missing_under_cap();
    if missing > 0 && facts.charged_by_others >= missing {
        let evidence = format!(
            "{} of the group's {} are charged by its other processes",
            size(facts.charged_by_others),
            size(facts.cap)
        );
        // A group is for sharing: those who hold less than half of it are not to blame.
        let strength = if facts.charged_by_others * 2 >= facts.cap { 78 } else { 65 };
        return Some(finding(
            Cause::Neighbour,
            strength,
            "without the others of the group the request would fit",
            evidence,
        ));
    }
    let missing_here = facts.missing_on_device();
    if missing == 0 && missing_here > 0 && facts.others >= missing_here && facts.others >= facts.total / 20 {
        let evidence = format!("{} of {} are held by others", size(facts.others), size(facts.total));
        let strength = if facts.others * 4 >= facts.total { 82 } else { 75 };
        return Some(finding(Cause::Neighbour, strength, "without the others the request would fit", evidence));
    }
    None
}

fn cap(facts: &Facts) -> Option<Finding> {
    if facts.missing_under_cap() == 0 {
        return None;
    }
    let spilled = if facts.spills > 0 {
        format!("; {} times memory had moved to the host before", count(facts.spills))
    } else {
        String::new()
    };
    let (strength, held) = match facts.free {
        Some(free) if free >= facts.asked => (72, ", the device had room"),
        Some(_) => (58, ", the device had no room either"),
        None => (72, ""),
    };
    let evidence = format!("{} of {} charged{held}{spilled}", size(facts.charged), size(facts.cap));
    Some(finding(Cause::Cap, strength, "charged and asked together exceed the cap", evidence))
}

fn demand(facts: &Facts) -> Option<Finding> {
    // What is free in the pool is not needed elsewhere: a device full of holes is not full.
    if facts.total == 0 || facts.live + facts.asked + facts.others <= facts.total {
        return None;
    }
    let free = facts.free.map_or_else(|| "unknown".into(), size);
    let evidence =
        format!("{} live and {} asked for on {}, {free} free", size(facts.live), size(facts.asked), size(facts.total));
    Some(finding(Cause::Demand, 60, "what is live, asked for and held by others exceeds the device", evidence))
}

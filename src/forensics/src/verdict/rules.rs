//! The rules: each looks at the facts and finds one cause, or none. Pure.

use weir_journal::Class;

use super::facts::{LARGEST_HANDLE, TINY_RESERVE};
use super::{Cause, Facts, Finding};
use crate::Fate;
use crate::words::{beyond, count, size, size_down};

/// Growth of resident memory that is worth a word when nothing was refused.
const MUCH_HOST: u64 = 1 << 30;

pub(crate) type Rule = fn(&Facts) -> Option<Finding>;

/// Of a request that was refused; at the same strength, the first is the more particular one.
pub(crate) const OF_A_REFUSAL: [(&str, Rule); 11] = named![
    request_too_large,
    host,
    fragmentation,
    freed_too_late,
    growth,
    reserved_idle,
    unsplit,
    tensorflow_limit,
    other_process,
    cap,
    device_full,
];
/// Where nothing was refused.
pub(crate) const WITHOUT_REFUSAL: [(&str, Rule); 2] = named![host, growth];

fn finding(cause: Cause, strength: u32, rule: &'static str, evidence: String) -> Finding {
    Finding { cause, strength, rule, evidence, explanation: None }
}

fn request_too_large(facts: &Facts) -> Option<Finding> {
    let limit = facts.limit();
    if limit > 0 && facts.requested > limit {
        let (parts, limit, _) = beyond(&[facts.requested], limit);
        let evidence = format!("{} requested, {limit} is all there is", parts[0]);
        return Some(finding(Cause::RequestTooLarge, 100, "the request is larger than cap or device", evidence));
    }
    // Most of everything at once, and more than all the rest together.
    // Of what TensorFlow's allocator has, where that is all there is.
    let own = facts.is_tensor() && !facts.by_own_limit();
    let (limit, live) = if own { (limit.min(facts.tf_reserved), facts.tf_used) } else { (limit, facts.live) };
    if limit > 0 && facts.requested >= limit / 4 * 3 && facts.requested > live {
        let evidence = format!("{} requested, everything else holds {}", size(facts.requested), size(live));
        let rule = "the request is three quarters of the limit or more, and larger than all that is live";
        return Some(finding(Cause::RequestTooLarge, 74, rule, evidence));
    }
    None
}

fn host(facts: &Facts) -> Option<Finding> {
    let by = facts.host_by.as_ref().map_or_else(String::new, |(_, host)| format!("; {host}"));
    if facts.refused && facts.is_pinned() {
        let evidence =
            format!("{} of pinned host memory refused, {} resident{by}", size(facts.requested), size(facts.resident));
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
    // A job that has nearly all needs the next request too, and the one after it: that is no matter of pieces.
    let much = |free: u64| free >= facts.requested && free >= facts.limit() / 10;
    if much(facts.pool_usable()) && facts.pool_largest < facts.requested {
        let range = match facts.pool_largest {
            0 => "in no piece large enough".into(),
            largest => format!("largest free range {}", size_down(largest)),
        };
        let evidence = format!("{} free in the pool, {range}", size_down(facts.pool_free));
        return Some(finding(Cause::Fragmentation, 90, "the pool's free bytes suffice, no free range does", evidence));
    }
    let idle = facts.tf_reserved.saturating_sub(facts.tf_used);
    if facts.class == Some(Class::Tensor) && facts.by_op && much(idle) && idle > 0 {
        let evidence = format!("{} free inside TensorFlow's regions, in no piece large enough", size(idle));
        let rule = "an operation was refused although its allocator has the bytes";
        return Some(finding(Cause::Fragmentation, 86, rule, evidence));
    }
    None
}

fn freed_too_late(facts: &Facts) -> Option<Finding> {
    let enough = facts.pool_free.saturating_add(facts.pool_deferred) >= facts.requested;
    if facts.pool_deferred > 0 && enough && facts.pool_free < facts.requested {
        let evidence = format!("{} was freed, and device work may still touch it", size(facts.pool_deferred));
        return Some(finding(
            Cause::FreedTooLate,
            88,
            "what is free and what waits for the device suffice together",
            evidence,
        ));
    }
    None
}

fn growth(facts: &Facts) -> Option<Finding> {
    let limit = if facts.by_own_limit() { facts.tf_reserved } else { facts.limit() }.max(1);
    if facts.grown == 0 {
        return None;
    }
    let missing = facts.missing_under_cap().max(facts.missing_on_device());
    let share = facts.grown as f64 / limit as f64;
    // What grew without end is the cause even where a cap, another process or the state of the pool decided when; but one
    // request that is larger than all that grew is a cause of its own.
    let strength = if facts.spike > 0 && facts.spike >= facts.grown {
        55
    } else if share >= 0.25 {
        95
    } else if facts.grown >= missing && share >= 0.05 {
        80
    } else {
        40
    };
    Some(finding(Cause::Growth, strength, "memory rises from step to step and is not freed", facts.growing.clone()))
}

fn reserved_idle(facts: &Facts) -> Option<Finding> {
    let idle = facts.tf_reserved.saturating_sub(facts.tf_used);
    if facts.tf_reserved > 0 && !facts.by_op && idle >= facts.requested && facts.requested > 0 {
        let evidence = format!(
            "TensorFlow reserved {}, its tensors use {}; {} lie idle",
            size(facts.tf_reserved),
            size(facts.tf_used),
            size(idle)
        );
        let rule = "the request came from outside TensorFlow's allocator, which has the bytes and does not use them";
        return Some(finding(Cause::ReservedIdle, 92, rule, evidence));
    }
    None
}

fn unsplit(facts: &Facts) -> Option<Finding> {
    if !facts.is_tensor() || facts.tf_slack < facts.requested {
        return None;
    }
    let evidence = format!(
        "{} of {} in use are beyond what the tensors requested: TensorFlow allocates a chunk whole rather than split it",
        size(facts.tf_slack),
        size(facts.tf_used)
    );
    // Of a job that has nearly all, the next request would be refused for want of memory.
    let strength = if facts.tf_slack >= facts.tf_reserved / 10 { 84 } else { 50 };
    Some(finding(
        Cause::ReservedIdle,
        strength,
        "the chunks of tensors are larger than these by what was requested",
        evidence,
    ))
}

fn tensorflow_limit(facts: &Facts) -> Option<Finding> {
    if !facts.by_own_limit() {
        return None;
    }
    let free = facts.free.map_or_else(String::new, |free| format!("; the device has {} free", size_down(free)));
    let evidence = format!(
        "{} is all that TensorFlow takes (memory_limit, a fraction, or what was free when it began), and tensors use {} of \
         it{free}",
        size(facts.tf_reserved),
        size(facts.tf_used)
    );
    let rule = "TensorFlow's allocator refused a tensor without requesting what device and cap have";
    // Where the device is known to have room, the limit decides, whatever the chunks look like.
    let strength = if facts.free.is_some_and(|free| free >= facts.requested) { 85 } else { 76 };
    Some(finding(Cause::TensorflowLimit, strength, rule, evidence))
}

fn other_process(facts: &Facts) -> Option<Finding> {
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
            Cause::OtherProcess,
            strength,
            "without the others of the group the request would fit",
            evidence,
        ));
    }
    let missing_here = facts.missing_on_device();
    if missing == 0 && missing_here > 0 && facts.others >= missing_here && facts.others >= facts.total / 20 {
        let evidence = format!("{} of {} are held by others", size(facts.others), size(facts.total));
        let strength = if facts.others * 4 >= facts.total { 82 } else { 75 };
        return Some(finding(Cause::OtherProcess, strength, "without the others the request would fit", evidence));
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
        Some(free) if free >= facts.requested => (72, ", the device had room"),
        Some(_) => (58, ", the device had no room either"),
        None => (72, ""),
    };
    let (parts, cap, _) = beyond(&[facts.charged, facts.requested], facts.cap);
    let evidence = format!("{} of {cap} are taken and {} requested{held}{spilled}", parts[0], parts[1]);
    Some(finding(Cause::Cap, strength, "charged and requested together exceed the cap", evidence))
}

fn device_full(facts: &Facts) -> Option<Finding> {
    // What is free in the pool is not needed elsewhere: a device full of holes is not full.
    if facts.total == 0 || facts.live + facts.requested + facts.others <= facts.total {
        return None;
    }
    // What others hold is named where it is much, and where nothing is too much without it.
    let named = facts.others >= facts.total / 256 || facts.live + facts.requested <= facts.total;
    let others = if named { facts.others } else { 0 };
    let (parts, total, more) = beyond(&[facts.live, facts.requested, others], facts.total);
    let others = if named && others > 0 { format!(", {} held by others", parts[2]) } else { String::new() };
    let evidence = format!("{} live and {} requested on {total}{others}: {more} too much", parts[0], parts[1]);
    Some(finding(Cause::DeviceFull, 60, "what is live, requested and held by others exceeds the device", evidence))
}

/// Where no other rule explains a refusal: what is left under the cap or on the device is no whole handle.
pub(super) fn nearly_full(facts: &Facts) -> Option<Finding> {
    if facts.cap > 0 && facts.charged.saturating_add(facts.requested).saturating_add(LARGEST_HANDLE) > facts.cap {
        let (taken, cap) = (size(facts.charged), size(facts.cap));
        let evidence =
            format!("{taken} of {cap} are taken, and the rest is no whole piece of {}", size(LARGEST_HANDLE));
        return Some(finding(Cause::Cap, 50, "what is left under the cap cannot be taken whole", evidence));
    }
    let free = facts.free?;
    if free < facts.requested.saturating_add(LARGEST_HANDLE) {
        let left = facts.total.saturating_sub(facts.live);
        let kept = if facts.pool_free >= TINY_RESERVE {
            format!(", {} of them are kept for requests up to 4 KiB, the rest is", size(TINY_RESERVE))
        } else {
            ", they are".to_owned()
        };
        let evidence = format!(
            "{} live on {}; the other {} cannot serve it{kept} in ranges that are too small or for other sizes",
            size(facts.live),
            size(facts.total),
            size_down(left),
        );
        return Some(finding(Cause::DeviceFull, 50, "what the device has left cannot be taken whole", evidence));
    }
    None
}

//! What was seen when the job was run again on the virtual GPU, and the remedies that it gives: they come first, and take
//! the place of what a replay could only estimate. Pure; the command runs the job.

use super::{Act, Advice, Check, MOST, Remedy};
use crate::words::{count, duration, several, size, size_down, size_up};

/// How far the run with room came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reached {
    /// It ended well.
    End,
    /// It was stopped because its time was over; nothing was refused until then.
    Time,
    /// It ran out of memory there, too.
    OutOfMemory,
}

/// What grew while the job had room.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Grew {
    /// Bytes a step, or a second.
    pub slope: f64,
    /// `step` or `second`.
    pub unit: &'static str,
    /// The step, or the second of that run, at which it held more than the job may have.
    pub full_at: Option<f64>,
}

/// What was seen when the job was run again.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Measured {
    /// How far the run with room came.
    pub reached: Reached,
    /// The virtual GPU's memory in that run.
    pub room: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Its steps; 0 is unknown.
    pub steps: u64,
    /// Most bytes that the job held at once.
    pub peak: u64,
    /// What the job may have now: its cap, else its device.
    pub limit: u64,
    /// Whether the job as it was ended well this time, within the same limit.
    pub as_it_was: bool,
    /// The smallest device on which a run ended well.
    pub device: Option<u64>,
    /// The lowest cap under which a run ended well.
    pub cap: Option<u64>,
    /// The largest device or highest cap below that with which a run ran out of memory.
    pub short: Option<u64>,
    /// The least limit of TensorFlow's own allocator, by a replay of all requests of a run that ended well without it.
    pub memory_limit: Option<u64>,
    /// Settings and changes that were run within the limit, and whether the job ended well.
    pub ran: Vec<(Act, bool)>,
    /// What grows: a larger device or cap would be full later.
    pub growth: Option<Grew>,
    /// Runs in all.
    pub runs: usize,
}

impl Measured {
    /// How a remedy was shown: seen to the end, or only as far as there was time for.
    fn shown(&self) -> (Check, String) {
        match self.reached {
            Reached::Time => {
                let far = if self.steps > 0 { several(self.steps, "step") } else { duration(self.seconds) };
                (Check::Estimated, format!("estimated from a run on the virtual GPU that was stopped after {far}"))
            }
            _ => (Check::Run, "run on the virtual GPU: the job ended well".into()),
        }
    }

    /// Remedies, the setting before the size.
    fn remedies(&self) -> Vec<Remedy> {
        let (check, how) = self.shown();
        let remedy = |act: Act, text: String| Remedy { act, text, check, how: how.clone() };
        let mut found: Vec<Remedy> = self
            .ran
            .iter()
            .filter(|(_, helps)| *helps)
            .map(|(act, _)| match act {
                Act::Environment(variables) => {
                    remedy(act.clone(), format!("set {variables}: {} are enough then", size(self.limit)))
                }
                other => remedy(other.clone(), format!("{}: {} are enough then", setting(other), size(self.limit))),
            })
            .collect();
        if self.growth.is_none() {
            if let Some(cap) = self.cap {
                let mib = cap.div_ceil(1 << 20);
                found.push(remedy(Act::Cap(mib << 20), format!("raise the cap: WEIR_CAP={mib}MiB or more")));
            }
            if let Some(device) = self.device {
                found.push(remedy(Act::Device(device), format!("a device with {} or more", size_up(device))));
            }
        }
        if let (Some(limit), None) = (self.memory_limit, &self.growth) {
            let mib = limit.div_ceil(1 << 20);
            let how = "replayed: all requests of a run on the virtual GPU".into();
            let text =
                format!("let TensorFlow take {} or more: memory_limit={mib}, or a larger fraction", size_up(limit));
            found.push(Remedy { act: Act::MemoryLimit(mib), text, check: Check::Replayed, how });
        }
        found
    }

    /// What was seen, in a few sentences.
    pub fn sentence(&self) -> String {
        let (room, took, peak) = (size(self.room), duration(self.seconds), size(self.peak));
        let mut parts = vec![match self.reached {
            Reached::End => format!("with {room} it ended well after {took}, at most {peak} live"),
            Reached::Time => format!("with {room} it still ran after {took} and was stopped, at most {peak} live"),
            Reached::OutOfMemory => format!("with {room} it ran out of memory, too, at most {peak} live"),
        }];
        let limit = size(self.limit);
        if let Some(growth) = &self.growth {
            parts.push(format!("it holds {} more each {}", size(growth.slope as u64), growth.unit));
            match growth.full_at {
                Some(at) if growth.unit == "step" => {
                    parts.push(format!("{limit} are full at step {}", count(at as u64)));
                }
                Some(at) => parts.push(format!("{limit} are full after {}", duration(at))),
                None => {}
            }
        }
        if self.as_it_was {
            parts.push(format!("as it was, with {limit}, it ended well this time"));
        }
        let what = if self.cap.is_some() { "a cap of " } else { "" };
        match (self.device.or(self.cap), self.short) {
            (Some(enough), Some(short)) => {
                parts.push(format!("{what}{} is enough, with {} it ran out", size_up(enough), size_down(short)));
            }
            (Some(enough), None) => parts.push(format!("{what}{} is enough, less was not run", size_up(enough))),
            _ => {}
        }
        let useless: Vec<String> = self.ran.iter().filter(|(_, helps)| !helps).map(|(act, _)| setting(act)).collect();
        if !useless.is_empty() {
            parts.push(format!("no help: {}", useless.join(", ")));
        }
        format!("{} ({})", parts.join("; "), several(self.runs as u64, "run"))
    }
}

/// What was run, in words.
fn setting(act: &Act) -> String {
    match act {
        Act::Environment(variables) => (*variables).into(),
        Act::SmallerBatch(parts) => format!("batch / {parts}"),
        Act::WithoutXla => "compile the model with jit_compile=False".into(),
        Act::MixedPrecision => "mixed precision (mixed_float16)".into(),
        Act::Checkpoint => "tf.recompute_grad around each layer".into(),
        other => format!("{other:?}"),
    }
}

/// Puts what was run before everything else. What a replay estimated of the same goes: the truth is known.
pub(crate) fn place(advice: &mut Advice, measured: &Measured) {
    let first = measured.remedies();
    let is_size = |act: &Act| matches!(act, Act::Device(_) | Act::Cap(_));
    advice.remedies.retain(|other| {
        let same = |act: &Act| match (act, &other.act) {
            // The fewest parts that suffice were looked for.
            (Act::SmallerBatch(_), Act::SmallerBatch(_)) => true,
            (act, other) => act == other,
        };
        let was_run = measured.ran.iter().any(|(act, _)| same(act));
        let was_replayed = measured.memory_limit.is_some() && matches!(other.act, Act::MemoryLimit(_));
        !was_run && !was_replayed && !is_size(&other.act)
    });
    advice.remedies.splice(0..0, first);
    advice.remedies.truncate(MOST);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Measured {
        Measured {
            reached: Reached::End,
            room: 4 << 30,
            seconds: 12.0,
            steps: 3,
            peak: 1 << 30,
            limit: 1 << 30,
            as_it_was: false,
            device: Some(1288 << 20),
            cap: None,
            short: Some(1250 << 20),
            memory_limit: None,
            ran: vec![(Act::Environment("A=1"), false), (Act::Environment("B=2"), true)],
            growth: None,
            runs: 6,
        }
    }

    fn advice(acts: &[Act]) -> Advice {
        let remedy = |act: &Act| Remedy {
            act: act.clone(),
            text: format!("{act:?}"),
            check: Check::Estimated,
            how: String::new(),
        };
        Advice { remedies: acts.iter().map(remedy).collect(), useless: Vec::new() }
    }

    fn acts(advice: &Advice) -> Vec<Act> {
        advice.remedies.iter().map(|remedy| remedy.act.clone()).collect()
    }

    #[test]
    fn what_was_run_comes_first_and_replaces_estimates() {
        let before = [Act::Float32, Act::Device(1), Act::Environment("A=1"), Act::Cap(2)];
        let mut advice = advice(&before);
        place(&mut advice, &measured());
        assert_eq!(acts(&advice), [Act::Environment("B=2"), Act::Device(1288 << 20), Act::Float32]);
        assert!(advice.remedies[..2].iter().all(|remedy| remedy.check == Check::Run));
        assert!(measured().sentence().contains("no help: A=1"), "{}", measured().sentence());
    }

    #[test]
    fn changes_of_a_compiled_model_that_were_run_replace_their_estimates() {
        let ran = vec![(Act::WithoutXla, false), (Act::SmallerBatch(2), false), (Act::SmallerBatch(4), true)];
        let before = [Act::SmallerBatch(2), Act::Checkpoint];
        let mut advice = advice(&before);
        let measured = Measured { ran, ..measured() };
        place(&mut advice, &measured);
        assert_eq!(acts(&advice), [Act::SmallerBatch(4), Act::Device(1288 << 20), Act::Checkpoint]);
        assert_eq!(advice.remedies[0].text, "batch / 4: 1.00 GiB are enough then");
        let said = measured.sentence();
        assert!(said.contains("no help: compile the model with jit_compile=False, batch / 2"), "{said}");
    }

    #[test]
    fn what_grows_gets_no_size() {
        let growth = Some(Grew { slope: (8 << 20) as f64, unit: "step", full_at: Some(165.0) });
        let measured = Measured { growth, ran: Vec::new(), ..measured() };
        let mut advice = advice(&[Act::Device(1), Act::Cap(2), Act::StopGrowth("a.py:1".into())]);
        place(&mut advice, &measured);
        assert_eq!(acts(&advice), [Act::StopGrowth("a.py:1".into())]);
        assert!(
            measured.sentence().contains("it holds 8.0 MiB more each step; 1.00 GiB are full at step 165"),
            "{}",
            measured.sentence()
        );
    }

    #[test]
    fn a_limit_of_its_own_is_replayed_with_all_requests() {
        let mut advice = advice(&[Act::MemoryLimit(452), Act::SmallerBatch(2)]);
        place(&mut advice, &Measured { memory_limit: Some(900 << 20), device: None, ran: Vec::new(), ..measured() });
        assert_eq!(acts(&advice), [Act::MemoryLimit(900), Act::SmallerBatch(2)]);
        assert_eq!(advice.remedies[0].check, Check::Replayed);
    }

    #[test]
    fn what_was_stopped_is_an_estimate() {
        let mut advice = advice(&[]);
        place(&mut advice, &Measured { reached: Reached::Time, ..measured() });
        assert!(
            advice.remedies.iter().all(|remedy| remedy.check == Check::Estimated && remedy.how.contains("3 steps"))
        );
    }
}

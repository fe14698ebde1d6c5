//! Why a job ran out of memory: every cause that the facts allow, the strongest first, each with the rule that found it
//! and the numbers that it rests on. Pure: facts in, findings out.

mod facts;
pub(crate) mod rules;

pub use facts::Facts;

use crate::explain::{Explanation, Of};
use crate::fault;

/// A cause. Its word is the same on the screen and in JSON: there in capitals, here with underscores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The cap was reached, and the device had room.
    Cap,
    /// There was room, but not in one piece.
    Fragmentation,
    /// Memory grew from step to step and was never freed.
    Growth,
    /// One request was too large for the whole.
    RequestTooLarge,
    /// Other processes hold what is missing.
    OtherProcess,
    /// The host ran out of memory, or of memory that can be pinned.
    HostMemory,
    /// TensorFlow's allocator has reserved memory that its tensors do not use.
    ReservedIdle,
    /// TensorFlow's allocator may not take more, and the device has it.
    TensorflowLimit,
    /// What is missing was freed, and waits for device work to end.
    FreedTooLate,
    /// The job needs more than the device has.
    DeviceFull,
    /// The numbers do not show it.
    Unknown,
}

impl Cause {
    /// Whether what is live says why: the limit is full, and of what is the question.
    pub fn is_of_size(self) -> bool {
        matches!(
            self,
            Self::Cap | Self::DeviceFull | Self::RequestTooLarge | Self::TensorflowLimit | Self::Fragmentation
        )
    }

    /// As the screen says it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Cap => "CAP",
            Self::Fragmentation => "FRAGMENTATION",
            Self::Growth => "GROWTH",
            Self::RequestTooLarge => "REQUEST TOO LARGE",
            Self::OtherProcess => "OTHER PROCESS",
            Self::HostMemory => "HOST MEMORY",
            Self::ReservedIdle => "RESERVED IDLE",
            Self::TensorflowLimit => "TENSORFLOW LIMIT",
            Self::FreedTooLate => "FREED TOO LATE",
            Self::DeviceFull => "DEVICE FULL",
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
    /// What the limit is full of, against what it should be.
    pub explanation: Option<Explanation>,
}

/// Every cause that the facts allow, the strongest first. Empty if nothing went wrong.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let all: &[(&str, rules::Rule)] = if facts.refused { &rules::OF_A_REFUSAL } else { &rules::WITHOUT_REFUSAL };
    let on = all.iter().filter(|(name, _)| !fault::is_off(name));
    let mut found: Vec<Finding> = on.filter_map(|(_, rule)| rule(facts)).collect();
    // Stable: at the same strength, the rule that comes first is the more particular one.
    found.sort_by_key(|finding| std::cmp::Reverse(finding.strength));
    if found.is_empty() && facts.refused && !fault::is_off("nearly_full") {
        found.extend(rules::nearly_full(facts));
    }
    if found.is_empty() && facts.refused {
        let rule = "a request was refused, and no rule explains it";
        let evidence = "the driver refused".into();
        found.push(Finding { cause: Cause::Unknown, strength: 1, rule, evidence, explanation: None });
    }
    found
}

/// Models that are kept from round to round are growth, also where they are too few for a line through them.
pub(crate) fn add_kept_models(findings: &mut Vec<Finding>, kept: bool) {
    let of = |finding: &Finding| finding.explanation.clone().filter(|found| found.of == Of::EarlierModels);
    let grows = findings.iter().any(|finding| finding.cause == Cause::Growth);
    if let Some(explanation) = findings.iter().find_map(of).filter(|_| kept && !grows) {
        let rule = "weights of the same shapes are made in one round after another, and none is freed";
        let (evidence, cause) = (explanation.text.clone(), Cause::Growth);
        for finding in findings.iter_mut() {
            finding.explanation = None;
        }
        findings.insert(0, Finding { cause, strength: 79, rule, evidence, explanation: Some(explanation) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_has_one_word_on_the_screen_and_in_json() {
        use Cause::*;
        let all = [
            Cap,
            Fragmentation,
            Growth,
            RequestTooLarge,
            OtherProcess,
            HostMemory,
            ReservedIdle,
            TensorflowLimit,
            FreedTooLate,
            DeviceFull,
            Unknown,
        ];
        for cause in all {
            let json = serde_json::to_string(&cause).unwrap();
            assert_eq!(json.trim_matches('"').replace('_', " ").to_uppercase(), cause.title());
        }
    }
}

//! The grammar of calls that fail (VGPU_FAIL) and of calls that take time (VGPU_COST). Pure.

use super::size;
use crate::names;
use std::collections::HashMap;
use std::time::Duration;
use weir_cuda::{CUresult, FUNCTIONS, Function};
use weir_settings::size::parse_time;

/// One rule of VGPU_FAIL.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FailRule {
    /// The symbol (`cuMemAlloc_v2`) or the name of all its versions (`cuMemAlloc`); empty for a rule on
    /// the size of requests.
    pub(crate) function: String,
    /// Which of its calls fail.
    pub(crate) when: When,
    /// What they return.
    pub(crate) code: CUresult,
}

/// Which calls a rule means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum When {
    /// From the first to the last of these, counted from 1.
    Calls(u64, u64),
    /// This share of them, between 0 and 1; which ones, the seed decides.
    Rate(f64),
    /// Requests for more bytes than this, whatever the function.
    Above(u64),
}

impl FailRule {
    /// Whether the rule speaks of this function.
    pub(crate) fn matches(&self, function: &Function) -> bool {
        is_called(function, &self.function)
    }
}

fn is_called(function: &Function, name: &str) -> bool {
    function.symbol == name || function.name == name || function.base == name
}

/// Parses a comma-separated list of rules; the error says what a rule should look like.
pub(super) fn fail_rules(text: &str) -> Result<Vec<FailRule>, String> {
    text.split(',').map(|rule| fail_rule(rule.trim())).collect()
}

fn fail_rule(text: &str) -> Result<FailRule, String> {
    let (rule, code) = match text.split_once('=') {
        None => (text, CUresult::CUDA_ERROR_OUT_OF_MEMORY),
        Some((rule, code)) => {
            let found = names::error_by_name(code).filter(|c| *c != CUresult::CUDA_SUCCESS);
            let code = found.ok_or_else(|| format!("an error code after '=', not {code}"))?;
            (rule, code)
        }
    };
    if let Some(limit) = rule.strip_prefix("oom>") {
        if rule != text {
            return Err("oom>SIZE without a code: such requests are out of memory".to_owned());
        }
        let limit = size(limit).ok_or_else(|| format!("a size after 'oom>', not {limit}"))?;
        return Ok(FailRule { function: String::new(), when: When::Above(limit), code });
    }
    let (function, when) = rule.split_once(':').unwrap_or((rule, "1-"));
    if !FUNCTIONS.iter().any(|f| is_called(f, function)) {
        return Err(format!("FUNCTION:CALLS, and there is no driver function {function}"));
    }
    let when =
        calls(when).ok_or_else(|| format!("FUNCTION:3, FUNCTION:3-5, FUNCTION:3- or FUNCTION:1%, not {rule}"))?;
    Ok(FailRule { function: function.to_owned(), when, code })
}

fn calls(text: &str) -> Option<When> {
    if let Some(percent) = text.strip_suffix('%') {
        let rate = percent.parse::<f64>().ok()? / 100.0;
        return (0.0..=1.0).contains(&rate).then_some(When::Rate(rate));
    }
    let (first, last) = match text.split_once('-') {
        None => (text.parse().ok()?, text.parse().ok()?),
        Some((first, "")) => (first.parse().ok()?, u64::MAX),
        Some((first, last)) => (first.parse().ok()?, last.parse().ok()?),
    };
    (1 <= first && first <= last).then_some(When::Calls(first, last))
}

/// How long calls take, by the symbol or the name of all versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CostTable {
    costs: HashMap<String, Cost>,
}

/// What a call takes, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) call: u64,
    pub(crate) mebibyte: u64,
    pub(crate) mapping: u64,
    /// For each device beyond the first that gets rights.
    pub(crate) peer: u64,
}

impl Cost {
    /// `work`, `36us`, or a sum such as `10us+2us/MiB+26us/mapping+8us/peer`.
    fn parse(text: &str) -> Option<Self> {
        if text == "work" {
            return Some(Self { call: WORK, ..Self::default() });
        }
        let mut cost = Self::default();
        for part in text.split('+') {
            let (time, unit) = part.split_once('/').unwrap_or((part, ""));
            let place = match unit {
                "" => &mut cost.call,
                "MiB" => &mut cost.mebibyte,
                "mapping" => &mut cost.mapping,
                "peer" => &mut cost.peer,
                _ => return None,
            };
            *place = duration(time)?;
        }
        Some(cost)
    }

    /// Whether it depends on what the call does.
    pub(crate) fn varies(&self) -> bool {
        (self.mebibyte, self.mapping, self.peer) != (0, 0, 0)
    }
}

/// In place of a time: the call lasts until all work that was queued before it has run.
pub(crate) const WORK: u64 = u64::MAX;

/// Published times of driver calls on an A100, for 2 MiB where the size matters, in microseconds.
const A100: &str = "cuMemCreate=193us,cuMemMap=1.5us,cuMemSetAccess=36us,cuMemUnmap=26us,\
                    cuMemAlloc=97us,cuMemFree=450us";

impl CostTable {
    /// Parses `a100`, or rows `FUNCTION=TIME` and `FUNCTION=work`; all may stand in one list, and the later row wins.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut table = Self::default();
        for row in text.split(',').map(str::trim) {
            if row == "a100" {
                table.costs.extend(Self::parse(A100)?.costs);
                continue;
            }
            let wanted = || {
                format!(
                    "a100, FUNCTION=work or FUNCTION=TIME such as cuMemAlloc=97us or cuMemSetAccess=10us+26us/mapping+8us/peer, not {row}"
                )
            };
            let (function, time) = row.split_once('=').ok_or_else(wanted)?;
            if !FUNCTIONS.iter().any(|f| is_called(f, function)) {
                return Err(format!("FUNCTION=TIME, and there is no driver function {function}"));
            }
            table.costs.insert(function.to_owned(), Cost::parse(time).ok_or_else(wanted)?);
        }
        Ok(table)
    }

    /// What one call of this function burns, with [`WORK`] for one that lasts as long as queued work; a row for the symbol comes before one for the name.
    pub(crate) fn of(&self, function: &Function) -> Cost {
        let rows = [function.symbol, function.base, function.name];
        let row = rows.iter().find_map(|name| self.costs.get(*name));
        row.copied().unwrap_or_default()
    }
}

/// A time with a unit, at most a minute, in nanoseconds.
fn duration(text: &str) -> Option<u64> {
    let time = parse_time(text).ok()?;
    (time <= Duration::from_secs(60)).then_some(time.as_nanos() as u64)
}

//! A plan as text: the answer first, then the figures behind it, then what they do not show.

use std::fmt::Write;

use weir_forensics::words::size;

use super::gpus::Gpu;
use super::trial::Trial;
use super::{Outcome, Plan};

/// A GPU in words.
pub(super) fn gpu(gpu: &Gpu) -> String {
    if gpu.name.is_empty() { size(gpu.bytes) } else { format!("{} ({})", size(gpu.bytes), gpu.name) }
}

/// The whole page.
pub(super) fn page(plan: &Plan) -> String {
    let mut text = format!("{} on {}\n", plan.command, gpu(&plan.gpu));
    if let Some(trial) = &plan.single {
        verdict(plan, trial, &mut text);
    }
    if let Some(trial) = plan.needed.as_ref().or(plan.single.as_ref()).filter(|trial| trial.processes > 0) {
        peak(trial, &mut text);
    }
    if let Some(stock) = plan.stock() {
        let bytes = |name: &str| size(stock[name].as_u64().unwrap_or(0));
        let fits = if stock["fits"] == true { "yes" } else { "NO" };
        let _ = writeln!(
            text,
            "Stock     {fits}: TensorFlow's own allocator needs {} with the context, and leaves {} of the device free",
            bytes("need"),
            bytes("kept")
        );
    }
    if let Some((smallest, good)) = &plan.smallest {
        let confirmed = match good {
            Some(true) => "confirmed by a run",
            Some(false) => "but a run on it failed: take the next larger one",
            None => "not confirmed by a run",
        };
        let _ = writeln!(text, "Smallest  {}; {confirmed}", gpu(smallest));
    } else if plan.sweep.is_none() && plan.code() != 1 {
        let _ = writeln!(text, "Smallest  none of the known GPUs is large enough for this");
    }
    if let Some(sweep) = &plan.sweep {
        swept(plan, sweep, &mut text);
    }
    let _ = writeln!(
        text,
        "Assumed   {} a process for the context (--context); workspaces of cuDNN and others by a model; nothing was\n          measured on a GPU",
        size(plan.context)
    );
    text
}

fn verdict(plan: &Plan, trial: &Trial, text: &mut String) {
    let _ = match trial.fits() {
        Some(true) => {
            let spare = plan.gpu.bytes.saturating_sub(trial.need());
            let refused = match trial.ooms {
                0 => String::new(),
                count => format!(" ({count} requests were refused, and the job got over it)"),
            };
            writeln!(text, "Fits      yes, {} to spare{refused}; the job {}", size(spare), trial.ending.words())
        }
        Some(false) => {
            writeln!(text, "Fits      NO: out of memory {} times; the job {}", trial.ooms, trial.ending.words())
        }
        None if trial.processes == 0 => {
            writeln!(text, "Fits      no verdict: the job {} and never used a GPU", trial.ending.words())
        }
        None => writeln!(text, "Fits      no verdict: the job {} without running out of memory", trial.ending.words()),
    };
}

fn peak(trial: &Trial, text: &mut String) {
    let peak = &trial.peak;
    let processes =
        if trial.processes > 1 { format!(", {} processes added up", trial.processes) } else { String::new() };
    let _ = writeln!(
        text,
        "Peak      {} taken; at most {} live, in {} blocks, {:.1} s after the start{processes}",
        size(peak.taken),
        size(peak.live),
        peak.blocks,
        peak.at
    );
    if peak.incomplete {
        let _ = writeln!(text, "          early events are lost: an earlier peak may have been higher (see WEIR_RING)");
    }
    let _ = writeln!(text, "Needs     {} with the context", size(trial.need()));
    let roles: Vec<_> = peak.roles.iter().map(|(word, bytes)| format!("{word} {}", size(*bytes))).collect();
    if !roles.is_empty() {
        let _ = writeln!(text, "By role   {}", roles.join(", "));
    }
    for (place, holder) in peak.holders.iter().take(6).enumerate() {
        let title = if place == 0 { "Held by" } else { "" };
        let _ = writeln!(text, "{title:<9} {:>10}  {}", size(holder.bytes), holder.name(60));
    }
}

fn swept(plan: &Plan, sweep: &Outcome, text: &mut String) {
    for (value, trial) in &sweep.points {
        let outcome = match trial.fits() {
            Some(true) => format!("needs {}, live {}", size(trial.need()), size(trial.peak.live)),
            _ => format!("no figure: the job {}", trial.ending.words()),
        };
        let _ = writeln!(text, "  {}={value:<8} {outcome}", sweep.name);
    }
    let Some(line) = &sweep.line else {
        let _ = writeln!(text, "Largest   not known: fewer than two runs went well");
        return;
    };
    let error =
        line.error.map_or_else(|| "two points, error not known".into(), |error| format!("± {}", size(error as u64)));
    let sign = if line.base < 0.0 { "-" } else { "" };
    let (base, each) = (size(line.base.abs() as u64), size(line.each.max(0.0) as u64));
    let _ = writeln!(text, "Line      {sign}{base} + {each} × {} ({error})", sweep.name);
    let Some(largest) = &sweep.largest else {
        let _ = if line.each > 0.0 {
            writeln!(
                text,
                "Largest   none: with {}=1 it needs {} already",
                sweep.name,
                size((line.base + line.each) as u64)
            )
        } else {
            writeln!(text, "Largest   not known: the need does not grow with {}", sweep.name)
        };
        return;
    };
    let far = if largest.far { "; far beyond what was measured" } else { "" };
    let _ = writeln!(
        text,
        "Largest   {}={} on {} (between {} and {}{far})",
        sweep.name,
        largest.value,
        gpu(&plan.gpu),
        largest.at_least,
        largest.at_most
    );
    for (value, good) in &sweep.confirmed {
        let outcome = if *good { "a run with it went well" } else { "a run with it ran out of memory" };
        let _ = writeln!(text, "          {}={value}: {outcome}", sweep.name);
    }
}

//! `weir replay`: would a recorded job have fit into less, or with another allocator? Reads journals and traces.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use weir_forensics::replay::{self, Outcome, Policy, Requests, Settings};
use weir_journal::text::plain;
use weir_settings::pool::Switches;
use weir_settings::size::{Amount, Human, parse_amount};

use crate::output;
use crate::progress::Progress;
use crate::screen::{self, Which};

/// Arguments of `weir replay`.
#[derive(Args)]
#[command(after_long_help = "\
RUN may also be a trace: `id bytes` a line for an allocation, `id -bytes` for a free, plain or gzipped, in a file that
ends in .trace, .trace.gz, .txt or .txt.gz.

Examples:
  weir replay RUN                            the smallest cap that the job would fit into
  weir replay RUN --cap 6GiB                 would it have fit into 6 GiB?
  weir replay RUN --policy weir,bfc,torch    side by side with other allocators
  weir replay RUN --cap 6GiB --handle 2MiB   with smaller physical handles

The pool is the one that runs in jobs; the device is simulated, and bfc and torch are models of the
allocators of TensorFlow and PyTorch. The job is taken as recorded. Exit code 4: it does not fit.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    which: Which,
    /// The cap to try: a size like 6GiB or a percentage of the device like 50%
    #[arg(long, value_name = "SIZE")]
    cap: Option<String>,
    /// Switches of weir's pool, as in WEIR_POOL: noremap, nomesh, nolazy, cache, novmm, handle=SIZE, small=SIZE; default: those
    /// of the job
    #[arg(long, value_name = "LIST")]
    pool: Option<String>,
    /// Size of the physical handles behind large blocks
    #[arg(long, value_name = "SIZE")]
    handle: Option<String>,
    /// Allocators to try: weir, bfc, bfc-growth, torch
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "weir")]
    policy: Vec<Policy>,
    /// Device, by its number in the journal; default: the one that was used most
    #[arg(long, value_name = "N")]
    device: Option<u8>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// How one allocator did.
struct Row {
    policy: Policy,
    tried: Option<(u64, Outcome)>,
    smallest: Option<(u64, Outcome)>,
}

/// Runs `weir replay`.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let result = answer(arguments).map(|(text, fits)| {
        if arguments.json {
            output::exact(&text);
        } else {
            put!("{text}");
        }
        ExitCode::from(if fits { 0 } else { 4 })
    });
    screen::end("replay", result)
}

fn answer(arguments: &Arguments) -> Result<(String, bool), String> {
    let (requests, recorded) = read(arguments)?;
    if requests.is_empty() {
        return Err(format!("{}: the recording has no allocations", requests.name));
    }
    let cap = match &arguments.cap {
        Some(text) => match parse_amount(text).map_err(|error| format!("--cap {text}: {error}"))? {
            Amount::Bytes(bytes) => Some(bytes),
            share if requests.device_bytes > 0 => Some(share.of(requests.device_bytes)),
            Amount::Share(_) => {
                return Err(format!("--cap {text}: the recording has no device size; use a size like 8GiB"));
            }
        },
        None => None,
    };
    let pool = pool_settings(arguments, recorded)?;
    let mut rows = Vec::new();
    for policy in &arguments.policy {
        let settings = Settings { pool: pool.clone(), ..Settings::new(*policy, cap.unwrap_or(0)) };
        let mut progress = Progress::new(format!("replaying with {policy}"));
        let tried = cap.map(|cap| (cap, replay::replay(&requests, &settings, &mut |done, all| progress.at(done, all))));
        let smallest = replay::smallest_cap(&requests, &settings, &mut |done, all| progress.at(done, all));
        rows.push(Row { policy: *policy, tried, smallest });
    }
    let fits = rows.iter().all(|row| row.tried.as_ref().map_or(row.smallest.is_some(), |(_, outcome)| outcome.fits));
    let text = if arguments.json { as_json(&requests, &rows) } else { as_text(&requests, &rows) };
    Ok((text, fits))
}

/// What the job requested, and the pool that it had.
fn read(arguments: &Arguments) -> Result<(Requests, Switches), String> {
    if let Some(name) = &arguments.which.run
        && [".trace", ".trace.gz", ".txt", ".txt.gz"]
            .iter()
            .any(|end| name.to_string_lossy().to_lowercase().ends_with(end))
    {
        return Requests::from_trace(Path::new(name)).map(|requests| (requests, Switches::default()));
    }
    let run = arguments.which.open().map_err(|error| error.to_string())?;
    let name = run.path().display().to_string();
    let requests = Requests::from_journal(&name, run.reader(), arguments.device);
    requests.map(|requests| (requests, run.settings().pool)).map_err(|error| format!("{name} {error}"))
}

/// The pool to replay with: that of the flags, else the one that the job had.
fn pool_settings(arguments: &Arguments, recorded: Switches) -> Result<weir_pool::Config, String> {
    let mut switches = match &arguments.pool {
        Some(text) => Switches::parse(text).map_err(|bad| format!("--pool {bad}"))?,
        None => recorded,
    };
    if let Some(text) = &arguments.handle {
        let handle =
            Switches::parse(&format!("handle={text}")).map_err(|bad| format!("--handle {text}: {}", bad.problem))?;
        switches.large_handle = handle.large_handle;
    }
    Ok(weir_pool::Config::switched(&switches, 0, 0))
}

fn as_json(requests: &Requests, rows: &[Row]) -> String {
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            json!({
                "policy": row.policy,
                "cap": row.tried.as_ref().map(|(cap, _)| cap),
                "fits": row.tried.as_ref().map(|(_, outcome)| outcome.fits),
                "outcome": row.tried.as_ref().map(|(_, outcome)| outcome),
                "smallest_cap": row.smallest.as_ref().map(|(cap, _)| cap),
                "at_smallest_cap": row.smallest.as_ref().map(|(_, outcome)| outcome),
            })
        })
        .collect();
    let whole = json!({
        "run": requests.name, "device": requests.device, "device_bytes": requests.device_bytes,
        "recorded_cap": requests.cap, "allocations": requests.allocations, "peak_live": requests.peak_live,
        "lost_events": requests.lost, "failed_request": requests.refused, "replays": rows,
    });
    output::json_text(&whole, false) + "\n"
}

fn as_text(requests: &Requests, rows: &[Row]) -> String {
    use std::fmt::Write;
    let mut text = format!("{}\n", plain(&requests.name));
    let _ = writeln!(
        text,
        "  {} allocations on device {}, at most {} live{}",
        requests.allocations,
        requests.device,
        Human(requests.peak_live),
        requests.refused.map(|bytes| format!(", with the {} that it did not get", Human(bytes))).unwrap_or_default()
    );
    if requests.lost > 0 || requests.folded() > 0 {
        let _ = writeln!(
            text,
            "  {} events are missing; {} old ones count only by what they left",
            requests.lost,
            requests.folded()
        );
    }
    for row in rows {
        let _ = writeln!(text, "\n{}", row.policy);
        if let Some((cap, outcome)) = &row.tried {
            let _ = writeln!(text, "  cap {:<12} {}", Human(*cap).to_string(), verdict(outcome));
            text.push_str(&figures(outcome));
        }
        match &row.smallest {
            Some((cap, outcome)) => {
                let ratio = *cap as f64 / requests.peak_live.max(1) as f64;
                let _ = writeln!(text, "  smallest cap {} ({ratio:.3} × what was live)", Human(*cap));
                text.push_str(&figures(outcome));
            }
            None => text.push_str("  it fits into no cap that was tried\n"),
        }
    }
    text
}

fn verdict(outcome: &Outcome) -> String {
    let Some(refusal) = &outcome.refusal else { return "fits".into() };
    format!(
        "does not fit: {} refused after {} allocations, with {} live and {} held{}",
        Human(refusal.bytes),
        refusal.after,
        Human(refusal.live),
        Human(refusal.held),
        if refusal.recorded { "; the job did not get that one either" } else { "" }
    )
}

fn figures(outcome: &Outcome) -> String {
    use std::fmt::Write;
    let mut text = format!(
        "    held at most {}, of that {:.1} % fragmentation; {} driver calls",
        Human(outcome.peak_held),
        outcome.fragmentation * 100.0,
        outcome.driver_calls
    );
    for (count, what) in
        [(outcome.remaps, "granules moved"), (outcome.meshes, "shared"), (outcome.self_syncs, "own synchronisations")]
    {
        if count > 0 {
            let _ = write!(text, ", {count} {what}");
        }
    }
    text.push('\n');
    text
}

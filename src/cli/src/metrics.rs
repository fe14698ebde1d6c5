//! `weir metrics`: what the jobs hold, in Prometheus' text format, once or over HTTP, or sent to an OpenTelemetry receiver.
//! Reads journals and ledgers only.

mod exposition;
mod otlp;
mod server;
mod totals;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::output;
use crate::screen::{self, RunsDir};
use crate::watch::{Show, Watch};
use totals::Totals;

/// Arguments of `weir metrics`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  weir metrics                                answer on http://127.0.0.1:9847/metrics
  weir metrics --listen 0.0.0.0:9847          for a Prometheus elsewhere; names of operations and lines are then readable there
  weir metrics --once | grep weir_oom_total
  weir metrics --otlp http://collector:4318   send them to OpenTelemetry instead, with a log record for each out-of-memory failure
  weir metrics --json | jq '.[] | select(.name == \"weir_oom_total\").samples'")]
pub(crate) struct Arguments {
    /// Address and port to listen on; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9847")]
    listen: SocketAddr,
    /// Send the metrics to this OpenTelemetry receiver (OTLP over HTTP), and a log record for each failure for want of
    /// memory, instead of listening
    #[arg(long, value_name = "URL", conflicts_with_all = ["listen", "once", "json"])]
    otlp: Option<String>,
    /// With --otlp: how often
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = duration, requires = "otlp")]
    every: Duration,
    /// Print the metrics once and exit
    #[arg(long)]
    once: bool,
    /// Print the metrics once as JSON and exit
    #[arg(long)]
    json: bool,
    /// How many of the largest holders to export for each job and device; each is a time series
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(0..=100))]
    holders: u16,
    #[command(flatten)]
    place: RunsDir,
}

fn duration(text: &str) -> Result<Duration, String> {
    weir_settings::size::parse_duration(text).map_err(|error| error.to_string())
}

/// Runs `weir metrics`.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    screen::end("metrics", answer(arguments).map(|()| ExitCode::SUCCESS))
}

fn answer(arguments: &Arguments) -> Result<(), String> {
    let mut watch = Watch::new(arguments.place.dir.as_deref())?;
    let holders = usize::from(arguments.holders);
    if let Some(endpoint) = &arguments.otlp {
        return otlp::send(endpoint, arguments.every, &mut watch, holders);
    }
    let mut totals = Totals::default();
    let mut figures = move || {
        let jobs = watch.look(Show::Living);
        totals.count(&jobs);
        exposition::Page::of(&jobs, &totals, watch.unreadable().len(), holders)
    };
    if arguments.json {
        output::json(&figures().json(), true);
        return Ok(());
    }
    if arguments.once {
        output::exact(&figures().text());
        return Ok(());
    }
    // What happens from here on is counted, also before the first scrape.
    figures();
    server::serve(arguments.listen, move || figures().text())
}

//! `weir tail`: the events of a run as they happen.

use crate::output;
use crate::screen::{self, Which};
use serde_json::json;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use weir_forensics::{Run, names, words};
use weir_journal::reader::{Follower, Reader, Slot, open_file};
use weir_journal::{Event, Kind, Life, journal_life, text};

/// How often the journal is looked at.
const EVERY: Duration = Duration::from_millis(100);
/// Events taken at a look.
const MOST: usize = 65_536;

/// Arguments of `weir tail`.
#[derive(clap::Args)]
#[command(after_long_help = "Examples:
  weir tail                     the newest run, from now on, until the job ends
  weir tail 4711 --all          from the oldest event that is still there
  weir tail --all --no-follow   what is there, and no more
  weir tail --json | jq 'select(.kind == \"oom\")'")]
pub(crate) struct Arguments {
    #[command(flatten)]
    which: Which,
    /// Start with the oldest event that is still there, not with the next one
    #[arg(long)]
    all: bool,
    /// Stop at the last event instead of waiting for the next one
    #[arg(long)]
    no_follow: bool,
    /// Only events of these kinds, for example alloc,free,oom
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    kind: Vec<String>,
    /// Print one JSON object a line instead of text
    #[arg(long)]
    json: bool,
}

/// Runs `weir tail`.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    screen::end("tail", answer(arguments))
}

fn answer(arguments: &Arguments) -> Result<ExitCode, String> {
    let wanted = kinds(&arguments.kind)?;
    let run = arguments.which.open_living().map_err(|error| error.to_string())?;
    let path = run.path().to_owned();
    let problem = |error: weir_journal::reader::Error| format!("{}: {error}", path.display());
    let reader = Reader::open(&path).map_err(problem)?;
    let mut printer = Printer { to: BufWriter::new(std::io::stdout().lock()), run: &run, wanted, json: arguments.json };
    // A recording has no ring to be followed: its events are read from the frames.
    if reader.is_recording() {
        for slot in reader.events() {
            printer.show(&slot.map_err(problem)?).map_err(|error| error.to_string())?;
        }
        return printer.to.flush().map(|()| ExitCode::SUCCESS).map_err(|error| error.to_string());
    }
    let mut follower = Follower::new(reader, !arguments.all);
    loop {
        let over = arguments.no_follow || !lives(&path);
        let slots = follower.poll(MOST, over).map_err(problem)?;
        for slot in &slots {
            printer.show(slot).map_err(|error| error.to_string())?;
        }
        printer.to.flush().map_err(|error| error.to_string())?;
        match slots.is_empty() {
            true if over => return Ok(ExitCode::SUCCESS),
            true => std::thread::sleep(EVERY),
            false => {}
        }
    }
}

/// Whether the writer of a journal may still write.
pub(crate) fn lives(path: &Path) -> bool {
    let Ok(reader) = Reader::open(path) else { return false };
    let life = || open_file(path).map_or(Life::Dead, |file| journal_life(&file, Some(reader.header())));
    !reader.header().clean_exit && life() != Life::Dead
}

fn kinds(names: &[String]) -> Result<Vec<Kind>, String> {
    let name_of = |kind: &Kind| json!(kind).as_str().unwrap_or_default().to_owned();
    names
        .iter()
        .map(|name| {
            Kind::ALL.iter().copied().find(|kind| name_of(kind) == *name).ok_or_else(|| {
                let all: Vec<_> = Kind::ALL.iter().map(name_of).collect();
                format!("--kind {name}: unknown kind; expected one of {}", all.join(", "))
            })
        })
        .collect()
}

struct Printer<'run, To: Write> {
    to: To,
    run: &'run Run,
    wanted: Vec<Kind>,
    json: bool,
}

impl<To: Write> Printer<'_, To> {
    fn show(&mut self, slot: &Slot) -> std::io::Result<()> {
        match slot {
            Slot::Event(event) if !self.wanted.is_empty() && !self.wanted.contains(&event.kind) => Ok(()),
            Slot::Event(event) if self.json => {
                writeln!(self.to, "{}", output::json_text(&as_json(self.run, event), false))
            }
            Slot::Event(event) => writeln!(self.to, "{}", text::plain(&as_text(self.run, event))),
            Slot::Lost(loss) if self.json => writeln!(self.to, "{}", json!({ "lost": loss })),
            Slot::Lost(loss) => {
                writeln!(self.to, "… {} events are missing ({})", words::count(loss.count), json!(loss.why))
            }
        }
    }
}

fn as_json(run: &Run, event: &Event) -> serde_json::Value {
    let who = run.who(event.by);
    let mut value = json!(event);
    value["realtime_ns"] = json!(run.realtime_ns(event.time));
    value["op"] = json!(who.op.name);
    value["python"] = json!(who.line());
    value
}

fn as_text(run: &Run, event: &Event) -> String {
    let who = run.who(event.by);
    let time = screen::local_time(run.realtime_ns(event.time));
    let time = time.split(' ').next_back().unwrap_or_default();
    let device =
        if event.device == weir_journal::layout::HOST_DEVICE { "host".into() } else { format!("GPU {}", event.device) };
    let kind = json!(event.kind);
    let bytes = match event.kind {
        Kind::Mark | Kind::RegionBegin | Kind::RegionEnd => String::new(),
        Kind::Step | Kind::Fork | Kind::Sync | Kind::TurnedOff => words::count(event.address),
        _ if event.allocated > 0 => words::size(event.allocated),
        _ => words::size(event.requested),
    };
    let class = json!(event.class);
    let text = format!(
        "{time}  {:<15} {device:<6} {bytes:>11}  {:<8} {:#014x}  {} {}",
        kind.as_str().unwrap_or_default(),
        class.as_str().unwrap_or_default(),
        event.address,
        names::tail(who.op_name(), 48),
        who.place(),
    );
    text.trim_end().to_owned()
}

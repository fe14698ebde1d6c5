//! `weir top`: the jobs under weir, live, in a terminal. Only reads: jobs do not notice when it comes or goes.

mod screen;
mod words;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::json;

use crate::screen::{self as common, RunsDir};
use crate::watch::{Show, Watch, now};
use crate::{ascii, output, signals};
use screen::View;

/// How soon a signal is answered.
const SIGNAL_SEEN: Duration = Duration::from_millis(200);

/// Arguments of `weir top`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  weir top                      all jobs of this user; q leaves, the jobs go on
  weir top --once               one snapshot, as text
  weir top --json | jq '.jobs[] | {pid, live: .gpus[0].live}'")]
pub(crate) struct Arguments {
    /// Print one snapshot as text; the default if the output is not a terminal
    #[arg(long)]
    once: bool,
    /// Print one snapshot as JSON
    #[arg(long)]
    json: bool,
    /// Include jobs that have ended
    #[arg(long)]
    all: bool,
    /// Seconds between updates
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    interval: f64,
    #[command(flatten)]
    place: RunsDir,
}

/// Runs `weir top`.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    common::end("top", answer(arguments).map(|()| ExitCode::SUCCESS))
}

fn answer(arguments: &Arguments) -> Result<(), String> {
    let mut watch = Watch::new(arguments.place.dir.as_deref())?;
    let show = if arguments.all { Show::All } else { Show::Living };
    if arguments.json {
        let jobs = watch.look(show);
        let snapshot = json!({"at": now(), "dir": watch.dir(), "jobs": jobs, "unreadable": watch.unreadable()});
        output::json(&snapshot, true);
        return Ok(());
    }
    // A terminal that cannot move its cursor shows text.
    if arguments.once || !io::stdout().is_terminal() || ascii::is_dumb() {
        let jobs = watch.look(show);
        put!("{}", words::page(&jobs, &watch));
        return Ok(());
    }
    if !(0.1..=3600.0).contains(&arguments.interval) {
        return Err(format!("--interval {}: expected 0.1 to 3600 seconds", arguments.interval));
    }
    // A signal must not leave the terminal as it is on the screen.
    signals::end_on_request();
    let mut terminal = ratatui::try_init().map_err(|error| format!("cannot use this terminal: {error}"))?;
    let mut view = View::new(show, arguments.interval);
    let outcome = live(&mut terminal, &mut watch, &mut view);
    ratatui::restore();
    outcome.map_err(|error| error.to_string())
}

/// Looks and draws until the user leaves.
fn live(terminal: &mut ratatui::DefaultTerminal, watch: &mut Watch, view: &mut View) -> io::Result<()> {
    let mut next = Instant::now();
    while !signals::end_requested() {
        if Instant::now() >= next {
            if !view.paused {
                view.take(watch.look(view.show), watch);
            }
            next = Instant::now() + Duration::from_secs_f64(view.interval);
        }
        terminal.draw(|frame| view.draw(frame))?;
        let wait = next.saturating_duration_since(Instant::now()).min(SIGNAL_SEEN);
        if event::poll(wait)? {
            match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press => {
                    let interrupt = key.modifiers.contains(KeyModifiers::CONTROL);
                    if leaves(key) && (interrupt || !view.leave_help()) {
                        return Ok(());
                    }
                    if view.press(key.code) {
                        next = Instant::now();
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn leaves(key: KeyEvent) -> bool {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) || (control && key.code == KeyCode::Char('c'))
}

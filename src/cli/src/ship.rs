//! `weir ship`: appends the runs that have ended to a lake, one row each. The lake itself knows what it has: a run that is
//! shipped again, by whomever, is there once.

use crate::fleet::{self, Helper};
use crate::output;
use crate::row;
use crate::screen::{self, RunsDir};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;
use weir_forensics::export::{self, Format};
use weir_forensics::ranks::Member;
use weir_forensics::{Fate, Run, runs};
use weir_journal::text;

/// Arguments of `weir ship`.
#[derive(clap::Args)]
#[command(
    after_long_help = "A lake is a folder, or a bucket, of Parquet files: runs/day=2026-11-19/RUN.parquet. Writers on many machines never meet,
and a run is stored once however often it is shipped. Credentials and the endpoint of a bucket are taken from AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL. docs/reference/lake.md has the columns, and queries.

Examples:
  weir ship /shared/lake                          what has ended on this machine and is not there yet
  weir ship s3://bucket/lake --every 5min         the same, again and again
  weir ship /shared/lake --job 4711 --events      the runs of a job, and all of their events
  weir ship --print --job 4711 | jq .cause        the rows as JSON
  weir fleet /shared/lake --html month.html       what they say together"
)]
// Each is a switch of its own on the command line.
#[allow(clippy::struct_excessive_bools)]
pub(crate) struct Arguments {
    /// The lake: a folder, made if it is missing, or s3://BUCKET/PREFIX
    #[arg(value_name = "LAKE", required_unless_present = "print")]
    lake: Option<String>,
    /// Only the runs of this job: a Slurm job's number, or a group
    #[arg(long, value_name = "JOB")]
    job: Option<OsString>,
    /// Also store the events of each run: events/day=2026-11-19/RUN.parquet, as `weir export --to parquet` has them
    #[arg(long)]
    events: bool,
    /// What to call the machine of runs that Slurm did not start; default: this machine's name, where they were made on it
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Do not replay the requests to check what is advised
    #[arg(long)]
    no_replay: bool,
    /// Do it again after this time, until the command is ended
    #[arg(long, value_name = "TIME", value_parser = duration)]
    every: Option<Duration>,
    /// Store these rows, lines of JSON as --print has them, in one file for each day; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["job", "events", "every", "print", "dir"])]
    rows: Option<PathBuf>,
    /// Print the rows as lines of JSON, and store nothing
    #[arg(long, conflicts_with_all = ["lake", "every", "events"])]
    print: bool,
    /// Print JSON instead of text
    #[arg(long, conflicts_with = "print")]
    json: bool,
    #[command(flatten)]
    place: RunsDir,
}

fn duration(text: &str) -> Result<Duration, String> {
    weir_settings::size::parse_duration(text).map_err(|error| error.to_string())
}

/// Runs `weir ship`.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    screen::end("ship", answer(arguments).map(|()| ExitCode::SUCCESS))
}

fn answer(arguments: &Arguments) -> Result<(), String> {
    let Some(lake) = &arguments.lake else { return print(arguments) };
    if let Some(file) = &arguments.rows {
        return rows(lake, file);
    }
    let mut known = HashSet::new();
    loop {
        let done = ship(arguments, lake, &mut known);
        let Some(pause) = arguments.every else { return done };
        // A lake that is out of reach may be there the next time.
        if let Err(why) = done {
            eprintln!("weir ship: {}", text::plain(&why));
        }
        std::thread::sleep(pause);
    }
}

/// The runs that there are.
struct Found {
    /// The journals of those that have ended, each with the run's day and id.
    ended: Vec<(PathBuf, (String, String))>,
    /// How many have not.
    alive: u64,
}

/// Looks for runs. Of those in `known` nothing new is to be said.
fn find(arguments: &Arguments, known: &HashSet<PathBuf>) -> Result<Found, String> {
    let dir = arguments.place.folder().map_err(|error| error.to_string())?;
    let files = runs::files(&dir).map_err(|error| error.to_string())?;
    let mut found = Found { ended: Vec::new(), alive: 0 };
    let job = arguments.job.as_ref().map(|job| job.to_string_lossy());
    let mut of_job = Vec::new();
    let mut take = |run: &Run| {
        if matches!(run.fate(), Fate::Ended | Fate::Killed) {
            found.ended.push((run.path().to_owned(), (row::day(run), row::id(run))));
        } else {
            found.alive += 1;
        }
    };
    // A recording of all events is another copy of a run.
    for path in
        files.into_iter().filter(|path| path.extension().is_some_and(|end| end == "weir") && !known.contains(path))
    {
        match Run::open(&path) {
            Ok(run) => match &job {
                None => take(&run),
                Some(job) if Member::of(&run).is_ok_and(|member| member.is_of(job)) => of_job.push(run),
                Some(_) => {}
            },
            Err(error) => eprintln!("weir ship: left out: {}", text::plain(&error.to_string())),
        }
    }
    if let Some(job) = &job {
        // Of a job that was requeued, the last turn: the others were shipped at their end.
        Member::select(of_job, job).map_err(|error| error.to_string())?.iter().for_each(take);
    }
    Ok(found)
}

fn row_of(arguments: &Arguments, path: &Path) -> Result<(Run, Value), String> {
    let run = Run::open(path).map_err(|error| error.to_string())?;
    let row = row::of(&run, arguments.host.as_deref(), !arguments.no_replay)?;
    Ok((run, row))
}

fn print(arguments: &Arguments) -> Result<(), String> {
    for (path, _) in find(arguments, &HashSet::new())?.ended {
        match row_of(arguments, &path) {
            Ok((_, row)) => output::json(&row, false),
            Err(why) => eprintln!("weir ship: left out: {}", text::plain(&why)),
        }
    }
    Ok(())
}

fn ship(arguments: &Arguments, lake: &str, known: &mut HashSet<PathBuf>) -> Result<(), String> {
    let mut helper = Helper::start(&["ship", lake], false)?;
    let found = find(arguments, known)?;
    let ids: Vec<_> = found.ended.iter().map(|(_, id)| id).collect();
    let missing = helper.ask(&json!({"runs": ids}))?;
    let missing: HashSet<&str> = missing.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let (mut shipped, mut there, mut left_out) = (0, 0, 0);
    for (path, (_, id)) in found.ended {
        if !missing.contains(id.as_str()) {
            there += 1;
            known.insert(path);
            continue;
        }
        let (run, row) = match row_of(arguments, &path) {
            Ok(found) => found,
            Err(why) => {
                // A damaged journal stays damaged, and the others are shipped.
                eprintln!("weir ship: left out: {}", text::plain(&why));
                left_out += 1;
                known.insert(path);
                continue;
            }
        };
        let events = arguments.events.then(|| Events::of(&run, &id)).transpose()?;
        let place = events.as_ref().map(|events| events.0.to_string_lossy());
        helper.ask(&json!({"run": {"row": row, "events": place}}))?;
        shipped += 1;
        known.insert(path);
    }
    helper.finish()?;
    if arguments.json {
        output::json(
            &json!({"lake": lake, "shipped": shipped, "there": there, "running": found.alive, "left_out": left_out}),
            false,
        );
    } else if arguments.every.is_none() || shipped > 0 {
        putln!("shipped {shipped} runs to {lake}; {there} were there before, {} still run", found.alive);
    }
    Ok(())
}

fn rows(lake: &str, file: &Path) -> Result<(), String> {
    let from = if file == Path::new("-") {
        Stdio::inherit()
    } else {
        File::open(file).map_err(|error| format!("{}: {error}", file.display()))?.into()
    };
    let done = fleet::command()?.args(["rows", lake]).stdin(from).stdout(Stdio::inherit()).output();
    let done = done.map_err(|error| format!("weir-fleet: {error}"))?;
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()) }
}

/// The events of a run as a file, until they are stored.
struct Events(PathBuf);

impl Events {
    fn of(run: &Run, id: &str) -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("weir-{id}-{}.parquet", std::process::id()));
        let said = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        // Nobody else's file or link is written to.
        let file = File::options().write(true).create_new(true).open(&path).map_err(|error| said(&error))?;
        let events = Self(path.clone());
        let mut to = BufWriter::with_capacity(1 << 20, file);
        export::write(run.reader(), Format::Parquet, export::Options::default(), &mut to, &mut |_, _| {})
            .map_err(|error| said(&error))?;
        Ok(events)
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

//! What `weir ship`, `weir fleet` and `weir metrics --otlp` hand their work to: the crates for Parquet, object stores and
//! OpenTelemetry are linked here alone, so that neither the command nor the library has them. Not meant to be called by hand.

mod lake;
mod month;
mod otlp;
mod page;
mod row;
mod store;
mod table;

use std::fs;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use jiff::civil::Date;
use serde::Deserialize;
use serde_json::json;

use lake::Lake;
use month::Month;
use row::Row;

/// A longer line of standard input is no row.
const LONGEST: u64 = 64 << 20;

/// The part of weir that speaks to a lake of runs and to OpenTelemetry; `weir ship`, `weir fleet` and `weir metrics` call it.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve `weir ship`: which runs are missing, then their rows, as lines of JSON
    Ship { lake: String },
    /// Store rows, lines of JSON, in as few files as there are days
    Rows { lake: String },
    /// Make one file of the many of each day before this one
    Merge { lake: String, before: Date },
    /// Print the month
    Month {
        lake: String,
        #[arg(long)]
        month: Option<String>,
        #[arg(long)]
        html: Option<PathBuf>,
        #[arg(long)]
        json: bool,
    },
    /// Print the columns of a row as a Markdown table
    Columns,
    /// Send what comes as lines of JSON to an OTLP receiver
    Otlp { endpoint: String },
}

fn main() -> ExitCode {
    // The store and the exporter speak TLS by this one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let done = match Arguments::parse().command {
        Command::Ship { lake } => ship(&lake),
        Command::Rows { lake } => rows(&lake),
        Command::Merge { lake, before } => merge(&lake, before),
        Command::Month { lake, month, html, json } => show(&lake, month.as_deref(), html.as_deref(), json),
        Command::Columns => answer(&columns()),
        Command::Otlp { endpoint } => otlp::serve(&endpoint, lines()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // The command that has called this prints it with its own name.
            let line: String = why.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            let _ = writeln!(io::stderr(), "{line}");
            ExitCode::FAILURE
        }
    }
}

/// Prints lines; a reader that has gone is an error.
fn answer(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| format!("standard output: {error}"))
}

/// The lines of standard input that are not empty.
fn lines() -> impl Iterator<Item = Result<String, String>> {
    let mut input = io::stdin().lock();
    std::iter::from_fn(move || {
        loop {
            let mut line = Vec::new();
            match io::Read::take(&mut input, LONGEST).read_until(b'\n', &mut line) {
                Err(error) => return Some(Err(format!("standard input: {error}"))),
                Ok(0) => return None,
                Ok(read) if read as u64 == LONGEST => return Some(Err(format!("a line longer than {LONGEST} bytes"))),
                Ok(_) => {}
            }
            match String::from_utf8(line) {
                Ok(line) if line.trim().is_empty() => {}
                Ok(line) => return Some(Ok(line)),
                Err(_) => return Some(Err("a line that is not UTF-8".into())),
            }
        }
    })
}

/// What `weir ship` says, a line each.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    /// Runs that there are, each with its day; the answer is a line with those that the lake lacks.
    Runs(Vec<(String, String)>),
    /// The row of a run, and a file with its events; the answer is a line when both are stored.
    Run {
        row: Box<Row>,
        #[serde(default)]
        events: Option<PathBuf>,
    },
}

fn ship(place: &str) -> Result<(), String> {
    let lake = Lake::open(place)?;
    for line in lines() {
        match serde_json::from_str(&line?).map_err(|error| format!("standard input: {error}"))? {
            Said::Runs(runs) => answer(&(json!(lake.missing(runs)?).to_string() + "\n"))?,
            Said::Run { row, events } => {
                // The events first: a run that has a row has them.
                if let Some(file) = events {
                    let content = fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
                    lake.put_events(&row, content)?;
                }
                lake.put(&row)?;
                answer("\"stored\"\n")?;
            }
        }
    }
    Ok(())
}

fn rows(place: &str) -> Result<(), String> {
    let lake = Lake::open(place)?;
    let parsed = lines().enumerate().map(|(number, line)| {
        serde_json::from_str(&line?).map_err(|error| format!("line {} of the rows: {error}", number + 1))
    });
    let (rows, files) = lake.put_all(parsed)?;
    answer(&(json!({"rows": rows, "files": files}).to_string() + "\n"))
}

fn merge(place: &str, before: Date) -> Result<(), String> {
    let merged = Lake::open(place)?.merge(before)?;
    answer(&(json!(merged).to_string() + "\n"))
}

fn show(place: &str, month: Option<&str>, html: Option<&Path>, json: bool) -> Result<(), String> {
    let month = Month::of(&Lake::open(place)?, month)?;
    match html {
        Some(file) if file == Path::new("-") => answer(&month.page()),
        Some(file) => {
            // Whole or not there.
            let mut draft = file.as_os_str().to_owned();
            draft.push(format!(".{}.part", std::process::id()));
            let written = fs::write(&draft, month.page()).and_then(|()| fs::rename(&draft, file));
            written.map_err(|error| {
                let _ = fs::remove_file(&draft);
                format!("{}: {error}", file.display())
            })
        }
        None if json => answer(&(serde_json::to_string_pretty(&month).unwrap_or_default() + "\n")),
        None => answer(&month.text()),
    }
}

/// The columns for the reference.
fn columns() -> String {
    use std::fmt::Write as _;
    let mut text = String::from("| column | type | what |\n|---|---|---|\n");
    for column in row::COLUMNS {
        let kind = match column.kind {
            row::Kind::Text => "text",
            row::Kind::Whole => "int64",
            row::Kind::Real => "double",
            row::Kind::Time => "timestamp, UTC",
        };
        let _ = writeln!(text, "| `{}` | {kind} | {} |", column.name, column.help);
    }
    text
}

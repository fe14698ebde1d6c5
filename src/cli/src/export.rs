//! `weir export`: a recorded run in the format of another tool.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use weir_forensics::export::{self, Failure, Format, Options, Summary};
use weir_forensics::{Run, symbols::Missing, xla::Compiled};
use weir_journal::text;

use crate::progress::Progress;
use crate::screen::{self, Which};
use crate::{completions, output};

/// Newest events that a memviz or xplane file gets by default: their viewers keep them all in memory.
const VIEWERS_NEWEST: u64 = 500_000;

/// Arguments of `weir export`.
#[derive(Args)]
#[command(after_long_help = "\
Formats:
  memviz     a pickle for PyTorch's memory viewer (pytorch.org/memory_viz)
  pprof      go tool pprof -http=: RUN.pb.gz
  perfetto   open in ui.perfetto.dev
  heaptrack  heaptrack_gui or heaptrack_print RUN.heaptrack.gz
  folded     what is live, one stack a line, for flame graphs
  parquet    one row an event, for DuckDB, pandas, Spark
  csv, jsonl the same as text
  xplane     XProf, TensorBoard's profiler: memory profile, and memory viewer for what XLA compiled

Examples:
  weir export --to pprof                    the newest run, into RUN.pb.gz
  weir export 4711 --to parquet -o run.parquet
  weir export run.weirrec --to folded -o - | flamegraph.pl > live.svg
  duckdb -c \"select op, sum(allocated) from 'run.parquet' where kind = 'alloc' group by op order by 2 desc\"")]
pub(crate) struct Arguments {
    #[command(flatten)]
    which: Which,
    /// The format: memviz, pprof, perfetto, heaptrack, folded, parquet, csv, jsonl or xplane
    #[arg(long, value_name = "FORMAT", add = completions::of_formats())]
    to: Format,
    /// The output file, `-` for standard output; default: RUN and the format's extension in this directory
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write whole stacks into csv and jsonl too
    #[arg(long)]
    stacks: bool,
    /// For memviz and xplane: write only this many of the newest events; 0 writes all
    #[arg(long, value_name = "COUNT", default_value_t = VIEWERS_NEWEST)]
    newest: u64,
    /// Print a summary as one JSON object, on standard error if the export goes to standard output
    #[arg(long)]
    json: bool,
}

/// Runs `weir export`.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    screen::end("export", answer(arguments))
}

fn answer(arguments: &Arguments) -> Result<ExitCode, String> {
    let run = arguments.which.open().map_err(|error| error.to_string())?;
    let format = arguments.to;
    let named = || PathBuf::from(format!("{}.{}", run.name(), format.extension()));
    let output = arguments.output.clone().unwrap_or_else(named);
    let to_screen = output == Path::new("-");
    let (summary, bytes) = if to_screen {
        let mut to = std::io::stdout().lock();
        if to.is_terminal() && !format.is_text() {
            return Err(format!("won't write binary {} to a terminal; use -o FILE", format.name()));
        }
        written(&run, arguments, &mut to).map_err(|error| format!("{}: {error}", run.path().display()))?
    } else {
        let written = to_file(&run, arguments, &output)?;
        if !arguments.json {
            eprintln!("weir export: {}", text::plain(&output.to_string_lossy()));
        }
        written
    };
    if !arguments.json {
        report(&summary);
        return Ok(ExitCode::SUCCESS);
    }
    let file = (!to_screen).then(|| output.to_string_lossy());
    let unnamed: Vec<_> = summary.unnamed.iter().map(|(path, why)| json!({"path": path, "why": reason(why)})).collect();
    let result = json!({"run": run.name(), "format": format.name(), "file": file, "bytes": bytes,
        "left_out": summary.left_out, "unnamed": unnamed});
    if to_screen {
        eprintln!("{}", output::json_text(&result, false));
    } else {
        output::json(&result, true);
    }
    Ok(ExitCode::SUCCESS)
}

fn to_file(run: &Run, arguments: &Arguments, output: &Path) -> Result<(Summary, u64), String> {
    let done = output::whole(output, |file| {
        let mut to = BufWriter::with_capacity(1 << 20, file);
        let done = written(run, arguments, &mut to)?;
        to.flush()?;
        Ok::<_, Failure>(done)
    });
    done.map_err(|error| format!("{}: {error}", output.display()))
}

/// Counts what goes through it.
struct Counted<'to> {
    to: &'to mut dyn Write,
    bytes: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.to.write(bytes)?;
        self.bytes += taken as u64;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Writes the export; what was left out, and how many bytes it has.
fn written(run: &Run, arguments: &Arguments, to: &mut dyn Write) -> Result<(Summary, u64), Failure> {
    let mut progress = Progress::new(format!("writing {}", arguments.to.name()));
    let compiled = arguments.to.shows_arenas().then(|| Compiled::of(run).ok().flatten()).flatten();
    let options = Options { stacks: arguments.stacks, newest: arguments.newest, compiled: compiled.as_ref() };
    let mut to = Counted { to, bytes: 0 };
    let summary = export::write(run.reader(), arguments.to, options, &mut to, &mut |done, all| progress.at(done, all))?;
    Ok((summary, to.bytes))
}

fn reason(why: &Missing) -> String {
    match why {
        Missing::OtherBuild => "is a different build from the one that ran".to_owned(),
        Missing::Unreadable(error) => format!("cannot be read ({error})"),
    }
}

fn report(summary: &Summary) {
    if summary.left_out > 0 {
        eprintln!(
            "weir export: left out the {} oldest events, more than the viewer can load; --newest 0 writes all",
            summary.left_out
        );
    }
    for (path, why) in &summary.unnamed {
        eprintln!(
            "weir export: {} {}; its functions are shown as offsets",
            text::plain(path),
            text::plain(&reason(why))
        );
    }
}

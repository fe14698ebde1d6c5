//! `weir export`: a recorded run in the format of another tool.

use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use weir_forensics::export::{self, Failure, Format, Options, Summary};
use weir_forensics::{Run, symbols::Missing};

use crate::output;
use crate::progress::Progress;
use crate::screen::{self, Which};

/// Newest events that a memviz file gets when nothing else is said: its viewer keeps them all in memory.
const MEMVIZ_NEWEST: u64 = 500_000;

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

Examples:
  weir export --to pprof                    the newest run, into RUN.pb.gz
  weir export 4711 --to parquet -o run.parquet
  weir export run.weirrec --to folded -o - | flamegraph.pl > live.svg
  duckdb -c \"select op, sum(given) from 'run.parquet' where kind = 'alloc' group by op order by 2 desc\"")]
pub(crate) struct Arguments {
    #[command(flatten)]
    which: Which,
    /// The format: memviz, pprof, perfetto, heaptrack, folded, parquet, csv or jsonl
    #[arg(long, value_name = "FORMAT")]
    to: Format,
    /// The file to write, `-` for standard output; without it, RUN and the format's ending here
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write whole stacks into csv and jsonl too
    #[arg(long)]
    stacks: bool,
    /// For memviz: only so many of the newest events, 0 is all
    #[arg(long, value_name = "COUNT", default_value_t = MEMVIZ_NEWEST)]
    newest: u64,
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
    let summary = if output == Path::new("-") {
        let mut to = std::io::stdout().lock();
        if to.is_terminal() && !format.is_text() {
            return Err(format!("{} is no text; name a file with -o", format.name()));
        }
        written(&run, arguments, &mut to).map_err(|error| format!("{}: {error}", run.path().display()))?
    } else {
        let summary = to_file(&run, arguments, &output)?;
        eprintln!("weir export: {}", output.display());
        summary
    };
    tell(&summary);
    Ok(ExitCode::SUCCESS)
}

fn to_file(run: &Run, arguments: &Arguments, output: &Path) -> Result<Summary, String> {
    let done = output::whole(output, |file| {
        let mut to = BufWriter::with_capacity(1 << 20, file);
        let summary = written(run, arguments, &mut to)?;
        to.flush()?;
        Ok::<_, Failure>(summary)
    });
    done.map_err(|error| format!("{}: {error}", output.display()))
}

fn written(run: &Run, arguments: &Arguments, to: &mut dyn Write) -> Result<Summary, Failure> {
    let mut progress = Progress::new(format!("writing {}", arguments.to.name()));
    let options = Options { stacks: arguments.stacks, newest: arguments.newest };
    export::write(run.reader(), arguments.to, options, to, &mut |done, all| progress.at(done, all))
}

fn tell(summary: &Summary) {
    if summary.left_out > 0 {
        eprintln!(
            "weir export: the {} oldest events are left out, for the viewer's sake; --newest 0 writes all",
            summary.left_out
        );
    }
    for (path, why) in &summary.unnamed {
        let why = match why {
            Missing::OtherBuild => "is another build than the one that ran".to_owned(),
            Missing::Unreadable(error) => format!("cannot be read ({error})"),
        };
        eprintln!("weir export: {path} {why}; its functions are told as offsets");
    }
}

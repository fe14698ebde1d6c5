//! `weir report`: why a job ran out of memory, and who holds it.

use crate::checks::{self, Check, FAILED};
use crate::progress::Progress;
use crate::screen::{self, Which};
use crate::{completions, hyperlink, output, rerun};
use jiff::civil;
use jiff::tz::TimeZone;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_forensics::names::base_name;
use weir_forensics::ranks::{self, JobReport, Member};
use weir_forensics::report::{At, Options, Report};
use weir_forensics::survey::Survey;
use weir_forensics::text::{self, Look};
use weir_forensics::{Error, Fate, Run, html, runs, words};
use weir_journal::reader::Device;

/// Other runs that are looked at for other_processes.
const MOST_OTHERS: usize = 64;
/// Runs that are looked at for those of a job.
const MOST_RANKS: usize = 4096;

/// Arguments of `weir report`.
#[derive(clap::Args)]
#[command(after_long_help = "Works for jobs that are running, have ended, crashed or were killed.

Examples:
  weir report                         the newest run
  weir report --oom                   the newest run that ran out of memory
  weir report 4711                    the job with this process id, also while it runs
  weir report --details               everything, on more than one screen
  weir report --at 165                who held the memory at the end of step 165; --at 12:00:05 at that time
  weir report 4711 --rerun            run the job again on the virtual GPU, to measure what it needs and what helps
  weir report --html report.html      a page for the browser
  weir report --html job.html 4711 4712 4713        the same, with several processes of a job side by side
  weir report --job 4711              all ranks of a job of Slurm: which ran out first, who holds more
  weir report --job ./gathered        the same of the journals in a folder, see weir gather; with --html FILE as a page
  weir report --json | jq -r '.findings[0].cause'
  weir report --check || echo 'out of memory'       for scripts: exit code 3 if it ran out of memory
  weir report --max-peak 6GiB --junit weir.xml      for a CI: exit code 3 above that peak, and a JUnit file
  weir report --markdown >comment.md                for a comment on a pull request")]
// Each is a switch of its own on the command line.
#[allow(clippy::struct_excessive_bools)]
// clap's way of a flag whose value may be left out.
#[allow(clippy::option_option)]
pub(crate) struct Arguments {
    #[command(flatten)]
    which: Which,
    /// With --html: more runs of the same job, side by side on one page, which begins with the first that ran out of memory
    #[arg(value_name = "RUNS", add = completions::of_runs(), requires = "html", conflicts_with_all = ["oom", "rerun"])]
    others: Vec<OsString>,
    /// Report on all ranks of a job: a Slurm job's number (or a step's, 4711.0), a group, or a folder that has the
    /// journals of one job
    #[arg(long, value_name = "JOB", conflicts_with_all = ["run", "oom", "at", "device", "top", "details", "rerun"])]
    job: Option<OsString>,
    /// Print JSON instead of text; docs/reference/report.md describes it
    #[arg(long)]
    json: bool,
    /// Write a self-contained HTML page instead of text; - is standard output
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    html: Option<PathBuf>,
    /// Print Markdown instead of text
    #[arg(long, conflicts_with_all = ["json", "html", "job", "details"])]
    markdown: bool,
    /// Also write a JUnit file: a case for each of the checks
    #[arg(long, value_name = "FILE", conflicts_with_all = ["html", "job"])]
    junit: Option<PathBuf>,
    /// Exit with code 3 if the job ran out of memory
    #[arg(long)]
    check: bool,
    /// Exit with code 3 if more than this was live at once on a device, or if the job ran out of memory
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with_all = ["html", "job"])]
    max_peak: Option<u64>,
    /// Which out-of-memory failure, counted from 1; default: the last. Without RUN: of the newest run that ran out of memory
    #[arg(long, value_name = "N", num_args = 0..=1)]
    oom: Option<Option<usize>>,
    /// Which moment: oom (the failure), peak, end, the end of a step (165 or step:165), or a time (12:00:05); default: the
    /// failure, else the peak of a run that ended and the present of one that runs
    #[arg(long, value_name = "MOMENT", value_parser = moment)]
    at: Option<Moment>,
    /// Which device, by its number; default: the one that ran out, else the fullest
    #[arg(long, value_name = "N")]
    device: Option<u8>,
    /// How many holders to list; default: as many as fit on a screen, ten in JSON and with --details
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    top: Option<u16>,
    /// Show everything, not only what fits on one screen
    #[arg(long, conflicts_with_all = ["json", "html"])]
    details: bool,
    /// Do not replay the requests to check remedies
    #[arg(long)]
    no_replay: bool,
    /// Run the job again on the virtual GPU, with the same command, folder and variables: what it needs is then measured,
    /// and settings that may help are run
    #[arg(long)]
    rerun: bool,
    /// With --rerun: how long all runs together may take
    #[arg(long = "for", value_name = "TIME", default_value = "10min", value_parser = duration)]
    time: Duration,
    /// With --rerun: append the output of the job to a file
    #[arg(long, value_name = "FILE", requires = "rerun")]
    log: Option<PathBuf>,
}

/// What --at may say.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    Oom,
    Peak,
    End,
    Step(u64),
    /// A time of the day on which the job began, or of the next.
    Time(civil::Time),
    DateTime(civil::DateTime),
}

fn moment(text: &str) -> Result<Moment, String> {
    let step = text.strip_prefix("step:").unwrap_or(text);
    if let Ok(step) = step.parse() {
        return Ok(Moment::Step(step));
    }
    match text {
        "oom" => return Ok(Moment::Oom),
        "peak" => return Ok(Moment::Peak),
        "end" => return Ok(Moment::End),
        _ => {}
    }
    let time = text.contains(':').then(|| text.parse().map(Moment::Time).ok()).flatten();
    let whole = || text.parse().map(Moment::DateTime).ok();
    time.filter(|_| !text.contains('-')).or_else(whole).ok_or_else(|| {
        "expected oom, peak, end, a step (165 or step:165), or a time (12:00:05, 2026-11-18T12:00:05)".into()
    })
}

fn size(text: &str) -> Result<u64, String> {
    weir_settings::size::parse_size(text).map_err(|error| error.to_string())
}

fn duration(text: &str) -> Result<Duration, String> {
    weir_settings::size::parse_duration(text).map_err(|error| error.to_string())
}

impl Arguments {
    /// Opens the run that is meant.
    fn open(&self) -> Result<Run, Error> {
        if self.which.run.is_none() && self.oom.is_some() {
            return runs::newest_oom(&self.which.place.folder()?);
        }
        self.which.open()
    }

    /// Opens the run that is meant, and those that are put beside it. A run that is named twice is there once.
    fn open_all(&self) -> Result<Vec<Run>, Error> {
        let mut runs = vec![self.open()?];
        for name in &self.others {
            let run = runs::find(Some(name), || self.which.place.folder())?;
            if runs.iter().all(|other| other.path() != run.path()) {
                runs.push(run);
            }
        }
        Ok(runs)
    }

    /// The moment that is meant.
    fn moment(&self, run: &Run) -> At {
        match self.at {
            Some(Moment::Peak) => At::Peak,
            Some(Moment::End) => At::End,
            Some(Moment::Step(step)) => At::Step(step),
            Some(Moment::Time(time)) => At::Time(time_of_day(run, time)),
            Some(Moment::DateTime(time)) => At::Time(nanoseconds(time)),
            None if self.oom.is_none() && run.fate() == Fate::Ended && !run.ran_out() => At::Peak,
            Some(Moment::Oom) | None => At::Oom,
        }
    }
}

fn nanoseconds(time: civil::DateTime) -> u64 {
    let zoned = time.to_zoned(TimeZone::system()).ok();
    zoned.and_then(|zoned| u64::try_from(zoned.timestamp().as_nanosecond()).ok()).unwrap_or(0)
}

/// The first such time of day since the run began; to the end of the second, where no part of it is given.
fn time_of_day(run: &Run, time: civil::Time) -> u64 {
    let began = run.header().started.realtime;
    let day = weir_forensics::words::calendar(began, screen::local_offset(began)).date();
    let until = if time.subsec_nanosecond() == 0 { 999_999_999 } else { 0 };
    let at = |day: civil::Date| nanoseconds(day.to_datetime(time)) + until;
    let today = at(day);
    if today >= began { today } else { day.tomorrow().map_or(today, at) }
}

/// Runs `weir report`.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    screen::end("report", answer(arguments))
}

fn answer(arguments: &Arguments) -> Result<ExitCode, String> {
    let runs = match &arguments.job {
        Some(job) if arguments.html.is_none() => return of_job(arguments, job),
        Some(job) => runs_of_job(arguments, job)?,
        None => arguments.open_all().map_err(|error| error.to_string())?,
    };
    let run = html::first_to_fail(&runs).and_then(|place| runs.get(place)).ok_or("no run")?;
    let top = arguments.top.map(usize::from);
    let mut options = Options {
        oom: arguments.oom.flatten(),
        device: arguments.device,
        holders: top.unwrap_or(0),
        other_processes: other_processes(run, arguments),
        no_replay: arguments.no_replay,
        at: arguments.moment(run),
        measured: None,
        rerun: run.ran_out() && run.fate() != Fate::Alive && rerun::lacking(run).is_none(),
    };
    if arguments.rerun {
        let quick = Options { no_replay: true, ..options.clone() };
        let plain = Report::of(run, &quick, |_, _| {}).map_err(|error| error.to_string())?;
        match rerun::measure(run, &plain, arguments.time, arguments.log.as_deref()) {
            Ok(measured) => options.measured = Some(measured),
            Err(why) => eprintln!("weir report: not measured: {}", weir_journal::text::plain(&why)),
        }
    }
    if let Some(file) = &arguments.html {
        return page(run, &runs, &options, file, arguments.check);
    }
    let mut progress = reading();
    let report = Report::of(run, &options, |done, all| progress.at(done, all)).map_err(|error| error.to_string())?;
    drop(progress);
    let peaks = if arguments.max_peak.is_some() || arguments.junit.is_some() { peaks(run)? } else { Vec::new() };
    let checks = checks(arguments, &report, &peaks);
    if arguments.json {
        output::json(&report, true);
    } else if arguments.markdown {
        output::exact(&markdown(&report, &checks, &plain_screen(&report)));
    } else {
        let offset = screen::local_offset(report.realtime_ns);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let (width, height, colour) = (screen::width(), screen::height(), screen::colour());
        let look = Look { width, height, colour, offset, now, holders: top, details: arguments.details };
        // The screen has colours, and is safe without another look at it.
        output::screen(&hyperlink::added(text::screen(&report, &look), &report));
    }
    if let Some(file) = &arguments.junit {
        let figures: Vec<(String, u64)> =
            peaks.iter().map(|peak| (format!("gpu_peak_{}", peak.device), peak.bytes)).collect();
        let figures: Vec<(&str, u64)> = figures.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect();
        checks::junit(file, &report.command, &checks, &figures, &plain_screen(&report))?;
    }
    if arguments.max_peak.is_some() {
        return Ok(checks::outcome("report", checks.iter()));
    }
    Ok(if arguments.check && report.is_oom() { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

/// The most that was live at once on a device.
struct Peak {
    device: u8,
    bytes: u64,
    /// Older events are overwritten: it is at most this.
    bound: bool,
}

/// The peaks of all devices, over the whole run.
fn peaks(run: &Run) -> Result<Vec<Peak>, String> {
    let survey = Survey::of(run, None, |_, _| {}).map_err(|error| error.to_string())?;
    let bound = run.reader().range().0 > 0;
    let of = |device: &Device| {
        let course = survey.course(device.number).map_or(0, |course| course.peak);
        let each = device.usage.iter().filter(|(class, ..)| weir_forensics::is_held(*class));
        let bytes = if bound { each.map(|(_, _, peak)| peak).sum() } else { course };
        Peak { device: device.number, bytes, bound }
    };
    Ok(run.devices().map(of).collect())
}

/// What must hold of the run.
fn checks(arguments: &Arguments, report: &Report, peaks: &[Peak]) -> Vec<Check> {
    let why = report.verdict().map_or("memory was refused", |finding| finding.cause.title());
    let refused = report.is_oom().then(|| format!("{} ran out of GPU memory: {why}", report.command));
    let mut checks = vec![Check { name: "the job did not run out of GPU memory".into(), failure: refused }];
    let Some(most) = arguments.max_peak else { return checks };
    for peak in peaks {
        let failure = (peak.bytes > most).then(|| {
            let (bytes, most) = (words::size_up(peak.bytes), words::size(most));
            let bound = if peak.bound { "may have been as high as" } else { "was" };
            format!("the peak of {} on GPU {} {bound} {bytes}, more than {most}", report.command, peak.device)
        });
        checks.push(Check { name: format!("at most {} on GPU {}", words::size(most), peak.device), failure });
    }
    if peaks.is_empty() {
        let failure = Some(format!("{} used no GPU: nothing was checked", report.command));
        checks.push(Check { name: format!("at most {}", words::size(most)), failure });
    }
    checks
}

/// The report as it is in a file.
fn plain_screen(report: &Report) -> String {
    let offset = screen::local_offset(report.realtime_ns);
    let look = Look { width: 100, height: 40, colour: false, offset, now: 0, holders: None, details: false };
    text::screen(report, &look)
}

/// The report for a comment on a pull request.
fn markdown(report: &Report, checks: &[Check], text: &str) -> String {
    let cap = if report.cap > 0 { format!(", cap {}", words::size(report.cap)) } else { String::new() };
    let what = if report.is_oom() { "ran out of GPU memory" } else { "GPU memory" };
    let (command, peak) = (checks::code(&report.command), words::size(report.peak));
    let mut out = format!("### {command}: {what}\n\nPeak {peak} on GPU {}{cap}.\n\n", report.device);
    if let Some(finding) = report.verdict().filter(|_| report.is_oom()) {
        let _ = write!(out, "**{}**: {}\n\n", checks::words(finding.cause.title()), checks::words(&finding.evidence));
    }
    out += "| live | blocks | operation | line |\n|---:|---:|---|---|\n";
    for holder in report.holders.iter().take(5) {
        let who = if holder.op.is_empty() { &holder.library } else { &holder.op };
        let (who, line) = (checks::code(who), checks::code(base_name(&holder.python)));
        let _ = writeln!(out, "| {} | {} | {who} | {line} |", words::size(holder.bytes), words::count(holder.blocks));
    }
    out.push('\n');
    if let Some(remedy) = report.remedies.first() {
        let _ = write!(out, "What helps: {} ({})\n\n", checks::words(&remedy.text), checks::words(&remedy.how));
    }
    out + &checks::markdown(checks, "Report", text)
}

/// The runs of a job, or of a folder that has those of one.
fn runs_of_job(arguments: &Arguments, job: &OsStr) -> Result<Vec<Run>, String> {
    let name = job.to_string_lossy();
    let is_folder = Path::new(job).is_dir();
    let dir = if is_folder { job.into() } else { arguments.which.place.folder().map_err(|error| error.to_string())? };
    let files = runs::files(&dir).map_err(|error| error.to_string())?;
    if files.len() > MOST_RANKS {
        return Err(format!("{}: {} runs, more than {MOST_RANKS}", dir.display(), files.len()));
    }
    let mut found: Vec<Run> = Vec::new();
    for run in files.iter().filter_map(|path| Run::open(path).ok()) {
        // A recording is of a process that has a journal, if that is still there.
        match found.iter_mut().find(|other| other.header().identity == run.header().identity) {
            Some(other) if other.reader().is_recording() => *other = run,
            Some(_) => {}
            None => found.push(run),
        }
    }
    if !is_folder {
        found = Member::select(found, &name).map_err(|error| error.to_string())?;
    }
    if found.is_empty() {
        let what = if is_folder { "no runs".into() } else { format!("no run of a job or group {name}") };
        return Err(format!("{}: {what}; see weir list, weir gather", dir.display()));
    }
    Ok(found)
}

/// The report over all ranks of a job.
fn of_job(arguments: &Arguments, job: &OsStr) -> Result<ExitCode, String> {
    let (name, found) = (job.to_string_lossy(), runs_of_job(arguments, job)?);
    let mut progress = reading();
    let report = JobReport::of(&name, &found, |done, all| progress.at(done, all)).map_err(|error| error.to_string())?;
    drop(progress);
    if arguments.json {
        output::json(&report, true);
    } else {
        let offset = screen::local_offset(report.moment_ns.unwrap_or_default());
        put!("{}", ranks::text(&report, offset));
    }
    Ok(if arguments.check && report.is_oom() { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

/// A bar for the events, and for the replays behind them.
fn reading() -> Progress {
    Progress::followed("reading events", "checking what would help")
}

/// Writes the page, whole or not at all.
fn page(run: &Run, runs: &[Run], options: &Options, file: &Path, check: bool) -> Result<ExitCode, String> {
    let mut progress = reading();
    let to_output = file.as_os_str() == "-";
    let mut write = |to: &mut dyn std::io::Write| {
        let mut to = BufWriter::new(to);
        html::write(run, runs, options, &mut to, |done, all| progress.at(done, all))?;
        Ok::<_, html::Error>(to.flush()?)
    };
    let written = if to_output { write(&mut std::io::stdout().lock()) } else { output::whole(file, |to| write(to)) };
    let place = if to_output { "standard output".into() } else { file.display().to_string() };
    written.map_err(|error| format!("{place}: {error}"))?;
    drop(progress);
    if !to_output {
        putln!("{place}: open it in a browser");
    }
    Ok(if check && run.ran_out() { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

/// Other recorded jobs that were on the same device at the time.
fn other_processes(run: &Run, arguments: &Arguments) -> Vec<String> {
    let Ok(dir) = arguments.which.place.folder() else { return Vec::new() };
    let chosen = arguments.oom.flatten().map_or(run.ooms().len(), |number| number.min(run.ooms().len()));
    let moment = chosen.checked_sub(1).and_then(|place| run.ooms().get(place)).map(|oom| oom.realtime_ns);
    let shared =
        |other: &Run| other.devices().any(|d| d.uuid != [0; 16] && run.devices().any(|own| own.uuid == d.uuid));
    let was_there = |other: &Run| {
        let header = other.header();
        let end = header.later.map_or(header.started.realtime, |anchor| anchor.realtime);
        match moment {
            Some(moment) => header.started.realtime <= moment && (other.fate() == Fate::Alive || end >= moment),
            None => other.fate() == Fate::Alive,
        }
    };
    let files = runs::files(&dir).unwrap_or_default();
    let others = files.iter().take(MOST_OTHERS).filter(|path| path.as_path() != run.path());
    // A recording of the same process is no other process; a process that had the same number before is.
    let others = others.filter_map(|path| Run::open(path).ok());
    let others = others.filter(|other| other.header().identity != run.header().identity);
    others
        .filter(|other| shared(other) && was_there(other))
        .take(3)
        .map(|other| format!("pid {} {}", other.pid(), other.command().chars().take(20).collect::<String>()))
        .collect()
}

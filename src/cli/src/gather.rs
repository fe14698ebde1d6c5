//! `weir gather`: copies journals into one folder, where those of several machines lie side by side under names that never
//! meet. What is there already is never overwritten by another run.

use crate::output;
use crate::screen::{self, RunsDir};
use serde_json::json;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weir_forensics::ranks::Member;
use weir_forensics::{Run, runs};

/// Arguments of `weir gather`.
#[derive(clap::Args)]
#[command(
    after_long_help = "Run it on each machine, with one folder that all of them reach, or gather what was copied by \
other means. A run that is copied again replaces its own copy, and no other file.

Examples:
  weir gather /shared/job-4711 --job 4711            the runs of a job of Slurm on this machine
  srun -N2 --ntasks-per-node=1 weir gather \"$PWD/runs\" --job $SLURM_JOB_ID
  weir gather all --dir from-n1 --name n1            journals that were copied from a machine called n1
  weir report --job /shared/job-4711                 one report over all of them"
)]
pub(crate) struct Arguments {
    /// The folder to copy into; made if it is missing
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Only the runs of this job: a Slurm job's number, or a group
    #[arg(long, value_name = "JOB")]
    job: Option<OsString>,
    /// The prefix of the copies' names; default: the node's name by Slurm, else the machine's
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Print a line of JSON for each file that was written
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: RunsDir,
}

/// Runs `weir gather`.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    screen::end("gather", answer(arguments))
}

fn answer(arguments: &Arguments) -> Result<ExitCode, String> {
    let from = arguments.place.folder().map_err(|error| error.to_string())?;
    let name = name(arguments.name.as_deref())?;
    let mut found: Vec<Run> =
        runs::files(&from).map_err(|error| error.to_string())?.iter().filter_map(|path| Run::open(path).ok()).collect();
    if let Some(job) = &arguments.job {
        let job = job.to_string_lossy();
        found = Member::select(found, &job).map_err(|error| error.to_string())?;
    }
    if found.is_empty() {
        let what = arguments.job.as_ref().map(|job| format!(" of a job or group {}", job.to_string_lossy()));
        return Err(format!("{}: no run{}", from.display(), what.unwrap_or_default()));
    }
    let into = &arguments.folder;
    fs::create_dir_all(into).map_err(|error| format!("{}: {error}", into.display()))?;
    for run in &found {
        let place = copy(run, into, &name).map_err(|error| format!("{}: {error}", run.path().display()))?;
        if arguments.json {
            output::json(&json!({"run": run.name(), "file": place.to_string_lossy()}), false);
        } else {
            output::exact(&format!("{}\n", place.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What this machine is called: the node's name by Slurm, else its own.
pub(crate) fn machine() -> String {
    let slurms = std::env::var("SLURMD_NODENAME").ok();
    let own = || fs::read_to_string("/proc/sys/kernel/hostname").ok();
    slurms.or_else(own).unwrap_or_default().trim().to_owned()
}

/// The beginning of the names: letters, digits, dots and dashes.
fn name(given: Option<&str>) -> Result<String, String> {
    let text = given.map_or_else(machine, str::to_owned);
    let text = text.trim();
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.is_empty() || text.len() > 64 || text.starts_with('.') || !text.chars().all(fits) {
        return Err(format!("--name {text:?}: expected 1 to 64 letters, digits, '-', '_' or '.', not first a dot"));
    }
    Ok(text.to_owned())
}

/// Copies a run beside others, whole or not at all; where it is then. Another run of the same name has another number at
/// the end of its name.
fn copy(run: &Run, into: &Path, name: &str) -> io::Result<PathBuf> {
    let end = run.path().extension().unwrap_or_default().to_string_lossy().into_owned();
    let draft = into.join(format!(".{name}-{}-{}.part", run.name(), std::process::id()));
    let done = (|| {
        let mut from = weir_journal::reader::open_file(run.path())?;
        let mut to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        io::copy(&mut from, &mut to)?;
        // Lists go by the time at which a journal was last written.
        to.set_modified(from.metadata()?.modified()?)?;
        to.sync_all()?;
        for number in 0.. {
            let turn = if number == 0 { String::new() } else { format!("-{number}") };
            let place = into.join(format!("{name}-{}{turn}.{end}", run.name()));
            // A link is made only where nothing is: two machines cannot take one name.
            match fs::hard_link(&draft, &place) {
                Ok(()) => return fs::remove_file(&draft).map(|()| place),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
            let same = Run::open(&place).is_ok_and(|there| {
                let (there, own) = (there.header(), run.header());
                (&there.identity, there.started.realtime) == (&own.identity, own.started.realtime)
            });
            if same {
                return fs::rename(&draft, &place).map(|()| place);
            }
        }
        unreachable!("numbers do not end")
    })();
    if done.is_err() {
        let _ = fs::remove_file(&draft);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn a_name_is_one_part_of_a_file_name() {
        assert_eq!(name(Some("n1.cluster")).unwrap(), "n1.cluster");
        assert!(name(None).is_ok(), "this machine has a name");
        for bad in ["", "a/b", "..", ".x", "a b", "\u{1b}", &"x".repeat(65)] {
            assert!(name(Some(bad)).is_err(), "{bad}");
        }
    }
}

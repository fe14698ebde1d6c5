//! The end of a job on a node: whether its limit was in force, the report where it ran out of memory, a row of each run for
//! the lake, and nothing left behind. What belongs to the user is read and written as the user, never as root.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use weir_ledger::{LedgerDir, control};

use crate::arguments::{Arguments, Escaped};
use crate::judge;
use crate::spank;
use crate::state::{Facts, JobFolder};

/// Exit code of `weir report --check` where the job ran out of memory.
const RAN_OUT: i32 = 3;
/// How long the report may take, in seconds.
const PATIENCE: &str = "120";
/// Bytes of rows that are taken from a job's user.
const MOST_ROWS: u64 = 16 << 20;
/// The longest comment that is made.
const LONGEST_COMMENT: usize = 1000;

/// Runs when the last task of a job without a batch script, or the script itself, has ended, as root: the job is still
/// known as running, so that its comment can be set and it can be cancelled. `killed` is whether a signal ended the task.
pub(crate) fn of_tasks(arguments: &Arguments, job: u32, node: &str, killed: bool) {
    let folder = JobFolder::of(&arguments.state, job);
    let Some((escaped, remarks)) = judged(arguments, job, node, &folder, killed) else { return };
    if !remarks.is_empty() {
        comment(job, &format!("weir on {node}: {}", remarks.join("; ")));
    }
    if escaped && arguments.escaped == Escaped::Cancel {
        spank::log(true, &format!("weir: job {job} is cancelled: its limit was not in force"));
        if let Err(error) = quiet(Command::new("scancel").arg(job.to_string())).status() {
            spank::log(true, &format!("weir: scancel: {error}"));
        }
    }
}

/// Runs in the job's epilog, as root. A job that has ended takes no comment any more.
pub(crate) fn of_job(arguments: &Arguments, job: u32, node: &str) {
    let folder = JobFolder::of(&arguments.state, job);
    judged(arguments, job, node, &folder, false);
    if let Some((user, group)) = folder.user() {
        if let Some(lake) = arguments.lake.as_deref().filter(|_| !folder.records().is_empty())
            && let Err(why) =
                ship(arguments, job, node, user, as_user(Path::new("timeout"), user, group, &folder.facts()), lake)
        {
            spank::log(true, &format!("weir: job {job}: its runs are not in the lake: {why}"));
        }
        let limits = folder.limits();
        let groups: Vec<&str> = limits.iter().map(|(group, _)| group.as_str()).collect();
        forget(user, group, &folder.facts(), &groups);
    }
    folder.remove();
}

/// Looks at what the job has left on this node, once: whether it escaped, and what is to be said of it. That is in the
/// node's log, and with the report in a file in the job's folder.
fn judged(
    arguments: &Arguments,
    job: u32,
    node: &str,
    folder: &JobFolder,
    killed: bool,
) -> Option<(bool, Vec<String>)> {
    let (user, group) = folder.user().filter(|_| folder.first_look())?;
    let (facts, records) = (folder.facts(), folder.records());
    let as_user = |program: &Path| as_user(program, user, group, &facts);
    let mut remarks = Vec::new();
    // Who was killed may not have come as far as CUDA.
    let unknown = killed && records.is_empty();
    let escaped = if unknown { None } else { judge::verdict(&folder.limits(), &records) };
    if let Some(why) = &escaped {
        spank::log(true, &format!("weir: job {job}: {why}"));
        remarks.push(why.clone());
    }
    let report = if records.is_empty() { None } else { report(as_user, arguments, job) };
    if escaped.is_some() || report.is_some() {
        let file = facts.folder.join(format!("weir-{job}-{node}.txt"));
        let verdict = escaped.as_ref().map(|why| format!("{node}: {why}\n")).unwrap_or_default();
        let written = keep(as_user, &file, &(verdict + report.as_deref().unwrap_or_default()));
        let words = if written {
            format!("see {}", file.display())
        } else {
            format!("{} could not be written", file.display())
        };
        remarks.push(if report.is_some() { format!("out of GPU memory, {words}") } else { words });
    }
    Some((escaped.is_some(), remarks))
}

/// A program with the rights and the few variables of the job's user.
fn as_user(program: &Path, user: u32, group: u32, facts: &Facts) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    command.env_clear().env("PATH", path).envs(facts.variables.iter().map(|(name, value)| (name, value)));
    // As root, this also drops all other groups.
    command.uid(user).gid(group).current_dir("/");
    quiet(&mut command);
    command
}

/// Appends a row of each of the job's runs on this node to the lake. The user's journals are read as the user; whose rows
/// they are, and of which job, is what Slurm says, not what a journal says. In a folder that nodes share, each node takes
/// its own.
fn ship(arguments: &Arguments, job: u32, node: &str, user: u32, mut read: Command, lake: &str) -> Result<(), String> {
    let said = |error: std::io::Error| format!("{}: {error}", arguments.command.display());
    read.args(["--kill-after=5", PATIENCE])
        .arg(&arguments.command)
        .args(["ship", "--print", "--job"])
        .arg(job.to_string());
    let mut child = read.stdout(Stdio::piped()).spawn().map_err(said)?;
    let mut text = Vec::new();
    if let Some(from) = child.stdout.take() {
        from.take(MOST_ROWS).read_to_end(&mut text).map_err(said)?;
    }
    child.wait().map_err(said)?;
    let text = String::from_utf8_lossy(&text);
    let rows =
        text.lines().filter_map(|line| owned(line, user, job, node)).fold(String::new(), |all, row| all + &row + "\n");
    if rows.is_empty() {
        return Ok(());
    }
    let mut store = Command::new("timeout");
    store.args(["--kill-after=5", PATIENCE]).arg(&arguments.command).args(["ship", lake, "--rows", "-"]);
    store.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = store.spawn().map_err(said)?;
    // Who has ended says why on standard error.
    let _ = child.stdin.take().map(|mut to| to.write_all(rows.as_bytes()));
    let done = child.wait_with_output().map_err(said)?;
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()) }
}

/// A row of this node, with what Slurm knows.
fn owned(line: &str, user: u32, job: u32, node: &str) -> Option<String> {
    let mut row: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).ok()?;
    if row.get("host").and_then(serde_json::Value::as_str) != Some(node) {
        return None;
    }
    row.insert("user".into(), user_name(user).into());
    row.insert("job".into(), job.to_string().into());
    Some(serde_json::Value::Object(row).to_string())
}

/// A user's name by the machine's accounts, else the number.
fn user_name(user: u32) -> String {
    let done = quiet(Command::new("id").args(["-nu"]).arg(user.to_string())).stdout(Stdio::piped()).output();
    let name = done.map(|done| String::from_utf8_lossy(&done.stdout).trim().to_owned()).unwrap_or_default();
    if name.is_empty() { user.to_string() } else { name }
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

/// The report's text where the job ran out of memory on this node.
fn report(as_user: impl Fn(&Path) -> Command, arguments: &Arguments, job: u32) -> Option<String> {
    let mut command = as_user(Path::new("timeout"));
    command.args(["--kill-after=5", PATIENCE]).arg(&arguments.command);
    command.args(["report", "--check", "--no-replay", "--job"]).arg(job.to_string());
    let done = command.stdout(Stdio::piped()).output();
    match done {
        Ok(done) if done.status.code() == Some(RAN_OUT) => Some(String::from_utf8_lossy(&done.stdout).into_owned()),
        Ok(_) => None,
        Err(error) => {
            spank::log(true, &format!("weir: {}: {error}", arguments.command.display()));
            None
        }
    }
}

/// Writes a file of the user's, with the user's rights.
fn keep(as_user: impl Fn(&Path) -> Command, file: &Path, text: &str) -> bool {
    let mut command = as_user(Path::new("sh"));
    command.args(["-c", "umask 077; cat >\"$0\""]).arg(file).stdin(Stdio::piped());
    let Ok(mut child) = command.spawn() else { return false };
    let written = child.stdin.take().is_some_and(|mut to| to.write_all(text.as_bytes()).is_ok());
    child.wait().is_ok_and(|status| status.success()) && written
}

/// Adds to the administrator's comment of a job, which its user cannot change.
fn comment(job: u32, text: &str) {
    let job = job.to_string();
    let shown = Command::new("scontrol").args(["--oneliner", "show", "job", &job]).stderr(Stdio::null()).output();
    let shown = shown.map(|done| String::from_utf8_lossy(&done.stdout).into_owned()).unwrap_or_default();
    let text = joined(&shown, text);
    let update =
        Command::new("scontrol").args(["update", &format!("JobId={job}"), &format!("AdminComment={text}")]).status();
    if !update.is_ok_and(|status| status.success()) {
        spank::log(true, &format!("weir: job {job}: the comment could not be set: {text}"));
    }
}

/// What the comment is to be, after what other nodes have written.
fn joined(shown: &str, text: &str) -> String {
    let earlier = shown.split_once(" AdminComment=").map(|(_, rest)| rest.trim_end());
    // The field after it, as far as there is one.
    let earlier = earlier.map(|rest| rest.split_once(" OverSubscribe=").map_or(rest, |(own, _)| own));
    let plain = |text: &str| text.chars().filter(|c| !c.is_control() && *c != '"').collect::<String>();
    let all = match earlier.filter(|earlier| earlier.starts_with("weir on ")) {
        Some(earlier) => format!("{earlier} | {text}"),
        None => text.to_owned(),
    };
    plain(&all).chars().take(LONGEST_COMMENT).collect()
}

/// Removes the ledgers of the job's groups, as the user.
fn forget(user: u32, group: u32, facts: &Facts, groups: &[&str]) {
    let value = |name: &str| facts.variables.iter().find(|(other, _)| other == name).map(|(_, value)| Path::new(value));
    // SAFETY: the process of an epilog has one thread; the child makes plain calls and ends by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: plain system calls.
        let dropped =
            unsafe { libc::setgroups(0, std::ptr::null()) == 0 && libc::setgid(group) == 0 && libc::setuid(user) == 0 };
        if dropped {
            let ledger = LedgerDir::from_variables(value("WEIR_DIR"), value("XDG_RUNTIME_DIR"));
            for name in groups {
                control::remove_group(&ledger, name);
            }
        }
        // SAFETY: nothing of this process is to run at its end.
        unsafe { libc::_exit(0) };
    }
    if child > 0 {
        // SAFETY: the child is this process's own.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_belongs_to_whom_slurm_says() {
        let row = owned(r#"{"run":"a","user":"root","host":"n1","job":"1"}"#, 4_000_000_000, 7, "n1").unwrap();
        let row: serde_json::Value = serde_json::from_str(&row).unwrap();
        assert_eq!(row, serde_json::json!({"run": "a", "user": "4000000000", "host": "n1", "job": "7"}));
        for other in [r#"{"run":"a","host":"n2"}"#, "{}", "no row"] {
            assert_eq!(owned(other, 0, 7, "n1"), None, "{other}");
        }
    }

    #[test]
    fn what_other_nodes_have_written_stays() {
        assert_eq!(joined("JobId=7 JobName=x", "weir on n1: a"), "weir on n1: a");
        let shown = "JobId=7 AdminComment=weir on n2: b OverSubscribe=OK Contiguous=0\n";
        assert_eq!(joined(shown, "weir on n1: a"), "weir on n2: b | weir on n1: a");
        assert_eq!(
            joined("JobId=7 AdminComment=weir on n2: b\n", "weir on n1: \"a\"\n"),
            "weir on n2: b | weir on n1: a"
        );
        assert_eq!(joined("", &"x".repeat(5000)).len(), LONGEST_COMMENT);
    }
}

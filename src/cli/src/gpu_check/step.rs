//! One step as a child process: a group of its own, which is killed at its bound. What it prints is kept line by line, so
//! that a step that hangs has said what it knew. A child that cannot even be killed (it hangs inside the kernel) is left.

use super::group;
use crate::signals;
use rustix::process::{Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The steps after the first, in their order.
pub(super) const NAMES: [&str; 9] =
    ["doctor", "probe", "latency", "conformance", "conformance-weir", "pool", "tensorflow", "peers", "peers-weir"];
/// How much of a step's output is kept.
const LINES: usize = 4096;
const LINE: u64 = 4 << 20;
const STDERR: usize = 16 << 10;
/// How long a killed child may take to be gone.
const GONE: Duration = Duration::from_secs(3);

/// A step's part of all time. The parts together are 1.
pub(super) fn share(name: &str) -> f64 {
    let seconds = match name {
        "doctor" | "probe" | "pool" | "peers-weir" => 40.0,
        "latency" => 60.0,
        "conformance" | "conformance-weir" => 110.0,
        "tensorflow" => 120.0,
        _ => 20.0, // environment, peers
    };
    seconds / 600.0
}

/// How a step ended.
pub(super) enum End {
    Done,
    Failed(String),
    /// At its bound.
    Killed,
    /// By a signal to this command.
    Interrupted,
}

/// A step that is over.
pub(super) struct Step {
    pub(super) end: End,
    pub(super) took: Duration,
    /// The lines of JSON that it printed.
    pub(super) lines: Vec<Value>,
    /// The end of what it had on standard error.
    pub(super) stderr: String,
}

impl Step {
    pub(super) fn run(mut command: Command, bound: Duration) -> Self {
        let began = Instant::now();
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // SAFETY: both calls may be made between fork and exec. The child dies with this command and leaves no core file.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
                Ok(())
            });
        }
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                let end = End::Failed(format!("cannot be started: {error}"));
                return Self { end, took: began.elapsed(), lines: Vec::new(), stderr: String::new() };
            }
        };
        let lines = child.stdout.take().map(lines_of);
        let errors = child.stderr.take().map(end_of);
        let mut kept = Vec::new();
        let end = watch(&mut child, lines.as_ref(), began + bound, &mut kept);
        let until = Instant::now() + GONE;
        if let Some(lines) = &lines {
            while let Ok(line) = lines.recv_timeout(Duration::from_millis(100))
                && Instant::now() < until
            {
                keep(&mut kept, &line);
            }
        }
        let stderr = errors.and_then(|errors| errors.recv_timeout(Duration::from_secs(1)).ok()).unwrap_or_default();
        Self { end, took: began.elapsed(), lines: kept, stderr }
    }
}

/// Waits for a child and reads what it prints.
fn watch(child: &mut Child, lines: Option<&Receiver<String>>, until: Instant, kept: &mut Vec<Value>) -> End {
    const LOOK: Duration = Duration::from_millis(50);
    loop {
        match lines.map(|lines| lines.recv_timeout(LOOK)) {
            Some(Ok(line)) => keep(kept, &line),
            Some(Err(RecvTimeoutError::Timeout)) => {}
            Some(Err(RecvTimeoutError::Disconnected)) | None => std::thread::sleep(Duration::from_millis(10)),
        }
        if over_with(child) {
            // Others of its group may still hold the pipes. Its number stays its own until it is waited for.
            kill(child);
            return child.wait().map_or_else(|error| End::Failed(error.to_string()), ended);
        }
        let over = Instant::now() >= until;
        if over || signals::end_requested() {
            kill(child);
            let gone = Instant::now() + GONE;
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < gone {
                std::thread::sleep(Duration::from_millis(20));
            }
            return if over { End::Killed } else { End::Interrupted };
        }
    }
}

/// Whether a child has ended; it is not waited for.
fn over_with(child: &Child) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    group(child.id()).is_none_or(|pid| !matches!(waitid(WaitId::Pid(pid), options), Ok(None)))
}

fn ended(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(0), _) => End::Done,
        (Some(code), _) => End::Failed(format!("exit code {code}")),
        (None, Some(signal)) => End::Failed(format!("signal {signal}")),
        (None, None) => End::Failed("unknown end".to_owned()),
    }
}

fn kill(child: &Child) {
    if let Some(group) = group(child.id()) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

fn keep(kept: &mut Vec<Value>, line: &str) {
    if kept.len() < LINES
        && let Ok(value @ Value::Object(_)) = serde_json::from_str(line)
    {
        kept.push(value);
    }
}

fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut whole = String::new();
        loop {
            let mut line = String::new();
            match pipe.by_ref().take(LINE).read_line(&mut line) {
                Ok(1..) => {}
                _ => break,
            }
            // A document on many lines counts as one line at its end.
            let ends = line == "}\n";
            if line == "{\n" || !whole.is_empty() {
                whole.push_str(&line);
                if !ends {
                    continue;
                }
                line = std::mem::take(&mut whole);
            }
            if send.send(line).is_err() {
                break;
            }
        }
    });
    receive
}

/// The last bytes of a pipe, once it ends.
fn end_of(mut pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let (mut kept, mut buffer) = (Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            kept.extend_from_slice(buffer.get(..count).unwrap_or_default());
            kept.drain(..kept.len().saturating_sub(STDERR));
        }
        let _ = send.send(String::from_utf8_lossy(&kept).into_owned());
    });
    receive
}

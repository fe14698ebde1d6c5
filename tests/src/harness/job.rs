//! Processes that tests start: a bare environment, a bound on time, and everything they said when they fail.

use super::{PATIENCE, stage};
use serde_json::Value;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Variables that would decide a test, by how their names begin.
const DECISIVE: [&str; 15] = [
    "LANG",
    "LC_",
    "TERM",
    "WEIR_",
    "VGPU_",
    "LD_",
    "CUDA_",
    "GPU_MEMORY_LIMIT",
    "XDG_",
    "TF_",
    "XLA_",
    "NO_COLOR",
    "COLUMNS",
    "LINES",
    "RUST_BACKTRACE",
];

/// Takes everything of the surroundings that would decide a test from a command's environment.
pub fn bare(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if DECISIVE.iter().any(|start| name.to_string_lossy().starts_with(start)) {
            command.env_remove(name);
        }
    }
}

/// A process to be.
pub struct Job {
    command: Command,
    input: Option<Vec<u8>>,
    output: Option<File>,
    limit: Duration,
}

impl Job {
    /// A program in a bare environment, in a process group of its own.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        bare(&mut command);
        command.process_group(0);
        // A shell starts what runs in the background with SIGINT ignored, and so would be every job here.
        // SAFETY: signal(2) may be called between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                Ok(())
            });
        }
        Self { command, input: None, output: None, limit: PATIENCE }
    }

    /// A file of the folder `tests`, run by the system's Python.
    pub fn python(script: &str) -> Self {
        Self::new("python3").arg(stage().file(script))
    }

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// More arguments, separated by blanks.
    #[must_use]
    pub fn words(mut self, arguments: impl fmt::Display) -> Self {
        self.command.args(arguments.to_string().split_whitespace());
        self
    }

    /// More arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.command.args(arguments);
        self
    }

    /// A variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Variables as a shell would set them, separated by blanks: `WEIR_POOL=off VGPU_MEM=1GiB`. `NAME=` unsets.
    #[must_use]
    pub fn set(mut self, assignments: impl fmt::Display) -> Self {
        for assignment in assignments.to_string().split_whitespace() {
            let (name, value) = assignment.split_once('=').unwrap_or_else(|| panic!("{assignment}: no assignment"));
            if value.is_empty() {
                self.command.env_remove(name);
            } else {
                self.command.env(name, value);
            }
        }
        self
    }

    /// On the virtual GPU, without weir.
    #[must_use]
    pub fn on_vgpu(self) -> Self {
        let vgpu = stage().vgpu();
        self.env("LD_LIBRARY_PATH", vgpu)
    }

    /// Under a library.
    #[must_use]
    pub fn under(self, library: impl AsRef<Path>) -> Self {
        self.env("LD_PRELOAD", library.as_ref())
    }

    /// In a folder.
    #[must_use]
    pub fn within(mut self, folder: impl AsRef<Path>) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// With this on its standard input.
    #[must_use]
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Some(bytes.into());
        self
    }

    /// With its standard output in a file.
    #[must_use]
    pub fn output(mut self, file: File) -> Self {
        self.output = Some(file);
        self
    }

    /// With another bound on its time than [`PATIENCE`].
    #[must_use]
    pub fn within_seconds(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// What the harness has no word for.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Command)) -> Self {
        change(&mut self.command);
        self
    }

    /// Runs it to its end, or to the end of its time.
    pub fn run(mut self) -> Done {
        let input = self.input.take();
        let mut living = self.start();
        if let Some(mut stdin) = living.stdin.take()
            && let Some(bytes) = input
        {
            // In a thread: a pipe takes only so much. A job need not read all of it.
            std::thread::spawn(move || stdin.write_all(&bytes));
        }
        living.finish()
    }

    /// Starts it, with pipes to all its ends.
    pub fn start(self) -> Living {
        let what = format!("{:?}", self.command);
        self.try_start().unwrap_or_else(|e| panic!("{what} can't be started: {e}"))
    }

    /// The same where it may be impossible.
    pub fn try_start(mut self) -> std::io::Result<Living> {
        let what = format!("{:?}", self.command);
        self.command.stdin(Stdio::piped()).stderr(Stdio::piped());
        self.command.stdout(self.output.take().map_or_else(Stdio::piped, Stdio::from));
        let mut child = self.command.spawn()?;
        let out = child.stdout.take().map_or_else(Pipe::closed, Pipe::of);
        let err = Pipe::of(child.stderr.take().expect("a pipe"));
        let stdin = child.stdin.take();
        Ok(Living { what, out, err, stdin, child, ended: None, read: 0, end: Instant::now() + self.limit })
    }
}

/// A process that lives; it ends with its value.
pub struct Living {
    what: String,
    out: Pipe,
    err: Pipe,
    stdin: Option<ChildStdin>,
    child: Child,
    ended: Option<ExitStatus>,
    read: usize,
    end: Instant,
}

impl Living {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it prints, without its end; empty if there is none any more.
    pub fn line(&mut self) -> String {
        let (line, next) = self.out.line(self.read, self.end);
        self.read = next;
        line
    }

    /// Writes a line to it; whether it still reads.
    pub fn say(&mut self, line: &str) -> bool {
        self.stdin.as_mut().is_some_and(|pipe| writeln!(pipe, "{line}").and_then(|()| pipe.flush()).is_ok())
    }

    /// Ends its standard input.
    pub fn close_input(&mut self) {
        self.stdin = None;
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("a child can be waited for");
        }
        self.ended
    }

    /// Sends it a signal.
    pub fn signal(&self, number: i32) {
        signal(self.child.id() as i32, number);
    }

    /// Kills it and everything that it has started, and waits for its end.
    pub fn kill(&mut self) {
        if self.ended().is_none() {
            signal(-(self.child.id() as i32), libc::SIGKILL);
            signal(self.child.id() as i32, libc::SIGKILL);
            self.ended = self.child.wait().ok();
        }
    }

    /// Waits for its end, with a bound, and gives all that it said.
    pub fn finish(mut self) -> Done {
        self.stdin = None;
        let mut hung = false;
        // Its pipes end with it, as a rule. What it has started may have them open and live on.
        loop {
            if self.out.ended_within(Duration::from_millis(20)) && self.err.ended_within(Duration::from_millis(20)) {
                break;
            }
            if self.ended().is_some() {
                let grace = Duration::from_secs(3);
                let _ = self.out.ended_within(grace) && self.err.ended_within(grace);
                break;
            }
            if Instant::now() > self.end {
                hung = true;
                break;
            }
        }
        while self.ended().is_none() && !hung {
            hung = Instant::now() > self.end;
            std::thread::sleep(Duration::from_millis(1));
        }
        if hung {
            self.kill();
        }
        let status = self.ended().expect("it has ended");
        let code = status.code().unwrap_or_else(|| -status.signal().unwrap_or(0));
        let what = std::mem::take(&mut self.what);
        Done {
            what,
            id: self.child.id(),
            code,
            hung,
            out: self.out.text(),
            err: self.err.text(),
            raw: self.out.bytes(),
        }
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a signal to a process, or to a group if negative. It may have ended.
pub fn signal(id: i32, number: i32) {
    // SAFETY: kill(2) touches no memory.
    unsafe { libc::kill(id, number) };
}

/// How a process ended and what it said.
#[derive(Clone)]
pub struct Done {
    what: String,
    /// Its process id.
    pub id: u32,
    /// Its exit code, or the signal that ended it, negative.
    pub code: i32,
    /// Whether it had to be killed because its time was over.
    pub hung: bool,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
    /// Its standard output, byte for byte.
    pub raw: Vec<u8>,
}

impl Done {
    /// It must have ended with this code.
    #[must_use]
    pub fn code(self, code: i32) -> Self {
        assert!(self.code == code && !self.hung, "code {code} is right\n{self}");
        self
    }

    /// It must have ended well.
    #[must_use]
    pub fn well(self) -> Self {
        self.code(0)
    }

    /// It must have ended well, without a word on standard error.
    #[must_use]
    pub fn quiet(self) -> Self {
        let done = self.well();
        assert!(done.err.is_empty(), "a word on standard error\n{done}");
        done
    }

    /// Whether it said a word, on either output.
    pub fn says(&self, word: &str) -> bool {
        self.out.contains(word) || self.err.contains(word)
    }

    /// Standard output, which must be JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("no JSON: {e}\n{self}"))
    }
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hung = if self.hung { ", killed because its time was over" } else { "" };
        writeln!(f, "{}\nended with {}{hung}", self.what, self.code)?;
        for (name, text) in [("standard output", &self.out), ("standard error", &self.err)] {
            // The end of what is too long has the reason.
            let from = text.char_indices().rev().nth(20_000).map_or(0, |(at, _)| at);
            write!(f, "-- {name}:\n{}", &text[from..])?;
        }
        Ok(())
    }
}

struct Arrived {
    bytes: Vec<u8>,
    ended: bool,
}

/// What comes out of a pipe, read by a thread.
struct Pipe(Arc<(Mutex<Arrived>, Condvar)>);

impl Pipe {
    fn of(mut from: impl Read + Send + 'static) -> Self {
        let shared = Arc::new((Mutex::new(Arrived { bytes: Vec::new(), ended: false }), Condvar::new()));
        let theirs = Arc::clone(&shared);
        std::thread::spawn(move || {
            let mut piece = vec![0; 65536];
            loop {
                let count = from.read(&mut piece).unwrap_or(0);
                let mut read = theirs.0.lock().unwrap_or_else(PoisonError::into_inner);
                read.bytes.extend_from_slice(&piece[..count]);
                read.ended = count == 0;
                theirs.1.notify_all();
                if count == 0 {
                    break;
                }
            }
        });
        Self(shared)
    }

    fn closed() -> Self {
        Self(Arc::new((Mutex::new(Arrived { bytes: Vec::new(), ended: true }), Condvar::new())))
    }

    fn now(&self) -> MutexGuard<'_, Arrived> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bytes(&self) -> Vec<u8> {
        self.now().bytes.clone()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.now().bytes).into_owned()
    }

    fn ended_within(&self, time: Duration) -> bool {
        let wait = self.0.1.wait_timeout_while(self.now(), time, |read| !read.ended);
        wait.unwrap_or_else(PoisonError::into_inner).0.ended
    }

    /// The line that begins at a byte, and where the next one does.
    fn line(&self, from: usize, end: Instant) -> (String, usize) {
        let mut read = self.now();
        loop {
            let rest = &read.bytes[from..];
            if let Some(length) = rest.iter().position(|b| *b == b'\n') {
                return (String::from_utf8_lossy(&rest[..length]).into_owned(), from + length + 1);
            }
            let left = end.saturating_duration_since(Instant::now());
            if read.ended || left.is_zero() {
                return (String::from_utf8_lossy(rest).into_owned(), read.bytes.len());
            }
            let wait = self.0.1.wait_timeout(read, left);
            read = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

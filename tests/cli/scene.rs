//! What the trials share: a folder with runs, synthetic journals, jobs on the virtual GPU, commands in a terminal.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{ioctl_tiocsctty, setsid};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::Value;
use std::fmt::Display;
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use weir_tests::harness::{Done, Job, Living, PATIENCE, Scratch, bare, stage};

/// The folder of one trial. `runs` in it is `WEIR_DIR`, and the folder itself is `HOME` and the current directory.
pub(crate) struct Scene(Scratch);

impl Scene {
    pub(crate) fn new() -> Self {
        let scene = Self(Scratch::new());
        scene.0.folder("runs");
        scene
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.at(name)
    }

    pub(crate) fn runs(&self) -> PathBuf {
        self.0.at("runs")
    }

    /// Names of the files in a folder of this one, sorted.
    pub(crate) fn names(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.at(folder)).expect("the folder");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Any program, with the variables of the trial.
    pub(crate) fn program(&self, program: impl AsRef<std::ffi::OsStr>) -> Job {
        self.variables()
            .into_iter()
            .fold(Job::new(program).within(self.folder()), |job, (name, value)| job.env(name, value))
    }

    fn variables(&self) -> [(&'static str, PathBuf); 4] {
        let text = PathBuf::from;
        [
            ("HOME", self.folder().into()),
            ("WEIR_DIR", self.runs()),
            ("WEIR_OOM_TEXT", text("off")),
            ("WEIR_RING", text("64K")),
        ]
    }

    /// `weir` with arguments that are separated by blanks.
    pub(crate) fn weir(&self, words: impl Display) -> Job {
        self.program(stage().command()).words(words)
    }

    /// What `weir` prints, which ends well.
    pub(crate) fn out(&self, words: impl Display) -> String {
        self.weir(words).run().well().out
    }

    /// The JSON that `weir` prints, which ends well.
    pub(crate) fn json(&self, words: impl Display) -> Value {
        self.weir(words).run().well().json()
    }

    /// What `weir` reports on standard error, which ends with this code.
    pub(crate) fn error(&self, code: i32, words: impl Display) -> String {
        self.weir(words).run().code(code).err
    }

    /// The journal of a synthetic job; the kinds are those of the program `synthetic`.
    pub(crate) fn synthetic(&self, words: impl Display) -> PathBuf {
        let done = Job::new(stage().program("synthetic")).arg(self.runs()).words(words).run().well();
        done.out.trim().into()
    }

    /// `weir run` with these options, and `job.py` with these arguments on a virtual GPU of 512 MiB.
    pub(crate) fn job(&self, options: &str, arguments: &str) -> Job {
        self.weir(format!("run --vgpu 512MiB {options} -- python3")).arg(stage().file("cli/job.py")).words(arguments)
    }

    /// The same, started; the job has printed that it is ready.
    pub(crate) fn start_job(&self, options: &str, arguments: &str) -> Living {
        let mut job = self.job(options, arguments).start();
        assert_eq!(job.line(), "ready");
        job
    }

    /// Runs a command in a terminal of its own.
    pub(crate) fn terminal(&self, words: impl Display) -> Terminal {
        let mut command = Command::new(stage().command());
        bare(&mut command);
        command.args(words.to_string().split_whitespace()).envs(self.variables());
        command.env("TERM", "xterm").current_dir(self.folder());
        Terminal { command, size: None, keys: None }
    }
}

/// A command that is to run in a terminal.
pub(crate) struct Terminal {
    command: Command,
    size: Option<(u16, u16)>,
    keys: Option<(&'static str, &'static str)>,
}

impl Terminal {
    pub(crate) fn arg(mut self, argument: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// In a terminal of so many lines and columns.
    pub(crate) fn size(mut self, lines: u16, columns: u16) -> Self {
        self.size = Some((lines, columns));
        self
    }

    /// Types `keys` when `shown` is on the screen.
    pub(crate) fn types(mut self, keys: &'static str, shown: &'static str) -> Self {
        self.keys = Some((keys, shown));
        self
    }

    /// Runs it to its end: everything that it wrote to the terminal, and its exit code.
    pub(crate) fn run(mut self) -> (String, i32) {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("a terminal");
        let slave = ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC);
        let slave = slave.expect("the other end of the terminal");
        if let Some((ws_row, ws_col)) = self.size {
            tcsetwinsize(&slave, Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 }).expect("a size");
        }
        let end = || Stdio::from(slave.try_clone().expect("a descriptor"));
        self.command.stdin(end()).stdout(end()).stderr(end());
        // SAFETY: both are system calls, which may be made between fork and exec; standard input is the terminal by then.
        unsafe {
            self.command.pre_exec(|| {
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                setsid()?;
                ioctl_tiocsctty(rustix::stdio::stdin())?;
                Ok(())
            });
        }
        let mut child = self.command.spawn().expect("the command");
        drop((slave, self.command));
        let (mut shown, end) = (Vec::new(), Instant::now() + PATIENCE);
        let mut piece = vec![0; 65536];
        while Instant::now() < end {
            let tick = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
            let ready =
                poll(&mut [PollFd::new(&master, PollFlags::IN)], Some(&tick)).expect("a terminal can be polled");
            if ready > 0 {
                // The terminal of a process that has ended reads as an error.
                match rustix::io::read(&master, &mut piece) {
                    Ok(count) if count > 0 => shown.extend_from_slice(&piece[..count]),
                    _ => break,
                }
            }
            if let Some((keys, _)) = self.keys.take_if(|(_, word)| String::from_utf8_lossy(&shown).contains(*word)) {
                rustix::io::write(&master, keys.as_bytes()).expect("keys can be typed");
            }
        }
        if Instant::now() >= end {
            child.kill().expect("it can be killed");
        }
        let status = child.wait().expect("it ends");
        let code = status.code().unwrap_or_else(|| -status.signal().unwrap_or(0));
        (String::from_utf8_lossy(&shown).into_owned(), code)
    }
}

/// The report that `weir run --json` prints as its last line.
pub(crate) fn summary(done: &Done) -> Value {
    let last = done.err.trim().lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("the last line is no JSON: {error}\n{done}"))
}

/// The number of bytes of one part of the device in a report.
pub(crate) fn part(report: &Value, name: &str) -> u64 {
    let parts = report["driver"]["parts"].as_array().expect("parts");
    let found = parts.iter().find(|part| part[0] == name).unwrap_or_else(|| panic!("no part {name}: {parts:?}"));
    found[1].as_u64().expect("bytes")
}

/// A field of every element of an array, as text.
pub(crate) fn column<'a>(rows: &'a Value, name: &str) -> Vec<&'a str> {
    rows.as_array().expect("rows").iter().map(|row| row[name].as_str().unwrap_or_default()).collect()
}

/// The lines of JSON in a text.
pub(crate) fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
}

/// Makes an empty file.
pub(crate) fn touch(path: &Path) {
    drop(File::create(path).expect("a file"));
}

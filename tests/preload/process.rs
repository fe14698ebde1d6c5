//! One process on the virtual GPU, bare or under libweir.so: what it printed, how it ended, and the status that weir
//! reports of itself (fixtures write it to descriptor 3).

use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_tests::harness::{Done, Job, Scratch, cc, stage};

/// The descriptor on which a fixture writes weir's status.
const STATUS: i32 = 3;
/// What follows the status in the pipe.
const END: &[u8] = b"\nend\n";

/// The folder of one trial: compiled programs and libraries, and a home.
pub(crate) struct Folder(Scratch);

impl Folder {
    pub(crate) fn new() -> Self {
        let folder = Self(Scratch::new());
        folder.0.folder("home");
        folder.0.folder("lib");
        folder
    }

    pub(crate) fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.at(name)
    }

    /// Compiles a program of `programs/`.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.compiled(name, &[])
    }

    /// The same, linked with the virtual GPU's driver.
    pub(crate) fn linked(&self, name: &str) -> PathBuf {
        self.compiled(name, &linked_with(&stage().vgpu()))
    }

    pub(crate) fn compiled(&self, name: &str, flags: &[OsString]) -> PathBuf {
        let (out, source) = (self.at(name), stage().file(&format!("preload/programs/{name}.c")));
        if !out.exists() {
            cc(&out, [include(), source.into()].iter().chain(flags).chain(&["-ldl".into()]));
        }
        out
    }

    /// Compiles `libraries/SOURCE.c` as a shared library; `name` is below this folder.
    pub(crate) fn library(&self, name: &str, source: &str, flags: &[OsString]) -> PathBuf {
        let out = self.at(name);
        std::fs::create_dir_all(out.parent().expect("a folder")).expect("a folder");
        let source = stage().file(&format!("preload/libraries/{source}.c")).into();
        cc(&out, ["-shared".into(), "-fPIC".into(), include(), source].iter().chain(flags));
        out
    }

    /// A process of this folder.
    pub(crate) fn process(&self, program: impl AsRef<OsStr>) -> Process<'_> {
        Process {
            folder: self,
            command: vec![program.as_ref().to_owned()],
            preload: Vec::new(),
            paths: vec![stage().vgpu()],
            environment: Vec::new(),
            pass_through: true,
            change: None,
        }
    }
}

fn include() -> OsString {
    let mut flag = OsString::from("-I");
    flag.push(stage().file("preload"));
    flag
}

/// Flags that link a program with the `libcuda.so.1` of a folder.
pub(crate) fn linked_with(folder: &Path) -> Vec<OsString> {
    vec!["-L".into(), folder.into(), "-l:libcuda.so.1".into()]
}

/// How to start a process.
#[derive(Clone)]
pub(crate) struct Process<'a> {
    folder: &'a Folder,
    command: Vec<OsString>,
    preload: Vec<PathBuf>,
    paths: Vec<PathBuf>,
    environment: Vec<(String, OsString)>,
    pass_through: bool,
    change: Option<fn(&mut Command)>,
}

impl Process<'_> {
    pub(crate) fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.command.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Under these libraries, in this order.
    pub(crate) fn under<P: AsRef<Path>>(mut self, libraries: impl IntoIterator<Item = P>) -> Self {
        self.preload = libraries.into_iter().map(|library| library.as_ref().to_owned()).collect();
        self
    }

    /// Under libweir.so alone.
    pub(crate) fn under_weir(self) -> Self {
        self.under([stage().weir()])
    }

    /// Finds libraries in these folders, instead of the virtual GPU's.
    pub(crate) fn paths<P: AsRef<Path>>(mut self, folders: impl IntoIterator<Item = P>) -> Self {
        self.paths = folders.into_iter().map(|folder| folder.as_ref().to_owned()).collect();
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Variables as a shell would set them, separated by blanks.
    pub(crate) fn set(mut self, assignments: &str) -> Self {
        let pairs = assignments.split_whitespace().map(|pair| pair.split_once('=').expect("an assignment"));
        self.environment.extend(pairs.map(|(name, value)| (name.to_owned(), value.into())));
        self
    }

    /// With weir's pool and journal on, which are off otherwise.
    pub(crate) fn with_pool_and_journal(mut self) -> Self {
        self.pass_through = false;
        self
    }

    /// What else is different for this process.
    pub(crate) fn with(mut self, change: fn(&mut Command)) -> Self {
        self.change = Some(change);
        self
    }

    /// Runs it to its end.
    pub(crate) fn run(&self) -> Outcome {
        let joined = |list: &[PathBuf]| std::env::join_paths(list).expect("no colon in a path");
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let mut job = Job::new(&self.command[0]).args(&self.command[1..]).within(self.folder.0.path());
        job = job.env("HOME", self.folder.at("home")).env("LC_ALL", "C");
        if !self.paths.is_empty() {
            job = job.env("LD_LIBRARY_PATH", joined(&self.paths));
        }
        if !self.preload.is_empty() {
            job = job.env("LD_PRELOAD", joined(&self.preload));
            if self.pass_through {
                job = job.set("WEIR_POOL=off WEIR_JOURNAL=off");
            }
        }
        for (name, value) in &self.environment {
            job = job.env(name, value);
        }
        let number = writer.as_raw_fd();
        let job = job.with(|command| {
            // SAFETY: dup2 and fcntl may be called between fork and exec; the pipe is open until the process has ended.
            unsafe {
                command.pre_exec(move || {
                    let failed = if number == STATUS {
                        libc::fcntl(number, libc::F_SETFD, 0) < 0
                    } else {
                        libc::dup2(number, STATUS) < 0
                    };
                    if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
                });
            }
            if let Some(change) = self.change {
                change(command);
            }
        });
        let (send, pieces) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut piece = vec![0; 65536];
            while let Ok(count @ 1..) = reader.read(&mut piece) {
                let _ = send.send(piece[..count].to_vec());
            }
        });
        let done = job.run();
        // All that the process wrote is before this, also where something that it has started keeps the pipe open.
        (&writer).write_all(END).expect("the pipe is read");
        let mut reported = Vec::new();
        while !reported.windows(END.len()).any(|part| part == END) {
            reported.extend(pieces.recv().expect("the end is read"));
        }
        let reported = String::from_utf8_lossy(&reported);
        let line = reported.lines().rfind(|line| line.starts_with('{'));
        let weir = line.map_or(Value::Null, |line| serde_json::from_str(line).expect("a status in JSON"));
        Outcome { done, weir }
    }
}

/// How a process ended, and weir's status in it.
pub(crate) struct Outcome {
    pub(crate) done: Done,
    /// `null` where weir was not loaded or the process reported nothing.
    pub(crate) weir: Value,
}

impl Outcome {
    /// All that somebody outside sees of it.
    pub(crate) fn seen(&self) -> (&str, &str, i32) {
        (&self.done.out, &self.done.err, self.done.code)
    }

    /// The symbols that weir intercepts.
    pub(crate) fn hooks(&self) -> impl Iterator<Item = &Value> {
        ["driver", "nvml"].into_iter().filter_map(|part| self.weir[part]["hooks"].as_array()).flatten()
    }

    /// How many calls of a function weir has seen.
    pub(crate) fn calls(&self, symbol: &str) -> u64 {
        self.hooks().filter(|hook| hook["symbol"] == symbol).filter_map(|hook| hook["calls"].as_u64()).sum()
    }

    /// Why weir is off, now or since an earlier process; empty where it is not.
    pub(crate) fn reason(&self) -> &str {
        self.weir["off"].as_str().or(self.weir["remembered"].as_str()).unwrap_or_default()
    }
}

/// What weir must have seen: so many calls of each symbol; nothing at all where it has no effect.
pub(crate) type Sees<'a> = Option<&'a [(&'a str, u64)]>;

/// Both processes must look the same from outside, and weir must have seen these calls in the second one.
#[track_caller]
pub(crate) fn same(bare: &Process, under: &Process, sees: Sees) -> Outcome {
    let (bare, under) = (bare.run(), under.run());
    assert!(!bare.done.hung, "it hangs without weir\n{}", bare.done);
    assert!(!under.done.hung, "it hangs under weir\n{}", under.done);
    assert_eq!(bare.seen(), under.seen(), "left: bare, right: under weir");
    if let Some(calls) = sees {
        assert!(under.weir["off"].is_null() && !under.weir.is_null(), "weir has no effect: {}", under.weir);
        for (symbol, least) in calls {
            assert!(under.calls(symbol) >= *least, "weir saw {} calls of {symbol}, not {least}", under.calls(symbol));
        }
    }
    under
}

/// Installs a Debian package unless its program is there: no trial is skipped for want of one.
pub(crate) fn need(program: &str, package: &str) {
    let script = r#"command -v "$1" >/dev/null || { . scripts/common.sh && mkdir -p "$CACHE" && flock "$CACHE/apt.lock" bash -c '. scripts/common.sh && need "$@"' scripts/need "$@"; }"#;
    let job = Job::new("bash").arg("-c").arg(script).args(["scripts/need", program, package]).within(&stage().root);
    let _ = job.within_seconds(600).run().well();
}

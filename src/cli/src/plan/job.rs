//! The job that is run on the virtual GPU: a command as it was typed, or the one that a journal recorded. Reads files.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use weir_forensics::Run;
use weir_journal::job::{self, FileState, Input};

/// Variables of the virtual GPU that describe its devices; the others are of one run.
const DEVICES: [&str; 8] = [
    "VGPU_DEVICES",
    "VGPU_COMPUTE",
    "VGPU_DRIVER",
    "VGPU_GRANULARITY",
    "VGPU_VMM",
    "VGPU_SEED",
    "VGPU_CONTEXT",
    "VGPU_STRICT",
];

/// See the file's first comment.
pub(crate) struct Job {
    program: OsString,
    /// What it is called, where that is not the program.
    name: Option<OsString>,
    arguments: Vec<OsString>,
    folder: Option<PathBuf>,
    input: Option<PathBuf>,
    /// All of its environment.
    pub(crate) variables: BTreeMap<OsString, OsString>,
    /// Limits that a recorded job had.
    pub(crate) limits: Vec<(OsString, OsString)>,
    /// Devices that a recorded job saw, and what a context took on each.
    pub(crate) devices: Option<(u8, u64)>,
}

fn is_limit(name: &OsStr) -> bool {
    let row = name.to_str().and_then(weir_settings::Setting::of);
    row.is_some_and(|setting| setting.kind == weir_settings::Kind::Limit)
}

/// Whether a variable belongs to the run that was, and not to one that is to come.
fn is_of_one_run(name: &OsStr) -> bool {
    let virtual_gpu = name.as_encoded_bytes().starts_with(b"VGPU_");
    virtual_gpu || is_limit(name) || name == "WEIR_JOURNAL" || name == "WEIR_RUN"
}

impl Job {
    /// A command as it was typed. What is planned is the named GPU: no cap, group or fault from outside.
    pub(super) fn typed(command: &[String]) -> Result<Self, String> {
        let [program, arguments @ ..] = command else { return Err("no command".into()) };
        let mut variables: BTreeMap<OsString, OsString> =
            std::env::vars_os().filter(|(name, _)| !is_of_one_run(name)).collect();
        // TensorFlow's own allocator would take the whole device at once and show nothing.
        variables.entry("TF_GPU_ALLOCATOR".into()).or_insert_with(|| "cuda_malloc_async".into());
        Ok(Self {
            program: program.into(),
            name: None,
            arguments: arguments.iter().map(OsString::from).collect(),
            folder: None,
            input: None,
            variables,
            limits: Vec::new(),
            devices: None,
        })
    }

    /// The job of a run: the same executable, arguments, folder and variables, on top of what this command has of
    /// variables that are not recorded. `Err` says why it cannot be run again.
    pub(crate) fn recorded(run: &Run) -> Result<Self, String> {
        trusted(run.path())?;
        let found = run.reader().job().map_err(|error| error.to_string())?;
        let found = found.ok_or("its journal does not say how it was started (recorded by an older version)")?;
        refused(&found)?;
        let mut variables: BTreeMap<OsString, OsString> =
            std::env::vars_os().filter(|(name, value)| !job::is_kept(name, value)).collect();
        let (limits, own): (Vec<_>, Vec<_>) = found.variables.iter().cloned().partition(|(name, _)| is_limit(name));
        let on_virtual = found.variable("VGPU_MEM").is_some();
        let kept = |name: &OsStr| {
            let device = name.to_str().is_some_and(|name| DEVICES.contains(&name));
            // Numbers and names of real devices mean nothing on the virtual GPU.
            let visible = name == "CUDA_VISIBLE_DEVICES" && !on_virtual;
            !visible && (device || !is_of_one_run(name))
        };
        variables.extend(own.into_iter().filter(|(name, _)| kept(name)));
        let [name, arguments @ ..] = &found.arguments[..] else { return Err("its journal has no command".into()) };
        Ok(Self {
            program: found.exe.clone().into(),
            name: Some(name.clone()),
            arguments: arguments.to_vec(),
            folder: Some(found.folder.clone()),
            input: if let Input::File(path) = &found.input { Some(path.clone()) } else { None },
            variables,
            limits,
            devices: Some(devices(run, &found, on_virtual)),
        })
    }

    /// The command as one would type it.
    pub(crate) fn words(&self) -> String {
        let name = self.name.as_ref().unwrap_or(&self.program);
        let words = std::iter::once(name).chain(&self.arguments).map(|word| word.to_string_lossy());
        words.map(|word| if word.is_empty() { "''".into() } else { word }).collect::<Vec<_>>().join(" ")
    }

    /// Where it runs, if it was recorded.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// What to call it in a message.
    pub(super) fn name(&self) -> String {
        self.program.to_string_lossy().into_owned()
    }

    /// The value of a variable, where it is not empty.
    pub(super) fn variable(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// Ready to be run, without anything of a device.
    pub(super) fn command(&self) -> Result<Command, String> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env_clear().envs(&self.variables).stdin(Stdio::null());
        if let Some(name) = &self.name {
            command.arg0(name);
        }
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        if let Some(input) = &self.input {
            let file = std::fs::File::open(input).map_err(|error| format!("{}: {error}", input.display()))?;
            command.stdin(file);
        }
        Ok(command)
    }
}

/// How many devices a job could see, and what a context took of each.
fn devices(run: &Run, found: &job::Job, on_virtual: bool) -> (u8, u64) {
    let listed = |text: &str| text.split(',').filter(|part| !part.trim().is_empty()).count();
    let text = |name: &str| found.variable(name).and_then(OsStr::to_str);
    let most = run.devices().map(|device| device.number + 1).max().unwrap_or(1).min(16);
    if on_virtual {
        let many = text("VGPU_DEVICES").and_then(|many| many.parse().ok()).unwrap_or(1);
        let context = text("VGPU_CONTEXT").and_then(|size| weir_settings::size::parse_size(size).ok()).unwrap_or(0);
        return (many, context);
    }
    let visible = text("CUDA_VISIBLE_DEVICES").map_or(1, listed);
    let overhead = |device: &weir_journal::reader::Device| {
        let of = |(class, _, peak): &(weir_journal::Class, u64, u64)| {
            if *class == weir_journal::Class::Overhead { *peak } else { 0 }
        };
        device.usage.iter().map(of).sum::<u64>()
    };
    (most.max(visible.min(16) as u8), run.devices().map(overhead).max().unwrap_or(0))
}

/// A journal names a command: one that another user could have written is read, and never run.
fn trusted(journal: &Path) -> Result<(), String> {
    let meta = std::fs::metadata(journal).map_err(|error| format!("{}: {error}", journal.display()))?;
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return Err("its journal belongs to another user, whose command is not run".into());
    }
    if meta.mode() & 0o022 != 0 {
        return Err("others may write to its journal, so its command is not run; see chmod(1)".into());
    }
    Ok(())
}

/// Why a job cannot be run again.
fn refused(found: &job::Job) -> Result<(), String> {
    let arguments: Vec<_> = found.arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    if found.cut {
        return Err("its command or its environment is longer than a journal records".into());
    }
    if arguments.iter().any(|argument| argument == "--multiprocessing-fork") {
        return Err("it is a worker that another process of its job started; name the run of that process".into());
    }
    if !found.exe.is_file() {
        return Err(format!("its program {} is gone", found.exe.display()));
    }
    if !found.folder.is_dir() {
        return Err(format!("its folder {} is gone", found.folder.display()));
    }
    let python = found.exe.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"));
    let script =
        arguments.iter().skip(1).find(|argument| !argument.starts_with('-') || *argument == "-" || *argument == "-c");
    let from_input = python && script.is_none_or(|script| script == "-");
    match &found.input {
        Input::File(path) if !path.is_file() => {
            return Err(format!("it read {} as its standard input, which is gone", path.display()));
        }
        Input::Stream | Input::Terminal if from_input => {
            return Err("it read its program from standard input, which is not recorded".into());
        }
        _ => {}
    }
    for file in &found.files {
        let name = file.path.display();
        match FileState::of(&found.folder, &file.path) {
            None => return Err(format!("{name} is gone from {}", found.folder.display())),
            Some(now) if now != *file => {
                return Err(format!("{name} has changed since; run the job once more under weir instead"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

//! What it takes to run a job again: arguments, executable, folder, the variables that matter, and what the files that
//! it names were like. Collected once, when a journal is made; docs/reference/journal-format.md says what is left out.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::layout::JOB_BYTES;

/// Bytes of text that fit.
pub(crate) const ROOM: usize = JOB_BYTES - 16;
/// Files among the arguments whose state is kept.
const MOST_FILES: usize = 4;
/// A longer value of a variable is left out.
const LONGEST_VALUE: usize = 4096;

/// Beginnings of the names whose values are kept, whatever they are.
const KEPT: [&str; 27] = [
    "WEIR_",
    "VGPU_",
    "TF_",
    "TF2_",
    "CUDA_",
    "XLA_",
    "PYTHON",
    "KERAS_",
    "JAX_",
    "TORCH",
    "PYTORCH_",
    "NVIDIA_",
    "NCCL_",
    "CUBLAS_",
    "CUDNN_",
    "NUMBA_",
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "TFDS_",
    "LD_",
    "LC_",
    "LANG",
    "TZ",
    "SLURMD_NODENAME",
    "SLURM_JOB_NAME",
    "SLURM_JOB_PARTITION",
];
/// Parts of names that are never kept: what they hold may be a secret.
const SECRET: [&str; 12] = [
    "TOKEN",
    "SECRET",
    "PASS",
    "PWD",
    "KEY",
    "CREDENTIAL",
    "AUTH",
    "COOKIE",
    "PRIVATE",
    "SIGNATURE",
    "SESSION",
    "CERT",
];

/// What standard input was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Input {
    /// Closed, or /dev/null.
    #[default]
    Nothing,
    /// A terminal.
    Terminal,
    /// A pipe, a socket or a device: what came out of it is gone.
    Stream,
    /// A file.
    File(PathBuf),
}

/// A file that an argument names, as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileState {
    /// As the argument has it; relative to the job's folder.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// When it was changed last, nanoseconds since 1970.
    pub changed: i64,
}

impl FileState {
    /// The file as it is now; `None` where there is none.
    pub fn of(folder: &Path, path: &Path) -> Option<Self> {
        let meta = std::fs::metadata(folder.join(path)).ok().filter(std::fs::Metadata::is_file)?;
        let changed = meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec());
        Some(Self { path: path.to_owned(), size: meta.len(), changed })
    }
}

/// See the file's first comment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// The executable that the kernel ran.
    pub exe: PathBuf,
    /// Its folder when the journal was made; the one in which it was started where only there the files are that its
    /// arguments name.
    pub folder: PathBuf,
    /// Standard input.
    pub input: Input,
    /// All arguments, the name of the program first.
    pub arguments: Vec<OsString>,
    /// Files among them.
    pub files: Vec<FileState>,
    /// Variables as the program was started with them.
    pub variables: Vec<(OsString, OsString)>,
    /// Whether something did not fit, so that this is not all.
    pub cut: bool,
}

/// Whether a variable is recorded, if it was set to this when the job was started.
pub fn is_kept(name: &OsStr, value: &OsStr) -> bool {
    let (name, value) = (name.as_bytes(), value.as_bytes());
    let upper = name.to_ascii_uppercase();
    let has = |part: &str| upper.windows(part.len()).any(|window| window == part.as_bytes());
    // A user and a password may be in an address.
    let address = value.windows(3).any(|window| window == b"://") && value.contains(&b'@');
    if SECRET.into_iter().any(has) || address || value.len() > LONGEST_VALUE {
        return false;
    }
    // Of others only what is no text: a path, a number, a switch.
    let path = value.starts_with(b"/");
    let number = !value.is_empty() && value.len() <= 24 && value.iter().all(|byte| b"0123456789.,+-eE".contains(byte));
    let switch =
        ["true", "false", "on", "off", "yes", "no"].iter().any(|word| value.eq_ignore_ascii_case(word.as_bytes()));
    path || number || switch || KEPT.iter().any(|start| name.starts_with(start.as_bytes()))
}

impl Job {
    /// That of this process. Makes system calls and allocates.
    pub fn own() -> Self {
        let strings = |file: &str| -> Vec<OsString> {
            let bytes = std::fs::read(file).unwrap_or_default();
            let whole = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
            whole.split(|byte| *byte == 0).map(|part| OsStr::from_bytes(part).to_owned()).collect()
        };
        let all: Vec<_> = strings("/proc/self/environ").iter().filter_map(|text| pair(text.as_bytes())).collect();
        let arguments = strings("/proc/self/cmdline");
        let started = all.iter().find(|(name, _)| name == "PWD").map(|(_, value)| PathBuf::from(value));
        let here = std::env::current_dir().unwrap_or_default();
        let files_in = |folder: &Path| -> Vec<FileState> {
            let named = arguments.iter().skip(1).filter_map(|argument| FileState::of(folder, Path::new(argument)));
            named.take(MOST_FILES).collect()
        };
        let (mut folder, mut files) = (here.clone(), files_in(&here));
        if let Some(started) = started.filter(|started| files.is_empty() && *started != here) {
            let there = files_in(&started);
            if !there.is_empty() {
                (folder, files) = (started, there);
            }
        }
        Self {
            exe: std::fs::read_link("/proc/self/exe").unwrap_or_default(),
            folder,
            input: input(),
            arguments,
            files,
            variables: all.into_iter().filter(|(name, value)| is_kept(name, value)).collect(),
            cut: false,
        }
    }

    /// The value of a variable.
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        self.variables.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_os_str())
    }

    /// As it lies in a journal: texts that each begin with a letter for what they are and end with a NUL.
    pub(crate) fn packed(&self) -> Vec<u8> {
        let (mut bytes, mut cut) = (Vec::new(), self.cut);
        let mut put = |kind: u8, text: &[u8]| {
            // Two bytes are for the mark of what is missing.
            let fits = bytes.len() + text.len() + 2 <= ROOM - 2 && !text.contains(&0);
            if fits {
                bytes.push(kind);
                bytes.extend(text);
                bytes.push(0);
            }
            cut |= !fits;
        };
        put(b'x', self.exe.as_os_str().as_bytes());
        put(b'd', self.folder.as_os_str().as_bytes());
        match &self.input {
            Input::Nothing => {}
            Input::Terminal => put(b'i', b"terminal"),
            Input::Stream => put(b'i', b"stream"),
            Input::File(path) => put(b'i', path.as_os_str().as_bytes()),
        }
        for argument in &self.arguments {
            put(b'a', argument.as_bytes());
        }
        for file in &self.files {
            let mut text = format!("{} {} ", file.size, file.changed).into_bytes();
            text.extend(file.path.as_os_str().as_bytes());
            put(b'f', &text);
        }
        for (name, value) in &self.variables {
            put(b'v', &[name.as_bytes(), b"=", value.as_bytes()].concat());
        }
        if cut {
            bytes.extend(b"c\0");
        }
        bytes
    }

    /// What [`Job::packed`] made; kinds that are not known are left out.
    pub(crate) fn unpacked(bytes: &[u8]) -> Self {
        let own = |text: &[u8]| OsString::from_vec(text.to_vec());
        let mut job = Self::default();
        for text in bytes.split(|byte| *byte == 0) {
            let Some((kind, text)) = text.split_first() else { continue };
            match kind {
                b'x' => job.exe = own(text).into(),
                b'd' => job.folder = own(text).into(),
                b'i' => {
                    job.input = match text {
                        b"terminal" => Input::Terminal,
                        b"stream" => Input::Stream,
                        path => Input::File(own(path).into()),
                    }
                }
                b'a' => job.arguments.push(own(text)),
                b'f' => job.files.extend(file(text)),
                b'v' => job.variables.extend(pair(text)),
                b'c' => job.cut = true,
                _ => {}
            }
        }
        job
    }
}

/// `NAME=value`.
fn pair(text: &[u8]) -> Option<(OsString, OsString)> {
    let at = text.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
    Some((OsStr::from_bytes(text.get(..at)?).to_owned(), OsStr::from_bytes(text.get(at + 1..)?).to_owned()))
}

/// `SIZE CHANGED PATH`.
fn file(text: &[u8]) -> Option<FileState> {
    let mut parts = text.splitn(3, |byte| *byte == b' ');
    let mut next = || parts.next().map(OsStr::from_bytes);
    let (size, changed, path) = (next()?.to_str()?.parse().ok()?, next()?.to_str()?.parse().ok()?, next()?);
    Some(FileState { path: path.into(), size, changed })
}

fn input() -> Input {
    let Ok(meta) = std::fs::metadata("/proc/self/fd/0") else { return Input::Nothing };
    let path = std::fs::read_link("/proc/self/fd/0").unwrap_or_default();
    if meta.is_file() {
        Input::File(path)
    } else if path.as_os_str() == "/dev/null" {
        Input::Nothing
    } else if meta.file_type().is_char_device() && (path.starts_with("/dev/pts") || path.starts_with("/dev/tty")) {
        Input::Terminal
    } else {
        Input::Stream
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(name: &str, value: &str) -> bool {
        is_kept(OsStr::new(name), OsStr::new(value))
    }

    #[test]
    fn secrets_are_never_kept() {
        for name in ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "TF_API_KEY", "WEIR_PASSWORD", "CUDA_Credentials", "OLDPWD"] {
            assert!(!kept(name, "/x") && !kept(name, "1"), "{name}");
        }
        assert!(!kept("TF_PROXY", "http://user:word@host/"), "an address may have a password in it");
        assert!(!kept("GREETING", "hello") && !kept("TF_LONG", &"x".repeat(5000)));
    }

    #[test]
    fn what_changes_a_job_is_kept() {
        for (name, value) in [
            ("WEIR_CAP", "1GiB"),
            ("TF_GPU_ALLOCATOR", "x"),
            ("BATCH", "64"),
            ("RATE", "1e-3"),
            ("DATA", "/data"),
            ("FAST", "True"),
            // Where in a job of several it was.
            ("SLURM_JOB_ID", "7"),
            ("SLURM_PROCID", "0"),
            ("SLURMD_NODENAME", "gpu-n1"),
            ("SLURM_JOB_NAME", "nightly train"),
            ("RANK", "3"),
            ("TF_CONFIG", "{}"),
        ] {
            assert!(kept(name, value), "{name}");
        }
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        let mut job = Job::own();
        job.variables.push(("A".into(), "=b=\n".into()));
        job.arguments.push(OsString::from_vec(vec![0xff, b' ']));
        job.arguments.push(OsString::new());
        assert!(job.arguments.len() > 2 && job.exe.is_absolute() && job.folder.is_absolute());
        assert_eq!(Job::unpacked(&job.packed()), job);
    }

    #[test]
    fn what_does_not_fit_is_marked() {
        let job = Job { arguments: vec!["x".into(), "y".repeat(ROOM).into()], ..Job::default() };
        let packed = job.packed();
        let found = Job::unpacked(&packed);
        assert!(packed.len() <= ROOM && found.cut && found.arguments == ["x"]);
        assert!(!Job::unpacked(&Job { arguments: vec!["x".into()], ..Job::default() }.packed()).cut);
    }

    #[test]
    fn bytes_of_others_are_harmless() {
        for bytes in [&b""[..], b"\0\0", b"f1\0f1 2\0f1 x y\0", b"v\0v=x\0vx\0", b"zz\0a", b"i\0"] {
            let job = Job::unpacked(bytes);
            assert!(job.files.is_empty() && job.variables.is_empty(), "{bytes:?}");
        }
    }
}

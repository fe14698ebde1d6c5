//! What XLA leaves of the code that it compiles: its buffers with their operations, in a folder beside the journal. XLA
//! writes it when `XLA_FLAGS` says so, which it reads at the first thing that it compiles, after the first context.
//!
//! Only flags that every XLA has known for years: one that it does not know ends the process.

use super::allocator::variable;
use crate::process::surroundings::Errno;
use crate::process::{choices, elf, job};
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::ffi::CString;
use std::path::Path;
use std::sync::OnceLock;
use weir_journal::Journal;
use weir_settings::tensorflow::Xla;

const VARIABLE: &CStr = c"XLA_FLAGS";
const TO: &str = "--xla_dump_to=";
/// What goes with it: the form, and at most so many compiled modules, more than are kept.
const WITH: [&str; 2] = ["--xla_dump_hlo_as_proto=true", "--xla_dump_max_hlo_modules=256"];
/// Flags that make a dump, or say what is in it: where the job has one of them, the dump is the job's.
const CHOSEN: [&str; 7] = [
    "xla_dump_to",
    "xla_dump_hlo_as_text",
    "xla_dump_hlo_as_proto",
    "xla_dump_hlo_as_dot",
    "xla_dump_hlo_as_html",
    "xla_dump_hlo_snapshots",
    "xla_dump_hlo_unoptimized_snapshots",
];
/// What the choice is about.
const SUBJECT: &str = "XLA";

/// Whether the lines of every node of a graph are kept in the journal.
static KEEPS_NODES: AtomicBool = AtomicBool::new(false);

/// Whether XLA writes into the journal's folder.
static WRITES: AtomicBool = AtomicBool::new(false);

/// Whether XLA is to leave its files in this process: then names need more room in the journal. JAX compiles much that is
/// small, and its XLA prints its code besides: that takes time.
pub(crate) fn wanted() -> bool {
    job::active().is_some_and(|job| match job.config.xla {
        Xla::Off => false,
        Xla::Auto => super::loaded::find().is_some(),
        Xla::On => super::loaded::find().is_some() || jax(),
    })
}

/// Whether JAX's XLA is loaded, which has no name to ask the linker for.
fn jax() -> bool {
    let mut found = false;
    elf::each_object(&mut |object| {
        found = object.path().to_bytes().ends_with(b"/xla_cuda_plugin.so");
        found
    });
    found
}

/// Whether XLA writes for weir alone. To be asked when XLA has read its flags, which it does once: until then a job may set
/// the variable anew.
pub(crate) fn writes_for_weir() -> bool {
    static ALONE: OnceLock<bool> = OnceLock::new();
    let alone = || variable(VARIABLE).and_then(|value| value.to_str().ok()).is_some_and(is_for_weir);
    WRITES.load(Ordering::Relaxed) && *ALONE.get_or_init(alone)
}

/// Whether the lines of every node are to be kept.
#[inline]
pub(crate) fn keeps_nodes() -> bool {
    KEEPS_NODES.load(Ordering::Relaxed)
}

/// At the making of the journal, before XLA compiles anything.
pub(crate) fn begin(journal: &Journal) {
    if !wanted() {
        return;
    }
    KEEPS_NODES.store(true, Ordering::Relaxed);
    let chosen = journal.make_xla_folder().map_err(|error| error.to_string()).and_then(|folder| {
        let before = variable(VARIABLE).map(|value| value.to_str().map_err(|_| "XLA_FLAGS is not UTF-8".to_owned()));
        let flags = flags(before.transpose()?.unwrap_or_default(), &folder).inspect_err(|_| {
            let _ = std::fs::remove_dir(&folder);
        })?;
        let flags = CString::new(flags).map_err(|error| error.to_string())?;
        // SAFETY: both are C strings. TensorFlow itself sets variables at this stage.
        unsafe { libc::setenv(VARIABLE.as_ptr(), flags.as_ptr(), 1) };
        WRITES.store(true, Ordering::Relaxed);
        Ok(format!("leaves its buffers in {}", folder.display()))
    });
    choices::keep(SUBJECT, chosen.unwrap_or_else(|why| format!("leaves nothing of its buffers: {why}")));
}

/// Code was loaded, as XLA does with each module that it has compiled: what it wrote of it beside its buffers goes.
pub(crate) fn tidy(journal: &Journal) {
    /// When the folder was last changed, as far as it was looked at.
    static SEEN: AtomicU64 = AtomicU64::new(0);
    if WRITES.load(Ordering::Relaxed) {
        let _kept = Errno::keep();
        SEEN.store(journal.tidy_xla_folder(SEEN.load(Ordering::Relaxed)), Ordering::Relaxed);
    }
}

/// The flags that the process has and those that weir adds.
fn flags(before: &str, folder: &Path) -> Result<String, String> {
    let folder = folder.to_str().filter(|path| !path.contains([' ', '\t', '\n', '"', '\'', '\\']));
    let folder = folder.ok_or("the journal's folder has spaces, quotes or bytes that are not text in its name")?;
    let before = before.trim();
    if !before.is_empty() && !before.starts_with('-') {
        return Err(format!("XLA_FLAGS names a file: {before}"));
    }
    let kept = jobs(before);
    if let Some(own) = kept.iter().find(|flag| CHOSEN.contains(&name(flag))) {
        return Err(format!("as the job chose: {own}"));
    }
    // A quoted flag with spaces is several pieces here, so what nothing was taken out of stays letter by letter.
    let whole = kept.len() == before.split_ascii_whitespace().count();
    let mut flags = if whole { before.to_owned() } else { kept.join(" ") };
    let to = format!("{TO}{folder}");
    for flag in [to.as_str()].into_iter().chain(WITH) {
        if !kept.iter().any(|own| name(own) == name(flag)) {
            flags.push_str(if flags.is_empty() { "" } else { " " });
            flags.push_str(flag);
        }
    }
    Ok(flags)
}

/// The flags that are not weir's, nor those of a parent's weir: a folder together with what goes with it.
fn jobs(flags: &str) -> Vec<&str> {
    let mut weirs = false;
    let mut kept = flags.split_ascii_whitespace().collect::<Vec<_>>();
    kept.retain(|flag| {
        weirs = flag.strip_prefix(TO).is_some_and(is_weirs) || weirs && WITH.contains(flag);
        !weirs
    });
    kept
}

/// Whether with these flags XLA writes into a folder of weir's, and only what weir asked for.
fn is_for_weir(flags: &str) -> bool {
    let jobs = jobs(flags);
    jobs.len() < flags.split_ascii_whitespace().count() && !jobs.iter().any(|flag| CHOSEN.contains(&name(flag)))
}

/// The name of a flag, which begins with one dash or two.
fn name(flag: &str) -> &str {
    flag.trim_start_matches('-').split('=').next().unwrap_or_default()
}

/// Whether weir made this folder: `SECONDS-PID.xla`.
fn is_weirs(folder: &str) -> bool {
    let stem = folder.rsplit('/').next().and_then(|name| name.strip_suffix(".xla"));
    stem.is_some_and(|stem| {
        stem.contains('-')
            && stem.split('-').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(before: &str) -> Result<String, String> {
        flags(before, Path::new("/w/7-8.xla"))
    }

    const OWN: &str = "--xla_dump_to=/w/7-8.xla --xla_dump_hlo_as_proto=true --xla_dump_max_hlo_modules=256";

    #[test]
    fn flags_are_added_and_never_replaced() {
        assert_eq!(with("").as_deref(), Ok(OWN));
        assert_eq!(with(" --xla_gpu_cuda_data_dir=/c "), Ok(format!("--xla_gpu_cuda_data_dir=/c {OWN}")));
        let own = "--xla_dump_max_hlo_modules=3 --a=1";
        let rest = "--xla_dump_to=/w/7-8.xla --xla_dump_hlo_as_proto=true";
        assert_eq!(with(own), Ok(format!("{own} {rest}")));
        for chosen in [
            "--xla_dump_to=/mine",
            "--a --xla_dump_to /mine",
            "-xla_dump_to=/mine",
            "--xla_dump_hlo_as_text",
            "--xla_dump_hlo_as_dot=true",
            "--xla_dump_hlo_snapshots",
        ] {
            assert!(with(chosen).is_err_and(|why| why.starts_with("as the job chose")), "{chosen}");
        }
        assert!(with("/etc/xla_flags").is_err(), "a file of flags");
        assert!(flags("", Path::new("/a b/7-8.xla")).is_err());
    }

    #[test]
    fn a_dump_is_weirs_unless_the_job_says_what_is_in_it() {
        assert!(is_for_weir(OWN) && is_for_weir(&format!("--a=1 {OWN} --b")));
        for jobs in ["", "--a=1", "--xla_dump_to=/mine", "--xla_dump_to=/mine --xla_dump_hlo_as_proto=true"] {
            assert!(!is_for_weir(jobs), "{jobs}");
        }
        for added in ["--xla_dump_to=/mine", "--xla_dump_hlo_as_text"] {
            assert!(!is_for_weir(&format!("{OWN} {added}")) && !is_for_weir(&format!("{added} {OWN}")), "{added}");
        }
    }

    #[test]
    fn what_a_parents_weir_set_is_taken_out() {
        let parents = OWN.replace("/w/7-8", "/elsewhere/5-6-1");
        assert_eq!(with(&format!("--a=1 {parents}")), Ok(format!("--a=1 {OWN}")));
        assert_eq!(with(&format!("{parents} --xla_dump_hlo_pass_re=x")), Ok(format!("--xla_dump_hlo_pass_re=x {OWN}")));
    }
}

//! Something goes wrong inside weir, or with its settings: the job goes on, and the reason can be found.

use crate::beside::strange_driver;
use crate::process::{Folder, Outcome, Process};
use regex_lite::{Regex, escape};
use std::io::Write;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use weir_tests::harness::{Job, Suite, files_below, stage};

const PANIC: &str = "WEIR_FAULT=panic:cuMemAlloc_v2";

pub(crate) fn trials(suite: &mut Suite) {
    suite.add("faults: panic in a plain function", || goes_on("panic in cuMemAlloc_v2", Note::Left, PANIC));
    suite.add("faults: panic in a body", || goes_on("panic in cuInit", Note::Left, "WEIR_FAULT=panic:body:cuInit"));
    suite.add("faults: panic at the start", || goes_on("panic in start", Note::Any, "WEIR_FAULT=panic:start"));
    suite.add("faults: no fault, no note", || goes_on("", Note::None, ""));
    // Without the real library weir cannot forward: the next definition remains, here libcuda itself.
    suite.add("faults: failed resolution", || goes_on("not found", Note::None, "WEIR_FAULT=resolve"));
    // A bad setting costs a line and itself; a bad limit costs the job its device (the suite caps has them all).
    for (setting, why) in [
        ("WEIR_STRICT=maybe", "expected 0 or 1"),
        ("WEIR_POOL=perhaps", "using the default on"),
        ("WEIR_DIR=here", "absolute"),
        ("WEIR_CPA=8GiB", "did you mean WEIR_CAP"),
    ] {
        suite.add(format!("settings: {setting} costs one line"), move || one_line(setting, why));
    }
    suite.add("settings: a bad limit with WEIR_STRICT=0", || bad_limit_not_strict("WEIR_CAP=8XiB", "WEIR_STRICT=0"));
    suite.add("settings: a bad limit makes cuInit fail", || {
        bad_limit("WEIR_CAP=8XiB", "");
        bad_limit("WEIR_CAP=8XiB", "WEIR_STRICT=1");
    });
    // A cap that ends because weir disables itself is reported; without a cap nothing is printed.
    suite.add("faults: panic under a cap", panic_under_cap);
    suite.add("faults: panic at the start under a cap makes cuInit fail", || {
        bad_limit("WEIR_CAP=8GiB", "WEIR_FAULT=panic:start");
    });
    suite.add("notes: a directory that cannot be made", no_directory);
    suite.add("notes: a home that is read-only, and none", no_home);
    suite.add("notes: a file size limit of nothing", no_file_size);
    suite.add("notes: a full disk", full_disk);
    suite.add("notes: a full file system", full_file_system);
    suite.add("notes: standard error that nobody reads, and none", no_stderr);
}

#[derive(Clone, Copy, PartialEq)]
enum Note {
    Left,
    None,
    Any,
}

/// The trial's own state directory, and the program `linked`.
fn linked(folder: &Folder) -> Process<'_> {
    folder.process(folder.linked("linked")).env("WEIR_DIR", folder.at("state"))
}

/// The notes that processes left on why weir disabled itself.
fn notes(folder: &Folder) -> Vec<String> {
    let files = files_below(&folder.at("state"));
    let notes =
        files.iter().filter(|file| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("note-")));
    notes.map(|file| std::fs::read_to_string(file).expect("a note")).collect()
}

/// The job prints and ends as it does bare; weir gives this reason, here and in a note.
#[track_caller]
fn check(folder: &Folder, bare: &Process, under: &Process, reason: &str, note: Note, errors: &str) -> Outcome {
    let (bare, under) = (bare.run(), under.run());
    assert!(
        !under.done.hung && (&bare.done.out, bare.done.code) == (&under.done.out, under.done.code),
        "{}",
        under.done
    );
    assert!(Regex::new(&format!("^(?:{errors})$")).unwrap().is_match(&under.done.err), "{errors}\n{}", under.done);
    let given = under.reason();
    assert!(if reason.is_empty() { given.is_empty() } else { given.contains(reason) }, "the reason is {given:?}");
    let notes = notes(folder);
    match note {
        Note::Left => assert!(notes.len() == 1 && notes[0].contains(reason), "{notes:?}"),
        Note::None => assert!(notes.is_empty(), "{notes:?}"),
        Note::Any => {}
    }
    under
}

fn goes_on(reason: &str, note: Note, environment: &str) {
    let folder = Folder::new();
    let bare = linked(&folder);
    check(&folder, &bare, &bare.clone().under([stage().weir_with_faults()]).set(environment), reason, note, "");
}

/// A line on standard error that begins with a setting.
fn line(setting: &str, why: &str) -> String {
    format!("weir: {}: [^\n]*{why}[^\n]*\n", escape(setting))
}

fn one_line(setting: &str, why: &str) {
    let folder = Folder::new();
    let bare = linked(&folder);
    let shown = if setting.starts_with("WEIR_CPA") { "WEIR_CPA" } else { setting };
    check(&folder, &bare, &bare.clone().under_weir().set(setting), "", Note::None, &line(shown, why));
}

fn bad_limit_not_strict(limit: &str, strict: &str) {
    let folder = Folder::new();
    let bare = linked(&folder);
    let under = bare.clone().under_weir().set(limit).set(strict);
    check(&folder, &bare, &under, "", Note::None, &line(limit, "runs without this limit"));
}

fn bad_limit(limit: &str, more: &str) {
    let folder = Folder::new();
    let library = if more.contains("WEIR_FAULT") { stage().weir_with_faults() } else { stage().weir() };
    let under = linked(&folder).under([library]).set(limit).set(more).run();
    let errors = Regex::new(&format!("^{}$", line(limit, "cuInit fails"))).unwrap();
    assert!(under.done.out.starts_with("linked: 1 ") && errors.is_match(&under.done.err), "{}", under.done);
}

fn panic_under_cap() {
    let folder = Folder::new();
    let bare = linked(&folder);
    let under = bare.clone().under([stage().weir_with_faults()]).set(PANIC).set("WEIR_CAP=8GiB");
    let line = "weir: panic in cuMemAlloc_v2[^\n]*and so is its cap\n";
    check(&folder, &bare, &under, "panic in cuMemAlloc_v2", Note::Left, line);
}

/// A panic where no note can be left: the job and its output are the same.
fn without_note(folder: &Folder, change: impl FnOnce(Process) -> Process) {
    let bare = linked(folder);
    let under = change(bare.clone().under([stage().weir_with_faults()]).set(PANIC));
    check(folder, &bare, &under, "panic in cuMemAlloc_v2", Note::None, "");
}

fn no_directory() {
    let folder = Folder::new();
    std::fs::write(folder.at("blocked"), "a file, not a folder").expect("a file");
    without_note(&folder, |process| process.env("WEIR_DIR", folder.at("blocked/state")));
}

fn no_home() {
    // Nobody may create a file in /proc/self, not even root.
    without_note(&Folder::new(), |process| process.env("WEIR_DIR", "").env("HOME", "/proc/self"));
}

/// The virtual GPU's memory is a file, to which this limit applies, too: so this is another driver.
fn no_file_size() {
    let folder = Folder::new();
    let driver = strange_driver(&folder, None);
    let bare = folder.process(folder.program("strange_driver")).paths([driver]).env("WEIR_DIR", folder.at("state"));
    let under = bare.clone().under([stage().weir_with_faults()]).set(PANIC).with(|command| {
        // SAFETY: setrlimit may be called between fork and exec.
        unsafe {
            command.pre_exec(|| {
                let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                let failed = libc::setrlimit(libc::RLIMIT_FSIZE, &raw const none) < 0;
                if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
            });
        }
    });
    check(&folder, &bare, &under, "panic in cuMemAlloc_v2", Note::None, "");
}

fn full_disk() {
    let folder = Folder::new();
    without_note(&folder, |process| process.set("WEIR_FAULT=panic:cuMemAlloc_v2,full"));
    assert!(files_below(&folder.at("state")).is_empty(), "a file is left: {:?}", files_below(&folder.at("state")));
}

/// A real file system that is full, where mounting is allowed.
fn full_file_system() {
    let folder = Folder::new();
    let full = folder.at("full");
    std::fs::create_dir(&full).expect("a folder");
    let mount = Job::new("mount").words("-t tmpfs -o size=4k,nr_inodes=8 none").arg(&full).run();
    if mount.code != 0 {
        return;
    }
    let unmount = Mounted(&full);
    std::fs::write(full.join("filler"), [b'x'; 4096]).expect("one page");
    without_note(&folder, |process| process.env("WEIR_DIR", &full));
    let left: Vec<_> = std::fs::read_dir(&full).expect("the folder").flatten().map(|entry| entry.file_name()).collect();
    drop(unmount);
    assert_eq!(left, ["filler"]);
}

/// Unmounts when it goes.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Job::new("umount").arg(self.0).run();
    }
}

fn no_stderr() {
    let folder = Folder::new();
    let bare = linked(&folder);
    let capped = bare.clone().under_weir().set("WEIR_CAP=8GiB");
    let unread = capped.clone().with(|command| {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        // SAFETY: dup2 may be called between fork and exec; the closure owns the pipe.
        unsafe {
            command.pre_exec(move || {
                let failed = libc::dup2(writer.as_raw_fd(), 2) < 0;
                if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
            });
        }
    });
    // Nobody reads it, and it is full.
    let full = capped.clone().with(|command| {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        // SAFETY: takes a descriptor and numbers; the pipe is open.
        let size = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
        writer.write_all(&vec![b'x'; usize::try_from(size).expect("a size")]).expect("room");
        // It stays open as long as this process.
        let _ = reader.into_raw_fd();
        // SAFETY: as above.
        unsafe {
            command.pre_exec(move || {
                let failed = libc::dup2(writer.as_raw_fd(), 2) < 0;
                if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
            });
        }
    });
    let closed = capped.with(|command| {
        // SAFETY: close may be called between fork and exec; standard error is not used in between.
        unsafe {
            command.pre_exec(|| {
                let _ = libc::close(2);
                Ok(())
            });
        }
    });
    let bare = bare.run();
    for process in [unread, full, closed] {
        let under = process.run();
        assert_eq!((&bare.done.out, bare.done.code), (&under.done.out, under.done.code), "{}", under.done);
    }
}

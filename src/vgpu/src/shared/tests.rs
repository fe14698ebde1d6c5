//! The shared file under real processes that are forked, race, and are killed.

use super::rows::{BOOT, CHECKSUM, DEVICES, FORMAT, HEADER, HELD, TOTALS};
use super::*;
use std::fs;
use std::sync::MutexGuard;

/// A file of its own for each test, removed afterwards. One test at a time: the child of a fork
/// inherits what the other tests have open.
struct TestFolder {
    path: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

impl TestFolder {
    fn new(name: &str) -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let path = std::env::temp_dir().join(format!("vgpu-shared-{name}-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        Self { path, _alone: alone }
    }

    fn open(&self, totals: &[u64]) -> Shared {
        Shared::open(&self.path, totals).expect("the file opens")
    }

    fn refusal(&self, totals: &[u64]) -> String {
        match Shared::open(&self.path, totals) {
            Ok(_) => panic!("the file was accepted"),
            Err(error) => error.to_string(),
        }
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A forked process. It dies with the test that made it.
struct Child(i32);

impl Child {
    /// Runs `act` in a forked process, which then ends; `act` says whether all was as it should be.
    fn start(act: impl FnOnce() -> bool) -> Self {
        // SAFETY: the child only runs `act`, which uses memory and files, and never returns.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: a plain system call.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
            // SAFETY: ends the child without running anything of the parent.
            unsafe { libc::_exit(i32::from(!done.unwrap_or(false))) };
        }
        assert!(pid > 0);
        Self(pid)
    }

    /// Like `start`, but returns when `act` is done, and the process then waits to be killed.
    fn fork(act: impl FnOnce() -> bool) -> Self {
        let mut pipe = [0; 2];
        // SAFETY: two descriptors go into an array of two.
        assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
        let child = Self::start(|| {
            if !act() {
                return false;
            }
            // SAFETY: plain system calls.
            unsafe {
                libc::write(pipe[1], [1u8].as_ptr().cast(), 1);
                loop {
                    libc::pause();
                }
            }
        });
        let mut done = [0u8];
        // SAFETY: plain system calls; closing our end of the pipe lets a dead child be noticed.
        let got = unsafe {
            libc::close(pipe[1]);
            let got = libc::read(pipe[0], done.as_mut_ptr().cast(), 1);
            libc::close(pipe[0]);
            got
        };
        assert_eq!((got, done[0]), (1, 1), "the child failed");
        child
    }

    /// Waits until it has ended by itself, and says whether all was as it should be.
    fn succeeds(self) -> bool {
        let mut status = 1;
        // SAFETY: a child of ours.
        unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        core::mem::forget(self);
        status == 0
    }

    /// Kills it and waits until the kernel says that it has ended, without burying it.
    fn kill(&self) {
        // SAFETY: plain system calls on a child of ours.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            let mut info: libc::siginfo_t = core::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOWAIT;
            assert_eq!(libc::waitid(libc::P_PID, self.0 as u32, &raw mut info, flags), 0);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: plain system calls on a child of ours.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, core::ptr::null_mut(), 0);
        }
    }
}

#[test]
fn a_device_gives_what_it_has_and_not_a_byte_more() {
    let place = TestFolder::new("exact");
    let shared = place.open(&[100, 7]);
    assert!(shared.take(0, 60) && shared.take(0, 40));
    assert!(!shared.take(0, 1) && !shared.take(0, u64::MAX));
    assert!(shared.take(1, 7) && !shared.take(1, 1) && !shared.take(2, 1));
    shared.give(0, 30);
    assert_eq!((shared.used(0), shared.mine(0), shared.used(1)), (70, 70, 7));
    assert!(!shared.take(0, 31) && shared.take(0, 30));
    assert_eq!(shared.processes(0), [(std::process::id(), 100)]);
    shared.give(0, 101);
    assert_eq!(shared.mine(0), 100, "what was not taken cannot be released");
    shared.give(0, 100);
    assert!(shared.processes(0).is_empty());
}

#[test]
fn what_another_process_holds_is_missing_here_until_it_is_killed() {
    let place = TestFolder::new("killed");
    let shared = place.open(&[100]);
    let child = Child::fork(|| place.open(&[100]).take(0, 60));
    assert_eq!((shared.used(0), shared.mine(0)), (60, 0));
    assert_eq!(shared.processes(0), [(child.0 as u32, 60)]);
    assert!(!shared.take(0, 41) && shared.take(0, 40));
    child.kill();
    assert!(shared.take(0, 60), "a process that has ended holds nothing, though nobody waited for it");
    assert_eq!(shared.used(0), 100);
    assert_eq!(shared.processes(0), [(std::process::id(), 100)]);
}

#[test]
fn a_forked_child_begins_with_nothing_and_shares_no_lock() {
    let place = TestFolder::new("forked");
    let shared = place.open(&[100]);
    assert!(shared.take(0, 30));
    let child =
        Child::fork(|| shared.mine(0) == 0 && shared.used(0) == 30 && !shared.take(0, 71) && shared.take(0, 10));
    assert_eq!((shared.used(0), shared.mine(0)), (40, 30));
    // The child holds the lock of its own open file: the parent must wait for it.
    let held = Child::fork(|| {
        let fd = shared.here().expect("the child's own").file.fd().expect("a descriptor");
        core::mem::forget(FileLock::take(fd).expect("the lock"));
        true
    });
    let fd = shared.here().expect("our own").file.fd().expect("a descriptor");
    // SAFETY: a plain system call.
    assert_ne!(unsafe { libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB) }, 0);
    held.kill();
    child.kill();
    assert_eq!(shared.used(0), 30);
}

#[test]
fn a_child_forked_under_the_lock_does_not_keep_it() {
    let place = TestFolder::new("under-lock");
    let shared = place.open(&[100]);
    let fd = shared.here().expect("our own").file.fd().expect("a descriptor");
    let lock = FileLock::take(fd).expect("the lock");
    // SAFETY: a plain system call.
    let child = Child::fork(|| unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1);
    drop(lock);
    drop(child);
    assert!(shared.take(0, 100));
}

#[test]
fn racing_processes_never_hold_more_than_there_is() {
    const TOTAL: u64 = 1000;
    let place = TestFolder::new("racing");
    let shared = place.open(&[TOTAL]);
    let race = |seed: u64| {
        let shared = place.open(&[TOTAL]);
        let mut state = seed;
        let mut held = 0;
        for _ in 0..400 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let bytes = (state >> 33) % 300;
            if shared.take(0, bytes) {
                held += bytes;
            }
            if shared.used(0) > TOTAL || shared.mine(0) != held {
                return false;
            }
            if state >> 62 != 0 && held > 0 {
                shared.give(0, held);
                held = 0;
            }
        }
        true
    };
    let children: Vec<_> = (1..=4).map(|seed| Child::start(|| race(seed))).collect();
    assert!(children.into_iter().all(Child::succeeds));
    assert_eq!(shared.used(0), 0);
}

#[test]
fn processes_killed_at_any_moment_leave_a_sound_file() {
    let place = TestFolder::new("any-moment");
    let shared = place.open(&[1000]);
    for delay in 0..30 {
        let child = Child::start(|| {
            let shared = place.open(&[1000]);
            while shared.take(0, 500) && shared.take(0, 3) {
                shared.give(0, 500);
                shared.give(0, 3);
            }
            false
        });
        std::thread::sleep(std::time::Duration::from_micros(500 + 97 * delay));
        child.kill();
        assert!(shared.take(0, 1000), "the dead child still holds something");
        shared.give(0, 1000);
    }
    let rows = fs::metadata(&place.path).expect("the file").len() as usize - HEADER;
    assert!(rows <= 2 * (HELD + 8), "rows of the dead are used again");
}

#[test]
fn the_descriptor_may_be_closed_by_others() {
    let place = TestFolder::new("closed");
    let shared = place.open(&[100]);
    assert!(shared.take(0, 10));
    let fd = shared.here().expect("our own").file.fd().expect("a descriptor");
    // SAFETY: what a program does that closes every descriptor it does not know.
    unsafe { libc::close(fd) };
    assert!(shared.take(0, 10));
    assert_eq!(shared.used(0), 20);
}

#[test]
fn a_program_that_was_replaced_by_exec_holds_nothing() {
    let place = TestFolder::new("exec");
    let before = place.open(&[100]);
    assert!(before.take(0, 100));
    // After exec(2) the process is the same, and its library opens the file anew.
    let after = place.open(&[100]);
    assert_eq!(after.used(0), 0);
    assert!(after.take(0, 100));
}

#[test]
fn foreign_older_and_corrupt_files_are_refused_and_left_alone() {
    let place = TestFolder::new("refused");
    fs::write(&place.path, "my thesis").expect("written");
    assert!(place.refusal(&[100]).contains("is not a file of the virtual GPU"));
    assert_eq!(fs::read_to_string(&place.path).expect("read"), "my thesis");
    fs::write(&place.path, vec![b'x'; 3 * HEADER]).expect("written");
    assert!(place.refusal(&[100]).contains("is not a file of the virtual GPU"));

    let good = header(&[100], process::boot_id());
    let mut old = good.clone();
    old[FORMAT] = 0;
    fs::write(&place.path, old).expect("written");
    assert!(place.refusal(&[100]).contains("version 0"));

    for broken in [TOTALS + 3, BOOT, CHECKSUM, DEVICES] {
        let mut bytes = good.clone();
        bytes[broken] ^= 1;
        fs::write(&place.path, bytes).expect("written");
        assert!(place.refusal(&[100]).contains("is corrupt"), "byte {broken}");
    }
    fs::write(&place.path, &good[..HEADER - 1]).expect("written");
    assert!(place.refusal(&[100]).contains("is corrupt"));
    let mut row = good;
    row.extend([7; HELD + 8]);
    fs::write(&place.path, row).expect("written");
    assert!(place.refusal(&[100]).contains("is corrupt"));
}

#[test]
fn other_devices_are_refused_only_while_somebody_lives() {
    let place = TestFolder::new("devices");
    let child = Child::fork(|| place.open(&[100]).take(0, 60));
    let error = place.refusal(&[100, 200]);
    assert!(error.contains("[100]") && error.contains("[100, 200]"), "{error}");
    child.kill();
    let shared = place.open(&[100, 200]);
    assert_eq!((shared.used(0), shared.used(1)), (0, 0));
    assert!(shared.take(1, 200));
}

#[test]
fn a_file_of_an_earlier_boot_holds_nothing() {
    let place = TestFolder::new("boot");
    let mut file = header(&[100], process::boot_id() ^ 1);
    let own = Identity::own().expect("an identity");
    file.extend(row_of(own, 60));
    fs::write(&place.path, file).expect("written");
    assert_eq!(place.open(&[100]).used(0), 0);
}

#[test]
fn a_full_file_refuses_the_next_process() {
    let place = TestFolder::new("full");
    let child = Child::fork(|| true);
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.0)).expect("its line");
    let start = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(19));
    let start = start.and_then(|start| start.parse().ok()).expect("its start");
    let mut file = header(&[100], process::boot_id());
    for _ in 0..MAX_ROWS {
        file.extend(row_of(Identity { pid: child.0 as u32, start }, 0));
    }
    fs::write(&place.path, file).expect("written");
    let shared = place.open(&[100]);
    let error = shared.locked(|table| table.take(0, 1)).expect_err("the file is full");
    assert!(error.to_string().contains("is full"), "{error}");
    assert!(!shared.take(0, 1));
    child.kill();
    assert!(shared.take(0, 1), "the dead make room");
}

fn row_of(owner: Identity, bytes: u64) -> Vec<u8> {
    let mut row = 1u32.to_le_bytes().to_vec();
    row.extend(owner.pid.to_le_bytes());
    row.extend(owner.start.to_le_bytes());
    row.extend(bytes.to_le_bytes());
    row
}

//! The watchdog: every thread counts its operations and says what it does. If one makes no progress for the
//! bound, what all threads do and where they are is printed, and the process ends.

use std::ffi::{c_int, c_void};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The exit status of a run that was stopped by the watchdog.
const STOPPED: i32 = 3;

/// One thread of the program.
pub(crate) struct Watched {
    pub(crate) name: String,
    tid: i32,
    pub(crate) operations: AtomicU64,
    /// What it does now.
    doing: Mutex<&'static str>,
    done: AtomicBool,
}

static THREADS: Mutex<Vec<&'static Watched>> = Mutex::new(Vec::new());

fn threads() -> Vec<&'static Watched> {
    THREADS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

impl Watched {
    /// The calling thread, from now on watched.
    pub(crate) fn begin(name: String) -> &'static Self {
        // SAFETY: takes nothing.
        let tid = unsafe { libc::gettid() };
        let watched = Box::leak(Box::new(Self {
            name,
            tid,
            operations: AtomicU64::new(0),
            doing: Mutex::new("begins"),
            done: AtomicBool::new(false),
        }));
        THREADS.lock().unwrap_or_else(PoisonError::into_inner).push(watched);
        watched
    }

    /// The thread comes to its next operation.
    pub(crate) fn step(&self, what: &'static str) {
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner) = what;
        self.operations.fetch_add(1, Relaxed);
    }

    /// The thread has done its work.
    pub(crate) fn end(&self) {
        self.done.store(true, Relaxed);
    }

    fn doing(&self) -> &'static str {
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All operations so far.
pub(crate) fn operations() -> u64 {
    threads().iter().map(|t| t.operations.load(Relaxed)).sum()
}

/// Ends the process at once.
pub(crate) fn leave(status: i32) -> ! {
    let _ = std::io::stdout().flush();
    // SAFETY: ends the process.
    unsafe { libc::_exit(status) }
}

/// Watches until the process ends.
pub(crate) fn watch(bound: Duration) {
    let mut seen: Vec<(u64, Instant)> = Vec::new();
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = Instant::now();
        for (at, thread) in threads().into_iter().enumerate() {
            let count = thread.operations.load(Relaxed);
            if seen.len() <= at {
                seen.push((count, now));
            }
            if count != seen[at].0 || thread.done.load(Relaxed) {
                seen[at] = (count, now);
            } else if now - seen[at].1 > bound {
                eprintln!(
                    "stress: HANG: thread {} makes no progress for {bound:?}: {}, operation {count}",
                    thread.name,
                    thread.doing()
                );
                print_all();
                leave(STOPPED);
            }
        }
    }
}

/// What every thread does and where it is.
pub(crate) fn print_all() {
    for thread in threads() {
        let state = if thread.done.load(Relaxed) { "done" } else { thread.doing() };
        eprintln!(
            "  {:<14} tid {:<8} operation {:<8} {state}",
            thread.name,
            thread.tid,
            thread.operations.load(Relaxed)
        );
    }
    if by_debugger() {
        return;
    }
    for entry in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let read = |name: &str| std::fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        let (comm, wchan, syscall) = (read("comm"), read("wchan"), read("syscall"));
        eprintln!("-- {} {} wchan {wchan} syscall {}", entry.file_name().display(), comm.trim(), syscall.trim());
        eprint!("{}", read("stack"));
    }
    by_signal();
}

/// All stacks by gdb, if it is there and may look at us.
fn by_debugger() -> bool {
    // SAFETY: lets the child look at its parent where only descendants may be looked at.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
    let pid = std::process::id().to_string();
    // Into a file: nobody reads a pipe while the debugger holds this process.
    let path = std::env::temp_dir().join(format!("stress-stacks-{pid}"));
    let Ok(file) = std::fs::File::create(&path) else { return false };
    let ended = std::process::Command::new("gdb")
        .args(["-p", &pid, "-batch", "-nx", "-ex", "set print frame-arguments none", "-ex", "thread apply all bt 40"])
        .env_remove("LD_PRELOAD")
        .env_remove("LD_LIBRARY_PATH")
        .stdout(file)
        .stderr(std::process::Stdio::null())
        .status();
    let text = std::fs::read(&path).unwrap_or_default();
    let _ = std::fs::remove_file(&path);
    if ended.is_err() {
        return false;
    }
    let text = String::from_utf8_lossy(&text);
    let mut stacks = text.lines().skip_while(|line| !line.starts_with("Thread ")).peekable();
    if stacks.peek().is_none() {
        return false;
    }
    stacks.for_each(|line| eprintln!("{line}"));
    true
}

unsafe extern "C" {
    // Of glibc, see backtrace(3).
    fn backtrace(buffer: *mut *mut c_void, size: c_int) -> c_int;
    fn backtrace_symbols_fd(buffer: *const *mut c_void, size: c_int, fd: c_int);
}

extern "C" fn print_own_stack(_: c_int) {
    let mut frames = [std::ptr::null_mut(); 64];
    // SAFETY: writes to its own frames and to stderr; the process is about to end.
    unsafe {
        let count = backtrace(frames.as_mut_ptr(), 64);
        let line = format!("-- stack of tid {}\n", libc::gettid());
        libc::write(2, line.as_ptr().cast(), line.len());
        backtrace_symbols_fd(frames.as_ptr(), count, 2);
    }
}

/// Each watched thread prints its own stack.
fn by_signal() {
    // SAFETY: the handler only prints.
    unsafe {
        libc::signal(libc::SIGUSR2, print_own_stack as *const () as usize);
        for thread in threads().iter().filter(|t| !t.done.load(Relaxed)) {
            libc::syscall(libc::SYS_tgkill, libc::getpid(), thread.tid, libc::SIGUSR2);
            libc::usleep(200_000);
        }
    }
}

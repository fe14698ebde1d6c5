//! The job as a child: same terminal, same process group, signals passed on, its end told as env(1) would.
//!
//! What the terminal sends (Ctrl-C, Ctrl-\, Ctrl-Z) reaches the whole group, the job too, and is not passed on a second
//! time; what somebody sends to this process alone is.

use super::environment::Variables;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering};

/// Passed on to the job.
const PASSED_ON: [libc::c_int; 8] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    libc::SIGALRM,
];

static CHILD: AtomicI32 = AtomicI32::new(0);
/// The last signal that came before there was a child.
static EARLY: AtomicI32 = AtomicI32::new(0);

/// How the job ended.
pub(crate) struct Ended {
    /// Its process, if it was started.
    pub(crate) pid: Option<u32>,
    /// The exit code to pass on.
    pub(crate) code: u8,
}

/// Starts the command and waits for its end.
pub(crate) fn run(command: &OsStr, arguments: &[OsString], variables: &Variables) -> Result<Ended, String> {
    pass_signals_on();
    let mut job = Command::new(command);
    job.args(arguments).envs(variables.all());
    let mut child = match job.spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("weir run: {}: {error}", command.to_string_lossy());
            let code = match error.kind() {
                ErrorKind::NotFound => 127,
                ErrorKind::PermissionDenied => 126,
                // Not a program at all: ENOEXEC, EISDIR, ENOTDIR and their like.
                _ if error.raw_os_error().is_some() => 126,
                _ => super::OWN_FAILURE,
            };
            return Ok(Ended { pid: None, code });
        }
    };
    CHILD.store(child.id() as i32, Ordering::SeqCst);
    let early = EARLY.swap(0, Ordering::SeqCst);
    if early != 0 {
        send(child.id() as i32, early);
    }
    let status = child.wait().map_err(|error| format!("the job is lost: {error}"))?;
    CHILD.store(0, Ordering::SeqCst);
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(255);
    Ok(Ended { pid: Some(child.id()), code: code as u8 })
}

#[allow(unsafe_code)]
fn send(pid: i32, signal: i32) {
    // SAFETY: kill takes two numbers. The child has not been waited for, so its number is still its own.
    unsafe { libc::kill(pid, signal) };
}

#[allow(unsafe_code)]
extern "C" fn pass_on(signal: libc::c_int, information: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a whole siginfo to a handler that was installed with SA_SIGINFO.
    let from_kernel = unsafe { (*information).si_code } > 0;
    let child = CHILD.load(Ordering::SeqCst);
    match (from_kernel, child) {
        // A terminal's signal: the job has got it itself.
        (true, _) => {}
        (false, 0) => EARLY.store(signal, Ordering::SeqCst),
        (false, child) => send(child, signal),
    }
}

/// Signals that this process ignores already, as under nohup, stay ignored, here and in the job.
#[allow(unsafe_code)]
fn pass_signals_on() {
    for signal in PASSED_ON {
        // SAFETY: all zero is a value of this plain struct.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: the place is a live local.
        unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut before) };
        if before.sa_sigaction == libc::SIG_IGN {
            continue;
        }
        // SAFETY: as above.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = pass_on as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        // SAFETY: the action is whole; its handler makes only calls that a handler may make.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
}

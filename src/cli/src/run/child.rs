//! The job as a child: same terminal, same process group, signals passed on, its exit code as env(1) has it.
//!
//! What the terminal sends (Ctrl-C, Ctrl-\, Ctrl-Z) reaches the whole group, the job too, and is not passed on a second
//! time; what somebody sends to this process alone is.

use super::environment::Variables;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command};
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

/// The job's process; 0 while there is none.
static CHILD: AtomicI32 = AtomicI32::new(0);

/// How the job ended.
pub(crate) struct Ended {
    /// Its process, if it was started.
    pub(crate) pid: Option<u32>,
    /// The exit code to pass on.
    pub(crate) code: u8,
}

/// Starts the command and waits for its end.
pub(crate) fn run(command: &OsStr, arguments: &[OsString], variables: &Variables) -> Result<Ended, String> {
    let mut job = Command::new(command);
    job.args(arguments).envs(variables.all());
    let mut child = match spawn(&mut job) {
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
    let status = child.wait().map_err(|error| format!("the job is lost: {error}"))?;
    CHILD.store(0, Ordering::SeqCst);
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(255);
    Ok(Ended { pid: Some(child.id()), code: code as u8 })
}

/// Starts the job and passes signals on from then on.
///
/// Signals that come meanwhile wait, here and in the child, until each can do what is right with them: here, there is a
/// job to pass them on to; there, the handlers of this process are gone. Stop signals do not wait. The job is made by
/// fork, and not as posix_spawn would, by vfork: behind a child that was stopped before its exec, this process could not
/// be stopped, and a shell would wait for it.
#[allow(unsafe_code)]
fn spawn(job: &mut Command) -> std::io::Result<Child> {
    let before = mask(libc::SIG_BLOCK, &set_of(&PASSED_ON));
    let handled = handle_signals();
    let in_child = move || {
        for signal in &handled {
            // SAFETY: the default action needs no handler.
            unsafe { libc::signal(*signal, libc::SIG_DFL) };
        }
        mask(libc::SIG_SETMASK, &before);
        Ok(())
    };
    // SAFETY: it makes only calls that are safe between fork and exec, and allocates nothing.
    let child = unsafe { job.pre_exec(in_child) }.spawn();
    if let Ok(child) = &child {
        CHILD.store(child.id() as i32, Ordering::SeqCst);
    }
    mask(libc::SIG_SETMASK, &before);
    child
}

#[allow(unsafe_code)]
fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: all zero is a value of this plain type, and is then made an empty set.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is a live local, and the numbers are signals.
    unsafe {
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
    }
    set
}

/// Changes which signals wait; what it was before.
#[allow(unsafe_code)]
fn mask(how: libc::c_int, set: &libc::sigset_t) -> libc::sigset_t {
    // SAFETY: all zero is a value of this plain type.
    let mut before: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: both are live, and the call fails only for a bad `how`.
    unsafe { libc::pthread_sigmask(how, &raw const *set, &raw mut before) };
    before
}

#[allow(unsafe_code)]
extern "C" fn pass_on(signal: libc::c_int, information: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a whole siginfo to a handler that was installed with SA_SIGINFO.
    let from_kernel = unsafe { (*information).si_code } > 0;
    let child = CHILD.load(Ordering::SeqCst);
    // A terminal's signal has reached the job itself.
    if !from_kernel && child != 0 {
        // SAFETY: kill takes two numbers. The child has not been waited for, so its number is still its own.
        unsafe { libc::kill(child, signal) };
    }
}

/// Handles what is to be passed on. Signals that this process ignores already, as under nohup, stay ignored, here and in
/// the job. Those that are handled now.
#[allow(unsafe_code)]
fn handle_signals() -> Vec<libc::c_int> {
    let handle = |signal: &libc::c_int| {
        // SAFETY: all zero is a value of this plain struct.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: the place is a live local.
        unsafe { libc::sigaction(*signal, std::ptr::null(), &raw mut before) };
        if before.sa_sigaction == libc::SIG_IGN {
            return false;
        }
        // SAFETY: as above.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = pass_on as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        // SAFETY: the action is whole; its handler makes only calls that a handler may make.
        unsafe { libc::sigaction(*signal, &raw const action, std::ptr::null_mut()) };
        true
    };
    PASSED_ON.into_iter().filter(handle).collect()
}

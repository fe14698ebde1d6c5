//! Members of a group on one shared device, killed and stopped at random moments: whatever the device shows, the sum is
//! never above the group's cap, and at the end all of it can be had again.

use crate::actor::{Actor, capacity};
use crate::note::Note;
use crate::op::{Shape, generate, generator};
use crate::run::{Terms, start};
use crate::witness;
use std::process::ExitCode;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use weir_tests::rng::Rng;

/// Stopped members at a time. One that is stopped inside a call of the virtual GPU holds up the others until it goes on.
const STOPPED: usize = 2;

struct Member {
    pid: i32,
    stopped: bool,
}

fn fork(body: impl FnOnce() -> u8) -> i32 {
    // SAFETY: this process has one thread and has not used CUDA; the child never returns.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the member ends with whoever started it, and without it.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::_exit(i32::from(body()))
        }
    }
    child
}

fn wait(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: a child's id, and a live place.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } != pid {}
    status
}

fn signal(pid: i32, signal: i32) {
    // SAFETY: a child that was not waited for: its id is nobody else's.
    unsafe { libc::kill(pid, signal) };
}

/// Looks at the whole device.
fn look(note: &Note, cap: u64) {
    let now = witness::everybody();
    note.looks.fetch_add(1, SeqCst);
    note.most.fetch_max(now, SeqCst);
    if now > cap {
        note.above.fetch_add(1, SeqCst);
        if note.reported().is_none() {
            note.say(&format!("above: {now} bytes of a cap of {cap}; a moment later {}", witness::holders()));
        }
    }
}

fn member(note: &'static Note, terms: Terms, seed: u64, shape: &Shape) -> u8 {
    let primary = start();
    let mut actor = Actor::new(terms.world(note, true, true), 0, primary, None);
    let mut rng = generator(seed);
    loop {
        for op in generate(rng.next(), 200, terms.cap, shape).ops {
            actor.act(0, op);
            look(note, terms.cap);
        }
    }
}

/// Takes what it can and returns how much that was.
fn all_of_it(note: &'static Note, terms: Terms) -> u64 {
    note.at[1].store(0, SeqCst);
    wait(fork(|| {
        start();
        note.at[1].store((capacity(terms.cap) >> 20) as u32, SeqCst);
        0
    }));
    u64::from(note.at[1].load(SeqCst)) << 20
}

pub(crate) fn storm(cap: u64, kills: u64, seed: u64, members: usize, shape: &Shape) -> ExitCode {
    let (note, terms) = (Note::new(), Terms::from_environment(cap));
    let mut rng = generator(seed);
    let whole = all_of_it(note, terms);
    let watcher = fork(|| {
        loop {
            look(note, cap);
            std::thread::sleep(Duration::from_micros(30));
        }
    });
    let begin = |rng: &mut Rng| {
        let seed = rng.next();
        Member { pid: fork(|| member(note, terms, seed, shape)), stopped: false }
    };
    let mut living: Vec<Member> = (0..members).map(|_| begin(&mut rng)).collect();
    let (mut killed, mut stops, mut wrong) = (0, 0, String::new());
    while killed < kills && wrong.is_empty() {
        std::thread::sleep(Duration::from_micros(rng.below(8000)));
        let at = rng.below(members as u64) as usize;
        let stopped = living.iter().filter(|member| member.stopped).count();
        match rng.below(4) {
            0 if stopped < STOPPED && !living[at].stopped => {
                signal(living[at].pid, libc::SIGSTOP);
                living[at].stopped = true;
                stops += 1;
            }
            0 | 1 => {
                for member in living.iter_mut().filter(|member| member.stopped) {
                    signal(member.pid, libc::SIGCONT);
                    member.stopped = false;
                }
            }
            _ => {
                signal(living[at].pid, libc::SIGKILL);
                let status = wait(living[at].pid);
                if !libc::WIFSIGNALED(status) || libc::WTERMSIG(status) != libc::SIGKILL {
                    wrong = note.reported().unwrap_or_else(|| format!("a member ended with status {status:#x}"));
                }
                living[at] = begin(&mut rng);
                killed += 1;
            }
        }
    }
    for pid in living.iter().map(|member| member.pid).chain([watcher]) {
        signal(pid, libc::SIGKILL);
        wait(pid);
    }
    let again = all_of_it(note, terms);
    let above = note.above.load(SeqCst);
    let good = wrong.is_empty() && above == 0 && whole > 0 && again == whole;
    println!(
        "{}",
        serde_json::json!({
            "kills": killed, "stops": stops, "done": note.done.load(SeqCst), "refused": note.refused.load(SeqCst),
            "looks": note.looks.load(SeqCst), "above": above, "most": note.most.load(SeqCst), "cap": cap,
            "whole": whole, "again": again, "wrong": if wrong.is_empty() { note.reported().unwrap_or_default() } else { wrong },
        })
    );
    ExitCode::from(u8::from(!good))
}

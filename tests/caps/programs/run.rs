//! One program in a process of its own, from its first CUDA call to the proof that nothing is left.

use crate::actor::{Actor, OK, World, at_once, capacity, reported};
use crate::driver::cu::*;
use crate::note::Note;
use crate::op::{Program, What};
use crate::peer::Peer;
use crate::witness;
use std::ptr::null_mut;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use weir_cuda::CUcontext;

/// A watchdog, far beyond what any program needs.
const PATIENCE: u32 = 120;

/// What the environment says of the cap.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) cap: u64,
    spills: bool,
    fragments: bool,
}

impl Terms {
    pub(crate) fn from_environment(cap: u64) -> Self {
        let is = |name: &str, word: &str| std::env::var(name).is_ok_and(|value| value.contains(word));
        Self { cap, spills: is("WEIR_ON_CAP", "spill"), fragments: is("WEIR_POOL", "novmm") }
    }

    pub(crate) fn world(self, note: &'static Note, alone: bool, shared: bool) -> World {
        let Self { cap, spills, fragments } = self;
        World { note, cap, spills, fragments, alone, shared }
    }
}

/// How a program ended.
pub(crate) enum Ended {
    Well,
    /// The kind of failure, a colon, and more.
    Badly(String),
}

/// Runs a program in a process forked for it.
pub(crate) fn in_process(program: &Program, terms: Terms, note: &'static Note, quietly: bool) -> Ended {
    note.clear();
    // SAFETY: this process has one thread and has not used CUDA; the child never returns.
    let child = unsafe { libc::fork() };
    if child == 0 {
        if quietly {
            hush();
        }
        body(program, terms, note);
    }
    let mut status = 0;
    // SAFETY: the child's id, and a live place.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } != child {}
    if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
        return Ended::Well;
    }
    Ended::Badly(note.reported().unwrap_or_else(|| {
        if libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGALRM {
            format!("hang: the program did not end within {PATIENCE} s")
        } else if libc::WIFSIGNALED(status) {
            format!("died: by signal {}", libc::WTERMSIG(status))
        } else {
            format!("died: with exit status {}", libc::WEXITSTATUS(status))
        }
    }))
}

fn hush() {
    // SAFETY: plain calls on descriptors of this process.
    unsafe {
        let nowhere = libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY);
        libc::dup2(nowhere, 2);
    }
}

/// Starts the driver.
pub(crate) fn start() -> CUcontext {
    let mut primary = null_mut();
    assert_eq!(cuInit(0), OK, "cuInit");
    assert_eq!(cuDevicePrimaryCtxRetain(&raw mut primary, 0), OK, "cuDevicePrimaryCtxRetain");
    assert_eq!(cuCtxSetCurrent(primary), OK, "cuCtxSetCurrent");
    primary
}

fn body(program: &Program, terms: Terms, note: &'static Note) -> ! {
    // SAFETY: ends this process if it hangs.
    unsafe { libc::alarm(PATIENCE) };
    let lends = |what: What| matches!(what, What::PeerImport | What::PeerOpen);
    let peer = program.ops.iter().any(|op| lends(op.what)).then(Peer::start);
    let primary = start();
    let threads = usize::from(program.threads());
    let world = terms.world(note, threads == 1, false);
    // What a process can have that has done nothing yet.
    let (whole, before) = (capacity(terms.cap), reported());
    let mut peer = peer;
    let mut only = None;
    if threads == 1 {
        let mut actor = Actor::new(world, 0, primary, peer.take());
        for (at, op) in program.ops.iter().enumerate() {
            actor.act(at, *op);
        }
        actor.rest();
        actor.room_at_rest(actor.most());
        actor.finish();
        only = Some(actor);
    } else {
        let primary = primary as usize;
        let (meet, segment, known) = (Barrier::new(threads), AtomicU64::new(0), AtomicU64::new(0));
        let (meet, segment, known) = (&meet, &segment, &known);
        std::thread::scope(|scope| {
            for me in 0..threads {
                let peer = if me == 0 { peer.take() } else { None };
                scope.spawn(move || {
                    let mut actor = Actor::new(world, me, primary as CUcontext, peer);
                    for (at, op) in program.ops.iter().enumerate().filter(|(_, op)| usize::from(op.thread) == me) {
                        actor.act(at, *op);
                    }
                    // A block of one thread may lie in a segment that was made for another.
                    segment.fetch_max(actor.segment, SeqCst);
                    meet.wait();
                    actor.rest();
                    actor.segment = segment.load(SeqCst);
                    known.fetch_add(actor.most(), SeqCst);
                    if meet.wait().is_leader() {
                        actor.room_at_rest(known.load(SeqCst));
                    }
                    meet.wait();
                    actor.finish();
                });
            }
        });
    }
    // Everything is freed, and the device has not come to all of it: one wait is enough.
    if !at_once(whole) {
        note.fail(&format!(
            "refused at the end: {whole} bytes at once after everything was freed, with {} bytes taken of a cap of {}",
            witness::physical(),
            terms.cap
        ));
    }
    if let Some(actor) = &mut only {
        actor.end_contexts();
    }
    assert_eq!(cuCtxSynchronize(), OK, "cuCtxSynchronize");
    let (again, after) = (capacity(terms.cap), reported());
    if again != whole {
        note.fail(&format!("left: {again} bytes can be had at the end, {whole} at the beginning"));
    }
    if after != before {
        note.fail(&format!("left: {after:?} bytes free and in total at the end, {before:?} at the beginning"));
    }
    let most = witness::peak();
    note.most.fetch_max(most, SeqCst);
    if most > terms.cap && only.is_none() {
        note.fail(&format!("above: {most} bytes of a cap of {}", terms.cap));
    }
    // SAFETY: everything is done; what is left to do at the exit of a process is another test's subject.
    unsafe { libc::_exit(0) }
}

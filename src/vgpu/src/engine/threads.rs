//! Who runs work: threads that wait for it, the device's own thread, and the one of host functions.

use super::run::is_ready;
use super::{HOST_WORK, HostCall, Op, Point};
use crate::state::{CHANGED, Driver, State, driver, thread};
use std::ffi::c_void;
use std::time::Duration;
use weir_cuda::{CUresult, CUstream};

/// Work that nobody waits for starts after about this long.
const LAZINESS: Duration = Duration::from_micros(700);
/// Whoever waits looks again after this long: time alone ends some work.
const MOMENT: Duration = Duration::from_millis(1);
/// How long a thread sleeps that has nothing to do.
const IDLE: Duration = Duration::from_secs(3600);

impl State {
    pub(super) fn start_thread(&mut self) {
        if self.engine.thread_started {
            return;
        }
        self.engine.thread_started = true;
        for body in [device_thread, host_thread] {
            let started = std::thread::Builder::new().name("vgpu".into()).spawn(body);
            self.engine.thread_started &= started.is_ok();
        }
    }
}

/// Waits until `over` holds: runs work on this thread, and leaves host functions to the device's.
pub(crate) fn wait_until(mut state: Driver, over: impl Fn(&State) -> bool) -> Driver {
    state.engine.waiters += 1;
    while !over(&state) {
        if !state.step() {
            state.engine.notify();
            state = state.wait(&CHANGED, MOMENT);
        }
    }
    state.engine.waiters -= 1;
    state.engine.notify();
    state
}

/// Waits for the points, and remembers that the host has seen them.
pub(crate) fn wait_points(state: Driver, points: &[Point]) -> Driver {
    let mut state = wait_until(state, |s| points.iter().all(|&p| s.engine.reached(p)));
    state.engine.seen(points);
    state
}

/// Waits for all work that is queued, as a driver call may that promises nothing about it: nobody has seen it then.
pub(crate) fn wait_for_work() {
    if let Ok(state) = driver() {
        let points = state.engine.tails(|_, _| true);
        drop(wait_until(state, |s| points.iter().all(|&p| s.engine.reached(p))));
    }
}

/// Signals belong to the job's threads.
fn block_signals() {
    // SAFETY: blocks signals for this thread only.
    unsafe {
        let mut all = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}

/// The device's own thread: runs what nobody waits for.
fn device_thread() {
    block_signals();
    let Ok(mut state) = driver() else { return };
    loop {
        if !state.engine.busy() {
            state = state.wait(&CHANGED, IDLE);
            continue;
        }
        if state.engine.waiters == 0 {
            let lazy = state.engine.random() % 8;
            drop(state);
            std::thread::sleep(LAZINESS * lazy as u32 / 4);
            match driver() {
                Ok(again) => state = again,
                Err(_) => return,
            }
        }
        let burst = 1 + state.engine.random() % 64;
        let mut ran = false;
        for _ in 0..burst {
            if !state.step() {
                break;
            }
            ran = true;
        }
        state.engine.notify();
        if !ran {
            state = state.wait(&CHANGED, MOMENT);
        }
    }
}

/// Runs the host functions, outside the lock.
fn host_thread() {
    block_signals();
    let Ok(mut state) = driver() else { return };
    loop {
        let Some((stream, work)) = state.engine.choose(true, is_ready) else {
            let idle = state.engine.queued_host == 0;
            state = state.wait(&HOST_WORK, if idle { IDLE } else { MOMENT });
            continue;
        };
        if let Op::Host { call, data } = work.op {
            let result = host_result(&state, stream);
            if let Some(s) = state.engine.streams.get_mut(&stream) {
                s.running = true;
            }
            drop(state);
            call_host(call, data, result);
            match driver() {
                Ok(again) => state = again,
                Err(_) => return,
            }
        }
        state.engine.finish(stream);
        state.engine.notify();
    }
}

fn host_result(state: &State, stream: u64) -> CUresult {
    let ctx = state.engine.streams.get(&stream).map_or(0, |s| s.ctx);
    state.contexts.get(&ctx).and_then(|c| c.sticky).unwrap_or(CUresult::CUDA_SUCCESS)
}

fn call_host(call: HostCall, data: usize, result: CUresult) {
    thread::set_in_host_function(true);
    let data = data as *mut c_void;
    // SAFETY: the job gave the function and its argument for exactly this call.
    unsafe {
        match call {
            HostCall::Function(function) if result == CUresult::CUDA_SUCCESS => function(data),
            HostCall::Function(_) => {}
            HostCall::Callback(function, stream) => function(stream as CUstream, result, data),
        }
    }
    thread::set_in_host_function(false);
}

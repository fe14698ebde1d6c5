//! Work runs: its memory is checked once more, and its bytes are moved.

use super::{Extent3, Op, Plane, Source, Touches, Work};
use crate::config;
use crate::shadow;
use crate::state::State;
use crate::store::{on_device, view};
use std::time::Instant;

impl State {
    /// Runs one piece of queued work, if any may run on this thread.
    pub(crate) fn step(&mut self) -> bool {
        let Some((stream, work)) = self.engine.choose(false, is_ready) else { return false };
        self.perform(stream, &work);
        self.engine.finish(stream);
        if matches!(work.op, Op::Freed { .. }) {
            self.finish_destroyed_pools();
        }
        true
    }

    /// Runs a little work, as time passes between two queries.
    pub(crate) fn advance(&mut self) {
        let steps = self.engine.random() % 5;
        for _ in 0..steps {
            if !self.step() {
                break;
            }
        }
        if self.engine.busy() {
            self.engine.notify();
        }
    }

    fn perform(&mut self, stream: u64, work: &Work) {
        let Some(ctx) = self.engine.streams.get(&stream).map(|s| s.ctx) else { return };
        if self.contexts.get(&ctx).is_some_and(|c| c.sticky.is_some()) {
            return;
        }
        if let Touches::Known(list) = &work.touches {
            for touch in list {
                if let Err(why) = self.still(touch) {
                    if config::fault("unmap_pending") || config::fault("free_async_pending") {
                        return;
                    }
                    let what =
                        format!("{} in stream {stream:#x} touches {:#x}+{}: {why}", work.label, touch.addr, touch.len);
                    let _ = self.violation(ctx, &what);
                    return;
                }
                if touch.write {
                    self.written(touch.addr);
                }
            }
        }
        match &work.op {
            Op::Nothing | Op::Host { .. } | Op::WaitValue { .. } => {}
            Op::Copy { source, target, extent } => copy(source, *target, *extent),
            Op::Set { target, extent, value, unit } => set(*target, *extent, *value, *unit),
            Op::Kernel(launch) => self.run_kernel(ctx, launch, &work.touches),
            Op::Record { event } => {
                if let Some(e) = self.engine.events.get_mut(event) {
                    e.time = Some(Instant::now());
                }
            }
            Op::Allocated { block } => self.block_allocated(*block),
            Op::Freed { block } => self.block_freed(*block),
            Op::FreedLinear { device, addr } => self.give_linear(*device, *addr),
            Op::GraphMemory { addr, live } => self.graph_memory_ran(ctx, *addr, *live),
            Op::Publish { at, value } => crate::api::ipc_event::publish(*at, *value),
            Op::WriteValue { addr, value, wide } => {
                if has_content() {
                    // SAFETY: `still` has just found the address live, and the value's alignment was
                    // checked when it was submitted.
                    unsafe {
                        if *wide {
                            (view(*addr) as *mut u64).write_volatile(*value);
                        } else {
                            (view(*addr) as *mut u32).write_volatile(*value as u32);
                        }
                    }
                }
            }
        }
    }
}

fn has_content() -> bool {
    matches!(config::get().backing, config::Backing::Content)
}

/// Whether a wait for a value in memory, or a kernel that takes its time, is over; everything else is
/// always ready.
pub(super) fn is_ready(work: &Work) -> bool {
    if let Op::Kernel(launch) = &work.op {
        return launch.over(&work.touches);
    }
    let Op::WaitValue { addr, value, wide, flags } = &work.op else { return true };
    if !has_content() && on_device(*addr) {
        return true;
    }
    // SAFETY: the address was live when the wait was submitted, and freeing it with work pending on
    // it is a violation that is reported before the memory goes.
    let now = unsafe {
        let at = view(*addr);
        if *wide { (at as *const u64).read_volatile() } else { u64::from((at as *const u32).read_volatile()) }
    };
    match flags & 7 {
        0 if *wide => now.wrapping_sub(*value) as i64 >= 0,
        0 => (now as u32).wrapping_sub(*value as u32) as i32 >= 0,
        1 => now == *value,
        2 => now & value != 0,
        _ => !(now | value) != 0 && (*wide || !(now | value) as u32 != 0),
    }
}

fn copy(source: &Source, target: Plane, extent: Extent3) {
    let direct = |plane: Plane| has_content() || !on_device(plane.base);
    let small = extent.bytes() <= shadow::SMALL;
    let mut staged = 0usize;
    for z in 0..extent.depth {
        for y in 0..extent.height {
            let at = |plane: Plane| plane.base + z * plane.slice + y * plane.pitch;
            let to = view(at(target));
            let len = extent.width as usize;
            if !direct(target) {
                if !small {
                    shadow::forget(at(target), len as u64);
                    continue;
                }
                let mut row = vec![0; len];
                match source {
                    // SAFETY: host memory is the job's own promise, as with a real driver.
                    Source::Memory(plane) if direct(*plane) => unsafe {
                        std::ptr::copy_nonoverlapping(at(*plane) as *const u8, row.as_mut_ptr(), len);
                    },
                    Source::Memory(plane) => shadow::read(at(*plane), &mut row),
                    Source::Staged(bytes) => {
                        row.copy_from_slice(&bytes[staged..staged + len]);
                        staged += len;
                    }
                }
                shadow::write(at(target), &row);
                continue;
            }
            // SAFETY: both ranges were found live by `still` a moment ago, under the lock that every
            // free takes; host memory is the job's own promise, as with a real driver.
            unsafe {
                match source {
                    Source::Memory(plane) if direct(*plane) => {
                        let from = view(plane.base + z * plane.slice + y * plane.pitch);
                        std::ptr::copy(from as *const u8, to as *mut u8, len);
                    }
                    Source::Memory(plane) if small => {
                        shadow::read(at(*plane), std::slice::from_raw_parts_mut(to as *mut u8, len));
                    }
                    Source::Memory(_) => std::ptr::write_bytes(to as *mut u8, 0, len),
                    Source::Staged(bytes) => {
                        std::ptr::copy_nonoverlapping(bytes[staged..staged + len].as_ptr(), to as *mut u8, len);
                        staged += len;
                    }
                }
            }
        }
    }
}

/// A set of memory without backing.
fn set_without_content(target: Plane, extent: Extent3, value: u32, unit: u8) {
    let pattern = &value.to_ne_bytes()[..usize::from(unit.clamp(1, 4))];
    for z in 0..extent.depth {
        for y in 0..extent.height {
            let row = target.base + z * target.slice + y * target.pitch;
            if extent.bytes() <= shadow::SMALL {
                let bytes: Vec<u8> = pattern.iter().copied().cycle().take(extent.width as usize).collect();
                shadow::write(row, &bytes);
            } else {
                shadow::forget(row, extent.width);
            }
        }
    }
}

fn set(target: Plane, extent: Extent3, value: u32, unit: u8) {
    if !has_content() && on_device(target.base) {
        set_without_content(target, extent, value, unit);
        return;
    }
    for z in 0..extent.depth {
        for y in 0..extent.height {
            let row = view(target.base + z * target.slice + y * target.pitch);
            // SAFETY: as in `copy`; the alignment of wider units was checked at submission.
            unsafe {
                match unit {
                    1 => std::ptr::write_bytes(row as *mut u8, value as u8, extent.width as usize),
                    2 => std::slice::from_raw_parts_mut(row as *mut u16, extent.width as usize / 2).fill(value as u16),
                    _ => std::slice::from_raw_parts_mut(row as *mut u32, extent.width as usize / 4).fill(value),
                }
            }
        }
    }
}

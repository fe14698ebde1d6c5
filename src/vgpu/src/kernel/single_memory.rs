//! Runs the kernel of a single thread on the memory that its launch was found to touch.

use super::launch::Launch;
use super::single::Memory;
use crate::config::{self, Backing};
use crate::engine::{Touch, Touches};
use crate::shadow;
use crate::state::State;
use crate::store::{on_device, view};

/// What a kernel may reach, and what it will have stored when it is over.
struct Reached<'a> {
    touches: Vec<&'a Touch>,
    stored: Vec<(u64, u32, u64)>,
}

impl Reached<'_> {
    fn may(&self, at: u64, bytes: u32) -> bool {
        let end = at.checked_add(bytes.into());
        let within = |t: &&&Touch| t.addr <= at && end.is_some_and(|end| end <= t.addr + t.len);
        at.is_multiple_of(bytes.into()) && self.touches.iter().any(|touch| within(&touch))
    }
}

impl Memory for Reached<'_> {
    fn load(&mut self, at: u64, bytes: u32) -> Option<u64> {
        if !self.may(at, bytes) {
            return None;
        }
        if let Some((.., value)) = self.stored.iter().rev().find(|(to, len, _)| (*to, *len) == (at, bytes)) {
            return Some(*value);
        }
        // Part of what it stored itself: nothing that a counter or a condition does.
        let overlaps = |(to, len, _): &(u64, u32, u64)| *to < at + u64::from(bytes) && at < to + u64::from(*len);
        if self.stored.iter().any(overlaps) {
            return None;
        }
        let mut word = [0; 8];
        read(at, &mut word[..bytes as usize]);
        Some(u64::from_le_bytes(word))
    }

    fn store(&mut self, at: u64, bytes: u32, value: u64) -> Option<()> {
        self.may(at, bytes).then(|| self.stored.push((at, bytes, value)))
    }
}

fn has_content(at: u64) -> bool {
    matches!(config::get().backing, Backing::Content) || !on_device(at)
}

fn read(at: u64, out: &mut [u8]) {
    if has_content(at) {
        // SAFETY: within memory that the launch touches, which was just found live, under the lock that every free and
        // unmap takes.
        unsafe { std::ptr::copy_nonoverlapping(view(at) as *const u8, out.as_mut_ptr(), out.len()) };
    } else {
        shadow::read(at, out);
    }
}

fn write(at: u64, bytes: &[u8]) {
    if has_content(at) {
        // SAFETY: as for `read`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), view(at) as *mut u8, bytes.len()) };
    } else {
        shadow::write(at, bytes);
    }
}

impl State {
    /// Computes a kernel of one thread, if it can be; all others do nothing.
    pub(super) fn run_single(&self, ctx: u64, launch: &Launch, touches: &Touches) {
        let (Some(program), Touches::Known(list)) = (&launch.entry.program, touches) else { return };
        if launch.geometry.grid != [1; 3] || launch.geometry.block != [1; 3] || config::fault("nothing_computed") {
            return;
        }
        let touches = list.iter().filter(|touch| self.mapping_allows(ctx, touch)).collect();
        let mut reached = Reached { touches, stored: Vec::new() };
        if program.run(&launch.arguments, &mut reached).is_some() {
            for (at, bytes, value) in reached.stored {
                write(at, &value.to_le_bytes()[..bytes as usize]);
            }
        }
    }
}

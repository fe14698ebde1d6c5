//! Arrays and mipmaps. Their size is known for sure only once they exist: an upper bound is reserved, then corrected.
//!
//! Small ones share chunks with other small things at addresses that the driver does not report. Two chunks are reserved for
//! each. What they take is then measured by the driver's figure for this process, between none and two chunks each,
//! and never counted as less than their bytes. Where that is not sure, because something else takes or gives memory at the
//! same time or small blocks may share the chunks, an array keeps its two chunks until it is destroyed.

use super::watch::{Change, Watch};
use super::{Caps, PAGE, lock, on};
use crate::driver::guards::current;
use crate::driver::real::{self, done};
use std::collections::HashMap;
use weir_cuda::*;
use weir_ledger::{Category, Urgency};

/// Arrays up to this size share chunks.
const SMALL: u64 = 1 << 20;
/// A bound is at most so many times what an array really takes: where texels are taken for larger than they are.
const LOOSE: u64 = 32;
/// The most that a small array can take.
const SMALL_COST: u64 = 2 * PAGE;
/// Memory comes later, by mappings of the job's own handles.
pub(crate) const WITHOUT_MEMORY: u32 = 0x40 | 0x80;

#[derive(Clone, Copy)]
struct Array {
    ordinal: i32,
    ctx: u64,
    bytes: u64,
    /// What it costs; `None`: its part of what small ones take together.
    cost: Option<u64>,
}

/// What the small arrays of a device take together, as far as it was measured.
#[derive(Default)]
struct Together {
    count: u64,
    bytes: u64,
    charged: u64,
    /// Further small ones, with two chunks each.
    apart: u64,
}

/// The job's arrays.
#[derive(Default)]
pub(crate) struct Arrays {
    live: HashMap<u64, Array>,
    /// Went with their contexts, whose ends have not returned in other threads; their handles are others' by now.
    displaced: Vec<Array>,
    small: HashMap<i32, Together>,
}

/// An upper bound for the bytes of an array with so many levels.
pub(crate) fn bound(d: &CUDA_ARRAY3D_DESCRIPTOR, levels: u32) -> u64 {
    let channel = match d.Format.0 {
        1 | 8 => 1,
        2 | 9 | 16 => 2,
        3 | 10 | 32 => 4,
        // Packed, planar and compressed formats: no texel takes more.
        _ => 16,
    };
    let pitch =
        (d.Width as u64).saturating_mul(channel * u64::from(d.NumChannels.max(1))).div_ceil(64).saturating_mul(64);
    let one = pitch.saturating_mul(d.Height.max(1) as u64).saturating_mul(d.Depth.max(1) as u64);
    // All further levels together are at most as large as the first: half a side, but at least one row of 64 bytes.
    if levels > 1 { one.saturating_mul(2).saturating_add(u64::from(levels) * 64 * d.Depth.max(1) as u64) } else { one }
}

/// Makes an array in the current context. `size_of` queries how large it became, `undo` destroys it again.
pub(crate) fn create(
    bound: u64,
    flags: u32,
    call: impl FnOnce() -> CUresult,
    made: impl FnOnce() -> u64,
    size_of: impl FnOnce(u64, i32) -> Option<u64>,
    undo: impl FnOnce(u64),
) -> CUresult {
    let Some((caps, at)) = on().and_then(|caps| Some((caps, caps.here()?))) else { return call() };
    if flags & WITHOUT_MEMORY != 0 {
        return call();
    }
    let most = bound.next_multiple_of(PAGE).max(SMALL_COST);
    let reservation = match caps.admit(at, most, Category::Array, Urgency::Normal) {
        Ok(reservation) => reservation,
        Err(code) => return code,
    };
    let watch = Watch::begin(caps, at.0, bound <= LOOSE * SMALL);
    let result = call();
    if result != CUresult::CUDA_SUCCESS {
        caps.commit_or_roll_back(at, reservation, Category::Array, None);
        return result;
    }
    let handle = made();
    let bytes = size_of(handle, at.0.ordinal).unwrap_or(bound).max(1);
    let mut array = Array { ordinal: at.0.ordinal, ctx: current(), bytes, cost: None };
    if bytes <= SMALL {
        let grown = watch.grown(caps, at.0).filter(|_| !caps.linear.moves());
        let mut arrays = lock(&caps.arrays);
        let together = arrays.small.entry(array.ordinal).or_default();
        let alone = together.apart == 0 && !caps.linear.shares();
        if let Some(grown) = grown.filter(|_| alone) {
            let more = together.enter(bytes, u64::try_from(grown).unwrap_or(0));
            arrays.enter(handle, array);
            caps.commit_or_roll_back(at, reservation, Category::Array, Some(more));
            return result;
        }
        together.apart += 1;
        array.cost = Some(SMALL_COST);
    } else {
        array.cost = Some(bytes.next_multiple_of(PAGE));
    }
    let cost = array.cost.unwrap_or(0);
    // Larger than it could have been foreseen: is there room for the rest?
    let rest = cost.saturating_sub(reservation.bytes());
    if rest > 0 {
        let Ok(more) = caps.admit_more(at, rest, Category::Array) else {
            undo(handle);
            caps.commit_or_roll_back(at, reservation, Category::Array, None);
            lock(&caps.arrays).not_apart(&array);
            return CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        };
        caps.ledger.commit(more);
    }
    caps.commit_or_roll_back(at, reservation, Category::Array, Some(cost - rest));
    lock(&caps.arrays).enter(handle, array);
    result
}

/// Destroys an array.
pub(crate) fn destroy(handle: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(caps) = on() else { return call() };
    // Before the call: then the driver may give the handle to another one.
    let Some(array) = lock(&caps.arrays).live.remove(&handle) else { return call() };
    let watched = caps.device(array.ordinal).filter(|_| array.cost.is_none());
    let watched = watched.map(|device| (device, Watch::begin(caps, device, true)));
    let _change = watched.is_none().then(Change::begin);
    let result = call();
    if result != CUresult::CUDA_SUCCESS {
        lock(&caps.arrays).live.insert(handle, array);
        return result;
    }
    let came = watched.as_ref().and_then(|(device, watch)| watch.grown(caps, device)?.checked_neg());
    let came = came.filter(|_| !caps.linear.moves()).and_then(|came| u64::try_from(came).ok());
    lock(&caps.arrays).gone(caps, &array, came.unwrap_or(0));
    result
}

impl Together {
    /// One more, which took so much physically; returns what is charged on top.
    fn enter(&mut self, bytes: u64, taken: u64) -> u64 {
        (self.count, self.bytes) = (self.count + 1, self.bytes + bytes);
        let charged = self.charged + taken.next_multiple_of(PAGE).min(SMALL_COST);
        let charged = charged.max(self.bytes.next_multiple_of(PAGE));
        charged - std::mem::replace(&mut self.charged, charged)
    }

    /// One less, of which so much is known to have come free physically; returns what comes off.
    fn leave(&mut self, bytes: u64, came_free: u64) -> u64 {
        (self.count, self.bytes) = (self.count.saturating_sub(1), self.bytes.saturating_sub(bytes));
        let left = self.charged.saturating_sub((came_free / PAGE * PAGE).min(SMALL_COST));
        // None of them lies in more than two chunks, and all of them lie somewhere.
        let left = left.max(self.bytes.next_multiple_of(PAGE)).min(SMALL_COST * self.count).min(self.charged);
        std::mem::replace(&mut self.charged, left) - left
    }
}

impl Arrays {
    /// The most that small ones take on a device.
    pub(super) fn small(&self, ordinal: i32) -> u64 {
        self.small.get(&ordinal).map_or(0, |together| together.charged + together.apart * SMALL_COST)
    }

    /// By how much small ones may take more than is charged for them, because they lie in what was taken for code.
    pub(super) fn lacking(&self, ordinal: i32) -> u64 {
        self.small.get(&ordinal).map_or(0, |together| (SMALL_COST * together.count).saturating_sub(together.charged))
    }

    /// Enters an array that the driver has just made.
    fn enter(&mut self, handle: u64, array: Array) {
        self.displaced.extend(self.live.insert(handle, array));
    }

    fn gone(&mut self, caps: &Caps, array: &Array, came_free: u64) -> u64 {
        let free = match array.cost {
            Some(cost) => {
                self.not_apart(array);
                cost
            }
            None => self.small.entry(array.ordinal).or_default().leave(array.bytes, came_free),
        };
        caps.release(array.ordinal, Category::Array, free);
        free
    }

    /// An array with a charge of its own is gone.
    fn not_apart(&mut self, array: &Array) {
        if array.bytes <= SMALL {
            let together = self.small.entry(array.ordinal).or_default();
            together.apart = together.apart.saturating_sub(1);
        }
    }

    /// A context is gone with its arrays; returns the most that they took beyond what comes off the account.
    pub(super) fn context_gone(&mut self, caps: &Caps, ctx: u64) -> u64 {
        let mut beyond = 0;
        for array in self.of_context(ctx) {
            let free = self.gone(caps, &array, 0);
            if array.cost.is_none() {
                beyond += SMALL_COST.saturating_sub(free);
            }
        }
        beyond
    }

    /// Takes a context's arrays off the table.
    fn of_context(&mut self, ctx: u64) -> Vec<Array> {
        let mut of_it: Vec<Array> = self.displaced.extract_if(.., |array| array.ctx == ctx).collect();
        of_it.extend(self.live.extract_if(|_, array| array.ctx == ctx).map(|(_, array)| array));
        of_it
    }
}

/// The bytes that an array really has.
pub(crate) fn size_of_array(handle: u64, ordinal: i32) -> Option<u64> {
    let mut requirements = CUDA_ARRAY_MEMORY_REQUIREMENTS::default();
    // SAFETY: the place is a live local, the array was just made.
    done(unsafe { real::cuArrayGetMemoryRequirements(&raw mut requirements, handle as CUarray, ordinal) }).ok()?;
    Some(requirements.size as u64)
}

/// The bytes that a mipmapped array really has.
pub(crate) fn size_of_mipmap(handle: u64, ordinal: i32) -> Option<u64> {
    let mut requirements = CUDA_ARRAY_MEMORY_REQUIREMENTS::default();
    // SAFETY: as above.
    done(unsafe {
        real::cuMipmappedArrayGetMemoryRequirements(&raw mut requirements, handle as CUmipmappedArray, ordinal)
    })
    .ok()?;
    Some(requirements.size as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_made_again_while_a_context_ends_loses_no_array() {
        let of = |ctx| Array { ordinal: 0, ctx, bytes: SMALL, cost: Some(SMALL_COST) };
        let mut arrays = Arrays::default();
        arrays.enter(7, of(1));
        // The driver has ended context 1 and makes an array of context 2 with the same handle before that call returns.
        arrays.enter(7, of(2));
        assert_eq!(arrays.of_context(1).len(), 1, "what the first is charged with comes off");
        assert_eq!(arrays.live.len(), 1);
        assert_eq!(arrays.of_context(2).len(), 1);
        assert_eq!((arrays.live.len(), arrays.displaced.len()), (0, 0));
    }
}

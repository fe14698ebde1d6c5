//! Arrays and mipmaps. Their size is known for sure only once they exist: an upper bound is reserved, then corrected.
//!
//! Small ones share portions with other small things at addresses that nobody is told. What they take is therefore
//! measured by the driver's own figure, between none and two portions each, and never told as less than their bytes.

use super::{Caps, PAGE, lock, on};
use crate::served::quiet::{Relaxed, current};
use crate::served::real::{self, done};
use std::collections::HashMap;
use weir_cuda::*;
use weir_ledger::{Category, Urgency};

/// Arrays up to this size share portions.
const SMALL: u64 = 1 << 20;
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

/// What the small arrays of a device take together.
#[derive(Default)]
struct Together {
    count: u64,
    bytes: u64,
    charged: u64,
}

/// The job's arrays.
#[derive(Default)]
pub(crate) struct Arrays {
    live: HashMap<u64, Array>,
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

fn driver_free() -> Option<u64> {
    let _relaxed = Relaxed::enter();
    let (mut free, mut total) = (0, 0);
    // SAFETY: both places are live locals.
    done(unsafe { real::cuMemGetInfo_v2(&raw mut free, &raw mut total) }).ok().map(|()| free as u64)
}

/// Makes an array in the current context. `size_of` asks the driver how large it became, `undo` takes it away again.
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
    let most = if bound <= SMALL { SMALL_COST } else { bound.next_multiple_of(PAGE) };
    let reservation = match caps.admit(at, most, Category::Array, Urgency::Normal) {
        Ok(reservation) => reservation,
        Err(code) => return code,
    };
    let mut arrays = lock(&caps.arrays);
    let before = driver_free();
    let result = call();
    if result != CUresult::CUDA_SUCCESS {
        caps.settle(at, reservation, Category::Array, None);
        return result;
    }
    let handle = made();
    let bytes = size_of(handle, at.0.ordinal).unwrap_or(bound).max(1);
    let mut array = Array { ordinal: at.0.ordinal, ctx: current(), bytes, cost: None };
    let cost = if bytes > SMALL {
        bytes.next_multiple_of(PAGE)
    } else if caps.linear.shares() {
        SMALL_COST
    } else {
        let taken = before.zip(driver_free()).map_or(SMALL_COST, |(before, after)| before.saturating_sub(after));
        let together = arrays.small.entry(array.ordinal).or_default();
        (together.count, together.bytes) = (together.count + 1, together.bytes + bytes);
        let charged = together.charged + taken.next_multiple_of(PAGE).min(SMALL_COST);
        let charged = charged.max(together.bytes.next_multiple_of(PAGE));
        let more = charged - std::mem::replace(&mut together.charged, charged);
        arrays.live.insert(handle, array);
        caps.settle(at, reservation, Category::Array, Some(more));
        return result;
    };
    // Larger than it could have been foreseen: is there room for the rest?
    let rest = cost.saturating_sub(reservation.bytes());
    if rest > 0 {
        let Ok(more) = caps.admit_more(at, rest, Category::Array) else {
            undo(handle);
            caps.settle(at, reservation, Category::Array, None);
            return CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        };
        caps.ledger.commit(more);
    }
    caps.settle(at, reservation, Category::Array, Some(cost - rest));
    array.cost = Some(cost);
    arrays.live.insert(handle, array);
    result
}

/// Destroys an array.
pub(crate) fn destroy(handle: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(caps) = on() else { return call() };
    let mut arrays = lock(&caps.arrays);
    let Some(array) = arrays.live.get(&handle).copied() else {
        drop(arrays);
        return call();
    };
    let before = driver_free();
    let result = call();
    if result == CUresult::CUDA_SUCCESS {
        arrays.live.remove(&handle);
        let came = before.zip(driver_free()).map_or(0, |(before, after)| after.saturating_sub(before));
        arrays.gone(caps, &array, came);
    }
    result
}

impl Arrays {
    fn gone(&mut self, caps: &Caps, array: &Array, came_free: u64) {
        let free = if let Some(cost) = array.cost {
            cost
        } else {
            let together = self.small.entry(array.ordinal).or_default();
            together.count = together.count.saturating_sub(1);
            together.bytes = together.bytes.saturating_sub(array.bytes);
            let left = if together.count == 0 {
                0
            } else {
                let left = together.charged.saturating_sub((came_free / PAGE * PAGE).min(SMALL_COST));
                left.max(together.bytes.next_multiple_of(PAGE)).min(together.charged)
            };
            std::mem::replace(&mut together.charged, left) - left
        };
        caps.release(array.ordinal, Category::Array, free);
    }

    /// A context is gone with its arrays.
    pub(super) fn context_gone(&mut self, caps: &Caps, ctx: u64) {
        let handles: Vec<u64> = self.live.iter().filter(|(_, array)| array.ctx == ctx).map(|(h, _)| *h).collect();
        for handle in handles {
            if let Some(array) = self.live.remove(&handle) {
                self.gone(caps, &array, 0);
            }
        }
    }
}

/// The bytes that an array really has.
pub(crate) fn size_of_array(handle: u64, ordinal: i32) -> Option<u64> {
    let mut told = CUDA_ARRAY_MEMORY_REQUIREMENTS::default();
    // SAFETY: the place is a live local, the array was just made.
    done(unsafe { real::cuArrayGetMemoryRequirements(&raw mut told, handle as CUarray, ordinal) }).ok()?;
    Some(told.size as u64)
}

/// The bytes that a mipmapped array really has.
pub(crate) fn size_of_mipmap(handle: u64, ordinal: i32) -> Option<u64> {
    let mut told = CUDA_ARRAY_MEMORY_REQUIREMENTS::default();
    // SAFETY: as above.
    done(unsafe { real::cuMipmappedArrayGetMemoryRequirements(&raw mut told, handle as CUmipmappedArray, ordinal) })
        .ok()?;
    Some(told.size as u64)
}

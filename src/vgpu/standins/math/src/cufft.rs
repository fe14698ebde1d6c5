//! cuFFT: plans and the size of their work area.
//!
//! Model: the work area holds the transform once, as complex numbers.

use crate::answers::put;
use core::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

const VERSION: [c_int; 3] = [11, 2, 3];
/// The types that compute in double precision: D2Z, Z2D, Z2Z.
const DOUBLE: [c_uint; 3] = [0x6a, 0x6c, 0x69];

fn plan() -> c_int {
    static NEXT: AtomicI32 = AtomicI32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The handle that a plan is, apart from those of other libraries, which are addresses.
fn handle(plan: c_int) -> usize {
    1 << 63 | plan as u32 as usize
}

/// Transforms: work in the stream of the plan. What follows the plan is not looked at.
macro_rules! transforms {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(plan: c_int) -> crate::answers::Status {
            weir_vgpu_client::trace::called(stringify!($name));
            // SAFETY: a plan's stream is one of the context that is current when it is used.
            unsafe { crate::device::work_of(handle(plan)) };
            0
        }
    )*};
}

transforms! {
    cufftExecC2C
    cufftExecC2R
    cufftExecD2Z
    cufftExecR2C
    cufftExecZ2D
    cufftExecZ2Z
    cufftXtExec
    cufftXtExecDescriptor
    cufftXtExecDescriptorC2C
    cufftXtExecDescriptorC2R
    cufftXtExecDescriptorD2Z
    cufftXtExecDescriptorR2C
    cufftXtExecDescriptorZ2D
    cufftXtExecDescriptorZ2Z
}

fn area(lengths: &[i64], kind: c_uint, batch: i64) -> usize {
    let complex = if DOUBLE.contains(&kind) { 16 } else { 8 };
    lengths
        .iter()
        .fold((batch.max(1) as usize).saturating_mul(complex), |size, &n| size.saturating_mul(n.max(1) as usize))
}

/// # Safety
/// `lengths` is a list of so many.
unsafe fn list<T: Copy + Into<i64>>(lengths: *const T, rank: c_int) -> Vec<i64> {
    // SAFETY: as promised.
    (0..rank.max(0) as usize).map(|at| unsafe { *lengths.add(at) }.into()).collect()
}

library! {
    /// Sets the stream.
    fn cufftSetStream(plan: c_int, stream: *mut c_void) { crate::device::set_stream(handle(plan), stream); }
    /// Makes a plan without a transform.
    fn cufftCreate(place: *mut c_int) { put(place, plan()); }
    /// Makes a plan in one dimension.
    fn cufftPlan1d(place: *mut c_int, _n: c_int, _kind: c_uint, _batch: c_int) { put(place, plan()); }
    /// Makes a plan in two dimensions.
    fn cufftPlan2d(place: *mut c_int, _x: c_int, _y: c_int, _kind: c_uint) { put(place, plan()); }
    /// Makes a plan in three dimensions.
    fn cufftPlan3d(place: *mut c_int, _x: c_int, _y: c_int, _z: c_int, _kind: c_uint) { put(place, plan()); }
    /// Makes a plan for a batch.
    fn cufftPlanMany(place: *mut c_int) { put(place, plan()); }
    /// Gives a plan a transform in one dimension.
    fn cufftMakePlan1d(_plan: c_int, n: c_int, kind: c_uint, batch: c_int, size: *mut usize) {
        put(size, area(&[n.into()], kind, batch.into()));
    }
    /// Gives a plan a transform in two dimensions.
    fn cufftMakePlan2d(_plan: c_int, x: c_int, y: c_int, kind: c_uint, size: *mut usize) {
        put(size, area(&[x.into(), y.into()], kind, 1));
    }
    /// Gives a plan a transform in three dimensions.
    fn cufftMakePlan3d(_plan: c_int, x: c_int, y: c_int, z: c_int, kind: c_uint, size: *mut usize) {
        put(size, area(&[x.into(), y.into(), z.into()], kind, 1));
    }
    /// Gives a plan transforms for a batch.
    fn cufftMakePlanMany(
        _plan: c_int, rank: c_int, n: *const c_int, _in: *const c_int, _in_stride: c_int, _in_distance: c_int,
        _out: *const c_int, _out_stride: c_int, _out_distance: c_int, kind: c_uint, batch: c_int, size: *mut usize,
    ) { put(size, area(&list(n, rank), kind, batch.into())); }
    /// The same with large numbers.
    fn cufftMakePlanMany64(
        _plan: c_int, rank: c_int, n: *const i64, _in: *const i64, _in_stride: i64, _in_distance: i64,
        _out: *const i64, _out_stride: i64, _out_distance: i64, kind: c_uint, batch: i64, size: *mut usize,
    ) { put(size, area(&list(n, rank), kind, batch)); }
    /// The library's version.
    fn cufftGetVersion(version: *mut c_int) { put(version, VERSION[0] * 1000 + VERSION[1] * 100 + VERSION[2]); }
    /// A part of the version.
    fn cufftGetProperty(which: c_uint, value: *mut c_int) { put(value, crate::cublas::property(VERSION, which)?); }
}

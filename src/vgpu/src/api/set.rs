//! Memory sets.

use crate::engine::{Extent3, Op, Plane, Touches, wait_points};
use crate::error::*;
use crate::memory::{Kind, Toucher};
use crate::state::driver;
use weir_cuda::*;

/// What is set: rows of `width` units, `pitch` bytes apart.
struct Rows {
    addr: u64,
    pitch: usize,
    width: usize,
    height: usize,
    unit: u8,
    value: u32,
}

fn set(label: &'static str, rows: &Rows, stream: Option<CUstream>) -> R {
    let mut s = driver()?;
    let (ctx, device) = s.current_device()?;
    let unit = u64::from(rows.unit);
    if !rows.addr.is_multiple_of(unit) || (rows.height > 1 && !(rows.pitch as u64).is_multiple_of(unit)) {
        return Err(INVALID_VALUE);
    }
    let waits = stream.is_none();
    let stream = s.stream(stream.unwrap_or(std::ptr::null_mut()))?;
    if rows.width == 0 || rows.height == 0 {
        return Ok(());
    }
    let width = (rows.width as u64).checked_mul(unit).ok_or(INVALID_VALUE)?;
    if rows.height > 1 && (rows.pitch as u64) < width {
        return Err(INVALID_VALUE);
    }
    let executing = s.engine.streams.get(&stream).map_or(device, |st| st.device);
    let mut list = Vec::new();
    if rows.height == 1 || rows.pitch as u64 == width {
        let len = width.checked_mul(rows.height as u64).ok_or(INVALID_VALUE)?;
        s.touch(&mut list, rows.addr, len, true, Toucher::Engine(executing))?;
    } else {
        for y in 0..rows.height as u64 {
            s.touch(&mut list, rows.addr + y * rows.pitch as u64, width, true, Toucher::Engine(executing))?;
        }
    }
    // Only memory that the driver knows can be set.
    let kind = s.extent(rows.addr).ok_or(INVALID_VALUE)?.kind;
    if kind == Kind::Managed {
        s.attract(rows.addr, device);
    }
    let op = Op::Set {
        target: Plane { base: rows.addr, pitch: rows.pitch as u64, slice: 0 },
        extent: Extent3 { width, height: rows.height as u64, depth: 1 },
        value: rows.value,
        unit: rows.unit,
    };
    if waits {
        s.refuse_unsafe_call()?;
    }
    let number = s.submit(stream, label, op, Touches::Known(list))?;
    // A set of device memory may return early; of host memory it does not.
    if waits && matches!(kind, Kind::Pinned | Kind::Registered | Kind::Managed) {
        let s = wait_points(s, &[(stream, number)]);
        s.usable(ctx)?;
    }
    Ok(())
}

macro_rules! sets {
    ($($one:ident $one_async:ident $two:ident $two_async:ident $ty:ty, $unit:literal;)*) => {
        $(
            pub(crate) unsafe fn $one(dst_device: CUdeviceptr, value: $ty, n: usize) -> R {
                let rows = Rows { addr: dst_device, pitch: 0, width: n, height: 1, unit: $unit, value: u32::from(value) };
                set(stringify!($one), &rows, None)
            }

            pub(crate) unsafe fn $one_async(dst_device: CUdeviceptr, value: $ty, n: usize, h_stream: CUstream) -> R {
                let rows = Rows { addr: dst_device, pitch: 0, width: n, height: 1, unit: $unit, value: u32::from(value) };
                set(stringify!($one_async), &rows, Some(h_stream))
            }

            pub(crate) unsafe fn $two(
                dst_device: CUdeviceptr,
                dst_pitch: usize,
                value: $ty,
                width: usize,
                height: usize,
            ) -> R {
                let rows = Rows { addr: dst_device, pitch: dst_pitch, width, height, unit: $unit, value: u32::from(value) };
                set(stringify!($two), &rows, None)
            }

            pub(crate) unsafe fn $two_async(
                dst_device: CUdeviceptr,
                dst_pitch: usize,
                value: $ty,
                width: usize,
                height: usize,
                h_stream: CUstream,
            ) -> R {
                let rows = Rows { addr: dst_device, pitch: dst_pitch, width, height, unit: $unit, value: u32::from(value) };
                set(stringify!($two_async), &rows, Some(h_stream))
            }
        )*
    };
}

sets! {
    cuMemsetD8_v2 cuMemsetD8Async cuMemsetD2D8_v2 cuMemsetD2D8Async c_uchar, 1;
    cuMemsetD16_v2 cuMemsetD16Async cuMemsetD2D16_v2 cuMemsetD2D16Async c_ushort, 2;
    cuMemsetD32_v2 cuMemsetD32Async cuMemsetD2D32_v2 cuMemsetD2D32Async c_uint, 4;
}

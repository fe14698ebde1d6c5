//! Arrays: memory that the job reaches only by copies, laid out in rows.

use crate::error::*;
use weir_cuda::{CUDA_ARRAY3D_DESCRIPTOR, CUarray_format};

/// An array, or one level of a mipmapped one.
#[derive(Clone, Copy)]
pub(crate) struct Array {
    pub(crate) ctx: u64,
    pub(crate) device: usize,
    pub(crate) descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    pub(crate) addr: u64,
    pub(crate) id: u64,
    pub(crate) layout: Layout,
    /// Levels of a mipmapped array; 0 for a plain one.
    pub(crate) levels: u32,
    /// The mipmapped array that owns this level's bytes; 0 for one with bytes of its own.
    pub(crate) parent: u64,
}

/// Rows and slices of an array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) element: u64,
    pub(crate) pitch: u64,
    pub(crate) slice: u64,
    pub(crate) bytes: u64,
    pub(crate) rows: u64,
    pub(crate) slices: u64,
}

/// Bytes of one channel.
fn channel(format: CUarray_format) -> Option<u64> {
    match format.0 {
        0x01 | 0x08 => Some(1),
        0x02 | 0x09 | 0x10 => Some(2),
        0x03 | 0x0a | 0x20 => Some(4),
        _ => None,
    }
}

/// The layout of an array, if its description is legal.
pub(crate) fn layout(d: &CUDA_ARRAY3D_DESCRIPTOR) -> R<Layout> {
    let element = channel(d.Format).ok_or(INVALID_VALUE)? * u64::from(d.NumChannels);
    if !matches!(d.NumChannels, 1 | 2 | 4) || d.Width == 0 {
        return Err(INVALID_VALUE);
    }
    let layered = d.Flags & 1 != 0;
    if d.Depth > 0 && d.Height == 0 && !layered {
        return Err(INVALID_VALUE);
    }
    if d.Width > 131_072 || d.Height > 131_072 || d.Depth > 16_384 {
        return Err(INVALID_VALUE);
    }
    let cube = d.Flags & 4 != 0;
    if cube && (d.Width != d.Height || d.Depth == 0 || !d.Depth.is_multiple_of(6) || (!layered && d.Depth != 6)) {
        return Err(INVALID_VALUE);
    }
    let rows = d.Height.max(1) as u64;
    let slices = d.Depth.max(1) as u64;
    let pitch = (d.Width as u64 * element).next_multiple_of(64);
    let slice = pitch * rows;
    let bytes = slice.checked_mul(slices).ok_or(INVALID_VALUE)?;
    Ok(Layout { element, pitch, slice, bytes, rows, slices })
}

/// The description of a level of a mipmapped array.
pub(crate) fn level(d: &CUDA_ARRAY3D_DESCRIPTOR, level: u32) -> CUDA_ARRAY3D_DESCRIPTOR {
    let shrink = |n: usize| if n == 0 { 0 } else { (n >> level).max(1) };
    let layered = d.Flags & 1 != 0;
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: shrink(d.Width),
        Height: shrink(d.Height),
        Depth: if layered { d.Depth } else { shrink(d.Depth) },
        ..*d
    }
}

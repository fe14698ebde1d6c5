//! What TensorFlow says about the operation that a thread is running: name, step, region, data type and shape.
//!
//! TensorFlow keeps it per thread for its own profiler and restores it at the end of each scope, so it is valid while a
//! call of TensorFlow's is under way, which an allocation is. Up to 2.19 its texts are C strings, from 2.20 on they are
//! `std::string_view`; which, is known from the constructor that the library exports, and still each layout is first read
//! through the kernel, many times, before it is read directly. What does not fit is never looked at again.

use super::loaded::{Loaded, symbol};
use super::shape;
use crate::frameworks::memory::{Careful, Direct, Memory, Trust};
use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};

const ACCESS: &CStr = c"_ZN3tsl8profiler27ScopedMemoryDebugAnnotation27ThreadMemoryDebugAnnotationEv";
/// The constructor with everything, as both generations export it.
const WITH_VIEWS: &CStr = c"_ZN3tsl8profiler27ScopedMemoryDebugAnnotationC2ESt17basic_string_viewIcSt11char_traitsIcEElS5_iOSt8functionIFNSt7__cxx1112basic_stringIcS4_SaIcEEEvEE";
const WITH_POINTERS: &CStr = c"_ZN3tsl8profiler27ScopedMemoryDebugAnnotationC2EPKclS3_iOSt8functionIFNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEvEE";

type Access = unsafe extern "C-unwind" fn() -> usize;

/// Offsets of one generation.
#[derive(Clone, Copy, Debug)]
struct Layout {
    views: bool,
    op: usize,
    step: usize,
    region: usize,
    dtype: usize,
    shape: usize,
}

const POINTERS: Layout = Layout { views: false, op: 0, step: 8, region: 16, dtype: 24, shape: 32 };
const VIEWS: Layout = Layout { views: true, op: 0, step: 16, region: 24, dtype: 40, shape: 48 };

/// 0 unknown, 1 pointers, 2 views.
static GENERATION: AtomicUsize = AtomicUsize::new(0);
/// TensorFlow's function, in each library that has one: which of two is in use depends on the order of loading.
static ACCESSORS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
static TRUST: Trust = Trust::new();

/// Longest name believed.
const LONGEST_NAME: usize = 4096;
const LONGEST_REGION: usize = 64;
/// TensorFlow's data types end well below; references add 100.
const MOST_DTYPE: i32 = 200;

/// The annotation of the calling thread. Texts are valid until the hook returns.
#[derive(Clone, Copy)]
pub(crate) struct Annotation<'a> {
    /// The operation's name, not empty.
    pub(crate) op: &'a [u8],
    /// Region, such as `output` or `temp`; may be empty.
    pub(crate) region: &'a [u8],
    /// TensorFlow's number of the step.
    pub(crate) step: i64,
    /// TensorFlow's number of the data type.
    pub(crate) dtype: u32,
    /// Where the shape can be read.
    pub(crate) shape: Option<shape::ShapeFunction>,
}

/// Takes the functions from the libraries that are loaded.
pub(crate) fn begin(loaded: &Loaded) {
    if GENERATION.load(Ordering::Acquire) != 0 {
        return;
    }
    let generation = match loaded.framework {
        handle if symbol(handle, WITH_VIEWS) != 0 => 2,
        handle if symbol(handle, WITH_POINTERS) != 0 => 1,
        _ => return,
    };
    #[cfg(feature = "fault-injection")]
    let generation = if crate::process::fault::is_set("annotation:other") { 3 - generation } else { generation };
    let found = [symbol(loaded.framework, ACCESS), symbol(loaded.main, ACCESS)];
    for (place, address) in ACCESSORS.iter().zip(found) {
        place.store(address, Ordering::Release);
    }
    GENERATION.store(generation, Ordering::Release);
}

/// What the calling thread is doing; `None` outside TensorFlow's operations.
#[inline]
pub(crate) fn here() -> Option<Annotation<'static>> {
    let layout = match GENERATION.load(Ordering::Acquire) {
        1 => POINTERS,
        2 => VIEWS,
        _ => return None,
    };
    #[cfg(feature = "fault-injection")]
    let layout = layout.mistaken();
    if TRUST.is_refused() {
        return None;
    }
    for accessor in &ACCESSORS {
        let address = accessor.load(Ordering::Relaxed);
        if address == 0 {
            continue;
        }
        // SAFETY: it is a function without arguments that returns the address of the thread's annotation.
        let at = unsafe { core::mem::transmute::<usize, Access>(address)() };
        if TRUST.is_earned() {
            // SAFETY: the layout has been seen to fit often enough.
            let found = read(&unsafe { Direct::new() }, at, layout);
            if let Ok(Some(annotation)) = found {
                return Some(annotation);
            }
        } else {
            match read(&Careful, at, layout) {
                Ok(None) => {}
                Ok(Some(annotation)) if is_sound(&annotation) => {
                    TRUST.confirm();
                    return Some(annotation);
                }
                _ => {
                    TRUST.refuse();
                    return None;
                }
            }
        }
    }
    None
}

/// What was read cannot be what was expected.
#[derive(Debug)]
struct Misfit;

/// The annotation at `at`; `None`: no operation is running.
#[inline(always)]
fn read(memory: &impl Memory, at: usize, layout: Layout) -> Result<Option<Annotation<'static>>, Misfit> {
    let Some(op) = text(memory, at + layout.op, layout.views, LONGEST_NAME)? else {
        return Ok(None);
    };
    let region = text(memory, at + layout.region, layout.views, LONGEST_REGION)?.unwrap_or_default();
    let dtype = memory.int(at + layout.dtype).ok_or(Misfit)?;
    if op.is_empty() {
        return Ok(None);
    }
    if !(0..MOST_DTYPE).contains(&dtype) {
        return Err(Misfit);
    }
    let step = memory.word(at + layout.step).ok_or(Misfit)? as i64;
    let shape = shape::place(memory, at + layout.shape);
    Ok(Some(Annotation { op, region, step, dtype: dtype as u32, shape }))
}

/// The text that is kept at `at`; `None` for a null pointer.
#[inline(always)]
fn text(memory: &impl Memory, at: usize, view: bool, longest: usize) -> Result<Option<&'static [u8]>, Misfit> {
    let first = memory.word(at).ok_or(Misfit)?;
    let (start, length) = if view {
        let start = memory.word(at + 8).ok_or(Misfit)?;
        if start == 0 || first == 0 {
            return Ok(None);
        }
        // One read at each end: a text that short spans two pages at most.
        let mut probe = [0; 1];
        if first > longest || !memory.bytes(start, &mut probe) || !memory.bytes(start + first - 1, &mut probe) {
            return Err(Misfit);
        }
        (start, first)
    } else if first == 0 {
        (0, 0)
    } else {
        (first, terminated(memory, first, longest).ok_or(Misfit)?)
    };
    // SAFETY: both ends are readable, or each byte was seen; no third page can lie between two ends.
    Ok((start != 0).then(|| unsafe { core::slice::from_raw_parts(start as *const u8, length) }))
}

/// The length of the C string at `start`; `None` if it is not one of a sane length.
#[inline(always)]
fn terminated(memory: &impl Memory, start: usize, longest: usize) -> Option<usize> {
    const PAGE: usize = 4096;
    let mut at = start;
    // Page by page: a string may end just before memory that is not there.
    while at - start <= longest {
        let mut probe = [0; 1];
        if !memory.bytes(at, &mut probe) {
            return None;
        }
        let rest = PAGE - at % PAGE;
        // SAFETY: the rest of a page is readable if its first byte is.
        let length = unsafe { libc::strnlen(at as *const core::ffi::c_char, rest) };
        at += length;
        if length < rest {
            return (at - start <= longest).then_some(at - start);
        }
    }
    None
}

/// Whether this reads like an annotation: names in plain characters.
fn is_sound(annotation: &Annotation) -> bool {
    let plain = |text: &[u8]| text.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
    plain(annotation.op) && plain(annotation.region) && annotation.op.iter().any(u8::is_ascii_alphabetic)
}

#[cfg(feature = "fault-injection")]
impl Layout {
    /// The layout with a mistake: `WEIR_FAULT=annotation:FIELD:BYTES` moves one offset.
    fn mistaken(mut self) -> Self {
        let list = std::env::var("WEIR_FAULT").unwrap_or_default();
        for mistake in list.split(',').filter_map(|fault| fault.strip_prefix("annotation:")) {
            let Some((field, bytes)) = mistake.split_once(':') else { continue };
            let place = match field {
                "op" => &mut self.op,
                "step" => &mut self.step,
                "region" => &mut self.region,
                "dtype" => &mut self.dtype,
                "shape" => &mut self.shape,
                _ => continue,
            };
            *place = place.wrapping_add_signed(bytes.parse().unwrap_or(0));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointers(op: &CStr, region: *const core::ffi::c_char, dtype: u64) -> [u64; 10] {
        let mut words = [0; 10];
        (words[0], words[1], words[2], words[3]) = (op.as_ptr() as u64, 7, region as u64, dtype);
        words
    }

    fn views(op: &str, region: &str, dtype: u64) -> [u64; 10] {
        let (op, region) = (op.as_bytes(), region.as_bytes());
        [op.len() as u64, op.as_ptr() as u64, 7, region.len() as u64, region.as_ptr() as u64, dtype, 0, 0, 0, 0]
    }

    #[test]
    fn both_generations_are_read_and_neither_passes_for_the_other() {
        let old = pointers(c"dense/MatMul", c"output".as_ptr(), 1);
        let new = views("dense/MatMul", "output", 1);
        for (words, right, wrong) in [(&old, POINTERS, VIEWS), (&new, VIEWS, POINTERS)] {
            let at = words.as_ptr() as usize;
            let Ok(Some(found)) = read(&Careful, at, right) else { panic!("not read") };
            assert_eq!((found.op, found.region, found.step, found.dtype), (&b"dense/MatMul"[..], &b"output"[..], 7, 1));
            assert!(is_sound(&found));
            assert!(read(&Careful, at, wrong).is_err());
        }
    }

    #[test]
    fn no_operation_is_no_mistake_and_nonsense_is_one() {
        let nothing = [0_u64; 10];
        for layout in [POINTERS, VIEWS] {
            assert!(matches!(read(&Careful, nothing.as_ptr() as usize, layout), Ok(None)));
            assert!(read(&Careful, 64, layout).is_err());
        }
        let wild = pointers(c"x", 0x1234_0000 as *const _, 1);
        assert!(read(&Careful, wild.as_ptr() as usize, POINTERS).is_err());
        let dtype = pointers(c"x", core::ptr::null(), 0xffff);
        assert!(read(&Careful, dtype.as_ptr() as usize, POINTERS).is_err());
        let binary = views("\u{1}\u{2}abc", "", 1);
        let Ok(Some(found)) = read(&Careful, binary.as_ptr() as usize, VIEWS) else { panic!("not read") };
        assert!(!is_sound(&found));
    }
}

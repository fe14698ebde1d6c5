//! The shape of the tensor that is being allocated.
//!
//! TensorFlow keeps a `std::function<std::string()>` beside the annotation, which prints the shape. Calling it allocates,
//! so it is called only to learn what a function prints: nearly all of them hold a pointer to a `TensorShape`, whose
//! short forms are sixteen bytes that can be read at once. A function whose text agreed with those bytes a number of
//! times is read from then on; one that did not is left alone. It is called at all only if it lies in TensorFlow's code.

use crate::frameworks::cache::{mix, mix_text};
use crate::frameworks::memory::{Careful, Direct, Memory};
use crate::process::elf;
use core::fmt::Write;
use core::sync::atomic::{AtomicU64, Ordering};

/// A shape that can be read.
#[derive(Clone, Copy)]
pub(crate) struct ShapeFunction {
    /// The function object: what it holds, in two words.
    object: usize,
    /// The first of them: in a function that holds a reference, the address of the shape.
    held: usize,
    invoke: usize,
}

/// The shape's text, in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Text {
    bytes: [u8; 64],
    length: usize,
}

impl Text {
    const fn empty() -> Self {
        Self { bytes: [0; 64], length: 0 }
    }

    /// The text; empty where the shape is not known.
    pub(crate) fn as_str(&self) -> &str {
        core::str::from_utf8(self.bytes.get(..self.length).unwrap_or_default()).unwrap_or_default()
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let place = self.bytes.get_mut(self.length..self.length + text.len()).ok_or(core::fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

/// Where the shape of an annotation can be read; `at` is the address of its `std::function`.
#[inline(always)]
pub(crate) fn place(memory: &impl Memory, at: usize) -> Option<ShapeFunction> {
    let (held, manage, invoke) = (memory.word(at)?, memory.word(at + 16)?, memory.word(at + 24)?);
    (manage != 0 && invoke != 0).then_some(ShapeFunction { object: at, held, invoke })
}

/// What is known of a function that prints: the low 48 bits are its address, the rest how often it agreed.
static KNOWN: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
const ADDRESS: u64 = (1 << 48) - 1;
const AGREED: u64 = 1 << 48;
const ENOUGH: u64 = 16;
/// It prints nothing, or something else.
const NEVER: u64 = 0xffff;

impl ShapeFunction {
    fn known(&self) -> Option<&'static AtomicU64> {
        let start = mix(0, self.invoke as u64) as usize;
        for step in 0..KNOWN.len() {
            let slot = KNOWN.get((start + step) % KNOWN.len())?;
            let now = slot.load(Ordering::Relaxed);
            let free =
                now == 0 && slot.compare_exchange(0, self.invoke as u64, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            if free || slot.load(Ordering::Relaxed) & ADDRESS == self.invoke as u64 {
                return Some(slot);
            }
        }
        None
    }

    /// A number that differs where the shape does, and the text for when it is needed. 0: not known.
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        let Some(slot) = self.known() else { return 0 };
        match slot.load(Ordering::Relaxed) >> 48 {
            NEVER => 0,
            ENOUGH => {
                let mut words = [0; 16];
                // SAFETY: this function was seen to hold a reference to a shape, which lives as long as the annotation.
                let direct = unsafe { Direct::new() };
                if !self.held.is_multiple_of(8) || !direct.bytes(self.held, &mut words) {
                    0
                } else {
                    mix_text(1, &words)
                }
            }
            _ => mix_text(1, self.text().as_str().as_bytes()),
        }
    }

    /// The shape as TensorFlow prints it, such as `[8,64,64,3]`.
    pub(crate) fn text(&self) -> Text {
        let Some(slot) = self.known() else { return Text::empty() };
        let so_far = slot.load(Ordering::Relaxed) >> 48;
        if so_far == NEVER {
            return Text::empty();
        }
        let mut bytes = [0; 16];
        let read = if Careful.bytes(self.held, &mut bytes) { decode(&bytes) } else { None };
        if so_far == ENOUGH {
            return read.unwrap_or_else(Text::empty);
        }
        let said = self.ask();
        match (read, said) {
            (Some(read), Some(said)) if read == said => {
                let _ = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
                    (now >> 48 < ENOUGH).then(|| now + AGREED)
                });
                read
            }
            // A form that is not read; the text is right all the same.
            (None, Some(said)) if said.length > 2 => said,
            _ => {
                slot.store(NEVER << 48 | self.invoke as u64, Ordering::Relaxed);
                Text::empty()
            }
        }
    }

    /// Calls TensorFlow's function. Allocates inside TensorFlow.
    fn ask(&self) -> Option<Text> {
        if !is_tensorflow(self.invoke) {
            return None;
        }
        type Invoke = unsafe extern "C-unwind" fn(*mut [usize; 4], usize) -> *mut [usize; 4];
        let mut string = [0_usize; 4];
        // SAFETY: the address lies in TensorFlow's code, where a `std::function<std::string()>` of a live annotation
        // keeps its invoker; it takes the place of the result and the function object, and returns a std::string:
        // data, length, and sixteen bytes for short texts.
        let text = unsafe {
            core::mem::transmute::<usize, Invoke>(self.invoke)(&raw mut string, self.object);
            let [data, length, ..] = string;
            let mut text = Text::empty();
            let short = data == (&raw const string) as usize + 16;
            if length <= text.bytes.len() && Careful.bytes(data, text.bytes.get_mut(..length)?) {
                text.length = length;
            }
            if !short && data != 0 {
                libc::free(data as *mut core::ffi::c_void);
            }
            text
        };
        Some(text)
    }
}

/// Whether an address lies in one of TensorFlow's libraries. Takes the loader's lock.
fn is_tensorflow(address: usize) -> bool {
    elf::object_at(address)
        .is_some_and(|(_, object)| object.soname().is_some_and(|name| name.to_bytes().starts_with(b"libtensorflow")))
}

/// The text of the shape at an address, and whether the number of elements that follows it agrees; `None` for forms
/// that are not read.
pub(crate) fn read(memory: &impl Memory, at: usize) -> Option<(Text, bool)> {
    let (mut bytes, mut count) = ([0; 16], [0; 8]);
    if !memory.bytes(at, &mut bytes) || !memory.bytes(at.checked_add(16)?, &mut count) {
        return None;
    }
    let mut elements = Some(1_u64);
    for size in dimensions(&bytes)? {
        elements = elements.and_then(|so_far| so_far.checked_mul(size?.into()));
    }
    Some((decode(&bytes)?, elements == Some(u64::from_le_bytes(count))))
}

/// The sizes in the short forms of a shape: up to six dimensions of 16 bits, or three of 32. Byte 14 counts them, byte 15
/// is the form. A size may be unknown.
fn dimensions(bytes: &[u8; 16]) -> Option<impl Iterator<Item = Option<u32>>> {
    let (count, form) = (bytes[14], bytes[15]);
    let (wide, most, unknown) = match form {
        0 => (2, 6, u32::from(u16::MAX)),
        1 => (4, 3, u32::MAX),
        _ => return None,
    };
    let size = move |dimension: &[u8]| {
        let mut word = [0; 4];
        word.get_mut(..wide)?.copy_from_slice(dimension);
        Some(u32::from_le_bytes(word)).filter(|size| *size != unknown)
    };
    (count <= most).then(|| bytes.chunks_exact(wide).take(count.into()).map(size))
}

/// The text of a short form of which every size is known.
fn decode(bytes: &[u8; 16]) -> Option<Text> {
    let mut text = Text::empty();
    text.write_str("[").ok()?;
    for (place, size) in dimensions(bytes)?.enumerate() {
        write!(text, "{}{}", if place == 0 { "" } else { "," }, size?).ok()?;
    }
    text.write_str("]").ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(dimensions: &[u8], count: u8, form: u8) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..dimensions.len()].copy_from_slice(dimensions);
        (bytes[14], bytes[15]) = (count, form);
        bytes
    }

    #[test]
    fn short_forms_are_read() {
        let text = |bytes: &[u8; 16]| decode(bytes).map(|text| text.as_str().to_owned());
        assert_eq!(text(&shape(&[8, 0, 64, 0, 0, 1], 3, 0)).as_deref(), Some("[8,64,256]"));
        assert_eq!(text(&shape(&[0, 0, 1, 0, 3], 2, 1)).as_deref(), Some("[65536,3]"));
        assert_eq!(text(&shape(&[], 0, 0)).as_deref(), Some("[]"));
        assert_eq!(text(&shape(&[1], 7, 0)), None);
        assert_eq!(text(&shape(&[1], 1, 2)), None);
        assert_eq!(text(&shape(&[0xff, 0xff], 1, 0)), None);
    }

    #[test]
    fn a_shape_fits_the_number_of_its_elements() {
        let at = |elements: u64| {
            let mut bytes = [0; 24];
            bytes[..16].copy_from_slice(&shape(&[8, 0, 64, 0, 0, 1], 3, 0));
            bytes[16..].copy_from_slice(&elements.to_le_bytes());
            bytes
        };
        for (elements, fits) in [(8 * 64 * 256, true), (8 * 64, false)] {
            let bytes = at(elements);
            let Some((text, found)) = read(&Careful, bytes.as_ptr() as usize) else { panic!("not read") };
            assert_eq!((text.as_str(), found), ("[8,64,256]", fits));
        }
        assert_eq!(read(&Careful, 64), None);
    }

    #[test]
    fn a_function_outside_tensorflow_is_never_called() {
        let words = [0x40_usize, 0, 1, shape as *const () as usize];
        let Some(place) = place(&Careful, words.as_ptr() as usize) else { panic!("no function") };
        assert_eq!(place.text(), Text::empty());
        assert_eq!((place.hash(), place.known().map(|slot| slot.load(Ordering::Relaxed) >> 48)), (0, Some(NEVER)));
    }
}

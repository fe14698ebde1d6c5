//! Python's texts and bytes, copied out through the kernel: whatever the object really is, reading it ends well.

use super::layout::{BYTES_DATA, OBJECT_SIZE, OBJECT_TYPE, TEXT_STATE};
use crate::frameworks::memory::{Careful, Memory};

/// Longest name kept; of a longer one the end, which says more of a path.
const LONGEST: usize = 1024;

/// A copied text.
pub(crate) struct Text {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Text {
    /// The text.
    pub(crate) fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..self.length).unwrap_or_default();
        match core::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                core::str::from_utf8(bytes.get(..error.valid_up_to()).unwrap_or_default()).unwrap_or_default()
            }
        }
    }

    fn push(&mut self, character: char) -> bool {
        let mut coded = [0; 4];
        let coded = character.encode_utf8(&mut coded).as_bytes();
        match self.bytes.get_mut(self.length..self.length + coded.len()) {
            Some(place) => {
                place.copy_from_slice(coded);
                self.length += coded.len();
                true
            }
            None => false,
        }
    }
}

fn is_a(object: usize, kind: usize) -> Option<bool> {
    Some(Careful.word(object.checked_add(OBJECT_TYPE)?)? == kind)
}

/// Copies a `str`; `kind` is the address of its type. `None` if it is none, or has no content.
pub(crate) fn read(object: usize, kind: usize, headers: (usize, usize)) -> Option<Text> {
    if !is_a(object, kind)? {
        return None;
    }
    let length = Careful.word(object.checked_add(OBJECT_SIZE)?)?;
    let state = Careful.int(object.checked_add(TEXT_STATE)?)?;
    let (width, compact, ascii) = ((state >> 2 & 7) as usize, state >> 5 & 1 == 1, state >> 6 & 1 == 1);
    if !compact || !matches!(width, 1 | 2 | 4) || length == 0 || length > 1 << 20 {
        return None;
    }
    let mut start = object.checked_add(if ascii { headers.0 } else { headers.1 })?;
    let kept = length.min(LONGEST / if ascii { 1 } else { 4 });
    start = start.checked_add((length - kept) * width)?;
    let mut text = Text { bytes: [0; LONGEST], length: 0 };
    if ascii {
        if !Careful.bytes(start, text.bytes.get_mut(..kept)?) {
            return None;
        }
        text.length = kept;
        return text.bytes.get(..kept)?.iter().all(|byte| (1..128).contains(byte)).then_some(text);
    }
    for place in 0..kept {
        let mut unit = [0; 4];
        if !Careful.bytes(start + place * width, unit.get_mut(..width)?) {
            return None;
        }
        text.push(char::from_u32(u32::from_le_bytes(unit)).unwrap_or(char::REPLACEMENT_CHARACTER));
    }
    Some(text)
}

/// Where the content of a `bytes` is, and how long.
pub(crate) fn bytes(object: usize, kind: usize) -> Option<(usize, usize)> {
    let size = Careful.word(object.checked_add(OBJECT_SIZE)?)?;
    (is_a(object, kind)? && size < 1 << 24).then_some((object.checked_add(BYTES_DATA)?, size))
}

/// Bytes one after the other, fetched in pieces.
pub(crate) struct Stream {
    at: usize,
    left: usize,
    piece: [u8; 256],
    used: usize,
    have: usize,
    broken: bool,
}

impl Stream {
    /// `size` bytes at `at`.
    pub(crate) fn new(at: usize, size: usize) -> Self {
        Self { at, left: size, piece: [0; 256], used: 0, have: 0, broken: false }
    }

    /// The next byte.
    pub(crate) fn next(&mut self) -> Option<u8> {
        if self.used == self.have {
            let want = self.left.min(self.piece.len());
            if want == 0 || self.broken {
                return None;
            }
            self.broken = !Careful.bytes(self.at, self.piece.get_mut(..want)?);
            if self.broken {
                return None;
            }
            (self.at, self.left, self.used, self.have) = (self.at + want, self.left - want, 0, want);
        }
        let byte = self.piece.get(self.used).copied();
        self.used += 1;
        byte
    }

    /// Whether the bytes were not all there.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_one_by_one_and_end_where_memory_does() {
        let data: Vec<u8> = (0..1000).map(|n| n as u8).collect();
        let mut stream = Stream::new(data.as_ptr() as usize, data.len());
        let read: Vec<u8> = core::iter::from_fn(|| stream.next()).collect();
        assert!(read == data && !stream.is_broken());
        let mut stream = Stream::new(64, 10);
        assert_eq!(stream.next(), None);
        assert!(stream.is_broken());
    }

    #[test]
    fn an_object_of_another_type_is_no_text() {
        let kind = 0x1234_5678_usize;
        let mut object = [0_usize; 12];
        object[1] = kind;
        object[2] = 3;
        object[4] = 1 << 2 | 1 << 5 | 1 << 6;
        object[6] = usize::from_le_bytes(*b"a.py\0\0\0\0");
        let address = object.as_ptr() as usize;
        assert_eq!(read(address, kind, (48, 72)).map(|t| t.as_str().to_owned()).as_deref(), Some("a.p"));
        assert!(read(address, kind + 1, (48, 72)).is_none());
        assert!(read(64, kind, (48, 72)).is_none());
        object[4] = 2 << 2 | 1 << 5;
        object[9] = 0x0041_0416;
        object[2] = 2;
        assert_eq!(
            read(object.as_ptr() as usize, kind, (48, 72)).map(|t| t.as_str().to_owned()).as_deref(),
            Some("ЖA")
        );
    }
}

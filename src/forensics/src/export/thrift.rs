//! The little of Thrift's compact protocol that Parquet's own structures need. Pure.

/// A struct being written. Fields must come in ascending order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Struct {
    bytes: Vec<u8>,
    last: i16,
}

const BOOL_TRUE: u8 = 1;
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

fn varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

impl Struct {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn field(&mut self, number: i16, kind: u8) {
        // Numbers here are small and ascending: the difference fits into four bits.
        self.bytes.push(((number - self.last) as u8) << 4 | kind);
        self.last = number;
    }

    pub(crate) fn i32(mut self, number: i16, value: i32) -> Self {
        self.field(number, I32);
        varint(&mut self.bytes, zigzag(value.into()));
        self
    }

    pub(crate) fn i64(mut self, number: i16, value: i64) -> Self {
        self.field(number, I64);
        varint(&mut self.bytes, zigzag(value));
        self
    }

    pub(crate) fn yes(mut self, number: i16) -> Self {
        self.field(number, BOOL_TRUE);
        self
    }

    pub(crate) fn text(mut self, number: i16, text: &str) -> Self {
        self.field(number, BINARY);
        varint(&mut self.bytes, text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
        self
    }

    pub(crate) fn structure(mut self, number: i16, inner: Self) -> Self {
        self.field(number, STRUCT);
        self.bytes.extend(inner.end());
        self
    }

    fn list(&mut self, number: i16, kind: u8, length: usize) {
        self.field(number, LIST);
        if length < 15 {
            self.bytes.push((length as u8) << 4 | kind);
        } else {
            self.bytes.push(0xf0 | kind);
            varint(&mut self.bytes, length as u64);
        }
    }

    pub(crate) fn structures(mut self, number: i16, items: Vec<Self>) -> Self {
        self.list(number, STRUCT, items.len());
        for item in items {
            self.bytes.extend(item.end());
        }
        self
    }

    pub(crate) fn i32s(mut self, number: i16, items: &[i32]) -> Self {
        self.list(number, I32, items.len());
        for item in items {
            varint(&mut self.bytes, zigzag(i64::from(*item)));
        }
        self
    }

    pub(crate) fn texts(mut self, number: i16, items: &[&str]) -> Self {
        self.list(number, BINARY, items.len());
        for item in items {
            varint(&mut self.bytes, item.len() as u64);
            self.bytes.extend_from_slice(item.as_bytes());
        }
        self
    }

    /// The bytes, with the mark of the end.
    pub(crate) fn end(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

//! The little of Protocol Buffers that reading XLA's files needs: fields of a message, each a number or bytes. Pure.
//! Trusts nothing: what does not fit into its message is an error, never a panic, and nothing is copied.

/// A message that is not what it claims to be: cut short, or no message at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'file> {
    Number(u64),
    Bytes(&'file [u8]),
}

impl<'file> Value<'file> {
    /// A number; bytes are none.
    pub(super) fn number(self) -> Result<u64, Broken> {
        if let Self::Number(number) = self { Ok(number) } else { Err(Broken) }
    }

    /// A number that is an identity or a place: negative ones mean nothing.
    pub(super) fn id(self) -> Result<i64, Broken> {
        self.number().map(|number| number as i64)
    }

    /// Bytes; a number is none.
    pub(super) fn bytes(self) -> Result<&'file [u8], Broken> {
        if let Self::Bytes(bytes) = self { Ok(bytes) } else { Err(Broken) }
    }

    /// A text; what is not UTF-8 is empty.
    pub(super) fn text(self) -> Result<&'file str, Broken> {
        self.bytes().map(|bytes| core::str::from_utf8(bytes).unwrap_or_default())
    }

    /// A row of numbers: packed, or one of several fields.
    pub(super) fn numbers(self, to: &mut Vec<i64>) -> Result<(), Broken> {
        match self {
            Self::Number(number) => to.push(number as i64),
            Self::Bytes(mut rest) => {
                while !rest.is_empty() {
                    to.push(varint(&mut rest)? as i64);
                }
            }
        }
        Ok(())
    }
}

/// The fields of a message, in order, up to the first that is broken.
pub(super) fn fields(message: &[u8]) -> Fields<'_> {
    Fields { rest: message }
}

/// See [`fields`].
pub(super) struct Fields<'file> {
    rest: &'file [u8],
}

impl<'file> Iterator for Fields<'file> {
    type Item = Result<(u64, Value<'file>), Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

impl<'file> Fields<'file> {
    fn field(&mut self) -> Result<(u64, Value<'file>), Broken> {
        let key = varint(&mut self.rest)?;
        let value = match key & 7 {
            0 => Value::Number(varint(&mut self.rest)?),
            1 => Value::Number(little_endian(self.take(8)?)),
            2 => {
                let length = usize::try_from(varint(&mut self.rest)?).map_err(|_| Broken)?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Number(little_endian(self.take(4)?)),
            _ => return Err(Broken),
        };
        Ok((key >> 3, value))
    }

    fn take(&mut self, length: usize) -> Result<&'file [u8], Broken> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Broken)?;
        self.rest = rest;
        Ok(taken)
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn varint(rest: &mut &[u8]) -> Result<u64, Broken> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().ok_or(Broken)?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_published() {
        // 150 in field 1 and "testing" in field 2 are the examples of the format's own documentation.
        let found: Vec<_> = fields(b"\x08\x96\x01\x12\x07testing\x1d\x01\x02\0\0").collect();
        assert_eq!(
            found,
            [Ok((1, Value::Number(150))), Ok((2, Value::Bytes(b"testing"))), Ok((3, Value::Number(0x201)))]
        );
        let mut row = Vec::new();
        Value::Bytes(b"\x03\x8e\x02\x9e\xa7\x05").numbers(&mut row).unwrap();
        assert_eq!(row, [3, 270, 86942]);
    }

    #[test]
    fn what_does_not_fit_is_broken() {
        for broken in
            [&b"\x12\x08testing"[..], b"\x08", b"\x0b", b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", &[0xff; 20]]
        {
            assert_eq!(fields(broken).last(), Some(Err(Broken)), "{broken:?}");
        }
    }
}

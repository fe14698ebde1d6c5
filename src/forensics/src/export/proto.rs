//! The little of Protocol Buffers that writing needs: fields of varints, bytes and messages. Pure.

/// A message being written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A number; 0 is the default and not written.
    pub(crate) fn number(&mut self, field: u32, value: u64) -> &mut Self {
        if value != 0 { self.always(field, value) } else { self }
    }

    /// A number, even if it is 0.
    pub(crate) fn always(&mut self, field: u32, value: u64) -> &mut Self {
        self.varint(u64::from(field) << 3);
        self.varint(value);
        self
    }

    pub(crate) fn blob(&mut self, field: u32, bytes: &[u8]) -> &mut Self {
        self.begin(field, bytes.len()).0.extend_from_slice(bytes);
        self
    }

    /// The beginning of a field of so many bytes, which follow.
    pub(crate) fn begin(&mut self, field: u32, length: usize) -> &mut Self {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(length as u64);
        self
    }

    pub(crate) fn text(&mut self, field: u32, text: &str) -> &mut Self {
        self.blob(field, text.as_bytes())
    }

    pub(crate) fn message(&mut self, field: u32, message: &Self) -> &mut Self {
        self.blob(field, &message.0)
    }

    /// A packed row of numbers.
    pub(crate) fn numbers(&mut self, field: u32, values: impl IntoIterator<Item = u64>) -> &mut Self {
        let mut packed = Self::new();
        values.into_iter().for_each(|value| packed.varint(value));
        self.message(field, &packed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_laid_out_as_published() {
        // 150 in field 1 and "testing" in field 2 are the examples of the format's own documentation.
        let mut message = Message::new();
        message.number(1, 150).text(2, "testing").number(3, 0);
        assert_eq!(message.bytes(), b"\x08\x96\x01\x12\x07testing");
        let mut packed = Message::new();
        packed.numbers(6, [3, 270, 86942]);
        assert_eq!(packed.bytes(), b"\x32\x06\x03\x8e\x02\x9e\xa7\x05");
    }
}

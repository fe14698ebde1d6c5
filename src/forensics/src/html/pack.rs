//! Numbers on their way into the page: columns of variable-length integers, deflated, in base64.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde::Serialize;

/// How the numbers of a column were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Coding {
    /// As they are.
    Plain,
    /// The difference to the number before, zigzag: 0, -1, 1, -2 …
    Delta,
}

/// What the page must know to unpack a column.
#[derive(Clone, Debug, Serialize)]
struct Column {
    name: &'static str,
    coding: Coding,
    count: usize,
    bytes: usize,
}

/// The columns of a page.
#[derive(Debug, Default)]
pub(super) struct Columns {
    columns: Vec<Column>,
    bytes: Vec<u8>,
}

impl Columns {
    /// Adds a column of numbers that are small by themselves.
    pub(super) fn plain(&mut self, name: &'static str, numbers: impl Iterator<Item = u64>) {
        self.add(name, Coding::Plain, numbers);
    }

    /// Adds a column of numbers that are close to their other_processes.
    pub(super) fn delta(&mut self, name: &'static str, numbers: impl Iterator<Item = u64>) {
        let mut last = 0_u64;
        let differences = numbers.map(|number| {
            let difference = number.wrapping_sub(last) as i64;
            last = number;
            (difference << 1 ^ difference >> 63) as u64
        });
        self.add(name, Coding::Delta, differences);
    }

    fn add(&mut self, name: &'static str, coding: Coding, numbers: impl Iterator<Item = u64>) {
        let start = self.bytes.len();
        let mut count = 0;
        for mut number in numbers {
            while number >= 0x80 {
                self.bytes.push(number as u8 | 0x80);
                number >>= 7;
            }
            self.bytes.push(number as u8);
            count += 1;
        }
        self.columns.push(Column { name, coding, count, bytes: self.bytes.len() - start });
    }

    /// The description of the columns.
    pub(super) fn described(&self) -> impl Serialize {
        &self.columns
    }

    /// Writes all columns, deflated (zlib), in base64.
    pub(super) fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut packed = ZlibEncoder::new(Base64 { to, held: [0; 3], count: 0 }, Compression::new(6));
        packed.write_all(&self.bytes)?;
        packed.finish()?.finish()
    }
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base64 with padding, written as it comes.
struct Base64<'to> {
    to: &'to mut dyn Write,
    held: [u8; 3],
    count: usize,
}

impl Base64<'_> {
    fn digits(held: [u8; 3]) -> [u8; 4] {
        let [a, b, c] = held.map(u32::from);
        let word = a << 16 | b << 8 | c;
        [18, 12, 6, 0].map(|shift| DIGITS[(word >> shift & 63) as usize])
    }

    fn finish(self) -> io::Result<()> {
        let mut last = Self::digits(self.held);
        if self.count > 0 {
            last[self.count + 1..].fill(b'=');
            self.to.write_all(&last)?;
        }
        Ok(())
    }
}

impl Write for Base64<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut digits = Vec::with_capacity(bytes.len() / 3 * 4 + 8);
        for byte in bytes {
            self.held[self.count] = *byte;
            self.count += 1;
            if self.count == 3 {
                digits.extend(Self::digits(self.held));
                (self.held, self.count) = ([0; 3], 0);
            }
        }
        self.to.write_all(&digits)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base64(bytes: &[u8]) -> String {
        let mut text = Vec::new();
        let mut to = Base64 { to: &mut text, held: [0; 3], count: 0 };
        // In two pieces, so that the bytes held over are seen.
        let (one, two) = bytes.split_at(bytes.len() / 2);
        to.write_all(one).unwrap();
        to.write_all(two).unwrap();
        to.finish().unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn base64_is_that_of_the_standard() {
        // The examples of RFC 4648, section 10.
        for (plain, coded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }

    #[test]
    fn numbers_take_seven_bits_a_byte_and_differences_zigzag() {
        let mut columns = Columns::default();
        columns.plain("plain", [0, 127, 128, u64::MAX].into_iter());
        columns.delta("delta", [5, 4, 4, u64::MAX].into_iter());
        let (plain, delta) = columns.bytes.split_at(columns.columns[0].bytes);
        assert_eq!(plain[..4], [0, 127, 0x80, 1]);
        assert_eq!(plain.len(), 4 + 10);
        assert_eq!(delta, [10, 1, 0, 9], "the last one is 4 - 5, around the end");
        assert_eq!(columns.columns[1].count, 4);
    }
}

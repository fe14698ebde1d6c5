//! A pickle being written: protocol 4, and of its opcodes only those that PyTorch's viewer knows. Texts and lists that
//! come again are taken from the memo, so a pickle of a million events stays small.

use std::collections::HashMap;
use std::io::{self, Write};

pub(crate) struct Pickle<'w> {
    to: &'w mut dyn Write,
    texts: HashMap<String, u32>,
    memo: u32,
}

impl<'w> Pickle<'w> {
    pub(crate) fn new(to: &'w mut dyn Write) -> io::Result<Self> {
        to.write_all(&[0x80, 4])?;
        Ok(Self { to, texts: HashMap::new(), memo: 0 })
    }

    pub(crate) fn stop(self) -> io::Result<()> {
        self.to.write_all(b".")
    }

    /// A whole number, signed.
    pub(crate) fn number(&mut self, value: i64) -> io::Result<()> {
        match value {
            0..=0xff => self.to.write_all(&[b'K', value as u8]),
            0x100..=0xffff => {
                self.to.write_all(b"M")?;
                self.to.write_all(&(value as u16).to_le_bytes())
            }
            -0x8000_0000..=0x7fff_ffff => {
                self.to.write_all(b"J")?;
                self.to.write_all(&(value as i32).to_le_bytes())
            }
            _ => {
                self.to.write_all(&[0x8a, 8])?;
                self.to.write_all(&value.to_le_bytes())
            }
        }
    }

    /// A text; from the second time on, out of the memo.
    pub(crate) fn text(&mut self, text: &str) -> io::Result<()> {
        if let Some(place) = self.texts.get(text) {
            return self.again(*place);
        }
        if let Ok(length) = u8::try_from(text.len()) {
            self.to.write_all(&[0x8c, length])?;
        } else {
            self.to.write_all(b"X")?;
            self.to.write_all(&(text.len() as u32).to_le_bytes())?;
        }
        self.to.write_all(text.as_bytes())?;
        let place = self.remember()?;
        self.texts.insert(text.to_owned(), place);
        Ok(())
    }

    /// Keeps what was written last in the memo, and says where.
    pub(crate) fn remember(&mut self) -> io::Result<u32> {
        self.to.write_all(&[0x94])?;
        self.memo += 1;
        Ok(self.memo - 1)
    }

    /// What was kept there.
    pub(crate) fn again(&mut self, place: u32) -> io::Result<()> {
        if let Ok(place) = u8::try_from(place) {
            return self.to.write_all(&[b'h', place]);
        }
        self.to.write_all(b"j")?;
        self.to.write_all(&place.to_le_bytes())
    }

    pub(crate) fn truth(&mut self, value: bool) -> io::Result<()> {
        self.to.write_all(&[if value { 0x88 } else { 0x89 }])
    }

    /// A pair of numbers, as a tuple.
    pub(crate) fn pair(&mut self, first: i64, second: i64) -> io::Result<()> {
        self.number(first)?;
        self.number(second)?;
        self.to.write_all(&[0x86])
    }

    /// Begins a list; each item is followed by [`Pickle::append`].
    pub(crate) fn list(&mut self) -> io::Result<()> {
        self.to.write_all(b"]")
    }

    pub(crate) fn append(&mut self) -> io::Result<()> {
        self.to.write_all(b"a")
    }

    /// Begins a dictionary; texts and values alternate until [`Pickle::end_dict`].
    pub(crate) fn dict(&mut self) -> io::Result<()> {
        self.to.write_all(b"}(")
    }

    pub(crate) fn end_dict(&mut self) -> io::Result<()> {
        self.to.write_all(b"u")
    }

    /// A key and a number.
    pub(crate) fn entry(&mut self, key: &str, value: i64) -> io::Result<()> {
        self.text(key)?;
        self.number(value)
    }
}

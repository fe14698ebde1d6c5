//! Where the reader's bytes come from. Plain reads, never a mapping: a file that shrinks while it is read must give
//! an error, not a signal.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::layout::RECORD_WORDS;

/// Opens a plain file for reading. Anything else that has the name (a pipe, a device, a socket, a folder) is refused
/// without waiting for it and without reading from it.
pub fn open_file(path: &Path) -> io::Result<File> {
    let plain = |meta: std::fs::Metadata| {
        if meta.is_file() { Ok(()) } else { Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a plain file")) }
    };
    // Opening some devices has an effect, and a pipe's writer would be woken up: look first. What is opened in the end may
    // be another one, so it is looked at again, and not waited for.
    plain(std::fs::metadata(path)?)?;
    let file =
        File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY).open(path)?;
    plain(file.metadata()?)?;
    Ok(file)
}

/// Bytes that can be read at any place.
pub trait Source: Send + Sync + std::fmt::Debug {
    /// Reads up to `buffer.len()` bytes; fewer only at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// How many bytes there are now.
    fn size(&self) -> io::Result<u64>;
}

impl Source for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match FileExt::read_at(self, rest, offset.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn size(&self) -> io::Result<u64> {
        self.metadata().map(|meta| meta.len())
    }
}

impl Source for Vec<u8> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.len());
        let from = self.get(start..).unwrap_or_default();
        let count = from.len().min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(from) {
            *to = *from;
        }
        Ok(count)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

/// Whole words from bytes; a rest is dropped.
pub(crate) fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks().0.iter().map(|chunk| u64::from_le_bytes(*chunk))
}

/// Whole records from bytes; a rest is dropped.
pub(crate) fn records_of(bytes: &[u8]) -> impl ExactSizeIterator<Item = [u64; RECORD_WORDS]> + DoubleEndedIterator {
    bytes.as_chunks::<64>().0.iter().map(|record| {
        let words = record.as_chunks::<8>().0;
        std::array::from_fn(|word| words.get(word).map_or(0, |bytes| u64::from_le_bytes(*bytes)))
    })
}

/// Reads up to `count` words at a byte offset.
pub(crate) fn read_words(source: &dyn Source, offset: u64, count: usize) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; count * 8];
    let done = source.read_at(&mut bytes, offset)?;
    Ok(words_of(bytes.get(..done).unwrap_or_default()).collect())
}

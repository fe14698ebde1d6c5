//! What is kept of device memory without backing: the bytes of small copies, sets and computed kernels, by address. A job
//! that decides by a length or a truth on the device finds it again; whatever is larger is forgotten. Nothing follows memory
//! that is mapped elsewhere.

use crate::config;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Work on more bytes than this leaves nothing.
pub(crate) const SMALL: u64 = 64 << 10;
const LINE: u64 = 64;
/// More lines than this are not kept: 64 MiB.
const MOST: usize = 1 << 20;

type Lines = HashMap<u64, [u8; LINE as usize]>;

static KEPT: Mutex<Option<Lines>> = Mutex::new(None);

fn with<T>(act: impl FnOnce(&mut Lines) -> T) -> T {
    act(KEPT.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// The lines of a range, each with its part in the line and where that part begins in the range.
fn parts(addr: u64, len: u64) -> impl Iterator<Item = (u64, std::ops::Range<usize>, usize)> {
    (addr / LINE..(addr + len).div_ceil(LINE)).map(move |line| {
        let (from, to) = (addr.max(line * LINE), (addr + len).min((line + 1) * LINE));
        let start = line * LINE;
        (line, (from - start) as usize..(to - start) as usize, (from - addr) as usize)
    })
}

/// The bytes at an address; zeros where nothing was kept.
pub(crate) fn read(addr: u64, out: &mut [u8]) {
    with(|lines| {
        for (line, part, at) in parts(addr, out.len() as u64) {
            let to = &mut out[at..at + part.len()];
            match lines.get(&line) {
                Some(kept) => to.copy_from_slice(&kept[part]),
                None => to.fill(0),
            }
        }
    });
}

/// Keeps bytes.
pub(crate) fn write(addr: u64, bytes: &[u8]) {
    if config::fault("nothing_kept") {
        return;
    }
    with(|lines| {
        if lines.len() > MOST {
            lines.clear();
        }
        for (line, part, at) in parts(addr, bytes.len() as u64) {
            let from = &bytes[at..at + part.len()];
            lines.entry(line).or_insert([0; LINE as usize])[part].copy_from_slice(from);
        }
    });
}

/// A range was overwritten with what is not kept.
pub(crate) fn forget(addr: u64, len: u64) {
    with(|lines| {
        let (first, end) = (addr / LINE, (addr + len).div_ceil(LINE));
        if end - first > lines.len() as u64 {
            lines.retain(|line, _| !(first..end).contains(line));
        } else {
            for line in first..end {
                lines.remove(&line);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_bytes_are_kept_across_lines_and_forgotten_as_a_whole() {
        let at = 0x1100_0000_0000 + 60;
        write(at, &[1, 2, 3, 4, 5, 6, 7, 8]);
        let mut out = [9; 10];
        read(at - 1, &mut out);
        assert_eq!(out, [0, 1, 2, 3, 4, 5, 6, 7, 8, 0]);
        write(at + 2, &[7]);
        forget(at - 4096, 1 << 30);
        read(at, &mut out);
        assert_eq!(out, [0; 10]);
    }
}

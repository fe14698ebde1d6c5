//! The shared file: a header of [`HEADER`] bytes (magic, version, number of devices, boot id, sizes of the
//! devices, checksum), then a row for each process (in use, pid, start time, bytes on each device), all
//! little-endian. Each change is one aligned write, so that a process may die at any instruction. Every
//! function here expects its caller to hold the file's lock.

use super::held;
use super::process::Identity;
use crate::config::MAX_DEVICES;
use std::io;
use std::os::fd::RawFd;

const MAGIC: u64 = u64::from_le_bytes(*b"vgpushar");
const VERSION: u32 = 1;
pub(super) const HEADER: usize = 1024;
/// More living processes than this are refused.
pub(super) const MAX_ROWS: usize = 4096;

// Where things stand in the header, after the magic.
pub(super) const FORMAT: usize = 8;
pub(super) const DEVICES: usize = 12;
pub(super) const BOOT: usize = 16;
pub(super) const TOTALS: usize = 32;
pub(super) const CHECKSUM: usize = HEADER - 8;

// Where things stand in a row.
const STATE: usize = 0;
const PID: usize = 4;
const START: usize = 8;
pub(super) const HELD: usize = 16;

/// The rows of the file, as read under its lock.
pub(super) struct Rows {
    bytes: Vec<u8>,
    /// Bytes of one row.
    stride: usize,
}

impl Rows {
    /// Reads the file, which must have this header; an empty one is filled, and one whose processes are
    /// all dead may be made anew for other devices.
    pub(super) fn read(fd: RawFd, totals: &[u64], header: &[u8]) -> io::Result<Self> {
        let size = held::stat(fd)?.st_size as usize;
        let mut bytes = vec![0; size.min(HEADER + MAX_ROWS * (HELD + 8 * MAX_DEVICES as usize))];
        read_at(fd, &mut bytes)?;
        if !bytes.is_empty() {
            let known = bytes.starts_with(header);
            let devices = if known { totals.len() } else { check(&bytes)? };
            let found = Self { bytes: bytes.split_off(HEADER), stride: HELD + 8 * devices };
            found.check_states()?;
            if known {
                return Ok(found);
            }
            // Of another boot, or of other devices: nobody alive may depend on it.
            let same_boot = bytes[BOOT..TOTALS] == header[BOOT..TOTALS];
            if same_boot && found.taken().any(|row| found.identity(row).is_alive()) {
                let theirs: Vec<_> = (0..devices).map(|d| word(&bytes, TOTALS + 8 * d)).collect();
                let what = format!("is in use for devices of {theirs:?} bytes, and this process has {totals:?}");
                return Err(io::Error::other(what));
            }
            // SAFETY: a plain call on a descriptor of ours.
            if unsafe { libc::ftruncate(fd, 0) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        write_at(fd, header, 0)?;
        Ok(Self { bytes: Vec::new(), stride: HELD + 8 * totals.len() })
    }

    fn check_states(&self) -> io::Result<()> {
        let broken = (0..self.count()).any(|row| word32(&self.bytes, row * self.stride) > 1);
        if broken {
            return Err(io::Error::other("is corrupt: remove it while no process uses it"));
        }
        Ok(())
    }

    /// Rows in the file. A row at its end that was cut off by a death does not count.
    pub(super) fn count(&self) -> usize {
        self.bytes.len() / self.stride
    }

    pub(super) fn is_taken(&self, row: usize) -> bool {
        row < self.count() && word32(&self.bytes, row * self.stride + STATE) == 1
    }

    pub(super) fn taken(&self) -> impl Iterator<Item = usize> {
        (0..self.count()).filter(|row| self.is_taken(*row))
    }

    pub(super) fn identity(&self, row: usize) -> Identity {
        let at = row * self.stride;
        Identity { pid: word32(&self.bytes, at + PID), start: word(&self.bytes, at + START) }
    }

    pub(super) fn bytes(&self, row: usize, device: usize) -> u64 {
        if HELD + 8 * device >= self.stride {
            return 0;
        }
        word(&self.bytes, row * self.stride + HELD + 8 * device)
    }

    pub(super) fn claim(&mut self, fd: RawFd, row: usize, owner: Identity) -> io::Result<()> {
        let mut fresh = vec![0; self.stride];
        fresh[STATE..PID].copy_from_slice(&1u32.to_le_bytes());
        fresh[PID..START].copy_from_slice(&owner.pid.to_le_bytes());
        fresh[START..HELD].copy_from_slice(&owner.start.to_le_bytes());
        self.write(fd, row * self.stride, &fresh)
    }

    pub(super) fn write_state(&mut self, fd: RawFd, row: usize, taken: bool) -> io::Result<()> {
        self.write(fd, row * self.stride + STATE, &u32::from(taken).to_le_bytes())
    }

    pub(super) fn write_bytes(&mut self, fd: RawFd, row: usize, device: usize, bytes: u64) -> io::Result<()> {
        self.write(fd, row * self.stride + HELD + 8 * device, &bytes.to_le_bytes())
    }

    /// Writes to the file first: what could not be written did not happen.
    fn write(&mut self, fd: RawFd, at: usize, bytes: &[u8]) -> io::Result<()> {
        write_at(fd, bytes, HEADER + at)?;
        let end = at + bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..end].copy_from_slice(bytes);
        Ok(())
    }
}

/// The header of a file for these devices.
pub(super) fn header(totals: &[u64], boot: u128) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER);
    header.extend(MAGIC.to_le_bytes());
    header.extend(VERSION.to_le_bytes());
    header.extend((totals.len() as u32).to_le_bytes());
    header.extend(boot.to_le_bytes());
    header.extend(totals.iter().flat_map(|total| total.to_le_bytes()));
    header.resize(CHECKSUM, 0);
    header.extend(checksum(&header).to_le_bytes());
    header
}

/// Whether this is a file of ours; its number of devices.
fn check(bytes: &[u8]) -> io::Result<usize> {
    if bytes.len() < 16 || word(bytes, 0) != MAGIC {
        return Err(io::Error::other("is not a file of the virtual GPU, and is left alone"));
    }
    let version = word32(bytes, FORMAT);
    if version != VERSION {
        let what = format!("is of version {version}, and this is version {VERSION}: remove it");
        return Err(io::Error::other(what));
    }
    let devices = word32(bytes, DEVICES) as usize;
    let sound = bytes.len() >= HEADER
        && devices <= MAX_DEVICES as usize
        && word(bytes, CHECKSUM) == checksum(&bytes[..CHECKSUM]);
    if !sound {
        return Err(io::Error::other("is corrupt: remove it while no process uses it"));
    }
    Ok(devices)
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from(word32(bytes, at)) | u64::from(word32(bytes, at + 4)) << 32
}

/// Beyond the end there are zeroes, as in a file.
fn word32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    for (to, from) in word.iter_mut().zip(bytes.iter().skip(at)) {
        *to = *from;
    }
    u32::from_le_bytes(word)
}

fn read_at(fd: RawFd, bytes: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        let rest = &mut bytes[done..];
        // SAFETY: the buffer is valid for its length.
        match unsafe { libc::pread(fd, rest.as_mut_ptr().cast(), rest.len(), done as i64) } {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n if n < 0 => return Err(io::Error::last_os_error()),
            n => done += n as usize,
        }
    }
    Ok(())
}

fn write_at(fd: RawFd, bytes: &[u8], at: usize) -> io::Result<()> {
    // SAFETY: the buffer is valid for its length.
    let written = unsafe { libc::pwrite(fd, bytes.as_ptr().cast(), bytes.len(), at as i64) };
    match written {
        n if n < 0 => Err(io::Error::last_os_error()),
        n if n as usize == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::StorageFull.into()),
    }
}

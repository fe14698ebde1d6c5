//! VGPU_SHARED: devices that several processes share. A file says what each process holds; a lock on
//! it is taken inside each call only. What a dead process held is free again at the next question.
//!
//! The file: a header of [`HEADER`] bytes (magic, version, number of devices, boot id, sizes of the
//! devices, checksum), then a row for each process (in use, pid, start time, bytes on each device),
//! all little-endian. Each change is one aligned write, so that a process may die at any instruction.

pub(crate) mod held;
mod process;

use crate::config::MAX_DEVICES;
use held::HeldFile;
use process::Identity;
use std::io;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};
use std::sync::{Mutex, Once, PoisonError};

const MAGIC: u64 = u64::from_le_bytes(*b"vgpushar");
const VERSION: u32 = 1;
const HEADER: usize = 1024;
/// More living processes than this are refused.
const MAX_ROWS: usize = 4096;

// Where things stand in the header, after the magic.
const FORMAT: usize = 8;
const DEVICES: usize = 12;
const BOOT: usize = 16;
const TOTALS: usize = 32;
const CHECKSUM: usize = HEADER - 8;

/// The devices of a VGPU_SHARED file, as this process sees them.
pub(crate) struct Shared {
    path: PathBuf,
    totals: Vec<u64>,
    /// The header that the file must have.
    header: Vec<u8>,
    /// This process; another one after a fork. Never null, and a parent's is leaked in its child.
    here: AtomicPtr<Here>,
}

/// What one process keeps of the file.
struct Here {
    identity: Identity,
    file: HeldFile,
    /// The row of this process once it has one. Held during each call: flock(2) knows no threads.
    row: Mutex<Option<usize>>,
}

impl Shared {
    /// Opens or makes the file for devices of these sizes.
    pub(crate) fn open(path: &Path, totals: &[u64]) -> io::Result<Self> {
        if totals.len() > MAX_DEVICES as usize {
            return Err(refused(
                path,
                &format!("has no room for {} devices", totals.len()),
            ));
        }
        let here = Box::into_raw(Box::new(Here::open(path)?));
        let shared = Self {
            path: path.to_owned(),
            totals: totals.to_vec(),
            header: header(totals, process::boot_id()),
            here: AtomicPtr::new(here),
        };
        shared.locked(|table| {
            // A row of this very process was left by a program that it was before exec(2).
            if let Some(row) = table.row_of(table.me) {
                table.free(row)?;
            }
            Ok(())
        })?;
        Ok(shared)
    }

    /// Takes bytes of a device if all living processes together then still fit into it.
    pub(crate) fn take(&self, device: usize, bytes: u64) -> bool {
        self.answer(|table| table.take(device, bytes))
    }

    /// Gives back bytes that [`Shared::take`] took.
    pub(crate) fn give(&self, device: usize, bytes: u64) {
        self.answer(|table| table.give(device, bytes));
    }

    /// Bytes of a device that all living processes hold.
    pub(crate) fn used(&self, device: usize) -> u64 {
        self.answer(|table| {
            table.bury()?;
            Ok(table.used(device))
        })
    }

    /// Bytes of a device that this process holds.
    pub(crate) fn mine(&self, device: usize) -> u64 {
        self.answer(|table| Ok(table.own.map_or(0, |row| table.rows.bytes(row, device))))
    }

    /// The living processes that hold bytes of a device, and how many.
    pub(crate) fn processes(&self, device: usize) -> Vec<(u32, u64)> {
        self.answer(|table| {
            table.bury()?;
            let rows = table
                .rows
                .taken()
                .map(|row| (table.rows.identity(row).pid, table.rows.bytes(row, device)));
            Ok(rows.filter(|(_, bytes)| *bytes > 0).collect())
        })
    }

    /// Like `locked`, for questions that have no error: a file that fails is told once, and answers
    /// with nothing.
    fn answer<R: Default>(&self, act: impl FnOnce(&mut Table) -> io::Result<R>) -> R {
        static SAID: AtomicBool = AtomicBool::new(false);
        self.locked(act).unwrap_or_else(|error| {
            if !SAID.swap(true, Ordering::Relaxed) {
                eprintln!("vgpu: VGPU_SHARED={}: {error}", self.path.display());
            }
            R::default()
        })
    }

    /// Reads the file under its lock and lets `act` look at it and change it.
    fn locked<R>(&self, act: impl FnOnce(&mut Table) -> io::Result<R>) -> io::Result<R> {
        let here = self.here()?;
        let mut own = here.row.lock().unwrap_or_else(PoisonError::into_inner);
        let fd = here.file.fd()?;
        let _lock = FileLock::take(fd)?;
        let rows = Rows::read(fd, &self.path, &self.totals, &self.header)?;
        // The row is ours only while it says so: the file may have been made anew.
        let row = own.filter(|row| rows.is_taken(*row) && rows.identity(*row) == here.identity);
        let mut table = Table {
            fd,
            path: &self.path,
            me: here.identity,
            totals: &self.totals,
            rows,
            own: row,
        };
        let result = act(&mut table);
        *own = table.own;
        result
    }

    /// What this process keeps; made anew after a fork, since parent and child would otherwise share
    /// one open file and with it one lock.
    fn here(&self) -> io::Result<&Here> {
        let seen = self.here.load(Ordering::Acquire);
        // SAFETY: the pointer is never null and what it names is never freed.
        let here = unsafe { &*seen };
        if here.identity.pid == std::process::id() {
            return Ok(here);
        }
        let fresh = Box::into_raw(Box::new(Here::open(&self.path)?));
        let swapped = self
            .here
            .compare_exchange(seen, fresh, Ordering::AcqRel, Ordering::Acquire);
        if swapped.is_ok() {
            here.file.close();
        }
        let current = swapped.map_or_else(|other| other, |_| fresh);
        // SAFETY: never null and never freed, whichever it is.
        Ok(unsafe { &*current })
    }
}

impl Here {
    fn open(path: &Path) -> io::Result<Self> {
        let file = HeldFile::open(path, libc::O_RDWR | libc::O_CREAT)
            .map_err(|error| refused(path, &format!("cannot be opened: {error}")))?;
        Ok(Self {
            identity: Identity::own()?,
            file,
            row: Mutex::new(None),
        })
    }
}

/// The file while its lock is held.
struct Table<'a> {
    fd: RawFd,
    path: &'a Path,
    me: Identity,
    totals: &'a [u64],
    rows: Rows,
    own: Option<usize>,
}

impl Table<'_> {
    fn take(&mut self, device: usize, bytes: u64) -> io::Result<bool> {
        let Some(total) = self.totals.get(device).copied() else {
            return Ok(false);
        };
        let fits = |used: u64| used.checked_add(bytes).is_some_and(|sum| sum <= total);
        if !fits(self.used(device)) {
            self.bury()?;
            if !fits(self.used(device)) {
                return Ok(false);
            }
        }
        let row = self.own_row()?;
        let held = self.rows.bytes(row, device);
        self.set(row, device, held + bytes)?;
        Ok(true)
    }

    fn give(&mut self, device: usize, bytes: u64) -> io::Result<()> {
        let row = self
            .own
            .filter(|row| self.rows.bytes(*row, device) >= bytes);
        let Some(row) = row else {
            return Err(refused(
                self.path,
                "was to give back bytes that this process does not hold",
            ));
        };
        let held = self.rows.bytes(row, device);
        self.set(row, device, held - bytes)
    }

    fn used(&self, device: usize) -> u64 {
        let held = self.rows.taken().map(|row| self.rows.bytes(row, device));
        held.fold(0, u64::saturating_add)
    }

    /// Frees the rows of the dead.
    fn bury(&mut self) -> io::Result<()> {
        let dead: Vec<_> = self
            .rows
            .taken()
            .filter(|row| Some(*row) != self.own && !self.rows.identity(*row).is_alive())
            .collect();
        dead.into_iter().try_for_each(|row| self.free(row))
    }

    fn row_of(&self, identity: Identity) -> Option<usize> {
        self.rows
            .taken()
            .find(|row| self.rows.identity(*row) == identity)
    }

    fn free(&mut self, row: usize) -> io::Result<()> {
        self.rows.write_state(self.fd, row, false)
    }

    /// The row of this process, made at its first use.
    fn own_row(&mut self) -> io::Result<usize> {
        if let Some(row) = self.own {
            return Ok(row);
        }
        if self.rows.taken().count() == self.rows.count() {
            // Before the file grows, the rows of the dead are used again.
            self.bury()?;
        }
        let free = (0..MAX_ROWS).find(|row| !self.rows.is_taken(*row));
        let row = free.ok_or_else(|| {
            refused(
                self.path,
                &format!("is full: {MAX_ROWS} processes share it"),
            )
        })?;
        self.rows.claim(self.fd, row, self.me)?;
        self.own = Some(row);
        Ok(row)
    }

    fn set(&mut self, row: usize, device: usize, bytes: u64) -> io::Result<()> {
        self.rows.write_bytes(self.fd, row, device, bytes)
    }
}

/// The rows of the file, as read under its lock.
struct Rows {
    bytes: Vec<u8>,
    /// Bytes of one row.
    stride: usize,
}

const STATE: usize = 0;
const PID: usize = 4;
const START: usize = 8;
const HELD: usize = 16;

impl Rows {
    /// Reads the file, which must have this header; an empty one is filled, and one whose processes are
    /// all dead may be made anew for other devices.
    fn read(fd: RawFd, path: &Path, totals: &[u64], header: &[u8]) -> io::Result<Self> {
        let size = held::stat(fd)?.st_size as usize;
        let mut bytes = vec![0; size.min(HEADER + MAX_ROWS * (HELD + 8 * MAX_DEVICES as usize))];
        read_at(fd, &mut bytes)?;
        if !bytes.is_empty() {
            let known = bytes.starts_with(header);
            let devices = if known {
                totals.len()
            } else {
                check(path, &bytes)?
            };
            let found = Self {
                bytes: bytes.split_off(HEADER),
                stride: HELD + 8 * devices,
            };
            found.check_states(path)?;
            if known {
                return Ok(found);
            }
            // Of another boot, or of other devices: nobody alive may depend on it.
            let same_boot = bytes[BOOT..TOTALS] == header[BOOT..TOTALS];
            if same_boot && found.taken().any(|row| found.identity(row).is_alive()) {
                let theirs: Vec<_> = (0..devices).map(|d| word(&bytes, TOTALS + 8 * d)).collect();
                let what = format!(
                    "is in use for devices of {theirs:?} bytes, and this process has {totals:?}"
                );
                return Err(refused(path, &what));
            }
            // SAFETY: a plain call on a descriptor of ours.
            if unsafe { libc::ftruncate(fd, 0) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        write_at(fd, header, 0)?;
        Ok(Self {
            bytes: Vec::new(),
            stride: HELD + 8 * totals.len(),
        })
    }

    fn check_states(&self, path: &Path) -> io::Result<()> {
        let broken = (0..self.count()).any(|row| word32(&self.bytes, row * self.stride) > 1);
        if broken {
            return Err(refused(
                path,
                "is corrupt: remove it while no process uses it",
            ));
        }
        Ok(())
    }

    /// Rows in the file. A row at its end that was cut off by a death does not count.
    fn count(&self) -> usize {
        self.bytes.len() / self.stride
    }

    fn is_taken(&self, row: usize) -> bool {
        row < self.count() && word32(&self.bytes, row * self.stride + STATE) == 1
    }

    fn taken(&self) -> impl Iterator<Item = usize> {
        (0..self.count()).filter(|row| self.is_taken(*row))
    }

    fn identity(&self, row: usize) -> Identity {
        let at = row * self.stride;
        Identity {
            pid: word32(&self.bytes, at + PID),
            start: word(&self.bytes, at + START),
        }
    }

    fn bytes(&self, row: usize, device: usize) -> u64 {
        if HELD + 8 * device >= self.stride {
            return 0;
        }
        word(&self.bytes, row * self.stride + HELD + 8 * device)
    }

    fn claim(&mut self, fd: RawFd, row: usize, owner: Identity) -> io::Result<()> {
        let mut fresh = vec![0; self.stride];
        fresh[STATE..PID].copy_from_slice(&1u32.to_le_bytes());
        fresh[PID..START].copy_from_slice(&owner.pid.to_le_bytes());
        fresh[START..HELD].copy_from_slice(&owner.start.to_le_bytes());
        self.write(fd, row * self.stride, &fresh)
    }

    fn write_state(&mut self, fd: RawFd, row: usize, taken: bool) -> io::Result<()> {
        self.write(
            fd,
            row * self.stride + STATE,
            &u32::from(taken).to_le_bytes(),
        )
    }

    fn write_bytes(&mut self, fd: RawFd, row: usize, device: usize, bytes: u64) -> io::Result<()> {
        self.write(
            fd,
            row * self.stride + HELD + 8 * device,
            &bytes.to_le_bytes(),
        )
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
fn header(totals: &[u64], boot: u128) -> Vec<u8> {
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
fn check(path: &Path, bytes: &[u8]) -> io::Result<usize> {
    if bytes.len() < 16 || word(bytes, 0) != MAGIC {
        return Err(refused(
            path,
            "is not a file of the virtual GPU, and is left alone",
        ));
    }
    let version = word32(bytes, FORMAT);
    if version != VERSION {
        let what = format!("is of version {version}, and this is version {VERSION}: remove it");
        return Err(refused(path, &what));
    }
    let devices = word32(bytes, DEVICES) as usize;
    let sound = bytes.len() >= HEADER
        && devices <= MAX_DEVICES as usize
        && word(bytes, CHECKSUM) == checksum(&bytes[..CHECKSUM]);
    if !sound {
        return Err(refused(
            path,
            "is corrupt: remove it while no process uses it",
        ));
    }
    Ok(devices)
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
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

fn refused(what: impl Into<String>) -> io::Error {
    io::Error::other(what.into())
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

/// The lock of the file, given back when dropped.
struct FileLock(RawFd);

/// The descriptor whose lock is held at the moment, for a child that is forked at this moment.
static LOCKED: AtomicI32 = AtomicI32::new(-1);

impl FileLock {
    fn take(fd: RawFd) -> io::Result<Self> {
        static AT_FORK: Once = Once::new();
        AT_FORK.call_once(|| {
            // SAFETY: the handler only closes a descriptor.
            unsafe { libc::pthread_atfork(None, None, Some(let_go)) };
        });
        // SAFETY: a plain call on a descriptor of ours; so below.
        while unsafe { libc::flock(fd, libc::LOCK_EX) } != 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        LOCKED.store(fd, Ordering::Relaxed);
        Ok(Self(fd))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        LOCKED.store(-1, Ordering::Relaxed);
        // SAFETY: a plain call on a descriptor of ours.
        unsafe { libc::flock(self.0, libc::LOCK_UN) };
    }
}

/// In a child that was forked while another thread held the lock: without this the child would keep
/// the lock if the parent died before letting go.
extern "C" fn let_go() {
    let fd = LOCKED.swap(-1, Ordering::Relaxed);
    if fd >= 0 {
        // SAFETY: the descriptor was ours in the parent at the moment of the fork.
        unsafe { libc::close(fd) };
    }
}

#[cfg(test)]
mod tests;

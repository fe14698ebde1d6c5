//! VGPU_SHARED: devices that several processes share. A file says what each process holds; a lock on
//! it is taken inside each call only. What a dead process held is free again at the next question.

pub(crate) mod held;
mod process;
mod rows;

use crate::config::MAX_DEVICES;
use held::HeldFile;
use process::Identity;
use rows::{MAX_ROWS, Rows, header};
use std::io;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};
use std::sync::{Mutex, Once, PoisonError};

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
            return Err(io::Error::other(format!("has no room for {} devices", totals.len())));
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

    /// Bytes of a device that this process holds. The driver keeps a count of its own; this one is the
    /// file's, for the tests to compare with.
    #[cfg_attr(not(test), allow(dead_code))]
    pub(crate) fn mine(&self, device: usize) -> u64 {
        self.answer(|table| Ok(table.own.map_or(0, |row| table.rows.bytes(row, device))))
    }

    /// The living processes that hold bytes of a device, and how many.
    pub(crate) fn processes(&self, device: usize) -> Vec<(u32, u64)> {
        self.answer(|table| {
            table.bury()?;
            let rows = table.rows.taken().map(|row| (table.rows.identity(row).pid, table.rows.bytes(row, device)));
            Ok(rows.filter(|(_, bytes)| *bytes > 0).collect())
        })
    }

    /// Like `locked`, for questions that have no error: a file that fails is reported once, and answers
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
        let rows = Rows::read(fd, &self.totals, &self.header)?;
        // The row is ours only while it says so: the file may have been made anew.
        let row = own.filter(|row| rows.is_taken(*row) && rows.identity(*row) == here.identity);
        let mut table = Table { fd, me: here.identity, totals: &self.totals, rows, own: row };
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
        let swapped = self.here.compare_exchange(seen, fresh, Ordering::AcqRel, Ordering::Acquire);
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
            .map_err(|error| io::Error::other(format!("cannot be opened: {error}")))?;
        Ok(Self { identity: Identity::own()?, file, row: Mutex::new(None) })
    }
}

/// The file while its lock is held.
struct Table<'a> {
    fd: RawFd,
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
        let row = self.own.filter(|row| self.rows.bytes(*row, device) >= bytes);
        let Some(row) = row else {
            return Err(io::Error::other("was to give back bytes that this process does not hold"));
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
        let dead: Vec<_> =
            self.rows.taken().filter(|row| Some(*row) != self.own && !self.rows.identity(*row).is_alive()).collect();
        dead.into_iter().try_for_each(|row| self.free(row))
    }

    fn row_of(&self, identity: Identity) -> Option<usize> {
        self.rows.taken().find(|row| self.rows.identity(*row) == identity)
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
        let row = free.ok_or_else(|| io::Error::other(format!("is full: {MAX_ROWS} processes share it")))?;
        self.rows.claim(self.fd, row, self.me)?;
        self.own = Some(row);
        Ok(row)
    }

    fn set(&mut self, row: usize, device: usize, bytes: u64) -> io::Result<()> {
        self.rows.write_bytes(self.fd, row, device, bytes)
    }
}

/// The lock of the file, released when dropped.
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

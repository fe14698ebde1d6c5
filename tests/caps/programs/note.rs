//! What a process that runs a program reports to the one that started it, in memory that both share: it is there however
//! the process ends.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

const ROOM: usize = 2000;
/// The most threads of a program.
pub(crate) const THREADS: usize = 4;

/// The shared page.
#[repr(C)]
pub(crate) struct Note {
    /// Operations that were done, left out because they were not legal then, and refused by the cap.
    pub(crate) done: AtomicU64,
    pub(crate) skipped: AtomicU64,
    pub(crate) refused: AtomicU64,
    /// The most bytes that the virtual GPU ever saw.
    pub(crate) most: AtomicU64,
    /// How often it was looked, and how often that was too much.
    pub(crate) looks: AtomicU64,
    pub(crate) above: AtomicU64,
    /// The operation that each thread is at.
    pub(crate) at: [AtomicU32; THREADS],
    said: AtomicU32,
    length: AtomicU32,
    text: UnsafeCell<[u8; ROOM]>,
}

// SAFETY: the text is written by the one thread that was first to say something, and read after the process has ended.
unsafe impl Sync for Note {}

impl Note {
    /// A fresh page, shared with all processes that are forked from now on.
    pub(crate) fn new() -> &'static Self {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping of zeroes, which are a valid note; it is never unmapped.
        unsafe {
            let page = libc::mmap(std::ptr::null_mut(), size_of::<Self>(), protection, flags, -1, 0);
            assert_ne!(page, libc::MAP_FAILED, "a shared page");
            &*page.cast::<Self>()
        }
    }

    /// Forgets what was said, not what was counted.
    pub(crate) fn clear(&self) {
        self.said.store(0, SeqCst);
        self.length.store(0, SeqCst);
        self.at.iter().for_each(|at| at.store(0, SeqCst));
    }

    /// Says something, if nothing was said yet; whether it was the first.
    pub(crate) fn say(&self, why: &str) -> bool {
        let first = self.said.swap(1, SeqCst) == 0;
        if first {
            let bytes = &why.as_bytes()[..why.len().min(ROOM)];
            // SAFETY: only the first comes here.
            unsafe { (&mut *self.text.get())[..bytes.len()].copy_from_slice(bytes) };
            self.length.store(bytes.len() as u32, SeqCst);
        }
        first
    }

    /// Says why the program has failed, and ends the process.
    pub(crate) fn fail(&self, why: &str) -> ! {
        if !self.say(why) {
            // Another thread is about to end the process.
            std::thread::sleep(std::time::Duration::from_secs(5));
        }
        // SAFETY: ends the process at once, whatever its other threads do.
        unsafe { libc::_exit(9) }
    }

    /// What was said.
    pub(crate) fn reported(&self) -> Option<String> {
        let length = self.length.load(SeqCst) as usize;
        // SAFETY: whoever wrote it has ended.
        (length > 0).then(|| String::from_utf8_lossy(unsafe { &(&*self.text.get())[..length] }).into_owned())
    }
}

//! The Python lines of the requesting thread, without the interpreter's lock.
//!
//! A thread that is inside a C function cannot change its own frames, and a frame keeps its code object alive: so the
//! thread may read them, though nobody else may. Nothing of Python's is called but the function that returns a thread's
//! own state. Each layout is first read through the kernel, many times, and checked against the types that the
//! interpreter exports; only then directly. Where anything does not fit, there are no Python lines, and all else goes on.

mod chain;
mod layout;
mod lines;
mod origin;
mod text;

use super::cache::{Cache, mix};
use super::memory::{Careful, Direct, Memory, Trust};
use crate::process::linker;
use chain::{Chosen, Frames, choose};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use layout::{At, BYTES_DATA, CODE_LOCALS, Functions, Layout, OBJECT_SIZE, OBJECT_TYPE};
use std::sync::Mutex;
use weir_journal::{Journal, PYTHON_DEPTH};

/// The interpreter of this process.
pub(crate) struct Python {
    layout: Layout,
    this_thread: unsafe extern "C" fn() -> *mut c_void,
    finalising: Option<unsafe extern "C" fn() -> c_int>,
    types: Types,
    trust: Trust,
}

/// Addresses of the interpreter's types, by which an object is recognised.
pub(crate) struct Types {
    code: usize,
    text: usize,
    bytes: usize,
    function: usize,
}

static PYTHON: AtomicPtr<Python> = AtomicPtr::new(core::ptr::null_mut());
/// From a whole chain of frames to the journal's id of its lines.
static CHAINS: Cache<2048> = Cache::new();
/// From one frame's place to the journal's id of its line, and what sort of file it is in.
static LINES: Cache<2048> = Cache::new();

/// Where a frame is.
#[derive(Clone, Copy, Default)]
pub(crate) struct Frame {
    code: usize,
    /// What the frame says: a number of units, or an address.
    at: usize,
    /// What distinguishes the code object from another one that was at the same address before.
    stamp: u64,
    /// The frame itself; valid while the thread is in it.
    address: usize,
}

/// Looks for an interpreter in this process; to be called when CUDA is initialised. Takes the loader's lock.
pub(crate) fn begin() {
    if !PYTHON.load(Ordering::Acquire).is_null() {
        return;
    }
    let Some(python) = find() else {
        return;
    };
    super::appear();
    let python = Box::into_raw(Box::new(python));
    let null = core::ptr::null_mut();
    if PYTHON.compare_exchange(null, python, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: made above, and nobody else has seen it.
        drop(unsafe { Box::from_raw(python) });
    }
}

fn find() -> Option<Python> {
    let symbol = |name: &CStr| {
        let address = linker::lookup(libc::RTLD_DEFAULT, name);
        linker::clear_error();
        (address != 0).then_some(address)
    };
    let version = symbol(c"Py_GetVersion")?;
    // SAFETY: Py_GetVersion has this type, needs no lock, and its text is never freed.
    let version = unsafe { CStr::from_ptr(core::mem::transmute::<usize, extern "C" fn() -> *const c_char>(version)()) };
    let minor = minor_version(version.to_str().ok()?)?;
    let layout = layout::of(minor, symbol(c"_PyRuntime").unwrap_or(0))?;
    #[cfg(feature = "fault-injection")]
    let layout = layout.mistaken();
    let this_thread = symbol(c"PyGILState_GetThisThreadState")?;
    let finalising = symbol(c"Py_IsFinalizing").or_else(|| symbol(c"_Py_IsFinalizing"));
    Some(Python {
        layout,
        // SAFETY: that is the function's type.
        this_thread: unsafe { core::mem::transmute::<usize, unsafe extern "C" fn() -> *mut c_void>(this_thread) },
        // SAFETY: that is the function's type.
        finalising: finalising.map(|f| unsafe { core::mem::transmute::<usize, unsafe extern "C" fn() -> c_int>(f) }),
        types: Types {
            code: symbol(c"PyCode_Type")?,
            text: symbol(c"PyUnicode_Type")?,
            bytes: symbol(c"PyBytes_Type")?,
            function: symbol(c"PyFunction_Type")?,
        },
        trust: Trust::new(),
    })
}

/// The minor version in a text such as `3.11.7 (main, …)`; builds without the interpreter's lock have none.
fn minor_version(text: &str) -> Option<u32> {
    let rest = text.strip_prefix("3.")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    if text.contains("free-threading") { None } else { digits.parse().ok() }
}

/// The journal's id of the calling thread's Python lines; 0 where there are none.
#[inline]
pub(crate) fn here(journal: &Journal) -> u32 {
    // SAFETY: a non-null pointer comes from `begin`, which leaks what it points to.
    match unsafe { PYTHON.load(Ordering::Acquire).as_ref() } {
        Some(python) if !python.trust.is_refused() => python.lines_of_this_thread(journal),
        _ => 0,
    }
}

/// The user's lines that made the last node of a graph.
static BUILDING: Mutex<Chosen> = Mutex::new(Chosen { lines: [0; PYTHON_DEPTH], count: 0, own: false });

/// The same for a thread that makes a node of a graph. One that runs nothing of the user's, such as those that
/// MirroredStrategy has for its replicas, does so for lines of the user's that wait for it: those that made nodes last.
pub(crate) fn for_node(journal: &Journal) -> u32 {
    // SAFETY: as in `here`.
    let python = unsafe { PYTHON.load(Ordering::Acquire).as_ref() }.filter(|python| !python.trust.is_refused());
    let mut frames = Frames::new();
    let Some(python) = python.filter(|python| python.frames_of_this_thread(&mut frames)) else { return 0 };
    let mut lines = python.chosen(journal, &frames);
    // Whoever finds it taken does without: nobody waits here.
    if let Ok(mut building) = BUILDING.try_lock() {
        if lines.own {
            *building = lines;
        } else if building.own {
            lines.add_outside(&building);
        }
    }
    journal.python(lines.list())
}

/// Forgets the ids of a journal that is no more.
pub(crate) fn forget() {
    if let Ok(mut building) = BUILDING.try_lock() {
        building.own = false;
    }
    CHAINS.clear();
    LINES.clear();
}

impl Python {
    #[inline]
    fn lines_of_this_thread(&self, journal: &Journal) -> u32 {
        let mut frames = Frames::new();
        if !self.frames_of_this_thread(&mut frames) {
            return 0;
        }
        match frames.hash() {
            None => 0,
            Some(hash) => CHAINS.get(hash).unwrap_or_else(|| {
                let id = self.intern(journal, &frames);
                if id != 0 {
                    CHAINS.put(hash, id);
                }
                id
            }),
        }
    }

    /// Collects the calling thread's frames; false where there are none that can be trusted.
    #[inline(always)]
    fn frames_of_this_thread(&self, frames: &mut Frames) -> bool {
        // SAFETY: both functions may be called at any time, with or without the lock.
        let thread = unsafe {
            // A daemon thread's state is freed under its feet at the end.
            if self.finalising.is_some_and(|finalising| finalising() != 0) {
                return false;
            }
            (self.this_thread)() as usize
        };
        if thread == 0 {
            return false;
        }
        if self.trust.is_earned() {
            // SAFETY: the layout has been seen to fit often enough.
            self.walk(&unsafe { Direct::new() }, thread, frames);
        } else {
            match self.walk(&Careful, thread, frames) {
                // A thread may be between two frames of Python's; that shows nothing.
                Some(0) => return false,
                Some(_) if frames.iter().all(|frame| self.is_sound(frame)) => self.trust.confirm(),
                _ => {
                    self.trust.refuse();
                    return false;
                }
            }
        }
        true
    }

    /// Collects the thread's frames, innermost first, and returns how many; `None` if something is not as it should be.
    #[inline(always)]
    fn walk(&self, memory: &impl Memory, thread: usize, to: &mut Frames) -> Option<usize> {
        let layout = &self.layout;
        let mut frame = memory.word(thread.checked_add(layout.thread_frame)?)?;
        if let Some(offset) = layout.record_frame {
            frame = memory.word(frame.checked_add(offset)?)?;
        }
        let mut count = 0;
        for _ in 0..DEEPEST {
            if frame == 0 {
                return Some(count);
            }
            let code = memory.word(frame.checked_add(layout.frame_code)?)?;
            // A frame of the interpreter's own stands for no code, or for none that is Python's.
            if code != 0 && memory.word(code.checked_add(OBJECT_TYPE)?)? == self.types.code {
                let at = frame.checked_add(layout.frame_at)?;
                let at = match layout.at {
                    At::Index(_) => memory.int(at)? as usize,
                    At::Pointer(_) => memory.word(at)?,
                };
                let stamp = self.stamp(memory, code)?;
                if !to.add(Frame { code, at, stamp, address: frame }) {
                    return Some(count);
                }
                count += 1;
            }
            frame = memory.word(frame.checked_add(layout.frame_previous)?)?;
        }
        // Deeper than Python itself allows: a ring.
        None
    }

    /// Code comes and goes, and new code may be where old code was, with all that belongs to it: so the beginning of
    /// its table of lines and the end of its file's name count, not only where they are.
    #[inline(always)]
    fn stamp(&self, memory: &impl Memory, code: usize) -> Option<u64> {
        let layout = &self.layout;
        let first = memory.int(code.checked_add(layout.code_first_line)?)? as u64;
        let table = memory.word(code.checked_add(layout.code_table)?)?;
        let file = memory.word(code.checked_add(layout.code_file)?)?;
        let size = memory.word(table.checked_add(OBJECT_SIZE)?)?;
        let length = memory.word(file.checked_add(OBJECT_SIZE)?)?;
        let beginning = memory.word(table.checked_add(BYTES_DATA)?)?;
        let beginning = if size < 8 { beginning & ((1 << (size * 8)) - 1) } else { beginning };
        let end = match length {
            8..4096 => memory.word(file.checked_add(layout.text_headers.0 + length - 8)?)?,
            _ => 0,
        };
        let name = mix(file as u64 ^ (length as u64) << 48, end as u64);
        Some(mix(name ^ table as u64 ^ first << 48, beginning as u64 ^ (size as u64) << 40))
    }

    /// Whether a frame's code object has what a code object has. Reads through the kernel.
    fn is_sound(&self, frame: &Frame) -> bool {
        self.place_of(frame).is_some()
    }

    /// File, function and line of a frame. Reads through the kernel.
    fn place_of(&self, frame: &Frame) -> Option<CodeLine> {
        let layout = &self.layout;
        let part = |offset: usize| Careful.word(frame.code.checked_add(offset)?);
        let text = |object| text::read(object, self.types.text, layout.text_headers);
        let file = text(part(layout.code_file)?)?;
        let function = text(part(layout.code_name)?)?;
        let first = i64::from(Careful.int(frame.code.checked_add(layout.code_first_line)?)?);
        let at = match layout.at {
            At::Index(unit) => (frame.at as i32 as i64).saturating_mul(unit as i64),
            At::Pointer(start) => frame.at.wrapping_sub(frame.code).wrapping_sub(start) as i64,
        };
        // Before its first instruction a frame is at -1 or one unit before its code.
        let (table, size) = text::bytes(part(layout.code_table)?, self.types.bytes)?;
        let sound = (0..=MOST_LINES).contains(&first) && (-8..1 << 31).contains(&at);
        let mut bytes = text::Stream::new(table, size);
        let line = lines::line_at(layout.table, first, at.max(0), &mut || bytes.next());
        let line = line.filter(|line| (0..=MOST_LINES).contains(line)).unwrap_or(first);
        (sound && !bytes.is_broken()).then_some((file, function, line as u32))
    }

    #[cold]
    fn intern(&self, journal: &Journal, frames: &Frames) -> u32 {
        journal.python(self.chosen(journal, frames).list())
    }

    /// The lines of frames that the journal keeps.
    #[cold]
    fn chosen(&self, journal: &Journal, frames: &Frames) -> Chosen {
        let mut lines = [0; chain::DEPTH];
        let mut count = 0;
        for (frame, slot) in frames.iter().zip(&mut lines) {
            let hash = mix(mix(frame.code as u64, frame.at as u64), frame.stamp);
            *slot = LINES.get(hash).unwrap_or_else(|| {
                let Some(place) = self.place_of(frame).filter(|place| !NO_FILES.contains(&place.0.as_str())) else {
                    return 0;
                };
                let place = self.behind(&place, frames.iter().skip(count)).unwrap_or(place);
                let (file, function, line) = (place.0.as_str(), place.1.as_str(), place.2);
                let id = journal.line(file, function, line);
                let value = if id == 0 { 0 } else { chain::tagged(id, file) };
                if value != 0 {
                    LINES.put(hash, value);
                }
                value
            });
            count += 1;
        }
        choose(lines.get(..count).unwrap_or_default())
    }

    /// The user's place behind one in generated code: the function that runs there knows it, or one around it.
    fn behind<'a>(&self, place: &CodeLine, around: impl Iterator<Item = &'a Frame>) -> Option<CodeLine> {
        if !place.0.as_str().contains(origin::GENERATED) {
            return None;
        }
        let texts = origin::Texts { kind: self.types.text, headers: self.layout.text_headers };
        let known = |function| origin::of(function, place.2, texts, self.layout.attributes);
        around.take(AROUND).find_map(|frame| match self.layout.frame_functions {
            Functions::Running(at) => known(Careful.word(frame.address.checked_add(at)?)?),
            Functions::Locals(at) => {
                let count = Careful.int(frame.code.checked_add(CODE_LOCALS)?)?;
                let start = frame.address.checked_add(at)?;
                let locals = (0..count.clamp(0, MOST_LOCALS) as usize).filter_map(|n| Careful.word(start + n * 8));
                let is_function = |object: &usize| {
                    *object != 0
                        && object.checked_add(OBJECT_TYPE).and_then(|at| Careful.word(at)) == Some(self.types.function)
                };
                locals.filter(is_function).find_map(known)
            }
        })
    }
}

/// Where the interpreter's own code (of 3.12 and 3.13) claims to be from.
const NO_FILES: [&str; 2] = ["<shim>", "__init__"];

/// File, function and line.
type CodeLine = (text::Text, text::Text, u32);

/// How many frames out the function is that knows where generated code comes from: loops and branches are functions.
const AROUND: usize = 24;
/// Local variables that are looked at in one frame.
const MOST_LOCALS: i32 = 64;
/// More frames than any sane recursion limit.
const DEEPEST: usize = 100_000;
/// More lines than any file has.
const MOST_LINES: i64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_off_the_text() {
        assert_eq!(minor_version("3.11.7 (main, Dec 8 2023) [GCC 12.2.0]"), Some(11));
        assert_eq!(minor_version("3.13.0 experimental free-threading build (main)"), None);
        assert_eq!(minor_version("3.9.18+"), Some(9));
        assert_eq!(minor_version("2.7.18"), None);
        assert_eq!(minor_version(""), None);
        assert_eq!(layout::of(14, 0), None);
        assert_eq!(layout::of(13, 0), None);
        assert!(layout::of(9, 0).is_some());
    }
}

//! Where CPython keeps a thread's frames and what they run, release by release.
//!
//! The numbers are offsets in bytes, read off the public and internal headers of each release
//! (tests/attribution compares with what each interpreter itself says). CPython 3.13 publishes its own at the beginning of
//! `_PyRuntime`; they are taken from there. Releases not listed get no Python lines.

use crate::frameworks::memory::{Careful, Memory};

/// How a frame says where it is in its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// A number of units of this many bytes.
    Index(usize),
    /// The address of an instruction; the code's instructions begin at this offset in the code object.
    Pointer(usize),
}

/// How a code object says which instruction belongs to which line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    /// 3.9: increments of address and line.
    Increments,
    /// 3.10: ranges.
    Ranges,
    /// 3.11 and later: locations of variable length.
    Locations,
}

/// Where a frame keeps functions: one that AutoGraph made knows where its code comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Functions {
    /// 3.9 and 3.10: among its local variables, which begin at this offset. AutoGraph calls by such a variable.
    Locals(usize),
    /// 3.11 and later: the one that runs, at this offset.
    Running(usize),
}

/// How a dictionary keeps its keys, and a function its dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// In a function: the dictionary of its attributes.
    pub(crate) of_function: usize,
    /// Whether a table of keys says its size itself, not its logarithm (3.9 and 3.10).
    pub(crate) sizes: bool,
}

/// Offsets of one release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// In a thread state: its frame, or the record that holds it.
    pub(crate) thread_frame: usize,
    /// In that record: the frame (3.11 and 3.12).
    pub(crate) record_frame: Option<usize>,
    /// In a frame: the frame that called it.
    pub(crate) frame_previous: usize,
    /// In a frame: its code object.
    pub(crate) frame_code: usize,
    /// In a frame: where it is.
    pub(crate) frame_at: usize,
    /// What that means.
    pub(crate) at: At,
    /// In a frame: its functions.
    pub(crate) frame_functions: Functions,
    /// How their attributes are kept.
    pub(crate) attributes: Attributes,
    /// In a code object: the file's name.
    pub(crate) code_file: usize,
    /// In a code object: the function's name.
    pub(crate) code_name: usize,
    /// In a code object: the number of its first line.
    pub(crate) code_first_line: usize,
    /// In a code object: its table of lines.
    pub(crate) code_table: usize,
    /// The form of that table.
    pub(crate) table: Table,
    /// Size of the header of a text of ASCII characters, and of any other.
    pub(crate) text_headers: (usize, usize),
}

/// The same in each release: type of an object, size of a variable one, length and state of a text, bytes of a `bytes`.
pub(crate) const OBJECT_TYPE: usize = 8;
pub(crate) const OBJECT_SIZE: usize = 16;
/// In a code object of 3.9 and 3.10: the number of its local variables.
pub(crate) const CODE_LOCALS: usize = 28;
pub(crate) const TEXT_STATE: usize = 32;
pub(crate) const BYTES_DATA: usize = 32;

const OLD: Layout = Layout {
    thread_frame: 24,
    record_frame: None,
    frame_previous: 24,
    frame_code: 32,
    frame_at: 104,
    at: At::Index(1),
    frame_functions: Functions::Locals(360),
    attributes: Attributes { of_function: 72, sizes: true },
    code_file: 104,
    code_name: 112,
    code_first_line: 40,
    code_table: 120,
    table: Table::Increments,
    text_headers: (48, 72),
};

const V3_11: Layout = Layout {
    thread_frame: 56,
    record_frame: Some(8),
    frame_previous: 48,
    frame_code: 32,
    frame_at: 56,
    at: At::Pointer(184),
    frame_functions: Functions::Running(0),
    attributes: Attributes { of_function: 88, sizes: false },
    code_file: 112,
    code_name: 128,
    code_first_line: 72,
    code_table: 136,
    table: Table::Locations,
    text_headers: (48, 72),
};

const V3_12: Layout = Layout {
    record_frame: Some(0),
    frame_previous: 8,
    frame_code: 0,
    at: At::Pointer(192),
    frame_functions: Functions::Running(16),
    code_first_line: 68,
    text_headers: (40, 56),
    ..V3_11
};

const V3_10: Layout = Layout {
    frame_at: 96,
    at: At::Index(2),
    frame_functions: Functions::Locals(352),
    attributes: Attributes { of_function: 88, sizes: true },
    table: Table::Ranges,
    ..OLD
};

/// Releases whose layout is known, by minor version of Python 3.
static KNOWN: &[(u32, Layout)] = &[(9, OLD), (10, V3_10), (11, V3_11), (12, V3_12)];

/// Places of the offsets that 3.13 publishes, as words from the beginning of `_PyRuntime`.
mod published {
    pub(super) const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");
    pub(super) const FREE_THREADED: usize = 16;
    pub(super) const THREAD_FRAME: usize = 184;
    pub(super) const FRAME_PREVIOUS: usize = 232;
    pub(super) const FRAME_CODE: usize = 240;
    pub(super) const FRAME_AT: usize = 248;
    pub(super) const CODE_FILE: usize = 280;
    pub(super) const CODE_NAME: usize = 296;
    pub(super) const CODE_TABLE: usize = 304;
    pub(super) const CODE_FIRST_LINE: usize = 312;
    pub(super) const CODE_START: usize = 344;
    pub(super) const TEXT_HEADER: usize = 560;
}

/// The layout of Python 3.`minor`; `runtime` is the address of `_PyRuntime`.
pub(crate) fn of(minor: u32, runtime: usize) -> Option<Layout> {
    if minor == 13 {
        return from_runtime(runtime);
    }
    KNOWN.iter().find(|(known, _)| *known == minor).map(|(_, layout)| *layout)
}

fn from_runtime(runtime: usize) -> Option<Layout> {
    let word = |at: usize| Careful.word(runtime.checked_add(at)?);
    // An offset is a small multiple of four; anything else is no offset.
    let offset = |at: usize| word(at).filter(|offset| *offset < 4096 && offset % 4 == 0);
    if word(0)? as u64 != published::COOKIE || word(published::FREE_THREADED)? != 0 {
        return None;
    }
    Some(Layout {
        thread_frame: offset(published::THREAD_FRAME)?,
        record_frame: None,
        frame_previous: offset(published::FRAME_PREVIOUS)?,
        frame_code: offset(published::FRAME_CODE)?,
        frame_at: offset(published::FRAME_AT)?,
        at: At::Pointer(offset(published::CODE_START)?),
        // Not published, and the same in all of 3.13.
        frame_functions: Functions::Running(16),
        attributes: V3_12.attributes,
        code_file: offset(published::CODE_FILE)?,
        code_name: offset(published::CODE_NAME)?,
        code_first_line: offset(published::CODE_FIRST_LINE)?,
        code_table: offset(published::CODE_TABLE)?,
        table: Table::Locations,
        // What is published is the size of the ASCII header; the other has two words more.
        text_headers: (offset(published::TEXT_HEADER)?, offset(published::TEXT_HEADER)? + 16),
    })
}

#[cfg(feature = "fault-injection")]
impl Layout {
    /// The layout with a mistake: `WEIR_FAULT=python:FIELD:BYTES` moves one offset.
    pub(crate) fn mistaken(mut self) -> Self {
        let list = std::env::var("WEIR_FAULT").unwrap_or_default();
        for mistake in list.split(',').filter_map(|fault| fault.strip_prefix("python:")) {
            let Some((field, bytes)) = mistake.split_once(':') else { continue };
            let Ok(bytes) = bytes.parse::<isize>() else { continue };
            let start = if let At::Pointer(start) = &mut self.at { Some(start) } else { None };
            let place = match field {
                "thread_frame" => Some(&mut self.thread_frame),
                "record_frame" => self.record_frame.as_mut(),
                "frame_previous" => Some(&mut self.frame_previous),
                "frame_code" => Some(&mut self.frame_code),
                "frame_at" => Some(&mut self.frame_at),
                "frame_functions" => match &mut self.frame_functions {
                    Functions::Locals(offset) | Functions::Running(offset) => Some(offset),
                },
                "function_attributes" => Some(&mut self.attributes.of_function),
                "code_start" => start,
                "code_file" => Some(&mut self.code_file),
                "code_name" => Some(&mut self.code_name),
                "code_first_line" => Some(&mut self.code_first_line),
                "code_table" => Some(&mut self.code_table),
                "text_header" => Some(&mut self.text_headers.0),
                _ => None,
            };
            if let Some(offset) = place {
                *offset = offset.wrapping_add_signed(bytes);
            }
        }
        self
    }
}

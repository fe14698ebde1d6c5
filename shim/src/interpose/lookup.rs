//! What `dlsym` and `dlvsym` answer for the names in the table.
//!
//! The rule: a caller gets weir's function exactly where it would get the real library's without
//! weir, and in every other case what it would get without weir, be it another library's function
//! of that name or nothing. So the real linker is called first, and its answer is recognised by its
//! address. Where only the caller itself can look up (RTLD_NEXT), the verdict is to jump.

use super::arch;
use super::entry::Entry;
use super::export::{DRIVER_ENTRIES, NVML, NVML_COUNT, NVML_ENTRIES};
use crate::driver::library::{DRIVER, Library};
use crate::process::{elf, guard, linker, surroundings};
use core::ffi::{CStr, c_char, c_void};
use weir_cuda::COUNT;

/// What the code in `arch/` is to do.
#[repr(C)]
pub(crate) struct Verdict {
    address: usize,
    /// 1: jump to `address` with the caller's arguments; 0: `address` is the answer.
    jump: usize,
}

impl Verdict {
    const fn answer(address: usize) -> Self {
        Self { address, jump: 0 }
    }
}

/// Called by `dlsym` for a name that may be weir's; `caller` is the return address.
pub(crate) unsafe extern "C" fn decide_dlsym(
    handle: *mut c_void,
    name: *const c_char,
    _unused: *const c_char,
    caller: usize,
) -> Verdict {
    // SAFETY: the caller's arguments of dlsym.
    unsafe { decide(linker::real_dlsym(), handle, name, None, caller) }
}

/// Called by `dlvsym` for a name that may be weir's; `caller` is the return address.
pub(crate) unsafe extern "C" fn decide_dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: usize,
) -> Verdict {
    // SAFETY: the caller's arguments of dlvsym.
    unsafe { decide(linker::real_dlvsym(), handle, name, Some(version), caller) }
}

unsafe fn decide(
    real: usize,
    handle: *mut c_void,
    name: *const c_char,
    version: Option<*const c_char>,
    caller: usize,
) -> Verdict {
    let otherwise = Verdict { address: real, jump: usize::from(real != 0) };
    if name.is_null() {
        return otherwise;
    }
    let _kept = surroundings::Errno::keep();
    let question = Question {
        handle,
        // SAFETY: not null, and dlsym takes a C string.
        name: unsafe { CStr::from_ptr(name) },
        version,
        caller,
    };
    guard::run("dlsym", || match find(question.name.to_bytes()) {
        Some(id) if id < COUNT => question.about(&DRIVER, DRIVER_ENTRIES.get(id)?, id),
        Some(id) => question.about(&NVML, NVML_ENTRIES.get(id - COUNT)?, id - COUNT),
        None => question.about_ourselves(),
    })
    .flatten()
    .unwrap_or(otherwise)
}

struct Question<'a> {
    handle: *mut c_void,
    name: &'a CStr,
    version: Option<*const c_char>,
    caller: usize,
}

impl Question<'_> {
    /// The same question from this library with another handle.
    fn ask(&self, handle: *mut c_void) -> usize {
        match self.version {
            None => linker::lookup(handle, self.name),
            Some(version) => linker::lookup_version(handle, self.name, version),
        }
    }

    /// The same question about what the caller's own library and its dependencies define.
    fn ask_in_callers_library(&self) -> usize {
        let Some((_, object)) = elf::object_at(self.caller) else {
            return 0;
        };
        let handle = linker::open(object.path(), false);
        if handle.is_null() || object.path().is_empty() {
            return 0;
        }
        let address = self.ask(handle);
        // SAFETY: opened above, without loading anything: this only takes the count back.
        unsafe { libc::dlclose(handle) };
        address
    }

    /// `None`: the caller shall call the real linker itself.
    fn about<const N: usize>(&self, library: &'static Library<N>, entry: &Entry, id: usize) -> Option<Verdict> {
        let export = entry.hook?.export as usize;
        let is_real = |address: usize| address != 0 && library.resolve(false) && library.real(id) == address;
        let ours = || {
            library.count_handed_out(id);
            Some(Verdict::answer(export))
        };
        if self.handle == libc::RTLD_NEXT {
            if self.caller_comes_first() {
                // Jumping finds this library's export. That is right if there is something behind
                // it, or if a library between the caller and this one defines the name, too.
                let nothing = self.ask(libc::RTLD_NEXT) == 0 && self.ask(libc::RTLD_DEFAULT) == export;
                return nothing.then(|| self.nothing());
            }
            // Jumping would find the real function. It may only be seen through ours.
            return if is_real(self.ask_in_callers_library()) { ours() } else { None };
        }
        match self.ask(self.handle) {
            0 if self.handle == libc::RTLD_DEFAULT => None,
            0 => Some(Verdict::answer(0)),
            found if found == export => {
                let local = || self.handle == libc::RTLD_DEFAULT && self.ask_in_callers_library() != 0;
                let visible = self.ask(libc::RTLD_NEXT) != 0 || local();
                if visible { ours() } else { Some(self.nothing()) }
            }
            found if is_real(found) => ours(),
            found => Some(Verdict::answer(found)),
        }
    }

    /// No such function; the failing lookup leaves the text for `dlerror`.
    fn nothing(&self) -> Verdict {
        self.ask(libc::RTLD_NEXT);
        Verdict::answer(0)
    }

    /// Whether the caller was loaded before this library, so that RTLD_NEXT means this library.
    fn caller_comes_first(&self) -> bool {
        let place = |address| elf::object_at(address).map(|(place, _)| place);
        match (place(self.caller), place(decide_dlsym as *const () as usize)) {
            (Some(caller), Some(own)) => caller < own,
            _ => false,
        }
    }

    /// A library that wraps `dlsym` itself gets the real one by `dlvsym`: give it ours, which does
    /// the same and keeps the way through weir open.
    fn about_ourselves(&self) -> Option<Verdict> {
        self.version?;
        let (real, own) = match self.name.to_bytes() {
            b"dlsym" => (linker::real_dlsym(), arch::dlsym as *const () as usize),
            b"dlvsym" => (linker::real_dlvsym(), arch::dlvsym as *const () as usize),
            _ => return None,
        };
        (real != 0 && self.ask(self.handle) == real).then(|| Verdict::answer(own))
    }
}

const SLOTS: usize = 2048;
const NONE: u16 = u16::MAX;

/// Slot → place of a hooked function: driver functions first, then NVML's. Made at compile time.
static INDEX: [u16; SLOTS] = index();

const fn hash(name: &[u8]) -> usize {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut rest = name;
    while let Some((byte, tail)) = rest.split_first() {
        hash = (hash ^ *byte as u64).wrapping_mul(0x0100_0000_01b3);
        rest = tail;
    }
    (hash ^ (hash >> 32)) as usize % SLOTS
}

// Indices are checked by the compiler, which runs this: a bad one would not compile.
#[allow(clippy::indexing_slicing)]
const fn index() -> [u16; SLOTS] {
    let mut index = [NONE; SLOTS];
    let mut id = 0;
    while id < COUNT + NVML_COUNT {
        let entry = if id < COUNT { &DRIVER_ENTRIES[id] } else { &NVML_ENTRIES[id - COUNT] };
        if entry.hook.is_some() {
            let mut slot = hash(entry.symbol.to_bytes());
            while index[slot] != NONE {
                slot = (slot + 1) % SLOTS;
            }
            index[slot] = id as u16;
        }
        id += 1;
    }
    index
}

/// The place of a hooked function of that name: below `COUNT` a driver function, else NVML's.
fn find(name: &[u8]) -> Option<usize> {
    let mut slot = hash(name);
    loop {
        let id = usize::from(*INDEX.get(slot)?);
        let entry = if id < COUNT { DRIVER_ENTRIES.get(id)? } else { NVML_ENTRIES.get(id - COUNT)? };
        if entry.symbol.to_bytes() == name {
            return Some(id);
        }
        slot = (slot + 1) % SLOTS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hook_is_found_by_its_name_and_nothing_else_is() {
        let all = DRIVER_ENTRIES.iter().chain(&NVML_ENTRIES);
        for (id, entry) in all.enumerate() {
            let expected = entry.hook.map(|_| id);
            assert_eq!(find(entry.symbol.to_bytes()), expected, "{}", entry.name());
        }
        for name in ["", "cu", "cuMemAlloc_v9", "cudaMalloc", "curl_easy_init", "nvmlInit_v2"] {
            assert_eq!(find(name.as_bytes()), None, "{name}");
        }
    }
}

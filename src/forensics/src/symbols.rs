//! Native addresses as functions and lines, long after the process is gone. Reads the modules' files, which must be the
//! ones that the process had: their build id is compared first. What cannot be found degrades to path and offset.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use addr2line::demangle_auto;
use weir_journal::reader::ModuleEntry;

use crate::modules::ModuleFile;

/// Where separate debug information lies on Debian, Fedora and others.
const DEBUG_FOLDER: &str = "/usr/lib/debug/.build-id";

/// Addresses whose frames are kept, at most; then they are looked up anew.
const MOST_KNOWN: usize = 1 << 16;

/// A native frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NativeFrame {
    /// Path of the module; empty when the address lies in none.
    pub module: String,
    /// Address in the module's file; the address itself when it lies in none.
    pub offset: u64,
    /// Function, demangled; empty when unknown.
    pub function: String,
    /// Source file; empty when unknown.
    pub file: String,
    /// Line; 0 is unknown.
    pub line: u32,
}

impl NativeFrame {
    /// The function, else `module+0xoffset`.
    pub fn name(&self) -> String {
        if !self.function.is_empty() {
            return self.function.clone();
        }
        let module = Path::new(&self.module).file_name().map_or("?".into(), |name| name.to_string_lossy());
        format!("{module}+{:#x}", self.offset)
    }
}

/// Why a module gives no names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The file cannot be read.
    Unreadable(String),
    /// The file is another build than the one that ran.
    OtherBuild,
}

enum Module {
    Unopened,
    Open(Box<ModuleFile>),
    Missing(Missing),
}

/// The symbols of one process.
pub struct Symbols {
    modules: Vec<ModuleEntry>,
    loaded: RefCell<Vec<Module>>,
    known: RefCell<HashMap<u64, Rc<[NativeFrame]>>>,
}

impl std::fmt::Debug for Symbols {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Symbols").field("modules", &self.modules.len()).finish_non_exhaustive()
    }
}

impl Symbols {
    /// Symbols for these modules; no file is opened before it is needed.
    pub fn new(mut modules: Vec<ModuleEntry>) -> Self {
        modules.sort_by_key(|module| module.start);
        let loaded = modules.iter().map(|_| Module::Unopened).collect();
        Self { modules, loaded: RefCell::new(loaded), known: RefCell::new(HashMap::new()) }
    }

    /// The modules, by address.
    pub fn modules(&self) -> &[ModuleEntry] {
        &self.modules
    }

    /// The module that an address lies in, by its place in the list.
    pub fn module_of(&self, address: u64) -> Option<usize> {
        let place = self.modules.partition_point(|module| module.start <= address).checked_sub(1)?;
        let module = self.modules.get(place)?;
        (address - module.start < module.size).then_some(place)
    }

    /// Modules that were needed and gave no names.
    pub fn missing(&self) -> Vec<(String, Missing)> {
        let loaded = self.loaded.borrow();
        let missing = self.modules.iter().zip(&*loaded).filter_map(|(module, state)| match state {
            Module::Missing(why) => Some((module.path.clone(), why.clone())),
            _ => None,
        });
        missing.collect()
    }

    /// The frames of a return address: the function that made the call, and what it was inlined into, innermost first.
    pub fn resolve(&self, address: u64) -> Rc<[NativeFrame]> {
        if let Some(frames) = self.known.borrow().get(&address) {
            return Rc::clone(frames);
        }
        let frames: Rc<[NativeFrame]> = self.look_up(address).into();
        let mut known = self.known.borrow_mut();
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(address, Rc::clone(&frames));
        frames
    }

    fn look_up(&self, address: u64) -> Vec<NativeFrame> {
        // The call lies before the address that it returns to.
        let call = address.saturating_sub(1);
        let Some(place) = self.module_of(call) else {
            return vec![NativeFrame { offset: address, ..NativeFrame::default() }];
        };
        let module = &self.modules[place];
        let offset = call.wrapping_sub(module.bias);
        let plain = NativeFrame { module: module.path.clone(), offset, ..NativeFrame::default() };
        let mut loaded = self.loaded.borrow_mut();
        if matches!(loaded[place], Module::Unopened) {
            loaded[place] = open(module);
        }
        let Module::Open(file) = &loaded[place] else { return vec![plain] };
        let frames = file.frames(&plain);
        if !frames.is_empty() {
            return frames;
        }
        let symbol = file.symbol(offset).map(|name| demangle_auto(name.into(), None).into_owned());
        vec![NativeFrame { function: symbol.unwrap_or_default(), ..plain }]
    }
}

/// Opens a module's file, or its separate debug information, if it is the build that ran.
fn open(module: &ModuleEntry) -> Module {
    let separate = debug_file(&module.build_id);
    let separate = separate.and_then(|path| ModuleFile::open(&path, &module.build_id).ok().flatten());
    match separate.map_or_else(|| ModuleFile::open(Path::new(&module.path), &module.build_id), |file| Ok(Some(file))) {
        Ok(Some(file)) => Module::Open(Box::new(file)),
        Ok(None) => Module::Missing(Missing::OtherBuild),
        Err(error) => Module::Missing(Missing::Unreadable(error)),
    }
}

fn debug_file(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let path = Path::new(DEBUG_FOLDER).join(hex(&[*first])).join(format!("{}.debug", hex(rest)));
    path.exists().then_some(path)
}

/// Bytes in hexadecimal, as build ids are written.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(half.into(), 16).unwrap_or('?');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

//! Native addresses as functions and lines, long after the process is gone. Reads the modules' files, which must be the
//! ones that the process had: their build id is compared first. What cannot be found degrades to path and offset.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use addr2line::{Loader, demangle_auto};
use object::{Object, ReadCache};
use weir_journal::reader::ModuleEntry;

/// Where separate debug information lies on Debian, Fedora and others.
const DEBUG_FOLDER: &str = "/usr/lib/debug/.build-id";

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
    Open(Box<Loader>),
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
        self.known.borrow_mut().insert(address, Rc::clone(&frames));
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
        let Module::Open(loader) = &loaded[place] else { return vec![plain] };
        let frames = in_debug_information(loader, &plain);
        if !frames.is_empty() {
            return frames;
        }
        let symbol = loader.find_symbol(offset).map(|name| demangle_auto(name.into(), None).into_owned());
        vec![NativeFrame { function: symbol.unwrap_or_default(), ..plain }]
    }
}

fn in_debug_information(loader: &Loader, plain: &NativeFrame) -> Vec<NativeFrame> {
    let mut frames = Vec::new();
    let Ok(mut found) = loader.find_frames(plain.offset) else { return frames };
    while let Ok(Some(frame)) = found.next() {
        let function = frame.function.as_ref().and_then(|name| name.demangle().ok().map(std::borrow::Cow::into_owned));
        let Some(function) = function.or_else(|| loader.find_symbol(plain.offset).map(str::to_owned)) else { continue };
        let place = frame.location.as_ref();
        frames.push(NativeFrame {
            function,
            file: place.and_then(|place| place.file).unwrap_or_default().to_owned(),
            line: place.and_then(|place| place.line).unwrap_or(0),
            ..plain.clone()
        });
    }
    frames
}

/// Opens a module's file, or its separate debug information, if it is the build that ran.
fn open(module: &ModuleEntry) -> Module {
    let path = Path::new(&module.path);
    let separate = debug_file(&module.build_id).filter(|path| is_build(path, &module.build_id) == Ok(true));
    match is_build(separate.as_deref().unwrap_or(path), &module.build_id) {
        Ok(true) => match Loader::new(separate.as_deref().unwrap_or(path)) {
            Ok(loader) => Module::Open(Box::new(loader)),
            Err(error) => Module::Missing(Missing::Unreadable(error.to_string())),
        },
        Ok(false) => Module::Missing(Missing::OtherBuild),
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

/// Whether the file has this build id. A module that had none is taken by its path alone.
fn is_build(path: &Path, build_id: &[u8]) -> Result<bool, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        return Err("is no file".into());
    }
    let bytes = ReadCache::new(file);
    let object = object::File::parse(&bytes).map_err(|error| error.to_string())?;
    let found = object.build_id().map_err(|error| error.to_string())?.unwrap_or_default();
    // The journal keeps the first bytes of long ones.
    Ok(build_id.is_empty() || found.starts_with(build_id))
}

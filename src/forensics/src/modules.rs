//! The file of one module: its symbols and its debug information, in memory. The path comes from a journal, so the file may be
//! anything. It is read with bounds: no more than a limit is taken from it whatever its tables claim, nothing that it
//! refers to is opened, and only a plain file is read at all.

use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::rc::Rc;

use addr2line::{Context, gimli};
use gimli::{EndianRcSlice, RunTimeEndian};
use object::{CompressionFormat, Object, ObjectSection, ReadCache, ReadRef};
use weir_journal::reader::open_file;

use crate::symbols::NativeFrame;

/// Bytes that are read of one file, and that its packed sections expand to, at most.
const MOST_READ: u64 = 1 << 30;
/// Bytes of the names of functions that are kept of one file, and of one name, at most.
const MOST_NAMES: usize = 256 << 20;
const LONGEST_NAME: usize = 4096;
/// Functions that were inlined into each other at one address, at most.
const MOST_INLINED: usize = 64;

type Bytes = EndianRcSlice<RunTimeEndian>;

/// A module's functions and lines.
pub(crate) struct ModuleFile {
    context: Context<Bytes>,
    /// By address.
    symbols: Vec<(u64, Box<str>)>,
}

/// Reads from a file until the limit is reached.
#[derive(Clone, Copy)]
struct Bounded<'a> {
    cache: &'a ReadCache<File>,
    size: u64,
    left: &'a Cell<u64>,
}

impl Bounded<'_> {
    /// Takes bytes off the limit, if they are there.
    fn takes(&self, offset: u64, size: u64) -> Result<(), ()> {
        let end = offset.checked_add(size).filter(|end| *end <= self.size);
        let left = end.and(self.left.get().checked_sub(size)).ok_or(())?;
        self.left.set(left);
        Ok(())
    }
}

impl<'a> ReadRef<'a> for Bounded<'a> {
    fn len(self) -> Result<u64, ()> {
        Ok(self.size)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.takes(offset, size)?;
        self.cache.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: std::ops::Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        let found = self.cache.read_bytes_at_until(range.start..range.end.min(self.size), delimiter)?;
        self.takes(range.start, found.len() as u64)?;
        Ok(found)
    }
}

impl ModuleFile {
    /// Reads a file; none if it has another build id. A module that had none is taken by its path alone.
    pub(crate) fn open(path: &Path, build_id: &[u8]) -> Result<Option<Self>, String> {
        let file = open_file(path).map_err(|error| error.to_string())?;
        let size = file.metadata().map_err(|error| error.to_string())?.len();
        let (cache, left) = (ReadCache::new(file), Cell::new(MOST_READ));
        let bytes = Bounded { cache: &cache, size, left: &left };
        let object = object::File::parse(bytes).map_err(|error| error.to_string())?;
        let found = object.build_id().map_err(|error| error.to_string())?.unwrap_or_default();
        // The journal keeps the first bytes of long ones.
        if !build_id.is_empty() && !found.starts_with(build_id) {
            return Ok(None);
        }
        let endian = if object.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
        // A section that cannot be read is as good as none: functions are named by their symbols then.
        let load = |id: gimli::SectionId| -> Result<Bytes, gimli::Error> {
            let content = section(&object, id.name(), &left).unwrap_or_default();
            Ok(EndianRcSlice::new(Rc::from(content), endian))
        };
        let mut dwarf = gimli::Dwarf::load(load).map_err(|error| error.to_string())?;
        dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
        let context = Context::from_dwarf(dwarf).map_err(|error| error.to_string())?;
        let mut room = MOST_NAMES;
        let symbols = object.symbol_map();
        let named = symbols.symbols().iter().map_while(|symbol| {
            let name: String = symbol.name().chars().take(LONGEST_NAME).collect();
            room = room.checked_sub(name.len())?;
            Some((symbol.address(), name.into()))
        });
        Ok(Some(Self { context, symbols: named.collect() }))
    }

    /// The symbol at or before an address.
    pub(crate) fn symbol(&self, offset: u64) -> Option<&str> {
        let place = self.symbols.partition_point(|(address, _)| *address <= offset).checked_sub(1)?;
        self.symbols.get(place).map(|(_, name)| &**name)
    }

    /// What debug information says of an address: the function and those that it was inlined into, innermost first. Parts
    /// that lie in other files are not looked for.
    pub(crate) fn frames(&self, plain: &NativeFrame) -> Vec<NativeFrame> {
        let mut frames = Vec::new();
        let Ok(mut found) = self.context.find_frames(plain.offset).skip_all_loads() else { return frames };
        while let Ok(Some(frame)) = found.next() {
            let name = frame.function.as_ref().and_then(|name| name.demangle().ok().map(std::borrow::Cow::into_owned));
            let Some(function) = name.or_else(|| self.symbol(plain.offset).map(str::to_owned)) else { continue };
            let place = frame.location.as_ref();
            frames.push(NativeFrame {
                function,
                file: place.and_then(|place| place.file).unwrap_or_default().to_owned(),
                line: place.and_then(|place| place.line).unwrap_or(0),
                ..plain.clone()
            });
            if frames.len() >= MOST_INLINED {
                break;
            }
        }
        frames
    }
}

/// The content of a section, unpacked; none if there is no such section, or too much of it.
fn section<'a>(object: &object::File<'a, Bounded<'a>>, name: &str, left: &Cell<u64>) -> Option<Vec<u8>> {
    let packed = object.section_by_name(name)?.compressed_data().ok()?;
    match packed.format {
        CompressionFormat::None => Some(packed.data.to_vec()),
        CompressionFormat::Zlib => {
            left.set(left.get().checked_sub(packed.uncompressed_size)?);
            let mut content = Vec::new();
            let unpacked = flate2::read::ZlibDecoder::new(packed.data).take(packed.uncompressed_size);
            { unpacked }.read_to_end(&mut content).ok()?;
            (content.len() as u64 == packed.uncompressed_size).then_some(content)
        }
        _ => None,
    }
}

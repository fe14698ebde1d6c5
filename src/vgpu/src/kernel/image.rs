//! What code an image holds. PTX is read; what other images hold cannot be known, so they are taken
//! to hold every kernel that is looked up in them.

use super::ptx::{self, Entry, Variable};
use super::published;
use crate::error::{INVALID_IMAGE, R};
use std::ffi::{CStr, CString, c_void};
use std::sync::Arc;
use weir_cuda::CUresult;

const ELF: &[u8] = b"\x7fELF";
/// What the linker makes: an ELF magic, as every cubin has, and then this, `P` or `O`, and PTX. `O`
/// stands for further inputs that were not PTX.
const LINKED: &[u8] = b"\x7fELFweir-vgpu:";
/// Magic numbers of a fat binary and of the descriptor that compilers put before one, and the one of
/// Tile IR.
const OTHERS: [&[u8]; 3] = [b"\x50\xed\x55\xba", b"\xb1\x43\x62\x46", b"\x7fTileIR"];
/// A text that goes on for longer is not one.
const LONGEST_TEXT: usize = 1 << 30;

/// Loaded code, before it is put into any context.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) entries: Vec<Arc<Entry>>,
    pub(crate) variables: Vec<Variable>,
    /// Version of the PTX times ten; 0 without PTX.
    pub(crate) version: u32,
    /// Holds more than is known.
    pub(crate) opaque: bool,
}

impl Image {
    fn unknown() -> Self {
        Self { entries: Vec::new(), variables: Vec::new(), version: 0, opaque: true }
    }

    fn of_text(text: &[u8], opaque: bool) -> R<Self> {
        let ptx = ptx::parse(text).map_err(|ptx::Malformed| CUresult::CUDA_ERROR_INVALID_PTX)?;
        let entries = ptx.entries.into_iter().map(Arc::new).collect();
        Ok(Self { entries, variables: ptx.variables, version: ptx.version, opaque })
    }

    /// Reads an image whose length is known.
    pub(crate) fn of_bytes(bytes: &[u8]) -> R<Self> {
        if let Some((&kind, text)) = bytes.strip_prefix(LINKED).and_then(<[u8]>::split_first) {
            let text = &text[..text.iter().position(|&b| b == 0).unwrap_or(text.len())];
            return match kind {
                b'P' => Self::of_text(text, false),
                b'O' if text.is_empty() => Ok(Self::unknown()),
                b'O' => Self::of_text(text, true),
                _ => Err(INVALID_IMAGE),
            };
        }
        if bytes.starts_with(ELF) || OTHERS.iter().any(|magic| bytes.starts_with(magic)) {
            return Ok(Self::unknown());
        }
        let text = &bytes[..bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len())];
        if text.iter().all(|&b| is_text(b)) && ptx::looks_like_ptx(text) {
            return Self::of_text(text, false);
        }
        Err(INVALID_IMAGE)
    }

    /// Reads an image of which only the beginning is known.
    ///
    /// # Safety
    /// `image` begins with a magic number, or with a text that ends with NUL.
    pub(crate) unsafe fn at(image: *const c_void) -> R<Self> {
        let first = image.cast::<u8>();
        let magic = |magic: &[u8]| {
            // SAFETY: stops at the first byte that differs, so that no byte after the image's end is
            // read: an image is longer than its magic number.
            magic.iter().enumerate().all(|(at, &b)| unsafe { first.add(at).read() } == b)
        };
        if magic(LINKED) {
            let kind_at = LINKED.len();
            let mut len = kind_at + 1;
            // SAFETY: the linker ends its image with NUL.
            while len < LONGEST_TEXT && unsafe { first.add(len).read() } != 0 {
                len += 1;
            }
            // SAFETY: just read.
            return Self::of_bytes(unsafe { std::slice::from_raw_parts(first, len) });
        }
        if magic(ELF) || OTHERS.into_iter().any(magic) {
            return Ok(Self::unknown());
        }
        let mut len = 0;
        // SAFETY: goes on as long as there is text, which ends with NUL.
        while len < LONGEST_TEXT && is_text(unsafe { first.add(len).read() }) {
            len += 1;
        }
        // SAFETY: the byte after the text was just read.
        if unsafe { first.add(len).read() } != 0 {
            return Err(INVALID_IMAGE);
        }
        // SAFETY: just read.
        Self::of_bytes(unsafe { std::slice::from_raw_parts(first, len) })
    }

    /// The kernel of a name.
    pub(crate) fn entry(&self, name: &CStr) -> Option<Arc<Entry>> {
        let known = self.entries.iter().find(|e| e.name.as_c_str() == name);
        known.cloned().or_else(|| self.opaque.then(|| Arc::new(unknown_entry(name.to_owned()))))
    }

    /// Whether the parameters of an entry can be seen.
    pub(crate) fn shows(&self, entry: &Arc<Entry>) -> bool {
        !self.opaque
            || published::parameters(&entry.name).is_some()
            || self.entries.iter().any(|e| Arc::ptr_eq(e, entry))
    }
}

fn unknown_entry(name: CString) -> Entry {
    let parameters = published::parameters(&name).unwrap_or_default();
    let parameter_bytes = parameters.last().map_or(0, |last| last.offset + last.size);
    Entry {
        name,
        parameters,
        parameter_bytes,
        max_threads: None,
        max_registers: None,
        shared_bytes: 0,
        local_bytes: 0,
        program: None,
    }
}

fn is_text(byte: u8) -> bool {
    byte >= b' ' && byte != 0x7f || matches!(byte, b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// The linker's inputs so far.
#[derive(Default)]
pub(crate) struct Linked {
    text: Vec<u8>,
    opaque: bool,
}

impl Linked {
    /// Adds an input of whatever kind.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> R {
        let bytes = match bytes.strip_prefix(LINKED) {
            Some([kind, text @ ..]) => {
                self.opaque |= *kind == b'O';
                text
            }
            _ => bytes,
        };
        let text = &bytes[..bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len())];
        if !text.is_empty() && text.iter().all(|&b| is_text(b)) && ptx::looks_like_ptx(text) {
            ptx::parse(text).map_err(|ptx::Malformed| CUresult::CUDA_ERROR_INVALID_PTX)?;
            self.text.extend_from_slice(text);
            self.text.push(b'\n');
        } else if bytes.is_empty() {
            return Err(INVALID_IMAGE);
        } else {
            self.opaque = true;
        }
        Ok(())
    }

    /// The image of all inputs.
    pub(crate) fn image(&self) -> Vec<u8> {
        let kind = if self.opaque || self.text.is_empty() { b'O' } else { b'P' };
        [LINKED, &[kind], &self.text, &[0]].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b".version 8.0\n.target sm_80\n.entry k(.param .u64 p) { ret; }\0";

    fn load(bytes: &[u8]) -> R<Image> {
        // SAFETY: every test gives text that ends with NUL, or a magic number.
        let at = unsafe { Image::at(bytes.as_ptr().cast()) };
        let known = Image::of_bytes(bytes);
        assert_eq!(at.as_ref().err(), known.as_ref().err());
        at
    }

    #[test]
    fn only_ptx_is_read() {
        let image = load(TEXT).expect("PTX");
        assert!(!image.opaque && image.entry(c"k").is_some() && image.entry(c"other").is_none());
        for bytes in [&b"\x7fELF\x02\x01"[..], b"\x50\xed\x55\xba\x01", b"\xb1\x43\x62\x46\x01"] {
            let image = load(bytes).expect("a magic number");
            let entry = image.entry(c"anything").expect("any name");
            assert!(image.opaque && !image.shows(&entry));
        }
    }

    #[test]
    fn garbage_is_no_image_and_text_without_its_head_no_ptx() {
        for garbage in [&b"\0"[..], b"hello\0", b"\x01\x02\x03\0", b"\x7fELL\0", b"// nothing\0", b".ver\x01\0"] {
            assert_eq!(load(garbage).err(), Some(INVALID_IMAGE), "{garbage:?}");
        }
        for bad in [&b".entry k() { ret; }\0"[..], b".version 8.0\n\0", b".version 8.0 .target sm_80 .entry k(\0"] {
            assert_eq!(load(bad).err(), Some(CUresult::CUDA_ERROR_INVALID_PTX), "{bad:?}");
        }
    }

    #[test]
    fn linking_keeps_what_each_input_holds() {
        let mut linked = Linked::default();
        linked.add(TEXT).expect("PTX");
        linked.add(&TEXT[..TEXT.len() - 1]).expect("PTX without NUL");
        let image = load(&linked.image()).expect("an image");
        assert!(!image.opaque && image.entries.len() == 1);
        linked.add(b"\x7fELFobject").expect("anything");
        let image = load(&linked.image()).expect("an image");
        let (k, x) = (image.entry(c"k").expect("k"), image.entry(c"x").expect("x"));
        assert!(image.opaque && image.shows(&k) && !image.shows(&x));
        let mut again = Linked::default();
        again.add(&linked.image()).expect("its own output");
        assert!(load(&again.image()).is_ok_and(|image| image.opaque && image.entries.len() == 1));
        assert_eq!(again.add(b""), Err(INVALID_IMAGE));
        assert_eq!(again.add(b".version 8.0\n"), Err(CUresult::CUDA_ERROR_INVALID_PTX));
    }

    #[test]
    fn a_link_of_nothing_readable_accepts_any_name() {
        let image = load(&Linked::default().image()).expect("an image");
        assert!(image.opaque && image.entry(c"x").is_some());
    }

    #[test]
    fn what_the_assembler_makes_shows_kernels_and_sizes_of_variables() {
        let folder = std::env::temp_dir().join(format!("vgpu-ptxas-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a scratch folder");
        let (input, output) = (folder.join("in.ptx"), folder.join("out.cubin"));
        let text = ".version 8.1\n.target sm_80\n.address_size 64\n\
            .visible .global .align 128 .b8 buffer_for_constant_10_0[262144];\n\
            .visible .global .align 4 .b8 small[4] = {1, 2, 3, 4};\n\
            .visible .entry loop_fusion(.param .u64 .ptr .align 16 a, .param .u64 .ptr .align 256 b) { ret; }\n";
        std::fs::write(&input, text).expect("its input");
        let ptxas = concat!(env!("CARGO_MANIFEST_DIR"), "/standins/toolkit/ptxas");
        let mut run = std::process::Command::new("sh");
        run.arg(ptxas).args(["-arch=sm_80", "-v"]).arg(&input).arg("-o").arg(&output);
        let made = run.status().is_ok_and(|status| status.success()).then(|| std::fs::read(&output));
        std::fs::remove_dir_all(&folder).expect("the scratch folder");
        let image = load(&made.expect("it ends well").expect("its output")).expect("an image");
        let size = |name: &CStr| image.variables.iter().find(|v| v.name.as_c_str() == name).map(|v| v.size);
        assert_eq!(size(c"buffer_for_constant_10_0"), Some(262_144));
        assert_eq!(size(c"small"), Some(4));
        assert!(!image.opaque && image.entry(c"loop_fusion").is_some_and(|entry| entry.parameters.len() == 2));
    }
}

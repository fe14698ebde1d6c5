//! VGPU_TRACE: one line of JSON a call, appended with a single write, so that threads and processes
//! that share the file never tear each other's lines.

use crate::config;
use crate::names;
use crate::shared::held::HeldFile;
use core::any::type_name;
use core::ffi::{CStr, c_char};
use core::fmt::Write as _;
use core::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;
use weir_cuda::{CUresult, Function};

/// How much of a string argument is kept.
const STRING_LIMIT: usize = 256;

/// One argument of a call: where it lies and what type it has. Rendered only when the line is.
#[derive(Clone, Copy)]
pub(crate) struct Arg<'a> {
    bytes: *const u8,
    size: usize,
    type_name: &'static str,
    lives: PhantomData<&'a u8>,
}

impl<'a> Arg<'a> {
    /// An argument of any plain type.
    pub(crate) fn of<T: Copy>(value: &'a T) -> Self {
        Self {
            bytes: (&raw const *value).cast(),
            size: size_of::<T>(),
            type_name: type_name::<T>(),
            lives: PhantomData,
        }
    }

    fn byte(&self, at: usize) -> u8 {
        // SAFETY: `bytes` points to `size` bytes of a value that `'a` keeps alive, and `at` is below
        // `size` at each caller; the types of driver arguments have no padding.
        unsafe { self.bytes.add(at).read() }
    }

    /// The first eight bytes as a number, missing ones zero.
    fn word(&self) -> u64 {
        let mut word = [0; 8];
        for (at, byte) in word.iter_mut().enumerate().take(self.size) {
            *byte = self.byte(at);
        }
        u64::from_le_bytes(word)
    }

    fn is_pointer(&self) -> bool {
        self.type_name.starts_with('*') || self.type_name.starts_with("core::option::Option<")
    }

    /// The argument as a JSON value.
    fn render(&self, out: &mut String) {
        let word = self.word();
        // Writing to a String cannot fail.
        let _ = match self.type_name {
            _ if self.is_pointer() => write!(out, "\"{word:#x}\""),
            "f32" => float(out, f64::from(f32::from_bits(word as u32))),
            "f64" => float(out, f64::from_bits(word)),
            "i8" => write!(out, "{}", word as i8),
            "i16" => write!(out, "{}", word as i16),
            "i32" => write!(out, "{}", word as i32),
            "i64" | "isize" => write!(out, "{}", word as i64),
            "u8" | "u16" | "u32" | "u64" | "usize" => write!(out, "{word}"),
            // Enumerations are four bytes; every other struct that is passed by value is longer.
            _ if self.size <= 4 => write!(out, "{word}"),
            _ => {
                out.push('"');
                for at in 0..self.size {
                    let _ = write!(out, "{:02x}", self.byte(at));
                }
                out.push('"');
                Ok(())
            }
        };
    }

    /// What the argument points to, where that is a plain result or a string; `first` gives the first
    /// argument, where a function that makes an object puts its handle.
    fn render_pointee(&self, first: bool, out: &mut String) -> bool {
        let pointer = self.word() as *const u8;
        if pointer.is_null() || !self.is_pointer() {
            return false;
        }
        let handle = first && self.type_name.starts_with("*mut *mut ") && self.type_name.ends_with("_st");
        if handle {
            // SAFETY: as below.
            let _ = write!(out, "\"{:#x}\"", unsafe { pointer.cast::<u64>().read_unaligned() });
            return true;
        }
        if self.type_name == type_name::<*mut u64>() || self.type_name == type_name::<*mut usize>() {
            // SAFETY: the call has succeeded, so what its non-null result pointer names is written.
            let _ = write!(out, "{}", unsafe { pointer.cast::<u64>().read_unaligned() });
            return true;
        }
        if self.type_name == type_name::<*const c_char>() {
            // SAFETY: constant characters of a driver function are always a C string, and the call that
            // has read it has succeeded.
            let text = unsafe { CStr::from_ptr(pointer.cast()) }.to_bytes();
            let kept = text.get(..STRING_LIMIT).unwrap_or(text);
            string(out, &String::from_utf8_lossy(kept));
            return true;
        }
        false
    }
}

/// A number that JSON has; the others as text.
fn float(out: &mut String, value: f64) -> core::fmt::Result {
    if value.is_finite() { write!(out, "{value}") } else { write!(out, "\"{value}\"") }
}

fn string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Appends the line of a finished call. `injected` marks a failure that VGPU_FAIL injected.
pub(super) fn write(function: &Function, began: Instant, result: CUresult, args: &[Arg], injected: bool) {
    let took = began.elapsed().as_nanos() as u64;
    let line = line(function, now().saturating_sub(took), took, result, args, injected);
    let Some(file) = file() else { return };
    if let Err(error) = file.append(line.as_bytes()) {
        complain(&error);
    }
}

fn line(function: &Function, began: u64, took: u64, result: CUresult, args: &[Arg], injected: bool) -> String {
    // By number: glibc has a function for gettid only since 2.30.
    // SAFETY: neither takes an argument nor can fail.
    let (pid, tid) = unsafe { (libc::getpid(), libc::syscall(libc::SYS_gettid)) };
    let mut out = String::with_capacity(256);
    let _ = write!(out, "{{\"t\":{began},\"pid\":{pid},\"tid\":{tid},\"fn\":\"{}\",\"args\":{{", function.symbol);
    let succeeded = result == CUresult::CUDA_SUCCESS;
    for (at, (name, arg)) in function.arguments.iter().zip(args).enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let _ = write!(out, "{comma}\"{name}\":");
        arg.render(&mut out);
        let mut pointee = String::new();
        if succeeded && arg.render_pointee(at == 0, &mut pointee) {
            let _ = write!(out, ",\"*{name}\":{pointee}");
        }
    }
    match names::error_name(result).and_then(|name| name.to_str().ok()) {
        Some(name) => drop(write!(out, "}},\"result\":\"{name}\",\"ns\":{took}")),
        None => drop(write!(out, "}},\"result\":\"{}\",\"ns\":{took}", result.0)),
    }
    out.push_str(if injected { ",\"injected\":true}\n" } else { "}\n" });
    out
}

/// The monotonic clock, which all processes of a host share.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec of our own.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn file() -> Option<&'static HeldFile> {
    static FILE: OnceLock<Option<HeldFile>> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        let path = config::get().trace.as_ref()?;
        match HeldFile::open(path, libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT) {
            Ok(file) => Some(file),
            Err(error) => {
                complain(&error);
                None
            }
        }
    });
    file.as_ref()
}

/// Says once that the trace has a gap; the job goes on.
fn complain(error: &std::io::Error) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Relaxed) {
        let path = config::get().trace.as_deref().unwrap_or(std::path::Path::new(""));
        eprintln!("vgpu: VGPU_TRACE={} cannot be written: {error}", path.display());
    }
}

#[cfg(test)]
mod tests;

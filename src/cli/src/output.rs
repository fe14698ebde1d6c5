//! What commands write: to standard output without a panic when it is full, and to files that are whole or not there.

use std::fmt::Arguments;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Prints to standard output, as `print!` does.
macro_rules! put {
    ($($text:tt)*) => { $crate::output::print(format_args!($($text)*)) };
}

/// Prints a line to standard output, as `println!` does.
macro_rules! putln {
    ($($text:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints, or ends the command with one line that says why it cannot.
pub(crate) fn print(text: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_fmt(text).and_then(|()| out.flush()) {
        eprintln!("weir: standard output: {error}");
        std::process::exit(1);
    }
}

/// Writes a file beside its place and renames it, so that a file of this name is always whole. What is no plain file (a
/// device, a pipe) is written to as it is; a link is followed.
pub(crate) fn whole<T, E: From<std::io::Error>>(
    path: &Path,
    write: impl FnOnce(&mut File) -> Result<T, E>,
) -> Result<T, E> {
    let place = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if std::fs::metadata(&place).is_ok_and(|found| !found.is_file()) {
        return write(&mut File::options().write(true).open(&place)?);
    }
    let mut draft = place.as_os_str().to_owned();
    draft.push(format!(".{}.part", std::process::id()));
    let draft = PathBuf::from(draft);
    let done = write(&mut File::create(&draft)?).and_then(|value| {
        std::fs::rename(&draft, &place)?;
        Ok(value)
    });
    if done.is_err() {
        let _ = std::fs::remove_file(&draft);
    }
    done
}

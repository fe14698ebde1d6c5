//! What commands write: to standard output without a panic when it is full, and to files that are whole or not there. What is
//! printed cannot steer a terminal: names come from jobs and files, and may hold anything.

use std::fmt::Arguments;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use weir_journal::text;

use crate::ascii;

/// Prints to standard output, as `print!` does.
macro_rules! put {
    ($($text:tt)*) => { $crate::output::print(format_args!($($text)*)) };
}

/// Prints a line to standard output, as `println!` does.
macro_rules! putln {
    ($($text:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints a line to standard error. It takes the place of the standard library's, so that no message of the command
/// goes past [`complain`].
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::output::complain(format_args!($($text)*)) };
}

/// Prints lines, or ends the command with one line that gives the reason why it cannot.
pub(crate) fn print(text: Arguments<'_>) {
    screen(&text::lines(&text.to_string()));
}

/// Prints text that is safe already: it has the colours of a report.
pub(crate) fn screen(text: &str) {
    raw(&ascii::fit(text));
}

/// Prints a value as one JSON document, on many lines or on one.
pub(crate) fn json(value: &impl Serialize, pretty: bool) {
    raw(&(json_text(value, pretty) + "\n"));
}

/// A value as JSON text that is safe to print.
pub(crate) fn json_text(value: &impl Serialize, pretty: bool) -> String {
    let text = if pretty { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
    // Values here have text keys and no types that could refuse.
    text::json(&text.unwrap_or_default()).into_owned()
}

/// Prints lines that programs read or that name files: no letter is replaced.
pub(crate) fn exact(text: &str) {
    raw(&text::lines(text));
}

/// Writes text as it is.
pub(crate) fn raw(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        eprintln!("weir: standard output: {error}");
        std::process::exit(1);
    }
}

/// Prints lines to standard error, if it is open.
pub(crate) fn complain(text: Arguments<'_>) {
    let text = text::lines(&text.to_string()).into_owned() + "\n";
    let _ = std::io::stderr().lock().write_all(ascii::fit(&text).as_bytes());
}

/// Prints a value as one line of JSON to standard error, if it is open.
pub(crate) fn complain_json(value: &impl Serialize) {
    let _ = std::io::stderr().lock().write_all((json_text(value, false) + "\n").as_bytes());
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

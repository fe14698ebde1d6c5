//! Switches rules off, one at a time: the tests of a program must notice each.

use std::process::{Command, Stdio};

/// The rules whose names are chosen and that none of this program's tests notices. The test that asks has this name, and is left
/// out.
pub(crate) fn unnoticed(asks: &str, chosen: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let passes = |off: &str| {
        let mut tests = Command::new(std::env::current_exe().unwrap());
        tests.args(["--skip", asks]).env("WEIR_FAULT", off).stdout(Stdio::null()).stderr(Stdio::null());
        tests.status().unwrap().success()
    };
    assert!(passes("none"), "the tests fail with every rule, too");
    weir_forensics::rules().into_iter().filter(|rule| chosen(rule) && passes(rule)).collect()
}

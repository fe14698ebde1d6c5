//! The pages under docs/: what they show of the command is what it prints, and their links lead somewhere.

use std::path::Path;
use std::process::Command;

#[test]
fn pages_are_current_and_their_links_lead_somewhere() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/docs");
    let done = Command::new(script).arg("--check").env("WEIR_COMMAND", env!("CARGO_BIN_EXE_weir")).output().unwrap();
    let said = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(done.status.success(), "{said}");
}

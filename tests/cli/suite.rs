//! The command as a user meets it: real processes, terminals, signals, files, jobs on the virtual GPU.
//!
//! `screens.rs` compares whole screens with the reviewed snapshots in `snapshots/`; after an intended change run
//! `INSTA_UPDATE=always cargo test -p weir-tests --test cli -- screens:` and review the difference in git.

mod checks;
mod files;
mod hostile;
mod json;
mod limits;
mod names;
mod places;
mod reading;
mod report;
mod rerun;
mod run;
mod scene;
mod screens;
mod settings;
mod signals;

use std::process::ExitCode;
use weir_tests::harness::Suite;

fn main() -> ExitCode {
    let mut suite = Suite::new();
    run::trials(&mut suite);
    signals::trials(&mut suite);
    settings::trials(&mut suite);
    limits::trials(&mut suite);
    report::trials(&mut suite);
    reading::trials(&mut suite);
    files::trials(&mut suite);
    json::trials(&mut suite);
    hostile::trials(&mut suite);
    names::trials(&mut suite);
    checks::trials(&mut suite);
    places::trials(&mut suite);
    screens::trials(&mut suite);
    rerun::trials(&mut suite);
    suite.run()
}

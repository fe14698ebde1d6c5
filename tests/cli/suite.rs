//! The command as a user meets it: real processes, terminals, signals, files, jobs on the virtual GPU. The cases are the
//! functions of `cases.py` and the files beside it; each is a trial in a process of its own.

use std::process::ExitCode;
use weir_tests::harness::Suite;

fn main() -> ExitCode {
    let mut suite = Suite::new();
    suite.python("cli/cases.py");
    suite.run()
}

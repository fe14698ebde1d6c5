//! docs/reference/environment.md: the page about all settings, made from the table.

use std::fmt::Write as _;

use crate::table::{Flag, SETTINGS, Setting};

const INTRODUCTION: &str = "\
# Environment

Made by `weir man --environment` from the table that the library and the command read; don't edit it by hand.

weir takes its settings from the environment. `weir run` has a flag for each and checks every value before it starts
anything: a bad one, given as a flag or inherited, is one line and exit code 125. Without `weir run` (a bare
`LD_PRELOAD`) the library checks them itself, at the first CUDA call.

- The settings are those with which the program was started. What it does to its own environment later, for example by
  `os.environ` in Python, changes nothing for itself; processes that it starts get their own.
- An empty value is as good as none.
- A bad value costs only itself: one line on standard error, and the default holds.
- A bad **limit** is not replaced by a default, because the job would run without it: cuInit fails with
  `CUDA_ERROR_INVALID_VALUE` and one line. That holds as well for a limit that cannot be kept (a group's ledger that is full,
  damaged or not this user's; a device that the machine does not have). `WEIR_STRICT=0` runs the job without the limit, and
  says so in one line. A program that ignores what cuInit answers gets `CUDA_ERROR_OUT_OF_MEMORY` for every request.
  TensorFlow, PyTorch and JAX go on with the CPU when cuInit fails, after an error of their own.
- An unknown variable that begins with `WEIR_` costs one line, and has no effect. What Kubernetes sets for a service that
  is called weir-something (`WEIR_METRICS_SERVICE_HOST`, …) is passed over in silence.
";

const SIZES: &str = "
## Sizes

`8GiB`, `8Gi` and `8G` are the same (powers of 1024; K, M, G, T), `8GB` is 8 000 000 000 bytes, `1.5GiB` and `80%` (a share)
are possible. Upper and lower case are alike. A number without a unit is bytes, and at least 1 MiB: `8` is an error
(\"did you mean 8GiB?\"), and so is `0.8` (\"did you mean 80%?\"). `4096B` says bytes on purpose. A cap larger than the device
means the whole device, and is said in one line.
";

/// The page.
pub fn markdown() -> String {
    let mut text = format!(
        "{INTRODUCTION}\n| variable | flag of `weir run` | values | default | meaning |\n|---|---|---|---|---|\n"
    );
    for setting in SETTINGS {
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} |",
            setting.variable,
            flag(setting),
            cell(setting.values),
            default(setting),
            cell(setting.help)
        );
    }
    text.push_str("\n## What a bad value does\n\n| variable | is | a bad value |\n|---|---|---|\n");
    for setting in SETTINGS {
        let _ = writeln!(text, "| `{}` | {} | {} |", setting.variable, setting.kind.word(), setting.bad_value());
    }
    text.push_str("| any other `WEIR_…` | | one line, no effect |\n");
    text + SIZES
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn flag(setting: &Setting) -> String {
    match setting.flag {
        Flag::Takes(name) => format!("`--{name} {}`", cell(setting.value_name)),
        Flag::Own(shown) => format!("`{shown}`"),
        Flag::None => String::new(),
    }
}

fn default(setting: &Setting) -> String {
    if setting.default.is_empty() { setting.default_note.to_owned() } else { format!("`{}`", setting.default) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_is_current() {
        let page = include_str!("../../../docs/reference/environment.md");
        assert!(page == super::markdown(), "run: weir man --environment > docs/reference/environment.md");
    }
}

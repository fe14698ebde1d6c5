//! `weir man`: the manual pages and docs/reference/commands.md, made from the same descriptions as `--help`. Writes only where told.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, Args, Command, CommandFactory};
use serde_json::json;

/// Arguments of `weir man`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  weir man | man -l -
  weir man --out ~/.local/share/man/man1
  weir man --markdown > docs/reference/commands.md
  weir man --environment > docs/reference/environment.md")]
pub(crate) struct Arguments {
    /// Write one page a command into this folder (weir.1, weir-run.1, …) instead of printing weir(1)
    #[arg(long, value_name = "FOLDER", conflicts_with = "markdown")]
    out: Option<PathBuf>,
    /// Print all commands as one Markdown page
    #[arg(long)]
    markdown: bool,
    /// Print all settings as one Markdown page
    #[arg(long, conflicts_with_all = ["out", "markdown"])]
    environment: bool,
    /// Print JSON: the name and the text of the page, or the files that were written
    #[arg(long)]
    json: bool,
}

/// Runs `weir man`.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match answer(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let place = arguments.out.as_ref().map(|folder| format!("{}: ", folder.display())).unwrap_or_default();
            eprintln!("weir man: {place}{error}");
            ExitCode::FAILURE
        }
    }
}

fn answer(arguments: &Arguments) -> io::Result<()> {
    let command = described();
    if let Some(folder) = &arguments.out {
        let files = write_pages(&command, folder)?;
        if arguments.json {
            putln!("{:#}", json!({"folder": folder.to_string_lossy(), "files": files}));
        }
        return Ok(());
    }
    let (name, text) = match (arguments.markdown, arguments.environment) {
        (true, _) => ("commands.md", markdown(&command).into_bytes()),
        (_, true) => ("environment.md", weir_settings::reference::markdown().into_bytes()),
        _ => ("weir.1", page(&command)?),
    };
    if arguments.json {
        putln!("{:#}", json!({"name": name, "text": String::from_utf8_lossy(&text)}));
        return Ok(());
    }
    print(&text)
}

/// The whole command, with every usage line worked out.
fn described() -> Command {
    let mut command = crate::Arguments::command().disable_help_subcommand(true);
    command.build();
    command
}

/// A reader that has seen enough (head, less) is no failure.
fn print(bytes: &[u8]) -> io::Result<()> {
    match io::stdout().write_all(bytes) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).title(name).date("").render(&mut text)?;
    if command.get_name() == "run" {
        text.extend(environment().into_bytes());
    }
    Ok(text)
}

/// The section about the variables, from the table that the library reads.
fn environment() -> String {
    let mut text = String::from(".SH ENVIRONMENT\n");
    for setting in weir_settings::SETTINGS {
        let default = if setting.default.is_empty() { setting.default_note } else { setting.default };
        let plain = |text: &str| text.replace('\\', "\\e").replace('-', "\\-");
        let (help, values, default) = (plain(setting.help), plain(setting.values), plain(default));
        let bad = if setting.kind == weir_settings::Kind::Limit { "; a bad value makes cuInit fail" } else { "" };
        let _ = writeln!(text, ".TP\n\\fB{}\\fR\n{help}: {values}. Default: {default}{bad}.", setting.variable);
    }
    text
}

/// Writes a page a command; the names of the files.
fn write_pages(command: &Command, folder: &Path) -> io::Result<Vec<String>> {
    std::fs::create_dir_all(folder)?;
    let all = std::iter::once(("weir.1".to_owned(), command));
    let all = all.chain(visible(command).map(|sub| (format!("weir-{}.1", sub.get_name()), sub)));
    all.map(|(name, command)| std::fs::write(folder.join(&name), page(command)?).map(|()| name)).collect()
}

fn markdown(command: &Command) -> String {
    let mut text = String::from(
        "# Commands\n\nMade by `weir man --markdown` from the descriptions that `--help` shows; don't edit it by hand.\n\n",
    );
    for sub in visible(command) {
        let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(text, "- [weir {}](#weir-{}): {}", sub.get_name(), sub.get_name(), first_line(&about));
    }
    for sub in visible(command) {
        section(sub, &format!("weir {}", sub.get_name()), &mut text);
    }
    text
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// One command, and its own commands if it has any.
fn section(command: &Command, name: &str, text: &mut String) {
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let _ = writeln!(text, "\n## {name}\n\n{}\n\n    {usage}", about.trim());
    let all = || command.get_arguments().filter(|arg| !arg.is_hide_set() && arg.get_id() != "help");
    table("argument", all().filter(|arg| arg.is_positional()), text);
    table("option", all().filter(|arg| !arg.is_positional()), text);
    if let Some(more) = command.get_after_long_help().or(command.get_after_help()) {
        // Indented as code: the examples keep their lines.
        let _ = writeln!(text);
        for line in more.to_string().trim().lines() {
            let _ = if line.starts_with(' ') || line.is_empty() {
                writeln!(text, "  {line}")
            } else {
                writeln!(text, "{line}\n")
            };
        }
    }
    for sub in visible(command) {
        section(sub, &format!("{name} {}", sub.get_name()), text);
    }
}

fn table<'a>(title: &str, rows: impl Iterator<Item = &'a Arg>, text: &mut String) {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return;
    }
    let _ = writeln!(text, "\n| {title} | meaning |\n|---|---|");
    for arg in rows {
        let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
        let mut help = help.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
        let choices: Vec<_> = arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
        if !choices.is_empty() && arg.get_action().takes_values() {
            let _ = write!(help, " (`{}`)", choices.join("`, `"));
        }
        let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        if !defaults.is_empty() && arg.get_action().takes_values() {
            let _ = write!(help, " Default: `{}`.", defaults.join(" "));
        }
        let _ = writeln!(text, "| `{}` | {help} |", shape(arg).replace('|', "\\|"));
    }
}

/// How an argument is written: `-o, --out <FOLDER>`.
fn shape(arg: &Arg) -> String {
    let mut parts = Vec::new();
    parts.extend(arg.get_short().map(|short| format!("-{short}")));
    parts.extend(arg.get_long().map(|long| format!("--{long}")));
    let names: Vec<_> = arg.get_value_names().unwrap_or_default().iter().map(|name| format!("<{name}>")).collect();
    let value = if names.is_empty() { format!("<{}>", arg.get_id().as_str().to_uppercase()) } else { names.join(" ") };
    if arg.is_positional() {
        return if arg.is_required_set() { value } else { value.replace('<', "[").replace('>', "]") };
    }
    let takes = arg.get_action().takes_values();
    if takes { format!("{} {value}", parts.join(", ")) } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_visible_command_has_a_page_and_a_section() {
        let command = described();
        let text = markdown(&command);
        let folder = std::env::temp_dir().join(format!("weir-man-{}", std::process::id()));
        write_pages(&command, &folder).unwrap();
        for sub in visible(&command) {
            assert!(text.contains(&format!("\n## weir {}\n", sub.get_name())), "{}", sub.get_name());
            let page = std::fs::read_to_string(folder.join(format!("weir-{}.1", sub.get_name()))).unwrap();
            assert!(page.contains("SYNOPSIS"), "{page}");
        }
        assert!(!text.contains("weir probe"), "a hidden command is shown");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn every_visible_command_can_answer_in_json() {
        for sub in visible(&described()) {
            assert!(sub.get_arguments().any(|arg| arg.get_long() == Some("json")), "weir {}", sub.get_name());
        }
    }

    #[test]
    fn the_descriptions_hold_together() {
        crate::Arguments::command().debug_assert();
    }
}

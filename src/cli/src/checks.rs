//! What a CI asks of a run: checks with a verdict, as exit code, JUnit file and Markdown.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use weir_journal::text::{lines, plain};

use crate::output;

/// Exit code when a check has failed.
pub(crate) const FAILED: u8 = 3;

/// One check.
#[derive(Debug)]
pub(crate) struct Check {
    /// What must hold.
    pub(crate) name: String,
    /// Why it does not.
    pub(crate) failure: Option<String>,
}

/// The exit code of these; each failure is a line on standard error.
pub(crate) fn outcome<'a>(command: &str, checks: impl Iterator<Item = &'a Check>) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for failure in checks.filter_map(|check| check.failure.as_ref()) {
        eprintln!("weir {command}: {}", plain(failure));
        code = ExitCode::from(FAILED);
    }
    code
}

/// Writes checks as a JUnit file: a suite of this name, a case for each check, the figures as properties, the text as output.
pub(crate) fn junit(
    file: &Path,
    suite: &str,
    checks: &[Check],
    figures: &[(&str, u64)],
    text: &str,
) -> Result<(), String> {
    let failures = checks.iter().filter(|check| check.failure.is_some()).count();
    let (name, count) = (xml(suite), checks.len());
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    let _ = writeln!(
        out,
        "<testsuite name=\"{name}\" tests=\"{count}\" failures=\"{failures}\" errors=\"0\" skipped=\"0\">"
    );
    out.push_str("<properties>\n");
    for (name, figure) in figures {
        let _ = writeln!(out, "<property name=\"{}\" value=\"{figure}\"/>", xml(name));
    }
    out.push_str("</properties>\n");
    for check in checks {
        let _ = write!(out, "<testcase classname=\"weir\" name=\"{}\"", xml(&check.name));
        match &check.failure {
            Some(why) => {
                let _ = writeln!(out, "><failure message=\"{}\">{}</failure></testcase>", xml(why), xml(text));
            }
            None => out.push_str("/>\n"),
        }
    }
    let _ = writeln!(out, "<system-out>{}</system-out>\n</testsuite>\n</testsuites>", xml(text));
    let written = output::whole(file, |to| to.write_all(out.as_bytes()));
    written.map_err(|error| format!("{}: {error}", file.display()))
}

/// Text for XML, which has no way to write most controls.
fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in lines(text).chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => out.push('?'),
            letter => out.push(letter),
        }
    }
    out
}

/// A name as code in a table of Markdown. It can end neither the code nor the cell.
pub(crate) fn code(name: &str) -> String {
    if name.is_empty() {
        return String::new();
    }
    format!("`{}`", plain(name).replace('`', "'").replace('|', "\\|"))
}

/// Words in Markdown: nothing in them is markup, a link, or a name that would be notified.
pub(crate) fn words(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in plain(text).chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '@' => out.push_str("&#64;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '!' | '~' => out.extend(['\\', letter]),
            letter => out.push(letter),
        }
    }
    out
}

/// The checks as a list, and a text to unfold.
pub(crate) fn markdown(checks: &[Check], title: &str, text: &str) -> String {
    let mut out = String::new();
    for check in checks {
        let _ = match &check.failure {
            Some(why) => writeln!(out, "- :x: {}: {}", words(&check.name), words(why)),
            None => writeln!(out, "- :white_check_mark: {}", words(&check.name)),
        };
    }
    // A fence that is longer than any in the text.
    let mut fence = String::from("```");
    while text.contains(&fence) {
        fence.push('`');
    }
    let _ = writeln!(
        out,
        "\n<details><summary>{}</summary>\n\n{fence}text\n{}\n{fence}\n</details>",
        words(title),
        lines(text).trim_end()
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place() {
        assert_eq!(code("a`b|c\u{1b}[2J"), "`a'b\\|c·[2J`");
        assert_eq!(words("@all <b> [x](y) *_"), "&#64;all &lt;b> \\[x\\](y) \\*\\_");
        assert_eq!(xml("<a b=\"&\">\u{0}\u{b}\n"), "&lt;a b=&quot;&amp;&quot;&gt;··\n");
        let page = markdown(&[], "Report", "```\n</details>");
        assert!(page.contains("\n````text\n```\n</details>\n````\n</details>\n"), "{page}");
    }

    #[test]
    fn a_failed_check_is_a_failed_case() {
        let file = std::env::temp_dir().join(format!("weir-junit-{}.xml", std::process::id()));
        let check =
            |name: &str, failure: Option<&str>| Check { name: name.into(), failure: failure.map(str::to_owned) };
        let checks = [check("no refusal", None), check("peak", Some("7 > 6"))];
        junit(&file, "train.py", &checks, &[("peak", 7)], "the report").unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(
            text.contains("tests=\"2\" failures=\"1\"") && text.contains("<property name=\"peak\" value=\"7\"/>"),
            "{text}"
        );
        assert!(
            text.contains("name=\"no refusal\"/>")
                && text.contains("<failure message=\"7 &gt; 6\">the report</failure>"),
            "{text}"
        );
    }
}

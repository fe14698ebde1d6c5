//! Names that a job chose are shown by every command: none of them controls the terminal, forges a line or becomes a formula.

use crate::hostile::bounded;
use crate::scene::{Scene, json_lines};
use regex_lite::Regex;
use std::path::Path;
use weir_tests::harness::{Suite, stage};

pub(crate) fn trials(suite: &mut Suite) {
    suite.add("names: none controls what shows it", shown);
    suite.add("names: none is a formula in a spreadsheet", formula);
    suite.add("names: none controls the terminal through the library's own text", library_text);
}

/// Characters of the general category Cf (format), by ranges.
const FORMAT: [(u32, u32); 20] = [
    (0xad, 0xad),
    (0x600, 0x605),
    (0x61c, 0x61c),
    (0x6dd, 0x6dd),
    (0x70f, 0x70f),
    (0x890, 0x891),
    (0x8e2, 0x8e2),
    (0x180e, 0x180e),
    (0x200b, 0x200f),
    (0x202a, 0x202e),
    (0x2060, 0x2064),
    (0x2066, 0x206f),
    (0xfeff, 0xfeff),
    (0xfff9, 0xfffb),
    (0x110bd, 0x110cd),
    (0x13430, 0x1343f),
    (0x1bca0, 0x1bca3),
    (0x1d173, 0x1d17a),
    (0xe0001, 0xe0001),
    (0xe0020, 0xe007f),
];

/// Whether a character controls a terminal, changes the direction or has no width; the end of a line and a tab do not.
fn controls(letter: char) -> bool {
    let code = u32::from(letter);
    let unassigned = (0xfdd0..=0xfdef).contains(&code);
    let separator = letter == '\u{2028}' || letter == '\u{2029}';
    let control = letter.is_control() && letter != '\n' && letter != '\t';
    control || separator || unassigned || FORMAT.iter().any(|(first, last)| (*first..=*last).contains(&code))
}

fn assert_harmless(what: &str, text: &str) {
    let found: Vec<char> = text.chars().filter(|letter| controls(*letter)).collect();
    let start: String = text.chars().take(2000).collect();
    assert!(found.is_empty(), "{what}: {found:?} in {start}");
    assert!(!text.lines().any(|line| line.starts_with("Forged")), "{what}: {start}");
}

/// Every command and every format of text.
fn shown() {
    let scene = Scene::new();
    let journal = scene.synthetic("names");
    let copy = scene.runs().join("odd\x1b[2Jname\nForged\u{202e}.weir");
    std::fs::copy(&journal, &copy).expect("a copy");
    let journal = journal.to_str().expect("text");
    let copy = copy.to_str().expect("text");
    let mut commands: Vec<Vec<&str>> = vec![
        vec!["report", journal],
        vec!["report", copy],
        vec!["report", journal, "--details"],
        vec!["report", journal, "--json"],
        vec!["list"],
        vec!["list", "--json"],
        vec!["tail", journal, "--all", "--no-follow"],
        vec!["tail", copy, "--all", "--no-follow", "--json"],
        vec!["diff", journal, copy],
        vec!["diff", journal, copy, "--json"],
        vec!["top", "--all", "--once"],
        vec!["top", "--all", "--json"],
        vec!["metrics", "--once"],
        vec!["metrics", "--json"],
        vec!["replay", copy],
        vec!["replay", copy, "--json"],
        vec!["record", copy, "-o", "a\x1b[2J.weirrec", "--force"],
        vec!["record", copy, "-o", "a\x1b[2J.weirrec", "--force", "--json"],
        vec!["cap"],
        vec!["doctor"],
        vec!["export", copy, "--to", "csv", "-o", "b\x1b[2J.csv"],
        vec!["export", copy, "--to", "csv", "-o", "b\x1b[2J.csv", "--json"],
        vec!["report", journal, "--html", "c\x1b[2J\n.html"],
        // Errors quote arguments.
        vec!["export", journal, "--to", "\x1b[2Jcsv"],
        vec!["\x1b[2J"],
        vec!["report", "--\x1b[2J"],
        vec!["tail", journal, "--kind", "\x1b[2J"],
        vec!["replay", journal, "--cap", "\x1b[2J"],
        vec!["run", "--cap", "\x1b[2J", "--", "true"],
        vec!["run", "--", "no\x1b[2J"],
        vec!["metrics", "--listen", "\x1b[2J"],
    ];
    commands.extend(["csv", "jsonl", "folded"].map(|form| vec!["export", copy, "--to", form, "--stacks", "-o", "-"]));
    commands.extend(
        ["report", "export", "replay", "tail", "record"].map(|command| vec![command, "/no\x1b[2J/where\nForged"]),
    );
    for command in commands {
        let done = scene.weir("").args(&command).run();
        let what = format!("{command:?}");
        assert_harmless(&what, &done.out);
        assert_harmless(&what, &done.err);
        assert!(done.code >= 0 && !done.err.contains("panicked"), "{done}");
        // Readers of JSON get the names as they are.
        if command[0] == "tail" && command.contains(&"--json") {
            let whole = |line: &str| {
                let event: serde_json::Value = serde_json::from_str(line).expect("JSON");
                event["op"].as_str().is_some_and(|op| op.contains('\u{9b}')) && line.contains("\\u009b")
            };
            assert!(done.out.lines().any(whole), "{done}");
        }
    }
    // Errors quote the environment, too.
    for words in ["list".to_owned(), format!("report {journal}")] {
        let done = scene.weir(words).env("WEIR_DIR", "/no\x1b[2J/where").run();
        assert_harmless("WEIR_DIR", &(done.out + &done.err));
    }
    // A terminal gets the report's own colours and no other sequence.
    let own = Regex::new("\x1b\\[(0|1|2|33|1;31)m|\r[^\r\n]*\x1b\\[K").unwrap();
    for words in [format!("report {journal}"), "list".to_owned(), format!("tail {journal} --all --no-follow")] {
        let (shown, _) = scene.terminal(&words).run();
        assert_harmless(&words, &own.replace_all(&shown, "").replace("\r\n", "\n"));
    }
    let page = scene
        .names(".")
        .into_iter()
        .find(|name| Path::new(name).extension().is_some_and(|end| end == "html"))
        .expect("a page");
    let text = std::fs::read_to_string(scene.at(page)).expect("text");
    assert!(!text.contains("<script>alert"), "a name ends the page's own data");
    assert_harmless("the page", &text);
}

/// The records of a CSV text (RFC 4180), each a list of fields.
fn csv(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut field, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.next_if_eq(&'"').is_some() => field.push('"'),
            '"' => {
                assert!(quoted || field.is_empty(), "a quote inside a field: {field}");
                quoted = !quoted;
            }
            ',' if !quoted => row.push(std::mem::take(&mut field)),
            '\r' if !quoted && letters.peek() == Some(&'\n') => {}
            '\n' if !quoted => {
                row.push(std::mem::take(&mut field));
                rows.push(std::mem::take(&mut row));
            }
            letter => field.push(letter),
        }
    }
    assert!(!quoted && field.is_empty() && row.is_empty(), "the last record is cut off");
    rows
}

fn formula() {
    let scene = Scene::new();
    let journal = scene.synthetic("names").display().to_string();
    let text = bounded(&scene, 1024, format!("export {journal} --to csv --stacks -o -")).run().well().out;
    let rows = csv(&text);
    let (head, rows) = rows.split_first().expect("a head");
    assert!(rows.iter().all(|row| row.len() == head.len()), "{head:?}");
    let columns = ["op", "region", "shape", "python", "native", "stack"].map(|name| {
        head.iter().position(|column| column == name).unwrap_or_else(|| panic!("no column {name}: {head:?}"))
    });
    let texts: Vec<&str> = rows.iter().flat_map(|row| columns.map(|column| row[column].as_str())).collect();
    let formulas: Vec<&&str> = texts.iter().filter(|text| text.starts_with(['=', '+', '-', '@', '\t', '\r'])).collect();
    assert!(formulas.is_empty(), "{formulas:?}");
    assert!(texts.iter().any(|text| text.starts_with("'=cmd|")) && texts.iter().any(|text| text.starts_with("'@SUM")));
    let exported = json_lines(&bounded(&scene, 1024, format!("export {journal} --to jsonl -o -")).run().well().out);
    let plain = |row: &serde_json::Value| row["op"].as_str().is_some_and(|op| op.starts_with("=cmd|"));
    assert!(exported.iter().any(plain), "only spreadsheets need the quote");
}

/// The library prints operations and Python lines into the job's standard error.
fn library_text() {
    let scene = Scene::new();
    let script = scene.at("job\x1b[2J\u{202e}.py");
    std::fs::copy(stage().file("cli/job.py"), &script).expect("a copy");
    let job = scene.weir("run --vgpu 512MiB --cap 256MiB -- python3").arg(&script).arg("oom").set("WEIR_OOM_TEXT=on");
    let done = job.run();
    assert!(done.err.contains("GPU OUT OF MEMORY"), "{done}");
    assert_harmless("the library", &done.err);
    let dump = scene.names("runs").into_iter().find(|name| name.ends_with(".oom.json")).expect("a dump");
    assert_harmless("the dump", &std::fs::read_to_string(scene.runs().join(dump)).expect("text"));
}

//! The folders of shim/src and who may import whom. Reads the sources: `use` trees, and paths that begin with `crate`,
//! `$crate`, `self` or `super` anywhere in a file.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]
#![allow(clippy::case_sensitive_file_extension_comparisons, reason = "ours are lower case")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};

/// Each folder, from the bottom up, and what it may import: always folders above this line, so there is no cycle.
const LAYERS: [(&str, &[&str]); 9] = [
    ("process", &[]),
    ("driver", &["process"]),
    ("frameworks", &["process"]),
    ("attribute", &["process", "frameworks"]),
    ("record", &["process", "driver", "attribute"]),
    ("cap", &["process", "driver"]),
    ("alloc", &["process", "driver", "frameworks", "attribute", "record", "cap"]),
    ("hooks", &["process", "driver", "frameworks", "attribute", "record", "cap", "alloc"]),
    ("interpose", &["process", "driver", "frameworks", "attribute", "record", "cap", "alloc", "hooks"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// All Rust files below a folder, by their path in it.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            found.extend(files(&path).into_iter().map(|(file, text)| (format!("{name}/{file}"), text)));
        } else if name.ends_with(".rs") {
            found.insert(name, read_to_string(&path).unwrap());
        }
    }
    found
}

/// The text without line comments.
fn code(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The paths of a `use` tree, each as its names.
fn expand(tree: &str, before: &[String]) -> Vec<Vec<String>> {
    let names = |text: &str| -> Vec<String> {
        let text = text.split(" as ").next().unwrap_or_default();
        text.split("::").map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    let tree = tree.trim();
    let Some(brace) = tree.find('{') else { return vec![[before, &names(tree)].concat()] };
    let prefix = [before, &names(&tree[..brace])].concat();
    let (mut depth, mut part, mut parts) = (0, String::new(), Vec::new());
    for letter in tree[brace + 1..tree.rfind('}').unwrap()].chars() {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        if letter == ',' && depth == 0 {
            parts.push(std::mem::take(&mut part));
        } else {
            part.push(letter);
        }
    }
    parts.push(part);
    parts.iter().filter(|part| !part.trim().is_empty()).flat_map(|part| expand(part, &prefix)).collect()
}

/// Every path of a file that begins at the crate's root or relative to the file, each as its names.
fn paths(text: &str) -> Vec<Vec<String>> {
    let code = code(text);
    let mut found = Vec::new();
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    for (at, _) in code.match_indices("use ") {
        // A statement, not a word of a text.
        let before = code[..at].trim_end();
        if before.is_empty() || before.ends_with([';', '{', '}', ')', ']']) || before.ends_with("pub") {
            let tree: String = code[at + 4..].chars().take_while(|letter| *letter != ';').collect();
            found.extend(expand(&tree.replace('\n', " "), &[]));
        }
    }
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            if !code[..at].ends_with(is_name) {
                let path: String = code[at..].chars().take_while(|letter| is_name(*letter) || *letter == ':').collect();
                found.extend(expand(&path, &[]));
            }
        }
    }
    found
}

/// The folder that a path of the file leads to, if it is not the file's own.
fn target<'a>(file: &str, path: &'a [String], folders: &BTreeSet<String>) -> Option<&'a str> {
    let mut at: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
    if at.last() == Some(&"mod") {
        at.pop();
    }
    let own = at[0];
    let mut names = path.iter().map(String::as_str).peekable();
    match names.next()? {
        "crate" => at.clear(),
        "self" => {}
        "super" => {
            at.pop();
            while names.next_if_eq(&"super").is_some() {
                at.pop();
            }
        }
        _ => return None,
    }
    if !at.is_empty() {
        return None;
    }
    names.next().filter(|name| *name != own && folders.contains(*name))
}

/// The imports of all files: file and folder.
fn imports(files: &BTreeMap<String, String>) -> BTreeSet<(String, String)> {
    let folders: BTreeSet<String> =
        files.keys().filter_map(|file| file.split_once('/')).map(|(name, _)| name.to_owned()).collect();
    let mut found = BTreeSet::new();
    for (file, text) in files.iter().filter(|(file, _)| *file != "lib.rs") {
        for path in paths(text) {
            if let Some(folder) = target(file, &path, &folders) {
                found.insert((file.clone(), folder.to_owned()));
            }
        }
    }
    found
}

/// The imports that the order does not allow.
fn against_the_order(files: &BTreeMap<String, String>) -> BTreeSet<(String, String)> {
    let allowed = |folder: &str| LAYERS.iter().find(|(name, _)| *name == folder).map_or(&[][..], |(_, below)| below);
    let own = |file: &str| file.split('/').next().unwrap_or_default().to_owned();
    imports(files).into_iter().filter(|(file, folder)| !allowed(&own(file)).contains(&folder.as_str())).collect()
}

#[test]
fn imports_go_one_way() {
    let wrong = against_the_order(&files(&root()));
    assert!(wrong.is_empty(), "against the order of LAYERS: {wrong:#?}");
}

#[test]
fn the_order_has_no_cycle_and_every_file_a_folder() {
    for (at, (folder, below)) in LAYERS.iter().enumerate() {
        let lower: Vec<_> = LAYERS[..at].iter().map(|(name, _)| *name).collect();
        assert!(below.iter().all(|name| lower.contains(name)), "{folder}");
    }
    for file in files(&root()).keys().filter(|file| *file != "lib.rs") {
        let folder = file.split('/').next().unwrap_or_default();
        assert!(LAYERS.iter().any(|(name, _)| *name == folder), "{file} lies in no declared folder");
    }
}

#[test]
fn every_way_to_write_an_import_is_seen() {
    let ways = [
        "use crate::alloc;",
        "use crate::{process::job, alloc::{self, spill}};",
        "use super::super::alloc::spill as other;",
        "pub(crate) use crate::\n    alloc::X;",
        "fn f() { crate::alloc::f() }",
        "macro_rules! m { () => { $crate::alloc::f() } }",
    ];
    for way in ways {
        let files = BTreeMap::from([
            ("alloc/mod.rs".to_owned(), String::new()),
            ("process/mod.rs".to_owned(), String::new()),
            ("cap/books.rs".to_owned(), way.to_owned()),
        ]);
        let expected = ("cap/books.rs".to_owned(), "alloc".to_owned());
        assert!(against_the_order(&files).contains(&expected), "{way}");
    }
    let quiet = "// crate::alloc is above\nuse crate::process::job;\nfn alloc() {}\nuse super::other;";
    let files = BTreeMap::from([
        ("alloc/mod.rs".to_owned(), String::new()),
        ("process/mod.rs".to_owned(), String::new()),
        ("cap/books.rs".to_owned(), quiet.to_owned()),
    ]);
    assert!(against_the_order(&files).is_empty());
}

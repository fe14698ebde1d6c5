//! The pages of docs/ name files that exist. docs/internals/architecture.md walks one allocation through those of this library,
//! on one screen.

use std::path::{Path, PathBuf};

const TITLE: &str = "## One allocation through the shim\n";
/// Lines of a screen.
const SCREEN: usize = 50;

/// The files of shim/src that a text names.
fn named(text: &str) -> Vec<&str> {
    let words = text.split(|letter: char| !(letter.is_alphanumeric() || "_/.".contains(letter)));
    words
        .filter(|word| {
            word.strip_suffix(".rs").is_some()
                && word.contains('/')
                && !word.starts_with("shim/")
                && !word.starts_with("//")
        })
        .collect()
}

#[test]
fn the_walk_names_files_that_exist_on_one_screen() {
    let shim = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(shim.join("../docs/internals/architecture.md")).unwrap_or_default();
    let walk = page.split_once(TITLE).map(|(_, rest)| rest.split("\n## ").next().unwrap_or_default());
    let walk = walk.unwrap_or_default();
    let files = named(walk);
    assert!(files.len() > 20, "the walk names {files:?}");
    let missing: Vec<_> = files.iter().filter(|file| !shim.join("src").join(file).is_file()).collect();
    assert!(missing.is_empty(), "no such files in shim/src: {missing:?}");
    assert!(walk.lines().count() <= SCREEN, "{} lines", walk.lines().count());
}

/// Every page below a folder.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let below = entries.flat_map(|path| if path.is_dir() { pages(&path) } else { vec![path] });
    below.filter(|path| path.extension().is_some_and(|end| end == "md")).collect()
}

#[test]
fn every_page_names_files_that_exist() {
    let shim = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut missing, mut found) = (Vec::new(), 0);
    for page in pages(&shim.join("../docs")) {
        let text = std::fs::read_to_string(&page).unwrap_or_default();
        for file in named(&text) {
            let there = shim.join("src").join(file).is_file() || shim.join("..").join(file).is_file();
            found += usize::from(there);
            missing.extend((!there).then(|| format!("{}: {file}", page.display())));
        }
    }
    assert!(missing.is_empty(), "no such files in shim/src or the repository: {missing:?}");
    assert!(found > 100, "{found} names");
}

#[test]
fn names_are_found_in_prose() {
    assert_eq!(
        named("`a/b.rs` and (c_d/e.rs, f/g.rs), not h.rs nor shim/tests/i.rs"),
        ["a/b.rs", "c_d/e.rs", "f/g.rs"]
    );
}

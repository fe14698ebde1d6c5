//! Files that commands read and write: names that are no text, pipes, links, a full disk, readers that leave early.

use crate::scene::{Scene, touch};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, symlink};
use weir_tests::harness::{Job, Suite, stage};

pub(crate) fn trials(suite: &mut Suite) {
    suite.add("files: a name that is not UTF-8", not_text);
    suite.add("files: output to pipes, links and a full device", output);
    suite.add("files: a reader that leaves early ends a command quietly", early_reader);
}

fn not_text() {
    let scene = Scene::new();
    let odd = scene.runs().join(OsStr::from_bytes(b"1-\xff\xfe.weir"));
    std::fs::rename(scene.synthetic("growth"), &odd).expect("another name");
    assert!(scene.weir("report").arg(&odd).run().well().out.contains("GROWTH"));
    let (recording, table) = (OsStr::from_bytes(b"\xff.weirrec"), OsStr::from_bytes(b"\xff.csv"));
    for job in [
        scene.weir("list"),
        scene.weir("list --json"),
        scene.weir("report"),
        scene.weir("report --json"),
        scene.weir("diff --json").arg(&odd).arg(&odd),
        scene.weir("record --json -o").arg(recording),
        scene.weir("export --to csv -o").arg(table),
    ] {
        let done = job.run().well();
        assert!(!done.err.contains("panicked"), "{done}");
    }
}

fn output() {
    let scene = Scene::new();
    scene.synthetic("growth");
    let (pipe, link) = (scene.at("pipe"), scene.at("link"));
    let _ = Job::new("mkfifo").arg(&pipe).run().well();
    symlink("real", &link).expect("a link");
    touch(&scene.at("real"));
    for (words, start) in [("report --html", "<!doctype html"), ("export --to csv -o", "event,")] {
        let reader = Job::new("cat").arg(&pipe).start();
        let _ = scene.weir(words).arg(&pipe).run().well();
        assert!(reader.finish().well().out.to_lowercase().starts_with(start), "{words}");
        assert!(pipe.symlink_metadata().expect("the pipe").file_type().is_fifo(), "{words} replaced the pipe");
        let _ = scene.weir(words).arg(&link).run().well();
        assert!(link.is_symlink(), "{words} replaced the link");
        assert!(std::fs::read_to_string(&link).expect("text").to_lowercase().starts_with(start), "{words}");
    }
    assert_eq!(scene.names("."), ["link", "pipe", "real", "runs"]);
    for words in ["list", "report", "report --json", "cap", "replay", "tail --all --no-follow"] {
        let full = File::options().write(true).open("/dev/full").expect("/dev/full");
        let done = scene.weir(words).output(full).run().code(1);
        assert!(done.err.contains("No space left") && !done.err.contains("panicked"), "{done}");
    }
}

fn early_reader() {
    let scene = Scene::new();
    scene.synthetic("growth");
    let weir = stage().command();
    for words in [
        "list",
        "report",
        "report --json",
        "tail --all --no-follow",
        "export --to jsonl -o -",
        "man",
        "completions bash",
    ] {
        let done = scene.program("sh").arg("-c").arg(format!("'{}' {words} | true", weir.display())).run();
        assert!(done.err.is_empty() || words.starts_with("export"), "{done}");
        assert!(!done.err.contains("panicked"), "{done}");
    }
}

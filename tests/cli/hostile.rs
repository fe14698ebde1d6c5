//! Files that are made to do harm: special files, numbers that are too large, too many names. The kernel bounds the
//! memory of each command (`ulimit -v`), so that no trial depends on how much the machine has.

use crate::scene::{Scene, touch};
use flate2::Compression;
use flate2::write::GzEncoder;
use regex_lite::Regex;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use weir_tests::harness::{Done, Job, Suite, stage};

const FORMATS: [&str; 9] = ["memviz", "pprof", "perfetto", "heaptrack", "folded", "parquet", "csv", "jsonl", "xplane"];

pub(crate) fn trials(suite: &mut Suite) {
    suite.add("hostile: a special file is refused at once", special_files);
    suite.add("hostile: an export ends whatever a module is", modules);
    suite.add("hostile: numbers that are too large take no memory", numbers);
    suite.add("hostile: names that are too many take no memory", crowd);
    suite.add("hostile: traces that expand take no memory", traces);
}

/// `weir` with so many MiB of address space.
pub(crate) fn bounded(scene: &Scene, mib: u64, words: impl std::fmt::Display) -> Job {
    let script = format!("ulimit -c 0; ulimit -v {}; exec \"$0\" \"$@\"", mib << 10);
    scene.program("sh").arg("-c").arg(script).arg(stage().command()).words(words)
}

fn ends_with(done: Done, codes: &[i32]) -> Done {
    assert!(codes.contains(&done.code) && !done.hung, "one of {codes:?} is right\n{done}");
    done
}

fn nowhere() -> File {
    File::options().write(true).open("/dev/null").expect("/dev/null")
}

fn fifo(path: &Path) {
    let _ = Job::new("mkfifo").arg(path).run().well();
}

fn special_files() {
    let scene = Scene::new();
    std::fs::create_dir(scene.at("odd")).expect("a folder");
    let at = |name: &str| scene.at("odd").join(name);
    for name in ["pipe.weir", "pipe.trace", "pipe.trace.gz"] {
        fifo(&at(name));
    }
    let _listener = UnixListener::bind(at("socket.weir")).expect("a socket");
    for (to, name) in [
        (at("loop.weir"), "loop.weir"),
        ("/dev/zero".into(), "zero.weir"),
        ("/dev/zero".into(), "zero.trace"),
        (at("pipe.weir"), "link.weir"),
    ] {
        symlink(to, at(name)).expect("a link");
    }
    for name in ["folder.weir", "folder.trace"] {
        std::fs::create_dir(at(name)).expect("a folder");
    }
    let mut names = scene.names("odd");
    assert_eq!(names.len(), 10);
    names.extend(["../missing.weir".to_owned(), "../missing.trace".to_owned()]);
    let good = scene.synthetic("well").display().to_string();
    for name in names {
        let path = at(&name).display().to_string();
        let mut commands = vec![format!("replay {path}")];
        if Path::new(&name).extension().is_some_and(|end| end == "weir") {
            commands.extend([
                format!("report {path}"),
                format!("report {path} --html page.html"),
                format!("diff {path} {good}"),
                format!("diff {good} {path}"),
                format!("export {path} --to csv -o -"),
                format!("tail {path} --all"),
                format!("record {path} -o kept.weirrec"),
            ]);
        }
        for words in commands {
            let done = bounded(&scene, 512, &words).run().code(1);
            let command = words.split(' ').next().unwrap_or_default();
            assert!(done.out.is_empty() && done.err.starts_with(&format!("weir {command}: ")), "{done}");
            assert_eq!(done.err.lines().count(), 1, "{done}");
        }
    }
    for words in ["list --dir odd", "top --once --dir odd", "metrics --once --dir odd"] {
        let _ = bounded(&scene, 512, words).run().well();
    }
    let _ = bounded(&scene, 1024, "report --dir odd").run().code(1);
    assert!(!scene.at("kept.weirrec").exists());
}

/// The paths of modules come from the journal: the export reports why functions have no names.
fn modules() {
    let scene = Scene::new();
    fifo(&scene.at("pipe.so"));
    std::fs::create_dir(scene.at("folder.so")).expect("a folder");
    symlink(scene.at("loop.so"), scene.at("loop.so")).expect("a link");
    std::fs::write(scene.at("text.so"), "no program").expect("a file");
    // Programs whose tables claim far more than there is.
    let program = std::fs::read("/bin/true").expect("a program");
    let mut claims = program.clone();
    claims[0x28..0x30].copy_from_slice(&(1_u64 << 62).to_le_bytes());
    std::fs::write(scene.at("claims.so"), &claims).expect("a file");
    claims[0x28..0x30].copy_from_slice(&64_u64.to_le_bytes());
    claims[0x3c..0x3e].copy_from_slice(&[0, 0]);
    claims[64 + 32..64 + 40].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    std::fs::write(scene.at("sections.so"), &claims).expect("a file");
    std::fs::write(scene.at("sparse.so"), &program[..64]).expect("a file");
    File::options()
        .write(true)
        .open(scene.at("sparse.so"))
        .and_then(|file| file.set_len(1 << 40))
        .expect("a sparse file");
    // A program beside which a pipe has the name of its debug information.
    std::fs::write(scene.at("beside.so"), &program).expect("a file");
    fifo(&scene.at("beside.so.dwp"));
    fifo(&scene.at("beside.dwp"));
    let export = |path: &Path| {
        let journal = scene.synthetic(format!("module {}", path.display()));
        let done = bounded(&scene, 1024, format!("export {} --to csv -o out.csv", journal.display())).run().well();
        std::fs::remove_file(journal).expect("the journal");
        done
    };
    let here = ["pipe.so", "folder.so", "loop.so", "text.so", "claims.so", "sections.so", "gone.so"]
        .map(|name| scene.at(name));
    let devices = ["/dev/zero", "/dev/tty", "/proc/self/mem", "/proc/kmsg"].map(PathBuf::from);
    for path in here.iter().chain(&devices) {
        let done = export(path);
        assert!(done.err.contains(&path.display().to_string()) && done.err.contains("cannot be read"), "{done}");
    }
    for name in ["beside.so", "sparse.so"] {
        let _ = export(&scene.at(name));
    }
}

fn numbers() {
    let scene = Scene::new();
    let figure = Regex::new("NaN|inf").unwrap();
    let words = Regex::new("info|inferred").unwrap();
    for how in 0..5 {
        let path = scene.synthetic(format!("numbers {how}"));
        let journal = path.display();
        for form in FORMATS {
            let export = bounded(&scene, 512, format!("export {journal} --to {form} -o - --newest 0"));
            let _ = export.output(nowhere()).run().well();
        }
        for command in [
            format!("report {journal}"),
            format!("report {journal} --details"),
            format!("report {journal} --json"),
            format!("report {journal} --html page.html"),
            format!("report {journal} --device 62"),
            format!("tail {journal} --all --no-follow"),
            format!("tail {journal} --all --no-follow --json"),
            format!("diff {journal} {journal}"),
            "list".to_owned(),
            "list --json".to_owned(),
            "top --all --once".to_owned(),
            "top --all --json".to_owned(),
            "metrics --once".to_owned(),
            format!("record {journal} -o kept.weirrec --force"),
            "report ./kept.weirrec".to_owned(),
            format!("replay {journal} --policy weir,bfc,bfc-growth,torch --cap 1GiB"),
            format!("replay {journal} --device 62 --json"),
        ] {
            let done = ends_with(bounded(&scene, 1024, &command).run(), &[0, 1, 4]);
            assert!(!figure.is_match(&words.replace_all(&done.out, "")), "{done}");
        }
        std::fs::remove_file(&path).expect("the journal");
    }
}

fn crowd() {
    let scene = Scene::new();
    let path = scene.synthetic("crowd 6000");
    assert!(path.metadata().expect("the journal").len() < 64 << 20);
    let journal = path.display();
    for form in FORMATS {
        let export = bounded(&scene, 384, format!("export {journal} --to {form} -o - --stacks --newest 0"));
        let _ = export.output(nowhere()).run().well();
    }
    for command in [
        format!("report {journal} --no-replay"),
        format!("report {journal} --no-replay --html page.html"),
        format!("diff {journal} {journal}"),
        format!("tail {journal} --all --no-follow"),
        "top --all --once".to_owned(),
        "metrics --once".to_owned(),
    ] {
        let _ = bounded(&scene, 1024, command).output(nowhere()).run().well();
    }
}

/// Writes a text so many times, packed: gzip files one behind the other are one.
fn packed(path: &Path, text: &[u8], times: usize) {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).expect("memory");
    let piece = encoder.finish().expect("memory");
    let mut file = File::create(path).expect("a file");
    for _ in 0..times {
        file.write_all(&piece).expect("room");
    }
}

fn traces() {
    let scene = Scene::new();
    packed(&scene.at("zeros.trace.gz"), &vec![0; 16 << 20], 256);
    packed(&scene.at("pairs.trace.gz"), b"a 1\na -1\n".repeat(1_000_000).as_slice(), 500);
    packed(&scene.at("blanks.trace.gz"), &vec![b'\n'; 16 << 20], 256);
    let live: String = (0..3_000_000).fold(String::new(), |text, number| text + &number.to_string() + " 4096\n");
    packed(&scene.at("live.trace.gz"), live.as_bytes(), 1);
    std::fs::write(scene.at("long.trace"), "a".repeat(100_000) + " 1\n").expect("a file");
    std::fs::write(scene.at("bytes.trace"), b"\xff\xfe 1\n").expect("a file");
    touch(&scene.at("hole.trace"));
    File::options()
        .write(true)
        .open(scene.at("hole.trace"))
        .and_then(|file| file.set_len(1 << 40))
        .expect("a sparse file");
    for (name, expected) in [
        ("zeros.trace.gz", "line 1"),
        ("pairs.trace.gz", "lines"),
        ("blanks.trace.gz", ""),
        ("live.trace.gz", "blocks are live"),
        ("long.trace", "line 1"),
        ("bytes.trace", "not text"),
        ("hole.trace", "line 1"),
    ] {
        let done = bounded(&scene, 1024, format!("replay {name}")).run().code(1);
        assert!(done.err.contains(expected) && done.err.lines().count() == 1, "{done}");
    }
    std::fs::write(scene.at("good.trace"), "a 1000\nb 2000\na -1000\n").expect("a file");
    assert!(bounded(&scene, 1024, "replay good.trace").run().well().out.contains("smallest cap"));
}

//! Programs without CUDA under libweir.so: same output, same errors, same exit code, no file, no thread.

use crate::process::{Folder, need};
use regex_lite::Regex;
use std::collections::BTreeSet;
use std::path::PathBuf;
use weir_tests::harness::{Suite, files_below, stage};

pub(crate) fn trials(suite: &mut Suite) {
    for (name, package, command) in PROGRAMS {
        suite.add(format!("everyday: {name}"), move || everyday(name, package, command));
    }
    suite.add("everyday: ldd", ldd);
    suite.add("everyday: at start no file, no thread, no signal handler", start);
}

/// A program, its Debian package, and what it does: words, the last of which is a script where it has blanks.
const PROGRAMS: [(&str, &str, &[&str]); 10] = [
    (
        "bash",
        "bash",
        &[
            "-c",
            "x=$(echo a | tr a b); for i in 1 2 3; do (echo $x$i) & wait; done; type dlsym; echo $?; ls /proc/self/task | wc -l",
        ],
    ),
    (
        "coreutils",
        "",
        &[
            "-c",
            "cd /usr && ls -l /bin/sh; sort /etc/passwd | md5sum; du -s /etc/hostname; date -d @0 -u; stat -c %n /; env | grep -v LD_PRELOAD | grep -v ^_= | sort; false",
        ],
    ),
    ("git", "git", &["-C", "@root", "log", "-1", "--stat", "--format=%H %s"]),
    ("gcc", "gcc", &["-c", "gcc -O2 -flto x.c -o x && ./x && gcc -c /dev/null -x none -o /dev/null; echo $?"]),
    (
        "python3",
        "python3",
        &[
            "-c",
            "import os, ctypes, subprocess, threading, json, decimal; print('threads %d' % len(os.listdir('/proc/self/task')), subprocess.run(['echo','x'],capture_output=True).stdout, ctypes.CDLL(None).getpid() > 0)",
        ],
    ),
    (
        "perl",
        "perl",
        &["-MPOSIX", "-e", "print scalar(glob('/proc/self/task/*')) ? 1 : 0, strftime('%Y', gmtime(0)), `echo x`"],
    ),
    (
        "node",
        "nodejs",
        &[
            "-e",
            "console.log(require('fs').readdirSync('/proc/self/task').length > 0, require('child_process').execSync('echo x').toString())",
        ],
    ),
    ("java", "default-jre-headless", &["-version"]),
    ("cargo", "", &["--version", "--verbose"]),
    (
        "tmux",
        "tmux",
        &[
            "-c",
            "tmux -S ./tmux new-session -d 'echo in tmux > out'; for i in $(seq 1200); do [ -s out ] && break; sleep 0.05; done; cat out; rm out; tmux -S ./tmux kill-server 2>/dev/null; true",
        ],
    ),
];

fn everyday(name: &str, package: &str, command: &[&str]) {
    if !package.is_empty() {
        need(name, package);
    }
    let folder = Folder::new();
    std::fs::write(folder.at("x.c"), "#include <stdio.h>\nint main(void){puts(\"hello\");}\n").expect("a file");
    let root = stage().root.to_string_lossy().into_owned();
    let program = if ["coreutils", "gcc", "tmux"].contains(&name) { "bash" } else { name };
    let words = command.iter().map(|word| word.replace("@root", &root));
    let mut bare = folder.process(program).args(words).paths::<PathBuf>([]).with_pool_and_journal();
    let home = std::env::home_dir().expect("a home");
    for (variable, place) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
        bare = bare.env(variable, std::env::var_os(variable).unwrap_or_else(|| home.join(place).into()));
    }
    let mut homes = Vec::new();
    let runs = [bare.clone(), bare.under_weir()].map(|process| {
        let home = folder.at("home");
        std::fs::remove_dir_all(&home).and_then(|()| std::fs::create_dir(&home)).expect("an empty home");
        let run = process.run();
        homes.push(files_below(&home));
        run
    });
    let [bare, under] = runs;
    assert!(!bare.done.hung && !under.done.hung, "{}", under.done);
    assert!(!bare.done.out.is_empty() || !bare.done.err.is_empty(), "it prints nothing");
    assert_eq!(bare.seen(), under.seen(), "left: bare, right: under weir");
    assert_eq!(homes[0], homes[1], "files in the home");
}

/// ldd lists the loaded libraries, so a preload shows; nothing else may.
fn ldd() {
    let folder = Folder::new();
    let bare = folder.process("ldd").args(["/bin/ls"]).paths::<PathBuf>([]);
    let (bare, under) = (bare.run(), bare.clone().under_weir().run());
    let names = |out: &str| -> BTreeSet<String> {
        let first = out.lines().filter_map(|line| line.split_whitespace().next());
        first.map(|name| name.rsplit('/').next().unwrap_or(name).to_owned()).collect()
    };
    let mut extra = &names(&under.done.out) - &names(&bare.done.out);
    assert!(extra.remove("libweir.so"), "{}", under.done);
    extra.remove("libgcc_s.so.1");
    assert!(extra.is_empty(), "{extra:?}");
    assert_eq!((&bare.done.err, bare.done.code), (&under.done.err, under.done.code));
}

/// The system calls of the dynamic linker and the library at start.
fn start() {
    need("strace", "strace");
    let folder = Folder::new();
    let preload = format!("LD_PRELOAD={}", stage().weir().display());
    let strace = folder.process("strace").args(["-f", "-o", "log", "-E", &preload, "/bin/true"]);
    let done = strace.paths::<PathBuf>([]).run().done;
    let log = std::fs::read_to_string(folder.at("log")).unwrap_or_else(|error| panic!("no log: {error}\n{done}"));
    let opened = Regex::new(r#"open(?:at)?\((?:AT_FDCWD, )?"([^"]+)""#).unwrap();
    let usual = Regex::new(r"libweir\.so|libgcc_s\.so|libc\.so|ld\.so\.(cache|preload)|/locale").unwrap();
    let unusual: Vec<&str> = opened
        .captures_iter(&log)
        .map(|found| found.extract::<1>().1[0])
        .filter(|file| !usual.is_match(file))
        .collect();
    assert!(unusual.is_empty(), "{unusual:?}");
    let effects = Regex::new(r"(?m)^\d+ +(clone3?|fork|vfork|rt_sigaction|umask|socket|unlink|mkdir)\b").unwrap();
    let effects: Vec<&str> = effects.find_iter(&log).map(|found| found.as_str()).collect();
    assert!(effects.is_empty() && log.contains("exited with 0"), "{effects:?}\n{log}");
    assert!(log.contains("libweir.so"), "the library was not loaded\n{log}");
}

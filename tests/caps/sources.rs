//! Where a cap may come from besides WEIR_CAP: variables of schedulers, the settings file beside the library, and that of
//! the machine. What the virtual GPU counts is what holds.

use crate::settings::{ALL, NOTHING, THE_CAP, Taken, witness};
use crate::{CAP, MIB, Place};
use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};
use weir_tests::harness::{Done, Job, Suite, mode, stage};

/// Half of the cap.
const LOW: u64 = CAP / 2;
const THE_LOW: Taken = Taken { most: LOW, least: LOW - 16 * MIB };

pub(crate) fn sources(suite: &mut Suite) {
    schedulers(suite);
    in_the_place_of_another(suite);
    files(suite);
    odd_files(suite);
    suite.add(
        "sources: the machine's file caps a job that has lost its environment, and lies over the environment",
        || {
            for (environment, taken, line) in [
                ("", THE_CAP, None),
                ("WEIR_CAP=64MiB", THE_LOW, None),
                ("WEIR_CAP=512MiB", THE_CAP, Some("512MiB cannot replace 128MiB of /etc/weir/weir.conf")),
                ("CUDA_DEVICE_MEMORY_LIMIT=512m", THE_CAP, Some("cannot replace 128MiB of /etc/weir/weir.conf")),
                ("WEIR_CAP=0=512MiB", THE_CAP, None),
                ("WEIR_CAP=90%", THE_CAP, None),
                ("WEIR_CAP=512MiB WEIR_STRICT=0", THE_CAP, Some("no effect")),
            ] {
                witness_last(&machine("WEIR_CAP=128MiB", environment), taken, line);
            }
        },
    );
}

/// Where HAMi has its library: under that one's name, in every process by `/etc/ld.so.preload`, with HAMi's variable and no other.
fn in_the_place_of_another(suite: &mut Suite) {
    suite.add("sources: in the place of HAMi's library, preloaded by ld.so.preload", || {
        let place = Place::new();
        let library = place.0.folder("vgpu").join("libvgpu.so");
        fs::copy(stage().weir(), &library).expect("a copy of the library");
        fs::write(place.0.at("conf"), format!("{}\n", library.display())).expect("a file");
        let done = with_etc(&place, "ld.so.preload", None, "CUDA_DEVICE_MEMORY_LIMIT_0=128m CUDA_DEVICE_SM_LIMIT=50");
        witness_last(&done, THE_CAP, None);
        assert!(!done.err.contains("weir"), "in no tool that the job's script has started\n{done}");
    });
}

fn schedulers(suite: &mut Suite) {
    let cases: [(&str, Taken, Option<&str>); 11] = [
        ("CUDA_DEVICE_MEMORY_LIMIT=128m", THE_CAP, None),
        ("CUDA_DEVICE_MEMORY_LIMIT=131072k", THE_CAP, None),
        ("CUDA_DEVICE_MEMORY_LIMIT_0=128m CUDA_DEVICE_MEMORY_LIMIT=1g", THE_CAP, None),
        ("CUDA_DEVICE_MEMORY_LIMIT_1=64m VGPU_DEVICES=2", ALL, None),
        ("GPU_MEMORY_LIMIT=134217728", THE_CAP, None),
        ("CUDA_DEVICE_MEMORY_LIMIT=128m GPU_MEMORY_LIMIT=67108864", THE_CAP, None),
        ("CUDA_DEVICE_MEMORY_LIMIT=64m WEIR_CAP=128MiB", THE_CAP, None),
        ("CUDA_DEVICE_MEMORY_LIMIT=0", ALL, None),
        ("GPU_MEMORY_LIMIT=0.8", ALL, None),
        ("CUDA_DEVICE_MEMORY_LIMIT=128q", NOTHING, Some("CUDA_DEVICE_MEMORY_LIMIT=128q: unknown unit")),
        ("CUDA_DEVICE_MEMORY_LIMIT_7=128m", NOTHING, Some("no such device")),
    ];
    for (environment, taken, line) in cases {
        suite.add(format!("sources: {environment}"), move || {
            let set = format!("WEIR_CAP= {environment}");
            witness(&Place::new().job("limits.py takes_all", set).run(), taken, line);
        });
    }
}

/// A library of its own in a folder of its own, which only its owner may change.
fn beside(place: &Place) -> PathBuf {
    let folder = place.0.folder("lib");
    fs::copy(stage().weir(), folder.join("libweir.so")).expect("a copy of the library");
    folder
}

/// A job under that library, as root: in a user namespace if this is not root.
fn under(place: &Place, environment: &str) -> Job {
    // SAFETY: geteuid has no precondition.
    let root = unsafe { libc::geteuid() } == 0;
    let job = if root { Job::new("env") } else { Job::new("unshare").arg("-r") };
    let job = job.arg("python3").arg(stage().file("caps/limits.py")).arg("takes_all");
    place.arrange(job).under(place.0.at("lib/libweir.so")).set("WEIR_CAP=").set(environment)
}

fn files(suite: &mut Suite) {
    let cases: [(&str, &str, Taken, Option<&str>); 7] = [
        ("WEIR_CAP=128MiB", "", THE_CAP, None),
        ("# a comment\n\n  WEIR_CAP = 128MiB\r\n", "", THE_CAP, None),
        ("WEIR_CAP=128MiB", "WEIR_CAP=64MiB", THE_LOW, None),
        ("WEIR_CAP=128MiB", "WEIR_CAP=512MiB", THE_CAP, Some("512MiB cannot replace 128MiB of")),
        ("WEIR_CAP=8XiB", "WEIR_CAP=128MiB", NOTHING, Some("weir.conf: WEIR_CAP=8XiB: in")),
        ("WEIR_CAP 128MiB", "", NOTHING, Some("is not NAME=VALUE; cuInit fails")),
        ("WEIR_CAP=128MiB\nwhat is this", "", THE_CAP, Some("line 2, \"what is this\", is not NAME=VALUE, ignored")),
    ];
    for (text, environment, taken, line) in cases {
        suite.add(format!("sources: beside the library: {text:?} {environment}"), move || {
            let place = Place::new();
            fs::write(beside(&place).join("weir.conf"), text).expect("a file");
            witness(&under(&place, environment).run(), taken, line);
        });
    }
    suite.add("sources: the file beside a library with a relative path is found", || {
        let place = Place::new();
        let folder = beside(&place);
        fs::write(folder.join("weir.conf"), "WEIR_CAP=128MiB").expect("a file");
        // What starts Python may be a script that changes its directory: there the linker says that it finds no library.
        witness_last(&under(&place, "").within(folder).under("./libweir.so").run(), THE_CAP, None);
    });
    suite.add("sources: weir doctor shows where each value comes from", || {
        let place = Place::new();
        let folder = beside(&place);
        fs::write(folder.join("weir.conf"), "WEIR_CAP=128MiB\nWEIR_STACKS=all\n").expect("a file");
        let doctor = place.weir("doctor --library").arg(folder.join("libweir.so"));
        let done = doctor.on_vgpu().set("VGPU_MEM=1GiB WEIR_RING=16K GPU_MEMORY_LIMIT=67108864").run().well();
        for part in [
            "WEIR_CAP           67108864B  (GPU_MEMORY_LIMIT",
            "lib/weir.conf)\n",
            "WEIR_RING          16K  (environment)",
            "WEIR_KEEP          20,4GiB  (default)",
        ] {
            assert!(done.out.contains(part), "{part}\n{done}");
        }
    });
}

fn odd_files(suite: &mut Suite) {
    type Case = (&'static str, &'static str, fn(PathBuf));
    let cases: [Case; 5] = [
        ("a FIFO", "is a FIFO, not a regular file; a limit in it cannot be enforced", |path| {
            let _ = Job::new("mkfifo").arg(path).run().quiet();
        }),
        ("a folder", "is a directory, not a regular file", |path| fs::create_dir(path).expect("a folder")),
        ("a device", "is a device, not a regular file", |path| symlink("/dev/zero", path).expect("a link")),
        ("a link to nothing", "cannot be read", |path| symlink("nowhere", path).expect("a link")),
        ("70 KiB", "is larger than 64 KiB", |path| fs::write(path, vec![b'#'; 70 << 10]).expect("a file")),
    ];
    for (name, why, make) in cases {
        suite.add(format!("sources: {name} in the place of the file: cuInit fails with one line"), move || {
            let place = Place::new();
            make(beside(&place).join("weir.conf"));
            witness(&under(&place, "").run(), NOTHING, Some(why));
            witness(&under(&place, "WEIR_STRICT=0 WEIR_CAP=128MiB").run(), THE_CAP, Some(why));
        });
    }
    suite.add("sources: a file that anybody can change sets limits, and nothing else", || {
        let place = Place::new();
        let path = beside(&place).join("weir.conf");
        fs::write(&path, format!("WEIR_CAP=128MiB\nWEIR_DIR={}\n", place.0.at("theirs").display())).expect("a file");
        mode(&path, 0o666);
        // Who is root can make it a stranger's as well.
        let _ = chown(&path, Some(65534), None);
        witness(&under(&place, "WEIR_DIR=").run(), THE_CAP, Some("only limits are taken from it"));
        assert!(!place.0.at("theirs").exists());
        // It is no ceiling.
        let done = under(&place, "WEIR_CAP=512MiB").run();
        witness(&done, Taken { most: 4 * CAP, least: 4 * CAP - 16 * MIB }, Some("only limits are taken from it"));
    });
}

/// A job on a machine with this file as `/etc/weir/weir.conf`.
fn machine(text: &str, environment: &str) -> Done {
    let place = Place::new();
    fs::write(place.0.at("conf"), text).expect("a file");
    with_etc(&place, "weir/weir.conf", Some(&stage().weir()), environment)
}

/// A job on a machine that has the place's file `conf` as this file of `/etc`: in a mount namespace with a copy of `/etc`.
fn with_etc(place: &Place, file: &str, preload: Option<&Path>, environment: &str) -> Done {
    let etc = place.0.folder("etc");
    let script = "mount -t tmpfs none \"$1\" && { cp -r /etc/. \"$1\" 2>/dev/null; mkdir -p \"$1/weir\" && cp \"$2\" \"$1/$3\"; } \
        && chmod 755 \"$1/weir\" && mount --bind \"$1\" /etc && shift 3 && exec env LD_PRELOAD=\"$PRELOAD\" \"$@\"";
    let job = Job::new("unshare").words("-rm sh -c").arg(script).arg("sh").arg(etc).arg(place.0.at("conf")).arg(file);
    let job = job.arg("python3").arg(stage().file("caps/limits.py")).arg("takes_all");
    // The shell itself is none of the job.
    let job = place.arrange(job).set("LD_PRELOAD= WEIR_CAP=").env("PRELOAD", preload.unwrap_or(Path::new("")));
    job.set(environment).run()
}

/// As [`witness`], where the namespace's tools may have said something and weir more than one line.
fn witness_last(done: &Done, taken: Taken, line: Option<&str>) {
    let own = || done.err.lines().filter(|said| said.starts_with("weir: "));
    let kept: Vec<&str> = match line {
        Some(word) => {
            vec![own().find(|said| said.contains(word)).unwrap_or_else(|| panic!("no line with {word:?}\n{done}"))]
        }
        None => own().collect(),
    };
    let err = kept.iter().flat_map(|said| [*said, "\n"]).collect();
    let mut done = done.clone();
    done.err = err;
    witness(&done, taken, line);
}

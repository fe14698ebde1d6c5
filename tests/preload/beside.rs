//! Beside other preload libraries, before and behind them; drivers that are not the virtual GPU; no driver at all.

use crate::fixtures::ALLOC;
use crate::process::{Folder, linked_with, need, same};
use std::ffi::OsString;
use std::path::PathBuf;
use weir_tests::harness::{Job, Suite, files_below, stage};

pub(crate) fn trials(suite: &mut Suite) {
    suite.add("beside: another preload before weir", other_before);
    suite.add("beside: another preload behind weir", other_behind);
    suite.add("beside: a wrapper of dlsym, before and behind weir", wrapper);
    suite.add("beside: a wrapper of dlsym does not bypass weir", wrapper_bypass);
    for name in ["many_threads", "destructor_frees", "fork_then_cuda"] {
        suite.add(format!("beside: jemalloc before weir, {name}"), move || jemalloc(name, true));
        suite.add(format!("beside: jemalloc behind weir, {name}"), move || jemalloc(name, false));
    }
    suite.add("beside: weir twice", twice);
    suite.add("beside: trampolines of the driver's names, as in TensorFlow", trampolines);
    suite.add("beside: trampolines without a driver", trampolines_alone);
    suite.add("drivers: dlvsym and symbol versions", versioned);
    suite.add("drivers: functions that the headers do not know", strange);
    suite.add("drivers: an initialiser that calls back", calls_back);
    suite.add("drivers: a thread cancelled inside the driver", cancelled);
    suite.add("drivers: none", no_driver);
    suite.add("drivers: a static program", static_program);
    suite.add("drivers: Python by ctypes", ctypes);
    for when in ["2", "3"] {
        suite.add(format!("short memory: little address space from moment {when} on"), move || short_memory(when));
    }
    suite.add("drivers: files that may not be large", small_files);
    suite.add("short memory: a table that must grow by more than there is", short_of_a_table);
}

fn other_before() {
    let folder = Folder::new();
    let other = folder.library("libother.so", "other", &[]);
    let bare = folder.process(folder.linked("wrapped")).under([&other]);
    same(&bare, &bare.clone().under([&other, &stage().weir()]), Some(ALLOC));
}

/// Behind weir, another library's wrapper of a driver function is not called: weir calls the driver itself. So what that
/// library counts differs, and nothing else.
fn other_behind() {
    let folder = Folder::new();
    let other = folder.library("libother.so", "other", &[]);
    let bare = folder.process(folder.linked("wrapped")).under([&other]);
    let (bare, behind) = (bare.run(), bare.clone().under([&stage().weir(), &other]).run());
    assert_eq!((&bare.done.out, bare.done.code), (&behind.done.out, behind.done.code));
    assert_eq!(behind.calls("cuMemAlloc_v2"), 1);
}

fn wrapper() {
    let folder = Folder::new();
    let wrapper = folder.library("libdlsym_wrapper.so", "dlsym_wrapper", &[]);
    let bare = folder.process(folder.program("lookups")).under([&wrapper]);
    same(&bare, &bare.clone().under([&wrapper, &stage().weir()]), Some(&[]));
    same(&bare, &bare.clone().under([&stage().weir(), &wrapper]), Some(&[]));
}

fn wrapper_bypass() {
    let folder = Folder::new();
    let wrapper = folder.library("libdlsym_wrapper.so", "dlsym_wrapper", &[]);
    let through = folder.process(folder.program("dlclose_driver")).under([&wrapper, &stage().weir()]).run();
    assert_eq!(through.calls("cuMemAlloc_v2"), 3, "{}", through.done);
}

fn jemalloc(name: &'static str, before: bool) {
    need("jeprof", "libjemalloc-dev");
    let libraries = std::fs::read_dir("/usr/lib").expect("/usr/lib").flatten();
    let library = libraries.map(|entry| entry.path().join("libjemalloc.so.2")).find(|path| path.exists());
    let library = library.expect("libjemalloc.so.2 in a folder of /usr/lib");
    let folder = Folder::new();
    let program = if name == "fork_then_cuda" { folder.program(name) } else { folder.linked(name) };
    let bare = folder.process(program).under([&library]);
    let both = if before { [library, stage().weir()] } else { [stage().weir(), library] };
    same(&bare, &bare.clone().under(both), Some(ALLOC));
}

fn twice() {
    let folder = Folder::new();
    let bare = folder.process(folder.linked("linked"));
    same(&bare, &bare.clone().under([stage().weir(), stage().weir()]), Some(ALLOC));
}

fn trampolines() {
    let folder = Folder::new();
    folder.library("lib/libtrampolines.so", "trampolines", &[]);
    let bare = folder.process(folder.program("trampolines")).paths([stage().vgpu(), folder.at("lib")]);
    same(&bare, &bare.clone().under_weir(), Some(ALLOC));
}

fn trampolines_alone() {
    let folder = Folder::new();
    folder.library("lib/libtrampolines.so", "trampolines", &[]);
    let bare = folder.process(folder.program("trampolines")).paths([folder.at("lib")]);
    let under = same(&bare, &bare.clone().under_weir(), None);
    assert!(under.done.out.contains("4242"), "{}", under.done);
}

/// A driver made of `strange_driver.c`; the folder that has it.
pub(crate) fn strange_driver(folder: &Folder, flag: Option<OsString>) -> PathBuf {
    let mut flags = vec!["-Wl,-soname,libcuda.so.1".into()];
    flags.extend(flag);
    folder.library("driver/libcuda.so.1", "strange_driver", &flags);
    folder.at("driver")
}

fn versioned() {
    let folder = Folder::new();
    std::fs::write(folder.at("versions"), "DRIVER_1 { cu*; };\n").expect("a file");
    let mut script = OsString::from("-Wl,--version-script=");
    script.push(folder.at("versions"));
    let driver = strange_driver(&folder, Some(script));
    let bare = folder.process(folder.program("versioned_lookups")).paths([driver]);
    same(&bare, &bare.clone().under_weir(), Some(ALLOC));
}

fn strange() {
    let folder = Folder::new();
    let bare = folder.process(folder.program("strange_driver")).paths([strange_driver(&folder, None)]);
    let calls = [("cuMemAlloc_v2", 1), ("cuMemFree_v2", 1), ("cuMemAllocAsync", 1), ("cuMemAllocAsync_ptsz", 2)];
    let under = same(&bare, &bare.clone().under_weir(), Some(&calls));
    let driver = &under.weir["driver"];
    assert_eq!((&driver["unknown"], &driver["version"]), (&serde_json::json!(["cuMemBrandNew"]), &99_990.into()));
}

fn calls_back() {
    let folder = Folder::new();
    let driver = strange_driver(&folder, Some("-DCALLS_BACK".into()));
    let bare = folder.process(folder.program("reentrant")).paths([driver]);
    same(&bare, &bare.clone().under_weir(), Some(&[("cuMemAlloc_v2", 8)]));
}

fn cancelled() {
    let folder = Folder::new();
    let driver = strange_driver(&folder, None);
    let program = folder.compiled("cancelled", &linked_with(&driver));
    let bare = folder.process(program).paths([driver]);
    same(&bare, &bare.clone().under_weir(), Some(&[("cuCtxSynchronize", 1)]));
}

fn no_driver() {
    let folder = Folder::new();
    let bare = folder.process(folder.program("no_driver")).paths::<PathBuf>([]);
    same(&bare, &bare.clone().under_weir(), None);
}

fn static_program() {
    let folder = Folder::new();
    let source = "#include <stdio.h>\nint main(void){puts(\"static\");}";
    let program = folder.at("static");
    let _ = Job::new("cc").words("-static -w -o").arg(&program).words("-x c -").input(source).run().well();
    let bare = folder.process(program);
    same(&bare, &bare.clone().under_weir(), None);
}

fn ctypes() {
    let folder = Folder::new();
    let script = "import ctypes; d=ctypes.CDLL('libcuda.so.1'); p=ctypes.c_uint64(); print(d.cuInit(0), d.cuMemAlloc_v2(ctypes.byref(p), 4096), d.cuMemGetInfo_v2(None, None))";
    let bare = folder.process("python3").args(["-c", script]);
    same(&bare, &bare.clone().under_weir(), None);
}

/// The virtual GPU has no file for memory that is mapped then, and weir does without.
fn small_files() {
    let folder = Folder::new();
    let limited: [OsString; 3] =
        ["-c".into(), "ulimit -f 1000; exec \"$0\"".into(), folder.linked("linked").into_os_string()];
    let bare = folder.process("bash").args(&limited).with_pool_and_journal();
    let bare = bare.set("VGPU_BACKING=none WEIR_JOURNAL=off");
    same(&bare, &bare.clone().under_weir(), Some(ALLOC));
}

/// A job that gets through bare with so much address space does so under weir with a little more.
fn short_memory(when: &'static str) {
    let folder = Folder::new();
    let program = folder.linked("short_memory");
    let start = |mib: u64| {
        let process = folder.process(&program).args([&mib.to_string(), when]).with_pool_and_journal();
        process.set("VGPU_BACKING=none VGPU_MEM=4GiB WEIR_OOM_TEXT=off").env("WEIR_DIR", folder.at("short"))
    };
    // The virtual GPU's own tables need some, and it ends the process where it gets none.
    let least = (4..200).find(|mib| start(*mib).run().done.code == 0).expect("it gets through with 200 MiB");
    for mib in [least + 1, least + 2, least + 3, least + 4, 2 * least] {
        let under = start(mib).under_weir().run();
        assert_eq!(under.done.out, "0 wrong answers\n", "{mib} MiB, {least} is the least\n{}", under.done);
        let _ = under.done.well();
    }
    assert!(!files_below(&folder.at("short")).is_empty(), "nothing was recorded");
}

/// The pool's table of blocks is full at 2^20 of them, and takes 128 MiB to grow.
fn short_of_a_table() {
    let folder = Folder::new();
    let program = folder.linked("short_memory");
    for mib in ["4", "24", "60"] {
        let process = folder.process(&program).args([mib, "4", "1040000"]).with_pool_and_journal();
        let process = process
            .set("VGPU_BACKING=none VGPU_MEM=4GiB WEIR_OOM_TEXT=off WEIR_CAP=3GiB")
            .env("WEIR_DIR", folder.at("short"));
        let under = process.under_weir().run();
        assert_eq!(under.done.out, "0 wrong answers\n", "{mib} MiB\n{}", under.done);
        let _ = under.done.well();
    }
}

//! The library as a file (its exports and imports), `weir doctor` on it, and the assembly of both processors.

use crate::beside::strange_driver;
use crate::process::{Folder, Process};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use weir_tests::harness::{Job, Suite, stage};

pub(crate) fn trials(suite: &mut Suite) {
    suite.add("library: exports are the table, dlsym, dlvsym, weir's own and TensorFlow's five", exports);
    suite.add("library: never unloaded, and binds to itself", dynamic);
    suite.add("library: calls no cancellation point", imports);
    suite.add("library: the assembly of x86-64 and aarch64", assembly);
    suite.add("doctor: no problem on the virtual GPU", healthy);
    suite.add("doctor: without a driver", without_driver);
    suite.add("doctor: a bad setting", bad_setting);
    suite.add("doctor: finds why weir disabled itself earlier", disabled_earlier);
    suite.add("doctor: lists functions that it does not know", unknown_functions);
    suite.add("doctor: without the library", without_library);
}

/// The last words of the lines that `nm` prints, without versions.
fn nm(which: &str) -> BTreeSet<String> {
    let done = Job::new("nm").args(["-D", which]).arg(stage().weir()).run().well();
    let names = done.out.lines().filter_map(|line| line.split_whitespace().next_back());
    names.map(|name| name.split('@').next().unwrap_or(name).to_owned()).collect()
}

fn exports() {
    let folder = Folder::new();
    let under = folder.process(folder.linked("linked")).under_weir().run();
    let table = under.hooks().filter_map(|hook| hook["symbol"].as_str()).map(str::to_owned);
    // Functions that TensorFlow calls through its virtual tables, in compiled kernels and when it builds a graph.
    let more = [
        "TF_FinishOperation",
        "TFE_Execute",
        "TF_SessionRun",
        "_ZN10tensorflow6RecvOp12ComputeAsyncEPNS_15OpKernelContextESt8functionIFvvEE",
        "_ZN10tensorflow6SendOp7ComputeEPNS_15OpKernelContextE",
        "_ZN10tensorflow6TensorC1EPN3tsl9AllocatorENS_8DataTypeERKNS_11TensorShapeE",
        "_ZN10tensorflow6TensorC1EPN3tsl9AllocatorENS_8DataTypeERKNS_11TensorShapeERKNS1_20AllocationAttributesE",
        "_mlir_ciface_tf_alloc",
        "_ZN10tensorflow18XlaLocalLaunchBase12ComputeAsyncEPNS_15OpKernelContextESt8functionIFvvEE",
        "_ZN3xla26DumpingEnabledForHloModuleESt17basic_string_viewIcSt11char_traitsIcEERKNS_12DebugOptionsE",
        "_ZN3tsl12BFCAllocator11AllocateRawEmmRKNS_20AllocationAttributesE",
        "_ZN3tsl12BFCAllocator13DeallocateRawEPv",
        "_ZN3tsl9Allocator11AllocateRawEmmRKNS_20AllocationAttributesE",
        "dlsym",
        "dlvsym",
        "_exit",
        "_Exit",
        "weir_status",
        "weir_mark",
        "weir_region",
    ];
    let expected: BTreeSet<String> = table.chain(more.map(str::to_owned)).collect();
    assert!(expected.len() > 150, "{expected:?}");
    let exported = nm("--defined-only");
    assert_eq!(&exported - &expected, BTreeSet::new(), "exported and not expected");
    assert_eq!(&expected - &exported, BTreeSet::new(), "expected and not exported");
}

fn dynamic() {
    let done = Job::new("readelf").arg("-d").arg(stage().weir()).run().well();
    assert!(done.out.contains("NODELETE") && done.out.contains("SYMBOLIC"), "{done}");
}

/// The list of pthreads(7) as far as the C library has it, without functions that this library never calls in a way that
/// waits: fcntl with F_SETLKW, and pause, in which a process ends.
const CANCELLATION_POINTS: &str =
    "accept accept4 aio_suspend clock_nanosleep close connect copy_file_range creat creat64 epoll_wait epoll_pwait
    fallocate fallocate64 fdatasync fsync getrandom lockf mq_receive mq_send msgrcv msgsnd msync nanosleep open open64
    openat openat64 poll posix_fallocate posix_fallocate64 ppoll pread pread64 preadv preadv64 pselect
    pthread_cond_timedwait pthread_cond_wait pthread_join pthread_testcancel pwrite pwrite64 pwritev pwritev64 read
    readv recv recvfrom recvmsg select sem_timedwait sem_wait send sendfile sendfile64 sendmsg sendto sigpause
    sigsuspend sigtimedwait sigwait sigwaitinfo sleep splice sync_file_range system tcdrain tee usleep vmsplice wait
    wait3 wait4 waitid waitpid write writev";

fn imports() {
    let points: BTreeSet<String> = CANCELLATION_POINTS.split_whitespace().map(str::to_owned).collect();
    let imports = nm("--undefined-only");
    assert!(imports.contains("mmap") || imports.contains("mmap64"), "{imports:?}");
    assert_eq!(&imports & &points, BTreeSet::new());
}

fn assembly() {
    let done = Job::new(stage().root.join("shim/tests/arch/run")).within_seconds(1200).run();
    let _ = done.well();
}

fn doctor(folder: &Folder) -> Process<'_> {
    let library = stage().weir();
    let words = [Path::new("doctor"), Path::new("--library"), &library];
    folder.process(stage().command()).args(words).env("WEIR_DIR", folder.at("doctor"))
}

fn healthy() {
    let folder = Folder::new();
    let done = doctor(&folder).run().done.well();
    assert!(done.out.contains("No problem found.") && !done.out.contains("FAIL"), "{done}");
    let answer = doctor(&folder).args(["--json"]).run().done.well().json();
    assert_eq!(answer["ok"], true, "{answer}");
    let seen = &answer["seen"];
    assert!(seen["status"]["driver"]["hooks"].as_array().is_some_and(|hooks| hooks.len() > 150), "{answer}");
    let entries = seen["entry_points"].as_array().expect("entry points");
    assert!(!entries.is_empty() && entries.iter().all(|entry| entry["ok"] == true), "{answer}");
}

fn without_driver() {
    let folder = Folder::new();
    let done = doctor(&folder).paths::<PathBuf>([]).run().done.code(1);
    assert!(done.out.contains("not found") && done.out.contains("WEIR_CAP"), "{done}");
}

fn bad_setting() {
    let folder = Folder::new();
    let done = doctor(&folder).set("WEIR_CAP=lots").run().done.code(1);
    assert!(done.out.contains("WEIR_CAP=lots") && done.out.contains("(environment)"), "{done}");
}

fn disabled_earlier() {
    let folder = Folder::new();
    let job = folder.process(folder.linked("linked")).under([stage().weir_with_faults()]);
    let _ = job.env("WEIR_DIR", folder.at("doctor")).set("WEIR_FAULT=panic:cuMemAlloc_v2").run();
    let done = doctor(&folder).run().done.well();
    assert!(done.out.contains("panic in cuMemAlloc_v2"), "{done}");
}

fn unknown_functions() {
    let folder = Folder::new();
    let done = doctor(&folder).paths([strange_driver(&folder, None)]).run().done;
    assert!(done.out.contains("cuMemBrandNew"), "{done}");
}

fn without_library() {
    let folder = Folder::new();
    let command = folder.process(stage().command()).args(["doctor", "--library", "/nowhere/no-such.so"]);
    let done = command.run().done.code(1);
    assert!(done.out.contains("no library"), "{done}");
}

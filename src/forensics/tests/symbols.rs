//! Native addresses of this very test, resolved as those of a process that is gone.

use std::path::PathBuf;

use weir_forensics::symbols::{Missing, Symbols};
use weir_journal::reader::{ModuleEntry, Reader};
use weir_journal::{Geometry, Journal, Options, Walk, prepare_unwinding};

/// A stack of this test, and the modules of this process, through a real journal.
#[inline(never)]
fn own_stack_and_modules(name: &str) -> (Vec<u64>, Vec<ModuleEntry>) {
    let dir: PathBuf = std::env::temp_dir().join(format!("weir-symbols-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder");
    let geometry = Geometry { events: 64, live: 64, ..Geometry::default() };
    let journal = Journal::create(&Options::in_dir(&dir).sized(geometry)).expect("a journal");
    prepare_unwinding();
    let stack = journal.native_stack(Walk::Best);
    journal.refresh_modules();
    let reader = Reader::open(&journal.path().expect("a file")).expect("a journal");
    let found = (reader.stack(stack).expect("readable"), reader.modules().expect("readable"));
    let _ = std::fs::remove_dir_all(&dir);
    found
}

#[test]
fn a_function_has_its_name_file_and_line() {
    let (stack, modules) = own_stack_and_modules("named");
    let symbols = Symbols::new(modules);
    let frames: Vec<_> = stack.iter().flat_map(|address| symbols.resolve(*address).to_vec()).collect();
    let own = frames.iter().find(|frame| frame.function.contains("own_stack_and_modules"));
    let own = own.unwrap_or_else(|| panic!("not among {frames:?}"));
    assert!(own.file.ends_with("tests/symbols.rs") && own.line > 0, "{own:?}");
    assert!(frames.iter().any(|frame| frame.module.contains("libc.so")), "the C library started the thread");
    assert_eq!(symbols.missing(), []);
}

#[test]
fn another_build_is_not_queried() {
    let (stack, mut modules) = own_stack_and_modules("build");
    let own = std::env::current_exe().expect("known");
    let own = modules.iter_mut().find(|module| own == *module.path).expect("a module of its own");
    assert!(!own.build_id.is_empty(), "cargo's linker writes build ids");
    own.build_id[0] ^= 1;
    let path = own.path.clone();
    let symbols = Symbols::new(modules);
    let frames: Vec<_> = stack.iter().flat_map(|address| symbols.resolve(*address).to_vec()).collect();
    assert!(!frames.iter().any(|frame| frame.function.contains("own_stack_and_modules")), "{frames:?}");
    let named = frames.iter().find(|frame| frame.module == path).expect("still named by its module").name();
    assert!(named.starts_with("symbols-") && named.contains("+0x"), "{named}");
    assert_eq!(symbols.missing(), [(path, Missing::OtherBuild)]);
}

#[test]
fn what_is_missing_degrades_to_an_offset() {
    let gone = ModuleEntry {
        path: "/no/such/libgone.so.1".into(),
        bias: 0x1000,
        start: 0x2000,
        size: 0x1000,
        build_id: vec![7; 20],
    };
    let empty = ModuleEntry { path: "/dev/null".into(), bias: 0, start: 0x9000, size: 0x1000, build_id: Vec::new() };
    let symbols = Symbols::new(vec![empty, gone]);
    assert_eq!(symbols.resolve(0x2101)[0].name(), "libgone.so.1+0x1100");
    assert_eq!(symbols.resolve(0x9101)[0].name(), "null+0x9100");
    // In no module, below, between and above.
    for address in [0, 1, 0x3001, 0x8fff, u64::MAX] {
        assert_eq!(symbols.resolve(address)[0].name(), format!("?+{address:#x}"));
    }
    assert_eq!(symbols.missing().len(), 2);
}

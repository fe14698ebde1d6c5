//! The inside of a process that shows rules: runs them one after the other, each in a thread of its own
//! (a fresh thread has no current context), and says on stdout how each one went.

use crate::driver;
use crate::gpu;
use crate::rule::{Rule, Scope, Skip};
use crate::rules;
use crate::wire::Wire;
use std::any::Any;
use std::cell::RefCell;
use std::io::Write;

/// Starts every line that is meant for the runner.
pub(crate) const MARK: &str = "@rule ";

/// Bytes of device memory that a rule may take, where that is limited.
pub const BUDGET: &str = "CONFORMANCE_BUDGET";

/// What a rule may take.
pub(crate) fn budget() -> Option<u64> {
    std::env::var(BUDGET).ok()?.parse().ok()
}

thread_local! {
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Shows the rules with these ids. A failed rule ends the process, so that what it left behind
/// disturbs no other.
pub fn run(ids: &[String]) -> i32 {
    std::panic::set_hook(Box::new(|info| {
        if let Some(place) = info.location() {
            PLACE.with(|p| *p.borrow_mut() = format!("{}:{}", place.file(), place.line()));
        }
    }));
    for id in ids {
        let Some(rule) = rules::find(id) else {
            eprintln!("no rule is named {id}");
            return 2;
        };
        say(&format!("{id}\tstarted\t"));
        let result = std::thread::spawn(move || {
            let shown = std::panic::catch_unwind(|| show(&rule));
            (shown, PLACE.with(|p| p.borrow().clone()))
        });
        let (shown, place) = result.join().expect("panics are caught inside");
        match shown {
            Ok(()) => say(&format!("{id}\tpassed\t")),
            Err(panic) => {
                let Some(Skip(why)) = panic.downcast_ref::<Skip>() else {
                    say(&format!("{id}\tfailed\t{} ({place})", words(&*panic)));
                    return 1;
                };
                say(&format!("{id}\tskipped\t{why}"));
            }
        }
    }
    0
}

fn show(rule: &Rule) {
    if rule.scope == Scope::VirtualOnly && !driver::is_virtual() {
        crate::rule::skip("only the virtual GPU can show it");
    }
    if rule.devices > 1 {
        let mut count = 0;
        gpu::init();
        crate::rule::ok(driver::cu::cuDeviceGetCount(&raw mut count));
        if count < rule.devices as i32 {
            crate::rule::skip(format!("it needs {} devices", rule.devices));
        }
    }
    (rule.body)();
    if let Some(budget) = budget().filter(|_| driver::is_virtual()) {
        for device in 0..rule.devices as i32 {
            let peak = driver::vgpu_physical_peak(device);
            assert!(peak <= budget, "took {peak} bytes, more than the budget of {budget}");
        }
    }
}

/// Plays the second process of a rule.
pub fn peer(id: &str) -> i32 {
    let Some(play) = rules::find(id).and_then(|r| r.peer) else {
        eprintln!("no rule with a second process is named {id}");
        return 2;
    };
    play(&mut Wire::inherited());
    0
}

/// Says whether the loaded driver is the virtual GPU, and its version.
pub fn probe() -> i32 {
    if let Err(message) = driver::load() {
        eprintln!("{message}");
        return 2;
    }
    let version = gpu::driver_version();
    println!("{}\t{version}", if driver::is_virtual() { "virtual" } else { "real" });
    0
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let flat = line.replace('\n', " ");
    writeln!(out, "{MARK}{flat}").and_then(|()| out.flush()).expect("the runner listens");
}

fn words(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else {
        "panicked".to_owned()
    }
}

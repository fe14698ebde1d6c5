//! `stress --roles NAME,… [--seconds N] [--seed N] [--cap BYTES] [--change LOW-HIGH] [--bound SECONDS]`: threads
//! that make all kinds of calls at once, at the cap, on two devices of the strict virtual GPU: see `run`.
//! Exit status 1: a wrong answer, a wrong content, or memory above the cap. 3: a thread stopped for ever.

#[path = "../src/driver.rs"]
#[allow(dead_code)]
mod driver;
mod job;
mod roles;
#[path = "../caps/programs/rule.rs"]
mod rule;
mod watch;

use driver::cu::*;
use job::{Context, Job, Shared, fail, must_be_done};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use weir_tests::rng::Rng;

struct Options {
    roles: Vec<String>,
    seconds: f64,
    seed: u64,
    /// Bytes of each device that must never be exceeded.
    cap: Option<u64>,
    /// The cap changes between these while the program runs.
    change: Option<(u64, u64)>,
    bound: u64,
}

fn options() -> Options {
    let mut options = Options { roles: Vec::new(), seconds: 5.0, seed: 1, cap: None, change: None, bound: 60 };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().unwrap_or_else(|| panic!("{name} needs a value"));
        let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("{name} {text}: not a number"));
        match name.as_str() {
            "--roles" => options.roles = value.split(',').map(str::to_owned).collect(),
            "--seconds" => options.seconds = value.parse().expect("--seconds is a number"),
            "--seed" => options.seed = number(&value),
            "--cap" => options.cap = Some(number(&value)),
            "--change" => {
                let (low, high) = value.split_once('-').expect("--change is LOW-HIGH");
                options.change = Some((number(low), number(high)));
            }
            "--bound" => options.bound = number(&value),
            _ => panic!("no option {name}"),
        }
    }
    options
}

fn contexts() -> Vec<Context> {
    must_be_done("cuInit", cuInit(0));
    let mut count = 0;
    must_be_done("cuDeviceGetCount", cuDeviceGetCount(&raw mut count));
    let load = |device| {
        let mut handle = null_mut();
        must_be_done("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&raw mut handle, device));
        must_be_done("cuCtxSetCurrent", cuCtxSetCurrent(handle));
        Context::load(handle, device, |module, text| must_be_done("cuModuleLoadData", cuModuleLoadData(module, text)))
    };
    (0..count).map(load).collect()
}

/// Looks that no device has more than its cap, and changes it, until the time is over.
fn supervise(options: &Options, shared: &Shared, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut next = Instant::now();
    while Instant::now() < shared.until {
        witness(options, shared);
        std::thread::sleep(Duration::from_millis(20));
        if let Some((low, high)) = options.change
            && Instant::now() >= next
        {
            let cap = low + rng.below((high - low) >> 20) * job::MIB;
            let weir = std::env::var("STRESS_WEIR").expect("STRESS_WEIR names the command");
            let status = std::process::Command::new(weir)
                .args(["cap", &std::process::id().to_string(), &format!("{}MiB", cap >> 20)])
                .env_remove("LD_PRELOAD")
                .stdout(std::process::Stdio::null())
                .status();
            if !status.as_ref().is_ok_and(std::process::ExitStatus::success) {
                fail("supervisor", "weir cap", &format!("{status:?}"));
            }
            next = Instant::now() + Duration::from_millis(200);
        }
    }
}

fn witness(options: &Options, shared: &Shared) {
    let Some(cap) = options.cap else { return };
    for context in &shared.contexts {
        let peak = driver::vgpu_physical_peak(context.device);
        if peak > cap {
            fail("witness", "above the cap", &format!("{peak} bytes on device {}, cap {cap}", context.device));
        }
    }
}

fn main() {
    let options = options();
    let shared = Shared {
        contexts: contexts(),
        until: Instant::now() + Duration::from_secs_f64(options.seconds),
        refused: AtomicU64::new(0),
        disturbed: AtomicU64::new(0),
    };
    let bound = Duration::from_secs(options.bound);
    std::thread::spawn(move || watch::watch(bound));
    std::thread::scope(|scope| {
        for (at, role) in options.roles.iter().enumerate() {
            let (name, device) = role.split_once('@').unwrap_or((role, "0"));
            let body = roles::find(name).unwrap_or_else(|| panic!("no role {name}; there are {}", roles::names()));
            let device: usize = device.parse().expect("a device after @");
            let (shared, seed) = (&shared, options.seed.wrapping_mul(1000) + at as u64);
            scope.spawn(move || {
                let mut job = Job::new(shared, format!("{role}#{at}"), seed, device);
                body(&mut job);
                job.end();
            });
        }
        supervise(&options, &shared, options.seed);
    });
    witness(&options, &shared);
    println!(
        "{{\"test\":\"stress\",\"seed\":{},\"operations\":{},\"refused\":{},\"disturbed\":{}}}",
        options.seed,
        watch::operations(),
        shared.refused.load(Relaxed),
        shared.disturbed.load(Relaxed)
    );
    // Whatever the driver and the library do at exit is not what is tested here.
    watch::leave(0);
}

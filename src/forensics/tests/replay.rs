//! Replays of the traces that come with the pool, and of journals written for the purpose.

use std::path::{Path, PathBuf};

use weir_forensics::replay::{Policy, Requests, Settings, fits, replay, smallest_cap};
use weir_journal::reader::Reader;
use weir_journal::{Attribution, Class, Geometry, Granted, Intent, Journal, Kind, Options};

const MIB: u64 = 1 << 20;

fn trace(name: &str) -> Requests {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pool/traces").join(format!("{name}.txt.gz"));
    Requests::from_trace(&path).expect("comes with the pool")
}

/// Smallest cap as a multiple of the peak.
fn ratio(requests: &Requests, policy: Policy) -> f64 {
    let (cap, _) = smallest_cap(requests, &Settings::new(policy, 0), &mut |_, _| {}).expect("some cap will do");
    cap as f64 / requests.peak_live as f64
}

/// Trace; smallest cap ÷ peak that an independent simulator found for BFC, BFC with growth and PyTorch.
const MEASURED: [(&str, [f64; 3]); 2] =
    [("gpt2s_smallbatch", [1.106, 1.166, 1.082]), ("resnet50_fixed", [1.048, 1.067, 1.022])];

#[test]
fn models_need_what_an_independent_simulator_found() {
    for (name, expected) in MEASURED {
        let requests = trace(name);
        for (policy, expected) in [Policy::Bfc, Policy::BfcGrowth, Policy::Torch].into_iter().zip(expected) {
            let found = ratio(&requests, policy);
            assert!((found - expected).abs() < 0.03, "{name} with {policy}: {found:.3}, not {expected}");
        }
        let weir = ratio(&requests, Policy::Weir);
        assert!(weir < 1.03, "{name} with weir: {weir:.3}");
    }
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-replay-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn journal(&self, events: u64) -> Journal {
        let geometry = Geometry { events, live: 4096, ..Geometry::default() };
        let journal = Journal::create(&Options::in_dir(&self.0).sized(geometry)).expect("a journal");
        journal.set_device(0, [1; 16], 16 << 30, "virtual");
        journal
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn intent(class: Class, bytes: u64) -> Intent {
    let kind = Kind::Alloc;
    Intent { kind, class, device: 0, stream: 1, requested: bytes, address: 0, by: Attribution::default() }
}

fn alloc(journal: &Journal, class: Class, address: u64, bytes: u64) {
    journal.begin(intent(class, bytes)).granted(Granted { address, allocated: bytes.next_multiple_of(512) });
}

fn requests(journal: &Journal) -> Requests {
    let reader = Reader::open(&journal.path().expect("a file")).expect("a journal");
    Requests::from_journal("test", &reader, None).expect("readable")
}

#[test]
fn what_happened_before_the_oldest_event_is_there_too() {
    let scratch = Scratch::new("lapped");
    let journal = scratch.journal(64);
    // One stays, one is freed late; both births are overwritten.
    alloc(&journal, Class::Block, 1 << 30, 100 * MIB);
    alloc(&journal, Class::Block, 2 << 30, 50 * MIB);
    alloc(&journal, Class::Handle, 77, 512 * MIB);
    for _ in 0..100 {
        alloc(&journal, Class::Block, 3 << 30, 10 * MIB);
        journal.free(3 << 30, Class::Block, 1);
    }
    journal.free(2 << 30, Class::Block, 1);
    // Trimmed by the pool; its birth, which says whose it is, is overwritten too.
    journal.free(77, Class::Handle, 1);
    let requests = requests(&journal);
    assert_eq!(requests.peak_live, 160 * MIB);
    assert!(fits(&requests, &Settings::new(Policy::Weir, 176 * MIB)));
    assert!(!fits(&requests, &Settings::new(Policy::Weir, 150 * MIB)));
}

#[test]
fn the_request_that_the_job_died_of_must_fit() {
    let scratch = Scratch::new("refused");
    let journal = scratch.journal(1024);
    alloc(&journal, Class::Block, 1 << 30, 100 * MIB);
    journal.begin(intent(Class::Block, 300 * MIB)).ended(Kind::Refused, 0, 2);
    let died = requests(&journal);
    assert_eq!((died.refused, died.peak_live), (Some(300 * MIB), 400 * MIB));
    let outcome = replay(&died, &Settings::new(Policy::Weir, 200 * MIB), &mut |_, _| {});
    assert!(outcome.refusal.is_some_and(|refusal| refusal.recorded && refusal.bytes == 300 * MIB));
    assert!(fits(&died, &Settings::new(Policy::Weir, 416 * MIB)));

    // A job that got as much later could do without.
    alloc(&journal, Class::Block, 2 << 30, 300 * MIB);
    assert_eq!(requests(&journal).refused, None);
}

#[test]
fn tensors_inside_a_region_stand_for_it() {
    let scratch = Scratch::new("region");
    let journal = scratch.journal(1024);
    alloc(&journal, Class::Device, 1 << 40, 8 << 30);
    alloc(&journal, Class::Tensor, (1 << 40) + MIB, 64 * MIB);
    alloc(&journal, Class::Overhead, 7, 32 * MIB);
    let requests = requests(&journal);
    assert_eq!(requests.peak_live, 96 * MIB);
    // What is taken past the pool counts: 64 MiB alone would fit.
    assert!(!fits(&requests, &Settings::new(Policy::Weir, 80 * MIB)));
    assert!(fits(&requests, &Settings::new(Policy::Weir, 96 * MIB)));
}

#[test]
fn odd_traces_are_read_or_refused_clearly() {
    let parse = |text: &str| Requests::parse("t", text);
    assert!(parse("").unwrap_err().contains("no allocation"));
    assert!(parse("1 2\nrubbish\n").unwrap_err().contains("line 2"));
    assert!(parse("1 0\n").unwrap_err().contains("line 1"));
    assert!(parse("1 99999999999999999999\n").is_err());
    let reused = parse("# x\na 100\na 50\na -50\na -50\n").expect("an id may come again");
    assert_eq!((reused.peak_live, reused.allocations, reused.lost), (100, 2, 1));
    let huge = parse("1 200000000000000\n2 5\n").expect("huge, but a number");
    for policy in Policy::ALL {
        assert!(!fits(&huge, &Settings::new(policy, 1 << 40)), "{policy}");
    }
}

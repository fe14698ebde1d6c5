//! Members of a group that are killed again and again, at random moments and at chosen instructions of the protocol.
//!
//! ```text
//! cargo test -p weir-ledger --test storm                     150 kills, the halted member, the faults
//! cargo test -p weir-ledger --test storm -- --kills 2000     a longer storm
//! ```
//!
//! The members keep their own record of what they truly hold, in a file of the test: written after the ledger granted
//! and erased before it is given back, checked under the test's own lock at every change. At no instant may the living
//! hold more than the cap together; at the end the whole cap must be there and no lock be left. The same storm is run
//! with guards removed and must then find the fault.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use weir_ledger::fault::{self, Fault};
use weir_ledger::{Category, DeviceTerms, Ledger, LedgerDir, Urgency, control};

const MIB: u64 = 1 << 20;
const CAP: u64 = 64 * MIB;
const MEMBERS: usize = 8;
const UUID: [u8; 16] = [3; 16];
const VIOLATION: i32 = 3;

fn terms() -> DeviceTerms {
    DeviceTerms { uuid: UUID, physical: 1 << 30, cap: Some(CAP), warn: None, set_aside: Some(0) }
}

/// A small deterministic generator.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below.max(1)
    }
}

fn signal(pid: u32, signal: i32) {
    // SAFETY: sends a signal to a process of this test, by its id.
    unsafe { libc::kill(pid as libc::pid_t, signal) };
}

/// What the members truly hold: a record of 16 bytes each, pid and bytes.
struct Record(File);

impl Record {
    fn open(path: &Path) -> Self {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
        Self(file.expect("the record opens"))
    }

    fn locked<T>(&self, body: impl FnOnce() -> T) -> T {
        // SAFETY: an advisory lock on an open descriptor; the kernel releases it if we are killed.
        unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_EX) };
        let answer = body();
        // SAFETY: as above.
        unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_UN) };
        answer
    }

    fn entry(&self, index: usize) -> (u64, u64) {
        let mut bytes = [0; 16];
        if self.0.read_exact_at(&mut bytes, index as u64 * 16).is_err() {
            return (0, 0);
        }
        let whole = u128::from_le_bytes(bytes);
        (whole as u64, (whole >> 64) as u64)
    }

    /// Writes what this member holds and gives what all living ones hold together.
    fn write(&self, index: usize, held: u64) -> u64 {
        let whole = u128::from(std::process::id()) | (u128::from(held) << 64);
        self.locked(|| {
            self.0.write_all_at(&whole.to_le_bytes(), index as u64 * 16).expect("the record is written");
            (0..MEMBERS)
                .map(|i| self.entry(i))
                .filter(|(pid, held)| *held != 0 && has_memory(*pid))
                .map(|(_, held)| held)
                .sum()
        })
    }
}

/// Whether a process still has an address space: field 23 of its stat line is 0 once it has gone.
fn has_memory(pid: u64) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    fields.split_ascii_whitespace().nth(20).is_some_and(|size| size != "0")
}

fn kill_myself() {
    signal(std::process::id(), libc::SIGKILL);
    loop {
        std::thread::yield_now();
    }
}

fn stop_myself() {
    signal(std::process::id(), libc::SIGSTOP);
}

fn violation(text: &str) -> ! {
    eprintln!("VIOLATION: {text}");
    std::process::exit(VIOLATION);
}

/// One member: joins, takes, checks, gives back, until it is killed.
fn member(dir: &Path, index: usize, seed: u64, fault: Option<Fault>) -> ! {
    fault::inject(fault);
    let mut dice = Dice(seed | 1);
    let record = Record::open(&dir.join("record"));
    record.write(index, 0);
    // Some die while joining, the others inside an admission (below) or by the hand of the storm.
    if dice.roll(5) == 0 {
        fault::arm(1 + dice.roll(800), kill_myself);
    }
    loop {
        let ledger = match Ledger::join_group(&LedgerDir::at(dir), "storm") {
            Ok(ledger) => ledger,
            Err(e) => violation(&format!("cannot join: {e}")),
        };
        let device = ledger.open_device(&terms()).unwrap_or_else(|e| violation(&e.to_string()));
        let mut held: Vec<u64> = Vec::new();
        for _ in 0..40 {
            let bytes = 1 + dice.roll(CAP / 3);
            if dice.roll(50) == 0 {
                fault::arm(1 + dice.roll(20), kill_myself);
            }
            let answer = if dice.roll(4) == 0 {
                let patience = Duration::from_millis(dice.roll(30));
                ledger.reserve_waiting(device, bytes, Category::Pool, Urgency::Normal, patience, &mut || false)
            } else {
                ledger.reserve(device, bytes, Category::Pool, Urgency::Normal)
            };
            if let Ok(grant) = answer {
                let bytes = grant.reservation.bytes();
                if dice.roll(5) == 0 {
                    ledger.roll_back(grant.reservation);
                } else {
                    held.push(bytes);
                    let sum = record.write(index, held.iter().sum());
                    if sum > CAP {
                        violation(&format!("{sum} bytes held under a cap of {CAP}"));
                    }
                    ledger.commit(grant.reservation);
                }
            }
            if dice.roll(3) == 0 {
                std::thread::sleep(Duration::from_micros(dice.roll(800)));
            }
            if !held.is_empty() && dice.roll(2) == 0 {
                let bytes = held.swap_remove(dice.roll(held.len() as u64) as usize);
                record.write(index, held.iter().sum());
                if dice.roll(50) == 0 {
                    fault::arm(1 + dice.roll(20), kill_myself);
                }
                ledger.release(device, Category::Pool, bytes);
            }
            let charged = ledger.view(device).map_or(0, |v| v.own.charged);
            if charged != held.iter().sum::<u64>() {
                violation(&format!("{charged} bytes charged, {} held", held.iter().sum::<u64>()));
            }
        }
        record.write(index, 0);
        ledger.leave();
    }
}

struct Storm {
    dir: PathBuf,
    fault: Option<Fault>,
    dice: Dice,
}

impl Storm {
    fn new(name: &str, fault: Option<Fault>) -> Self {
        let dir = std::env::temp_dir().join(format!("weir-storm-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        LedgerDir::at(&dir).prepare().expect("a directory");
        Self { dir, fault, dice: Dice(0x5EED_1234_5678_9ABC) }
    }

    fn spawn(&mut self, index: usize) -> Child {
        let seed = self.dice.roll(u64::MAX);
        Command::new(std::env::current_exe().expect("this program"))
            .arg("member")
            .arg(&self.dir)
            .args([index.to_string(), seed.to_string(), self.fault.map_or(0, |d| d as u8).to_string()])
            .stdin(Stdio::null())
            .stderr(if self.fault.is_some() { Stdio::null() } else { Stdio::inherit() })
            .spawn()
            .expect("a member starts")
    }

    /// Kills members until `kills` have died; an error names what was violated.
    fn rage(&mut self, kills: u64) -> Result<(u64, u64), String> {
        let mut members: Vec<Child> = (0..MEMBERS).map(|i| self.spawn(i)).collect();
        let (mut by_hand, mut inside) = (0, 0);
        let mut verdict = Ok(());
        while by_hand + inside < kills && verdict.is_ok() {
            std::thread::sleep(Duration::from_micros(500 + self.dice.roll(6000)));
            let chosen = self.dice.roll(MEMBERS as u64) as usize;
            for (index, member) in members.iter_mut().enumerate() {
                let mut ended = member.try_wait().expect("a member can be waited for");
                if ended.is_none() && index == chosen {
                    let _ = member.kill();
                    ended = Some(member.wait().expect("it ends"));
                    by_hand += 1;
                } else if let Some(status) = ended {
                    match status.code() {
                        None => inside += 1,
                        Some(code) => verdict = Err(format!("member {index}: code {code}")),
                    }
                }
                if ended.is_some() {
                    *member = self.spawn(index);
                }
            }
        }
        for child in &mut members {
            let _ = child.kill();
            let _ = child.wait();
        }
        verdict.map(|()| (by_hand, inside))
    }

    /// After the storm: the whole cap at once, nobody alive in the ledger, no lock.
    fn calm(&self) -> Result<(), String> {
        let place = LedgerDir::at(&self.dir);
        if let Some(visit) = control::list(&place).first() {
            return Err(format!("a member is still alive in {}", visit.target));
        }
        let ledger = Ledger::join_group(&place, "storm").map_err(|e| e.to_string())?;
        let device = ledger.open_device(&terms()).map_err(|e| e.to_string())?;
        // Before anything could be corrected: all that the dead held has come back, and the sum never was wrong.
        let left = ledger.view(device).map_or(u64::MAX, |v| v.used);
        let repairs: u64 = control::list(&place).iter().flat_map(control::Visit::devices).map(|d| d.repairs).sum();
        if left != 0 || repairs != 0 {
            return Err(format!("{left} bytes were left behind, the sum was corrected {repairs} times"));
        }
        let grant = ledger
            .reserve(device, CAP, Category::Pool, Urgency::Normal)
            .map_err(|e| format!("the whole cap is not there again: {e}"))?;
        let view = ledger.view(device).ok_or("no view")?;
        if view.used != CAP || view.own.charged != CAP {
            return Err(format!("the account does not add up: {view:?}"));
        }
        ledger.roll_back(grant.reservation);
        ledger.leave();
        let file = File::open(self.dir.join("group-storm.ledger")).map_err(|e| e.to_string())?;
        // SAFETY: flock is plain data; the descriptor is open.
        let lock = unsafe {
            let mut lock: libc::flock = std::mem::zeroed();
            lock.l_type = libc::F_WRLCK as libc::c_short;
            libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock);
            lock
        };
        if i32::from(lock.l_type) == libc::F_UNLCK { Ok(()) } else { Err("a lock is left".into()) }
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A member that is stopped inside the protocol, at many of its steps, must not block the others.
fn halted(name: &str) -> Result<(), String> {
    let storm = Storm::new(name, None);
    let place = LedgerDir::at(&storm.dir);
    let ledger = Ledger::join_group(&place, "storm").map_err(|e| e.to_string())?;
    let device = ledger.open_device(&terms()).map_err(|e| e.to_string())?;
    for step in (1..400).step_by(13) {
        let mut child = Command::new(std::env::current_exe().map_err(|e| e.to_string())?)
            .arg("halt")
            .arg(&storm.dir)
            .arg(step.to_string())
            .spawn()
            .map_err(|e| e.to_string())?;
        let deadline = Instant::now() + Duration::from_secs(120);
        let stopped = loop {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
            match stat.rsplit_once(") ").and_then(|(_, s)| s.chars().next()) {
                Some('T') => break true,
                Some('Z') | None => break false, // it ended before that step
                _ if Instant::now() > deadline => {
                    return Err("the halting member never halted".into());
                }
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        let begin = Instant::now();
        for _ in 0..200 {
            let grant = ledger
                .reserve(device, CAP / 2, Category::Pool, Urgency::Normal)
                .map_err(|e| format!("blocked by a member halted at step {step}: {e}"))?;
            ledger.roll_back(grant.reservation);
        }
        let patience = Duration::from_secs(60);
        let waited = ledger
            .reserve_waiting(device, CAP / 2, Category::Pool, Urgency::Normal, patience, &mut || false)
            .map_err(|e| format!("a halted member at the head of the queue (step {step}): {e}"))?;
        ledger.roll_back(waited.reservation);
        if begin.elapsed() > Duration::from_secs(60) {
            return Err(format!("{:?} beside a member halted at step {step}", begin.elapsed()));
        }
        if stopped {
            signal(child.id(), libc::SIGCONT);
        }
        let _ = child.kill();
        let _ = child.wait();
    }
    let grant = ledger
        .reserve(device, CAP, Category::Pool, Urgency::Normal)
        .map_err(|e| format!("the whole cap is not there again: {e}"))?;
    ledger.roll_back(grant.reservation);
    ledger.leave();
    Ok(())
}

fn halting_member(dir: &Path, step: u64) -> ! {
    fault::arm(step, stop_myself);
    let Ok(ledger) = Ledger::join_group(&LedgerDir::at(dir), "storm") else {
        std::process::exit(1);
    };
    if let Ok(device) = ledger.open_device(&terms()) {
        for _ in 0..4 {
            if let Ok(grant) = ledger.reserve(device, CAP / 4, Category::Pool, Urgency::Normal) {
                ledger.commit(grant.reservation);
                ledger.release(device, Category::Pool, CAP / 4);
            }
        }
        let _ = ledger.reserve_waiting(
            device,
            CAP / 4,
            Category::Pool,
            Urgency::Normal,
            Duration::from_millis(1),
            &mut || false,
        );
    }
    std::process::exit(0);
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| args.get(at).and_then(|a| a.parse::<u64>().ok()).unwrap_or(0);
    match args.first().map(String::as_str) {
        Some("member") => {
            let fault = Fault::ALL.into_iter().find(|d| *d as u64 == number(4));
            member(Path::new(&args[1]), number(2) as usize, number(3), fault);
        }
        Some("halt") => halting_member(Path::new(&args[1]), number(2)),
        _ => {}
    }
    let kills = args.iter().position(|a| a == "--kills").map_or(150, |at| number(at + 1));
    let begin = Instant::now();
    let mut storm = Storm::new("sound", None);
    let ended = storm.rage(kills).and_then(|counts| storm.calm().map(|()| counts));
    match ended {
        Ok((by_hand, inside)) => println!(
            "storm: {by_hand} killed from outside, {inside} inside the protocol, {:.1} s: ok",
            begin.elapsed().as_secs_f64()
        ),
        Err(text) => {
            println!("storm: {text}");
            return ExitCode::FAILURE;
        }
    }
    if let Err(text) = halted("halt") {
        println!("halted member: {text}");
        return ExitCode::FAILURE;
    }
    println!("a member halted at every 13th step: ok");
    for fault in [Fault::NoLivenessCheck, Fault::SplitAdmission, Fault::KeepOnRollBack, Fault::NoHelp] {
        let mut storm = Storm::new("fault", Some(fault));
        let Err(found) = storm.rage(400).and_then(|_| storm.calm()) else {
            println!("{fault:?} was not noticed");
            return ExitCode::FAILURE;
        };
        println!("{fault:?} is noticed: {found}");
    }
    ExitCode::SUCCESS
}

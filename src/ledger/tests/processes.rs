//! The ledger seen from several processes: killed, stopped, forked, with closed descriptors, with damaged files.
//!
//! A child is this test program again, with its part named in the environment.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use weir_ledger::table::{GROUP_MEMBERS, words_for};
use weir_ledger::{Category, DeviceId, DeviceTerms, Ledger, LedgerDir, LedgerError, Refusal, Urgency};

const MIB: u64 = 1 << 20;

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-processes-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
    fn place(&self) -> LedgerDir {
        LedgerDir::at(&self.0)
    }
    fn file(&self) -> PathBuf {
        self.0.join("group-g.ledger")
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn terms() -> DeviceTerms {
    DeviceTerms { uuid: [5; 16], physical: 1 << 30, cap: Some(8 * MIB), warn: None, set_aside: Some(0) }
}

fn join(dir: &Path) -> (Ledger, DeviceId) {
    let ledger = Ledger::join_group(&LedgerDir::at(dir), "g").expect("joins");
    let device = ledger.open_device(&terms()).expect("opens");
    (ledger, device)
}

fn take(ledger: &Ledger, device: DeviceId, mib: u64) -> Result<(), Refusal> {
    ledger.reserve(device, mib * MIB, Category::Device, Urgency::Normal).map(|grant| ledger.commit(grant.reservation))
}

/// A child that plays a part and talks by lines.
struct Actor {
    child: Child,
    input: ChildStdin,
    hear: BufReader<ChildStdout>,
}

impl Actor {
    fn start(part: &str, dir: &Path) -> Self {
        Self::start_as(None, part, dir)
    }

    /// The same as another user, which only root can do.
    fn start_as(user: Option<u32>, part: &str, dir: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let mut child = command
            .args(["--exact", "play_a_part", "--nocapture", "--test-threads=1"])
            .env("WEIR_TEST_PART", part)
            .env("WEIR_TEST_DIR", dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let hear = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, hear }
    }

    /// Waits for a line that ends in `word` (the test harness prints lines of its own).
    fn expect(&mut self, word: &str) {
        self.hear(word, |line, word| line.ends_with(word));
    }

    /// Waits for a line that begins with `word`, and returns it.
    fn answer(&mut self, word: &str) -> String {
        self.hear(word, |line, word| line.starts_with(word))
    }

    fn hear(&mut self, word: &str, is: fn(&str, &str) -> bool) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.hear.read_line(&mut line).unwrap(), 0, "ended before it said {word}");
            assert!(!line.contains("panicked"), "{line}");
            if is(line.trim_end(), word) {
                return line;
            }
        }
    }

    fn go_on(&mut self) {
        writeln!(self.input, "go").unwrap();
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a signal to our own child.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }
}

impl Actor {
    /// Waits until it sleeps: it has said that it is about to wait, and what is ready to run does not sleep.
    fn sleeps(&self) {
        let (begin, stat) = (Instant::now(), format!("/proc/{}/stat", self.child.id()));
        let mut seen = 0;
        while seen < 10 {
            seen = if std::fs::read_to_string(&stat).unwrap().contains(") S ") { seen + 1 } else { 0 };
            assert!(begin.elapsed() < Duration::from_secs(120), "it does not wait");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Stops it, and waits until it really stands still.
    fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let begin = Instant::now();
        let stat = format!("/proc/{}/stat", self.child.id());
        while !std::fs::read_to_string(&stat).unwrap().contains(") T ") {
            assert!(begin.elapsed() < Duration::from_secs(120), "it does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(word: &str) {
    println!("\n{word}");
}

fn pause() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    if line.is_empty() {
        std::process::exit(0); // nobody is there any more
    }
}

#[test]
fn play_a_part() {
    let Ok(part) = std::env::var("WEIR_TEST_PART") else {
        return;
    };
    let dir = PathBuf::from(std::env::var("WEIR_TEST_DIR").unwrap());
    match part.as_str() {
        "holder" => {
            let (ledger, device) = join(&dir);
            take(&ledger, device, 6).unwrap();
            say("holding");
            pause();
        }
        "ending" => ending(&dir),
        "tenant" => {
            let place = LedgerDir::from_variables(Some(&dir), None);
            let taken = Ledger::join_group(&place, "g").map(|ledger| {
                let device = ledger.open_device(&terms()).unwrap();
                let taken = take(&ledger, device, 6);
                std::mem::forget(ledger);
                taken
            });
            say(&match taken {
                Ok(Ok(())) => format!("tenant: took, in {}", place.path().display()),
                Ok(Err(refusal)) => format!("tenant: refused, {refusal}"),
                Err(error) => format!("tenant: {error}"),
            });
            pause();
        }
        "closer" => {
            let (ledger, device) = join(&dir);
            take(&ledger, device, 6).unwrap();
            // SAFETY: as programs do when they become a daemon; standard input and output stay.
            unsafe { libc::close_range(3, u32::MAX, 0) };
            say("closed");
            pause();
            take(&ledger, device, 2).unwrap();
            say("took");
            pause();
        }
        "executor" => {
            let (ledger, device) = join(&dir);
            take(&ledger, device, 6).unwrap();
            say("holding");
            pause();
            let error = Command::new("sleep").arg("60").exec();
            panic!("{error}");
        }
        "forker" => forker(&dir),
        "waiter" => {
            let (ledger, device) = join(&dir);
            say("waiting");
            let patience = Duration::from_secs(60);
            let grant =
                ledger.reserve_waiting(device, 6 * MIB, Category::Device, Urgency::Normal, patience, &mut || false);
            say(if grant.is_ok() { "granted" } else { "refused" });
            pause();
        }
        "limited" => {
            let error = Ledger::join_group(&LedgerDir::at(&dir), "g").err().expect("no room for the file");
            assert!(error.to_string().contains("disk full"), "{error}");
            say("refused");
        }
        other => panic!("no part {other}"),
    }
}

fn forker(dir: &Path) {
    let (ledger, device) = join(dir);
    take(&ledger, device, 4).unwrap();
    // SAFETY: only this thread of the program does anything at this moment, and the child uses nothing it may not.
    let pid = unsafe { libc::fork() };
    if pid != 0 {
        say("forked");
        pause();
        return;
    }
    assert!(!ledger.is_here());
    assert_eq!(take(&ledger, device, 1), Err(Refusal::Forked));
    assert_eq!((ledger.view(device), ledger.news(device)), (None, None));
    assert_eq!(ledger.release(device, Category::Device, MIB), 0);
    ledger.leave(); // must leave the parent's row alone
    let (own, device) = join(dir);
    assert_eq!(take(&own, device, 5), Err(Refusal::Full { free: 4 * MIB }));
    take(&own, device, 3).unwrap();
    say("child");
    pause();
    take(&own, device, 5).expect("the parent's share is free though its child lives");
    say("all");
    pause();
    std::process::exit(0);
}

#[test]
fn the_share_of_a_killed_process_is_free_at_the_next_request() {
    let dir = Dir::new("killed");
    let (ledger, device) = join(&dir.0);
    let mut holder = Actor::start("holder", &dir.0);
    holder.expect("holding");
    assert_eq!(take(&ledger, device, 3), Err(Refusal::Full { free: 2 * MIB }));
    holder.child.kill().unwrap();
    holder.child.wait().unwrap();
    take(&ledger, device, 8).unwrap();
}

/// A process as it is while it is being torn down: its lock is gone, its first thread has ended, but not all of it.
fn ending(dir: &Path) {
    // SAFETY: the child has this thread alone, and joins on its own.
    let pid = unsafe { libc::fork() };
    if pid != 0 {
        pause();
        return;
    }
    let (ledger, device) = join(dir);
    take(&ledger, device, 6).unwrap();
    std::thread::spawn(move || {
        let own = std::process::id();
        let stat = format!("/proc/{own}/stat");
        while !std::fs::read_to_string(&stat).unwrap().contains(") Z ") {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(ledger); // without leaving: the mapping goes, and with it the lock
        say(&format!("ending {own}"));
        pause();
        std::process::exit(0);
    });
    // SAFETY: ends this thread alone, which holds nothing that the other needs.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

#[test]
fn the_share_of_a_process_is_not_free_before_all_of_the_process_is_gone() {
    let dir = Dir::new("ending");
    let (ledger, device) = join(&dir.0);
    let mut ending = Actor::start("ending", &dir.0);
    let pid: i32 = ending.answer("ending").split_whitespace().last().unwrap().parse().unwrap();
    assert_eq!(take(&ledger, device, 8), Err(Refusal::Full { free: 2 * MIB }), "its memory may still be taken");
    let members: Vec<_> = (2..GROUP_MEMBERS).map(|_| Ledger::join_group(&dir.place(), "g").unwrap()).collect();
    let error = Ledger::join_group(&dir.place(), "g").err().expect("its row is still its own");
    assert!(matches!(error, LedgerError::GroupFull { .. }), "{error}");
    // SAFETY: a signal to a process that this test started.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    let begin = Instant::now();
    while take(&ledger, device, 8).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(60), "it is never free");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(members);
}

#[test]
fn a_group_whose_file_was_deleted_takes_nobody_in_while_a_member_lives() {
    let dir = Dir::new("deleted");
    for folder_too in [false, true] {
        let mut holder = Actor::start("holder", &dir.0);
        holder.expect("holding");
        if folder_too {
            std::fs::remove_dir_all(&dir.0).unwrap();
        } else {
            std::fs::remove_file(dir.file()).unwrap();
        }
        let error = Ledger::join_group(&dir.place(), "g").err().expect("it would be a second group");
        assert!(matches!(error, LedgerError::Deleted { pid, .. } if pid == holder.child.id()), "{error}");
        let other = Ledger::join_group(&dir.place(), "other").expect("another group is none of its business");
        other.leave();
        drop(holder);
        let (ledger, device) = join(&dir.0);
        take(&ledger, device, 8).unwrap();
    }
}

/// Only root can play two users.
fn is_root(test: &str) -> bool {
    // SAFETY: takes nothing and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        eprintln!("SKIPPED {test}: it plays two users, which only root can");
    }
    root
}

const TENANT: u32 = 47_110;
const SQUATTER: u32 = 47_111;

#[test]
fn users_of_a_shared_directory_have_groups_of_their_own() {
    use std::os::unix::fs::PermissionsExt;
    if !is_root("users_of_a_shared_directory_have_groups_of_their_own") {
        return;
    }
    let dir = Dir::new("tenants");
    std::fs::create_dir(&dir.0).unwrap();
    std::fs::set_permissions(&dir.0, PermissionsExt::from_mode(0o1777)).unwrap();
    for user in [SQUATTER, TENANT] {
        let mut first = Actor::start_as(Some(user), "tenant", &dir.0);
        let answer = first.answer("tenant:");
        assert!(answer.contains("took"), "{answer}");
        let mut second = Actor::start_as(Some(user), "tenant", &dir.0);
        let answer = second.answer("tenant:");
        assert!(answer.contains("refused, only 2"), "{answer}");
    }
}

#[test]
fn a_name_that_a_stranger_took_first_is_an_error_that_names_him() {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    if !is_root("a_name_that_a_stranger_took_first_is_an_error_that_names_him") {
        return;
    }
    for how in ["folder", "open folder", "link", "own link", "file", "owner"] {
        let dir = Dir::new("squatted");
        std::fs::create_dir(&dir.0).unwrap();
        std::fs::set_permissions(&dir.0, PermissionsExt::from_mode(0o1777)).unwrap();
        // A folder of the tenant's to which a link can lead, for as long as the stranger likes.
        let elsewhere = dir.0.join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        chown(&elsewhere, Some(TENANT), Some(TENANT)).unwrap();
        std::fs::set_permissions(&elsewhere, PermissionsExt::from_mode(0o700)).unwrap();
        let name = dir.0.join(format!("weir-{TENANT}"));
        match how {
            "link" | "own link" => symlink(&elsewhere, &name).unwrap(),
            "file" => std::fs::write(&name, "").unwrap(),
            "owner" => chown(&dir.0, Some(SQUATTER), Some(SQUATTER)).unwrap(),
            _ => std::fs::create_dir(&name).unwrap(),
        }
        if how == "open folder" {
            std::fs::set_permissions(&name, PermissionsExt::from_mode(0o777)).unwrap();
        }
        if how != "owner" {
            let owner = if how == "own link" { TENANT } else { SQUATTER };
            std::os::unix::fs::lchown(&name, Some(owner), Some(owner)).unwrap();
        }
        let mut tenant = Actor::start_as(Some(TENANT), "tenant", &dir.0);
        let error = tenant.answer("tenant:");
        let message =
            if how == "own link" { "links are not followed".into() } else { format!("belongs to user {SQUATTER}") };
        assert!(error.contains(&message), "{how}: {error}");
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0, "{how}: nothing is made where a link leads");
        assert!(error.contains("set WEIR_DIR"), "{how}: {error}");
    }
}

#[test]
fn a_member_that_closes_every_descriptor_still_counts() {
    let dir = Dir::new("closer");
    let (ledger, device) = join(&dir.0);
    let mut closer = Actor::start("closer", &dir.0);
    closer.expect("closed");
    assert_eq!(take(&ledger, device, 3), Err(Refusal::Full { free: 2 * MIB }));
    closer.go_on();
    closer.expect("took");
    assert_eq!(take(&ledger, device, 1), Err(Refusal::Full { free: 0 }));
    drop(closer);
    take(&ledger, device, 8).unwrap();
}

#[test]
fn exec_ends_a_membership() {
    let dir = Dir::new("exec");
    let (ledger, device) = join(&dir.0);
    let mut executor = Actor::start("executor", &dir.0);
    executor.expect("holding");
    assert!(take(&ledger, device, 3).is_err());
    executor.go_on();
    let begin = Instant::now();
    while take(&ledger, device, 8).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(120), "the row outlives exec");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_fork_joins_on_its_own_and_does_not_keep_its_parents_share() {
    let dir = Dir::new("fork");
    let mut parent = Actor::start("forker", &dir.0);
    parent.expect("child");
    let (ledger, device) = join(&dir.0);
    assert_eq!(ledger.view(device).unwrap().used, 7 * MIB, "4 of the parent, 3 of the child");
    parent.signal(libc::SIGKILL);
    parent.child.wait().unwrap();
    parent.go_on();
    parent.expect("all");
    assert_eq!(ledger.view(device).unwrap().used, 8 * MIB);
    // The child ends when its input does.
}

#[test]
fn a_stopped_process_at_the_head_of_the_queue_is_passed_by_and_keeps_its_place() {
    let dir = Dir::new("head");
    let (ledger, device) = join(&dir.0);
    take(&ledger, device, 8).unwrap();
    let mut first = Actor::start("waiter", &dir.0);
    first.expect("waiting");
    first.sleeps();
    let mut second = Actor::start("waiter", &dir.0);
    second.expect("waiting");
    second.sleeps();
    first.stop();
    ledger.release(device, Category::Device, 8 * MIB);
    // One that is not passed by keeps the other waiting until it is refused.
    second.expect("granted");
    first.signal(libc::SIGCONT);
    second.child.kill().unwrap();
    first.expect("granted");
}

#[test]
fn one_who_waits_notices_a_death() {
    let dir = Dir::new("death");
    let mut holder = Actor::start("holder", &dir.0);
    holder.expect("holding");
    let (ledger, device) = join(&dir.0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            holder.child.kill().unwrap();
        });
        let patience = Duration::from_secs(30);
        let grant =
            ledger.reserve_waiting(device, 7 * MIB, Category::Pool, Urgency::Normal, patience, &mut || false).unwrap();
        assert!(grant.waited < patience, "{:?}", grant.waited);
        ledger.roll_back(grant.reservation);
    });
}

#[test]
fn a_file_of_another_version_is_put_aside_unless_somebody_lives_in_it() {
    let dir = Dir::new("version");
    let (ledger, device) = join(&dir.0);
    take(&ledger, device, 8).unwrap();
    let file = File::options().write(true).open(dir.file()).unwrap();
    file.write_all_at(&99_u64.to_le_bytes(), 8).unwrap();
    let error = Ledger::join_group(&dir.place(), "g").err().expect("somebody lives there");
    assert!(matches!(error, LedgerError::Foreign { .. }), "{error}");
    assert!(error.to_string().contains("WEIR_GROUP"), "{error}");
    assert_eq!(ledger.view(device).unwrap().used, 8 * MIB, "the living lose nothing");
    ledger.leave();
    let (anew, device) = join(&dir.0);
    take(&anew, device, 8).unwrap();
    assert!(dir.0.join("group-g.ledger.damaged").exists());
}

#[test]
fn links_and_strangers_are_not_followed() {
    let dir = Dir::new("links");
    dir.place().prepare().unwrap();
    let target = dir.0.join("precious");
    std::fs::write(&target, "precious").unwrap();
    std::os::unix::fs::symlink(&target, dir.file()).unwrap();
    let error = Ledger::join_group(&dir.place(), "g").err().expect("a link is refused");
    assert!(matches!(error, LedgerError::System { .. }), "{error}");
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "precious");
}

#[test]
fn no_room_for_the_file_is_an_error_and_not_a_death() {
    let dir = Dir::new("limit");
    // A limit on the size of files sends a deadly signal to those who pass it.
    let output = Command::new("sh")
        .args(["-c", "ulimit -f 64; exec \"$0\" --exact play_a_part --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .env("WEIR_TEST_PART", "limited")
        .env("WEIR_TEST_DIR", &dir.0)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read_dir(&dir.0).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn a_group_can_be_full() {
    let dir = Dir::new("full");
    let members: Vec<_> = (0..GROUP_MEMBERS).map(|_| Ledger::join_group(&dir.place(), "g").unwrap()).collect();
    let error = Ledger::join_group(&dir.place(), "g").err().expect("it is full");
    assert!(matches!(error, LedgerError::GroupFull { .. }), "{error}");
    drop(members); // without leaving, as the dead do
    let (ledger, device) = join(&dir.0);
    take(&ledger, device, 8).unwrap();
}

#[test]
fn files_of_dead_processes_are_swept_away() {
    let dir = Dir::new("sweep");
    dir.place().prepare().unwrap();
    for name in ["process-2147483000-77.ledger", ".new-2147483000-0"] {
        std::fs::write(dir.0.join(name), "left over").unwrap();
    }
    let ledger = Ledger::for_process(&dir.place()).unwrap();
    let names: Vec<_> = std::fs::read_dir(&dir.0).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(names, [ledger.path().file_name().unwrap()]);
    ledger.leave();
}

#[test]
fn a_sum_that_was_damaged_to_the_utmost_is_corrected() {
    let dir = Dir::new("utmost");
    let (alive, device) = join(&dir.0);
    let _ = take(&alive, device, 2);
    drop(alive);
    let file = File::options().write(true).open(dir.file()).unwrap();
    // The first device's sum: see the table of words.
    file.write_all_at(&u64::MAX.to_le_bytes(), 20 * 8).unwrap();
    let ledger = Ledger::join_group(&dir.place(), "g").unwrap();
    let device = ledger.open_device(&terms()).unwrap();
    assert_eq!(take(&ledger, device, 8), Ok(()));
    assert_eq!(ledger.view(device).unwrap().used, 8 * MIB);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]
    /// Garbage anywhere in the file, any length: joining answers, and what it gives works.
    #[test]
    fn a_damaged_file_never_hurts(
        writes in proptest::collection::vec((0..words_for(GROUP_MEMBERS) as u64, any::<u64>()), 0..60),
        near in proptest::collection::vec((0..600_u64, prop_oneof![any::<u64>(), 0..5_u64, Just(u64::MAX)]), 0..40),
        cut in prop_oneof![3 => Just(None), 1 => (0..words_for(GROUP_MEMBERS) as u64 * 8).prop_map(Some)],
        while_alive: bool,
    ) {
        let dir = Dir::new("fuzz");
        let (alive, device) = join(&dir.0);
        let _ = take(&alive, device, 2);
        let mut alive = Some(alive);
        if !while_alive {
            drop(alive.take());
        }
        let file = File::options().write(true).open(dir.file()).unwrap();
        for (word, value) in writes.into_iter().chain(near) {
            file.write_all_at(&value.to_le_bytes(), word * 8).unwrap();
        }
        if let Some(length) = cut.filter(|_| !while_alive) {
            file.set_len(length).unwrap();
        }
        if let Some(alive) = &alive {
            let _ = take(alive, device, 1);
            let _ = (alive.view(device), alive.news(device), alive.release(device, Category::Device, MIB));
        }
        match Ledger::join_group(&dir.place(), "g") {
            Err(LedgerError::Foreign { .. }) => prop_assert!(while_alive),
            Err(other) => prop_assert!(false, "{other}"),
            Ok(ledger) => match ledger.open_device(&terms()) {
                Err(LedgerError::TooManyDevices) => {}
                Err(other) => prop_assert!(false, "{other}"),
                Ok(device) => {
                    // A child that another test forks this moment may keep the dead one's lock until it calls exec.
                    let begin = Instant::now();
                    let mut taken = take(&ledger, device, 8);
                    while taken.is_err() && !while_alive && begin.elapsed() < Duration::from_secs(20) {
                        std::thread::sleep(Duration::from_millis(5));
                        taken = take(&ledger, device, 8);
                    }
                    let view = ledger.view(device).unwrap();
                    if !while_alive {
                        prop_assert_eq!(taken, Ok(()), "the whole cap is there: {:?}", view);
                        prop_assert_eq!(view.used, 8 * MIB);
                    }
                    ledger.leave();
                }
            },
        }
    }
}

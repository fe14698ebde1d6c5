//! The ledger seen from one process: what is charged, what is refused, what is reported. Several members in one process count
//! as several members, because each has its own open file.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use weir_ledger::control::{self, Target};
use weir_ledger::{Category, DeviceId, DeviceTerms, Ledger, LedgerDir, Refusal, Reserved, Urgency};
use weir_settings::size::Amount;

const MIB: u64 = 1 << 20;

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-accounting-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
    fn place(&self) -> LedgerDir {
        LedgerDir::at(&self.0)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn terms(cap: Option<u64>) -> DeviceTerms {
    DeviceTerms { uuid: [7; 16], physical: 1024 * MIB, cap, warn: None, set_aside: Some(0) }
}

fn reserve(ledger: &Ledger, device: DeviceId, bytes: u64) -> Result<Reserved, Refusal> {
    ledger.reserve(device, bytes, Category::Pool, Urgency::Normal)
}

fn used(ledger: &Ledger, device: DeviceId) -> u64 {
    ledger.view(device).unwrap().used
}

#[test]
fn reserve_commit_release_and_give_back_add_up() {
    let ledger = Ledger::private().unwrap();
    let device = ledger.open_device(&terms(Some(8 * MIB))).unwrap();
    let first = reserve(&ledger, device, 5 * MIB).unwrap();
    let view = ledger.view(device).unwrap();
    assert_eq!((view.used, view.own.pending, view.own.by_category[0]), (5 * MIB, 5 * MIB, 0));
    ledger.commit(first.reservation);
    let view = ledger.view(device).unwrap();
    assert_eq!((view.used, view.own.pending, view.own.by_category[0]), (5 * MIB, 0, 5 * MIB));
    let second = reserve(&ledger, device, 3 * MIB).unwrap();
    assert_eq!(reserve(&ledger, device, 1), Err(Refusal::Full { free: 0 }));
    ledger.roll_back(second.reservation);
    assert_eq!(used(&ledger, device), 5 * MIB);
    assert_eq!(ledger.release(device, Category::Pool, 5 * MIB), 5 * MIB);
    assert_eq!(used(&ledger, device), 0);
    assert_eq!(ledger.view(device).unwrap().peak, 8 * MIB);
    ledger.leave();
}

#[test]
fn an_account_never_goes_below_nothing() {
    let ledger = Ledger::private().unwrap();
    let device = ledger.open_device(&terms(Some(8 * MIB))).unwrap();
    ledger.commit(reserve(&ledger, device, MIB).unwrap().reservation);
    assert_eq!(ledger.release(device, Category::Managed, MIB), 0, "nothing was charged there");
    assert_eq!(ledger.release(device, Category::Pool, 99 * MIB), MIB);
    assert_eq!(ledger.release(device, Category::Pool, MIB), 0);
    assert_eq!(used(&ledger, device), 0);
}

#[test]
fn what_can_never_fit_fails_at_once_even_when_it_may_wait() {
    let ledger = Ledger::private().unwrap();
    let device = ledger.open_device(&terms(Some(8 * MIB))).unwrap();
    let begin = Instant::now();
    for bytes in [8 * MIB + 1, u64::MAX] {
        let answer = ledger.reserve_waiting(
            device,
            bytes,
            Category::Pool,
            Urgency::Normal,
            Duration::from_secs(30),
            &mut || false,
        );
        assert_eq!(answer, Err(Refusal::TooLarge { largest: 8 * MIB }));
    }
    assert!(begin.elapsed() < Duration::from_secs(30), "it waited");
}

#[test]
fn tiny_requests_are_answered_at_the_cap_and_do_not_pass_it() {
    let cap = 256 * MIB;
    let ledger = Ledger::private().unwrap();
    let device = ledger.open_device(&DeviceTerms { set_aside: None, ..terms(Some(cap)) }).unwrap();
    assert_eq!(ledger.view(device).unwrap().own.set_aside, 2 * MIB);
    assert_eq!(reserve(&ledger, device, cap - MIB), Err(Refusal::TooLarge { largest: cap - 2 * MIB }));
    ledger.commit(reserve(&ledger, device, cap - 2 * MIB).unwrap().reservation);
    assert!(reserve(&ledger, device, 4096).is_err());
    let granule = ledger.reserve(device, 2 * MIB, Category::Pool, Urgency::Tiny).unwrap();
    assert_eq!(used(&ledger, device), cap, "charged from the beginning");
    assert!(ledger.reserve(device, 4096, Category::Pool, Urgency::Tiny).is_err(), "it is used up");
    // What comes free is set aside again first.
    ledger.roll_back(granule.reservation);
    assert_eq!(ledger.view(device).unwrap().own.set_aside, 2 * MIB);
    assert_eq!(used(&ledger, device), cap);
}

#[test]
fn the_soft_mark_is_reported_once_for_each_crossing() {
    let ledger = Ledger::private().unwrap();
    let warn = Some(Amount::Share(900_000));
    let device = ledger.open_device(&DeviceTerms { warn, ..terms(Some(100 * MIB)) }).unwrap();
    let take = |mib: u64| {
        let grant = reserve(&ledger, device, mib * MIB).unwrap();
        let crossed = grant.crossed_mark.is_some();
        ledger.commit(grant.reservation);
        crossed
    };
    assert!(!take(89));
    assert!(take(1));
    assert!(!take(5), "reported already");
    ledger.release(device, Category::Pool, 8 * MIB); // 87: not far enough below
    assert!(!take(4));
    ledger.release(device, Category::Pool, 10 * MIB); // 81
    assert!(take(10), "crossed anew");
}

#[test]
fn one_truth_for_every_query() {
    let ledger = Ledger::private().unwrap();
    let device = ledger.open_device(&terms(Some(100 * MIB))).unwrap();
    ledger.commit(reserve(&ledger, device, 60 * MIB).unwrap().reservation);
    let view = ledger.view(device).unwrap();
    assert_eq!(view.total(), 100 * MIB);
    assert_eq!(view.free(None, 0), 40 * MIB);
    assert_eq!(view.free(Some(10 * MIB), 0), 10 * MIB, "others use the device too");
    assert_eq!(view.free(Some(10 * MIB), 25 * MIB), 35 * MIB, "what the pool keeps is free");
    assert_eq!(view.free(None, u64::MAX), 100 * MIB);
    let open = ledger.open_device(&DeviceTerms { uuid: [8; 16], ..terms(None) }).unwrap();
    let view = ledger.view(open).unwrap();
    assert_eq!((view.cap, view.total(), view.free(None, 0)), (None, 1024 * MIB, 1024 * MIB));
    let _ = reserve(&ledger, open, 2048 * MIB).unwrap();
    assert_eq!(ledger.view(open).unwrap().free(None, 0), 0);
}

#[test]
fn facts_are_charged_even_above_the_cap_and_spilled_bytes_are_not() {
    let ledger = Ledger::private().unwrap();
    let device = ledger.open_device(&terms(Some(100 * MIB))).unwrap();
    ledger.charge(device, Category::Context, 300 * MIB);
    assert_eq!(used(&ledger, device), 300 * MIB);
    assert_eq!(reserve(&ledger, device, 1), Err(Refusal::Full { free: 0 }));
    ledger.release(device, Category::Context, 250 * MIB);
    ledger.charge(device, Category::Spilled, 500 * MIB);
    let view = ledger.view(device).unwrap();
    assert_eq!((view.used, view.own.by_category[7]), (50 * MIB, 500 * MIB));
    assert_eq!(ledger.release(device, Category::Spilled, 500 * MIB), 500 * MIB);
    assert_eq!(used(&ledger, device), 50 * MIB);
}

#[test]
fn members_of_a_group_share_one_cap_and_the_smallest_holds() {
    let dir = Dir::new("share");
    let first = Ledger::join_group(&dir.place(), "team").unwrap();
    let device = first.open_device(&terms(Some(8 * MIB))).unwrap();
    let second = Ledger::join_group(&dir.place(), "team").unwrap();
    let same = second.open_device(&terms(Some(6 * MIB))).unwrap();
    let third = Ledger::join_group(&dir.place(), "team").unwrap();
    third.open_device(&terms(None)).unwrap();
    assert_eq!(first.view(device).unwrap().cap, Some(6 * MIB));
    first.commit(reserve(&first, device, 4 * MIB).unwrap().reservation);
    assert_eq!(reserve(&second, same, 3 * MIB), Err(Refusal::Full { free: 2 * MIB }));
    second.commit(reserve(&second, same, 2 * MIB).unwrap().reservation);
    assert_eq!(reserve(&third, device, 1), Err(Refusal::Full { free: 0 }));
    second.leave();
    let grant = reserve(&third, device, 4 * MIB).expect("its share is free and its smaller cap is gone");
    assert_eq!(used(&first, device), 8 * MIB);
    third.roll_back(grant.reservation);
    first.leave();
    third.leave();
    // Nobody is left: an old cap must not outlive its group.
    let anew = Ledger::join_group(&dir.place(), "team").unwrap();
    let device = anew.open_device(&terms(Some(64 * MIB))).unwrap();
    assert_eq!(anew.view(device).unwrap().cap, Some(64 * MIB));
}

#[test]
fn a_live_cap_is_raised_and_lowered_from_outside() {
    let dir = Dir::new("order");
    let ledger = Ledger::for_process(&dir.place()).unwrap();
    let device = ledger.open_device(&terms(Some(8 * MIB))).unwrap();
    ledger.commit(reserve(&ledger, device, 8 * MIB).unwrap().reservation);
    assert_eq!(ledger.news(device), None);
    let visit = control::find(&dir.place(), &Target::Process(std::process::id())).unwrap();
    assert_eq!(visit.order_cap([7; 16], Amount::Bytes(10 * MIB)), Some(10 * MIB));
    assert!(ledger.news(device).unwrap().cap_changed);
    ledger.commit(reserve(&ledger, device, 2 * MIB).unwrap().reservation);
    assert_eq!(visit.order_cap([7; 16], Amount::Bytes(4 * MIB)), Some(4 * MIB));
    let news = ledger.news(device).unwrap();
    assert!(news.trim_wanted);
    assert_eq!((news.over, news.cap), (6 * MIB, Some(4 * MIB)));
    assert!(reserve(&ledger, device, 512).is_err(), "held until the use is below");
    ledger.release(device, Category::Pool, 7 * MIB);
    assert!(reserve(&ledger, device, MIB).is_ok());
    assert_eq!(visit.order_cap([9; 16], Amount::Bytes(MIB)), None, "no such device");
    assert_eq!(visit.order_cap([7; 16], Amount::Bytes(0)), None, "no cap");
    let state = &visit.devices()[0];
    assert_eq!((state.cap, state.ordered, state.holdings.len()), (Some(4 * MIB), true, 1));
    ledger.leave();
    assert!(control::find(&dir.place(), &Target::Process(std::process::id())).is_err());
    assert_eq!(std::fs::read_dir(&dir.0).unwrap().count(), 0, "no file is left");
}

#[test]
fn an_order_to_a_group_holds_for_newcomers_until_the_group_is_empty() {
    let dir = Dir::new("orders");
    let first = Ledger::join_group(&dir.place(), "g").unwrap();
    first.open_device(&terms(Some(8 * MIB))).unwrap();
    let visit = control::find(&dir.place(), &Target::Group("g".into())).unwrap();
    assert_eq!(visit.order_cap([7; 16], Amount::Share(500_000)), Some(512 * MIB));
    let second = Ledger::join_group(&dir.place(), "g").unwrap();
    let device = second.open_device(&terms(Some(2 * MIB))).unwrap();
    assert_eq!(second.view(device).unwrap().cap, Some(512 * MIB));
    first.leave();
    assert_eq!(second.view(device).unwrap().cap, Some(512 * MIB));
    second.leave();
    let third = Ledger::join_group(&dir.place(), "g").unwrap();
    let device = third.open_device(&terms(Some(2 * MIB))).unwrap();
    assert_eq!(third.view(device).unwrap().cap, Some(2 * MIB));
    assert!(control::find(&dir.place(), &Target::Group("other".into())).is_err());
}

/// This thread, for [`sleeps`].
fn thread() -> i32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::gettid() }
}

/// Waits until a thread that is about to wait sleeps: what is ready to run, on however busy a machine, does not.
fn sleeps(thread: i32) {
    let (begin, stat) = (Instant::now(), format!("/proc/self/task/{thread}/stat"));
    let mut seen = 0;
    while seen < 10 {
        seen = if std::fs::read_to_string(&stat).unwrap().contains(") S ") { seen + 1 } else { 0 };
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not wait");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn one_who_waits_is_woken_when_memory_comes_free() {
    let dir = Dir::new("wait");
    let holder = Ledger::join_group(&dir.place(), "g").unwrap();
    let device = holder.open_device(&terms(Some(8 * MIB))).unwrap();
    holder.commit(reserve(&holder, device, 8 * MIB).unwrap().reservation);
    let waiter = Ledger::join_group(&dir.place(), "g").unwrap();
    waiter.open_device(&terms(None)).unwrap();
    let wait =
        |patience| waiter.reserve_waiting(device, 4 * MIB, Category::Pool, Urgency::Normal, patience, &mut || false);
    assert_eq!(wait(Duration::from_millis(60)), Err(Refusal::TimedOut { free: 0 }));
    let me = thread();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sleeps(me);
            holder.release(device, Category::Pool, 5 * MIB);
        });
        let patience = Duration::from_secs(120);
        let grant = wait(patience).unwrap();
        assert!(!grant.waited.is_zero() && grant.waited < patience, "{:?}", grant.waited);
        waiter.roll_back(grant.reservation);
    });
}

#[test]
fn those_who_wait_are_granted_in_order() {
    let dir = Dir::new("order-of-waiting");
    let holder = Ledger::join_group(&dir.place(), "g").unwrap();
    let device = holder.open_device(&terms(Some(8 * MIB))).unwrap();
    holder.commit(reserve(&holder, device, 8 * MIB).unwrap().reservation);
    let granted = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for n in 0..5_u64 {
            let waiter = Ledger::join_group(&dir.place(), "g").unwrap();
            waiter.open_device(&terms(None)).unwrap();
            let granted = &granted;
            let (sender, receiver) = std::sync::mpsc::channel();
            scope.spawn(move || {
                sender.send(thread()).unwrap();
                // The first wants most: the smaller ones behind it would fit earlier. No two fit together, so that each
                // can be granted only after the one before it gave back.
                let bytes = (8 - n.min(3)) * MIB;
                let grant = waiter
                    .reserve_waiting(
                        device,
                        bytes,
                        Category::Pool,
                        Urgency::Normal,
                        Duration::from_secs(120),
                        &mut || false,
                    )
                    .unwrap();
                granted.lock().unwrap().push(n);
                waiter.roll_back(grant.reservation);
            });
            sleeps(receiver.recv().unwrap());
        }
        for _ in 0..8 {
            holder.release(device, Category::Pool, MIB);
            std::thread::sleep(Duration::from_millis(30));
        }
    });
    assert_eq!(*granted.lock().unwrap(), [0, 1, 2, 3, 4]);
}

#[test]
fn threads_of_one_process_are_granted_in_order_too() {
    let ledger = Ledger::private().unwrap();
    let device = ledger.open_device(&terms(Some(4 * MIB))).unwrap();
    ledger.commit(reserve(&ledger, device, 4 * MIB).unwrap().reservation);
    let granted = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for n in 0..4_u64 {
            let (ledger, granted) = (&ledger, &granted);
            let (sender, receiver) = std::sync::mpsc::channel();
            scope.spawn(move || {
                sender.send(thread()).unwrap();
                let grant = ledger
                    .reserve_waiting(
                        device,
                        4 * MIB,
                        Category::Pool,
                        Urgency::Normal,
                        Duration::from_secs(120),
                        &mut || false,
                    )
                    .unwrap();
                granted.lock().unwrap().push(n);
                ledger.roll_back(grant.reservation);
            });
            sleeps(receiver.recv().unwrap());
        }
        ledger.release(device, Category::Pool, 4 * MIB);
    });
    assert_eq!(*granted.lock().unwrap(), [0, 1, 2, 3]);
    assert_eq!(used(&ledger, device), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Reserve(u64, bool),
    Commit(usize),
    GiveBack(usize),
    Release(u8, u64),
    Charge(u8, u64),
    Order(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![0..5000_u64, 0..6 * MIB, Just(u64::MAX), Just(1 << 60)];
    prop_oneof![
        4 => (bytes.clone(), any::<bool>()).prop_map(|(b, t)| Step::Reserve(b, t)),
        2 => any::<usize>().prop_map(Step::Commit),
        2 => any::<usize>().prop_map(Step::GiveBack),
        2 => (0..8_u8, bytes).prop_map(|(c, b)| Step::Release(c, b)),
        1 => (0..8_u8, prop_oneof![0..3 * MIB, Just(u64::MAX)]).prop_map(|(c, b)| Step::Charge(c, b)),
        1 => (1..16 * MIB).prop_map(Step::Order),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    /// Whatever is done in whatever order: the parts add up to what is charged, and nothing is admitted over the cap.
    #[test]
    fn the_parts_always_add_up(steps in proptest::collection::vec(step(), 1..120)) {
        let dir = Dir::new("parts");
        let ledger = Ledger::for_process(&dir.place()).unwrap();
        let terms = DeviceTerms { set_aside: None, ..terms(Some(8 * MIB)) };
        let device = ledger.open_device(&terms).unwrap();
        let visit = control::find(&dir.place(), &Target::Process(std::process::id())).unwrap();
        let mut open = Vec::new();
        for step in steps {
            let before = ledger.view(device).unwrap();
            match step {
                Step::Reserve(bytes, tiny) => {
                    let urgency = if tiny { Urgency::Tiny } else { Urgency::Normal };
                    if let Ok(grant) = ledger.reserve(device, bytes, Category::Array, urgency) {
                        prop_assert!(grant.reservation.bytes() >= bytes && grant.reservation.bytes() - bytes < 512);
                        let now = ledger.view(device).unwrap();
                        prop_assert!(now.used <= now.cap.unwrap() || now.used == before.used, "admitted over the cap");
                        open.push(grant.reservation);
                    }
                }
                Step::Commit(n) if !open.is_empty() => ledger.commit(open.swap_remove(n % open.len())),
                Step::GiveBack(n) if !open.is_empty() => ledger.roll_back(open.swap_remove(n % open.len())),
                Step::Commit(_) | Step::GiveBack(_) => {}
                Step::Release(c, bytes) => { ledger.release(device, Category::ALL[c as usize], bytes); }
                Step::Charge(c, bytes) => { ledger.charge(device, Category::ALL[c as usize], bytes); }
                Step::Order(cap) => { visit.order_cap([7; 16], Amount::Bytes(cap)); }
            }
            let view = ledger.view(device).unwrap();
            let parts: u64 = view.own.by_category[..7].iter().sum();
            prop_assert_eq!(parts + view.own.pending + view.own.set_aside, view.own.charged);
            prop_assert_eq!(view.own.charged, view.used, "the only member");
            prop_assert_eq!(view.own.pending, open.iter().map(weir_ledger::Reservation::bytes).sum::<u64>());
            prop_assert!(view.peak >= view.used);
            prop_assert!(view.free(None, 0) <= view.total());
        }
        ledger.leave();
    }
}

/// Those who wait while nobody frees anything wait less and less; what comes free while somebody waits gives the next ones
/// the whole time again.
#[test]
fn waits_that_see_nothing_come_free_become_short() {
    let ledger = Ledger::private().unwrap();
    let device = ledger.open_device(&terms(Some(8 * MIB))).unwrap();
    let held = reserve(&ledger, device, 8 * MIB).unwrap().reservation;
    ledger.commit(held);
    let patience = Duration::from_millis(400);
    let wait = || {
        let begin = std::time::Instant::now();
        let answer = ledger.reserve_waiting(device, 4 * MIB, Category::Pool, Urgency::Normal, patience, &mut || false);
        assert!(matches!(answer, Err(Refusal::TimedOut { .. })), "{answer:?}");
        begin.elapsed()
    };
    // Each would take its whole patience: more than a minute together.
    let all: Duration = (0..160).map(|_| wait()).sum();
    assert!(all >= patience * 2 && all < patience * 80, "{all:?}");
    let mut freed = || {
        ledger.freed(device);
        true
    };
    // So long that it is not over at once even when it is cut short.
    let long = Duration::from_secs(1 << 36);
    let answer = ledger.reserve_waiting(device, 4 * MIB, Category::Pool, Urgency::Normal, long, &mut freed);
    assert_eq!(answer, Err(Refusal::Withdrawn));
    assert!(wait() >= patience, "something came free meanwhile");
}

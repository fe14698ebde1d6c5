//! An address goes from one thread to the next while the first has not finished to write its free down: at no moment is
//! it live twice, and the order of events is that of what happened.

use std::sync::Mutex;

use weir_journal::reader::{Reader, Slot};
use weir_journal::{Attribution, Class, Geometry, Granted, Intent, Journal, Kind, Options, STREAM_UNKNOWN};

const THREADS: u64 = 12;
const ROUNDS: u64 = 20_000;

#[test]
fn an_address_that_is_handed_on_is_never_live_twice() {
    let dir = std::env::temp_dir().join(format!("weir-handover-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let geometry = Geometry { events: 1 << 20, ..Geometry::tiny() };
    let journal = Journal::create(&Options::in_dir(&dir).sized(geometry)).unwrap();
    // As the driver's: what was freed last is handed out first.
    let free = Mutex::new(vec![0x1000_u64, 0x2000, 0x3000]);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (journal, free) = (&journal, &free);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let intent = Intent {
                        kind: Kind::Alloc,
                        class: Class::Device,
                        device: 0,
                        stream: STREAM_UNKNOWN,
                        requested: 64,
                        address: 0,
                        by: Attribution::default(),
                    };
                    let ticket = journal.begin(intent);
                    let Some(address) = free.lock().unwrap().pop() else {
                        ticket.ended(Kind::Failed, 0, 2);
                        continue;
                    };
                    ticket.granted(Granted { address, allocated: 64 });
                    let mut found = 0;
                    journal.for_each_live(|entry| found += u32::from(entry.address == address));
                    assert_eq!(found, 1, "thread {thread}, round {round}: {address:#x} is live so often");
                    let ticket = journal.begin_free(address, Class::Device);
                    free.lock().unwrap().push(address);
                    if round % 3 == 0 {
                        std::thread::yield_now();
                    }
                    ticket.freed(STREAM_UNKNOWN);
                }
            });
        }
    });
    assert_eq!(journal.live_bytes(0, Class::Device), 0);
    let reader = Reader::open(&journal.path().unwrap()).unwrap();
    let mut live = std::collections::HashSet::new();
    for slot in reader.events() {
        let Slot::Event(event) = slot.unwrap() else { panic!("an event is missing") };
        match event.kind {
            Kind::Alloc => assert!(live.insert(event.address), "{event:?} comes before the free"),
            Kind::Free => assert!(live.remove(&event.address), "{event:?} comes before its allocation"),
            _ => {}
        }
    }
    assert!(live.is_empty());
    std::fs::remove_dir_all(&dir).unwrap();
}

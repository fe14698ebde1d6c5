//! Memory of graphs: what the driver keeps for the allocation nodes of all graphs of a device, as one piece of memory whose
//! size changes. Read after each call that may change it; a graph that allocates nothing costs one look.

use super::{Recorder, device, open};
use crate::driver::graph_memory;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::HashMap;
use weir_journal::{Class, Granted, Kind, STREAM_UNKNOWN};
use weir_pool::ranks::Locked;

/// Whether any graph that allocates was ever seen.
static ANY: AtomicBool = AtomicBool::new(false);

/// Graphs that allocate, and what is written down.
#[derive(Default)]
pub(crate) struct Graphs {
    /// Instantiated graphs to the devices on which they allocate.
    execs: HashMap<u64, Vec<i32>>,
    /// Bytes kept on each device.
    kept: HashMap<i32, u64>,
    /// How often a figure was recorded.
    figures: u64,
}

/// How often a figure is read again because another thread has recorded one meanwhile.
const RETRIES: u32 = 16;

impl Recorder {
    fn graphs(&self) -> Locked<'_, Graphs> {
        self.graphs.lock()
    }
}

/// A graph was instantiated that takes so much on each device.
pub(crate) fn instantiated(exec: u64, needs: &[(i32, u64)]) {
    if let Some(recorder) = open().filter(|_| !needs.is_empty()) {
        ANY.store(true, Ordering::Release);
        recorder.graphs().execs.insert(exec, needs.iter().map(|(ordinal, _)| *ordinal).collect());
    }
}

/// An instantiated graph is about to go; what was kept for it stays until a trim. The devices on which it allocates.
pub(crate) fn exec_leaves(exec: u64) -> Option<Vec<i32>> {
    open().filter(|_| ANY.load(Ordering::Acquire))?.graphs().execs.remove(&exec)
}

/// It stays after all.
pub(crate) fn stays(exec: u64, devices: Option<Vec<i32>>) {
    if let Some((recorder, devices)) = open().zip(devices) {
        recorder.graphs().execs.insert(exec, devices);
    }
}

/// A graph was launched or uploaded.
pub(crate) fn launched(exec: u64) {
    if let Some(recorder) = open().filter(|_| ANY.load(Ordering::Acquire)) {
        let devices = recorder.graphs().execs.get(&exec).cloned();
        devices.into_iter().flatten().for_each(changed);
    }
}

/// What is kept for graphs on a device may be another amount than before.
pub(crate) fn changed(ordinal: i32) {
    let Some(recorder) = open().filter(|_| ANY.load(Ordering::Acquire)) else { return };
    // No lock at a driver call: a figure is recorded only if nobody has recorded one since before it was read. So the order
    // of events is that of the figures.
    let mut tries = 0;
    let (mut graphs, now) = loop {
        let figures = recorder.graphs().figures;
        let now = graph_memory::reserved(ordinal);
        let graphs = recorder.graphs();
        if graphs.figures == figures || tries == RETRIES {
            break (graphs, now);
        }
        tries += 1;
    };
    graphs.figures += 1;
    let before = graphs.kept.insert(ordinal, now).unwrap_or(0);
    if now == before {
        return;
    }
    // There is no address; one that no memory has stands for it.
    let address = 1 + u64::from(device(ordinal));
    if before > 0 {
        recorder.journal.free(address, Class::Other, STREAM_UNKNOWN);
    }
    if now > 0 {
        let ticket = recorder.begin(Kind::Alloc, Class::Other, device(ordinal), STREAM_UNKNOWN, now, address);
        ticket.granted(Granted { address, allocated: now });
    }
}

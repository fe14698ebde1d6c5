//! Waiting for room under the cap: in turn within the process, and in line among the processes of the group.

use std::time::{Duration, Instant};

use super::{Category, DeviceId, Ledger, Refusal, Reserved, Urgency};
use crate::map;
use crate::queue;
use crate::table::Table;
use crate::word::{SharedWord, Word, units_up};

/// How often one who waits looks whether somebody died; a death wakes nobody.
const LOOK: Duration = Duration::from_millis(20);
/// After so many waits in a row during which nothing came free the next ones are shorter.
const VAIN_WAITS: u32 = 2;
/// But no shorter than this, so that it is seen when something comes free again.
const SHORTEST: Duration = Duration::from_millis(1);
impl Ledger {
    /// Reserves memory; waits for its turn if it does not fit, at most so long. `granted` is called again and again
    /// meanwhile, and ends the waiting by returning that the need was met otherwise. It must not wait itself.
    ///
    /// Once several requests in a row have waited in vain and seen nothing come free all the time, each waits half as
    /// long as the one before: those who could free something wait themselves, or nobody will. What comes free while
    /// somebody waits ends that.
    pub fn reserve_waiting(
        &self,
        device: DeviceId,
        bytes: u64,
        category: Category,
        urgency: Urgency,
        patience: Duration,
        granted: &mut dyn FnMut() -> bool,
    ) -> Result<Reserved, Refusal> {
        let table = self.table_of(device)?;
        let begin = Instant::now();
        if self.local(device).turns.is_empty() && queue::is_empty(table, self.slot, device.0, map::now_ms()) {
            match self.reserve(device, bytes, category, urgency) {
                Err(Refusal::Full { .. }) => {}
                answer => return answer,
            }
        }
        let sum = || table.device(device.0).sum.load();
        let sum_before = sum();
        let (turn, freed, vain) = {
            let mut local = self.local(device);
            let turn = local.next_turn;
            local.next_turn += 1;
            local.turns.push_back(turn);
            (turn, local.freed, local.vain)
        };
        let deadline = begin + patience_after(patience, vain);
        let answer = self.wait(table, device, bytes, category, urgency, turn, deadline, granted);
        {
            let mut local = self.local(device);
            local.turns.retain(|t| *t != turn);
            let in_vain =
                matches!(answer, Err(Refusal::TimedOut { .. })) && local.freed == freed && sum() == sum_before;
            local.vain = if in_vain { local.vain.saturating_add(1) } else { 0 };
        }
        self.wake_waiters(device); // whoever is next
        answer.map(|grant| Reserved { waited: begin.elapsed(), ..grant })
    }

    #[expect(clippy::too_many_arguments, reason = "the request's own terms, its turn, its deadline and its way out")]
    fn wait(
        &self,
        table: Table<'_, SharedWord>,
        device: DeviceId,
        bytes: u64,
        category: Category,
        urgency: Urgency,
        turn: u64,
        deadline: Instant,
        granted: &mut dyn FnMut() -> bool,
    ) -> Result<Reserved, Refusal> {
        let shared = table.device(device.0);
        let cell = table.cell(self.slot, device.0);
        let mut ticket = None;
        let answer = loop {
            let seen = shared.wake.load();
            shared.hint.store(1);
            let now = map::now_ms();
            let mut free = 0;
            if self.local(device).turns.front() == Some(&turn) {
                let ticket =
                    *ticket.get_or_insert_with(|| queue::enqueue(table, self.slot, device.0, units_up(bytes), now));
                cell.beat.store(now);
                if queue::is_first(table, self.slot, device.0, ticket, now) {
                    match self.reserve(device, bytes, category, urgency) {
                        Err(Refusal::Full { free: left }) => free = left,
                        answer => break answer,
                    }
                } else {
                    self.refresh(table, device);
                }
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) else {
                break Err(Refusal::TimedOut { free });
            };
            if granted() {
                break Err(Refusal::Withdrawn);
            }
            map::sleep_on(shared.wake, seen, left.min(LOOK));
        };
        if ticket.is_some() {
            queue::dequeue(table, self.slot, device.0);
        }
        answer
    }

    /// Whether somebody waits for memory of a device, here or in another process of the group. One load.
    #[inline]
    pub fn somebody_waits(&self, device: DeviceId) -> bool {
        self.file.table().is_some_and(|table| table.device(device.0).hint.load() != 0)
    }

    /// Memory came free that this process keeps: those who wait look again now.
    pub fn freed(&self, device: DeviceId) {
        {
            let mut local = self.local(device);
            local.freed = local.freed.wrapping_add(1);
        }
        self.wake_waiters(device);
    }

    /// Wakes those who wait, if there are any.
    pub(super) fn wake_waiters(&self, device: DeviceId) {
        let Some(table) = self.file.table() else {
            return;
        };
        let shared = table.device(device.0);
        if shared.hint.load() != 0 {
            shared.hint.store(0);
            shared.wake.add(1);
            map::wake_all(shared.wake);
        }
    }
}

/// How long a request waits after `vain` others in a row saw nothing come free.
fn patience_after(patience: Duration, vain: u32) -> Duration {
    let shorter = patience / 1_u32.checked_shl(vain.saturating_sub(VAIN_WAITS - 1)).unwrap_or(u32::MAX);
    shorter.max(SHORTEST).min(patience)
}

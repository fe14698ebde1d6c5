//! What is live at the end, each byte once: where TensorFlow's own allocator cuts up a region, the tensors stand for
//! their part of it and the region for the rest. Reads a timeline.

use std::collections::{BTreeMap, HashSet};

use weir_journal::reader::{Error, Slot};
use weir_journal::{Class, Kind, LiveEntry};

use super::timeline::Timeline;
use crate::is_held;

/// A live allocation and the bytes that it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The allocation.
    pub entry: LiveEntry,
    /// Its bytes, without those that other holdings stand for.
    pub bytes: u64,
}

/// The holdings among live allocations. Their bytes add up to those of all entries whose class [`is_held`].
pub fn holdings(live: &[LiveEntry]) -> Vec<Holding> {
    let mut holdings: Vec<Holding> = live
        .iter()
        .filter(|entry| is_held(entry.class))
        .map(|entry| Holding { entry: *entry, bytes: entry.allocated })
        .collect();
    let regions: BTreeMap<(u8, u64), usize> = holdings
        .iter()
        .enumerate()
        .filter(|(_, holding)| matches!(holding.entry.class, Class::Block | Class::Device))
        .map(|(place, holding)| ((holding.entry.device, holding.entry.address), place))
        .collect();
    for tensor in live.iter().filter(|entry| entry.class == Class::Tensor) {
        let around = regions.range(..=(tensor.device, tensor.address)).next_back();
        let Some((&(device, start), &place)) = around else { continue };
        let region = &mut holdings[place];
        let inside = device == tensor.device && tensor.address - start < region.entry.allocated;
        if inside && region.bytes >= tensor.allocated {
            region.bytes -= tensor.allocated;
            holdings.push(Holding { entry: *tensor, bytes: tensor.allocated });
        }
    }
    holdings
}

/// Addresses of allocations that TensorFlow's own allocator cuts up: what lies inside is listed instead.
/// `opening` is what was live before event `first`, from which on events are read.
pub(crate) fn regions(
    timeline: &Timeline<'_>,
    mut opening: Vec<LiveEntry>,
    first: u64,
    device: u8,
) -> Result<HashSet<u64>, Error> {
    let (mut wholes, mut found) = (BTreeMap::new(), HashSet::new());
    let mut note = |class, address: u64, allocated: u64| match class {
        Class::Device | Class::Block => drop(wholes.insert(address, allocated)),
        Class::Tensor => {
            let whole = wholes.range(..=address).next_back();
            found.extend(whole.filter(|(start, allocated)| address - *start < **allocated).map(|(start, _)| *start));
        }
        _ => {}
    };
    opening.sort_by_key(|entry| entry.class);
    opening.iter().filter(|entry| entry.device == device).for_each(|e| note(e.class, e.address, e.allocated));
    for slot in timeline.events_from(first) {
        if let Slot::Event(event) = slot?
            && (event.kind, event.device) == (Kind::Alloc, device)
        {
            note(event.class, event.address, event.allocated);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_journal::Attribution;

    fn entry(class: Class, address: u64, allocated: u64) -> LiveEntry {
        let by = Attribution::default();
        LiveEntry {
            address,
            allocated,
            requested: allocated,
            class,
            device: 0,
            stream: 0,
            birth: 0,
            time: 0,
            thread: 0,
            by,
        }
    }

    #[test]
    fn tensors_take_their_part_of_the_region() {
        let live = [
            entry(Class::Device, 1000, 100),
            entry(Class::Tensor, 1010, 30),
            entry(Class::Tensor, 1050, 20),
            entry(Class::Tensor, 5000, 7),
            entry(Class::Handle, 9, 2000),
            entry(Class::Managed, 8000, 5),
        ];
        let found = holdings(&live);
        let bytes: Vec<(Class, u64)> = found.iter().map(|holding| (holding.entry.class, holding.bytes)).collect();
        assert_eq!(bytes, [(Class::Device, 50), (Class::Managed, 5), (Class::Tensor, 30), (Class::Tensor, 20)]);
        let all: u64 = live.iter().filter(|entry| is_held(entry.class)).map(|entry| entry.allocated).sum();
        assert_eq!(found.iter().map(|holding| holding.bytes).sum::<u64>(), all);
    }
}

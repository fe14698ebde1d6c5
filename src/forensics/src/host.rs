//! Host memory: how much, and who brought it there. TensorFlow's own tensors in host memory and what was page-locked are
//! known one by one; what other code keeps (arrays of numpy, say) only as a part of the resident memory.

use weir_journal::Class;
use weir_journal::layout::HOST_DEVICE;

use crate::names::base_name;
use crate::survey::{Owner, Survey};
use crate::words::{count, size};

/// Host memory at the moment.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Host {
    /// Resident.
    pub resident: u64,
    /// Pinned.
    pub pinned: u64,
    /// Bytes a step, or a second, if it grows.
    pub slope: Option<f64>,
    /// Who holds it or brought it there, the most live bytes first. Tensors in page-locked memory lie inside regions that
    /// are listed too: the bytes do not add up.
    pub holders: Vec<HostHolder>,
}

/// Memory of one class on the host that one operation on one line requested.
#[derive(Clone, Debug, serde::Serialize)]
pub struct HostHolder {
    /// Operation; empty is unknown.
    pub op: String,
    /// `file:line` of the user, with the whole path; empty is unknown.
    pub python: String,
    /// What sort of memory.
    pub class: Class,
    /// Bytes live.
    pub bytes: u64,
    /// Allocations live.
    pub blocks: u64,
    /// Bytes of all allocations that the events record, live or not.
    pub brought: u64,
    /// Those allocations.
    pub allocations: u64,
}

impl HostHolder {
    fn of(owner: &Owner) -> Self {
        Self {
            op: owner.who.op_name().to_owned(),
            python: owner.who.line().map(|line| format!("{}:{}", line.file, line.line)).unwrap_or_default(),
            class: owner.class,
            bytes: owner.bytes,
            blocks: owner.blocks,
            brought: owner.churned.max(owner.bytes),
            allocations: owner.allocs.max(owner.blocks),
        }
    }

    /// `train.py:118`, else the operation, else nothing.
    pub fn place(&self) -> &str {
        if self.python.is_empty() { &self.op } else { base_name(&self.python) }
    }

    /// In words.
    pub fn sentence(&self) -> String {
        let place = if self.place().is_empty() { "nobody known" } else { self.place() };
        let class = match self.class {
            Class::HostTensor => "tensors",
            Class::Pinned => "page-locked regions",
            _ => "registered ranges",
        };
        let (blocks, allocations) = (count(self.blocks), count(self.allocations));
        format!(
            "{place}: {} live in {blocks} {class}, {} in {allocations} so far",
            size(self.bytes),
            size(self.brought)
        )
    }
}

/// Who holds host memory, or brought it there; the most live bytes first, then the most bytes ever.
pub fn holders(survey: &Survey) -> Vec<HostHolder> {
    let on_host = |owner: &&Owner| {
        owner.device == HOST_DEVICE && matches!(owner.class, Class::HostTensor | Class::Pinned | Class::Registered)
    };
    let mut found: Vec<HostHolder> = Vec::new();
    for owner in survey.owners.iter().filter(on_host).map(HostHolder::of) {
        // On a line the bytes count, whichever of its operations requested them.
        let same = |other: &&mut HostHolder| {
            other.class == owner.class && !owner.python.is_empty() && other.python == owner.python
        };
        match found.iter_mut().find(same) {
            Some(known) => {
                known.bytes += owner.bytes;
                known.blocks += owner.blocks;
                known.brought += owner.brought;
                known.allocations += owner.allocations;
            }
            None => found.push(owner),
        }
    }
    found.sort_by_key(|holder| std::cmp::Reverse((holder.bytes, holder.brought)));
    found
}

/// Who accounts for what came to the host: by what it holds, at least half of it; else by what it brought, of which other
/// code may have kept a copy. Much more than what is there now says nothing: most of it has gone again.
pub fn blame(holders: &[HostHolder], grown: u64) -> Option<(String, String)> {
    let named = || holders.iter().filter(|holder| !holder.place().is_empty());
    let cause = |holder: &HostHolder, does: String| (holder.place().to_owned(), format!("{} {does}", holder.place()));
    let enough = |bytes: u64| grown > 0 && bytes >= grown / 2;
    if let Some(holder) = named().max_by_key(|holder| holder.bytes).filter(|holder| enough(holder.bytes)) {
        return Some(cause(holder, format!("holds {} on the host", size(holder.bytes))));
    }
    let plausible = |holder: &&HostHolder| enough(holder.brought) && holder.brought <= grown.saturating_mul(4);
    let holder = named().filter(plausible).max_by_key(|holder| holder.brought)?;
    Some(cause(
        holder,
        format!("brought {} to the host, in {} pieces", size(holder.brought), count(holder.allocations)),
    ))
}

//! What a call of the job's will prove to the pools, noted before it is made.
//!
//! Jobs poll events all the time, and most have one device: the first proof is kept in place, without an allocation.

use super::DevicePool;
use weir_pool::Proof;

type One = (&'static DevicePool, Proof);

/// One proof for each pool.
#[derive(Default)]
pub(crate) struct Proofs {
    first: Option<One>,
    more: Vec<One>,
}

impl FromIterator<One> for Proofs {
    #[inline]
    fn from_iter<I: IntoIterator<Item = One>>(all: I) -> Self {
        let mut all = all.into_iter();
        Self { first: all.next(), more: all.collect() }
    }
}

impl IntoIterator for Proofs {
    type Item = One;
    type IntoIter = core::iter::Chain<core::option::IntoIter<One>, std::vec::IntoIter<One>>;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.more)
    }
}

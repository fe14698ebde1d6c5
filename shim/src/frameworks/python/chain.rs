//! A chain of frames: collected, distinguished by a hash, and cut to what the journal keeps.

use super::Frame;
use crate::frameworks::cache::mix;
use core::mem::MaybeUninit;
use weir_journal::PYTHON_DEPTH;

/// Most frames looked at. Keras goes 60 to 100 deep while it builds a graph.
pub(crate) const DEPTH: usize = 128;

/// Frames, innermost first.
pub(crate) struct Frames {
    list: [MaybeUninit<Frame>; DEPTH],
    count: usize,
}

impl Frames {
    /// None yet. Costs nothing: the places are written before they are read.
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self { list: [const { MaybeUninit::uninit() }; DEPTH], count: 0 }
    }

    /// Adds a frame; false when there is no room.
    #[inline(always)]
    pub(crate) fn add(&mut self, frame: Frame) -> bool {
        let Some(place) = self.list.get_mut(self.count) else {
            return false;
        };
        place.write(frame);
        self.count += 1;
        true
    }

    /// The frames collected.
    #[inline(always)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Frame> {
        // SAFETY: `add` has written the first `count` places.
        self.list.iter().take(self.count).map(|frame| unsafe { frame.assume_init_ref() })
    }

    /// What distinguishes this chain from others; `None` without a frame.
    #[inline(always)]
    pub(crate) fn hash(&self) -> Option<u64> {
        let add =
            |hash, frame: &Frame| mix(hash, frame.at as u64 ^ frame.stamp.rotate_left(17) ^ (frame.code as u64) << 7);
        (self.count > 0).then(|| self.iter().fold(self.count as u64, add))
    }
}

/// What sort of file a line is in: how useful it is to the reader.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub(crate) enum Sort {
    /// The user's own.
    Own,
    /// A library that the user called.
    Library,
    /// Machinery between the two.
    Machinery,
}

/// Folders whose files say nothing about the model: wrappers, dispatch, tracing.
const MACHINERY: [&str; 7] = [
    "/tensorflow/python/",
    "/keras/src/utils/",
    "/keras/src/backend/",
    "/keras/src/ops/",
    "/keras/src/engine/base_layer",
    "/keras/utils/",
    "/importlib/",
];

const LIBRARIES: [&str; 4] = ["/site-packages/", "/dist-packages/", "/lib/python3", "<frozen "];

/// The sort of a file, by its name.
pub(crate) fn sort_of(file: &str) -> Sort {
    if file.contains(super::origin::GENERATED) {
        // Where it comes from is not known, and the file will be gone.
        Sort::Machinery
    } else if !LIBRARIES.iter().any(|folder| file.contains(folder)) {
        Sort::Own
    } else if MACHINERY.iter().any(|folder| file.contains(folder)) {
        Sort::Machinery
    } else {
        Sort::Library
    }
}

const SORT_SHIFT: u32 = 20;

/// A line's id together with the sort of its file, in 22 bits.
pub(crate) fn tagged(line: u32, file: &str) -> u32 {
    line & ((1 << SORT_SHIFT) - 1) | (sort_of(file) as u32) << SORT_SHIFT
}

/// The innermost line always stays: it says which call of the library it was.
const INNERMOST: usize = 1;

/// The lines of a chain that the journal keeps, innermost first.
#[derive(Clone, Copy)]
pub(crate) struct Chosen {
    pub(crate) lines: [u32; PYTHON_DEPTH],
    pub(crate) count: usize,
    /// Whether one of them is in a file of the user's own.
    pub(crate) own: bool,
}

impl Chosen {
    /// The lines.
    pub(crate) fn list(&self) -> &[u32] {
        self.lines.get(..self.count).unwrap_or_default()
    }

    /// Adds the lines of another chain around these; each loses its outer ones where both have no room.
    pub(crate) fn add_outside(&mut self, other: &Self) {
        self.count = self.count.min(PYTHON_DEPTH - other.count.min(PYTHON_DEPTH / 2));
        for (place, line) in self.lines.iter_mut().skip(self.count).zip(other.list()) {
            *place = *line;
            self.count += 1;
        }
        self.own |= other.own;
    }
}

/// Chooses at most sixteen of the tagged lines, in order, and takes the tags off. Machinery goes first, then libraries
/// from the outside in; of the user's own lines the middle goes last.
pub(crate) fn choose(lines: &[u32]) -> Chosen {
    let sort = |line: u32| line >> SORT_SHIFT;
    let mut worst = Sort::Machinery as u32 + 1;
    let kept = |worst: u32| {
        let keep = move |(place, line): &(usize, &u32)| **line != 0 && (*place < INNERMOST || sort(**line) < worst);
        lines.iter().enumerate().filter(keep).map(|(_, line)| line & ((1 << SORT_SHIFT) - 1))
    };
    while kept(worst).count() > PYTHON_DEPTH && worst > Sort::Library as u32 {
        worst -= 1;
    }
    let count = kept(worst).count();
    let half = PYTHON_DEPTH / 2;
    let ends =
        kept(worst).enumerate().filter(|(place, _)| count <= PYTHON_DEPTH || *place < half || place + half >= count);
    let own = lines.iter().any(|line| *line != 0 && sort(*line) == Sort::Own as u32);
    let mut chosen = Chosen { lines: [0; PYTHON_DEPTH], count: 0, own };
    for (slot, (_, line)) in chosen.lines.iter_mut().zip(ends) {
        *slot = line;
        chosen.count += 1;
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "/home/u/train.py";
    const KERAS: &str = "/v/lib/python3.11/site-packages/keras/src/layers/core/dense.py";
    const INNER: &str = "/v/lib/python3.11/site-packages/tensorflow/python/framework/ops.py";

    fn chosen(files: &[&str]) -> Vec<u32> {
        let lines: Vec<u32> = files.iter().zip(1..).map(|(file, id)| tagged(id, file)).collect();
        choose(&lines).list().to_vec()
    }

    #[test]
    fn a_chain_around_another_keeps_its_inner_half() {
        let chain = |files: &[&str], first: u32| {
            let lines: Vec<u32> = files.iter().zip(first..).map(|(file, id)| tagged(id, file)).collect();
            choose(&lines)
        };
        let mut inner = chain(&[INNER, KERAS], 1);
        let outer = chain(&[INNER, OWN], 11);
        assert!(!inner.own && outer.own);
        inner.add_outside(&outer);
        assert_eq!(inner.list(), [1, 2, 11, 12]);
        assert!(inner.own);
        let (mut inner, outer) = (chain(&[KERAS; 16], 1), chain(&[OWN; 16], 21));
        inner.add_outside(&outer);
        assert_eq!(inner.list(), (1..=8).chain(21..=28).collect::<Vec<_>>());
    }

    #[test]
    fn files_are_sorted_by_folder() {
        assert_eq!([OWN, KERAS, INNER].map(sort_of), [Sort::Own, Sort::Library, Sort::Machinery]);
        assert_eq!(sort_of("<frozen importlib._bootstrap>"), Sort::Library);
        assert_eq!(sort_of("<ipython-input-3>"), Sort::Own);
    }

    #[test]
    fn short_chains_stay_whole() {
        let files = [INNER, INNER, KERAS, OWN].repeat(4);
        assert_eq!(chosen(&files), (1..=16).collect::<Vec<_>>());
    }

    #[test]
    fn long_chains_lose_machinery_then_libraries_and_keep_the_users_lines() {
        let mut files = vec![INNER; 30];
        files.extend([KERAS, INNER, KERAS, INNER, OWN, INNER, OWN]);
        assert_eq!(chosen(&files), [1, 31, 33, 35, 37]);
        let mut files = vec![KERAS; 40];
        files.extend([OWN, KERAS, OWN]);
        assert_eq!(chosen(&files), [1, 41, 43]);
        let own = chosen(&[OWN; 50]);
        assert_eq!(own, (1..=8).chain(43..=50).collect::<Vec<_>>());
    }
}

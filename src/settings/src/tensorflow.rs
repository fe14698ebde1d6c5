//! Which allocator serves TensorFlow's tensors: WEIR_TF_ALLOCATOR.

/// Which allocator serves TensorFlow's tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TfAllocator {
    /// weir's pool where every visible device has memory pools and the job asked for nothing else.
    #[default]
    Auto,
    /// weir's pool, unless the job names an allocator itself.
    Pool,
    /// TensorFlow's own allocator, BFC.
    Keep,
}

impl TfAllocator {
    /// Its values as they are written.
    pub(crate) const WORDS: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("pool", Self::Pool), ("keep", Self::Keep)];
}

/// Where XLA leaves what it knows of its arenas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Xla {
    /// Where it takes little time: in TensorFlow.
    #[default]
    Auto,
    /// In JAX, too.
    On,
    /// Nowhere.
    Off,
}

impl Xla {
    /// The words of the setting.
    pub(crate) const WORDS: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("on", Self::On), ("off", Self::Off)];
}

//! What the table of driver functions does when one is missing.

/// Nothing can be shown without the function.
pub(crate) fn skip(why: &str) -> ! {
    panic!("{why}")
}

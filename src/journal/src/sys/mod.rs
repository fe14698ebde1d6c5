//! The one place with `unsafe`: mapped memory, a handful of system calls, the clock, and reading one's own stack.
//! Everything here returns safe values; the rest of the crate is safe code.
#![allow(unsafe_code)]

pub(crate) mod clock;
pub(crate) mod crc;
pub(crate) mod files;
pub(crate) mod map;
pub(crate) mod modules;
pub(crate) mod place;
pub(crate) mod prefetch;
pub(crate) mod stack;

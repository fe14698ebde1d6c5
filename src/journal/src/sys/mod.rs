//! The one place with `unsafe`: mapped memory, a handful of system calls, the clock, and reading one's own stack.
//! Everything here gives back safe values; the rest of the crate is safe code.
#![allow(unsafe_code)]

pub mod clock;
pub mod files;
pub mod map;
pub mod modules;
pub mod stack;

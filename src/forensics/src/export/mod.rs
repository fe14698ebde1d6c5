//! Recordings in the formats of other tools.

pub mod timeline;

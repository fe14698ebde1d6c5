//! What a recording means. Pure: numbers in, findings out; reading journals is `weir-journal`'s work.
//!
//! So far: [`growth`], which tells a leak from noise and when it will meet the cap.
#![forbid(unsafe_code)]

pub mod growth;

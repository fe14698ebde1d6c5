//! Code and its launches: images (`image`, `ptx`), modules, libraries and what they define
//! (`modules`, `settings`), one launch with its arguments (`launch`), the kernels that really do something
//! (`builtin`, `published`), and what a multiprocessor holds (`occupancy`).

mod builtin;
mod generated;
mod image;
mod launch;
mod modules;
mod occupancy;
mod ptx;
mod published;
mod settings;
mod single;
mod single_memory;

#[cfg(test)]
mod tests;

pub(crate) use self::image::{Image, Linked};
pub(crate) use self::launch::{Geometry, Launch};
pub(crate) use self::modules::{Link, Modules, eager};
pub(crate) use self::occupancy::{Limits, Needs};

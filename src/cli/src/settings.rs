//! The settings that hold for this command: its environment, and the settings files that jobs read.

use crate::library;
use std::ffi::OsString;
use std::path::PathBuf;
use weir_forensics::{Error, runs};
use weir_settings::Reading;
use weir_settings::file::SettingsFile;

/// The settings of an environment. Jobs that are started with the library beside this command have the same.
pub(crate) fn of(variables: impl Iterator<Item = (OsString, OsString)>) -> Reading {
    let library = library::find(None).ok();
    Reading::with(variables, &SettingsFile::find(library.as_ref().and_then(|path| path.parent())), &[])
}

/// The settings of this command's own environment.
pub(crate) fn own() -> Reading {
    of(std::env::vars_os())
}

/// Where journals are.
pub(crate) fn directory() -> Result<PathBuf, Error> {
    runs::directory(&own())
}

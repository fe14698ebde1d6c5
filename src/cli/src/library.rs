//! Where libweir.so is, and how a child gets it.

use crate::link;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The library beside this command: `../lib` as built, `../lib/weir` as installed by a package, or the same directory.
pub(crate) fn find(given: Option<&Path>) -> Result<PathBuf, String> {
    let candidates = if let Some(path) = given {
        vec![path.to_owned()]
    } else {
        let command = std::env::current_exe().map_err(|e| format!("cannot find the path of this command: {e}"))?;
        let home = command.parent().unwrap_or(Path::new("/"));
        vec![home.join("../lib/libweir.so"), home.join("../lib/weir/libweir.so"), home.join("libweir.so")]
    };
    let found = candidates.iter().find_map(|path| path.canonicalize().ok());
    found.ok_or_else(|| match given {
        Some(path) => format!("no library {}", path.display()),
        None => "no libweir.so beside weir; reinstall or use --library FILE".into(),
    })
}

/// A path of this library that LD_PRELOAD can hold: its own, or one through a link.
pub(crate) fn loadable(library: &Path) -> Result<PathBuf, String> {
    let (Some(folder), Some(name)) = (library.parent(), library.file_name()) else { return Ok(library.to_owned()) };
    if name.to_string_lossy().contains([' ', ':', '$']) {
        return Err(format!("{}: LD_PRELOAD cannot hold the name of this file; rename it", library.display()));
    }
    Ok(link::reachable(folder)?.join(name))
}

/// `LD_PRELOAD` for a child: a loadable weir behind what is there already, unless it is there already.
pub(crate) fn preload(library: &Path) -> OsString {
    preload_beside(std::env::var_os("LD_PRELOAD").as_deref(), library)
}

/// The same for a child whose `LD_PRELOAD` would be this.
pub(crate) fn preload_beside(before: Option<&OsStr>, library: &Path) -> OsString {
    let Some(mut value) = before.filter(|before| !before.is_empty()).map(OsStr::to_owned) else {
        return library.into();
    };
    let real = library.canonicalize().ok();
    let same = |one: &str| real.is_some() && Path::new(one).canonicalize().ok() == real;
    let named = value.to_string_lossy().split([' ', ':']).any(same);
    if !named {
        value.push(":");
        value.push(library);
    }
    value
}

/// The virtual GPU beside this command: `../vgpu` as built, `../lib/weir/vgpu` as installed by a package; a path that
/// LD_LIBRARY_PATH can hold.
pub(crate) fn find_vgpu(given: Option<&Path>) -> Result<PathBuf, String> {
    let candidates = if let Some(path) = given {
        vec![path.to_owned()]
    } else {
        let command = std::env::current_exe().map_err(|e| format!("cannot find the path of this command: {e}"))?;
        let home = command.parent().unwrap_or(Path::new("/"));
        vec![home.join("../vgpu"), home.join("../lib/weir/vgpu")]
    };
    let found = candidates.iter().find(|path| path.join("libcuda.so.1").exists());
    let found = found.and_then(|path| path.canonicalize().ok()).ok_or_else(|| match given {
        Some(path) => format!("no virtual GPU: no libcuda.so.1 in {}", path.display()),
        None => "no virtual GPU beside weir; reinstall, or build it with scripts/build".into(),
    })?;
    link::reachable(&found)
}

//! Where libweir.so is, and how a child gets it.

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
    let Some(path) = found else {
        return Err(match given {
            Some(path) => format!("no library {}", path.display()),
            None => "no libweir.so beside weir; reinstall or use --library FILE".into(),
        });
    };
    // The dynamic linker splits LD_PRELOAD at both, and knows no quoting.
    if path.to_string_lossy().contains([' ', ':']) {
        return Err(format!(
            "{}: LD_PRELOAD cannot hold a path with a space or a colon; move the library",
            path.display()
        ));
    }
    Ok(path)
}

/// `LD_PRELOAD` for a child: weir behind what is there already, unless it is there already.
pub(crate) fn preload(library: &Path) -> OsString {
    preload_beside(std::env::var_os("LD_PRELOAD").as_deref(), library)
}

/// The same for a child whose `LD_PRELOAD` would be this.
pub(crate) fn preload_beside(before: Option<&OsStr>, library: &Path) -> OsString {
    let Some(mut value) = before.filter(|before| !before.is_empty()).map(OsStr::to_owned) else {
        return library.into();
    };
    let named =
        value.to_string_lossy().split([' ', ':']).any(|one| Path::new(one).canonicalize().is_ok_and(|p| p == library));
    if !named {
        value.push(":");
        value.push(library);
    }
    value
}

/// The virtual GPU beside this command: `../vgpu` as built, `../lib/weir/vgpu` as installed by a package.
pub(crate) fn find_vgpu(given: Option<&Path>) -> Result<PathBuf, String> {
    let candidates = if let Some(path) = given {
        vec![path.to_owned()]
    } else {
        let command = std::env::current_exe().map_err(|e| format!("cannot find the path of this command: {e}"))?;
        let home = command.parent().unwrap_or(Path::new("/"));
        vec![home.join("../vgpu"), home.join("../lib/weir/vgpu")]
    };
    let found = candidates.iter().find(|path| path.join("libcuda.so.1").exists());
    found.and_then(|path| path.canonicalize().ok()).ok_or_else(|| match given {
        Some(path) => format!("no virtual GPU: no libcuda.so.1 in {}", path.display()),
        None => "no virtual GPU beside weir; reinstall, or build it with scripts/build".into(),
    })
}

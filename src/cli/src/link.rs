//! Links to folders whose paths the loader's variables cannot hold: LD_PRELOAD is split at blanks and colons,
//! LD_LIBRARY_PATH at colons and semicolons, `$` begins a token in both, and none of them knows quoting.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use weir_ledger::LedgerDir;

/// What separates or means something else in LD_PRELOAD, LD_LIBRARY_PATH and XLA_FLAGS.
const SPECIAL: &[u8] = b" \t\n:;$'\"\\";

/// A path to this folder for those variables: its own, or that of a link. The folder is linked and not the library, so that a
/// settings file beside the library is found through the link.
pub(crate) fn reachable(folder: &Path) -> Result<PathBuf, String> {
    if is_plain(folder) {
        return Ok(folder.to_owned());
    }
    let mut problems = Vec::new();
    for place in places() {
        match prepared(&place).and_then(|()| linked(place.path(), folder).map_err(|error| error.to_string())) {
            Ok(link) => return Ok(link),
            Err(problem) => problems.push(problem),
        }
    }
    Err(format!(
        "{}: LD_PRELOAD cannot hold a path with a blank, a colon or a special character, and no link to it can be made ({}); \
         move the folder",
        folder.display(),
        problems.join("; ")
    ))
}

fn is_plain(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|byte| SPECIAL.contains(byte))
}

/// Where links may lie, the most lasting first: in the user's state, or where ledgers lie without WEIR_DIR.
fn places() -> Vec<LedgerDir> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    let mut places: Vec<_> = state.into_iter().map(|state| LedgerDir::at(state.join("weir/links"))).collect();
    for runtime in [absolute("XDG_RUNTIME_DIR"), None] {
        let ledgers = LedgerDir::from_variables(None, runtime.as_deref());
        places.push(LedgerDir::at(ledgers.path().join("links")));
    }
    places.retain(|place| is_plain(place.path()));
    places
}

/// Nobody else can put another library in place of a link there.
fn prepared(place: &LedgerDir) -> Result<(), String> {
    place.prepare().map_err(|bad| bad.to_string())
}

fn linked(place: &Path, folder: &Path) -> io::Result<PathBuf> {
    let link = place.join(format!("{:016x}", hash(folder.as_os_str())));
    if fs::read_link(&link).is_ok_and(|there| there == folder) {
        return Ok(link);
    }
    // By renaming: others may use the old one meanwhile, or make the same.
    let new = place.join(format!("{}.new", std::process::id()));
    let _ = fs::remove_file(&new);
    symlink(folder, &new)?;
    fs::rename(&new, &link)?;
    Ok(link)
}

fn hash(text: &OsStr) -> u64 {
    text.as_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_plain_path_stays() {
        assert_eq!(reachable(Path::new("/opt/weir-0.1/lib")), Ok("/opt/weir-0.1/lib".into()));
        for special in ["/my apps", "/a:b", "/a;b", "/$LIB", "/it's"] {
            assert!(!is_plain(Path::new(special)), "{special}");
        }
    }

    #[test]
    fn a_link_is_made_once_and_follows_a_moved_folder() {
        let scratch = std::env::temp_dir().join(format!("weir-link-{}", std::process::id()));
        let place = LedgerDir::at(scratch.join("links"));
        prepared(&place).unwrap();
        let folder = scratch.join("my apps:2");
        let link = linked(place.path(), &folder).unwrap();
        assert_eq!((fs::read_link(&link).unwrap(), is_plain(&link)), (folder.clone(), true));
        fs::remove_file(&link).unwrap();
        symlink("/elsewhere", &link).unwrap();
        assert_eq!(linked(place.path(), &folder).unwrap(), link);
        assert_eq!(fs::read_link(&link).unwrap(), folder);
        // Where others can write no link is made.
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(prepared(&place).is_err());
        fs::remove_dir_all(&scratch).unwrap();
    }
}

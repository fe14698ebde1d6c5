//! Places in code as links of the terminal (OSC 8), so that a click opens the file.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::Path;

use weir_forensics::names::base_name;
use weir_forensics::report::Report;

use crate::ascii;

/// The text of a report with the user's lines as links, where standard output is a terminal that may know them.
pub(crate) fn added(text: String, report: &Report) -> String {
    let plain = std::env::var_os("TERM").is_none_or(|term| term == "linux" || term == "dumb");
    if plain || ascii::only() || !std::io::stdout().is_terminal() {
        return text;
    }
    let request = report.request.iter().map(|request| request.python.as_str());
    let shown = places(request.chain(report.holders.iter().map(|holder| holder.python.as_str())), Path::is_file);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    linked(&text, &shown, &escaped(host.trim()))
}

/// `train.py:7` with its path, for each place whose file is here. A name that two files have is no link.
fn places<'a>(all: impl Iterator<Item = &'a str>, is_here: impl Fn(&Path) -> bool) -> BTreeMap<String, String> {
    let mut found: BTreeMap<String, Option<String>> = BTreeMap::new();
    for place in all {
        let Some((path, line)) = place.rsplit_once(':') else { continue };
        if !path.starts_with('/') || line.parse::<u32>().is_err() || !is_here(Path::new(path)) {
            continue;
        }
        let known = found.entry(base_name(place).to_owned()).or_insert_with(|| Some(path.to_owned()));
        if known.as_deref().is_some_and(|other| other != path) {
            *known = None;
        }
    }
    found.into_iter().filter_map(|(name, path)| Some((name, path?))).collect()
}

/// The text with each whole mention of a place as a link.
fn linked(text: &str, places: &BTreeMap<String, String>, host: &str) -> String {
    let part_of_name = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '.' | '-' | '/' | ':');
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((at, name, path)) = places
        .iter()
        .filter_map(|(name, path)| Some((rest.find(name.as_str())?, name, path)))
        .min_by_key(|(at, name, _)| (*at, std::cmp::Reverse(name.len())))
    {
        let (before, after) = (&rest[..at], &rest[at + name.len()..]);
        let stands_alone =
            !before.ends_with(part_of_name) && !after.starts_with(|next: char| next.is_alphanumeric() || next == '_');
        out.push_str(before);
        if stands_alone {
            let _ = write!(out, "\x1b]8;;file://{host}{}\x1b\\{name}\x1b]8;;\x1b\\", escaped(path));
        } else {
            out.push_str(name);
        }
        rest = after;
    }
    out + rest
}

/// A path in an address.
fn escaped(path: &str) -> String {
    let mut out = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte) {
            out.push(byte.into());
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_link_where_its_file_is_here() {
        let places = places(["/a b/train.py:7", "/a b/train.py:71", "/gone/x.py:1", "In[3]:2"].into_iter(), |path| {
            !path.starts_with("/gone")
        });
        let link = |name: &str| format!("\x1b]8;;file://h/a%20b/train.py\x1b\\{name}\x1b]8;;\x1b\\");
        let shown = linked("train.py:7 in f, train.py:71; xtrain.py:7 train.py:712 x.py:1", &places, "h");
        assert_eq!(
            shown,
            format!("{} in f, {}; xtrain.py:7 train.py:712 x.py:1", link("train.py:7"), link("train.py:71"))
        );
    }

    #[test]
    fn a_name_of_two_files_is_none() {
        assert!(places(["/a/x.py:1", "/b/x.py:1"].into_iter(), |_| true).is_empty());
    }
}

//! What the administrator has set: where library and journals come from, and which resources are limits.

use std::str::FromStr;

use weir_settings::limit::CapSetting;
use weir_settings::size::Amount;

/// The name of the library's volume, and of the container that fills it.
pub(crate) const VOLUME: &str = "weir";

/// See the file's first comment.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Config {
    /// Where containers get libweir.so from: `host:DIR`, a directory of each node with libweir.so (and weir.conf) in it, or
    /// `image:IMAGE`, an image of weir that an init container copies it from
    #[arg(long, value_name = "SOURCE", default_value = "host:/opt/weir")]
    pub(crate) library: Library,
    /// Where journals are kept: `host:DIR`, a directory of each node that everybody may write to, `claim:NAME`, a
    /// PersistentVolumeClaim in the pod's namespace, or `empty`, until the pod ends
    #[arg(long, value_name = "PLACE", default_value = "host:/var/lib/weir")]
    pub(crate) journals: Journals,
    /// A resource of a scheduler that is a limit of memory on each GPU, with its unit: `B`, `MiB`, `GiB` or `%`; may be given
    /// several times
    #[arg(long = "resource", value_name = "NAME=UNIT", value_parser = resource,
        default_values = ["nvidia.com/gpumem=MiB", "nvidia.com/gpumem-percentage=%"])]
    pub(crate) resources: Vec<(String, Unit)>,
    /// The cap of containers that request a GPU and say nothing; without it they stay as they are
    #[arg(long, value_name = "SIZE", value_parser = cap)]
    pub(crate) default_cap: Option<String>,
}

impl Config {
    /// Whether an init container of this name is the one that copies the library.
    pub(crate) fn fills(&self, name: &str) -> bool {
        matches!(self.library, Library::Image(_)) && name == VOLUME
    }
}

/// Where the library comes from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Library {
    /// A directory of the node.
    Host(String),
    /// An image.
    Image(String),
}

impl FromStr for Library {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("host", path)) => Ok(Self::Host(absolute(path)?)),
            Some(("image", image)) if !image.is_empty() => Ok(Self::Image(image.into())),
            _ => Err("expected host:DIR or image:IMAGE".into()),
        }
    }
}

/// Where journals are kept.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Journals {
    /// A directory of the node.
    Host(String),
    /// A claim in the pod's namespace.
    Claim(String),
    /// The pod's own, gone with it.
    Empty,
}

impl FromStr for Journals {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("host", path)) => Ok(Self::Host(absolute(path)?)),
            Some(("claim", name)) if !name.is_empty() => Ok(Self::Claim(name.into())),
            None if text == "empty" => Ok(Self::Empty),
            _ => Err("expected host:DIR, claim:NAME or empty".into()),
        }
    }
}

fn absolute(path: &str) -> Result<String, String> {
    if path.starts_with('/') { Ok(path.into()) } else { Err(format!("{path:?}: expected an absolute path")) }
}

/// What a number of a resource means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Unit {
    /// So many times so many bytes.
    Bytes(u64),
    /// A percentage of each GPU.
    Percent,
}

fn resource(text: &str) -> Result<(String, Unit), String> {
    let (name, unit) = text.rsplit_once('=').filter(|(name, _)| !name.is_empty()).ok_or("expected NAME=UNIT")?;
    let unit = match unit {
        "B" => Unit::Bytes(1),
        "MiB" => Unit::Bytes(1 << 20),
        "GiB" => Unit::Bytes(1 << 30),
        "%" => Unit::Percent,
        _ => return Err(format!("{unit:?}: unknown unit; expected B, MiB, GiB or %")),
    };
    Ok((name.into(), unit))
}

fn cap(text: &str) -> Result<String, String> {
    match CapSetting::parse(text) {
        Ok(CapSetting { default: Some(Amount::Bytes(_) | Amount::Share(_)), .. }) => Ok(text.into()),
        Ok(_) => Err("it has no cap for devices that it does not name".into()),
        Err(bad) => Err(bad.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_place_is_refused() {
        assert_eq!("image:r/weir:1".parse(), Ok(Library::Image("r/weir:1".into())));
        assert_eq!("claim:a".parse(), Ok(Journals::Claim("a".into())));
        for bad in ["", "host:", "host:weir", "image:", "/opt/weir"] {
            assert!(bad.parse::<Library>().is_err(), "{bad}");
        }
        for bad in ["", "host:x", "claim:", "empty:"] {
            assert!(bad.parse::<Journals>().is_err(), "{bad}");
        }
        assert_eq!(resource("a.b/c=MiB"), Ok(("a.b/c".into(), Unit::Bytes(1 << 20))));
        assert!(resource("a=MB").is_err() && resource("=MiB").is_err() && resource("a").is_err());
        assert!(cap("8GiB").is_ok() && cap("8").is_err() && cap("0=8GiB").is_err());
    }
}

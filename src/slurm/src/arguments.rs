//! What the administrator has set: the words behind the plugin's path in plugstack.conf. Pure.

use std::path::PathBuf;

use weir_settings::size::{Amount, BadValue, parse_amount, parse_size};

/// What happens to a job whose limit was not in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Escaped {
    /// Its administrator's comment says so.
    #[default]
    Mark,
    /// It is also cancelled, if it still runs.
    Cancel,
}

/// The words of plugstack.conf, read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Arguments {
    /// libweir.so on the nodes.
    pub(crate) library: PathBuf,
    /// The command on the nodes.
    pub(crate) command: PathBuf,
    /// The limit of jobs that ask for none: by partition, and of all others.
    pub(crate) defaults: Vec<(Option<String>, Amount)>,
    /// The largest limit that a job may ask for, likewise.
    pub(crate) most: Vec<(Option<String>, Amount)>,
    /// How many shards a GPU has in gres.conf.
    pub(crate) shards: Option<u32>,
    /// The memory of a GPU, by which sizes and shares are compared.
    pub(crate) gpu: Option<u64>,
    /// The folder of the journals: %u the user's number, %j the job's, %n the node's name.
    pub(crate) dir: Option<String>,
    /// What happens to a job whose limit was not in force.
    pub(crate) escaped: Escaped,
    /// Where a node keeps what it has to know of a job until its end.
    pub(crate) state: PathBuf,
    /// The lake that gets a row of each run.
    pub(crate) lake: Option<String>,
}

impl Default for Arguments {
    fn default() -> Self {
        Self {
            library: "/usr/lib/weir/libweir.so".into(),
            command: "weir".into(),
            defaults: Vec::new(),
            most: Vec::new(),
            shards: None,
            gpu: None,
            dir: None,
            escaped: Escaped::Mark,
            state: "/run/weir-slurm".into(),
            lake: None,
        }
    }
}

/// What may stand there.
const WORDS: &str = "library=FILE, command=FILE, default[:PARTITION]=SIZE, max[:PARTITION]=SIZE, shards_per_gpu=NUMBER, \
                     gpu_size=SIZE, dir=FOLDER, escaped=mark|cancel, state=FOLDER or lake=FOLDER|s3://BUCKET/PREFIX";

impl Arguments {
    /// Reads the words; the first that is wrong is named.
    pub(crate) fn read<'w>(words: impl IntoIterator<Item = &'w str>) -> Result<Self, BadValue> {
        let mut own = Self::default();
        for word in words {
            let bad = |problem: &str, expected: &str| BadValue::new(word, problem, expected);
            let (key, value) = word.split_once('=').ok_or_else(|| bad("no value", WORDS))?;
            let (key, partition) = key.split_once(':').map_or((key, None), |(key, name)| (key, Some(name.to_owned())));
            let path = || {
                let absolute = value.starts_with('/');
                absolute
                    .then(|| PathBuf::from(value))
                    .ok_or_else(|| bad("not an absolute path", "a path like /usr/lib/weir"))
            };
            let amount = || match parse_amount(value) {
                Ok(Amount::Bytes(0) | Amount::Share(0)) => {
                    Err(bad("a limit of 0 leaves a job no memory", "a size like 8G"))
                }
                Ok(amount) => Ok(amount),
                Err(error) => Err(bad(&error.problem, &error.expected)),
            };
            match (key, partition) {
                ("default", partition) => set(&mut own.defaults, partition, amount()?),
                ("max", partition) => set(&mut own.most, partition, amount()?),
                (_, Some(_)) => return Err(bad("only default and max take a partition", WORDS)),
                ("library", _) => own.library = path()?,
                ("command", _) => own.command = path()?,
                ("state", _) => own.state = path()?,
                ("dir", _) => own.dir = Some(path()?.to_string_lossy().into_owned()),
                ("lake", _) if value.starts_with("s3://") => own.lake = Some(value.to_owned()),
                ("lake", _) => own.lake = Some(path()?.to_string_lossy().into_owned()),
                ("shards_per_gpu", _) => {
                    let number = value.parse().ok().filter(|number| *number > 0);
                    own.shards =
                        Some(number.ok_or_else(|| bad("not a number", "the Count of a GPU's shards, like 8"))?);
                }
                ("gpu_size", _) => {
                    own.gpu = Some(parse_size(value).map_err(|error| bad(&error.problem, &error.expected))?);
                }
                ("escaped", _) => {
                    own.escaped = match value {
                        "mark" => Escaped::Mark,
                        "cancel" => Escaped::Cancel,
                        _ => return Err(bad("unknown value", "mark or cancel")),
                    }
                }
                _ => return Err(bad("unknown word", WORDS)),
            }
        }
        Ok(own)
    }

    /// The default of a partition.
    pub(crate) fn default_of(&self, partition: &str) -> Option<Amount> {
        of(&self.defaults, partition)
    }

    /// The most that a job of a partition may ask for.
    pub(crate) fn most_of(&self, partition: &str) -> Option<Amount> {
        of(&self.most, partition)
    }
}

fn set(list: &mut Vec<(Option<String>, Amount)>, partition: Option<String>, amount: Amount) {
    list.retain(|(other, _)| *other != partition);
    list.push((partition, amount));
}

fn of(list: &[(Option<String>, Amount)], partition: &str) -> Option<Amount> {
    let of = |wanted: Option<&str>| list.iter().find(|(name, _)| name.as_deref() == wanted).map(|(_, amount)| *amount);
    of(Some(partition)).or_else(|| of(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_partition_comes_before_all_others() {
        let own = Arguments::read(["default=8G", "default:small=25%", "max=16G", "default=4G"]).unwrap();
        assert_eq!(own.default_of("small"), Some(Amount::Share(250_000)));
        assert_eq!(own.default_of("main"), Some(Amount::Bytes(4 * GIB)), "the last word counts");
        assert_eq!(own.most_of("small"), Some(Amount::Bytes(16 * GIB)));
        assert_eq!(Arguments::read([]).unwrap().most_of("small"), None);
    }

    #[test]
    fn a_wrong_word_is_named() {
        for (word, part) in [
            ("default", "no value"),
            ("default=8", "did you mean"),
            ("default=0", "limit of 0"),
            ("max:small=many", "many"),
            ("library:small=/x", "partition"),
            ("library=x", "absolute"),
            ("shards_per_gpu=0", "not a number"),
            ("gpu_size=50%", "percentage"),
            ("escaped=kill", "unknown value"),
            ("lake=here", "absolute"),
            ("colour=red", "unknown word"),
        ] {
            let error = Arguments::read([word]).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(word), "{word}: {error}");
        }
    }
}

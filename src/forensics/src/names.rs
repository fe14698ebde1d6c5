//! The requester, in words: TensorFlow operation, Python lines with the user's own line chosen, native stack. Names are
//! looked up in the journal once and kept.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
pub use weir_journal::is_users;

use weir_journal::Attribution;
use weir_journal::reader::{Line, OpName, Reader};
use weir_journal::text::{self, plain};

/// Who requested memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Who {
    /// TensorFlow operation; empty texts are unknown.
    pub op: Arc<OpName>,
    /// Python lines, innermost first.
    pub python: Arc<Chain>,
    /// Id of the native stack, 0 is none.
    pub stack: u32,
}

/// Python lines and which of them is the user's.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Chain {
    /// Innermost first.
    pub lines: Vec<Line>,
    /// Which of them is the first outside of installed packages and the standard library.
    pub users: Option<usize>,
}

impl Chain {
    fn of(lines: Vec<Line>) -> Self {
        let users = lines.iter().position(|line| is_users(&line.file));
        Self { lines, users }
    }

    /// The line that a user would call theirs; else the innermost one.
    pub fn line(&self) -> Option<&Line> {
        self.lines.get(self.users.unwrap_or(0))
    }
}

impl Who {
    /// The user's own Python line; else the innermost one known.
    pub fn line(&self) -> Option<&Line> {
        self.python.line()
    }

    /// `train.py:118`, or empty.
    pub fn place(&self) -> String {
        self.line().map(|line| format!("{}:{}", plain(base_name(&line.file)), line.line)).unwrap_or_default()
    }

    /// `train.py:118 in train_step`, or empty.
    pub fn place_in(&self) -> String {
        match self.line() {
            Some(line) if !line.function.is_empty() && line.function != "<module>" => {
                format!("{}:{} in {}", plain(base_name(&line.file)), line.line, plain(&line.function))
            }
            _ => self.place(),
        }
    }

    /// The operation without what TensorFlow puts around every name.
    pub fn op_name(&self) -> &str {
        short_op(&self.op.name)
    }

    /// Whether nothing but perhaps a native stack is known.
    pub fn is_nameless(&self) -> bool {
        self.op.name.is_empty() && self.python.lines.is_empty()
    }
}

/// A function's name without those around it: `add_weight` of `Layer.add_weight`.
pub fn function(line: &Line) -> &str {
    line.function.rsplit('.').next().unwrap_or(&line.function)
}

/// The last part of a path.
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// An operation's name without the calls that TensorFlow wraps around it.
pub fn short_op(name: &str) -> &str {
    let mut name = name;
    while let Some(rest) = ["StatefulPartitionedCall/", "PartitionedCall/"].iter().find_map(|p| name.strip_prefix(p)) {
        name = rest;
    }
    // The graph optimizer's mark at the end would be all that is left of a name in a narrow column.
    name.strip_suffix("-LayoutOptimizer").unwrap_or(name)
}

/// The end of a text, which says more than its beginning, in at most `most` characters, all of them harmless.
pub fn tail(text: &str, most: usize) -> String {
    let text = &*plain(text);
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let tail: String = text.chars().skip(count + 1 - most.max(1)).collect();
    format!("…{tail}")
}

/// A text in at most `most` characters, shortened in its middle: the first part of a path stays where it is short, and as
/// much of the end as there is room for.
pub fn short(text: &str, most: usize) -> String {
    let text = &*plain(text);
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let first: String = text.chars().take_while(|letter| !matches!(letter, '/' | ' ')).collect();
    let kept = Some(first.chars().count()).filter(|length| *length * 3 <= most).unwrap_or(0);
    let head: String = text.chars().take(kept).collect();
    head + &tail(text, most - kept)
}

/// A command without its interpreter and the interpreter's options: `train.py --batch 64`.
pub fn short_command(command: &[String]) -> String {
    let mut words = command.iter().map(String::as_str);
    let mut kept: Vec<&str> = Vec::new();
    let Some(first) = words.next() else { return String::new() };
    let first = base_name(first);
    if first.starts_with("python") {
        let rest: Vec<&str> = words.collect();
        match rest.iter().position(|word| !word.starts_with('-')) {
            Some(script) if !rest.iter().take(script).any(|word| *word == "-c" || *word == "-m") => {
                kept.extend(rest.iter().skip(script).take(1).map(|script| base_name(script)));
                kept.extend(rest.iter().skip(script + 1));
            }
            _ => kept.extend(std::iter::once(first).chain(rest)),
        }
    } else {
        kept.extend(std::iter::once(first).chain(words));
    }
    kept.join(" ").replace(text::steers, " ")
}

/// Operations of up to three KiB and chains of up to 32 KiB that are kept at most; then they are looked up anew.
const MOST_OPS: usize = 1 << 16;
const MOST_CHAINS: usize = 1 << 13;

/// Names by their ids, kept.
#[derive(Debug, Default)]
pub(crate) struct Names {
    ops: Mutex<HashMap<u32, Arc<OpName>>>,
    chains: Mutex<HashMap<u32, Arc<Chain>>>,
}

impl Names {
    /// What cannot be read is unknown: a report with a gap is better than none.
    pub(crate) fn who(&self, reader: &Reader, by: Attribution) -> Arc<Who> {
        let op = kept(&self.ops, MOST_OPS, by.op, || reader.op(by.op).ok().flatten().unwrap_or_default());
        let python =
            kept(&self.chains, MOST_CHAINS, by.python, || Chain::of(reader.python(by.python).unwrap_or_default()));
        Arc::new(Who { op, python, stack: by.stack })
    }
}

fn kept<K: Eq + Hash, V>(cache: &Mutex<HashMap<K, Arc<V>>>, most: usize, key: K, find: impl FnOnce() -> V) -> Arc<V> {
    let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
    if cache.len() >= most {
        cache.clear();
    }
    Arc::clone(cache.entry(key).or_insert_with(|| Arc::new(find())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_line_is_the_first_outside_of_packages_and_python() {
        for own in ["train.py", "/home/me/model/train.py", "<stdin>", "/tmp/ipykernel_7/1.py", "/srv/lib/pythonic/x.py"]
        {
            assert!(is_users(own), "{own}");
        }
        for other in [
            "/usr/lib/python3/dist-packages/keras/x.py",
            "/venv/lib/python3.11/site-packages/keras/src/trainers/trainer.py",
            "/usr/lib/python3.11/threading.py",
            "/opt/py/lib/python3.13t/runpy.py",
            "<frozen runpy>",
            "/tmp/__autograph_generated_file7x.py",
            "",
        ] {
            assert!(!is_users(other), "{other}");
        }
        let line = |file: &str, line| Line { file: file.into(), function: "f".into(), line };
        let chain = Chain::of(vec![line("/v/site-packages/k.py", 1), line("/me/train.py", 7), line("/me/main.py", 9)]);
        assert_eq!(chain.line().map(|line| line.line), Some(7));
        let chain = Chain::of(vec![line("/v/site-packages/k.py", 1)]);
        assert_eq!((chain.users, chain.line().map(|line| line.line)), (None, Some(1)));
    }

    #[test]
    fn commands_are_named_by_their_script() {
        let short = |words: &[&str]| short_command(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(short(&["/usr/bin/python3", "-u", "/home/me/train.py", "--batch", "64"]), "train.py --batch 64");
        assert_eq!(short(&["python", "-c", "import x"]), "python -c import x");
        assert_eq!(short(&["python3", "-m", "train"]), "python3 -m train");
        assert_eq!(short(&["/opt/serve", "a\nb"]), "serve a b");
        assert_eq!(short(&[]), "");
    }

    #[test]
    fn wrappers_are_taken_off_operations() {
        assert_eq!(short_op("StatefulPartitionedCall/StatefulPartitionedCall/a/MatMul"), "a/MatMul");
        assert_eq!(tail("gradient_tape/x/MatMul", 7), "…MatMul");
    }
}

//! The user's line behind generated code.
//!
//! AutoGraph rewrites a `tf.function` into a file of its own, which is gone when the job ends. It keeps the way back: a
//! rewritten function has an attribute `ag_source_map`, a dictionary from (file, line) to (((file, line, column), function,
//! …)). It is made once and never changed. Read through the kernel.

use super::layout::Attributes;
use super::text::{self, Text};
use crate::frameworks::memory::{Careful, Memory};

/// Part of the name of every generated file.
pub(crate) const GENERATED: &str = "__autograph_generated_file";
const ATTRIBUTE: &str = "ag_source_map";

/// In a dictionary: its table of keys.
const DICTIONARY_KEYS: usize = 32;
/// In a table of keys: binary logarithm of the index's size in bytes, kind of keys, number of entries, and the index.
const KEYS_INDEX_SIZE: usize = 9;
const KEYS_KIND: usize = 10;
const KEYS_COUNT: usize = 24;
const KEYS_INDEX: usize = 32;
/// In one that says its size (CPython 3.9 and 3.10): places of the index, number of entries, and the index.
const SIZED_PLACES: usize = 8;
const SIZED_COUNT: usize = 32;
const SIZED_INDEX: usize = 40;
/// In a tuple: its first element. In a whole number: its lowest thirty bits.
const TUPLE_FIRST: usize = 24;
const NUMBER_DIGIT: usize = 24;

/// More entries than a source file has lines.
const MOST: usize = 100_000;

/// How texts are recognised and read.
#[derive(Clone, Copy)]
pub(crate) struct Texts {
    /// Address of the type.
    pub(crate) kind: usize,
    /// Sizes of the headers.
    pub(crate) headers: (usize, usize),
}

/// File, function and line that a line of generated code was made from, if `function` knows it.
pub(crate) fn of(function: usize, line: u32, texts: Texts, form: Attributes) -> Option<(Text, Text, u32)> {
    let attributes = Careful.word(function.checked_add(form.of_function)?).filter(|dictionary| *dictionary != 0)?;
    let is_map = |key| text::read(key, texts.kind, texts.headers).is_some_and(|name| name.as_str() == ATTRIBUTE);
    let map = find(attributes, form, is_map)?;
    let origin = find(map, form, |key| element(key, 1).and_then(number) == Some(line))?;
    let place = element(origin, 0)?;
    let read = |object| text::read(object, texts.kind, texts.headers);
    Some((read(element(place, 0)?)?, read(element(origin, 1)?)?, number(element(place, 1)?)?))
}

fn element(tuple: usize, number: usize) -> Option<usize> {
    Careful.word(tuple.checked_add(TUPLE_FIRST + number * 8)?)
}

fn number(object: usize) -> Option<u32> {
    Careful.int(object.checked_add(NUMBER_DIGIT)?).map(|digit| digit as u32)
}

/// Where the entries of a table of keys are.
struct Entries {
    first: usize,
    count: usize,
    /// Bytes of one, and where its key is in it; the value follows.
    size: usize,
    key: usize,
}

fn entries(keys: usize) -> Option<Entries> {
    let mut form = [0; 2];
    if !Careful.bytes(keys.checked_add(KEYS_INDEX_SIZE)?, &mut form) {
        return None;
    }
    const { assert!(KEYS_KIND == KEYS_INDEX_SIZE + 1) };
    // Keys of any sort come with their hashes, texts without.
    let (size, key) = match form[1] {
        0 => (24, 8),
        1 => (16, 0),
        _ => return None,
    };
    let index = 1_usize.checked_shl(form[0].into()).filter(|bytes| *bytes < 1 << 24)?;
    Some(Entries {
        first: keys.checked_add(KEYS_INDEX + index)?,
        count: Careful.word(keys.checked_add(KEYS_COUNT)?)?,
        size,
        key,
    })
}

fn sized_entries(keys: usize) -> Option<Entries> {
    let places = Careful.word(keys.checked_add(SIZED_PLACES)?).filter(|places| *places < 1 << 22)?;
    // A place of the index has as many bytes as its largest number needs.
    let index = places
        * if places <= 0xff {
            1
        } else if places <= 0xffff {
            2
        } else {
            4
        };
    Some(Entries {
        first: keys.checked_add(SIZED_INDEX + index)?,
        count: Careful.word(keys.checked_add(SIZED_COUNT)?)?,
        size: 24,
        key: 8,
    })
}

/// The value of the first key that `wanted` accepts.
fn find(dictionary: usize, form: Attributes, wanted: impl Fn(usize) -> bool) -> Option<usize> {
    let keys = Careful.word(dictionary.checked_add(DICTIONARY_KEYS)?)?;
    let entries = if form.sizes { sized_entries(keys) } else { entries(keys) }?;
    for place in 0..entries.count.min(MOST) {
        let entry = entries.first.checked_add(place * entries.size + entries.key)?;
        let (key, value) = (Careful.word(entry)?, Careful.word(entry.checked_add(8)?)?);
        if key != 0 && value != 0 && wanted(key) {
            return Some(value);
        }
    }
    None
}

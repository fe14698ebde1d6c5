//! Terminals and locales that have ASCII only: what the command prints is then written with other signs.

use std::borrow::Cow;
use std::sync::OnceLock;

/// Whether only ASCII may be printed: the locale's letters are not those of UTF-8, or the terminal can do nothing at all.
/// Without any variable of a locale, as in most containers, UTF-8 is taken for granted.
pub(crate) fn only() -> bool {
    static ONLY: OnceLock<bool> = OnceLock::new();
    *ONLY.get_or_init(|| by(|name| std::env::var(name).ok()))
}

fn by(variable: impl Fn(&str) -> Option<String>) -> bool {
    let locale =
        ["LC_ALL", "LC_CTYPE", "LANG"].iter().filter_map(|name| variable(name)).find(|value| !value.is_empty());
    let other = locale.is_some_and(|locale| {
        let name = locale.to_ascii_lowercase();
        !name.contains("utf-8") && !name.contains("utf8")
    });
    other || dumb(variable)
}

/// Whether the terminal can neither move its cursor nor show colour.
pub(crate) fn is_dumb() -> bool {
    dumb(|name| std::env::var(name).ok())
}

fn dumb(variable: impl Fn(&str) -> Option<String>) -> bool {
    variable("TERM").is_some_and(|value| value == "dumb")
}

/// The text as it may be printed here.
pub(crate) fn fit(text: &str) -> Cow<'_, str> {
    if only() { ascii(text) } else { Cow::Borrowed(text) }
}

/// A sign of one column in ASCII.
pub(crate) fn sign(letter: char) -> char {
    match letter {
        letter if letter.is_ascii() => letter,
        '━' | '─' | '▓' => '=',
        '·' | '░' | '▁' | '▂' => '.',
        '…' | '≈' => '~',
        '█' | '▇' | '▆' => '#',
        '▒' | '±' => '%',
        '▃' | '▄' | '▅' => '+',
        '×' => 'x',
        'µ' => 'u',
        '↑' => '^',
        '↓' => 'v',
        '→' => '>',
        '–' | '—' => '-',
        '‘' | '’' => '\'',
        '“' | '”' => '"',
        _ => '?',
    }
}

fn ascii(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        // A text that goes on has the dots that it would have in print; one that was cut keeps its columns.
        let words_before = out.ends_with([' ', '\n']) || out.is_empty();
        if letter == '…' && words_before { out.push_str("...") } else { out.push(sign(letter)) }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_of_the_locale_that_is_set_counts() {
        let by = |pairs: &[(&str, &str)]| {
            super::by(|name| pairs.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(!by(&[]) && !by(&[("LANG", "en_US.UTF-8")]) && !by(&[("LANG", "C.utf8"), ("TERM", "xterm")]));
        assert!(
            by(&[("LANG", "C")])
                && by(&[("LANG", "de_DE.ISO-8859-1")])
                && by(&[("LC_ALL", "POSIX"), ("LANG", "C.UTF-8")])
        );
        assert!(!by(&[("LC_ALL", ""), ("LC_CTYPE", "C.UTF-8"), ("LANG", "C")]), "an empty one is not set");
        assert!(by(&[("LANG", "C.UTF-8"), ("TERM", "dumb")]));
    }

    #[test]
    fn signs_keep_their_columns_and_dots_are_dots() {
        assert_eq!(ascii("━━ OUT ━━ step ≈ 7 █▓▒░ … and 3 more"), "== OUT == step ~ 7 #=%. ... and 3 more");
        assert_eq!(ascii("…/MatMul größe"), ".../MatMul gr??e");
        assert_eq!(ascii("train.py --ba…"), "train.py --ba~");
        assert!(matches!(ascii("plain"), Cow::Borrowed(_)));
    }
}

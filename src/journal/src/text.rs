//! Text that comes from a job or a file, made safe to show. Names of operations, files and devices may hold anything: escape
//! sequences, line breaks, marks that turn the direction of writing round. Everything that is printed goes through here. Pure.

use std::borrow::Cow;

/// Stands for a character that is not shown.
pub const HIDDEN: char = '·';

/// Whether a character steers what shows it instead of being shown: controls (C0, DEL, C1), line and paragraph
/// separators, marks of direction, what has no width, and the codes that the report's own marks for colours have.
pub fn steers(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{fdd0}'..='\u{fdef}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

fn hidden(text: &str, bad: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&bad) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|letter| if bad(letter) { HIDDEN } else { letter }).collect())
}

/// A name as one line: what would steer a terminal is hidden.
pub fn plain(name: &str) -> Cow<'_, str> {
    hidden(name, steers)
}

/// Several lines of text: as [`plain`], but for line ends and tabs.
pub fn lines(text: &str) -> Cow<'_, str> {
    hidden(text, |letter| steers(letter) && letter != '\n' && letter != '\t')
}

/// JSON text in which what would steer a terminal is escaped. Such characters can stand only inside of strings there,
/// so what is read from it stays the same.
pub fn json(text: &str) -> Cow<'_, str> {
    let bad = |letter: char| steers(letter) && !matches!(letter, '\n' | '\r' | '\t');
    if !text.chars().any(bad) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 64);
    for letter in text.chars() {
        if bad(letter) {
            let mut units = [0; 2];
            for unit in letter.encode_utf16(&mut units) {
                let digit = |shift: u32| char::from_digit(u32::from(*unit) >> shift & 15, 16).unwrap_or('0');
                safe.extend(['\\', 'u', digit(12), digit(8), digit(4), digit(0)]);
            }
        } else {
            safe.push(letter);
        }
    }
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_is_hidden() {
        assert_eq!(plain("a\x1b[2Jb\nc\u{202e}d\u{9b}e\x7f\0\t"), "a·[2Jb·c·d·e···");
        assert_eq!(lines("a\n\tb\r\x1b]52;c;x\x07"), "a\n\tb··]52;c;x·");
        assert!(matches!(plain("größe/Conv2D:漢字 🙂"), Cow::Borrowed(_)));
    }

    #[test]
    fn json_stays_what_it_was() {
        let name = "\u{9b}31m \u{202e} \u{e0041} \x7f \x1b é";
        let text = serde_json::to_string(name).unwrap_or_default();
        let safe = json(&text);
        assert!(!safe.chars().any(steers) && safe.contains("\\u009b") && safe.contains("\\udb40\\udc41"), "{safe}");
        assert_eq!(serde_json::from_str::<String>(&safe).ok().as_deref(), Some(name));
        assert!(matches!(json("{\n  \"a\": 1\n}"), Cow::Borrowed(_)));
    }
}

//! What the report's text is written on: lines that are broken at words, colours, times.

use crate::names::short;
use crate::words::calendar;
use weir_journal::text::{HIDDEN, steers};

/// How to show it.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Columns.
    pub width: usize,
    /// Lines: what is least needed is left out until the rest fits.
    pub height: usize,
    /// Whether colour may be used.
    pub colour: bool,
    /// Seconds that local time is ahead of UTC.
    pub offset: i64,
    /// Now, nanoseconds since 1970: what was on another day is shown with its date. 0 is today, whenever it was.
    pub now: u64,
    /// Holders listed; none is as many as there is room for.
    pub holders: Option<usize>,
    /// All that is known, on as many lines as it takes.
    pub details: bool,
}

/// Marks in the text that become colours when it is done, so that a name cannot bring its own.
pub(super) const BOLD: char = '\u{fdd1}';
pub(super) const RED: char = '\u{fdd2}';
pub(super) const YELLOW: char = '\u{fdd3}';
pub(super) const DIM: char = '\u{fdd4}';
const PLAIN: char = '\u{fdd0}';

/// Columns of a label.
pub(super) const LABEL: usize = 10;

/// How long each list is.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) findings: usize,
    pub(super) holders: usize,
    pub(super) remedies: usize,
    /// Whether there is room for empty lines, and for roles.
    pub(super) air: bool,
}

/// A page that is being written.
pub(super) struct Page {
    pub(super) text: String,
    pub(super) look: Look,
    pub(super) room: Room,
}

impl Page {
    /// A line.
    pub(super) fn line(&mut self, text: &str) {
        // One line, whatever a name in it holds.
        self.text.extend(text.trim_end().chars().map(|letter| if letter.is_control() { HIDDEN } else { letter }));
        self.text.push('\n');
    }

    /// An empty line, where there is room for it.
    pub(super) fn gap(&mut self) {
        if self.room.air {
            self.line("");
        }
    }

    /// A text broken at words, behind a label and indented under it.
    pub(super) fn paragraph(&mut self, label: &str, text: &str) {
        self.wrapped(label, LABEL, text.split(' '), " ");
    }

    /// Pieces with a separator between them, those that do not fit on further lines.
    pub(super) fn wrapped<'a>(
        &mut self,
        label: &str,
        indent: usize,
        pieces: impl Iterator<Item = &'a str>,
        between: &str,
    ) {
        let room = self.look.width.saturating_sub(indent).max(20);
        let mut lines: Vec<String> = vec![String::new()];
        for piece in pieces {
            let piece = if columns(piece) > room { short(piece, room) } else { piece.to_owned() };
            let used = lines.last().map_or(0, |line| columns(line));
            if used > 0 && used + between.len() + columns(&piece) > room {
                lines.push(String::new());
            }
            if let Some(line) = lines.last_mut() {
                if !line.is_empty() {
                    line.push_str(between);
                }
                line.push_str(&piece);
            }
        }
        for (place, line) in lines.iter().enumerate() {
            let label = if place == 0 { label } else { "" };
            self.line(&format!("{label:<indent$}{line}"));
        }
    }

    /// Time of day, with the date where it was on another day than `beside`; 0 is any day.
    pub(super) fn time(&self, realtime_ns: u64, beside: u64) -> String {
        let moment = calendar(realtime_ns, self.look.offset);
        let same_day = beside == 0 || calendar(beside, self.look.offset).date() == moment.date();
        moment.strftime(if same_day { "%T" } else { "%F %T" }).to_string()
    }

    /// The text with its colours, and without what a name could steer a terminal by.
    pub(super) fn finished(self) -> String {
        let mut text = String::with_capacity(self.text.len());
        for letter in self.text.chars() {
            let code = match letter {
                PLAIN => "0",
                BOLD => "1",
                RED => "1;31",
                YELLOW => "33",
                DIM => "2",
                letter => {
                    text.push(if steers(letter) && letter != '\n' { HIDDEN } else { letter });
                    continue;
                }
            };
            if self.look.colour {
                text.extend(["\x1b[", code, "m"]);
            }
        }
        text
    }
}

/// A text in a colour.
pub(super) fn painted(colour: char, text: &str) -> String {
    format!("{colour}{text}{PLAIN}")
}

/// Columns of a text: colours take none.
pub(super) fn columns(text: &str) -> usize {
    text.chars().filter(|letter| !(PLAIN..=DIM).contains(letter)).count()
}

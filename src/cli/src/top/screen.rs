//! The screen of `weir top`: a table of jobs, and below it the selected one with who holds its memory. Draws what it was
//! given; fits into 80 columns and 24 lines, uses more where there is more, and leaves columns out where there is less.

use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Sparkline, Table, TableState, Wrap};
use weir_forensics::names::tail;

use super::words;
use crate::ascii;
use crate::watch::{Gpu, Job, Life, Show, Watch, clean};

/// Lines of the table of jobs at most.
const MOST_ROWS: u16 = 8;
/// Columns below which the table has only what one cannot do without.
const NARROW: u16 = 72;

/// What the keys do, and what the screen shows.
const HELP: [(&str, &str); 11] = [
    ("q, Esc", "leave; the jobs go on"),
    ("Up, Down, k, j", "select a job"),
    ("PgUp, PgDn, Space", "scroll the holders"),
    ("s", "sort holders by size or by change"),
    ("a", "show ended jobs, too"),
    ("p", "pause"),
    ("+, -", "look more or less often"),
    ("?, h", "this help"),
    ("TAKEN, LIMIT", "charged bytes; cap or device"),
    ("GROWTH", "steady growth of the last minute"),
    ("bar", "live, pool free, others, free"),
];

/// By what holders are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Bytes,
    Change,
}

/// What is shown, and what the user has chosen.
#[derive(Debug)]
pub(super) struct View {
    pub(super) show: Show,
    pub(super) interval: f64,
    pub(super) paused: bool,
    jobs: Vec<Job>,
    dir: String,
    unreadable: usize,
    /// Process and device of the selected row: it stays selected when rows move.
    chosen: Option<(u32, u8)>,
    order: Order,
    first_holder: usize,
    helping: bool,
    colors: bool,
    table: TableState,
}

/// One line of the table: a job, and one of its devices if it has any.
type Entry<'a> = (&'a Job, Option<&'a Gpu>);

fn entries(jobs: &[Job]) -> Vec<Entry<'_>> {
    let mut entries = Vec::new();
    for job in jobs {
        if job.gpus.is_empty() {
            entries.push((job, None));
        }
        entries.extend(job.gpus.iter().map(|gpu| (job, Some(gpu))));
    }
    entries
}

fn key_of(entry: &Entry<'_>) -> (u32, u8) {
    (entry.0.pid, entry.1.map_or(u8::MAX, |gpu| gpu.device))
}

impl View {
    /// Nothing yet.
    pub(super) fn new(show: Show, interval: f64) -> Self {
        Self {
            show,
            interval,
            paused: false,
            jobs: Vec::new(),
            dir: String::new(),
            unreadable: 0,
            chosen: None,
            order: Order::Bytes,
            first_holder: 0,
            helping: false,
            colors: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
            table: TableState::default(),
        }
    }

    /// Takes what a look has found.
    pub(super) fn take(&mut self, jobs: Vec<Job>, watch: &Watch) {
        self.jobs = jobs;
        self.dir = clean(&watch.dir().to_string_lossy());
        self.unreadable = watch.unreadable().len();
    }

    /// The place of the selected row.
    fn place(&self) -> usize {
        let entries = entries(&self.jobs);
        self.chosen.and_then(|key| entries.iter().position(|entry| key_of(entry) == key)).unwrap_or(0)
    }

    /// Leaves the help, if it is shown.
    pub(super) fn leave_help(&mut self) -> bool {
        std::mem::take(&mut self.helping)
    }

    /// Answers a key; true when a new look is wanted at once.
    pub(super) fn press(&mut self, key: KeyCode) -> bool {
        if self.leave_help() {
            return false;
        }
        match key {
            KeyCode::Char('?' | 'h') => self.helping = true,
            KeyCode::Up | KeyCode::Char('k') => self.choose(self.place().saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.choose(self.place() + 1),
            KeyCode::Home => self.choose(0),
            KeyCode::End => self.choose(usize::MAX),
            KeyCode::PageDown | KeyCode::Char(' ') => self.first_holder = self.first_holder.saturating_add(5),
            KeyCode::PageUp => self.first_holder = self.first_holder.saturating_sub(5),
            KeyCode::Char('s') => {
                self.order = if self.order == Order::Bytes { Order::Change } else { Order::Bytes };
                self.first_holder = 0;
            }
            KeyCode::Char('p') => {
                self.paused = !self.paused;
                return !self.paused;
            }
            KeyCode::Char('a') => {
                self.show = if self.show == Show::All { Show::Living } else { Show::All };
                return true;
            }
            KeyCode::Char('+') => self.interval = (self.interval / 2.0).max(0.1),
            KeyCode::Char('-') => self.interval = (self.interval * 2.0).min(60.0),
            _ => {}
        }
        false
    }

    fn choose(&mut self, place: usize) {
        let entries = entries(&self.jobs);
        let place = place.min(entries.len().saturating_sub(1));
        self.chosen = entries.get(place).map(key_of);
        self.first_holder = 0;
    }

    fn color(&self, color: Color) -> Style {
        if self.colors { Style::new().fg(color) } else { Style::new() }
    }

    /// Draws everything.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        if self.helping {
            self.draw_help(frame);
        } else {
            self.draw_jobs(frame);
        }
        if ascii::only() {
            for cell in &mut frame.buffer_mut().content {
                if !cell.symbol().is_ascii() {
                    let signs: String = cell.symbol().chars().take(1).map(ascii::sign).collect();
                    cell.set_symbol(&signs);
                }
            }
        }
    }

    fn draw_help(&self, frame: &mut Frame<'_>) {
        let [head, text, keys] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
        frame.render_widget(self.head(head.width), head);
        let line =
            |(key, what): (&'static str, &'static str)| Line::from(vec![format!("{key:<18}").bold(), what.into()]);
        frame.render_widget(Paragraph::new(HELP.map(line).to_vec()).wrap(Wrap { trim: false }), text);
        frame.render_widget(Line::from("any key goes back"), keys);
    }

    fn draw_jobs(&mut self, frame: &mut Frame<'_>) {
        let rows = entries(&self.jobs).len() as u16;
        let [head, table, detail, holders, keys] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(rows.clamp(1, MOST_ROWS.max(frame.area().height / 3)) + 1),
            Constraint::Length(7),
            Constraint::Min(0),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(self.head(head.width), head);
        self.draw_table(frame, table);
        let entries = entries(&self.jobs);
        if let Some((job, gpu)) = entries.get(self.place()) {
            self.draw_detail(frame, detail, job, *gpu);
            if let Some(gpu) = gpu {
                self.draw_holders(frame, holders, gpu);
            }
        } else {
            let none =
                format!("No job under weir lives. Start one: weir run -- CMD…\nIts journal would be in {}", self.dir);
            frame.render_widget(Paragraph::new(none), detail);
        }
        frame.render_widget(self.keys(keys.width), keys);
    }

    fn head(&self, width: u16) -> Line<'static> {
        let living = self.jobs.iter().filter(|job| job.life == Life::Alive).count();
        let bad = if self.unreadable == 0 { String::new() } else { format!("  {} unreadable", self.unreadable) };
        let state = if self.paused { "  PAUSED" } else { "" };
        let left = format!("weir top  {living} alive of {} shown{bad}{state}", self.jobs.len());
        let room = usize::from(width).saturating_sub(left.chars().count() + 2);
        let right = tail(&format!("every {} s  {}", (self.interval * 10.0).round() / 10.0, self.dir), room);
        let gap = " ".repeat(usize::from(width).saturating_sub(left.chars().count() + right.chars().count()));
        Line::from(vec![left.bold(), gap.into(), right.into()]).style(Style::new().add_modifier(Modifier::REVERSED))
    }

    fn draw_table(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let entries = entries(&self.jobs);
        let narrow = area.width < NARROW;
        let bar_width = match area.width {
            100.. => 24,
            NARROW.. => 12,
            _ => 6,
        };
        let rows: Vec<Row<'_>> = entries
            .iter()
            .map(|(job, gpu)| {
                let style = match words::life(job) {
                    "OOM" | "killed" => self.color(Color::Red),
                    "waits" | "off" => self.color(Color::Yellow),
                    "ended" => self.color(Color::DarkGray),
                    _ => Style::new(),
                };
                let of = |text: fn(&Gpu) -> String| gpu.map(text).unwrap_or_default();
                let ooms = if job.ooms == 0 { String::new() } else { job.ooms.to_string() };
                let mut cells = vec![
                    Cell::from(job.pid.to_string()),
                    Cell::from(words::life(job)).style(style),
                    Cell::from(of(|gpu| gpu.device.to_string())),
                    Cell::from(gpu.map(|gpu| self.bar(gpu, bar_width)).unwrap_or_default()),
                    Cell::from(Line::from(of(|gpu| words::size(gpu.charged))).right_aligned()),
                ];
                if narrow {
                    return Row::new(cells);
                }
                cells.extend([
                    Cell::from(Line::from(of(|gpu| words::size(gpu.limit()))).right_aligned()),
                    Cell::from(
                        Line::from(of(|gpu| {
                            gpu.growth.map(|rate| format!("+{}/s", words::size(rate as u64))).unwrap_or_default()
                        }))
                        .right_aligned(),
                    ),
                    Cell::from(ooms).style(self.color(Color::Red)),
                    Cell::from(short_command(&job.command, usize::from(area.width))),
                ]);
                Row::new(cells)
            })
            .collect();
        let columns = [
            ("PID", Constraint::Length(7)),
            ("STATE", Constraint::Length(6)),
            ("GPU", Constraint::Length(3)),
            (if narrow { "LIMIT" } else { "OF LIMIT" }, Constraint::Length(bar_width)),
            ("    TAKEN", Constraint::Length(9)),
            ("    LIMIT", Constraint::Length(9)),
            ("      GROWTH", Constraint::Length(12)),
            ("OOM", Constraint::Length(4)),
            ("COMMAND", Constraint::Min(4)),
        ];
        // A narrow screen has the rest below, for the selected job.
        let columns = columns.get(..if narrow { 5 } else { 9 }).unwrap_or_default();
        let widths = columns.iter().map(|(_, width)| *width);
        let header = Row::new(columns.iter().map(|(name, _)| *name)).style(Style::new().add_modifier(Modifier::BOLD));
        let table = Table::new(rows, widths)
            .header(header)
            .column_spacing(1)
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        let place = self.place();
        let chosen = (!entries.is_empty()).then_some(place);
        self.table.select(chosen);
        frame.render_stateful_widget(table, area, &mut self.table);
    }

    /// Live, kept by the pool, others of the group, free: parts of the limit, in `width` cells.
    fn bar(&self, gpu: &Gpu, width: u16) -> Line<'static> {
        let shares = shares(gpu);
        let cells = cells_of(&shares, usize::from(width));
        let looks = [("█", Color::Green), ("▓", Color::Cyan), ("▒", Color::Magenta), ("░", Color::DarkGray)];
        let full = gpu.charged.saturating_add(gpu.by_others) as f64 > gpu.limit() as f64 * 0.9;
        let spans: Vec<Span<'static>> = cells
            .iter()
            .zip(looks)
            .map(|(count, (sign, color))| {
                let color = if full && sign == "█" { Color::Red } else { color };
                Span::styled(sign.repeat(*count), self.color(color))
            })
            .collect();
        Line::from(spans)
    }

    fn draw_detail(&self, frame: &mut Frame<'_>, area: Rect, job: &Job, gpu: Option<&Gpu>) {
        let lines: [Rect; 7] = Layout::vertical([Constraint::Length(1); 7]).areas(area);
        let group = job.group.as_ref().map(|group| format!("  group {group}")).unwrap_or_default();
        let title = format!("pid {}{group}  {}", job.pid, job.command);
        let width = usize::from(area.width);
        frame.render_widget(Line::from(tail(&title, width)).bold(), lines[1]);
        let Some(gpu) = gpu else {
            frame.render_widget(Line::from("It uses no device yet."), lines[2]);
            return;
        };
        let cap = gpu.cap.map_or_else(|| "no cap".into(), |cap| format!("cap {}", words::size(cap)));
        let (total, peak) = (words::size(gpu.total), words::size(gpu.peak));
        let facts = if area.width < NARROW {
            format!("{cap} of {total}  peak {peak}")
        } else {
            format!("GPU {} {} of {total}   {cap}   peak {peak}   {} blocks", gpu.device, gpu.name, gpu.blocks)
        };
        frame.render_widget(Line::from(facts), lines[2]);
        frame.render_widget(self.bar(gpu, area.width), lines[3]);
        let [live, cached, others, free] = shares(gpu);
        let mut parts = vec![format!("█ live {}", words::size(live)), format!("▓ pool free {}", words::size(cached))];
        if others > 0 {
            parts.push(format!("▒ group's others {}", words::size(others)));
        }
        parts.push(format!("░ free {}", words::size(free)));
        parts.extend(gpu.waits_for.map(|bytes| format!("waits for {}", words::size(bytes))));
        if area.width < NARROW {
            parts.remove(1);
        }
        frame.render_widget(Line::from(parts.join("   ")), lines[4]);
        self.draw_history(frame, lines[5], gpu);
        let trouble = job.turned_off.as_ref().map(|reason| format!("weir has turned itself off: {reason}"));
        if let Some(text) = trouble.or_else(|| words::oom(job)) {
            let text: String = text.chars().take(width).collect();
            frame.render_widget(Line::from(text).style(self.color(Color::Red).add_modifier(Modifier::BOLD)), lines[6]);
        }
    }

    fn draw_history(&self, frame: &mut Frame<'_>, area: Rect, gpu: &Gpu) {
        let text = format!("  {}", words::growth(gpu));
        let [label, line, rest] = Layout::horizontal([
            Constraint::Length(11),
            Constraint::Length(30.min(area.width / 3)),
            Constraint::Min(text.chars().count() as u16),
        ])
        .areas(area);
        frame.render_widget(Line::from("last 60 s"), label);
        let data = buckets(&gpu.history, usize::from(line.width));
        let spark = Sparkline::default().data(data).style(self.color(Color::Green));
        frame.render_widget(spark, line);
        frame.render_widget(Line::from(text), rest);
    }

    fn draw_holders(&self, frame: &mut Frame<'_>, area: Rect, gpu: &Gpu) {
        if area.height < 2 {
            return;
        }
        let mut holders: Vec<_> = gpu.holders.iter().collect();
        if self.order == Order::Change {
            holders.sort_by_key(|holder| std::cmp::Reverse(holder.change));
        }
        let room = usize::from(area.height) - 1;
        let first = self.first_holder.min(holders.len().saturating_sub(room));
        let narrow = area.width < NARROW;
        let (blocks, change) = if narrow { (0, 0) } else { (8, 12) };
        let names = usize::from(area.width).saturating_sub(10 + usize::from(blocks + change) + 4);
        let rows = holders.iter().skip(first).take(room).map(|holder| {
            let style = if holder.change > 0 { self.color(Color::Yellow) } else { Style::new() };
            Row::new(vec![
                Cell::from(Line::from(words::size(holder.bytes)).right_aligned()),
                Cell::from(Line::from(holder.blocks.to_string()).right_aligned()),
                Cell::from(Line::from(words::change(holder.change)).right_aligned()).style(style),
                Cell::from(holder.name(names)),
            ])
        });
        let covered = format!("{:>11}", format!("in {}", words::span(gpu.span)));
        let widths =
            [Constraint::Length(10), Constraint::Length(blocks), Constraint::Length(change), Constraint::Min(10)];
        let header = Row::new(vec![
            Cell::from(Line::from("LIVE").right_aligned()),
            Cell::from(Line::from("BLOCKS").right_aligned()),
            Cell::from(Line::from(covered).right_aligned()),
            Cell::from("WHO HOLDS IT"),
        ])
        .style(Style::new().add_modifier(Modifier::BOLD));
        frame.render_widget(Table::new(rows, widths).header(header).column_spacing(1), area);
    }

    fn keys(&self, width: u16) -> Line<'static> {
        let ended = if self.show == Show::All { "living only" } else { "ended too" };
        let order = if self.order == Order::Bytes { "by change" } else { "by size" };
        let pause = if self.paused { "go on" } else { "pause" };
        let keys = [
            ("q", "leave"),
            ("?", "help"),
            ("↑↓", "job"),
            ("s", order),
            ("a", ended),
            ("p", pause),
            ("+-", "speed"),
            ("PgUp/PgDn", "holders"),
        ];
        // Those that fit, the first first.
        let mut room = usize::from(width);
        let keys = keys.into_iter().take_while(|(key, what)| {
            let used = key.chars().count() + what.len() + 1;
            let fits = used <= room;
            room = room.saturating_sub(used + 2);
            fits
        });
        let spans = keys.flat_map(|(key, what)| [key.bold(), format!(" {what}  ").into()]);
        Line::from(spans.collect::<Vec<_>>())
    }
}

/// The parts of the limit: live, kept by the pool, others of the group, free.
fn shares(gpu: &Gpu) -> [u64; 4] {
    let used = gpu.live.saturating_add(gpu.cached).saturating_add(gpu.by_others);
    [gpu.live, gpu.cached, gpu.by_others, gpu.limit().saturating_sub(used)]
}

/// Cells for each share, adding up to `width`; what is not nothing has at least one.
fn cells_of(shares: &[u64; 4], width: usize) -> [usize; 4] {
    let whole: u128 = shares.iter().map(|share| u128::from(*share)).sum();
    let mut cells = [0; 4];
    if whole == 0 || width == 0 {
        return cells;
    }
    for (cell, share) in cells.iter_mut().zip(shares) {
        let exact = (u128::from(*share) * width as u128 / whole) as usize;
        *cell = if *share > 0 { exact.max(1) } else { 0 };
    }
    // The rounding error goes to the largest part, where it shows least.
    while cells.iter().sum::<usize>() > width {
        let Some(largest) = cells.iter_mut().max() else { break };
        *largest -= 1;
    }
    let missing = width - cells.iter().sum::<usize>();
    if let Some(largest) = cells.iter_mut().max() {
        *largest += missing;
    }
    cells
}

/// History as one value for each column: the last known value before the column's end; nothing known is 0.
fn buckets(history: &[(f64, u64)], columns: usize) -> Vec<u64> {
    let column = 60.0 / columns.max(1) as f64;
    (0..columns)
        .map(|place| {
            let until = 60.0 - column * (place + 1) as f64;
            history.iter().rev().find(|(age, _)| *age >= until - 0.001).map_or(0, |(_, bytes)| *bytes)
        })
        .collect()
}

/// The program and its arguments, as `weir list` shows them.
fn short_command(command: &str, most: usize) -> String {
    let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
    weir_forensics::names::short_command(&words).chars().take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_fill_the_bar() {
        for shares in [[1, 0, 0, u64::MAX / 2], [5, 5, 5, 5], [1, 1, 1, 0], [u64::MAX, u64::MAX, 1, 1], [7, 0, 0, 0]] {
            let cells = cells_of(&shares, 20);
            assert_eq!(cells.iter().sum::<usize>(), 20, "{shares:?}");
            for (cell, share) in cells.iter().zip(shares) {
                assert_eq!(*cell > 0, share > 0, "{shares:?} {cells:?}");
            }
        }
        assert_eq!(cells_of(&[0; 4], 20), [0; 4]);
        assert_eq!(cells_of(&[1, 2, 3, 4], 2).iter().sum::<usize>(), 2);
    }

    #[test]
    fn columns_hold_the_last_known_value() {
        assert_eq!(buckets(&[(50.0, 3), (5.0, 9)], 6), [3, 3, 3, 3, 3, 9]);
        assert_eq!(buckets(&[], 2), [0, 0]);
    }

    #[test]
    fn folders_and_interpreters_are_left_out() {
        assert_eq!(short_command("/usr/bin/python3 /home/u/train.py --x=1", 99), "train.py --x=1");
    }
}

//! A month as a self-contained page, and as text for a terminal. The page has no script and loads nothing.

use std::fmt::Write;

use weir_settings::size::human;

use crate::month::{Day, Job, Line, Month};

const STYLE: &str = "\
:root{color-scheme:light dark;--back:#f3f5f8;--card:#fff;--line:#dfe4ea;--text:#1c2430;--soft:#66717f;--alarm:#c4314b;--bar:#3d74b8}\
@media(prefers-color-scheme:dark){:root{--back:#12161c;--card:#1a2029;--line:#2b343f;--text:#e4e9ef;--soft:#93a0af;--alarm:#f0697f;--bar:#5e93d6}}\
*{box-sizing:border-box}body{margin:0;background:var(--back);color:var(--text);font:14px/1.45 system-ui,sans-serif;font-variant-numeric:tabular-nums}\
main{max-width:1200px;margin:0 auto;padding:16px 20px 32px;display:grid;gap:12px}h1{font-size:18px;margin:0}h2{font-size:15px;margin:0 0 8px}\
.card{background:var(--card);border:1px solid var(--line);border-radius:11px;padding:13px 16px;min-width:0;overflow-x:auto}\
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px}.tiles div{display:grid}.tiles b{font-size:20px}\
.soft,.tiles span{color:var(--soft);font-size:12px}.alarm{color:var(--alarm)}\
table{border-collapse:collapse;width:100%}th,td{padding:4px 10px 4px 0;text-align:right;white-space:nowrap;vertical-align:top}\
th{color:var(--soft);font-weight:500;font-size:12px;border-bottom:1px solid var(--line)}.w{text-align:left;white-space:normal;overflow-wrap:anywhere}\
td.bar{width:22%;padding-right:0}td.bar i{display:block;height:10px;margin-top:5px;border-radius:3px;background:var(--bar)}\
svg{display:block;width:100%;height:120px}.all{fill:var(--bar)}.oom{fill:var(--alarm)}";

/// Text that means itself between tags; nothing that steers a terminal or turns the direction of what follows.
fn plain(text: &str) -> String {
    let turns = |c: char| ('\u{202a}'..='\u{202e}').contains(&c) || ('\u{2066}'..='\u{2069}').contains(&c);
    text.chars().map(|c| if c.is_control() || turns(c) { '\u{fffd}' } else { c }).collect()
}

fn html(text: &str) -> String {
    plain(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn hours(hours: f64) -> String {
    if hours < 10.0 { format!("{hours:.1}") } else { count(hours.round() as u64) }
}

/// 1 234 567.
fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole * 100.0 } else { 0.0 }
}

fn place(line: &Line) -> &str {
    if line.line.is_empty() { "(no line known)" } else { &line.line }
}

impl Month {
    /// The page.
    pub(crate) fn page(&self) -> String {
        let title = if self.month == "all" { "all months".to_owned() } else { html(&self.month) };
        let mut page = format!(
            "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
             content=\"width=device-width\"><title>weir: {title}</title><style>{STYLE}</style>\n<main><h1>GPU memory, \
             {title}</h1>\n<section class=\"card tiles\">"
        );
        let lost = share(self.lost.gpu_hours, self.all.gpu_hours);
        for (what, value, note, alarm) in [
            ("Runs", count(self.all.runs), format!("{} users, {} machines", count(self.users), count(self.hosts)), ""),
            ("GPU-hours", hours(self.all.gpu_hours), "each GPU of a run, while it ran".into(), ""),
            (
                "Out of memory",
                count(self.lost.runs),
                format!("{} more went on and ended well", count(self.recovered)),
                "alarm",
            ),
            ("GPU-hours lost", hours(self.lost.gpu_hours), format!("{lost:.1} % of all"), "alarm"),
        ] {
            let _ = write!(page, "<div><span>{what}</span><b class=\"{alarm}\">{value}</b><span>{note}</span></div>");
        }
        page += "</section>\n";
        page += &days(&self.days);
        self.write_causes(&mut page);
        self.write_lines(&mut page);
        self.write_jobs(&mut page);
        for file in &self.unreadable {
            let _ = writeln!(page, "<p class=\"alarm\">not read: {}</p>", html(file));
        }
        page + "<p class=\"soft\">GPU-hours lost are those of runs that ran out of memory and did not end well. What is advised \
                is the highest peak of a job's runs, a tenth more, rounded up to 256 MiB; jobs with a run that ran out get \
                none.</p>\n</main></html>\n"
    }

    fn write_causes(&self, page: &mut String) {
        let most = self.causes.iter().map(|cause| cause.lost.runs).max().unwrap_or(0) as f64;
        *page += "<section class=\"card\" id=\"causes\"><h2>Why memory ran out</h2><table><tr><th class=\"w\">Cause</th>\
                  <th>Runs</th><th>GPU-hours lost</th><th></th></tr>\n";
        for cause in &self.causes {
            let _ = writeln!(
                page,
                "<tr><td class=\"w\">{}</td><td>{}</td><td>{}</td><td class=\"bar\"><i style=\"width:{:.1}%\"></i></td></tr>",
                html(&cause.cause.replace('_', " ")),
                count(cause.lost.runs),
                hours(cause.lost.gpu_hours),
                share(cause.lost.runs as f64, most)
            );
        }
        *page += "</table></section>\n";
    }

    fn write_lines(&self, page: &mut String) {
        *page += "<section class=\"card\" id=\"lines\"><h2>At which lines</h2><table><tr><th class=\"w\">Line</th><th \
                  class=\"w\">Operation</th><th class=\"w\">Cause</th><th>Runs</th><th>GPU-hours lost</th><th class=\"w\">Jobs</th>\
                  <th class=\"w\">Advised</th></tr>\n";
        for line in &self.lines {
            let jobs: Vec<&str> = line.jobs.iter().map(String::as_str).collect();
            let _ = writeln!(
                page,
                "<tr><td class=\"w\">{}</td><td class=\"w\">{}</td><td class=\"w\">{}</td><td>{}</td><td>{}</td><td \
                 class=\"w\">{}</td><td class=\"w\">{}</td></tr>",
                html(place(line)),
                html(&line.op),
                html(&line.cause.replace('_', " ")),
                count(line.lost.runs),
                hours(line.lost.gpu_hours),
                html(&jobs.join(", ")),
                html(&line.remedy)
            );
        }
        *page += "</table></section>\n";
    }

    fn write_jobs(&self, page: &mut String) {
        *page += "<section class=\"card\" id=\"jobs\"><h2>What caps leave unused</h2><table><tr><th class=\"w\">Job</th>\
                  <th>Runs</th><th>Out of memory</th><th>GPU-hours</th><th>Limit</th><th>Highest peak</th><th>Advised</th>\
                  <th>GiB-hours unused</th></tr>\n";
        for job in &self.jobs {
            let _ = writeln!(
                page,
                "<tr><td class=\"w\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                html(&job.name),
                count(job.all.runs),
                count(job.oom),
                hours(job.all.gpu_hours),
                human(job.limit),
                human(job.peak),
                advised(job),
                hours(job.spare)
            );
        }
        *page += "</table></section>\n";
    }

    /// The same for a terminal.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "{}: {} runs of {} users on {} machines, {} GPU-hours\n{} ran out of memory, {} GPU-hours lost ({:.1} %); {} more \
             were refused memory and ended well\n",
            self.month,
            count(self.all.runs),
            count(self.users),
            count(self.hosts),
            hours(self.all.gpu_hours),
            count(self.lost.runs),
            hours(self.lost.gpu_hours),
            share(self.lost.gpu_hours, self.all.gpu_hours),
            count(self.recovered)
        );
        if !self.causes.is_empty() {
            text += "\n     RUNS  HOURS LOST  CAUSE\n";
        }
        for cause in &self.causes {
            let (runs, lost) = (count(cause.lost.runs), hours(cause.lost.gpu_hours));
            let _ = writeln!(text, "{runs:>9}  {lost:>10}  {}", plain(&cause.cause.replace('_', " ")));
        }
        if !self.lines.is_empty() {
            text += "\n     RUNS  HOURS LOST  LINE, OPERATION\n";
        }
        for line in self.lines.iter().take(10) {
            let (runs, lost) = (count(line.lost.runs), hours(line.lost.gpu_hours));
            let op = if line.op.is_empty() { String::new() } else { format!("  {}", plain(&line.op)) };
            let _ = writeln!(text, "{runs:>9}  {lost:>10}  {}{op}", plain(place(line)));
        }
        text += "\n     RUNS     LIMIT      PEAK   ADVISED  GiB-HOURS UNUSED  JOB\n";
        for job in self.jobs.iter().take(10) {
            let _ = writeln!(
                text,
                "{:>9} {:>9} {:>9} {:>9}  {:>16}  {}",
                count(job.all.runs),
                human(job.limit),
                human(job.peak),
                advised(job),
                hours(job.spare),
                plain(&job.name)
            );
        }
        for file in &self.unreadable {
            let _ = writeln!(text, "not read: {}", plain(file));
        }
        text
    }
}

fn advised(job: &Job) -> String {
    if job.advised < job.limit { human(job.advised) } else { "-".into() }
}

/// Runs by day, those that ran out in front.
fn days(days: &[Day]) -> String {
    let most = days.iter().map(|day| day.runs).max().unwrap_or(0).max(1) as f64;
    let width = 1000.0 / days.len().max(1) as f64;
    let mut page = String::from(
        "<section class=\"card\" id=\"days\"><h2>Runs by day</h2><svg viewBox=\"0 0 1000 100\" preserveAspectRatio=\"none\" \
         role=\"img\" aria-label=\"Runs by day\">",
    );
    for (place, day) in days.iter().enumerate() {
        for (class, number) in [("all", day.runs), ("oom", day.oom)] {
            let height = number as f64 / most * 100.0;
            let _ = write!(
                page,
                "<rect class=\"{class}\" x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{height:.2}\"><title>{}: {} runs, {} out \
                 of memory</title></rect>",
                place as f64 * width,
                100.0 - height,
                width * 0.8,
                day.day,
                count(day.runs),
                count(day.oom)
            );
        }
    }
    let ends = match days {
        [] => String::new(),
        [one] => one.day.clone(),
        [first, .., last] => format!("{} to {}", first.day, last.day),
    };
    let _ = writeln!(page, "</svg><p class=\"soft\">{ends}; at most {} runs a day</p></section>", count(most as u64));
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_job_is_called_is_text() {
        assert_eq!(html("<b>\"&\u{1b}[2J\u{202e}"), "&lt;b&gt;&quot;&amp;\u{fffd}[2J\u{fffd}");
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
    }
}

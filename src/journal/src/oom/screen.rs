//! The report of an out-of-memory as one screen of text.

use std::fmt::Write as _;

use weir_settings::size::human;

use super::{Cause, OomReport};
use crate::event::Class;
use crate::text;
use crate::writer::Journal;

impl Journal {
    pub(super) fn text_of_report(&self, report: &OomReport, json: Option<&str>) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_text(&mut text, report, json);
        text
    }

    fn write_text(&self, to: &mut String, report: &OomReport, json: Option<&str>) -> std::fmt::Result {
        let now = &report.situation;
        writeln!(to, "weir: GPU OUT OF MEMORY   pid {}   GPU {}", report.pid, report.device)?;
        let who = [report.op.as_str(), last_part(&report.python)];
        let who: Vec<_> = who.into_iter().filter(|text| !text.is_empty()).map(|text| shortened(text, 60)).collect();
        writeln!(to, "Requested {:>10}   {}", human(report.requested), who.join("   "))?;
        let why = match report.cause {
            Cause::Cap => format!("the cap is reached: {} of {} charged", human(now.charged), human(now.cap)),
            Cause::Fragmentation => format!(
                "free memory is in pieces: {} free in the pool, largest range {}",
                human(now.pool_free),
                human(now.pool_largest)
            ),
            Cause::FreedTooLate => {
                format!("{} freed memory may still be in use by the device", human(now.pool_deferred))
            }
            Cause::DeviceFull if report.requested > now.device_total => {
                format!("the request is larger than the device, which has {}", human(now.device_total))
            }
            Cause::DeviceFull => {
                format!("the device is full: {} of {} free", human(now.device_free), human(now.device_total))
            }
            Cause::Unknown if report.class == Class::Tensor => {
                "TensorFlow's own allocator found no room in the regions that it holds".to_owned()
            }
            Cause::Unknown => "the driver refused; the numbers do not show why".to_owned(),
        };
        writeln!(to, "Why       {why}")?;
        writeln!(to, "Live      {:>10}   {} blocks", human(report.live_bytes), report.live_blocks)?;
        writeln!(
            to,
            "Pool      {:>10} free in {} ranges   {} freed and still in use",
            human(now.pool_free),
            now.pool_holes,
            human(now.pool_deferred)
        )?;
        if now.cap > 0 {
            writeln!(
                to,
                "Cap       {:>10}   {} charged, {} by others",
                human(now.cap),
                human(now.charged),
                human(now.charged_by_others)
            )?;
        }
        writeln!(to, "Host      {:>10} resident   {} pinned", human(now.resident), human(now.pinned))?;
        if !report.holders.is_empty() {
            writeln!(to, "Who holds it")?;
        }
        for (place, holder) in report.holders.iter().enumerate() {
            let op = if holder.op.is_empty() { "(no operation known)" } else { &holder.op };
            let (op, python) = (shortened(op, 40), shortened(last_part(&holder.python), 30));
            writeln!(to, "{:>2} {op:<40} {python:<30} {:>10} {:>7}", place + 1, human(holder.bytes), holder.blocks)?;
        }
        if let Some(json) = json {
            writeln!(to, "More      {}", text::plain(json))?;
        }
        if let Some(path) = self.path() {
            writeln!(to, "          weir report {}", text::plain(&path.to_string_lossy()))?;
        }
        Ok(())
    }
}

/// `file:line in function` without the folders.
fn last_part(place: &str) -> &str {
    place.rsplit('/').next().unwrap_or(place)
}

/// The end of a text, which is more specific than its beginning, in at most `most` characters.
fn shortened(text: &str, most: usize) -> String {
    let text = &*text::plain(text);
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let tail: String = text.chars().skip(count + 1 - most).collect();
    format!("…{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_their_end() {
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("gradient_tape/x/MatMul", 7), "…MatMul");
    }
}

//! Figures of jobs in Prometheus' text format, version 0.0.4, or as JSON.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::totals::Totals;
use crate::watch::{Gpu, Job, Life};

/// Names and their values; names come from jobs, so values are escaped.
type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Figures of one name.
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    samples: Vec<(Vec<(&'static str, String)>, f64)>,
}

/// All figures. What has no value (no cap, no growth) has no sample.
pub(super) struct Page(Vec<Family>);

impl Page {
    /// The figures of these jobs, with so many holders of each.
    pub(super) fn of(jobs: &[Job], totals: &Totals, unreadable: usize, holders: usize) -> Self {
        let mut page = Self(Vec::new());
        page.family("weir_jobs", "gauge", "Jobs by whether they live.");
        for (name, life) in
            [("alive", Life::Alive), ("unknown", Life::Unknown), ("ended", Life::Ended), ("killed", Life::Killed)]
        {
            let count = jobs.iter().filter(|job| job.life == life).count();
            page.sample(&vec![("life", name)], count as f64);
        }
        page.family("weir_unreadable_journals", "gauge", "Files named like a journal that cannot be read.");
        page.sample(&vec![], unreadable as f64);
        of_totals(totals, &mut page);
        of_jobs(jobs, &mut page);
        of_gpus(jobs, &mut page);
        of_holders(jobs, holders, &mut page);
        page
    }

    fn family(&mut self, name: &'static str, kind: &'static str, help: &'static str) {
        self.0.push(Family { name, kind, help, samples: Vec::new() });
    }

    /// A figure of the family that was begun last.
    fn sample(&mut self, labels: &Labels<'_>, value: f64) {
        let labels = labels.iter().map(|(label, text)| (*label, (*text).to_owned())).collect();
        if let Some(family) = self.0.last_mut() {
            family.samples.push((labels, value));
        }
    }

    /// In Prometheus' format.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for Family { name, kind, help, samples } in &self.0 {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, value) in samples {
                text.push_str(name);
                for (place, (label, content)) in labels.iter().enumerate() {
                    let _ = write!(text, "{}{label}=\"{}\"", if place == 0 { '{' } else { ',' }, escaped(content));
                }
                if !labels.is_empty() {
                    text.push('}');
                }
                let _ = writeln!(text, " {value}");
            }
        }
        text
    }

    /// The same as JSON.
    pub(super) fn json(&self) -> Value {
        let sample = |(labels, value): &(Vec<(&'static str, String)>, f64)| {
            let labels: Map<String, Value> =
                labels.iter().map(|(label, text)| ((*label).to_owned(), json!(text))).collect();
            json!({"labels": labels, "value": value})
        };
        let family = |family: &Family| {
            let samples: Vec<Value> = family.samples.iter().map(sample).collect();
            json!({"name": family.name, "type": family.kind, "help": family.help, "samples": samples})
        };
        self.0.iter().map(family).collect()
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn of_totals(totals: &Totals, page: &mut Page) {
    page.family("weir_runs_started_total", "counter", "Runs that began since the exporter did.");
    page.sample(&vec![], totals.started as f64);
    page.family("weir_runs_ended_total", "counter", "Runs that ended since the exporter began, by how.");
    for (how, count) in ["ended", "killed"].iter().zip(totals.ended) {
        page.sample(&vec![("life", how)], count as f64);
    }
    page.family(
        "weir_runs_oom_total",
        "counter",
        "Runs in which a request for memory failed since the exporter began.",
    );
    page.sample(&vec![], totals.failed as f64);
    page.family("weir_runs_oom_requests_total", "counter", "Requests for memory of all runs that failed since then.");
    page.sample(&vec![], totals.ooms as f64);
}

fn of_jobs(jobs: &[Job], page: &mut Page) {
    page.family("weir_job_info", "gauge", "What the job is; always 1.");
    for (job, pid) in with_pid(jobs) {
        let text = |value: &'_ Option<String>| value.clone().unwrap_or_default();
        let (group, id, pod) = (text(&job.group), text(&job.scheduler_id), text(&job.pod));
        let labels = vec![
            ("pid", pid.as_str()),
            ("command", &job.command),
            ("group", &group),
            ("user", &job.user),
            ("job_id", &id),
            ("pod", &pod),
        ];
        page.sample(&labels, 1.0);
    }
    type Figure = (&'static str, &'static str, &'static str, fn(&Job) -> f64);
    let figures: [Figure; 5] = [
        ("weir_job_up", "gauge", "1 while the job lives.", |job| {
            f64::from(u8::from(matches!(job.life, Life::Alive | Life::Unknown)))
        }),
        ("weir_job_start_time_seconds", "gauge", "When the recording began, since 1970.", |job| job.started),
        ("weir_events_total", "counter", "Events recorded.", |job| job.events as f64),
        ("weir_oom_total", "counter", "Requests for memory that failed.", |job| job.ooms as f64),
        ("weir_turned_off", "gauge", "1 when weir has disabled itself in the job.", |job| {
            f64::from(u8::from(job.turned_off.is_some()))
        }),
    ];
    for (name, kind, help, value) in figures {
        page.family(name, kind, help);
        for (job, pid) in with_pid(jobs) {
            page.sample(&vec![("pid", &pid)], value(job));
        }
    }
    page.family("weir_last_oom_requested_bytes", "gauge", "Size of the request that failed last, by cause.");
    for (job, pid) in with_pid(jobs) {
        if let Some(oom) = &job.last_oom {
            page.sample(&vec![("pid", &pid), ("cause", &oom.cause)], oom.requested as f64);
        }
    }
}

fn of_gpus(jobs: &[Job], page: &mut Page) {
    type Figure = (&'static str, &'static str, fn(&Gpu) -> Option<f64>);
    let figures: [Figure; 11] = [
        ("weir_gpu_memory_live_bytes", "Memory that the job holds.", |gpu| Some(gpu.live as f64)),
        ("weir_gpu_memory_charged_bytes", "Physical memory that the job has taken.", |gpu| Some(gpu.charged as f64)),
        ("weir_gpu_memory_cached_bytes", "Memory that the pool keeps for the next request.", |gpu| {
            Some(gpu.cached as f64)
        }),
        ("weir_gpu_memory_peak_bytes", "The most physical memory the job ever took.", |gpu| Some(gpu.peak as f64)),
        ("weir_gpu_memory_cap_bytes", "The cap in force.", |gpu| gpu.cap.map(|cap| cap as f64)),
        ("weir_gpu_memory_total_bytes", "Memory of the device.", |gpu| Some(gpu.total as f64)),
        ("weir_gpu_memory_group_bytes", "Memory charged to others of the group.", |gpu| Some(gpu.by_others as f64)),
        ("weir_gpu_blocks", "Allocations that the job holds.", |gpu| Some(gpu.blocks as f64)),
        ("weir_gpu_waiting_bytes", "Memory that the job waits for at its cap.", |gpu| {
            Some(gpu.waits_for.unwrap_or(0) as f64)
        }),
        ("weir_gpu_growth_bytes_per_second", "Growth over the last minute, where there is some.", |gpu| gpu.growth),
        ("weir_gpu_full_in_seconds", "Time until the cap is reached at that growth.", |gpu| gpu.full_in),
    ];
    for (name, help, value) in figures {
        page.family(name, "gauge", help);
        for (job, pid) in with_pid(jobs) {
            for gpu in &job.gpus {
                if let Some(value) = value(gpu) {
                    page.sample(&vec![("pid", &pid), ("gpu", &gpu.uuid)], value);
                }
            }
        }
    }
}

fn of_holders(jobs: &[Job], most: usize, page: &mut Page) {
    page.family("weir_holder_bytes", "gauge", "Memory by operation and line; the largest holders only.");
    for (job, pid) in with_pid(jobs) {
        for gpu in &job.gpus {
            for holder in gpu.holders.iter().take(most) {
                let class = crate::watch::class_name(holder.class);
                let labels = vec![
                    ("pid", pid.as_str()),
                    ("gpu", &gpu.uuid),
                    ("line", &holder.line),
                    ("op", &holder.op),
                    ("class", class),
                ];
                page.sample(&labels, holder.bytes as f64);
            }
        }
    }
}

/// One job a process: a process that has two journals (its first one was removed or replaced) is exported once, as the newer.
fn with_pid(jobs: &[Job]) -> impl Iterator<Item = (&Job, String)> {
    let newest = |job: &&Job| !jobs.iter().any(|other| other.pid == job.pid && other.started > job.started);
    jobs.iter().filter(newest).map(|job| (job, job.pid.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_end_its_label() {
        let mut page = Page(Vec::new());
        page.family("x", "gauge", "A figure.");
        page.sample(&vec![("op", "a\"} 7\n# \\")], 1.5);
        assert_eq!(page.text(), "# HELP x A figure.\n# TYPE x gauge\nx{op=\"a\\\"} 7\\n# \\\\\"} 1.5\n");
        let sample = json!({"labels": {"op": "a\"} 7\n# \\"}, "value": 1.5});
        assert_eq!(page.json(), json!([{"name": "x", "type": "gauge", "help": "A figure.", "samples": [sample]}]));
    }

    #[test]
    fn no_job_is_a_page_too() {
        let text = Page::of(&[], &Totals::default(), 2, 10).text();
        assert!(
            text.contains("weir_jobs{life=\"alive\"} 0\n") && text.contains("weir_unreadable_journals 2\n"),
            "{text}"
        );
    }
}

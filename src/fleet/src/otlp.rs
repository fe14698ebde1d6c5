//! Metrics and out-of-memory records for an OpenTelemetry receiver, by OTLP over HTTP. The figures are those of
//! `weir metrics`, under the names that a receiver turns back into Prometheus' ones; a record has the fields of a row.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::logs::{LogRecord, Logger, LoggerProvider, Severity};
use opentelemetry::metrics::{AsyncInstrument, Meter, MeterProvider};
use opentelemetry::{Key, KeyValue};
use opentelemetry_otlp::{LogExporter, MetricExporter, Protocol, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::{SdkLogger, SdkLoggerProvider};
use opentelemetry_sdk::metrics::{Instrument, PeriodicReader, SdkMeterProvider, Stream};
use serde::Deserialize;
use serde_json::Value;

use crate::row::Row;

/// How long the receiver may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Records that wait for a receiver that does not answer; then the oldest are left out.
const WAITING: usize = 1000;
/// Samples of a family; those beyond are added up as one.
const SAMPLES: usize = 100_000;

/// Figures of one name, as `weir metrics --json` has them.
#[derive(Clone, Debug, Deserialize)]
struct Family {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    help: String,
    samples: Vec<Sample>,
}

#[derive(Clone, Debug, Deserialize)]
struct Sample {
    labels: BTreeMap<String, String>,
    value: f64,
}

/// What `weir metrics` says, a line each.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    /// All figures of now: they are sent.
    Figures(Vec<Family>),
    /// A run that ran out of memory.
    Oom(Box<Row>),
}

type Figures = Arc<Mutex<BTreeMap<String, Vec<Sample>>>>;

/// Sends what comes until it ends.
pub(crate) fn serve(endpoint: &str, lines: impl Iterator<Item = Result<String, String>>) -> Result<(), String> {
    let base = endpoint.trim_end_matches('/');
    let said = |error: &dyn std::fmt::Display| format!("{endpoint}: {error}");
    let metrics = MetricExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(PATIENCE)
        .with_endpoint(format!("{base}/v1/metrics"))
        .build()
        .map_err(|error| said(&error))?;
    let logs = LogExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(PATIENCE)
        .with_endpoint(format!("{base}/v1/logs"))
        .build()
        .map_err(|error| said(&error))?;
    // OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME are read by it.
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut resource = Resource::builder().with_attribute(KeyValue::new("host.name", host.trim().to_owned()));
    let given = |name: &str| std::env::var(name).unwrap_or_default();
    if given("OTEL_SERVICE_NAME").is_empty() && !given("OTEL_RESOURCE_ATTRIBUTES").contains("service.name=") {
        resource = resource.with_service_name("weir");
    }
    let resource = resource.build();
    // They are sent when they come, not by a clock of their own.
    let reader = PeriodicReader::builder(metrics).with_interval(Duration::from_secs(1 << 30)).build();
    let many = |_: &Instrument| Stream::builder().with_cardinality_limit(SAMPLES).build().ok();
    let meters =
        SdkMeterProvider::builder().with_resource(resource.clone()).with_reader(reader).with_view(many).build();
    let loggers = SdkLoggerProvider::builder().with_resource(resource).with_batch_exporter(logs).build();
    let (meter, logger) = (meters.meter("weir"), loggers.logger("weir"));
    let (figures, mut known) = (Figures::default(), BTreeSet::new());
    let mut waiting: VecDeque<Row> = VecDeque::new();
    let mut silent = false;
    for line in lines {
        match serde_json::from_str(&line?).map_err(|error| format!("standard input: {error}"))? {
            Said::Oom(row) => {
                waiting.truncate(WAITING - 1);
                waiting.push_front(*row);
            }
            Said::Figures(families) => {
                for family in &families {
                    if known.insert(family.name.clone()) {
                        observe(&meter, family, &figures);
                    }
                }
                let now = families.into_iter().map(|family| (family.name, family.samples)).collect();
                *figures.lock().unwrap_or_else(PoisonError::into_inner) = now;
                waiting.iter().rev().for_each(|row| emit(&logger, row));
                let sent = [meters.force_flush(), loggers.force_flush()];
                // A record that did not arrive is sent again with the next figures.
                if sent[1].is_ok() {
                    waiting.clear();
                }
                let failed = sent.into_iter().find_map(Result::err);
                if let Some(error) = failed.as_ref().filter(|_| !silent) {
                    let _ =
                        writeln!(io::stderr(), "weir metrics: {endpoint}: {error}; tried again with the next figures");
                }
                silent = failed.is_some();
            }
        }
    }
    let _ = loggers.shutdown();
    let _ = meters.shutdown();
    Ok(())
}

/// `weir_gpu_memory_live_bytes` is `weir.gpu.memory.live` in `By`; `weir_oom_total`, a counter, `weir.oom`.
fn named(family: &Family) -> (String, &'static str) {
    let units = [("_bytes_per_second", "By/s"), ("_bytes", "By"), ("_seconds", "s")];
    let name = family.name.strip_suffix("_total").unwrap_or(&family.name);
    let (name, unit) =
        units.iter().find_map(|(end, unit)| Some((name.strip_suffix(end)?, *unit))).unwrap_or((name, ""));
    (name.replace('_', "."), unit)
}

/// Makes the instrument that shows what the family has at that moment.
fn observe(meter: &Meter, family: &Family, figures: &Figures) {
    let ((name, unit), key, figures) = (named(family), family.name.clone(), figures.clone());
    let callback = move |to: &dyn AsyncInstrument<f64>| {
        let figures = figures.lock().unwrap_or_else(PoisonError::into_inner);
        for sample in figures.get(&key).into_iter().flatten() {
            let labels = sample.labels.iter().filter(|(_, value)| !value.is_empty());
            let labels: Vec<KeyValue> =
                labels.map(|(name, value)| KeyValue::new(Key::from(name.clone()), value.clone())).collect();
            to.observe(sample.value, &labels);
        }
    };
    let help = family.help.clone();
    if family.kind == "counter" {
        let _ =
            meter.f64_observable_counter(name).with_description(help).with_unit(unit).with_callback(callback).build();
    } else {
        let _ = meter.f64_observable_gauge(name).with_description(help).with_unit(unit).with_callback(callback).build();
    }
}

/// An out-of-memory failure as one record: its body is a line to read, its attributes are the columns of the row.
fn emit(logger: &SdkLogger, row: &Row) {
    let mut record = logger.create_log_record();
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    record.set_event_name("weir.oom");
    record.set_severity_number(Severity::Error);
    record.set_severity_text("ERROR");
    let moment = row.ended.and_then(|micros| u64::try_from(micros).ok()).map(Duration::from_micros);
    record.set_timestamp(moment.map_or_else(SystemTime::now, |since| UNIX_EPOCH + since));
    record.set_observed_timestamp(SystemTime::now());
    let place = row.line.as_ref().map(|line| format!(" at {line}")).unwrap_or_default();
    let body =
        format!("out of GPU memory: {}{place} ({}): {}", text(&row.command), text(&row.cause), text(&row.evidence));
    record.set_body(body.into());
    if let Ok(Value::Object(columns)) = serde_json::to_value(row) {
        for (name, value) in columns {
            let name = format!("weir.{name}");
            match value {
                Value::String(text) => record.add_attribute(name, text),
                Value::Number(number) if number.is_i64() => {
                    record.add_attribute(name, number.as_i64().unwrap_or_default());
                }
                Value::Number(number) => record.add_attribute(name, number.as_f64().unwrap_or_default()),
                _ => {}
            }
        }
    }
    logger.emit(record);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_makes_the_old_names_of_the_new_ones() {
        let of = |name: &str| {
            named(&Family { name: name.into(), kind: String::new(), help: String::new(), samples: vec![] })
        };
        assert_eq!(of("weir_gpu_memory_live_bytes"), ("weir.gpu.memory.live".into(), "By"));
        assert_eq!(of("weir_runs_oom_requests_total"), ("weir.runs.oom.requests".into(), ""));
        assert_eq!(of("weir_gpu_growth_bytes_per_second"), ("weir.gpu.growth".into(), "By/s"));
        assert_eq!(of("weir_gpu_full_in_seconds"), ("weir.gpu.full.in".into(), "s"));
    }
}

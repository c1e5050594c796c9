//! Conversion of evidence to OTLP log records, and of metric families to OTLP metrics.

use rankguard_model::{Classification, Entity, EvidenceBody, ProcessExit, Role, Timestamp};
use rankguard_proto::otlp::collector::logs::v1::{LogRecord, SeverityNumber};
use rankguard_proto::otlp::collector::metrics::v1::{
    AggregationTemporality, Gauge, Metric, NumberDataPoint, Sum, metric, number_data_point,
};
use rankguard_proto::otlp::common::v1::{AnyValue, KeyValue, Resource, any_value};

use crate::clock;
use crate::outlets::numbers::{MetricFamily, MetricKind, source};
use crate::pending_evidence::PendingEvidence;

/// Maximum mark fields that become attributes; further ones are counted.
const FIELDS: usize = 32;
/// Maximum context lines in a record's body.
const CONTEXT: usize = 32;

/// Creates a string attribute.
pub(super) fn attribute(key: &str, value: impl Into<String>) -> KeyValue {
    with(key, any_value::Value::StringValue(value.into()))
}

fn with(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
    }
}

/// Returns the resource attributes of all exports, named by OpenTelemetry's conventions.
pub(super) fn resource(node: &str) -> Resource {
    Resource {
        attributes: vec![
            attribute("service.name", "rankguard-agent"),
            attribute("service.version", env!("CARGO_PKG_VERSION")),
            attribute("host.name", node),
        ],
        dropped_attributes_count: 0,
    }
}

fn nanos(at: Timestamp) -> u64 {
    u64::try_from(at.0).unwrap_or(0)
}

/// Converts evidence that has no sequence number yet.
pub(super) fn record(sighting: &PendingEvidence) -> LogRecord {
    let mut attributes = vec![attribute("rankguard.source", source(sighting.source))];
    attributes.extend(about(&sighting.entity));
    if sighting.synthetic {
        attributes.push(with("rankguard.synthetic", any_value::Value::BoolValue(true)));
    }
    let mut dropped = 0;
    if let Some(mark) = sighting.marks.first() {
        dropped = mark.fields.len().saturating_sub(FIELDS);
        attributes.extend(said(mark));
    }
    let severity = severity(sighting);
    LogRecord {
        time_unix_nano: nanos(sighting.at),
        observed_time_unix_nano: nanos(clock::now()),
        severity_number: severity.into(),
        severity_text: severity.as_str_name().trim_start_matches("SEVERITY_NUMBER_").to_owned(),
        body: Some(AnyValue {
            value: Some(any_value::Value::StringValue(text(&sighting.body))),
        }),
        attributes,
        dropped_attributes_count: u32::try_from(dropped).unwrap_or(u32::MAX),
    }
}

fn about(entity: &Entity) -> Vec<KeyValue> {
    let mut attributes = vec![attribute("rankguard.entity", entity.to_string())];
    if let Entity::Rank {
        job, generation, rank, ..
    } = entity
    {
        attributes.extend([
            attribute("rankguard.job", job.to_string()),
            with("rankguard.generation", any_value::Value::IntValue(int(generation.0))),
            with("rankguard.rank", any_value::Value::IntValue(i64::from(rank.0))),
        ]);
    }
    attributes
}

/// Returns the classification as attributes: that of the first mark, as everywhere else.
fn said(mark: &Classification) -> impl Iterator<Item = KeyValue> {
    let own = [
        attribute("rankguard.class", mark.class.to_string()),
        attribute("rankguard.role", format!("{:?}", mark.role).to_lowercase()),
        attribute("rankguard.signature", mark.signature.to_string()),
        with("rankguard.confidence", any_value::Value::DoubleValue(mark.confidence)),
    ];
    let fields = mark.fields.iter().take(FIELDS);
    let fields = fields.map(|(name, value)| attribute(&format!("rankguard.field.{name}"), value.to_owned()));
    own.into_iter().chain(fields)
}

fn severity(sighting: &PendingEvidence) -> SeverityNumber {
    let role = sighting.marks.iter().map(|mark| mark.role).min();
    match (&sighting.body, role) {
        (_, Some(Role::Root)) => SeverityNumber::Error,
        (EvidenceBody::RankExited { exit, .. }, _) if !exit.is_success() => SeverityNumber::Error,
        (_, Some(Role::Cascade | Role::Confirmation))
        | (EvidenceBody::Gap { .. } | EvidenceBody::OrderFailed { .. }, _) => SeverityNumber::Warn,
        _ => SeverityNumber::Info,
    }
}

fn text(body: &EvidenceBody) -> String {
    match body {
        EvidenceBody::Line { text, context, repeats } => {
            let times = if *repeats > 1 {
                format!(" ({repeats} times)")
            } else {
                String::new()
            };
            let below: String = context.iter().take(CONTEXT).map(|line| format!("\n{line}")).collect();
            format!("{text}{times}{below}")
        }
        EvidenceBody::Sample { metric, value, unit } => format!("{metric} is {value} {unit}"),
        EvidenceBody::Gap { what, lost: Some(lost) } => format!("{what} ({lost} lost)"),
        EvidenceBody::Gap { what, lost: None } => what.clone(),
        EvidenceBody::RankStarted { pid, from_standby } => {
            let how = if *from_standby { ", a standby process" } else { "" };
            format!("the rank was started as process {pid}{how}")
        }
        EvidenceBody::RankExited {
            pid,
            exit: ProcessExit::Code(code),
            ..
        } => format!("process {pid} of the rank ended with code {code}"),
        EvidenceBody::RankExited {
            pid,
            exit: ProcessExit::Signal(signal),
            ..
        } => {
            format!("process {pid} of the rank was ended by signal {signal}")
        }
        EvidenceBody::RankExited {
            pid,
            exit: ProcessExit::Left,
            ..
        } => format!("process {pid} of the rank left its generation and waits for another rank"),
        EvidenceBody::FlightDump { dump, left_out } => {
            format!(
                "a flight-recorder dump of {} bytes, {left_out} older operations left out",
                dump.len()
            )
        }
        other => serde_json::to_string(other).unwrap_or_else(|problem| problem.to_string()),
    }
}

/// Converts metric families; counters start at the agent's start.
pub(super) fn metrics(families: Vec<MetricFamily>, started: Timestamp, now: Timestamp) -> Vec<Metric> {
    let metric = |family: MetricFamily| {
        let (name, unit) = named(family.name);
        let counts = family.kind == MetricKind::Counter;
        let points = family.samples.into_iter().map(|sample| NumberDataPoint {
            attributes: sample
                .labels
                .into_iter()
                .map(|(name, value)| attribute(name, value))
                .collect(),
            start_time_unix_nano: if counts { nanos(started) } else { 0 },
            time_unix_nano: nanos(now),
            value: Some(number_data_point::Value::AsDouble(sample.value)),
        });
        let data_points = points.collect();
        let data = if counts {
            let temporality = AggregationTemporality::Cumulative.into();
            metric::Data::Sum(Sum {
                data_points,
                aggregation_temporality: temporality,
                is_monotonic: true,
            })
        } else {
            metric::Data::Gauge(Gauge { data_points })
        };
        Metric {
            name,
            description: family.help.to_owned(),
            unit: unit.to_owned(),
            data: Some(data),
        }
    };
    families.into_iter().map(metric).collect()
}

/// Converts a Prometheus name and unit: `spool_bytes` becomes `rankguard.agent.spool` in `By`, because OTLP names have
/// no units.
fn named(name: &str) -> (String, &'static str) {
    let units = [("_seconds", "s"), ("_bytes", "By"), ("_total", "1")];
    let found = units
        .iter()
        .find_map(|(end, unit)| Some((name.strip_suffix(end)?, *unit)));
    let (bare, unit) = found.unwrap_or((name, "1"));
    (format!("rankguard.agent.{bare}"), unit)
}

fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use rankguard_model::{EvidenceSource, NodeId};

    use super::*;
    use crate::collectors::testing::rank;
    use crate::pending_evidence::mark;
    use crate::roster::RankRoster;

    fn values(record: &LogRecord) -> Vec<(&str, String)> {
        let value = |it: &KeyValue| match it.value.clone().unwrap().value.unwrap() {
            any_value::Value::StringValue(text) => text,
            any_value::Value::IntValue(number) => number.to_string(),
            any_value::Value::DoubleValue(number) => number.to_string(),
            any_value::Value::BoolValue(yes) => yes.to_string(),
        };
        record
            .attributes
            .iter()
            .map(|it| (it.key.as_str(), value(it)))
            .collect()
    }

    #[test]
    fn a_finding_becomes_an_error_with_whom_and_what_it_speaks_of() {
        let entity = RankRoster::new(NodeId::from("a")).entity(&rank(3));
        let line = EvidenceBody::Line {
            text: "CUDA error".to_owned(),
            context: vec!["below".to_owned()],
            repeats: 2,
        };
        let mut says = mark("gpu-out-of-memory", Role::Root, 0.9, "cuda-oom");
        says.fields = (0..40)
            .map(|number| (format!("f{number:02}"), number.to_string()))
            .collect();
        let sighting = PendingEvidence::now(EvidenceSource::JobLog, entity, line)
            .at(Timestamp(17))
            .marked(vec![says])
            .synthetic(true);
        let record = record(&sighting);
        assert_eq!((record.time_unix_nano, record.severity_text.as_str()), (17, "ERROR"));
        assert_eq!(record.severity_number, 17);
        assert_eq!(record.dropped_attributes_count, 8);
        assert!(
            format!("{:?}", record.body).contains("CUDA error (2 times)\\nbelow"),
            "{record:?}"
        );
        let values = values(&record);
        for wanted in [
            ("rankguard.source", "job-log"),
            ("rankguard.job", "llm"),
            ("rankguard.rank", "3"),
            ("rankguard.class", "gpu-out-of-memory"),
            ("rankguard.role", "root"),
            ("rankguard.confidence", "0.9"),
            ("rankguard.field.f31", "31"),
            ("rankguard.synthetic", "true"),
        ] {
            assert!(
                values.contains(&(wanted.0, wanted.1.to_owned())),
                "{wanted:?} is not in {values:?}"
            );
        }
    }

    #[test]
    fn units_are_no_part_of_names_and_counters_count_from_the_start() {
        assert_eq!(
            named("spool_limit_bytes"),
            ("rankguard.agent.spool_limit".to_owned(), "By")
        );
        assert_eq!(named("gaps_total"), ("rankguard.agent.gaps".to_owned(), "1"));
        let family = |kind| MetricFamily {
            name: "x",
            kind,
            help: "X.",
            samples: Vec::new(),
        };
        let metrics = metrics(
            vec![family(MetricKind::Counter), family(MetricKind::Gauge)],
            Timestamp(1),
            Timestamp(2),
        );
        assert!(
            matches!(&metrics[0].data, Some(metric::Data::Sum(sum)) if sum.is_monotonic && sum.aggregation_temporality == 2)
        );
        assert!(matches!(&metrics[1].data, Some(metric::Data::Gauge(_))));
    }
}

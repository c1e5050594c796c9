//! Metrics of the agent itself: its version, catalogue, evidence, exports and identity.

use rankguard_model::{EvidenceSource, Timestamp};

use super::{MetricFamily, counter, gauge, label, one, seconds, source};
use crate::views::AgentView;

pub(super) fn families(view: &AgentView) -> Vec<MetricFamily> {
    let all = [own(view), evidence(view), exports(view), identity(view)];
    all.into_iter().flatten().collect()
}

fn own(view: &AgentView) -> Vec<MetricFamily> {
    let agent = vec![("node", view.node.to_string()), ("version", view.version.clone())];
    let age = |last: Timestamp| view.now.0.saturating_sub(last.0).max(0) as f64 / 1e9;
    let looks = view.collectors.iter();
    vec![
        gauge("info", "The agent of this node; always 1.", [(agent, 1.0)]),
        gauge(
            "start_time_seconds",
            "When the agent started, Unix time.",
            one(seconds(view.started)),
        ),
        gauge(
            "catalogue_info",
            "The catalogue that lines are tried against; always 1.",
            [(label("version", &view.catalogue.version), 1.0)],
        ),
        gauge(
            "catalogue_signatures",
            "Signatures of that catalogue.",
            one(view.catalogue.signatures as f64),
        ),
        gauge(
            "catalogue_loaded_timestamp_seconds",
            "When that catalogue was read, Unix time.",
            one(seconds(view.catalogue.loaded)),
        ),
        counter(
            "catalogue_refused_total",
            "Reloads of the catalogue that were refused; the one before stayed in force.",
            one(view.catalogue.refused as f64),
        ),
        gauge(
            "uplink_connected",
            "Whether there is a session with the controller.",
            one(f64::from(u8::from(view.uplink.connected))),
        ),
        gauge(
            "collector_last_look_age_seconds",
            "Since when a collector has not ended a look.",
            looks.map(|it| (label("collector", &it.collector), age(it.last_look))),
        ),
    ]
}

fn evidence(view: &AgentView) -> Vec<MetricFamily> {
    let of = |from: &EvidenceSource| label("source", source(*from));
    let edges = [
        ("durable", view.spool.last),
        ("sent", view.spool.sent),
        ("acknowledged", view.spool.acknowledged),
    ];
    vec![
        counter(
            "evidence_total",
            "Pieces of evidence by who saw them.",
            view.evidence.iter().map(|(from, count)| (of(from), *count as f64)),
        ),
        counter(
            "gaps_total",
            "Times that something could not be seen.",
            view.gaps.iter().map(|(from, gap)| (of(from), gap.count as f64)),
        ),
        counter(
            "lost_records_total",
            "Records that were lost before they could be read.",
            view.gaps.iter().map(|(from, gap)| (of(from), gap.lost as f64)),
        ),
        counter(
            "dropped_total",
            "Pieces of evidence dropped before the spool.",
            one(view.dropped as f64),
        ),
        gauge(
            "spool_bytes",
            "Bytes of evidence on disk.",
            one(view.spool.bytes as f64),
        ),
        gauge(
            "spool_limit_bytes",
            "Bytes from which on samples and progress go first.",
            one(view.spool.limit_bytes as f64),
        ),
        gauge(
            "spool_sequence",
            "Newest number of evidence at each edge.",
            edges.map(|(edge, number)| (label("edge", edge), number as f64)),
        ),
    ]
}

/// Returns no families unless OTLP export is enabled.
fn exports(view: &AgentView) -> Vec<MetricFamily> {
    let Some(otlp) = &view.otlp else { return Vec::new() };
    let fates = [
        ("sent", otlp.sent),
        ("rejected", otlp.rejected),
        ("dropped", otlp.dropped),
    ];
    vec![
        counter(
            "otlp_records_total",
            "Log records for OTLP by what became of them.",
            fates.map(|(fate, count)| (label("fate", fate), count as f64)),
        ),
        counter(
            "otlp_failures_total",
            "Exports by OTLP that failed, each try.",
            one(otlp.failures as f64),
        ),
    ]
}

/// Returns no families unless the agent has an identity.
fn identity(view: &AgentView) -> Vec<MetricFamily> {
    let Some(identity) = &view.identity else {
        return Vec::new();
    };
    let refusals = identity.refusals.iter();
    vec![
        gauge(
            "identity_valid_seconds",
            "How long the certificate is still valid; negative once it has ended.",
            one(seconds(identity.valid_until) - seconds(view.now)),
        ),
        counter(
            "identity_files_refused_total",
            "Changed files of the identity that could not be used; the ones before stayed in force.",
            one(identity.refused_files as f64),
        ),
        counter(
            "connections_refused_total",
            "Connections and calls of others that were refused, by reason.",
            refusals.map(|(why, count)| (label("why", why), *count as f64)),
        ),
    ]
}

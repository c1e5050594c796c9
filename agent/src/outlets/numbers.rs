//! A view as numbers, in families of samples that differ in their labels: the same for every way in which they leave.

use rankguard_model::{Source, Timestamp};

use super::view::{AgentView, CodeView, MigView, RankView, RoomView, SeriesView};

/// Samples of one meaning.
#[derive(Debug, PartialEq)]
pub(super) struct Family {
    /// In the style of Prometheus, with the unit: `spool_bytes`, `gaps_total`.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
    pub(super) samples: Vec<Sample>,
}

/// How a number moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It grows, from 0 at the agent's start.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// One number.
#[derive(Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) labels: Labels,
    pub(super) value: f64,
}

/// Name and value of each label.
type Labels = Vec<(&'static str, String)>;

fn counter(name: &'static str, help: &'static str, samples: impl IntoIterator<Item = (Labels, f64)>) -> Family {
    family(name, Kind::Counter, help, samples)
}

fn gauge(name: &'static str, help: &'static str, samples: impl IntoIterator<Item = (Labels, f64)>) -> Family {
    family(name, Kind::Gauge, help, samples)
}

fn family(
    name: &'static str,
    kind: Kind,
    help: &'static str,
    samples: impl IntoIterator<Item = (Labels, f64)>,
) -> Family {
    let samples = samples.into_iter().map(|(labels, value)| Sample { labels, value });
    Family {
        name,
        kind,
        help,
        samples: samples.collect(),
    }
}

/// The only sample of its family.
fn one(value: f64) -> [(Labels, f64); 1] {
    [(Labels::new(), value)]
}

fn label(name: &'static str, value: impl ToString) -> Labels {
    vec![(name, value.to_string())]
}

fn seconds(at: Timestamp) -> f64 {
    at.0 as f64 / 1e9
}

/// All numbers of an agent.
pub(super) fn families(view: &AgentView) -> Vec<Family> {
    let mut all = own(view);
    all.extend(findings(view));
    all.extend(evidence(view));
    all.extend(ranks(view));
    all.extend(rooms(view));
    all.extend(parts(view));
    all.extend(checks(view));
    all.extend(exports(view));
    all.extend(identity(view));
    all
}

fn own(view: &AgentView) -> Vec<Family> {
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

fn findings(view: &AgentView) -> Vec<Family> {
    let series = |value: fn(&SeriesView) -> f64| {
        view.series.iter().map(move |it| {
            let mut labels = vec![("class", it.class.clone()), ("role", it.role.clone())];
            labels.extend(about(&it.kind, &it.entity, it.synthetic));
            (labels, value(it))
        })
    };
    let code = |it: &CodeView| {
        let mut labels = vec![("family", it.family.clone()), ("code", it.code.clone())];
        labels.extend(about(&it.kind, &it.entity, it.synthetic));
        (labels, it.count as f64)
    };
    let injections = view.injections.iter();
    vec![
        counter(
            "findings_total",
            "Evidence that names a failure class.",
            series(|it| it.count as f64),
        ),
        gauge(
            "finding_last_timestamp_seconds",
            "When evidence of this class was last seen, Unix time.",
            series(|it| seconds(it.last)),
        ),
        counter(
            "codes_total",
            "Evidence that names a number of a driver.",
            view.codes.iter().map(code),
        ),
        counter(
            "injections_total",
            "Faults that somebody let happen.",
            injections.map(|(kind, count)| (label("kind", kind), *count as f64)),
        ),
        counter(
            "findings_beyond_limit_total",
            "Findings without a series of their own, for there are too many.",
            one(view.series_beyond_limit as f64),
        ),
    ]
}

/// What a finding is about.
fn about(kind: &str, entity: &str, synthetic: bool) -> Labels {
    let synthetic = if synthetic { "true" } else { "false" };
    vec![
        ("kind", kind.to_owned()),
        ("entity", entity.to_owned()),
        ("synthetic", synthetic.to_owned()),
    ]
}

fn evidence(view: &AgentView) -> Vec<Family> {
    let of = |from: &Source| label("source", source(*from));
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

fn ranks(view: &AgentView) -> Vec<Family> {
    let of = |it: &RankView| vec![("job", it.rank.job.to_string()), ("rank", it.rank.rank.to_string())];
    let steps = view.ranks.iter().filter_map(|it| Some((of(it), it.step?.0 as f64)));
    vec![
        gauge("rank_step", "Newest step that a rank completed.", steps),
        gauge(
            "rank_generation",
            "Generation of a rank that runs.",
            view.ranks.iter().map(|it| (of(it), it.rank.generation.0 as f64)),
        ),
        gauge(
            "rank_dead_children",
            "Children of a rank that have ended and that it does not wait for.",
            view.ranks.iter().map(|it| (of(it), it.dead_children as f64)),
        ),
        gauge(
            "rank_blocked",
            "Whether a rank, a thread or a child of it is blocked in the kernel for long.",
            view.ranks
                .iter()
                .map(|it| (of(it), f64::from(u8::from(it.blocked.is_some())))),
        ),
    ]
}

fn rooms(view: &AgentView) -> Vec<Family> {
    let told = |value: fn(&RoomView) -> f64| {
        let rooms = view.rooms.iter();
        rooms.map(move |it| (label("place", it.place.display()), value(it)))
    };
    vec![
        gauge(
            "filesystem_available_bytes",
            "Room on a file system that is watched, the agent's own among them.",
            told(|it| it.available_bytes as f64),
        ),
        gauge(
            "filesystem_available_ratio",
            "Part of a file system's bytes that is available.",
            told(|it| it.available),
        ),
        gauge(
            "filesystem_inodes_available_ratio",
            "Part of a file system's files that it can hold yet.",
            told(|it| it.inodes_available),
        ),
    ]
}

/// Only where GPUs are cut into parts.
fn parts(view: &AgentView) -> Vec<Family> {
    let parts = &view.mig_devices;
    if parts.is_empty() {
        return Vec::new();
    }
    let of = |it: &MigView| {
        let mut labels = vec![("gpu", it.gpu.clone())];
        labels.extend(about("gpu", &it.address, it.synthetic));
        labels
    };
    let told = |value: fn(&MigView) -> Option<u64>| {
        let told = parts.iter().filter_map(move |it| Some((of(it), value(it)? as f64)));
        told.collect::<Vec<_>>()
    };
    let known = parts.iter().map(|it| {
        let mut labels = of(it);
        labels.push(("uuid", it.uuid.clone().unwrap_or_default()));
        (labels, 1.0)
    });
    vec![
        gauge("mig_info", "A MIG device that there is; always 1.", known),
        gauge(
            "mig_memory_bytes",
            "Memory of a MIG device.",
            told(|it| it.memory_bytes),
        ),
        gauge(
            "mig_memory_used_bytes",
            "Memory of a MIG device that is in use.",
            told(|it| it.memory_used_bytes),
        ),
        gauge(
            "mig_ecc_uncorrected_errors",
            "Uncorrected errors of the caches of a MIG device since the driver was loaded.",
            told(|it| it.ecc_uncorrected),
        ),
        gauge(
            "mig_processes",
            "Processes that compute on a MIG device.",
            told(|it| it.processes),
        ),
    ]
}

fn checks(view: &AgentView) -> Vec<Family> {
    let checks = || view.checks.iter();
    let values = checks().flat_map(|it| {
        let values = it.values.iter();
        values.map(|(name, value)| (vec![("check", it.check.clone()), ("label", name.clone())], *value))
    });
    vec![
        gauge(
            "check_status",
            "Plug-in checks: 0 ok, 1 warning, 2 critical, 3 unknown.",
            checks().map(|it| (label("check", &it.check), f64::from(it.status))),
        ),
        gauge(
            "check_duration_seconds",
            "How long a plug-in check last took.",
            checks().map(|it| (label("check", &it.check), it.took_s)),
        ),
        gauge("check_value", "What a plug-in check told, in its own units.", values),
    ]
}

/// Only where they are switched on.
fn exports(view: &AgentView) -> Vec<Family> {
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

/// Only where there is one.
fn identity(view: &AgentView) -> Vec<Family> {
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

pub(super) fn source(source: Source) -> &'static str {
    match source {
        Source::KernelLog => "kernel-log",
        Source::JobLog => "job-log",
        Source::Launcher => "launcher",
        Source::Scheduler => "scheduler",
        Source::Ranks => "ranks",
        Source::Host => "host",
        Source::Gpu => "gpu",
        Source::Nic => "nic",
        Source::Checkpoint => "checkpoint",
        Source::FlightRecorder => "flight-recorder",
        Source::Agent => "agent",
    }
}

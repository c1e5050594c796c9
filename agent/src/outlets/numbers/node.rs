//! Metrics of the node that the agent watches.

use super::{MetricFamily, MetricLabels, counter, gauge, label, one, seconds};
use crate::views::{AgentView, CodeView, FileSystemView, MigView, RankView, SeriesView, StandbyView};

pub(super) fn families(view: &AgentView) -> Vec<MetricFamily> {
    let all = [
        findings(view),
        host(view),
        rooms(view),
        parts(view),
        ranks(view),
        standbys(view),
        checks(view),
    ];
    all.into_iter().flatten().collect()
}

fn findings(view: &AgentView) -> Vec<MetricFamily> {
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
            "Injected faults.",
            injections.map(|(kind, count)| (label("kind", kind), *count as f64)),
        ),
        counter(
            "findings_beyond_limit_total",
            "Findings without a series of their own, for there are too many.",
            one(view.series_beyond_limit as f64),
        ),
    ]
}

/// Returns the labels of a finding's entity.
fn about(kind: &str, entity: &str, synthetic: bool) -> MetricLabels {
    let synthetic = if synthetic { "true" } else { "false" };
    vec![
        ("kind", kind.to_owned()),
        ("entity", entity.to_owned()),
        ("synthetic", synthetic.to_owned()),
    ]
}

fn standbys(view: &AgentView) -> Vec<MetricFamily> {
    let of = |it: &StandbyView| vec![("job", it.job.to_string())];
    let all = || view.standbys.iter();
    vec![
        gauge(
            "standby_processes",
            "Standby processes of a job that wait to become ranks.",
            all().map(|it| (of(it), it.waiting.len() as f64)),
        ),
        gauge(
            "standby_requested",
            "Standby processes that a job requests for the node.",
            all().map(|it| (of(it), f64::from(it.wanted))),
        ),
        gauge(
            "standby_memory_bytes",
            "Memory of the standby processes that wait; shared memory counts in equal parts.",
            all().map(|it| (of(it), it.memory_bytes as f64)),
        ),
    ]
}

fn ranks(view: &AgentView) -> Vec<MetricFamily> {
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

/// Returns the load of the host.
fn host(view: &AgentView) -> Vec<MetricFamily> {
    let host = &view.host;
    let pressures = host.pressures.iter().map(|it| {
        let labels = vec![("resource", it.resource.clone()), ("who", it.who.clone())];
        (labels, it.percent / 100.0)
    });
    vec![
        gauge(
            "host_memory_available_ratio",
            "Part of the host's memory that is available.",
            host.memory_available.into_iter().flat_map(one),
        ),
        gauge(
            "host_load_per_processor",
            "Runnable threads per processor, over 5 minutes.",
            host.load_per_processor.into_iter().flat_map(one),
        ),
        gauge(
            "host_pressure_ratio",
            "Part of the last 10 s in which some or all tasks waited for a resource.",
            pressures,
        ),
    ]
}

fn rooms(view: &AgentView) -> Vec<MetricFamily> {
    let told = |value: fn(&FileSystemView) -> f64| {
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

/// Returns no families unless the node has MIG devices.
fn parts(view: &AgentView) -> Vec<MetricFamily> {
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

fn checks(view: &AgentView) -> Vec<MetricFamily> {
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
        gauge(
            "check_value",
            "Value reported by a plug-in check, in its own unit.",
            values,
        ),
    ]
}

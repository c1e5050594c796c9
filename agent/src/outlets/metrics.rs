//! A view as numbers, in the text format that Prometheus reads (version 0.0.4).

use std::fmt::Write as _;

use rankguard_model::{Source, Timestamp};

use super::view::AgentView;

/// The content type of the text.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Name and value of each label of one sample.
type Labels<'a> = Vec<(&'static str, &'a str)>;

/// All numbers of an agent.
pub(super) fn render(view: &AgentView) -> String {
    let mut text = Text::default();
    let seconds = |at: Timestamp| at.0 as f64 / 1e9;
    text.family("info", "gauge", "The agent of this node; always 1.");
    text.sample(vec![("node", view.node.as_str()), ("version", &view.version)], 1.0);
    text.family("start_time_seconds", "gauge", "When the agent started, Unix time.");
    text.sample(vec![], seconds(view.started));
    text.family(
        "catalogue_info",
        "gauge",
        "The catalogue that lines are tried against; always 1.",
    );
    text.sample(vec![("version", view.catalogue.version.as_str())], 1.0);
    text.family("catalogue_signatures", "gauge", "Signatures of that catalogue.");
    text.sample(vec![], view.catalogue.signatures as f64);
    text.family(
        "catalogue_loaded_timestamp_seconds",
        "gauge",
        "When that catalogue was read, Unix time.",
    );
    text.sample(vec![], seconds(view.catalogue.loaded));
    text.family(
        "catalogue_refused_total",
        "counter",
        "Reloads of the catalogue that were refused; the one before stayed in force.",
    );
    text.sample(vec![], view.catalogue.refused as f64);
    text.family("findings_total", "counter", "Evidence that names a failure class.");
    let told = |synthetic: bool| if synthetic { "true" } else { "false" };
    let series = |it: &super::view::SeriesView| {
        let own = it.clone();
        move |text: &mut Text, value: f64| {
            let labels = vec![
                ("class", own.class.as_str()),
                ("role", &own.role),
                ("kind", &own.kind),
                ("entity", &own.entity),
                ("synthetic", told(own.synthetic)),
            ];
            text.sample(labels, value);
        }
    };
    for it in &view.series {
        series(it)(&mut text, it.count as f64);
    }
    text.family(
        "finding_last_timestamp_seconds",
        "gauge",
        "When evidence of this class was last seen, Unix time.",
    );
    for it in &view.series {
        series(it)(&mut text, seconds(it.last));
    }
    text.family("codes_total", "counter", "Evidence that names a number of a driver.");
    for it in &view.codes {
        let labels = vec![
            ("family", it.family.as_str()),
            ("code", &it.code),
            ("kind", &it.kind),
            ("entity", &it.entity),
            ("synthetic", told(it.synthetic)),
        ];
        text.sample(labels, it.count as f64);
    }
    text.family("injections_total", "counter", "Faults that somebody let happen.");
    for (kind, count) in &view.injections {
        text.sample(vec![("kind", kind)], *count as f64);
    }
    text.family(
        "findings_beyond_limit_total",
        "counter",
        "Findings without a series of their own, for there are too many.",
    );
    text.sample(vec![], view.series_beyond_limit as f64);
    text.family("evidence_total", "counter", "Pieces of evidence by who saw them.");
    for (collector, count) in &view.evidence {
        text.sample(vec![("source", source(*collector))], *count as f64);
    }
    text.family("gaps_total", "counter", "Times that something could not be seen.");
    for (collector, gap) in &view.gaps {
        text.sample(vec![("source", source(*collector))], gap.count as f64);
    }
    text.family(
        "lost_records_total",
        "counter",
        "Records that were lost before they could be read.",
    );
    for (collector, gap) in &view.gaps {
        text.sample(vec![("source", source(*collector))], gap.lost as f64);
    }
    text.family(
        "dropped_total",
        "counter",
        "Pieces of evidence dropped before the spool.",
    );
    text.sample(vec![], view.dropped as f64);
    text.family("spool_bytes", "gauge", "Bytes of evidence on disk.");
    text.sample(vec![], view.spool.bytes as f64);
    text.family(
        "spool_limit_bytes",
        "gauge",
        "Bytes from which on samples and progress go first.",
    );
    text.sample(vec![], view.spool.limit_bytes as f64);
    text.family("spool_sequence", "gauge", "Newest number of evidence at each edge.");
    let edges = [
        ("durable", view.spool.last),
        ("sent", view.spool.sent),
        ("acknowledged", view.spool.acknowledged),
    ];
    for (edge, number) in edges {
        text.sample(vec![("edge", edge)], number as f64);
    }
    text.family(
        "uplink_connected",
        "gauge",
        "Whether there is a session with the controller.",
    );
    text.sample(vec![], f64::from(u8::from(view.uplink.connected)));
    text.family(
        "collector_last_look_age_seconds",
        "gauge",
        "Since when a collector has not ended a look.",
    );
    for it in &view.collectors {
        let age = view.now.0.saturating_sub(it.last_look.0).max(0) as f64 / 1e9;
        text.sample(vec![("collector", &it.collector)], age);
    }
    text.family("rank_step", "gauge", "Newest step that a rank completed.");
    for it in &view.ranks {
        if let Some(step) = it.step {
            let rank = it.rank.rank.to_string();
            text.sample(vec![("job", it.rank.job.as_str()), ("rank", &rank)], step.0 as f64);
        }
    }
    text.family("rank_generation", "gauge", "Generation of a rank that runs.");
    for it in &view.ranks {
        let rank = it.rank.rank.to_string();
        text.sample(
            vec![("job", it.rank.job.as_str()), ("rank", &rank)],
            it.rank.generation.0 as f64,
        );
    }
    text.family(
        "check_status",
        "gauge",
        "Plug-in checks: 0 ok, 1 warning, 2 critical, 3 unknown.",
    );
    for it in &view.checks {
        text.sample(vec![("check", &it.check)], f64::from(it.status));
    }
    text.family("check_duration_seconds", "gauge", "How long a plug-in check last took.");
    for it in &view.checks {
        text.sample(vec![("check", &it.check)], it.took_s);
    }
    text.family("check_value", "gauge", "What a plug-in check told, in its own units.");
    for it in &view.checks {
        for (label, value) in &it.values {
            text.sample(vec![("check", &it.check), ("label", label)], *value);
        }
    }
    text.lines
}

fn source(source: Source) -> &'static str {
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

/// The text so far; samples belong to the family that was begun last.
#[derive(Default)]
struct Text {
    lines: String,
    name: String,
}

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.name = format!("rankguard_agent_{name}");
        let _ = writeln!(self.lines, "# HELP {} {help}\n# TYPE {} {kind}", self.name, self.name);
    }

    fn sample(&mut self, labels: Labels<'_>, value: f64) {
        self.lines.push_str(&self.name);
        for (at, (label, value)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let _ = write!(self.lines, "{before}{label}=\"{}\"", escaped(value));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.lines, "{end} {value}");
    }
}

/// Names of devices and jobs come from outside.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;

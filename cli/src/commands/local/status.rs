//! `agent status`: state of this node's agent, as a page.

use std::path::PathBuf;

use clap::Args;
use rankguard_agent::{
    AgentView, CatalogueView, CheckView, HostView, InjectionRecord, LeaseView, MigView, RankView, StandbyView,
};
use rankguard_model::{Evidence, EvidenceBody, Timestamp};

use super::agent_view;
use crate::args::{CommonArgs, DocumentFormat, DocumentFormatArgs};
use crate::commands::inject;
use crate::display_text::{count, or_dash, or_empty};
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::out;

#[derive(Debug, Clone, Args)]
pub(crate) struct AgentStatusArgs {
    /// State directory of the agent [setting agent.state_dir]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) format: DocumentFormatArgs,
}

/// Maximum number of findings and injections on the page.
const SHOWN: usize = 10;

/// Runs `agent status`.
pub(in crate::commands) fn status(args: &AgentStatusArgs, common: &CommonArgs) -> Result<CommandExit, CliError> {
    let view = agent_view(args.state_dir.as_deref(), common)?;
    match args.format.format {
        DocumentFormat::Json => out::json(&view),
        DocumentFormat::Jsonl => out::json_line(&view),
        DocumentFormat::Table => out::page(&page(&view)),
    }
    Ok(CommandExit::Fine)
}

fn page(view: &AgentView) -> String {
    let sections = [
        facts(view),
        injections(view),
        collectors(view),
        mig_devices(view),
        ranks(view),
        checks(view),
        findings(view),
    ];
    let sections: Vec<String> = sections.into_iter().filter(|section| !section.is_empty()).collect();
    sections.join("\n")
}

/// Formats the time since `at`, by the agent's clock.
fn since(view: &AgentView, at: Timestamp) -> String {
    format!("{:.1} s", view.now.millis_since(at) as f64 / 1e3)
}

/// A row of the first table.
struct StatusFact(&'static str, String);

const FACTS: &[TableColumn<StatusFact>] = &[("agent", |fact| fact.0.to_owned()), ("", |fact| fact.1.clone())];

fn facts(view: &AgentView) -> String {
    let uplink = &view.uplink;
    let session = match (uplink.connected, &uplink.problem) {
        (true, _) => format!("connected to {} for {}", uplink.controller, since(view, uplink.since)),
        (false, Some(problem)) => format!("not connected to {}: {problem}", uplink.controller),
        (false, None) => "not connected yet".to_owned(),
    };
    let spool = &view.spool;
    let facts = [
        StatusFact("node", view.node.to_string()),
        StatusFact("version", view.version.clone()),
        StatusFact("process", format!("{}, for {}", view.pid, since(view, view.started))),
        StatusFact("controller", session),
        StatusFact("lease", lease(&view.lease)),
        StatusFact(
            "spool",
            format!(
                "{} of {} bytes; last record {} on disk, {} sent, {} acknowledged",
                spool.bytes, spool.limit_bytes, spool.last, spool.sent, spool.acknowledged
            ),
        ),
        StatusFact("dropped", view.dropped.to_string()),
        StatusFact("ranks", rights(view)),
        StatusFact("standby", standbys(view)),
        StatusFact("catalogue", catalogue(&view.catalogue)),
        StatusFact("host", host(&view.host)),
    ];
    let export = view.otlp.iter().map(|otlp| {
        let problem = otlp.problem.as_ref().map(|problem| format!("; {problem}"));
        let state = format!(
            "to {}: {} records sent, {} waiting, {} dropped, {} rejected{}",
            otlp.endpoint,
            otlp.sent,
            otlp.waiting,
            otlp.dropped,
            otlp.rejected,
            problem.unwrap_or_default()
        );
        StatusFact("OTLP", state)
    });
    listing::table(&facts.into_iter().chain(export).collect::<Vec<_>>(), FACTS)
}

/// Formats the lease: how long ranks may run without the controller.
fn lease(view: &LeaseView) -> String {
    let seconds = |millis: u64| millis as f64 / 1e3;
    let state = if view.is_held {
        format!("valid for another {:.1} s", seconds(view.expires_in_ms))
    } else {
        "expired: no ranks may run".to_owned()
    };
    let witnesses: Vec<String> = view.witnesses.iter().map(ToString::to_string).collect();
    let verdict = view
        .verdict
        .iter()
        .map(|verdict| format!("; {verdict}"))
        .collect::<String>();
    format!(
        "{} s, {state}; witnesses: {}{verdict}",
        seconds(view.length_ms),
        or_dash((!witnesses.is_empty()).then(|| witnesses.join(", ")))
    )
}

/// Formats user, control group and lease of ranks.
fn rights(view: &AgentView) -> String {
    let Some(rights) = &view.rank_rights else {
        return "-".to_owned();
    };
    let user = match (&rights.user, rights.are_separate) {
        (Some(user), true) => format!("run as {user}"),
        (Some(user), false) => format!("cannot run as {user}: the agent has no privilege to change users"),
        (None, _) => "run as the agent's own user and can read its key".to_owned(),
    };
    let group = match &rights.cgroup {
        Some(path) => format!("control group {}", path.display()),
        None => "no control group".to_owned(),
    };
    format!(
        "{user}; {group}; ended {} ms after the last contact of the agent",
        rights.lease_ms
    )
}

/// Formats the standby processes of each job.
fn standbys(view: &AgentView) -> String {
    let of_job = |it: &StandbyView| {
        let starting = if it.is_starting {
            ", one imports its modules"
        } else {
            ""
        };
        let problem = it.problem.as_ref().map(|problem| format!("; {problem}"));
        format!(
            "job {}: {} of {} wait{starting}, {} MiB{}",
            it.job,
            it.waiting.len(),
            it.wanted,
            it.memory_bytes >> 20,
            problem.unwrap_or_default()
        )
    };
    let all: Vec<String> = view.standbys.iter().map(of_job).collect();
    or_dash((!all.is_empty()).then(|| all.join("; ")))
}

/// Lists the newest injections; empty if injection is disabled.
fn injections(view: &AgentView) -> String {
    if !view.injection {
        return String::new();
    }
    let newest: Vec<InjectionRecord> = view.newest_injections.iter().rev().take(SHOWN).cloned().collect();
    format!(
        "Fault injection is enabled.\n{}",
        listing::table(&newest, inject::COLUMNS)
    )
}

fn collectors(view: &AgentView) -> String {
    const COLUMNS: &[TableColumn<[String; 4]>] = &[
        ("collector", |row| row[0].clone()),
        ("last poll", |row| row[1].clone()),
        ("next", |row| row[2].clone()),
        ("newest gap", |row| row[3].clone()),
    ];
    let rows = view.collectors.iter().map(|it| {
        // Collectors have the name of the source of their evidence.
        let gap = view
            .gaps
            .iter()
            .find(|(source, _)| serde_json::to_value(source).is_ok_and(|name| name == it.collector));
        [
            it.collector.clone(),
            format!("{} ago", since(view, it.last_look)),
            format!("in {:.1} s", it.next_look.millis_since(view.now) as f64 / 1e3),
            // The gap may have ended since.
            gap.map_or(String::new(), |(_, gap)| {
                format!("{} (x{}, {} ago)", gap.what, gap.count, since(view, gap.at))
            }),
        ]
    });
    listing::table(&rows.collect::<Vec<_>>(), COLUMNS)
}

/// Lists MIG devices; empty if there are none.
fn mig_devices(view: &AgentView) -> String {
    const COLUMNS: &[TableColumn<MigView>] = &[
        ("MIG device", |it| it.address.clone()),
        ("UUID", |it| or_empty(it.uuid.as_ref())),
        ("memory used", |it| or_empty(it.memory_used_bytes)),
        ("of bytes", |it| or_empty(it.memory_bytes)),
        ("ECC errors", |it| or_empty(it.ecc_uncorrected)),
        ("processes", |it| or_empty(it.processes)),
    ];
    if view.mig_devices.is_empty() {
        String::new()
    } else {
        listing::table(&view.mig_devices, COLUMNS)
    }
}

/// Lists running ranks; empty if there are none.
fn ranks(view: &AgentView) -> String {
    const COLUMNS: &[TableColumn<RankView>] = &[
        ("job", |it| it.rank.job.to_string()),
        ("generation", |it| it.rank.generation.to_string()),
        ("rank", |it| it.rank.rank.to_string()),
        ("pid", |it| it.pid.to_string()),
        ("start", |it| if it.from_standby { "standby" } else { "new" }.to_owned()),
        ("step", |it| or_empty(it.step)),
        ("dead children", |it| it.dead_children.to_string()),
        ("blocked", |it| or_empty(it.blocked.as_ref())),
    ];
    if view.ranks.is_empty() {
        String::new()
    } else {
        listing::table(&view.ranks, COLUMNS)
    }
}

/// Lists the results of plug-in checks; empty if there are none.
fn checks(view: &AgentView) -> String {
    const COLUMNS: &[TableColumn<CheckView>] = &[
        ("check", |it| it.check.clone()),
        ("status", |it| {
            let words = ["ok", "warning", "critical"];
            words.get(usize::from(it.status)).unwrap_or(&"unknown").to_string()
        }),
        ("output", |it| it.text.clone()),
        ("took s", |it| format!("{:.2}", it.took_s)),
    ];
    if view.checks.is_empty() {
        String::new()
    } else {
        listing::table(&view.checks, COLUMNS)
    }
}

fn findings(view: &AgentView) -> String {
    let columns: &[TableColumn<&Evidence>] = &[
        ("finding at", |it| it.at.to_string()),
        ("class", |it| or_empty(it.marks.first().map(|mark| &mark.class))),
        ("subject", |it| it.entity.to_string()),
        ("synthetic", |it| if it.synthetic { "yes" } else { "" }.to_owned()),
        ("text", |it| evidence_text(&it.body)),
    ];
    let newest: Vec<&Evidence> = view.findings.iter().rev().take(SHOWN).collect();
    listing::table(&newest, columns)
}

/// Formats the load of the host.
fn host(view: &HostView) -> String {
    let memory = view.memory_available;
    let memory = memory.map(|part| format!("{:.1} % of the memory available", part * 100.0));
    let load = view.load_per_processor;
    let load = load.map(|load| format!("{load:.2} runnable threads per processor"));
    let waits = view.pressures.iter().map(|it| {
        let high = if it.high { " (high)" } else { "" };
        format!(
            "{} tasks waited for {} {:.1} % of 10 s{high}",
            it.who, it.resource, it.percent
        )
    });
    let parts: Vec<String> = memory.into_iter().chain(load).chain(waits).collect();
    or_dash((!parts.is_empty()).then(|| parts.join("; ")))
}

/// Formats the active catalogue, and a later refusal.
fn catalogue(view: &CatalogueView) -> String {
    let CatalogueView {
        version,
        signatures,
        files,
        loaded,
        ..
    } = view;
    let besides = match files.len() {
        0 => String::new(),
        files => format!(" with {} of agent.catalogue", count(files, "file")),
    };
    let mut text = format!("{version}: {signatures} signatures{besides}, loaded at {loaded}");
    if let Some(refusal) = view.newest_refusal.as_ref().filter(|refusal| refusal.at > *loaded) {
        let first = refusal.why.lines().next().unwrap_or_default();
        text.push_str(&format!("; a newer version was rejected at {}: {first}", refusal.at));
    }
    text
}

fn evidence_text(body: &EvidenceBody) -> String {
    match body {
        EvidenceBody::Line { text, repeats: 1, .. } => text.clone(),
        EvidenceBody::Line { text, repeats, .. } => format!("{text} (x{repeats})"),
        EvidenceBody::Sample { metric, value, unit } => format!("{metric} {value} {unit}"),
        EvidenceBody::RankExited { exit, .. } => format!("rank ended: {exit}"),
        EvidenceBody::Gap { what, .. } => what.clone(),
        EvidenceBody::ShardFailed { step, reason } => format!("the shard of step {step} could not be kept: {reason}"),
        EvidenceBody::OrderFailed { reason, .. } => reason.clone(),
        // Other evidence is no finding.
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use rankguard_model::Step;

    use super::*;

    #[test]
    fn findings_are_printed_in_words() {
        let body = EvidenceBody::ShardFailed {
            step: Step(10),
            reason: "no space left on device".to_owned(),
        };
        let wanted = "the shard of step 10 could not be kept: no space left on device";
        assert_eq!(evidence_text(&body), wanted);
        let body = EvidenceBody::Gap {
            what: "the kernel log is not read: switched off".to_owned(),
            lost: None,
        };
        assert_eq!(evidence_text(&body), "the kernel log is not read: switched off");
    }
}

//! The agent of this node, asked without a controller: what it knows, and what its own findings amount to.

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rankguard_agent::{AgentView, CatalogueView, Knowledge, LocalError, ask_agent};
use rankguard_diagnosis::{Change, Concluded, Context, Diagnosis, DraftId, Policy};
use rankguard_faults::Catalogue;
use rankguard_model::{Body, Case, CaseId, CaseState, Delays, Entity, Evidence, Timestamp};

use crate::args::{CommonArgs, Format, FormatArgs};
use crate::config::Flag;
use crate::error::CliError;
use crate::exit::Exit;
use crate::listing::{self, Column, plain};
use crate::out;
use crate::words::or_dash;

/// `agent status`.
#[derive(Debug, Clone, Args)]
pub(crate) struct AgentStatusArgs {
    /// Directory of the agent's own files [setting agent.state_dir]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// How to print; csv is not for so many things
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// How long an agent may take to tell what it remembers.
const DEADLINE: Duration = Duration::from_secs(10);
/// Findings that the page shows.
const SHOWN: usize = 10;

fn ask(state_dir: Option<&Path>, common: &CommonArgs) -> Result<AgentView, CliError> {
    let flag = Flag::of("agent.state_dir", "--state-dir", state_dir);
    let state_dir = common.settings([flag])?.agent().state_dir;
    ask_agent(&state_dir, DEADLINE).map_err(|problem| {
        let hint = match &problem {
            LocalError::Absent { .. } => {
                "is `rankguard agent` running, and with this state directory? --state-dir names another"
            }
            LocalError::Broken { .. } => "only its own user and root may ask it; does it still run?",
            LocalError::Foreign { .. } => "are `rankguard` and the agent of the same version?",
        };
        CliError::failure("the agent of this node was not heard", hint).because(problem)
    })
}

/// `agent status`.
pub(super) fn status(args: &AgentStatusArgs, common: &CommonArgs) -> Result<Exit, CliError> {
    if args.format.format == Format::Csv {
        return Err(CliError::usage(
            "an agent does not fit into csv",
            "--format json gives all of it",
        ));
    }
    let view = ask(args.state_dir.as_deref(), common)?;
    match args.format.format {
        Format::Json => out::json(&view),
        Format::Jsonl => out::json_line(&view),
        Format::Table | Format::Csv => out::text(&page(&view)),
    }
    Ok(Exit::Fine)
}

/// A line of the first table.
struct Fact(&'static str, String);

const FACTS: &[Column<Fact>] = &[("agent", |fact| fact.0.to_owned()), ("", |fact| fact.1.clone())];

fn page(view: &AgentView) -> String {
    let since = |at: Timestamp| format!("{:.1} s", view.now.millis_since(at) as f64 / 1e3);
    let uplink = &view.uplink;
    let session = match (uplink.connected, &uplink.problem) {
        (true, _) => format!("connected to {} for {}", uplink.controller, since(uplink.since)),
        (false, Some(problem)) => format!("not connected to {}: {problem}", uplink.controller),
        (false, None) => "not connected yet".to_owned(),
    };
    let spool = &view.spool;
    let facts = [
        Fact("node", view.node.to_string()),
        Fact("version", view.version.clone()),
        Fact("process", format!("{}, for {}", view.pid, since(view.started))),
        Fact("controller", session),
        Fact(
            "spool",
            format!(
                "{} of {} bytes; number {} on disk, {} sent, {} acknowledged",
                spool.bytes, spool.limit_bytes, spool.last, spool.sent, spool.acknowledged
            ),
        ),
        Fact("dropped", view.dropped.to_string()),
        Fact("catalogue", catalogue(&view.catalogue)),
    ];
    let export = view.otlp.iter().map(|otlp| {
        let problem = otlp.problem.as_ref().map(|problem| format!("; {problem}"));
        let told = format!(
            "to {}: {} records sent, {} wait, {} dropped, {} rejected{}",
            otlp.endpoint,
            otlp.sent,
            otlp.waiting,
            otlp.dropped,
            otlp.rejected,
            problem.unwrap_or_default()
        );
        Fact("OTLP", told)
    });
    let facts: Vec<Fact> = facts.into_iter().chain(export).collect();
    let mut text = listing::table(&facts, FACTS);
    if view.injection {
        let column: &[Column<rankguard_agent::Injected>] = &[
            ("injection", |it| it.number.to_string()),
            ("kind", |it| it.kind.clone()),
            ("what", |it| it.what.clone()),
            ("at", |it| it.at.to_string()),
            ("until", |it| or_dash(it.until)),
        ];
        text.push_str("\nFaults may be injected here.\n");
        let newest = view.newest_injections.iter().rev().take(SHOWN).cloned();
        text.push_str(&listing::table(&newest.collect::<Vec<_>>(), column));
    }
    let collectors: Vec<Vec<String>> = view
        .collectors
        .iter()
        .map(|it| {
            // Collectors are named as the source of what they see.
            let gap = view
                .gaps
                .iter()
                .find(|(source, _)| serde_json::to_value(source).is_ok_and(|name| name == it.collector));
            vec![
                it.collector.clone(),
                format!("{} ago", since(it.last_look)),
                format!("in {:.1} s", it.next_look.millis_since(view.now) as f64 / 1e3),
                gap.map_or("-".to_owned(), |(_, gap)| format!("{} (x{})", gap.what, gap.count)),
            ]
        })
        .collect();
    let column: &[Column<Vec<String>>] = &[
        ("collector", |row| row[0].clone()),
        ("last look", |row| row[1].clone()),
        ("next", |row| row[2].clone()),
        ("newest gap", |row| row[3].clone()),
    ];
    text.push('\n');
    text.push_str(&listing::table(&collectors, column));
    if !view.ranks.is_empty() {
        let column: &[Column<rankguard_agent::RankView>] = &[
            ("job", |it| it.rank.job.to_string()),
            ("generation", |it| it.rank.generation.to_string()),
            ("rank", |it| it.rank.rank.to_string()),
            ("pid", |it| it.pid.to_string()),
            ("step", |it| or_dash(it.step)),
        ];
        text.push('\n');
        text.push_str(&listing::table(&view.ranks, column));
    }
    if !view.checks.is_empty() {
        let column: &[Column<rankguard_agent::CheckView>] = &[
            ("check", |it| it.check.clone()),
            ("status", |it| {
                ["ok", "warning", "critical"]
                    .get(usize::from(it.status))
                    .map_or("unknown", |word| word)
                    .to_owned()
            }),
            ("says", |it| it.text.clone()),
            ("took s", |it| format!("{:.2}", it.took_s)),
        ];
        text.push('\n');
        text.push_str(&listing::table(&view.checks, column));
    }
    let newest: Vec<&Evidence> = view.findings.iter().rev().take(SHOWN).collect();
    let column: &[Column<&Evidence>] = &[
        ("finding at", |it| it.at.to_string()),
        ("class", |it| or_dash(it.marks.first().map(|mark| &mark.class))),
        ("about", |it| it.entity.to_string()),
        ("synthetic", |it| if it.synthetic { "yes" } else { "" }.to_owned()),
        ("says", |it| says(&it.body)),
    ];
    text.push('\n');
    text.push_str(&listing::table(&newest, column));
    plain(&text)
}

/// What is in force, and what was refused since.
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
        files => format!(" with {files} of your files"),
    };
    let mut text = format!("{version}: {signatures} signatures{besides}, loaded at {loaded}");
    if let Some(refusal) = view.newest_refusal.as_ref().filter(|refusal| refusal.at > *loaded) {
        let first = refusal.why.lines().next().unwrap_or_default();
        text.push_str(&format!("; a newer one was refused at {}: {first}", refusal.at));
    }
    text
}

fn says(body: &Body) -> String {
    match body {
        Body::Line { text, repeats: 1, .. } => text.clone(),
        Body::Line { text, repeats, .. } => format!("{text} (x{repeats})"),
        Body::Sample { metric, value, unit } => format!("{metric} {value} {unit}"),
        Body::RankExited { exit, .. } => format!("rank ended: {exit}"),
        other => format!("{other:?}"),
    }
}

/// `cases --local`: the newest findings of this node's agent, through the engine that concludes for the controller.
pub(super) fn cases(state_dir: Option<&Path>, common: &CommonArgs) -> Result<Vec<Case>, CliError> {
    let view = ask(state_dir, common)?;
    let knowledge = common.settings([])?.agent().knowledge;
    read_catalogue(&knowledge)?;
    Ok(knowledge.with_catalogue(|catalogue| conclude(&view.findings, view.now, catalogue)))
}

/// Reads the files of `agent.catalogue` as they are now.
pub(super) fn read_catalogue(knowledge: &Knowledge) -> Result<(), CliError> {
    knowledge.reload().map_err(|problem| {
        CliError::usage(
            format!("the catalogue files of this node cannot be used\n{problem}"),
            "the setting agent.catalogue names them; each line names file, line and key",
        )
    })
}

fn conclude(findings: &[Evidence], now: Timestamp, catalogue: &Catalogue) -> Vec<Case> {
    let mut diagnosis = Diagnosis::new(Policy::default());
    let mut context = Context::default();
    let mut cases: BTreeMap<DraftId, (Concluded, CaseState)> = BTreeMap::new();
    let mut clock = Timestamp(i64::MIN);
    for evidence in findings {
        clock = clock.max(evidence.at);
        if let Entity::Rank {
            job,
            generation,
            rank,
            node,
        } = &evidence.entity
        {
            let mut known = context.job(job).cloned().unwrap_or_default();
            if *generation > known.generation {
                known.placements.clear();
                known.generation = *generation;
            }
            known.placements.insert(*rank, node.clone());
            context.set(job.clone(), known);
        }
        while let Some(due) = diagnosis.due().filter(|due| *due <= clock) {
            for done in diagnosis.conclude(due, catalogue) {
                cases.insert(done.draft, (done, CaseState::Closed));
            }
        }
        for change in diagnosis.observe(clock, evidence, &context, catalogue) {
            match change {
                Change::Revised(done) => drop(cases.insert(done.draft, (*done, CaseState::Closed))),
                // What comes late is told by the findings themselves.
                Change::Late { draft, finding } => {
                    if let Some((case, _)) = cases.get_mut(&draft) {
                        case.findings.push(*finding);
                    }
                }
                Change::Opened { .. } | Change::Joined { .. } | Change::Dropped { .. } => {}
            }
        }
    }
    while let Some(due) = diagnosis.due() {
        let state = if due <= now { CaseState::Closed } else { CaseState::Open };
        for done in diagnosis.conclude(due, catalogue) {
            cases.insert(done.draft, (done, state));
        }
    }
    cases
        .into_values()
        .zip(1..)
        .map(|((done, state), number)| case(done, state, CaseId(number)))
        .collect()
}

fn case(done: Concluded, state: CaseState, id: CaseId) -> Case {
    Case {
        id,
        state,
        job: done.job,
        generation: done.generation,
        first_at: done.first_at,
        opened_at: done.first_at,
        closed_at: None,
        verdict: done.verdict,
        findings: done.findings,
        reasoning: done.reasoning,
        plan: None,
        actions: Vec::new(),
        // An agent decides nothing.
        outcome: None,
        clears: done.clears,
        delays: Delays::default(),
        steps_lost: None,
        replayed: false,
    }
}

#[cfg(test)]
mod tests {
    use rankguard_model::{
        ClassId, Device, DeviceKind, EvidenceId, Exit, Generation, JobId, Mark, NodeId, Rank, Role, Sequence, Source,
    };

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn evidence(seq: u64, at: i64, entity: Entity, body: Body, class: Option<&str>) -> Evidence {
        let mark = |class: &str| Mark {
            class: ClassId::from(class),
            role: Role::Root,
            confidence: 0.95,
            signature: "test".to_owned(),
            fields: BTreeMap::new(),
        };
        Evidence {
            id: EvidenceId {
                node: NodeId::from("a"),
                seq: Sequence(seq),
            },
            at: Timestamp(at * SECOND),
            source: if class.is_some() {
                Source::KernelLog
            } else {
                Source::Ranks
            },
            entity,
            body,
            marks: class.map(mark).into_iter().collect(),
            synthetic: false,
        }
    }

    fn lost_gpu_and_dead_rank() -> Vec<Evidence> {
        let gpu = Entity::Device {
            node: NodeId::from("a"),
            device: Device {
                kind: DeviceKind::Gpu,
                address: "0000:9b:00".to_owned(),
            },
        };
        let rank = Entity::Rank {
            job: JobId::from("llm"),
            generation: Generation(1),
            rank: Rank(0),
            node: NodeId::from("a"),
        };
        let line = Body::Line {
            text: "NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.".to_owned(),
            context: Vec::new(),
            repeats: 1,
        };
        let exit = Body::RankExited {
            pid: 7,
            exit: Exit::Signal(6),
        };
        vec![
            evidence(1, 100, gpu, line, Some("gpu-fallen-off-bus")),
            evidence(2, 101, rank, exit, None),
        ]
    }

    #[test]
    fn the_agent_s_own_findings_become_the_case_that_a_controller_would_make() {
        let cases = conclude(
            &lost_gpu_and_dead_rank(),
            Timestamp(1000 * SECOND),
            Catalogue::builtin(),
        );
        assert!(
            cases
                .iter()
                .any(|case| case.verdict.class.as_str() == "gpu-fallen-off-bus" && case.state == CaseState::Closed),
            "{cases:#?}"
        );
        assert!(
            cases
                .iter()
                .all(|case| case.verdict.blamed.to_string().contains("0000:9b:00")),
            "{cases:#?}"
        );
    }

    #[test]
    fn a_failure_of_this_moment_is_open_and_nothing_is_no_case() {
        let cases = conclude(&lost_gpu_and_dead_rank(), Timestamp(101 * SECOND), Catalogue::builtin());
        assert!(!cases.is_empty() && cases.iter().any(|case| case.state == CaseState::Open));
        assert_eq!(conclude(&[], Timestamp(0), Catalogue::builtin()).len(), 0);
    }
}

//! `cases --local`: cases concluded from the findings of this node's agent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rankguard_agent::GenerationView;
use rankguard_diagnosis::{
    ConcludedDraft, Diagnosis, DraftChange, DraftId, DraftPolicy, JobContext, PlacementIndex, SeparateFailure,
};
use rankguard_faults::Catalogue;
use rankguard_model::{Case, CaseId, CaseState, Entity, Evidence, Generation, JobId, NodeId, Rank, Timestamp};

use super::{agent_view, read_catalogue};
use crate::args::CommonArgs;
use crate::error::CliError;
use crate::out;

/// Concludes cases from the newest findings of this node's agent, with the diagnosis engine of the controller.
pub(in crate::commands) fn cases(state_dir: Option<&Path>, common: &CommonArgs) -> Result<Vec<Case>, CliError> {
    let view = agent_view(state_dir, common)?;
    let knowledge = common.settings([])?.agent().knowledge;
    read_catalogue(&knowledge)?;
    let mut running: BTreeMap<JobGeneration, BTreeSet<Rank>> = BTreeMap::new();
    for rank in &view.ranks {
        let key = (rank.rank.job.clone(), rank.rank.generation);
        running.entry(key).or_default().insert(rank.rank.rank);
    }
    if let Some(dropped) = dropped_findings(&view.findings) {
        out::note(&format!(
            "the agent holds its newest findings only: {dropped} older ones of this start of the agent are not considered"
        ));
    }
    if !view.uplink.connected {
        out::note(
            "the agent has no session with the controller: it does not know which nodes operators have uncordoned since",
        );
    }
    let history = LocalHistory {
        node: &view.node,
        findings: &view.findings,
        generations: &view.generations,
        running,
        clearings: view.clearings,
    };
    Ok(knowledge.with_catalogue(|catalogue| conclude(&history, view.now, catalogue)))
}

/// Returns the number of findings that the agent no longer holds, if there are some.
fn dropped_findings(findings: &[Evidence]) -> Option<u64> {
    let before = findings.first()?.id.seq.0.saturating_sub(1);
    (before > 0).then_some(before)
}

/// Records of an agent about its node.
struct LocalHistory<'a> {
    node: &'a NodeId,
    findings: &'a [Evidence],
    generations: &'a [GenerationView],
    /// Ranks that run, by job and generation.
    running: BTreeMap<JobGeneration, BTreeSet<Rank>>,
    /// Clearings of the node by operators, oldest first.
    clearings: Vec<Timestamp>,
}

impl LocalHistory<'_> {
    /// Places the running ranks of generations that had begun by `clock`. Most ranks have no findings.
    fn place_running(
        &self,
        starts: &BTreeMap<JobGeneration, Timestamp>,
        clock: Timestamp,
        context: &mut PlacementIndex,
    ) {
        for ((job, generation), ranks) in &self.running {
            let since = starts.get(&(job.clone(), *generation)).copied();
            let is_known = context.job(job).is_some_and(|known| known.generation >= *generation);
            if is_known || since.is_none_or(|since| since > clock) {
                continue;
            }
            let known = JobContext {
                generation: *generation,
                placements: ranks.iter().map(|rank| (*rank, self.node.clone())).collect(),
                since,
                ..JobContext::default()
            };
            context.set(job.clone(), known);
        }
    }

    /// Places a rank with a finding. A late report of an earlier generation changes nothing about the later one.
    fn place_rank(
        &self,
        starts: &BTreeMap<JobGeneration, Timestamp>,
        spans: &BTreeMap<JobGeneration, (Timestamp, Timestamp)>,
        entity: &Entity,
        context: &mut PlacementIndex,
    ) {
        let Entity::Rank {
            job,
            generation,
            rank,
            node,
        } = entity
        else {
            return;
        };
        let mut known = context.job(job).cloned().unwrap_or_default();
        if *generation < known.generation {
            return;
        }
        if *generation > known.generation {
            known.placements.clear();
            known.generation = *generation;
        }
        known.placements.insert(*rank, node.clone());
        let key = (job.clone(), *generation);
        known.since = starts.get(&key).copied();
        let last = spans.get(&key).map(|(_, last)| *last);
        known.ended_at = last.filter(|_| !self.running.contains_key(&key));
        context.set(job.clone(), known);
    }
}

/// A generation of a job.
type JobGeneration = (JobId, Generation);

/// Returns the times of the first and last finding of each generation. A job without running ranks is assumed to have
/// used the node for that span.
fn spans_of_jobs(findings: &[Evidence]) -> BTreeMap<JobGeneration, (Timestamp, Timestamp)> {
    let mut spans: BTreeMap<JobGeneration, (Timestamp, Timestamp)> = BTreeMap::new();
    for evidence in findings {
        if let Entity::Rank { job, generation, .. } = &evidence.entity {
            let span = spans
                .entry((job.clone(), *generation))
                .or_insert((evidence.at, evidence.at));
            *span = (span.0.min(evidence.at), span.1.max(evidence.at));
        }
    }
    spans
}

fn conclude(history: &LocalHistory<'_>, now: Timestamp, catalogue: &Catalogue) -> Vec<Case> {
    let findings = history.findings;
    let spans = spans_of_jobs(findings);
    let starts: BTreeMap<JobGeneration, Timestamp> = history
        .generations
        .iter()
        .map(|known| ((known.job.clone(), known.generation), known.since))
        .collect();
    let mut diagnosis = Diagnosis::new(DraftPolicy::default());
    let mut context = PlacementIndex::default();
    let mut cases: BTreeMap<DraftId, (ConcludedDraft, CaseState)> = BTreeMap::new();
    let mut clock = Timestamp(i64::MIN);
    let mut clearings = history.clearings.iter().copied().peekable();
    for evidence in findings {
        clock = clock.max(evidence.at);
        history.place_running(&starts, clock, &mut context);
        history.place_rank(&starts, &spans, &evidence.entity, &mut context);
        // What was due before a clearing is concluded before it.
        loop {
            let due = diagnosis.due().filter(|due| *due <= clock);
            let cleared = clearings.peek().copied().filter(|cleared| *cleared < evidence.at);
            match (due, cleared) {
                (Some(due), cleared) if cleared.is_none_or(|cleared| due <= cleared) => {
                    for done in diagnosis.conclude(due, catalogue) {
                        cases.insert(done.draft, (done, CaseState::Closed));
                    }
                }
                (_, Some(cleared)) => {
                    clearings.next();
                    diagnosis.clear_node(cleared, history.node);
                }
                _ => break,
            }
        }
        for change in diagnosis.observe(clock, evidence, &context, catalogue) {
            match change {
                DraftChange::Revised(done) => drop(cases.insert(done.draft, (*done, CaseState::Closed))),
                // A late finding is appended unchanged.
                DraftChange::Late {
                    draft,
                    finding,
                    separate,
                } => {
                    if let Some((case, _)) = cases.get_mut(&draft) {
                        case.findings.push(*finding);
                        case.separate.extend(separate.map(|failure| *failure));
                    }
                }
                DraftChange::Opened { .. } | DraftChange::Joined { .. } | DraftChange::Dropped { .. } => {}
            }
        }
    }
    while let Some(due) = diagnosis.due() {
        let state = if due <= now { CaseState::Closed } else { CaseState::Open };
        for done in diagnosis.conclude(due, catalogue) {
            cases.insert(done.draft, (done, state));
        }
    }
    let each = cases.into_values().flat_map(|(mut done, state)| {
        let separate = std::mem::take(&mut done.separate);
        let separate = separate.into_iter().map(move |failure| separate_case(failure, state));
        std::iter::once(case(done, state)).chain(separate)
    });
    each.zip(1..)
        .map(|(case, number)| Case {
            id: CaseId(number),
            ..case
        })
        .collect()
}

/// Builds the case of a failure beside the first cause of another case. Its number is set later.
fn separate_case(failure: SeparateFailure, state: CaseState) -> Case {
    Case {
        state,
        job: failure.job,
        generation: failure.generation,
        findings: failure.findings,
        reasoning: failure.reasoning,
        clears: failure.clears,
        ..Case::open(CaseId(0), failure.verdict, failure.first_at, failure.first_at)
    }
}

/// Builds the case of a draft, without an outcome: an agent takes no decisions. Its number is set later.
fn case(done: ConcludedDraft, state: CaseState) -> Case {
    Case {
        state,
        job: done.job,
        generation: done.generation,
        findings: done.findings,
        reasoning: done.reasoning,
        clears: done.clears,
        ..Case::open(CaseId(0), done.verdict, done.first_at, done.first_at)
    }
}

#[cfg(test)]
mod tests {
    use rankguard_model::{
        ClassId, Classification, Device, DeviceKind, EvidenceBody, EvidenceId, EvidenceSource, FieldValues,
        ProcessExit, Role, Sequence,
    };

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn evidence(seq: u64, at: i64, entity: Entity, body: EvidenceBody, class: Option<&str>) -> Evidence {
        let mark = |class: &str| Classification {
            class: ClassId::from(class),
            role: Role::Root,
            confidence: 0.95,
            signature: "test".into(),
            fields: FieldValues::new(),
        };
        Evidence {
            id: EvidenceId {
                node: NodeId::from("a"),
                seq: Sequence(seq),
            },
            at: Timestamp(at * SECOND),
            source: if class.is_some() {
                EvidenceSource::KernelLog
            } else {
                EvidenceSource::Ranks
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
        let line = EvidenceBody::Line {
            text: "NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.".to_owned(),
            context: Vec::new(),
            repeats: 1,
        };
        let exit = EvidenceBody::RankExited {
            pid: 7,
            exit: ProcessExit::Signal(6),
            ended_by_agent: false,
        };
        vec![
            evidence(1, 100, gpu, line, Some("gpu-fallen-off-bus")),
            evidence(2, 101, rank, exit, None),
        ]
    }

    type RunningRanks = BTreeMap<JobGeneration, BTreeSet<Rank>>;

    fn concluded(findings: &[Evidence], running: &RunningRanks, now: i64) -> Vec<Case> {
        let history = LocalHistory {
            node: &NodeId::from("a"),
            findings,
            generations: &[],
            running: running.clone(),
            clearings: Vec::new(),
        };
        conclude(&history, Timestamp(now * SECOND), Catalogue::builtin())
    }

    #[test]
    fn the_agent_s_own_findings_become_the_case_that_a_controller_would_make() {
        let cases = concluded(&lost_gpu_and_dead_rank(), &RunningRanks::new(), 1000);
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

    /// A device fault belongs to the jobs that used the device then, not to all that ever ran there.
    #[test]
    fn a_fault_is_filed_under_jobs_in_use_alone() {
        let mut findings = lost_gpu_and_dead_rank();
        let mut fault = findings[0].clone();
        let exit = findings[1].clone();
        findings.remove(0);
        fault.id.seq = Sequence(3);
        fault.at = Timestamp(160 * SECOND);
        findings.push(fault);
        let jobs = |running: &RunningRanks| -> Vec<Option<JobId>> {
            let cases = concluded(&findings, running, 1000);
            let holds = |case: &&Case| case.findings.iter().any(|it| it.class.as_str() == "gpu-fallen-off-bus");
            cases.iter().filter(holds).map(|case| case.job.clone()).collect()
        };
        assert_eq!(jobs(&RunningRanks::new()), [None]);
        let job = exit.entity.job().expect("a rank's").clone();
        let running = RunningRanks::from([((job.clone(), Generation(1)), BTreeSet::from([Rank(0)]))]);
        assert_eq!(jobs(&running), [Some(job)]);
    }

    #[test]
    fn a_failure_of_this_moment_is_open_and_nothing_is_no_case() {
        let cases = concluded(&lost_gpu_and_dead_rank(), &RunningRanks::new(), 101);
        assert!(!cases.is_empty() && cases.iter().any(|case| case.state == CaseState::Open));
        assert_eq!(concluded(&[], &RunningRanks::new(), 0).len(), 0);
    }

    /// Rule 5 of the attribution: a clearing ends the earlier evidence of the node.
    #[test]
    fn a_fault_that_an_operator_cleared_explains_no_later_failure() {
        let mut findings = lost_gpu_and_dead_rank();
        findings[1].at = Timestamp(130 * SECOND);
        let generations = [GenerationView {
            job: JobId::from("llm"),
            generation: Generation(1),
            since: Timestamp(120 * SECOND),
        }];
        let classes = |cleared: &[i64]| -> Vec<(Option<JobId>, String)> {
            let history = LocalHistory {
                node: &NodeId::from("a"),
                findings: &findings,
                generations: &generations,
                running: RunningRanks::new(),
                clearings: cleared.iter().map(|at| Timestamp(at * SECOND)).collect(),
            };
            let cases = conclude(&history, Timestamp(1000 * SECOND), Catalogue::builtin());
            let class = |case: Case| (case.job, case.verdict.class.to_string());
            cases.into_iter().map(class).collect()
        };
        let job = Some(JobId::from("llm"));
        assert!(classes(&[]).contains(&(job.clone(), "gpu-fallen-off-bus".to_owned())));
        let cleared = classes(&[110]);
        assert!(
            cleared.contains(&(None, "gpu-fallen-off-bus".to_owned())),
            "{cleared:?}"
        );
        assert!(
            cleared.contains(&(job.clone(), "process-aborted".to_owned())),
            "{cleared:?}"
        );
        // A later clearing does not undo an earlier one.
        let twice = classes(&[110, 500]);
        assert!(twice.contains(&(job, "process-aborted".to_owned())), "{twice:?}");
    }

    fn history_of<'a>(
        node: &'a NodeId,
        findings: &'a [Evidence],
        generations: &'a [GenerationView],
        running: &RunningRanks,
    ) -> LocalHistory<'a> {
        LocalHistory {
            node,
            findings,
            generations,
            running: running.clone(),
            clearings: Vec::new(),
        }
    }

    fn generation(number: u64, since: i64) -> GenerationView {
        GenerationView {
            job: JobId::from("llm"),
            generation: Generation(number),
            since: Timestamp(since * SECOND),
        }
    }

    /// The first finding of a job may be the fault of its device: healthy ranks have none.
    #[test]
    fn a_fault_of_a_device_belongs_to_the_running_job_that_has_no_findings() {
        let fault = &lost_gpu_and_dead_rank()[..1];
        let running = RunningRanks::from([((JobId::from("llm"), Generation(1)), BTreeSet::from([Rank(0)]))]);
        let node = NodeId::from("a");
        for (since, expected) in [(90, Some(JobId::from("llm"))), (130, None)] {
            let generations = [generation(1, since)];
            let history = history_of(&node, fault, &generations, &running);
            let cases = conclude(&history, Timestamp(1000 * SECOND), Catalogue::builtin());
            let jobs: Vec<Option<JobId>> = cases.into_iter().map(|case| case.job).collect();
            assert_eq!(jobs, [expected], "{since}");
        }
    }

    /// The exit of a rank of generation 1 is reported after generation 2 has begun.
    #[test]
    fn a_late_report_of_an_earlier_generation_does_not_end_the_later_one() {
        let [fault, exit] = <[Evidence; 2]>::try_from(lost_gpu_and_dead_rank()).expect("two");
        let of = |generation: u64, at: i64, seq: u64| {
            let mut later = exit.clone();
            later.id.seq = Sequence(seq);
            later.at = Timestamp(at * SECOND);
            if let Entity::Rank { generation: known, .. } = &mut later.entity {
                *known = Generation(generation);
            }
            later
        };
        let mut late_fault = fault;
        late_fault.at = Timestamp(400 * SECOND);
        late_fault.id.seq = Sequence(9);
        let findings = [of(2, 200, 1), of(1, 120, 2), late_fault];
        let generations = [generation(1, 90), generation(2, 150)];
        let running = RunningRanks::from([((JobId::from("llm"), Generation(2)), BTreeSet::from([Rank(1)]))]);
        let node = NodeId::from("a");
        let history = history_of(&node, &findings, &generations, &running);
        let cases = conclude(&history, Timestamp(1000 * SECOND), Catalogue::builtin());
        let fault = cases
            .iter()
            .find(|case| case.verdict.class.as_str() == "gpu-fallen-off-bus");
        let fault = fault.expect("it is a case");
        assert_eq!(
            (&fault.job, fault.generation),
            (&Some(JobId::from("llm")), Some(Generation(2)))
        );
    }

    #[test]
    fn findings_that_the_agent_has_dropped_are_counted() {
        let mut findings = lost_gpu_and_dead_rank();
        assert_eq!(dropped_findings(&findings), None);
        findings.remove(0);
        assert_eq!(dropped_findings(&findings), Some(1));
        assert_eq!(dropped_findings(&[]), None);
    }
}

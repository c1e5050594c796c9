//! Journal analysis: replays the events through the decision core and derives records.

mod ends;
mod records;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;

use rankguard_core::{CheckFinding, DecisionState, Event, StampedEvent, step};
use rankguard_faults::{Catalogue, classes};
use rankguard_model::{
    Entity, Evidence, EvidenceBody, Generation, JobId, NodeId, NodeState, Step, Timestamp, cancellation_reason,
};

use crate::{JournalError, in_use, policy, scan_from};

pub use records::{
    EventRecord, EvidenceRecord, FailureRecord, JobAttempt, JobRecord, JournalRecord, JournalSummary, MetricSample,
    NodeRecord, StateInterval,
};

/// Replays a journal and passes its records to `take`. `path` is the journal or its state directory. Fails if there is
/// no journal; problems within it are passed as [`JournalRecord::Problem`], and the rest is analysed as far as it is readable.
pub fn analyse_journal(path: &Path, mut take: impl FnMut(JournalRecord)) -> Result<JournalSummary, JournalError> {
    let policy = policy(path)?;
    let replayed = policy.replay_only;
    let begin = Cell::new(None);
    let mut teller = JournalAnalyser {
        state: DecisionState::new(policy, Catalogue::builtin()).without_limits(),
        lives: BTreeMap::new(),
        away: BTreeMap::new(),
        usable: None,
        started: BTreeMap::new(),
        steps: BTreeMap::new(),
        end: JournalSummary {
            replayed,
            in_use: in_use(path),
            ..JournalSummary::default()
        },
    };
    let read = scan_from(
        path,
        |beginning| begin.set(Some(beginning)),
        |entry| {
            if let Some(beginning) = begin.take() {
                teller.state = beginning.state.without_limits();
                (teller.end.removed, teller.end.removed_to) = (beginning.removed, beginning.removed_to);
            }
            match entry {
                Ok(stamped) => {
                    teller.end.entries += 1;
                    teller.apply_event(stamped, &mut take);
                }
                // An unreadable snapshot is no entry.
                Err(problem @ JournalError::Snapshot { .. }) => take(JournalRecord::Problem(problem)),
                Err(problem) => {
                    teller.end.entries += 1;
                    take(JournalRecord::Problem(problem));
                }
            }
            Ok(())
        },
    );
    if let Err(problem) = read {
        take(JournalRecord::Problem(problem));
    }
    Ok(teller.finish(&mut take))
}

/// Current state span of a node.
#[derive(Debug)]
struct NodeStateSpan {
    first: Timestamp,
    since: Timestamp,
    state: NodeState,
}

/// Periods in which a node was unusable: start, and end if it has one.
type UnusablePeriods = Vec<(Timestamp, Option<Timestamp>)>;

struct JournalAnalyser {
    state: DecisionState,
    lives: BTreeMap<NodeId, NodeStateSpan>,
    away: BTreeMap<NodeId, UnusablePeriods>,
    usable: Option<u64>,
    /// Start of the first rank of each job.
    started: BTreeMap<JobId, Timestamp>,
    /// Newest step of each generation.
    steps: BTreeMap<(JobId, Generation), Step>,
    end: JournalSummary,
}

impl JournalAnalyser {
    fn apply_event(&mut self, stamped: StampedEvent, take: &mut impl FnMut(JournalRecord)) {
        let at = stamped.at;
        if let Event::JobSubmitted { spec, claim: Some(_) } = &stamped.event {
            self.end_replaced(spec, take);
        }
        // Actions are dropped: they were carried out at that time, and their outcomes are in the journal.
        step(&mut self.state, &stamped);
        let is_first = self.end.first.is_none();
        if is_first && self.end.replayed && !matches!(stamped.event, Event::EvidenceArrived { .. }) {
            // In a replay the clock starts with the first evidence, so earlier events have no time.
            return;
        }
        self.end.first.get_or_insert(at);
        self.end.last = self.end.last.max(Some(at));
        let may_move_nodes = is_first || may_move_nodes(&stamped.event);
        let mut silent = None;
        match stamped.event {
            Event::EvidenceArrived { evidence } => self.seen(evidence, take),
            event => {
                if let Event::NodeFellSilent { node, last_heard } = &event {
                    silent = Some((node.clone(), *last_heard));
                }
                if let Some(event_record) = event_record(at, event) {
                    take(JournalRecord::Event(event_record));
                }
            }
        }
        if may_move_nodes {
            self.watch_nodes(at, silent, take);
        }
    }

    fn seen(&mut self, evidence: Evidence, take: &mut impl FnMut(JournalRecord)) {
        let node = evidence.entity.node().unwrap_or(&evidence.id.node).clone();
        let value = |metric: &str, value: f64, unit: &str| {
            JournalRecord::Sample(MetricSample {
                at: evidence.at,
                node: node.clone(),
                metric: metric.to_owned(),
                value,
                unit: unit.to_owned(),
            })
        };
        match (&evidence.body, &evidence.entity) {
            (EvidenceBody::Progress { step, step_ms, .. }, entity) => {
                if let Entity::Rank { job, generation, .. } = entity {
                    let newest = self.steps.entry((job.clone(), *generation)).or_default();
                    *newest = (*newest).max(*step);
                }
                return take(value("train.step_ms", *step_ms, "ms"));
            }
            (EvidenceBody::ShardSealed { stall_ms, .. }, _) => {
                return take(value("checkpoint.stall_ms", *stall_ms, "ms"));
            }
            (EvidenceBody::ShardDurable { seal }, _) => {
                return take(value("checkpoint.shard_bytes", seal.bytes as f64, "bytes"));
            }
            (
                EvidenceBody::Sample {
                    metric,
                    value: number,
                    unit,
                },
                _,
            ) => take(value(metric, *number, unit)),
            (EvidenceBody::Restored { took_ms, .. }, _) => take(value("checkpoint.restore_ms", *took_ms, "ms")),
            (EvidenceBody::Copied { took_ms, failed, .. }, _) if failed.is_none() => {
                take(value("checkpoint.copy_ms", *took_ms, "ms"));
            }
            (EvidenceBody::RankStarted { .. }, Entity::Rank { job, .. }) => {
                let first = self.started.entry(job.clone()).or_insert(evidence.at);
                *first = (*first).min(evidence.at);
            }
            _ => {}
        }
        let text = evidence_text(&evidence);
        take(JournalRecord::Evidence(EvidenceRecord { evidence, text }));
    }

    /// Compares the fleet with its previous state and records changes.
    fn watch_nodes(
        &mut self,
        at: Timestamp,
        silent: Option<(NodeId, Timestamp)>,
        take: &mut impl FnMut(JournalRecord),
    ) {
        let mut usable = 0;
        for (name, node) in self.state.fleet().iter() {
            // A node with open fences is present, so it has no outage.
            let state = match node.state() {
                NodeState::Fencing => NodeState::Healthy,
                state => state,
            };
            usable += u64::from(node.is_usable());
            let life = self.lives.entry(name.clone()).or_insert_with(|| NodeStateSpan {
                first: at,
                since: at,
                state: NodeState::Healthy,
            });
            if life.state == state {
                continue;
            }
            // A node that fell silent was unavailable since its last message.
            let heard = silent
                .as_ref()
                .filter(|(node, _)| node == name)
                .map(|(_, heard)| *heard);
            let from = heard.unwrap_or(at).clamp(life.since, at.max(life.since));
            take(JournalRecord::Interval(interval(name, life, from, false)));
            let away = self.away.entry(name.clone()).or_default();
            match (life.state == NodeState::Healthy, state == NodeState::Healthy) {
                (true, false) => away.push((from, None)),
                (false, true) => {
                    if let Some(last) = away.last_mut() {
                        last.1 = Some(at);
                    }
                }
                _ => {}
            }
            (life.since, life.state) = (from, state);
        }
        if self.usable != Some(usable) && !self.lives.is_empty() {
            self.usable = Some(usable);
            take(JournalRecord::Usable { at, nodes: usable });
        }
    }
}

fn interval(node: &NodeId, life: &NodeStateSpan, to: Timestamp, is_cut: bool) -> StateInterval {
    StateInterval {
        node: node.clone(),
        from: life.since,
        to,
        state: match life.state {
            NodeState::Healthy => "healthy",
            NodeState::Cordoned => "cordoned",
            NodeState::Lost => "lost",
            NodeState::Fencing => "fencing",
        },
        is_cut,
    }
}

/// Returns true if an event may add, remove or cordon nodes. Most evidence concerns steps and cannot.
fn may_move_nodes(event: &Event) -> bool {
    match event {
        Event::EvidenceArrived { evidence } => match evidence.body {
            EvidenceBody::Progress { .. }
            | EvidenceBody::ShardSealed { .. }
            | EvidenceBody::ShardDurable { .. }
            | EvidenceBody::Copied { .. }
            | EvidenceBody::ShardsFinished { .. }
            | EvidenceBody::Prepared { .. }
            | EvidenceBody::Restored { .. } => false,
            EvidenceBody::Line { .. } | EvidenceBody::Sample { .. } => !evidence.marks.is_empty(),
            _ => true,
        },
        _ => true,
    }
}

/// Formats evidence in one line.
fn evidence_text(evidence: &Evidence) -> String {
    match &evidence.body {
        EvidenceBody::Line { text, .. } => text.clone(),
        EvidenceBody::Sample { metric, value, unit } => format!("{metric} is {value} {unit}"),
        EvidenceBody::Gap { what, .. } => what.clone(),
        EvidenceBody::RankStarted { pid, from_standby } => {
            let how = if *from_standby { ", a standby process" } else { "" };
            format!("{} started as process {pid}{how}", evidence.entity)
        }
        EvidenceBody::RankExited { exit, .. } => format!("{} ended: {exit}", evidence.entity),
        EvidenceBody::Fenced { job, generation, .. } => format!("job {job} fenced below generation {generation}"),
        EvidenceBody::Stopped {
            job, generation, left, ..
        } if left.is_empty() => {
            format!("job {job} stopped up to generation {generation}")
        }
        EvidenceBody::Stopped {
            job, generation, left, ..
        } => {
            format!(
                "job {job} stopped up to generation {generation}, except: {}",
                left.join("; ")
            )
        }
        EvidenceBody::ShardFailed { step, reason } => format!("the shard of step {step} could not be kept: {reason}"),
        EvidenceBody::Copied { step, to, failed, .. } => match failed {
            None => format!("step {step} of {} is copied to {to}", evidence.entity),
            Some(reason) => format!(
                "step {step} of {} could not be copied to {to}: {reason}",
                evidence.entity
            ),
        },
        EvidenceBody::ShardsFinished {
            job, shards, failed, ..
        } => match failed {
            None => format!("{shards} shards of the last generation of job {job} are in the store"),
            Some(reason) => format!("a shard of the last generation of job {job} could not be finished: {reason}"),
        },
        EvidenceBody::Restored { step, .. } => format!("{} restored step {step}", evidence.entity),
        EvidenceBody::FlightDump { .. } => format!("{} dumped its flight recorder", evidence.entity),
        EvidenceBody::Preflighted { job, failed, .. } => {
            format!(
                "{} checks of {} failed before a generation of job {job}",
                failed.len(),
                evidence.entity
            )
        }
        EvidenceBody::RankFinished => format!("{} has done all its work", evidence.entity),
        EvidenceBody::Prepared {
            job, waiting, problem, ..
        } => match problem {
            None => format!("{waiting} standby processes of job {job} wait on {}", evidence.entity),
            Some(problem) => format!(
                "{} has too few standby processes for job {job}: {problem}",
                evidence.entity
            ),
        },
        EvidenceBody::OrderFailed { order, reason, .. } => format!("order {order} failed: {reason}"),
        EvidenceBody::Progress { step, .. } | EvidenceBody::ShardSealed { step, .. } => {
            format!("{} at step {step}", evidence.entity)
        }
        EvidenceBody::ShardDurable { seal } => format!("the shard of step {} is on disk", seal.step),
    }
}

/// Converts an event other than evidence for display. Timers are internal to the decision core and are left out.
fn event_record(at: Timestamp, event: Event) -> Option<EventRecord> {
    let (what, node, text) = match event {
        Event::EvidenceArrived { .. } | Event::TimerFired { .. } => return None,
        Event::ControllerStarted => ("controller-started", None, "the controller began to run".to_owned()),
        Event::LifeBegan { .. } => return None,
        Event::ControllerPaused { since } => {
            let text = format!("the controller had not run since {since}");
            ("controller-paused", None, text)
        }
        Event::JournalDiffers { node, mark } => {
            let text = format!(
                "{node} knows entry {} of a journal that is not in this one",
                mark.position
            );
            ("journal-differs", Some(node), text)
        }
        Event::CatalogueGiven { files } => {
            let text = format!("verdicts rest on {} files besides the built-in catalogue", files.len());
            ("catalogue-given", None, text)
        }
        Event::NodeJoined { info } => {
            let text = format!("{} joined as {}", info.node, info.incarnation);
            ("node-joined", Some(info.node), text)
        }
        Event::NodeFellSilent { node, last_heard } => {
            let text = format!("{node} fell silent; last heard {last_heard}");
            ("node-silent", Some(node), text)
        }
        Event::SessionEnded { node, .. } => {
            let text = format!("the session of {node} ended");
            ("session-ended", Some(node), text)
        }
        Event::RulesAdopted { rules } => {
            let text = format!("decision rules {rules} hold from now on");
            ("rules-adopted", None, text)
        }
        Event::PolicyAdopted { .. } => {
            let text = "other settings of the controller hold from now on".to_owned();
            ("policy-adopted", None, text)
        }
        Event::JobSubmitted { spec, .. } => ("job-submitted", None, format!("job {} submitted", spec.id)),
        Event::JobCancelled { job, by } => {
            let text = format!("job {job} {}", cancellation_reason(by.as_deref()));
            (classes::JOB_CANCELLED, None, text)
        }
        Event::ManifestCommitted {
            job, step, generation, ..
        } => {
            let text = format!("checkpoint of step {step} of job {job} committed (generation {generation})");
            ("checkpoint-committed", None, text)
        }
        Event::ManifestRefused { job, step, reason, .. } => {
            let text = format!("checkpoint of step {step} of job {job} refused: {reason}");
            ("checkpoint-refused", None, text)
        }
        Event::ShardsFound { job, seals, .. } => {
            let text = format!(
                "{} shards of the last generation of job {job} stand in its store",
                seals.len()
            );
            ("shards-found", None, text)
        }
        Event::CheckpointChecked { job, step, finding, .. } => {
            let found = match finding {
                CheckFinding::Intact => "is intact".to_owned(),
                CheckFinding::Damaged { what } => format!("is damaged: {what}"),
                CheckFinding::Unavailable { reason } => format!("cannot be read: {reason}"),
            };
            let text = format!("the checkpoint of step {step} of job {job} {found}");
            ("checkpoint-checked", None, text)
        }
        Event::NodeCordoned { node, reason } => {
            let text = format!("{node} cordoned by an operator: {reason}");
            ("node-cordoned", Some(node), text)
        }
        Event::NodeDrained { node, reason } => {
            let text = format!("{node} drained by an operator: {reason}");
            ("node-drained", Some(node), text)
        }
        Event::NodeForgotten { node } => {
            let text = format!("{node} forgotten by an operator");
            ("node-forgotten", Some(node), text)
        }
        Event::CaseNoted { case, note } => {
            let text = format!("{} noted something about case {case}: {}", note.by, note.text);
            ("case-noted", None, text)
        }
        Event::NodeUncordoned { node } => {
            let text = format!("{node} given back by an operator");
            ("node-uncordoned", Some(node), text)
        }
    };
    Some(EventRecord { at, node, what, text })
}

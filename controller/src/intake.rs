//! Conversion of inputs to events: drops duplicates, reports sequence gaps and validates commands.

use std::collections::BTreeMap;

use rankguard_core::{CORDON_REASONS_MAX, DecisionState, Event, Node};
use rankguard_model::{
    CaseNoteKind, CaseState, Evidence, EvidenceId, JobId, JobState, NodeId, NodeInfo, Sequence, Timestamp,
};
use tonic::Status;
use tracing::{error, info, warn};

use crate::authority::admit;
use crate::batch::{DeferredReply, EventBatch};
use crate::gap::gap;
use crate::input::{CommandRefusal, CommandReply, LoopInput, OperatorCommand};
use crate::liveness::NodeLiveness;
use crate::name_conflicts::NameConflicts;
use crate::session_table::{SessionId, SessionLink, SessionTable};
use crate::submission;

/// Longest reason of a cordon, bytes.
const REASON_BYTES_MAX: usize = 1 << 10;

/// Newest sequence number of each node that is journalled, or will be with the current batch.
pub(crate) type AcknowledgedSequences = BTreeMap<NodeId, Sequence>;

/// Builder of one batch.
pub(crate) struct BatchBuilder<'a> {
    pub(crate) state: &'a DecisionState,
    pub(crate) roster: &'a mut SessionTable,
    pub(crate) liveness: &'a NodeLiveness,
    pub(crate) acknowledged: &'a mut AcknowledgedSequences,
    pub(crate) name_conflicts: &'a mut NameConflicts,
    pub(crate) now: Timestamp,
    /// False while the journal cannot be written: the batch is dropped, and agents send their evidence again.
    pub(crate) is_recording: bool,
    pub(crate) batch: EventBatch,
}

impl BatchBuilder<'_> {
    /// Converts one input.
    pub(crate) fn take(&mut self, input: LoopInput) {
        match input {
            LoopInput::Joined { session, info, link } => self.join(session, info, link),
            LoopInput::Evidence {
                session,
                node,
                evidence,
                permit,
            } => {
                // An agent that has opened another session resends this evidence there.
                if self.roster.is_current(&node, session) {
                    evidence.into_iter().for_each(|one| self.evidence(one));
                    self.batch.acknowledge.insert(node);
                    self.batch.permits.push(permit);
                }
            }
            LoopInput::Catalogue { files, version } => {
                if self.state.catalogue().version() != version {
                    self.event(Event::CatalogueGiven { files }, DeferredReply::Nothing);
                }
            }
            LoopInput::Policy(policy) => self.event(Event::PolicyAdopted { policy }, DeferredReply::Nothing),
            LoopInput::Left { session, node } => self.leave(session, node),
            LoopInput::Command { command, reply } => self.command(command, reply),
            LoopInput::Query(query) => self.batch.queries.push(query),
        }
    }

    /// Handles a join. A second agent under the name of a live one is refused: the two would replace each other's
    /// session in turn. A restarted agent joins once the session of its predecessor has ended or is silent.
    fn join(&mut self, session: SessionId, info: NodeInfo, link: SessionLink) {
        let node = info.node.clone();
        let is_other = self.roster.is_held_by_other(&node, &info.incarnation);
        if is_other && !self.state.policy().replay_only && self.liveness.is_live(&node, self.now) {
            self.name_conflicts.report(&info, self.now);
            let reason = format!(
                "node {node} has an agent already, which is alive: stop one of the two, or give this one a name of its own \
                 (--node, agent.node)"
            );
            // The session may have ended meanwhile.
            let _ = link.close.send(Status::already_exists(reason));
            return;
        }
        info!(%node, incarnation = info.incarnation, slots = info.slots, "agent joined");
        let has_ended = is_other || self.roster.has_cut_off_other(&node, &info.incarnation);
        if has_ended && self.state.fleet().is_live(&node) && !self.state.policy().replay_only {
            // The connection of the agent before was not closed, as after a power failure.
            let last_heard = self.liveness.last_heard(&node);
            let node = node.clone();
            self.event(Event::SessionEnded { node, last_heard }, DeferredReply::Nothing);
        }
        self.roster.register_session(&node, session, &info.incarnation, link);
        self.liveness.watch(&node, self.now);
        self.compare_journal(&info);
        self.event(Event::NodeJoined { info }, DeferredReply::Welcome { node, session });
    }

    /// Handles the end of a session. The end of a session that another one has replaced is ignored.
    fn leave(&mut self, session: SessionId, node: NodeId) {
        let is_newest = self.roster.leave(&node, session);
        if is_newest && self.state.fleet().is_live(&node) && !self.state.policy().replay_only {
            let last_heard = self.liveness.last_heard(&node);
            self.event(Event::SessionEnded { node, last_heard }, DeferredReply::Nothing);
        }
    }

    /// Closes the sessions of nodes that send messages but count as lost, because they did not end old ranks in time:
    /// they are fenced when they join again.
    pub(crate) fn close_overdue(&mut self) {
        let overdue = |(name, node): &(&NodeId, &rankguard_core::Node)| {
            node.lost_since.is_some() && !node.fences.is_empty() && self.roster.is_seated(name)
        };
        let overdue: Vec<NodeId> = self
            .state
            .fleet()
            .iter()
            .filter(overdue)
            .map(|(name, _)| name.clone())
            .collect();
        for node in overdue {
            let reason = "it is not known that old ranks ended; join again to be asked";
            self.roster.close(&node, Status::unavailable(reason));
        }
    }

    /// Records once that an agent knows journal entries that this journal lacks.
    fn compare_journal(&mut self, info: &NodeInfo) {
        let lives = self.state.lives();
        let Some(mark) = info.history.journal else { return };
        if lives.compare(&mark).is_some() && !lives.is_announced(&mark) {
            let node = info.node.clone();
            self.event(Event::JournalDiffers { node, mark }, DeferredReply::Nothing);
        }
    }

    /// Adds an event; one that cannot be encoded is logged and dropped.
    pub(crate) fn event(&mut self, event: Event, after: DeferredReply) {
        if let Err(problem) = self.batch.push(self.now, event, after) {
            error!(%problem, "an event cannot be written to the journal and is dropped");
        }
    }

    /// Adds evidence: each sequence number is added once, and skipped numbers are reported as a gap (RG-4).
    pub(crate) fn evidence(&mut self, evidence: Evidence) {
        let EvidenceId { node, seq } = evidence.id.clone();
        let newest = self.acknowledged.get(&node).copied().unwrap_or_default();
        if seq <= newest {
            return;
        }
        if seq > newest.next() && self.is_recording {
            // A stream preserves the order, so skipped numbers will not arrive later.
            let lost = seq.0 - newest.0 - 1;
            let range = format!("evidence {} to {} of node {node}", newest.next(), seq.0 - 1);
            let what = if newest == Sequence::default() {
                // The agent removes what a controller has acknowledged.
                format!(
                    "{range} is not in this journal: it was delivered before the node joined this controller, or is lost"
                )
            } else {
                format!("{range} is not in this journal: it never arrived, or the journal is an older copy")
            };
            warn!(%node, lost, "{what}");
            let id = EvidenceId {
                node: node.clone(),
                seq: Sequence(seq.0 - 1),
            };
            let gap = gap(id, evidence.at, what, lost);
            self.event(Event::EvidenceArrived { evidence: gap }, DeferredReply::Nothing);
        }
        let evidence = admit(self.state, &node, self.now, &mut self.batch.started, evidence);
        let id = evidence.id.clone();
        let at = evidence.at;
        if let Err(problem) = self
            .batch
            .push(self.now, Event::EvidenceArrived { evidence }, DeferredReply::Nothing)
        {
            let what = format!("evidence {seq} of node {node} cannot be written to the journal: {problem}");
            error!(%node, "{what}");
            self.event(
                Event::EvidenceArrived {
                    evidence: gap(id, at, what, 1),
                },
                DeferredReply::Nothing,
            );
        }
        self.acknowledged.insert(node, seq);
    }

    fn command(&mut self, command: OperatorCommand, reply: CommandReply) {
        match self.judge(command) {
            Ok(event) => self.event(event, DeferredReply::Reply(reply)),
            Err(refusal) => {
                // The operator may have disconnected.
                let _ = reply.send(Err(refusal));
            }
        }
    }

    fn judge(&self, command: OperatorCommand) -> Result<Event, CommandRefusal> {
        match command {
            OperatorCommand::Submit { .. } if self.state.policy().replay_only => Err(CommandRefusal::Invalid(vec![
                "this controller takes replays only and runs no jobs: submit it to one that was started without \
                 --replay-only"
                    .to_owned(),
            ])),
            OperatorCommand::Submit { spec, claim } => {
                let problems = submission::problems(&spec);
                if !problems.is_empty() {
                    return Err(CommandRefusal::Invalid(problems));
                }
                let is_same =
                    |event: &Event| matches!(event, Event::JobSubmitted { spec: other, .. } if other.id == spec.id);
                if self.batch.entries.iter().any(|entry| is_same(&entry.stamped.event)) {
                    return Err(submission::name_taken(self.state, &spec.id));
                }
                if let Some(refusal) = submission::name_refusal(self.state, &spec) {
                    return Err(refusal);
                }
                Ok(Event::JobSubmitted { spec, claim })
            }
            OperatorCommand::Cancel { job, by } => self.check_cancel(&job).map(|()| Event::JobCancelled { job, by }),
            OperatorCommand::Cordon { node, reason } => {
                self.check_reason(&node, &reason)?;
                Ok(Event::NodeCordoned { node, reason })
            }
            OperatorCommand::Drain { node, reason } => {
                self.check_reason(&node, &reason)?;
                Ok(Event::NodeDrained { node, reason })
            }
            OperatorCommand::Forget { node } => {
                self.known_node(&node)?;
                let entry = self.state.fleet().get(&node).filter(|entry| entry.lost_since.is_none());
                let user = self
                    .state
                    .jobs()
                    .values()
                    .find(|job| !job.is_over() && job.nodes().contains(&node));
                match (entry, user) {
                    (Some(entry), _) => Err(CommandRefusal::Conflict(match entry.session_ended {
                        None => {
                            format!("node {node} is connected: stop its agent first, and wait until it counts as lost")
                        }
                        Some(ended) => format!(
                            "the session of node {node} ended at {ended}, and it does not count as lost yet: try again \
                             in a few seconds"
                        ),
                    })),
                    (_, Some(job)) => Err(CommandRefusal::Conflict(format!(
                        "job {} is placed on node {node}: wait until it has moved, or cancel it",
                        job.spec.id
                    ))),
                    _ => Ok(Event::NodeForgotten { node }),
                }
            }
            OperatorCommand::Note { case, note } => {
                let Some(known) = self.state.cases().get(&case) else {
                    return Err(CommandRefusal::Absent(format!("there is no case {case}")));
                };
                if note.kind == CaseNoteKind::Closed && known.state != CaseState::FaultPresent {
                    return Err(CommandRefusal::Conflict(format!(
                        "case {case} is not in state `fault present`; cases in other states end by themselves or with the \
                         decision that they name"
                    )));
                }
                if let CaseNoteKind::Corrected { class } = &note.kind
                    && self.state.catalogue().class(class).is_none()
                {
                    return Err(CommandRefusal::Invalid(vec![format!(
                        "there is no class {class}; `rankguard taxonomy crosswalk` lists the classes"
                    )]));
                }
                Ok(Event::CaseNoted { case, note })
            }
            OperatorCommand::Uncordon { node, only_reasons } => {
                self.known_node(&node)?;
                if !only_reasons.is_empty() {
                    self.check_reasons(&node, &only_reasons)?;
                }
                Ok(Event::NodeUncordoned { node })
            }
        }
    }

    fn known_node(&self, node: &NodeId) -> Result<&Node, CommandRefusal> {
        let known = self.state.fleet().get(node);
        known.ok_or_else(|| CommandRefusal::Absent(format!("there is no node {node}")))
    }

    /// Refuses to cancel a job that is over: nothing of it is left to end.
    fn check_cancel(&self, job: &JobId) -> Result<(), CommandRefusal> {
        if !self.state.foreign_nodes(job).is_empty() {
            return Ok(());
        }
        let known = self.state.jobs().get(job);
        let known = known.ok_or_else(|| CommandRefusal::Absent(format!("there is no job {job}")))?;
        match known.state() {
            JobState::Finished => Err(CommandRefusal::Conflict(format!("job {job} has already finished"))),
            JobState::Stopped => Err(CommandRefusal::Conflict(format!("job {job} was already stopped"))),
            _ => Ok(()),
        }
    }

    /// Refuses a reason that is empty or too long, and a further one of a cordon that has the largest number of them.
    fn check_reason(&self, node: &NodeId, reason: &str) -> Result<(), CommandRefusal> {
        if reason.trim().is_empty() || reason.len() > REASON_BYTES_MAX {
            let problem = format!("a reason has 1 to {REASON_BYTES_MAX} bytes");
            return Err(CommandRefusal::Invalid(vec![problem]));
        }
        let cordon = self.known_node(node)?.cordon.as_ref();
        if cordon.is_none_or(|cordon| cordon.has_room_for(reason)) {
            return Ok(());
        }
        Err(CommandRefusal::Conflict(format!(
            "node {node} is cordoned with {CORDON_REASONS_MAX} reasons, and it can have no more: use one of them, or uncordon \
             the node first"
        )))
    }

    /// Refuses a command for a cordon with exactly these reasons if it has others, or may have others after the events
    /// before it in this batch.
    fn check_reasons(&self, node: &NodeId, only_reasons: &[String]) -> Result<(), CommandRefusal> {
        let may_add = |event: &Event| match event {
            Event::NodeCordoned { node: other, .. } | Event::NodeDrained { node: other, .. } => other == node,
            Event::EvidenceArrived { evidence } => evidence.id.node == *node,
            Event::TimerFired { .. } => true,
            _ => false,
        };
        if self.batch.entries.iter().any(|entry| may_add(&entry.stamped.event)) {
            let why = format!("node {node} is about to change: try again");
            return Err(CommandRefusal::Unavailable(why));
        }
        let cordon = self.state.fleet().get(node).and_then(|node| node.cordon.as_ref());
        let Some(cordon) = cordon else {
            return Err(CommandRefusal::Conflict(format!("node {node} is not cordoned")));
        };
        if cordon.reasons().eq(only_reasons.iter().map(String::as_str)) {
            return Ok(());
        }
        let why = format!("the cordon of node {node} has other reasons now: {}", cordon.reason);
        Err(CommandRefusal::Conflict(why))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use rankguard_core::{Policy, StampedEvent};
    use rankguard_faults::Catalogue;
    use rankguard_model::{ClockOffset, Entity, EvidenceBody, EvidenceSource};
    use tokio::sync::{mpsc, oneshot};

    use super::*;
    use crate::inbound::InboundPermit;
    use crate::session_table::OutboundBytes;

    fn node() -> NodeId {
        NodeId::from("n1")
    }

    fn evidence(seq: u64) -> Evidence {
        Evidence {
            id: EvidenceId {
                node: node(),
                seq: Sequence(seq),
            },
            at: Timestamp(5),
            source: EvidenceSource::JobLog,
            entity: Entity::Unknown,
            body: EvidenceBody::Line {
                text: "a".to_owned(),
                context: Vec::new(),
                repeats: 1,
            },
            marks: Vec::new(),
            synthetic: false,
        }
    }

    fn join(session: u64) -> (LoopInput, oneshot::Receiver<tonic::Status>) {
        let (outbound, _) = mpsc::channel(1);
        let (close, closed) = oneshot::channel();
        let info = NodeInfo {
            node: node(),
            incarnation: "first".to_owned(),
            boot_id: String::new(),
            host: String::new(),
            peer_address: String::new(),
            image_address: String::new(),
            slots: 1,
            failure_domain: String::new(),
            running: Vec::new(),
            clock: ClockOffset::default(),
            lease_ms: 0,
            is_kernel_log_first: false,
            history: rankguard_model::NodeHistory::default(),
        };
        let link = SessionLink {
            outbound,
            waiting: OutboundBytes::default(),
            close,
        };
        (
            LoopInput::Joined {
                session: SessionId(session),
                info,
                link,
            },
            closed,
        )
    }

    fn brings(session: u64, seqs: impl IntoIterator<Item = u64>) -> LoopInput {
        let evidence = seqs.into_iter().map(evidence).collect();
        LoopInput::Evidence {
            session: SessionId(session),
            node: node(),
            evidence,
            permit: InboundPermit::free(),
        }
    }

    /// Returns the evidence of the resulting events as (sequence number, evidence lost before it), in order, without
    /// the joins.
    fn taken(inputs: Vec<LoopInput>) -> Vec<(u64, Option<u64>)> {
        let state = DecisionState::new(Policy::default(), Catalogue::builtin());
        let mut roster = SessionTable::default();
        let mut acknowledged = AcknowledgedSequences::new();
        let liveness = NodeLiveness::new(Duration::from_secs(1), [], Timestamp(0));
        let mut intake = BatchBuilder {
            state: &state,
            roster: &mut roster,
            liveness: &liveness,
            acknowledged: &mut acknowledged,
            name_conflicts: &mut NameConflicts::default(),
            now: Timestamp(9),
            is_recording: true,
            batch: EventBatch::default(),
        };
        inputs.into_iter().for_each(|input| intake.take(input));
        let event = |entry: crate::batch::BatchEntry| match entry.stamped.event {
            Event::EvidenceArrived { evidence } => Some(evidence),
            _ => None,
        };
        let lost = |evidence: Evidence| match evidence.body {
            EvidenceBody::Gap { lost, .. } => (evidence.id.seq.0, lost),
            _ => (evidence.id.seq.0, None),
        };
        intake.batch.entries.into_iter().filter_map(event).map(lost).collect()
    }

    #[test]
    fn a_cordon_that_may_get_a_reason_in_the_same_batch_is_not_lifted_for_its_reasons_before() {
        let mut state = DecisionState::new(Policy::default(), Catalogue::builtin());
        let (LoopInput::Joined { info, .. }, _) = join(1) else {
            panic!("a join")
        };
        let cordoned = |reason: &str| Event::NodeCordoned {
            node: node(),
            reason: reason.to_owned(),
        };
        for event in [Event::NodeJoined { info }, cordoned("slurm drain: fan")] {
            rankguard_core::step(
                &mut state,
                &StampedEvent {
                    at: Timestamp(5),
                    event,
                },
            );
        }
        let uncordon = |before: Option<Event>| {
            let mut batch = EventBatch::default();
            if let Some(event) = before {
                let pushed = batch.push(Timestamp(9), event, DeferredReply::Nothing);
                pushed.expect("it can be encoded");
            }
            let intake = BatchBuilder {
                state: &state,
                roster: &mut SessionTable::default(),
                liveness: &NodeLiveness::new(Duration::from_secs(1), [], Timestamp(0)),
                acknowledged: &mut AcknowledgedSequences::new(),
                name_conflicts: &mut NameConflicts::default(),
                now: Timestamp(9),
                is_recording: true,
                batch,
            };
            intake.judge(OperatorCommand::Uncordon {
                node: node(),
                only_reasons: vec!["slurm drain: fan".to_owned()],
            })
        };
        assert_eq!(uncordon(None), Ok(Event::NodeUncordoned { node: node() }));
        let evidence = evidence(1);
        for before in [cordoned("ticket"), Event::EvidenceArrived { evidence }] {
            assert!(matches!(uncordon(Some(before)), Err(CommandRefusal::Unavailable(_))));
        }
        let other = Event::NodeUncordoned {
            node: NodeId::from("n2"),
        };
        assert!(uncordon(Some(other)).is_ok());
    }

    #[test]
    fn what_is_sent_twice_goes_on_once() {
        let ((first, _), (second, _)) = (join(1), join(2));
        let seen = taken(vec![
            first,
            brings(1, 1..=3),
            brings(1, 2..=4),
            second,
            brings(2, 1..=5),
        ]);
        assert_eq!(seen, [(1, None), (2, None), (3, None), (4, None), (5, None)]);
    }

    #[test]
    fn rg_4_numbers_that_never_came_are_named() {
        let (first, _closed) = join(1);
        assert_eq!(
            taken(vec![first, brings(1, [1, 5])]),
            [(1, None), (4, Some(3)), (5, None)]
        );
    }

    #[test]
    fn a_session_that_was_replaced_is_no_longer_heard() {
        let ((first, mut closed), (second, _)) = (join(1), join(2));
        assert_eq!(
            taken(vec![first, second, brings(1, [1]), brings(2, [1, 2])]),
            [(1, None), (2, None)]
        );
        assert_eq!(closed.try_recv().expect("a reason").code(), tonic::Code::Aborted);
    }

    proptest! {
        /// However batches overlap, repeat or skip numbers: numbers only grow, none is added twice, and each number up
        /// to the newest was added or lies in a reported gap (RG-4).
        #[test]
        fn every_number_goes_on_once_or_is_named(batches in prop::collection::vec((1_u64..30, 0_u64..6), 0..12)) {
            let mut inputs = vec![join(1).0];
            inputs.extend(batches.iter().map(|(from, count)| brings(1, *from..from + count)));
            let mut newest = 0;
            for (seq, lost) in taken(inputs) {
                prop_assert_eq!(seq, newest + lost.unwrap_or(1));
                newest = seq;
            }
            let last = batches.iter().filter(|(_, count)| *count > 0).map(|(from, count)| from + count - 1).max();
            prop_assert_eq!(newest, last.unwrap_or(0));
        }
    }
}

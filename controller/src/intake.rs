//! Inputs become events here: duplicates are dropped, holes are named, commands are judged.

use std::collections::BTreeMap;

use rankguard_core::{Event, State};
use rankguard_model::{Body, Entity, Evidence, EvidenceId, NodeId, Sequence, Source, Timestamp};
use tracing::{error, info, warn};

use crate::batch::{After, Batch};
use crate::input::{Command, Input, Refusal, Reply};
use crate::liveness::Liveness;
use crate::roster::Roster;
use crate::submission;

/// The newest sequence of each node that is journalled, or will be with the batch in hand.
pub(crate) type Acknowledged = BTreeMap<NodeId, Sequence>;

/// One batch in the making.
pub(crate) struct Intake<'a> {
    pub(crate) state: &'a State,
    pub(crate) roster: &'a mut Roster,
    pub(crate) liveness: &'a Liveness,
    pub(crate) acknowledged: &'a mut Acknowledged,
    pub(crate) now: Timestamp,
    pub(crate) batch: Batch,
}

impl Intake<'_> {
    /// Takes one input in.
    pub(crate) fn take(&mut self, input: Input) {
        match input {
            Input::Joined { session, info, link } => {
                let node = info.node.clone();
                info!(%node, incarnation = info.incarnation, slots = info.slots, "agent joined");
                self.roster.seat(&node, session, link);
                self.liveness.watch(&node, self.now);
                self.event(Event::NodeJoined { info }, After::Welcome { node, session });
            }
            Input::Evidence {
                session,
                node,
                evidence,
            } => {
                // An agent that has opened another session sends this again there.
                if self.roster.is_current(&node, session) {
                    evidence.into_iter().for_each(|one| self.evidence(one));
                    self.batch.acknowledge.insert(node);
                }
            }
            Input::Left { session, node } => self.roster.leave(&node, session),
            Input::Command { command, reply } => self.command(command, reply),
            Input::Query(query) => self.batch.queries.push(query),
        }
    }

    /// Takes in something that happened.
    pub(crate) fn event(&mut self, event: Event, after: After) {
        if let Err(problem) = self.batch.push(self.now, event, after) {
            error!(%problem, "an event cannot be written to the journal and is dropped");
        }
    }

    /// One piece of evidence: each sequence number goes on once, and a number that never came is named (RG-4).
    fn evidence(&mut self, evidence: Evidence) {
        let EvidenceId { node, seq } = evidence.id.clone();
        let newest = self.acknowledged.get(&node).copied().unwrap_or_default();
        if seq <= newest {
            return;
        }
        if seq > newest.next() {
            // A stream keeps its order, so what has been passed over will not come any more.
            let lost = seq.0 - newest.0 - 1;
            let what = format!(
                "evidence {} to {} of node {node} never arrived",
                newest.next(),
                seq.0 - 1
            );
            warn!(%node, lost, "{what}");
            let id = EvidenceId {
                node: node.clone(),
                seq: Sequence(seq.0 - 1),
            };
            let gap = gap(id, evidence.at, what, lost);
            self.event(Event::EvidenceArrived { evidence: gap }, After::Nothing);
        }
        let (id, at) = (evidence.id.clone(), evidence.at);
        if let Err(problem) = self
            .batch
            .push(self.now, Event::EvidenceArrived { evidence }, After::Nothing)
        {
            let what = format!("evidence {seq} of node {node} cannot be written to the journal: {problem}");
            error!(%node, "{what}");
            self.event(
                Event::EvidenceArrived {
                    evidence: gap(id, at, what, 1),
                },
                After::Nothing,
            );
        }
        self.acknowledged.insert(node, seq);
    }

    fn command(&mut self, command: Command, reply: Reply) {
        match self.judge(command) {
            Ok(event) => self.event(event, After::Reply(reply)),
            Err(refusal) => {
                // An operator who has gone away does not wait for the answer.
                let _ = reply.send(Err(refusal));
            }
        }
    }

    fn judge(&self, command: Command) -> Result<Event, Refusal> {
        let known_node = |node: &NodeId| match self.state.fleet().get(node) {
            Some(_) => Ok(()),
            None => Err(Refusal::Absent(format!("no node {node} has ever joined"))),
        };
        match command {
            Command::Submit { spec } => {
                let problems = submission::problems(&spec);
                if !problems.is_empty() {
                    return Err(Refusal::Invalid(problems));
                }
                let also_new = self.batch.entries.iter().any(
                    |entry| matches!(&entry.stamped.event, Event::JobSubmitted { spec: other } if other.id == spec.id),
                );
                if also_new || self.state.jobs().contains_key(&spec.id) {
                    let id = &spec.id;
                    return Err(Refusal::Exists(format!(
                        "job {id} exists already; a name is used once in the life of a controller"
                    )));
                }
                Ok(Event::JobSubmitted { spec })
            }
            Command::Cancel { job } if self.state.jobs().contains_key(&job) => Ok(Event::JobCancelled { job }),
            Command::Cancel { job } => Err(Refusal::Absent(format!("there is no job {job}"))),
            Command::Cordon { node, reason } => known_node(&node).map(|()| Event::NodeCordoned { node, reason }),
            Command::Uncordon { node } => known_node(&node).map(|()| Event::NodeUncordoned { node }),
        }
    }
}

/// Evidence about evidence that cannot be had (RG-4).
pub(crate) fn gap(id: EvidenceId, at: Timestamp, what: String, lost: u64) -> Evidence {
    Evidence {
        at,
        source: Source::Agent,
        entity: Entity::Node { node: id.node.clone() },
        body: Body::Gap { what, lost: Some(lost) },
        marks: Vec::new(),
        id,
    }
}

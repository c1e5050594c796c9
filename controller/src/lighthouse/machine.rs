//! State machine of the lighthouse.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rankguard_model::{NodeId, Timestamp};

use super::quorum::{LighthouseTerms, ReplicaId, ReplicaMember, ReplicaQuorum};
use crate::rendezvous::{NodeCondition, NodeConditions};

/// Replicas at one time. A further one is refused.
pub(crate) const REPLICAS_MAX: usize = 1_024;
/// Gap between two ticks from which on the controller counts as having stood still.
const LATE_TICK: Duration = Duration::from_secs(2);
/// Time for heartbeats to arrive after a standstill.
const STANDSTILL_GRACE: Duration = Duration::from_secs(1);

/// Replica that sends heartbeats or waits for a quorum.
#[derive(Debug)]
struct KnownReplica {
    heartbeat_at: Timestamp,
    /// Names that its node may have; empty before its first request.
    nodes: Vec<NodeId>,
    request: Option<QuorumRequest>,
}

/// Request that waits for a quorum.
#[derive(Debug)]
struct QuorumRequest {
    since: Timestamp,
    member: ReplicaMember,
}

/// Replicas that count for the next quorum.
struct QuorumCensus<'m> {
    /// Number of healthy replicas that are not left out.
    healthy: usize,
    /// Those of them that requested a quorum, sorted by id.
    joined: Vec<(&'m ReplicaId, &'m QuorumRequest)>,
    /// Replicas on cordoned nodes, which are left out.
    left_out: BTreeSet<&'m ReplicaId>,
}

/// State machine of the lighthouse.
#[derive(Debug)]
pub(crate) struct QuorumMachine {
    terms: LighthouseTerms,
    replicas: BTreeMap<ReplicaId, KnownReplica>,
    nodes: NodeConditions,
    newest: Option<Arc<ReplicaQuorum>>,
    /// Id of the next quorum with other members.
    next_id: i64,
    /// No quorum begins before.
    hold_until: Timestamp,
    ticked_at: Timestamp,
    /// Reason why no quorum begins, or a description of the newest one.
    status: String,
}

impl QuorumMachine {
    /// Creates the machine. Ids begin at `next_id`; after a restart, quorums are held back for the time in which each live
    /// replica sends a heartbeat.
    pub(crate) fn new(now: Timestamp, terms: LighthouseTerms, next_id: i64, is_restart: bool) -> Self {
        let hold = if is_restart {
            terms.heartbeat_timeout
        } else {
            Duration::ZERO
        };
        Self {
            terms,
            replicas: BTreeMap::new(),
            nodes: NodeConditions::new(),
            newest: None,
            next_id,
            hold_until: now.after(hold),
            ticked_at: now,
            status: "no replica is known".to_owned(),
        }
    }

    pub(crate) fn next_id(&self) -> i64 {
        self.next_id
    }

    pub(crate) fn status(&self) -> &str {
        &self.status
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.replicas.is_empty()
    }

    pub(crate) fn replicas(&self) -> usize {
        self.replicas.len()
    }

    pub(crate) fn newest(&self) -> Option<&ReplicaQuorum> {
        self.newest.as_deref()
    }

    /// Records a heartbeat. Returns false if the replica is refused because there are too many.
    #[must_use]
    pub(crate) fn heartbeat(&mut self, now: Timestamp, id: &ReplicaId) -> bool {
        if let Some(replica) = self.replicas.get_mut(id) {
            replica.heartbeat_at = now;
            return true;
        }
        if self.replicas.len() >= REPLICAS_MAX {
            return false;
        }
        let replica = KnownReplica {
            heartbeat_at: now,
            nodes: Vec::new(),
            request: None,
        };
        self.replicas.insert(id.clone(), replica);
        true
    }

    /// Records a request, which counts as a heartbeat and replaces an earlier request of the replica. Returns false if the
    /// replica is refused because there are too many.
    #[must_use]
    pub(crate) fn request(&mut self, now: Timestamp, member: ReplicaMember) -> bool {
        if !self.heartbeat(now, &member.id) {
            return false;
        }
        if let Some(replica) = self.replicas.get_mut(&member.id) {
            replica.nodes = member.node_names();
            replica.request = Some(QuorumRequest { since: now, member });
        }
        true
    }

    /// Removes the request of a replica that does not wait any more.
    pub(crate) fn withdraw(&mut self, id: &ReplicaId) {
        if let Some(replica) = self.replicas.get_mut(id) {
            replica.request = None;
        }
    }

    /// Replaces the conditions of the nodes.
    pub(crate) fn set_nodes(&mut self, nodes: NodeConditions) {
        self.nodes = nodes;
    }

    /// Records that time passes. Called several times a second.
    pub(crate) fn tick(&mut self, now: Timestamp) {
        self.notice_standstill(now);
        self.ticked_at = now;
        let timeout = self.terms.heartbeat_timeout;
        self.replicas
            .retain(|_, replica| replica.request.is_some() || replica.is_healthy(now, timeout));
    }

    /// Holds quorums back if the controller itself stood still: heartbeats wait in its queue.
    fn notice_standstill(&mut self, now: Timestamp) {
        if now.since(self.ticked_at) > LATE_TICK {
            self.hold_until = self.hold_until.max(now.after(STANDSTILL_GRACE));
        }
    }

    /// Begins a quorum if the rules permit one, which answers the requests of its members.
    pub(crate) fn decide(&mut self, now: Timestamp) -> Option<Arc<ReplicaQuorum>> {
        self.notice_standstill(now);
        match self.next_members(now) {
            Ok(members) => Some(self.begin(now, members)),
            Err(reason) => {
                self.status = reason;
                None
            }
        }
    }

    /// Returns the members of the quorum that may begin, sorted by id, or the reason why none may.
    fn next_members(&self, now: Timestamp) -> Result<Vec<ReplicaMember>, String> {
        let min = self.terms.replicas_min;
        let QuorumCensus {
            healthy,
            joined,
            left_out,
        } = self.census(now);
        if joined.len() < min {
            return Err(format!(
                "{} of {healthy} healthy replicas wait, at least {min} are required",
                joined.len()
            ));
        }
        if now < self.hold_until {
            return Err("no quorum begins before live replicas had time for a heartbeat".to_owned());
        }
        let ids: BTreeSet<&ReplicaId> = joined.iter().map(|(id, _)| *id).collect();
        if !self.is_fast(&ids, &left_out) {
            if ids.len() <= healthy / 2 {
                return Err(format!(
                    "{} of {healthy} healthy replicas wait, more than half are required",
                    ids.len()
                ));
            }
            let first = joined.iter().map(|(_, request)| request.since).min().unwrap_or(now);
            if ids.len() < healthy && now < first.after(self.terms.join_timeout) {
                return Err(format!(
                    "{} of {healthy} healthy replicas wait for the others until join_timeout",
                    ids.len()
                ));
            }
        }
        let has_shrink_only = |previous: &&Arc<ReplicaQuorum>| {
            let mut members = joined.iter().filter(|(id, _)| previous.has(id));
            members.any(|(_, request)| request.member.is_shrink_only)
        };
        let limit = self.newest.as_ref().filter(has_shrink_only);
        let may_join = |id: &ReplicaId| limit.is_none_or(|previous| previous.has(id));
        let members = joined.into_iter().filter(|(id, _)| may_join(id));
        Ok(members.map(|(_, request)| request.member.clone()).collect())
    }

    fn census(&self, now: Timestamp) -> QuorumCensus<'_> {
        let timeout = self.terms.heartbeat_timeout;
        let healthy = || self.replicas.iter().filter(|(_, one)| one.is_healthy(now, timeout));
        let usable = healthy().filter(|(_, one)| !self.is_cordoned(one)).count();
        let leaves_out = usable >= self.terms.replicas_min;
        let counted = || healthy().filter(|(_, one)| !(leaves_out && self.is_cordoned(one)));
        let cordoned = self
            .replicas
            .iter()
            .filter(|(_, one)| leaves_out && self.is_cordoned(one));
        QuorumCensus {
            healthy: counted().count(),
            joined: counted()
                .filter_map(|(id, one)| Some((id, one.request.as_ref()?)))
                .collect(),
            left_out: cordoned.map(|(id, _)| id).collect(),
        }
    }

    /// Returns true if all members of the previous quorum that are not left out requested the next one.
    fn is_fast(&self, joined: &BTreeSet<&ReplicaId>, left_out: &BTreeSet<&ReplicaId>) -> bool {
        let Some(previous) = &self.newest else { return false };
        let remaining = previous.members.iter().map(|member| &member.id);
        let remaining: Vec<&ReplicaId> = remaining.filter(|id| !left_out.contains(id)).collect();
        !remaining.is_empty() && remaining.iter().all(|id| joined.contains(id))
    }

    fn is_cordoned(&self, replica: &KnownReplica) -> bool {
        let mut conditions = replica.nodes.iter().filter_map(|node| self.nodes.get(node));
        conditions.any(|condition| matches!(condition, NodeCondition::Cordoned(_)))
    }

    fn begin(&mut self, now: Timestamp, members: Vec<ReplicaMember>) -> Arc<ReplicaQuorum> {
        let has_failures = members.iter().any(|member| member.commit_failures > 0);
        let same = self.newest.as_ref().filter(|newest| newest.has_groups_of(&members));
        let id = match same {
            Some(newest) if !has_failures => newest.id,
            _ => {
                self.next_id += 1;
                self.next_id - 1
            }
        };
        for (replica, known) in &mut self.replicas {
            if members.iter().any(|member| member.id == *replica) {
                known.request = None;
            } else if let Some(request) = &mut known.request {
                // As if it had asked again: its wait for the next quorum begins here.
                request.since = now;
            }
        }
        self.status = format!("quorum {id} has {} replicas", members.len());
        let quorum = Arc::new(ReplicaQuorum {
            id,
            members,
            created_at: now,
        });
        self.newest = Some(Arc::clone(&quorum));
        quorum
    }
}

impl KnownReplica {
    fn is_healthy(&self, now: Timestamp, timeout: Duration) -> bool {
        now.since(self.heartbeat_at) < timeout
    }
}

//! Signs: single meanings of evidence.

use rankguard_faults::classes;
use rankguard_model::{
    ClassId, Classification, Entity, Evidence, EvidenceId, EvidenceSource, FieldValues, Generation, JobId, NodeId,
    ProcessExit, Rank, Role, Sequence, Step, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::signal_ref::SignalRef;

/// Signature of a failed check of a node before ranks were started there ([`CallerFact::CheckFailed`]).
pub(crate) const CHECK_SIGNATURE: &str = "preflight";

/// Field of logs that are read later: number of equal messages that a sign stands for, if there are several.
pub const REPEATS_FIELD: &str = "repeats";

/// Field of logs that are read later: source of the year of a line that states none.
pub const ASSUMED_YEAR_FIELD: &str = "assumed_year";

/// Field of logs that are read later: time before which a line without a stamp was written, nanoseconds since 1970. It is
/// the stamp of the first line below it in the same log.
pub const WRITTEN_UNTIL_FIELD: &str = "written_until";
/// Field of logs that are read later: time since the boot of the machine, microseconds, of a line without a wall clock.
pub const SINCE_BOOT_FIELD: &str = "since_boot_us";
/// Field of logs that are read later: number of the line with which another attempt of the run begins below a failure.
pub const NEXT_ATTEMPT_FIELD: &str = "next_attempt";

/// Signature of a rank that makes no steps while others do ([`CallerFact::RankStands`]).
pub(crate) const STANDING_SIGNATURE: &str = "ranks.standing";
/// Signature of the agents' reports about a rank that makes no steps.
const STALLED_SIGNATURE: &str = "ranks.stalled";
/// Field of both with the state of the process, and the state of one that a signal stopped (proc(5)).
pub(crate) const STATE_FIELD: &str = "state";
pub(crate) const STOPPED_STATE: &str = "T";

/// Single meaning of evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Signal {
    /// Evidence from which it was taken.
    pub evidence: EvidenceId,
    /// Time of the event.
    pub at: Timestamp,
    /// True if `at` is comparable with other streams. Logs without timestamps only have an order of their own.
    pub timed: bool,
    /// Source of the evidence.
    pub source: EvidenceSource,
    /// Entity of the evidence.
    pub entity: Entity,
    pub what: SignalMeaning,
    /// Text for the reader of the case.
    pub text: String,
    /// True for a drill ([`Evidence::synthetic`]).
    #[serde(default)]
    pub synthetic: bool,
}

/// Meaning of a sign.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SignalMeaning {
    /// A signature matched the line or sample.
    Mark(Classification),
    /// A rank's process failed.
    Exit { pid: u32, exit: ProcessExit },
    /// A node stopped reporting.
    Silent,
    /// An agent stopped reporting and returned on the same boot of its node.
    AgentReturned,
    /// An agent stopped reporting and its connection was closed.
    AgentEnded,
    /// A node stopped reporting and was started again.
    NodeRebooted,
    /// A job makes no progress although its ranks are alive.
    Stalled,
    /// An order to start ranks failed.
    OrderFailed,
    /// Ranks of a job started on another node than the one of the sign, where their start failed.
    StartsElsewhere,
}

impl SignalMeaning {
    /// Returns true if a node or its agent stopped reporting.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(
            self,
            Self::Silent | Self::AgentReturned | Self::AgentEnded | Self::NodeRebooted
        )
    }
}

/// Fact that the caller knows and no node reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallerFact {
    /// A node has been silent beyond the limit.
    NodeSilent {
        node: NodeId,
        /// Time of its last report.
        since: Timestamp,
    },
    /// The agent of a node has not joined since the caller started; its last report is not known.
    NodeUnjoined {
        node: NodeId,
        /// Time at which the caller started.
        since: Timestamp,
    },
    /// The agent of a node stopped reporting and returned on the same boot, without ranks that ran before.
    AgentReturned {
        node: NodeId,
        /// Time of its last report before.
        since: Timestamp,
    },
    /// A node has been silent beyond the limit, and the connection of its agent was closed when its reports ended. The
    /// kernel closes the connections of a process that ends, and not those of a machine that stops.
    AgentEnded {
        node: NodeId,
        /// Time of its last report.
        since: Timestamp,
    },
    /// A node was silent and reports again on another boot.
    NodeRebooted {
        node: NodeId,
        /// Time of its last report before.
        since: Timestamp,
    },
    /// The start of a job's ranks failed on one node, and ranks of the job started on another.
    StartsElsewhere {
        job: JobId,
        /// Node on which the start failed.
        node: NodeId,
        /// Node on which ranks started.
        on: NodeId,
        /// Time of the newest such start.
        since: Timestamp,
    },
    /// A node lacks something that a job needs, found before its ranks were started there.
    CheckFailed {
        node: NodeId,
        /// Failure class that it would have caused.
        class: ClassId,
        /// Text of the check.
        text: String,
        /// Time of the check.
        since: Timestamp,
    },
    /// A job that reports no steps writes no output and commits no checkpoints, although its ranks are alive.
    JobIdle {
        job: JobId,
        generation: Generation,
        /// Time of its newest output or commit.
        since: Timestamp,
    },
    /// A rank is alive but completes no step, and other ranks of its job do.
    RankStands {
        job: JobId,
        generation: Generation,
        rank: Rank,
        /// Node of the rank.
        node: NodeId,
        /// Newest step that it completed.
        step: Step,
        /// Time of that step.
        since: Timestamp,
        /// True if a signal had stopped its process.
        #[serde(default)]
        is_stopped: bool,
    },
    /// A job's ranks are alive but complete no step.
    JobStalled {
        job: JobId,
        generation: Generation,
        /// Time of its newest completed step.
        since: Timestamp,
        /// Rank for which the others seem to wait, if stacks or steps show it.
        suspect: Option<StallSuspect>,
        /// Further ranks that may be the reason as well as the suspect, such as several that a signal stopped.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        equal_suspects: Vec<StallSuspect>,
        /// Time since which the ranks that have not completed stand; absent in older journals.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stood_at: Option<Timestamp>,
    },
}

/// Rank that seems to delay the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallSuspect {
    pub rank: Rank,
    /// Node of the rank.
    pub node: NodeId,
    /// Distinguishing behaviour, as a phrase that follows the rank's name.
    pub why: String,
    /// Time of its newest step; absent if it is not known, and in older journals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stepped_at: Option<Timestamp>,
}

impl StallSuspect {
    /// Describes the rank as a clause after a semicolon. No rank of its job has made a step since `since`.
    fn clause(&self, since: Timestamp) -> String {
        let Self { rank, why, .. } = self;
        match self.stepped_at.filter(|own| *own < since) {
            Some(own) => format!("; rank {rank} has made no step since {own} and {why}"),
            None => format!("; rank {rank} {why}"),
        }
    }
}

impl Signal {
    /// Returns true if it reports that a rank makes no steps.
    pub(crate) fn is_standing(&self) -> bool {
        let SignalMeaning::Mark(mark) = &self.what else {
            return false;
        };
        [STANDING_SIGNATURE, STALLED_SIGNATURE].contains(&mark.signature.as_str())
    }

    /// Returns the signs of evidence; empty if it is unrelated to failures.
    pub fn of(evidence: &Evidence) -> Vec<Self> {
        SignalRef::all(evidence).map(|glimpse| glimpse.copied()).collect()
    }

    /// Converts a fact of the caller to a sign. Its evidence id has sequence 0, which no spool uses.
    pub fn of_fact(fact: &CallerFact) -> Self {
        let (node, at, entity, what, text) = match fact {
            CallerFact::NodeSilent { node, since } => (
                node.clone(),
                *since,
                Entity::Node { node: node.clone() },
                SignalMeaning::Silent,
                format!("node {node} has not been heard of since {since}"),
            ),
            CallerFact::NodeUnjoined { node, since } => (
                node.clone(),
                *since,
                Entity::Node { node: node.clone() },
                SignalMeaning::Silent,
                format!("the agent of node {node} has not joined since the controller started at {since}"),
            ),
            CallerFact::AgentReturned { node, since } => (
                node.clone(),
                *since,
                Entity::Node { node: node.clone() },
                SignalMeaning::AgentReturned,
                format!("the agent of node {node} sent no report after {since} and returned on the same boot"),
            ),
            CallerFact::AgentEnded { node, since } => (
                node.clone(),
                *since,
                Entity::Node { node: node.clone() },
                SignalMeaning::AgentEnded,
                format!("the agent of node {node} sent no report after {since}, and its connection was closed"),
            ),
            CallerFact::NodeRebooted { node, since } => (
                node.clone(),
                *since,
                Entity::Node { node: node.clone() },
                SignalMeaning::NodeRebooted,
                format!("node {node} sent no report after {since} and was started again"),
            ),
            CallerFact::StartsElsewhere { job, node, on, since } => (
                node.clone(),
                *since,
                Entity::Node { node: node.clone() },
                SignalMeaning::StartsElsewhere,
                format!("ranks of job {job} started on node {on}, with the same command"),
            ),
            CallerFact::CheckFailed {
                node,
                class,
                text,
                since,
            } => {
                let mark = Classification {
                    class: class.clone(),
                    role: Role::Root,
                    confidence: 0.9,
                    signature: CHECK_SIGNATURE.into(),
                    fields: FieldValues::new(),
                };
                let entity = Entity::Node { node: node.clone() };
                (node.clone(), *since, entity, SignalMeaning::Mark(mark), text.clone())
            }
            CallerFact::JobIdle { job, since, .. } => {
                let text = format!(
                    "job {job} has written no output and committed no checkpoint since {since}; it reports no steps"
                );
                let entity = Entity::Job { job: job.clone() };
                (NodeId::from("controller"), *since, entity, SignalMeaning::Stalled, text)
            }
            CallerFact::RankStands {
                job,
                generation,
                rank,
                node,
                step,
                since,
                is_stopped,
            } => {
                let state = is_stopped.then(|| (STATE_FIELD, STOPPED_STATE.to_owned()));
                let fields = [("rank", rank.to_string())].into_iter().chain(state);
                let mark = Classification {
                    class: classes::HANG_STALLED_RANKS.into(),
                    role: Role::Root,
                    confidence: 0.8,
                    signature: STANDING_SIGNATURE.into(),
                    fields: fields.collect(),
                };
                let entity = Entity::Rank {
                    job: job.clone(),
                    generation: *generation,
                    rank: *rank,
                    node: node.clone(),
                };
                let text = format!(
                    "rank {rank} of job {job} has completed no step after step {step} since {since}, and other ranks \
                     make steps"
                );
                (node.clone(), *since, entity, SignalMeaning::Mark(mark), text)
            }
            CallerFact::JobStalled {
                job,
                generation,
                since,
                suspect,
                equal_suspects,
                stood_at,
            } => {
                let all = || suspect.iter().chain(equal_suspects);
                let clauses: String = all().map(|suspect| suspect.clause(*since)).collect();
                let others = stood_at.filter(|stood_at| *stood_at < *since && suspect.is_none());
                let others = others.map(|at| format!("; the ranks that have not completed have made none since {at}"));
                let others = others.unwrap_or_default();
                let text = format!("job {job} has completed no step since {since}{others}{clauses}");
                let entity = match suspect.as_ref().filter(|_| equal_suspects.is_empty()) {
                    None => Entity::Job { job: job.clone() },
                    Some(StallSuspect { rank, node, .. }) => Entity::Rank {
                        job: job.clone(),
                        generation: *generation,
                        rank: *rank,
                        node: node.clone(),
                    },
                };
                // The others went on until they needed the rank that stands, or until their end.
                let stepped_at = all().filter_map(|suspect| suspect.stepped_at).min();
                let at = stepped_at.or(*stood_at).unwrap_or(*since);
                (NodeId::from("controller"), at, entity, SignalMeaning::Stalled, text)
            }
        };
        Self {
            evidence: EvidenceId { node, seq: Sequence(0) },
            at,
            timed: true,
            source: EvidenceSource::Agent,
            entity,
            what,
            text,
            synthetic: false,
        }
    }

    /// Returns the mark, if the sign has one.
    pub fn mark(&self) -> Option<&Classification> {
        match &self.what {
            SignalMeaning::Mark(mark) => Some(mark),
            _ => None,
        }
    }

    /// Returns the number of equal messages for which it stands, at least 1.
    pub(crate) fn repeats(&self) -> u64 {
        let stated = self.field(REPEATS_FIELD).and_then(|count| count.parse().ok());
        stated.unwrap_or(1).max(1)
    }

    /// Returns the time before which a line without a stamp was written, if its log shows it.
    pub(crate) fn written_until(&self) -> Option<Timestamp> {
        let nanos = self.field(WRITTEN_UNTIL_FIELD).filter(|_| !self.timed)?;
        nanos.parse().ok().map(Timestamp)
    }

    /// Returns process id and exit, if the sign is an exit.
    pub fn exit(&self) -> Option<(u32, ProcessExit)> {
        match self.what {
            SignalMeaning::Exit { pid, exit } => Some((pid, exit)),
            _ => None,
        }
    }

    /// Returns the class of the mark.
    pub fn class(&self) -> Option<&ClassId> {
        self.mark().map(|mark| &mark.class)
    }

    /// Returns true if the mark is from the signature with this id.
    pub fn is_signed(&self, id: &str) -> bool {
        self.mark().is_some_and(|mark| mark.signature == id)
    }

    /// Returns true if the mark has the role root.
    pub fn is_root_mark(&self) -> bool {
        self.mark().is_some_and(|mark| mark.role == Role::Root)
    }

    /// Returns a field of the mark.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.mark()?.fields.get(name)
    }

    /// Returns the rank of its entity, or the one in its text.
    pub fn rank(&self) -> Option<Rank> {
        self.entity.rank().or_else(|| self.rank_named())
    }

    /// Returns the port of a network switch that its text names, in words.
    pub fn switch_port(&self) -> Option<String> {
        let switch = self.field("switch").filter(|name| !name.is_empty())?;
        Some(match self.field("port").filter(|port| !port.is_empty()) {
            Some(port) => format!("port {port} of switch {switch}"),
            None => format!("switch {switch}"),
        })
    }

    /// Returns the rank in its text.
    pub fn rank_named(&self) -> Option<Rank> {
        self.field("rank").and_then(|text| text.parse().ok()).map(Rank)
    }

    /// Returns the node of its entity.
    pub fn node(&self) -> Option<&NodeId> {
        self.entity.node()
    }

    /// Returns the process id: of the exit, or the one in the text.
    pub fn pid(&self) -> Option<u32> {
        match self.what {
            SignalMeaning::Exit { pid, .. } => Some(pid),
            _ => self.field("pid").and_then(|text| text.trim_matches('\'').parse().ok()),
        }
    }
}

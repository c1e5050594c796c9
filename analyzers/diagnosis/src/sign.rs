//! Signs: evidence taken apart into single meanings.

use rankguard_model::{
    ClassId, Entity, Evidence, EvidenceId, Exit, Fields, Generation, JobId, Mark, NodeId, Rank, Role, Sequence, Source,
    Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::glimpse::Glimpse;

/// One meaning of one piece of evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sign {
    /// The evidence it was taken from.
    pub evidence: EvidenceId,
    /// When it happened.
    pub at: Timestamp,
    /// Whether `at` may be compared with other streams. Logs without timestamps only have an order of their own.
    pub timed: bool,
    /// Who saw it.
    pub source: Source,
    /// What it is about.
    pub entity: Entity,
    /// The meaning.
    pub what: What,
    /// What a person should read.
    pub text: String,
    /// As the evidence says ([`Evidence::synthetic`]).
    #[serde(default)]
    pub synthetic: bool,
}

/// What a sign means.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// A signature knows the line or sample.
    Mark(Mark),
    /// A rank's process ended other than well.
    Exit {
        /// Its process id.
        pid: u32,
        /// How it ended.
        exit: Exit,
    },
    /// A node stopped speaking.
    Silent,
    /// A job makes no progress although its ranks live.
    Stalled,
    /// An order to start ranks could not be carried out.
    OrderFailed,
}

/// Something the caller knows and no node reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// A node has been silent beyond the limit.
    NodeSilent {
        /// Which one.
        node: NodeId,
        /// When it last spoke.
        since: Timestamp,
    },
    /// A node was found not to have what a job needs, before its ranks were started there.
    CheckFailed {
        /// Which one.
        node: NodeId,
        /// The failure that it would have been.
        class: ClassId,
        /// What was found.
        text: String,
        /// When.
        since: Timestamp,
    },
    /// A job's ranks live but complete no step.
    JobStalled {
        /// Which one.
        job: JobId,
        /// Its generation.
        generation: Generation,
        /// When its newest step was completed.
        since: Timestamp,
        /// The rank that the others seem to wait for, where stacks or steps tell.
        suspect: Option<Suspect>,
    },
}

/// A rank that seems to hold the others up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspect {
    /// The rank.
    pub rank: Rank,
    /// Where it runs.
    pub node: NodeId,
    /// What sets it apart, in words that follow its name.
    pub why: String,
}

impl Sign {
    /// Takes evidence apart; empty when it says nothing about a failure.
    pub fn of(evidence: &Evidence) -> Vec<Self> {
        Glimpse::all(evidence).map(|glimpse| glimpse.copied()).collect()
    }

    /// A fact of the caller as a sign. Its evidence id has sequence 0: no spool holds it.
    pub fn of_fact(fact: &Fact) -> Self {
        let (node, at, entity, what, text) = match fact {
            Fact::NodeSilent { node, since } => (
                node.clone(),
                *since,
                Entity::Node { node: node.clone() },
                What::Silent,
                format!("node {node} has not been heard of since {since}"),
            ),
            Fact::CheckFailed {
                node,
                class,
                text,
                since,
            } => {
                let mark = Mark {
                    class: class.clone(),
                    role: Role::Root,
                    confidence: 0.9,
                    signature: "preflight".into(),
                    fields: Fields::new(),
                };
                let entity = Entity::Node { node: node.clone() };
                (node.clone(), *since, entity, What::Mark(mark), text.clone())
            }
            Fact::JobStalled {
                job,
                generation,
                since,
                suspect,
            } => {
                let text = format!("job {job} has completed no step since {since}");
                let (entity, text) = match suspect {
                    None => (Entity::Job { job: job.clone() }, text),
                    Some(Suspect { rank, node, why }) => {
                        let entity = Entity::Rank {
                            job: job.clone(),
                            generation: *generation,
                            rank: *rank,
                            node: node.clone(),
                        };
                        (entity, format!("{text}; rank {rank} {why}"))
                    }
                };
                (NodeId::from("controller"), *since, entity, What::Stalled, text)
            }
        };
        Self {
            evidence: EvidenceId { node, seq: Sequence(0) },
            at,
            timed: true,
            source: Source::Agent,
            entity,
            what,
            text,
            synthetic: false,
        }
    }

    /// The mark, where this sign is one.
    pub fn mark(&self) -> Option<&Mark> {
        match &self.what {
            What::Mark(mark) => Some(mark),
            _ => None,
        }
    }

    /// The exit, where this sign is one.
    pub fn exit(&self) -> Option<(u32, Exit)> {
        match self.what {
            What::Exit { pid, exit } => Some((pid, exit)),
            _ => None,
        }
    }

    /// The class its mark speaks of.
    pub fn class(&self) -> Option<&ClassId> {
        self.mark().map(|mark| &mark.class)
    }

    /// Whether the signature of this id knows it.
    pub fn is_signed(&self, id: &str) -> bool {
        self.mark().is_some_and(|mark| mark.signature == id)
    }

    /// Whether a signature says that this may have started the failure.
    pub fn is_root_mark(&self) -> bool {
        self.mark().is_some_and(|mark| mark.role == Role::Root)
    }

    /// A value that the signature took out of the text.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.mark()?.fields.get(name)
    }

    /// The rank it is about: its entity's, or the one its text names.
    pub fn rank(&self) -> Option<Rank> {
        self.entity.rank().or_else(|| self.rank_named())
    }

    /// The rank that its text names.
    pub fn rank_named(&self) -> Option<Rank> {
        self.field("rank").and_then(|text| text.parse().ok()).map(Rank)
    }

    /// The node it is about.
    pub fn node(&self) -> Option<&NodeId> {
        self.entity.node()
    }

    /// The process id it names: the one that ended, or the one that a line speaks of.
    pub fn pid(&self) -> Option<u32> {
        match self.what {
            What::Exit { pid, .. } => Some(pid),
            _ => self.field("pid").and_then(|text| text.trim_matches('\'').parse().ok()),
        }
    }
}

//! Inputs of the event loop, from sessions and operators.

use rankguard_core::Policy;
use rankguard_faults::CatalogueFile;
use rankguard_model::{
    Case, CaseId, CaseNote, Evidence, Generation, JobId, JobSpec, NodeId, NodeInfo, NodeView, StatusView, StoreClaim,
};
use tokio::sync::oneshot;

use crate::inbound::InboundPermit;
use crate::rendezvous::NodeConditions;
use crate::session_table::{SessionId, SessionLink};

/// Inputs that may wait for the event loop. When the queue is full, senders wait: an agent's stream then backs up into
/// the agent's spool, and an operator's call runs into its deadline.
pub(crate) const INPUTS_MAX: usize = 256;

/// Input from a session or an operator.
#[derive(Debug)]
pub(crate) enum LoopInput {
    /// An agent opened a session.
    Joined {
        session: SessionId,
        info: NodeInfo,
        link: SessionLink,
    },
    /// A session sent evidence, in the order of its sequence numbers.
    Evidence {
        session: SessionId,
        node: NodeId,
        evidence: Vec<Evidence>,
        /// Held until the evidence is journalled or dropped.
        permit: InboundPermit,
    },
    /// A session ended by itself.
    Left { session: SessionId, node: NodeId },
    /// Additional catalogue files were read; the merged catalogue is valid and has this version.
    Catalogue { files: Vec<CatalogueFile>, version: String },
    /// Settings that differ from those of the journal.
    Policy(Box<Policy>),
    /// Command of an operator.
    Command {
        command: OperatorCommand,
        reply: CommandReply,
    },
    /// Query of an operator.
    Query(OperatorQuery),
}

/// Command of an operator.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "commands are few and are moved once")]
pub(crate) enum OperatorCommand {
    Submit {
        spec: JobSpec,
        /// Claim of its checkpoint folder; absent for a job without checkpoints.
        claim: Option<Box<StoreClaim>>,
    },
    Cancel {
        job: JobId,
        /// Name in the operator's certificate.
        by: Option<String>,
    },
    Cordon {
        node: NodeId,
        reason: String,
    },
    Uncordon {
        node: NodeId,
        /// If not empty, the cordon is lifted only if it has exactly these reasons.
        only_reasons: Vec<String>,
    },
    Drain {
        node: NodeId,
        reason: String,
    },
    Forget {
        node: NodeId,
    },
    Note {
        case: CaseId,
        note: CaseNote,
    },
}

/// Reply channel of a command; the reply is sent after the resulting actions were started.
pub(crate) type CommandReply = oneshot::Sender<Result<(), CommandRefusal>>;

/// Reason to refuse a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CommandRefusal {
    /// The name exists already.
    Exists(String),
    /// The name does not exist.
    Absent(String),
    /// The state of the object does not permit the command, or the command would change nothing.
    Conflict(String),
    /// The command is invalid.
    Invalid(Vec<String>),
    /// The journal cannot be written.
    Unavailable(String),
}

impl CommandRefusal {
    /// Describes the reason in one line.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Exists(why) | Self::Absent(why) | Self::Conflict(why) | Self::Unavailable(why) => why.clone(),
            Self::Invalid(problems) => problems.join("; "),
        }
    }
}

/// Query of an operator, with its reply channel.
#[derive(Debug)]
pub(crate) enum OperatorQuery {
    Status(oneshot::Sender<StatusView>),
    Cases(oneshot::Sender<Vec<Case>>),
    Case(CaseId, oneshot::Sender<Option<Case>>),
    Node(NodeId, oneshot::Sender<Option<NodeView>>),
    /// Nodes that members of torchrun runs may not use.
    Conditions(oneshot::Sender<NodeConditions>),
    /// Checks that a submission may use its name; returns the newest known generation of that name.
    Name(Box<JobSpec>, oneshot::Sender<Result<Generation, CommandRefusal>>),
}

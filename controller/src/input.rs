//! What reaches the task that owns the state: from sessions and from operators.

use rankguard_faults::CatalogueFile;
use rankguard_model::{
    Case, CaseId, CaseNote, Evidence, Generation, JobId, JobSpec, NodeId, NodeInfo, StatusView, StoreClaim,
};
use tokio::sync::oneshot;

use crate::inbound::InboundPermit;
use crate::roster::{Link, SessionId};

/// Inputs that wait for the owner of the state. When it is full, senders wait: an agent's stream then backs up into the
/// agent's spool, an operator's call runs into its deadline.
pub(crate) const INPUTS_MAX: usize = 256;

/// Something that a session or an operator says.
#[derive(Debug)]
pub(crate) enum Input {
    /// An agent opened a session.
    Joined {
        session: SessionId,
        info: NodeInfo,
        link: Link,
    },
    /// A session brought evidence, in the order of its sequence.
    Evidence {
        session: SessionId,
        node: NodeId,
        evidence: Vec<Evidence>,
        /// Held until the evidence is in the journal, or dropped.
        permit: InboundPermit,
    },
    /// A session ended.
    Left { session: SessionId, node: NodeId },
    /// Files besides the built-in catalogue were read, and hold together as this version.
    Catalogue { files: Vec<CatalogueFile>, version: String },
    /// An operator wants something done.
    Command { command: Command, reply: Reply },
    /// An operator asks.
    Query(Query),
}

/// What an operator wants done.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "commands are few and are moved once")]
pub(crate) enum Command {
    Submit {
        spec: JobSpec,
        /// Its claim of its checkpoint folder, where it has one.
        claim: Option<Box<StoreClaim>>,
    },
    Cancel {
        job: JobId,
    },
    Cordon {
        node: NodeId,
        reason: String,
    },
    Uncordon {
        node: NodeId,
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

/// Where the answer to a command goes, once what follows from it has been ordered.
pub(crate) type Reply = oneshot::Sender<Result<(), Refusal>>;

/// Why a command is not carried out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is something of that name already.
    Exists(String),
    /// There is nothing of that name.
    Absent(String),
    /// It makes no sense.
    Invalid(Vec<String>),
    /// The journal cannot be written.
    Unavailable(String),
}

/// What an operator asks, and where the answer goes.
#[derive(Debug)]
pub(crate) enum Query {
    Status(oneshot::Sender<StatusView>),
    Cases(oneshot::Sender<Vec<Case>>),
    Case(CaseId, oneshot::Sender<Option<Case>>),
    /// Whether a submission may have its name, and the newest generation that is known of it.
    Name(Box<JobSpec>, oneshot::Sender<Result<Generation, Refusal>>),
}

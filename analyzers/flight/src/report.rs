//! Report of the analysis.

use serde::{Deserialize, Serialize};

use crate::limits::DumpProblem;

/// Findings of one set of dumps. All lists have a stable order: the same dumps give the same report.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AnalysisReport {
    /// Groups in trouble. First those in which the chains of waits end, marked `root`; then by number of waiting
    /// ranks.
    pub groups: Vec<GroupFinding>,
    /// Ranks for which others wait and that wait for none, the most certain first.
    pub culprits: Vec<CulpritRank>,
    /// Ranks with evidence of their own that end no chain of waits.
    pub suspects: Vec<SuspectRank>,
    /// Ranks that wait for each other in a cycle, each with the sentences that close it.
    pub cycles: Vec<SuspectRank>,
    /// Ranks with a dump that neither wait nor are waited for.
    pub healthy_ranks: Vec<u32>,
    /// Ranks that wait, directly or through others.
    pub waiting_ranks: Vec<u32>,
    /// Expected ranks without a dump.
    pub ranks_without_dump: Vec<u32>,
    /// Ranks with an empty dump.
    pub ranks_without_entries: Vec<u32>,
    /// Number of analysed dumps.
    pub dumps: usize,
    /// Number of analysed operations.
    pub entries: usize,
    /// Problems of the dumps.
    pub problems: Vec<DumpProblem>,
    /// Progress of every group, those without trouble included.
    #[serde(skip)]
    pub(crate) all_groups: Vec<GroupState>,
}

impl AnalysisReport {
    /// Returns the progress of every group, those without trouble included, by id.
    pub fn all_groups(&self) -> &[GroupState] {
        &self.all_groups
    }
}

/// Group in trouble: an operation that waits for members, or on which the members do not agree.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GroupFinding {
    /// Id and description as the recorder's own tool writes them (`74:EXPERT_MODEL_PARALLEL_GROUP`).
    pub name: String,
    /// Name of the group in the dump, equal on all members.
    pub id: String,
    /// Description by the program.
    pub description: String,
    /// Global ranks of the members.
    pub members: Vec<u32>,
    /// True if chains of waits end here, at a culprit.
    pub root: bool,
    /// First operation that waits (`nccl:all_to_all`).
    pub collective: String,
    /// Sequence number of that operation.
    pub seq: i64,
    /// Sequence number that the foremost member enqueued.
    pub front_seq: i64,
    /// Shape of its first input on the lowest waiting rank (`4027x5120`).
    pub size: String,
    /// Element type of that input.
    pub dtype: String,
    /// Frame in which the lowest waiting rank called it (`train.py:35 step`), if stacks were recorded.
    pub frame: Option<String>,
    /// Members that never enqueued the operation in which the foremost member waits.
    pub missing_ranks: Vec<u32>,
    /// Those of them that never enqueued `seq` either; the rest continued further and then stopped.
    pub missing_first_ranks: Vec<u32>,
    /// Members that wait in an incomplete operation of this group.
    pub waiting_ranks: Vec<u32>,
    /// Members that completed all operations that they enqueued here.
    pub healthy_ranks: Vec<u32>,
    /// Mismatches between the members.
    pub mismatches: Vec<CallMismatch>,
    /// Further remarks on the group.
    pub notes: Vec<String>,
}

/// Mismatch between members at one sequence number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallMismatch {
    /// Sequence number of the compared operation.
    pub seq: i64,
    pub kind: MismatchKind,
    /// Sides of the mismatch, the largest first.
    pub sides: Vec<MismatchSide>,
    /// Summary as one sentence.
    pub sentence: String,
}

/// Property in which members can differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MismatchKind {
    /// The members called different operations.
    Type,
    /// Different numbers of elements.
    Size,
    /// Input and output of one rank are inconsistent.
    Ratio,
    /// Elements sent by all differ from elements received by all.
    Total,
    /// Different element types.
    Dtype,
}

/// Side of a mismatch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MismatchSide {
    /// Ranks of this side.
    pub ranks: Vec<u32>,
    /// Call of these ranks.
    pub what: String,
    /// Innermost program frame in which the lowest of them called it (`file:line function`).
    pub frame: Option<String>,
}

/// Rank that ends chains of waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CulpritRank {
    pub rank: u32,
    /// Confidence that it is at fault, 0 to 1.
    pub confidence: f64,
    /// Chain of waits, in sentences.
    pub because: Vec<String>,
}

/// Rank with evidence of its own, weaker than that of a culprit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SuspectRank {
    pub rank: u32,
    /// Confidence that it is at fault, 0 to 1.
    pub confidence: f64,
    /// Evidence, in sentences.
    pub because: Vec<String>,
}

/// Progress of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupState {
    /// Name of the group in the dump.
    pub id: String,
    /// Description by the program.
    pub description: String,
    /// Progress of each member.
    pub members: Vec<MemberState>,
}

/// Progress of one member of a group, in collectives; `None` if unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberState {
    pub rank: u32,
    /// Last collective that the program called.
    pub enqueued: Option<i64>,
    /// Last collective that is known to have started.
    pub started: Option<i64>,
    /// Last collective that the rank itself saw complete.
    pub completed: Option<i64>,
    /// Number of operations recorded in this group.
    pub entries: usize,
}

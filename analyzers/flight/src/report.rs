//! What the analysis says.

use serde::{Deserialize, Serialize};

use crate::limits::Problem;

/// The findings of one set of dumps. Everything is in a stable order: the same dumps give the same report.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Report {
    /// Groups in trouble. First those where the chains of waiting end, marked `root`; then by number of waiting ranks.
    pub groups: Vec<Group>,
    /// Ranks that others wait for and that wait for nobody, the most certain first.
    pub culprits: Vec<Culprit>,
    /// Ranks that show something odd of their own but end no chain of waiting.
    pub suspects: Vec<Suspect>,
    /// Ranks that wait for each other in a circle, each with the sentences that close it.
    pub cycles: Vec<Suspect>,
    /// Ranks with a dump that neither wait nor are waited for.
    pub healthy_ranks: Vec<u32>,
    /// Ranks that wait, directly or through others.
    pub waiting_ranks: Vec<u32>,
    /// Ranks that ought to exist and have no dump.
    pub ranks_without_dump: Vec<u32>,
    /// Ranks whose dump holds no entry.
    pub ranks_without_entries: Vec<u32>,
    /// Dumps that were analysed.
    pub dumps: usize,
    /// Operations that were analysed.
    pub entries: usize,
    /// What was odd.
    pub problems: Vec<Problem>,
    /// How far every group came, those without trouble too.
    #[serde(skip)]
    pub(crate) all_groups: Vec<GroupState>,
}

impl Report {
    /// How far every group came, those without trouble too, by id.
    pub fn all_groups(&self) -> &[GroupState] {
        &self.all_groups
    }
}

/// A group in trouble: an operation that waits for members, or on whose shape the members do not agree.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Group {
    /// Id and description as the recorder's own tool writes them (`74:EXPERT_MODEL_PARALLEL_GROUP`).
    pub name: String,
    /// The group's name in the dump, the same on all members.
    pub id: String,
    /// What the program calls it.
    pub description: String,
    /// Global ranks of the members.
    pub members: Vec<u32>,
    /// Whether chains of waiting end here, at a culprit.
    pub root: bool,
    /// The first operation that waits (`nccl:all_to_all`).
    pub collective: String,
    /// Its sequence number.
    pub seq: i64,
    /// The number that the foremost member enqueued.
    pub front_seq: i64,
    /// Shape of its first input on the lowest waiting rank (`4027x5120`).
    pub size: String,
    /// Type of that input.
    pub dtype: String,
    /// Where the lowest waiting rank called it (`train.py:35 step`), where stacks were recorded.
    pub frame: Option<String>,
    /// Members that never enqueued what the foremost member waits in.
    pub missing_ranks: Vec<u32>,
    /// Those of them that never enqueued `seq` either; the rest came further and then stopped.
    pub missing_first_ranks: Vec<u32>,
    /// Members that wait in an operation of this group that is not complete.
    pub waiting_ranks: Vec<u32>,
    /// Members that are done with all that they enqueued here.
    pub healthy_ranks: Vec<u32>,
    /// What the members do not agree on.
    pub mismatches: Vec<Mismatch>,
    /// What there is to say beyond that.
    pub notes: Vec<String>,
}

/// What members do not agree on at one sequence number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mismatch {
    /// Sequence number.
    pub seq: i64,
    /// In what they differ.
    pub kind: MismatchKind,
    /// Who says what, the largest side first.
    pub sides: Vec<Side>,
    /// All of it in a sentence.
    pub sentence: String,
}

/// In what members can differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MismatchKind {
    /// Another operation.
    Type,
    /// Another number of elements.
    Size,
    /// Input and output of one rank do not belong together.
    Ratio,
    /// What all send is not what all receive.
    Total,
    /// Another type of element.
    Dtype,
}

/// One side of a mismatch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Ranks of this side.
    pub ranks: Vec<u32>,
    /// What they called.
    pub what: String,
    /// Where the lowest of them called it: the innermost frame that is the program's own (`file:line function`).
    pub frame: Option<String>,
}

/// A rank that ends chains of waiting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Culprit {
    /// Global rank.
    pub rank: u32,
    /// From 0 to 1.
    pub confidence: f64,
    /// The chain, in sentences.
    pub because: Vec<String>,
}

/// A rank with something to say about, short of a culprit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Suspect {
    /// Global rank.
    pub rank: u32,
    /// From 0 to 1.
    pub confidence: f64,
    /// What it shows.
    pub because: Vec<String>,
}

/// How far one group came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupState {
    /// The group's name in the dump.
    pub id: String,
    /// What the program calls it.
    pub description: String,
    /// How far each member came.
    pub members: Vec<MemberState>,
}

/// How far one member of a group came, in collectives; `None` where nothing tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberState {
    /// Global rank.
    pub rank: u32,
    /// Last collective that the program called.
    pub enqueued: Option<i64>,
    /// Last that is known to have started.
    pub started: Option<i64>,
    /// Last that the rank itself saw complete.
    pub completed: Option<i64>,
    /// Operations recorded in this group.
    pub entries: usize,
}

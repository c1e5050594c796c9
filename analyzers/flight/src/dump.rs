//! What one rank wrote.

use std::collections::BTreeMap;
use std::sync::Arc;

/// One rank's dump. Text that many entries share is held once.
#[derive(Debug, Clone, PartialEq)]
pub struct Dump {
    /// Global rank, where it is known.
    pub rank: Option<u32>,
    /// Format version as written (`2.9`); empty where it is missing.
    pub version: Arc<str>,
    /// Version of the library (`2.27.3`).
    pub library_version: Option<Arc<str>>,
    /// The groups that this rank belongs to.
    pub groups: Vec<GroupConfig>,
    /// How far each group came, by the rank's own number of the group (`pg_id`), which differs between ranks.
    pub status: BTreeMap<i64, GroupStatus>,
    /// Recorded operations, oldest first.
    pub entries: Vec<Entry>,
}

impl Dump {
    /// Major and minor of the format; the newest known where it cannot be read.
    pub fn version_numbers(&self) -> (u32, u32) {
        let (major, minor) = self.version.split_once('.').unwrap_or((&self.version, "0"));
        match (major.parse(), minor.parse()) {
            (Ok(major), Ok(minor)) => (major, minor),
            _ => (2, 10),
        }
    }
}

/// A process group as one rank knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupConfig {
    /// Name of the group, the same on all members (`74`, or a hash).
    pub id: Arc<str>,
    /// What the program calls it (`EXPERT_MODEL_PARALLEL_GROUP`); `undefined` or empty where it gave no name.
    pub description: Arc<str>,
    /// Global ranks of the members, ascending.
    pub ranks: Arc<[u32]>,
}

/// Sequence numbers of a group on one rank. Collectives and point-to-point operations both write here, each its own
/// counter: which one a number belongs to has to be concluded from the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupStatus {
    /// Last that the program called.
    pub last_enqueued: Option<i64>,
    /// Last whose kernel was seen to start; -1 where starts are not timed.
    pub last_started: Option<i64>,
    /// Last that was seen to complete.
    pub last_completed: Option<i64>,
}

/// How far an operation came, as the rank's watchdog saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Called by the program. Where starts are not timed an operation that runs says so too.
    Scheduled,
    /// Its kernel runs.
    Started,
    /// Done.
    Completed,
}

/// One recorded operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Number in this rank's record, ascending; a gap is what a dump of active operations left out.
    pub record_id: i64,
    /// The rank's own number of the group.
    pub pg_id: Option<i64>,
    /// Name of the group.
    pub group: Arc<str>,
    /// What the program calls the group.
    pub description: Arc<str>,
    /// `nccl:all_reduce`, `nccl:send 0->1`.
    pub profiling_name: Arc<str>,
    /// Collectives called in this group so far.
    pub collective_seq: i64,
    /// Point-to-point operations called in this group so far by this rank.
    pub p2p_seq: i64,
    /// Operations called in this group so far, those within a coalesced launch counted singly.
    pub op_id: Option<i64>,
    /// Shape of each input tensor.
    pub input_sizes: Arc<[Vec<i64>]>,
    /// Shape of each output tensor.
    pub output_sizes: Arc<[Vec<i64>]>,
    /// Type of each input tensor (`BFloat16`).
    pub input_dtypes: Arc<[Arc<str>]>,
    /// Type of each output tensor.
    pub output_dtypes: Arc<[Arc<str>]>,
    /// How far it came.
    pub state: State,
    /// When the program called it, nanoseconds since the epoch, by that node's clock.
    pub time_created_ns: Option<i64>,
    /// When the watchdog saw it start.
    pub time_started_ns: Option<i64>,
    /// When the watchdog saw it complete.
    pub time_completed_ns: Option<i64>,
    /// After how long it times out, milliseconds.
    pub timeout_ms: Option<i64>,
    /// Send, receive or a coalesced launch of these.
    pub is_p2p: bool,
    /// The watchdog let it go; not completed as well means that it timed out.
    pub retired: bool,
    /// Where the program called it, innermost first.
    pub frames: Arc<[Frame]>,
    /// Thread that called it (`pt_autograd_4`).
    pub thread: Option<Arc<str>>,
}

/// One line of a stack.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame {
    /// Function.
    pub function: Arc<str>,
    /// File.
    pub file: Arc<str>,
    /// Line in it.
    pub line: i64,
}

impl std::fmt::Display for Frame {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}:{} {}", self.file, self.line, self.function)
    }
}

/// The rank that a file name ends with: `_dump_12`, `nccl_trace_rank_12`, `comm_lib_trace_rank_12.pickle`.
pub fn rank_of_file_name(name: &str) -> Option<u32> {
    let base = name.rsplit(['/', '\\']).next()?;
    let stem = base.split('.').next()?;
    let digits = stem.len() - stem.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    stem[stem.len() - digits..].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::rank_of_file_name;

    #[test]
    fn ranks_are_read_from_the_end_of_file_names() {
        assert_eq!(rank_of_file_name("_dump_12"), Some(12));
        assert_eq!(rank_of_file_name("/var/run/nccl_trace_rank_7"), Some(7));
        assert_eq!(rank_of_file_name("node3/comm_lib_trace_rank_100.pickle"), Some(100));
        assert_eq!(rank_of_file_name("fault_injection.log"), None);
        assert_eq!(rank_of_file_name(""), None);
        assert_eq!(rank_of_file_name("trace_99999999999999"), None);
    }
}

//! Flight-recorder dump of one rank.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Dump of one rank. Text that many entries share is stored once.
#[derive(Debug, Clone, PartialEq)]
pub struct RecorderDump {
    /// Global rank, if known.
    pub rank: Option<u32>,
    /// Format version as written (`2.9`); empty if it is missing.
    pub version: Arc<str>,
    /// Version of the library (`2.27.3`).
    pub library_version: Option<Arc<str>>,
    /// Groups of which this rank is a member.
    pub groups: Vec<GroupConfig>,
    /// Progress in each group, by the rank's own number of the group (`pg_id`), which differs between ranks.
    pub status: BTreeMap<i64, GroupStatus>,
    /// Recorded operations, oldest first.
    pub entries: Vec<DumpEntry>,
}

impl RecorderDump {
    /// Returns major and minor version of the format; the newest known if it cannot be parsed.
    pub fn version_numbers(&self) -> (u32, u32) {
        let (major, minor) = self.version.split_once('.').unwrap_or((&self.version, "0"));
        match (major.parse(), minor.parse()) {
            (Ok(major), Ok(minor)) => (major, minor),
            _ => (2, 10),
        }
    }
}

/// Process group as one rank knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupConfig {
    /// Name of the group, equal on all members (`74`, or a hash).
    pub id: Arc<str>,
    /// Description by the program (`EXPERT_MODEL_PARALLEL_GROUP`); `undefined` or empty if it gave none.
    pub description: Arc<str>,
    /// Global ranks of the members, ascending.
    pub ranks: Arc<[u32]>,
}

/// Sequence numbers of a group on one rank. Collectives and point-to-point operations both write here, each its own
/// counter; the entries show to which one a number belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupStatus {
    /// Last operation that the program called.
    pub last_enqueued: Option<i64>,
    /// Last operation that was seen to start; -1 if starts are not timed.
    pub last_started: Option<i64>,
    /// Last operation that was seen to complete.
    pub last_completed: Option<i64>,
}

/// State of an operation, as the rank's watchdog saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperationState {
    /// Called by the program. A running operation has this state too if starts are not timed.
    Scheduled,
    /// The kernel runs.
    Started,
    Completed,
}

/// Recorded operation of one rank.
#[derive(Debug, Clone, PartialEq)]
pub struct DumpEntry {
    /// Number in this rank's record, ascending; a gap is an operation that a dump of active operations omitted.
    pub record_id: i64,
    /// The rank's own number of the group.
    pub pg_id: Option<i64>,
    /// Name of the group.
    pub group: Arc<str>,
    /// Description of the group by the program.
    pub description: Arc<str>,
    /// Operation name: `nccl:all_reduce`, `nccl:send 0->1`.
    pub profiling_name: Arc<str>,
    /// Number of collectives called in this group so far.
    pub collective_seq: i64,
    /// Number of point-to-point operations called in this group so far by this rank.
    pub p2p_seq: i64,
    /// Number of operations called in this group so far, each one of a coalesced launch counted.
    pub op_id: Option<i64>,
    /// Shape of each input tensor.
    pub input_sizes: Arc<[Vec<i64>]>,
    /// Shape of each output tensor.
    pub output_sizes: Arc<[Vec<i64>]>,
    /// Type of each input tensor (`BFloat16`).
    pub input_dtypes: Arc<[Arc<str>]>,
    /// Type of each output tensor.
    pub output_dtypes: Arc<[Arc<str>]>,
    pub state: OperationState,
    /// Time of the call, nanoseconds since the epoch, by the node's clock.
    pub time_created_ns: Option<i64>,
    /// Time at which the watchdog saw it start, nanoseconds.
    pub time_started_ns: Option<i64>,
    /// Time at which the watchdog saw it complete, nanoseconds.
    pub time_completed_ns: Option<i64>,
    /// Timeout of the operation, milliseconds.
    pub timeout_ms: Option<i64>,
    /// True for a send, a receive or a coalesced launch of these.
    pub is_p2p: bool,
    /// True if the watchdog stopped tracking it; if it is not completed, it timed out.
    pub retired: bool,
    /// Stack of the call, innermost frame first.
    pub frames: Arc<[StackFrame]>,
    /// Thread that called it (`pt_autograd_4`).
    pub thread: Option<Arc<str>>,
}

/// Frame of a stack.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StackFrame {
    pub function: Arc<str>,
    pub file: Arc<str>,
    pub line: i64,
}

impl std::fmt::Display for StackFrame {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}:{} {}", self.file, self.line, self.function)
    }
}

/// Parses the rank at the end of a file name: `_dump_12`, `nccl_trace_rank_12`, `comm_lib_trace_rank_12.pickle`.
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

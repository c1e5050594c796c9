//! Parser of entry names: operation, and peers of a send or receive.

use std::fmt;

/// Counter of a group that numbers an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SequenceKind {
    /// `collective_seq_id`: the same number on two members is the same operation.
    Collective,
    /// `p2p_seq_id`: each rank counts its own sends and receives.
    PointToPoint,
}

/// Kind of operation; kinds differ in the sizes on which their members must agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum OpKind {
    /// Equal input and output on all members.
    AllReduce,
    /// Output is input times members.
    AllGather,
    /// All-gather of uneven parts.
    AllGatherUneven,
    /// Input is output times members.
    ReduceScatter,
    /// Reduce-scatter of uneven parts.
    ReduceScatterUneven,
    /// Elements sent by all equal elements received by all.
    AllToAll,
    /// Data from one member to all.
    Broadcast,
    /// Reduction from all members to one.
    Reduce,
    /// Data from all members to one, unreduced.
    Gather,
    /// Data from one member to all, in parts.
    Scatter,
    Barrier,
    /// Send to one peer, by position in the group.
    Send {
        /// Position of the sender in the group.
        from: u32,
        /// Position of the receiver in the group.
        to: u32,
    },
    /// Receive from one peer, by position in the group.
    Receive {
        /// Position of the sender in the group.
        from: u32,
        /// Position of the receiver in the group.
        to: u32,
    },
    /// End of several operations launched as one.
    Coalesced,
    /// Unknown name; compared by name only.
    Other,
}

impl OpKind {
    /// Returns true if no member can complete it before every member has taken part: one completion
    /// proves all.
    pub fn proves_all(self) -> bool {
        use OpKind::*;
        matches!(
            self,
            AllReduce | AllGather | AllGatherUneven | ReduceScatter | ReduceScatterUneven | AllToAll | Barrier
        )
    }
}

/// Parsed `profiling_name`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationName<'a> {
    /// `nccl`, `xccl`; empty if the name has none.
    pub backend: &'a str,
    /// Name without backend: `all_reduce`, `send`.
    pub name: &'a str,
    pub kind: OpKind,
}

impl<'a> OperationName<'a> {
    /// Parses `nccl:all_reduce`, `nccl:send 0->1`, `nccl:recv 3<-0`.
    pub fn parse(profiling_name: &'a str) -> Self {
        let (backend, rest) = profiling_name.split_once(':').unwrap_or(("", profiling_name));
        let (name, between) = rest.split_once(' ').unwrap_or((rest, ""));
        let kind = match name {
            "all_reduce" | "allreduce_coalesced" => OpKind::AllReduce,
            "all_reduce_barrier" | "barrier" => OpKind::Barrier,
            "all_gather" | "_all_gather_base" | "all_gather_single" | "all_gather_into_tensor_coalesced" => {
                OpKind::AllGather
            }
            "all_gather_v" => OpKind::AllGatherUneven,
            "reduce_scatter" | "_reduce_scatter_base" | "reduce_scatter_single" | "reduce_scatter_tensor_coalesced" => {
                OpKind::ReduceScatter
            }
            "reduce_scatter_v" => OpKind::ReduceScatterUneven,
            "all_to_all" | "all_to_all_single" | "all_to_all_v_single" | "alltoall" | "alltoall_base" => {
                OpKind::AllToAll
            }
            "broadcast" | "_broadcast_oop" => OpKind::Broadcast,
            "reduce" | "_reduce_oop" => OpKind::Reduce,
            "gather" => OpKind::Gather,
            "scatter" => OpKind::Scatter,
            "coalesced" | "ALLGATHER_coalesced" | "REDUCE_SCATTER_coalesced" => OpKind::Coalesced,
            "send" => pair(between, "->").map_or(OpKind::Other, |(from, to)| OpKind::Send { from, to }),
            "recv" => pair(between, "<-").map_or(OpKind::Other, |(to, from)| OpKind::Receive { from, to }),
            _ => OpKind::Other,
        };
        OperationName { backend, name, kind }
    }
}

fn pair(text: &str, arrow: &str) -> Option<(u32, u32)> {
    let (left, right) = text.split_once(arrow)?;
    Some((left.trim().parse().ok()?, right.trim().parse().ok()?))
}

impl fmt::Display for OperationName<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_recorder_are_understood() {
        let kind = |name| OperationName::parse(name).kind;
        assert_eq!(kind("nccl:send 0->3"), OpKind::Send { from: 0, to: 3 });
        assert_eq!(kind("nccl:recv 3<-0"), OpKind::Receive { from: 0, to: 3 });
        assert_eq!(kind("xccl:_all_gather_base"), OpKind::AllGather);
        assert_eq!(kind("nccl:recv anysource"), OpKind::Other);
        assert_eq!(OperationName::parse("nccl:new_window").kind, OpKind::Other);
    }
}

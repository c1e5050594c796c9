//! Mismatches between the members of one operation.
//!
//! Follows the rules of `Op.match` in PyTorch's flight-recorder analyzer, but compares numbers of elements and not
//! shapes: NCCL receives a buffer and a count, so `[2, 3]` matches `[6]`. Only operations that are pending on some rank
//! are compared, and in each group only the first mismatch is reported: after it the sequence numbers of the members no
//! longer correspond.

use std::collections::BTreeMap;

use crate::dump::DumpEntry;
use crate::operation::{OpKind, OperationName, SequenceKind};
use crate::phrases;
use crate::report::{CallMismatch, MismatchKind, MismatchSide};

use super::combined::{CombinedDumps, GroupIndex, GroupView, RankOperation, kind};
use super::pairs::TransferTable;

/// Mismatch with the blamed ranks.
pub(super) struct BlamedMismatch {
    pub(super) group: GroupIndex,
    /// Counter of the sequence number.
    pub(super) lane: SequenceKind,
    pub(super) mismatch: CallMismatch,
    /// Blamed ranks, each with the confidence, 0 to 1; empty if no side can be blamed.
    pub(super) blamed: Vec<(u32, f64)>,
}

/// Call of the compared operation by one member.
struct MemberCall<'d> {
    rank: u32,
    /// Operation names of all entries, joined by ` + `.
    name: String,
    /// Entries of the call without the closing entry of a launch.
    entries: Vec<&'d DumpEntry>,
    kind: OpKind,
}

/// Confidence that a rank outside of the majority is wrong, 0 to 1.
const MINORITY: f64 = 0.8;
/// Confidence that each rank is wrong if no side has a majority, 0 to 1.
const EITHER: f64 = 0.4;
/// Maximum number of ranks that are blamed without a majority; if there are more, none is blamed.
const TIED_RANKS: usize = 8;

/// Returns the first mismatch of the collectives of each group, and the first of its sends and receives.
pub(super) fn compare(world: &CombinedDumps<'_>) -> Vec<BlamedMismatch> {
    let mut found = Vec::new();
    for (index, group) in world.groups.iter().enumerate() {
        let mut by_seq: BTreeMap<i64, Vec<(u32, &RankOperation)>> = BTreeMap::new();
        for (rank, member) in &group.members {
            let ops = member.ops.iter().map(|at| &world.ranks[rank].ops[*at]);
            for op in ops.filter(|op| op.lane == SequenceKind::Collective) {
                by_seq.entry(op.seq).or_default().push((*rank, op));
            }
        }
        for (seq, ops) in by_seq {
            if ops.len() < 2 || !ops.iter().any(|(_, op)| op.pending()) {
                continue;
            }
            let calls: Vec<MemberCall<'_>> = ops.iter().filter_map(|(rank, op)| call(world, *rank, op)).collect();
            if let Some((mismatch, blamed)) = differ(world, group, seq, &calls) {
                found.push(BlamedMismatch {
                    group: index,
                    lane: SequenceKind::Collective,
                    mismatch,
                    blamed,
                });
                break;
            }
        }
    }
    found.extend(compare_pairs(world));
    found
}

/// Returns the call of an operation by one rank; `None` if the rank has no dump.
fn call<'d>(world: &CombinedDumps<'d>, rank: u32, op: &RankOperation) -> Option<MemberCall<'d>> {
    let dump = world.ranks.get(&rank)?.dump?;
    let mut entries: Vec<&DumpEntry> = op.entries().map(|at| &dump.entries[at]).collect();
    let names: Vec<&str> = entries
        .iter()
        .map(|entry| OperationName::parse(&entry.profiling_name).name)
        .collect();
    // The closing entry of a launch has no sizes.
    if entries.len() > 1 {
        entries.retain(|entry| kind(entry) != OpKind::Coalesced);
    }
    Some(MemberCall {
        rank,
        name: names.join(" + "),
        entries,
        kind: op.kind,
    })
}

/// Mismatch with the blamed ranks, each with the confidence.
type MismatchBlame = (CallMismatch, Vec<(u32, f64)>);

/// Compares operations, then sizes, then element types; returns the first mismatch.
fn differ(world: &CombinedDumps<'_>, group: &GroupView, seq: i64, calls: &[MemberCall<'_>]) -> Option<MismatchBlame> {
    let first = calls.first()?;
    let place = phrases::group_name(&group.id, &group.description);
    if let Some(sides) = sides(calls, |call| Some(call.name.clone())) {
        return Some(describe_mismatch(seq, MismatchKind::Type, sides, &place));
    }
    let kind = first.kind;
    if kind == OpKind::AllToAll {
        return total(world, group, seq, calls, &place).or_else(|| types(seq, kind, calls, &place));
    }
    let (inputs, outputs) = compared(kind);
    let size = |side: fn(&DumpEntry) -> &[Vec<i64>], wanted: bool| {
        wanted
            .then(|| {
                sides(calls, |call| {
                    elements(&call.entries, side).map(|count| count.to_string())
                })
            })
            .flatten()
    };
    if let Some(sides) = size(|entry| &entry.input_sizes, inputs).or_else(|| size(|entry| &entry.output_sizes, outputs))
    {
        return Some(describe_mismatch(seq, MismatchKind::Size, sides, &place));
    }
    ratio(group, seq, kind, calls, &place).or_else(|| types(seq, kind, calls, &place))
}

/// Returns two flags for a kind: true if the inputs, and true if the outputs, must have equal sizes on all members.
fn compared(kind: OpKind) -> (bool, bool) {
    match kind {
        OpKind::AllReduce | OpKind::AllGather | OpKind::ReduceScatter | OpKind::Broadcast => (true, true),
        OpKind::Reduce | OpKind::Gather | OpKind::ReduceScatterUneven => (true, false),
        OpKind::Scatter | OpKind::AllGatherUneven => (false, true),
        _ => (false, false),
    }
}

/// Returns the number of elements of all inputs, or of all outputs; `None` if none were recorded.
fn elements(entries: &[&DumpEntry], side: fn(&DumpEntry) -> &[Vec<i64>]) -> Option<i128> {
    let mut tensors = entries.iter().flat_map(|entry| side(entry)).peekable();
    tensors.peek()?;
    let count = |sizes: &Vec<i64>| {
        let sizes = sizes.iter().map(|size| i128::from(*size));
        sizes.fold(1, i128::saturating_mul)
    };
    Some(tensors.map(count).fold(0, i128::saturating_add))
}

/// Groups the members by the compared value, largest group first; `None` if they agree. Members without a value are
/// left out.
fn sides(calls: &[MemberCall<'_>], says: impl Fn(&MemberCall<'_>) -> Option<String>) -> Option<Vec<MismatchSide>> {
    let mut by_word: BTreeMap<String, Vec<&MemberCall<'_>>> = BTreeMap::new();
    for call in calls {
        if let Some(word) = says(call) {
            by_word.entry(word).or_default().push(call);
        }
    }
    (by_word.len() > 1).then(|| {
        let mut sides: Vec<MismatchSide> = by_word.into_values().filter_map(|calls| side(&calls)).collect();
        sides.sort_by_key(|side| (std::cmp::Reverse(side.ranks.len()), side.ranks[0]));
        sides
    })
}

/// Describes members with equal calls by the call of the lowest rank.
fn side(calls: &[&MemberCall<'_>]) -> Option<MismatchSide> {
    let lowest = calls.first()?;
    let mut what = phrases::call(lowest.entries.first()?);
    if lowest.entries.len() > 1 {
        what = format!("{what} and {} more in one launch", lowest.entries.len() - 1);
    }
    let frame = lowest
        .entries
        .first()
        .and_then(|entry| phrases::own_frame(&entry.frames));
    Some(MismatchSide {
        ranks: calls.iter().map(|call| call.rank).collect(),
        what,
        frame: frame.map(ToString::to_string),
    })
}

/// Describes a mismatch and blames the ranks outside of the majority. Without a majority all ranks are blamed, if they
/// are at most [`TIED_RANKS`].
fn describe_mismatch(seq: i64, kind: MismatchKind, sides: Vec<MismatchSide>, place: &str) -> MismatchBlame {
    let ranks: usize = sides.iter().map(|side| side.ranks.len()).sum();
    let blamed = match sides.split_first() {
        Some((most, rest)) if most.ranks.len() * 2 > ranks => rest
            .iter()
            .flat_map(|side| &side.ranks)
            .map(|rank| (*rank, MINORITY))
            .collect(),
        _ if ranks <= TIED_RANKS => sides
            .iter()
            .flat_map(|side| &side.ranks)
            .map(|rank| (*rank, EITHER))
            .collect(),
        _ => Vec::new(),
    };
    let said: Vec<String> = sides.iter().map(said).collect();
    let noun = match kind {
        MismatchKind::Type => "operation",
        MismatchKind::Dtype => "element type",
        _ => "size",
    };
    let sentence = format!(
        "members of group {place} differ in {noun} at sequence {seq}: {}",
        said.join("; ")
    );
    (
        CallMismatch {
            seq,
            kind,
            sides,
            sentence,
        },
        blamed,
    )
}

/// Formats one side as a sentence: its ranks, their call, the frame.
fn said(side: &MismatchSide) -> String {
    let verb = if side.ranks.len() == 1 { "calls" } else { "call" };
    let frame = side
        .frame
        .as_ref()
        .map(|frame| format!(" at {frame}"))
        .unwrap_or_default();
    format!("{} {verb} {}{frame}", phrases::ranks(&side.ranks), side.what)
}

/// Compares the number of elements that all members send with the number that they receive; blames no rank. Requires
/// the calls of all members, in dumps since format 2.4, which record these shapes.
fn total(
    world: &CombinedDumps<'_>,
    group: &GroupView,
    seq: i64,
    calls: &[MemberCall<'_>],
    place: &str,
) -> Option<MismatchBlame> {
    let old = |call: &MemberCall<'_>| {
        world.ranks[&call.rank]
            .dump
            .is_none_or(|dump| dump.version_numbers() < (2, 4))
    };
    if calls.len() < group.ranks.len() || calls.iter().any(old) {
        return None;
    }
    let mut sent = 0i128;
    let mut received = 0i128;
    for call in calls {
        sent = sent.saturating_add(elements(&call.entries, |entry| &entry.input_sizes)?);
        received = received.saturating_add(elements(&call.entries, |entry| &entry.output_sizes)?);
    }
    if sent == received {
        return None;
    }
    let sides: Vec<MismatchSide> = calls.iter().filter_map(|call| side(&[call])).collect();
    let sentence = format!(
        "members of group {place} send {sent} elements and receive {received} in {} {seq}: who is wrong cannot be told",
        calls[0].name
    );
    Some((
        CallMismatch {
            seq,
            kind: MismatchKind::Total,
            sides,
            sentence,
        },
        Vec::new(),
    ))
}

/// Compares the input size of each member with its output size.
fn ratio(group: &GroupView, seq: i64, kind: OpKind, calls: &[MemberCall<'_>], place: &str) -> Option<MismatchBlame> {
    let members = group.ranks.len() as i128;
    let wrong = |call: &&MemberCall<'_>| {
        let (Some(input), Some(output)) = (
            elements(&call.entries, |entry| &entry.input_sizes),
            elements(&call.entries, |entry| &entry.output_sizes),
        ) else {
            return false;
        };
        match kind {
            OpKind::AllReduce => input != output,
            OpKind::AllGather => input.saturating_mul(members) != output,
            OpKind::ReduceScatter => output.saturating_mul(members) != input,
            _ => false,
        }
    };
    let odd: Vec<&MemberCall<'_>> = calls.iter().filter(wrong).collect();
    let side = side(&odd)?;
    let sentence = format!(
        "input and output do not belong together at sequence {seq} of group {place}: {}",
        said(&side)
    );
    let blamed = match odd.len() {
        few if few * 2 < calls.len() => odd.iter().map(|call| (call.rank, MINORITY)).collect(),
        some if some <= TIED_RANKS => odd.iter().map(|call| (call.rank, EITHER)).collect(),
        _ => Vec::new(),
    };
    Some((
        CallMismatch {
            seq,
            kind: MismatchKind::Ratio,
            sides: vec![side],
            sentence,
        },
        blamed,
    ))
}

/// Compares element types: only those of outputs for scatter and broadcast, only those of inputs for gather, otherwise
/// both. Types of an absent tensor are ignored.
fn types(seq: i64, kind: OpKind, calls: &[MemberCall<'_>], place: &str) -> Option<MismatchBlame> {
    let inputs = !matches!(kind, OpKind::Scatter | OpKind::Broadcast);
    let outputs = !matches!(kind, OpKind::Gather);
    let said = |call: &MemberCall<'_>| {
        let mut said: Vec<&str> = Vec::new();
        for entry in &call.entries {
            if inputs && !entry.input_sizes.is_empty() {
                said.extend(entry.input_dtypes.iter().map(|name| &**name));
            }
            if outputs && !entry.output_sizes.is_empty() {
                said.extend(entry.output_dtypes.iter().map(|name| &**name));
            }
        }
        said.sort_unstable();
        said.dedup();
        (!said.is_empty()).then(|| said.join("/"))
    };
    Some(describe_mismatch(seq, MismatchKind::Dtype, sides(calls, said)?, place))
}

/// Compares the sizes of pending sends with those of their receives, for peers with equally many of both.
fn compare_pairs(world: &CombinedDumps<'_>) -> Vec<BlamedMismatch> {
    let mut found: Vec<BlamedMismatch> = Vec::new();
    for ((group, from, to), pair) in TransferTable::find(world).aligned() {
        if found.last().is_some_and(|last| last.group == *group) {
            continue;
        }
        for (send, receive) in pair.sends.iter().zip(&pair.receives) {
            let send = &world.ranks[from].ops[*send];
            let receive = &world.ranks[to].ops[*receive];
            let simple = |op: &RankOperation| op.more.is_empty() && !op.overtaken;
            let (Some(sender), Some(receiver)) = (call(world, *from, send), call(world, *to, receive)) else {
                continue;
            };
            let sent = elements(&sender.entries, |entry| &entry.input_sizes);
            let received = elements(&receiver.entries, |entry| &entry.output_sizes);
            if !simple(send) || !simple(receive) || sent.is_none() || received.is_none() || sent == received {
                continue;
            }
            let place = world.group_name(*group);
            let sides = [side(&[&sender]), side(&[&receiver])].into_iter().flatten().collect();
            let (mismatch, blamed) = describe_mismatch(send.seq, MismatchKind::Size, sides, &place);
            found.push(BlamedMismatch {
                group: *group,
                lane: SequenceKind::PointToPoint,
                mismatch,
                blamed,
            });
            break;
        }
    }
    found
}

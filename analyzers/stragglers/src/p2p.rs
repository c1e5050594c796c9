//! Matching of sends with receives, and of both with the passes that they serve.
//!
//! A trace records neither; both follow from order. The n-th receive of a stage serves its n-th pass, unless the
//! profiler recorded an operation that was never launched (before the first or after the last pass that could need it,
//! or at the ends of the model), and the n-th launched send of a stage matches the n-th launched receive of its
//! neighbour.

use std::collections::{BTreeMap, BTreeSet};

use crate::job::AlignedTrace;
use crate::operation::OpType;

/// Tolerated clock difference of two workers in seconds.
const CLOCK_ERROR_S: f64 = 5e-5;

/// Result of the matching.
#[derive(Debug, Default)]
pub(crate) struct PeerMatches {
    /// Edges `(before, after)` between passes and the communication that serves them, as indices of operations.
    pub(crate) edges: Vec<(usize, usize)>,
    /// Operations that start together: pairs, and single ones that were never launched or have no peer.
    pub(crate) groups: Vec<Vec<usize>>,
    /// Number of launched operations without a peer.
    pub(crate) lonely: usize,
}

/// End of a transfer; forward transfers go up the stages, backward ones down.
#[derive(Clone, Copy, PartialEq)]
enum TransferEnd {
    Send,
    Receive,
}

/// Types of communication, each with the type of pass that it serves, and its end of the transfer.
const FAMILIES: [(OpType, OpType, TransferEnd); 4] = [
    (OpType::ForwardSend, OpType::ForwardCompute, TransferEnd::Send),
    (OpType::ForwardRecv, OpType::ForwardCompute, TransferEnd::Receive),
    (OpType::BackwardSend, OpType::BackwardCompute, TransferEnd::Send),
    (OpType::BackwardRecv, OpType::BackwardCompute, TransferEnd::Receive),
];

/// Matches every send and receive of the pipeline. `by_start[stage]` holds its operations in order of start.
pub(crate) fn match_peers(job: &AlignedTrace, by_start: &[Vec<usize>]) -> PeerMatches {
    let mut peers = PeerMatches::default();
    // `chunks` is the number of chunks of a stage, `model_end` that of the model; no transfer goes beyond the model.
    let chunks = job.ops.iter().map(|op| op.chunk).max().unwrap_or(0).saturating_add(1);
    let model_end = chunks.saturating_mul(job.stages.len() as i64);
    let mut launched: BTreeMap<(OpType, usize), Vec<usize>> = BTreeMap::new();
    for (stage, ops) in by_start.iter().enumerate() {
        for (kind, pass, end) in FAMILIES {
            let of_kind: Vec<usize> = ops.iter().copied().filter(|op| job.ops[*op].kind == kind).collect();
            let mut passes: Vec<usize> = ops.iter().copied().filter(|op| job.ops[*op].kind == pass).collect();
            passes.sort_by_key(|op| job.ops[*op].seq);
            let mut real = Vec::new();
            for (comm, served) in serve(job, &of_kind, &passes, end) {
                peers.edges.extend(edges(&passes, served, comm, end));
                let chunk = job.ops[passes[served]].global_chunk;
                let up = (kind == OpType::ForwardSend) || (kind == OpType::BackwardRecv);
                let peer_chunk = if up {
                    chunk.saturating_add(1)
                } else {
                    chunk.saturating_sub(1)
                };
                if (0..model_end).contains(&peer_chunk) {
                    real.push(comm);
                }
            }
            let met: BTreeSet<usize> = real.iter().copied().collect();
            let idle = of_kind.iter().filter(|op| !met.contains(op));
            peers.groups.extend(idle.map(|op| vec![*op]));
            launched.insert((kind, stage), real);
        }
    }
    pair(job.stages.len(), &launched, &mut peers);
    peers
}

/// Returns the communication operations that serve a pass, each with the index of that pass in `passes`.
fn serve(job: &AlignedTrace, comms: &[usize], passes: &[usize], end: TransferEnd) -> Vec<(usize, usize)> {
    let start = |op: &usize| job.start[job.at(*op, 0)];
    let stop = |op: &usize| job.end[job.at(*op, 0)];
    let last_start = passes.iter().map(start).fold(f64::NEG_INFINITY, f64::max);
    let first_end = passes.iter().map(stop).fold(f64::INFINITY, f64::min);
    let could_serve = |op: &&usize| match end {
        TransferEnd::Receive => start(op) <= last_start + CLOCK_ERROR_S,
        TransferEnd::Send => stop(op) >= first_end - CLOCK_ERROR_S,
    };
    let able: Vec<usize> = comms.iter().filter(could_serve).copied().collect();
    // The first pass of the model's first chunk needs no receive. If the trace has one receive fewer than passes,
    // its first receive serves the second pass.
    let skipped = usize::from(end == TransferEnd::Receive && able.len() + 1 == passes.len());
    able.into_iter()
        .enumerate()
        .map(|(index, op)| (op, index + skipped))
        .filter(|(_, pass)| *pass < passes.len())
        .collect()
}

/// Returns the edges of a communication operation: pass -> send, or previous pass -> receive -> pass.
fn edges(passes: &[usize], served: usize, comm: usize, end: TransferEnd) -> impl Iterator<Item = (usize, usize)> {
    let pass = passes[served];
    let before = served.checked_sub(1).map(|index| passes[index]);
    let (first, second) = match end {
        TransferEnd::Send => (Some((pass, comm)), None),
        TransferEnd::Receive => (Some((comm, pass)), before.map(|before| (before, comm))),
    };
    first.into_iter().chain(second)
}

/// Groups the n-th launched send of each stage with the n-th launched receive of its neighbour, and counts operations
/// without a peer.
fn pair(stages: usize, launched: &BTreeMap<(OpType, usize), Vec<usize>>, peers: &mut PeerMatches) {
    let of = |kind, stage| launched.get(&(kind, stage)).map(Vec::as_slice).unwrap_or_default();
    for stage in 0..stages {
        let up = (stage + 1) % stages;
        let down = (stage + stages - 1) % stages;
        for (send, receive, to) in [
            (OpType::ForwardSend, OpType::ForwardRecv, up),
            (OpType::BackwardSend, OpType::BackwardRecv, down),
        ] {
            let sends = of(send, stage);
            let receives = of(receive, to);
            peers
                .groups
                .extend(sends.iter().zip(receives).map(|(a, b)| vec![*a, *b]));
            let met = sends.len().min(receives.len());
            let alone = sends[met..].iter().chain(&receives[met..]);
            peers.lonely += alone.clone().count();
            peers.groups.extend(alone.map(|op| vec![*op]));
        }
    }
}

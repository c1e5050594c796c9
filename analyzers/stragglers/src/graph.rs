//! Dependency graph of the operations in one step of one pipeline; equal in every step and data-parallel rank.
//!
//! After "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025), section 3: each worker
//! has a stream of passes, four streams of sends and receives, and one of data-parallel exchanges; streams are joined
//! by the passes that communication serves. Operations that only work together form one node, which starts when all of
//! them can. Like its authors, this does not model host work (data loading, launches), which appears as delay.

use std::collections::BTreeMap;

use crate::job::AlignedTrace;
use crate::operation::OpType;
use crate::p2p::{PeerMatches, match_peers};

/// Operations that start together, with their dependencies.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OperationGroup {
    /// Members, each with the operations that it depends on.
    pub(crate) members: Vec<(usize, Vec<usize>)>,
    /// True if all data-parallel ranks start the node together.
    pub(crate) everywhere: bool,
    /// True if members wait for each other, so their durations are those of the transfer alone.
    pub(crate) waits: bool,
}

/// Nodes in topological order.
#[derive(Debug)]
pub(crate) struct DependencyGraph {
    pub(crate) nodes: Vec<OperationGroup>,
    /// Number of sends and receives without a peer, which means that the trace lacks communication.
    pub(crate) lonely: usize,
}

/// Error: the dependencies contain a cycle.
#[derive(Debug, PartialEq)]
pub(crate) struct DependencyCycle {
    /// Number of operations that could never start.
    pub(crate) stuck: usize,
}

/// Builds the graph; fails if the dependencies contain a cycle.
pub(crate) fn build(job: &AlignedTrace) -> Result<DependencyGraph, DependencyCycle> {
    let by_start = by_start(job);
    // Also with one data-parallel rank in the trace: the job may have more (data-sequence-parallel ranks, ranks not
    // recorded).
    let exchanges = job.ops.iter().any(|op| op.kind.is_dp());
    let overlaps = job.ops.iter().any(|op| op.kind == OpType::SeparateGradsAllReduce);
    let PeerMatches { edges, groups, lonely } = match_peers(job, &by_start);
    let mut edges = edges;
    for ops in &by_start {
        let stage = StageOperations { job, ops };
        stage.streams(exchanges, &mut edges);
        if exchanges {
            stage.exchanges_feed_passes(&mut edges);
        }
        if exchanges && overlaps {
            stage.passes_feed_exchanges(&mut edges);
        }
        stage.after_passes(exchanges, overlaps, &mut edges);
    }
    let mut groups = groups;
    if exchanges {
        groups.extend(
            (0..job.ops.len())
                .filter(|op| job.ops[*op].kind.is_dp())
                .map(|op| vec![op]),
        );
    }
    let together = |kind| {
        (0..job.ops.len())
            .filter(|op| job.ops[*op].kind == kind && job.ops[*op].seq == 0)
            .collect()
    };
    groups.push(together(OpType::EmbeddingGradsAllReduce));
    groups.push(together(OpType::OptimizerClipMainGrad));
    order(job, &edges, groups).map(|nodes| DependencyGraph { nodes, lonely })
}

/// Returns the operations of each stage in order of start in the first recorded step.
fn by_start(job: &AlignedTrace) -> Vec<Vec<usize>> {
    let mut stages = vec![Vec::new(); job.stages.len()];
    for (index, op) in job.ops.iter().enumerate() {
        stages[op.stage].push(index);
    }
    for ops in &mut stages {
        ops.sort_by(|a, b| {
            let start = |op: &usize| job.start[job.at(*op, 0)];
            let name = |op: &usize| (job.ops[*op].seq, job.ops[*op].kind);
            start(a).total_cmp(&start(b)).then(name(a).cmp(&name(b)))
        });
    }
    stages
}

struct StageOperations<'a> {
    job: &'a AlignedTrace,
    ops: &'a [usize],
}

type DependencyEdges = Vec<(usize, usize)>;

impl StageOperations<'_> {
    fn kind(&self, op: usize) -> OpType {
        self.job.ops[op].kind
    }

    fn where_kind(&self, test: impl Fn(OpType) -> bool) -> Vec<usize> {
        self.ops.iter().copied().filter(|op| test(self.kind(*op))).collect()
    }

    /// Returns the operations of a kind, by number.
    fn numbered(&self, kind: OpType) -> Vec<usize> {
        let mut ops = self.where_kind(|other| other == kind);
        ops.sort_by_key(|op| self.job.ops[*op].seq);
        ops
    }

    fn end(&self, op: usize) -> f64 {
        self.job.end[self.job.at(op, 0)]
    }

    /// Returns the operation that ends last; of equal ones the first.
    fn last_to_end(&self, ops: impl Iterator<Item = usize>) -> Option<usize> {
        ops.reduce(|last, op| if self.end(op) > self.end(last) { op } else { last })
    }

    fn streams(&self, exchanges: bool, edges: &mut DependencyEdges) {
        let passes = self.where_kind(OpType::is_pass);
        chain(&passes, edges);
        for kind in [
            OpType::ForwardSend,
            OpType::ForwardRecv,
            OpType::BackwardSend,
            OpType::BackwardRecv,
        ] {
            chain(&self.where_kind(|other| other == kind), edges);
        }
        // The first backward communication is posted once the pass before the last warm-up pass is done.
        let first_backward = passes.iter().position(|op| self.kind(*op) == OpType::BackwardCompute);
        if let Some(before) = first_backward.and_then(|index| index.checked_sub(2)) {
            for kind in [OpType::BackwardRecv, OpType::BackwardSend] {
                let first = self
                    .ops
                    .iter()
                    .copied()
                    .find(|op| self.kind(*op) == kind && self.job.ops[*op].seq == 0);
                edges.extend(first.map(|first| (passes[before], first)));
            }
        }
        if exchanges {
            chain(
                &self.where_kind(|k| matches!(k, OpType::ParamsAllGather | OpType::GradsReduceScatter)),
                edges,
            );
        }
    }

    /// Links each chunk's last parameter gather to the chunk's first forward pass, which needs the parameters.
    fn exchanges_feed_passes(&self, edges: &mut DependencyEdges) {
        let mut first: BTreeMap<i64, usize> = BTreeMap::new();
        for pass in self.where_kind(|kind| kind == OpType::ForwardCompute) {
            first.entry(self.job.ops[pass].chunk).or_insert(pass);
        }
        for gather in self.numbered(OpType::ParamsAllGather).into_iter().rev() {
            let pass = first.remove(&self.job.ops[gather].chunk);
            edges.extend(pass.map(|pass| (gather, pass)));
        }
    }

    /// Links the last backward pass of a chunk to the exchange of its gradients.
    fn passes_feed_exchanges(&self, edges: &mut DependencyEdges) {
        let mut last: BTreeMap<i64, usize> = BTreeMap::new();
        for pass in self.where_kind(|kind| kind == OpType::BackwardCompute) {
            let known = last.entry(self.job.ops[pass].chunk).or_insert(pass);
            if self.end(pass) > self.end(*known) {
                *known = pass;
            }
        }
        for scatter in self.numbered(OpType::GradsReduceScatter) {
            let pass = last.remove(&self.job.ops[scatter].chunk);
            edges.extend(pass.map(|pass| (pass, scatter)));
        }
    }

    /// Chains the operations from the last pass to the optimizer. Operations that the trace lacks are skipped.
    fn after_passes(&self, exchanges: bool, overlaps: bool, edges: &mut DependencyEdges) {
        let single = |kind| self.numbered(kind).into_iter().next();
        let scatters = self.numbered(OpType::GradsReduceScatter);
        let mut row: Vec<usize> = Vec::new();
        row.extend(self.last_to_end(self.where_kind(OpType::is_pass).into_iter()));
        row.extend(single(OpType::Gc));
        if exchanges
            && overlaps
            && let (Some(last), Some(next)) = (scatters.last(), single(OpType::LayernormGradsAllReduce))
        {
            edges.push((*last, next));
        }
        row.extend(single(OpType::LayernormGradsAllReduce));
        row.extend(single(OpType::EmbeddingGradsAllReduce));
        match (exchanges, overlaps) {
            (true, true) => row.extend(single(OpType::SeparateGradsAllReduce)),
            (true, false) => row.extend(scatters),
            (false, _) => {}
        }
        row.extend(single(OpType::OptimizerClipMainGrad));
        row.extend(single(OpType::Optimizer));
        chain(&row, edges);
    }
}

fn chain(ops: &[usize], edges: &mut DependencyEdges) {
    edges.extend(ops.windows(2).map(|pair| (pair[0], pair[1])));
}

/// Sorts groups and single operations topologically into nodes.
fn order(
    job: &AlignedTrace,
    edges: &DependencyEdges,
    groups: Vec<Vec<usize>>,
) -> Result<Vec<OperationGroup>, DependencyCycle> {
    let count = job.ops.len();
    let mut node_of = vec![usize::MAX; count];
    let mut nodes: Vec<Vec<usize>> = Vec::new();
    let mut waits = Vec::new();
    let singles = (0..count).map(|op| (vec![op], false));
    for (group, waiting) in groups.into_iter().map(|group| (group, true)).chain(singles) {
        let free: Vec<usize> = group.into_iter().filter(|op| node_of[*op] == usize::MAX).collect();
        if free.is_empty() {
            continue;
        }
        free.iter().for_each(|op| node_of[*op] = nodes.len());
        nodes.push(free);
        waits.push(waiting);
    }
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    let mut missing = vec![0_usize; nodes.len()];
    for (first, second) in edges {
        before[*second].push(*first);
        after[node_of[*first]].push(node_of[*second]);
        missing[node_of[*second]] += 1;
    }
    let mut ready: Vec<usize> = (0..nodes.len()).filter(|node| missing[*node] == 0).collect();
    let mut sorted = Vec::with_capacity(nodes.len());
    while let Some(node) = ready.pop() {
        for next in &after[node] {
            missing[*next] -= 1;
            if missing[*next] == 0 {
                ready.push(*next);
            }
        }
        let members = nodes[node]
            .iter()
            .map(|op| (*op, std::mem::take(&mut before[*op])))
            .collect();
        let kind = job.ops[nodes[node][0]].kind;
        let everywhere = waits[node] && (kind.is_dp() || kind == OpType::OptimizerClipMainGrad);
        sorted.push(OperationGroup {
            members,
            everywhere,
            waits: waits[node],
        });
    }
    if sorted.len() == nodes.len() {
        Ok(sorted)
    } else {
        Err(DependencyCycle {
            stuck: nodes.len() - sorted.len(),
        })
    }
}

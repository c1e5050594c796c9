//! Alignment of trace rows: every step and data-parallel rank has the same operations, so one index identifies an
//! operation in all of them, and the simulation uses plain arrays.
//!
//! Rows that do not fit (a step cut off by the end of the recording, a repeated row) are left out and reported.

use std::collections::BTreeMap;

use crate::operation::{OpType, TraceOperation};
use crate::problem::ProblemList;

/// Operation of one pipeline, equal in every step and data-parallel rank.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PipelineOp {
    /// Index of the stage.
    pub(crate) stage: usize,
    pub(crate) kind: OpType,
    /// Position among the operations of this type on this stage.
    pub(crate) seq: i64,
    pub(crate) chunk: i64,
    pub(crate) global_chunk: i64,
    /// Index of the microbatch; passes only.
    pub(crate) microbatch: usize,
}

/// Aligned trace. Arrays of timings hold `ops.len()` rows of `instances()` values; instance `step * dp + rank`.
#[derive(Debug)]
pub(crate) struct AlignedTrace {
    pub(crate) steps: Vec<i64>,
    pub(crate) dp_ranks: Vec<i64>,
    pub(crate) stages: Vec<i64>,
    pub(crate) microbatches: usize,
    pub(crate) ops: Vec<PipelineOp>,
    pub(crate) start: Vec<f64>,
    pub(crate) end: Vec<f64>,
    pub(crate) duration: Vec<f64>,
    /// Rank of each worker, where the trace has ranks: `[dp * stages + stage]`.
    pub(crate) ranks: Vec<Option<i64>>,
}

impl AlignedTrace {
    pub(crate) fn dp(&self) -> usize {
        self.dp_ranks.len()
    }

    pub(crate) fn instances(&self) -> usize {
        self.steps.len() * self.dp()
    }

    pub(crate) fn workers(&self) -> usize {
        self.dp() * self.stages.len()
    }

    pub(crate) fn at(&self, op: usize, instance: usize) -> usize {
        op * self.instances() + instance
    }

    /// Returns the worker that runs `op` in `instance`.
    pub(crate) fn worker(&self, op: usize, instance: usize) -> usize {
        (instance % self.dp()) * self.stages.len() + self.ops[op].stage
    }

    /// Returns the observed duration of each step in seconds.
    pub(crate) fn observed(&self) -> Vec<f64> {
        let dp = self.dp();
        let instances = self.instances();
        let mut bounds = vec![(f64::INFINITY, f64::NEG_INFINITY); self.steps.len()];
        for (index, (start, end)) in self.start.iter().zip(&self.end).enumerate() {
            let (first, last) = &mut bounds[index % instances / dp];
            *first = first.min(*start);
            *last = last.max(*end);
        }
        bounds.into_iter().map(|(first, last)| last - first).collect()
    }
}

/// Key of an operation within its step and data-parallel rank: stage, type and number.
type OperationKey = (i64, OpType, i64);

/// Aligns rows. Returns `None` if no step is complete; the problems give the reason.
pub(crate) fn align(label: &str, rows: &[TraceOperation], problems: &mut ProblemList) -> Option<AlignedTrace> {
    let mut order: Vec<&TraceOperation> = rows.iter().collect();
    order.sort_by(|a, b| {
        let key = |row: &TraceOperation| {
            (
                row.step,
                row.dp_rank,
                row.stage,
                row.kind,
                row.rank,
                row.seq.unwrap_or(i64::MAX),
            )
        };
        key(a)
            .cmp(&key(b))
            .then(a.start.total_cmp(&b.start))
            .then(a.end.total_cmp(&b.end))
    });
    let mut named = number(order);
    named.sort_by_key(|(name, row)| (row.step, row.dp_rank, *name));
    let named = fold(label, named, problems);
    let mut groups: BTreeMap<(i64, i64), std::ops::Range<usize>> = BTreeMap::new();
    for (index, (_, row)) in named.iter().enumerate() {
        groups.entry((row.step, row.dp_rank)).or_insert(index..index).end = index + 1;
    }
    let names: Vec<OperationKey> = named.iter().map(|(name, _)| *name).collect();
    let mut shapes: BTreeMap<&[OperationKey], usize> = BTreeMap::new();
    for range in groups.values() {
        *shapes.entry(&names[range.clone()]).or_default() += 1;
    }
    // Choose the shape that covers most rows: a recording that begins and ends within steps has as many incomplete
    // shapes as complete ones.
    let (shape, _) = shapes.iter().max_by_key(|(shape, count)| shape.len() * **count)?;
    let dp_ranks: Vec<i64> = {
        let mut all: Vec<i64> = groups.keys().map(|(_, dp)| *dp).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let mut steps: Vec<i64> = groups.keys().map(|(step, _)| *step).collect();
    steps.dedup();
    let whole = |step: i64| {
        dp_ranks.iter().all(|dp| {
            groups
                .get(&(step, *dp))
                .is_some_and(|range| &&names[range.clone()] == shape)
        })
    };
    let (steps, odd): (Vec<i64>, Vec<i64>) = steps.into_iter().partition(|step| whole(*step));
    if !odd.is_empty() {
        let some: Vec<String> = odd.iter().take(8).map(i64::to_string).collect();
        let what = format!(
            "{} of {} steps lack operations that the others have and are left out (steps {}{}); record whole steps on all ranks",
            odd.len(),
            odd.len() + steps.len(),
            some.join(", "),
            if odd.len() > 8 { ", ..." } else { "" }
        );
        problems.note(label, what);
    }
    if steps.is_empty() {
        return None;
    }
    let picked: Vec<&[(OperationKey, &TraceOperation)]> = steps
        .iter()
        .flat_map(|step| dp_ranks.iter().map(move |dp| (*step, *dp)))
        .filter_map(|key| groups.get(&key).map(|range| &named[range.clone()]))
        .collect();
    Some(build(shape.len(), steps, dp_ranks, &picked))
}

/// Assigns a key to each row; rows without a number are numbered by start.
fn number(order: Vec<&TraceOperation>) -> Vec<(OperationKey, &TraceOperation)> {
    let mut named: Vec<(OperationKey, &TraceOperation)> = Vec::with_capacity(order.len());
    let mut last = None;
    let mut next = 0;
    for row in order {
        let family = (row.step, row.dp_rank, row.stage, row.kind, row.rank);
        if last != Some(family) {
            (last, next) = (Some(family), 0);
        }
        let seq = row.seq.unwrap_or(next);
        next = seq.max(next).saturating_add(1);
        named.push(((row.stage, row.kind, seq), row));
    }
    named
}

/// Folds the tensor-parallel ranks of one worker, which run the same operation: the slowest counts.
fn fold<'a>(
    label: &str,
    named: Vec<(OperationKey, &'a TraceOperation)>,
    problems: &mut ProblemList,
) -> Vec<(OperationKey, &'a TraceOperation)> {
    let before = named.len();
    let mut folded: Vec<(OperationKey, &TraceOperation)> = Vec::with_capacity(before);
    for (name, row) in named {
        match folded.last_mut() {
            Some((known, kept)) if *known == name && (kept.step, kept.dp_rank) == (row.step, row.dp_rank) => {
                if row.duration > kept.duration {
                    *kept = row;
                }
            }
            _ => folded.push((name, row)),
        }
    }
    if folded.len() < before {
        let what = format!(
            "{} rows repeat an operation of the same worker and step; the longest of each was kept",
            before - folded.len()
        );
        problems.note(label, what);
    }
    folded
}

fn build(
    count: usize,
    steps: Vec<i64>,
    dp_ranks: Vec<i64>,
    picked: &[&[(OperationKey, &TraceOperation)]],
) -> AlignedTrace {
    let first = picked.first().copied().unwrap_or_default();
    let mut stages: Vec<i64> = first.iter().map(|(_, row)| row.stage).collect();
    stages.sort_unstable();
    stages.dedup();
    let mut microbatches: BTreeMap<i64, usize> = BTreeMap::new();
    // Microbatch numbers are arbitrary; a row without one uses its position among the passes of its chunk.
    let mut passes: BTreeMap<(i64, OpType, i64), i64> = BTreeMap::new();
    let mut labels = Vec::with_capacity(count);
    for ((stage, kind, _), row) in first {
        let place = passes.entry((*stage, *kind, row.chunk.unwrap_or(0))).or_insert(0);
        labels.push(if kind.is_pass() {
            row.microbatch.unwrap_or(*place)
        } else {
            0
        });
        *place += 1;
    }
    for label in &labels {
        let next = microbatches.len();
        microbatches.entry(*label).or_insert(next);
    }
    let pp = stages.len() as i64;
    let ops = first.iter().zip(&labels).map(|(((_, kind, seq), row), label)| {
        let stage = stages.binary_search(&row.stage).unwrap_or(0);
        let chunk = row.chunk.unwrap_or(0);
        PipelineOp {
            stage,
            kind: *kind,
            seq: *seq,
            chunk,
            global_chunk: row
                .global_chunk
                .unwrap_or(chunk.saturating_mul(pp).saturating_add(stage as i64)),
            microbatch: microbatches.get(label).copied().unwrap_or(0),
        }
    });
    let ops: Vec<PipelineOp> = ops.collect();
    let instances = picked.len();
    let zeros = || vec![0.0; count * instances];
    let mut start = zeros();
    let mut end = zeros();
    let mut duration = zeros();
    let mut ranks = vec![None; dp_ranks.len() * stages.len()];
    for (instance, rows) in picked.iter().enumerate() {
        for (op, (_, row)) in rows.iter().enumerate() {
            let at = op * instances + instance;
            (start[at], end[at], duration[at]) = (row.start, row.end, row.duration);
            ranks[instance % dp_ranks.len() * stages.len() + ops[op].stage] = row.rank;
        }
    }
    let microbatches = microbatches.len();
    AlignedTrace {
        steps,
        dp_ranks,
        stages,
        microbatches,
        ops,
        start,
        end,
        duration,
        ranks,
    }
}

//! Slots: passes of one kind, stage and chunk, which would take equal time without slowness.

use std::collections::BTreeMap;

use crate::job::AlignedTrace;
use crate::operation::OpType;
use crate::statistics::{lower_median, mean, median};

/// Passes of one kind, stage and chunk.
#[derive(Debug)]
pub(crate) struct PassSlot {
    pub(crate) stage: usize,
    pub(crate) ops: Vec<usize>,
    /// Level of the stage: the lower median over data-parallel ranks.
    pub(crate) level: f64,
    /// Ratio of each data-parallel rank's worker to the level.
    pub(crate) ratio: Vec<f64>,
    /// Level with even stages.
    pub(crate) even: f64,
}

/// Returns the slots of a job, and the slot of each operation that is a pass.
pub(crate) fn slots(job: &AlignedTrace) -> (Vec<PassSlot>, Vec<Option<usize>>) {
    let mut groups: BTreeMap<(usize, i64, OpType), Vec<usize>> = BTreeMap::new();
    for (index, op) in job.ops.iter().enumerate().filter(|(_, op)| op.kind.is_pass()) {
        groups.entry((op.stage, op.chunk, op.kind)).or_default().push(index);
    }
    let mut slots: Vec<PassSlot> = Vec::new();
    let mut slot_of = vec![None; job.ops.len()];
    for ((stage, _, _), ops) in groups {
        ops.iter().for_each(|op| slot_of[*op] = Some(slots.len()));
        let own: Vec<f64> = (0..job.dp())
            .map(|dp| {
                let instances = || (dp..job.instances()).step_by(job.dp());
                let mut all: Vec<f64> = ops
                    .iter()
                    .flat_map(|op| instances().map(|i| job.duration[job.at(*op, i)]))
                    .collect();
                median(&mut all)
            })
            .collect();
        let level = lower_median(&mut own.clone());
        let ratio = own
            .iter()
            .map(|own| if level > 0.0 { own / level } else { 1.0 })
            .collect();
        slots.push(PassSlot {
            stage,
            ops,
            level,
            ratio,
            even: 0.0,
        });
    }
    for kind in [OpType::ForwardCompute, OpType::BackwardCompute] {
        let of_kind = |slot: &&mut PassSlot| slot.ops.first().is_some_and(|op| job.ops[*op].kind == kind);
        let levels: Vec<f64> = slots.iter_mut().filter(of_kind).map(|slot| slot.level).collect();
        let even = mean(&levels);
        slots.iter_mut().filter(of_kind).for_each(|slot| slot.even = even);
    }
    (slots, slot_of)
}

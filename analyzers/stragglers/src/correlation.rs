//! Correlation of forward and backward pass durations of a microbatch, which follows from microbatches of
//! unequal length.

use std::collections::BTreeMap;

use crate::job::AlignedTrace;
use crate::operation::OpType;
use crate::slot::PassSlot;
use crate::statistics::CorrelationSums;

/// Forward and backward pass of a microbatch, each with the index of its slot.
type PassPair = [Option<(usize, usize)>; 2];

/// Returns the rank correlation of forward and backward passes of a microbatch on the same worker: of all
/// passes, and of the residuals after the mean of each worker's step is removed.
pub(crate) fn correlations(job: &AlignedTrace, slots: &[PassSlot]) -> (f64, f64) {
    let mut whole = Vec::new();
    let mut inside = Vec::new();
    let mut pairs: BTreeMap<(usize, i64, usize), PassPair> = BTreeMap::new();
    for (index, slot) in slots.iter().enumerate() {
        for op in &slot.ops {
            let pass = &job.ops[*op];
            let key = (pass.stage, pass.chunk, pass.microbatch);
            pairs.entry(key).or_default()[usize::from(pass.kind == OpType::BackwardCompute)] = Some((*op, index));
        }
    }
    let mut of_step: Vec<Vec<(f64, f64)>> = vec![Vec::new(); job.stages.len()];
    for instance in 0..job.instances() {
        let ratio = |(op, slot): (usize, usize)| {
            let usual = slots[slot].level * slots[slot].ratio[instance % job.dp()];
            (job.duration[job.at(op, instance)] / usual).ln()
        };
        of_step.iter_mut().for_each(Vec::clear);
        for ((stage, _, _), pair) in &pairs {
            if let [Some(forward), Some(backward)] = pair {
                let x = ratio(*forward);
                let y = ratio(*backward);
                if x.is_finite() && y.is_finite() {
                    of_step[*stage].push((x, y));
                }
            }
        }
        for passes in &of_step {
            let count = passes.len().max(1) as f64;
            let (mx, my) = passes
                .iter()
                .fold((0.0, 0.0), |sum, (x, y)| (sum.0 + x / count, sum.1 + y / count));
            for (x, y) in passes {
                whole.push((*x, *y));
                inside.push((x - mx, y - my));
            }
        }
    }
    (of_ranks(&whole), of_ranks(&inside))
}

/// Returns Spearman's correlation, in which a few stalled passes do not hide the pattern of all others.
fn of_ranks(pairs: &[(f64, f64)]) -> f64 {
    let ranks = |side: fn(&(f64, f64)) -> f64| {
        let mut order: Vec<usize> = (0..pairs.len()).collect();
        order.sort_unstable_by(|a, b| side(&pairs[*a]).total_cmp(&side(&pairs[*b])).then(a.cmp(b)));
        let mut ranks = vec![0.0; pairs.len()];
        // Equal values share the middle of their ranks: without variation the correlation is zero.
        let mut from = 0;
        while let Some(first) = order.get(from) {
            let same = order[from..]
                .iter()
                .take_while(|at| side(&pairs[**at]) == side(&pairs[*first]))
                .count()
                .max(1);
            order[from..from + same]
                .iter()
                .for_each(|at| ranks[*at] = from as f64 + (same - 1) as f64 / 2.0);
            from += same;
        }
        ranks
    };
    let x = ranks(|pair| pair.0);
    let y = ranks(|pair| pair.1);
    let mut moments = CorrelationSums::default();
    x.iter().zip(&y).for_each(|(x, y)| moments.add(*x, *y));
    moments.correlation()
}

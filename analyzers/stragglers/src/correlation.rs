//! Whether forward and backward passes of a microbatch are long and short together, as its length would have it.

use std::collections::BTreeMap;

use crate::factors::Slot;
use crate::job::Job;
use crate::operation::OpType;
use crate::statistics::Moments;

/// Forward and backward pass of a microbatch, each with the index of its slot.
type Pair = [Option<(usize, usize)>; 2];

/// Correlation of the logarithms of forward and backward passes of a microbatch on the same worker: of all passes, and of
/// what is left of them when each worker's step has its own mean.
pub(crate) fn correlations(job: &Job, slots: &[Slot]) -> (f64, f64) {
    let (mut whole, mut inside) = (Moments::default(), Moments::default());
    let mut pairs: BTreeMap<(usize, i64, usize), Pair> = BTreeMap::new();
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
                let (x, y) = (ratio(*forward), ratio(*backward));
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
                whole.add(*x, *y);
                inside.add(x - mx, y - my);
            }
        }
    }
    (whole.correlation(), inside.correlation())
}

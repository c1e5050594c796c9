//! Published what-if figures: step times if everything, or all but one part, ran as usual.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::graph::DependencyGraph;
use crate::job::AlignedTrace;
use crate::operation::OpType;
use crate::simulate::{ideal, step_times, transfers};
use crate::statistics::mean;

/// Budget of simulated operations for trying parts one by one, which takes seconds. A trace of 100,000 operations may
/// have 5,000 ranks before some are left out.
const WORK_MAX: usize = 1 << 29;

/// Effect of giving one part ordinary durations, or only that part its recorded ones.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PartEffect {
    /// Mean step time with the part made ordinary, in seconds.
    pub t_rem: f64,
    /// Mean step time with only the part as recorded, in seconds.
    pub t_add: f64,
    /// `(T_ori - T_rem) / (T_ori - T_ideal)`; absent without a slowdown.
    pub share: Option<f64>,
}

/// What-if figures of a job; names as in the paper.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WhatIf {
    /// Observed time of each step (`step_t_base`) in seconds.
    pub observed: Vec<f64>,
    /// Time of each step simulated with recorded durations and no launch delay (`step_t_nodelay`) in seconds.
    pub simulated: Vec<f64>,
    /// Time of each step simulated with ordinary durations (`step_t_noblk`) in seconds.
    pub ideal: Vec<f64>,
    /// S: mean simulated over mean ideal step time.
    pub slowdown: f64,
    /// Mean observed over mean simulated step time: effects outside the graph, mainly host delays.
    pub launch_slowdown: f64,
    /// Slowdown with only this data-parallel rank as recorded. If there are too many ranks to try, those with the least
    /// time over the ordinary count as 1; the same holds for stages.
    pub by_dp_rank: BTreeMap<i64, f64>,
    /// Slowdown with only this stage as recorded.
    pub by_stage: BTreeMap<i64, f64>,
    /// S_t: slowdown with only this type of operation as recorded; sends and receives of one direction count as one.
    pub by_optype: BTreeMap<String, f64>,
    /// S_w: the lesser of the slowdowns of the worker's data-parallel rank and stage, `(dp_rank, stage, S_w)`, worst
    /// first.
    pub by_worker: Vec<(i64, i64, f64)>,
    /// M_W: effect of the worst 3 % of the workers.
    pub slow_workers: PartEffect,
    /// M_S: effect of the last stage.
    pub last_stage: PartEffect,
}

/// Recorded and ordinary durations of a job, with the graph to simulate them.
pub(crate) struct WhatIfModel<'a> {
    pub(crate) job: &'a AlignedTrace,
    pub(crate) graph: &'a DependencyGraph,
    pub(crate) recorded: Vec<f64>,
    pub(crate) usual: Vec<f64>,
}

impl<'a> WhatIfModel<'a> {
    pub(crate) fn new(job: &'a AlignedTrace, graph: &'a DependencyGraph) -> Self {
        let recorded = transfers(job, graph);
        let usual = ideal(job, &recorded);
        WhatIfModel {
            job,
            graph,
            recorded,
            usual,
        }
    }

    /// Returns the mean step time with these durations in seconds.
    pub(crate) fn time(&self, durations: &[f64]) -> f64 {
        mean(&step_times(self.job, self.graph, durations, None))
    }

    /// Returns the mean step time with `base`, replaced by `other` where `test(op, instance)` holds.
    fn mix(&self, base: &[f64], other: &[f64], test: impl Fn(usize, usize) -> bool) -> f64 {
        let instances = self.job.instances();
        let mixed: Vec<f64> = base
            .iter()
            .zip(other)
            .enumerate()
            .map(|(at, (base, other))| {
                if test(at / instances, at % instances) {
                    *other
                } else {
                    *base
                }
            })
            .collect();
        self.time(&mixed)
    }

    fn effect(&self, original: f64, ideal: f64, test: impl Fn(usize, usize) -> bool) -> PartEffect {
        let t_rem = self.mix(&self.recorded, &self.usual, &test);
        let t_add = self.mix(&self.usual, &self.recorded, &test);
        let slack = original - ideal;
        PartEffect {
            t_rem,
            t_add,
            share: (slack > 1e-9 * original).then(|| (original - t_rem) / slack),
        }
    }

    /// Returns the effect of each of `count` parts alone. If there are too many, only those furthest over the ordinary
    /// are tried; the others count as 1.
    fn tried(&self, count: usize, part_of: impl Fn(usize) -> usize, alone: &dyn Fn(usize) -> f64) -> Vec<f64> {
        let mut over = vec![0.0; count];
        for (at, (recorded, usual)) in self.recorded.iter().zip(&self.usual).enumerate() {
            over[part_of(at)] += recorded - usual;
        }
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|a, b| over[*b].total_cmp(&over[*a]).then(a.cmp(b)));
        order.truncate((WORK_MAX / self.recorded.len().max(1)).max(16));
        let mut scores = vec![1.0; count];
        order.into_iter().for_each(|part| scores[part] = alone(part));
        scores
    }

    pub(crate) fn what_if(&self) -> WhatIf {
        let job = self.job;
        let dp = job.dp();
        let stages = job.stages.len();
        let observed = job.observed();
        let simulated = step_times(job, self.graph, &self.recorded, None);
        let ideal = step_times(job, self.graph, &self.usual, None);
        let original = mean(&simulated);
        let best = mean(&ideal);
        let ratio = |time: f64, base: f64| if base > 0.0 { time / base } else { 1.0 };
        let alone = |test: &dyn Fn(usize, usize) -> bool| ratio(self.mix(&self.usual, &self.recorded, test), best);
        let dp_of = |at: usize| at % job.instances() % dp;
        let stage_of = |at: usize| job.ops[at / job.instances()].stage;
        let of_dp = self.tried(dp, dp_of, &|rank| alone(&|_, instance| instance % dp == rank));
        let of_stage = self.tried(stages, stage_of, &|stage| alone(&|op, _| job.ops[op].stage == stage));
        let mut families: BTreeMap<&str, Vec<OpType>> = BTreeMap::new();
        for kind in OpType::ALL
            .into_iter()
            .filter(|kind| job.ops.iter().any(|op| op.kind == *kind))
        {
            families.entry(family(kind)).or_default().push(kind);
        }
        let by_optype = families
            .into_iter()
            .map(|(name, kinds)| (name.to_owned(), alone(&|op, _| kinds.contains(&job.ops[op].kind))));
        let by_optype = by_optype.collect();
        let mut workers: Vec<(usize, f64)> = (0..dp * stages)
            .map(|worker| (worker, of_dp[worker / stages].min(of_stage[worker % stages])))
            .collect();
        // Ties are sorted by rank, where the trace has ranks.
        let rank = |worker: usize| (job.ranks[worker], worker);
        workers.sort_by(|a, b| b.1.total_cmp(&a.1).then(rank(a.0).cmp(&rank(b.0))));
        let worst: Vec<usize> = workers
            .iter()
            .take((workers.len() * 3).div_ceil(100))
            .map(|(worker, _)| *worker)
            .collect();
        WhatIf {
            slowdown: ratio(original, best),
            launch_slowdown: ratio(mean(&observed), original),
            slow_workers: self.effect(original, best, |op, instance| worst.contains(&job.worker(op, instance))),
            last_stage: self.effect(original, best, |op, _| job.ops[op].stage + 1 == stages),
            by_dp_rank: job.dp_ranks.iter().copied().zip(of_dp.iter().copied()).collect(),
            by_stage: job.stages.iter().copied().zip(of_stage.iter().copied()).collect(),
            by_optype,
            by_worker: workers
                .iter()
                .map(|(worker, score)| (job.dp_ranks[worker / stages], job.stages[worker % stages], *score))
                .collect(),
            observed,
            simulated,
            ideal,
        }
    }
}

fn family(kind: OpType) -> &'static str {
    match kind {
        OpType::ForwardSend | OpType::ForwardRecv => "forward-pp-comm",
        OpType::BackwardSend | OpType::BackwardRecv => "backward-pp-comm",
        other => other.name(),
    }
}

//! Decomposition of pass durations: duration with even stages x stage x worker x data x rest. The rest is a spike if it
//! is large, else jitter.
//!
//! Factors are separated by the ranks that share them. The size of a stage is shared by all data-parallel ranks; the
//! speed of a worker by all its operations and no others; the length of a microbatch by all stages it passes, forward
//! and backward. Medians are used throughout, the lower of two middle values: with two ranks to compare, the faster one
//! is the reference.

use crate::correlation::correlations;
use crate::job::AlignedTrace;
use crate::operation::OpType;
use crate::slot::{PassSlot, slots};
use crate::statistics::{CorrelationSums, lower_median, mean, variance};

/// Mean ratio to its peers over all steps from which a worker counts as slow.
const SLOW_FROM: f64 = 1.03;
/// Ratio to the duration explained by stage, worker and data from which a pass is a spike.
const SPIKE_FROM: f64 = 1.5;
/// Correlation from which forward and backward passes of a microbatch vary together. The second bound applies with one
/// stage, to variation within a step if it has several microbatches, because a slow spell of a worker correlates too.
const TOGETHER_FROM: (f64, f64) = (0.6, 0.8);
/// Standard deviation of the logarithm of microbatch lengths from which lengths count as varied.
const VARIED_FROM: f64 = 0.05;
/// Ratio of the variance between a pipeline's steps to that between its microbatches from which slow steps are spells
/// of the pipeline and not long data.
const SPELL_FROM: f64 = 4.0;

/// Factors of every pass.
#[derive(Debug)]
pub(crate) struct PassFactors {
    slots: Vec<PassSlot>,
    /// `[op]`: index of its slot; `None` if it is no pass.
    slot_of: Vec<Option<usize>>,
    /// `[instance * microbatches + microbatch]`: length of the microbatch relative to the usual one.
    data: Vec<f64>,
    /// `[step]`: mean length of its microbatches, over all data-parallel ranks.
    data_mean: Vec<f64>,
    /// `[dp * steps + step]`: slowness of a whole pipeline that its data does not explain.
    replica: Vec<f64>,
    /// `[worker * steps + step]`: slowness of a worker in that step beyond its usual one.
    spell: Vec<f64>,
    /// `[dp]`: part of the workers' ratios that all workers of a data-parallel rank have in common; 1 with one stage.
    shared: Vec<f64>,
    /// `[worker]`: mean ratio to peers over all steps.
    pub(crate) worker_ratio: Vec<f64>,
    /// `[worker]`: true if it counts as slow.
    pub(crate) slow: Vec<bool>,
    /// Rank correlation of forward and backward passes of the same microbatch and worker.
    pub(crate) correlation: f64,
    /// Standard deviation of the logarithm of microbatch lengths.
    pub(crate) data_spread: f64,
}

/// Factors of one pass. The product of `even`, `stage`, `worker`, `data`, `spike` and `jitter` is its duration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FactorSplit {
    /// Usual duration if all stages were of equal size, in seconds. All other factors are ratios.
    pub(crate) even: f64,
    /// Size of the stage.
    pub(crate) stage: f64,
    /// Slowness of a slow worker; 1 for others.
    pub(crate) worker: f64,
    /// Length of the microbatch.
    pub(crate) data: f64,
    /// Mean length of the microbatches of the step, which replaces `data` in a simulation with even data.
    pub(crate) data_mean: f64,
    /// Rest from [`SPIKE_FROM`] on; 1 below.
    pub(crate) spike: f64,
    /// Rest below [`SPIKE_FROM`]; 1 from there on.
    pub(crate) jitter: f64,
}

impl PassFactors {
    /// Measures the factors of a job. The parts depend on each other in this order: worker ratios, data, spells.
    pub(crate) fn of(job: &AlignedTrace) -> PassFactors {
        let (slots, slot_of) = slots(job);
        let steps = job.steps.len();
        let mut factors = PassFactors {
            slots,
            slot_of,
            data: vec![1.0; job.instances() * job.microbatches],
            data_mean: vec![1.0; steps],
            replica: vec![1.0; job.dp() * steps],
            spell: vec![1.0; job.workers() * steps],
            shared: vec![1.0; job.dp()],
            worker_ratio: vec![1.0; job.workers()],
            slow: vec![false; job.workers()],
            correlation: 0.0,
            data_spread: 0.0,
        };
        factors.share(job);
        factors.measure_data(job);
        factors.measure_spells(job);
        factors.find_slow(job);
        factors
    }

    /// Sets each worker's ratio to its peers, and the part that all workers of a data-parallel rank have in common: the
    /// lower median of their ratios. With one stage the two cannot be separated.
    fn share(&mut self, job: &AlignedTrace) {
        let stages = job.stages.len();
        for dp in 0..job.dp() {
            let mut sums = vec![(0.0, 0.0); stages];
            for slot in &self.slots {
                let (level, own) = &mut sums[slot.stage];
                *level += slot.level * slot.ops.len() as f64;
                *own += slot.level * slot.ratio[dp] * slot.ops.len() as f64;
            }
            let ratio = |(level, own): (f64, f64)| if level > 0.0 { own / level } else { 1.0 };
            let mut ratios: Vec<f64> = sums.into_iter().map(ratio).collect();
            self.worker_ratio[dp * stages..(dp + 1) * stages].copy_from_slice(&ratios);
            if stages > 1 {
                self.shared[dp] = lower_median(&mut ratios);
            }
        }
    }

    /// Measures the lengths of microbatches and the spells of whole pipelines. Lengths are used only if forward and
    /// backward passes vary together ([`TOGETHER_FROM`]).
    fn measure_data(&mut self, job: &AlignedTrace) {
        let steps = job.steps.len();
        let dp_count = job.dp();
        let count = job.microbatches;
        let one_stage = job.stages.len() == 1;
        let (whole, inside) = correlations(job, &self.slots);
        self.correlation = whole;
        let together = match (one_stage, count > 1) {
            (false, _) => whole >= TOGETHER_FROM.0,
            (true, true) => inside >= TOGETHER_FROM.1,
            (true, false) => whole >= TOGETHER_FROM.1,
        };
        let mut data = vec![1.0; self.data.len()];
        let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); count];
        for instance in 0..job.instances() {
            ratios.iter_mut().for_each(Vec::clear);
            for slot in &self.slots {
                let usual = (slot.level * slot.ratio[instance % dp_count]).max(f64::MIN_POSITIVE);
                for op in &slot.ops {
                    ratios[job.ops[*op].microbatch].push(job.duration[job.at(*op, instance)] / usual);
                }
            }
            for (microbatch, ratios) in ratios.iter_mut().enumerate().filter(|(_, ratios)| !ratios.is_empty()) {
                // With one stage only two passes are available: use both, unless one of them stalled.
                let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
                let calm = one_stage && ratios.iter().all(|ratio| *ratio < SPIKE_FROM * least);
                let length = if calm { mean(ratios) } else { lower_median(ratios) };
                data[instance * count + microbatch] = length.max(f64::MIN_POSITIVE);
            }
        }
        let mut levels = vec![1.0; dp_count * steps];
        for instance in 0..job.instances() {
            let mut lengths = data[instance * count..(instance + 1) * count].to_vec();
            levels[instance % dp_count * steps + instance / dp_count] = lower_median(&mut lengths);
        }
        let logs = |values: &mut dyn Iterator<Item = f64>| variance(&values.map(f64::ln).collect::<Vec<f64>>());
        let between = logs(&mut levels.iter().copied());
        let level_of = |at: usize| levels[at / count % dp_count * steps + at / count / dp_count];
        let within = logs(&mut data.iter().enumerate().map(|(at, length)| length / level_of(at)));
        let spells = match count {
            1 => one_stage && persists(&levels, steps),
            _ => between > SPELL_FROM * within,
        };
        if spells {
            let all: Vec<f64> = (0..data.len()).map(level_of).collect();
            data.iter_mut().zip(all).for_each(|(length, level)| *length /= level);
            self.replica = levels;
            // Only slowness relative to the other pipelines makes them wait, so the usual level of the step is removed.
            for step in 0..steps {
                let mut ranks: Vec<f64> = (0..dp_count).map(|dp| self.replica[dp * steps + step]).collect();
                let usual = lower_median(&mut ranks);
                (0..dp_count).for_each(|dp| self.replica[dp * steps + step] /= usual);
            }
        }
        let spread = logs(&mut data.iter().copied()).sqrt();
        if !together {
            return;
        }
        self.data = data;
        self.data_spread = spread;
        for step in 0..steps {
            let instances = step * dp_count..(step + 1) * dp_count;
            let lengths: Vec<f64> = instances
                .flat_map(|i| (0..count).map(move |m| (i, m)))
                .map(|(i, m)| self.length(i, m, dp_count, count))
                .collect();
            self.data_mean[step] = mean(&lengths);
        }
    }

    /// Returns the length of a microbatch relative to the usual one. If lengths vary, the ratio that all workers of its
    /// data-parallel rank have in common is part of it.
    fn length(&self, instance: usize, microbatch: usize, dp_count: usize, count: usize) -> f64 {
        let shared = if self.data_spread >= VARIED_FROM {
            self.shared[instance % dp_count]
        } else {
            1.0
        };
        self.data[instance * count + microbatch] * shared
    }

    /// Measures the slowness of each worker in each step that neither its usual ratio, its pipeline nor its data
    /// explains.
    fn measure_spells(&mut self, job: &AlignedTrace) {
        let steps = job.steps.len();
        let stages = job.stages.len();
        let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); stages];
        for instance in 0..job.instances() {
            let step = instance / job.dp();
            let dp = instance % job.dp();
            ratios.iter_mut().for_each(Vec::clear);
            for slot in &self.slots {
                let usual = slot.level * slot.ratio[dp] * self.replica[dp * steps + step];
                for op in &slot.ops {
                    let length = self.data[instance * job.microbatches + job.ops[*op].microbatch];
                    let pass = job.duration[job.at(*op, instance)];
                    ratios[slot.stage].push(pass / (usual * length).max(f64::MIN_POSITIVE));
                }
            }
            for (stage, ratios) in ratios.iter_mut().enumerate() {
                // The median of three or more passes distinguishes a spell from a single long pass.
                if ratios.len() > 2 {
                    self.spell[(dp * stages + stage) * steps + step] = lower_median(ratios).max(f64::MIN_POSITIVE);
                }
            }
        }
    }

    /// Sets the mean ratio of each worker over all steps, and marks the slow workers.
    fn find_slow(&mut self, job: &AlignedTrace) {
        let steps = job.steps.len();
        let stages = job.stages.len();
        let samples = (steps * job.microbatches).max(1) as f64;
        // With one stage, a rank's data and speed can be separated only by averaging over its microbatches, so the
        // bound is raised by three standard errors of a median (1.25 times that of a mean).
        let doubt = if stages == 1 {
            3.0 * 1.25 * self.data_spread / samples.sqrt()
        } else {
            0.0
        };
        for worker in 0..job.workers() {
            let dp = worker / stages;
            let shared = if self.data_spread >= VARIED_FROM {
                self.shared[dp]
            } else {
                1.0
            };
            let usual = self.worker_ratio[worker] / shared;
            let at = |step: usize| self.spell[worker * steps + step] * self.replica[dp * steps + step];
            let ratio = usual * mean(&(0..steps).map(at).collect::<Vec<f64>>());
            self.worker_ratio[worker] = ratio;
            self.slow[worker] = job.dp() > 1 && ratio >= SLOW_FROM + doubt;
        }
        // An excess below a quarter of the worst one is noise.
        let worst = self.worker_ratio.iter().copied().fold(1.0, f64::max) - 1.0;
        for (slow, ratio) in self.slow.iter_mut().zip(&self.worker_ratio) {
            *slow = *slow && ratio - 1.0 >= 0.25 * worst;
        }
    }

    /// Returns the factors of one pass; `None` for other operations.
    pub(crate) fn split(&self, job: &AlignedTrace, op: usize, instance: usize) -> Option<FactorSplit> {
        let slot = &self.slots[self.slot_of[op]?];
        let (dp, step) = (instance % job.dp(), instance / job.dp());
        let worker = job.worker(op, instance);
        let steps = job.steps.len();
        let shared = if self.data_spread >= VARIED_FROM {
            self.shared[dp]
        } else {
            1.0
        };
        let slowness = if self.slow[worker] {
            slot.ratio[dp] / shared * self.spell[worker * steps + step] * self.replica[dp * steps + step]
        } else {
            1.0
        };
        let data = self.length(instance, job.ops[op].microbatch, job.dp(), job.microbatches);
        let explained = (slot.level * slowness * data).max(f64::MIN_POSITIVE);
        let rest = job.duration[job.at(op, instance)] / explained;
        let (spike, jitter) = if rest >= SPIKE_FROM { (rest, 1.0) } else { (1.0, rest) };
        let stage = if slot.even > 0.0 { slot.level / slot.even } else { 1.0 };
        Some(FactorSplit {
            even: slot.even,
            stage,
            worker: slowness,
            data,
            data_mean: self.data_mean[step],
            spike,
            jitter,
        })
    }

    /// Returns the level of each stage relative to the lower median of all stages: of both passes, forward, backward.
    pub(crate) fn stage_ratios(&self, job: &AlignedTrace) -> Vec<[f64; 3]> {
        let mut levels = vec![[0.0; 3]; job.stages.len()];
        for slot in &self.slots {
            let backward = slot
                .ops
                .first()
                .is_some_and(|op| job.ops[*op].kind == OpType::BackwardCompute);
            let level = &mut levels[slot.stage];
            level[0] += slot.level;
            level[1 + usize::from(backward)] += slot.level;
        }
        let usual = [0, 1, 2].map(|way| lower_median(&mut levels.iter().map(|level| level[way]).collect::<Vec<f64>>()));
        let ratio = |way: usize, level: f64| if usual[way] > 0.0 { level / usual[way] } else { 1.0 };
        levels
            .into_iter()
            .map(|level| [0, 1, 2].map(|way| ratio(way, level[way])))
            .collect()
    }

    /// Returns the numbers of the steps in which a worker's excess was at least half of its worst; none if the worst
    /// ratio is at most 1.1.
    pub(crate) fn slow_steps(&self, job: &AlignedTrace, worker: usize) -> Vec<i64> {
        let steps = job.steps.len();
        let dp = worker / job.stages.len();
        let at = |step: usize| self.spell[worker * steps + step] * self.replica[dp * steps + step];
        let worst = (0..steps).map(at).fold(1.0, f64::max);
        let usual = 1.0;
        let bound = 1.0 + (worst - 1.0) / 2.0;
        let slow = (0..steps).filter(|step| worst > 1.1 * usual && at(*step) >= bound);
        slow.map(|step| job.steps[step]).collect()
    }
}

/// Returns true if the duration of a rank's step predicts that of its next step (correlation above 0.5), or there are
/// fewer than five pairs of steps. `levels` are `[dp * steps + step]`.
fn persists(levels: &[f64], steps: usize) -> bool {
    let mut moments = CorrelationSums::default();
    for ranks in levels.chunks(steps.max(1)) {
        ranks
            .windows(2)
            .for_each(|pair| moments.add(pair[0].ln(), pair[1].ln()));
    }
    moments.count < 5.0 || moments.correlation() > 0.5
}

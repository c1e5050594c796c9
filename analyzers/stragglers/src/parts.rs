//! Takes one part of a job's slowness away, or leaves only that one, and runs the step again.

use crate::factors::Factors;
use crate::operation::OpType;
use crate::simulate::{delays, step_times};
use crate::statistics::{mean, median};
use crate::whatif::Bench;

/// A part that can be taken away by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Worker,
    Stage,
    Data,
    Communication,
    Collection,
    Spikes,
    Delays,
    Jitter,
}

impl Part {
    const ALL: [Part; 8] = [
        Part::Worker,
        Part::Stage,
        Part::Data,
        Part::Communication,
        Part::Collection,
        Part::Spikes,
        Part::Delays,
        Part::Jitter,
    ];
}

/// A transfer counts as slow from this ratio to the median of its kind.
const SLOW_TRANSFER_FROM: f64 = 1.25;

/// Seconds that parts cost a step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Weight {
    /// Won if only these go.
    pub(crate) saved: f64,
    /// Lost if only these come.
    pub(crate) adds: f64,
}

impl Weight {
    /// The middle of both: a part hidden behind another saves nothing alone, and one that hides another adds all.
    pub(crate) fn middle(self) -> f64 {
        (self.saved + self.adds) / 2.0
    }
}

/// A job's durations by part.
pub(crate) struct Parts<'a> {
    pub(crate) bench: &'a Bench<'a>,
    pub(crate) factors: Factors,
    /// Ordinary transfer by type of operation.
    usual: Vec<Option<f64>>,
    /// Seconds that each operation started late.
    pub(crate) delays: Vec<f64>,
    /// Mean simulated step time as recorded, delays and all, seconds.
    pub(crate) recorded_s: f64,
    /// The same with every part taken away.
    pub(crate) even_s: f64,
}

impl<'a> Parts<'a> {
    pub(crate) fn new(bench: &'a Bench<'a>) -> Self {
        let (job, instances) = (bench.job, bench.job.instances());
        let usual = OpType::ALL.map(|kind| {
            let ops = job
                .ops
                .iter()
                .enumerate()
                .filter(|(_, op)| op.kind == kind && kind.is_communication());
            let mut all: Vec<f64> = ops
                .flat_map(|(op, _)| &bench.recorded[op * instances..(op + 1) * instances])
                .copied()
                .collect();
            (!all.is_empty()).then(|| median(&mut all).max(0.0))
        });
        let (factors, usual, delays) = (Factors::of(job), usual.to_vec(), delays(job, bench.graph));
        let mut parts = Parts {
            bench,
            factors,
            usual,
            delays,
            recorded_s: 0.0,
            even_s: 0.0,
        };
        parts.recorded_s = parts.time(&bench.recorded, Some(&parts.delays));
        parts.even_s = parts.without(&Part::ALL);
        parts
    }

    /// Seconds over the median of its kind where a transfer is slow; 0 where it is not.
    pub(crate) fn excess(&self, op: usize, instance: usize) -> f64 {
        let usual = OpType::ALL.iter().position(|kind| *kind == self.bench.job.ops[op].kind);
        let recorded = self.bench.recorded[self.bench.job.at(op, instance)];
        match usual.and_then(|kind| self.usual[kind]) {
            Some(usual) if recorded > SLOW_TRANSFER_FROM * usual => recorded - usual,
            _ => 0.0,
        }
    }

    /// Mean step time, seconds.
    pub(crate) fn time(&self, durations: &[f64], delays: Option<&[f64]>) -> f64 {
        mean(&step_times(self.bench.job, self.bench.graph, durations, delays))
    }

    /// What the parts cost together.
    pub(crate) fn weigh(&self, parts: &[Part]) -> Weight {
        let others: Vec<Part> = Part::ALL.into_iter().filter(|part| !parts.contains(part)).collect();
        Weight {
            saved: self.recorded_s - self.without(parts),
            adds: self.without(&others) - self.even_s,
        }
    }

    /// Mean step time without these parts, seconds.
    fn without(&self, gone: &[Part]) -> f64 {
        let job = self.bench.job;
        let is_gone = |part| gone.contains(&part);
        let mut durations = self.bench.recorded.clone();
        for op in 0..job.ops.len() {
            for instance in 0..job.instances() {
                let duration = &mut durations[job.at(op, instance)];
                if let Some(split) = self.factors.split(job, op, instance) {
                    let keep = |part, ratio| if is_gone(part) { 1.0 } else { ratio };
                    let data = if is_gone(Part::Data) {
                        split.data_mean
                    } else {
                        split.data
                    };
                    *duration = split.even
                        * keep(Part::Stage, split.stage)
                        * keep(Part::Worker, split.worker)
                        * keep(Part::Spikes, split.spike)
                        * keep(Part::Jitter, split.jitter)
                        * data;
                } else if job.ops[op].kind == OpType::Gc && is_gone(Part::Collection) {
                    *duration = 0.0;
                } else if is_gone(Part::Communication) {
                    *duration -= self.excess(op, instance);
                }
            }
        }
        self.time(&durations, (!is_gone(Part::Delays)).then_some(self.delays.as_slice()))
    }
}

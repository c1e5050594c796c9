//! Removes one part of a job's slowness, or all others, and simulates the step again.

use crate::factors::PassFactors;
use crate::operation::OpType;
use crate::simulate::{delays, step_times};
use crate::statistics::{mean, median};
use crate::whatif::WhatIfModel;

/// Part of the slowness that can be removed separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlownessPart {
    Worker,
    Stage,
    Data,
    Communication,
    Collection,
    Spikes,
    Delays,
    Jitter,
}

impl SlownessPart {
    const ALL: [SlownessPart; 8] = [
        SlownessPart::Worker,
        SlownessPart::Stage,
        SlownessPart::Data,
        SlownessPart::Communication,
        SlownessPart::Collection,
        SlownessPart::Spikes,
        SlownessPart::Delays,
        SlownessPart::Jitter,
    ];
}

/// Ratio to the median of its kind from which a transfer counts as slow.
const SLOW_TRANSFER_FROM: f64 = 1.25;

/// Cost of parts in seconds a step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct PartCost {
    /// Time saved if only these parts are removed.
    pub(crate) saved: f64,
    /// Time added if only these parts are present.
    pub(crate) adds: f64,
}

impl PartCost {
    /// Returns the mean of both: a part hidden behind another saves nothing alone, and one that hides another
    /// adds all.
    pub(crate) fn middle(self) -> f64 {
        (self.saved + self.adds) / 2.0
    }
}

/// Durations of a job by part.
pub(crate) struct PartDurations<'a> {
    pub(crate) bench: &'a WhatIfModel<'a>,
    pub(crate) factors: PassFactors,
    /// Ordinary transfer duration by type of operation.
    usual: Vec<Option<f64>>,
    /// Start delay of each operation in seconds.
    pub(crate) delays: Vec<f64>,
    /// Mean simulated step time as recorded, delays included, in seconds.
    pub(crate) recorded_s: f64,
    /// Mean simulated step time with every part removed, in seconds.
    pub(crate) even_s: f64,
}

impl<'a> PartDurations<'a> {
    pub(crate) fn new(bench: &'a WhatIfModel<'a>) -> Self {
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
        let factors = PassFactors::of(job);
        let usual = usual.to_vec();
        let delays = delays(job, bench.graph);
        let mut parts = PartDurations {
            bench,
            factors,
            usual,
            delays,
            recorded_s: 0.0,
            even_s: 0.0,
        };
        parts.recorded_s = parts.time(&bench.recorded, Some(&parts.delays));
        parts.even_s = parts.without(&SlownessPart::ALL);
        parts
    }

    /// Returns the seconds above the median of its kind for a slow transfer, otherwise 0.
    pub(crate) fn excess(&self, op: usize, instance: usize) -> f64 {
        let usual = OpType::ALL.iter().position(|kind| *kind == self.bench.job.ops[op].kind);
        let recorded = self.bench.recorded[self.bench.job.at(op, instance)];
        match usual.and_then(|kind| self.usual[kind]) {
            Some(usual) if recorded > SLOW_TRANSFER_FROM * usual => recorded - usual,
            _ => 0.0,
        }
    }

    /// Returns the mean step time in seconds.
    pub(crate) fn time(&self, durations: &[f64], delays: Option<&[f64]>) -> f64 {
        mean(&step_times(self.bench.job, self.bench.graph, durations, delays))
    }

    /// Returns the cost of the parts together.
    pub(crate) fn weigh(&self, parts: &[SlownessPart]) -> PartCost {
        let others: Vec<SlownessPart> = SlownessPart::ALL
            .into_iter()
            .filter(|part| !parts.contains(part))
            .collect();
        PartCost {
            saved: self.recorded_s - self.without(parts),
            adds: self.without(&others) - self.even_s,
        }
    }

    /// Returns the mean step time without these parts in seconds.
    fn without(&self, gone: &[SlownessPart]) -> f64 {
        let job = self.bench.job;
        let is_gone = |part| gone.contains(&part);
        let mut durations = self.bench.recorded.clone();
        for op in 0..job.ops.len() {
            for instance in 0..job.instances() {
                let duration = &mut durations[job.at(op, instance)];
                if let Some(split) = self.factors.split(job, op, instance) {
                    let keep = |part, ratio| if is_gone(part) { 1.0 } else { ratio };
                    let data = if is_gone(SlownessPart::Data) {
                        split.data_mean
                    } else {
                        split.data
                    };
                    *duration = split.even
                        * keep(SlownessPart::Stage, split.stage)
                        * keep(SlownessPart::Worker, split.worker)
                        * keep(SlownessPart::Spikes, split.spike)
                        * keep(SlownessPart::Jitter, split.jitter)
                        * data;
                } else if job.ops[op].kind == OpType::Gc && is_gone(SlownessPart::Collection) {
                    *duration = 0.0;
                } else if is_gone(SlownessPart::Communication) {
                    *duration -= self.excess(op, instance);
                }
            }
        }
        self.time(
            &durations,
            (!is_gone(SlownessPart::Delays)).then_some(self.delays.as_slice()),
        )
    }
}

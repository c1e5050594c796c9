//! First and newest step of each generation, by any rank, for reports.
//!
//! The progress points of a job are those of rank 0. Another rank may make the first step of a generation before it, and
//! may run on after its end. What the ranks of an ended generation made is reported late, while the next one is planned,
//! or when their node is reachable again; it counts, because a later generation repeats it. No decision depends on this.

use std::collections::BTreeMap;

use rankguard_model::{Generation, ProgressPoint, Step};
use serde::{Deserialize, Serialize};

/// Generations with retained steps; the oldest are dropped.
const GENERATIONS_MAX: usize = 256;

/// First and newest steps by generation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct GenerationSteps {
    spans: BTreeMap<Generation, StepSpan>,
}

/// Steps of one generation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StepSpan {
    /// Report with the earliest time.
    first: ProgressPoint,
    /// Report of the newest step; the first of several.
    newest: ProgressPoint,
}

impl GenerationSteps {
    /// Returns true if no step was reported.
    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Records a step. Its loss is not retained, because ranks differ in it.
    pub(crate) fn record(&mut self, point: &ProgressPoint) {
        let point = ProgressPoint { loss: None, ..*point };
        let span = self.spans.entry(point.generation).or_insert_with(|| StepSpan {
            first: point,
            newest: point,
        });
        if point.at < span.first.at {
            span.first = point;
        }
        if point.step > span.newest.step {
            span.newest = point;
        }
        while self.spans.len() > GENERATIONS_MAX {
            self.spans.pop_first();
        }
    }

    /// Returns the newest step that a generation made.
    pub(crate) fn newest(&self, generation: Generation) -> Option<Step> {
        self.spans.get(&generation).map(|span| span.newest.step)
    }

    /// Adds to the points of rank 0 the first step of each generation, and the newest step if it is later than that of
    /// rank 0. The result is sorted by generation and time.
    pub(crate) fn complete(&self, points: &[ProgressPoint]) -> Vec<ProgressPoint> {
        let mut all = points.to_vec();
        for (generation, span) in &self.spans {
            let own = || points.iter().filter(|point| point.generation == *generation);
            if own().all(|point| point.at > span.first.at) {
                all.push(span.first);
            }
            let is_known = own().any(|point| point.step >= span.newest.step);
            if !is_known && span.newest.step > span.first.step {
                all.push(span.newest);
            }
        }
        all.sort_by_key(|point| (point.generation, point.at));
        all
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rankguard_model::Timestamp;

    use super::*;

    fn point(generation: u64, seconds: u64, step: u64) -> ProgressPoint {
        ProgressPoint {
            at: Timestamp(0).after(Duration::from_secs(seconds)),
            generation: Generation(generation),
            step: Step(step),
            loss: Some(0.5),
            step_ms: 1.0,
        }
    }

    fn places(points: &[ProgressPoint]) -> Vec<(u64, u64)> {
        let seconds = |point: &ProgressPoint| point.at.millis_since(Timestamp(0)) as u64 / 1_000;
        points.iter().map(|point| (seconds(point), point.step.0)).collect()
    }

    #[test]
    fn the_first_step_of_any_rank_and_the_last_of_a_survivor_complete_the_points() {
        let mut steps = GenerationSteps::default();
        let of_rank_0 = [point(1, 7, 1), point(1, 20, 14)];
        let of_rank_1 = [point(1, 4, 1), point(1, 20, 14), point(1, 25, 19)];
        of_rank_0.iter().chain(&of_rank_1).for_each(|point| steps.record(point));
        let all = steps.complete(&of_rank_0);
        assert_eq!(places(&all), [(4, 1), (7, 1), (20, 14), (25, 19)]);
        assert_eq!(all[3].loss, None);
        assert_eq!(steps.newest(Generation(1)), Some(Step(19)));
        assert_eq!(places(&steps.complete(&[])), [(4, 1), (25, 19)]);
    }

    #[test]
    fn old_generations_are_dropped() {
        let mut steps = GenerationSteps::default();
        (1..=300).for_each(|generation| steps.record(&point(generation, generation, generation)));
        assert_eq!(steps.newest(Generation(44)), None);
        assert_eq!(steps.newest(Generation(45)), Some(Step(45)));
    }
}

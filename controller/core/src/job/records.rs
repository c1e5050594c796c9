//! Records of a job for reports: progress points and state spans, each limited in number.

use std::collections::BTreeMap;

use rankguard_model::{Generation, NodeId, ProgressPoint, Rank, StateSpan, Step, Timestamp};

use super::Job;
use crate::decision::{PreflightResults, SilentRanks};
use crate::limits::POINTS_OVER_MAX;
use crate::step_times::StepTimes;

/// Progress points retained for reports; beyond it every second one is dropped, so that the whole run remains visible.
const PROGRESS_POINTS_MAX: usize = 4_096;
/// Spans retained for reports; beyond it the oldest are dropped.
const SPANS_MAX: usize = 4_096;

impl Job {
    /// Returns thinned progress points, oldest first.
    pub fn progress(&self) -> &[ProgressPoint] {
        &self.progress
    }

    /// Returns the progress points for reports: with the steps that other ranks than rank 0 made first or last.
    pub(crate) fn reported_progress(&self) -> Vec<ProgressPoint> {
        self.generation_steps.complete(&self.progress)
    }

    /// Records a step of any rank for reports, also of an earlier generation.
    pub(crate) fn record_step(&mut self, point: &ProgressPoint) {
        self.generation_steps.record(point);
    }

    /// Returns the newest step that a generation made, as far as it is reported.
    pub(crate) fn newest_step_of(&self, generation: Generation) -> Option<Step> {
        self.generation_steps.newest(generation)
    }

    /// Returns the state spans of its ranks.
    pub fn spans(&self) -> &[StateSpan] {
        &self.spans
    }

    /// Records a step for reports.
    pub fn record_progress(&mut self, point: ProgressPoint) {
        if self.progress.len() >= PROGRESS_POINTS_MAX {
            self.halve_progress();
        }
        self.progress.push(point);
    }

    /// Returns the metrics of a step: those of the newest report of its generation that is not later.
    pub fn metrics_at(&self, generation: Generation, step: Step) -> BTreeMap<String, f64> {
        let before = |point: &&ProgressPoint| point.generation == generation && point.step <= step;
        let point = self.progress.iter().rev().find(before);
        point
            .and_then(|point| point.loss)
            .filter(|loss| loss.is_finite())
            .map(|loss| BTreeMap::from([("loss".to_owned(), loss)]))
            .unwrap_or_default()
    }

    /// Opens a span of a rank and closes its previous one.
    pub fn open_span(&mut self, at: Timestamp, node: &NodeId, rank: Rank, state: &str) {
        let generation = self.generation;
        self.close_spans(at, |span| span.rank == Some(rank));
        if self.spans.len() >= SPANS_MAX {
            self.spans.remove(0);
        }
        self.spans.push(StateSpan {
            node: node.clone(),
            rank: Some(rank),
            generation: Some(generation),
            state: state.to_owned(),
            from: at,
            to: None,
        });
    }

    /// Closes the open spans that match.
    pub fn close_spans(&mut self, at: Timestamp, which: impl Fn(&StateSpan) -> bool) {
        for span in self.spans.iter_mut().filter(|span| span.to.is_none() && which(span)) {
            span.to = Some(at);
        }
    }

    /// Ends the newest span of a rank with its exit, of which the report may have come later.
    pub(crate) fn date_exit(&mut self, rank: Rank, exited_at: Timestamp) {
        let generation = Some(self.generation);
        let is_own = |span: &&mut StateSpan| span.rank == Some(rank) && span.generation == generation;
        if let Some(span) = self.spans.iter_mut().rfind(is_own)
            && let Some(to) = span.to
        {
            span.to = Some(exited_at.clamp(span.from.min(to), to));
        }
    }

    /// Thins the record of a job that is over.
    pub(crate) fn thin(&mut self) {
        while self.progress.len() > POINTS_OVER_MAX {
            self.halve_progress();
        }
        let many = self.spans.len().saturating_sub(POINTS_OVER_MAX);
        self.spans.drain(..many);
        self.tempo = StepTimes::default();
        self.hang = SilentRanks::default();
        self.answers = PreflightResults::default();
    }

    /// Drops every second progress point, so that the whole run remains visible.
    fn halve_progress(&mut self) {
        self.progress = thinned(&self.progress);
    }
}

/// Returns every second point, and the newest of each generation, which bounds the time of its steps. At least a quarter of the
/// points is dropped.
fn thinned(points: &[ProgressPoint]) -> Vec<ProgressPoint> {
    let is_newest = |index: usize| {
        let next = points.get(index + 1);
        next.is_none_or(|next| next.generation != points[index].generation)
    };
    let generations = (0..points.len()).filter(|index| is_newest(*index)).count();
    let retains_newest = generations <= points.len() / 4;
    let retained = |index: &usize| index.is_multiple_of(2) || retains_newest && is_newest(*index);
    (0..points.len()).filter(retained).map(|index| points[index]).collect()
}

#[cfg(test)]
mod tests {
    use rankguard_model::Generation;

    use super::*;

    fn points(generations: &[u64]) -> Vec<ProgressPoint> {
        let point = |(second, generation): (usize, &u64)| ProgressPoint {
            at: Timestamp::from_millis(1_000 * second as i64),
            generation: Generation(*generation),
            step: Step(second as u64),
            loss: None,
            step_ms: 1.0,
        };
        generations.iter().enumerate().map(point).collect()
    }

    fn steps(points: &[ProgressPoint]) -> Vec<u64> {
        points.iter().map(|point| point.step.0).collect()
    }

    #[test]
    fn thinning_retains_the_newest_point_of_each_generation() {
        let many = points(&[1, 1, 1, 1, 2, 2, 2, 2]);
        assert_eq!(steps(&thinned(&many)), [0, 2, 3, 4, 6, 7]);
        // It drops points however many generations there are.
        assert_eq!(steps(&thinned(&points(&[1, 2, 3, 4]))), [0, 2]);
    }
}

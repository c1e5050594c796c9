//! Settings of a run. [`TrainingSettings::identity`] includes everything that determines the trained bits.

use std::path::PathBuf;
use std::time::Duration;

use crate::digits::{CLASSES, PIXELS};
use crate::random;

/// Maximum width of a hidden layer, and maximum depth of the network.
const HIDDEN_MAX: usize = 4096;
const LAYERS_MAX: usize = 8;

/// Settings of one rank; all ranks of a job receive the same.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainingSettings {
    /// Number of passes over the data.
    pub epochs: u64,
    /// Number of samples in a step, over all ranks.
    pub batch: usize,
    /// Number of pieces of each batch, at least the largest world size. Gradients are summed by piece in the order of
    /// the pieces, so that the sum does not depend on which rank computed which piece.
    pub virtual_ranks: usize,
    pub hidden: Vec<usize>,
    /// Seed of initial weights and sample order.
    pub seed: u64,
    /// Adam's step size.
    pub learning_rate: f32,
    /// Pacing: minimum duration of a step in milliseconds, reached by sleeping. The demo network is far smaller than a
    /// real one; without pacing a run would end before anything could fail. Does not affect results.
    pub step_ms_min: u64,
    /// Longest wait for another rank.
    pub deadline: Duration,
    /// Folder for parameters, ledger and summary.
    pub out: PathBuf,
    /// Injects a bug: at this step `bug_rank` builds a batch that is one column too wide.
    pub bug_at_step: Option<u64>,
    /// Rank with the bug, modulo the world size.
    pub bug_rank: u32,
}

impl Default for TrainingSettings {
    fn default() -> Self {
        Self {
            epochs: 20,
            batch: 96,
            virtual_ranks: 24,
            hidden: vec![256, 128],
            seed: 1,
            learning_rate: 1e-3,
            step_ms_min: 0,
            deadline: Duration::from_secs(30),
            out: PathBuf::from("."),
            bug_at_step: None,
            bug_rank: 0,
        }
    }
}

impl TrainingSettings {
    /// Returns all mistakes at once, each with its setting; empty if the run can start in a world of this size.
    pub fn problems(&self, world_size: u32) -> Vec<String> {
        let mut problems = Vec::new();
        let mut want = |fine: bool, text: String| {
            if !fine {
                problems.push(text);
            }
        };
        want(self.epochs >= 1, "epochs is 0, want at least 1".to_owned());
        want(self.batch >= 1, "batch is 0, want at least 1".to_owned());
        want(
            self.virtual_ranks >= world_size as usize,
            format!(
                "virtual_ranks is {}, want at least the world size {world_size}",
                self.virtual_ranks
            ),
        );
        want(
            self.virtual_ranks <= 4096,
            format!("virtual_ranks is {}, want at most 4096", self.virtual_ranks),
        );
        want(
            self.hidden.len() < LAYERS_MAX && self.hidden.iter().all(|w| (1..=HIDDEN_MAX).contains(w)),
            format!(
                "hidden is {:?}, want fewer than {LAYERS_MAX} widths of 1..={HIDDEN_MAX}",
                self.hidden
            ),
        );
        want(
            self.learning_rate.is_finite() && self.learning_rate > 0.0,
            format!("learning_rate is {}, want a finite number above 0", self.learning_rate),
        );
        want(
            !self.deadline.is_zero(),
            "deadline is 0, want a time above 0".to_owned(),
        );
        problems
    }

    /// Returns the widths of all layers, input first.
    pub(crate) fn widths(&self) -> Vec<usize> {
        let mut widths = vec![PIXELS];
        widths.extend(&self.hidden);
        widths.push(CLASSES);
        widths
    }

    /// Returns a number that two runs share exactly if they train the same bits: ranks and checkpoints with another
    /// number are refused. The number of epochs is left out, because a longer run begins like a shorter one.
    pub fn identity(&self) -> u64 {
        let mut parts = vec![
            self.batch as u64,
            self.virtual_ranks as u64,
            self.seed,
            u64::from(self.learning_rate.to_bits()),
        ];
        parts.extend(self.hidden.iter().map(|&w| w as u64));
        parts.into_iter().fold(0, |sum, part| random::draw(sum, part, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mistake_is_told_at_once() {
        let wrong = TrainingSettings {
            epochs: 0,
            batch: 0,
            virtual_ranks: 2,
            hidden: vec![0],
            learning_rate: f32::NAN,
            deadline: Duration::ZERO,
            ..TrainingSettings::default()
        };
        assert_eq!(wrong.problems(3).len(), 6, "{:?}", wrong.problems(3));
        assert!(TrainingSettings::default().problems(24).is_empty());
    }

    #[test]
    fn the_identity_changes_with_what_decides_the_bits_and_only_with_that() {
        let base = TrainingSettings::default();
        let same = TrainingSettings {
            epochs: 99,
            step_ms_min: 50,
            out: PathBuf::from("elsewhere"),
            ..base.clone()
        };
        let other = TrainingSettings {
            seed: 2,
            ..base.clone()
        };
        assert_eq!(base.identity(), same.identity());
        assert_ne!(base.identity(), other.identity());
    }
}

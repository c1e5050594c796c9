//! Assignment of samples to steps and ranks. The samples of each step and of each virtual rank depend on the settings
//! only, so they are the same at every world size.

use std::ops::Range;

/// Returns piece `part` of `0..total`, cut into `parts` contiguous pieces with lengths that differ by at most one.
pub(crate) fn piece(total: usize, parts: usize, part: usize) -> Range<usize> {
    total * part / parts..total * (part + 1) / parts
}

/// Sizes that determine the samples of every step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SampleSchedule {
    /// Number of samples in an epoch.
    pub(crate) samples: usize,
    /// Number of samples in a step; the last step of an epoch may have fewer.
    pub(crate) batch: usize,
    /// Number of epochs.
    pub(crate) epochs: u64,
    /// Number of pieces of a batch, each computed by one rank; at least the world size.
    pub(crate) virtual_ranks: usize,
}

/// Samples of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StepSamples {
    /// Number of the epoch, from 0.
    pub(crate) epoch: u64,
    /// Positions in the epoch's shuffled order of samples.
    pub(crate) positions: Range<usize>,
}

impl SampleSchedule {
    pub(crate) fn steps_per_epoch(&self) -> u64 {
        self.samples.div_ceil(self.batch) as u64
    }

    pub(crate) fn total_steps(&self) -> u64 {
        self.steps_per_epoch().saturating_mul(self.epochs)
    }

    /// Returns the number of samples consumed by the first `completed` steps.
    pub(crate) fn consumed_after(&self, completed: u64) -> u64 {
        let window = self.window(completed);
        window.epoch * self.samples as u64 + window.positions.start as u64
    }

    /// Returns the samples of the step that follows `completed` steps.
    pub(crate) fn window(&self, completed: u64) -> StepSamples {
        let begin = (completed % self.steps_per_epoch()) as usize * self.batch;
        StepSamples {
            epoch: completed / self.steps_per_epoch(),
            positions: begin..(begin + self.batch).min(self.samples),
        }
    }

    /// Returns the positions of a window that a virtual rank computes; may be empty if the window has fewer samples
    /// than there are virtual ranks.
    pub(crate) fn share(&self, window: &StepSamples, virtual_rank: usize) -> Range<usize> {
        let share = piece(window.positions.len(), self.virtual_ranks, virtual_rank);
        window.positions.start + share.start..window.positions.start + share.end
    }

    /// Returns the virtual ranks that a rank computes.
    pub(crate) fn virtual_ranks_of(&self, rank: usize, world_size: usize) -> Range<usize> {
        piece(self.virtual_ranks, world_size, rank)
    }

    /// Returns all positions of a window that a rank computes: contiguous, as its virtual ranks are. Requires at least
    /// one virtual rank for each rank.
    pub(crate) fn consumed_by(&self, window: &StepSamples, rank: usize, world_size: usize) -> Range<usize> {
        let played = self.virtual_ranks_of(rank, world_size);
        let begin = self.share(window, played.start).start;
        begin..self.share(window, played.end - 1).end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGITS: SampleSchedule = SampleSchedule {
        samples: 1797,
        batch: 96,
        epochs: 2,
        virtual_ranks: 24,
    };

    #[test]
    fn the_last_step_of_an_epoch_takes_what_is_left() {
        assert_eq!((DIGITS.steps_per_epoch(), DIGITS.total_steps()), (19, 38));
        let last = DIGITS.window(18);
        assert_eq!((last.epoch, last.positions.clone()), (0, 1728..1797));
        assert_eq!(DIGITS.window(19).positions, 0..96);
        assert_eq!(DIGITS.window(19).epoch, 1);
    }

    #[test]
    fn ranks_cover_each_window_in_order_at_every_world_size() {
        for world_size in 1..=24 {
            for completed in [0, 18] {
                let window = DIGITS.window(completed);
                let mut next = window.positions.start;
                for rank in 0..world_size {
                    let share = DIGITS.consumed_by(&window, rank, world_size);
                    assert_eq!(share.start, next);
                    next = share.end;
                }
                assert_eq!(next, window.positions.end);
            }
        }
    }
}

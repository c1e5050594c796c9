//! Notes about void checkpoints and about a changed world size.

use std::time::{Duration, Instant};

use rankguard_model::{CheckpointCounts, JobState, JobView, Step, per_rank_note};

use crate::out;

/// Minimum interval between notes about void checkpoints.
const PAUSE: Duration = Duration::from_secs(20);

/// State of the notes that were printed.
#[derive(Debug, Default)]
pub(super) struct CheckpointNotes {
    void: u64,
    printed: Option<Instant>,
    /// World size of the newest generation seen.
    world: Option<usize>,
    /// True once the tensors that differ from rank to rank were named.
    is_per_rank_named: bool,
}

impl CheckpointNotes {
    /// Prints changes of a job since the last call.
    pub(super) fn print(&mut self, view: &JobView) {
        self.print_void(view);
        self.print_per_rank(view);
        self.print_world(view);
    }

    fn print_void(&mut self, view: &JobView) {
        let counts = &view.checkpoint_counts;
        let Some(newest) = counts.newest_void.as_ref().filter(|_| counts.void > self.void) else {
            return;
        };
        let is_over = matches!(view.state, JobState::Finished | JobState::Stopped);
        let is_early = self.printed.is_some_and(|at| at.elapsed() < PAUSE);
        if is_early && !is_over {
            return;
        }
        let new = counts.void - self.void;
        self.void = counts.void;
        self.printed = Some(Instant::now());
        out::note(&void_line(new, view, newest));
    }

    fn print_per_rank(&mut self, view: &JobView) {
        let note = per_rank_note(&view.per_rank_tensors).filter(|_| !self.is_per_rank_named);
        if let Some(note) = note {
            self.is_per_rank_named = true;
            out::note(&format!("warning: {note}"));
        }
    }

    fn print_world(&mut self, view: &JobView) {
        let ranks = view.placements.len();
        // A job that waits for nodes has the ranks that run on.
        if ranks == 0 || view.state == JobState::Pending {
            return;
        }
        let before = self.world.replace(ranks);
        if let Some(before) = before.filter(|before| *before != ranks) {
            out::note(&world_line(before, ranks));
        }
    }
}

fn void_line(new: u64, view: &JobView, newest: &rankguard_model::VoidCheckpoint) -> String {
    let counts = &view.checkpoint_counts;
    let others = match new {
        0 | 1 => String::new(),
        many => format!(" and {} before it", many - 1),
    };
    // A reader of a warning looks for a fault that is present.
    let (warning, since) = match later_commit(counts) {
        Some(step) => ("", format!("; step {step} has been committed since")),
        None => ("warning: ", String::new()),
    };
    format!(
        "{warning}the checkpoint of step {}{others} failed: {}{since} ({} committed, {} failed)",
        newest.step, newest.reason, counts.committed, counts.void
    )
}

/// Returns the newest committed step if it was committed after the newest failure: the store keeps checkpoints again.
pub(in crate::commands) fn later_commit(counts: &CheckpointCounts) -> Option<Step> {
    counts.newest_committed.filter(|_| !counts.fails_now())
}

fn world_line(before: usize, ranks: usize) -> String {
    format!(
        "world size {before} -> {ranks}; the global batch size changes with it unless the program divides by the world size"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankguard_model::LaterAttempts;
    use rankguard_report::sample;

    #[test]
    fn a_line_has_the_step_the_reason_and_the_counts() {
        let (status, _) = sample::cluster();
        let mut view = status.jobs[0].clone();
        view.checkpoint_counts.count_committed(Step(10), 0);
        for step in [20, 30] {
            view.checkpoint_counts
                .count_void(Step(step), "no space left on device", LaterAttempts::default());
        }
        let newest = view.checkpoint_counts.newest_void.clone().expect("two are void");
        assert_eq!(
            void_line(2, &view, &newest),
            "warning: the checkpoint of step 30 and 1 before it failed: no space left on device (1 committed, 2 failed)"
        );
        // The store works again.
        view.checkpoint_counts.count_committed(Step(40), 0);
        assert_eq!(
            void_line(2, &view, &newest),
            "the checkpoint of step 30 and 1 before it failed: no space left on device; step 40 has been committed since (2 \
             committed, 2 failed)"
        );
        assert!(world_line(4, 2).starts_with("world size 4 -> 2; "));
    }
}

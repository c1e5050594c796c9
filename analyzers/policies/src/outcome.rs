//! Where the time of a run went.

use serde::Serialize;

/// What one cause brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct CauseWaste {
    /// Failures of the job.
    pub failures: u64,
    /// Seconds that they cost: lost work, noticing, waiting, coming back, until work went on or the next failure came.
    pub seconds: f64,
}

/// Where the time of a run went, seconds: every moment is in exactly one of the first seven.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Training whose result is still there.
    pub useful_s: f64,
    /// Training that was lost.
    pub lost_s: f64,
    /// The trainer waiting for images.
    pub saving_s: f64,
    /// Failures that nobody had noticed yet.
    pub detecting_s: f64,
    /// Too few nodes to run.
    pub waiting_s: f64,
    /// Starting ranks and reading images.
    pub restoring_s: f64,
    /// Changing to another number of nodes.
    pub resharding_s: f64,
    /// The whole time.
    pub wall_s: f64,
    /// Useful training in seconds of the full job: with half the nodes, half of the useful time.
    pub work_s: f64,
    /// Failures that struck the job.
    pub failures: u64,
    /// Times that work went on after failures.
    pub restarts: u64,
    /// Images that were finished, all tiers together.
    pub images: u64,
    /// By cause, in the order of the trace.
    pub causes: Vec<CauseWaste>,
}

impl Outcome {
    /// Effective training time ratio: useful time over wall time.
    pub fn ettr(&self) -> f64 {
        self.useful_s / self.wall_s
    }

    /// Goodput: work over what the full job would have done without any failure or image. The same as
    /// [`ettr`](Self::ettr) where the job always has all its nodes.
    pub fn goodput(&self) -> f64 {
        self.work_s / self.wall_s
    }

    /// The sum of the seven parts; the wall time.
    pub fn parts(&self) -> f64 {
        let parts = [
            self.useful_s,
            self.lost_s,
            self.saving_s,
            self.detecting_s,
            self.waiting_s,
            self.restoring_s,
            self.resharding_s,
        ];
        parts.iter().sum()
    }
}

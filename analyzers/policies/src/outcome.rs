//! Time of a run by use.

use serde::Serialize;

/// Cost of one cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct CauseWaste {
    /// Number of failures of the job.
    pub failures: u64,
    /// Cost in seconds: lost work, detection, waiting and recovery, until work resumes or the next failure.
    pub seconds: f64,
}

/// Time of a run by use in seconds: every moment is in exactly one of the first seven fields.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TimeBreakdown {
    /// Training with a retained result.
    pub useful_s: f64,
    /// Training lost at failures.
    pub lost_s: f64,
    /// Stall of the trainer for checkpoints.
    pub saving_s: f64,
    /// Time from failures to their detection.
    pub detecting_s: f64,
    /// Time with too few nodes to run.
    pub waiting_s: f64,
    /// Restart of ranks and reading of checkpoints.
    pub restoring_s: f64,
    /// Resharding to another number of nodes.
    pub resharding_s: f64,
    /// Total time of the run.
    pub wall_s: f64,
    /// Useful training in seconds of the full job: with half the nodes, half of the useful time.
    pub work_s: f64,
    /// Number of failures of the job.
    pub failures: u64,
    /// Number of times that work resumed after failures.
    pub restarts: u64,
    /// Number of completed checkpoints on all tiers.
    pub images: u64,
    /// Cost by cause, in the order of the trace.
    pub causes: Vec<CauseWaste>,
}

impl TimeBreakdown {
    /// Returns the effective training time ratio: useful time over wall time.
    pub fn ettr(&self) -> f64 {
        self.useful_s / self.wall_s
    }

    /// Returns the goodput: work relative to the full job without failures and checkpoints. Equals
    /// [`ettr`](Self::ettr) for a job that always has all its nodes.
    pub fn goodput(&self) -> f64 {
        self.work_s / self.wall_s
    }

    /// Returns the sum of the seven parts, which equals the wall time.
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

//! Documents of the use of the wall time of jobs.

use rankguard_summary::JobTime;
use serde::Serialize;
use utoipa::ToSchema;

use super::{UtcTime, word};

/// Use of the wall time of jobs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EfficiencyDocument {
    /// Jobs, the newest submission first.
    pub(crate) jobs: Vec<JobTimeDocument>,
}

/// Wall time of a job from its submission to its end, by use. The parts add up to the whole.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobTimeDocument {
    job: String,
    /// State of the job.
    state: String,
    submitted_at: UtcTime,
    /// End of the job, or the time of the request.
    until: UtcTime,
    /// Time between both, milliseconds.
    wall_ms: i64,
    /// Time of steps that no earlier generation had made, milliseconds.
    productive_ms: i64,
    /// Time of steps that an earlier generation had made and a failure took, milliseconds.
    repeated_ms: i64,
    /// Time from the start of the processes of a generation until its first step, milliseconds.
    starting_ms: i64,
    /// Time after the last step of a generation in which its processes ran, milliseconds.
    idle_ms: i64,
    /// Time without processes, milliseconds.
    waiting_ms: i64,
    /// Time of generations that reported no step, milliseconds.
    unmeasured_ms: i64,
    /// Effective training time ratio: productive time over wall time, 0 to 1; null for a job that reported no step. A lower
    /// bound unless `is_complete`.
    ettr: Option<f64>,
    /// Time of all ranks, hours.
    rank_hours: f64,
    /// Time of all ranks that was not productive, hours.
    rank_hours_lost: f64,
    /// False if the controller no longer has the spans of old generations: their starts and ends count as waiting.
    is_complete: bool,
}

impl JobTimeDocument {
    pub(crate) fn of(time: &JobTime) -> Self {
        Self {
            job: time.job.to_string(),
            state: word(&time.state),
            submitted_at: UtcTime(time.submitted_at),
            until: UtcTime(time.until),
            wall_ms: time.wall_ms,
            productive_ms: time.productive_ms,
            repeated_ms: time.repeated_ms,
            starting_ms: time.starting_ms,
            idle_ms: time.idle_ms,
            waiting_ms: time.waiting_ms,
            unmeasured_ms: time.unmeasured_ms,
            ettr: time.ettr,
            rank_hours: time.rank_hours,
            rank_hours_lost: time.rank_hours_lost,
            is_complete: time.is_complete,
        }
    }
}

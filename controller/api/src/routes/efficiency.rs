//! Routes of the use of the wall time of jobs.

use rankguard_model::JobId;
use rankguard_summary::{JobTime, UnknownJob};

use super::cases::unknown;
use super::jobs::job_view;
use super::{StateRequest, json};
use crate::documents::{EfficiencyDocument, JobTimeDocument};
use crate::problem::Problem;

pub(super) fn all(request: &StateRequest<'_>) -> Result<Vec<u8>, Problem> {
    let names = request.query.text("job").into_iter().flat_map(|names| names.split(','));
    let names: Vec<JobId> = names.map(JobId::from).collect();
    let status = request.state.status(request.now);
    let times = JobTime::of_jobs(&status.jobs, &names, request.now);
    let times = times.map_err(|UnknownJob(name)| {
        unknown("job", name.as_str()).hint("GET /api/v1/jobs lists the jobs; separate several names by commas")
    })?;
    json(&EfficiencyDocument {
        jobs: times.iter().map(JobTimeDocument::of).collect(),
    })
}

pub(super) fn one(request: &StateRequest<'_>) -> Result<Vec<u8>, Problem> {
    json(&JobTimeDocument::of(&JobTime::of(&job_view(request)?, request.now)))
}

//! Claims of checkpoint folders, made before a submission is journalled ([`rankguard_checkpoint::claim`]).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rankguard_checkpoint::Store;
use rankguard_checkpoint::claim::{ClaimError, ClaimRequest, ClaimedFolder, claim_folder};
use rankguard_model::{Generation, JobId, JobSpec, RunId, Timestamp, with_causes};
use rankguard_proto::HINT_HEADER;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};
use tracing::warn;

use crate::same_size;

/// Time limit of a claim that reads its own folder only.
const CLAIM_DEADLINE: Duration = Duration::from_secs(10);
/// Time limit of a claim that reads, links or copies a checkpoint.
const RESUME_DEADLINE: Duration = Duration::from_secs(600);

/// Advice for a store that cannot be used.
const STORE_HINT: &str = "on the controller's machine, check that the store is mounted and that the controller's user \
                          may write to it; then submit the job again";

/// Names of jobs that are being submitted: a second submission of a name must not begin an attempt beside the first.
#[derive(Debug, Default, Clone)]
pub(crate) struct ClaimRegistry {
    jobs: Arc<Mutex<BTreeSet<JobId>>>,
}

/// Guard of a job name while its submission claims the folder.
#[derive(Debug)]
pub(crate) struct NameReservation {
    registry: ClaimRegistry,
    job: JobId,
}

impl ClaimRegistry {
    /// Reserves the name of a job.
    #[allow(clippy::result_large_err, reason = "the operator service answers with it")]
    pub(crate) fn hold(&self, job: &JobId) -> Result<NameReservation, Status> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if !jobs.insert(job.clone()) {
            let what =
                format!("job {job} is being submitted at this moment; `rankguard status` shows it when that has ended");
            return Err(Status::already_exists(what));
        }
        Ok(NameReservation {
            registry: self.clone(),
            job: job.clone(),
        })
    }
}

impl Drop for NameReservation {
    fn drop(&mut self) {
        let mut jobs = self.registry.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.remove(&self.job);
    }
}

/// Claims the folder of a job with checkpoints on a blocking thread.
pub(crate) async fn claim_store(spec: &JobSpec, floor: Generation) -> Result<ClaimedFolder, Status> {
    let Some(policy) = &spec.checkpoint else {
        return Err(Status::internal("a job without checkpoints has no folder to claim"));
    };
    let request = ClaimRequest {
        job: spec.id.clone(),
        source: spec.resume_from.clone(),
        claim: random_run()?,
        floor,
        at: now(),
    };
    let path = policy.store.clone();
    let store = policy.store.clone();
    let limit = if request.source.is_some() {
        RESUME_DEADLINE
    } else {
        CLAIM_DEADLINE
    };
    let given_up = Arc::new(AtomicBool::new(false));
    let is_given_up = given_up.clone();
    let claiming = spawn_blocking(move || {
        let store = Store::open(path)?;
        let mut claimed = claim_folder(&store, &request, &|| is_given_up.load(Ordering::SeqCst))?;
        same_size::examine_start(&store, &request.job, &mut claimed.claim);
        Ok(claimed)
    });
    match timeout(limit, claiming).await {
        Ok(Ok(claimed)) => claimed.map_err(|problem| refusal(&store, &problem)),
        Ok(Err(problem)) => Err(Status::internal(format!(
            "cannot claim {store}: its thread failed: {problem}"
        ))),
        Err(_) => {
            given_up.store(true, Ordering::SeqCst);
            Err(silent_store(&store, limit))
        }
    }
}

/// Refuses a submission because of its store. The controller itself is available, so no code is used that a client
/// takes for an unreachable controller.
pub(crate) fn unusable_store(store: &str, cause: &str) -> Status {
    let mut status = Status::failed_precondition(format!("cannot use the checkpoint store {store}: {cause}"));
    let hint = MetadataValue::from_static(STORE_HINT);
    status.metadata_mut().insert(HINT_HEADER, hint);
    status
}

/// Refuses a submission because the file system of its store does not respond.
pub(crate) fn silent_store(store: &str, limit: Duration) -> Status {
    let limit = limit.as_secs();
    unusable_store(store, &format!("its file system has not responded within {limit} s"))
}

fn refusal(store: &str, problem: &ClaimError) -> Status {
    let text = with_causes(problem);
    match problem {
        ClaimError::Store(problem) if problem.failure().may_pass() => unusable_store(store, &text),
        ClaimError::Occupied { .. } | ClaimError::OtherRun { .. } | ClaimError::Raced { .. } => {
            Status::failed_precondition(text)
        }
        ClaimError::Source { .. } => Status::not_found(text),
        ClaimError::Store(_) | ClaimError::GivenUp { .. } => Status::failed_precondition(text),
    }
}

/// Removes the records of a claim if the submission was refused. A submission without an answer may still be
/// journalled, so its records remain.
pub(crate) async fn undo(claimed: ClaimedFolder, refusal: &Status) {
    if refusal.code() == Code::DeadlineExceeded || refusal.code() == Code::Unavailable {
        return;
    }
    let undone = spawn_blocking(move || claimed.undo()).await;
    if let Ok(Err(problem)) = undone {
        warn!(
            problem = with_causes(&problem),
            "records of a refused submission are left"
        );
    }
}

#[allow(clippy::result_large_err, reason = "the operator service answers with it")]
fn random_run() -> Result<RunId, Status> {
    let bytes: [u8; 16] = rankguard_identity::secret().ok_or_else(|| {
        Status::internal("cannot name a run: the system gives no random numbers (is /dev/urandom there?)")
    })?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(RunId::from(digits))
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_held_once_and_runs_have_ids_of_their_own() {
        let registry = ClaimRegistry::default();
        let job = JobId::from("train");
        let hold = registry.hold(&job).expect("free");
        assert!(registry.hold(&job).is_err());
        drop(hold);
        assert!(registry.hold(&job).is_ok());
        let one = random_run().expect("random");
        let other = random_run().expect("random");
        assert_ne!(one, other);
        assert_eq!(one.as_str().len(), 32);
    }
}

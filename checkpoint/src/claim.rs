//! Claims of a job folder: before a job starts, its folder must belong to its run.
//!
//! | folder | without a source | with a source |
//! |---|---|---|
//! | empty | a new run | the source's checkpoint is linked into the folder of a new run |
//! | of a run, or with checkpoints | refused | own job: another attempt of the same run; other source: refused |
//!
//! Write order: `RUN`, then the linked checkpoint of another folder, then `ATTEMPT`. Each is put-if-absent, so of two
//! concurrent claims one is refused. A process that dies in between leaves a run record without an attempt, and the
//! same claim then continues with it. The start checkpoint is leased until the attempt record is written, and retention
//! reads the records again before it removes anything.

mod fork;
mod newer;
mod place;

use std::path::PathBuf;

use rankguard_model::{CheckpointView, Generation, JobId, ResumeSource, RunId, RunStart, Step, StoreClaim, Timestamp};

use crate::format::{AttemptRecord, AttemptSet, CheckpointId, Manifest, RUN_FILE, RunRecord, attempt_file};
use crate::store::{CheckpointLease, Store, StoreError, random_suffix};

pub use newer::{NewerCommits, newer_commits};

/// Maximum number of checkpoints that a claim returns; the newest are returned.
const CHECKPOINTS_MAX: usize = 64;
/// Maximum number of passed-over checkpoints that a claim describes; the newest are described.
const PASSED_OVER_MAX: usize = 8;

/// Request to claim a job folder.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    pub job: JobId,
    /// Checkpoints to start from; `None` for a new run.
    pub source: Option<ResumeSource>,
    /// Random id of this submission; a new run takes it as its id.
    pub claim: RunId,
    /// Newest generation that the caller knows of.
    pub floor: Generation,
    /// Time of the request.
    pub at: Timestamp,
}

/// Successful claim, with the records that it wrote.
#[derive(Debug)]
pub struct ClaimedFolder {
    /// Result for the controller.
    pub claim: StoreClaim,
    written: Vec<String>,
    store: Store,
    job: JobId,
}

/// Reason why a folder cannot be claimed. Refusals list the choices.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum ClaimError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "cannot start job {job} from nothing: {} holds {held}; use `--resume-from {job}` to go on from it, another `--name`, or another `--checkpoint-dir`",
        path.display()
    )]
    Occupied { job: JobId, path: PathBuf, held: String },
    #[error(
        "cannot start job {job} from {source_name}: {} holds {held}; use another `--name`, or another `--checkpoint-dir`",
        path.display()
    )]
    OtherRun {
        job: JobId,
        source_name: String,
        path: PathBuf,
        held: String,
    },
    #[error("cannot resume from {source_name}: {problem}; {present}")]
    Source {
        source_name: String,
        problem: String,
        present: String,
    },
    #[error(
        "cannot claim {}: another controller has begun an attempt of job {job} at this moment; `rankguard status` of that one shows it",
        path.display()
    )]
    Raced { job: JobId, path: PathBuf },
    #[error("cannot claim {}: the claim was given up", path.display())]
    GivenUp { path: PathBuf },
}

impl ClaimedFolder {
    /// Removes the records that this claim wrote, for a submission that was refused afterwards.
    pub fn undo(&self) -> Result<(), StoreError> {
        let mut names = self.written.clone();
        names.reverse();
        self.store.remove_records(&self.job, &names)
    }
}

/// Returns a random run id, for use without a controller.
pub fn random_run() -> RunId {
    let digits = [(); 2].map(|()| random_suffix());
    RunId::from(digits.concat())
}

/// Claims the folder of a job. Fails if `given_up` returns `true` before a record is written.
pub fn claim_folder(
    store: &Store,
    request: &ClaimRequest,
    given_up: &dyn Fn() -> bool,
) -> Result<ClaimedFolder, ClaimError> {
    let folder = FolderState::read(store, &request.job)?;
    let claim = FolderClaim {
        store,
        request,
        folder,
        given_up,
        written: Vec::new(),
    };
    match &request.source {
        None => claim.start_new(),
        Some(source) => {
            let place = place::resolve(store, source)?;
            if place.is_folder_of(store, &request.job)? {
                claim.resume_own(source)
            } else {
                claim.start_fork(source, &place)
            }
        }
    }
}

/// Content of a job folder.
struct FolderState {
    run: Option<RunRecord>,
    attempts: Vec<AttemptRecord>,
    committed: Vec<CheckpointId>,
    newest_generation: Option<Generation>,
}

impl FolderState {
    fn read(store: &Store, job: &JobId) -> Result<Self, StoreError> {
        Ok(Self {
            run: store.run_record(job)?,
            attempts: store.attempt_records(job)?,
            committed: store.committed_ids(job)?,
            newest_generation: store.newest_generation(job)?,
        })
    }

    fn is_empty(&self) -> bool {
        self.run.is_none() && self.attempts.is_empty() && self.newest_generation.is_none()
    }

    /// True if an earlier claim may have ended right after it wrote the run record: there is no attempt yet.
    fn is_unfinished(&self) -> bool {
        self.run.is_some() && self.attempts.is_empty()
    }

    fn describe(&self) -> String {
        let run = match &self.run {
            Some(record) => format!("run {}", record.run),
            None => "checkpoints without the record of a run".to_owned(),
        };
        match self.committed.last() {
            Some(newest) => format!("{run}, newest step {}", newest.step),
            None => format!("{run}, nothing committed"),
        }
    }

    /// Returns the first generation that no record and no folder has used.
    fn first(&self, floor: Generation) -> Generation {
        let attempts = self.attempts.iter().map(|record| record.first);
        let used = attempts.chain(self.newest_generation).chain([floor]).max();
        used.unwrap_or_default().next()
    }
}

/// Claim in progress.
struct FolderClaim<'a> {
    store: &'a Store,
    request: &'a ClaimRequest,
    folder: FolderState,
    given_up: &'a dyn Fn() -> bool,
    written: Vec<String>,
}

impl FolderClaim<'_> {
    fn path(&self) -> Result<PathBuf, StoreError> {
        self.store.job_dir(&self.request.job)
    }

    fn start_new(mut self) -> Result<ClaimedFolder, ClaimError> {
        let is_free = self.folder.is_unfinished() && self.folder.newest_generation.is_none();
        if !self.folder.is_empty() && !is_free {
            return Err(ClaimError::Occupied {
                job: self.request.job.clone(),
                path: self.path()?,
                held: self.folder.describe(),
            });
        }
        let run = self.put_run(self.folder.run.clone())?;
        self.put_attempt(run, None, Vec::new(), Vec::new())
    }

    /// Starts another attempt of the run, from its newest checkpoint that loads, or from a step.
    fn resume_own(mut self, source: &ResumeSource) -> Result<ClaimedFolder, ClaimError> {
        if self.folder.is_empty() {
            return Err(self.absent(source, "the folder has no run and no checkpoints", &[]));
        }
        let attempts = AttemptSet::new(&self.folder.attempts);
        let committed = self.folder.committed.clone();
        if let Some(step) = source.step {
            let of_step = |id: &&CheckpointId| id.step == step;
            let superseded = committed
                .iter()
                .filter(of_step)
                .find_map(|id| attempts.superseded_by(*id));
            let is_current = committed.iter().filter(of_step).any(|id| !attempts.is_superseded(*id));
            if let (Some(first), false) = (superseded, is_current) {
                let problem = format!(
                    "step {step} is superseded by the attempt that began at generation {first}; start a new run from it with \
                     another `--name`"
                );
                return Err(self.absent(source, &problem, &committed));
            }
        }
        let current = |id: &CheckpointId| !attempts.is_superseded(*id);
        let mut candidates: Vec<CheckpointId> = committed.iter().copied().filter(current).collect();
        if let Some(step) = source.step {
            let named = candidates.iter().copied().rfind(|id| id.step == step);
            candidates.retain(|id| Some(*id) <= named);
        }
        let (views, mut passed_over, lease) = self.loadable(&self.request.job, self.store, &candidates, source)?;
        let start = views.last().map(|view| RunStart {
            job: self.request.job.clone(),
            store: None,
            run: self.folder.run.as_ref().map(|record| record.run.clone()),
            step: view.step,
            generation: view.generation,
        });
        if start.is_none() && (source.step.is_some() || !committed.is_empty()) {
            let problem = match passed_over.first() {
                Some(passed) => format!("nothing there can be loaded: {}", describe_passed_over(passed)),
                None => "it has no such checkpoint".to_owned(),
            };
            return Err(self.absent(source, &problem, &committed));
        }
        if let (Some(start), None) = (&start, source.step) {
            let newer = uncommitted_after(self.store, &self.request.job, &attempts, start.step)?;
            passed_over = join_passed_over(newer, passed_over);
        }
        let run = self.put_run(self.folder.run.clone())?;
        let claimed = self.put_attempt(run, start, views, passed_over);
        drop(lease);
        claimed
    }

    /// Starts a new run from a checkpoint of another folder.
    fn start_fork(mut self, source: &ResumeSource, place: &place::SourcePlace) -> Result<ClaimedFolder, ClaimError> {
        if !self.folder.is_empty() && !self.folder.is_unfinished() {
            return Err(ClaimError::OtherRun {
                job: self.request.job.clone(),
                source_name: source.to_string(),
                path: self.path()?,
                held: self.folder.describe(),
            });
        }
        let step = source.step.or(place.id.map(|id| id.step));
        let committed = place.store.committed_ids(&place.job)?;
        let attempts = place.store.attempts(&place.job)?;
        let mut candidates: Vec<CheckpointId> = committed
            .iter()
            .copied()
            .filter(|id| place.id.is_none_or(|wanted| wanted == *id))
            .filter(|id| step.map_or(!attempts.is_superseded(*id), |step| id.step == step))
            .collect();
        candidates.sort_by_key(|id| (!attempts.is_superseded(*id), *id));
        let wanted = ResumeSource { step, ..source.clone() };
        let (views, mut passed_over, lease) = self.loadable(&place.job, &place.store, &candidates, &wanted)?;
        let Some(view) = views.last() else {
            let problem = match passed_over.first() {
                Some(passed) => format!("nothing there can be loaded: {}", describe_passed_over(passed)),
                None => "it has no such checkpoint".to_owned(),
            };
            return Err(self.absent(source, &problem, &committed));
        };
        if step.is_none() {
            let newer = uncommitted_after(&place.store, &place.job, &attempts, view.step)?;
            passed_over = join_passed_over(newer, passed_over);
        }
        let start = RunStart {
            job: place.job.clone(),
            store: (place.store.root() != self.store.root()).then(|| place.store.root().display().to_string()),
            run: place.store.run_record(&place.job)?.map(|record| record.run),
            step: view.step,
            generation: view.generation,
        };
        let run = self.put_run(self.folder.run.clone())?;
        let id = CheckpointId {
            step: view.step,
            generation: view.generation,
        };
        let own = fork::link_checkpoint(&place.store, &place.job, id, self.store, &self.request.job, &run)?;
        drop(lease);
        self.folder = FolderState::read(self.store, &self.request.job)?;
        let view = view_of(&own, self.request.at);
        self.put_attempt(run, Some(start), vec![view], passed_over)
    }

    /// Returns the candidates that load, oldest first and the newest of them leased, and the reasons why newer ones do
    /// not load. If the source names a step, only that step counts as the newest.
    #[allow(clippy::type_complexity, reason = "three results of one look")]
    fn loadable(
        &self,
        job: &JobId,
        store: &Store,
        candidates: &[CheckpointId],
        source: &ResumeSource,
    ) -> Result<
        (
            Vec<CheckpointView>,
            Vec<(CheckpointId, String)>,
            Option<CheckpointLease>,
        ),
        ClaimError,
    > {
        let mut views = Vec::new();
        let mut passed_over = Vec::new();
        let mut lease = None;
        for id in candidates.iter().rev() {
            // A step that a later generation repeated, or that lies after its start, is not a valid fallback.
            if views.last().is_some_and(|later: &CheckpointView| id.step >= later.step) {
                continue;
            }
            let is_start = views.is_empty();
            if is_start && source.step.is_some_and(|step| id.step != step) {
                break;
            }
            let held = if is_start {
                store.lease(job, *id).map(Some)
            } else {
                Ok(None)
            };
            match held.and_then(|held| Ok((held, store.load(job, *id)?))) {
                Ok((held, checkpoint)) => {
                    lease = lease.or(held);
                    views.push(view_of(&checkpoint.manifest, self.request.at));
                }
                // Unavailable storage is no reason to start from an older step.
                Err(problem) if problem.failure().may_pass() && is_start => return Err(problem.into()),
                Err(problem) if is_start => match self.rebuildable(store, job, *id) {
                    Some((held, manifest)) => {
                        lease = Some(held);
                        views.push(view_of(&manifest, self.request.at));
                    }
                    None => passed_over.push((*id, passed_over_reason(store, job, *id, &problem))),
                },
                Err(_) => {}
            }
            if views.len() >= CHECKPOINTS_MAX {
                break;
            }
        }
        views.reverse();
        Ok((views, passed_over, lease))
    }

    /// Returns a lease and the manifest of a checkpoint of this run with intact indexes and parity: a restore
    /// rebuilds its shards from the parity. If it cannot, the job goes on from an older checkpoint.
    fn rebuildable(&self, store: &Store, job: &JobId, id: CheckpointId) -> Option<(CheckpointLease, Manifest)> {
        let is_own = store.root() == self.store.root() && *job == self.request.job;
        if !is_own || !store.has_parity(job, id) {
            return None;
        }
        let lease = store.lease(job, id).ok()?;
        Some((lease, store.describe(job, id).ok()?.manifest))
    }

    fn absent(&self, source: &ResumeSource, problem: &str, committed: &[CheckpointId]) -> ClaimError {
        let mut steps: Vec<Step> = committed.iter().map(|id| id.step).collect();
        steps.sort_unstable();
        steps.dedup();
        let listed: Vec<String> = steps.iter().rev().take(8).map(ToString::to_string).collect();
        let present = if listed.is_empty() {
            "it has no committed checkpoint".to_owned()
        } else {
            format!(
                "it has {} committed, the newest of steps {}",
                steps.len(),
                listed.join(", ")
            )
        };
        ClaimError::Source {
            source_name: source.to_string(),
            problem: problem.to_owned(),
            present,
        }
    }

    fn check_time(&self) -> Result<(), ClaimError> {
        if (self.given_up)() {
            return Err(ClaimError::GivenUp { path: self.path()? });
        }
        Ok(())
    }

    fn put_run(&mut self, standing: Option<RunRecord>) -> Result<RunId, ClaimError> {
        self.check_time()?;
        if let Some(record) = standing {
            return Ok(record.run);
        }
        let record = RunRecord {
            run: self.request.claim.clone(),
            job: self.request.job.clone(),
            created: self.request.at,
        };
        let (found, is_own) = self.store.put_run(&record)?;
        if !is_own {
            return Err(self.raced()?);
        }
        self.written.push(RUN_FILE.to_owned());
        Ok(found.run)
    }

    fn put_attempt(
        mut self,
        run: RunId,
        start: Option<RunStart>,
        checkpoints: Vec<CheckpointView>,
        passed_over: Vec<(CheckpointId, String)>,
    ) -> Result<ClaimedFolder, ClaimError> {
        self.check_time()?;
        let first = self.folder.first(self.request.floor);
        let record = AttemptRecord {
            run: run.clone(),
            job: self.request.job.clone(),
            first,
            claim: self.request.claim.clone(),
            start: start.clone(),
            created: self.request.at,
        };
        if !self.store.put_attempt(&record)? {
            return Err(self.raced()?);
        }
        self.written.push(attempt_file(first));
        Ok(ClaimedFolder {
            claim: StoreClaim {
                run,
                first,
                start,
                checkpoints,
                same_size: Vec::new(),
                passed_over: passed_over.iter().map(describe_passed_over).collect(),
            },
            written: self.written,
            store: self.store.clone(),
            job: self.request.job.clone(),
        })
    }

    fn raced(&self) -> Result<ClaimError, StoreError> {
        Ok(ClaimError::Raced {
            job: self.request.job.clone(),
            path: self.path()?,
        })
    }
}

/// Describes the checkpoints after `start` that were begun and never committed, oldest first.
fn uncommitted_after(
    store: &Store,
    job: &JobId,
    attempts: &AttemptSet,
    start: Step,
) -> Result<Vec<(CheckpointId, String)>, StoreError> {
    let mut found = Vec::new();
    for (id, committed) in store.folders(job)? {
        if committed || id.step <= start || attempts.is_superseded(id) || store.is_borrowed_from(job, id)? {
            continue;
        }
        found.push((
            id,
            "not committed: it has no manifest, which a controller writes once all ranks have written their shards"
                .to_owned(),
        ));
    }
    Ok(found)
}

/// Describes why a checkpoint is passed over, and the command that may rebuild it.
fn passed_over_reason(store: &Store, job: &JobId, id: CheckpointId, problem: &StoreError) -> String {
    let reason = rankguard_model::with_causes(problem);
    match store.parity_repair(job, id) {
        Some(command) => format!("{reason}; it has parity, `{command}` may rebuild it"),
        None => reason,
    }
}

fn describe_passed_over((id, reason): &(CheckpointId, String)) -> String {
    format!("step {} of generation {}: {reason}", id.step, id.generation)
}

/// Joins the lists of passed-over checkpoints, newest first and at most [`PASSED_OVER_MAX`] of them.
fn join_passed_over(
    one: Vec<(CheckpointId, String)>,
    other: Vec<(CheckpointId, String)>,
) -> Vec<(CheckpointId, String)> {
    let mut all = [one, other].concat();
    all.sort_by_key(|(id, _)| std::cmp::Reverse(*id));
    all.truncate(PASSED_OVER_MAX);
    all
}

/// Converts a committed checkpoint to the controller's view.
fn view_of(manifest: &Manifest, at: Timestamp) -> CheckpointView {
    CheckpointView {
        step: manifest.step,
        generation: manifest.generation,
        world_size: manifest.world_size,
        bytes: manifest.bytes(),
        committed_at: at,
        stall_ms: Vec::new(),
        copied: 0,
        in_parity: 0,
        mirrored_at: None,
    }
}

#[cfg(test)]
mod tests;

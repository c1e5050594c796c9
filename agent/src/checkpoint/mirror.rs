//! Committed checkpoints go on to an object store, where the settings name one, and come back from there.
//!
//! The agent with a job's rank 0 mirrors what is committed, one checkpoint at a time and the newest first: what was overtaken
//! while another was on its way is left out. That a checkpoint is there is told as evidence, and so is why it is not; with the
//! next commit it is tried again, and what was sent already is not sent twice. Every agent reads chunks from there when no
//! nearer tier has a good copy.
//!
//! Absent: removing old checkpoints there (`rankguard checkpoint push --keep` does), and a start from there alone, without
//! the store (`rankguard checkpoint pull` brings it back first).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use rankguard_checkpoint::Store;
use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint_tiers::cap::Cap;
use rankguard_checkpoint_tiers::object::{ObjectError, ObjectSource, ObjectTier, Pushed};
use rankguard_model::{Body, Entity, JobId, Launch, Rank, Source};
use tokio::runtime::Handle;

use crate::intake::Intake;
use crate::settings::ObjectSettings;
use crate::sighting::Sighting;

/// Evidence of a checkpoint that is in the object store: its step.
const ARRIVED: &str = "checkpoint.object_step";

/// The object store behind this node's checkpoint store.
#[derive(Debug)]
pub(super) struct Mirror {
    tier: ObjectTier,
    intake: Intake,
    runtime: Handle,
    jobs: Mutex<BTreeMap<JobId, Job>>,
}

/// A job whose rank 0 is here.
#[derive(Debug)]
struct Job {
    store: String,
    /// Committed and not begun.
    next: Option<CheckpointId>,
    /// One is on its way.
    busy: bool,
}

impl Mirror {
    /// The mirror that the settings ask for.
    pub(super) fn open(settings: &ObjectSettings, intake: &Intake, runtime: &Handle) -> Result<Arc<Self>, ObjectError> {
        let cap = Arc::new(Cap::new(settings.bytes_per_second));
        Ok(Arc::new(Self {
            tier: ObjectTier::open(&settings.url)?.with_cap(cap),
            intake: intake.clone(),
            runtime: runtime.clone(),
            jobs: Mutex::default(),
        }))
    }

    /// The farthest tier of a restore.
    pub(super) fn source(&self) -> ObjectSource {
        ObjectSource::new(self.tier.clone(), self.runtime.clone())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobId, Job>> {
        self.jobs.lock().expect("no holder of the mirrored jobs panics")
    }

    /// A generation starts here: whether its checkpoints are this agent's to mirror.
    pub(super) fn start(&self, launch: &Launch) {
        let mut jobs = self.lock();
        if launch.checkpoint_store.is_empty() || !launch.ranks.iter().any(|slot| slot.rank == Rank(0)) {
            jobs.remove(&launch.job);
            return;
        }
        let job = jobs.entry(launch.job.clone()).or_insert_with(|| Job {
            store: String::new(),
            next: None,
            busy: false,
        });
        job.store.clone_from(&launch.checkpoint_store);
    }

    /// The job is over. What is on its way arrives.
    pub(super) fn forget(&self, job: &JobId) {
        self.lock().remove(job);
    }

    /// A checkpoint was committed.
    pub(super) fn committed(self: &Arc<Self>, job: &JobId, id: CheckpointId) {
        let mut jobs = self.lock();
        let Some(of) = jobs.get_mut(job) else { return };
        of.next = of.next.max(Some(id));
        if !std::mem::replace(&mut of.busy, true) {
            let (mirror, job) = (self.clone(), job.clone());
            // Small files of the store are read on the way, and a store may hang.
            self.runtime.spawn_blocking(move || mirror.work(&job));
        }
    }

    fn work(&self, job: &JobId) {
        while let Some((store, id)) = self.next(job) {
            let push = || {
                // Retention takes nothing of it away meanwhile.
                let _lease = store.lease(job, id)?;
                self.runtime.block_on(self.tier.push(&store, job, id))
            };
            self.tell(job, id, push());
        }
    }

    fn next(&self, job: &JobId) -> Option<(Store, CheckpointId)> {
        let mut jobs = self.lock();
        let of = jobs.get_mut(job)?;
        let next = of.next.take();
        of.busy = next.is_some();
        next.map(|id| (Store::at(&of.store), id))
    }

    fn tell(&self, job: &JobId, id: CheckpointId, pushed: Result<Pushed, ObjectError>) {
        let body = match pushed {
            Ok(pushed) => {
                tracing::info!(%job, %id, pushed.sent_bytes, took = ?pushed.took, "a checkpoint is in the object store");
                Body::Sample {
                    metric: ARRIVED.to_owned(),
                    value: id.step.0 as f64,
                    unit: "step".to_owned(),
                }
            }
            Err(problem) => {
                tracing::warn!(%job, %id, %problem, "a checkpoint is not in the object store");
                Body::Gap {
                    what: format!("checkpoint {id} of job {job} is not in the object store: {problem}"),
                    lost: None,
                }
            }
        };
        let entity = Entity::Job { job: job.clone() };
        self.intake.push(Sighting::now(Source::Checkpoint, entity, body));
    }
}

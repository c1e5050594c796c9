//! The checkpoint service: arenas of this node's ranks, sealed images to disk, restores from the nearest tier.

mod arenas;
mod desk;
mod peer;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rankguard_model::{Generation, JobId, Launch, RankRef, Step};
use tokio::runtime::Handle;

pub(crate) use desk::Desk;
pub(crate) use peer::PeerService;

use self::arenas::Arenas;
use crate::intake::Intake;
use crate::ranks::Roster;
use crate::settings::Settings;

/// All arenas of this node and what is done with them.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    arenas: Arenas,
    /// The newest committed checkpoint of each job, as the controller told it.
    kept: Mutex<BTreeMap<JobId, (Generation, Step)>>,
    intake: Intake,
    roster: Roster,
    runtime: Handle,
    peer_fetch: std::time::Duration,
}

impl Checkpoints {
    pub(crate) fn new(settings: &Settings, intake: &Intake, roster: &Roster, runtime: Handle) -> Arc<Self> {
        Arc::new(Self {
            arenas: Arenas::default(),
            kept: Mutex::default(),
            intake: intake.clone(),
            roster: roster.clone(),
            runtime,
            peer_fetch: settings.intervals.peer_fetch,
        })
    }

    /// Where one rank is served.
    pub(crate) fn desk(self: &Arc<Self>, rank: &RankRef, local_rank: u32, launch: &Arc<Launch>) -> Desk {
        Desk::new(self.clone(), rank.clone(), local_rank, launch.clone())
    }

    /// Older generations may neither fill nor seal any more (RG-3). What they sealed stays: it may be in a commit.
    pub(crate) fn fence(&self, job: &JobId, generation: Generation) {
        for arena in self.arenas.of(job) {
            arena.raise_fence(generation);
        }
    }

    /// A generation starts from a checkpoint: of everything older only that one's images are worth their memory.
    pub(crate) fn start(&self, launch: &Launch) {
        let keep = launch.restore.as_ref().map(|point| (point.generation, point.step));
        self.remember(&launch.job, keep);
        self.arenas.release(&launch.job, |held| Some(held) != keep);
        self.arenas.release_unsealed(&launch.job, launch.generation);
    }

    /// A checkpoint was committed: older images go.
    pub(crate) fn keep(&self, job: &JobId, generation: Generation, step: Step) {
        self.remember(job, Some((generation, step)));
        self.arenas.release(job, |held| held < (generation, step));
    }

    fn remember(&self, job: &JobId, kept: Option<(Generation, Step)>) {
        let mut all = self.kept.lock().expect("no holder of the kept checkpoints panics");
        match kept {
            Some(kept) => all.insert(job.clone(), kept),
            None => all.remove(job),
        };
    }

    fn kept(&self, job: &JobId) -> Option<(Generation, Step)> {
        let all = self.kept.lock().expect("no holder of the kept checkpoints panics");
        all.get(job).copied()
    }

    /// The job is over.
    pub(crate) fn forget(&self, job: &JobId) {
        self.remember(job, None);
        self.arenas.forget(job);
    }
}

//! The checkpoint service: arenas of this node's ranks, sealed images to disk and to further tiers, restores from the nearest.

mod admission;
mod arenas;
mod dedupe;
mod desk;
mod error;
mod farewell;
mod fetch;
mod finish;
mod joint;
mod keeper;
mod mirror;
mod parity;
mod peer;
mod persist;
mod restore_report;
mod retry;
mod streamed;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint_tiers::bulk::{BulkError, BulkServer, Holder, Holdings, ServerLimits, Shelf, Sums};
use rankguard_checkpoint_tiers::cap::Cap;
use rankguard_identity::Network;
use rankguard_model::{Generation, JobId, Launch, NodeId, RankRef, Stays, Step};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

pub(crate) use desk::{Desk, Restored};
pub use keeper::keep_arenas;

use self::arenas::Arenas;
use self::dedupe::Dedupe;
use self::joint::Joint;
use self::keeper::{Keeper, Kept, Label};
use self::mirror::{Mirrors, PullTable};
use self::peer::ArenaHolder;
use crate::intake::Intake;
use crate::membership::Membership;
use crate::preflight::host::available;
use crate::ranks::Roster;
use crate::settings::{ImageSettings, Settings};

/// All arenas of this node and what is done with them.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    arenas: Arenas,
    dedupe: Dedupe,
    joint: Joint,
    mirrors: Mirrors,
    /// Images of other nodes that are kept here.
    shelf: Arc<Shelf>,
    /// Parity over images of other nodes that is kept here, in the room of the shelf.
    sums: Arc<Sums>,
    /// How fast copies may leave.
    cap: Arc<Cap>,
    network: Network,
    membership: Membership,
    /// The newest committed checkpoint of each job, as the controller told it.
    kept: Mutex<BTreeMap<JobId, (Generation, Step)>>,
    /// Rings with every commit.
    committed: Notify,
    /// The agent ends: nobody begins or goes on to bring anything to an object store.
    ending: watch::Sender<bool>,
    node: NodeId,
    failure_domain: String,
    intake: Intake,
    roster: Roster,
    runtime: Handle,
    peer_fetch: Duration,
    share_wait: Duration,
    /// How long a restore is tried again while a tier cannot be read.
    restore_retry: Duration,
    /// Pulls out of object stores that are under way.
    pulls: PullTable,
    images: ImageSettings,
    /// Where the system says how much memory there is.
    proc_root: PathBuf,
    sysfs_root: PathBuf,
}

impl Checkpoints {
    pub(crate) fn new(settings: &Settings, intake: &Intake, roster: &Roster, runtime: Handle) -> Arc<Self> {
        let quarter = || available(&settings.proc_root, &settings.sysfs_root).map_or(0, |(bytes, _)| bytes / 4);
        let (keeper, left) = Keeper::find(settings);
        let shelf = Arc::new(Shelf::new(settings.images.kept_for_others.unwrap_or_else(quarter)));
        let all = Arc::new(Self {
            arenas: Arenas::new(keeper),
            dedupe: Dedupe::default(),
            joint: Joint::default(),
            mirrors: Mirrors::default(),
            sums: Arc::new(Sums::new(shelf.clone())),
            shelf,
            cap: Arc::new(Cap::new(settings.images.copy_rate)),
            network: settings.network.clone(),
            membership: Membership::default(),
            kept: Mutex::default(),
            committed: Notify::new(),
            ending: watch::Sender::new(false),
            node: settings.node.clone(),
            failure_domain: settings.failure_domain.clone(),
            intake: intake.clone(),
            roster: roster.clone(),
            runtime,
            peer_fetch: settings.intervals.peer_fetch,
            share_wait: settings.intervals.share_wait,
            restore_retry: settings.intervals.restore_retry,
            pulls: PullTable::default(),
            images: settings.images,
            proc_root: settings.proc_root.clone(),
            sysfs_root: settings.sysfs_root.clone(),
        });
        all.inherit(left, settings.intervals.arenas_kept);
        all
    }

    /// Takes over what an earlier agent of this node has left. What no job asks for in time goes.
    fn inherit(self: &Arc<Self>, left: Vec<(Kept, Label, OwnedFd)>, patience: Duration) {
        if left.is_empty() {
            return;
        }
        for (kept, label, file) in left {
            let (job, local_rank) = (label.job.clone(), label.local_rank);
            match self.arenas.inherit(kept, label, file) {
                Ok(images) => tracing::info!(%job, local_rank, images, "an arena of an earlier agent was found again"),
                Err(problem) => tracing::warn!(%job, local_rank, %problem, "an arena of an earlier agent is lost"),
            }
        }
        let all = Arc::downgrade(self);
        self.runtime.spawn(async move {
            tokio::time::sleep(patience).await;
            if let Some(all) = all.upgrade() {
                all.arenas.forget_unclaimed();
            }
        });
    }

    /// The agent ends in order, and its arenas with it.
    pub(crate) fn end(&self) {
        self.arenas.end();
    }

    /// The nodes that the controller named.
    pub(crate) fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Where one rank is served.
    pub(crate) fn desk(self: &Arc<Self>, rank: &RankRef, local_rank: u32, launch: &Arc<Launch>) -> Desk {
        Desk::new(self.clone(), rank.clone(), local_rank, launch.clone())
    }

    /// Takes images from other agents and gives chunks to them, on a free port of this address.
    pub(crate) async fn serve(self: &Arc<Self>, host: IpAddr) -> Result<BulkServer, BulkError> {
        let others: Vec<Arc<dyn Holder>> = vec![Arc::new(ArenaHolder(self.clone()))];
        let holdings = Holdings {
            sums: Some(self.sums.clone()),
            others,
            callers: Some(Arc::new(self.membership.clone())),
            ..Holdings::new(self.shelf.clone())
        };
        BulkServer::bind((host, 0).into(), &self.network, holdings, ServerLimits::default()).await
    }

    /// Older generations may neither fill nor seal any more (RG-3). What they sealed stays: it may be in a commit.
    pub(crate) fn fence(&self, job: &JobId, generation: Generation) {
        for place in self.arenas.of(job) {
            place.arena.raise_fence(generation);
        }
        self.shelf.raise_fence(job, generation);
    }

    /// A generation starts from a checkpoint: of everything older only that one's images are worth their memory.
    pub(crate) fn start(&self, launch: &Launch) {
        let keep = launch.restore.as_ref().map(|point| (point.generation, point.step));
        self.remember(&launch.job, keep);
        self.arenas.release(&launch.job, |held| Some(held) != keep);
        self.release_kept(&launch.job, |id| Some((id.generation, id.step)) != keep);
        self.mirrors.start(launch);
        self.membership.launch(launch);
        self.arenas.release_unsealed(&launch.job, launch.generation);
    }

    /// A checkpoint was committed: older images go, and what the job's rules do not leave goes out of its mirror.
    pub(crate) fn keep(self: &Arc<Self>, job: &JobId, committed: CheckpointId, stays: Option<Stays>) {
        let CheckpointId { step, generation } = committed;
        if self.kept(job).is_some_and(|kept| kept > (generation, step)) {
            // Committed after a newer one, for the sake of a rule: memory has let go of it, the mirror has yet to get it.
            return self.mirror(job, committed, stays);
        }
        self.remember(job, Some((generation, step)));
        self.committed.notify_waiters();
        self.arenas.release(job, |held| held < (generation, step));
        self.release_kept(job, |id| (id.generation, id.step) < (generation, step));
        self.mirror(job, committed, stays);
        // What it borrows from is known to its manifest now.
        for place in self.arenas.of(job) {
            let mut lease = place.lease.lock().expect("no holder of a lease panics");
            *lease = lease.take().filter(|held| held.id() >= committed);
        }
    }

    /// Lets go of what is kept for other nodes.
    fn release_kept(&self, job: &JobId, which: impl Fn(CheckpointId) -> bool) {
        self.shelf.release(job, &which);
        self.sums.release(job, &which);
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
        self.dedupe.forget(job);
        self.release_kept(job, |_| true);
        self.mirrors.forget(job);
        self.membership.forget(job);
    }
}

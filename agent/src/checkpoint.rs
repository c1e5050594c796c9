//! Checkpoint service: holds the arenas of this node's ranks, writes sealed images to disk and to further tiers, and
//! restores from the nearest tier.

mod admission;
mod arenas;
mod dedupe;
mod error;
mod fetch;
mod finish;
mod joint;
mod keeper;
mod mirror;
mod parity;
mod peer;
mod persist;
mod rank_service;
mod restore_report;
mod retry;
mod shutdown;
mod streamed;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint_tiers::bulk::{
    BulkError, BulkServer, ImageHolder, ParityMemory, ReceiverStores, ReplicaMemory, ServerLimits,
};
use rankguard_checkpoint_tiers::cap::BandwidthCap;
use rankguard_identity::PeerTransport;
use rankguard_model::{Generation, JobId, LaunchOrder, NodeId, RankRef, RetainedSet, Step};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

pub use keeper::keep_arenas;
pub(crate) use rank_service::{RankService, RestoredPart};

use self::arenas::ArenaTable;
use self::dedupe::ChunkDeduplicator;
use self::joint::JointRestores;
use self::keeper::{ArenaKeeper, ArenaLabel, ArenaRegistration};
use self::mirror::{MirrorQueues, PullTable};
use self::peer::ArenaImageSource;
use crate::intake::EvidenceIntake;
use crate::membership::JobMembership;
use crate::preflight::host::available;
use crate::roster::RankRoster;
use crate::settings::{AgentSettings, ImageSettings};

/// Arenas of this node and the services that copy and restore their images.
#[derive(Debug)]
pub(crate) struct CheckpointService {
    arenas: ArenaTable,
    dedupe: ChunkDeduplicator,
    joint: JointRestores,
    mirrors: MirrorQueues,
    /// Images of other nodes that this node holds.
    shelf: Arc<ReplicaMemory>,
    /// Parity over images of other nodes; its memory counts against the shelf.
    sums: Arc<ParityMemory>,
    /// Rate limit of outgoing copies.
    cap: Arc<BandwidthCap>,
    network: PeerTransport,
    membership: JobMembership,
    /// Newest committed checkpoint of each job, as reported by the controller.
    kept: Mutex<BTreeMap<JobId, (Generation, Step)>>,
    /// Attempts at checkpoints that are never committed, the newest of each job.
    voids: Mutex<BTreeMap<JobId, (Generation, Step)>>,
    /// Notified with every commit.
    committed: Notify,
    /// True once the agent ends: no copy to an object store starts or continues.
    ending: watch::Sender<bool>,
    node: NodeId,
    failure_domain: String,
    intake: EvidenceIntake,
    roster: RankRoster,
    runtime: Handle,
    peer_fetch: Duration,
    share_wait: Duration,
    /// Longest time for which a restore is retried while a tier is unreadable.
    restore_retry: Duration,
    /// Pulls from object stores that are running.
    pulls: PullTable,
    images: ImageSettings,
    /// Root of procfs, for the available memory.
    proc_root: PathBuf,
    sysfs_root: PathBuf,
}

impl CheckpointService {
    pub(crate) fn new(
        settings: &AgentSettings,
        intake: &EvidenceIntake,
        roster: &RankRoster,
        runtime: Handle,
    ) -> Arc<Self> {
        let quarter = || available(&settings.proc_root, &settings.sysfs_root).map_or(0, |(bytes, _)| bytes / 4);
        let (keeper, left) = ArenaKeeper::find(settings);
        let shelf = Arc::new(ReplicaMemory::new(
            settings.images.kept_for_others.unwrap_or_else(quarter),
        ));
        let all = Arc::new(Self {
            arenas: ArenaTable::new(keeper),
            dedupe: ChunkDeduplicator::default(),
            joint: JointRestores::default(),
            mirrors: MirrorQueues::default(),
            sums: Arc::new(ParityMemory::new(shelf.clone())),
            shelf,
            cap: Arc::new(BandwidthCap::new(settings.images.copy_rate)),
            network: settings.network.clone(),
            membership: JobMembership::default(),
            kept: Mutex::default(),
            voids: Mutex::default(),
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

    /// Takes over the arenas that an earlier agent of this node left. Those that no job requests within `patience` are
    /// dropped.
    fn inherit(self: &Arc<Self>, left: Vec<(ArenaRegistration, ArenaLabel, OwnedFd)>, patience: Duration) {
        if left.is_empty() {
            return;
        }
        for (kept, label, file) in left {
            let job = label.job.clone();
            let local_rank = label.local_rank;
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

    /// Ends the keeper, and with it all arenas, when the agent ends in order.
    pub(crate) fn end(&self) {
        self.arenas.end();
    }

    /// Returns the nodes that the controller named.
    pub(crate) fn membership(&self) -> &JobMembership {
        &self.membership
    }

    /// Returns the checkpoint service of one rank.
    pub(crate) fn desk(self: &Arc<Self>, rank: &RankRef, local_rank: u32, launch: &Arc<LaunchOrder>) -> RankService {
        RankService::new(self.clone(), rank.clone(), local_rank, launch.clone())
    }

    /// Serves the bulk protocol on a free port of this address: accepts images from other agents and sends chunks to
    /// them.
    pub(crate) async fn serve(self: &Arc<Self>, host: IpAddr) -> Result<BulkServer, BulkError> {
        let others: Vec<Arc<dyn ImageHolder>> = vec![Arc::new(ArenaImageSource(self.clone()))];
        let holdings = ReceiverStores {
            sums: Some(self.sums.clone()),
            others,
            callers: Some(Arc::new(self.membership.clone())),
            ..ReceiverStores::new(self.shelf.clone())
        };
        BulkServer::bind((host, 0).into(), &self.network, holdings, ServerLimits::default()).await
    }

    /// Stops older generations from filling or sealing slots (RG-3). Their sealed images are retained: they may be
    /// part of a commit.
    pub(crate) fn fence(&self, job: &JobId, generation: Generation) {
        for place in self.arenas.of(job) {
            place.arena.raise_fence(generation);
        }
        self.shelf.raise_fence(job, generation);
    }

    /// Starts a generation from a checkpoint. Of the older images only those of that checkpoint are retained.
    pub(crate) fn start(&self, launch: &LaunchOrder) {
        // Restores of earlier generations that are still under way end without a slot.
        self.fence(&launch.job, launch.generation);
        let keep = launch.restore.as_ref().map(|point| (point.generation, point.step));
        self.remember(&launch.job, keep);
        self.arenas.release(&launch.job, |held| Some(held) != keep);
        self.release_kept(&launch.job, |id| Some((id.generation, id.step)) != keep);
        if let Some(committed) = keep {
            self.arenas.mark_durable(&launch.job, committed);
        }
        self.mirrors.start(launch);
        self.membership.launch(launch);
        self.arenas.release_unsealed(&launch.job, launch.generation);
    }

    /// Handles a commit: releases older images and applies the job's retention to its mirror.
    pub(crate) fn record_commit(self: &Arc<Self>, job: &JobId, committed: CheckpointId, stays: Option<RetainedSet>) {
        let CheckpointId { step, generation } = committed;
        if self.newest_commit(job).is_some_and(|kept| kept > (generation, step)) {
            // Committed after a newer one because a rule retains it: its images are released already, only the mirror
            // needs it.
            return self.mirror(job, committed, stays);
        }
        self.remember(job, Some((generation, step)));
        self.committed.notify_waiters();
        self.arenas.release(job, |held| held < (generation, step));
        self.release_kept(job, |id| (id.generation, id.step) < (generation, step));
        self.mirror(job, committed, stays);
        // The manifest now names the checkpoint that it borrows from, so the lease is no longer needed.
        for place in self.arenas.of(job) {
            let mut lease = place.lease.lock().expect("no holder of a lease panics");
            *lease = lease.take().filter(|held| held.id() >= committed);
        }
    }

    /// Releases the images of an attempt that is never committed, own ones and those of other nodes: they would take the
    /// memory of the newest commit. The writer of an image releases it later ([`Self::is_void`]).
    pub(crate) fn release_void(&self, job: &JobId, generation: Generation, step: Step) {
        let void = (generation, step);
        if self.newest_commit(job) == Some(void) {
            return;
        }
        let mut voids = self.voids.lock().expect("no holder of the void attempts panics");
        let newest = voids.entry(job.clone()).or_insert(void);
        *newest = void.max(*newest);
        drop(voids);
        self.arenas.release_durable(job, void);
        self.release_kept(job, |id| (id.generation, id.step) == void);
    }

    /// Returns true if this is the newest attempt of a job that is never committed.
    fn is_void(&self, job: &JobId, attempt: (Generation, Step)) -> bool {
        let voids = self.voids.lock().expect("no holder of the void attempts panics");
        voids.get(job) == Some(&attempt)
    }

    /// Releases images and parity held for other nodes.
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

    fn newest_commit(&self, job: &JobId) -> Option<(Generation, Step)> {
        let all = self.kept.lock().expect("no holder of the kept checkpoints panics");
        all.get(job).copied()
    }

    /// Releases everything of a job that is over.
    pub(crate) fn forget(&self, job: &JobId) {
        self.remember(job, None);
        self.voids
            .lock()
            .expect("no holder of the void attempts panics")
            .remove(job);
        self.arenas.forget(job);
        self.dedupe.forget(job);
        self.release_kept(job, |_| true);
        self.mirrors.forget(job);
        self.membership.forget(job);
    }
}

//! Helpers for the tests of line readers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rankguard_model::{EvidenceBody, EvidenceSource, Generation, JobId, LaunchOrder, NodeId, Rank, RankRef};

use super::gpu::XidMerger;
use super::observe::LineReporter;
use crate::catalogue_handle::CatalogueHandle;
use crate::intake::EvidenceIntake;
use crate::mount_users::MountUsers;
use crate::pending_evidence::PendingEvidence;
use crate::roster::RankRoster;
use crate::spool::Spool;
use crate::supervisor::RankProcess;

/// Returns a reporter with a new spool in `folder`, which must not be opened twice.
pub(crate) fn reporter(source: EvidenceSource, folder: &Path) -> LineReporter {
    let node = NodeId::from("a");
    let spool = Spool::open(&folder.join("spool.redb"), node.clone(), 1 << 20).expect("a new spool opens");
    let roster = RankRoster::new(node.clone());
    LineReporter {
        source,
        intake: EvidenceIntake::new(node),
        uses: MountUsers::new(&folder.join("proc"), &folder.join("sys"), &roster),
        roster,
        spool: Arc::new(spool),
        xids: XidMerger::default(),
        knowledge: CatalogueHandle::default(),
    }
}

pub(crate) fn rank(number: u32) -> RankRef {
    RankRef {
        job: JobId::from("llm"),
        generation: Generation(1),
        rank: Rank(number),
    }
}

/// Registers a running rank with a process id in the roster.
pub(crate) fn run(roster: &RankRoster, rank: &RankRef, pid: u32) {
    roster.expect(rank.clone(), 0, Arc::new(launch(rank)));
    roster.started(rank, process(pid));
}

/// Returns the launch order of a rank that is the only one of its job.
pub(crate) fn launch(rank: &RankRef) -> LaunchOrder {
    LaunchOrder {
        job: rank.job.clone(),
        generation: rank.generation,
        command: Vec::new(),
        env: BTreeMap::new(),
        workdir: None,
        world_size: 1,
        group_rank: 0,
        ranks: Vec::new(),
        master_addr: String::new(),
        master_port: 0,
        restart_count: 0,
        max_restarts: 0,
        checkpoint_every: 0,
        checkpoint_store: String::new(),
        restore: None,
        peers: Vec::new(),
        nodes: Vec::new(),
        tiers: rankguard_model::CheckpointTiers::default(),
        user: None,
        standby: None,
    }
}

/// Commits the pushed evidence, as the agent's spool thread does, and returns it.
pub(crate) fn commit(reporter: &LineReporter) -> Vec<PendingEvidence> {
    let sightings = reporter.intake.drain();
    let positions = reporter.intake.drain_positions();
    if !sightings.is_empty() || !positions.is_empty() {
        let taken = reporter.spool.append(&sightings, &positions);
        taken.expect("the spool takes it");
    }
    sightings
}

/// Formats evidence as one line: entity, class and text.
pub(crate) fn told(sighting: &PendingEvidence) -> String {
    let class = sighting.marks.first().map_or("-", |mark| mark.class.as_str());
    let says = match &sighting.body {
        EvidenceBody::Line { text, .. } => text.clone(),
        EvidenceBody::Gap { what, lost } => format!("gap {lost:?}: {what}"),
        other => format!("{other:?}"),
    };
    format!("{} | {class} | {says}", sighting.entity)
}

/// Returns the process of a rank with this process id.
pub(crate) fn process(pid: u32) -> RankProcess {
    RankProcess {
        pid,
        uid: 0,
        supervisor: 0,
        from_standby: false,
    }
}

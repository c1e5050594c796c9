//! Helpers for the tests of line readers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rankguard_model::{Body, Generation, JobId, Launch, NodeId, Rank, RankRef, Source};

use super::gpu::Xids;
use super::observe::Reporter;
use crate::intake::Intake;
use crate::knowledge::Knowledge;
use crate::ranks::Roster;
use crate::sighting::Sighting;
use crate::spool::Spool;
use crate::supervisor::RankProcess;
use crate::uses::Uses;

/// Returns a reporter with a new spool in `folder`, which must not be opened twice.
pub(crate) fn reporter(source: Source, folder: &Path) -> Reporter {
    let node = NodeId::from("a");
    let spool = Spool::open(&folder.join("spool.redb"), node.clone(), 1 << 20).expect("a new spool opens");
    let roster = Roster::new(node.clone());
    Reporter {
        source,
        intake: Intake::new(node),
        uses: Uses::new(&folder.join("proc"), &folder.join("sys"), &roster),
        roster,
        spool: Arc::new(spool),
        xids: Xids::default(),
        knowledge: Knowledge::default(),
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
pub(crate) fn run(roster: &Roster, rank: &RankRef, pid: u32) {
    roster.expect(rank.clone(), 0, Arc::new(launch(rank)));
    roster.started(rank, process(pid));
}

/// Returns the launch order of a rank that is the only one of its job.
pub(crate) fn launch(rank: &RankRef) -> Launch {
    Launch {
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
    }
}

/// Commits the pushed evidence, as the agent's spool thread does, and returns it.
pub(crate) fn commit(reporter: &Reporter) -> Vec<Sighting> {
    let sightings = reporter.intake.drain();
    let positions = reporter.intake.drain_positions();
    if !sightings.is_empty() || !positions.is_empty() {
        let taken = reporter.spool.append(&sightings, &positions);
        taken.expect("the spool takes it");
    }
    sightings
}

/// Formats evidence as one line: entity, class and text.
pub(crate) fn told(sighting: &Sighting) -> String {
    let class = sighting.marks.first().map_or("-", |mark| mark.class.as_str());
    let says = match &sighting.body {
        Body::Line { text, .. } => text.clone(),
        Body::Gap { what, lost } => format!("gap {lost:?}: {what}"),
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
    }
}

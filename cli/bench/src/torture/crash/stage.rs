//! Phases of a save with a death: the victim and the kind of death.

use std::path::Path;
use std::time::Duration;

use rankguard_checkpoint::Arena;

use super::scene::{CrashScene, DurableAttempt, INTERVAL, SaveMode};
use super::victim::{self, VictimResult};
use super::victim_process::{SavePart, VictimTask};
use crate::torture::TortureError;
use crate::torture::subject::TortureJob;

/// Phase of a save, with the process that dies in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SavePhase {
    /// A rank copies its tensors.
    Fill,
    /// A rank describes and seals its copy.
    Seal,
    /// An agent writes an image.
    Shard,
    /// An agent writes an index.
    Index,
    /// A controller commits a manifest.
    Commit,
    /// A controller removes old checkpoints.
    Removal,
}

pub(super) const PHASES: [SavePhase; 6] = [
    SavePhase::Fill,
    SavePhase::Seal,
    SavePhase::Shard,
    SavePhase::Index,
    SavePhase::Commit,
    SavePhase::Removal,
];

impl SavePhase {
    pub(super) fn name(self, way: SaveMode) -> String {
        let phase = match self {
            Self::Fill => "fill",
            Self::Seal => "seal",
            Self::Shard => "shard-write",
            Self::Index => "index-write",
            Self::Commit => "commit",
            Self::Removal => "removal",
        };
        format!("kill-{}{phase}", way.word())
    }

    /// For a seal the description is most of the work; for the other phases the image is.
    pub(super) fn subject(self, way: SaveMode, seed: u64) -> TortureJob {
        match self {
            Self::Seal => TortureJob {
                state_bytes: 400 << 10,
                ..TortureJob::new(WORLD, 16, seed)
            },
            _ => TortureJob::new(WORLD, way.rows(300), seed),
        }
    }

    pub(super) fn kills_ranks(self) -> bool {
        matches!(self, Self::Fill | Self::Seal)
    }

    pub(super) fn kills_agents(self) -> bool {
        matches!(self, Self::Shard | Self::Index)
    }

    pub(super) fn kills_controllers(self) -> bool {
        matches!(self, Self::Commit | Self::Removal)
    }
}

pub(super) const WORLD: u32 = 2;

/// Duration and calls of an undisturbed victim of a phase.
#[derive(Debug, Clone, Copy)]
pub(super) struct BaselineRun {
    pub(super) took: Duration,
    pub(super) calls: u64,
}

/// A scene with the phase and the program of its victims.
pub(super) struct PhaseRun<'a> {
    pub(super) program: &'a Path,
    pub(super) phase: SavePhase,
    pub(super) scene: CrashScene,
    pub(super) usual: BaselineRun,
}

/// Death of a victim: it kills itself at a place, or is killed after a delay.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KillPoint {
    pub(super) place: Option<(u64, u64)>,
    pub(super) delay: Option<Duration>,
}

/// State after a save.
pub(super) struct PhaseResult {
    pub(super) end: VictimResult,
    /// Attempts that are complete in the store, oldest first: a successor commits them.
    pub(super) whole: Vec<DurableAttempt>,
}

impl PhaseRun<'_> {
    /// Returns the rank that dies, or that loses its agent: each in turn.
    pub(super) fn victim(&self) -> u32 {
        (self.scene.saving.step.0 / INTERVAL % u64::from(WORLD)) as u32
    }

    /// Runs the victim's part with the given death.
    pub(super) fn run_victim(
        &self,
        part: SavePart,
        death: KillPoint,
        arena: Option<&Arena>,
        begun: impl FnOnce(),
    ) -> Result<VictimResult, TortureError> {
        let errand = VictimTask {
            subject: self.scene.subject.clone(),
            id: self.scene.saving,
            part,
            death: death.place,
        };
        victim::run(self.program, &errand, arena, death.delay, begun)
    }
}

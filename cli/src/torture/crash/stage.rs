//! Phases of a save with a death: the victim and the kind of death.

use std::path::Path;
use std::time::Duration;

use rankguard_checkpoint::Arena;

use super::hand::{Errand, Part};
use super::scene::{Attempt, INTERVAL, Scene, Way};
use super::victim::{self, End};
use crate::torture::TortureError;
use crate::torture::subject::Subject;

/// Phase of a save, with the process that dies in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
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

pub(super) const PHASES: [Phase; 6] = [
    Phase::Fill,
    Phase::Seal,
    Phase::Shard,
    Phase::Index,
    Phase::Commit,
    Phase::Removal,
];

impl Phase {
    pub(super) fn name(self, way: Way) -> String {
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
    pub(super) fn subject(self, way: Way, seed: u64) -> Subject {
        match self {
            Self::Seal => Subject {
                state_bytes: 400 << 10,
                ..Subject::new(WORLD, 16, seed)
            },
            _ => Subject::new(WORLD, way.rows(300), seed),
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
pub(super) struct Usual {
    pub(super) took: Duration,
    pub(super) calls: u64,
}

/// A scene with the phase and the program of its victims.
pub(super) struct Stage<'a> {
    pub(super) program: &'a Path,
    pub(super) phase: Phase,
    pub(super) scene: Scene,
    pub(super) usual: Usual,
}

/// Death of a victim: it kills itself at a place, or is killed after a delay.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Death {
    pub(super) place: Option<(u64, u64)>,
    pub(super) delay: Option<Duration>,
}

/// State after a save.
pub(super) struct Passed {
    pub(super) end: End,
    /// Attempts that are complete in the store, oldest first: a successor commits them.
    pub(super) whole: Vec<Attempt>,
}

impl Stage<'_> {
    /// Returns the rank that dies, or that loses its agent: each in turn.
    pub(super) fn victim(&self) -> u32 {
        (self.scene.saving.step.0 / INTERVAL % u64::from(WORLD)) as u32
    }

    /// Runs the victim's part with the given death.
    pub(super) fn dies(
        &self,
        part: Part,
        death: Death,
        arena: Option<&Arena>,
        begun: impl FnOnce(),
    ) -> Result<End, TortureError> {
        let errand = Errand {
            subject: self.scene.subject.clone(),
            id: self.scene.saving,
            part,
            death: death.place,
        };
        victim::run(self.program, &errand, arena, death.delay, begun)
    }
}

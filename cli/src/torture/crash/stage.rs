//! What the cases of deaths play on: a phase of a save, who dies in it and how.

use std::path::Path;
use std::time::Duration;

use rankguard_checkpoint::Arena;

use super::hand::{Errand, Part};
use super::scene::{Attempt, INTERVAL, Scene, Way};
use super::victim::{self, End};
use crate::torture::TortureError;
use crate::torture::subject::Subject;

/// A phase of a save, and who dies in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// A rank copies.
    Fill,
    /// A rank describes and seals what it has copied.
    Seal,
    /// An agent writes an image.
    Shard,
    /// An agent writes an index.
    Index,
    /// A controller commits.
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

    /// In a seal the description is most of the work; everywhere else the image is.
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

/// What an undisturbed victim of a phase needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usual {
    pub(super) took: Duration,
    pub(super) calls: u64,
}

/// A scene, and what plays in it.
pub(super) struct Stage<'a> {
    pub(super) program: &'a Path,
    pub(super) phase: Phase,
    pub(super) scene: Scene,
    pub(super) usual: Usual,
}

/// How a victim dies: by its own hand at a place, or killed after a while.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Death {
    pub(super) place: Option<(u64, u64)>,
    pub(super) delay: Option<Duration>,
}

/// What is left of a save.
pub(super) struct Passed {
    pub(super) end: End,
    /// Attempts that are whole in the store, oldest first: whoever comes next commits them.
    pub(super) whole: Vec<Attempt>,
}

impl Stage<'_> {
    /// The rank that dies, or whose agent does: each in turn.
    pub(super) fn victim(&self) -> u32 {
        (self.scene.saving.step.0 / INTERVAL % u64::from(WORLD)) as u32
    }

    /// Lets the victim do its part, and die over it.
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

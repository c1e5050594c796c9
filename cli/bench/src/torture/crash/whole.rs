//! A save of whole images, up to the part with the death.

use rankguard_checkpoint::format::CheckpointId;

use super::CrashVerdict;
use super::stage::{KillPoint, PhaseRun, SavePhase, WORLD};
use super::victim::VictimResult;
use super::victim_process::SavePart;
use crate::torture::TortureError;
use crate::torture::subject::id;

impl PhaseRun<'_> {
    /// Runs one save up to and including the victim's part.
    pub(super) fn play_whole(&self, death: KillPoint) -> Result<VictimResult, TortureError> {
        let scene = &self.scene;
        let phase = self.phase;
        let victim = self.victim();
        for rank in (0..WORLD).filter(|rank| !phase.kills_ranks() || *rank != victim) {
            scene.fill(rank)?;
        }
        let mut seals = Vec::new();
        if !phase.kills_ranks() {
            for rank in (0..WORLD).filter(|rank| !phase.kills_agents() || *rank != victim) {
                seals.push(scene.persist(rank)?);
            }
        }
        let store = scene.store.root().to_owned();
        let parent = scene.parent();
        let slot = scene.slot();
        let write = |ending: &str| SavePart::Write {
            store: store.clone(),
            parent,
            slot,
            ending: ending.to_owned(),
        };
        let commit = |removing| SavePart::Commit {
            store: store.clone(),
            parent,
            seals: seals.clone(),
            removing,
        };
        let part = match phase {
            SavePhase::Fill | SavePhase::Seal => {
                scene.arenas[victim as usize].release(slot)?;
                SavePart::Fill { rank: victim, slot }
            }
            SavePhase::Shard => write(".shard"),
            SavePhase::Index => write(".index"),
            SavePhase::Commit => commit(false),
            SavePhase::Removal => commit(true),
        };
        let arena = (!phase.kills_controllers()).then(|| &scene.arenas[victim as usize]);
        self.run_victim(part, death, arena, || {})
    }

    /// Judges the arenas after the death of a rank: its earlier image is unchanged, and the one that it was filling is
    /// complete or absent.
    pub(super) fn judge_arenas(
        &self,
        before: Option<CheckpointId>,
        end: &VictimResult,
        verdict: &mut CrashVerdict,
    ) -> Result<(), TortureError> {
        let scene = &self.scene;
        let slot = scene.slot();
        for rank in 0..WORLD {
            if scene.image_is_right(rank, slot, scene.saving)? == Some(false) {
                verdict.wrong_bytes += 1;
                verdict
                    .faults
                    .push(format!("rank {rank} left a sealed image of other bytes"));
            }
            let kept =
                before.map(|before| scene.image_is_right(rank, 1 - slot, id(before.step.0, before.generation.0)));
            if let Some(kept) = kept
                && kept? != Some(true)
            {
                verdict.wrong_bytes += 1;
                verdict
                    .faults
                    .push(format!("the previous sealed image of rank {rank} is lost"));
            }
        }
        if end.ended && scene.image_is_right(self.victim(), slot, scene.saving)?.is_none() {
            verdict.lost_commits += 1;
            verdict
                .faults
                .push("a rank reported a sealed image, but there is none".to_owned());
        }
        Ok(())
    }
}

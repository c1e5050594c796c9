//! A save through windows, in which a process dies while the other side of a window works.
//!
//! The other side is a thread here: a rank dies with its agent and has no part in the state afterwards, and an agent
//! outlives its rank.

use std::sync::atomic::{AtomicBool, Ordering};

use rankguard_checkpoint::Arena;
use rankguard_checkpoint::arena::SlotState;
use rankguard_checkpoint::format::CheckpointId;
use rankguard_model::ShardSeal;

use super::CrashVerdict;
use super::scene::{INTERVAL, SaveMode};
use super::stage::{KillPoint, PhaseResult, PhaseRun, SavePhase, WORLD};
use super::victim::VictimResult;
use super::victim_process::SavePart;
use crate::torture::TortureError;
use crate::torture::subject::{WINDOW_SLOT, take};

impl PhaseRun<'_> {
    /// Runs one save up to and including the victim's part.
    pub(super) fn play_window(
        &mut self,
        death: KillPoint,
        verdict: &mut CrashVerdict,
    ) -> Result<PhaseResult, TortureError> {
        let id = self.scene.saving;
        let victim = self.victim();
        let phase = self.phase;
        let others = (0..WORLD).filter(|rank| phase.kills_controllers() || *rank != victim);
        let mut seals = others
            .map(|rank| self.scene.pass(rank, id))
            .collect::<Result<Vec<_>, _>>()?;
        if phase.kills_controllers() {
            return self.controller_dies(death, seals, verdict);
        }
        let (end, seal) = match phase {
            SavePhase::Fill | SavePhase::Seal => self.rank_dies(death, verdict)?,
            _ => self.agent_dies(death, verdict)?,
        };
        seals.extend(seal);
        let whole = if seals.len() == WORLD as usize {
            vec![(id, seals)]
        } else {
            Vec::new()
        };
        Ok(PhaseResult { end, whole })
    }

    /// Kills the rank. The agent finishes: it writes a shard if the rank had sealed, else nothing, and the window
    /// becomes free.
    fn rank_dies(
        &self,
        death: KillPoint,
        verdict: &mut CrashVerdict,
    ) -> Result<(VictimResult, Option<ShardSeal>), TortureError> {
        let scene = &self.scene;
        let victim = self.victim();
        let arena = &scene.arenas[victim as usize];
        let gone = AtomicBool::new(false);
        let is_gone = || gone.load(Ordering::SeqCst);
        let (end, taken) = std::thread::scope(|scope| {
            let mut agent = None;
            let take = || take(&scene.store, arena, scene.saving.generation, &is_gone);
            let begun = || agent = Some(scope.spawn(take));
            let end = self.run_victim(SavePart::Pass { rank: victim }, death, Some(arena), begun);
            gone.store(true, Ordering::SeqCst);
            (
                end,
                agent.map(|agent| agent.join().expect("the agent's side does not panic")),
            )
        });
        let end = end?;
        let seal = taken.and_then(Result::ok);
        if end.ended && seal.is_none() {
            verdict.lost_commits += 1;
            let lost = "a rank reported a sealed image, but the store does not have it";
            verdict.faults.push(lost.to_owned());
        }
        if arena.slot(WINDOW_SLOT)?.0 != SlotState::Empty {
            verdict.stuck = true;
            verdict.faults.push("a dead rank's window is not free".to_owned());
        }
        Ok((end, seal))
    }

    /// Kills the agent. The rank dies with it, and no process takes over the window.
    fn agent_dies(
        &mut self,
        death: KillPoint,
        verdict: &mut CrashVerdict,
    ) -> Result<(VictimResult, Option<ShardSeal>), TortureError> {
        let scene = &self.scene;
        let victim = self.victim();
        let arena: &Arena = &scene.arenas[victim as usize];
        let ending = match self.phase {
            SavePhase::Index => ".index",
            _ => ".shard",
        };
        let part = SavePart::Take {
            store: scene.store.root().to_owned(),
            ending: ending.to_owned(),
        };
        let filling = scene.subject.filling(scene.saving, victim);
        let streaming = filling.announce(arena)?;
        let (end, passed) = std::thread::scope(|scope| {
            let rank = scope.spawn(|| filling.pass(arena, streaming));
            let end = self.run_victim(part, death, Some(arena), || {});
            // The rank has worked until here; if its agent lives the window is already free.
            let released = arena.release(WINDOW_SLOT);
            (
                end,
                released.map(|()| rank.join().expect("the rank's side does not panic")),
            )
        });
        let mut end = end?;
        let passed = passed?;
        if let (true, Err(problem)) = (end.well, passed) {
            verdict.stuck = true;
            verdict.faults.push(format!("a rank could not seal: {problem}"));
        }
        let seal = end.seal.take();
        if !end.well {
            self.scene.arenas[victim as usize] = SaveMode::Window.arena(&self.scene.subject)?;
        }
        Ok((end, seal))
    }

    /// Kills the controller during one step while the images of the next one stream: these reach the store without it.
    fn controller_dies(
        &self,
        death: KillPoint,
        seals: Vec<ShardSeal>,
        verdict: &mut CrashVerdict,
    ) -> Result<PhaseResult, TortureError> {
        let scene = &self.scene;
        let mut next: CheckpointId = scene.saving;
        next.step.0 += INTERVAL;
        let part = SavePart::Commit {
            store: scene.store.root().to_owned(),
            parent: scene.parent(),
            seals: seals.clone(),
            removing: self.phase == SavePhase::Removal,
        };
        let (end, passed) = std::thread::scope(|scope| {
            let mut passing = None;
            let pass = || {
                (0..WORLD)
                    .map(|rank| scene.pass(rank, next))
                    .collect::<Result<Vec<_>, _>>()
            };
            let begun = || passing = Some(scope.spawn(pass));
            let end = self.run_victim(part, death, None, begun);
            (
                end,
                passing.map(|passing| passing.join().expect("passing does not panic")),
            )
        });
        let mut whole = vec![(scene.saving, seals)];
        match passed {
            Some(Ok(seals)) => whole.push((next, seals)),
            Some(Err(problem)) => {
                verdict.stuck = true;
                verdict.faults.push(format!("a save without a controller: {problem}"));
            }
            None => {}
        }
        Ok(PhaseResult { end: end?, whole })
    }
}

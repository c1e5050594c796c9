//! From a sealed slot to a durable shard.

use std::sync::Arc;

use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint::{Arena, Store};
use rankguard_model::{Body, RankRef, ShardSeal, Step};

use super::arenas::release;
use super::{Checkpoints, Shared, chain};
use crate::ranks::Started;

impl Checkpoints {
    /// A rank says that it sealed a slot. Reports the seal at once, and the durable shard or why there is none later.
    pub(crate) fn sealed(&self, rank: &Started, slot: u32, step: Step, stall_ms: f64) {
        let shared = Arc::clone(&self.shared);
        let rank = rank.clone();
        // Not joined: at shutdown a write that is under way is as good as one that was killed, and both are harmless.
        tokio::spawn(async move {
            let of = rank.rank.clone();
            let work = Arc::clone(&shared);
            let look = {
                let (work, rank) = (Arc::clone(&shared), rank.clone());
                tokio::task::spawn_blocking(move || work.report_seal(&rank, slot, step, stall_ms))
            };
            let Ok(Some(arena)) = look.await else { return };
            let Ok(_permit) = shared.writers.acquire().await else {
                return;
            };
            let write = tokio::task::spawn_blocking(move || work.persist(&rank, &arena, slot, step));
            if let Err(error) = write.await {
                let reason = format!("the checkpoint service failed: {error}");
                shared
                    .intake
                    .push(shared.sighting(&of, Body::ShardFailed { step, reason }));
            }
        });
    }
}

impl Shared {
    /// Reports the seal when the slot holds what the rank says; gives the arena it is in.
    fn report_seal(&self, started: &Started, slot: u32, step: Step, stall_ms: f64) -> Option<Arc<Arena>> {
        let rank = &started.rank;
        let Some(arena) = self.arenas.current(&rank.job, started.local_rank) else {
            self.failed(rank, step, "the rank sealed a slot but has no arena".to_owned());
            return None;
        };
        let bytes = {
            let image = match arena.sealed(slot) {
                Ok(image) => image,
                Err(error) => {
                    self.failed(rank, step, chain(&error));
                    return None;
                }
            };
            let draft = image.draft();
            if (&draft.job, draft.generation, draft.rank, draft.step) != (&rank.job, rank.generation, rank.rank, step) {
                let problem = format!("slot {slot} holds the image of another rank or step: {}", draft.id());
                self.failed(rank, step, problem);
                return None;
            }
            draft.image_bytes
        };
        let body = Body::ShardSealed { step, stall_ms, bytes };
        self.intake.push(self.sighting(rank, body));
        Some(arena)
    }

    /// Writes the slot to the store.
    fn persist(&self, started: &Started, arena: &Arc<Arena>, slot: u32, step: Step) {
        let rank = &started.rank;
        let id = CheckpointId {
            step,
            generation: rank.generation,
        };
        let result = write(started, arena, slot, id);
        // Decided after the write: whatever happened meanwhile, a stale generation's shard is never announced (RG-3).
        if self.fences.of(&rank.job) > rank.generation {
            tracing::info!(job = %rank.job, %id, rank = %rank.rank, "shard of a fenced generation is not announced");
            return;
        }
        match result {
            Ok(seal) => {
                {
                    let mut durable = self.durable.lock().expect("no holder of the durable shards panics");
                    durable.insert((rank.job.clone(), id, rank.rank));
                }
                self.intake.push(self.sighting(rank, Body::ShardDurable { seal }));
                self.make_room(started, arena);
            }
            // A newer checkpoint was kept meanwhile, and this slot given away: nobody waits for this shard.
            Err(_) if self.arenas.kept(&rank.job).is_some_and(|kept| kept > id) => {}
            Err(reason) => {
                let still_there = arena.sealed(slot).is_ok_and(|image| image.draft().id() == id);
                if still_there {
                    release(arena, slot);
                }
                self.failed(rank, step, reason);
            }
        }
    }

    /// When no slot is empty, the oldest image that is on disk and not the kept one goes. Without this, attempts that
    /// were never committed because another node failed would take every slot, and no checkpoint would follow.
    fn make_room(&self, started: &Started, arena: &Arena) {
        if !arena.empty_slots().is_empty() {
            return;
        }
        let job = &started.rank.job;
        let kept = self.arenas.kept(job);
        let oldest = arena
            .sealed_images()
            .iter()
            .map(|image| (image.draft().id(), image.draft().rank, image.slot()))
            .filter(|(id, rank, _)| Some(*id) != kept && self.is_durable(job, *id, *rank))
            .min();
        let newest = arena.sealed_images().iter().map(|image| image.draft().id()).max();
        if let Some((id, _, slot)) = oldest.filter(|(id, ..)| Some(*id) != newest) {
            tracing::info!(%job, %id, slot, "slot of a checkpoint that was not committed is given away");
            release(arena, slot);
        }
    }

    fn failed(&self, rank: &RankRef, step: Step, reason: String) {
        self.intake
            .push(self.sighting(rank, Body::ShardFailed { step, reason }));
    }
}

fn write(started: &Started, arena: &Arena, slot: u32, id: CheckpointId) -> Result<ShardSeal, String> {
    let store = &started.launch.checkpoint_store;
    if store.is_empty() {
        return Err("the job has no checkpoint store".to_owned());
    }
    let image = arena.sealed(slot).map_err(|error| chain(&error))?;
    if image.draft().id() != id {
        return Err(format!("slot {slot} was given away before it was written"));
    }
    let store = Store::open(store).map_err(|error| chain(&error))?;
    let written = store
        .write_shard(image.draft(), &image)
        .map_err(|error| chain(&error))?;
    Ok(written.seal)
}

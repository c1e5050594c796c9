//! Restore from the agent's tiers into a trainer's memory.

use std::time::Duration;

use rankguard_checkpoint::Arena;
use rankguard_checkpoint_format::TensorBox;
use rankguard_model::{Rank, Step};
use rankguard_proto::v1;
use rankguard_proto::v1::from_rank::Kind as Say;
use rankguard_proto::v1::to_rank::Kind as Hear;
use serde_json::Value;

use super::{RankClient, demand, unexpected, wait_for};
use crate::ClientError;
use crate::calls::CheckpointCalls;

/// Longest wait for a restore without tensors, which may query other nodes and a disk.
const RESTORE_WAIT: Duration = Duration::from_secs(120);

/// Result of a restore.
#[derive(Debug, Clone, PartialEq)]
pub struct RestoredTensors {
    /// Number of steps completed when the checkpoint was saved.
    pub step: Step,
    /// Bytes of the requested boxes, in the same order.
    pub tensors: Vec<Vec<u8>>,
    /// Small (non-tensor) state of every shard, by rank.
    pub states: Vec<(Rank, Value)>,
}

/// Result of a restore into the caller's own buffers.
#[derive(Debug, Clone, PartialEq)]
pub struct RestoreSummary {
    /// Number of steps completed when the checkpoint was saved.
    pub step: Step,
    /// Small (non-tensor) state of every shard, by rank.
    pub states: Vec<(Rank, Value)>,
    /// Tensors that the ranks saved with different content, or with content that cannot be compared, each with the
    /// difference. A rank of the same world size receives its own; in another world the first rank that saved the
    /// wanted part supplies it.
    pub differing: Vec<(String, String)>,
    /// Names of all tensors of the checkpoint, if its states have no schema that lists them.
    pub names: Vec<String>,
}

impl RankClient {
    /// Requests exactly these boxes of the checkpoint that this generation starts from; `None` for a fresh start.
    ///
    /// The arena is created for images of this size, so request the boxes that [`checkpoint`](Self::checkpoint) will
    /// save: then every page is in place before the first save. A request without boxes returns only the states.
    pub fn restore(&mut self, wanted: &[TensorBox]) -> Result<Option<RestoredTensors>, ClientError> {
        let mut tensors = Vec::with_capacity(wanted.len());
        for size in sizes(wanted.iter())? {
            tensors.push(vec![0; usize::try_from(size).unwrap_or(usize::MAX)]);
        }
        let mut places: Vec<(TensorBox, &mut [u8])> = wanted
            .iter()
            .cloned()
            .zip(tensors.iter_mut().map(Vec::as_mut_slice))
            .collect();
        let restored = self.restore_into(&mut places)?;
        Ok(restored.map(|RestoreSummary { step, states, .. }| RestoredTensors { step, tensors, states }))
    }

    /// Restores directly into the caller's buffers, which are unchanged if there is nothing to restore. After an error
    /// they may be partly filled.
    pub fn restore_into(
        &mut self,
        wanted: &mut [(TensorBox, &mut [u8])],
    ) -> Result<Option<RestoreSummary>, ClientError> {
        let sizes = sizes(wanted.iter().map(|(boxed, _)| boxed))?;
        for ((boxed, buffer), needs) in wanted.iter().zip(&sizes) {
            let has = buffer.len() as u64;
            let needs = *needs;
            if has != needs {
                let name = boxed.name.clone();
                return Err(ClientError::Buffer { name, has, needs });
            }
        }
        let wanted_bytes: u64 = sizes.iter().sum();
        self.take_arena(demand(wanted.iter().map(|(boxed, _)| boxed), None)?)?;
        let boxes = wanted.iter().map(|(boxed, _)| to_wire(boxed)).collect();
        let what = "the restored tensors";
        let wait = wait_for(RESTORE_WAIT, wanted_bytes);
        let ready = match self.ask(Say::RestoreWanted(v1::RestoreWanted { boxes }), what, wait)? {
            Hear::NothingToRestore(_) => return Ok(None),
            Hear::RestoreReady(ready) => ready,
            other => return Err(unexpected(what, &other)),
        };
        self.calls = CheckpointCalls::new(self.env.generation, Step(ready.step), self.checkpoint_every);
        let step = ready.step;
        let states = ready.states.clone();
        let differing = ready.differing.iter().map(|one| (one.name.clone(), one.cause.clone()));
        let differing = differing.collect();
        let names = ready.names.clone();
        let mut buffers: Vec<&mut [u8]> = wanted.iter_mut().map(|(_, buffer)| &mut **buffer).collect();
        if ready.more {
            self.copy_parts(ready, &mut buffers, wanted_bytes)?
        } else {
            self.copy_whole(&ready, &mut buffers, wanted_bytes)?
        }
        let states = states.into_iter().map(|shard| {
            let rank = Rank(shard.rank);
            let state = serde_json::from_str(&shard.state);
            state
                .map(|state| (rank, state))
                .map_err(|source| ClientError::RestoredState { rank, source })
        });
        Ok(Some(RestoreSummary {
            step: Step(step),
            states: states.collect::<Result<_, _>>()?,
            differing,
            names,
        }))
    }

    /// Copies all boxes from one slot.
    fn copy_whole(
        &mut self,
        ready: &v1::RestoreReady,
        buffers: &mut [&mut [u8]],
        wanted: u64,
    ) -> Result<(), ClientError> {
        if ready.bytes != wanted {
            let got = ready.bytes;
            return Err(ClientError::RestoredBytes { wanted, got });
        }
        let own = if ready.own_memory {
            Some(Arena::map(self.wire.take_fd().ok_or(ClientError::NoDescriptor)?)?)
        } else {
            None
        };
        let arena = own.as_ref().or(self.slots.arena.as_deref()).expect("taken above");
        let mut at = 0;
        let mut places = ready.places.iter();
        for buffer in buffers {
            arena.read_image(ready.slot, places.next().copied().unwrap_or(at), buffer)?;
            at += buffer.len() as u64;
        }
        if ready.stays {
            Ok(())
        } else {
            Ok(arena.release(ready.slot)?)
        }
    }

    /// Copies the bytes of all boxes, back to back, from a window, one part after the other.
    fn copy_parts(
        &mut self,
        first: v1::RestoreReady,
        buffers: &mut [&mut [u8]],
        wanted: u64,
    ) -> Result<(), ClientError> {
        let arena = self.slots.arena.clone().expect("taken above");
        let what = "the next part of the restored tensors";
        let mut ready = first;
        let mut got = 0;
        let mut rest = buffers.iter_mut().map(|buffer| &mut **buffer);
        let mut buffer: &mut [u8] = &mut [];
        loop {
            let mut at = 0;
            got += ready.bytes;
            while at < ready.bytes {
                if buffer.is_empty() {
                    buffer = rest.next().ok_or(ClientError::RestoredBytes { wanted, got })?;
                }
                let length = (ready.bytes - at).min(buffer.len() as u64);
                let (part, after) = std::mem::take(&mut buffer).split_at_mut(length as usize);
                arena.read_image(ready.slot, at, part)?;
                (buffer, at) = (after, at + length);
            }
            arena.release(ready.slot)?;
            if !ready.more {
                break;
            }
            ready = match self.hear(what, wait_for(RESTORE_WAIT, arena.geometry().window))? {
                Hear::RestoreReady(ready) => ready,
                other => return Err(unexpected(what, &other)),
            };
        }
        if got == wanted {
            Ok(())
        } else {
            Err(ClientError::RestoredBytes { wanted, got })
        }
    }
}

fn sizes<'a>(boxes: impl Iterator<Item = &'a TensorBox>) -> Result<Vec<u64>, ClientError> {
    boxes
        .map(|b| b.bytes().ok_or_else(|| ClientError::Box { name: b.name.clone() }))
        .collect()
}

fn to_wire(b: &TensorBox) -> v1::TensorBox {
    v1::TensorBox {
        name: b.name.clone(),
        dtype: b.dtype.name().to_owned(),
        global_shape: b.global_shape.clone(),
        offset: b.offset.clone(),
        shape: b.shape.clone(),
    }
}

//! From a committed checkpoint to the bytes that a rank asked for: arenas of this node, then peers, then the store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rankguard_checkpoint::format::{CheckpointId, Dtype, TensorBox};
use rankguard_checkpoint::source::{ArenaSource, ChunkSource};
use rankguard_checkpoint::{Store, restore};
use rankguard_model::{Body, ClassId, Mark, Rank, Role, Step};
use rankguard_proto::v1;
use tokio::runtime::Handle;

use super::arenas::release;
use super::peer::PeerSource;
use super::{Checkpoints, Shared, chain};
use crate::ranks::Started;

/// Longest time a restore may take; a little less than what a rank waits for its answer.
const DEADLINE: Duration = Duration::from_secs(110);

/// What a rank is told.
#[derive(Debug)]
pub(crate) struct RestoreAnswer {
    pub(crate) step: Step,
    pub(crate) slot: u32,
    pub(crate) bytes: u64,
    pub(crate) states: Vec<(Rank, String)>,
}

impl Checkpoints {
    /// Puts what was asked for into a slot of the rank's arena. `None`: the generation starts afresh. The error is a
    /// sentence that names tensor, rank, tier and chunk where it can (RG-2).
    pub(crate) async fn restore(
        &self,
        rank: &Started,
        boxes: Vec<v1::TensorBox>,
    ) -> Result<Option<RestoreAnswer>, String> {
        let Some(id) = rank.launch.restore.as_ref().map(CheckpointId::from) else {
            return Ok(None);
        };
        let (shared, of, handle) = (Arc::clone(&self.shared), rank.clone(), Handle::current());
        let work = tokio::task::spawn_blocking(move || shared.restore(&of, id, boxes, &handle));
        let result = match tokio::time::timeout(DEADLINE, work).await {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => Err(format!("the checkpoint service failed: {error}")),
            Err(_) => Err(format!("checkpoint {id} could not be read within {DEADLINE:?}")),
        };
        if let Err(reason) = &result {
            self.shared.tell_damage(rank, reason.clone(), Role::Root);
        }
        result.map(Some)
    }
}

impl Shared {
    fn restore(
        &self,
        rank: &Started,
        id: CheckpointId,
        boxes: Vec<v1::TensorBox>,
        handle: &Handle,
    ) -> Result<RestoreAnswer, String> {
        let began = Instant::now();
        let job = &rank.rank.job;
        let wanted = boxes.into_iter().map(from_wire).collect::<Result<Vec<_>, _>>()?;
        let bytes = wanted.iter().filter_map(TensorBox::bytes).fold(0, u64::saturating_add);
        let arena = self
            .arenas
            .current(job, rank.local_rank)
            .ok_or("the rank asked for a restore before it asked for an arena")?;
        let store = Store::at(&rank.launch.checkpoint_store);
        let mut checkpoint = store.load(job, id).map_err(|error| chain(&error))?;

        let arenas = self.arenas.all(job);
        let here = ArenaSource::new(arenas.iter().map(AsRef::as_ref));
        let peers: Vec<PeerSource> = rank
            .launch
            .peers
            .iter()
            .filter(|peer| peer.node != self.node)
            .map(|peer| PeerSource::new(peer.clone(), handle.clone(), self.peer_fetch))
            .collect();
        let mut sources: Vec<&dyn ChunkSource> = vec![&here];
        sources.extend(peers.iter().map(|peer| peer as &dyn ChunkSource));
        sources.push(&store);
        // Where several ranks hold the same bytes, those of this node's memory supply them.
        checkpoint
            .indexes
            .sort_by_key(|index| (!here.holds(job, id, index.rank), index.rank));

        let empty = arena.empty_slots().first().copied();
        let slot = empty.ok_or("no slot of the arena is empty")?;
        let mut sink = arena
            .begin_restore(slot, rank.rank.generation)
            .map_err(|error| chain(&error))?;
        let assembled = restore::assemble_into(&checkpoint.manifest, &checkpoint.indexes, &wanted, &sources, &mut sink);
        let report = match assembled {
            Ok(report) => report,
            Err(error) => {
                release(&arena, slot);
                return Err(format!("checkpoint {id}: {}", chain(&error)));
            }
        };
        for repair in &report.repairs {
            self.tell_damage(rank, repair.clone(), Role::Confirmation);
        }
        let body = Body::Restored {
            step: id.step,
            from: report.bytes,
            took_ms: began.elapsed().as_secs_f64() * 1e3,
        };
        self.intake.push(self.sighting(&rank.rank, body));
        checkpoint.indexes.sort_by_key(|index| index.rank);
        let states = checkpoint.indexes.iter();
        Ok(RestoreAnswer {
            step: id.step,
            slot,
            bytes,
            states: states.map(|index| (index.rank, index.state.to_string())).collect(),
        })
    }

    /// A copy that is no good is evidence, whether another one took its place or not.
    fn tell_damage(&self, rank: &Started, text: String, role: Role) {
        let says = Mark {
            class: ClassId::from("checkpoint-corrupt"),
            role,
            confidence: 0.7,
            signature: "checkpoint.restore".to_owned(),
            fields: std::collections::BTreeMap::new(),
        };
        let body = Body::Line {
            text,
            context: Vec::new(),
            repeats: 1,
        };
        self.intake.push(self.sighting(&rank.rank, body).marked(vec![says]));
    }
}

fn from_wire(wire: v1::TensorBox) -> Result<TensorBox, String> {
    let v1::TensorBox {
        name,
        dtype,
        global_shape,
        offset,
        shape,
    } = wire;
    let dtype: Dtype = dtype
        .parse()
        .map_err(|error| format!("tensor {name}: {}", chain(&error)))?;
    let wanted = TensorBox {
        name,
        dtype,
        global_shape,
        offset,
        shape,
    };
    match wanted.check() {
        Ok(()) => Ok(wanted),
        Err(error) => Err(format!("tensor {}: {}", wanted.name, chain(&error))),
    }
}

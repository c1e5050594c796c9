//! Subject of the tests: a small job with content that follows from its step, so that any mix of two steps is
//! detectable.

use std::time::Duration;

use rankguard_checkpoint::arena::{MIN_WINDOW_BYTES, PendingStream, SaveRequest, SealedImage};
use rankguard_checkpoint::format::{CheckpointId, Dtype, Manifest, ShardIndex, TensorBox};
use rankguard_checkpoint::restore::assemble;
use rankguard_checkpoint::source::ChunkSource;
use rankguard_checkpoint::{Arena, Checkpoint, Store};
use rankguard_model::{Generation, JobId, Rank, ShardSeal, Step, with_causes};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::TortureError;
use super::dice::mix;

/// Shape of the job, and the seed of its contents.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TortureJob {
    /// Name of the job in a store.
    pub(crate) job: JobId,
    /// Number of ranks.
    pub(crate) world: u32,
    /// Rows of its large table; not a multiple of any other size.
    pub(crate) rows: u64,
    /// Another seed gives another job of the same shape.
    pub(crate) seed: u64,
    /// Padding of each rank's small state, in bytes.
    pub(crate) state_bytes: usize,
}

/// Columns of the large tables.
const COLUMNS: u64 = 96;

/// Size of a chunk: small, so that a small image has many.
const CHUNK_BYTES: u32 = 8 << 10;

/// The only slot of a window.
pub(crate) const WINDOW_SLOT: u32 = 0;

/// Maximum wait of a rank for the reader of its window.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn id(step: u64, generation: u64) -> CheckpointId {
    CheckpointId {
        step: Step(step),
        generation: Generation(generation),
    }
}

impl TortureJob {
    pub(crate) fn new(world: u32, rows: u64, seed: u64) -> Self {
        Self {
            job: JobId::from("torture"),
            world,
            rows,
            seed,
            state_bytes: 0,
        }
    }

    /// Returns the boxes of a rank: its rows of one table, its columns of another, its rows of one that never changes,
    /// and small tensors whole on every rank, including one without dimensions and one without bytes.
    pub(crate) fn boxes(&self, rank: u32) -> Vec<TensorBox> {
        let share = |all: u64| {
            let rank = u64::from(rank);
            let world = u64::from(self.world);
            all * rank / world..all * (rank + 1) / world
        };
        let mut columns = TensorBox::whole("layers.0.attn.weight", Dtype::Bf16, vec![self.rows, COLUMNS]);
        let cut = share(COLUMNS);
        (columns.offset[1], columns.shape[1]) = (cut.start, cut.end - cut.start);
        let table = vec![self.rows, COLUMNS];
        vec![
            TensorBox::rows("layers.0.mlp.weight", Dtype::F32, table.clone(), share(self.rows)),
            columns,
            TensorBox::rows("embed.frozen.weight", Dtype::Bf16, table, share(self.rows)),
            TensorBox::whole("norm.weight", Dtype::F32, vec![101]),
            TensorBox::whole("optimizer.lr", Dtype::F64, vec![]),
            TensorBox::whole("mask", Dtype::Bool, vec![7]),
            TensorBox::whole("empty", Dtype::F32, vec![0, 4]),
        ]
    }

    /// Returns the box of every whole tensor.
    pub(crate) fn everything(&self) -> Vec<TensorBox> {
        let whole = |boxed: TensorBox| TensorBox::whole(boxed.name, boxed.dtype, boxed.global_shape);
        self.boxes(0).into_iter().map(whole).collect()
    }

    /// Generates the bytes of a box after `step` steps.
    fn bytes(&self, boxed: &TensorBox, step: Step) -> Vec<u8> {
        let version = if boxed.name.contains("frozen") { 0 } else { step.0 };
        let name = boxed
            .name
            .bytes()
            .fold(0, |hash: u64, byte| mix(hash ^ u64::from(byte)));
        let base = mix(self.seed ^ name) ^ mix(version);
        let width = boxed.dtype.bytes() as usize;
        let elements = boxed.shape.iter().product::<u64>();
        let mut bytes = Vec::with_capacity(elements as usize * width);
        let mut position = vec![0; boxed.shape.len()];
        for _ in 0..elements {
            let place = position
                .iter()
                .zip(&boxed.offset)
                .zip(&boxed.global_shape)
                .fold(0, |place, ((at, offset), extent)| place * extent + at + offset);
            bytes.extend_from_slice(&mix(base ^ place).to_le_bytes()[..width]);
            for dim in (0..position.len()).rev() {
                position[dim] += 1;
                if position[dim] < boxed.shape[dim] {
                    break;
                }
                position[dim] = 0;
            }
        }
        bytes
    }

    /// Generates the content of these boxes, concatenated.
    pub(crate) fn expected(&self, wanted: &[TensorBox], step: Step) -> Vec<u8> {
        wanted.iter().flat_map(|boxed| self.bytes(boxed, step)).collect()
    }

    /// Returns a rank's small state.
    pub(crate) fn state(&self, rank: u32, step: Step) -> Value {
        json!({"step": step, "rank": rank, "loss": 1.0 / (step.0 as f64 + 3.0), "note": "x".repeat(self.state_bytes)})
    }

    /// Returns an upper bound of the largest image in bytes, with room for padding between tensors.
    pub(crate) fn image_bytes(&self) -> u64 {
        let bytes = |rank| -> u64 {
            let boxes = self.boxes(rank);
            boxes
                .iter()
                .filter_map(TensorBox::bytes)
                .map(|bytes| bytes + 4096)
                .sum()
        };
        (0..self.world).map(bytes).max().unwrap_or(0)
    }

    /// Creates an arena for a rank's images.
    pub(crate) fn arena(&self, slots: u32) -> Result<Arena, TortureError> {
        Ok(Arena::create("torture", slots, self.image_bytes())?)
    }

    /// Creates a window of the minimum size for a rank's images.
    pub(crate) fn window(&self) -> Result<Arena, TortureError> {
        Ok(Arena::windowed("torture", self.image_bytes(), MIN_WINDOW_BYTES)?)
    }

    /// Prepares a rank's tensors for a copy.
    pub(crate) fn filling(&self, id: CheckpointId, rank: u32) -> ImageContent<'_> {
        let boxes = self.boxes(rank).into_iter();
        let tensors = boxes.map(|boxed| {
            let bytes = self.bytes(&boxed, id.step);
            (boxed, bytes)
        });
        ImageContent {
            subject: self,
            id,
            rank,
            tensors: tensors.collect(),
            state: self.state(rank, id.step),
        }
    }

    /// Copies a rank's tensors into a slot and seals it.
    pub(crate) fn fill(&self, arena: &Arena, slot: u32, id: CheckpointId, rank: u32) -> Result<(), TortureError> {
        self.filling(id, rank).into_slot(arena, slot)
    }

    /// Writes every rank's shard through an arena; returns the manifest that would commit them.
    pub(crate) fn write(
        &self,
        store: &Store,
        id: CheckpointId,
        parent: Option<CheckpointId>,
    ) -> Result<Manifest, TortureError> {
        let arena = self.arena(1)?;
        let mut seals = Vec::new();
        for rank in 0..self.world {
            self.fill(&arena, 0, id, rank)?;
            seals.push(persist(store, &arena.sealed(0)?, parent)?);
            arena.release(0)?;
        }
        self.manifest(id, parent, &seals)
    }

    /// Builds the manifest over the written shards.
    pub(crate) fn manifest(
        &self,
        id: CheckpointId,
        parent: Option<CheckpointId>,
        seals: &[ShardSeal],
    ) -> Result<Manifest, TortureError> {
        Manifest::from_seals(&self.job, id, parent, seals).map_err(TortureError::new)
    }

    /// Writes and commits a checkpoint.
    pub(crate) fn save(
        &self,
        store: &Store,
        id: CheckpointId,
        parent: Option<CheckpointId>,
    ) -> Result<(), TortureError> {
        store.commit(&self.write(store, id, parent)?)?;
        Ok(())
    }

    /// Loads a checkpoint as its own ranks would, every byte of every shard, and then as a single rank would; compares
    /// each byte and each state with the saved ones.
    pub(crate) fn load(&self, checkpoint: &Checkpoint, sources: &[&dyn ChunkSource]) -> LoadOutcome {
        let step = checkpoint.manifest.step;
        if checkpoint.manifest.world_size != self.world {
            return LoadOutcome::Wrong(format!("a world of {}", checkpoint.manifest.world_size));
        }
        for rank in 0..self.world {
            // The rank's own shard first: it supplies tensors that several ranks hold.
            let mut indexes = checkpoint.indexes.clone();
            indexes.sort_by_key(|index: &ShardIndex| (index.rank.0 != rank, index.rank));
            if checkpoint.indexes[rank as usize].state != self.state(rank, step) {
                return LoadOutcome::Wrong(format!("state of rank {rank}"));
            }
            match self.compare(checkpoint, &indexes, &self.boxes(rank), sources) {
                LoadOutcome::Right => {}
                other => return other,
            }
        }
        self.compare(checkpoint, &checkpoint.indexes, &self.everything(), sources)
    }

    fn compare(
        &self,
        checkpoint: &Checkpoint,
        indexes: &[ShardIndex],
        wanted: &[TensorBox],
        sources: &[&dyn ChunkSource],
    ) -> LoadOutcome {
        let expected = self.expected(wanted, checkpoint.manifest.step);
        let mut out = vec![0xA5; expected.len()];
        match assemble(&checkpoint.manifest, indexes, wanted, sources, &mut out) {
            Err(problem) => LoadOutcome::Refused(with_causes(&problem)),
            Ok(_) if out == expected => LoadOutcome::Right,
            Ok(_) => {
                let at = out.iter().zip(&expected).position(|(found, right)| found != right);
                LoadOutcome::Wrong(format!("byte {} of what was wanted", at.unwrap_or(0)))
            }
        }
    }
}

/// Tensors and state that a rank is about to save.
#[derive(Debug)]
pub(crate) struct ImageContent<'a> {
    subject: &'a TortureJob,
    id: CheckpointId,
    rank: u32,
    tensors: Vec<(TensorBox, Vec<u8>)>,
    state: Value,
}

impl ImageContent<'_> {
    /// Copies the tensors into a slot and seals it.
    pub(crate) fn into_slot(self, arena: &Arena, slot: u32) -> Result<(), TortureError> {
        arena.fill(slot, &self.of(), &self.lent(), &self.state)?;
        Ok(())
    }

    /// Describes the image in a window; its reader may start.
    pub(crate) fn announce(&self, arena: &Arena) -> Result<PendingStream, TortureError> {
        Ok(arena.begin_stream(WINDOW_SLOT, &self.of(), &self.lent(), &self.state)?)
    }

    /// Streams the described image and seals it.
    pub(crate) fn pass(&self, arena: &Arena, streaming: PendingStream) -> Result<(), TortureError> {
        arena.stream(streaming, &self.lent(), PATIENCE)?;
        Ok(())
    }

    fn of(&self) -> SaveRequest<'_> {
        let subject = self.subject;
        let id = self.id;
        SaveRequest {
            chunk_bytes: CHUNK_BYTES,
            ..SaveRequest::new(&subject.job, id.step, id.generation, Rank(self.rank), subject.world)
        }
    }

    fn lent(&self) -> Vec<(TensorBox, &[u8])> {
        let tensors = self.tensors.iter();
        tensors.map(|(boxed, bytes)| (boxed.clone(), &bytes[..])).collect()
    }
}

/// Makes a sealed image durable; chunks that the checkpoint `parent` already has are not written again.
pub(crate) fn persist(
    store: &Store,
    image: &SealedImage<'_>,
    parent: Option<CheckpointId>,
) -> Result<ShardSeal, TortureError> {
    let index = image.index();
    let known = parent.map(|parent| store.known_chunks(&index.job, parent, index.rank));
    Ok(store.write_new(index, image, &known.unwrap_or_default())?.seal)
}

/// Makes an image durable that the rank of this generation streams through a window; `gone` returns true once the rank
/// is dead.
pub(crate) fn take(
    store: &Store,
    arena: &Arena,
    generation: Generation,
    gone: &(dyn Fn() -> bool + Sync),
) -> Result<ShardSeal, TortureError> {
    let image = arena.streamed(WINDOW_SLOT, generation, gone)?;
    Ok(store.write_streamed(&image)?.seal)
}

/// Result of a load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LoadOutcome {
    /// Every byte and every state equals the saved one.
    Right,
    /// The load failed with this error.
    Refused(String),
    /// The load returned other bytes without an error: the worst result.
    Wrong(String),
}

//! Small job with every byte derived from its step, so that any mix of two steps is detected.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use std::path::Path;
use std::time::Duration;

use rankguard_checkpoint::arena::{MIN_WINDOW_BYTES, SaveRequest};
use rankguard_checkpoint::format::{CheckpointId, Dtype, Manifest, ShardIndex, TensorBox};
use rankguard_checkpoint::restore::{RestoreError, RestoreReport, assemble};
use rankguard_checkpoint::source::ChunkSource;
use rankguard_checkpoint::{Arena, Checkpoint, Store, StoreError};
use rankguard_model::{Generation, JobId, Rank, Step};

#[derive(Debug, Clone, Copy)]
pub struct Job {
    pub world: u32,
    pub rows: u64,
    pub columns: u64,
    pub chunk_bytes: u32,
}

/// Two ranks, images of 225 bytes, four chunks each: three of the weight, one of the bias.
pub const SMALL: Job = Job {
    world: 2,
    rows: 6,
    columns: 45,
    chunk_bytes: 64,
};

pub fn job() -> JobId {
    JobId::from("demo")
}

pub fn id(step: u64, generation: u64) -> CheckpointId {
    CheckpointId {
        step: Step(step),
        generation: Generation(generation),
    }
}

impl Job {
    /// Returns the byte at `nth` of tensor `name` after `step` steps.
    fn byte(name: &str, step: u64, nth: u64) -> u8 {
        let seed =
            step.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ nth.wrapping_mul(0xBF58_476D_1CE4_E5B9) ^ name.len() as u64;
        (seed.wrapping_mul(0x94D0_49BB_1331_11EB) >> 56) as u8
    }

    fn bytes(boxed: &TensorBox, step: u64) -> Vec<u8> {
        let width = boxed.global_shape[1..].iter().product::<u64>();
        let first = boxed.offset[0] * width;
        (first..first + boxed.bytes().unwrap())
            .map(|nth| Self::byte(&boxed.name, step, nth))
            .collect()
    }

    /// Returns the tensors of a rank: its rows of `weight`, and the whole `bias`.
    pub fn boxes(&self, rank: u32) -> Vec<TensorBox> {
        let world = u64::from(self.world);
        let rank = u64::from(rank);
        let rows = self.rows * rank / world..self.rows * (rank + 1) / world;
        let shape = vec![self.rows, self.columns];
        vec![
            TensorBox::rows("weight", Dtype::U8, shape, rows),
            TensorBox::whole("bias", Dtype::U8, vec![33]),
        ]
    }

    pub fn tensors(&self, rank: u32, step: u64) -> Vec<(TensorBox, Vec<u8>)> {
        self.boxes(rank)
            .into_iter()
            .map(|boxed| (boxed.clone(), Self::bytes(&boxed, step)))
            .collect()
    }

    pub fn image_of<'a>(&self, job: &'a JobId, id: CheckpointId, rank: u32) -> SaveRequest<'a> {
        SaveRequest {
            chunk_bytes: self.chunk_bytes,
            ..SaveRequest::new(job, id.step, id.generation, Rank(rank), self.world)
        }
    }

    /// Returns a sealed image as an arena would supply it.
    pub fn sealed(&self, id: CheckpointId, rank: u32) -> (ShardIndex, Vec<u8>) {
        let tensors = self.tensors(rank, id.step.0);
        let (entries, end) = ShardIndex::lay_out(tensors.iter().map(|(boxed, _)| boxed.clone()));
        let mut image = vec![0; end.unwrap() as usize];
        for (entry, (_, bytes)) in entries.iter().zip(&tensors) {
            image[entry.at as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        let mut index = ShardIndex {
            rank: Rank(rank),
            world_size: self.world,
            chunk_bytes: self.chunk_bytes,
            image_bytes: end.unwrap(),
            tensors: entries,
            state: serde_json::json!({"step": id.step, "rank": rank}),
            ..ShardIndex::new(&job(), id)
        };
        index.digest_image(&image);
        (index, image)
    }

    /// Writes every shard; returns the manifest that would commit them.
    pub fn write(&self, store: &Store, id: CheckpointId, parent: Option<CheckpointId>) -> Result<Manifest, StoreError> {
        let mut seals = Vec::new();
        for rank in 0..self.world {
            let (index, image) = self.sealed(id, rank);
            seals.push(store.write_shard(&index, &image.as_slice())?.seal);
        }
        Ok(Manifest::from_seals(&job(), id, parent, &seals).unwrap())
    }

    /// Writes every shard through the smallest window: each image is copied by one thread and written by others.
    pub fn stream(
        &self,
        store: &Store,
        id: CheckpointId,
        parent: Option<CheckpointId>,
    ) -> Result<Manifest, StoreError> {
        let mut seals = Vec::new();
        for rank in 0..self.world {
            let tensors = self.tensors(rank, id.step.0);
            let job = job();
            let lent: Vec<_> = tensors.iter().map(|(boxed, data)| (boxed.clone(), &data[..])).collect();
            let arena = Arena::windowed("test", 1 << 30, MIN_WINDOW_BYTES).unwrap();
            let state = serde_json::json!({"step": id.step, "rank": rank});
            let begun = arena.begin_stream(0, &self.image_of(&job, id, rank), &lent, &state);
            let begun = begun.unwrap();
            let written = std::thread::scope(|scope| {
                let rank = scope.spawn(|| arena.stream(begun, &lent, Duration::from_secs(60)));
                let image = arena.streamed(0, id.generation, &|| false).unwrap();
                let written = store.write_streamed(&image);
                drop(image);
                rank.join().unwrap().unwrap();
                written
            });
            seals.push(written?.seal);
        }
        Ok(Manifest::from_seals(&job(), id, parent, &seals).unwrap())
    }

    /// Writes and commits.
    pub fn save(&self, store: &Store, id: CheckpointId, parent: Option<CheckpointId>) -> Result<Manifest, StoreError> {
        let manifest = self.write(store, id, parent)?;
        store.commit(&manifest)?;
        Ok(manifest)
    }

    /// Returns the boxes of a restore on one rank: everything.
    pub fn everything(&self) -> Vec<TensorBox> {
        vec![
            TensorBox::whole("weight", Dtype::U8, vec![self.rows, self.columns]),
            TensorBox::whole("bias", Dtype::U8, vec![33]),
        ]
    }

    /// Returns the expected bytes after `step` steps.
    pub fn expected(&self, step: u64) -> Vec<u8> {
        self.everything()
            .iter()
            .flat_map(|boxed| Self::bytes(boxed, step))
            .collect()
    }

    /// Loads everything from `sources`.
    pub fn load(
        &self,
        checkpoint: &Checkpoint,
        sources: &[&dyn ChunkSource],
    ) -> Result<(Vec<u8>, RestoreReport), RestoreError> {
        let mut out = vec![0; self.expected(0).len()];
        let wanted = self.everything();
        let report = assemble(&checkpoint.manifest, &checkpoint.indexes, &wanted, sources, &mut out)?;
        Ok((out, report))
    }
}

/// Returns every file below `dir`, as text for comparisons.
pub fn files_below(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push(path.display().to_string());
        }
    }
    found.sort();
    found
}

/// Deterministic pseudorandom numbers.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

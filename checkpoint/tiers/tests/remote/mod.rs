//! A small job and object stores to push it to: in memory, with counted and failing requests, and in a folder.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use object_store::memory::InMemory;
use object_store::path::Path;
use rankguard_checkpoint::Store;
use rankguard_checkpoint::format::{CheckpointId, KnownChunks, Manifest, ShardIndex};
use rankguard_checkpoint_tiers::object::{ObjectLimits, ObjectTier};
use tempfile::TempDir;

use crate::common::{Job, job};
use crate::shaky::{Counts, Shaky};

/// Images of some 90 KiB in chunks of 1 KiB; parts are smaller, so that there are many.
pub const LARGE: Job = Job {
    world: 2,
    rows: 64,
    columns: 2_800,
    chunk_bytes: 1024,
};

pub const LIMITS: ObjectLimits = ObjectLimits {
    deadline: Duration::from_secs(5),
    requests: 4,
    part_bytes: 10_000,
};

pub fn store() -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("store")).unwrap();
    (folder, store)
}

pub fn in_memory() -> (ObjectTier, Arc<Counts>, Arc<InMemory>) {
    let memory = Arc::new(InMemory::new());
    let (shaky, counts) = Shaky::over(memory.clone());
    let tier = ObjectTier::over(shaky, Path::from("base"), "mem://base").with_limits(LIMITS);
    (tier, counts, memory)
}

pub fn in_folder(folder: &FilePath) -> ObjectTier {
    ObjectTier::open(&format!("file://{}", folder.display()))
        .unwrap()
        .with_limits(LIMITS)
}

pub fn same_files(one: &Store, other: &Store, checkpoint: CheckpointId, world: u32) {
    let mut paths = vec![Store::manifest_path(one, &job(), checkpoint).unwrap()];
    for rank in 0..world {
        let rank = rankguard_model::Rank(rank);
        paths.push(one.shard_path(&job(), checkpoint, rank).unwrap());
        paths.push(one.index_path(&job(), checkpoint, rank).unwrap());
    }
    for path in paths {
        let there = other.root().join(path.strip_prefix(one.root()).unwrap());
        assert!(
            std::fs::read(&path).unwrap() == std::fs::read(&there).unwrap(),
            "{} differs",
            there.display()
        );
    }
}

pub fn flip(path: &FilePath, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// A checkpoint whose ranks borrow all but the last chunk of `weight` from the one at `base`.
pub fn save_delta(store: &Store, shape: &Job, base: CheckpointId, checkpoint: CheckpointId) -> Manifest {
    let mut seals = Vec::new();
    for rank in 0..shape.world {
        let (like, mut image) = shape.sealed(base, rank);
        image[10] ^= checkpoint.step.0 as u8 | 0x80;
        let mut index = ShardIndex {
            step: checkpoint.step,
            generation: checkpoint.generation,
            ..like
        };
        index.digest_image(&image);
        let mut known = KnownChunks::default();
        known.add(&store.load(&job(), base).unwrap().indexes[rank as usize]);
        let written = store.write_new(&index, &image.as_slice(), &known).unwrap();
        assert!(written.new_bytes < index.image_bytes / 2);
        seals.push(written.seal);
    }
    let manifest = Manifest::from_seals(&job(), checkpoint, Some(base), &seals).unwrap();
    store.commit(&manifest).unwrap();
    manifest
}

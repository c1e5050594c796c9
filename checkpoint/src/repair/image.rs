//! Repair of chunks: reads every chunk of an image, and overwrites damaged ones in place with verified copies.

use std::collections::BTreeMap;
use std::path::Path;

use rankguard_model::{Rank, with_causes};

use super::{CheckpointRepair, RepairEntry};
use crate::format::{ChunkDigest, ChunkOrigin, ChunkPlace, ShardIndex, TENSOR_ALIGN};
use crate::source::ChunkId;
use crate::store::direct::SectorBuffer;
use crate::store::reader::RangeReader;
use crate::store::{StoreError, StoreProblem, files, runs};

impl CheckpointRepair<'_> {
    /// Repairs every chunk of an image, including borrowed ones, and the length of its own file.
    pub(super) fn image(&mut self, index: &ShardIndex) -> Result<(), StoreError> {
        let mut damaged: BTreeMap<ChunkOrigin, BTreeMap<u32, String>> = BTreeMap::new();
        let mut buffer = SectorBuffer::default();
        for run in runs::of((0u32..).zip(index.places()).collect()) {
            let path = self.store.shard_path(self.job, run.file.id(), run.file.rank)?;
            let reader = RangeReader::open(&path);
            let read = reader.map_err(|error| with_causes(&error)).and_then(|reader| {
                let read = reader.read(&run.range(reader.bytes()), &mut buffer);
                read.map(|bytes| run.damage(index, bytes))
                    .map_err(|error| format!("cannot be read: {error}"))
            });
            let found = match read {
                Ok(found) => found,
                // Find out chunk by chunk what is still good.
                Err(_) if run.chunks.len() > 1 => self.one_by_one(index, &path, run.chunks.clone(), &mut buffer),
                Err(what) => vec![(run.chunks[0].0, what)],
            };
            damaged.entry(run.file).or_default().extend(found);
        }
        let own = index.own();
        damaged.entry(own).or_default();
        for (file, chunks) in damaged {
            let length = (file == own).then(|| index.file_bytes());
            self.file(index, file, length, &chunks)?;
        }
        Ok(())
    }

    fn one_by_one(
        &self,
        index: &ShardIndex,
        path: &Path,
        chunks: Vec<(u32, ChunkPlace)>,
        buffer: &mut SectorBuffer,
    ) -> Vec<(u32, String)> {
        let mut found = Vec::new();
        for run in chunks.into_iter().flat_map(|chunk| runs::of(vec![chunk])) {
            let read = RangeReader::open(path)
                .map_err(|error| with_causes(&error))
                .and_then(|reader| {
                    let read = reader.read(&run.range(reader.bytes()), buffer);
                    read.map(|bytes| run.damage(index, bytes))
                        .map_err(|error| format!("cannot be read: {error}"))
                });
            match read {
                Ok(damage) => found.extend(damage),
                Err(what) => found.push((run.chunks[0].0, what)),
            }
        }
        found
    }

    /// Writes good copies of `chunks` of `index` into the file that stores them. `length` is the required length of the
    /// file; `None` for a file of another checkpoint, which may be longer than what this one borrows from it.
    fn file(
        &mut self,
        index: &ShardIndex,
        file: ChunkOrigin,
        length: Option<u64>,
        chunks: &BTreeMap<u32, String>,
    ) -> Result<(), StoreError> {
        let path = self.store.shard_path(self.job, file.id(), file.rank)?;
        let chunking = index.chunking();
        let places = index.places();
        let mut parts = Vec::new();
        let mut mended = Vec::new();
        for (chunk, what) in chunks {
            let place = places[*chunk as usize];
            let id = ChunkId {
                job: self.job.clone(),
                checkpoint: index.id(),
                rank: index.rank,
                chunk: *chunk,
                at: chunking.range(*chunk).map_or(0, |range| range.start),
                place,
                digest: index.chunks[*chunk as usize],
            };
            let tensors = vec![index.tensor_in(*chunk).to_owned()];
            let Some((bytes, from)) = self.good_copy(&id) else {
                self.left.push(StoreProblem {
                    checkpoint: Some(self.id),
                    file: path.clone(),
                    rank: Some(index.rank),
                    chunk: Some(*chunk),
                    tensors,
                    what: what.clone(),
                });
                continue;
            };
            mended.push(RepairEntry {
                checkpoint: self.id,
                file: path.clone(),
                rank: Some(index.rank),
                chunk: Some(*chunk),
                tensors,
                bytes: bytes.len() as u64,
                what: what.clone(),
                from,
            });
            parts.push((place.at, bytes));
        }
        let found = files::open(&path).ok().map(|(_, bytes)| bytes);
        let whole = match length {
            Some(length) => {
                if found != Some(length) && mended.is_empty() && parts.len() == chunks.len() {
                    mended.push(self.cut(&path, index.rank, length, found));
                }
                Some(length)
            }
            None => found,
        };
        if mended.is_empty() {
            return Ok(());
        }
        // The padding after a chunk is zero, up to the earliest start of the next one.
        let end = parts
            .iter()
            .map(|(at, bytes)| at + bytes.len() as u64)
            .max()
            .unwrap_or(0);
        let whole = whole.map_or(end, |whole| if length.is_some() { whole } else { whole.max(end) });
        for (at, bytes) in &mut parts {
            let padded = (*at + bytes.len() as u64)
                .next_multiple_of(TENSOR_ALIGN)
                .min(whole.max(end));
            bytes.resize((padded - *at) as usize, 0);
        }
        if let Some(dir) = path.parent() {
            files::ensure_dir(dir)?;
        }
        files::repair_ranges(&path, whole, &parts)?;
        self.mended.append(&mut mended);
        Ok(())
    }

    /// Returns the report entry of a file with good chunks but a wrong length.
    fn cut(&self, path: &Path, rank: Rank, length: u64, found: Option<u64>) -> RepairEntry {
        RepairEntry {
            checkpoint: self.id,
            file: path.to_owned(),
            rank: Some(rank),
            chunk: None,
            tensors: Vec::new(),
            bytes: 0,
            what: match found {
                Some(found) => format!("is {found} bytes long where {length} are expected"),
                None => "is missing, and empty".to_owned(),
            },
            from: "its index".to_owned(),
        }
    }

    /// Returns a copy with the right digest, and the name of the mirror that supplied it.
    fn good_copy(&self, id: &ChunkId) -> Option<(Vec<u8>, String)> {
        self.mirrors.iter().find_map(|mirror| {
            let bytes = mirror.chunk(id).ok()??;
            let right = bytes.len() == id.bytes() as usize && ChunkDigest::of(&bytes) == id.digest;
            right.then(|| (bytes, mirror.name()))
        })
    }
}

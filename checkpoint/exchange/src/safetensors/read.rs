//! Reader of safetensors files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rankguard_checkpoint::format::MAX_STATE_BYTES;
use serde::Deserialize;
use serde_json::Value;

use super::header::{MAX_HEADER_BYTES, SafetensorsHeader};
use super::{INDEX_FILE, keys};
use crate::files;
use crate::foreign::{ForeignCheckpoint, TensorPart};
use crate::problem::ProblemList;
use crate::volume::FileVolume;
use crate::{ExchangeError, ProgressCallback};

/// Maximum size in bytes of an index over several files.
const MAX_INDEX_BYTES: u64 = 100_000_000;

/// Bytes read at a time while digests are compared.
const BLOCK: usize = 1 << 20;

/// Opens one file, or a directory with one or several, with or without an index. Reads and compares all tensors for
/// which a file carries digests, and reports that work to `progress`.
pub fn open(path: &Path, progress: ProgressCallback<'_>) -> Result<ForeignCheckpoint, ExchangeError> {
    let mut reader = SafetensorsReader::default();
    if path.is_dir() {
        let index = path.join(INDEX_FILE);
        if index.symlink_metadata().is_ok() {
            reader.indexed(path, &index)?;
        } else {
            for file in unindexed(path)? {
                reader.file(&file, None)?;
            }
        }
    } else {
        reader.file(path, None)?;
    }
    reader.compare(progress)?;
    Ok(reader.finish())
}

#[derive(Deserialize)]
struct WeightIndex {
    weight_map: BTreeMap<String, String>,
}

/// Returns the files of a directory without an index, sorted by name.
fn unindexed(dir: &Path) -> Result<Vec<PathBuf>, ExchangeError> {
    let entries = fs::read_dir(dir).map_err(ExchangeError::io("list", dir))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(ExchangeError::io("list", dir))?.path();
        if path.extension().is_some_and(|ending| ending == "safetensors") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Tensor for which a file carries a digest.
struct DigestedTensor {
    path: PathBuf,
    name: String,
    offset: u64,
    bytes: u64,
    digest: String,
}

#[derive(Default)]
struct SafetensorsReader {
    volume: FileVolume,
    parts: Vec<TensorPart>,
    names: BTreeSet<String>,
    stated: Vec<DigestedTensor>,
    metadata: BTreeMap<String, String>,
    problems: ProblemList,
}

impl SafetensorsReader {
    fn indexed(&mut self, dir: &Path, path: &Path) -> Result<(), ExchangeError> {
        let bytes = files::read(path, MAX_INDEX_BYTES)?;
        let index: WeightIndex = serde_json::from_slice(&bytes)
            .map_err(|error| ExchangeError::malformed(path, format!("no index of safetensors files: {error}")))?;
        let mut by_file: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (name, file) in &index.weight_map {
            by_file.entry(file).or_default().insert(name);
        }
        for (name, wanted) in by_file {
            let file = files::below(dir, name).ok_or_else(|| {
                ExchangeError::malformed(path, format!("names a file outside of its folder: {name:?}"))
            })?;
            self.file(&file, Some(&wanted))?;
        }
        Ok(())
    }

    /// Adds the tensors of a file: all, or those that the index assigns to it.
    fn file(&mut self, path: &Path, wanted: Option<&BTreeSet<&str>>) -> Result<(), ExchangeError> {
        let (header, data_at) = header_of(path)?;
        let digests: BTreeMap<String, String> = match header.metadata.get(keys::DIGESTS) {
            Some(text) => serde_json::from_str(text)
                .map_err(|error| ExchangeError::malformed(path, format!("metadata {}: {error}", keys::DIGESTS)))?,
            None => BTreeMap::new(),
        };
        let number = self.volume.file(path.to_owned());
        let mut found = BTreeSet::new();
        for tensor in &header.tensors {
            let name = tensor.name.as_str();
            if wanted.is_some_and(|wanted| !wanted.contains(name)) {
                self.problems
                    .add(name, format!("is in {} and not in the index; left out", path.display()));
                continue;
            }
            found.insert(name);
            if !self.names.insert(tensor.name.clone()) {
                return Err(ExchangeError::malformed(
                    path,
                    format!("tensor {name} is in another file as well"),
                ));
            }
            let boxed = match tensor.boxed() {
                Ok(boxed) => boxed,
                Err(what) => {
                    self.problems.add(name, format!("{what}; left out"));
                    continue;
                }
            };
            let offset = data_at + tensor.start;
            let bytes = tensor.end - tensor.start;
            if let Some(digest) = digests.get(name) {
                self.stated.push(DigestedTensor {
                    path: path.to_owned(),
                    name: name.to_owned(),
                    offset,
                    bytes,
                    digest: digest.clone(),
                });
            }
            let at = self.volume.add(number, offset, bytes, None);
            let at = at.ok_or_else(|| ExchangeError::malformed(path, "all tensors exceed 64 bits in size"))?;
            self.parts.push(TensorPart { boxed, at });
        }
        if let Some(missing) = wanted.and_then(|wanted| wanted.iter().find(|name| !found.contains(**name))) {
            let what = format!("tensor {missing} is not in it, and the index says so");
            return Err(ExchangeError::malformed(path, what));
        }
        self.metadata.extend(header.metadata);
        Ok(())
    }

    /// Compares every tensor that has a digest.
    fn compare(&self, progress: ProgressCallback<'_>) -> Result<(), ExchangeError> {
        let total = self.stated.iter().map(|stated| stated.bytes).sum();
        let mut done = 0;
        let mut block = vec![0; BLOCK];
        for stated in &self.stated {
            let path = &stated.path;
            let (file, _) = files::open(path)?;
            let mut hasher = blake3::Hasher::new();
            let mut at = 0;
            while at < stated.bytes {
                let count = usize::try_from(stated.bytes - at).unwrap_or(BLOCK).min(BLOCK);
                file.read_exact_at(&mut block[..count], stated.offset + at)
                    .map_err(ExchangeError::io("read", path))?;
                hasher.update(&block[..count]);
                at += count as u64;
                done += count as u64;
                progress(done, total);
            }
            let found = hasher.finalize().to_hex();
            if found.as_str() != stated.digest {
                return Err(ExchangeError::Damaged {
                    path: path.clone(),
                    entry: format!("tensor {}", stated.name),
                    what: format!("its BLAKE3 digest is {found}, the file says {}", stated.digest),
                });
            }
        }
        Ok(())
    }

    fn finish(mut self) -> ForeignCheckpoint {
        let states = match self.metadata.get(keys::STATES).map(|text| serde_json::from_str(text)) {
            Some(Ok(Value::Array(states))) => states,
            Some(_) => {
                self.problems.add(keys::STATES, "is no list of states; left out");
                Vec::new()
            }
            None => self.free_text(),
        };
        ForeignCheckpoint::new("safetensors", self.parts, self.volume, states, self.problems)
    }

    /// Returns the `__metadata__` entries of another writer as a state.
    fn free_text(&mut self) -> Vec<Value> {
        let own = |key: &String| key.starts_with("rankguard.") || key == "format";
        let text: BTreeMap<&String, &String> = self.metadata.iter().filter(|(key, _)| !own(key)).collect();
        let bytes: usize = text.iter().map(|(key, value)| key.len() + value.len()).sum();
        if bytes > MAX_STATE_BYTES / 2 {
            self.problems.add(
                "__metadata__",
                format!("has {bytes} bytes, too many for a state; left out"),
            );
            return Vec::new();
        }
        if text.is_empty() {
            return Vec::new();
        }
        vec![serde_json::json!(text)]
    }
}

/// Reads the header of a file; returns it with the offset of the tensor data.
fn header_of(path: &Path) -> Result<(SafetensorsHeader, u64), ExchangeError> {
    let (file, length) = files::open(path)?;
    let malformed = |what: String| ExchangeError::malformed(path, what);
    let mut word = [0; 8];
    if length < 8 {
        return Err(malformed(format!("has {length} bytes, too few for a safetensors file")));
    }
    file.read_exact_at(&mut word, 0)
        .map_err(ExchangeError::io("read", path))?;
    let header = u64::from_le_bytes(word);
    if header > MAX_HEADER_BYTES || header > length - 8 {
        return Err(malformed(format!(
            "no safetensors file, or cut short: a header of {header} bytes in a file of {length}"
        )));
    }
    let mut json = vec![0; header as usize];
    file.read_exact_at(&mut json, 8)
        .map_err(ExchangeError::io("read", path))?;
    let parsed = SafetensorsHeader::parse(&json, length - 8 - header).map_err(|error| malformed(error.to_string()))?;
    Ok((parsed, 8 + header))
}

//! Reader of a DCP directory.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use rankguard_checkpoint::format::TensorBox;
use serde_json::{Map, Value};

use super::METADATA_FILE;
use super::archive::ArchiveReader;
use super::item::{self, ItemError, TensorItem};
use super::metadata::{DcpChunk, DcpMetadata, DcpTensor, ItemLocation, MAX_BYTES, MetadataError};
use crate::files;
use crate::foreign::{ForeignCheckpoint, TensorPart};
use crate::problem::ProblemList;
use crate::volume::FileVolume;
use crate::{ExchangeError, ProgressCallback};

/// Opens a directory: reads the table of contents, locates every item, compares its checksum, and reports that work to
/// `progress`. A tensor or value that a checkpoint cannot hold becomes a problem; a damaged or missing one is an error.
pub fn open(dir: &Path, progress: ProgressCallback<'_>) -> Result<ForeignCheckpoint, ExchangeError> {
    let path = dir.join(METADATA_FILE);
    let bytes = files::read(&path, MAX_BYTES as u64)?;
    let metadata = DcpMetadata::parse(&bytes).map_err(|error| match error {
        MetadataError::Pickle(source) => ExchangeError::Pickle {
            path: path.clone(),
            source,
        },
        other => ExchangeError::malformed(&path, other.to_string()),
    })?;
    let total = metadata
        .places
        .values()
        .fold(0u64, |sum, place| sum.saturating_add(place.length));
    let mut reader = DcpReader {
        dir,
        metadata: &metadata,
        volume: FileVolume::default(),
        files: BTreeMap::new(),
        open: None,
        parts: Vec::new(),
        problems: ProblemList::default(),
        unchecked: 0,
        done: 0,
        total,
        progress,
    };
    for (name, what) in &metadata.odd {
        reader.problems.add(name.as_str(), format!("{what}; left out"));
    }
    for (name, tensor) in &metadata.tensors {
        reader.tensor(name, tensor)?;
    }
    let mut state = Map::new();
    for name in &metadata.values {
        reader.value(name, &mut state)?;
    }
    if reader.unchecked > 0 {
        let what = format!(
            "{} items were saved without checksums; whether they are as they were written cannot be told",
            reader.unchecked
        );
        reader.problems.add(dir.display().to_string(), what);
    }
    let states = if state.is_empty() {
        Vec::new()
    } else {
        vec![Value::Object(state)]
    };
    Ok(ForeignCheckpoint::new(
        "dcp",
        reader.parts,
        reader.volume,
        states,
        reader.problems,
    ))
}

struct DcpReader<'a> {
    dir: &'a Path,
    metadata: &'a DcpMetadata,
    volume: FileVolume,
    /// Number and length of each file in the volume.
    files: BTreeMap<&'a str, (usize, u64)>,
    /// File that was used last.
    open: Option<(&'a str, PathBuf, File)>,
    parts: Vec<TensorPart>,
    problems: ProblemList,
    unchecked: u64,
    done: u64,
    total: u64,
    progress: ProgressCallback<'a>,
}

impl<'a> DcpReader<'a> {
    fn tensor(&mut self, name: &'a str, tensor: &DcpTensor) -> Result<(), ExchangeError> {
        let dtype = match &tensor.dtype {
            Ok(dtype) => *dtype,
            Err(dtype) => {
                self.problems
                    .add(name, format!("its element type {dtype} cannot be kept; left out"));
                return Ok(());
            }
        };
        let mut parts = Vec::with_capacity(tensor.chunks.len());
        for chunk in &tensor.chunks {
            let boxed = TensorBox {
                name: name.to_owned(),
                dtype,
                global_shape: tensor.size.clone(),
                offset: chunk.offsets.clone(),
                shape: chunk.sizes.clone(),
            };
            if let Err(error) = boxed.check() {
                self.problems.add(name, format!("{error}; left out"));
                return Ok(());
            }
            match self.chunk(name, &boxed, chunk)? {
                Ok(part) => parts.push(part),
                Err(what) => {
                    self.problems.add(name, format!("{what}; left out"));
                    return Ok(());
                }
            }
        }
        if parts.is_empty() {
            self.problems.add(name, "has no chunks; left out");
        }
        self.parts.append(&mut parts);
        Ok(())
    }

    fn chunk(
        &mut self,
        name: &'a str,
        boxed: &TensorBox,
        chunk: &DcpChunk,
    ) -> Result<Result<TensorPart, String>, ExchangeError> {
        let key = (name.to_owned(), Some(chunk.offsets.clone()));
        let Some(place) = self.metadata.places.get(&key) else {
            return Err(self.missing(name, &format!("its chunk at {:?}", chunk.offsets)));
        };
        if place.is_transformed {
            return Ok(Err("its bytes were compressed or transformed".to_owned()));
        }
        let item = match self.item(name, place, |archive, each| {
            let item = item::tensor(archive)?;
            if archive.has_checksums() {
                archive.check(&item.record.0, &item.record.1, each)?;
            }
            Ok((item, archive.has_checksums()))
        })? {
            Ok((item, is_checked)) => {
                self.unchecked += u64::from(!is_checked);
                item
            }
            Err(what) => return Ok(Err(what)),
        };
        if item.dtype != boxed.dtype || item.shape != boxed.shape {
            let what = format!(
                "is {} of shape {:?} in its file and {} of {:?} in the metadata",
                item.dtype, item.shape, boxed.dtype, boxed.shape
            );
            return Err(self.damaged(name, place, what));
        }
        self.place(boxed, place, item).map(Ok)
    }

    fn place(
        &mut self,
        boxed: &TensorBox,
        place: &'a ItemLocation,
        item: TensorItem,
    ) -> Result<TensorPart, ExchangeError> {
        let (number, _) = self.files[place.file.as_str()];
        let bytes = boxed.bytes().unwrap_or(0);
        let at = self.volume.add(number, item.offset, bytes, item.strided);
        let too_large = || ExchangeError::malformed(self.dir, "all tensors exceed 64 bits in size");
        Ok(TensorPart {
            boxed: boxed.clone(),
            at: at.ok_or_else(too_large)?,
        })
    }

    fn value(&mut self, name: &'a str, state: &mut Map<String, Value>) -> Result<(), ExchangeError> {
        let Some(place) = self.metadata.places.get(&(name.to_owned(), None)) else {
            return Err(self.missing(name, "it"));
        };
        if place.is_transformed {
            self.problems
                .add(name, "its bytes were compressed or transformed; left out");
            return Ok(());
        }
        let found = self.item(name, place, |archive, _| {
            Ok((item::value(archive)?, archive.has_checksums()))
        })?;
        match found {
            Ok(((value, notes), is_checked)) => {
                self.unchecked += u64::from(!is_checked);
                state.insert(name.to_owned(), value);
                notes.into_iter().for_each(|note| self.problems.add(name, note));
            }
            Err(what) => self.problems.add(name, format!("{what}; left out")),
        }
        Ok(())
    }

    /// Opens an item's archive and parses it with `read`. The inner error is for an intact item that cannot be
    /// imported.
    fn item<T>(
        &mut self,
        name: &str,
        place: &'a ItemLocation,
        read: impl FnOnce(&ArchiveReader<'_>, &mut dyn FnMut(u64)) -> Result<T, ItemError>,
    ) -> Result<Result<T, String>, ExchangeError> {
        let (_, length) = self.file(&place.file)?;
        if place.offset.checked_add(place.length).is_none_or(|end| end > length) {
            let offset = place.offset;
            let bytes = place.length;
            let what = format!("its {bytes} bytes at {offset} go beyond the file's {length}: the file was cut short");
            return Err(self.damaged(name, place, what));
        }
        let Some((_, _, file)) = &self.open else {
            return Err(self.missing(name, "its file"));
        };
        let done = self.done;
        let total = self.total;
        let progress = &mut *self.progress;
        let mut within = 0;
        let archive = ArchiveReader::open(file, place.offset, place.length).map_err(ItemError::from);
        let read = archive.and_then(|archive| {
            read(&archive, &mut |bytes| {
                within += bytes;
                progress(done.saturating_add(within), total);
            })
        });
        self.done = self.done.saturating_add(place.length);
        match read {
            Ok(found) => Ok(Ok(found)),
            Err(ItemError::Unfit(what)) => Ok(Err(what)),
            Err(ItemError::Broken(error)) => Err(self.damaged(name, place, error.to_string())),
        }
    }

    /// Opens a file if it is not the current one; returns its number in the volume and its length.
    fn file(&mut self, name: &'a str) -> Result<(usize, u64), ExchangeError> {
        if let (Some((open, _, _)), Some(known)) = (&self.open, self.files.get(name))
            && *open == name
        {
            return Ok(*known);
        }
        let path = files::below(self.dir, name).ok_or_else(|| {
            let what = format!("names a file outside of its folder: {name:?}");
            ExchangeError::malformed(&self.dir.join(METADATA_FILE), what)
        })?;
        let (file, length) = files::open(&path)?;
        let volume = &mut self.volume;
        let known = *self
            .files
            .entry(name)
            .or_insert_with(|| (volume.file(path.clone()), length));
        self.open = Some((name, path, file));
        Ok(known)
    }

    fn missing(&self, name: &str, what: &str) -> ExchangeError {
        let path = self.dir.join(METADATA_FILE);
        ExchangeError::malformed(&path, format!("{name}: storage_data does not say where {what} lies"))
    }

    fn damaged(&self, name: &str, place: &ItemLocation, what: String) -> ExchangeError {
        ExchangeError::Damaged {
            path: self.dir.join(&place.file),
            entry: name.chars().take(256).collect(),
            what,
        }
    }
}

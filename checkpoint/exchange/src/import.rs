//! Import of foreign files into a committed checkpoint.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rankguard_checkpoint::format::{
    CheckpointId, MAX_STATE_BYTES, MAX_WORLD_SIZE, Manifest, PlanError, RangeCopy, TensorBox, TensorEntry, plan,
};
use rankguard_checkpoint::{ImageSource, Store, StoreError};
use rankguard_model::{JobId, Rank};
use serde_json::Value;

use crate::foreign::{ForeignCheckpoint, TensorPart};
use crate::{ExchangeError, ImportProblem, ProgressCallback, dcp, safetensors};

/// Target of an import.
#[derive(Debug, Clone)]
pub struct ImportTarget<'a> {
    /// Job that owns the new checkpoint.
    pub job: &'a JobId,
    /// Step and generation of the new checkpoint.
    pub id: CheckpointId,
    /// Number of ranks to shard for.
    pub ranks: u32,
}

/// Result of an import.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ImportReport {
    /// Name of the source format: `safetensors` or `dcp`.
    pub format: &'static str,
    /// Number of imported tensors.
    pub tensors: u64,
    /// Size of the imported tensors in bytes.
    pub bytes: u64,
    /// Entries that were left out, with the reason.
    pub problems: Vec<ImportProblem>,
    /// True if the checkpoint was committed before with the same content; then nothing was written.
    pub is_already_imported: bool,
}

/// Opens `path`: a `.safetensors` file, a directory of such files, or a DCP directory. Compares stored checksums and
/// reports that work to `progress`.
pub fn open(path: &Path, progress: ProgressCallback<'_>) -> Result<ForeignCheckpoint, ExchangeError> {
    if path.join(dcp::METADATA_FILE).is_file() {
        return dcp::open(path, progress);
    }
    let ends_so = |path: &Path| path.extension().is_some_and(|ending| ending == "safetensors");
    let has_some = || {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).any(|path| ends_so(&path))
    };
    path.metadata().map_err(ExchangeError::io("open", path))?;
    if ends_so(path) || path.is_dir() && has_some() {
        return safetensors::open(path, progress);
    }
    let path = path.to_owned();
    Err(ExchangeError::UnknownFormat { path })
}

/// Writes the shards and commits them. Tensors with at least as many rows as there are ranks are split by rows as
/// evenly as possible; each other tensor goes whole to the rank with the fewest bytes so far.
///
/// The caller ensures that no run of the job is active: this commits without a controller.
pub fn import(
    store: &Store,
    foreign: &ForeignCheckpoint,
    of: &ImportTarget<'_>,
    progress: ProgressCallback<'_>,
) -> Result<ImportReport, ExchangeError> {
    check(store, foreign, of)?;
    let (states, mut problems) = states(foreign, of.ranks)?;
    problems.extend(foreign.problems.iter().cloned());
    let mut report = ImportReport {
        format: foreign.format,
        tensors: foreign.parts.len() as u64,
        bytes: foreign.bytes(),
        problems,
        is_already_imported: false,
    };
    let total = foreign.bytes().saturating_mul(2);
    if store.committed_ids(of.job)?.contains(&of.id) {
        if !holds(store, foreign, of, states, progress)? {
            let path = store.manifest_path(of.job, of.id)?;
            return Err(StoreError::Conflict { path }.into());
        }
        report.is_already_imported = true;
        return Ok(report);
    }
    let mut done = 0;
    let mut seals = Vec::with_capacity(of.ranks as usize);
    for (rank, (boxes, state)) in cut(foreign, of.ranks).into_iter().zip(states).enumerate() {
        let image = RankImage::new(foreign, &boxes);
        let mut count = |bytes| {
            done += bytes;
            progress(done, total);
        };
        let counted = CountingImage {
            image: &image,
            count: Mutex::new(&mut count),
        };
        let rank = Rank(rank as u32);
        seals.push(crate::shard::write(store, of, rank, boxes, state, &counted)?);
    }
    let manifest = Manifest::from_seals(of.job, of.id, None, &seals)?;
    store.commit(&manifest)?;
    Ok(report)
}

/// Returns true if the committed checkpoint has the tensors, bytes and states that an import would write.
fn holds(
    store: &Store,
    foreign: &ForeignCheckpoint,
    of: &ImportTarget<'_>,
    states: Vec<Value>,
    progress: ProgressCallback<'_>,
) -> Result<bool, ExchangeError> {
    let checkpoint = store.load(of.job, of.id)?;
    if checkpoint.indexes.len() != states.len() {
        return Ok(false);
    }
    let mut done = 0;
    let ranks = cut(foreign, of.ranks).into_iter().zip(states);
    for ((boxes, state), committed) in ranks.zip(&checkpoint.indexes) {
        let image = RankImage::new(foreign, &boxes);
        let mut count = |bytes| {
            done += bytes;
            progress(done, foreign.bytes());
        };
        let counted = CountingImage {
            image: &image,
            count: Mutex::new(&mut count),
        };
        let index = crate::shard::index_of(of, committed.rank, boxes, state, &counted)?;
        let is_same = index.tensors == committed.tensors
            && index.state == committed.state
            && index.chunk_bytes == committed.chunk_bytes
            && index.chunks == committed.chunks;
        if !is_same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Checks in advance every condition of the commit, and that the parts of each tensor leave no holes.
fn check(store: &Store, foreign: &ForeignCheckpoint, of: &ImportTarget<'_>) -> Result<(), ExchangeError> {
    if !(1..=MAX_WORLD_SIZE).contains(&of.ranks) {
        let what = format!(
            "cannot cut a checkpoint for {} ranks; use 1 to {MAX_WORLD_SIZE}",
            of.ranks
        );
        return Err(ExchangeError::Unfit { what });
    }
    if foreign.parts.is_empty() {
        let why = foreign.problems.first();
        let why = why.map(|problem| format!("{}: {}", problem.entry, problem.what));
        return Err(ExchangeError::Nothing { what: "import", why });
    }
    let job = of.job.clone();
    let id = of.id;
    if let Some(record) = store.run_record(&job)? {
        let what = format!(
            "cannot import into the folder of run {}; name another job, and start from it with `rankguard run --resume-from`",
            record.run
        );
        return Err(ExchangeError::Unfit { what });
    }
    let committed = store.committed_ids(&job)?;
    let is_committed = committed.contains(&id);
    let newer = committed.into_iter().find(|other| other.generation > id.generation);
    if let Some(newer) = newer.filter(|_| !is_committed) {
        return Err(StoreError::Fenced { job, id, newer }.into());
    }
    for (name, dtype, shape) in foreign.tensors() {
        sweep(&TensorBox::whole(name, dtype, shape.to_vec()), &foreign.parts[name])?;
    }
    Ok(())
}

/// Assigns a state to each rank.
fn states(foreign: &ForeignCheckpoint, ranks: u32) -> Result<(Vec<Value>, Vec<ImportProblem>), ExchangeError> {
    let found = &foreign.states;
    let bytes: usize = found.iter().map(|state| state.to_string().len()).sum();
    if bytes > MAX_STATE_BYTES {
        let what = format!("its state is {bytes} bytes of JSON, more than {MAX_STATE_BYTES}");
        return Err(ExchangeError::Unfit { what });
    }
    let mut states = vec![Value::Null; ranks as usize];
    let mut problems = Vec::new();
    if found.len() == states.len() {
        states.clone_from(found);
    } else if found.iter().skip(1).all(Value::is_null) {
        // Only the first rank has a state, as after an import.
        states[0] = found.first().cloned().unwrap_or(Value::Null);
    } else if !found.is_empty() {
        states[0] = serde_json::json!({ "states": found });
        problems.push(ImportProblem {
            entry: "state".to_owned(),
            what: format!(
                "that of {} ranks stands as a list in rank 0's, since there are {ranks} now",
                found.len()
            ),
        });
    }
    Ok((states, problems))
}

/// Assigns tensor boxes to ranks.
fn cut(foreign: &ForeignCheckpoint, ranks: u32) -> Vec<Vec<TensorBox>> {
    let mut held: Vec<Vec<TensorBox>> = vec![Vec::new(); ranks as usize];
    let mut bytes = vec![0u64; ranks as usize];
    let world = u64::from(ranks);
    for (name, dtype, shape) in foreign.tensors() {
        match shape.first() {
            Some(&rows) if rows >= world => {
                let row = |rank: u64| (u128::from(rows) * u128::from(rank) / u128::from(world)) as u64;
                for (rank, boxes) in held.iter_mut().enumerate() {
                    let part = row(rank as u64)..row(rank as u64 + 1);
                    let part = TensorBox::rows(name, dtype, shape.to_vec(), part);
                    bytes[rank] = bytes[rank].saturating_add(part.bytes().unwrap_or(0));
                    boxes.push(part);
                }
            }
            _ => {
                let least = (0..bytes.len()).min_by_key(|rank| bytes[*rank]).unwrap_or(0);
                let whole = TensorBox::whole(name, dtype, shape.to_vec());
                bytes[least] = bytes[least].saturating_add(whole.bytes().unwrap_or(0));
                held[least].push(whole);
            }
        }
    }
    held
}

/// Returns the byte ranges of the volume that make up a box, in the order of the box.
fn sweep(wanted: &TensorBox, parts: &[TensorPart]) -> Result<Vec<RangeCopy>, PlanError> {
    let mut copies = plan(std::slice::from_ref(wanted), &[crate::shard::as_index(parts)])?;
    copies.sort_unstable_by_key(|copy| copy.dest_at);
    Ok(copies)
}

/// Image of a rank that is assembled from foreign bytes on read.
struct RankImage<'a> {
    foreign: &'a ForeignCheckpoint,
    /// Boxes and their offsets, without empty boxes.
    entries: Vec<(TensorBox, u64)>,
    /// Cached plan of the box that was read last.
    last: Mutex<Option<(usize, Arc<Vec<RangeCopy>>)>>,
}

impl<'a> RankImage<'a> {
    fn new(foreign: &'a ForeignCheckpoint, boxes: &[TensorBox]) -> Self {
        let entries = crate::shard::lay_out(boxes);
        let filled = entries.into_iter().filter(|entry| entry.boxed.bytes() > Some(0));
        Self {
            foreign,
            entries: filled.map(|TensorEntry { boxed, at, .. }| (boxed, at)).collect(),
            last: Mutex::new(None),
        }
    }

    fn copies(&self, nth: usize) -> io::Result<Arc<Vec<RangeCopy>>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, copies)) = &*last
            && *known == nth
        {
            return Ok(Arc::clone(copies));
        }
        let wanted = &self.entries[nth].0;
        let parts = self.foreign.parts.get(&wanted.name).ok_or(io::ErrorKind::NotFound)?;
        let copies = Arc::new(sweep(wanted, parts).map_err(io::Error::other)?);
        *last = Some((nth, Arc::clone(&copies)));
        Ok(copies)
    }

    /// Fills `out` with the bytes of one box, starting at `from`.
    fn read_box(&self, nth: usize, from: u64, out: &mut [u8]) -> io::Result<()> {
        let copies = self.copies(nth)?;
        let first = copies.partition_point(|copy| copy.dest_at + copy.bytes <= from);
        let mut filled = 0;
        for copy in &copies[first..] {
            if filled == out.len() {
                break;
            }
            let skip = from + filled as u64 - copy.dest_at;
            let count = usize::try_from(copy.bytes - skip)
                .unwrap_or(usize::MAX)
                .min(out.len() - filled);
            self.foreign
                .volume
                .read_at(copy.source_at + skip, &mut out[filled..filled + count])?;
            filled += count;
        }
        Ok(())
    }
}

impl ImageSource for RankImage<'_> {
    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        let end = at + out.len() as u64;
        let first = self
            .entries
            .partition_point(|(boxed, start)| start + boxed.bytes().unwrap_or(0) <= at);
        for (nth, (boxed, start)) in self.entries.iter().enumerate().skip(first) {
            if *start >= end {
                break;
            }
            let from = at.max(*start);
            let to = end.min(start + boxed.bytes().unwrap_or(0));
            self.read_box(nth, from - start, &mut out[(from - at) as usize..(to - at) as usize])?;
        }
        Ok(())
    }
}

/// Image that counts the bytes that were read.
struct CountingImage<'a, 'c> {
    image: &'a RankImage<'a>,
    count: Mutex<&'c mut (dyn FnMut(u64) + Send)>,
}

impl ImageSource for CountingImage<'_, '_> {
    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.image.read_at(at, out)?;
        (self.count.lock().unwrap_or_else(PoisonError::into_inner))(out.len() as u64);
        Ok(())
    }
}

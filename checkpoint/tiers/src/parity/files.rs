//! Parity of a checkpoint in files.
//!
//! ```text
//! <root>/<job>/<step:012>-g<generation>/group-00000.parity-0    parity, one file each
//!                                       group-00000.group       the descriptor, written after its parity
//!                                       manifest, rank-*.index  copies of the small files
//! ```
//!
//! `<root>` may be inside the store (`<store>/.parity`, which is not a valid job name): that protects against damage.
//! Only another disk or machine protects against the loss of the store's disk.

use std::collections::hash_map::RandomState;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rankguard_checkpoint::format::{CheckpointId, ShardIndex};
use rankguard_checkpoint::source::{ChunkError, ChunkId, ChunkSource, SourceTier};
use rankguard_checkpoint::{Checkpoint, ImageSource, Store};
use rankguard_model::JobId;
use serde::Serialize;

use super::ParityError;
use super::descriptor::{GroupDescriptor, MAX_DESCRIPTOR_BYTES};
use super::group::{DegradedGroup, OriginalFile, STRIPE_BYTES, encode};
use super::mirror::copy_records;
use crate::shard::files;

/// Result of protecting a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProtectionReport {
    pub id: CheckpointId,
    /// Number of groups.
    pub groups: u32,
    /// Number of parity files of each group.
    pub parity: u32,
    /// Bytes of shards that are now under parity.
    pub shard_bytes: u64,
    /// Bytes of parity.
    pub parity_bytes: u64,
    /// Number of groups that already had their parity.
    pub already: u32,
}

/// File with positional reads; a read past its end fails.
struct PositionalFile(File);

impl ImageSource for PositionalFile {
    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, at)
    }
}

/// Computes parity for the shards of a committed checkpoint: groups of at most `group_size` ranks with `parity` files
/// each. Consecutive ranks, which often share a node, go to different groups. Shards are compared with their digests
/// first, because parity of damaged data would preserve the damage. May be repeated.
pub fn protect(
    store: &Store,
    job: &JobId,
    id: CheckpointId,
    root: &Path,
    group_size: usize,
    parity: usize,
) -> Result<ProtectionReport, ParityError> {
    let checkpoint = store.load(job, id)?;
    let folder = root.join(job.as_str()).join(id.to_string());
    fs::create_dir_all(&folder).map_err(io_error("make", &folder))?;
    let count = checkpoint.indexes.len().div_ceil(group_size.max(1)).max(1);
    let mut done = ProtectionReport {
        id,
        groups: count as u32,
        parity: parity as u32,
        shard_bytes: 0,
        parity_bytes: 0,
        already: 0,
    };
    for group in 0..count {
        let members: Vec<&ShardIndex> = checkpoint.indexes.iter().skip(group).step_by(count).collect();
        let target = folder.join(format!("group-{group:05}.group"));
        let descriptor = if target.exists() {
            let there = read_descriptor(&target)?;
            let same = there
                .members
                .iter()
                .map(|member| member.index)
                .eq(indexes(&checkpoint, &members));
            if !same || there.parity.len() != parity {
                return Err(ParityError::Conflict { path: target });
            }
            done.already += 1;
            there
        } else {
            protect_group(store, &checkpoint, &members, &folder, group, parity)?
        };
        done.shard_bytes += descriptor.members.iter().map(|member| member.bytes).sum::<u64>();
        done.parity_bytes += descriptor.parity_bytes() * descriptor.parity.len() as u64;
    }
    copy_records(store, &checkpoint, &folder)?;
    Ok(done)
}

fn indexes<'a>(
    checkpoint: &'a Checkpoint,
    members: &'a [&ShardIndex],
) -> impl Iterator<Item = rankguard_checkpoint::format::Digest> + 'a {
    members
        .iter()
        .map(|index| checkpoint.manifest.shards[index.rank.0 as usize].index)
}

fn protect_group(
    store: &Store,
    checkpoint: &Checkpoint,
    members: &[&ShardIndex],
    folder: &Path,
    group: usize,
    parity: usize,
) -> Result<GroupDescriptor, ParityError> {
    let job = &checkpoint.manifest.job;
    let mut opened = Vec::with_capacity(members.len());
    for index in members {
        let path = store.shard_path(job, index.id(), index.rank)?;
        let file = File::open(&path).map_err(io_error("open", &path))?;
        intact(index, &file)?;
        opened.push(PositionalFile(file));
    }
    let originals: Vec<OriginalFile<'_>> = members
        .iter()
        .zip(&opened)
        .zip(indexes(checkpoint, members))
        .map(|((index, content), digest)| OriginalFile {
            file: index.own(),
            bytes: index.file_bytes(),
            index: digest,
            content,
        })
        .collect();
    let mut temps = Vec::with_capacity(parity);
    for nth in 0..parity {
        temps.push(ParityTempFile::start(
            folder.join(format!("group-{group:05}.parity-{nth}")),
        )?);
    }
    let descriptor = encode(job, &originals, parity, STRIPE_BYTES, |nth, bytes| {
        temps[nth].file.write_all(bytes)
    })?;
    temps.into_iter().try_for_each(ParityTempFile::put)?;
    let last = ParityTempFile::start(folder.join(format!("group-{group:05}.group")))?;
    last.put_bytes(&descriptor.to_bytes())?;
    Ok(descriptor)
}

/// Compares a shard with its digests.
fn intact(index: &ShardIndex, file: &File) -> Result<(), ParityError> {
    let own = index.own();
    let mut buffer = Vec::new();
    for shard in files(std::slice::from_ref(index))
        .iter()
        .filter(|shard| shard.file == own)
    {
        for piece in shard.pieces(shard.bytes, 4 << 20) {
            buffer.resize((piece.range.end - piece.range.start) as usize, 0);
            let read = file.read_exact_at(&mut buffer, piece.range.start);
            read.map_err(|source| ParityError::Read {
                file: own,
                at: piece.range.start,
                source,
            })?;
            piece.check(&buffer).map_err(|wrong| ParityError::Damaged {
                file: own,
                at: wrong.at,
            })?;
        }
    }
    Ok(())
}

/// Removes the parity of checkpoints without a folder in the store; returns their number.
pub fn prune(store: &Store, job: &JobId, root: &Path) -> Result<u64, ParityError> {
    let folder = root.join(job.as_str());
    let entries = match fs::read_dir(&folder) {
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries.map_err(io_error("list", &folder))?,
    };
    let job_is_there = store.job_dir(job)?.is_dir();
    let mut removed = 0;
    for entry in entries {
        let path = entry.map_err(io_error("list", &folder))?.path();
        let id = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.parse::<CheckpointId>().ok());
        let Some(id) = id else { continue };
        let checkpoint = store.dir(job, id)?;
        // A store that is unreadable or not mounted does not prove a removal.
        let is_gone = job_is_there && !checkpoint.try_exists().map_err(io_error("look at", &checkpoint))?;
        if is_gone {
            fs::remove_dir_all(&path).map_err(io_error("remove", &path))?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Parity as a source of a restore, for chunks that the shard files no longer provide.
#[derive(Debug)]
pub struct ParitySource {
    job: JobId,
    groups: Vec<DegradedGroup<'static>>,
    root: PathBuf,
}

impl ParitySource {
    /// Opens the parity of a checkpoint below `root`, and the remaining shards in `store`. Returns an error for each
    /// group that is left out because its descriptor is unreadable or describes shards other than those in the
    /// manifest.
    pub fn open(store: &Store, checkpoint: &Checkpoint, root: &Path) -> Result<(Self, Vec<ParityError>), ParityError> {
        let job = &checkpoint.manifest.job;
        let id = checkpoint.id();
        let folder = root.join(job.as_str()).join(id.to_string());
        let names = descriptor_files(&folder)?;
        let mut groups = Vec::new();
        let mut problems = Vec::new();
        for path in names {
            match Self::group(store, checkpoint, &path) {
                Ok(group) => groups.push(group),
                Err(problem) => problems.push(problem),
            }
        }
        let job = job.clone();
        let root = root.to_owned();
        Ok((Self { job, groups, root }, problems))
    }

    fn group(store: &Store, checkpoint: &Checkpoint, path: &Path) -> Result<DegradedGroup<'static>, ParityError> {
        let descriptor = read_descriptor(path)?;
        let named = |member: &super::ParityMember| {
            let shard = checkpoint.manifest.shards.get(member.file.rank.0 as usize);
            member.file.id() == checkpoint.id() && shard.is_some_and(|shard| shard.index == member.index)
        };
        if descriptor.job != checkpoint.manifest.job || !descriptor.members.iter().all(named) {
            return Err(ParityError::Conflict { path: path.to_owned() });
        }
        degraded_group(store, descriptor, path)
    }
}

impl ChunkSource for ParitySource {
    fn tier(&self) -> SourceTier {
        SourceTier::Disk
    }

    fn name(&self) -> String {
        format!("parity in {}", self.root.display())
    }

    fn chunk(&self, id: &ChunkId) -> Result<Option<Vec<u8>>, ChunkError> {
        let found = self
            .groups
            .iter()
            .find_map(|group| Some((group, group.place(id.place.file)?)));
        let Some((group, member)) = found.filter(|_| id.job == self.job) else {
            return Ok(None);
        };
        let mut bytes = vec![0; id.place.bytes as usize];
        group.read(member, id.place.at, &mut bytes)?;
        Ok(Some(bytes))
    }
}

/// Returns the descriptors in the folder of a checkpoint's parity, by name; empty without a folder.
pub(super) fn descriptor_files(folder: &Path) -> Result<Vec<PathBuf>, ParityError> {
    let mut names: Vec<PathBuf> = match fs::read_dir(folder) {
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => Vec::new(),
        entries => entries
            .map_err(io_error("list", folder))?
            .flatten()
            .map(|entry| entry.path())
            .collect(),
    };
    names.retain(|path| path.extension().is_some_and(|ending| ending == "group"));
    names.sort();
    Ok(names)
}

/// Opens the remaining shards and parity files of a group; `path` is that of its descriptor.
pub(super) fn degraded_group(
    store: &Store,
    descriptor: GroupDescriptor,
    path: &Path,
) -> Result<DegradedGroup<'static>, ParityError> {
    let open = |path: PathBuf| {
        let file = File::open(path).ok()?;
        Some(Box::new(PositionalFile(file)) as Box<dyn ImageSource + Send + Sync>)
    };
    let mut members = Vec::new();
    for member in &descriptor.members {
        members.push(open(store.shard_path(
            &descriptor.job,
            member.file.id(),
            member.file.rank,
        )?));
    }
    let parity = (0..descriptor.parity.len())
        .map(|nth| open(path.with_extension(format!("parity-{nth}"))))
        .collect();
    Ok(DegradedGroup::new(descriptor, members, parity))
}

pub(super) fn read_descriptor(path: &Path) -> Result<GroupDescriptor, ParityError> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(io_error("open", path))?;
    file.take(MAX_DESCRIPTOR_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(io_error("read", path))?;
    GroupDescriptor::from_bytes(&bytes).map_err(|problem| ParityError::Descriptor {
        path: path.to_owned(),
        problem,
    })
}

pub(super) fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ParityError {
    move |source| ParityError::Io {
        what,
        path: path.to_owned(),
        source,
    }
}

/// File under a temporary name until it is complete. Existing parity without a descriptor is replaced: it comes from
/// a run that was killed.
pub(super) struct ParityTempFile {
    file: BufWriter<File>,
    path: PathBuf,
    target: PathBuf,
}

impl ParityTempFile {
    pub(super) fn start(target: PathBuf) -> Result<Self, ParityError> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        // The random name keeps two runs over one store from sharing a file.
        let suffix = RandomState::new().build_hasher().finish();
        let path = target.with_file_name(format!(".tmp-{name}-{suffix:016x}"));
        let file = OpenOptions::new().create_new(true).write(true).open(&path);
        let file = BufWriter::with_capacity(1 << 20, file.map_err(io_error("make", &path))?);
        Ok(Self { file, path, target })
    }

    pub(super) fn put_bytes(mut self, bytes: &[u8]) -> Result<(), ParityError> {
        self.file.write_all(bytes).map_err(io_error("write", &self.target))?;
        self.put()
    }

    fn put(mut self) -> Result<(), ParityError> {
        self.file.flush().map_err(io_error("write", &self.target))?;
        self.file.get_ref().sync_all().map_err(io_error("sync", &self.target))?;
        fs::rename(&self.path, &self.target).map_err(io_error("name", &self.target))?;
        let folder = self.target.parent().unwrap_or(Path::new("."));
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(io_error("sync", folder))
    }
}

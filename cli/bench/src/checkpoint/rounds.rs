//! Rounds of the measurement: plain copies, writes and reads alternate with saves and loads of the engine.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rankguard_checkpoint::arena::{Arena, ArenaError};
use rankguard_checkpoint::format::{CheckpointId, Manifest, ShardIndex};
use rankguard_checkpoint::{Store, in_background};
use rankguard_model::{Generation, JobId, Rank, ShardSeal, Step};

use super::memory::PeakMemory;
use super::messages::{LoadTier, RankReply, RankRequest, TargetMemory};
use super::rank::cpu_seconds;
use super::ranks::{RankProcess, run_on_all};
use super::{BenchOptions, CheckpointFigures, JOB, MemoryFigures, ReshardFigures, llama, median, memory};

/// Arenas of this node, one per rank, and their store.
pub(super) struct NodeArenas {
    arenas: Vec<Arena>,
    store: Store,
    dir: PathBuf,
}

/// Times of one save, in seconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SaveTiming {
    /// Time for which the slowest rank was blocked.
    pub(super) stall: f64,
    /// Time from the start to the commit.
    pub(super) durable: f64,
    /// Processor time of this process and all ranks.
    pub(super) cpu: f64,
}

/// Measures saves, loads and references with the configured ranks, then loads on other numbers of ranks.
pub(super) fn measure(options: &BenchOptions, threads: usize, figures: &mut CheckpointFigures) -> io::Result<()> {
    let dir = tempfile::Builder::new()
        .prefix("rankguard-bench-")
        .tempdir_in(&options.dir)?;
    let own = std::process::id();
    let before = memory::private(own) + memory::shared(own);
    let node = NodeArenas::new(options, options.ranks, &dir.path().join("store"))?;
    let mut ranks = RankProcess::start_all(options.ranks, options.gib, threads, &node.paths())?;
    let mut memcpys = Vec::new();
    let mut writes = Vec::new();
    let mut reads = Vec::new();
    let mut saves = Vec::new();
    let mut colds = Vec::new();
    let mut warms = Vec::new();
    let mut freshes = Vec::new();
    let mut extra = MemoryOverhead::begin(&ranks);
    let alone = options.saves.saturating_sub(options.rounds + 1).max(2);
    let first = saves_alone(&node, &mut ranks, &mut extra, alone, &mut figures.memory)?;
    for round in 0..=options.rounds {
        let step = (alone + round + 1) as u64;
        let reference = |nth: usize| dir.path().join(format!("reference-{nth}"));
        memcpys.push(slowest(&run_on_all(&mut ranks, |_| RankRequest::Memcpy)?));
        saves.push(extra.watch(&node, || node.save(&mut ranks, step))?);
        writes.push(slowest(&run_on_all(&mut ranks, |nth| RankRequest::Write {
            path: reference(nth),
        })?));
        let check = round == 0;
        let (cold, read_s) = node.cold(&mut ranks, step, TargetMemory::Touched, check)?;
        reads.push(read_s);
        let (fresh, read_s) = node.cold(&mut ranks, step, TargetMemory::Fresh, false)?;
        freshes.push((slowest(&fresh), read_s));
        let warm = node.load(&mut ranks, step, (LoadTier::Arena, TargetMemory::Touched), check)?;
        colds.push(slowest(&cold));
        warms.push(slowest(&warm));
        figures.bytes_read_over_needed = ratio(&cold);
        figures.raw.state_bytes = cold.iter().map(|told| told.needed).sum();
        node.forget(step)?;
    }
    figures.memory.peak_with_loads_bytes = extra.most;
    figures.lost_s_per_save = median(
        (0..options.rounds.min(3))
            .map(|nth| node.train(&mut ranks, (alone + options.rounds + 2 + nth) as u64))
            .collect::<io::Result<_>>()?,
    );
    let of = |pick: fn(&SaveTiming) -> f64| median(saves[1..].iter().map(pick).collect());
    let raw = &mut figures.raw;
    (raw.stall_s, raw.durable_s, raw.save_cpu_s) =
        (of(|save| save.stall), of(|save| save.durable), of(|save| save.cpu));
    (raw.memcpy_s, raw.first_stall_s) = (median(memcpys[1..].to_vec()), first.stall);
    (raw.odirect_write_s, raw.odirect_read_s) = (median(writes[1..].to_vec()), median(reads[1..].to_vec()));
    (raw.cold_load_s, raw.warm_load_s) = (median(colds[1..].to_vec()), median(warms[1..].to_vec()));
    (raw.fresh_load_s, raw.fresh_read_s) = (
        median(freshes[1..].iter().map(|one| one.0).collect()),
        median(freshes[1..].iter().map(|one| one.1).collect()),
    );
    let state = raw.state_bytes as f64;
    let each = |ours: Vec<f64>, reference: &[f64]| {
        median(
            ours.iter()
                .zip(&reference[1..])
                .map(|(ours, reference)| ours / reference)
                .collect(),
        )
    };
    figures.stall_over_memcpy = each(saves[1..].iter().map(|save| save.stall).collect(), &memcpys);
    figures.durable_over_odirect_write = each(saves[1..].iter().map(|save| save.durable).collect(), &writes);
    figures.load_over_odirect_read = each(colds[1..].to_vec(), &reads);
    figures.fresh_load_over_odirect_read = median(freshes[1..].iter().map(|(ours, read)| ours / read).collect());
    let raw = &figures.raw;
    figures.first_stall_over_memcpy = raw.first_stall_s / raw.memcpy_s;
    figures.warm_load_gb_per_s = state / raw.warm_load_s / 1e9;
    figures.cpu_s_per_gib = raw.save_cpu_s / (state / f64::from(1 << 30));
    figures.memory_over_state = figures.memory.peak_bytes as f64 / state;
    let rounds = options.rounds.min(3);
    drop(ranks);
    drop(node);
    for (from, to) in [(2, 1), (1, 2), (4, 3)] {
        let row = reshard(options, from, to, rounds, dir.path())?;
        figures.reshard.push(row);
    }
    figures.memory.left_bytes = (memory::private(own) + memory::shared(own)).saturating_sub(before);
    Ok(())
}

/// Runs `count` saves before any load, because loads leave memory in the heaps of the ranks. Records the memory figures
/// and returns the times of the first save.
fn saves_alone(
    node: &NodeArenas,
    ranks: &mut [RankProcess],
    extra: &mut MemoryOverhead,
    count: usize,
    memory: &mut MemoryFigures,
) -> io::Result<SaveTiming> {
    let mut first = None;
    for step in 1..=count as u64 {
        let saved = extra.watch(node, || node.save(ranks, step))?;
        node.forget(step)?;
        if first.is_none() {
            memory.first_save_bytes = extra.now(node)?;
        }
        first = first.or(Some(saved));
    }
    (memory.saves, memory.last_save_bytes) = (count, extra.now(node)?);
    (memory.arenas_bytes, memory.peak_bytes) = (node.held()?, extra.most);
    Ok(first.unwrap_or_default())
}

/// Memory that saving needs in addition to the state, in bytes: the arenas, and the growth of the processes since they
/// were ready for the first save.
pub(super) struct MemoryOverhead {
    /// Process ids of the ranks and of this process.
    processes: Vec<u32>,
    /// Private memory of all processes before the first save.
    before: u64,
    /// Highest overhead during a save so far.
    pub(super) most: u64,
}

impl MemoryOverhead {
    pub(super) fn begin(ranks: &[RankProcess]) -> Self {
        let processes: Vec<u32> = ranks.iter().map(RankProcess::id).chain([std::process::id()]).collect();
        let before = processes.iter().copied().map(memory::private).sum();
        Self {
            processes,
            before,
            most: 0,
        }
    }

    /// Runs a save and records the sum of the peaks of all processes, even if they were not simultaneous.
    pub(super) fn watch(
        &mut self,
        node: &NodeArenas,
        save: impl FnOnce() -> io::Result<SaveTiming>,
    ) -> io::Result<SaveTiming> {
        let watched: Vec<PeakMemory> = self.processes.iter().copied().map(PeakMemory::begin).collect();
        let saved = save()?;
        let held: u64 = watched.iter().map(PeakMemory::most).sum();
        self.most = self.most.max(node.held()? + held.saturating_sub(self.before));
        Ok(saved)
    }

    /// Returns the present overhead, bytes.
    fn now(&self, node: &NodeArenas) -> io::Result<u64> {
        let held: u64 = self.processes.iter().copied().map(memory::private).sum();
        Ok(node.held()? + held.saturating_sub(self.before))
    }
}

/// Returns the duration of the slowest rank, in seconds.
pub(super) fn slowest(told: &[RankReply]) -> f64 {
    told.iter().map(|told| told.seconds).fold(0.0, f64::max)
}

/// Returns bytes read over bytes needed.
fn ratio(told: &[RankReply]) -> f64 {
    let sum = |pick: fn(&RankReply) -> u64| told.iter().map(pick).sum::<u64>() as f64;
    sum(|told| told.read) / sum(|told| told.needed)
}

impl NodeArenas {
    fn new(options: &BenchOptions, ranks: u32, dir: &Path) -> io::Result<Self> {
        Self::of(options, ranks, dir, |name, bytes| Arena::create(name, 1, bytes))
    }

    /// Creates the arenas as windows of `options.window` bytes, through which images are streamed.
    pub(super) fn windowed(options: &BenchOptions, dir: &Path) -> io::Result<Self> {
        let window = |name: &str, bytes| Arena::windowed(name, bytes, options.window);
        Self::of(options, options.ranks, dir, window)
    }

    fn of(
        options: &BenchOptions,
        ranks: u32,
        dir: &Path,
        make: impl Fn(&str, u64) -> Result<Arena, ArenaError>,
    ) -> io::Result<Self> {
        let arena = |rank: u32| {
            let (_, bytes) = ShardIndex::lay_out(llama::boxes(options.gib, rank.into(), ranks.into()));
            make(&format!("rankguard-bench-{rank}"), bytes.unwrap_or(u64::MAX)).map_err(io::Error::other)
        };
        Ok(Self {
            arenas: (0..ranks).map(arena).collect::<io::Result<_>>()?,
            store: Store::open(dir).map_err(io::Error::other)?,
            dir: dir.to_owned(),
        })
    }

    /// Loads from disk between two plain reads of the same files, because the throughput of the disk changes from
    /// second to second. Returns the reply of every rank to the load, and the mean duration of the two reads in
    /// seconds.
    fn cold(
        &self,
        ranks: &mut [RankProcess],
        step: u64,
        into: TargetMemory,
        check: bool,
    ) -> io::Result<(Vec<RankReply>, f64)> {
        let paths: Vec<PathBuf> = (0..self.arenas.len())
            .map(|rank| {
                let rank = Rank(u32::try_from(rank).unwrap_or(u32::MAX));
                let path = self.store.shard_path(&JobId::from(super::JOB), id(step), rank);
                path.map_err(io::Error::other)
            })
            .collect::<io::Result<_>>()?;
        let world = ranks.len() as u64;
        let read = |ranks: &mut [RankProcess]| {
            let told = run_on_all(ranks, |nth| RankRequest::Read {
                paths: paths.clone(),
                rank: nth as u64,
                world,
                into,
            })?;
            io::Result::Ok(slowest(&told))
        };
        let before = read(ranks)?;
        let cold = self.load(ranks, step, (LoadTier::Disk, into), check)?;
        Ok((cold, f64::midpoint(before, read(ranks)?)))
    }

    /// Returns the allocated memory of all arenas, in bytes.
    fn held(&self) -> io::Result<u64> {
        self.arenas.iter().map(Arena::held_bytes).sum()
    }

    /// Returns the paths of the arenas for other processes: file descriptors of this process in `/proc`.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let path = |arena: &Arena| format!("/proc/{}/fd/{}", std::process::id(), arena.as_fd().as_raw_fd()).into();
        self.arenas.iter().map(path).collect()
    }

    /// Saves all ranks: each image is written once it is sealed, or while it streams; the manifest is committed after
    /// all images.
    pub(super) fn save(&self, ranks: &mut [RankProcess], step: u64) -> io::Result<SaveTiming> {
        self.arenas
            .iter()
            .try_for_each(|arena| arena.release(0))
            .map_err(io::Error::other)?;
        let cpu = cpu_seconds();
        let start = Instant::now();
        let told = self.write(ranks, step, &RankRequest::Fill { slot: 0, step })?;
        Ok(SaveTiming {
            durable: start.elapsed().as_secs_f64(),
            stall: slowest(&told),
            cpu: cpu_seconds() - cpu + told.iter().map(|told| told.cpu).sum::<f64>(),
        })
    }

    /// Sends `ask` to every rank, writes the images to the store as they are sealed or streamed, and commits.
    fn write(&self, ranks: &mut [RankProcess], step: u64, ask: &RankRequest) -> io::Result<Vec<RankReply>> {
        let done = std::thread::scope(|scope| {
            let one = |(rank, arena): (&mut RankProcess, &Arena)| {
                rank.send(ask)?;
                let told = rank.receive()?;
                if arena.geometry().is_windowed() {
                    // The first message announces the stream; the result follows after it.
                    let image = arena.streamed(0, Generation(1), &|| false).map_err(io::Error::other)?;
                    let written = self.store.write_streamed(&image).map_err(io::Error::other)?;
                    return Ok((rank.receive()?, written.seal));
                }
                let image = arena.sealed(0).map_err(io::Error::other)?;
                let write = || self.store.write_shard(image.index(), &image);
                // The agent writes shards in such a thread, too.
                let written = in_background("shard-writer", write).map_err(io::Error::other)?;
                Ok((told, written.seal))
            };
            let threads: Vec<_> = ranks
                .iter_mut()
                .zip(&self.arenas)
                .map(|pair| scope.spawn(move || one(pair)))
                .collect();
            let joined = threads
                .into_iter()
                .map(|thread| thread.join().expect("a save does not panic"));
            joined.collect::<io::Result<Vec<(RankReply, ShardSeal)>>>()
        })?;
        let (told, seals): (Vec<RankReply>, Vec<ShardSeal>) = done.into_iter().unzip();
        let manifest = Manifest::from_seals(&JobId::from(JOB), id(step), None, &seals).map_err(io::Error::other)?;
        self.store.commit(&manifest).map_err(io::Error::other)?;
        Ok(told)
    }

    /// Loads on every rank its own boxes, from the tier and into the memory that `way` names.
    pub(super) fn load(
        &self,
        ranks: &mut [RankProcess],
        step: u64,
        way: (LoadTier, TargetMemory),
        check: bool,
    ) -> io::Result<Vec<RankReply>> {
        let world = ranks.len() as u64;
        run_on_all(ranks, |nth| RankRequest::Load {
            store: self.dir.clone(),
            step,
            rank: nth as u64,
            world,
            tier: way.0,
            into: way.1,
            check,
        })
    }

    /// Measures the training time, in seconds, that one save costs the slowest rank while every rank computes.
    fn train(&self, ranks: &mut [RankProcess], step: u64) -> io::Result<f64> {
        self.arenas
            .iter()
            .try_for_each(|arena| arena.release(0))
            .map_err(io::Error::other)?;
        self.write(ranks, step, &RankRequest::Train { slot: 0, step })?;
        let told = run_on_all(ranks, |_| RankRequest::Stop)?;
        self.forget(step)?;
        Ok(told.iter().map(|told| told.lost).fold(0.0, f64::max))
    }

    /// Removes the checkpoint of a step from the store.
    pub(super) fn forget(&self, step: u64) -> io::Result<()> {
        self.store.remove(&JobId::from(JOB), id(step)).map_err(io::Error::other)
    }
}

fn id(step: u64) -> CheckpointId {
    CheckpointId {
        step: Step(step),
        generation: Generation(1),
    }
}

/// Measures loads by `to` ranks of a checkpoint saved by `from` ranks.
fn reshard(options: &BenchOptions, from: u32, to: u32, rounds: usize, dir: &Path) -> io::Result<ReshardFigures> {
    let node = NodeArenas::new(options, from, &dir.join(format!("store-{from}-{to}")))?;
    let mut savers = RankProcess::start_all(from, options.gib, 1, &node.paths())?;
    node.save(&mut savers, 1)?;
    drop(savers);
    let mut loaders = RankProcess::start_all(to, options.gib, 1, &node.paths())?;
    let mut colds = Vec::new();
    let mut reads = Vec::new();
    let mut warms = Vec::new();
    let mut row = ReshardFigures {
        from,
        to,
        ..ReshardFigures::default()
    };
    let mut needed = 0;
    for round in 0..=rounds {
        let (cold, read_s) = node.cold(&mut loaders, 1, TargetMemory::Touched, round == 0)?;
        let warm = node.load(&mut loaders, 1, (LoadTier::Arena, TargetMemory::Touched), round == 0)?;
        row.bytes_read_over_needed = ratio(&cold);
        needed = cold.iter().map(|told| told.needed).sum();
        if round > 0 {
            colds.push(slowest(&cold));
            reads.push(read_s);
            warms.push(slowest(&warm));
        }
    }
    let ratios = colds.iter().zip(&reads).map(|(cold, read)| cold / read).collect();
    (row.cold_s, row.warm_s) = (median(colds), median(warms));
    row.warm_gb_per_s = needed as f64 / row.warm_s / 1e9;
    row.load_over_odirect_read = median(ratios);
    node.forget(1)?;
    Ok(row)
}

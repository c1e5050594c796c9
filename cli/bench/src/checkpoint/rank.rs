//! One rank of the bench: a process of its own, as in training.

use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::io::{self, BufRead};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rankguard_checkpoint::arena::{Arena, SaveRequest};
use rankguard_checkpoint::format::{CheckpointId, TensorBox};
use rankguard_checkpoint::restore::assemble_into;
use rankguard_checkpoint::source::{ArenaSource, ChunkSource};
use rankguard_checkpoint::{ScatteredBuffers, Store};
use rankguard_console::out;
use rankguard_model::{Generation, JobId, Rank, Step};
use rustix::fs::OFlags;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use super::llama;
use super::messages::{LoadTier, RankReply, RankRequest, TargetMemory};

/// Bytes of one read past the page cache.
const BLOCK: usize = 1 << 20;
/// Bytes per write of the reference: larger writes were not faster on any tested disk.
const STRETCH: usize = 16 << 20;

/// Alignment of offsets and lengths of direct transfers.
const SECTOR: usize = 4096;

/// Training steps before the save, to measure the usual duration of a step.
const STEPS_BEFORE: usize = 40;

/// Maximum time without progress of the consumer of a window.
const PATIENCE: Duration = Duration::from_secs(60);

/// Rank number and arenas of a bench rank.
#[derive(Debug, Clone)]
pub struct RankSetup {
    pub rank: u32,
    pub world: u32,
    pub gib: f64,
    /// Number of copying threads.
    pub threads: usize,
    /// Paths of the arenas of all ranks that save; the own arena is the `rank`th.
    pub arenas: Vec<PathBuf>,
}

struct TrainerState {
    place: RankSetup,
    tensors: Vec<(TensorBox, Vec<u8>)>,
    arenas: Vec<Arena>,
    /// Target of copies and loads; touched before anything is measured.
    spare: Vec<u8>,
    bytes: usize,
}

/// Source of a load.
struct LoadRequest {
    store: PathBuf,
    step: u64,
    tier: LoadTier,
    /// True if the bytes are compared with the saved ones.
    check: bool,
}

/// Runs commands until [`Ask::End`] or the end of standard input.
pub fn run(place: RankSetup) -> io::Result<()> {
    let (say, heard) = channel();
    // A separate thread, so that training can receive [`Ask::Stop`].
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            let ask = serde_json::from_str::<RankRequest>(&line);
            if !ask.is_ok_and(|ask| say.send(ask).is_ok()) {
                return;
            }
        }
    });
    let mut state = TrainerState::new(place)?;
    out::json_line(&RankReply::default());
    while let Ok(ask) = heard.recv() {
        if matches!(ask, RankRequest::End) {
            break;
        }
        let told = state.handle_request(ask, &heard).unwrap_or_else(|problem| RankReply {
            problem: Some(problem.to_string()),
            ..RankReply::default()
        });
        out::json_line(&told);
    }
    Ok(())
}

impl TrainerState {
    fn new(place: RankSetup) -> io::Result<Self> {
        let open = |path: &PathBuf| {
            let file = OpenOptions::new().read(true).write(true).open(path)?;
            Arena::map(OwnedFd::from(file)).map_err(io::Error::other)
        };
        let arenas = place.arenas.iter().map(open).collect::<io::Result<_>>()?;
        let boxes = llama::boxes(place.gib, place.rank.into(), place.world.into());
        let tensor = |boxed: TensorBox| {
            let mut bytes = vec![0; boxed.bytes().unwrap_or(0) as usize];
            llama::fill(&boxed, &mut bytes);
            (boxed, bytes)
        };
        let tensors: Vec<_> = boxes.into_iter().map(tensor).collect();
        let bytes = tensors.iter().map(|(_, data)| data.len()).sum::<usize>();
        let mut state = Self {
            place,
            tensors,
            arenas,
            spare: Vec::new(),
            bytes,
        };
        // Includes room for the whole blocks that a reference reads, so that the bench's own memory does not grow
        // later.
        let blocks = (state.arenas.len() + 1) * BLOCK;
        state.touch(bytes + blocks);
        Ok(state)
    }

    /// Returns touched memory of at least `length` bytes, aligned to a sector.
    fn touch(&mut self, length: usize) -> &mut [u8] {
        let needed = length.next_multiple_of(BLOCK) + SECTOR;
        if self.spare.len() < needed {
            self.spare = vec![1; needed];
        }
        let start = self.spare.as_ptr().align_offset(SECTOR);
        &mut self.spare[start..start + length.next_multiple_of(BLOCK)]
    }

    fn handle_request(&mut self, ask: RankRequest, heard: &Receiver<RankRequest>) -> io::Result<RankReply> {
        match ask {
            RankRequest::Memcpy => Ok(self.memcpy()),
            RankRequest::Fill { slot, step } => timed(|| self.fill(slot, step)),
            RankRequest::Write { path } => {
                let length = self.bytes.next_multiple_of(SECTOR);
                let bytes = &*self.touch(length);
                timed(|| write(&path, &bytes[..length]))
            }
            RankRequest::Read {
                paths,
                rank,
                world,
                into,
            } => {
                let lengths = paths.iter().map(|path| Ok(std::fs::metadata(path)?.len()));
                let all: u64 = lengths.sum::<io::Result<u64>>()?;
                let length = (all / world) as usize + (paths.len() + 1) * BLOCK;
                let mut fresh = Vec::new();
                let bytes = match into {
                    TargetMemory::Touched => self.touch(length),
                    TargetMemory::Fresh => untouched(&mut fresh, length),
                };
                timed(|| {
                    let mut at = 0;
                    for path in &paths {
                        at += read(path, rank, world, &mut bytes[at..])?;
                    }
                    Ok(())
                })
            }
            RankRequest::Load {
                store,
                step,
                rank,
                world,
                tier,
                into,
                check,
            } => {
                let from = LoadRequest {
                    store,
                    step,
                    tier,
                    check,
                };
                self.load(&from, (rank, world), into)
            }
            RankRequest::Train { slot, step } => self.train(slot, step, heard),
            RankRequest::Stop | RankRequest::End => Ok(RankReply::default()),
        }
    }

    /// Copies all tensors with as many threads as the fill has, each a part of every tensor's bytes.
    fn memcpy(&mut self) -> RankReply {
        let bytes = self.bytes;
        let threads = self.place.threads;
        self.touch(bytes);
        let start = self.spare.as_ptr().align_offset(SECTOR);
        let spare = &mut self.spare[start..start + bytes];
        let tensors = &self.tensors;
        let mut rest = spare;
        let mut shares: Vec<Vec<(&mut [u8], &[u8])>> = (0..threads).map(|_| Vec::new()).collect();
        let share = bytes.div_ceil(threads).max(1);
        let mut given = 0;
        for (_, data) in tensors {
            let mut data = &data[..];
            while !data.is_empty() {
                let nth = given / share;
                let length = data.len().min((nth + 1) * share - given);
                let (to, after) = std::mem::take(&mut rest).split_at_mut(length);
                shares[nth].push((to, &data[..length]));
                (rest, data, given) = (after, &data[length..], given + length);
            }
        }
        let copy = |share: Vec<(&mut [u8], &[u8])>| share.into_iter().for_each(|(to, from)| to.copy_from_slice(from));
        let cpu = cpu_seconds();
        let start = Instant::now();
        std::thread::scope(|scope| {
            let mine = shares.pop();
            shares
                .into_iter()
                .for_each(|share| drop(scope.spawn(move || copy(share))));
            mine.into_iter().for_each(copy);
        });
        let seconds = start.elapsed().as_secs_f64();
        black_box(&self.spare);
        RankReply {
            seconds,
            cpu: cpu_seconds() - cpu,
            ..RankReply::default()
        }
    }

    fn fill(&self, slot: u32, step: u64) -> io::Result<()> {
        let job = JobId::from(super::JOB);
        let of = SaveRequest {
            threads: self.place.threads,
            ..SaveRequest::new(&job, Step(step), Generation(1), Rank(self.place.rank), self.place.world)
        };
        let tensors: Vec<(TensorBox, &[u8])> = self
            .tensors
            .iter()
            .map(|(boxed, data)| (boxed.clone(), &data[..]))
            .collect();
        let arena = &self.arenas[self.place.rank as usize];
        let state = json!({"step": step});
        if arena.geometry().is_windowed() {
            let begun = arena.begin_stream(slot, &of, &tensors, &state);
            let begun = begun.map_err(io::Error::other)?;
            out::json_line(&RankReply::default());
            arena.stream(begun, &tensors, PATIENCE).map_err(io::Error::other)?;
        } else {
            arena.fill(slot, &of, &tensors, &state).map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn load(&mut self, from: &LoadRequest, part: (u64, u64), into: TargetMemory) -> io::Result<RankReply> {
        let wanted = llama::boxes(self.place.gib, part.0, part.1);
        let sizes: Vec<usize> = wanted.iter().map(|boxed| boxed.bytes().unwrap_or(0) as usize).collect();
        let needed: usize = sizes.iter().sum();
        self.touch(needed);
        let start = self.spare.as_ptr().align_offset(SECTOR);
        let mut fresh = Vec::new();
        let mut rest = match into {
            TargetMemory::Touched => &mut self.spare[start..],
            TargetMemory::Fresh => untouched(&mut fresh, needed),
        };
        if from.check {
            rest.fill(0);
        }
        let mut parts = Vec::new();
        for size in &sizes {
            let (part, after) = rest.split_at_mut(*size);
            parts.push(part);
            rest = after;
        }
        let store = Store::at(&from.store);
        let cpu = cpu_seconds();
        let start = Instant::now();
        let id = CheckpointId {
            step: Step(from.step),
            generation: Generation(1),
        };
        let checkpoint = store.load(&JobId::from(super::JOB), id).map_err(io::Error::other)?;
        let memory = ArenaSource::new(&self.arenas);
        let source: &dyn ChunkSource = match from.tier {
            LoadTier::Arena => &memory,
            LoadTier::Disk => &store,
        };
        let mut out = ScatteredBuffers(parts);
        let report = assemble_into(&checkpoint.manifest, &checkpoint.indexes, &wanted, &[source], &mut out)
            .map_err(io::Error::other)?;
        let told = RankReply {
            seconds: start.elapsed().as_secs_f64(),
            cpu: cpu_seconds() - cpu,
            read: report.read,
            needed: needed as u64,
            ..RankReply::default()
        };
        let sound = !from.check
            || wanted
                .iter()
                .zip(&out.0)
                .all(|(boxed, bytes)| llama::holds(boxed, bytes));
        if sound {
            Ok(told)
        } else {
            Err(io::Error::other("a load gave other bytes than were saved"))
        }
    }

    /// Measures the cost of a save for a trainer that keeps its core busy.
    fn train(&self, slot: u32, step: u64, heard: &Receiver<RankRequest>) -> io::Result<RankReply> {
        let mut work = SyntheticStep::new();
        let before: Vec<f64> = (0..STEPS_BEFORE).map(|_| work.step()).collect();
        let usual = before.iter().skip(STEPS_BEFORE / 4).sum::<f64>() / (STEPS_BEFORE - STEPS_BEFORE / 4) as f64;
        let start = Instant::now();
        self.fill(slot, step)?;
        let stall = start.elapsed().as_secs_f64();
        out::json_line(&RankReply {
            seconds: stall,
            ..RankReply::default()
        });
        let mut slower = 0.0;
        while heard.try_recv().is_err() {
            slower += work.step() - usual;
        }
        Ok(RankReply {
            seconds: stall,
            lost: stall + slower,
            ..RankReply::default()
        })
    }
}

/// A training step as the processor sees it: arithmetic on data in its caches.
struct SyntheticStep {
    numbers: Vec<f32>,
}

impl SyntheticStep {
    fn new() -> Self {
        Self {
            numbers: (0..64 << 10).map(|nth| nth as f32 * 1e-6).collect(),
        }
    }

    /// Computes for about ten milliseconds; returns the duration in seconds.
    fn step(&mut self) -> f64 {
        let start = Instant::now();
        for _ in 0..1200 {
            for number in &mut self.numbers {
                *number = number.mul_add(0.999, 1e-3);
            }
            black_box(&mut self.numbers);
        }
        start.elapsed().as_secs_f64()
    }
}

/// Returns `length` bytes of untouched memory, aligned to a sector.
fn untouched(fresh: &mut Vec<u8>, length: usize) -> &mut [u8] {
    *fresh = vec![0; length + SECTOR];
    let start = fresh.as_ptr().align_offset(SECTOR);
    &mut fresh[start..start + length]
}

fn timed(work: impl FnOnce() -> io::Result<()>) -> io::Result<RankReply> {
    let cpu = cpu_seconds();
    let start = Instant::now();
    work()?;
    Ok(RankReply {
        seconds: start.elapsed().as_secs_f64(),
        cpu: cpu_seconds() - cpu,
        ..RankReply::default()
    })
}

fn direct(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flag = i32::try_from(OFlags::DIRECT.bits()).expect("flags of open are an int");
    let opened = options.custom_flags(flag).open(path);
    // Without direct transfers in the filesystem, the reference uses buffered ones.
    opened.or_else(|_| options.custom_flags(0).open(path))
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = direct(OpenOptions::new().write(true).create(true).truncate(true), path)?;
    for (block, at) in bytes.chunks(STRETCH).zip((0..).step_by(STRETCH)) {
        file.write_all_at(block, at)?;
    }
    file.sync_all()
}

/// Reads part `rank` of `world` of a file, in whole blocks; returns the bytes read, rounded up to a block.
fn read(path: &Path, rank: u64, world: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let file = direct(OpenOptions::new().read(true), path)?;
    let blocks = file.metadata()?.len().div_ceil(BLOCK as u64);
    let from = blocks * rank / world;
    let to = blocks * (rank + 1) / world;
    for (block, nth) in bytes.chunks_mut(BLOCK).zip(from..to) {
        // The last block ends with the file.
        let mut got = 0;
        while got < BLOCK {
            match file.read_at(&mut block[got..], nth * BLOCK as u64 + got as u64)? {
                0 => break,
                count => got += count,
            }
            if got % SECTOR != 0 {
                break;
            }
        }
    }
    Ok((to - from) as usize * BLOCK)
}

/// Returns the processor time of this process.
pub(super) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

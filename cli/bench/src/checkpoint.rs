//! Benchmark of saving and loading a training state, compared with the limits of memory and disk of this machine.
//!
//! Ranks are processes of this binary; the bench does the agent's part: it owns the arenas, writes sealed images to a
//! real store and commits. References (a plain copy with the same number of threads; the same bytes written and read
//! past the page cache, if the file system supports it) alternate with the engine in every round. Saves before the
//! first round measure memory and the stall of the first save. The first round is discarded; figures of time are
//! medians of the other rounds.

mod llama;
mod memory;
mod messages;
mod planning;
mod rank;
mod ranks;
mod rounds;
mod streaming;

use std::io;
use std::num::NonZero;
use std::path::PathBuf;

use serde::Serialize;

pub use rank::{RankSetup, run as run_rank};

/// Job name of the checkpoints in the temporary store.
const JOB: &str = "bench";

/// Parameters of a measurement.
#[derive(Debug, Clone)]
pub struct BenchOptions {
    /// Size of the whole state in GiB.
    pub gib: f64,
    /// Number of ranks that save.
    pub ranks: u32,
    /// Number of rounds that count, after a discarded one.
    pub rounds: usize,
    /// Number of saves, including the `rounds + 1` of the rounds; the others run before the first load. There are at
    /// least 2 before the first load.
    pub saves: usize,
    /// Window of a streaming rank, in bytes.
    pub window: u64,
    /// Parent directory of the temporary stores, which are removed afterwards; its file system is measured.
    pub dir: PathBuf,
}

/// Results: ratios first, then their inputs. Times are those of the slowest rank; ratios of times are medians of the
/// ratios in each round.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CheckpointFigures {
    pub stall_over_memcpy: f64,
    /// Stall of the very first save, divided by the median time of the copy.
    pub first_stall_over_memcpy: f64,
    pub durable_over_odirect_write: f64,
    /// Load from disk into touched memory, divided by the plain read of the same files.
    pub load_over_odirect_read: f64,
    /// As `load_over_odirect_read`, with both reading into untouched memory.
    pub fresh_load_over_odirect_read: f64,
    /// Throughput of loads from the arenas, 10^9 bytes per second.
    pub warm_load_gb_per_s: f64,
    /// Bytes that all ranks read, divided by the bytes of their tensors; in the last load from disk.
    pub bytes_read_over_needed: f64,
    /// Processor time of a save in all processes, per GiB of the state.
    pub cpu_s_per_gib: f64,
    /// `memory.peak_bytes` divided by the size of the state.
    pub memory_over_state: f64,
    /// Training time that a save costs while every rank computes: the stall and the slowdown of later steps.
    pub lost_s_per_save: f64,
    /// Time in which one of 768 ranks plans its restore of 10,000 tensors that 512 ranks saved.
    pub plan_10000_tensors_512_to_768_s: f64,
    pub reshard: Vec<ReshardFigures>,
    pub streaming: StreamingFigures,
    pub memory: MemoryFigures,
    pub raw: RawTimings,
    pub machine: BenchMachine,
}

/// Memory that saving needs in addition to the state, in all processes together, in bytes.
#[derive(Debug, Clone, Default, Serialize)]
pub struct MemoryFigures {
    /// One slot per rank: the image, and the used part of the area for the tables that describe it.
    pub arenas_bytes: u64,
    /// Arenas and growth of the processes, after the first save.
    pub first_save_bytes: u64,
    /// Peak during a save before the first load: the arenas, and the sum of the peaks of the processes.
    pub peak_bytes: u64,
    /// Peak with loads between saves, which includes memory that loads leave in the trainers' heaps.
    pub peak_with_loads_bytes: u64,
    /// Number of saves before `last_save_bytes` is measured.
    pub saves: usize,
    /// Arenas and growth of the processes, after the last of `saves`.
    pub last_save_bytes: u64,
    /// Growth of this process at the end, after the ranks have ended.
    pub left_bytes: u64,
}

/// Saves through windows smaller than the images.
#[derive(Debug, Clone, Default, Serialize)]
pub struct StreamingFigures {
    /// Size of the window of each rank.
    pub window_bytes: u64,
    /// Peak of windows and all processes in addition to the state, during a save.
    pub peak_bytes: u64,
    /// `peak_bytes` divided by the size of the state.
    pub memory_over_state: f64,
    /// Stall divided by the plain write. The trainer waits until all but the last window is written.
    pub stall_over_odirect_write: f64,
    pub durable_over_odirect_write: f64,
    pub cpu_s_per_gib: f64,
    pub stall_s: f64,
    pub durable_s: f64,
}

/// Load on a number of ranks other than the number that saved.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ReshardFigures {
    /// Number of ranks that saved.
    pub from: u32,
    /// Number of ranks that load.
    pub to: u32,
    /// Load from disk.
    pub cold_s: f64,
    /// Load from the arenas.
    pub warm_s: f64,
    /// Throughput of loads from the arenas, 10^9 bytes per second.
    pub warm_gb_per_s: f64,
    pub load_over_odirect_read: f64,
    pub bytes_read_over_needed: f64,
}

/// Size of the state, and times of the slowest rank: medians of the rounds, except for the first save.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RawTimings {
    pub state_bytes: u64,
    pub memcpy_s: f64,
    pub stall_s: f64,
    /// Stall of the very first save.
    pub first_stall_s: f64,
    pub odirect_write_s: f64,
    /// Time from the start of a save to its commit.
    pub durable_s: f64,
    pub odirect_read_s: f64,
    /// Load from disk into touched memory.
    pub cold_load_s: f64,
    /// Plain read into untouched memory.
    pub fresh_read_s: f64,
    /// Load from disk into untouched memory.
    pub fresh_load_s: f64,
    /// Load from the arenas into touched memory.
    pub warm_load_s: f64,
    /// Processor time of a save, all processes together.
    pub save_cpu_s: f64,
}

/// Machine and conditions of the measurement.
#[derive(Debug, Clone, Default, Serialize)]
pub struct BenchMachine {
    /// Number of processors that this process may use.
    pub cores: usize,
    pub ranks: u32,
    /// Kind of a rank: always `process`.
    pub rank_is: &'static str,
    pub rounds: usize,
    /// Load average of the last minute, before the measurement.
    pub load_average_before: f64,
    /// Load average of the last minute, after the measurement.
    pub load_average_after: f64,
    pub directory: PathBuf,
    pub filesystem: String,
}

/// Runs all measurements. Returns the first error of a rank process, of the arenas or of the store.
pub fn measure(options: &BenchOptions) -> io::Result<CheckpointFigures> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = (cores / options.ranks.max(1) as usize).clamp(1, 8);
    let mut figures = CheckpointFigures {
        machine: BenchMachine {
            cores,
            ranks: options.ranks,
            rank_is: "process",
            rounds: options.rounds,
            load_average_before: memory::load_average(),
            directory: options.dir.clone(),
            filesystem: memory::filesystem(&options.dir),
            ..BenchMachine::default()
        },
        ..CheckpointFigures::default()
    };
    rounds::measure(options, threads, &mut figures)?;
    figures.streaming = streaming::measure(options, threads)?;
    figures.plan_10000_tensors_512_to_768_s = planning::plan_seconds()?;
    figures.machine.load_average_after = memory::load_average();
    Ok(figures)
}

/// Returns the median (the upper one of an even number of values), or 0 without values.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

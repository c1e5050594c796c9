//! Saving and loading a training state, next to the limits of memory and disk of this machine.
//!
//! Ranks are processes of this binary; the bench does the agent's part: it owns the arenas, writes sealed images to a
//! real store and commits. References (a plain copy with the same number of threads; the same bytes written and read
//! past the page cache) alternate with the engine in every round. The first round is discarded except for the first
//! save, which is reported separately; figures are medians.

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

/// Name of the job in the store.
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
    /// Number of saves: those before the first load, and those of the rounds.
    pub saves: usize,
    /// Window of a streaming rank, in bytes.
    pub window: u64,
    /// Parent directory of the store; the store is removed afterwards.
    pub dir: PathBuf,
}

/// Ratios first, then their inputs. Seconds are of the slowest rank, medians of the rounds.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CheckpointFigures {
    pub stall_over_memcpy: f64,
    pub first_stall_over_memcpy: f64,
    pub durable_over_odirect_write: f64,
    pub load_over_odirect_read: f64,
    /// As `load_over_odirect_read`, with both reading into untouched memory.
    pub fresh_load_over_odirect_read: f64,
    pub warm_load_gb_per_s: f64,
    pub bytes_read_over_needed: f64,
    pub cpu_s_per_gib: f64,
    pub memory_over_state: f64,
    pub lost_s_per_save: f64,
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
    /// Peak during a save: sum of every process's own peak.
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
    /// Window of each rank.
    pub window_bytes: u64,
    /// Peak of windows and all processes in addition to the state, during a save.
    pub peak_bytes: u64,
    /// `peak_bytes` divided by the size of the state.
    pub memory_over_state: f64,
    /// The trainer waits for the disk: for the whole write except the last window.
    pub stall_over_odirect_write: f64,
    pub durable_over_odirect_write: f64,
    pub cpu_s_per_gib: f64,
    pub stall_s: f64,
    pub durable_s: f64,
}

/// Load on another number of ranks.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ReshardFigures {
    pub from: u32,
    pub to: u32,
    pub cold_s: f64,
    pub warm_s: f64,
    pub warm_gb_per_s: f64,
    pub load_over_odirect_read: f64,
    pub bytes_read_over_needed: f64,
}

/// Medians in seconds.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RawTimings {
    pub state_bytes: u64,
    pub memcpy_s: f64,
    pub stall_s: f64,
    pub first_stall_s: f64,
    pub odirect_write_s: f64,
    pub durable_s: f64,
    pub odirect_read_s: f64,
    pub cold_load_s: f64,
    pub fresh_read_s: f64,
    pub fresh_load_s: f64,
    pub warm_load_s: f64,
    pub save_cpu_s: f64,
}

/// Machine and conditions of the measurement.
#[derive(Debug, Clone, Default, Serialize)]
pub struct BenchMachine {
    pub cores: usize,
    pub ranks: u32,
    pub rank_is: &'static str,
    pub rounds: usize,
    pub load_average_before: f64,
    pub load_average_after: f64,
    pub directory: PathBuf,
    pub filesystem: String,
}

/// Runs all measurements.
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

/// Returns the middle value.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

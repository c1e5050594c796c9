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

pub(crate) use rank::{RankSetup, run as run_rank};

/// Name of the job in the store.
const JOB: &str = "bench";

/// Parameters of a measurement.
#[derive(Debug, Clone)]
pub(crate) struct BenchOptions {
    /// Size of the whole state in GiB.
    pub(crate) gib: f64,
    /// Number of ranks that save.
    pub(crate) ranks: u32,
    /// Number of rounds that count, after a discarded one.
    pub(crate) rounds: usize,
    /// Number of saves: those before the first load, and those of the rounds.
    pub(crate) saves: usize,
    /// Window of a streaming rank, in bytes.
    pub(crate) window: u64,
    /// Parent directory of the store; the store is removed afterwards.
    pub(crate) dir: PathBuf,
}

/// Ratios first, then their inputs. Seconds are of the slowest rank, medians of the rounds.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct CheckpointFigures {
    pub(crate) stall_over_memcpy: f64,
    pub(crate) first_stall_over_memcpy: f64,
    pub(crate) durable_over_odirect_write: f64,
    pub(crate) load_over_odirect_read: f64,
    /// As `load_over_odirect_read`, with both reading into untouched memory.
    pub(crate) fresh_load_over_odirect_read: f64,
    pub(crate) warm_load_gb_per_s: f64,
    pub(crate) bytes_read_over_needed: f64,
    pub(crate) cpu_s_per_gib: f64,
    pub(crate) memory_over_state: f64,
    pub(crate) lost_s_per_save: f64,
    pub(crate) plan_10000_tensors_512_to_768_s: f64,
    pub(crate) reshard: Vec<ReshardFigures>,
    pub(crate) streaming: StreamingFigures,
    pub(crate) memory: MemoryFigures,
    pub(crate) raw: RawTimings,
    pub(crate) machine: BenchMachine,
}

/// Memory that saving needs in addition to the state, in all processes together, in bytes.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct MemoryFigures {
    /// One slot per rank: the image, and the used part of the area for the tables that describe it.
    pub(crate) arenas_bytes: u64,
    /// Arenas and growth of the processes, after the first save.
    pub(crate) first_save_bytes: u64,
    /// Peak during a save: sum of every process's own peak.
    pub(crate) peak_bytes: u64,
    /// Peak with loads between saves, which includes memory that loads leave in the trainers' heaps.
    pub(crate) peak_with_loads_bytes: u64,
    /// Number of saves before `last_save_bytes` is measured.
    pub(crate) saves: usize,
    /// Arenas and growth of the processes, after the last of `saves`.
    pub(crate) last_save_bytes: u64,
    /// Growth of this process at the end, after the ranks have ended.
    pub(crate) left_bytes: u64,
}

/// Saves through windows smaller than the images.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct StreamingFigures {
    /// Window of each rank.
    pub(crate) window_bytes: u64,
    /// Peak of windows and all processes in addition to the state, during a save.
    pub(crate) peak_bytes: u64,
    /// `peak_bytes` divided by the size of the state.
    pub(crate) memory_over_state: f64,
    /// The trainer waits for the disk: for the whole write except the last window.
    pub(crate) stall_over_odirect_write: f64,
    pub(crate) durable_over_odirect_write: f64,
    pub(crate) cpu_s_per_gib: f64,
    pub(crate) stall_s: f64,
    pub(crate) durable_s: f64,
}

/// Load on another number of ranks.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct ReshardFigures {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) cold_s: f64,
    pub(crate) warm_s: f64,
    pub(crate) warm_gb_per_s: f64,
    pub(crate) load_over_odirect_read: f64,
    pub(crate) bytes_read_over_needed: f64,
}

/// Medians in seconds.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct RawTimings {
    pub(crate) state_bytes: u64,
    pub(crate) memcpy_s: f64,
    pub(crate) stall_s: f64,
    pub(crate) first_stall_s: f64,
    pub(crate) odirect_write_s: f64,
    pub(crate) durable_s: f64,
    pub(crate) odirect_read_s: f64,
    pub(crate) cold_load_s: f64,
    pub(crate) fresh_read_s: f64,
    pub(crate) fresh_load_s: f64,
    pub(crate) warm_load_s: f64,
    pub(crate) save_cpu_s: f64,
}

/// Machine and conditions of the measurement.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct BenchMachine {
    pub(crate) cores: usize,
    pub(crate) ranks: u32,
    pub(crate) rank_is: &'static str,
    pub(crate) rounds: usize,
    pub(crate) load_average_before: f64,
    pub(crate) load_average_after: f64,
    pub(crate) directory: PathBuf,
    pub(crate) filesystem: String,
}

/// Runs all measurements.
pub(crate) fn measure(options: &BenchOptions) -> io::Result<CheckpointFigures> {
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

//! Saving and loading a training state, beside what memory and disk of this machine can do at all.
//!
//! Ranks are processes of this binary; the bench itself does what an agent does: it owns the arenas, writes sealed images to
//! a real store and commits. References (a plain copy with the same number of threads; the same bytes written and read past
//! the page cache) take turns with the engine in every round; the first round is thrown away but for the first save, which is
//! told separately; then medians.

mod llama;
mod memory;
mod planning;
mod rank;
mod ranks;
mod rounds;
mod streaming;
mod words;

use std::io;
use std::num::NonZero;
use std::path::PathBuf;

use serde::Serialize;

pub(crate) use rank::{Place, run as run_rank};

/// The job's name in the store.
const JOB: &str = "bench";

/// What is measured.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Size of the whole state.
    pub(crate) gib: f64,
    /// Ranks that save.
    pub(crate) ranks: u32,
    /// Rounds that count.
    pub(crate) rounds: usize,
    /// Saves until memory is looked at again.
    pub(crate) saves: usize,
    /// Memory of a rank whose image passes through, bytes.
    pub(crate) window: u64,
    /// Where the store is made; removed afterwards.
    pub(crate) dir: PathBuf,
}

/// Ratios first, then what they are made of. Seconds are of the slowest rank, medians of the rounds.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Figures {
    pub(crate) stall_over_memcpy: f64,
    pub(crate) first_stall_over_memcpy: f64,
    pub(crate) durable_over_odirect_write: f64,
    pub(crate) load_over_odirect_read: f64,
    /// The same, where both fill memory that nobody has touched.
    pub(crate) fresh_load_over_odirect_read: f64,
    pub(crate) warm_load_gb_per_s: f64,
    pub(crate) bytes_read_over_needed: f64,
    pub(crate) cpu_s_per_gib: f64,
    pub(crate) memory_over_state: f64,
    pub(crate) lost_s_per_save: f64,
    pub(crate) plan_10000_tensors_512_to_768_s: f64,
    pub(crate) reshard: Vec<Reshard>,
    pub(crate) streaming: Streaming,
    pub(crate) memory: Memory,
    pub(crate) raw: Raw,
    pub(crate) machine: Machine,
}

/// What saving holds beside the state itself, in all processes together, in bytes.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Memory {
    /// One slot a rank: the image, and what is used of the area for the tables that describe it.
    pub(crate) arenas_bytes: u64,
    /// Arenas and what processes grew by, after the first save.
    pub(crate) first_save_bytes: u64,
    /// The most of it while a save went on: every process's own peak.
    pub(crate) peak_bytes: u64,
    /// The same once loads went between: what they leave in the trainers' heaps is in it.
    pub(crate) peak_with_loads_bytes: u64,
    /// After so many saves one after the other ...
    pub(crate) saves: usize,
    /// ... there is so much of it.
    pub(crate) last_save_bytes: u64,
    /// What this process holds more than at its start when all is over; the ranks have ended.
    pub(crate) left_bytes: u64,
}

/// Saves through windows smaller than the images.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Streaming {
    /// Of each rank.
    pub(crate) window_bytes: u64,
    /// The most that windows and all processes held beside the state while a save went on ...
    pub(crate) peak_bytes: u64,
    /// ... over the state.
    pub(crate) memory_over_state: f64,
    /// The trainer waits for the disk: all of the write but the last window.
    pub(crate) stall_over_odirect_write: f64,
    pub(crate) durable_over_odirect_write: f64,
    pub(crate) cpu_s_per_gib: f64,
    pub(crate) stall_s: f64,
    pub(crate) durable_s: f64,
}

/// A load on another number of ranks.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Reshard {
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
pub(crate) struct Raw {
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

/// What it was measured on.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) ranks: u32,
    pub(crate) rank_is: &'static str,
    pub(crate) rounds: usize,
    pub(crate) load_average_before: f64,
    pub(crate) load_average_after: f64,
    pub(crate) directory: PathBuf,
    pub(crate) filesystem: String,
}

/// Measures everything.
pub(crate) fn measure(options: &Options) -> io::Result<Figures> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = (cores / options.ranks.max(1) as usize).clamp(1, 8);
    let mut figures = Figures {
        machine: Machine {
            cores,
            ranks: options.ranks,
            rank_is: "process",
            rounds: options.rounds,
            load_average_before: memory::load_average(),
            directory: options.dir.clone(),
            filesystem: memory::filesystem(&options.dir),
            ..Machine::default()
        },
        ..Figures::default()
    };
    rounds::measure(options, threads, &mut figures)?;
    figures.streaming = streaming::measure(options, threads)?;
    figures.plan_10000_tensors_512_to_768_s = planning::plan_seconds()?;
    figures.machine.load_average_after = memory::load_average();
    Ok(figures)
}

/// The middle one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

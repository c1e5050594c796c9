//! Saves through windows smaller than the images: less memory, but the trainer waits for the disk.

use std::io;

use super::messages::{LoadTier, RankRequest, TargetMemory};
use super::ranks::{RankProcess, run_on_all};
use super::rounds::{MemoryOverhead, NodeArenas, SaveTiming, slowest};
use super::{BenchOptions, StreamingFigures, median};

/// Saves before any other work, to measure their memory.
const ALONE: u64 = 3;

/// Measures saves that alternate with plain writes of the same bytes.
pub(super) fn measure(options: &BenchOptions, threads: usize) -> io::Result<StreamingFigures> {
    let dir = tempfile::Builder::new()
        .prefix("rankguard-bench-")
        .tempdir_in(&options.dir)?;
    let node = NodeArenas::windowed(options, &dir.path().join("store"))?;
    let mut ranks = RankProcess::start_all(options.ranks, options.gib, threads, &node.paths())?;
    let mut extra = MemoryOverhead::begin(&ranks);
    for step in 1..=ALONE {
        extra.watch(&node, || node.save(&mut ranks, step))?;
        node.forget(step)?;
    }
    let mut saves = Vec::new();
    let mut writes = Vec::new();
    let mut state = 0;
    for round in 0..=options.rounds {
        let step = ALONE + 1 + round as u64;
        saves.push(node.save(&mut ranks, step)?);
        let reference = |nth: usize| dir.path().join(format!("reference-{nth}"));
        writes.push(slowest(&run_on_all(&mut ranks, |nth| RankRequest::Write {
            path: reference(nth),
        })?));
        if round == 0 {
            let loaded = node.load(&mut ranks, step, (LoadTier::Disk, TargetMemory::Touched), true)?;
            state = loaded.iter().map(|told| told.needed).sum();
        }
        node.forget(step)?;
    }
    // The first round is discarded.
    let saves = &saves[1..];
    let writes = &writes[1..];
    let of = |pick: fn(&SaveTiming) -> f64| median(saves.iter().map(pick).collect());
    let over = |pick: fn(&SaveTiming) -> f64| {
        median(
            saves
                .iter()
                .zip(writes)
                .map(|(save, write)| pick(save) / write)
                .collect(),
        )
    };
    Ok(StreamingFigures {
        window_bytes: options.window,
        peak_bytes: extra.most,
        memory_over_state: extra.most as f64 / state as f64,
        stall_over_odirect_write: over(|save| save.stall),
        durable_over_odirect_write: over(|save| save.durable),
        cpu_s_per_gib: of(|save| save.cpu) / (state as f64 / f64::from(1 << 30)),
        stall_s: of(|save| save.stall),
        durable_s: of(|save| save.durable),
    })
}

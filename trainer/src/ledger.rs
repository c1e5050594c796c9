//! Ledger of consumed samples: half-open intervals of positions in each epoch's sample order. It is a multiset: a
//! position that was consumed twice is listed twice, so that merging hides nothing.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Consumed intervals by epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SampleLedger {
    /// Each list is sorted; adjacent intervals are joined, overlapping ones are not.
    epochs: BTreeMap<u64, Vec<(u64, u64)>>,
}

impl SampleLedger {
    /// Records that these positions were consumed.
    pub fn add(&mut self, epoch: u64, positions: Range<u64>) {
        if positions.is_empty() {
            return;
        }
        let list = self.epochs.entry(epoch).or_default();
        let at = list.partition_point(|&(from, _)| from < positions.start);
        list.insert(at, (positions.start, positions.end));
        join(list, at);
    }

    /// Adds all intervals of another ledger.
    pub fn merge(&mut self, other: &Self) {
        for (&epoch, list) in &other.epochs {
            for &(from, to) in list {
                self.add(epoch, from..to);
            }
        }
    }

    /// Returns the number of consumed positions, duplicates included.
    pub fn total(&self) -> u64 {
        let lists = self.epochs.values().flatten();
        lists.map(|(from, to)| to.saturating_sub(*from)).sum()
    }

    /// Returns how often each position of an epoch was consumed, as counts by range that cover `0..samples` and
    /// anything beyond.
    fn counts(&self, epoch: u64, samples: u64) -> Vec<(Range<u64>, i64)> {
        let mut edges: BTreeMap<u64, i64> = BTreeMap::from([(0, 0), (samples, 0)]);
        for &(from, to) in self.epochs.get(&epoch).into_iter().flatten() {
            *edges.entry(from).or_default() += 1;
            *edges.entry(to).or_default() -= 1;
        }
        let (places, mut depth): (Vec<u64>, i64) = (edges.keys().copied().collect(), 0);
        let stretches = places.windows(2).map(|pair| {
            depth += edges[&pair[0]];
            (pair[0]..pair[1], depth)
        });
        stretches.collect()
    }

    /// Compares the ledger with "every sample of every epoch exactly once".
    pub fn report(&self, samples: u64, epochs: u64) -> LedgerReport {
        let beyond = self.epochs.keys().copied().filter(|&epoch| epoch >= epochs);
        let per_epoch: Vec<EpochReport> = (0..epochs)
            .chain(beyond)
            .map(|epoch| {
                let wanted = if epoch < epochs { samples } else { 0 };
                let mut report = EpochReport {
                    epoch,
                    ..EpochReport::default()
                };
                for (stretch, count) in self.counts(epoch, wanted) {
                    let length = stretch.end - stretch.start;
                    let count = count.unsigned_abs();
                    let due = u64::from(stretch.start < wanted);
                    report.consumed += length * count;
                    report.duplicates += length * count.saturating_sub(due);
                    report.omissions += length * due.saturating_sub(count);
                }
                report
            })
            .collect();
        let sum = |of: fn(&EpochReport) -> u64| per_epoch.iter().map(of).sum();
        let duplicates = sum(|e| e.duplicates);
        let omissions = sum(|e| e.omissions);
        LedgerReport {
            exact: duplicates == 0 && omissions == 0,
            duplicates,
            omissions,
            epochs: per_epoch,
        }
    }
}

/// Joins the interval at `at` with adjacent ones.
fn join(list: &mut Vec<(u64, u64)>, at: usize) {
    if at + 1 < list.len() && list[at].1 == list[at + 1].0 {
        list[at].1 = list.remove(at + 1).1;
    }
    if at > 0 && list[at - 1].1 == list[at].0 {
        list[at - 1].1 = list.remove(at).1;
    }
}

/// Result of comparing a ledger with "every sample exactly once per epoch".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerReport {
    /// True if there are no duplicates and no omissions.
    pub exact: bool,
    /// Consumptions beyond the first, or of positions that do not exist.
    pub duplicates: u64,
    /// Samples that were not consumed.
    pub omissions: u64,
    /// The same figures by epoch.
    pub epochs: Vec<EpochReport>,
}

/// Figures of one epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochReport {
    /// Number of the epoch, from 0.
    pub epoch: u64,
    /// Number of consumptions.
    pub consumed: u64,
    /// Consumptions beyond the first.
    pub duplicates: u64,
    /// Samples that were not consumed.
    pub omissions: u64,
}

/// Ledger file that a rank writes at its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerFile {
    /// Generation that finished.
    pub generation: u64,
    pub rank: u32,
    /// Number of ranks of that generation.
    pub world_size: u32,
    /// Consumed samples; rank 0 includes those of earlier generations.
    pub ledger: SampleLedger,
}

/// Failure to evaluate the ledgers of a run.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum LedgerError {
    #[error("read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("read {}: it is no ledger", path.display())]
    Parse { path: PathBuf, source: serde_json::Error },
    #[error("find ledgers in {}: there is none; did the job finish?", dir.display())]
    None { dir: PathBuf },
    #[error("gather the ledgers of generation {generation} in {}: {have} of {world_size} ranks left one", dir.display())]
    Some {
        dir: PathBuf,
        generation: u64,
        have: usize,
        world_size: u32,
    },
}

/// Returns the file name of a rank's ledger.
pub(crate) fn file_name(rank: u32) -> String {
    format!("ledger-rank-{rank}.json")
}

/// Collects the ledgers of the newest generation in `dir` and compares them with "every sample of every epoch exactly
/// once". Files of older generations, which ended before they were done, are ignored.
pub fn check(dir: &Path, samples: u64, epochs: u64) -> Result<LedgerReport, LedgerError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        |source| LedgerError::Read { path, source }
    };
    let mut files: BTreeMap<(u64, u32), LedgerFile> = BTreeMap::new();
    for entry in std::fs::read_dir(dir).map_err(failed(dir))? {
        let path = entry.map_err(failed(dir))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("ledger-rank-") && name.ends_with(".json") {
            let text = std::fs::read(&path).map_err(failed(&path))?;
            let file: LedgerFile =
                serde_json::from_slice(&text).map_err(|source| LedgerError::Parse { path, source })?;
            files.insert((file.generation, file.rank), file);
        }
    }
    let Some((&(generation, _), newest)) = files.last_key_value() else {
        return Err(LedgerError::None { dir: dir.to_owned() });
    };
    let world_size = newest.world_size;
    let mut all = SampleLedger::default();
    let mut have = 0;
    for (_, file) in files.range((generation, 0)..(generation, world_size)) {
        all.merge(&file.ledger);
        have += 1;
    }
    if have != world_size as usize {
        return Err(LedgerError::Some {
            dir: dir.to_owned(),
            generation,
            have,
            world_size,
        });
    }
    Ok(all.report(samples, epochs))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::schedule::SampleSchedule;

    fn ledger(epoch: u64, intervals: &[(u64, u64)]) -> SampleLedger {
        let mut ledger = SampleLedger::default();
        for &(from, to) in intervals {
            ledger.add(epoch, from..to);
        }
        ledger
    }

    #[test]
    fn touching_intervals_become_one_and_overlapping_ones_stay_two() {
        assert_eq!(ledger(0, &[(4, 8), (0, 4), (8, 9)]).epochs[&0], [(0, 9)]);
        assert_eq!(ledger(0, &[(0, 5), (4, 8)]).epochs[&0], [(0, 5), (4, 8)]);
    }

    #[test]
    fn duplicates_and_omissions_are_counted() {
        let report = ledger(0, &[(0, 6), (4, 8)]).report(10, 1);
        assert_eq!((report.exact, report.duplicates, report.omissions), (false, 2, 2));
        let beyond = ledger(0, &[(0, 12)]).report(10, 1);
        assert_eq!((beyond.exact, beyond.duplicates, beyond.omissions), (false, 2, 0));
        let other_epoch = ledger(1, &[(0, 3)]).report(10, 1);
        assert_eq!((other_epoch.duplicates, other_epoch.omissions), (3, 10));
        assert!(ledger(0, &[(0, 10)]).report(10, 1).exact);
    }

    /// Simulates a run in which each generation of the job (world size, steps until it ends, steps between
    /// checkpoints) continues from the newest checkpoint of the generations before it; returns the ledgers of the last
    /// one.
    fn play(schedule: SampleSchedule, lives: &[(usize, u64)], every: u64, last: usize) -> Vec<SampleLedger> {
        let mut saved: (u64, Vec<SampleLedger>) = (0, Vec::new());
        let ends = lives.iter().map(|&(w, steps)| (w, Some(steps))).chain([(last, None)]);
        let mut ledgers = Vec::new();
        for (world_size, steps) in ends {
            let (mut step, shards) = saved.clone();
            ledgers = vec![SampleLedger::default(); world_size];
            shards.iter().for_each(|shard| ledgers[0].merge(shard));
            let end = steps.map_or(schedule.total_steps(), |s| (step + s).min(schedule.total_steps()));
            while step < end {
                let window = schedule.window(step);
                for (rank, ledger) in ledgers.iter_mut().enumerate() {
                    let share = schedule.consumed_by(&window, rank, world_size);
                    ledger.add(window.epoch, share.start as u64..share.end as u64);
                }
                step += 1;
                if step % every == 0 {
                    saved = (step, ledgers.clone());
                }
            }
        }
        ledgers
    }

    proptest! {
        #[test]
        fn every_sample_is_consumed_once_per_epoch_whatever_the_world_sizes_and_failures(
            lives in prop::collection::vec((1_usize..=24, 0_u64..40), 0..8),
            every in 1_u64..12,
            last in 1_usize..=24,
            samples in 1_usize..300,
            batch in 1_usize..100,
        ) {
            let schedule = SampleSchedule { samples, batch, epochs: 3, virtual_ranks: 24 };
            let ledgers = play(schedule, &lives, every, last);
            let mut all = SampleLedger::default();
            ledgers.iter().for_each(|ledger| all.merge(ledger));
            prop_assert!(all.report(samples as u64, 3).exact);
            prop_assert_eq!(all.total(), 3 * samples as u64);
            // The check detects faults: one missing ledger is an omission, one counted twice a duplicate.
            for ledger in &ledgers {
                let mut twice = all.clone();
                twice.merge(ledger);
                prop_assert_eq!(twice.report(samples as u64, 3).duplicates, ledger.total());
            }
        }
    }

    #[test]
    fn files_of_generations_that_did_not_finish_do_not_count() {
        let dir = tempfile::tempdir().expect("a folder");
        let write = |generation, rank, world_size, ledger| {
            let file = LedgerFile {
                generation,
                rank,
                world_size,
                ledger,
            };
            let text = serde_json::to_vec(&file).expect("serializable");
            std::fs::write(dir.path().join(file_name(rank)), text).expect("written");
        };
        assert!(matches!(check(dir.path(), 10, 1), Err(LedgerError::None { .. })));
        write(1, 2, 3, ledger(0, &[(0, 9), (0, 9)]));
        write(2, 0, 2, ledger(0, &[(0, 5)]));
        assert!(matches!(
            check(dir.path(), 10, 1),
            Err(LedgerError::Some {
                have: 1,
                world_size: 2,
                ..
            })
        ));
        write(2, 1, 2, ledger(0, &[(5, 10)]));
        assert!(check(dir.path(), 10, 1).expect("complete").exact);
    }
}

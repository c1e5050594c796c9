//! Job of a thousand ranks.

use std::sync::Arc;

use crate::job::{Job, call, culprits};
use rankguard_flight::{OperationState, RecorderDump, analyze};

const RANKS: u32 = 1024;
const ENTRIES: i64 = 1000;
const NODE: u32 = 8;

/// Returns the dumps of ranks with a group of their node and one of their position in all nodes, called in turn; the
/// ring is full. Rank `culprit` stopped ten calls before the others, which then wait for it as far as they came.
fn dumps(culprit: u32) -> Vec<RecorderDump> {
    let mut small = Job::new(&[("0", "node", &[0, 1]), ("1", "across", &[0, 1])]);
    small
        .call(&[0], "0", call("all_reduce").done())
        .call(&[0], "1", call("all_reduce").done());
    let mut parts = small.dumps();
    let sample = parts.swap_remove(0);
    let node_of = |rank: u32| -> Arc<[u32]> { (rank / NODE * NODE..rank / NODE * NODE + NODE).collect() };
    let across: Vec<Arc<[u32]>> = (0..NODE)
        .map(|place| (0..RANKS / NODE).map(|node| node * NODE + place).collect())
        .collect();
    (0..RANKS)
        .map(|rank| {
            let mut dump = sample.clone();
            dump.rank = Some(rank);
            let names: [Arc<str>; 2] = [
                Arc::from(format!("n{}", rank / NODE)),
                Arc::from(format!("a{}", rank % NODE)),
            ];
            for (config, name) in dump.groups.iter_mut().zip(&names) {
                config.id = name.clone();
            }
            dump.groups[0].ranks = node_of(rank);
            dump.groups[1].ranks = across[(rank % NODE) as usize].clone();
            // Its node stops in the next call of the node's group, all others in the next one across nodes.
            let calls = if rank == culprit { ENTRIES - 10 } else { ENTRIES };
            dump.entries = (0..calls)
                .map(|at| {
                    let which = (at % 2) as usize;
                    let mut entry = sample.entries[which].clone();
                    entry.record_id = at;
                    entry.group = names[which].clone();
                    entry.collective_seq = at / 2 + 1;
                    entry.state = if at < ENTRIES - 10 {
                        OperationState::Completed
                    } else {
                        OperationState::Scheduled
                    };
                    entry
                })
                .collect();
            dump.status.values_mut().for_each(|status| {
                status.last_enqueued = Some(calls / 2);
                status.last_completed = Some((ENTRIES - 10) / 2);
            });
            dump
        })
        .collect()
}

#[test]
fn one_of_a_thousand_is_found() {
    let report = analyze(&dumps(517), Some(RANKS));
    assert_eq!(report.entries, (RANKS as usize) * 1000 - 10);
    assert_eq!(culprits(&report), [517]);
    assert_eq!(report.groups.len(), 2);
    assert_eq!(report.groups[0].missing_ranks, [517]);
    assert!(report.lines().iter().map(String::len).sum::<usize>() < 20_000);
}

#[test]
fn half_of_a_thousand_without_dumps_is_told_in_few_words() {
    let mut dumps = dumps(517);
    dumps.retain(|dump| dump.rank.is_some_and(|rank| rank % 2 == 0));
    let report = analyze(&dumps, Some(RANKS));
    assert_eq!(report.ranks_without_dump.len(), 512);
    assert!(report.culprits.iter().all(|culprit| culprit.confidence <= 0.3));
    let longest = report
        .culprits
        .iter()
        .flat_map(|culprit| &culprit.because)
        .map(String::len)
        .max();
    assert!(longest < Some(4_000), "{longest:?}");
}

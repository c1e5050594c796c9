//! Analysis of the dumps of all ranks: groups in trouble and culprits.
//!
//! 1. `build` creates the `world`: groups, members, operations, and operations that are done without a record.
//! 2. `waits`: the operation that blocks each rank, and its targets.
//! 3. `matching`: mismatches between the members of an operation.
//! 4. `walk`: traversal of the waits to ranks that wait for none, or to cycles.
//! 5. `culprits`, `suspects` and `groups`: description of the resulting ranks and groups.

mod build;
mod combined;
mod culprits;
mod groups;
mod matching;
mod numbering;
mod pairs;
mod suspects;
mod wait_chains;
mod waits;

use crate::dump::RecorderDump;
use crate::limits::DumpProblems;
use crate::report::AnalysisReport;

use combined::CombinedDumps;
use wait_chains::WaitChains;
use waits::WaitIndex;

/// Compares the dumps of a job's ranks. `expected_world` is the number of ranks of the job, if known; otherwise it
/// follows from the member lists of the groups.
pub fn analyze(dumps: &[RecorderDump], expected_world: Option<u32>) -> AnalysisReport {
    let mut problems = DumpProblems::default();
    let world = CombinedDumps::build(dumps, expected_world, &mut problems);
    let mismatches = matching::compare(&world);
    let waits = WaitIndex::find(&world);
    let walk = WaitChains::along(&world, &waits);
    let mut report = AnalysisReport {
        dumps: world.ranks.values().filter(|view| view.dump.is_some()).count(),
        entries: world
            .ranks
            .values()
            .filter_map(|view| Some(view.dump?.entries.len()))
            .sum(),
        ..AnalysisReport::default()
    };
    for (rank, view) in &world.ranks {
        if view.dump.is_none() {
            report.ranks_without_dump.push(*rank);
        } else if !view.has_entries() {
            report.ranks_without_entries.push(*rank);
        }
    }
    culprits::name(&world, &waits, &walk, &mismatches, &mut report);
    groups::describe(&world, &waits, mismatches, &mut report);
    report.waiting_ranks = waits.of_rank.keys().copied().collect();
    let named = |rank: &u32| {
        report.culprits.iter().any(|culprit| culprit.rank == *rank)
            || report.suspects.iter().any(|suspect| suspect.rank == *rank)
            || walk.awaited.contains(rank)
    };
    let with_dump = world
        .ranks
        .iter()
        .filter(|(_, view)| view.dump.is_some())
        .map(|(rank, _)| *rank);
    report.healthy_ranks = with_dump
        .filter(|rank| !waits.of_rank.contains_key(rank) && !named(rank))
        .collect();
    report.problems = problems.into_vec(None);
    report
}

//! Ranks with evidence of their own that end no chain.

use crate::operation::SequenceKind;
use crate::report::{AnalysisReport, SuspectRank};

use super::combined::CombinedDumps;
use super::waits::{WaitCause, WaitIndex};

/// Confidence of a rank with a record behind the completions that its peers saw.
pub(super) const STALE: f64 = 0.4;
/// Confidence of a rank that stopped before the foremost members and waits itself.
const BEHIND: f64 = 0.2;
/// Minimum number of stale operations; fewer are the normal delay of a watchdog.
const STALE_OPERATIONS: usize = 4;

/// Describes a rank with a stale record.
pub(super) fn stale(world: &CombinedDumps<'_>, rank: u32) -> Option<String> {
    let view = &world.ranks[&rank];
    let count = view.stale;
    let first = view
        .ops
        .iter()
        .find(|op| op.proven && op.lane == SequenceKind::Collective)?;
    (count >= STALE_OPERATIONS).then(|| {
        format!(
            "rank {rank} still records {count} operations as pending that its peers completed together with it, since {} {} \
             of group {}: its GPU or its watchdog stopped answering there",
            world.op_name(rank, first),
            first.seq,
            world.group_name(first.group)
        )
    })
}

/// Adds the suspects to the report.
pub(super) fn suspects(world: &CombinedDumps<'_>, waits: &WaitIndex, report: &mut AnalysisReport) {
    let culprit = |rank: u32| report.culprits.iter().any(|culprit| culprit.rank == rank);
    let mut counts: Vec<usize> = world
        .ranks
        .values()
        .filter(|view| view.dump.is_some())
        .map(|view| view.stale)
        .collect();
    counts.sort_unstable();
    let usual = counts.get(counts.len() / 2).copied().unwrap_or(0);
    let mut found = Vec::new();
    for (rank, view) in &world.ranks {
        if view.stale > 4 * usual
            && !culprit(*rank)
            && let Some(sentence) = stale(world, *rank)
        {
            found.push(SuspectRank {
                rank: *rank,
                confidence: STALE,
                because: vec![sentence],
            });
        }
    }
    for wait in waits
        .waits
        .iter()
        .filter(|wait| wait.cause == WaitCause::Missing && wait.lane == SequenceKind::Collective)
    {
        let group = &world.groups[wait.group];
        let front = group.members.values().filter_map(|member| member.enqueued).max();
        for (rank, _) in &wait.waiters {
            let reached = group.members[rank].enqueued;
            if reached < front && !culprit(*rank) && !found.iter().any(|suspect| suspect.rank == *rank) {
                let reached = reached.unwrap_or_default();
                let front = front.unwrap_or_default();
                let sentence = format!(
                    "rank {rank} stopped at {reached} of group {} while others went on to {front}; it waits too",
                    world.group_name(wait.group)
                );
                found.push(SuspectRank {
                    rank: *rank,
                    confidence: BEHIND,
                    because: vec![sentence],
                });
            }
        }
    }
    found.sort_by(|a, b| b.confidence.total_cmp(&a.confidence).then(a.rank.cmp(&b.rank)));
    report.suspects = found;
}

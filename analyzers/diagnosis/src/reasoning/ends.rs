//! Sentences about the ranks that ended, by node.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rankguard_model::{Entity, EvidenceSource, NodeId, Rank, ReasoningEntry, Verdict};

use super::times::{moment, moments};
use super::words::{ABOUT_SAME_TIME, PROVES_NO_ORDER, ROOM, capital, names};
use crate::own_fault::{has_own_fault_before, is_drill_beside, is_own_end};
use crate::signalled_ranks::has_known_order;
use crate::unordered::{ended_of_own_error, is_a_moment_before};
use crate::{CauseCandidate, FailureScene, Signal};

/// Relation of an ended rank to the first cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum EndRelation {
    /// Consequence of the first cause, or its beginning.
    Part,
    /// Consequence of the end of the rank that the first cause names, on the same node.
    Survivor,
    /// End by the signal of the first cause, in an unknown order.
    Equal,
    /// End after an error that the rank raised for a reason of its own.
    Error,
    /// Failure of its own.
    Own,
}

impl EndRelation {
    fn of(scene: &FailureScene<'_>, winner: &CauseCandidate, index: usize) -> Self {
        let is_own = is_own_end(scene, winner, index) || is_drill_beside(scene, winner, index);
        let is_of_end = scene.signs[winner.first].exit().is_some() && winner.support.len() > 1;
        if is_own {
            Self::Own
        } else if ended_of_own_error(scene, winner, &scene.signs[index]) {
            Self::Error
        } else if scene.distinguishes_ends() && is_of_end && winner.support.contains(index) {
            Self::Equal
        } else if is_survivor(scene, winner, index) {
            Self::Survivor
        } else {
            Self::Part
        }
    }
}

/// Returns true if the first cause blames or names the process of another rank that ended on the same node.
fn is_survivor(scene: &FailureScene<'_>, winner: &CauseCandidate, index: usize) -> bool {
    let (sign, first) = (&scene.signs[index], &scene.signs[winner.first]);
    let is_other = |(at, other): (usize, &Signal)| {
        let is_blamed = matches!(&winner.blamed, Entity::Rank { .. }) && other.entity.rank() == winner.blamed.rank();
        let is_named = first.mark().is_some() && first.pid().is_some() && first.pid() == other.pid();
        at != index && other.node() == sign.node() && (is_blamed || is_named)
    };
    let is_candidate = index != winner.first && !winner.support.contains(index);
    is_candidate && scene.distinguishes_ends() && scene.exits().any(|(at, other, ..)| is_other((at, other)))
}

/// Describes the ranks that ended, by node.
pub(super) fn ended(
    scene: &FailureScene<'_>,
    winner: &CauseCandidate,
    verdict: &Verdict,
    first: &Signal,
) -> Vec<ReasoningEntry> {
    let support = winner.support.iter().map(|index| &scene.signs[index]);
    let marks = support.filter(|sign| sign.mark().is_some());
    let reporters: BTreeSet<Rank> = marks.filter_map(|sign| sign.entity.rank()).collect();
    let mut groups: BTreeMap<&NodeId, Vec<(EndRelation, &Signal, String)>> = BTreeMap::new();
    for (index, sign, _, exit) in scene.exits() {
        // The opening describes the end that is the first cause.
        let is_described = scene.distinguishes_ends() && index == winner.first;
        if let Some(node) = sign.node().filter(|_| !is_described) {
            let relation = EndRelation::of(scene, winner, index);
            groups.entry(node).or_default().push((relation, sign, exit.to_string()));
        }
    }
    let mut nodes: BTreeMap<(&NodeId, EndRelation), Vec<(&Signal, String)>> = BTreeMap::new();
    for (node, exits) in groups {
        // Under older rules the ends of one node were described together.
        let is_whole = !scene.distinguishes_ends() && !exits.iter().all(|(relation, ..)| *relation == EndRelation::Own);
        for (relation, sign, how) in exits {
            let relation = if is_whole { EndRelation::Part } else { relation };
            nodes.entry((node, relation)).or_default().push((sign, how));
        }
    }
    nodes
        .into_iter()
        .filter_map(|((node, relation), exits)| {
            let (sign, _) = exits.first()?;
            let ranks: BTreeSet<Rank> = exits.iter().filter_map(|(sign, _)| sign.rank()).collect();
            let hows: BTreeSet<&str> = exits.iter().map(|(_, how)| how.as_str()).collect();
            let hows: Vec<_> = hows.into_iter().collect();
            let ends: Vec<&Signal> = exits.iter().map(|(end, _)| *end).collect();
            let meaning = match relation {
                EndRelation::Own => "which is a failure of its own",
                EndRelation::Error => "after an error of its own",
                EndRelation::Equal if ends.iter().all(|end| has_known_order(first, end)) => {
                    "and nothing shows that they ended because of the first"
                }
                EndRelation::Equal => "in an order that proves nothing",
                EndRelation::Survivor if matches!(verdict.blamed, Entity::Rank { .. }) => {
                    "on the node of the blamed rank"
                }
                EndRelation::Survivor => "on the same node, as survivors do",
                EndRelation::Part if has_own_fault_before(scene, winner, sign) => "after a fault of this node itself",
                EndRelation::Part => part_in_failure(verdict, &reporters, node, &ranks),
            };
            let mut text = String::with_capacity(ROOM);
            if is_last_line(first, sign) {
                text.push_str("right after it");
            } else if scene.distinguishes_ends()
                && matches!(relation, EndRelation::Part | EndRelation::Survivor)
                && is_a_moment_before(sign, first)
            {
                text.push_str(ABOUT_SAME_TIME);
                moments(&mut text, &ends, first);
                text.push_str(PROVES_NO_ORDER);
            } else if scene.distinguishes_ends() {
                moments(&mut text, &ends, first);
            } else {
                moment(&mut text, sign, first);
            }
            let names = names(&ranks);
            let hows = hows.join(", ");
            for part in [
                ", ",
                &names,
                " on node ",
                node.as_str(),
                " ended (",
                &hows,
                "), ",
                meaning,
                ".",
            ] {
                text.push_str(part);
            }
            Some(ReasoningEntry {
                at: sign.at,
                text: capital(text),
            })
        })
        .collect()
}

/// Maximum time from the end of a rank to the read of its last lines.
pub(super) const READ_LAG: Duration = Duration::from_secs(2);

/// Returns true if the first cause is a line that the ended rank wrote: lines carry the time at which they were read, and
/// a process writes before it ends.
fn is_last_line(first: &Signal, end: &Signal) -> bool {
    let is_own = first.source == EvidenceSource::JobLog && first.entity == end.entity;
    let is_timed = first.timed && end.timed;
    is_own && is_timed && end.at < first.at && first.at.since(end.at) <= READ_LAG
}

/// Returns the part that ended ranks of one node have in a failure; `reporters` are the ranks that reported its cause.
fn part_in_failure(
    verdict: &Verdict,
    reporters: &BTreeSet<Rank>,
    node: &NodeId,
    ranks: &BTreeSet<Rank>,
) -> &'static str {
    let holds = |rank: Option<Rank>| rank.is_some_and(|rank| ranks.contains(&rank));
    match &verdict.blamed {
        Entity::Rank { rank, node: of, .. } if of == node && !ranks.contains(rank) => "on the node of the blamed rank",
        blamed if blamed.node() == Some(node) => "where the cause sits",
        _ if holds(verdict.root_rank) => "where the failure began",
        _ if !ranks.is_empty() && ranks.is_subset(reporters) => "after the same report",
        Entity::Job { .. } if verdict.root_rank.is_none() => "with the whole job",
        _ => "as survivors do",
    }
}

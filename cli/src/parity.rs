//! Parity of a job: the placement that its agents plan, its survivable losses, and sentences that describe them.

use std::collections::BTreeMap;

use rankguard_checkpoint_schedule::lanes::{ParityLane, lanes_survival, smallest_fatal};
use rankguard_checkpoint_tiers::parity::{MEMBERS_MAX, PARITY_MAX};
use rankguard_checkpoint_tiers::placement::{ParityGroup, PlacementNode, plan_parity};
use rankguard_model::{CheckpointParity, NodeId};
use serde::Serialize;

use crate::display_text;

/// Maximum number of fatal node sets that are listed.
const FATAL_NAMED: usize = 4;

/// Numbers of nodes lost at once for which survival is computed.
pub(crate) const LOST: [u32; 4] = [1, 2, 4, 8];

/// Parses `K+M`: K nodes per group, M parities.
pub(crate) fn parse(text: &str) -> Result<CheckpointParity, String> {
    let (nodes, parities) = text.split_once('+').ok_or("expected K+M, such as 4+1")?;
    let number = |text: &str, most: usize| {
        let found = text.parse::<u32>().ok();
        let found = found.filter(|number| (1..=most).contains(&(*number as usize)));
        found.ok_or_else(|| format!("{text:?} is not a number from 1 to {most}; expected K+M, such as 4+1"))
    };
    Ok(CheckpointParity {
        nodes: number(nodes, MEMBERS_MAX)?,
        parities: number(parities, PARITY_MAX)?,
    })
}

/// Parity groups of nodes, with the holders of their parity.
#[derive(Debug)]
pub(crate) struct ParityLanes {
    groups: Vec<ParityGroup>,
    nodes: Vec<NodeId>,
    lanes: Vec<ParityLane>,
}

/// Probability that every image is present or can be restored after `lost` nodes are lost at once.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ImageSurvival {
    pub(crate) lost: u32,
    pub(crate) probability: f64,
    /// True if `probability` is exact; otherwise it is a lower bound.
    pub(crate) exact: bool,
}

impl ParityLanes {
    /// Plans parity for `members` with the function that the agents use.
    pub(crate) fn plan(members: &[PlacementNode], parity: CheckpointParity) -> Self {
        let groups = plan_parity(members, parity.nodes as usize, parity.parities as usize, &[]);
        let mut nodes: Vec<NodeId> = members.iter().map(|member| member.node.clone()).collect();
        nodes.sort();
        let numbers: BTreeMap<&NodeId, u32> = nodes.iter().zip(0..).collect();
        let of = |names: &[NodeId]| names.iter().filter_map(|node| numbers.get(node).copied()).collect();
        let lanes = groups
            .iter()
            .map(|group| ParityLane {
                members: of(&group.members),
                holders: of(&group.holders),
            })
            .collect();
        Self { groups, nodes, lanes }
    }

    /// Plans parity for `nodes` unnamed nodes without shared failure domains.
    pub(crate) fn of_any(nodes: u32, parity: CheckpointParity) -> Self {
        let member = |number| PlacementNode::new(&format!("{number:06}"), &[]);
        Self::plan(&(0..nodes).map(member).collect::<Vec<_>>(), parity)
    }

    /// Returns the number of parity shares over all ranks' images: for each image as many as its group has holders.
    pub(crate) fn shares(&self, ranks_per_node: u32) -> u32 {
        let shares = self
            .groups
            .iter()
            .map(|group| group.members.len() * group.holders.len());
        u32::try_from(shares.sum::<usize>())
            .unwrap_or(u32::MAX)
            .saturating_mul(ranks_per_node)
    }

    /// Computes the survival probability for each count of [`LOST`] below the number of nodes.
    pub(crate) fn survival(&self) -> Vec<ImageSurvival> {
        let nodes = self.nodes.len() as u32;
        let ask = |lost| {
            let found = lanes_survival(&self.lanes, nodes, lost);
            ImageSurvival {
                lost,
                probability: found.probability,
                exact: found.exact,
            }
        };
        LOST.into_iter().filter(|lost| *lost < nodes).map(ask).collect()
    }

    /// Describes which nodes may be lost, one sentence per group.
    pub(crate) fn sentences(&self) -> Vec<String> {
        if self.groups.is_empty() {
            return vec!["a single node: no other node can hold its parity".to_owned()];
        }
        let groups = self.groups.iter().map(|group| {
            let members = names(&group.members);
            let holders = names(&group.holders);
            match group.holders.len() {
                0 => format!("parity over {members} is not stored: none of these nodes may be lost"),
                1 => format!("parity over {members} is held by {holders}: any one of these nodes may be lost"),
                parities => {
                    format!("parity over {members} is held by {holders}: any {parities} of these nodes may be lost")
                }
            }
        });
        let mut sentences: Vec<String> = groups.collect();
        let fatal = smallest_fatal(&self.lanes, FATAL_NAMED + 1);
        let set = |numbers: &Vec<u32>| {
            let nodes = numbers.iter().filter_map(|number| self.nodes.get(*number as usize));
            nodes.map(NodeId::as_str).collect::<Vec<_>>().join(" and ")
        };
        let mut named: Vec<String> = fatal.iter().take(FATAL_NAMED).map(set).collect();
        if fatal.len() > FATAL_NAMED {
            named.push("others".to_owned());
        }
        if let Some(first) = fatal.first() {
            sentences.push(format!(
                "smallest simultaneous losses that lose data in memory, {} each: {}",
                display_text::count(first.len(), "node"),
                named.join("; ")
            ));
        }
        sentences
    }
}

fn names(nodes: &[NodeId]) -> String {
    nodes.iter().map(NodeId::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parity_is_two_numbers_within_what_the_code_can_do() {
        assert_eq!(parse("4+2"), Ok(CheckpointParity { nodes: 4, parities: 2 }));
        for wrong in ["", "4", "4+0", "0+1", "4+33", "1025+1", "4:1", "4+1+1", "-4+1"] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn four_nodes_have_two_groups_and_fatal_pairs() {
        let members = ["n1", "n2", "n3", "n4"].map(|node| PlacementNode::new(node, &[]));
        let lanes = ParityLanes::plan(&members, CheckpointParity { nodes: 2, parities: 1 });
        let said = lanes.sentences();
        assert_eq!(said.len(), 3, "two groups, and what is fatal: {said:?}");
        assert!(said[0].ends_with("any one of these nodes may be lost"), "{said:?}");
        assert!(said[2].contains("2 nodes each: "), "{said:?}");
        assert_eq!(lanes.shares(2), 8, "one share of each of eight images");
        let survival = lanes.survival();
        assert_eq!((survival[0].lost, survival[0].probability), (1, 1.0));
        assert!(survival[1].probability < 0.5, "{survival:?}");
        let alone = ParityLanes::plan(&members[..1], CheckpointParity { nodes: 2, parities: 1 });
        assert_eq!((alone.shares(2), alone.survival()), (0, Vec::new()));
    }

    /// Smallest possible groups: with too few nodes there is no place for all parities.
    #[test]
    fn groups_smaller_than_what_was_asked_for_have_the_holders_that_there_are() {
        let members = ["n1", "n2", "n3"].map(|node| PlacementNode::new(node, &[]));
        let lanes = ParityLanes::plan(&members, CheckpointParity { nodes: 8, parities: 3 });
        for lane in &lanes.lanes {
            assert!(
                (1..=2).contains(&lane.members.len()) && lane.holders.len() == 3 - lane.members.len(),
                "{lane:?}"
            );
        }
    }
}

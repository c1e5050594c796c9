//! Survival of parity that is stored outside of the nodes it protects.
//!
//! A lane is a group of nodes with common parity over their images, and one node outside the group for each parity. The
//! images of the lane survive if at least as many parities are left as images are lost. As many nodes, members and
//! holders together, may be lost as there are parities; if no image is lost, all holders may be lost.
//!
//! A holder of one lane is a member of another, so lanes are not independent. Small numbers of loss sets are enumerated
//! exactly; otherwise the loss probabilities of the lanes are added up. That sum is never less than the true value, and
//! hardly more while it is small.

use serde::{Deserialize, Serialize};

use crate::special::ln_choose;

/// Maximum number of lane checks of an exact enumeration.
const LOOKS_MAX: f64 = 2e7;

/// Group of nodes under common parity, and the nodes that hold the parities. Nodes are numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParityLane {
    /// Nodes with images that the parity protects.
    pub members: Vec<u32>,
    /// Nodes that hold one parity each; none of them a member.
    pub holders: Vec<u32>,
}

/// Probability that every image survives or can be rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LaneSurvival {
    /// Survival probability, 0 to 1.
    pub probability: f64,
    /// True if the probability is exact; otherwise it is a lower bound.
    pub exact: bool,
}

impl ParityLane {
    /// True if every image of the lane survives or can be rebuilt.
    pub fn survives(&self, is_lost: impl Fn(u32) -> bool) -> bool {
        let lost = self.members.iter().filter(|node| is_lost(**node)).count();
        let left = self.holders.iter().filter(|node| !is_lost(**node)).count();
        lost == 0 || lost <= left
    }

    /// Returns the share of the sets of `lost` among `nodes` nodes that cost the lane an image.
    fn fatal(&self, nodes: usize, lost: usize) -> f64 {
        let members = self.members.len();
        let holders = self.holders.len();
        let others = nodes.saturating_sub(members + holders);
        let mut share = 0.0;
        for images in 1..=members.min(lost) {
            for sums in (holders + 1).saturating_sub(images)..=holders.min(lost - images) {
                let rest = lost - images - sums;
                if rest <= others {
                    let ways = ln_choose(members, images) + ln_choose(holders, sums) + ln_choose(others, rest);
                    share += (ways - ln_choose(nodes, lost)).exp();
                }
            }
        }
        share
    }

    fn nodes(&self) -> Vec<u32> {
        self.members.iter().chain(&self.holders).copied().collect()
    }
}

/// Returns the probability that every image survives if `lost` of `nodes` nodes are lost at once, all sets of that size
/// being equally likely.
pub fn lanes_survival(lanes: &[ParityLane], nodes: u32, lost: u32) -> LaneSurvival {
    let nodes = nodes as usize;
    let lost = lost as usize;
    if lost > nodes {
        return LaneSurvival {
            probability: 0.0,
            exact: true,
        };
    }
    let sets = ln_choose(nodes, lost).exp();
    if sets * lanes.len().max(1) as f64 > LOOKS_MAX {
        let fatal: f64 = lanes.iter().map(|lane| lane.fatal(nodes, lost)).sum();
        return LaneSurvival {
            probability: (1.0 - fatal).max(0.0),
            exact: false,
        };
    }
    let mut all = 0_u64;
    let mut good = 0_u64;
    let mut is_lost = vec![false; nodes];
    choose(&(0..nodes as u32).collect::<Vec<_>>(), lost, &mut |set| {
        set.iter().for_each(|node| is_lost[*node as usize] = true);
        let lost = |node: u32| is_lost.get(node as usize).copied().unwrap_or(false);
        (all, good) = (all + 1, good + u64::from(lanes.iter().all(|lane| lane.survives(lost))));
        set.iter().for_each(|node| is_lost[*node as usize] = false);
        true
    });
    LaneSurvival {
        probability: good as f64 / all.max(1) as f64,
        exact: true,
    }
}

/// Returns the smallest sets of nodes that cost an image if lost, at most `most` of them; empty without lanes.
pub fn smallest_fatal(lanes: &[ParityLane], most: usize) -> Vec<Vec<u32>> {
    let least = lanes.iter().map(|lane| lane.holders.len() + 1).min().unwrap_or(0);
    let mut fatal: Vec<Vec<u32>> = Vec::new();
    for lane in lanes.iter().filter(|lane| lane.holders.len() + 1 == least) {
        choose(&lane.nodes(), least, &mut |set| {
            if fatal.len() >= most {
                return false;
            }
            let mut set = set.to_vec();
            set.sort_unstable();
            // A set of holders alone costs no image.
            if !lane.survives(|node| set.contains(&node)) && !fatal.contains(&set) {
                fatal.push(set);
            }
            true
        });
    }
    fatal
}

/// Calls `look` with every set of `count` elements, in order, until it returns false.
fn choose(of: &[u32], count: usize, look: &mut dyn FnMut(&[u32]) -> bool) {
    let mut places: Vec<usize> = (0..count).collect();
    if count > of.len() {
        return;
    }
    loop {
        let set: Vec<u32> = places.iter().map(|place| of[*place]).collect();
        if !look(&set) {
            return;
        }
        // Advance the last position that can still move; all later positions follow it directly.
        let Some(moves) = (0..count).rev().find(|at| places[*at] < of.len() - count + at) else {
            return;
        };
        places[moves] += 1;
        for at in moves + 1..count {
            places[at] = places[at - 1] + 1;
        }
    }
}

//! Whether parity survives that is kept outside of the nodes that it is over.
//!
//! A lane is a group of nodes whose images stand under common parity, and a node for each parity, none of them of the group. The
//! images of the lane survive where as many parities are left as images are lost: any so many of its nodes and holders together
//! as there are parities may be lost, and where no image is lost, all holders may. A holder of one lane is a member of another,
//! so lanes are not independent, and sets of losses are looked at one by one where they are few enough; where they are not, the
//! probabilities of the lanes' losses are added up, which gives no less than the truth and hardly more while it is small.

use serde::{Deserialize, Serialize};

use crate::special::ln_choose;

/// Looks at lanes that a whole enumeration may take.
const LOOKS_MAX: f64 = 2e7;

/// Nodes under common parity, and who keeps it. Nodes are numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    /// The nodes whose images it is over.
    pub members: Vec<u32>,
    /// The nodes that keep a parity each; none of them a member.
    pub holders: Vec<u32>,
}

/// How likely it is that every image is still there, or comes back.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LaneSurvival {
    /// The probability.
    pub probability: f64,
    /// It is exact; else it is at least this.
    pub exact: bool,
}

impl Lane {
    /// Whether every image of the lane is there or comes back.
    pub fn survives(&self, is_lost: impl Fn(u32) -> bool) -> bool {
        let lost = self.members.iter().filter(|node| is_lost(**node)).count();
        let left = self.holders.iter().filter(|node| !is_lost(**node)).count();
        lost == 0 || lost <= left
    }

    /// Share of the sets of `lost` among `nodes` nodes that cost the lane an image.
    fn fatal(&self, nodes: usize, lost: usize) -> f64 {
        let (members, holders) = (self.members.len(), self.holders.len());
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

/// Probability that every image survives when `lost` of `nodes` nodes are lost at once, all sets of so many being equally
/// likely.
pub fn lanes_survival(lanes: &[Lane], nodes: u32, lost: u32) -> LaneSurvival {
    let (nodes, lost) = (nodes as usize, lost as usize);
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
    let (mut all, mut good) = (0_u64, 0_u64);
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

/// The smallest sets of nodes whose loss costs an image, at most so many of them; none where there is no lane.
pub fn smallest_fatal(lanes: &[Lane], most: usize) -> Vec<Vec<u32>> {
    let least = lanes.iter().map(|lane| lane.holders.len() + 1).min().unwrap_or(0);
    let mut fatal: Vec<Vec<u32>> = Vec::new();
    for lane in lanes.iter().filter(|lane| lane.holders.len() + 1 == least) {
        choose(&lane.nodes(), least, &mut |set| {
            if fatal.len() >= most {
                return false;
            }
            let mut set = set.to_vec();
            set.sort_unstable();
            // As many holders and nobody else are no loss.
            if !lane.survives(|node| set.contains(&node)) && !fatal.contains(&set) {
                fatal.push(set);
            }
            true
        });
    }
    fatal
}

/// Every set of `count` of these, in order, until `look` has seen enough and says no.
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
        // The last place that can still move, and all behind it right after it.
        let Some(moves) = (0..count).rev().find(|at| places[*at] < of.len() - count + at) else {
            return;
        };
        places[moves] += 1;
        for at in moves + 1..count {
            places[at] = places[at - 1] + 1;
        }
    }
}

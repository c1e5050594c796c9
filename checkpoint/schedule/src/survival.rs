//! Exact probability that a placement of copies survives `k` losses among its nodes, all sets of `k` nodes being
//! equally likely.
//!
//! A placement consists of independent parts. Within a part of `n` nodes, a share `q_i` of all sets of `i` losses is
//! survived; parts are combined by the hypergeometric distribution of losses over them. Everything is a sum of positive
//! terms, so no digits are lost at any size, and group sizes need not divide the number of nodes.
//!
//! Parity stored outside of its group is not such a part: see [`crate::lanes`].
//!
//! Not modelled: losses that occur together (a rack, a switch). Place copies in different failure domains, and count
//! domains as nodes here to compute those.

use serde::{Deserialize, Serialize};

use crate::special::ln_choose;

/// Nodes that hold copies of each other's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "kebab-case")]
pub enum RedundancyScheme {
    /// Any `tolerates` of the nodes may be lost: full copies on all (`nodes - 1`), XOR (1), Reed-Solomon (its
    /// parities).
    Group {
        /// Number of nodes.
        nodes: u32,
        /// Number of losses that it survives, for any set of nodes.
        tolerates: u32,
    },
    /// The state of each node is on itself and the next `copies - 1`: lost if `copies` neighbours are lost.
    Ring {
        /// Number of nodes.
        nodes: u32,
        /// Copies of each state, including the own one.
        copies: u32,
    },
}

impl RedundancyScheme {
    /// Returns the number of nodes.
    pub fn nodes(self) -> u32 {
        match self {
            Self::Group { nodes, .. } | Self::Ring { nodes, .. } => nodes,
        }
    }

    /// For each number of losses up to `most`, returns the share of loss sets that is survived.
    fn shares(self, most: usize) -> Vec<f64> {
        let nodes = self.nodes() as usize;
        let most = most.min(nodes);
        match self {
            Self::Group { tolerates, .. } => (0..=most).map(|lost| f64::from(lost <= tolerates as usize)).collect(),
            Self::Ring { copies, .. } => (0..=most).map(|lost| ring(nodes, copies as usize, lost)).collect(),
        }
    }
}

/// Divides nodes into groups of `copies` full copies. If the division leaves a rest, the last whole group and the rest
/// form one ring (GEMINI's rule).
pub fn groups(nodes: u32, copies: u32) -> Vec<RedundancyScheme> {
    let copies = copies.max(1);
    let whole = nodes / copies;
    let rest = nodes % copies;
    let group = RedundancyScheme::Group {
        nodes: copies,
        tolerates: copies - 1,
    };
    if rest == 0 {
        return vec![group; whole as usize];
    }
    let mut parts = vec![group; whole.saturating_sub(1) as usize];
    parts.push(RedundancyScheme::Ring {
        nodes: if whole == 0 { rest } else { copies + rest },
        copies,
    });
    parts
}

/// Returns one ring over all nodes.
pub fn one_ring(nodes: u32, copies: u32) -> Vec<RedundancyScheme> {
    vec![RedundancyScheme::Ring { nodes, copies }]
}

/// Returns the probability that every state has a copy left after `lost` nodes were lost; 0 if there are fewer nodes.
pub fn survival(parts: &[RedundancyScheme], lost: u32) -> f64 {
    let lost = lost as usize;
    let all: usize = parts.iter().map(|part| part.nodes() as usize).sum();
    if lost > all {
        return 0.0;
    }
    // survived[k]: of all sets of k losses among the parts so far, the share that is survived.
    let mut survived = vec![1.0];
    let mut nodes = 0_usize;
    let mut known: Option<(RedundancyScheme, Vec<f64>)> = None;
    for part in parts {
        let shares = match &known {
            Some((same, shares)) if same == part => shares.clone(),
            _ => part.shares(lost),
        };
        let own = part.nodes() as usize;
        let together = nodes + part.nodes() as usize;
        let mut next = vec![0.0; lost.min(together) + 1];
        for (k, next) in next.iter_mut().enumerate() {
            let denominator = ln_choose(together, k);
            for (i, share) in shares.iter().enumerate().take(k.min(own) + 1) {
                if *share > 0.0 && k - i <= nodes {
                    let weight = ln_choose(own, i) + ln_choose(nodes, k - i) - denominator;
                    *next += weight.exp() * share * survived[k - i];
                }
            }
        }
        (survived, nodes) = (next, together);
        known = Some((*part, shares));
    }
    survived[lost].min(1.0)
}

/// Returns the share of sets of `lost` nodes of a ring in which no `copies` neighbours are all lost. Dynamic
/// programming over the nodes; the state is the run of losses at the start (adjacent to the end) and the current run.
fn ring(nodes: usize, copies: usize, lost: usize) -> f64 {
    if lost == 0 {
        return 1.0;
    }
    if copies == 0 || lost >= nodes {
        return 0.0;
    }
    if lost < copies {
        return 1.0;
    }
    let runs = copies;
    let at = |l: usize, first: usize, run: usize| (l * runs + first) * runs + run;
    // While all nodes so far are lost, the first run is also the current one and `open` holds the probability.
    let mut state = vec![0.0; (lost + 1) * runs * runs];
    let mut open = 1.0;
    for seen in 0..nodes {
        let left = (nodes - seen) as f64;
        let mut next = vec![0.0; state.len()];
        for l in 0..=lost.min(seen) {
            let is_lost = (lost - l) as f64 / left;
            for first in 0..runs {
                for run in 0..runs {
                    let p = state[at(l, first, run)];
                    if p == 0.0 {
                        continue;
                    }
                    next[at(l, first, 0)] += p * (1.0 - is_lost);
                    if run + 1 < runs && l < lost {
                        next[at(l + 1, first, run + 1)] += p * is_lost;
                    }
                }
            }
        }
        if open > 0.0 && seen < runs && seen <= lost {
            let is_lost = (lost - seen) as f64 / left;
            next[at(seen, seen, 0)] += open * (1.0 - is_lost);
            open *= is_lost;
        }
        state = next;
    }
    let mut share = 0.0;
    for first in 0..runs {
        for run in (0..runs).filter(|run| first + run < runs) {
            share += state[at(lost, first, run)];
        }
    }
    share
}

//! How many nodes must stand by: nodes are lost as a Poisson process and come back after a repair.

use crate::special::{gamma_p, gamma_q};

/// Most spares that are ever proposed.
pub const MAX_SPARES: u32 = 100_000;

/// Nodes that are expected to be in repair at once: nodes, losses a node-hour, hours of a repair.
pub fn in_repair(nodes: u32, losses_per_node_hour: f64, repair_h: f64) -> f64 {
    f64::from(nodes) * losses_per_node_hour * repair_h
}

/// Probability that no more than `spares` nodes are lost while one repair lasts, for this expected number.
pub fn enough(spares: u32, expected: f64) -> f64 {
    gamma_q(f64::from(spares) + 1.0, expected)
}

/// Probability that more are lost, accurate where it is tiny.
pub fn too_few(spares: u32, expected: f64) -> f64 {
    gamma_p(f64::from(spares) + 1.0, expected)
}

/// The fewest spares that are enough with this probability (below 1); nothing when [`MAX_SPARES`] are not.
pub fn wanted(expected: f64, probability: f64) -> Option<u32> {
    let short = 1.0 - probability;
    if !(expected >= 0.0 && short > 0.0) || too_few(MAX_SPARES, expected) > short {
        return None;
    }
    let (mut low, mut high) = (0, MAX_SPARES);
    while low < high {
        let middle = low + (high - low) / 2;
        if too_few(middle, expected) <= short {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(low)
}

//! Number of spare nodes: node losses are a Poisson process, and nodes return after a repair.

use crate::special::{gamma_p, gamma_q};

/// Maximum number of spares that is ever proposed.
pub const MAX_SPARES: u32 = 100_000;

/// Returns the expected number of nodes in repair, from nodes, losses per node-hour and hours per repair.
pub fn in_repair(nodes: u32, losses_per_node_hour: f64, repair_h: f64) -> f64 {
    f64::from(nodes) * losses_per_node_hour * repair_h
}

/// Returns the probability that at most `spares` nodes are lost during one repair, for this expected number.
pub fn enough(spares: u32, expected: f64) -> f64 {
    gamma_q(f64::from(spares) + 1.0, expected)
}

/// Returns the probability that more than `spares` nodes are lost, accurate for tiny values.
pub fn too_few(spares: u32, expected: f64) -> f64 {
    gamma_p(f64::from(spares) + 1.0, expected)
}

/// Returns the fewest spares that suffice with this probability (below 1); `None` if [`MAX_SPARES`] do not.
pub fn required_spares(expected: f64, probability: f64) -> Option<u32> {
    let short = 1.0 - probability;
    if !(expected >= 0.0 && short > 0.0) || too_few(MAX_SPARES, expected) > short {
        return None;
    }
    let mut low = 0;
    let mut high = MAX_SPARES;
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

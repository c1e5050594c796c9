//! Cordon budget (RG-6): a limit over live nodes, and a rate breaker for automatic cordons.

use rankguard_model::Timestamp;

use crate::DecisionState;
use crate::counted_nouns::{count, count_are, counted};

/// Rules version from which on [`CordonBudget`] counts live nodes; see [`crate::Policy::rules`].
const SINCE_RULES: u32 = 1;

/// Limit and use of the cordon budget at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CordonBudget {
    /// Limit of cordoned nodes, and of automatic cordons within the rate window; at least 1.
    pub limit: usize,
    /// Nodes cordoned by verdicts or operators.
    pub cordoned: usize,
    /// Lost nodes that are not cordoned.
    pub lost: usize,
    /// Automatic cordons within the rate window.
    pub recent: usize,
}

impl CordonBudget {
    /// Returns the reason why no further node may be cordoned, or `None`. A first cordon is allowed beside lost nodes,
    /// because no verdict took those out of use.
    pub fn refusal(&self) -> Option<String> {
        let Self {
            limit,
            cordoned,
            lost,
            recent,
        } = *self;
        if cordoned >= limit {
            return Some(format!(
                "{} cordoned and {limit} may be",
                count_are(counted(cordoned), "node")
            ));
        }
        if cordoned > 0 && cordoned + lost >= limit {
            let verb = if lost == 1 { "is" } else { "are" };
            return Some(format!(
                "{} cordoned, {lost} {verb} lost, and {limit} may be out of use",
                count_are(counted(cordoned), "node")
            ));
        }
        if recent >= limit {
            let verb = if recent == 1 { "was" } else { "were" };
            return Some(format!(
                "{} {verb} cordoned within the rate window and {limit} may be",
                count(counted(recent), "node")
            ));
        }
        None
    }
}

impl DecisionState {
    /// Returns the cordon budget at a time.
    pub fn cordon_budget(&self, at: Timestamp) -> CordonBudget {
        let fleet = &self.fleet;
        if self.rules < SINCE_RULES {
            return CordonBudget {
                limit: self.policy.cordon_budget(fleet.len()),
                cordoned: fleet.cordoned_by_verdict(),
                lost: 0,
                recent: 0,
            };
        }
        let window = self.policy.cordon_window_ms;
        let lost = |node: &&crate::Node| node.lost_since.is_some() && node.cordon.is_none();
        CordonBudget {
            limit: self.policy.cordon_budget(fleet.live()),
            cordoned: fleet.cordoned(),
            lost: fleet.iter().map(|(_, node)| node).filter(lost).count(),
            recent: fleet.recent_cordons(at, window),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(limit: usize, cordoned: usize, lost: usize, recent: usize, allowed: bool) {
        let budget = CordonBudget {
            limit,
            cordoned,
            lost,
            recent,
        };
        assert_eq!(
            budget.refusal().is_none(),
            allowed,
            "{budget:?}: {:?}",
            budget.refusal()
        );
    }

    #[test]
    fn rg_6_a_first_cordon_is_allowed_and_further_ones_share_the_limit_with_lost_nodes() {
        check(1, 0, 0, 0, true);
        check(1, 0, 40, 0, true);
        check(1, 1, 0, 1, false);
        check(10, 3, 4, 2, true);
        check(10, 3, 7, 2, false);
        check(10, 10, 0, 0, false);
    }

    #[test]
    fn rg_6_nodes_that_were_given_back_count_against_the_rate() {
        check(2, 0, 0, 1, true);
        check(2, 0, 0, 2, false);
    }
}

//! Settings of the decision core: every wait and every budget is a number here.

use std::time::Duration;

use rankguard_checkpoint_schedule::priors::FailurePrior;
use rankguard_checkpoint_schedule::rates::{FailureExtent, FailureRates};
use serde::{Deserialize, Serialize};

use crate::limits::DRAFTS_MAX;

/// Newest version of the decision rules.
pub const RULES: u32 = 9;

/// Settings of the decision core. All durations are on the controller's clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// Settle time: a failure is concluded when no decisive evidence arrived for this long, milliseconds.
    pub settle_ms: u64,
    /// Time limit for agents to end old ranks, milliseconds. A node that exceeds it counts as lost.
    pub fence_ms: u64,
    /// Time limit for the commit of checkpoints that an ended generation sealed, before the next one starts,
    /// milliseconds; 0: only shards reported in time are committed.
    pub adopt_ms: u64,
    /// Longest wait for a checkpoint that cannot be read and is not proven damaged, milliseconds. Then the job
    /// continues from the one before.
    pub store_wait_ms: u64,
    /// Time limit for agents to start ranks, milliseconds.
    pub launch_ms: u64,
    /// Time limit from the start of ranks to their first step, milliseconds (imports, restore, rendezvous).
    pub first_step_ms: u64,
    /// Stall limit: longest time without a step in a running job that reports steps, milliseconds; 0 disables it. A job
    /// with checkpoints that reports no steps is judged by commits and output, and gets four times as long while its
    /// ranks use CPU time. A job with neither is a case, without a restart, when its ranks were idle for this long.
    pub stall_ms: u64,
    /// Preflight checks before each generation, and the consequence of a failed check.
    pub preflight: PreflightMode,
    /// Enables the measurement of network links between the nodes as part of preflight.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub preflight_between: bool,
    /// Time limit of preflight, milliseconds; a node that has not answered by then counts as lost.
    pub preflight_ms: u64,
    /// Hang limit: time without a step after agents found all ranks silent by their own baseline, until the job is
    /// restarted, milliseconds. A case that names the rank is opened long before. 0: such reports are ignored.
    pub hang_ms: u64,
    /// Longest wait of a new job for its full size before it starts smaller, milliseconds.
    pub gather_ms: u64,
    /// Longest wait of a job for its smallest size before it is stopped, milliseconds.
    pub pending_ms: u64,
    /// Delay from the return of a node to the growth of a job onto it, milliseconds.
    pub grow_ms: u64,
    /// Retries of a failure in the user's program or data, per failure signature.
    pub user_retries: u32,
    /// Minimum pause between two checkpoints that are called because of a node at risk, milliseconds; 0 disables such
    /// calls.
    pub risk_ms: u64,
    /// Enables adaptation of the checkpoint interval to measured cost and failure rate.
    pub adapt: bool,
    /// Longest adapted interval, milliseconds: the work that the user accepts to lose.
    pub checkpoint_max_ms: u64,
    /// Largest share of the run time that images may take; takes precedence over the longest interval.
    pub checkpoint_budget: PercentShare,
    /// Id of the published prior of failure rates.
    pub prior: String,
    /// Failure record of the cluster on top of the prior, as `rankguard simulate calibrate` counts it; all 0 if there
    /// is none.
    pub record: FailureHistory,
    /// True for a replay of recorded evidence: results are marked as replayed, and no job is run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replay_only: bool,
    /// Cordon budget: share of live nodes that may be cordoned at one time; at least one node (RG-6). The same number
    /// of automatic cordons is allowed within `cordon_window_ms`.
    pub cordon_share: PercentShare,
    /// Window of the rate breaker for automatic cordons, milliseconds.
    pub cordon_window_ms: u64,
    /// Age at which a lost node that is not cordoned and has no part in a job is removed, milliseconds.
    pub forget_ms: u64,
    /// Version of the decision rules with which the journal begins. Absent in journals from before versions existed: a
    /// replay must repeat the decisions of that time, up to [`crate::Event::RulesAdopted`].
    #[serde(default = "rules_without_version")]
    pub rules: u32,
}

/// Returns the version of journals from before versions existed.
fn rules_without_version() -> u32 {
    0
}

/// Counted failures by scope, and the node-hours in which they occurred.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FailureHistory {
    /// Observation time summed over nodes, hours.
    pub node_hours: u64,
    /// Failures of ranks that leave the node's memory intact.
    pub process_failures: u64,
    /// Failures of a node including its memory.
    pub node_failures: u64,
    /// Simultaneous failures of the nodes of one failure domain.
    pub domain_failures: u64,
}

/// Mode of the preflight checks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PreflightMode {
    /// Checks are disabled.
    #[default]
    Off,
    /// Failed checks are announced.
    Warn,
    /// A node with a failed check is not used.
    Require,
}

/// Share in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PercentShare(pub u32);

impl Default for Policy {
    fn default() -> Self {
        Self {
            settle_ms: 1_500,
            fence_ms: 15_000,
            adopt_ms: 60_000,
            store_wait_ms: 600_000,
            launch_ms: 30_000,
            first_step_ms: 900_000,
            stall_ms: 1_800_000,
            preflight: PreflightMode::Off,
            preflight_between: false,
            preflight_ms: 30_000,
            hang_ms: 300_000,
            gather_ms: 5_000,
            pending_ms: 600_000,
            grow_ms: 30_000,
            user_retries: 1,
            risk_ms: 60_000,
            adapt: false,
            checkpoint_max_ms: 1_800_000,
            checkpoint_budget: PercentShare(5),
            prior: FailurePrior::all()
                .first()
                .map(|prior| prior.id.clone())
                .unwrap_or_default(),
            record: FailureHistory::default(),
            replay_only: false,
            cordon_share: PercentShare(10),
            cordon_window_ms: 600_000,
            forget_ms: 7 * 86_400_000,
            rules: RULES,
        }
    }
}

/// Upper bound of the work time after which the failure of a recovered job counts as overcome, milliseconds.
const LIFE_MS: u64 = 60_000;

impl Policy {
    /// Returns the limit of cordoned nodes among `nodes` nodes.
    pub fn cordon_budget(&self, nodes: usize) -> usize {
        (nodes * self.cordon_share.0 as usize / 100).max(1)
    }

    /// Returns the prior failure rates: the published figure, updated by the cluster's record. An unknown prior id
    /// selects the default prior.
    pub fn prior_rates(&self) -> FailureRates {
        let prior = FailurePrior::by_id(&self.prior).or(FailurePrior::all().first());
        let mut rates = prior.map(FailurePrior::rates).unwrap_or_default();
        for (scope, failures) in [
            (FailureExtent::Process, self.record.process_failures),
            (FailureExtent::Node, self.record.node_failures),
            (FailureExtent::Domain, self.record.domain_failures),
        ] {
            rates.observe_failures(scope, failures);
        }
        rates.observe_hours(self.record.node_hours as f64);
        rates
    }

    /// Returns the time limit between two generations.
    pub(crate) fn gate_wait_ms(&self) -> u64 {
        match self.preflight {
            PreflightMode::Off => self.fence_ms,
            PreflightMode::Warn | PreflightMode::Require => self.fence_ms.max(self.preflight_ms),
        }
    }

    /// Returns the time for which ranks without steps must have worked before their work counts, milliseconds.
    pub(crate) fn life_ms(&self) -> u64 {
        self.first_step_ms.min(LIFE_MS)
    }

    /// Returns the time that the ranks beside a failed one get to report errors of their own before they are ended.
    pub(crate) fn peer_grace(&self) -> Duration {
        Duration::from_millis(self.settle_ms / 6)
    }

    /// Returns the time without a session after which a node counts as lost if ranks of its job failed elsewhere.
    pub(crate) fn unreachable(&self) -> Duration {
        Duration::from_millis(self.settle_ms / 3 * 2)
    }

    /// Returns the settings of diagnosis that follow from these.
    pub(crate) fn diagnosis(&self) -> rankguard_diagnosis::DraftPolicy {
        let settle = Duration::from_millis(self.settle_ms);
        let defaults = rankguard_diagnosis::DraftPolicy {
            settle,
            cap: settle * 3,
            ended_settle: settle / 5,
            ordered_settle: settle / 15,
            ..rankguard_diagnosis::DraftPolicy::default()
        };
        if self.replay_only {
            return defaults;
        }
        rankguard_diagnosis::DraftPolicy {
            drafts: DRAFTS_MAX,
            draft_bytes: 256 << 10,
            dump_bytes: 32 << 20,
            ..defaults
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clusters_own_record_sharpens_the_published_figure() {
        let prior = Policy::default().prior_rates();
        assert_eq!(
            Some(&prior),
            FailurePrior::all().first().map(FailurePrior::rates).as_ref()
        );
        let policy = Policy {
            record: FailureHistory {
                node_hours: 1_000_000,
                process_failures: 40,
                node_failures: 60,
                domain_failures: 0,
            },
            ..Policy::default()
        };
        let rate = policy.prior_rates().per_node_hour();
        assert!((rate / 1e-4 - 1.0).abs() < 0.03, "{rate}");
        let text = serde_json::to_string(&policy).expect("JSON");
        assert_eq!(serde_json::from_str::<Policy>(&text).ok(), Some(policy));
        // Journals from before the record existed.
        let before = Policy {
            rules: 0,
            ..Policy::default()
        };
        assert_eq!(serde_json::from_str::<Policy>("{}").ok(), Some(before));
    }
}

//! Settings of the brain: every wait and every budget has a number here.

use std::time::Duration;

use rankguard_checkpoint_schedule::priors::Prior;
use rankguard_checkpoint_schedule::rates::{Rates, Scope};
use serde::{Deserialize, Serialize};

use crate::limits::DRAFTS_MAX;

/// Newest version of the decision rules.
pub const RULES: u32 = 4;

/// How the brain decides. All durations are on the controller's clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// Evidence of a failure is gathered until nothing decisive arrived for this long, milliseconds.
    pub settle_ms: u64,
    /// How long agents may take to end old ranks, milliseconds. Who has not by then counts as lost.
    pub fence_ms: u64,
    /// How long it may take to commit what an ended generation had sealed, before the next one starts, milliseconds; 0: only
    /// what was told in time is committed.
    pub adopt_ms: u64,
    /// How long a job waits for a checkpoint that cannot be read and is not known to be damaged, milliseconds. Then it goes on from
    /// the one before.
    pub store_wait_ms: u64,
    /// How long agents may take to start ranks, milliseconds.
    pub launch_ms: u64,
    /// How long ranks may take from their start to their first step, milliseconds (imports, restore, rendezvous).
    pub first_step_ms: u64,
    /// How long a running job that reports steps may go without one, milliseconds; 0 for ever. A job with checkpoints that
    /// reports none is judged by commits and output of its ranks, and for four times as long while they use processors.
    pub stall_ms: u64,
    /// Whether nodes are looked at before each generation, and what a failed check means.
    pub preflight: Gate,
    /// Whether the ways between the nodes are measured with it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub preflight_between: bool,
    /// How long that may take, milliseconds; a node that has not answered by then counts as lost.
    pub preflight_ms: u64,
    /// How long no rank may make a step, after agents found all of them silent by their own baseline, before the job is
    /// started anew, milliseconds. A case that names the rank is opened long before. 0: what agents find is not heeded.
    pub hang_ms: u64,
    /// How long a new job waits for its full size before it starts smaller, milliseconds.
    pub gather_ms: u64,
    /// How long a job waits for its smallest size before it is stopped, milliseconds.
    pub pending_ms: u64,
    /// How long a node must have been back before a job grows onto it, milliseconds.
    pub grow_ms: u64,
    /// How often a failure of the user's own program or data is tried again.
    pub user_retries: u32,
    /// A node at risk makes the job checkpoint at once, at most once in so long, milliseconds; 0 for never.
    pub risk_ms: u64,
    /// Whether the interval of checkpoints follows what they cost and how often the job fails.
    pub adapt: bool,
    /// The longest interval that it may then have, milliseconds: what a user is ready to lose.
    pub checkpoint_max_ms: u64,
    /// Most of the work that images may then take; it goes before the longest interval.
    pub checkpoint_budget: Share,
    /// The published figure that the belief in failure rates begins with.
    pub prior: String,
    /// The cluster's own record on top of it, as `rankguard simulate calibrate` counts it; all 0 where there is none.
    pub record: Record,
    /// Only recorded evidence is taken: what follows from it is marked as replayed, and no job is run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replay_only: bool,
    /// Nodes that may be cordoned at one time before verdicts cordon no more, as a share of live nodes; at least one (RG-6).
    /// As many automatic cordons are allowed within `cordon_window_ms`.
    pub cordon_share: Share,
    /// Window of the rate breaker for automatic cordons, milliseconds.
    pub cordon_window_ms: u64,
    /// A node that has been lost for so long, is not cordoned and has no part in a job is forgotten, milliseconds.
    pub forget_ms: u64,
    /// Version of the decision rules that the journal begins with. Absent in journals of before there were versions: a replay
    /// must decide as it was decided then, up to [`crate::Event::RulesAdopted`].
    #[serde(default = "rules_without_version")]
    pub rules: u32,
}

/// Journals of before there were versions.
fn rules_without_version() -> u32 {
    0
}

/// Failures that were counted, by what they took with them, and the node-hours in which they came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Record {
    /// Hours, summed over the nodes that were watched.
    pub node_hours: u64,
    /// Failures of ranks, the node's memory left.
    pub process_failures: u64,
    /// Failures of a node with its memory.
    pub node_failures: u64,
    /// Failures of nodes that go together.
    pub domain_failures: u64,
}

/// What a look at the nodes before each generation decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gate {
    /// Nobody looks.
    #[default]
    Off,
    /// What fails is told.
    Warn,
    /// A node on which a check fails is not used.
    Require,
}

/// A share in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Share(pub u32);

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
            preflight: Gate::Off,
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
            checkpoint_budget: Share(5),
            prior: Prior::all().first().map(|prior| prior.id.clone()).unwrap_or_default(),
            record: Record::default(),
            replay_only: false,
            cordon_share: Share(10),
            cordon_window_ms: 600_000,
            forget_ms: 7 * 86_400_000,
            rules: RULES,
        }
    }
}

impl Policy {
    /// Nodes that may be cordoned at one time before verdicts cordon no more, of so many.
    pub fn cordon_budget(&self, nodes: usize) -> usize {
        (nodes * self.cordon_share.0 as usize / 100).max(1)
    }

    /// What is believed of failure rates before a job ran: the published figure, sharpened by the cluster's record. A
    /// figure that is not known here is the usual one.
    pub fn belief(&self) -> Rates {
        let prior = Prior::named(&self.prior).or(Prior::all().first());
        let mut rates = prior.map(Prior::rates).unwrap_or_default();
        for (scope, failures) in [
            (Scope::Process, self.record.process_failures),
            (Scope::Node, self.record.node_failures),
            (Scope::Domain, self.record.domain_failures),
        ] {
            rates.observe_failures(scope, failures);
        }
        rates.observe_hours(self.record.node_hours as f64);
        rates
    }

    /// How long the time between two generations may last.
    pub(crate) fn gate_wait_ms(&self) -> u64 {
        match self.preflight {
            Gate::Off => self.fence_ms,
            Gate::Warn | Gate::Require => self.fence_ms.max(self.preflight_ms),
        }
    }

    /// The settings of diagnosis that follow from these.
    pub(crate) fn diagnosis(&self) -> rankguard_diagnosis::Policy {
        let settle = Duration::from_millis(self.settle_ms);
        let defaults = rankguard_diagnosis::Policy {
            settle,
            cap: settle * 3,
            ..rankguard_diagnosis::Policy::default()
        };
        if self.replay_only {
            return defaults;
        }
        rankguard_diagnosis::Policy {
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
        let prior = Policy::default().belief();
        assert_eq!(Some(&prior), Prior::all().first().map(Prior::rates).as_ref());
        let policy = Policy {
            record: Record {
                node_hours: 1_000_000,
                process_failures: 40,
                node_failures: 60,
                domain_failures: 0,
            },
            ..Policy::default()
        };
        let rate = policy.belief().per_node_hour();
        assert!((rate / 1e-4 - 1.0).abs() < 0.03, "{rate}");
        let text = serde_json::to_string(&policy).expect("JSON");
        assert_eq!(serde_json::from_str::<Policy>(&text).ok(), Some(policy));
        // Journals that were begun before there was a record.
        let before = Policy {
            rules: 0,
            ..Policy::default()
        };
        assert_eq!(serde_json::from_str::<Policy>("{}").ok(), Some(before));
    }
}

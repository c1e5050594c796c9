//! Documents of plans and of the options that a plan was chosen from.

use rankguard_core::Plan;
use rankguard_model::{CostInput, RecoveryChoice, RecoveryCost, RecoveryOption};
use serde::Serialize;
use utoipa::ToSchema;

use super::{UtcTime, word};

/// Plan in a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PlanSummary {
    id: u64,
    /// Plan that it replaces.
    parent: Option<u64>,
    job: String,
    /// Generation that the plan starts.
    generation: u64,
    /// `start`, `restart-in-place`, `swap-spare`, `shrink` or `grow`.
    kind: String,
    node_count: u64,
    ranks_per_node: u32,
    /// Case that caused the plan.
    case: Option<u64>,
    made_at: UtcTime,
}

/// Plan with its nodes, its reasons and the alternatives.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PlanDocument {
    #[serde(flatten)]
    summary: PlanSummary,
    /// Nodes in group order.
    nodes: Vec<String>,
    /// Reasons, one sentence each.
    reasons: Vec<String>,
    /// Options that were compared; null for a plan without a failure.
    choice: Option<ChoiceDocument>,
}

/// Comparison of the recovery options of one failure. Costs are in node-milliseconds.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChoiceDocument {
    at: UtcTime,
    /// Number of nodes of the job before the failure.
    nodes_before: u32,
    /// Number of nodes against which lost capacity is counted.
    nodes_full: u32,
    /// Predicted time from the plan to the first step, milliseconds; null if the job is stopped.
    restart_ms: Option<u64>,
    /// Options; exactly one is chosen.
    options: Vec<OptionDocument>,
    /// Inputs of the costs.
    inputs: Vec<InputDocument>,
}

/// Recovery option with its cost.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OptionDocument {
    /// `restart-in-place`, `swap-spare`, `shrink`, `grow`, `wait` or `stop`.
    kind: String,
    /// Number of nodes with which the job continues; 0 if it does not.
    nodes: u32,
    /// Longest wait before the job continues, milliseconds.
    wait_ms: u64,
    /// `chosen`, `costlier` or `unavailable`.
    outcome: String,
    reason: String,
    /// Expected cost; null for an option that is not available.
    cost: Option<CostDocument>,
}

/// Expected cost by cause, node-milliseconds.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CostDocument {
    wait: u64,
    restart: u64,
    repeated: u64,
    capacity: u64,
    growth: u64,
    recurrence: u64,
    total: u64,
}

/// Input of the costs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InputDocument {
    name: String,
    /// Value with its unit.
    value: String,
    /// True if the value is an assumption, false if it was measured or configured.
    is_assumed: bool,
    /// Origin of the value.
    basis: String,
}

impl PlanSummary {
    pub(crate) fn of(plan: &Plan) -> Self {
        Self {
            id: plan.id.0,
            parent: plan.parent.map(|parent| parent.0),
            job: plan.job.to_string(),
            generation: plan.generation.0,
            kind: word(&plan.kind),
            node_count: plan.nodes.len() as u64,
            ranks_per_node: plan.ranks_per_node,
            case: plan.case.map(|case| case.0),
            made_at: UtcTime(plan.made_at),
        }
    }
}

impl PlanDocument {
    pub(crate) fn of(plan: &Plan) -> Self {
        Self {
            summary: PlanSummary::of(plan),
            nodes: plan.nodes.iter().map(ToString::to_string).collect(),
            reasons: plan.reasons.clone(),
            choice: plan.choice.as_ref().map(ChoiceDocument::of),
        }
    }
}

impl ChoiceDocument {
    pub(crate) fn of(choice: &RecoveryChoice) -> Self {
        Self {
            at: UtcTime(choice.at),
            nodes_before: choice.nodes_before,
            nodes_full: choice.nodes_full,
            restart_ms: choice.restart_ms,
            options: choice.options.iter().map(OptionDocument::of).collect(),
            inputs: choice.inputs.iter().map(InputDocument::of).collect(),
        }
    }
}

impl OptionDocument {
    fn of(option: &RecoveryOption) -> Self {
        Self {
            kind: word(&option.kind),
            nodes: option.nodes,
            wait_ms: option.wait_ms,
            outcome: word(&option.outcome),
            reason: option.reason.clone(),
            cost: option.cost.as_ref().map(CostDocument::of),
        }
    }
}

impl CostDocument {
    fn of(cost: &RecoveryCost) -> Self {
        Self {
            wait: cost.wait,
            restart: cost.restart,
            repeated: cost.repeated,
            capacity: cost.capacity,
            growth: cost.growth,
            recurrence: cost.recurrence,
            total: cost.total(),
        }
    }
}

impl InputDocument {
    fn of(input: &CostInput) -> Self {
        Self {
            name: input.name.clone(),
            value: input.value.clone(),
            is_assumed: input.assumed,
            basis: input.basis.clone(),
        }
    }
}

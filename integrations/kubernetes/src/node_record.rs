//! Node of Kubernetes, reduced to the fields of the comparison.

use serde_json::{Value, json};

use crate::mark::{
    CONDITION_TYPE, CORDON_ANNOTATION, CordonMark, FIELD_MANAGER, REPEATS_ANNOTATION, TAINT_EFFECT, TAINT_KEY,
};
use crate::objects::{KubernetesCondition, NodeObject, NodeTaint};

/// Use that Kubernetes makes of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeUse {
    /// Pods may be placed on the node.
    Open,
    /// Another manager cordoned the node.
    Closed {
        /// Field manager that set `spec.unschedulable`, if it is recorded.
        manager: Option<String>,
    },
    /// The node is cordoned and tainted for a reason of Rankguard.
    Mirrored(CordonMark),
    /// The node has a mark of Rankguard, but another manager lifted the cordon or removed the taint.
    Reopened(CordonMark),
}

/// Node of Kubernetes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeRecord {
    /// Name of the node.
    pub name: String,
    /// Identity of the object.
    pub uid: String,
    /// Version for conditional updates.
    pub resource_version: String,
    /// Name in Rankguard by a label; absent without the label.
    pub label_name: Option<String>,
    /// Condition of Rankguard; absent before the first report.
    pub condition: Option<KubernetesCondition>,
    unschedulable: bool,
    taints: Vec<NodeTaint>,
    mark: Option<CordonMark>,
    cordoned_by: Option<String>,
}

impl NodeRecord {
    /// Reduces a node; `name_label` is the label with its name in Rankguard.
    pub fn new(node: NodeObject, name_label: Option<&str>) -> Self {
        let annotation = |key: &str| node.metadata.annotations.get(key);
        let taint = node.spec.taints.iter().find(|taint| taint.key == TAINT_KEY);
        let mark = annotation(CORDON_ANNOTATION).map(|reason| CordonMark {
            reason: reason.clone(),
            class: taint.map(|taint| taint.value.clone()).unwrap_or_default(),
            repeats: annotation(REPEATS_ANNOTATION)
                .and_then(|text| text.parse().ok())
                .unwrap_or_default(),
        });
        // Several managers own the field after each has set it; the newest one is named.
        let owners = node.metadata.managed_fields.iter();
        let mut owners: Vec<_> = owners
            .filter(|owner| owner.fields_v1.spec.unschedulable.is_some() && owner.manager != FIELD_MANAGER)
            .collect();
        owners.sort_by(|one, other| one.time.cmp(&other.time));
        let cordoned_by = owners.last().map(|owner| owner.manager.clone());
        let label_name = name_label.and_then(|label| node.metadata.labels.get(label)).cloned();
        let mut conditions = node.status.conditions.into_iter();
        Self {
            label_name,
            condition: conditions.find(|condition| condition.kind == CONDITION_TYPE),
            unschedulable: node.spec.unschedulable,
            mark,
            cordoned_by,
            taints: node.spec.taints,
            name: node.metadata.name,
            uid: node.metadata.uid,
            resource_version: node.metadata.resource_version,
        }
    }

    /// Returns the use of the node.
    pub fn node_use(&self) -> NodeUse {
        let taint = self.taints.iter().find(|taint| taint.key == TAINT_KEY);
        let is_tainted = taint.is_some_and(|taint| taint.effect == TAINT_EFFECT);
        match &self.mark {
            Some(mark) if self.unschedulable && is_tainted => NodeUse::Mirrored(mark.clone()),
            Some(mark) => NodeUse::Reopened(mark.clone()),
            None if self.unschedulable => NodeUse::Closed {
                manager: self.cordoned_by.clone(),
            },
            // The taint without its annotation is what a person left of a mark.
            None if taint.is_some() => NodeUse::Reopened(CordonMark::default()),
            None => NodeUse::Open,
        }
    }

    /// Returns the merge patch that cordons the node with a mark, on the condition that the node has not changed.
    pub fn cordon_patch(&self, mark: &CordonMark) -> Value {
        let mut taints = self.other_taints();
        taints.push(NodeTaint {
            key: TAINT_KEY.to_owned(),
            value: mark.class.clone(),
            effect: TAINT_EFFECT.to_owned(),
            ..NodeTaint::default()
        });
        let repeats = (mark.repeats > 0).then(|| mark.repeats.to_string());
        json!({
            "metadata": {
                "resourceVersion": self.resource_version,
                "annotations": { CORDON_ANNOTATION: mark.reason, REPEATS_ANNOTATION: repeats },
            },
            "spec": { "unschedulable": true, "taints": taints },
        })
    }

    /// Returns the merge patch that removes the mark of Rankguard, on the condition that the node has not changed. A cordon
    /// that another manager lifted or set is left as it is.
    pub fn lift_patch(&self) -> Value {
        let taints = self.other_taints();
        let taints = (!taints.is_empty()).then_some(taints);
        let mut patch = json!({
            "metadata": {
                "resourceVersion": self.resource_version,
                "annotations": { CORDON_ANNOTATION: null, REPEATS_ANNOTATION: null },
            },
            "spec": { "taints": taints },
        });
        if self.mark.is_some() && self.unschedulable {
            patch["spec"]["unschedulable"] = Value::Null;
        }
        patch
    }

    fn other_taints(&self) -> Vec<NodeTaint> {
        let others = self.taints.iter().filter(|taint| taint.key != TAINT_KEY);
        others.cloned().collect()
    }
}

//! Documents of nodes.

use rankguard_core::Node;
use rankguard_identity::CertificateSerial;
use rankguard_model::{NodeView, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

use super::{UtcTime, word};

/// Node in a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NodeSummary {
    name: String,
    /// `healthy`, `cordoned`, `lost` or `fencing`.
    state: String,
    /// True if new ranks may be placed on the node.
    is_schedulable: bool,
    /// Reason for a state other than healthy, or the fault of a node that is in use.
    reason: Option<String>,
    /// Number of ranks that the node can run.
    slots: u32,
    /// Job that has ranks on the node.
    job: Option<String>,
    /// Failure domain; empty if none is configured.
    failure_domain: String,
    /// Case that blames the node although it is in use.
    faulty_in_use: Option<u64>,
    /// Serial number of the revoked certificate with which the agent of the node is refused.
    revoked_serial: Option<String>,
}

/// Adds the serial number of the revoked certificate of an agent to the reason of its node.
pub fn revoked_text(reason: Option<String>, serial: &CertificateSerial) -> String {
    let text = format!("its agent is refused: its certificate (serial number {serial}) is revoked");
    let reasons = reason.into_iter().chain([text]);
    reasons.collect::<Vec<_>>().join("; ")
}

/// Node with its agent, its cordon and its devices.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NodeDocument {
    #[serde(flatten)]
    summary: NodeSummary,
    /// Host name or address at which other nodes reach it.
    host: String,
    /// Address at which its agent serves other nodes.
    address: String,
    /// Boot id of its kernel; empty if the agent does not report it.
    boot_id: String,
    /// Time of the latest join of its agent.
    joined_at: UtcTime,
    /// Time at which it was declared lost.
    lost_since: Option<UtcTime>,
    /// Time at which the session of its agent ended.
    session_ended_at: Option<UtcTime>,
    /// Longest time that its ranks run without contact to the controller, milliseconds; 0 without a lease.
    lease_ms: u64,
    /// Pieces of evidence from this node that the controller refused.
    refused_evidence: u64,
    cordon: Option<CordonDocument>,
    /// Conditions of the machine of which the end has not been reported.
    conditions: Vec<ConditionDocument>,
    /// Links that were reported as down and not as up since.
    links_down: Vec<LinkDocument>,
    /// Devices that cases name; agents report no inventory.
    devices: Vec<NodeDevice>,
}

/// Cordon of a node.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CordonDocument {
    since: UtcTime,
    reason: String,
    /// Case that blames the node; null for a cordon by an operator.
    case: Option<u64>,
    /// True if the job of the node moves away after its next checkpoint.
    is_draining: bool,
}

/// Condition of a machine.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ConditionDocument {
    since: UtcTime,
    /// File system, server or cable that has it.
    place: String,
    class: String,
    text: String,
}

/// Link that is down.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LinkDocument {
    link: String,
    since: UtcTime,
}

/// Device that cases name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
pub(crate) struct NodeDevice {
    /// `gpu`, `nic`, `nvswitch` or `disk`.
    pub(crate) kind: String,
    /// PCI address, or name of the device.
    pub(crate) address: String,
    /// Cases with evidence of the device, newest first.
    pub(crate) cases: Vec<u64>,
    /// True if one of these cases is open.
    pub(crate) has_open_case: bool,
}

/// Health of a node for tenants and schedulers; it names no job and no case.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NodeHealth {
    node: String,
    /// True if new ranks may be placed on the node.
    is_schedulable: bool,
    /// Class of the reason: `lost`, `session-ended`, `not-joined`, `cordoned`, `draining` (ranks are
    /// still there), `drained`, `fencing`, `under-examination` or `unrecorded-ranks`; null for a node that takes ranks.
    reason_class: Option<String>,
    /// Time since which the reason holds, if it is recorded.
    since: Option<UtcTime>,
}

impl NodeSummary {
    pub(crate) fn of(view: &NodeView, node: &Node, revoked: Option<CertificateSerial>) -> Self {
        let reason = view.reason.clone();
        Self {
            name: view.node.to_string(),
            state: word(&view.state),
            is_schedulable: node.is_usable(),
            reason: match &revoked {
                Some(serial) => Some(revoked_text(reason, serial)),
                None => reason,
            },
            slots: view.slots,
            job: view.job.as_ref().map(ToString::to_string),
            failure_domain: view.failure_domain.clone(),
            faulty_in_use: view.faulty_in_use.map(|case| case.0),
            revoked_serial: revoked.map(|serial| serial.to_string()),
        }
    }
}

impl NodeDocument {
    pub(crate) fn of(summary: NodeSummary, view: &NodeView, node: &Node, devices: Vec<NodeDevice>) -> Self {
        let cordon = node.cordon.as_ref().map(|cordon| CordonDocument {
            since: UtcTime(cordon.since),
            reason: cordon.reason.clone(),
            case: cordon.case.map(|case| case.0),
            is_draining: cordon.drains && has_ranks(node, view.job.is_some()),
        });
        let conditions = node.conditions.iter().map(|condition| ConditionDocument {
            since: UtcTime(condition.since),
            place: condition.place.clone(),
            class: condition.class.to_string(),
            text: condition.text.clone(),
        });
        let links = node.links_down.iter().map(|(link, since)| LinkDocument {
            link: link.clone(),
            since: UtcTime(*since),
        });
        Self {
            summary,
            host: node.info.host.clone(),
            address: view.address.clone(),
            boot_id: node.info.boot_id.clone(),
            joined_at: UtcTime(node.joined_at),
            lost_since: node.lost_since.map(UtcTime),
            session_ended_at: node.session_ended.map(UtcTime),
            lease_ms: view.lease_ms,
            refused_evidence: view.refused_evidence,
            cordon,
            conditions: conditions.collect(),
            links_down: links.collect(),
            devices,
        }
    }
}

impl NodeHealth {
    /// Returns the health of a node; `has_job` is true if a job has ranks there.
    pub(crate) fn of(name: &str, node: &Node, has_job: bool) -> Self {
        let reason = health_reason(node, has_job);
        Self {
            node: name.to_owned(),
            is_schedulable: reason.is_none(),
            reason_class: reason.map(|(class, _)| class.to_owned()),
            since: reason.and_then(|(_, since)| since).map(UtcTime),
        }
    }
}

/// Returns true if a job has ranks on a node, or the end of old ones there is not confirmed.
fn has_ranks(node: &Node, has_job: bool) -> bool {
    has_job || !node.fences.is_empty()
}

/// Returns the class and the start of the reason why a node takes no ranks; `None` if it does.
fn health_reason(node: &Node, has_job: bool) -> Option<(&'static str, Option<Timestamp>)> {
    if node.is_usable() {
        return None;
    }
    let fenced = node.fences.values().map(|fence| fence.since).min();
    let cordon = node.cordon.as_ref();
    Some(if let Some(since) = node.lost_since {
        ("lost", Some(since))
    } else if let Some(since) = node.unjoined_since {
        ("not-joined", Some(since))
    } else if let Some(since) = node.session_ended {
        ("session-ended", Some(since))
    } else if let Some(cordon) = cordon {
        let class = match (cordon.drains, has_ranks(node, has_job)) {
            (false, _) => "cordoned",
            (true, true) => "draining",
            (true, false) => "drained",
        };
        (class, Some(cordon.since))
    } else if fenced.is_some() {
        ("fencing", fenced)
    } else if node.foreign.is_empty() {
        ("under-examination", None)
    } else {
        ("unrecorded-ranks", None)
    })
}

//! Conditions of machines that last: a file system that does not answer, is full or takes no writes, and a cable that is
//! unplugged. The node view shows them, and a case of the same class has its fault while one is present.
//!
//! Each has an end that is reported: the agent reports both crossings of a limit, kernels report servers that answer again
//! and cables that are plugged in.

use rankguard_diagnosis::{LINK_UP_SIGNATURE, reports_store_recovery};
use rankguard_faults::classes;
use rankguard_model::{
    Case, ClassId, Classification, Evidence, EvidenceBody, EvidenceSource, NodeId, Role, STATE_DIR_FULL,
    STATE_DIR_HAS_ROOM,
};

use super::DecisionContext;
use crate::DecisionState;
use crate::fleet::{LastingCondition, Node};

/// Conditions retained for each node.
const CONDITIONS_MAX: usize = 64;
/// Signatures of the driver of an adapter for its cable.
const UNPLUGGED: &str = "mlx5-unplugged";
const PLUGGED: &str = "mlx5-plugged";

/// Place of the condition that the state directory of the node's agent is full.
const STATE_DIR: &str = "agent state directory";

/// Values of file systems that agents report in both directions, with the words for either.
const METRICS: [(&str, &str, &str); 3] = [
    (
        "host.disk_available ",
        "has had little or no space left",
        "has space again",
    ),
    (
        "host.inodes_available ",
        "has had few or no inodes left",
        "has inodes again",
    ),
    ("host.writable ", "has taken no writes", "takes writes again"),
];

/// Reported change of a condition.
#[derive(Debug)]
enum ConditionChange {
    Began(LastingCondition),
    /// End of the condition of a place, and its words.
    Ended {
        place: String,
        how: String,
    },
    /// Link of an adapter that came up.
    LinkUp {
        adapter: String,
    },
    /// End of the waits for a server or mount; one without a name ends all.
    Answered {
        places: Vec<String>,
        how: String,
    },
}

impl ConditionChange {
    fn of(evidence: &Evidence) -> Option<Self> {
        if evidence.synthetic {
            return None;
        }
        match &evidence.body {
            EvidenceBody::Sample { metric, .. } => Self::of_sample(evidence, metric),
            EvidenceBody::Line { .. } => evidence.marks.iter().find_map(|mark| Self::of_line(evidence, mark)),
            _ => None,
        }
    }

    fn of_sample(evidence: &Evidence, metric: &str) -> Option<Self> {
        if evidence.source != EvidenceSource::Host {
            return None;
        }
        let mut metrics = METRICS.iter();
        let (path, began, ended) =
            metrics.find_map(|(name, began, ended)| Some((metric.strip_prefix(name)?, began, ended)))?;
        Some(match evidence.marks.first() {
            Some(mark) => Self::Began(LastingCondition {
                since: evidence.at,
                place: metric.to_owned(),
                class: mark.class.clone(),
                text: format!("the file system {path} {began}"),
                is_measured: true,
            }),
            None => Self::Ended {
                place: metric.to_owned(),
                how: format!("the file system {path} {ended}"),
            },
        })
    }

    fn of_line(evidence: &Evidence, mark: &Classification) -> Option<Self> {
        if let Some(change) = Self::of_cable(evidence, mark).or_else(|| Self::of_agent(evidence, mark)) {
            return Some(change);
        }
        if reports_store_recovery(mark) {
            let places = places_of(mark);
            let how = places.first().map_or_else(
                || "the file system answers again".to_owned(),
                |place| format!("{place} answers again"),
            );
            return Some(Self::Answered { places, how });
        }
        let is_hang = mark.class.as_str() == classes::FILESYSTEM_HANG && mark.role == Role::Root;
        let is_of_machine = matches!(evidence.source, EvidenceSource::Host | EvidenceSource::KernelLog);
        if !is_hang || !is_of_machine {
            return None;
        }
        let place = places_of(mark).into_iter().next();
        let place = place.unwrap_or_else(|| "a file system".to_owned());
        Some(Self::Began(LastingCondition {
            since: evidence.at,
            class: mark.class.clone(),
            text: format!("{place} has not answered"),
            is_measured: evidence.source == EvidenceSource::Host,
            place,
        }))
    }

    /// Returns the change of a state directory that an agent reports of itself.
    fn of_agent(evidence: &Evidence, mark: &Classification) -> Option<Self> {
        let is_of_agent = evidence.source == EvidenceSource::Host && evidence.entity.node() == Some(&evidence.id.node);
        match mark.signature.as_str() {
            STATE_DIR_FULL if is_of_agent => Some(Self::Began(LastingCondition {
                since: evidence.at,
                place: STATE_DIR.to_owned(),
                class: mark.class.clone(),
                text: "the state directory of its agent has been full".to_owned(),
                is_measured: true,
            })),
            STATE_DIR_HAS_ROOM if is_of_agent => Some(Self::Ended {
                place: STATE_DIR.to_owned(),
                how: format!(
                    "the state directory of the agent of node {} has room again",
                    evidence.id.node
                ),
            }),
            _ => None,
        }
    }

    fn of_cable(evidence: &Evidence, mark: &Classification) -> Option<Self> {
        let port = mark.fields.get("bdf")?;
        let module = mark.fields.get("module").unwrap_or("0");
        let place = format!("cable {port} {module}");
        match mark.signature.as_str() {
            UNPLUGGED => Some(Self::Began(LastingCondition {
                since: evidence.at,
                place,
                class: ClassId::from(classes::NONE),
                text: format!("the cable of module {module} of adapter {port} has been unplugged"),
                is_measured: false,
            })),
            PLUGGED => Some(Self::Ended {
                place,
                how: format!("the cable of module {module} of adapter {port} is plugged in again"),
            }),
            // A link that is up has its cable.
            LINK_UP_SIGNATURE => Some(Self::LinkUp {
                adapter: port.to_owned(),
            }),
            _ => None,
        }
    }
}

/// Returns the mount point and the server that a mark names, in words.
fn places_of(mark: &Classification) -> Vec<String> {
    let named = |field: &str, noun: &str| mark.fields.get(field).map(|name| format!("{noun} {name}"));
    let places = [named("mount", "the file system"), named("server", "the server")];
    places.into_iter().flatten().collect()
}

impl LastingCondition {
    /// Returns true if it is a wait for one of these places; a place without a name may be any.
    fn waits_for(&self, places: &[String]) -> bool {
        let is_same_kind = |place: &String| place.split(' ').nth(1) == self.place.split(' ').nth(1);
        let is_named = self.place.starts_with("the ") && places.iter().any(is_same_kind);
        self.class.as_str() == classes::FILESYSTEM_HANG && (!is_named || places.contains(&self.place))
    }
}

impl Node {
    /// Returns true if the agent of the node cannot record what it must before it starts ranks: no job is placed on it.
    pub(crate) fn has_full_agent(&self) -> bool {
        self.conditions.iter().any(|condition| condition.place == STATE_DIR)
    }
}

impl DecisionState {
    /// Returns true if a node that evidence of a case is about has a condition of the class of the case.
    pub(crate) fn has_lasting_condition(&self, case: &Case) -> bool {
        let class = &case.verdict.class;
        let has_condition = |node: &NodeId| {
            let conditions = self.fleet.get(node).map(|node| &node.conditions);
            conditions.is_some_and(|all| all.iter().any(|condition| condition.class == *class))
        };
        let findings = case.findings.iter().filter(|finding| finding.class == *class);
        let mut nodes = findings.filter_map(|finding| finding.entity.node());
        case.verdict.blamed.node().is_some_and(has_condition) || nodes.any(has_condition)
    }
}

impl DecisionContext<'_> {
    /// Records a condition of a machine that begins or ends.
    pub(super) fn watch_conditions(&mut self, evidence: &Evidence) {
        let Some(change) = ConditionChange::of(evidence).filter(|_| self.state.records_conditions()) else {
            return;
        };
        let node = evidence.entity.node();
        let Some(entry) = node.and_then(|node| self.state.fleet.get_mut(node)) else {
            return;
        };
        match change {
            ConditionChange::Began(condition) => begin(entry, condition),
            ConditionChange::Ended { place, how } => {
                if let Some(node) = node {
                    self.state.diagnosis.value_recovered(node, &place);
                }
                self.end_conditions(evidence, &how, |condition| condition.place == place);
            }
            ConditionChange::LinkUp { adapter } => {
                let how = format!("the link of adapter {adapter} is up again");
                let cables = format!("cable {adapter} ");
                self.end_conditions(evidence, &how, |condition| condition.place.starts_with(&cables));
            }
            ConditionChange::Answered { places, how } => {
                self.end_conditions(evidence, &how, |condition| condition.waits_for(&places));
            }
        }
    }

    fn end_conditions(&mut self, evidence: &Evidence, how: &str, is_ended: impl Fn(&LastingCondition) -> bool) {
        let node = evidence.entity.node();
        let Some(entry) = node.and_then(|node| self.state.fleet.get_mut(node)) else {
            return;
        };
        let ended: Vec<LastingCondition> = entry
            .conditions
            .extract_if(.., |condition| is_ended(condition))
            .collect();
        let is_of_agent = ended.iter().any(|condition| condition.place == STATE_DIR);
        for condition in ended {
            self.close_past_faults_of_class(&condition.class, how);
        }
        if is_of_agent && let Some(node) = evidence.entity.node() {
            // Ranks that did not start there may start now.
            self.forget_refusals(&node.clone());
            self.offer_node();
        }
    }

    /// Drops what an agent measured before it was started again: it reports again what is still so.
    pub(super) fn drop_measured_conditions(&mut self, node: &NodeId) {
        let Some(entry) = self.state.fleet.get_mut(node) else {
            return;
        };
        let dropped: Vec<LastingCondition> = entry
            .conditions
            .extract_if(.., |condition| condition.is_measured)
            .collect();
        for condition in dropped {
            let how =
                format!("the agent of node {node}, which reports it again if it is still present, was started again");
            self.close_past_faults_of_class(&condition.class, &how);
        }
    }
}

/// Adds a condition. A cable that was unplugged before the agent joined belongs to a port that is not used.
fn begin(entry: &mut Node, condition: LastingCondition) {
    let is_known = entry.conditions.iter().any(|known| known.place == condition.place);
    let is_unused = condition.class.as_str() == classes::NONE && condition.since < entry.joined_at;
    if !is_known && !is_unused && entry.conditions.len() < CONDITIONS_MAX {
        entry.conditions.push(condition);
    }
}

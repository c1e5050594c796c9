//! Alerts of Alertmanager's API v2.

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_model::Timestamp;
use serde::Serialize;

use super::severity_name;
use crate::incident::{Incident, IncidentKey};

/// Time after which Alertmanager ends an alert that is not sent again, so that no alert outlives the controller.
const ALERT_LIFE: Duration = Duration::from_secs(300);

/// Alert of `POST /api/v2/alerts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PostedAlert {
    labels: BTreeMap<&'static str, String>,
    annotations: BTreeMap<&'static str, String>,
    starts_at: String,
    ends_at: String,
}

impl PostedAlert {
    /// Makes the alert of an incident that is active.
    pub(crate) fn firing(cluster: &str, incident: &Incident, now: Timestamp) -> Self {
        Self::new(cluster, incident, now.after(ALERT_LIFE))
    }

    /// Makes the end of an alert as it was sent.
    pub(crate) fn resolved(cluster: &str, sent: &Incident, ended_at: Timestamp) -> Self {
        Self::new(cluster, sent, ended_at.max(sent.opened_at))
    }

    /// Returns true if both are one alert: Alertmanager identifies alerts by their labels.
    pub(crate) fn has_labels_of(&self, other: &Self) -> bool {
        self.labels == other.labels
    }

    fn new(cluster: &str, incident: &Incident, ends_at: Timestamp) -> Self {
        Self {
            labels: labels(cluster, incident),
            annotations: BTreeMap::from([
                ("summary", incident.title.clone()),
                ("description", incident.details.join("\n")),
                ("command", incident.command.clone()),
            ]),
            starts_at: incident.opened_at.to_string(),
            ends_at: ends_at.to_string(),
        }
    }
}

fn labels(cluster: &str, incident: &Incident) -> BTreeMap<&'static str, String> {
    let (name, key) = match &incident.key {
        IncidentKey::Case(id) => ("RankguardCase", ("case", id.to_string())),
        IncidentKey::Alarm { kind, .. } => ("RankguardAlarm", ("alarm", kind.name().to_owned())),
        IncidentKey::Notice(_) => ("RankguardTest", ("notice", incident.key.to_string())),
    };
    let mut labels = BTreeMap::from([
        ("alertname", name.to_owned()),
        ("cluster", cluster.to_owned()),
        ("severity", severity_name(incident.severity).to_owned()),
        key,
    ]);
    let optional = [
        ("job_name", incident.job.as_ref().map(ToString::to_string)),
        ("node", incident.node.as_ref().map(ToString::to_string)),
        ("class", incident.class.as_ref().map(ToString::to_string)),
        ("drill", incident.is_drill.then(|| "true".to_owned())),
    ];
    labels.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    labels
}

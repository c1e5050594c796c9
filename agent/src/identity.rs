//! Checks of this node's identity: that the certificate names the node, and that it stays valid.

use std::time::Duration;

use rankguard_identity::{CertificateFields, PeerRole, PeerTransport};
use rankguard_model::{EvidenceBody, EvidenceSource};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::error::AgentError;
use crate::intake::EvidenceIntake;
use crate::pending_evidence::PendingEvidence;
use crate::settings::AgentSettings;

/// Interval between reports that the certificate expires soon.
const DAY: Duration = Duration::from_secs(86_400);

/// Refuses an identity that cannot be read or that names another node.
pub(crate) async fn is_own(settings: &AgentSettings) -> Result<(), AgentError> {
    let Some(identity) = settings.network.identity().cloned() else {
        return Ok(());
    };
    let file = identity.files().certificate.clone();
    let read = tokio::task::spawn_blocking(move || identity.reload()).await;
    let card = read.map_err(|problem| AgentError::PartEnded {
        part: "identity",
        problem: problem.to_string(),
    })??;
    if card.name.is_agent_of(&settings.node) {
        Ok(())
    } else {
        Err(AgentError::Name {
            node: settings.node.clone(),
            file,
            name: card.name.short(),
            remedy: if card.name.role() == PeerRole::Agent {
                "set agent.node to it, or issue"
            } else {
                "it is not one of an agent; issue"
            },
        })
    }
}

/// Watches the certificate's validity. Near its end, evidence is emitted once a day.
pub(crate) fn watch(network: PeerTransport, intake: EvidenceIntake) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut told: Option<Instant> = None;
        let tell = |card: &CertificateFields| {
            if !card.ends_soon() || told.is_some_and(|at| at.elapsed() < DAY) {
                return;
            }
            told = Some(Instant::now());
            let body = EvidenceBody::Sample {
                metric: "identity.valid".to_owned(),
                value: card.days_left(),
                unit: "days".to_owned(),
            };
            intake.push(PendingEvidence::now(EvidenceSource::Agent, intake.node_entity(), body));
        };
        match network.watch(tell).await {}
    })
}

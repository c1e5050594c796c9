//! Query between agents for the age of their last contact with the controller: an agent that lost it finds out whether
//! it is cut off.

use std::time::Duration;

use rankguard_identity::PeerTransport;
use rankguard_model::NodeId;
use rankguard_proto::v1;

use super::{MeasuringAgent, client_within};

/// Queries the agent of a node for the age of its newest contact with the controller; `None` if it has none.
///
/// # Errors
///
/// A message if no answer came within the limit.
pub(crate) async fn ask_contact(
    network: &PeerTransport,
    node: &NodeId,
    address: &str,
    limit: Duration,
) -> Result<Option<Duration>, String> {
    let station = MeasuringAgent {
        node: node.clone(),
        address: address.to_owned(),
    };
    let exchange = async {
        let mut client = client_within(network, &station, limit, limit).await?;
        let answer = client.controller_contact(v1::ContactRequest {}).await;
        let answer = answer.map_err(|status| format!("{address}: {}", status.message()))?;
        let v1::ContactReply { has_contact, age_ms } = answer.into_inner();
        Ok(has_contact.then(|| Duration::from_millis(age_ms)))
    };
    let answer = tokio::time::timeout(limit, exchange).await;
    answer.map_err(|_| format!("{address} did not answer within {limit:?}"))?
}

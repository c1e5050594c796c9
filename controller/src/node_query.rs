//! Queries about one node, which a job launcher makes on every node at the start of every job: the whole status would be
//! too large an answer.

use std::time::Duration;

use rankguard_identity::{ConnectionPeer, PeerRole, RefusalCounters, RefusalReason};
use rankguard_model::NodeId;
use rankguard_proto::v1;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tonic::{Request, Response, Status};

use crate::input::{LoopInput, OperatorQuery};
use crate::session::stopping;

/// Roles that may ask.
pub(crate) const NODE_QUERY_ROLES: &[PeerRole] = &[PeerRole::Agent, PeerRole::Operator, PeerRole::Controller];

/// Time limit of an answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// gRPC service for queries about one node.
#[derive(Debug)]
pub(crate) struct NodeQueryService {
    inputs: mpsc::Sender<LoopInput>,
    refusals: RefusalCounters,
}

impl NodeQueryService {
    pub(crate) fn new(inputs: mpsc::Sender<LoopInput>, refusals: RefusalCounters) -> Self {
        Self { inputs, refusals }
    }

    /// Refuses an agent that asks about another node (RG-13).
    fn admit(&self, caller: &ConnectionPeer, node: &NodeId) -> Result<(), Status> {
        let is_agent = caller.name.as_ref().is_some_and(|name| name.role() == PeerRole::Agent);
        if !is_agent || caller.speaks_for(node) {
            return Ok(());
        }
        let what = format!("{} may not ask about node {node}", caller.words());
        self.refusals.record(RefusalReason::Node, caller.address, &what);
        Err(Status::permission_denied(what))
    }
}

#[tonic::async_trait]
impl v1::node_query_server::NodeQuery for NodeQueryService {
    async fn get_node(&self, request: Request<v1::NodeRequest>) -> Result<Response<v1::NodeReply>, Status> {
        let caller = ConnectionPeer::of(&request).cloned();
        let caller = caller.ok_or_else(|| Status::internal("the caller of this request is unknown"))?;
        let node = NodeId::from(request.into_inner().node);
        self.admit(&caller, &node)?;
        let (reply, answer) = oneshot::channel();
        let exchange = async {
            let query = LoopInput::Query(OperatorQuery::Node(node.clone(), reply));
            self.inputs.send(query).await.map_err(|_| stopping())?;
            answer.await.map_err(|_| stopping())
        };
        let view = timeout(ANSWER_DEADLINE, exchange).await;
        let view = view.map_err(|_| {
            let limit = ANSWER_DEADLINE.as_secs();
            Status::deadline_exceeded(format!(
                "the controller has not answered within {limit} s; its disk may hang"
            ))
        })??;
        let view = view.ok_or_else(|| Status::not_found(format!("there is no node {node}")))?;
        let json = serde_json::to_string(&view).map_err(|e| Status::internal(format!("cannot write JSON: {e}")))?;
        Ok(Response::new(v1::NodeReply { json }))
    }
}

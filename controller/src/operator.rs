//! Operator service.

use std::time::Duration;

use rankguard_checkpoint::Store;
use rankguard_identity::ConnectionPeer;
use rankguard_model::{CaseId, CaseNote, CaseNoteKind, JobId, JobSpec, NodeId, Timestamp, with_causes};
use rankguard_proto::v1;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tonic::{Request, Response, Status};

use crate::claims::{self, ClaimRegistry};
use crate::input::{CommandRefusal, LoopInput, OperatorCommand, OperatorQuery};
use crate::rendezvous_task::RendezvousInput;
use crate::session::stopping;
use crate::submission;

/// Time limit of an answer: a journal on a hanging disk must not block operators.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// Longest note about a case, and longest author name, bytes.
const NOTE_BYTES_MAX: usize = 4 << 10;
const NAME_BYTES_MAX: usize = 128;

/// gRPC service for operators.
#[derive(Debug)]
pub(crate) struct OperatorService {
    inputs: mpsc::Sender<LoopInput>,
    rendezvous: mpsc::Sender<RendezvousInput>,
    claims: ClaimRegistry,
}

impl OperatorService {
    pub(crate) fn new(inputs: mpsc::Sender<LoopInput>, rendezvous: mpsc::Sender<RendezvousInput>) -> Self {
        Self {
            inputs,
            rendezvous,
            claims: ClaimRegistry::default(),
        }
    }

    async fn ask<T>(&self, input: LoopInput, answer: oneshot::Receiver<T>) -> Result<T, Status> {
        let exchange = async {
            self.inputs.send(input).await.map_err(|_| stopping())?;
            answer.await.map_err(|_| stopping())
        };
        in_time(exchange).await
    }

    async fn command(&self, command: OperatorCommand) -> Result<(), Status> {
        let (reply, answer) = oneshot::channel();
        let answer = self.ask(LoopInput::Command { command, reply }, answer).await?;
        answer.map_err(refused)
    }

    async fn query<T>(&self, query: impl FnOnce(oneshot::Sender<T>) -> OperatorQuery) -> Result<T, Status> {
        let (reply, answer) = oneshot::channel();
        self.ask(LoopInput::Query(query(reply)), answer).await
    }
}

/// Awaits an answer of the controller's tasks.
async fn in_time<T>(exchange: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    timeout(ANSWER_DEADLINE, exchange).await.map_err(|_| {
        let limit = ANSWER_DEADLINE.as_secs();
        Status::deadline_exceeded(format!(
            "the controller has not answered within {limit} s; its disk may hang"
        ))
    })?
}

/// Returns the name in the certificate of the client; `None` on loopback without an identity.
fn certificate_name<T>(request: &Request<T>) -> Option<String> {
    let name = ConnectionPeer::of(request)?.name.as_ref()?.own();
    (!name.is_empty()).then(|| name.to_owned())
}

fn refused(refusal: CommandRefusal) -> Status {
    match refusal {
        CommandRefusal::Exists(why) => Status::already_exists(why),
        CommandRefusal::Absent(why) => Status::not_found(why),
        CommandRefusal::Unavailable(why) => Status::unavailable(why),
        CommandRefusal::Invalid(problems) => Status::invalid_argument(problems.join("\n")),
    }
}

/// Creates the store of a job with an otherwise valid specification: a store that cannot be created would fail every
/// later checkpoint.
async fn store_can_be_used(spec: &JobSpec) -> Result<(), Status> {
    let Some(store) = spec.checkpoint.as_ref().map(|checkpoint| checkpoint.store.clone()) else {
        return Ok(());
    };
    if !submission::problems(spec).is_empty() {
        return Ok(());
    }
    let path = store.clone();
    let opened = tokio::task::spawn_blocking(move || Store::open(path));
    match timeout(ANSWER_DEADLINE, opened).await {
        Ok(Ok(Ok(_))) => Ok(()),
        Ok(Ok(Err(problem))) => Err(claims::unusable_store(&store, &with_causes(&problem))),
        Ok(Err(_)) => Err(stopping()),
        Err(_) => Err(claims::silent_store(&store, ANSWER_DEADLINE)),
    }
}

#[tonic::async_trait]
impl v1::operator_server::Operator for OperatorService {
    async fn submit_job(&self, request: Request<v1::JobSpec>) -> Result<Response<v1::SubmitReply>, Status> {
        let spec = JobSpec::try_from(request.into_inner()).map_err(|e| Status::invalid_argument(e.to_string()))?;
        let job = spec.id.to_string();
        store_can_be_used(&spec).await?;
        if spec.checkpoint.is_none() || !submission::problems(&spec).is_empty() {
            self.command(OperatorCommand::Submit { spec, claim: None }).await?;
            return Ok(Response::new(v1::SubmitReply { job }));
        }
        let _hold = self.claims.hold(&spec.id)?;
        let floor = self
            .query(|reply| OperatorQuery::Name(Box::new(spec.clone()), reply))
            .await?;
        let floor = floor.map_err(refused)?;
        let claimed = claims::claim_store(&spec, floor).await?;
        let claim = Some(Box::new(claimed.claim.clone()));
        let submitted = self.command(OperatorCommand::Submit { spec, claim }).await;
        if let Err(refusal) = submitted {
            claims::undo(claimed, &refusal).await;
            return Err(refusal);
        }
        Ok(Response::new(v1::SubmitReply { job }))
    }

    async fn cancel_job(&self, request: Request<v1::JobName>) -> Result<Response<v1::Empty>, Status> {
        let by = certificate_name(&request);
        let job = JobId::from(request.into_inner().job);
        self.command(OperatorCommand::Cancel { job, by }).await?;
        Ok(Response::new(v1::Empty {}))
    }

    async fn get_status(&self, _: Request<v1::Empty>) -> Result<Response<v1::Document>, Status> {
        let mut view = self.query(OperatorQuery::Status).await?;
        let (reply, answer) = oneshot::channel();
        let exchange = async {
            let input = RendezvousInput::View(reply);
            self.rendezvous.send(input).await.map_err(|_| stopping())?;
            answer.await.map_err(|_| stopping())
        };
        view.torchruns = in_time(exchange).await?;
        document(&view)
    }

    async fn list_cases(&self, _: Request<v1::Empty>) -> Result<Response<v1::Document>, Status> {
        document(&self.query(OperatorQuery::Cases).await?)
    }

    async fn get_case(&self, request: Request<v1::CaseNumber>) -> Result<Response<v1::Document>, Status> {
        let id = CaseId(request.into_inner().id);
        let case = self.query(|reply| OperatorQuery::Case(id, reply)).await?;
        document(&case.ok_or_else(|| Status::not_found(format!("there is no case {id}")))?)
    }

    async fn cordon_node(&self, request: Request<v1::CordonRequest>) -> Result<Response<v1::Empty>, Status> {
        let v1::CordonRequest { node, reason } = request.into_inner();
        let node = NodeId::from(node);
        self.command(OperatorCommand::Cordon { node, reason }).await?;
        Ok(Response::new(v1::Empty {}))
    }

    async fn drain_node(&self, request: Request<v1::CordonRequest>) -> Result<Response<v1::Empty>, Status> {
        let v1::CordonRequest { node, reason } = request.into_inner();
        let node = NodeId::from(node);
        self.command(OperatorCommand::Drain { node, reason }).await?;
        Ok(Response::new(v1::Empty {}))
    }

    async fn forget_node(&self, request: Request<v1::NodeName>) -> Result<Response<v1::Empty>, Status> {
        let node = NodeId::from(request.into_inner().node);
        self.command(OperatorCommand::Forget { node }).await?;
        Ok(Response::new(v1::Empty {}))
    }

    async fn note_case(&self, request: Request<v1::CaseNoteRequest>) -> Result<Response<v1::Empty>, Status> {
        // The name in a certificate takes precedence over the name that the client sent.
        let named = certificate_name(&request);
        let v1::CaseNoteRequest {
            id,
            by,
            text,
            class,
            acknowledges,
            closes,
        } = request.into_inner();
        if text.len() > NOTE_BYTES_MAX || by.len() > NAME_BYTES_MAX {
            let limit = format!("a note has at most {NOTE_BYTES_MAX} bytes, a name {NAME_BYTES_MAX}");
            return Err(Status::invalid_argument(limit));
        }
        let kind = match class {
            Some(class) => CaseNoteKind::Corrected { class: class.into() },
            None if closes => CaseNoteKind::Closed,
            None if acknowledges => CaseNoteKind::Acknowledged,
            None => CaseNoteKind::Comment,
        };
        let note = CaseNote {
            at: Timestamp::default(),
            by: named.unwrap_or(by),
            kind,
            text,
        };
        let case = CaseId(id);
        self.command(OperatorCommand::Note { case, note }).await?;
        Ok(Response::new(v1::Empty {}))
    }

    async fn uncordon_node(&self, request: Request<v1::UncordonRequest>) -> Result<Response<v1::Empty>, Status> {
        let v1::UncordonRequest { node, only_reasons } = request.into_inner();
        let node = NodeId::from(node);
        self.command(OperatorCommand::Uncordon { node, only_reasons }).await?;
        Ok(Response::new(v1::Empty {}))
    }
}

fn document(value: &impl Serialize) -> Result<Response<v1::Document>, Status> {
    let json = serde_json::to_string(value).map_err(|e| Status::internal(format!("cannot write JSON: {e}")))?;
    Ok(Response::new(v1::Document { json }))
}

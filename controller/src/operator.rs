//! Operator service.

use std::time::{Duration, Instant};

use rankguard_access::{
    AUDIT_ACTIONS, AccessRole, AuditDoor, AuditFilter, AuditOutcome, CallerIdentity, NewAuditEntry, NewToken,
    RateLimiter, RevokedToken, RoleError, TokenError, TokenScope, TokenView,
};
use rankguard_checkpoint::Store;
use rankguard_checkpoint::claim::ClaimedFolder;
use rankguard_identity::ConnectionPeer;
use rankguard_model::{CaseId, CaseNote, CaseNoteKind, JobId, JobSpec, NodeId, PrintableText, Timestamp, with_causes};
use rankguard_proto::v1;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tonic::{Code, Request, Response, Status};

use crate::claims::{self, ClaimRegistry, NameReservation};
use crate::command_executor::{ANSWER_DEADLINE, CommandExecutor, CommandFailure, CommandOrigin, late};
use crate::enrolment::Enrolment;
use crate::input::{LoopInput, OperatorCommand, OperatorQuery};
use crate::join_tokens::{self, new_join_token};
use crate::operator_calls::{OperatorCall, certificate_role};
use crate::rendezvous_task::RendezvousInput;
use crate::replies::{document, with_hint};
use crate::session::stopping;
use crate::submission;

/// Refused calls of a caller that are recorded: a burst, and the interval of further ones.
const REFUSALS_BURST: u32 = 30;
const REFUSAL_INTERVAL: Duration = Duration::from_secs(2);
/// Most entries of the audit log in a reply.
const AUDIT_ENTRIES_MAX: usize = 10_000;

/// Longest note about a case, and longest author name, bytes.
const NOTE_BYTES_MAX: usize = 4 << 10;
const NAME_BYTES_MAX: usize = 128;

/// gRPC service for operators.
#[derive(Debug)]
pub(crate) struct OperatorService {
    inputs: mpsc::Sender<LoopInput>,
    rendezvous: mpsc::Sender<RendezvousInput>,
    claims: ClaimRegistry,
    executor: CommandExecutor,
    enrolment: Enrolment,
    /// Recorded refusals of each caller.
    refusals: RateLimiter,
}

impl OperatorService {
    pub(crate) fn new(
        inputs: mpsc::Sender<LoopInput>,
        rendezvous: mpsc::Sender<RendezvousInput>,
        executor: CommandExecutor,
        enrolment: Enrolment,
    ) -> Self {
        Self {
            inputs,
            rendezvous,
            claims: ClaimRegistry::default(),
            executor,
            enrolment,
            refusals: RateLimiter::new(REFUSALS_BURST, REFUSAL_INTERVAL),
        }
    }

    /// Submits a job, with a claim of its checkpoint folder if it has one.
    async fn submit(&self, origin: CommandOrigin, spec: JobSpec) -> Result<(), Status> {
        let entry = origin.entry("job.submit", spec.id.to_string(), spec.command.join(" "));
        let prepared = self.prepare(&spec).await;
        let (_hold, claimed) = match prepared {
            Ok(prepared) => prepared,
            Err(refusal) => {
                self.executor.access().refuse(entry, refusal.message().to_owned()).await;
                return Err(refusal);
            }
        };
        let claim = claimed.as_ref().map(|claimed| Box::new(claimed.claim.clone()));
        let submitted = self.command(origin, OperatorCommand::Submit { spec, claim }).await;
        if let (Err(refusal), Some(claimed)) = (&submitted, claimed) {
            claims::undo(claimed, refusal).await;
        }
        submitted.map(drop)
    }

    /// Prepares the checkpoint folder of a job, if it has one: a claim of it, which is held until the submission ends.
    async fn prepare(&self, spec: &JobSpec) -> Result<(Option<NameReservation>, Option<ClaimedFolder>), Status> {
        store_can_be_used(spec).await?;
        if spec.checkpoint.is_none() || !submission::problems(spec).is_empty() {
            return Ok((None, None));
        }
        let hold = self.claims.hold(&spec.id)?;
        let floor = self
            .query(|reply| OperatorQuery::Name(Box::new(spec.clone()), reply))
            .await?;
        let floor = floor.map_err(CommandFailure::Refused)?;
        let claimed = claims::claim_store(spec, floor).await?;
        Ok((Some(hold), Some(claimed)))
    }

    /// Creates a token on a blocking thread, and records it.
    async fn create(&self, entry: NewAuditEntry, wanted: NewToken, by: String) -> Result<CreatedToken, Status> {
        let access = self.executor.access().clone();
        let created = tokio::spawn(async move {
            let ticket = access.begin(entry).await.map_err(unrecorded)?;
            let (tokens, now) = (access.tokens.clone(), access.clock.now());
            let created = spawn_blocking(move || tokens.create(&wanted, &by, now)).await;
            let created = created.map_err(|_| stopping())?;
            let refusal = created.as_ref().err().map(TokenError::to_string);
            let outcome = if refusal.is_none() {
                AuditOutcome::Done
            } else {
                AuditOutcome::Refused
            };
            access.end(ticket, outcome, refusal.unwrap_or_default()).await;
            let (token, secret) = created.map_err(|problem| token_status(&problem))?;
            let value = secret.expose().to_owned();
            Ok(CreatedToken { token, value })
        });
        created.await.unwrap_or_else(|_| Err(stopping()))
    }

    /// Revokes a token on a blocking thread, and records it. A disk that fails does not prevent it.
    async fn revoke(&self, entry: NewAuditEntry, token: String, by: String) -> Result<RevokedToken, Status> {
        let access = self.executor.access().clone();
        let revoked = tokio::spawn(async move {
            let begun = access.begin(entry).await;
            let (tokens, now) = (access.tokens.clone(), access.clock.now());
            let revoked = spawn_blocking(move || tokens.revoke(&token, &by, now)).await;
            let revoked = revoked.map_err(|_| stopping())?;
            let (outcome, message) = match &revoked {
                Ok(RevokedToken { unsaved: None, .. }) => (AuditOutcome::Done, String::new()),
                Ok(RevokedToken { unsaved: Some(why), .. }) => {
                    (AuditOutcome::Done, format!("the revocation is not on disk: {why}"))
                }
                Err(problem) => (AuditOutcome::Refused, problem.to_string()),
            };
            let unrecorded = match begun {
                Ok(ticket) => {
                    access.end(ticket, outcome, message).await;
                    None
                }
                Err(problem) => Some(problem),
            };
            let revoked = revoked.map_err(|problem| token_status(&problem))?;
            Ok(RevokedToken { unrecorded, ..revoked })
        });
        revoked.await.unwrap_or_else(|_| Err(stopping()))
    }

    async fn ask<T>(&self, input: LoopInput, answer: oneshot::Receiver<T>) -> Result<T, Status> {
        let exchange = async {
            self.inputs.send(input).await.map_err(|_| stopping())?;
            answer.await.map_err(|_| stopping())
        };
        in_time(exchange).await
    }

    /// Returns the origin of a call; refuses a caller with a lesser role than the call requires, and records that for a
    /// change of `target`.
    async fn admit<T>(
        &self,
        request: &Request<T>,
        call: OperatorCall,
        target: impl FnOnce(&T) -> String,
    ) -> Result<CommandOrigin, Status> {
        let peer = ConnectionPeer::of(request);
        let peer = peer.ok_or_else(|| Status::internal("the caller of this request is unknown"))?;
        let origin = CommandOrigin {
            caller: caller(peer),
            door: AuditDoor::Grpc,
            key: None,
        };
        if origin.caller.role >= call.role() {
            return Ok(origin);
        }
        let actor = &origin.caller.actor;
        let what = format!(
            "this requires role {}, and {actor} has {}",
            call.role(),
            origin.caller.role
        );
        if let Some(action) = call.action() {
            if self.refusals.take(actor, Instant::now()).is_err() {
                return Err(Status::resource_exhausted(format!(
                    "{what}; there are too many such calls"
                )));
            }
            let entry = origin.entry(action, target(request.get_ref()), String::new());
            self.executor.access().refuse(entry, what.clone()).await;
        }
        Err(Status::permission_denied(what))
    }

    /// Admits a call that reads.
    async fn admit_read<T>(&self, request: &Request<T>, call: OperatorCall) -> Result<CommandOrigin, Status> {
        self.admit(request, call, |_| String::new()).await
    }

    async fn command(&self, origin: CommandOrigin, command: OperatorCommand) -> Result<Response<v1::Empty>, Status> {
        self.executor.execute(origin, command).await?;
        Ok(Response::new(v1::Empty {}))
    }

    async fn query<T>(&self, query: impl FnOnce(oneshot::Sender<T>) -> OperatorQuery) -> Result<T, Status> {
        let (reply, answer) = oneshot::channel();
        self.ask(LoopInput::Query(query(reply)), answer).await
    }
}

/// Awaits an answer of the controller's tasks.
async fn in_time<T>(exchange: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let answered = timeout(ANSWER_DEADLINE, exchange).await;
    answered.map_err(|_| Status::deadline_exceeded(late()))?
}

/// Returns the caller of a gRPC request. An operator's certificate and a process of this machine have every right.
fn caller(peer: &ConnectionPeer) -> CallerIdentity {
    let caller = match &peer.name {
        Some(name) => CallerIdentity::certificate(name.short(), name.own(), certificate_role(name.role())),
        None => CallerIdentity::local(AccessRole::Admin),
    };
    caller.at(peer.address)
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
        let target = |spec: &v1::JobSpec| spec.id.clone();
        let origin = self.admit(&request, OperatorCall::SubmitJob, target).await?;
        let spec = JobSpec::try_from(request.into_inner()).map_err(|e| Status::invalid_argument(e.to_string()))?;
        let job = spec.id.to_string();
        self.submit(origin, spec).await?;
        Ok(Response::new(v1::SubmitReply { job }))
    }

    async fn cancel_job(&self, request: Request<v1::JobName>) -> Result<Response<v1::Empty>, Status> {
        let target = |name: &v1::JobName| name.job.clone();
        let origin = self.admit(&request, OperatorCall::CancelJob, target).await?;
        let by = origin.caller.author.clone();
        let job = JobId::from(request.into_inner().job);
        self.command(origin, OperatorCommand::Cancel { job, by }).await
    }

    async fn get_status(&self, request: Request<v1::Empty>) -> Result<Response<v1::Document>, Status> {
        self.admit_read(&request, OperatorCall::Read).await?;
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

    async fn list_cases(&self, request: Request<v1::Empty>) -> Result<Response<v1::Document>, Status> {
        self.admit_read(&request, OperatorCall::Read).await?;
        document(&self.query(OperatorQuery::Cases).await?)
    }

    async fn get_case(&self, request: Request<v1::CaseNumber>) -> Result<Response<v1::Document>, Status> {
        self.admit_read(&request, OperatorCall::Read).await?;
        let id = CaseId(request.into_inner().id);
        let case = self.query(|reply| OperatorQuery::Case(id, reply)).await?;
        document(&case.ok_or_else(|| Status::not_found(format!("there is no case {id}")))?)
    }

    async fn cordon_node(&self, request: Request<v1::CordonRequest>) -> Result<Response<v1::Empty>, Status> {
        let target = |request: &v1::CordonRequest| request.node.clone();
        let origin = self.admit(&request, OperatorCall::CordonNode, target).await?;
        let v1::CordonRequest { node, reason } = request.into_inner();
        let node = NodeId::from(node);
        self.command(origin, OperatorCommand::Cordon { node, reason }).await
    }

    async fn drain_node(&self, request: Request<v1::CordonRequest>) -> Result<Response<v1::Empty>, Status> {
        let target = |request: &v1::CordonRequest| request.node.clone();
        let origin = self.admit(&request, OperatorCall::DrainNode, target).await?;
        let v1::CordonRequest { node, reason } = request.into_inner();
        let node = NodeId::from(node);
        self.command(origin, OperatorCommand::Drain { node, reason }).await
    }

    async fn forget_node(&self, request: Request<v1::NodeName>) -> Result<Response<v1::Empty>, Status> {
        let target = |request: &v1::NodeName| request.node.clone();
        let origin = self.admit(&request, OperatorCall::ForgetNode, target).await?;
        let node = NodeId::from(request.into_inner().node);
        self.command(origin, OperatorCommand::Forget { node }).await
    }

    async fn note_case(&self, request: Request<v1::CaseNoteRequest>) -> Result<Response<v1::Empty>, Status> {
        let target = |note: &v1::CaseNoteRequest| note.id.to_string();
        let origin = self.admit(&request, OperatorCall::NoteCase, target).await?;
        let request = request.into_inner();
        if request.text.len() > NOTE_BYTES_MAX || request.by.len() > NAME_BYTES_MAX {
            let limit = format!("a note has at most {NOTE_BYTES_MAX} bytes, a name {NAME_BYTES_MAX}");
            return Err(Status::invalid_argument(limit));
        }
        let case = CaseId(request.id);
        let note = note(request, origin.caller.author.clone());
        self.command(origin, OperatorCommand::Note { case, note }).await
    }

    async fn uncordon_node(&self, request: Request<v1::UncordonRequest>) -> Result<Response<v1::Empty>, Status> {
        let target = |request: &v1::UncordonRequest| request.node.clone();
        let origin = self.admit(&request, OperatorCall::UncordonNode, target).await?;
        let v1::UncordonRequest { node, only_reasons } = request.into_inner();
        let node = NodeId::from(node);
        self.command(origin, OperatorCommand::Uncordon { node, only_reasons })
            .await
    }

    async fn create_token(&self, request: Request<v1::TokenRequest>) -> Result<Response<v1::Document>, Status> {
        let target = |request: &v1::TokenRequest| request.name.clone();
        let origin = self.admit(&request, OperatorCall::CreateToken, target).await?;
        let wanted = new_token(request.into_inner())?;
        let valid = wanted.valid.as_secs();
        let detail = format!("role {}, {}, valid for {valid} s", wanted.role, wanted.scope.words());
        let entry = origin.entry("token.create", wanted.name.clone(), detail);
        let by = origin.caller.actor;
        document(&self.create(entry, wanted, by).await?)
    }

    async fn list_tokens(&self, request: Request<v1::Empty>) -> Result<Response<v1::Document>, Status> {
        self.admit_read(&request, OperatorCall::ReadAccess).await?;
        let access = self.executor.access();
        document(&access.tokens.list(access.clock.now()))
    }

    async fn revoke_token(&self, request: Request<v1::TokenName>) -> Result<Response<v1::Document>, Status> {
        let target = |name: &v1::TokenName| name.token.clone();
        let origin = self.admit(&request, OperatorCall::RevokeToken, target).await?;
        let v1::TokenName { token } = request.into_inner();
        let entry = origin.entry("token.revoke", token.clone(), String::new());
        let by = origin.caller.actor;
        document(&self.revoke(entry, token, by).await?)
    }

    async fn create_join_token(
        &self,
        request: Request<v1::JoinTokenRequest>,
    ) -> Result<Response<v1::Document>, Status> {
        let target = |request: &v1::JoinTokenRequest| request.nodes.first().cloned().unwrap_or_default();
        let origin = self.admit(&request, OperatorCall::CreateJoinToken, target).await?;
        let wanted = new_join_token(request.into_inner());
        let entry = origin.entry("join-token.create", String::new(), join_tokens::describe(&wanted));
        let by = origin.caller.actor;
        document(&join_tokens::create(&self.enrolment, entry, wanted, by).await?)
    }

    async fn list_join_tokens(&self, request: Request<v1::Empty>) -> Result<Response<v1::Document>, Status> {
        self.admit_read(&request, OperatorCall::ReadAccess).await?;
        let access = self.executor.access().clone();
        let listed = spawn_blocking(move || access.ledger.list(access.clock.now())).await;
        document(&listed.map_err(|_| stopping())?)
    }

    async fn revoke_join_token(&self, request: Request<v1::TokenName>) -> Result<Response<v1::Document>, Status> {
        let target = |name: &v1::TokenName| name.token.clone();
        let origin = self.admit(&request, OperatorCall::RevokeJoinToken, target).await?;
        let v1::TokenName { token } = request.into_inner();
        let entry = origin.entry("join-token.revoke", token.clone(), String::new());
        let by = origin.caller.actor;
        document(&join_tokens::revoke(&self.enrolment, entry, token, by).await?)
    }

    async fn read_audit(&self, request: Request<v1::AuditRequest>) -> Result<Response<v1::Document>, Status> {
        self.admit_read(&request, OperatorCall::ReadAccess).await?;
        let request = request.into_inner();
        let limit = match request.limit {
            0 => AUDIT_ENTRIES_MAX,
            limit => AUDIT_ENTRIES_MAX.min(usize::try_from(limit).unwrap_or(AUDIT_ENTRIES_MAX)),
        };
        if let Some(action) = &request.action {
            check_action(action)?;
        }
        let filter = AuditFilter {
            since: request.since_ns.map(Timestamp),
            until: request.until_ns.map(Timestamp),
            actor: request.actor,
            action: request.action,
            has_key: false,
        };
        let audit = self.executor.access().audit.clone();
        let page = spawn_blocking(move || audit.read(&filter, None, limit)).await;
        let page = page.map_err(|_| stopping())?;
        document(&page.map_err(|problem| Status::unavailable(problem.to_string()))?)
    }
}

/// Refuses an action that no entry has: a mistyped one must not look like an empty log.
fn check_action(action: &str) -> Result<(), Status> {
    if AUDIT_ACTIONS.contains(&action) {
        return Ok(());
    }
    let known = AUDIT_ACTIONS.join(", ");
    let status = Status::invalid_argument(format!(
        "there is no action {:?}",
        PrintableText::first(action, 100).to_string()
    ));
    Err(with_hint(status, &format!("the groups and actions are {known}")))
}

/// Refuses a change that cannot be recorded; [`AccessControl::begin`](crate::access_control::AccessControl::begin) has logged
/// the cause.
fn unrecorded(problem: String) -> Status {
    Status::from(CommandFailure::Unrecorded(problem))
}

/// Returns the note of a request. The name in a certificate takes precedence over the name that the client sent.
fn note(request: v1::CaseNoteRequest, named: Option<String>) -> CaseNote {
    let kind = match request.class {
        Some(class) => CaseNoteKind::Corrected { class: class.into() },
        None if request.closes => CaseNoteKind::Closed,
        None if request.acknowledges => CaseNoteKind::Acknowledged,
        None => CaseNoteKind::Comment,
    };
    CaseNote {
        at: Timestamp::default(),
        by: named.unwrap_or(request.by),
        kind,
        text: request.text,
    }
}

fn new_token(request: v1::TokenRequest) -> Result<NewToken, Status> {
    let role = request.role.parse();
    let role = role.map_err(|problem: RoleError| Status::invalid_argument(problem.to_string()))?;
    Ok(NewToken {
        name: request.name,
        role,
        scope: TokenScope {
            job_prefix: request.job_prefix,
            nodes: request.nodes.into_iter().collect(),
        },
        valid: Duration::from_secs(request.valid_s),
    })
}

fn token_status(problem: &TokenError) -> Status {
    let text = problem.to_string();
    let tokens = "`rankguard token list` lists the tokens";
    let options = "`rankguard token create --help` describes the options";
    let (code, hint) = match problem {
        TokenError::File { .. } | TokenError::Random => {
            tracing::error!("{text}");
            return Status::unavailable(text);
        }
        TokenError::Exists { .. } => (Code::AlreadyExists, tokens),
        TokenError::Absent { .. } => (Code::NotFound, tokens),
        TokenError::Revoked { .. } => (Code::FailedPrecondition, tokens),
        TokenError::Full { .. } => (Code::ResourceExhausted, tokens),
        TokenError::Name { .. } | TokenError::Scope | TokenError::ScopedAdmin | TokenError::Validity => {
            (Code::InvalidArgument, options)
        }
    };
    with_hint(Status::new(code, text), hint)
}

/// Reply to the creation of a token.
#[derive(Serialize)]
struct CreatedToken {
    token: TokenView,
    /// Value of the token, which nothing else contains.
    value: String,
}

//! Operator client of the controller: one connection, a deadline on every call, model values as answers.

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use rankguard_access::{AuditPage, JoinTokenView, RevokedToken, TokenView};
use rankguard_identity::{DialError, ExpectedPeer, PeerTransport};
use rankguard_model::{Case, CaseId, JobId, JobSpec, NodeId, NodeView, StatusView};
use rankguard_proto::v1;
use rankguard_proto::v1::node_query_client::NodeQueryClient;
use rankguard_proto::v1::operator_client::OperatorClient;
use serde::de::DeserializeOwned;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};

use crate::client_command::CommandOptions;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::waiting;

/// Maximum wait for a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Maximum wait for an answer: longer than the controller's own limit, so that the controller's reason is shown.
const ANSWER_LIMIT: Duration = Duration::from_secs(12);
/// Maximum duration of a submission that resumes from a checkpoint: the controller may have to copy it.
const RESUME_LIMIT: Duration = Duration::from_secs(620);

/// Client of the controller at one address. Connects at the first call and reconnects after a lost connection.
#[derive(Debug)]
pub(crate) struct ControllerClient {
    address: String,
    network: PeerTransport,
    channel: OnceLock<Channel>,
    /// Maximum wait for an answer.
    limit: Duration,
    /// True if long waits are reported on standard error.
    reports_waits: bool,
    /// Options for further commands in hints.
    options: CommandOptions,
}

/// Failure of a call to the controller.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub(crate) enum ClientError {
    #[error("{address:?} is not an address; expected host:port")]
    Address { address: String },
    #[error("cannot reach the controller at {address}: {why}")]
    Unreachable { address: String, why: String },
    #[error("the controller at {address} did not answer within {} s", ANSWER_LIMIT.as_secs())]
    Silent { address: String },
    #[error("the controller at {address} cannot serve the request: {why}")]
    NotServing { address: String, why: String },
    #[error("{why}")]
    Identity { why: String },
    #[error("the controller rejected the request: {}", .0.message())]
    Refused(Box<Status>),
    #[error("cannot parse the answer of the controller at {address}")]
    Answer { address: String, source: serde_json::Error },
}

impl ClientError {
    /// True if the controller was not reached or cannot serve requests now, so that the same call may succeed later.
    pub(crate) fn is_away(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Silent { .. } | Self::NotServing { .. }
        )
    }

    /// True if the requested object does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused(status) if status.code() == Code::NotFound)
    }

    /// True if the state of the object does not permit the change.
    fn is_conflict(&self) -> bool {
        let is_conflict = |status: &Status| {
            status.code() == Code::FailedPrecondition && status.message() != rankguard_identity::REQUIRES_TLS
        };
        matches!(self, Self::Refused(status) if is_conflict(status))
    }
}

/// Join token that was created, with its value.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct CreatedJoinToken {
    pub(crate) token: JoinTokenView,
    pub(crate) value: String,
    /// Fingerprint of the cluster's authority.
    pub(crate) ca_sha256: String,
}

impl ControllerClient {
    /// Creates a client without connecting.
    pub(crate) fn new(address: &str, network: PeerTransport) -> Self {
        Self {
            address: address.to_owned(),
            network,
            channel: OnceLock::new(),
            limit: ANSWER_LIMIT,
            reports_waits: true,
            options: CommandOptions::default(),
        }
    }

    /// Sets the options that commands in hints repeat.
    pub(crate) fn with_options(self, options: CommandOptions) -> Self {
        Self { options, ..self }
    }

    /// Returns the options that commands in hints repeat.
    pub(crate) fn options(&self) -> &CommandOptions {
        &self.options
    }

    /// Disables the notes about long waits.
    pub(crate) fn without_notes(self) -> Self {
        Self {
            reports_waits: false,
            ..self
        }
    }

    /// Replaces the deadline for answers.
    pub(crate) fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Address of the controller.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Transport settings: identity and connector.
    pub(crate) fn network(&self) -> &PeerTransport {
        &self.network
    }

    /// Fetches the current view of nodes and jobs.
    pub(crate) async fn status(&self) -> Result<StatusView, ClientError> {
        let mut operator = self.operator()?;
        let answer = self.wait(operator.get_status(v1::Empty {})).await;
        self.document(answer)
    }

    /// Fetches the view of one node; an agent's certificate suffices for its own node.
    pub(crate) async fn node(&self, node: &NodeId) -> Result<NodeView, ClientError> {
        let request = v1::NodeRequest { node: node.to_string() };
        let mut query = NodeQueryClient::new(self.channel()?);
        let answer = self.answer(self.wait(query.get_node(request)).await)?;
        self.parse(&answer.json)
    }

    /// Fetches all cases, oldest first.
    pub(crate) async fn cases(&self) -> Result<Vec<Case>, ClientError> {
        let mut operator = self.operator()?;
        let answer = self.wait(operator.list_cases(v1::Empty {})).await;
        self.document(answer)
    }

    /// Fetches one case.
    pub(crate) async fn case(&self, id: CaseId) -> Result<Case, ClientError> {
        let mut operator = self.operator()?;
        let answer = self.wait(operator.get_case(v1::CaseNumber { id: id.0 })).await;
        self.document(answer)
    }

    /// Submits a job and returns its name.
    pub(crate) async fn submit(&self, spec: &JobSpec) -> Result<JobId, ClientError> {
        let patient;
        let client = if spec.resume_from.is_some() {
            patient = Self::new(&self.address, self.network.clone()).within(RESUME_LIMIT);
            &patient
        } else {
            self
        };
        let mut operator = client.operator()?;
        let answer = client.wait(operator.submit_job(v1::JobSpec::from(spec))).await;
        Ok(JobId::from(self.answer(answer)?.job))
    }

    /// Stops a job permanently. Returns false if the job was over before, so that nothing was changed.
    pub(crate) async fn cancel(&self, job: &JobId) -> Result<bool, ClientError> {
        let mut operator = self.operator()?;
        let request = v1::JobName { job: job.to_string() };
        let answer = self.wait(operator.cancel_job(request)).await;
        match self.answer(answer) {
            Ok(_) => Ok(true),
            Err(problem) if problem.is_conflict() => Ok(false),
            Err(problem) => Err(problem),
        }
    }

    /// Cordons a node: no new work is placed on it.
    pub(crate) async fn cordon(&self, node: &NodeId, reason: &str) -> Result<(), ClientError> {
        let request = v1::CordonRequest {
            node: node.to_string(),
            reason: reason.to_owned(),
        };
        let mut operator = self.operator()?;
        let answer = self.wait(operator.cordon_node(request)).await;
        self.answer(answer).map(drop)
    }

    /// Uncordons a node: work may be placed on it again.
    pub(crate) async fn uncordon(&self, node: &NodeId) -> Result<(), ClientError> {
        self.uncordon_only(node, Vec::new()).await
    }

    /// Uncordons a node if its cordon has exactly these reasons; none stand for any.
    pub(crate) async fn uncordon_only(&self, node: &NodeId, only_reasons: Vec<String>) -> Result<(), ClientError> {
        let mut operator = self.operator()?;
        let request = v1::UncordonRequest {
            node: node.to_string(),
            only_reasons,
        };
        let answer = self.wait(operator.uncordon_node(request)).await;
        self.answer(answer).map(drop)
    }

    /// Drains a node: no new work is placed on it, and its job moves after its next checkpoint.
    pub(crate) async fn drain(&self, node: &NodeId, reason: &str) -> Result<(), ClientError> {
        let request = v1::CordonRequest {
            node: node.to_string(),
            reason: reason.to_owned(),
        };
        let mut operator = self.operator()?;
        let answer = self.wait(operator.drain_node(request)).await;
        self.answer(answer).map(drop)
    }

    /// Removes a node that has left permanently.
    pub(crate) async fn forget(&self, node: &NodeId) -> Result<(), ClientError> {
        let mut operator = self.operator()?;
        let request = v1::NodeName { node: node.to_string() };
        let answer = self.wait(operator.forget_node(request)).await;
        self.answer(answer).map(drop)
    }

    /// Adds a note to a case.
    pub(crate) async fn note_case(&self, note: v1::CaseNoteRequest) -> Result<(), ClientError> {
        let mut operator = self.operator()?;
        let answer = self.wait(operator.note_case(note)).await;
        self.answer(answer).map(drop)
    }

    /// Creates an access token; returns it with its value.
    pub(crate) async fn create_token(&self, request: v1::TokenRequest) -> Result<(TokenView, String), ClientError> {
        #[derive(serde::Deserialize)]
        struct CreatedToken {
            token: TokenView,
            value: String,
        }
        let mut operator = self.operator()?;
        let answer = self.wait(operator.create_token(request)).await;
        let CreatedToken { token, value } = self.document(answer)?;
        Ok((token, value))
    }

    /// Fetches all access tokens, oldest first.
    pub(crate) async fn tokens(&self) -> Result<Vec<TokenView>, ClientError> {
        let mut operator = self.operator()?;
        let answer = self.wait(operator.list_tokens(v1::Empty {})).await;
        self.document(answer)
    }

    /// Revokes an access token by its id or name.
    pub(crate) async fn revoke_token(&self, token: &str) -> Result<RevokedToken, ClientError> {
        let request = v1::TokenName {
            token: token.to_owned(),
        };
        let mut operator = self.operator()?;
        let answer = self.wait(operator.revoke_token(request)).await;
        self.document(answer)
    }

    /// Creates a join token; returns it with its value.
    pub(crate) async fn create_join_token(
        &self,
        request: v1::JoinTokenRequest,
    ) -> Result<CreatedJoinToken, ClientError> {
        let mut operator = self.operator()?;
        let answer = self.wait(operator.create_join_token(request)).await;
        self.document(answer)
    }

    /// Fetches all join tokens, oldest first.
    pub(crate) async fn join_tokens(&self) -> Result<Vec<JoinTokenView>, ClientError> {
        let mut operator = self.operator()?;
        let answer = self.wait(operator.list_join_tokens(v1::Empty {})).await;
        self.document(answer)
    }

    /// Revokes a join token by its id.
    pub(crate) async fn revoke_join_token(&self, token: &str) -> Result<JoinTokenView, ClientError> {
        let request = v1::TokenName {
            token: token.to_owned(),
        };
        let mut operator = self.operator()?;
        let answer = self.wait(operator.revoke_join_token(request)).await;
        self.document(answer)
    }

    /// Fetches entries of the audit log, newest first.
    pub(crate) async fn audit(&self, request: v1::AuditRequest) -> Result<AuditPage, ClientError> {
        let mut operator = self.operator()?;
        let answer = self.wait(operator.read_audit(request)).await;
        self.document(answer)
    }

    /// Awaits the answer of a call, with notes on standard error while it takes long.
    async fn wait<T>(&self, call: impl Future<Output = T>) -> T {
        if !self.reports_waits {
            return call.await;
        }
        let limit = self.limit.as_secs();
        waiting::report_long_wait(
            &format!("waiting for the controller at {} (at most {limit} s)", self.address),
            call,
        )
        .await
    }

    fn operator(&self) -> Result<OperatorClient<Channel>, ClientError> {
        let limit = rankguard_proto::MESSAGE_BYTES_MAX;
        Ok(OperatorClient::new(self.channel()?)
            .max_decoding_message_size(limit)
            .max_encoding_message_size(limit))
    }

    fn channel(&self) -> Result<Channel, ClientError> {
        if let Some(channel) = self.channel.get() {
            return Ok(channel.clone());
        }
        let endpoint = endpoint(&self.address)?.timeout(self.limit);
        let connector = self.network.connector(ExpectedPeer::Controller, CONNECT_LIMIT);
        let connect = || endpoint.connect_with_connector_lazy(connector);
        Ok(self.channel.get_or_init(connect).clone())
    }

    fn document<T: DeserializeOwned>(&self, answer: Result<Response<v1::Document>, Status>) -> Result<T, ClientError> {
        self.parse(&self.answer(answer)?.json)
    }

    fn parse<T: DeserializeOwned>(&self, text: &str) -> Result<T, ClientError> {
        serde_json::from_str(text).map_err(|source| ClientError::Answer {
            address: self.address.clone(),
            source,
        })
    }

    fn answer<T>(&self, answer: Result<Response<T>, Status>) -> Result<T, ClientError> {
        let address = || self.address.clone();
        match answer {
            Ok(response) => Ok(response.into_inner()),
            Err(status) if identity_problem(&status).is_some() => Err(ClientError::Identity {
                why: identity_problem(&status).unwrap_or_default(),
            }),
            Err(status) if is_from_controller(&status) && is_temporary(&status) => Err(ClientError::NotServing {
                address: address(),
                why: status.message().to_owned(),
            }),
            Err(status) if status.code() == Code::Unavailable || is_transport(&status) => {
                Err(ClientError::Unreachable {
                    address: address(),
                    why: reason(&status),
                })
            }
            Err(status) if matches!(status.code(), Code::Cancelled | Code::DeadlineExceeded) => {
                Err(ClientError::Silent { address: address() })
            }
            Err(status) => Err(ClientError::Refused(Box::new(status))),
        }
    }
}

/// Returns the endpoint of the controller; refuses an address without a port.
pub(crate) fn endpoint(address: &str) -> Result<Endpoint, ClientError> {
    let wrong = || ClientError::Address {
        address: address.to_owned(),
    };
    let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
    if host.is_empty() || port.parse::<u16>().is_err() {
        return Err(wrong());
    }
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|_| wrong())?;
    Ok(endpoint.timeout(ANSWER_LIMIT))
}

/// Describes the certificate problem of a failed call, on either side; `None` if certificates are not the cause.
pub(crate) fn identity_problem(status: &Status) -> Option<String> {
    let dial = DialError::within(status)?;
    dial.is_about_identity().then(|| dial.words())
}

/// True if the controller sent this status. Failures of this side have a cause.
pub(crate) fn is_from_controller(status: &Status) -> bool {
    std::error::Error::source(status).is_none() && !status.message().is_empty()
}

fn is_temporary(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded)
}

/// True if the transport on this side failed, not the controller.
fn is_transport(status: &Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if error.is::<tonic::transport::Error>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Returns the advice that the controller sent with a refusal.
fn sent_hint(status: &Status) -> Option<&str> {
    status.metadata().get(rankguard_proto::HINT_HEADER)?.to_str().ok()
}

/// Returns the innermost cause, which is the most specific ("connection refused").
pub(crate) fn reason(status: &Status) -> String {
    let mut innermost: &dyn std::error::Error = status;
    while let Some(next) = innermost.source() {
        innermost = next;
    }
    if std::ptr::addr_eq(innermost, status) {
        status.message().to_owned()
    } else {
        innermost.to_string()
    }
}

/// Maps a client error to an error with a hint and an exit code.
impl From<ClientError> for CliError {
    fn from(problem: ClientError) -> Self {
        let hint = match &problem {
            ClientError::Address { .. } => {
                "set it with --controller HOST:PORT, RANKGUARD_CONTROLLER or client.controller"
            }
            ClientError::Unreachable { .. } | ClientError::Silent { .. } => {
                "check that `rankguard controller` runs there; select another address with --controller or RANKGUARD_CONTROLLER"
            }
            ClientError::NotServing { .. } => "the log of `rankguard controller` shows the cause; try again later",
            ClientError::Identity { .. } => {
                "`rankguard identity show FILE` shows role and name of a certificate; select it with identity.* settings or --identity-* flags"
            }
            ClientError::Refused(status) if sent_hint(status).is_some() => sent_hint(status).unwrap_or_default(),
            ClientError::Refused(status) if status.code() == Code::PermissionDenied => {
                "`rankguard identity show FILE` shows the owner of identity.certificate; use an operator certificate"
            }
            ClientError::Refused(_) if problem.is_not_found() => {
                "`rankguard status --all` lists nodes and jobs, `rankguard cases` lists cases"
            }
            ClientError::Refused(status) if status.message() == rankguard_identity::REQUIRES_TLS => {
                "set the identity.* settings or the --identity-* flags to the certificate of an operator, or of a viewer for commands that read; `rankguard identity issue` creates one"
            }
            ClientError::Refused(_) => "`rankguard status --all` shows nodes and jobs, `rankguard cases` shows cases",
            ClientError::Answer { .. } => "use the same version of `rankguard` and the controller",
        };
        let what = problem.to_string();
        let hint = hint.to_owned();
        match problem {
            ClientError::Address { .. } => Self::usage(what, hint),
            ClientError::Answer { source, .. } => Self::failure(what, hint).because(source),
            _ if problem.is_away() => Self::failure(what, hint).exiting(CommandExit::NoController),
            _ => Self::failure(what, hint),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_port_is_refused_before_anything_is_sent() {
        for wrong in ["", "localhost", ":7700", "host:port", "host:99999", "a b:1"] {
            assert!(matches!(endpoint(wrong), Err(ClientError::Address { .. })), "{wrong:?}");
        }
        for right in ["127.0.0.1:7700", "localhost:1", "[::1]:7700"] {
            assert!(endpoint(right).is_ok(), "{right:?}");
        }
    }
}

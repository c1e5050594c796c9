//! Join tokens of operators: created and revoked on a blocking thread, and recorded.

use std::time::Duration;

use rankguard_access::{AuditOutcome, JoinTokenError, JoinTokenView, NewAuditEntry, NewJoinToken};
use rankguard_proto::v1;
use serde::Serialize;
use tokio::task::spawn_blocking;
use tonic::{Code, Status};

use crate::access_control::AccessControl;
use crate::enrolment::Enrolment;
use crate::replies::with_hint;
use crate::session::stopping;

/// Reply to the creation of a join token.
#[derive(Serialize)]
pub(crate) struct CreatedJoinToken {
    token: JoinTokenView,
    /// Value of the token, which nothing else contains.
    value: String,
    /// Fingerprint of the cluster's authority.
    ca_sha256: String,
}

/// Returns the token of a request.
pub(crate) fn new_join_token(request: v1::JoinTokenRequest) -> NewJoinToken {
    NewJoinToken {
        nodes: request.nodes.into_iter().collect(),
        uses: request.uses,
        valid: Duration::from_secs(request.valid_s),
        may_replace: request.may_replace,
    }
}

/// Describes a token for the audit log.
pub(crate) fn describe(wanted: &NewJoinToken) -> String {
    let first: Vec<&str> = wanted.nodes.iter().take(10).map(String::as_str).collect();
    let more = wanted.nodes.len() - first.len();
    let more = if more == 0 {
        String::new()
    } else {
        format!(" and {more} more")
    };
    let replace = if wanted.may_replace {
        ", may replace certificates"
    } else {
        ""
    };
    let (uses, valid) = (wanted.uses, wanted.valid.as_secs());
    format!(
        "nodes {}{more}, {uses} uses, valid for {valid} s{replace}",
        first.join(", ")
    )
}

/// Creates a join token; refused while enrolment is off.
pub(crate) async fn create(
    enrolment: &Enrolment,
    entry: NewAuditEntry,
    wanted: NewJoinToken,
    by: String,
) -> Result<CreatedJoinToken, Status> {
    let access = enrolment.access().clone();
    let fingerprint = match enrolment.fingerprint() {
        Ok(fingerprint) => fingerprint,
        Err(refusal) => {
            access.refuse(entry, refusal.message().to_owned()).await;
            return Err(with_hint(
                refusal,
                "set enrolment.ca and enrolment.ca_key of the controller",
            ));
        }
    };
    let (ledger, now) = (access.ledger.clone(), access.clock.now());
    let (token, secret) = recorded(access, entry, move || ledger.create(&wanted, &by, now)).await?;
    Ok(CreatedJoinToken {
        token,
        value: secret.expose().to_owned(),
        ca_sha256: fingerprint.to_string(),
    })
}

/// Revokes a join token.
pub(crate) async fn revoke(
    enrolment: &Enrolment,
    entry: NewAuditEntry,
    id: String,
    by: String,
) -> Result<JoinTokenView, Status> {
    let access = enrolment.access().clone();
    let (ledger, now) = (access.ledger.clone(), access.clock.now());
    recorded(access, entry, move || ledger.revoke(&id, &by, now)).await
}

/// Carries out a change between its two records, also if the caller does not wait for it.
async fn recorded<T: Send + 'static>(
    access: AccessControl,
    entry: NewAuditEntry,
    change: impl FnOnce() -> Result<T, JoinTokenError> + Send + 'static,
) -> Result<T, Status> {
    let done = tokio::spawn(async move {
        let begun = access.begin(entry).await;
        let ticket = begun.map_err(|why| {
            Status::unavailable(format!("the change is refused, because it cannot be recorded: {why}"))
        })?;
        let changed = spawn_blocking(change).await.map_err(|_| stopping())?;
        let refusal = changed.as_ref().err().map(JoinTokenError::to_string);
        let outcome = if refusal.is_none() {
            AuditOutcome::Done
        } else {
            AuditOutcome::Refused
        };
        access.end(ticket, outcome, refusal.unwrap_or_default()).await;
        changed.map_err(|problem| status(&problem))
    });
    done.await.unwrap_or_else(|_| Err(stopping()))
}

fn status(problem: &JoinTokenError) -> Status {
    let text = problem.to_string();
    let list = "`rankguard join-token list` lists the join tokens";
    let options = "`rankguard join-token create --help` describes the options";
    let (code, hint) = match problem {
        JoinTokenError::File { .. } | JoinTokenError::Random => {
            tracing::error!("{text}");
            return Status::unavailable(text);
        }
        JoinTokenError::Absent { .. } => (Code::NotFound, list),
        JoinTokenError::Revoked { .. } => (Code::FailedPrecondition, list),
        JoinTokenError::Full { .. } => (Code::ResourceExhausted, list),
        JoinTokenError::Node { .. } | JoinTokenError::Nodes | JoinTokenError::Uses | JoinTokenError::Validity => {
            (Code::InvalidArgument, options)
        }
    };
    with_hint(Status::new(code, text), hint)
}

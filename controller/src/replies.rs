//! Replies of the operator service: documents and refusals with advice.

use rankguard_proto::{HINT_HEADER, v1};
use serde::Serialize;
use tonic::{Response, Status};

/// Returns a value as a JSON document.
pub(crate) fn document(value: &impl Serialize) -> Result<Response<v1::Document>, Status> {
    let json = serde_json::to_string(value).map_err(|e| Status::internal(format!("cannot write JSON: {e}")))?;
    Ok(Response::new(v1::Document { json }))
}

/// Adds a hint for the operator to a refusal.
pub(crate) fn with_hint(mut status: Status, hint: &str) -> Status {
    if let Ok(hint) = hint.parse() {
        status.metadata_mut().insert(HINT_HEADER, hint);
    }
    status
}

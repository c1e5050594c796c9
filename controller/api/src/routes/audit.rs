//! Parameters of the audit log.

use rankguard_access::{AUDIT_ACTIONS, AuditFilter};

use super::parameter;
use crate::query::{CURSOR, LIMIT, Parameter, ParameterKind, Query};

pub(super) const PARAMETERS: &[Parameter] = &[
    LIMIT,
    CURSOR,
    parameter(
        "actor",
        ParameterKind::Text,
        "Text that the name of the caller contains.",
    ),
    parameter(
        "action",
        ParameterKind::Choice(AUDIT_ACTIONS),
        "Name of the change, or its group: `node` selects `node.cordon`.",
    ),
    parameter("since", ParameterKind::Time, "Earliest time of an entry."),
    parameter("until", ParameterKind::Time, "Time before which an entry was made."),
];

/// Returns the filter of a query.
pub(crate) fn filter(query: &Query) -> AuditFilter {
    AuditFilter {
        since: query.time("since"),
        until: query.time("until"),
        actor: query.text("actor").map(str::to_owned),
        action: query.text("action").map(str::to_owned),
        has_key: false,
    }
}

//! Reason of a job that was cancelled, as controllers record it.

/// Beginning of every such reason; no other stop reason begins with it.
const CANCELLED: &str = "cancelled ";

/// Returns the reason of a job that was cancelled. `by` is the name in the operator's certificate; a connection without
/// a certificate has none.
pub fn cancellation_reason(by: Option<&str>) -> String {
    match by {
        Some(name) => format!("{CANCELLED}by operator {name}"),
        None => format!("{CANCELLED}by an operator's request"),
    }
}

/// Returns true if the reason of a stopped job is a cancellation, in the words of any version.
pub fn is_cancellation(reason: &str) -> bool {
    reason.starts_with(CANCELLED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_of_all_versions_are_cancellations() {
        assert_eq!(cancellation_reason(Some("alice")), "cancelled by operator alice");
        for reason in [
            cancellation_reason(Some("alice")),
            cancellation_reason(None),
            "cancelled by its user".to_owned(),
        ] {
            assert!(is_cancellation(&reason), "{reason}");
        }
        assert!(!is_cancellation("segfault of rank 0; no restarts are allowed (case 1)"));
    }
}

//! Cases of a few streams.

use rankguard_offline::{CaseRecord, OfflineCase, RecordStream};

/// Returns a stream of lines.
pub(crate) fn stream(kind: &str, rank: Option<u32>, text: &str) -> RecordStream {
    RecordStream {
        kind: kind.parse().expect("a known kind"),
        rank,
        node: None,
        lines: text.lines().map(str::to_owned).collect(),
    }
}

/// Classifies a case of some streams.
#[allow(dead_code, reason = "each suite uses some of these")]
pub(crate) fn case(sources: Vec<RecordStream>) -> OfflineCase {
    let id = "one".to_owned();
    CaseRecord { id, sources }.classify()
}

/// Returns class and layer of a case.
#[allow(dead_code, reason = "each suite uses some of these")]
pub(crate) fn named(case: &OfflineCase) -> (&str, &str) {
    (&case.class, &case.layer)
}

//! Cases made of a few streams.

use rankguard_offline::{OfflineCase, Record, RecordStream};

/// One stream of lines.
pub(crate) fn stream(kind: &str, rank: Option<u32>, text: &str) -> RecordStream {
    RecordStream {
        kind: kind.to_owned(),
        rank,
        node: None,
        lines: text.lines().map(str::to_owned).collect(),
    }
}

/// What is made of some of them.
#[allow(dead_code, reason = "each suite uses some of these")]
pub(crate) fn case(sources: Vec<RecordStream>) -> OfflineCase {
    let id = "one".to_owned();
    Record { id, sources }.classify()
}

/// What people ask first: which class, in which layer.
#[allow(dead_code, reason = "each suite uses some of these")]
pub(crate) fn named(case: &OfflineCase) -> (&str, &str) {
    (&case.class, &case.layer)
}

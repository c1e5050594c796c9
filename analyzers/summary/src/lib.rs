//! Summary of cases: counts and cost by group, for operators and the HTTP API.
//!
//! Each case is in at most one group: of several categories of a taxonomy the most specific one, and of a corrected case
//! the group of the newest correction. Sums contain recorded values only.

mod grouping;
mod summary;

pub use grouping::CaseGrouping;
pub use summary::{CaseGroup, CaseSummary, RankCounts, SummaryInput};

//! Summary of cases and jobs for operators and the HTTP API: counts and cost of cases by group, the use of the wall time of
//! jobs, and the report of a fleet over a period, which has both.
//!
//! Each case is in at most one group: of several categories of a taxonomy the most specific one, and of a corrected case
//! the group of the newest correction. Sums contain recorded values only.

mod fleet;
mod grouping;
mod job_time;
mod summary;

pub use fleet::{FirstSeenClass, FleetReport, FleetSelection, RepeatOffender};
pub use grouping::CaseGrouping;
pub use job_time::{JobTime, UnknownJob};
pub use summary::{CaseGroup, CaseSummary, RankCounts, SummaryInput};

//! Triage for the lines of one reader.

use rankguard_faults::{StreamContext, Triage};
use rankguard_model::{Rank, Timestamp};

use super::observe::LineReporter;
use crate::clock;

/// Returns a triage for one stream. Time stamps without a year are read as of the current year.
pub(crate) fn triage(reporter: &LineReporter, rank: Option<Rank>, boot: Option<Timestamp>) -> Triage {
    let mut stream = StreamContext::new(reporter.source);
    stream.rank = rank;
    stream.clock.boot = boot;
    stream.clock.year = clock::now().to_string().get(..4).and_then(|year| year.parse().ok());
    Triage::new(reporter.knowledge.matcher(), stream)
}

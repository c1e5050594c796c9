//! Triage for the lines of one reader.

use rankguard_faults::{Stream, Triage};
use rankguard_model::{Rank, Timestamp};

use super::observe::Reporter;
use crate::clock;

/// Returns a triage for one stream. Time stamps without a year are read as of the current year.
pub(crate) fn triage(reporter: &Reporter, rank: Option<Rank>, boot: Option<Timestamp>) -> Triage {
    let mut stream = Stream::new(reporter.source);
    stream.rank = rank;
    stream.clock.boot = boot;
    stream.clock.year = clock::now().to_string().get(..4).and_then(|year| year.parse().ok());
    Triage::new(reporter.knowledge.matcher(), stream)
}

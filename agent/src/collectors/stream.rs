//! How the lines of one reader are understood.

use rankguard_faults::{Stream, Triage};
use rankguard_model::{Rank, Timestamp};

use super::observe::Reporter;
use crate::clock;

/// A triage for one stream. Clocks without a year are read in this one.
pub(crate) fn triage(reporter: &Reporter, rank: Option<Rank>, boot: Option<Timestamp>) -> Triage {
    let mut stream = Stream::new(reporter.source);
    stream.rank = rank;
    stream.clock.boot = boot;
    stream.clock.year = clock::now().to_string().get(..4).and_then(|year| year.parse().ok());
    Triage::new(reporter.knowledge.matcher(), stream)
}

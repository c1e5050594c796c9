//! Triage of simulated log lines, as on a live node.

use rankguard_faults::{Matcher, Observation, Stream, Triage};
use rankguard_model::{Source, Timestamp};

/// Returns the observations that triage makes of lines appended to a log at once.
pub(crate) fn triage(source: Source, lines: &[String]) -> Vec<Observation> {
    let mut triage = Triage::new(Matcher::builtin(), Stream::new(source));
    // Only the order matters here: the simulation sets the time of the observations.
    let mut seen: Vec<Observation> = lines.iter().flat_map(|line| triage.push(line, Timestamp(0))).collect();
    seen.extend(triage.flush());
    seen
}

//! Triage of simulated log lines, as on a live node.

use rankguard_faults::{LogObservation, SignatureMatcher, StreamContext, Triage};
use rankguard_model::{EvidenceSource, Timestamp};

/// Returns the observations that triage makes of lines appended to a log at once.
pub(crate) fn triage(source: EvidenceSource, lines: &[String]) -> Vec<LogObservation> {
    let mut triage = Triage::new(SignatureMatcher::builtin(), StreamContext::new(source));
    // Only the order matters here: the simulation sets the time of the observations.
    let mut seen: Vec<LogObservation> = lines.iter().flat_map(|line| triage.push(line, Timestamp(0))).collect();
    seen.extend(triage.flush());
    seen
}

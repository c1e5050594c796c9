//! Lines as a live node reads them.

use rankguard_faults::{Matcher, Observation, Stream, Triage};
use rankguard_model::{Source, Timestamp};

/// What triage makes of lines that a log gains at once.
pub(crate) fn triage(source: Source, lines: &[String]) -> Vec<Observation> {
    let mut triage = Triage::new(Matcher::builtin(), Stream::new(source));
    // Only order matters here: the world itself says when the lines were seen.
    let mut seen: Vec<Observation> = lines.iter().flat_map(|line| triage.push(line, Timestamp(0))).collect();
    seen.extend(triage.flush());
    seen
}

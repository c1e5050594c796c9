//! Outages of one file system: clients report the loss of its servers one after the other, with pauses, until the servers
//! answer again. All of it is one failure.

use rankguard_diagnosis::{Signal, lustre_file_system, reports_store_recovery};
use rankguard_model::{Role, Timestamp};

use crate::incident::{SegmentGroup, StreamSegment, UNTIL_REPORTED};

/// Joins groups of segments, in order of time, that report only the outage of a file system which an earlier group reports and
/// which has not ended.
pub(crate) fn join(groups: Vec<SegmentGroup>) -> Vec<SegmentGroup> {
    let mut joined: Vec<SegmentGroup> = Vec::new();
    for (end, segments) in groups {
        let outage = joined
            .iter_mut()
            .rev()
            .find(|(last, earlier)| is_same_outage(*last, earlier, &segments));
        match outage {
            Some(outage) => {
                outage.0 = outage.0.max(end);
                outage.1.extend(segments);
            }
            None => joined.push((end, segments)),
        }
    }
    joined
}

fn is_same_outage(last: Option<Timestamp>, earlier: &[StreamSegment], later: &[StreamSegment]) -> bool {
    let from = later.iter().filter_map(|segment| segment.from).min();
    let is_near = from
        .zip(last)
        .is_some_and(|(from, last)| from.since(last) <= UNTIL_REPORTED);
    let Some(system) = only_system(later).filter(|_| is_near) else {
        return false;
    };
    let of_system = || signs(earlier).filter(|sign| lustre_file_system(&sign.text) == Some(system));
    let lost = of_system().filter(|sign| !is_noise(sign)).map(|sign| sign.at).max();
    let answered = of_system()
        .filter(|sign| sign.mark().is_some_and(reports_store_recovery))
        .map(|sign| sign.at)
        .max();
    lost.is_some_and(|lost| answered.is_none_or(|answered| answered < lost))
}

/// Returns the only file system that all reports of failures are about.
fn only_system(segments: &[StreamSegment]) -> Option<&str> {
    let mut systems = signs(segments)
        .filter(|sign| !is_noise(sign))
        .map(|sign| lustre_file_system(&sign.text));
    let first = systems.next()??;
    systems.all(|other| other == Some(first)).then_some(first)
}

fn signs(segments: &[StreamSegment]) -> impl Iterator<Item = &Signal> {
    segments
        .iter()
        .flat_map(|segment| &segment.items)
        .map(|item| &item.sign)
}

fn is_noise(sign: &Signal) -> bool {
    sign.mark().is_some_and(|mark| mark.role == Role::Noise)
}

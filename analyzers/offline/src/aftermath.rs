//! Aftermath of a failure: waits that end in vain long after it, because a rank that failed takes part in no collective.
//!
//! Watchdogs report at the end of their limit, and some of them do not state it. A period that holds only such reports
//! belongs to the failure before it if the job did no work in between.

use std::time::Duration;

use rankguard_diagnosis::Signal;
use rankguard_faults::classes;
use rankguard_model::{EvidenceSource, Role, Timestamp};

use crate::incident::{SegmentGroup, StreamSegment, UNTIL_REPORTED, is_machine_log};
use crate::stream::ReadStream;

/// Classes of waits for ranks that do not take part.
const WAITS: [&str; 4] = [
    classes::HANG_NO_ERROR,
    classes::HANG_STALLED_RANKS,
    classes::HCCL_TIMEOUT,
    classes::NCCL_TIMEOUT,
];
/// Classes of ends that a wait in vain or a lost peer leads to.
const ENDS: [&str; 4] = [
    classes::EXTERNAL_TERMINATION,
    classes::LAUNCHER_CHILD_FAILED,
    classes::PROCESS_ABORTED,
    classes::REMOTE_WORKER_LOST,
];
/// Time after the first sign of a failure in which other ranks still complete a step.
const LAST_STEPS: Duration = Duration::from_secs(30);

/// Joins groups of segments, in order of time, with the failure before them that they follow from.
pub(crate) fn join(streams: &[ReadStream], groups: Vec<SegmentGroup>) -> Vec<SegmentGroup> {
    let mut joined: Vec<SegmentGroup> = Vec::new();
    for (end, segments) in groups {
        match joined.last_mut() {
            Some(failure) if is_aftermath(streams, failure, &segments_signs(&segments), first_of(&segments)) => {
                failure.0 = failure.0.max(end);
                failure.1.extend(segments);
            }
            _ => joined.push((end, segments)),
        }
    }
    joined
}

fn segments_signs(segments: &[StreamSegment]) -> Vec<&Signal> {
    let items = segments.iter().flat_map(|segment| &segment.items);
    items.map(|item| &item.sign).filter(|sign| !is_noise(sign)).collect()
}

fn first_of(segments: &[StreamSegment]) -> Option<Timestamp> {
    segments.iter().filter_map(|segment| segment.from).min()
}

/// Returns true if later signs are only waits in vain and their ends, and no log of the job shows work after the failure
/// began.
fn is_aftermath(
    streams: &[ReadStream],
    (end, failure): &SegmentGroup,
    later: &[&Signal],
    from: Option<Timestamp>,
) -> bool {
    let (Some(end), Some(from), Some(begun)) = (end, from, first_of(failure)) else {
        return false;
    };
    let is_near = from.since(*end) <= UNTIL_REPORTED;
    let has_wait = later.iter().any(|sign| is_of(sign, &WAITS));
    let only_consequences = later.iter().all(|sign| is_consequence(sign));
    let has_cause = segments_signs(failure)
        .iter()
        .any(|sign| sign.is_root_mark() && !is_consequence(sign));
    is_near && has_wait && only_consequences && has_cause && stands_since(streams, begun, failure)
}

/// Returns true if the logs of a job show their last work no later than the first sign of a failure. Without a time of work, a
/// log of the job has to report the failure.
fn stands_since(streams: &[ReadStream], begun: Timestamp, failure: &[StreamSegment]) -> bool {
    let of_jobs = streams.iter().filter(|stream| !is_machine_log(stream));
    let mut worked = of_jobs.filter_map(|stream| stream.last_lines.worked_at).peekable();
    let is_reported = || failure.iter().any(|segment| !is_machine_log(&streams[segment.stream]));
    let is_known = worked.peek().is_some() || is_reported();
    // Work that ended long before belongs to another failure.
    is_known && worked.all(|at| at <= begun.after(LAST_STEPS) && begun.since(at) <= UNTIL_REPORTED)
}

fn is_consequence(sign: &Signal) -> bool {
    let is_of_job = matches!(
        sign.source,
        EvidenceSource::JobLog | EvidenceSource::Launcher | EvidenceSource::Scheduler
    );
    let is_cascade = sign.mark().is_some_and(|mark| mark.role == Role::Cascade);
    is_of_job && (is_cascade || is_of(sign, &WAITS) || is_of(sign, &ENDS))
}

fn is_of(sign: &Signal, classes: &[&str]) -> bool {
    sign.class().is_some_and(|class| classes.contains(&class.as_str()))
}

fn is_noise(sign: &Signal) -> bool {
    sign.mark().is_some_and(|mark| mark.role == Role::Noise)
}

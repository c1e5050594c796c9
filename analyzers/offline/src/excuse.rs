//! Excused alarms: observations that caused no failure, because their run made progress or succeeded afterwards, or had
//! succeeded before.

use rankguard_diagnosis::Signal;
use rankguard_faults::classes;
use rankguard_model::EvidenceSource;

use crate::outcome::{AlarmSpan, WENT_ON, went_on};
use crate::outcome_records::job_number;
use crate::stream::{PlacedObservation, ReadStream};

/// Classes of shutdown noise: stores, communicators and processes that are closed at the end of a run.
const SHUTDOWN: [&str; 6] = [
    classes::CONNECTION_REFUSED,
    classes::CONNECTION_RESET,
    classes::NCCL_CUDA_ERROR,
    classes::NCCL_SYSTEM_ERROR,
    classes::REMOTE_WORKER_LOST,
    classes::RENDEZVOUS_FAILURE,
];

/// Returns true if the run continued or succeeded after an alarm, or had succeeded before it. `causes` are the first
/// lines of alarms that name a cause. Only logs of jobs, launchers and schedulers have excused alarms: the success of a
/// run does not repair a machine.
pub(crate) fn is_excused(stream: &ReadStream, seen: &PlacedObservation, causes: &[u64]) -> bool {
    let job_log = matches!(stream.source, EvidenceSource::JobLog | EvidenceSource::Launcher);
    if !job_log && stream.source != EvidenceSource::Scheduler {
        return false;
    }
    let alarm = AlarmSpan {
        first_line: seen.first_line,
        last_line: seen.last_line,
        rank: seen.signs.iter().find_map(Signal::rank),
        job: seen.signs.iter().find_map(|sign| job_number(&sign.text)),
        of_scheduler: stream.source == EvidenceSource::Scheduler,
        is_order: seen.signs.iter().any(is_order),
    };
    let numeric = !seen.signs.is_empty() && seen.signs.iter().all(is_numeric);
    // A finite loss after the alarm shows that only single steps were invalid.
    let recovered = numeric && stream.finite_loss.is_some_and(|line| line > seen.last_line);
    let failed = stream.records.failure_after(seen.last_line);
    let later = went_on(&stream.progress, &alarm, failed);
    // A quotation is a weak sign.
    let enough = if seen.is_quoted { WENT_ON - 1 } else { WENT_ON };
    let ended_well = failed.is_none() && stream.completed.last().is_some_and(|line| *line > seen.last_line);
    if job_log && (later >= enough || ended_well || recovered) {
        return true;
    }
    if stream.records.is_in_success(&alarm) {
        return true;
    }
    if !numeric && stream.records.excuse(&alarm, &stream.progress, causes) {
        return true;
    }
    let shutdown = |sign: &Signal| sign.class().is_some_and(|class| SHUTDOWN.contains(&class.as_str()));
    let after = stream.records.follows_success(&alarm, &stream.progress);
    let stated = stream.records.fails_within(seen.first_line, seen.last_line);
    after && !stated && (seen.signs.iter().any(shutdown) || !seen.signs.iter().any(is_cause))
}

/// Returns true for an order of a scheduler that ends a job and that the job does not cause. The scheduler reports it for the
/// job and for each of its steps, and starts the job again.
fn is_order(sign: &Signal) -> bool {
    let class = sign.class().map_or("", |class| class.as_str());
    [classes::PREEMPTED, classes::SLURM_TIME_LIMIT].contains(&class)
}

/// Returns the first lines of the alarms of a stream that name a cause.
pub(crate) fn causes(stream: &ReadStream) -> Vec<u64> {
    let is_named = |seen: &&PlacedObservation| seen.signs.iter().any(is_cause);
    stream
        .seen
        .iter()
        .filter(is_named)
        .map(|seen| seen.first_line)
        .collect()
}

/// Removes the alarms of job and launcher logs, except numeric ones, if a stream states the success of the whole job
/// and no stream states a failure. The streams must be of one job.
pub(crate) fn without_excused(mut streams: Vec<ReadStream>) -> Vec<ReadStream> {
    let of_job = |stream: &ReadStream| {
        stream.rank.is_none() && (stream.node.is_none() || stream.source == EvidenceSource::Scheduler)
    };
    let finished = streams
        .iter()
        .any(|stream| of_job(stream) && stream.records.job_success().is_some());
    if !finished || streams.iter().any(|stream| stream.records.states_failure()) {
        return streams;
    }
    for stream in &mut streams {
        if matches!(stream.source, EvidenceSource::JobLog | EvidenceSource::Launcher) {
            stream
                .seen
                .retain(|seen| !seen.signs.is_empty() && seen.signs.iter().all(is_numeric));
        }
    }
    streams
}

/// Returns true if a signal is about the values that training computes, such as a NaN loss.
fn is_numeric(sign: &Signal) -> bool {
    sign.class().is_some_and(|class| {
        matches!(
            class.as_str(),
            classes::LOSS_NAN | classes::LOSS_SPIKE | classes::GRAD_OVERFLOW_SCALE_FLOOR
        )
    })
}

/// Returns true if a signal has the role root and names more than the end of a process or job.
fn is_cause(sign: &Signal) -> bool {
    let ending = |class: &str| {
        matches!(
            class,
            classes::EXTERNAL_TERMINATION
                | classes::KILLED_BY_SIGNAL
                | classes::LAUNCHER_CHILD_FAILED
                | classes::JOB_CANCELLED
                | classes::PROCESS_ABORTED
        )
    };
    sign.is_root_mark() && !sign.class().is_some_and(|class| ending(class.as_str()))
}

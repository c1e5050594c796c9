//! Faults of machines beside a run that ended well or worked on, and ends of processes that a run survived.

use std::fmt;

use rankguard_diagnosis::{RunBeside, Signal};
use rankguard_faults::{Catalogue, FailureClass, classes};
use rankguard_model::{EvidenceSource, NodeId, Role, Severity};

use super::corrected::{holds_only_corrected, is_corrected_record};
use super::ready_nodes::is_overcome;
use super::redundant::{answered_disk, paths_came_back, took_over};
use super::requeue::is_requeue;
use super::{answered_again, came_back, has_no_switches};
use crate::certainty::ENDINGS;
use crate::excuse::{causes, is_excused};
use crate::incident::{Incident, LocatedSignal, QUIET};
use crate::stream::ReadStream;

/// Maximum number of survived ends that are reported of one log.
const ENDS: usize = 3;

/// Reason why a report is no case: the run ended well.
const WELL: &str = "the logs of the run state that it ended well";
/// Reason why a report is no case: the run worked on.
const WORKED: &str = "the logs of the run show work long after it and no failure";
/// Reason why a lost link is no case: the run worked on.
const WORKED_WITHOUT: &str = "the logs of the run show work long after it";
/// Reason why the end of a process is no case.
const SURVIVED: &str = "the run went on after it";
/// Reason why the end of a process is no case: Slurm starts the job again.
const REQUEUED: &str = "the run asked for a requeue and Slurm queued the job again";
/// Reason why a report is no case: the hardware corrected the error.
const CORRECTED: &str = "the hardware corrected the error, which ends no program";

/// Reason why a report is no case: another interface of the bond took over.
const TOOK_OVER: &str = "another interface of the bond took over and nothing else failed at its time";

/// Reason why a report is no case: the disk needed no reset.
const ANSWERED: &str = "the disk aborted the late command without a reset and nothing else failed at its time";

/// Reason why a report is no case: the link came up again.
const UP_AGAIN: &str = "the link came up again and nothing else failed at its time";

/// Reason why a report is no case: the file system answered again.
const FILES_AGAIN: &str = "the file system answered again and nothing else failed at its time";

/// Reason why a report is no case: the machine needs no fabric manager.
const NO_SWITCHES: &str = "the machine has no NVSwitch that the service could manage";

/// Reason why a report is no case: the path came up again.
const PATH_UP: &str = "the path came up again and nothing else failed at its time";

/// Reason why a report is no case: the node did not crash.
const READY_AGAIN: &str = "the node was ready again and no pod was ended";

/// Signature of a scheduler's report that processes of a job on a node did not end.
const UNKILLABLE: &str = "unkillable";

/// Report that ended no run: a link that came back, an error that was corrected, a kill of a process outside the job, the
/// end of a rank after which the run was started again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OvercomeReport {
    /// Reason why it is no case.
    reason: &'static str,
    /// Log with the report.
    pub file: String,
    /// Line number, from 1.
    pub line: u64,
    /// Node of the report, if it is known.
    pub node: Option<NodeId>,
    /// Class of the report.
    pub class: String,
    /// Message, without prefixes.
    pub text: String,
}

impl fmt::Display for OvercomeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = if self.class == classes::NONE {
            "a report"
        } else {
            &self.class
        };
        write!(f, "{}, line {}: {class}", self.file, self.line)?;
        if let Some(node) = &self.node {
            write!(f, " on node {node}")?;
        }
        write!(f, " (\"{}\"); no case, because {}", self.text, self.reason)
    }
}

/// Returns the course of the run if only machines report: it ended well, or it worked on for longer than [`QUIET`].
pub(crate) fn beside_run(incident: &Incident) -> Option<RunBeside> {
    let of_machine = |item: &LocatedSignal| {
        let is_machine = matches!(item.sign.source, EvidenceSource::KernelLog | EvidenceSource::Host);
        is_machine || item.sign.is_signed(UNKILLABLE)
    };
    if !means_something(incident).all(of_machine) {
        return None;
    }
    let is_before = |item: &LocatedSignal| {
        let until = incident.worked_until.filter(|_| item.sign.timed);
        until.is_some_and(|until| until.since(item.sign.at) > QUIET)
    };
    if incident.ended_well {
        Some(RunBeside::EndedWell)
    } else if means_something(incident).all(is_before) {
        Some(RunBeside::WorkedOn)
    } else {
        None
    }
}

/// Returns true if an incident holds only links that went down, and the run worked for longer than [`QUIET`] after them. A
/// lost link breaks the connections that use it at once, so a later failure of the run does not follow from it.
fn worked_without_links(incident: &Incident) -> bool {
    let is_lost_link = |item: &LocatedSignal| {
        let class = item.sign.class().map_or("", |class| class.as_str());
        let is_machine = matches!(item.sign.source, EvidenceSource::KernelLog | EvidenceSource::Host);
        let worked = incident.last_work.filter(|_| item.sign.timed);
        let is_before = worked.is_some_and(|worked| worked.since(item.sign.at) > QUIET);
        class == classes::NIC_LINK_DOWN && is_machine && is_before
    };
    means_something(incident).next().is_some() && means_something(incident).all(is_lost_link)
}

/// Returns the sentence that is added to the case of a fault that lasts.
pub(crate) fn beside_sentence(run: RunBeside) -> &'static str {
    match run {
        RunBeside::EndedWell => "The logs of the run state that it ended well, so this fault did not end it.",
        RunBeside::WorkedOn => {
            "The logs of the run show work long after it and no failure, so this fault did not end it."
        }
    }
}

/// Returns the first report of an incident of machines that is no failure: the run ended well, or the hardware corrected
/// all errors. A defect of hardware lasts, so it remains a case.
pub fn machine_report(incident: &Incident, catalogue: &Catalogue) -> Option<OvercomeReport> {
    if means_something(incident).next().is_none() {
        return silenced_report(incident);
    }
    let ended_nothing = ended_nothing(incident, catalogue);
    let reason = if ended_nothing && beside_run(incident) == Some(RunBeside::EndedWell) {
        WELL
    } else if holds_only_corrected(incident) {
        CORRECTED
    } else if came_back(&incident.items) {
        UP_AGAIN
    } else if answered_again(&incident.items) {
        FILES_AGAIN
    } else if took_over(&incident.items) {
        TOOK_OVER
    } else if answered_disk(&incident.items) {
        ANSWERED
    } else if paths_came_back(&incident.items) {
        PATH_UP
    } else if ended_nothing && beside_run(incident).is_some() {
        WORKED
    } else if ended_nothing {
        WORKED_WITHOUT
    } else {
        return None;
    };
    let item = means_something(incident).next()?;
    Some(report(incident, item, reason))
}

/// Reason why the records of machines in an incident mean nothing.
struct SilencedReason {
    /// Returns true for the record that states it.
    states: fn(&Signal) -> bool,
    reason: &'static str,
}

/// Reasons why records of machines mean nothing in an incident without others.
const SILENCED: [SilencedReason; 3] = [
    SilencedReason {
        states: is_corrected_record,
        reason: CORRECTED,
    },
    SilencedReason {
        states: has_no_switches,
        reason: NO_SWITCHES,
    },
    SilencedReason {
        states: is_overcome,
        reason: READY_AGAIN,
    },
];

/// Returns the report of an incident of machines in which all is noise, because of what one of its records states.
fn silenced_report(incident: &Incident) -> Option<OvercomeReport> {
    SILENCED.iter().find_map(|silenced| {
        let item = incident.items.iter().find(|item| (silenced.states)(&item.sign))?;
        Some(report(incident, item, silenced.reason))
    })
}

fn report(incident: &Incident, item: &LocatedSignal, reason: &'static str) -> OvercomeReport {
    let log = incident.logs.get(item.log);
    OvercomeReport {
        reason,
        file: log.map(|log| log.name.clone()).unwrap_or_default(),
        line: item.key_line,
        node: named_node(&item.sign),
        class: item.sign.class().map(ToString::to_string).unwrap_or_default(),
        text: item.sign.text.clone(),
    }
}

/// Returns true if an incident is no failure because the run ended well or worked on. Hardware that wears out while a run
/// works needs an action after it.
pub(crate) fn ended_nothing(incident: &Incident, catalogue: &Catalogue) -> bool {
    let needs_action = |item: &LocatedSignal| match beside_run(incident) {
        Some(RunBeside::EndedWell) => is_lasting(&item.sign, catalogue),
        Some(RunBeside::WorkedOn) => is_of_hardware(&item.sign, catalogue),
        None => true,
    };
    let is_overcome = beside_run(incident).is_some() && !means_something(incident).any(needs_action);
    is_overcome || worked_without_links(incident)
}

fn named_node(sign: &Signal) -> Option<NodeId> {
    sign.node().filter(|node| !node.as_str().is_empty()).cloned()
}

/// Returns true for a report about hardware. An exception of an engine is the program's.
fn is_of_hardware(sign: &Signal, catalogue: &Catalogue) -> bool {
    let class = sign.class().and_then(|class| catalogue.class(class));
    class.is_some_and(|class| class.layer == "hardware" && class.id.as_str() != classes::GPU_ENGINE_EXCEPTION)
}

/// Returns the ends of processes and nodes, and the lacks of GPU memory, that the logs of a job report and after which its
/// run went on.
pub(crate) fn survived_ends(streams: &[ReadStream]) -> Vec<OvercomeReport> {
    let of_jobs = streams.iter().filter(|stream| {
        let source = stream.source;
        matches!(
            source,
            EvidenceSource::JobLog | EvidenceSource::Launcher | EvidenceSource::Scheduler
        )
    });
    of_jobs.flat_map(survived_ends_of).collect()
}

fn survived_ends_of(stream: &ReadStream) -> Vec<OvercomeReport> {
    let causes = causes(stream);
    let mut reports: Vec<OvercomeReport> = Vec::new();
    for seen in &stream.seen {
        let mut signs = seen.signs.iter();
        let is_excused = is_excused(stream, seen, &causes);
        let end = signs.find(|sign| {
            let is_noise = sign.mark().is_some_and(|mark| mark.role == Role::Noise);
            let class = sign.class().map_or("", |class| class.as_str());
            // A retry with a smaller batch turns the report into noise.
            let is_memory = class == classes::CUDA_OOM;
            let is_requeued = stream.asks_for_requeue && is_requeue(sign);
            is_requeued || (is_memory || !is_noise && ENDINGS.contains(&class)) && (is_excused || is_memory && is_noise)
        });
        let is_requeued = stream.asks_for_requeue && end.is_some_and(is_requeue);
        let is_report = is_requeued || !seen.is_quoted && went_on_after(stream, seen.last_line);
        let Some(end) = end.filter(|end| is_report && !is_of_some_kernel(end)) else {
            continue;
        };
        let class = end.class().map(ToString::to_string).unwrap_or_default();
        if reports.len() < ENDS && reports.iter().all(|known| known.class != class) {
            reports.push(OvercomeReport {
                reason: if is_requeued { REQUEUED } else { SURVIVED },
                file: stream.name.clone(),
                line: seen.key_line,
                node: named_node(end).or_else(|| stream.node.clone()),
                class,
                text: end.text.clone(),
            });
        }
    }
    reports
}

/// Texts of kernels about a kill for lack of memory.
const KERNEL_KILLS: [&str; 4] = [
    "Killed process ",
    "Memory cgroup out of memory",
    "invoked oom-killer",
    "oom-kill:constraint",
];

/// Returns true for the text of a kernel in the log of a job: a sample, or a copy of another log. A kernel does not write to
/// the log of a job, so it is not known which process and which run it is about.
fn is_of_some_kernel(end: &Signal) -> bool {
    let is_job = matches!(end.source, EvidenceSource::JobLog | EvidenceSource::Launcher);
    is_job && KERNEL_KILLS.iter().any(|words| end.text.contains(words))
}

/// Returns true if a log shows work or a success after a line. Launchers and schedulers end processes that are done, too.
fn went_on_after(stream: &ReadStream, line: u64) -> bool {
    stream.progress.iter().any(|work| work.line > line) || stream.records.has_success_after(line)
}

/// Returns true for a fault of hardware that lasts until it is repaired. An exception of an engine is the program's.
pub(crate) fn is_lasting(sign: &Signal, catalogue: &Catalogue) -> bool {
    let known = sign.class().and_then(|class| catalogue.class(class));
    let is_fault = |class: &FailureClass| {
        class.layer == "hardware"
            && class.severity == Severity::Failure
            && class.id.as_str() != classes::GPU_ENGINE_EXCEPTION
    };
    sign.is_root_mark() && known.is_some_and(is_fault)
}

fn means_something(incident: &Incident) -> impl Iterator<Item = &LocatedSignal> {
    let is_noise = |item: &LocatedSignal| item.sign.mark().is_some_and(|mark| mark.role == Role::Noise);
    incident.items.iter().filter(move |item| !is_noise(item))
}

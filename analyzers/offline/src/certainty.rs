//! Confidence of offline verdicts, bounded by the evidence that the run ended in failure.
//!
//! A line that names a cause does not show that anything failed: programs fall back, retry and continue. The bounds
//! are set in `docs/decisions/0025-run-outcomes.md` and checked by the reliability tests.

use rankguard_faults::classes;
use rankguard_model::{EvidenceSource, Role};

use crate::incident::{Incident, LocatedSignal};

/// Maximum number of lines that a dying program still writes after an alarm.
const LAST_WORDS: u64 = 8;

/// Classes of lines that state the end of a process or a job.
pub(crate) const ENDINGS: [&str; 11] = [
    classes::CONTAINER_OOM_KILL,
    classes::EXTERNAL_TERMINATION,
    classes::HOST_OOM_KILL,
    classes::JOB_CANCELLED,
    classes::KILLED_BY_SIGNAL,
    classes::LAUNCHER_CHILD_FAILED,
    classes::PREEMPTED,
    classes::PROCESS_ABORTED,
    classes::SEGFAULT,
    classes::SLURM_NODE_FAIL,
    classes::SLURM_TIME_LIMIT,
];

/// Evidence that the run ended in failure, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndEvidence {
    /// A machine, a launcher or a scheduler states it.
    Stated,
    /// An exception left the program.
    Raised,
    /// The log ends soon after the alarm.
    Last,
    /// The log continues, and no line states an end.
    Absent,
}

impl EndEvidence {
    /// Returns the evidence in the logs of an incident for the end that followed its first cause.
    pub(crate) fn of(incident: &Incident, first: &LocatedSignal) -> Self {
        let complains = |item: &LocatedSignal| item.sign.mark().is_none_or(|mark| mark.role != Role::Noise);
        let of_machine = |item: &LocatedSignal| {
            matches!(
                item.sign.source,
                EvidenceSource::KernelLog | EvidenceSource::Host | EvidenceSource::Gpu
            )
        };
        let machine = incident.items.iter().any(|item| of_machine(item) && complains(item));
        let ending = |item: &LocatedSignal| item.sign.class().is_some_and(|class| ENDINGS.contains(&class.as_str()));
        let stated = incident.logs.iter().any(|log| log.states_failure) || incident.items.iter().any(ending);
        if machine || stated {
            return Self::Stated;
        }
        let Some(log) = incident.logs.get(first.log) else {
            return Self::Absent;
        };
        let worked_after = log.last_work > first.last_line;
        if (first.sign.field("packages").is_some() || log.raised) && !worked_after {
            Self::Raised
        } else if log.lines.saturating_sub(first.last_line) <= LAST_WORDS && !worked_after {
            Self::Last
        } else {
            Self::Absent
        }
    }

    /// Returns the highest confidence of a verdict with this evidence.
    pub(crate) fn limit(self) -> f64 {
        match self {
            Self::Stated => 0.92,
            Self::Raised => 0.88,
            Self::Last => 0.78,
            Self::Absent => 0.66,
        }
    }

    /// Returns the reason of a low bound, for the reader of the case.
    pub(crate) fn doubt(self) -> Option<&'static str> {
        (self == Self::Absent).then_some("No line states that a run ended in failure, which limits the confidence.")
    }
}

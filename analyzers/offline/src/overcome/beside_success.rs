//! Faults of machines beside a run that ended well.

use std::fmt;

use rankguard_diagnosis::Signal;
use rankguard_faults::{Catalogue, FailureClass, classes};
use rankguard_model::{EvidenceSource, Role, Severity};

use super::came_back;
use super::corrected::holds_only_corrected;
use crate::incident::{Incident, LocatedSignal};

/// Reason that is added to the case of a fault that lasts.
pub(crate) const ENDED_WELL: &str = "The logs of the run state that it ended well, so this fault did not end it.";

/// Reason why a report is no case: the run ended well.
const WELL: &str = "the logs of the run state that it ended well";
/// Reason why a report is no case: the hardware corrected the error.
const CORRECTED: &str = "the hardware corrected the error, which ends no program";

/// Reason why a report is no case: the link came up again.
const UP_AGAIN: &str = "the link came up again and nothing else failed";

/// Report of a machine that ended no run and needs no repair: a link that came back, an error that was corrected, a
/// kill of a process outside the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineFact {
    /// Reason why it is no case.
    reason: &'static str,
    /// Log with the report.
    pub file: String,
    /// Line number, from 1.
    pub line: u64,
    /// Class of the report.
    pub class: String,
    /// Message, without prefixes.
    pub text: String,
}

impl fmt::Display for MachineFact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, line {}: {} (\"{}\"); no case, because {}",
            self.file, self.line, self.class, self.text, self.reason
        )
    }
}

/// Returns true if only machines report, and the run ended well.
pub(crate) fn is_beside_success(incident: &Incident) -> bool {
    let of_machine =
        |item: &LocatedSignal| matches!(item.sign.source, EvidenceSource::KernelLog | EvidenceSource::Host);
    incident.ended_well && means_something(incident).all(of_machine)
}

/// Returns the first report of an incident of machines that is no failure: the run ended well, or the hardware corrected
/// all errors. A defect of hardware lasts, so it remains a case.
pub fn machine_fact(incident: &Incident, catalogue: &Catalogue) -> Option<MachineFact> {
    let reason = if ended_nothing(incident, catalogue) {
        WELL
    } else if holds_only_corrected(incident) {
        CORRECTED
    } else if came_back(&incident.items) {
        UP_AGAIN
    } else {
        return None;
    };
    let item = means_something(incident).next()?;
    Some(MachineFact {
        reason,
        file: incident
            .logs
            .get(item.log)
            .map(|log| log.name.clone())
            .unwrap_or_default(),
        line: item.key_line,
        class: item.sign.class().map(ToString::to_string).unwrap_or_default(),
        text: item.sign.text.clone(),
    })
}

/// Returns true if an incident is no failure because the run ended well.
pub(crate) fn ended_nothing(incident: &Incident, catalogue: &Catalogue) -> bool {
    is_beside_success(incident) && !means_something(incident).any(|item| is_lasting(&item.sign, catalogue))
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

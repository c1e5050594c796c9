//! Faults of machines beside a run that ended well.

use std::fmt;

use rankguard_diagnosis::Signal;
use rankguard_faults::{Catalogue, FailureClass, classes};
use rankguard_model::{EvidenceSource, Role, Severity};

use crate::incident::{Incident, LocatedSignal};

/// Reason that is added to the case of a fault that lasts.
pub(crate) const ENDED_WELL: &str = "The logs of the run state that it ended well, so this fault did not end it.";

/// Report of a machine that ended no run and needs no repair: a link that came back, an error that was corrected, a
/// kill of a process outside the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineFact {
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
            "{}, line {}: {} (\"{}\"); no case, because the logs of the run state that it ended well",
            self.file, self.line, self.class, self.text
        )
    }
}

/// Returns true if only machines report, and the run ended well.
pub(crate) fn is_beside_success(incident: &Incident) -> bool {
    let of_machine =
        |item: &LocatedSignal| matches!(item.sign.source, EvidenceSource::KernelLog | EvidenceSource::Host);
    incident.ended_well && means_something(incident).all(of_machine)
}

/// Returns the first report of an incident that is no failure because the run ended well. A defect of hardware lasts,
/// so it remains a case.
pub fn machine_fact(incident: &Incident, catalogue: &Catalogue) -> Option<MachineFact> {
    if !is_beside_success(incident) || means_something(incident).any(|item| is_lasting(&item.sign, catalogue)) {
        return None;
    }
    let item = means_something(incident).next()?;
    Some(MachineFact {
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

//! Diagnosis of the logs of one generation of a job, and of the machines beside it.

use rankguard_faults::Catalogue;

use crate::flight::{NamedDump, join};
use crate::incident::incidents;
use crate::last_lines::unexplained_failure;
use crate::open_ends::{OpenEnd, open_ends};
use crate::overcome::{OvercomeReport, machine_report, survived_ends};
use crate::stream::ReadStream;
use crate::verdicts::{OfflineCase, conclude_each, is_foreign_kill};

/// Result of the diagnosis of a group of logs.
#[derive(Debug, Clone, Default)]
pub struct GroupDiagnosis {
    /// Cases, those of the jobs first.
    pub cases: Vec<OfflineCase>,
    /// Reports that ended no run.
    pub reports: Vec<OvercomeReport>,
    /// Logs that do not state how their run ended, if there is no case.
    pub open_ends: Vec<OpenEnd>,
}

/// Diagnoses a group of logs and flight-recorder dumps.
pub fn diagnose_group(streams: Vec<ReadStream>, dumps: Vec<NamedDump>, catalogue: &Catalogue) -> GroupDiagnosis {
    let stated = unexplained_failure(&streams, catalogue);
    let mut reports = survived_ends(&streams);
    let mut open_ends = open_ends(&streams);
    let mut incidents = incidents(streams);
    join(&mut incidents, dumps);
    // A kill that no log of a job reports follows what happened to the jobs.
    incidents.sort_by_key(is_foreign_kill);
    reports.extend(
        incidents
            .iter()
            .filter_map(|incident| machine_report(incident, catalogue)),
    );
    let concluded = incidents.iter().flat_map(|incident| conclude_each(incident, catalogue));
    let mut cases: Vec<OfflineCase> = concluded.collect();
    // A case of the logs explains the failure that they state.
    if cases.is_empty() {
        cases.extend(stated);
    }
    if !cases.is_empty() {
        open_ends.clear();
    }
    GroupDiagnosis {
        cases,
        reports,
        open_ends,
    }
}

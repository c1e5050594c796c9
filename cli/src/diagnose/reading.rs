//! Questions to the second reader about the logs that were diagnosed together.

use std::path::Path;

use rankguard_faults::Catalogue;
use rankguard_model::ClassId;
use rankguard_offline::{OfflineCase, hosts_of};
use rankguard_reader::StreamSample;

use super::Diagnoses;
use crate::second_reader::{AskedReader, ReaderQuestion};

/// Lines of logs that were diagnosed together, with the verdicts.
#[derive(Debug)]
pub(super) struct SampledLogs {
    name: String,
    samples: Vec<StreamSample>,
    nodes: Vec<String>,
    /// Classes of the failures, none if nothing failed.
    verdicts: Vec<ClassId>,
}

impl SampledLogs {
    pub(super) fn of(path: &Path, samples: Vec<StreamSample>, cases: &[OfflineCase]) -> Self {
        let texts: Vec<String> = samples
            .iter()
            .flat_map(StreamSample::texts)
            .map(str::to_owned)
            .collect();
        let blamed = cases.iter().filter_map(|case| case.root_node.as_ref());
        let failures = cases.iter().filter(|case| case.is_failure());
        Self {
            name: path.display().to_string(),
            nodes: hosts_of(&texts)
                .into_iter()
                .chain(blamed.map(ToString::to_string))
                .collect(),
            verdicts: failures.map(|case| ClassId::from(case.class.as_str())).collect(),
            samples,
        }
    }
}

/// Asks the reader about each group of logs.
pub(super) fn ask(found: &mut Diagnoses, reader: &AskedReader, catalogue: &Catalogue) {
    for logs in std::mem::take(&mut found.sampled) {
        let question = ReaderQuestion {
            of: logs.name,
            samples: &logs.samples,
            nodes: logs.nodes,
            verdicts: &logs.verdicts,
        };
        found.readings.push(reader.ask(question, catalogue));
    }
}

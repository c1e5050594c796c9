//! Flight-recorder dumps among the logs: compared with each other, and joined to the failure in the logs.

use std::collections::BTreeMap;

use rankguard_diagnosis::{RankDump, Signal, flight_signals};
use rankguard_flight::RecorderDump;
use rankguard_model::{EvidenceId, EvidenceSource, Generation, JobId, NodeId, Rank, Sequence};

use crate::incident::{Incident, IncidentLog, LocatedSignal};
use crate::reading::JOB;

/// Flight-recorder dump with its origin.
#[derive(Debug)]
pub struct NamedDump {
    /// Display name: its path.
    pub name: String,
    /// Rank that wrote it.
    pub rank: Rank,
    /// Node of the rank, if known.
    pub node: Option<NodeId>,
    pub dump: RecorderDump,
}

/// Joins the result of comparing the dumps to the last incident with complaining ranks, or to a new one. The time of
/// a dump is not comparable with logs.
pub fn join(incidents: &mut Vec<Incident>, found: Vec<NamedDump>) {
    let ranks: BTreeMap<Rank, RankDump> = found
        .iter()
        .map(|dump| {
            let node = dump.node.clone().unwrap_or_else(|| NodeId::from(""));
            let told = RankDump {
                evidence: EvidenceId {
                    node: NodeId::from(dump.name.clone()),
                    seq: Sequence(1),
                },
                at: None,
                node,
                dump: dump.dump.clone(),
                synthetic: false,
            };
            (dump.rank, told)
        })
        .collect();
    let signs = flight_signals(&JobId::from(JOB), Generation(0), &ranks, None, |_| None);
    if signs.is_empty() {
        return;
    }
    let complains = |incident: &Incident| incident.logs.iter().any(|log| log.source != EvidenceSource::KernelLog);
    let at = incidents.iter().rposition(complains).unwrap_or_else(|| {
        incidents.push(Incident::default());
        incidents.len() - 1
    });
    let incident = &mut incidents[at];
    let first = incident.logs.len();
    for dump in &found {
        incident.logs.push(IncidentLog {
            name: dump.name.clone(),
            source: EvidenceSource::FlightRecorder,
            rank: Some(dump.rank),
            node: dump.node.clone(),
            measured: false,
            worked: false,
            last_work: 0,
            states_failure: false,
            raised: false,
            lines: 0,
        });
    }
    for sign in signs {
        let log = found
            .iter()
            .position(|dump| dump.name == sign.evidence.node.as_str())
            .unwrap_or_default();
        incident.items.insert(0, LocatedSignal::of_file(sign, first + log));
    }
}

impl LocatedSignal {
    /// Creates an item for a sign of a whole file, which has no lines: it precedes the consequences in other logs.
    fn of_file(sign: Signal, log: usize) -> Self {
        Self {
            sign,
            log,
            first_line: 0,
            last_line: 0,
            key_line: 0,
            position: 0.0,
        }
    }
}

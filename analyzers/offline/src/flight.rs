//! Flight-recorder dumps that lie among the logs: compared with each other, and joined to the failure that the logs tell.

use std::collections::BTreeMap;

use rankguard_diagnosis::{RankDump, Sign, flight_signs};
use rankguard_flight::Dump;
use rankguard_model::{EvidenceId, Generation, JobId, NodeId, Rank, Sequence, Source};

use crate::incident::{Incident, Item, Log};
use crate::reading::JOB;

/// A dump that was found.
#[derive(Debug)]
pub struct FoundDump {
    /// What people call it: its path.
    pub name: String,
    /// The rank that wrote it.
    pub rank: Rank,
    /// The node that it ran on, where something tells.
    pub node: Option<NodeId>,
    /// What it holds.
    pub dump: Dump,
}

/// Joins what dumps say together to the last incident in which ranks complain; they make one of their own where none does.
/// A dump tells nothing of when it was written that could be compared with logs.
pub fn join(incidents: &mut Vec<Incident>, found: Vec<FoundDump>) {
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
    let signs = flight_signs(&JobId::from(JOB), Generation(0), &ranks, None, |_| None);
    if signs.is_empty() {
        return;
    }
    let complains = |incident: &Incident| incident.logs.iter().any(|log| log.source != Source::KernelLog);
    let at = incidents.iter().rposition(complains).unwrap_or_else(|| {
        incidents.push(Incident::default());
        incidents.len() - 1
    });
    let incident = &mut incidents[at];
    let first = incident.logs.len();
    for dump in &found {
        incident.logs.push(Log {
            name: dump.name.clone(),
            source: Source::FlightRecorder,
            rank: Some(dump.rank),
            node: dump.node.clone(),
            measured: false,
            worked: false,
            last_work: 0,
            states_failure: false,
            lines: 0,
        });
    }
    for sign in signs {
        let log = found
            .iter()
            .position(|dump| dump.name == sign.evidence.node.as_str())
            .unwrap_or_default();
        incident.items.insert(0, Item::of_file(sign, first + log));
    }
}

impl Item {
    /// A sign of a whole file, which has no lines: it stands before what the lines of others say came of it.
    fn of_file(sign: Sign, log: usize) -> Self {
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

//! Hosts that MPI launchers and libraries print in lines of their own, above or below the report that they belong to: that of a
//! process that ended (Hydra of MPICH and Intel MPI), that of a peer that is lost (Open MPI).

use std::collections::BTreeSet;

use rankguard_diagnosis::{LOST_NODE_FIELD, PROCESS_HOST_FIELD, Signal, SignalMeaning};

use crate::stream::PlacedObservation;

/// Report of several lines, one of which names a host.
struct HostBlock {
    /// Signature of the line with the host.
    host_line: &'static str,
    /// Maximum number of lines between it and the report.
    lines: u64,
    /// Texts of the report.
    parts: &'static [&'static str],
    /// Field for the host.
    field: &'static str,
}

/// Reports with a host.
const BLOCKS: [HostBlock; 3] = [
    HostBlock {
        host_line: "hydra-process-host",
        lines: 8,
        parts: &[
            "BAD TERMINATION OF ONE OF YOUR APPLICATION",
            "APPLICATION TERMINATED WITH THE EXIT STRING",
        ],
        field: PROCESS_HOST_FIELD,
    },
    HostBlock {
        host_line: "mpi-lost-daemon-host",
        lines: 6,
        parts: &["ORTE has lost communication with its daemon"],
        field: LOST_NODE_FIELD,
    },
    HostBlock {
        host_line: "mpi-peer-host",
        lines: 20,
        parts: &["An MPI communication peer process has unexpectedly disconnected"],
        field: LOST_NODE_FIELD,
    },
];

/// Adds the hosts to the reports that they belong to.
pub(crate) fn name_hosts(seen: &mut [PlacedObservation]) {
    for block in &BLOCKS {
        let hosts: Vec<(u64, u64, String)> = seen.iter().flat_map(|seen| block.hosts(seen)).collect();
        for seen in seen.iter_mut().filter(|_| !hosts.is_empty()) {
            let is_near = |(first, last, _): &&(u64, u64, String)| {
                *first <= seen.last_line + block.lines && seen.first_line <= last + block.lines
            };
            let names: BTreeSet<&String> = hosts.iter().filter(is_near).map(|(.., host)| host).collect();
            // One observation holds all repeats of a line, which may be of several hosts.
            let (Some(host), 1) = (names.first(), names.len()) else {
                continue;
            };
            for sign in seen.signs.iter_mut().filter(|sign| block.holds(sign)) {
                if let SignalMeaning::Mark(mark) = &mut sign.what {
                    mark.fields.fill(block.field, host.as_str());
                }
            }
        }
    }
}

impl HostBlock {
    /// Returns the hosts that an observation names, with its first and last line.
    fn hosts(&self, seen: &PlacedObservation) -> Vec<(u64, u64, String)> {
        let stated = seen.signs.iter().filter(|sign| sign.is_signed(self.host_line));
        let hosts = stated.filter_map(|sign| sign.field("node"));
        hosts
            .map(|host| (seen.first_line, seen.last_line, host.to_owned()))
            .collect()
    }

    fn holds(&self, sign: &Signal) -> bool {
        self.parts.iter().any(|part| sign.text.contains(part))
    }
}

//! Hosts of processes that ended, as the launcher of MPICH and Intel MPI (Hydra) prints them: the head, the host and the exit code of
//! a process, and its signal, are lines of one block.

use std::collections::BTreeSet;

use rankguard_diagnosis::{PROCESS_HOST_FIELD, Signal, SignalMeaning};

use crate::stream::PlacedObservation;

/// Signature of the line with process and host.
const HOST_LINE: &str = "hydra-process-host";
/// Number of lines around it that are of the same block.
const BLOCK: u64 = 8;
/// Texts of the other lines of the block.
const PARTS: [&str; 2] = [
    "BAD TERMINATION OF ONE OF YOUR APPLICATION",
    "APPLICATION TERMINATED WITH THE EXIT STRING",
];

/// Adds the host of the process to the reports of its end.
pub(crate) fn name_process_hosts(seen: &mut [PlacedObservation]) {
    let hosts: Vec<(u64, u64, String)> = seen.iter().flat_map(stated_hosts).collect();
    for seen in seen.iter_mut() {
        let is_near = |(first, last, _): &&(u64, u64, String)| {
            *first <= seen.last_line + BLOCK && seen.first_line <= last + BLOCK
        };
        let names: BTreeSet<&String> = hosts.iter().filter(is_near).map(|(.., host)| host).collect();
        // One observation holds all repeats of a line, which may be of several hosts.
        let (Some(host), 1) = (names.first(), names.len()) else {
            continue;
        };
        for sign in seen.signs.iter_mut().filter(|sign| is_of_block(sign)) {
            if let SignalMeaning::Mark(mark) = &mut sign.what {
                mark.fields.fill(PROCESS_HOST_FIELD, host.as_str());
            }
        }
    }
}

fn stated_hosts(seen: &PlacedObservation) -> impl Iterator<Item = (u64, u64, String)> {
    let stated = seen.signs.iter().filter(|sign| sign.is_signed(HOST_LINE));
    stated.filter_map(|sign| Some((seen.first_line, seen.last_line, sign.field("node")?.to_owned())))
}

fn is_of_block(sign: &Signal) -> bool {
    sign.is_signed(HOST_LINE) || PARTS.iter().any(|part| sign.text.contains(part))
}

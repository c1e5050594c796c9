//! Fields of the exception of a dead actor of Ray (`python/ray/exceptions.py`, `ActorDiedError`), each in a line of its own:
//!
//! ```text
//! ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
//!         class_name: WorkerDict
//!         pid: 87687
//!         ip: 10.29.214.5
//! ```

use rankguard_diagnosis::{LOST_NODE_FIELD, SignalMeaning};
use rankguard_faults::classes;

use crate::stream::PlacedObservation;

/// Maximum number of lines from the exception to its last field.
const LINES: u64 = 12;
/// Maximum number of retained exceptions; further ones are ignored.
const KEPT: usize = 4_096;
/// Beginnings of the messages of the exception.
const HEADS: [&str; 2] = ["ActorDiedError: ", "RayActorError: "];

/// Exceptions of one stream, with the address of each actor.
#[derive(Debug, Default)]
pub(crate) struct DeadActors {
    /// Line of the newest exception without an address, 0 without one.
    open: u64,
    /// Line of each exception, line of its address, and the address.
    found: Vec<(u64, u64, String)>,
}

impl DeadActors {
    /// Reads a line if it is the exception or a field of it.
    pub(crate) fn read(&mut self, number: u64, line: &str) {
        if HEADS.iter().any(|head| line.contains(head)) {
            self.open = number;
            return;
        }
        if self.open == 0 || number > self.open + LINES || self.found.len() >= KEPT {
            return;
        }
        let field = line.split_once("ip: ").filter(|(before, _)| {
            let before = before.trim_end();
            before.is_empty() || before.ends_with([')', ']', ':'])
        });
        let address = field.map(|(_, address)| address.trim());
        if let Some(address) = address.filter(|address| address.parse::<std::net::IpAddr>().is_ok()) {
            self.found.push((self.open, number, address.to_owned()));
            self.open = 0;
        }
    }

    /// Adds the address of the actor to the reports of its end.
    pub(crate) fn place(&self, seen: &mut [PlacedObservation]) {
        for seen in seen {
            let is_near = |(head, last, _): &&(u64, u64, String)| {
                seen.first_line <= last + 1 && seen.key_line.max(seen.last_line) >= *head
            };
            let mut near = self.found.iter().filter(is_near);
            let (Some((.., address)), None) = (near.next(), near.next()) else {
                continue;
            };
            for sign in &mut seen.signs {
                if let SignalMeaning::Mark(mark) = &mut sign.what
                    && mark.class.as_str() == classes::REMOTE_WORKER_LOST
                {
                    mark.fields.fill(LOST_NODE_FIELD, address.as_str());
                }
            }
        }
    }
}

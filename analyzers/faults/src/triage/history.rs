//! What each GPU has reported so far: some events mean something else once another has been seen (RG-7).

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_model::{Mark, Role, Timestamp};

use crate::line::ParsedLine;
use crate::matcher::pci_address;

/// Events of a GPU further apart than this have nothing to do with each other.
const RELATED: Duration = Duration::from_secs(600);

/// Consequences by nature: clean-up of channels, the driver's advice. Never the start of a story that has another start.
const CONSEQUENCES: [&str; 2] = ["43", "45"];

#[derive(Debug, Default)]
pub(super) struct History {
    /// First root of each GPU: its number and moment.
    roots: BTreeMap<String, (String, Option<Timestamp>)>,
}

impl History {
    /// Turns a root into a cascade when the same GPU has already told what started it: channel resets after anything, and
    /// anything after the GPU fell off the bus.
    pub(super) fn judge(&mut self, mark: &mut Mark, line: &ParsedLine<'_>) {
        let (Some(xid), Some(bdf)) = (mark.fields.get("xid").map(str::to_owned), mark.fields.get("bdf")) else {
            return;
        };
        let bdf = pci_address(bdf);
        let at = line.at.or(line
            .since_boot_us
            .map(|us| Timestamp(i64::try_from(us).unwrap_or(i64::MAX).saturating_mul(1000))));
        let before = self.roots.get(&bdf).filter(|(_, then)| match (then, at) {
            (Some(then), Some(at)) => at.since(*then) <= RELATED,
            _ => true,
        });
        let follows =
            before.is_some_and(|(first, _)| *first != xid && (first == "79" || CONSEQUENCES.contains(&xid.as_str())));
        if follows && mark.role == Role::Root {
            mark.role = Role::Cascade;
        } else if mark.role == Role::Root && !CONSEQUENCES.contains(&xid.as_str()) && (before.is_none() || xid == "79")
        {
            self.roots.insert(bdf, (xid, at));
        }
    }
}

//! History of driver events for each GPU: some events have another role after an earlier one (RG-7).

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_model::{Classification, Role, Timestamp};

use crate::line::ParsedLine;
use crate::matcher::pci_address;

/// Maximum distance of related events of a GPU.
const RELATED: Duration = Duration::from_secs(600);

/// XIDs that are consequences by nature: clean-up of channels. Never the first cause if another event precedes them.
const CONSEQUENCES: [&str; 2] = ["43", "45"];

/// XIDs of the memory of a GPU. A GPU that is off the bus reports none, so it has returned since.
const MEMORY: [&str; 6] = ["48", "63", "64", "92", "94", "95"];

/// XID of an NVLink error, which the GPU itself signals by an interrupt. A GPU that falls off the bus may signal one as it
/// goes; a later one shows that it has returned.
const LINK: &str = "74";
/// Duration of the loss of a GPU, within which its driver still reports events from before.
const LOSS: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct GpuHistory {
    /// First root event of each GPU: number and time.
    roots: BTreeMap<String, (String, Option<Timestamp>)>,
}

impl GpuHistory {
    /// Turns a root into a cascade if the same GPU has already reported the cause: channel resets after any event,
    /// and any event after the GPU fell off the bus, except those that show that it has returned: of its memory, and later
    /// ones of its links.
    pub(super) fn judge(&mut self, mark: &mut Classification, line: &ParsedLine<'_>) {
        let (Some(xid), Some(bdf)) = (mark.fields.get("xid").map(str::to_owned), mark.fields.get("bdf")) else {
            return;
        };
        let bdf = pci_address(bdf);
        let at = line.at.or(line
            .since_boot_us
            .map(|us| Timestamp(i64::try_from(us).unwrap_or(i64::MAX).saturating_mul(1000))));
        let is_within = |then: &Option<Timestamp>, limit: Duration| match (then, at) {
            (Some(then), Some(at)) => at.since(*then) <= limit,
            _ => true,
        };
        let before = self.roots.get(&bdf).filter(|(_, then)| is_within(then, RELATED));
        let follows = before.is_some_and(|(first, then)| {
            let is_of_link = xid == LINK && !is_within(then, LOSS);
            let is_of_loss = first == "79" && !MEMORY.contains(&xid.as_str()) && !is_of_link;
            *first != xid && (is_of_loss || CONSEQUENCES.contains(&xid.as_str()))
        });
        if follows && mark.role == Role::Root {
            mark.role = Role::Cascade;
        } else if mark.role == Role::Root && !CONSEQUENCES.contains(&xid.as_str()) && (before.is_none() || xid == "79")
        {
            self.roots.insert(bdf, (xid, at));
        }
    }
}

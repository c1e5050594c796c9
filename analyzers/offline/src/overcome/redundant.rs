//! Losses of one of several parts, after which the whole serves on: an interface of a bond, a command of a disk.

use rankguard_diagnosis::Signal;
use rankguard_faults::classes;
use rankguard_model::Role;

use crate::incident::LocatedSignal;

/// Signature of an interface of a bond that went down.
const BOND_PART_DOWN: &str = "bond-slave-down";
/// Signature of the interface of a bond that carries its traffic from now on.
const BOND_ACTIVE: &str = "bond-active";

/// Signature of an NVMe disk that completed or aborted a late command.
const DISK_ANSWERED: &str = "nvme-answered";
/// Text of the kernel for a command of an NVMe disk that is late and is to be aborted; without an answer a reset follows.
const LATE: &str = "timeout, aborting";

/// Returns true if an incident holds only interfaces of bonds that went down, and another interface took over in the same
/// log. If anything else failed, the loss may be its cause.
pub(crate) fn took_over(items: &[LocatedSignal]) -> bool {
    let bond = |sign: &Signal| sign.field("bond").map(str::to_owned);
    let is_served = |down: &LocatedSignal| {
        let mut later = items
            .iter()
            .filter(|item| item.log == down.log && item.last_line > down.last_line);
        later.any(|item| item.sign.is_signed(BOND_ACTIVE) && bond(&item.sign) == bond(&down.sign))
    };
    let served = items
        .iter()
        .filter(|item| item.sign.is_signed(BOND_PART_DOWN) && is_served(item));
    let served: Vec<&LocatedSignal> = served.collect();
    let is_part = |item: &LocatedSignal| {
        let is_loss = item
            .sign
            .class()
            .is_some_and(|class| class.as_str() == classes::NIC_LINK_DOWN);
        let nic = item.sign.field("nic");
        let is_one = |served: &&LocatedSignal| {
            let is_line = served.first_line == item.first_line;
            served.log == item.log && (is_line || nic.is_some() && nic == served.sign.field("nic"))
        };
        is_loss && served.iter().any(is_one)
    };
    holds_only(items, is_part)
}

/// Returns true if an incident holds only commands of disks that were late and that the disk aborted afterwards, in the same
/// log. A disk that was reset did not answer.
pub(crate) fn answered_disk(items: &[LocatedSignal]) -> bool {
    let is_answered = |late: &LocatedSignal| {
        let mut later = items
            .iter()
            .filter(|item| item.log == late.log && item.last_line > late.last_line);
        later.any(|item| item.sign.is_signed(DISK_ANSWERED) && item.sign.field("disk") == late.sign.field("disk"))
    };
    holds_only(items, |item| item.sign.text.contains(LATE) && is_answered(item))
}

/// Returns true if there are items that mean something, and all are of a kind.
fn holds_only(items: &[LocatedSignal], is_of_kind: impl Fn(&LocatedSignal) -> bool) -> bool {
    let means_something = |item: &&LocatedSignal| item.sign.mark().is_none_or(|mark| mark.role != Role::Noise);
    let mut items = items.iter().filter(means_something).peekable();
    items.peek().is_some() && items.all(is_of_kind)
}

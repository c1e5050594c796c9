//! Losses of one of several parts, after which the whole serves on: an interface of a bond, a command of a disk, a path of a
//! multipath device.

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

/// Signature of a path of a multipath device that failed.
const PATH_FAILED: &str = "multipath-path-failed";
/// Signature of a path of a multipath device that answers again.
const PATH_UP: &str = "multipath-path-up";
/// Results of SCSI commands that the transport did not deliver (`include/scsi/scsi_status.h`).
const TRANSPORT: [&str; 3] = [
    "hostbyte=DID_NO_CONNECT",
    "hostbyte=DID_TRANSPORT_DISRUPTED",
    "hostbyte=DID_TRANSPORT_FAILFAST",
];
/// Major numbers of SCSI disks.
const SCSI_MAJORS: [u32; 16] = [8, 65, 66, 67, 68, 69, 70, 71, 128, 129, 130, 131, 132, 133, 134, 135];

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

/// Returns true if an incident holds only failures of paths of multipath devices, each of which came up again in the same
/// log. The other paths serve meanwhile: the loss of the last one is a report of its own.
pub(crate) fn paths_came_back(items: &[LocatedSignal]) -> bool {
    let is_up = |down: &LocatedSignal| {
        let lost = lost_path(&down.sign);
        let mut later = items
            .iter()
            .filter(|item| item.log == down.log && item.last_line > down.last_line);
        lost.is_some() && later.any(|item| item.sign.is_signed(PATH_UP) && restored_path(&item.sign) == lost)
    };
    holds_only(items, is_up)
}

/// Returns the device number of the path that a report calls failed: `[sdc] tag#11 FAILED Result: hostbyte=DID_...`,
/// `Failing path 8:32`. The kernel retries a command that its transport disrupted, and multipath uses another path; other
/// results are errors of the disk.
fn lost_path(sign: &Signal) -> Option<DeviceNumber> {
    if sign.is_signed(PATH_FAILED) {
        return DeviceNumber::parse(sign.field("path")?);
    }
    let is_transport = TRANSPORT.iter().any(|result| sign.text.contains(result));
    let (_, rest) = sign.text.split_once('[').filter(|_| is_transport)?;
    DeviceNumber::of_disk(rest.split(']').next()?)
}

fn restored_path(sign: &Signal) -> Option<DeviceNumber> {
    let number = sign.field("number").or_else(|| sign.field("kernel"));
    match number {
        Some(number) => DeviceNumber::parse(number),
        None => DeviceNumber::of_disk(sign.field("path")?),
    }
}

/// Major and minor number of a SCSI disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DeviceNumber {
    major: u32,
    minor: u32,
}

impl DeviceNumber {
    /// Parses the device number `8:32` of a path.
    fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once(':')?;
        Some(Self {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    }

    /// Returns the number of a disk by its name: 16 disks for each major number, 16 minor numbers for each disk
    /// (`Documentation/admin-guide/devices.txt` of the kernel).
    fn of_disk(name: &str) -> Option<Self> {
        let letters = name.strip_prefix("sd").filter(|letters| !letters.is_empty())?;
        let mut index = 0u32;
        for letter in letters.bytes() {
            let value = u32::from(letter.checked_sub(b'a').filter(|value| *value < 26)?);
            index = index.checked_mul(26)?.checked_add(value + 1)?;
        }
        let index = index - 1;
        let major = *SCSI_MAJORS.get(usize::try_from(index / 16).ok()?)?;
        let minor = index % 16 * 16;
        Some(Self { major, minor })
    }
}

/// Returns true if there are items that mean something, and all are of a kind.
fn holds_only(items: &[LocatedSignal], is_of_kind: impl Fn(&LocatedSignal) -> bool) -> bool {
    let means_something = |item: &&LocatedSignal| item.sign.mark().is_none_or(|mark| mark.role != Role::Noise);
    let mut items = items.iter().filter(means_something).peekable();
    items.peek().is_some() && items.all(is_of_kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_a_number() {
        for (name, number) in [
            ("sda", Some((8, 0))),
            ("sdc", Some((8, 32))),
            ("sdp", Some((8, 240))),
            ("sdq", Some((65, 0))),
            ("sdaa", Some((65, 160))),
            ("sdiv", Some((135, 240))),
            ("sdiw", None),
            ("sd", None),
            ("sdA", None),
            ("nvme0n1", None),
        ] {
            let found = DeviceNumber::of_disk(name).map(|number| (number.major, number.minor));
            assert_eq!(found, number, "{name}");
        }
        assert_eq!(DeviceNumber::parse("8:32"), DeviceNumber::of_disk("sdc"));
    }
}

//! Failures beside the first cause that do not follow from it: faults of hardware, each of which needs its own repair,
//! ranks that ended as no survivor does, and drills beside a real failure.

use std::time::Duration;

use rankguard_faults::classes;
use rankguard_model::{Classification, DeviceKind, Entity, EvidenceSource, NodeId, ProcessExit, Role};

use crate::engine::gpu::follows_an_exception;
use crate::exit_class::{is_abort, is_crash, is_kill};
use crate::knowledge::ClassEntry;
use crate::own_exceptions::{is_loss, is_own_error, reports_own_error};
use crate::shared_part::are_links_of_other_media;
use crate::signalled_ranks::complains;
use crate::{CauseCandidate, FailureScene, Signal, SignalMeaning};

/// Parts of the names of classes that a lost device causes on its peers, because they share a link.
const LINKS: [&str; 4] = ["fabric", "link", "nic-", "nvswitch"];

/// Beginnings of the names of disks in the machine. Others may be reached over the network.
const LOCAL_DISKS: [&str; 6] = ["ata", "hd", "md", "mmcblk", "nvme", "sd"];

/// Difference of the clocks of two nodes up to which the order of events proves nothing.
const CLOCKS: Duration = Duration::from_secs(2);

/// Difference of the times of two faults of one failure.
const SAME_TIME: Duration = Duration::from_secs(10);

/// First cause, as far as it decides whether another fault follows from it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FirstCause<'a> {
    pub(crate) blamed: &'a Entity,
    /// True if it is a hardware fault.
    pub(crate) is_machine: bool,
    /// True if it is a fault of the network.
    pub(crate) is_network: bool,
    /// True if it is a drill.
    pub(crate) synthetic: bool,
}

impl FirstCause<'_> {
    /// Returns true if a mark about an entity reports a fault that does not follow from this cause: a real fault beside
    /// a drill, a fault of hardware after a failure of software, the fault of another device or node, or a failure of a
    /// local disk beside one of the network.
    pub(crate) fn is_beside(&self, known: ClassEntry<'_>, mark: &Classification, entity: &Entity) -> bool {
        let class = mark.class.as_str();
        let is_fault = mark.role == Role::Root && known.is_outright_fault() && known.layer() == "hardware";
        let is_link = LINKS.iter().any(|part| class.contains(part));
        let is_device = |entity: &Entity| matches!(entity, Entity::Device { .. });
        let is_other_device = is_device(entity) && is_device(self.blamed) && !is_same_device(entity, self.blamed);
        let is_other_node = match (entity.node(), self.blamed.node()) {
            (Some(node), Some(blamed)) => node != blamed && !node.as_str().is_empty() && !blamed.as_str().is_empty(),
            _ => false,
        };
        let disk = mark
            .fields
            .get("disk")
            .filter(|_| mark.role == Role::Root && known.layer() == "storage");
        if self.is_network && disk.is_some_and(|disk| LOCAL_DISKS.iter().any(|name| disk.starts_with(name))) {
            return true;
        }
        is_fault && !is_link && (self.synthetic || !self.is_machine || is_other_device || is_other_node)
    }
}

/// Returns true if two entities are the same, as far as their nodes are known, or parts of one disk: the controller
/// `nvme1`, its namespace `nvme1n1` and the partition `nvme1n1p2`.
pub fn is_same_device(one: &Entity, other: &Entity) -> bool {
    if one == other {
        return true;
    }
    let (Entity::Device { node, device }, Entity::Device { node: of, device: part }) = (one, other) else {
        return false;
    };
    let is_known = !node.as_str().is_empty() && !of.as_str().is_empty();
    let are_disks = device.kind == DeviceKind::Disk && part.kind == DeviceKind::Disk;
    let is_one = device == part || are_disks && whole_disk(&device.address) == whole_disk(&part.address);
    is_one && (node == of || !is_known)
}

/// Returns the part of a block device's name that names the disk.
fn whole_disk(name: &str) -> &str {
    let name = name.trim_start_matches("/dev/");
    let is_digit = |c: char| c.is_ascii_digit();
    for start in ["nvme", "mmcblk"] {
        if let Some(rest) = name.strip_prefix(start) {
            let end = rest.find(|c| !is_digit(c)).unwrap_or(rest.len());
            return &name[..start.len() + end];
        }
    }
    let has_letters = ["hd", "sd", "vd", "xvd"].iter().any(|start| name.starts_with(start));
    if has_letters {
        name.trim_end_matches(is_digit)
    } else {
        name
    }
}

/// Returns true if the sign at an index is a fault of hardware that does not follow from the winner.
pub(crate) fn is_own_fault(scene: &FailureScene<'_>, winner: &CauseCandidate, index: usize) -> bool {
    let sign = &scene.signs[index];
    let first = &scene.signs[winner.first];
    let class = ClassEntry::of(scene.catalogue, &winner.class);
    let cause = FirstCause {
        blamed: &winner.blamed,
        is_machine: class.is_machine(),
        is_network: class.layer() == "network",
        synthetic: first.synthetic,
    };
    let (Some(mark), Some(known)) = (sign.mark(), scene.known(index)) else {
        return false;
    };
    // A fault that was older than the failure did not end it. Of two faults at about the same time, either may be first.
    let is_before = sign.timed && first.timed && first.at.since(sign.at) > SAME_TIME;
    let is_older = is_before || scene.is_older(sign);
    if scene.has_fault_ends && follows_an_exception(scene, index, sign) {
        return false;
    }
    if scene.has_fault_ends && is_other_link(first, sign) {
        return !is_older;
    }
    scene.has_fault_limits && !sign.synthetic && !is_older && cause.is_beside(known, mark, &sign.entity)
}

/// Returns true if two nodes report the loss of links that share no switch.
fn is_other_link(first: &Signal, sign: &Signal) -> bool {
    let is_lost = |sign: &Signal| {
        sign.is_root_mark()
            && sign
                .class()
                .is_some_and(|class| class.as_str() == classes::NIC_LINK_DOWN)
    };
    let is_same_kind = first.synthetic == sign.synthetic && first.node() != sign.node();
    is_same_kind && is_lost(first) && is_lost(sign) && are_links_of_other_media(first, sign)
}

/// Returns true if the sign at an index is the end of a rank, or the out-of-memory kill of one, that does not follow from
/// the winner ([`ends_by_itself`]).
pub(crate) fn is_own_end(scene: &FailureScene<'_>, winner: &CauseCandidate, index: usize) -> bool {
    let sign = &scene.signs[index];
    if index == winner.first || winner.support.contains(index) {
        return false;
    }
    match sign.exit() {
        Some((_, exit)) => ends_by_itself(scene, winner, sign, exit),
        None => is_kill_of_own_end(scene, winner, sign) || is_error_of_own_end(scene, winner, sign),
    }
}

/// Returns true for the kernel's report of an out-of-memory kill of a rank, if its end does not follow from the winner.
fn is_kill_of_own_end(scene: &FailureScene<'_>, winner: &CauseCandidate, sign: &Signal) -> bool {
    let is_kill = sign.is_root_mark()
        && sign
            .class()
            .is_some_and(|class| class.as_str() == classes::HOST_OOM_KILL);
    let mut victims = scene
        .exits()
        .filter(|(_, end, pid, _)| is_kill && !sign.synthetic && sign.pid() == Some(*pid) && end.node() == sign.node());
    victims.any(|(_, end, _, exit)| ends_by_itself(scene, winner, end, exit))
}

/// Returns true for the error of a program that ended a rank beside a silent node.
fn is_error_of_own_end(scene: &FailureScene<'_>, winner: &CauseCandidate, sign: &Signal) -> bool {
    let first = &scene.signs[winner.first].what;
    let is_silence = *first == SignalMeaning::Silent || first.is_silence() && scene.distinguishes_ends();
    let is_error = is_silence && sign.is_root_mark() && sign.entity.rank().is_some() && is_own_error(sign);
    let mut ends = scene
        .exits()
        .filter(|(_, end, ..)| is_error && end.entity == sign.entity);
    ends.any(|(_, end, _, exit)| ends_by_itself(scene, winner, end, exit))
}

/// Returns true if a rank ended by itself or from outside, and not because of the winner: a real end on another node than
/// that of a fault of a machine or of a drill. Survivors report a lost peer, abort or exit; they do not end by SIGKILL.
/// A drill does not reach into the past, and it crashes no process of another node unless a rank ended for it.
fn ends_by_itself(scene: &FailureScene<'_>, winner: &CauseCandidate, end: &Signal, exit: ProcessExit) -> bool {
    let first = &scene.signs[winner.first];
    if is_killed_apart(scene, winner, end, exit) {
        return true;
    }
    let is_drill = first.synthetic;
    let is_machine = ClassEntry::of(scene.catalogue, &winner.class).is_outright_fault();
    let is_elsewhere = is_other_node(end.node(), winner.blamed.node().or(first.node()));
    let is_candidate = scene.has_fault_limits && !end.synthetic && end.timed && first.timed;
    let is_silence = first.what.is_silence() && scene.distinguishes_ends();
    let is_own = || is_crash(exit) || reports_own_error(scene, end) || is_abort_before_losses(scene, end, exit);
    if is_candidate && is_silence && is_elsewhere && is_own() {
        // The loss of a node crashes no process of another one, and no program of another one fails of it by itself.
        return true;
    }
    if !is_candidate || !is_elsewhere || !(is_drill || is_machine) {
        return false;
    }
    if end.entity.rank().is_none_or(|rank| complains(scene, rank)) {
        return false;
    }
    if is_kill(exit) {
        // Ranks of a node that is cut off are ended by SIGKILL with the lease of its agent.
        return scene.silent().next().is_none();
    }
    let mut others = scene.exits().filter(|(_, other, ..)| other.evidence != end.evidence);
    let is_first = others.all(|(_, other, ..)| other.timed && other.at >= end.at);
    let is_before = end.at.after(CLOCKS) < first.at;
    is_drill && is_first && (is_crash(exit) || is_before)
}

/// Returns true if a rank aborted without a word of a lost peer, and no rank of its node had lost one before: libraries
/// report the loss for which they abort.
fn is_abort_before_losses(scene: &FailureScene<'_>, end: &Signal, exit: ProcessExit) -> bool {
    let is_loss_before = |(index, sign): (usize, &Signal)| {
        let is_here = sign.entity.rank().is_some() && sign.node() == end.node();
        is_here && (!sign.timed || sign.at <= end.at) && is_loss(scene, index, sign)
    };
    let is_quiet = end.entity.rank().is_some_and(|rank| !complains(scene, rank));
    is_abort(exit) && is_quiet && !scene.marks().any(is_loss_before)
}

/// Returns true if a rank was ended by SIGKILL, which neither the winner nor Rankguard sent: survivors of any failure end
/// by an error of their own, and the ends of ranks that an agent ended are no failures.
fn is_killed_apart(scene: &FailureScene<'_>, winner: &CauseCandidate, end: &Signal, exit: ProcessExit) -> bool {
    let is_killed = is_kill(exit) && !end.synthetic;
    if !scene.distinguishes_ends() || !is_killed || end.entity.rank().is_none_or(|rank| complains(scene, rank)) {
        return false;
    }
    // Ranks of a node that is cut off are ended by SIGKILL with the lease of its agent.
    scene.silent().next().is_none() && !kills(scene, winner, end)
}

/// Returns true if the winner may have ended a rank by SIGKILL: a scheduler ends all ranks of a job, hung ranks are ended
/// from outside, and what ends one process of a machine may end others there. A drill ends its own rank only.
fn kills(scene: &FailureScene<'_>, winner: &CauseCandidate, end: &Signal) -> bool {
    let first = &scene.signs[winner.first];
    if first.synthetic {
        return false;
    }
    let class = winner.class.as_str();
    let is_scheduler = ClassEntry::of(scene.catalogue, &winner.class).layer() == "scheduler";
    let ends_jobs = is_scheduler && class != classes::KILLED_BY_SIGNAL || ENDS_JOBS.contains(&class);
    let is_stall = first.what == SignalMeaning::Stalled || STALLS.contains(&class);
    ends_jobs || is_stall || !is_other_node(end.node(), winner.blamed.node().or(first.node()))
}

/// Classes of platforms that end the processes of a job, besides those of schedulers.
const ENDS_JOBS: [&str; 5] = [
    classes::CONTAINER_RUNTIME_ERROR,
    classes::CONTROL_PLANE_ERROR,
    classes::MAINTENANCE,
    classes::PLATFORM_SERVICE_OUTAGE,
    classes::UNKNOWN,
];

/// Classes of jobs that make no progress.
const STALLS: [&str; 5] = [
    classes::COLLECTIVE_MISMATCH,
    classes::HANG_NO_ERROR,
    classes::HANG_STALLED_RANKS,
    classes::HCCL_TIMEOUT,
    classes::NCCL_TIMEOUT,
];

/// Returns true if a sign is the end of a rank by a drill that does not belong to a real first cause, and cannot be its
/// reason: the cause is a fault of hardware or an out-of-memory kill, a rank that was killed, or clearly earlier.
fn is_drilled_end_beside(scene: &FailureScene<'_>, winner: &CauseCandidate, sign: &Signal) -> bool {
    let first = &scene.signs[winner.first];
    if !scene.distinguishes_ends() || sign.exit().is_none() || !sign.synthetic || first.synthetic {
        return false;
    }
    let class = ClassEntry::of(scene.catalogue, &winner.class);
    let is_machine = class.is_outright_fault() || winner.class.as_str().ends_with("oom-kill");
    let is_killed = first.exit().is_some_and(|(_, exit)| is_kill(exit));
    let is_earlier = first.timed && sign.timed && first.at.after(CLOCKS) < sign.at;
    is_machine || is_killed || is_earlier
}

/// Returns true for an out-of-memory kill on a node of which no rank has ended, other than by an agent, and which is not
/// silent: it explains no end on another node.
pub(crate) fn kills_no_rank(scene: &FailureScene<'_>, sign: &Signal) -> bool {
    let is_kill = sign.class().is_some_and(|class| class.as_str().ends_with("oom-kill"));
    let is_named = sign.node().is_some_and(|node| !node.as_str().is_empty());
    let is_candidate = scene.distinguishes_ends() && is_kill && is_named && sign.source == EvidenceSource::KernelLog;
    let mut ends = scene.exits().map(|(_, end, ..)| end);
    is_candidate && ends.all(|end| end.node() != sign.node()) && scene.silent().next().is_none()
}

pub(crate) fn is_other_node(one: Option<&NodeId>, other: Option<&NodeId>) -> bool {
    let is_named = |node: &&NodeId| !node.as_str().is_empty();
    match (one.filter(is_named), other.filter(is_named)) {
        (Some(one), Some(other)) => one != other,
        _ => false,
    }
}

/// Returns true if the sign at an index is a fault that a drill made up, beside a real first cause.
pub(crate) fn is_drill_beside(scene: &FailureScene<'_>, winner: &CauseCandidate, index: usize) -> bool {
    let sign = &scene.signs[index];
    let is_beside = scene.has_fault_limits && sign.synthetic && !scene.signs[winner.first].synthetic;
    let is_fault = scene.known(index).is_some_and(|known| known.is_outright_fault());
    let is_line = is_beside && sign.is_root_mark() && is_fault;
    !winner.support.contains(index) && (is_line || is_drilled_end_beside(scene, winner, sign))
}

/// Returns true if a sign is a report of a lost or damaged GPU by a program, on a node with a fault of its own before it:
/// the report follows from that fault, not from the first cause on another node.
pub(crate) fn follows_own_fault(scene: &FailureScene<'_>, winner: &CauseCandidate, sign: &Signal) -> bool {
    let is_exception = sign
        .class()
        .is_some_and(|class| class.as_str() == classes::UNCAUGHT_EXCEPTION);
    let is_report = !sign.synthetic
        && (reports_lost_gpu(sign) || is_exception && sign.text.contains("CUDA error"))
        && winner.blamed.node().is_none_or(|node| sign.node() != Some(node));
    scene.distinguishes_ends() && is_report && has_own_fault_before(scene, winner, sign)
}

/// Returns true if a process on a GPU reports it lost or damaged through CUDA.
pub(crate) fn reports_lost_gpu(sign: &Signal) -> bool {
    let class = sign.class().map_or("", |class| class.as_str());
    sign.source == EvidenceSource::JobLog
        && (class.starts_with("gpu-")
            || matches!(
                class,
                classes::CUDA_LAUNCH_FAILURE
                    | classes::NCCL_CUDA_ERROR
                    | classes::CUBLAS_FAILURE
                    | classes::CUDNN_FAILURE
                    | classes::POWER_FAULT
            ))
}

/// Returns true if a fault of its own was reported on the node of a sign, not after it.
pub(crate) fn has_own_fault_before(scene: &FailureScene<'_>, winner: &CauseCandidate, sign: &Signal) -> bool {
    let is_here = |fault: &Signal| fault.node().is_some() && fault.node() == sign.node();
    let is_not_after = |fault: &Signal| fault.timed && sign.timed && fault.at <= sign.at;
    let mut marks = scene.marks();
    marks.any(|(index, fault)| is_here(fault) && is_not_after(fault) && is_own_fault(scene, winner, index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_disk_have_its_name() {
        let names = [
            ("nvme1", "nvme1"),
            ("nvme1n1", "nvme1"),
            ("nvme12n1p3", "nvme12"),
            ("/dev/sda1", "sda"),
            ("sdb", "sdb"),
            ("mmcblk0p2", "mmcblk0"),
            ("md0", "md0"),
            ("0000:5e:00.0", "0000:5e:00.0"),
        ];
        for (name, disk) in names {
            assert_eq!(whole_disk(name), disk, "{name}");
        }
    }
}

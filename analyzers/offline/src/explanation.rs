//! Faults in the log of an unnamed machine, or of one without a wall clock, that explain an error in the logs of a job.

use std::time::Duration;

use rankguard_diagnosis::Signal;
use rankguard_faults::classes;
use rankguard_model::Role;

use crate::incident::{StreamSegment, is_machine_log};
use crate::stream::ReadStream;

/// Maximum time from a fault of a device to the error of a program on it.
const REACTION: Duration = Duration::from_secs(60);
/// Maximum lead of the program's stamp: logs are stamped with some delay.
const STAMP_LAG: Duration = Duration::from_secs(5);

/// Beginnings of the classes of devices that a kernel reports.
const DEVICE_FAULTS: [&str; 5] = [
    "gpu-",
    "nvlink-",
    "nvswitch-",
    classes::UNKNOWN_SXID,
    classes::UNKNOWN_XID,
];
/// Beginnings of the classes of errors that a program on such a device reports.
const DEVICE_ERRORS: [&str; 6] = ["cublas-", "cuda-", "cudnn-", "gpu-", "nccl-cuda-", "nvlink-"];

/// Classes of lost links.
const LINK_FAULTS: [&str; 3] = [classes::NIC_FAULT, classes::NIC_LINK_DOWN, classes::NIC_LINK_FLAP];
/// Classes of errors that a program reports for a lost link.
const LINK_ERRORS: [&str; 5] = [
    classes::CONNECTION_RESET,
    classes::IB_RDMA_ERROR,
    classes::NCCL_SYSTEM_ERROR,
    classes::NCCL_TIMEOUT,
    classes::REMOTE_WORKER_LOST,
];

/// Returns true if a segment of a machine's log has a fault that explains an error in a group of a job's logs. Known
/// nodes are the same, and clocks that can be compared are near each other.
pub(crate) fn explains(streams: &[ReadStream], machine: &StreamSegment, group: &[StreamSegment]) -> bool {
    let node = streams[machine.stream].node.as_ref();
    let is_there = |segment: &&StreamSegment| {
        let stream = &streams[segment.stream];
        !is_machine_log(stream) && (node.is_none() || stream.node.is_none() || stream.node.as_ref() == node)
    };
    let errors = || group.iter().filter(is_there).flat_map(|segment| &segment.items);
    let mut faults = machine
        .items
        .iter()
        .map(|item| &item.sign)
        .filter(|sign| sign.is_root_mark());
    faults.any(|fault| errors().any(|item| explains_error(fault, &item.sign)))
}

fn explains_error(fault: &Signal, error: &Signal) -> bool {
    let is_noise = error.mark().is_none_or(|mark| mark.role == Role::Noise);
    let is_timed = fault.timed && error.timed;
    let is_near = fault.at <= error.at.after(STAMP_LAG) && error.at <= fault.at.after(REACTION);
    if is_noise || is_timed && !is_near {
        return false;
    }
    let (fault, error) = (class_of(fault), class_of(error));
    let begins = |class: &str, names: &[&str]| names.iter().any(|name| class.starts_with(name));
    let is_device = begins(fault, &DEVICE_FAULTS) && begins(error, &DEVICE_ERRORS) && error != classes::CUDA_OOM;
    // A link that went down at an unknown time may have come back long before.
    let is_link = is_timed && LINK_FAULTS.contains(&fault) && LINK_ERRORS.contains(&error);
    is_device || is_link
}

fn class_of(sign: &Signal) -> &str {
    sign.class().map_or("", |class| class.as_str())
}

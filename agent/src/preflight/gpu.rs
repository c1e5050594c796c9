//! Checks of GPUs, their driver and library: one read-only poll by the process that calls the library for agents too.
//! That process can be killed; the thread that waits for it may be abandoned.

use nvml_wrapper::error::NvmlError;
use rankguard_faults::classes;

use super::probe::BlockingProbe;
use super::{CheckVerdict, JobRequirements, PreflightCheck};
use crate::collectors::gpu::{DevicePoll, LibraryAnswer, LibraryCommand, LibraryWorker, PollOutcome};
use crate::stop_flag::StopFlag;

/// Pending poll result: devices and driver version, a call that hangs, or no library.
pub(super) type GpuProbe = BlockingProbe<LibraryAnswer>;

pub(super) fn start(need: &JobRequirements) -> GpuProbe {
    let process = LibraryCommand {
        words: need.gpu_process.clone(),
        environment: Vec::new(),
    };
    // Longer than the process's own deadline for one call.
    let deadline = need.deadline;
    BlockingProbe::start(move || {
        // Polled once, so that no retry pause applies.
        match LibraryWorker::new(process, deadline, deadline).look(&StopFlag::default()) {
            PollOutcome::Answer(answer) => answer,
            PollOutcome::Paused | PollOutcome::Stopped => LibraryAnswer::Absent("not polled".to_owned()),
        }
    })
}

pub(super) fn finish(asked: GpuProbe, need: &JobRequirements) -> Vec<PreflightCheck> {
    let count = PreflightCheck::new("gpus", "all", classes::GPU_UNAVAILABLE);
    let kernel = kernel_driver(need);
    let hangs = |what: String| {
        let advice = "the driver hangs: check `dmesg` for Xid 119 or 120, drain the node and reset the GPUs or reboot";
        vec![
            PreflightCheck::new("gpus", "all", classes::GPU_UNAVAILABLE)
                .of_class(classes::GPU_DRIVER_FAULT)
                .bad(CheckVerdict::Fail, what, advice),
        ]
    };
    let seconds = need.deadline.as_secs_f64();
    match asked.wait(need.deadline) {
        Err(_) => hangs(format!("the management library did not answer within {seconds} s")),
        Ok(LibraryAnswer::Stuck(call)) => hangs(format!("the management library does not answer in: {call}")),
        Ok(LibraryAnswer::Absent(problem)) => vec![absent(count, &problem, kernel.as_deref(), need)],
        Ok(LibraryAnswer::Seen {
            devices,
            driver: library,
            ..
        }) => {
            let mut checks = vec![enough(count, &devices, need)];
            checks.extend(driver(library.as_deref(), kernel.as_deref()));
            checks.extend(devices.iter().map(health));
            checks
        }
    }
}

/// Returns the version of the driver's kernel module, as it reports it.
pub(super) fn kernel_driver(need: &JobRequirements) -> Option<String> {
    let text = std::fs::read_to_string(need.proc_root.join("driver/nvidia/version")).ok()?;
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    // "... Kernel Module  535.104.05  Sat Aug ...", or "... Open Kernel Module for x86_64  550.54.14  Release Build
    // ..."
    let version = |word: &&str| word.contains('.') && word.split('.').all(|part| part.parse::<u32>().is_ok());
    line.split_ascii_whitespace().find(version).map(str::to_owned)
}

/// Builds the check for a library that is missing or does not start.
fn absent(count: PreflightCheck, problem: &str, kernel: Option<&str>, need: &JobRequirements) -> PreflightCheck {
    let wanted = need.gpus.filter(|wanted| *wanted > 0);
    // The process passes on the error text of the wrapper.
    if problem.contains(&NvmlError::LibRmVersionMismatch.to_string()) {
        return count.of_class(classes::DRIVER_VERSION_MISMATCH).bad(
            CheckVerdict::Fail,
            format!(
                "the library does not match the loaded driver {}",
                kernel.unwrap_or("of unknown version")
            ),
            "the driver was updated without a reload: reboot, or unload and load its modules",
        );
    }
    match (wanted, kernel) {
        (None, None) => count.ok(format!("no GPU: {problem}")),
        (None, Some(kernel)) => count.bad(
            CheckVerdict::Unknown,
            format!("the driver {kernel} is loaded but its management library does not start: {problem}"),
            "install the library of the same version, or set --nvml-library",
        ),
        (Some(wanted), _) => count.bad(
            CheckVerdict::Fail,
            format!("{wanted} required; none responds: {problem}"),
            "check that the driver is installed and loaded, and that the container was started with GPUs",
        ),
    }
}

fn enough(count: PreflightCheck, devices: &[DevicePoll], need: &JobRequirements) -> PreflightCheck {
    let there = devices.iter().filter(|device| device.lost.is_none()).count();
    match need.gpus {
        Some(wanted) if there < wanted as usize => count.bad(
            CheckVerdict::Fail,
            format!("{there} respond; {wanted} required"),
            "list GPUs with `nvidia-smi -L`; check `dmesg` for Xid 79 (fallen off the bus)",
        ),
        _ => count.ok(format!("{there} respond")),
    }
}

fn driver(library: Option<&str>, kernel: Option<&str>) -> Option<PreflightCheck> {
    let library = library?;
    let kernel = kernel?;
    let check = PreflightCheck::new("gpu-driver", library, classes::DRIVER_VERSION_MISMATCH);
    Some(if library == kernel {
        check.ok("library and kernel module have the same version")
    } else {
        check.bad(
            CheckVerdict::Fail,
            format!("library {library}, kernel module {kernel}"),
            "reboot, or unload and load the modules, so that the versions match",
        )
    })
}

fn health(device: &DevicePoll) -> PreflightCheck {
    let check = |class| PreflightCheck::new("gpu", device.address.clone(), class);
    let reading = |name: &str| device.readings.get(name).copied().filter(|value| *value > 0.0);
    if let Some(problem) = &device.lost {
        return check(classes::GPU_FALLEN_OFF_BUS).bad(
            CheckVerdict::Fail,
            problem.clone(),
            "drain the node and power-cycle it; if the failure recurs, replace the GPU",
        );
    }
    if device.readings.is_empty() {
        return check(classes::GPU_UNAVAILABLE).bad(
            CheckVerdict::Unknown,
            "listed, but without readings",
            "check the permissions of this user, and the devices of the container",
        );
    }
    if reading("gpu.repair_failed").is_some() {
        return check(classes::GPU_ROW_REMAP_FAILURE).bad(
            CheckVerdict::Fail,
            "memory rows could not be remapped",
            "replace the GPU",
        );
    }
    if reading("gpu.repair_pending").is_some() {
        return check(classes::GPU_ROW_REMAP_PENDING).bad(
            CheckVerdict::Warn,
            "a memory repair is pending until a reset",
            "reset the GPU before the job: `nvidia-smi --gpu-reset -i ID`, or reboot",
        );
    }
    match reading("gpu.ecc_uncorrected") {
        Some(count) => check(classes::GPU_ECC_UNCORRECTABLE).bad(
            CheckVerdict::Warn,
            format!("{count} uncorrectable memory errors since the driver was loaded"),
            "reset the GPU; replace it if errors recur",
        ),
        None => check(classes::GPU_ECC_UNCORRECTABLE).ok("responds, no pending repairs"),
    }
}

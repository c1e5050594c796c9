//! GPUs, their driver and their library: asked once, read-only, on a thread that may be left behind.

use std::path::Path;

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::{NVML_FI_DEV_REMAPPED_FAILURE, NVML_FI_DEV_REMAPPED_PENDING};

use super::probe::Probe;
use super::{Check, Need, Verdict};

/// What the library told.
pub(super) struct Told {
    driver: Option<String>,
    devices: Vec<Device>,
}

/// One GPU. What it does not support is absent.
#[derive(Default)]
struct Device {
    name: String,
    /// Why it does not answer.
    lost: Option<String>,
    uncorrected: Option<u64>,
    repair_pending: bool,
    repair_failed: bool,
}

pub(super) type Asked = Probe<Result<Told, NvmlError>>;

pub(super) fn start(need: &Need) -> Asked {
    let library = need.nvml_library.clone();
    Probe::start(move || ask(library.as_deref()))
}

fn ask(library: Option<&Path>) -> Result<Told, NvmlError> {
    let nvml = match library {
        Some(path) => Nvml::builder().lib_path(path.as_os_str()).init()?,
        None => Nvml::init()?,
    };
    let count = nvml.device_count()?;
    Ok(Told {
        driver: nvml.sys_driver_version().ok(),
        devices: (0..count).map(|index| device(&nvml, index)).collect(),
    })
}

fn device(nvml: &Nvml, index: u32) -> Device {
    let handle = match nvml.device_by_index(index) {
        Ok(handle) => handle,
        Err(problem) => {
            return Device {
                name: format!("index {index}"),
                lost: Some(problem.to_string()),
                ..Device::default()
            };
        }
    };
    let address = handle.pci_info().map(|info| info.bus_id.to_ascii_lowercase());
    let fields = handle.field_values_for(&[
        FieldId(NVML_FI_DEV_REMAPPED_PENDING),
        FieldId(NVML_FI_DEV_REMAPPED_FAILURE),
    ]);
    let flag = |at: usize| {
        let sample = fields.as_ref().ok()?.get(at)?.as_ref().ok()?;
        match sample.value.as_ref().ok()? {
            SampleValue::U32(value) => Some(*value > 0),
            SampleValue::U64(value) => Some(*value > 0),
            SampleValue::I64(value) => Some(*value > 0),
            SampleValue::F64(value) => Some(*value > 0.0),
        }
    };
    let retired = handle.are_pages_pending_retired().unwrap_or(false);
    // Its memory size is what every GPU can tell as long as it can tell anything.
    let lost = match handle.memory_info() {
        Err(problem @ (NvmlError::GpuLost | NvmlError::Unknown | NvmlError::Uninitialized)) => {
            Some(problem.to_string())
        }
        _ => None,
    };
    Device {
        name: address.unwrap_or_else(|_| format!("index {index}")),
        lost,
        uncorrected: handle
            .total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile)
            .ok(),
        repair_pending: retired || flag(0).unwrap_or(false),
        repair_failed: flag(1).unwrap_or(false),
    }
}

pub(super) fn finish(asked: Asked, need: &Need) -> Vec<Check> {
    let count = Check::new("gpus", "all", "gpu-unavailable");
    let kernel = kernel_driver(need);
    let told = match asked.wait(need.deadline) {
        Err(_) => {
            return vec![count.of_class("gpu-driver-fault").bad(
                Verdict::Fail,
                format!(
                    "the management library did not answer within {} s",
                    need.deadline.as_secs_f64()
                ),
                "the driver hangs: look for Xid 119 or 120 in `dmesg`, drain the node and reset the GPUs or reboot",
            )];
        }
        Ok(told) => told,
    };
    let told = match told {
        Ok(told) => told,
        Err(problem) => return vec![absent(count, &problem, kernel.as_deref(), need)],
    };
    let mut checks = vec![enough(count, &told, need)];
    checks.extend(driver(&told, kernel.as_deref()));
    checks.extend(told.devices.iter().map(health));
    checks
}

/// The version of the kernel's part of the driver, as it says itself.
pub(super) fn kernel_driver(need: &Need) -> Option<String> {
    let text = std::fs::read_to_string(need.proc_root.join("driver/nvidia/version")).ok()?;
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    // "... Kernel Module  535.104.05  Sat Aug ...", or "... Open Kernel Module for x86_64  550.54.14  Release Build ..."
    let version = |word: &&str| word.contains('.') && word.split('.').all(|part| part.parse::<u32>().is_ok());
    line.split_ascii_whitespace().find(version).map(str::to_owned)
}

/// No library, or one that does not start.
fn absent(count: Check, problem: &NvmlError, kernel: Option<&str>, need: &Need) -> Check {
    let wanted = need.gpus.filter(|wanted| *wanted > 0);
    if matches!(problem, NvmlError::LibRmVersionMismatch) {
        return count.of_class("driver-version-mismatch").bad(
            Verdict::Fail,
            format!(
                "the library does not fit the loaded driver {}",
                kernel.unwrap_or("of unknown version")
            ),
            "the driver was updated under a running kernel: reboot, or unload and load its modules",
        );
    }
    match (wanted, kernel) {
        (None, None) => count.ok(format!("no GPU here: {problem}")),
        (None, Some(kernel)) => count.bad(
            Verdict::Unknown,
            format!("the driver {kernel} is loaded but its management library does not start: {problem}"),
            "install the library of the same version; --nvml-library names it",
        ),
        (Some(wanted), _) => count.bad(
            Verdict::Fail,
            format!("{wanted} are wanted; none can be asked: {problem}"),
            "is the driver installed and loaded? in a container, was it started with GPUs?",
        ),
    }
}

fn enough(count: Check, told: &Told, need: &Need) -> Check {
    let there = told.devices.iter().filter(|device| device.lost.is_none()).count();
    match need.gpus {
        Some(wanted) if there < wanted as usize => count.bad(
            Verdict::Fail,
            format!("{there} answer; {wanted} are wanted"),
            "`nvidia-smi -L` lists them; one that is missing may have fallen off the bus (Xid 79 in `dmesg`)",
        ),
        _ => count.ok(format!("{there} answer")),
    }
}

fn driver(told: &Told, kernel: Option<&str>) -> Option<Check> {
    let (library, kernel) = (told.driver.as_deref()?, kernel?);
    let check = Check::new("gpu-driver", library, "driver-version-mismatch");
    Some(if library == kernel {
        check.ok("library and kernel module are of one version")
    } else {
        check.bad(
            Verdict::Fail,
            format!("the library is of {library}, the kernel module of {kernel}"),
            "reboot, or unload and load the modules, so that both are of one version",
        )
    })
}

fn health(device: &Device) -> Check {
    let check = |class| Check::new("gpu", device.name.clone(), class);
    if let Some(problem) = &device.lost {
        return check("gpu-fallen-off-bus").bad(
            Verdict::Fail,
            problem.clone(),
            "drain the node and power it off and on; if it comes back, have the GPU looked at",
        );
    }
    if device.repair_failed {
        return check("gpu-row-remap-failure").bad(
            Verdict::Fail,
            "memory rows could not be remapped",
            "have the GPU replaced",
        );
    }
    if device.repair_pending {
        return check("gpu-row-remap-pending").bad(
            Verdict::Warn,
            "a repair of its memory waits for a reset",
            "reset the GPU before the job: `nvidia-smi --gpu-reset -i ID`, or reboot",
        );
    }
    match device.uncorrected {
        Some(count) if count > 0 => check("gpu-ecc-uncorrectable").bad(
            Verdict::Warn,
            format!("{count} uncorrectable memory errors since the driver was loaded"),
            "reset the GPU, and watch whether they come back",
        ),
        _ => check("gpu-ecc-uncorrectable").ok("it answers, without pending repairs"),
    }
}

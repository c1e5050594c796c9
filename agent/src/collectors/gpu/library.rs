//! The calls themselves. Runs on the worker thread only.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::device::Device;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError, TemperatureSensor, TemperatureThreshold};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::{NVML_FI_DEV_REMAPPED_FAILURE, NVML_FI_DEV_REMAPPED_PENDING};

use super::{Answer, Current, DeviceLook};

/// The loaded library, and what is remembered of the devices in case they stop answering.
pub(super) struct Library {
    nvml: Nvml,
    /// Addresses by index, as the last look at that index told.
    by_index: BTreeMap<u32, String>,
}

impl Library {
    pub(super) fn load(path: Option<&Path>, current: &Current) -> Result<Self, String> {
        let name = path.map_or_else(|| "libnvidia-ml.so.1".to_owned(), |path| path.display().to_string());
        let loaded = named(current, "load and initialise the library".to_owned(), || match path {
            Some(path) => Nvml::builder().lib_path(path.as_os_str()).init(),
            None => Nvml::init(),
        });
        let nvml = loaded.map_err(|error| match error {
            NvmlError::LibloadingError(problem) => format!("cannot load {name}: {problem}"),
            other => format!("{name} does not start: {other}"),
        })?;
        Ok(Self {
            nvml,
            by_index: BTreeMap::new(),
        })
    }

    pub(super) fn look(&mut self, current: &Current) -> Answer {
        let count = match named(current, "count the devices".to_owned(), || self.nvml.device_count()) {
            Ok(count) => count,
            Err(error) => return Answer::Absent(format!("the management library cannot count devices: {error}")),
        };
        let mut looks: Vec<DeviceLook> = (0..count).map(|index| self.device(index, current)).collect();
        // A device that is not listed any more may have stood anywhere: the others move up. What is there is named first.
        let listed: BTreeSet<&str> = looks.iter().map(|look| look.address.as_str()).collect();
        let gone: BTreeSet<String> = self
            .by_index
            .values()
            .filter(|address| !listed.contains(address.as_str()))
            .cloned()
            .collect();
        let mut by_index: BTreeMap<u32, String> = BTreeMap::new();
        for (index, look) in (0..count).zip(&looks) {
            by_index.insert(index, look.address.clone());
        }
        // It is remembered behind the others, until it is listed again.
        for (index, address) in (count..).zip(&gone) {
            by_index.insert(index, address.clone());
        }
        self.by_index = by_index;
        looks.extend(gone.into_iter().map(|address| DeviceLook {
            address,
            lost: Some("the library does not list it any more".to_owned()),
            ..DeviceLook::default()
        }));
        Answer::Devices(looks)
    }

    fn device(&self, index: u32, current: &Current) -> DeviceLook {
        let known = self.by_index.get(&index).cloned();
        let mut look = DeviceLook {
            address: known.unwrap_or_else(|| format!("index {index}")),
            ..DeviceLook::default()
        };
        if let Err(NvmlError::GpuLost) = self.read(index, &mut look, current) {
            look.lost = Some("GPU is lost: it has fallen off the bus or is otherwise inaccessible".to_owned());
        }
        look
    }

    /// Only "lost" is a finding. A device that may not be asked, or not now, is not known, which is no fault of it.
    fn read(&self, index: u32, look: &mut DeviceLook, current: &Current) -> Result<(), NvmlError> {
        let who = look.address.clone();
        let handle = named(current, format!("get device {who}"), || {
            self.nvml.device_by_index(index)
        });
        let Some(device) = optional(handle)? else { return Ok(()) };
        let info = named(current, format!("read the PCI address of device {who}"), || {
            device.pci_info()
        });
        if let Some(info) = optional(info)? {
            look.address = pci_address(&info.bus_id);
        }
        read(&device, look, current)
    }
}

/// Reads what the device supports; ends early only when it is lost.
fn read(device: &Device<'_>, look: &mut DeviceLook, current: &Current) -> Result<(), NvmlError> {
    let who = look.address.clone();
    let call = |what: &str| format!("read {what} of device {who}");
    look.temperature = optional(named(current, call("the temperature"), || {
        device.temperature(TemperatureSensor::Gpu)
    }))?
    .map(f64::from);
    look.slowdown = optional(named(current, call("the slowdown temperature"), || {
        device.temperature_threshold(TemperatureThreshold::Slowdown)
    }))?
    .map(f64::from);
    look.uncorrected = optional(named(current, call("the ECC errors"), || {
        device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile)
    }))?
    .map(|count| count as f64);
    let retired = optional(named(current, call("the retired pages"), || {
        device.are_pages_pending_retired()
    }))?;
    let fields = optional(named(current, call("the remapped rows"), || {
        device.field_values_for(&[
            FieldId(NVML_FI_DEV_REMAPPED_PENDING),
            FieldId(NVML_FI_DEV_REMAPPED_FAILURE),
        ])
    }))?;
    let flag = |position: usize| {
        let sample = fields.as_ref()?.get(position)?.as_ref().ok()?;
        match sample.value.as_ref().ok()? {
            SampleValue::U32(value) => Some(*value > 0),
            SampleValue::U64(value) => Some(*value > 0),
            SampleValue::I64(value) => Some(*value > 0),
            SampleValue::F64(value) => Some(*value > 0.0),
        }
    };
    look.repair_pending = match (retired, flag(0)) {
        (None, None) => None,
        (retired, remapped) => Some(retired.unwrap_or(false) || remapped.unwrap_or(false)),
    };
    look.repair_failed = flag(1);
    let reasons = optional(named(current, call("the clock limits"), || {
        device.current_throttle_reasons()
    }))?;
    look.thermal_slowdown = reasons.map(|reasons| reasons.contains(ThrottleReasons::HW_THERMAL_SLOWDOWN));
    look.power_brake = reasons.map(|reasons| reasons.contains(ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN));
    Ok(())
}

/// Leaves a note of the call that is made, for the case that it never returns.
fn named<T>(current: &Current, what: String, call: impl FnOnce() -> T) -> T {
    *current.lock().expect("no holder of the call's name panics") = Some(what);
    let result = call();
    *current.lock().expect("no holder of the call's name panics") = None;
    result
}

/// A lost device is a finding; everything else a device cannot tell is simply not known.
fn optional<T>(result: Result<T, NvmlError>) -> Result<Option<T>, NvmlError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(NvmlError::GpuLost) => Err(NvmlError::GpuLost),
        Err(_) => Ok(None),
    }
}

/// `00000000:9B:00.0` as `0000:9b:00`: the form in which the kernel log names devices.
fn pci_address(bus_id: &str) -> String {
    let lower = bus_id.trim().to_ascii_lowercase();
    let no_function = lower.rsplit_once('.').map_or(lower.as_str(), |(address, _)| address);
    match no_function.split_once(':') {
        Some((domain, rest)) if domain.len() > 4 => {
            let cut = domain.len() - 4;
            format!("{}:{rest}", domain.get(cut..).unwrap_or(domain))
        }
        _ => no_function.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_form_of_the_kernel_log() {
        assert_eq!(pci_address("00000000:9B:00.0"), "0000:9b:00");
        assert_eq!(pci_address("0000:1b:00.0"), "0000:1b:00");
        assert_eq!(pci_address("00010000:1B:00"), "0000:1b:00");
        assert_eq!(pci_address(""), "");
    }
}

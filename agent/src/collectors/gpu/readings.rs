//! What one device tells, by name. Every reading is optional: devices and drivers differ in what they have.

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::device::Device;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, PerformancePolicy, TemperatureSensor, TemperatureThreshold,
};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::{
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS, NVML_FI_DEV_NVLINK_ERROR_DL_CRC,
    NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY, NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY, NVML_FI_DEV_NVLINK_LINK_COUNT,
    NVML_FI_DEV_PCIE_REPLAY_COUNTER, NVML_FI_DEV_REMAPPED_COR, NVML_FI_DEV_REMAPPED_FAILURE,
    NVML_FI_DEV_REMAPPED_PENDING, NVML_FI_DEV_REMAPPED_UNC, NVML_FI_DEV_RETIRED_DBE, NVML_FI_DEV_RETIRED_SBE,
};

use super::library::{Current, optional};
use super::look::DeviceLook;

/// What is read as fields: all of them in one call.
const FIELDS: [(u32, &str); 12] = [
    (NVML_FI_DEV_RETIRED_SBE, "gpu.retired_corrected"),
    (NVML_FI_DEV_RETIRED_DBE, "gpu.retired_uncorrected"),
    (NVML_FI_DEV_PCIE_REPLAY_COUNTER, "gpu.pcie_replays"),
    (NVML_FI_DEV_REMAPPED_COR, "gpu.remapped_corrected"),
    (NVML_FI_DEV_REMAPPED_UNC, "gpu.remapped_uncorrected"),
    (NVML_FI_DEV_REMAPPED_PENDING, "gpu.repair_pending"),
    (NVML_FI_DEV_REMAPPED_FAILURE, "gpu.repair_failed"),
    (NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY, "gpu.nvlink_replays"),
    (NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY, "gpu.nvlink_recoveries"),
    (NVML_FI_DEV_NVLINK_ERROR_DL_CRC, "gpu.nvlink_crc_errors"),
    (NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS, "gpu.nvlink_receive_errors"),
    (NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, "gpu.recovery_action"),
];

/// More links than any device has; what a driver tells is foreign.
const LINKS_MAX: u32 = 64;

/// Reads what the device supports; ends early only when it is lost.
pub(super) fn read(device: &Device<'_>, look: &mut DeviceLook, current: &Current) -> Result<(), NvmlError> {
    let mut reader = Reader { look, current };
    memory(device, &mut reader)?;
    heat(device, &mut reader)?;
    speed(device, &mut reader)?;
    let reasons = reader.call("the clock limits", || device.current_throttle_reasons())?;
    if let Some(reasons) = reasons {
        let says = |reason| f64::from(u8::from(reasons.contains(reason)));
        reader.put("gpu.thermal_slowdown", says(ThrottleReasons::HW_THERMAL_SLOWDOWN));
        reader.put("gpu.power_brake", says(ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN));
    }
    reader.number("the processes", "gpu.processes", || {
        device.running_compute_processes_count()
    })?;
    reader.number("the MIG mode", "gpu.mig", || device.mig_mode().map(|mode| mode.current))?;
    fields(device, &mut reader)
}

fn memory(device: &Device<'_>, reader: &mut Reader<'_>) -> Result<(), NvmlError> {
    for (name, kind, counter) in [
        ("gpu.ecc_uncorrected", MemoryError::Uncorrected, EccCounter::Volatile),
        ("gpu.ecc_corrected", MemoryError::Corrected, EccCounter::Volatile),
        (
            "gpu.ecc_uncorrected_of_life",
            MemoryError::Uncorrected,
            EccCounter::Aggregate,
        ),
        (
            "gpu.ecc_corrected_of_life",
            MemoryError::Corrected,
            EccCounter::Aggregate,
        ),
    ] {
        let found = reader.call("the ECC errors", || device.total_ecc_errors(kind, counter))?;
        if let Some(count) = found {
            reader.put(name, count as f64);
        }
    }
    let pending = reader.call("the retired pages", || device.are_pages_pending_retired())?;
    if let Some(pending) = pending {
        reader.put("gpu.retirement_pending", f64::from(u8::from(pending)));
    }
    Ok(())
}

fn heat(device: &Device<'_>, reader: &mut Reader<'_>) -> Result<(), NvmlError> {
    reader.number("the temperature", "gpu.temperature", || {
        device.temperature(TemperatureSensor::Gpu)
    })?;
    reader.number("the slowdown temperature", "gpu.slowdown_temperature", || {
        device.temperature_threshold(TemperatureThreshold::Slowdown)
    })?;
    if let (Some(now), Some(limit)) = (reader.get("gpu.temperature"), reader.get("gpu.slowdown_temperature")) {
        reader.put("gpu.temperature_margin", limit - now);
    }
    reader.number("the power", "gpu.power_milliwatts", || device.power_usage())?;
    reader.number("the power limit", "gpu.power_limit_milliwatts", || {
        device.enforced_power_limit()
    })?;
    for (name, policy) in [
        ("gpu.throttled_by_power_s", PerformancePolicy::Power),
        ("gpu.throttled_by_heat_s", PerformancePolicy::Thermal),
        ("gpu.throttled_by_board_s", PerformancePolicy::BoardLimit),
    ] {
        let time = reader.call("the throttled time", || device.violation_status(policy))?;
        if let Some(time) = time {
            // The interface counts it in nanoseconds.
            reader.put(name, time.violation_time as f64 / 1e9);
        }
    }
    Ok(())
}

fn speed(device: &Device<'_>, reader: &mut Reader<'_>) -> Result<(), NvmlError> {
    let what = "the PCIe link";
    reader.number(what, "gpu.pcie_generation", || device.current_pcie_link_gen())?;
    reader.number(what, "gpu.pcie_generation_max", || device.max_pcie_link_gen())?;
    reader.number(what, "gpu.pcie_width", || device.current_pcie_link_width())?;
    reader.number(what, "gpu.pcie_width_max", || device.max_pcie_link_width())?;
    reader.number("the clock", "gpu.clock_mhz", || device.clock_info(Clock::SM))?;
    reader.number("the highest clock", "gpu.clock_max_mhz", || {
        device.max_clock_info(Clock::SM)
    })?;
    reader.number("the utilization", "gpu.utilization_percent", || {
        device.utilization_rates().map(|rates| rates.gpu)
    })
}

fn fields(device: &Device<'_>, reader: &mut Reader<'_>) -> Result<(), NvmlError> {
    let mut wanted: Vec<FieldId> = FIELDS.iter().map(|(field, _)| FieldId(*field)).collect();
    wanted.push(FieldId(NVML_FI_DEV_NVLINK_LINK_COUNT));
    let Some(found) = reader.call("the fields", || device.field_values_for(&wanted))? else {
        return Ok(());
    };
    let value = |position: usize| -> Option<f64> {
        match found.get(position)?.as_ref().ok()?.value.as_ref().ok()? {
            SampleValue::U32(value) => Some(f64::from(*value)),
            SampleValue::U64(value) => Some(*value as f64),
            SampleValue::I64(value) => Some(*value as f64),
            SampleValue::F64(value) => Some(*value),
        }
    };
    for (position, (_, name)) in FIELDS.iter().enumerate() {
        if let Some(value) = value(position) {
            reader.put(name, value);
        }
    }
    let links = value(FIELDS.len()).map_or(0, |count| count as u32).min(LINKS_MAX);
    let mut active = None;
    for link in 0..links {
        let state = reader.call("the NVLink state", || device.link_wrapper_for(link).is_active())?;
        if let Some(state) = state {
            active = Some(active.unwrap_or(0.0) + f64::from(u8::from(state)));
        }
    }
    if let Some(active) = active {
        reader.put("gpu.nvlinks_active", active);
    }
    Ok(())
}

/// One device being read.
struct Reader<'a> {
    look: &'a mut DeviceLook,
    current: &'a Current,
}

impl Reader<'_> {
    fn call<T>(&self, what: &str, call: impl FnOnce() -> Result<T, NvmlError>) -> Result<Option<T>, NvmlError> {
        let named = format!("read {what} of device {}", self.look.address);
        optional(self.current.during(named, call))
    }

    fn number(
        &mut self,
        what: &str,
        name: &str,
        call: impl FnOnce() -> Result<u32, NvmlError>,
    ) -> Result<(), NvmlError> {
        if let Some(value) = self.call(what, call)? {
            self.put(name, f64::from(value));
        }
        Ok(())
    }

    fn put(&mut self, name: &str, value: f64) {
        self.look.readings.insert(name.to_owned(), value);
    }

    fn get(&self, name: &str) -> Option<f64> {
        self.look.readings.get(name).copied()
    }
}

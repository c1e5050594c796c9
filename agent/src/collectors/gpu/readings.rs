//! Readings of one device by metric name. Each is optional, because devices and drivers differ.

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::device::Device;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, PerformancePolicy, TemperatureSensor, TemperatureThreshold,
};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::sys_exports::field_id::{
    NVML_FI_DEV_C2C_LINK_COUNT, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, NVML_FI_DEV_MEMORY_TEMP,
    NVML_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS, NVML_FI_DEV_PCIE_COUNT_FATAL_ERROR,
    NVML_FI_DEV_PCIE_COUNT_NON_FATAL_ERROR, NVML_FI_DEV_PCIE_L0_TO_RECOVERY_COUNTER, NVML_FI_DEV_PCIE_REPLAY_COUNTER,
    NVML_FI_DEV_REMAPPED_COR, NVML_FI_DEV_REMAPPED_FAILURE, NVML_FI_DEV_REMAPPED_PENDING, NVML_FI_DEV_REMAPPED_UNC,
    NVML_FI_DEV_RETIRED_DBE, NVML_FI_DEV_RETIRED_SBE,
};

use super::c2c;
use super::fields::{self, FieldScope};
use super::reader::DeviceReader;

/// Fields that are read in one call.
const FIELDS: [(u32, &str); 14] = [
    (NVML_FI_DEV_RETIRED_SBE, "gpu.retired_corrected"),
    (NVML_FI_DEV_RETIRED_DBE, "gpu.retired_uncorrected"),
    (NVML_FI_DEV_MEMORY_TEMP, "gpu.memory_temperature"),
    (NVML_FI_DEV_PCIE_REPLAY_COUNTER, "gpu.pcie_replays"),
    (NVML_FI_DEV_REMAPPED_COR, "gpu.remapped_corrected"),
    (NVML_FI_DEV_REMAPPED_UNC, "gpu.remapped_uncorrected"),
    (NVML_FI_DEV_REMAPPED_PENDING, "gpu.repair_pending"),
    (NVML_FI_DEV_REMAPPED_FAILURE, "gpu.repair_failed"),
    (NVML_FI_DEV_PCIE_L0_TO_RECOVERY_COUNTER, "gpu.pcie_recoveries"),
    (NVML_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS, "gpu.pcie_corrected_errors"),
    (NVML_FI_DEV_PCIE_COUNT_NON_FATAL_ERROR, "gpu.pcie_nonfatal_errors"),
    (NVML_FI_DEV_PCIE_COUNT_FATAL_ERROR, "gpu.pcie_fatal_errors"),
    (NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, "gpu.recovery_action"),
    (NVML_FI_DEV_C2C_LINK_COUNT, c2c::LINKS),
];

/// Reads everything except links, fabric and partitions; ends early only if the device is lost.
pub(super) fn read(device: &Device<'_>, reader: &mut DeviceReader<'_>) -> Result<(), NvmlError> {
    memory(device, reader)?;
    heat(device, reader)?;
    speed(device, reader)?;
    let reasons = reader.call("read the clock limits", || device.current_throttle_reasons())?;
    if let Some(reasons) = reasons {
        reader.put_bool(
            "gpu.thermal_slowdown",
            reasons.contains(ThrottleReasons::HW_THERMAL_SLOWDOWN),
        );
        reader.put_bool(
            "gpu.power_brake",
            reasons.contains(ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN),
        );
    }
    reader.number("read the processes", "gpu.processes", || {
        device.running_compute_processes_count()
    })?;
    let wanted = FIELDS.map(|(field, _)| (field, FieldScope::Device));
    let found = reader.call("read the fields", || fields::values(device, &wanted))?;
    for ((_, name), value) in FIELDS.iter().zip(found.unwrap_or_default()) {
        if let Some(value) = value {
            reader.put(name, value);
        }
    }
    Ok(())
}

fn memory(device: &Device<'_>, reader: &mut DeviceReader<'_>) -> Result<(), NvmlError> {
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
        let found = reader.call("read the ECC errors", || device.total_ecc_errors(kind, counter))?;
        if let Some(count) = found {
            reader.put(name, count as f64);
        }
    }
    let pending = reader.call("read the retired pages", || device.are_pages_pending_retired())?;
    if let Some(pending) = pending {
        reader.put_bool("gpu.retirement_pending", pending);
    }
    Ok(())
}

fn heat(device: &Device<'_>, reader: &mut DeviceReader<'_>) -> Result<(), NvmlError> {
    reader.number("read the temperature", "gpu.temperature", || {
        device.temperature(TemperatureSensor::Gpu)
    })?;
    reader.number("read the slowdown temperature", "gpu.slowdown_temperature", || {
        device.temperature_threshold(TemperatureThreshold::Slowdown)
    })?;
    if let (Some(now), Some(limit)) = (reader.get("gpu.temperature"), reader.get("gpu.slowdown_temperature")) {
        reader.put("gpu.temperature_margin", limit - now);
    }
    let limit = "gpu.memory_temperature_limit";
    reader.number("read the memory's temperature limit", limit, || {
        device.temperature_threshold(TemperatureThreshold::MemoryMax)
    })?;
    reader.number("read the power", "gpu.power_milliwatts", || device.power_usage())?;
    reader.number("read the power limit", "gpu.power_limit_milliwatts", || {
        device.enforced_power_limit()
    })?;
    for (name, policy) in [
        ("gpu.throttled_by_power_s", PerformancePolicy::Power),
        ("gpu.throttled_by_heat_s", PerformancePolicy::Thermal),
        ("gpu.throttled_by_board_s", PerformancePolicy::BoardLimit),
    ] {
        let time = reader.call("read the throttled time", || device.violation_status(policy))?;
        if let Some(time) = time {
            // The library counts nanoseconds.
            reader.put(name, time.violation_time as f64 / 1e9);
        }
    }
    Ok(())
}

fn speed(device: &Device<'_>, reader: &mut DeviceReader<'_>) -> Result<(), NvmlError> {
    let what = "read the PCIe link";
    reader.number(what, "gpu.pcie_generation", || device.current_pcie_link_gen())?;
    reader.number(what, "gpu.pcie_generation_max", || device.max_pcie_link_gen())?;
    reader.number(what, "gpu.pcie_width", || device.current_pcie_link_width())?;
    reader.number(what, "gpu.pcie_width_max", || device.max_pcie_link_width())?;
    reader.number("read the clock", "gpu.clock_mhz", || device.clock_info(Clock::SM))?;
    reader.number("read the highest clock", "gpu.clock_max_mhz", || {
        device.max_clock_info(Clock::SM)
    })?;
    reader.number("read the utilization", "gpu.utilization_percent", || {
        device.utilization_rates().map(|rates| rates.gpu)
    })
}

//! Functions for one device that every driver of the last ten years has.
//!
//! Values: temperature, slowdown (degrees Celsius); ecc, ecc-corrected (since the driver was loaded), ecc-aggregate,
//! ecc-corrected-aggregate (of the board's life); pending; reasons (bits); power, power-limit (milliwatts); pcie-gen,
//! pcie-gen-max, pcie-width, pcie-width-max; clock, clock-max (megahertz); utilization (percent); processes; mig,
//! mig-pending; memory-limit (degrees Celsius).

use std::ffi::{c_char, c_uint, c_ulonglong};

use crate::{DeviceHandle, NOT_SUPPORTED, enter, of_any, of_device, put, put_narrow};

/// `NVML_ERROR_INSUFFICIENT_SIZE`: the caller requests the required size.
const INSUFFICIENT_SIZE: c_uint = 7;

#[repr(C)]
struct PciInfo {
    bus_id_legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    pci_device_id: c_uint,
    pci_subsystem_id: c_uint,
    bus_id: [c_char; 32],
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPciInfo_v3(device: DeviceHandle, info: *mut PciInfo) -> c_uint {
    let found = enter("address", device).map(|(now, index)| {
        let bus = now
            .word("address", &index)
            .map_or_else(|| format!("{index:0>2}"), str::to_owned);
        let mut bus_id = [0; 32];
        for (to, from) in bus_id.iter_mut().zip(format!("00000000:{bus}:00.0").bytes().take(31)) {
            *to = from as c_char;
        }
        PciInfo {
            bus_id_legacy: [0; 16],
            domain: 0,
            bus: 0,
            device: 0,
            pci_device_id: 0,
            pci_subsystem_id: 0,
            bus_id,
        }
    });
    put(found, info)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTemperature(device: DeviceHandle, _sensor: c_uint, value: *mut c_uint) -> c_uint {
    put_narrow(of_device("temperature", device), value)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTemperatureThreshold(device: DeviceHandle, kind: c_uint, value: *mut c_uint) -> c_uint {
    let found = match kind {
        1 => of_device("slowdown", device),
        2 => of_device("memory-limit", device),
        _ => Err(NOT_SUPPORTED),
    };
    put_narrow(found, value)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTotalEccErrors(
    device: DeviceHandle,
    kind: c_uint,
    counter: c_uint,
    value: *mut c_ulonglong,
) -> c_uint {
    let name = match (kind, counter) {
        (0, 0) => "ecc-corrected",
        (0, _) => "ecc-corrected-aggregate",
        (_, 0) => "ecc",
        _ => "ecc-aggregate",
    };
    put(of_device(name, device), value)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetRetiredPagesPendingStatus(device: DeviceHandle, value: *mut c_uint) -> c_uint {
    put_narrow(of_device("pending", device), value)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCurrentClocksThrottleReasons(device: DeviceHandle, reasons: *mut c_ulonglong) -> c_uint {
    put(of_device("reasons", device), reasons)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPowerUsage(device: DeviceHandle, value: *mut c_uint) -> c_uint {
    put_narrow(of_device("power", device), value)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetEnforcedPowerLimit(device: DeviceHandle, value: *mut c_uint) -> c_uint {
    put_narrow(of_device("power-limit", device), value)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCurrPcieLinkGeneration(device: DeviceHandle, value: *mut c_uint) -> c_uint {
    put_narrow(of_device("pcie-gen", device), value)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxPcieLinkGeneration(device: DeviceHandle, value: *mut c_uint) -> c_uint {
    put_narrow(of_device("pcie-gen-max", device), value)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCurrPcieLinkWidth(device: DeviceHandle, value: *mut c_uint) -> c_uint {
    put_narrow(of_device("pcie-width", device), value)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxPcieLinkWidth(device: DeviceHandle, value: *mut c_uint) -> c_uint {
    put_narrow(of_device("pcie-width-max", device), value)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetClockInfo(device: DeviceHandle, _clock: c_uint, value: *mut c_uint) -> c_uint {
    put_narrow(of_device("clock", device), value)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxClockInfo(device: DeviceHandle, _clock: c_uint, value: *mut c_uint) -> c_uint {
    put_narrow(of_device("clock-max", device), value)
}

#[repr(C)]
struct UtilizationRates {
    gpu: c_uint,
    memory: c_uint,
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUtilizationRates(device: DeviceHandle, value: *mut UtilizationRates) -> c_uint {
    let found = of_device("utilization", device).map(|gpu| UtilizationRates {
        gpu: c_uint::try_from(gpu).unwrap_or(c_uint::MAX),
        memory: 0,
    });
    put(found, value)
}

/// Accepts a device or a MIG device. Returns only the number of processes: callers that only count pass no buffer.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: DeviceHandle,
    count: *mut c_uint,
    _processes: *mut std::ffi::c_void,
) -> c_uint {
    match of_any("processes", device) {
        Ok(0) => put(Ok(0), count),
        Ok(found) => match put_narrow(Ok(found), count) {
            0 => INSUFFICIENT_SIZE,
            code => code,
        },
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigMode(device: DeviceHandle, current: *mut c_uint, pending: *mut c_uint) -> c_uint {
    let mode = of_device("mig", device);
    match put_narrow(mode, current) {
        0 => put_narrow(of_device("mig-pending", device).or(mode), pending),
        code => code,
    }
}

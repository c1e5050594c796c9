//! Functions for one device that later drivers added.
//!
//! Values: nvlinks, nvlink-down (per link); throttled-power, throttled-thermal, throttled-board (nanoseconds); fabric
//! (state), fabric-status, fabric-health (mask), fabric-summary.

use std::ffi::{c_uint, c_ulonglong};

use crate::{DeviceHandle, INVALID_ARGUMENT, NOT_SUPPORTED, enter, of_device, put};

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkState(device: DeviceHandle, link: c_uint, active: *mut c_uint) -> c_uint {
    let found = enter("nvlink", device).and_then(|(now, index)| {
        if u64::from(link) >= now.value("nvlinks", &index)? {
            return Err(INVALID_ARGUMENT);
        }
        let down = now.says(&["nvlink-down", &index, &link.to_string()]);
        Ok(c_uint::from(!down))
    });
    put(found, active)
}

#[repr(C)]
struct ViolationTime {
    reference_time: c_ulonglong,
    violation_time: c_ulonglong,
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetViolationStatus(device: DeviceHandle, policy: c_uint, value: *mut ViolationTime) -> c_uint {
    let name = match policy {
        0 => "throttled-power",
        1 => "throttled-thermal",
        3 => "throttled-board",
        _ => return NOT_SUPPORTED,
    };
    let found = of_device(name, device).map(|violation_time| ViolationTime {
        reference_time: 0,
        violation_time,
    });
    put(found, value)
}

/// `NVML_ERROR_ARGUMENT_VERSION_MISMATCH`.
const VERSION_MISMATCH: c_uint = 25;

/// Version 2 of the structure, with which version 3 begins.
#[repr(C)]
struct FabricInfo {
    version: c_uint,
    cluster: [u8; 16],
    status: c_uint,
    clique: c_uint,
    state: u8,
    health: c_uint,
}

#[repr(C)]
struct FabricInfo3 {
    second: FabricInfo,
    summary: u8,
}

/// Supports version 3 if the scenario states a summary, else only version 2.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuFabricInfoV(device: DeviceHandle, info: *mut FabricInfo) -> c_uint {
    let (now, index) = match enter("fabric", device) {
        Ok(entered) => entered,
        Err(code) => return code,
    };
    let Ok(state) = now.value("fabric", &index) else {
        return NOT_SUPPORTED;
    };
    let value = |name: &str| now.value(name, &index).map_or(0, |value| value as c_uint);
    let summary = now.value("fabric-summary", &index).ok();
    // SAFETY: the caller's pointer, valid by the interface's contract; the version is the first word of every form.
    let version = unsafe { (*info).version };
    let of = |number: c_uint, size: usize| number << 24 | size as c_uint;
    let second = FabricInfo {
        version,
        cluster: [0; 16],
        status: value("fabric-status"),
        clique: 0,
        state: state as u8,
        health: value("fabric-health"),
    };
    match summary {
        Some(summary) if version == of(3, size_of::<FabricInfo3>()) => {
            let summary = summary as u8;
            put(Ok(FabricInfo3 { second, summary }), info.cast::<FabricInfo3>())
        }
        _ if version == of(2, size_of::<FabricInfo>()) => put(Ok(second), info),
        _ => VERSION_MISMATCH,
    }
}

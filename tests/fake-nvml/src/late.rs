//! Calls about one device that came with later drivers.
//!
//! Values: nvlinks, nvlink-down (a link); throttled-power, throttled-thermal, throttled-board (nanoseconds).

use std::ffi::{c_uint, c_ulonglong};

use crate::{Handle, INVALID_ARGUMENT, NOT_SUPPORTED, enter, of_device, put};

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkState(device: Handle, link: c_uint, active: *mut c_uint) -> c_uint {
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
extern "C" fn nvmlDeviceGetViolationStatus(device: Handle, policy: c_uint, value: *mut ViolationTime) -> c_uint {
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

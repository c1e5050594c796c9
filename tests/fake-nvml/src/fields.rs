//! Field values: many counters of a device in one call. `NAMES` lists those that a scenario can state.

use std::ffi::{c_int, c_longlong, c_uint, c_ulonglong};

use crate::{Handle, INVALID_ARGUMENT, NOT_SUPPORTED, SUCCESS, enter};

const NAMES: [(c_uint, &str); 13] = [
    (29, "retired-corrected"),
    (30, "retired-uncorrected"),
    (91, "nvlinks"),
    (94, "replays"),
    (142, "remapped-corrected"),
    (143, "remapped-uncorrected"),
    (144, "remapped"),
    (145, "unrepaired"),
    (161, "nvlink-replays"),
    (162, "nvlink-recoveries"),
    (163, "nvlink-crc"),
    (208, "nvlink-receive-errors"),
    (230, "recovery"),
];

/// `NVML_VALUE_TYPE_UNSIGNED_LONG_LONG`.
const UNSIGNED_LONG_LONG: c_uint = 3;

#[repr(C)]
struct FieldValue {
    field: c_uint,
    scope: c_uint,
    timestamp: c_longlong,
    latency_us: c_longlong,
    value_type: c_uint,
    result: c_uint,
    value: c_ulonglong,
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetFieldValues(device: Handle, count: c_int, values: *mut FieldValue) -> c_uint {
    let (now, index) = match enter("fields", device) {
        Ok(entered) => entered,
        Err(code) => return code,
    };
    let Ok(count) = usize::try_from(count) else {
        return INVALID_ARGUMENT;
    };
    // SAFETY: the caller's array of `count` entries, by the interface's contract.
    let values = unsafe { std::slice::from_raw_parts_mut(values, count) };
    for value in values {
        let name = NAMES.iter().find(|(field, _)| *field == value.field);
        let found = name.ok_or(NOT_SUPPORTED).and_then(|(_, name)| now.value(name, &index));
        value.value_type = UNSIGNED_LONG_LONG;
        value.result = found.err().unwrap_or(SUCCESS);
        value.value = found.unwrap_or(0);
    }
    SUCCESS
}

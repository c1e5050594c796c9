//! Field values: many counters of a device in one call. `NAMES` lists those that a scenario can state.

use std::ffi::{c_int, c_longlong, c_uint, c_ulonglong};

use crate::scenario::Scenario;
use crate::{DeviceHandle, INVALID_ARGUMENT, NOT_SUPPORTED, SUCCESS, enter};

/// Scope of a field.
#[derive(Clone, Copy, PartialEq)]
enum FieldScope {
    /// The device.
    Device,
    /// One of its links, given by the scope.
    Link,
    /// One of its links, or all of them together.
    Links,
    /// One of its links to the processor; events are counted on the first of them.
    Processor,
}

/// Field for the status of a link to the processor: links with an index below `c2c-active` are active.
const PROCESSOR_STATUS: c_uint = 171;

const NAMES: [(c_uint, &str, FieldScope); 34] = [
    (29, "retired-corrected", FieldScope::Device),
    (30, "retired-uncorrected", FieldScope::Device),
    (82, "memory-temperature", FieldScope::Device),
    (91, "nvlinks", FieldScope::Device),
    (94, "replays", FieldScope::Device),
    (142, "remapped-corrected", FieldScope::Device),
    (143, "remapped-uncorrected", FieldScope::Device),
    (144, "remapped", FieldScope::Device),
    (145, "unrepaired", FieldScope::Device),
    (161, "nvlink-replays", FieldScope::Link),
    (162, "nvlink-recoveries", FieldScope::Link),
    (163, "nvlink-crc", FieldScope::Link),
    (169, "pcie-recoveries", FieldScope::Device),
    (170, "c2c-links", FieldScope::Device),
    (PROCESSOR_STATUS, "c2c-active", FieldScope::Processor),
    (173, "pcie-corrected", FieldScope::Device),
    (179, "pcie-nonfatal", FieldScope::Device),
    (180, "pcie-fatal", FieldScope::Device),
    (206, "nvlink-malformed", FieldScope::Links),
    (207, "nvlink-overruns", FieldScope::Links),
    (208, "nvlink-receive-errors", FieldScope::Links),
    (209, "nvlink-remote-errors", FieldScope::Links),
    (211, "nvlink-integrity-errors", FieldScope::Links),
    (212, "nvlink-discards", FieldScope::Links),
    (214, "nvlink-recoveries-failed", FieldScope::Links),
    (215, "nvlink-recovery-events", FieldScope::Links),
    (219, "nvlink-effective-errors", FieldScope::Links),
    (220, "nvlink-effective-ber", FieldScope::Links),
    (221, "nvlink-symbol-errors", FieldScope::Links),
    (222, "nvlink-symbol-ber", FieldScope::Links),
    (230, "recovery", FieldScope::Device),
    (231, "c2c-errors", FieldScope::Processor),
    (232, "c2c-replays", FieldScope::Processor),
    // Blocks in which 12 symbols were corrected.
    (247, "nvlink-strained", FieldScope::Links),
];

/// Scope for all links.
const ALL: c_uint = c_uint::MAX;

fn value_of(now: &Scenario, index: &str, field: c_uint, scope: c_uint) -> Result<u64, c_uint> {
    let (_, name, of) = NAMES.iter().find(|(known, ..)| *known == field).ok_or(NOT_SUPPORTED)?;
    let value = now.value(name, index)?;
    if *of == FieldScope::Device || *of == FieldScope::Links && scope == ALL {
        return Ok(value);
    }
    let links = if *of == FieldScope::Processor {
        "c2c-links"
    } else {
        "nvlinks"
    };
    if u64::from(scope) >= now.value(links, index)? {
        return Err(INVALID_ARGUMENT);
    }
    if field == PROCESSOR_STATUS {
        return Ok(u64::from(u64::from(scope) < value));
    }
    if *of == FieldScope::Processor {
        return Ok(if scope == 0 { value } else { 0 });
    }
    let worst = now.value("nvlink-worst", index).unwrap_or(0);
    Ok(if u64::from(scope) == worst { value } else { 0 })
}

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
extern "C" fn nvmlDeviceGetFieldValues(device: DeviceHandle, count: c_int, values: *mut FieldValue) -> c_uint {
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
        let found = value_of(&now, &index, value.field, value.scope);
        value.value_type = UNSIGNED_LONG_LONG;
        value.result = found.err().unwrap_or(SUCCESS);
        value.value = found.unwrap_or(0);
    }
    SUCCESS
}

//! Field values: many counters of a device in one call. `NAMES` lists those that a scenario can state.

use std::ffi::{c_int, c_longlong, c_uint, c_ulonglong};

use crate::scenario::Scenario;
use crate::{Handle, INVALID_ARGUMENT, NOT_SUPPORTED, SUCCESS, enter};

/// Scope of a field.
#[derive(Clone, Copy, PartialEq)]
enum Of {
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

const NAMES: [(c_uint, &str, Of); 34] = [
    (29, "retired-corrected", Of::Device),
    (30, "retired-uncorrected", Of::Device),
    (82, "memory-temperature", Of::Device),
    (91, "nvlinks", Of::Device),
    (94, "replays", Of::Device),
    (142, "remapped-corrected", Of::Device),
    (143, "remapped-uncorrected", Of::Device),
    (144, "remapped", Of::Device),
    (145, "unrepaired", Of::Device),
    (161, "nvlink-replays", Of::Link),
    (162, "nvlink-recoveries", Of::Link),
    (163, "nvlink-crc", Of::Link),
    (169, "pcie-recoveries", Of::Device),
    (170, "c2c-links", Of::Device),
    (PROCESSOR_STATUS, "c2c-active", Of::Processor),
    (173, "pcie-corrected", Of::Device),
    (179, "pcie-nonfatal", Of::Device),
    (180, "pcie-fatal", Of::Device),
    (206, "nvlink-malformed", Of::Links),
    (207, "nvlink-overruns", Of::Links),
    (208, "nvlink-receive-errors", Of::Links),
    (209, "nvlink-remote-errors", Of::Links),
    (211, "nvlink-integrity-errors", Of::Links),
    (212, "nvlink-discards", Of::Links),
    (214, "nvlink-recoveries-failed", Of::Links),
    (215, "nvlink-recovery-events", Of::Links),
    (219, "nvlink-effective-errors", Of::Links),
    (220, "nvlink-effective-ber", Of::Links),
    (221, "nvlink-symbol-errors", Of::Links),
    (222, "nvlink-symbol-ber", Of::Links),
    (230, "recovery", Of::Device),
    (231, "c2c-errors", Of::Processor),
    (232, "c2c-replays", Of::Processor),
    // Blocks in which 12 symbols were corrected.
    (247, "nvlink-strained", Of::Links),
];

/// Scope for all links.
const ALL: c_uint = c_uint::MAX;

fn value_of(now: &Scenario, index: &str, field: c_uint, scope: c_uint) -> Result<u64, c_uint> {
    let (_, name, of) = NAMES.iter().find(|(known, ..)| *known == field).ok_or(NOT_SUPPORTED)?;
    let value = now.value(name, index)?;
    if *of == Of::Device || *of == Of::Links && scope == ALL {
        return Ok(value);
    }
    let links = if *of == Of::Processor { "c2c-links" } else { "nvlinks" };
    if u64::from(scope) >= now.value(links, index)? {
        return Err(INVALID_ARGUMENT);
    }
    if field == PROCESSOR_STATUS {
        return Ok(u64::from(u64::from(scope) < value));
    }
    if *of == Of::Processor {
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
        let found = value_of(&now, &index, value.field, value.scope);
        value.value_type = UNSIGNED_LONG_LONG;
        value.result = found.err().unwrap_or(SUCCESS);
        value.value = found.unwrap_or(0);
    }
    SUCCESS
}

//! MIG devices: the partitions of a device.
//!
//! Values of a device: mig-devices. Values of a MIG device, whose index is `DEVICE/PART`: gpu-instance (default: its
//! index plus one), compute-instance (default: 0), memory, memory-used (bytes), ecc (uncorrected, of the caches, since
//! the driver was loaded), processes.

use std::ffi::{c_char, c_uint, c_ulonglong};

use crate::{
    DeviceHandle, INVALID_ARGUMENT, NOT_SUPPORTED, PART, enter_any, handle, indices, of_any, of_device, put, put_narrow,
};

/// `NVML_ERROR_NOT_FOUND`.
const NOT_FOUND: c_uint = 6;
/// `NVML_ERROR_INSUFFICIENT_SIZE`.
const INSUFFICIENT_SIZE: c_uint = 7;
/// `NVML_MEMORY_LOCATION_SRAM`.
const SRAM: c_uint = 7;

/// Returns the maximum number of partitions of a device.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxMigDeviceCount(device: DeviceHandle, count: *mut c_uint) -> c_uint {
    put(of_device("mig", device).map(|_| 7), count)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: DeviceHandle,
    index: c_uint,
    part: *mut DeviceHandle,
) -> c_uint {
    let found = of_device("mig-devices", device).and_then(|count| {
        if u64::from(index) < count {
            Ok((device as usize | (index as usize + 1) << PART) as DeviceHandle)
        } else {
            Err(NOT_FOUND)
        }
    });
    put(found, part)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part: DeviceHandle, device: *mut DeviceHandle) -> c_uint {
    let found = match indices(part) {
        (device, Some(_)) => c_uint::try_from(device).map(handle).map_err(|_| INVALID_ARGUMENT),
        (_, None) => Err(INVALID_ARGUMENT),
    };
    put(found, device)
}

/// Returns a number of a MIG device, or `unstated` if the scenario states none.
fn instance(name: &str, part: DeviceHandle, unstated: usize) -> Result<u64, c_uint> {
    if indices(part).1.is_none() {
        return Err(NOT_FOUND);
    }
    match of_any(name, part) {
        Err(NOT_SUPPORTED) => Ok(unstated as u64),
        told => told,
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstanceId(part: DeviceHandle, id: *mut c_uint) -> c_uint {
    let unstated = indices(part).1.map_or(0, |part| part + 1);
    put_narrow(instance("gpu-instance", part, unstated), id)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeInstanceId(part: DeviceHandle, id: *mut c_uint) -> c_uint {
    put_narrow(instance("compute-instance", part, 0), id)
}

/// Returns a UUID in the library's format, made of the indices.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUUID(any: DeviceHandle, text: *mut c_char, room: c_uint) -> c_uint {
    if let Err(code) = enter_any("handle", any) {
        return code;
    }
    let uuid = match indices(any) {
        (device, None) => format!("GPU-{device:08x}-0000-0000-0000-000000000000"),
        (device, Some(part)) => format!("MIG-{device:08x}-0000-0000-0000-{part:012x}"),
    };
    if uuid.len() >= room as usize {
        return INSUFFICIENT_SIZE;
    }
    for (place, byte) in uuid.bytes().chain([0]).enumerate() {
        // SAFETY: the caller's buffer has this size, by the interface's contract, and the text with its terminator
        // fits into it.
        unsafe { text.add(place).write(byte as c_char) };
    }
    crate::SUCCESS
}

#[repr(C)]
struct MemoryUsage {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryInfo_v2(any: DeviceHandle, memory: *mut MemoryUsage) -> c_uint {
    let found = enter_any("memory", any).and_then(|(now, index)| {
        let total = now.value("memory", &index)?;
        let used = now.value("memory-used", &index).unwrap_or(0);
        // SAFETY: the caller's pointer, valid by the interface's contract.
        let version = unsafe { (*memory).version };
        Ok(MemoryUsage {
            version,
            total,
            reserved: 0,
            free: total.saturating_sub(used),
            used,
        })
    });
    put(found, memory)
}

/// Supports only the counter that the library provides for MIG devices: uncorrected errors of the caches, since the
/// driver was loaded.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryErrorCounter(
    part: DeviceHandle,
    kind: c_uint,
    counter: c_uint,
    location: c_uint,
    value: *mut c_ulonglong,
) -> c_uint {
    let found = match (indices(part).1, kind, counter, location) {
        (Some(_), 1, 0, SRAM) => of_any("ecc", part),
        _ => Err(NOT_SUPPORTED),
    };
    put(found, value)
}

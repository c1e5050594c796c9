//! Simulated GPU management library with the C interface of NVML: the agent loads it instead of `libnvidia-ml.so.1` in
//! tests and under `rankguard agent --simulate`. Uses only the standard library.
//!
//! It plays a scenario file: `RANKGUARD_NVML_SCENARIO`, else the file `scenario` in the folder of this library, so
//! that every copy of it can have its own. The first functions of a poll check for a changed file, the others only if
//! the last check is some time ago; a file that is replaced by renaming is never read in parts.
//!
//! The language and its facts are the agent's own (`agent/src/scenario.rs`). With an invalid line in the file, every
//! function fails with "invalid argument"; the same parser reports the place of the mistake.
//!
//! The start is `RANKGUARD_NVML_START` (milliseconds since 1970), else the first call of this library. Unstated facts
//! are not supported. Absent: vGPUs, and functions that change a device.

mod device;
#[cfg(not(feature = "old-driver"))]
mod events;
#[cfg(not(feature = "old-driver"))]
mod fields;
#[path = "../../../agent/src/scenario.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    clippy::expect_used,
    reason = "it is the agent's, which uses and shows all of it"
)]
mod language;
#[cfg(not(feature = "old-driver"))]
mod late;
#[cfg(not(feature = "old-driver"))]
mod mig;
mod place;
mod scenario;

use std::ffi::{c_uint, c_void};

use scenario::Scenario;

const SUCCESS: c_uint = 0;
const INVALID_ARGUMENT: c_uint = 2;
const NOT_SUPPORTED: c_uint = 3;

/// Handle of a device: its index plus one, because null is not a valid handle. The index of a MIG device is encoded
/// the same way, [`PART`] bits higher.
type DeviceHandle = *mut c_void;

/// Bit position of the MIG device's number in a handle.
const PART: u32 = 8;

fn handle(index: c_uint) -> DeviceHandle {
    (index as usize + 1) as DeviceHandle
}

/// Returns the indices of a handle's device and MIG device in the scenario.
fn indices(handle: DeviceHandle) -> (usize, Option<usize>) {
    let device = handle as usize & ((1 << PART) - 1);
    let part = handle as usize >> PART;
    (device.wrapping_sub(1), part.checked_sub(1))
}

/// Returns the scenario for a function of a device, and the device's index in it. MIG devices are refused, because few
/// functions accept them.
fn enter(call: &str, device: DeviceHandle) -> Result<(Scenario, String), c_uint> {
    match indices(device) {
        (_, None) => enter_any(call, device),
        (_, Some(_)) => Err(INVALID_ARGUMENT),
    }
}

/// Works as [`enter`], for functions that also accept a MIG device.
fn enter_any(call: &str, handle: DeviceHandle) -> Result<(Scenario, String), c_uint> {
    let now = Scenario::enter(call)?;
    let (device, part) = indices(handle);
    let device = device.to_string();
    now.device(&device)?;
    Ok((
        now,
        part.map_or_else(|| device.clone(), |part| format!("{device}/{part}")),
    ))
}

/// Returns a value of a device by its name, which is the name of the call as well.
fn of_device(name: &str, device: DeviceHandle) -> Result<u64, c_uint> {
    let (now, index) = enter(name, device)?;
    now.value(name, &index)
}

/// Works as [`of_device`], for a device or a MIG device.
fn of_any(name: &str, handle: DeviceHandle) -> Result<u64, c_uint> {
    let (now, index) = enter_any(name, handle)?;
    now.value(name, &index)
}

fn put<T>(result: Result<T, c_uint>, to: *mut T) -> c_uint {
    match result {
        Ok(value) => {
            // SAFETY: the caller's pointer, valid by the interface's contract.
            unsafe { to.write(value) };
            SUCCESS
        }
        Err(code) => code,
    }
}

/// Works as [`put`], for values that the interface represents in 32 bits.
fn put_narrow(result: Result<u64, c_uint>, to: *mut c_uint) -> c_uint {
    put(result.map(|value| c_uint::try_from(value).unwrap_or(c_uint::MAX)), to)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> c_uint {
    let started = Scenario::read().and_then(|now| now.code(&["init"]));
    started.map_or_else(|code| code, |()| SUCCESS)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> c_uint {
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> c_uint {
    put(Scenario::enter("count").map(|now| now.count()), count)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut DeviceHandle) -> c_uint {
    let found = Scenario::enter("handle").and_then(|now| {
        if index >= now.count() {
            return Err(INVALID_ARGUMENT);
        }
        now.device(&index.to_string())?;
        Ok(handle(index))
    });
    put(found, device)
}

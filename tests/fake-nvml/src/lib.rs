//! A stand-in for the GPU management library, with its C interface: what the agent loads instead of `libnvidia-ml.so.1` in
//! tests and under `rankguard agent --simulate`. Only the standard library is used.
//!
//! It plays a scenario file: the one that `RANKGUARD_NVML_SCENARIO` names, else the file `scenario` in the folder in which
//! this library lies, so that every copy of it can have its own. The calls that a look at the devices begins with look whether
//! the file is another one, the others where that was a while ago: whoever changes it by renaming never shows parts of two. The
//! language, and what is known in it, is the agent's own (`agent/src/scenario.rs`). A file with a line that means nothing plays
//! nothing: every call fails with "invalid argument", and whoever loaded the library asks the same parser where the mistake is.
//!
//! The start is `RANKGUARD_NVML_START` (milliseconds since 1970), else this library's first call. Anything not stated is
//! not supported. Absent: vGPUs, everything that changes a device.

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

/// A device is its index and one, because a null handle is none; of a MIG device, so is its index, [`PART`] bits higher.
type Handle = *mut c_void;

/// Where the number of a MIG device begins in a handle.
const PART: u32 = 8;

fn handle(index: c_uint) -> Handle {
    (index as usize + 1) as Handle
}

/// Device and MIG device of a handle, as the scenario counts them.
fn indices(handle: Handle) -> (usize, Option<usize>) {
    let (device, part) = (handle as usize & ((1 << PART) - 1), handle as usize >> PART);
    (device.wrapping_sub(1), part.checked_sub(1))
}

/// The scenario for a call about a device, and the device's index in it. A MIG device is none: few calls take it.
fn enter(call: &str, device: Handle) -> Result<(Scenario, String), c_uint> {
    match indices(device) {
        (_, None) => enter_any(call, device),
        (_, Some(_)) => Err(INVALID_ARGUMENT),
    }
}

/// As [`enter`], for calls that take a MIG device as well.
fn enter_any(call: &str, handle: Handle) -> Result<(Scenario, String), c_uint> {
    let now = Scenario::enter(call)?;
    let (device, part) = indices(handle);
    let device = device.to_string();
    now.device(&device)?;
    Ok((
        now,
        part.map_or_else(|| device.clone(), |part| format!("{device}/{part}")),
    ))
}

/// A value of a device by its name, which is the name of the call as well.
fn of_device(name: &str, device: Handle) -> Result<u64, c_uint> {
    let (now, index) = enter(name, device)?;
    now.value(name, &index)
}

/// As [`of_device`], of a device or a MIG device.
fn of_any(name: &str, handle: Handle) -> Result<u64, c_uint> {
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

/// As [`put`], for what the interface keeps in 32 bits.
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
extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut Handle) -> c_uint {
    let found = Scenario::enter("handle").and_then(|now| {
        if index >= now.count() {
            return Err(INVALID_ARGUMENT);
        }
        now.device(&index.to_string())?;
        Ok(handle(index))
    });
    put(found, device)
}

//! A stand-in for the GPU management library, with its C interface. Compiled by the tests of the GPU collector, one library
//! a test, with the path of that test's scenario built in.
//!
//! The scenario is read once in every call, so a test changes it while the collector runs and no call sees parts of
//! two. One fact a line:
//!
//! ```text
//! count 2               devices that are listed
//! address 0 9B          PCI bus of a device (hexadecimal); without it, its index
//! temperature 0 95      of a device; likewise ecc, pending, remapped, unrepaired, reasons
//! error 1 15            every call about this device gives this code (15: lost, 4: not permitted)
//! fail 9                every call but starting and ending the library gives this code
//! hang temperature      this call does not return while the line stands
//! ```
//!
//! Anything not stated is not supported.

use std::ffi::{c_char, c_int, c_longlong, c_uint, c_ulonglong, c_void};
use std::time::Duration;

const SUCCESS: c_uint = 0;
const INVALID_ARGUMENT: c_uint = 2;
const NOT_SUPPORTED: c_uint = 3;

/// The scenario as one call sees it.
struct Scenario(String);

impl Scenario {
    /// What every call does first: it hangs or fails where the scenario says so.
    fn enter(call: &str) -> Result<Self, c_uint> {
        let mut now = Self::read();
        while now.find(&["hang", call]).is_some() {
            std::thread::sleep(Duration::from_millis(5));
            now = Self::read();
        }
        match now.number(&["fail"]) {
            Some(code) => Err(code as c_uint),
            None => Ok(now),
        }
    }

    fn read() -> Self {
        Self(std::fs::read_to_string(env!("FAKE_NVML_SCENARIO")).unwrap_or_default())
    }

    /// The word behind `words`, of the first line that begins with them.
    fn find(&self, words: &[&str]) -> Option<String> {
        self.0.lines().find_map(|line| {
            let mut parts = line.split_whitespace();
            let same = words.iter().all(|word| parts.next() == Some(word));
            same.then(|| parts.next().unwrap_or_default().to_owned())
        })
    }

    fn number(&self, words: &[&str]) -> Option<u64> {
        self.find(words)?.parse().ok()
    }

    /// Devices that are listed.
    fn count(&self) -> c_uint {
        self.number(&["count"]).unwrap_or(0) as c_uint
    }

    /// A device that gives an error gives it for every call.
    fn device(&self, index: &str) -> Result<(), c_uint> {
        match self.number(&["error", index]) {
            Some(code) => Err(code as c_uint),
            None => Ok(()),
        }
    }

    fn value(&self, name: &str, index: &str) -> Result<u64, c_uint> {
        self.number(&[name, index]).ok_or(NOT_SUPPORTED)
    }
}

/// A device is its index and one, because a null handle is none.
fn index(device: *mut c_void) -> String {
    (device as usize).wrapping_sub(1).to_string()
}

fn of_device(call: &str, device: *mut c_void) -> Result<u64, c_uint> {
    let (now, index) = (Scenario::enter(call)?, index(device));
    now.device(&index)?;
    now.value(call, &index)
}

fn put<T>(result: Result<T, c_uint>, to: *mut T) -> c_uint {
    match result {
        Ok(value) => {
            // The caller's pointer, valid by the interface's contract.
            unsafe { to.write(value) };
            SUCCESS
        }
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> c_uint {
    match Scenario::read().number(&["init"]) {
        Some(code) => code as c_uint,
        None => SUCCESS,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> c_uint {
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> c_uint {
    let found = Scenario::enter("count").map(|now| now.count());
    put(found, count)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut *mut c_void) -> c_uint {
    let found = Scenario::enter("handle").and_then(|now| {
        if index >= now.count() {
            return Err(INVALID_ARGUMENT);
        }
        now.device(&index.to_string())?;
        Ok((index as usize + 1) as *mut c_void)
    });
    put(found, device)
}

#[repr(C)]
pub struct PciInfo {
    bus_id_legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    pci_device_id: c_uint,
    pci_subsystem_id: c_uint,
    bus_id: [c_char; 32],
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetPciInfo_v3(device: *mut c_void, info: *mut PciInfo) -> c_uint {
    let index = index(device);
    let now = match Scenario::enter("address").and_then(|now| now.device(&index).map(|()| now)) {
        Ok(now) => now,
        Err(code) => return code,
    };
    let bus = now.find(&["address", &index]).unwrap_or_else(|| format!("{index:0>2}"));
    let mut bus_id = [0; 32];
    for (to, from) in bus_id.iter_mut().zip(format!("00000000:{bus}:00.0").bytes()) {
        *to = from as c_char;
    }
    let found = PciInfo {
        bus_id_legacy: [0; 16],
        domain: 0,
        bus: 0,
        device: 0,
        pci_device_id: 0,
        pci_subsystem_id: 0,
        bus_id,
    };
    put(Ok(found), info)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetTemperature(device: *mut c_void, _sensor: c_uint, value: *mut c_uint) -> c_uint {
    put(of_device("temperature", device).map(|found| found as c_uint), value)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetTemperatureThreshold(device: *mut c_void, _kind: c_uint, value: *mut c_uint) -> c_uint {
    put(of_device("slowdown", device).map(|found| found as c_uint), value)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetTotalEccErrors(
    device: *mut c_void,
    _kind: c_uint,
    _counter: c_uint,
    value: *mut c_ulonglong,
) -> c_uint {
    put(of_device("ecc", device), value)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetRetiredPagesPendingStatus(device: *mut c_void, value: *mut c_uint) -> c_uint {
    put(of_device("pending", device).map(|found| found as c_uint), value)
}

#[repr(C)]
pub struct FieldValue {
    field: c_uint,
    scope: c_uint,
    timestamp: c_longlong,
    latency_us: c_longlong,
    value_type: c_uint,
    result: c_uint,
    value: c_ulonglong,
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetFieldValues(device: *mut c_void, count: c_int, values: *mut FieldValue) -> c_uint {
    let index = index(device);
    let now = match Scenario::enter("fields").and_then(|now| now.device(&index).map(|()| now)) {
        Ok(now) => now,
        Err(code) => return code,
    };
    // The caller's array of `count` entries, by the interface's contract.
    let values = unsafe { std::slice::from_raw_parts_mut(values, count as usize) };
    for value in values {
        let found = match value.field {
            144 => now.value("remapped", &index),
            145 => now.value("unrepaired", &index),
            _ => Err(NOT_SUPPORTED),
        };
        // An unsigned int.
        value.value_type = 1;
        value.result = found.err().unwrap_or(SUCCESS);
        value.value = found.unwrap_or(0);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetCurrentClocksThrottleReasons(device: *mut c_void, reasons: *mut c_ulonglong) -> c_uint {
    put(of_device("reasons", device), reasons)
}

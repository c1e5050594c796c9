//! Event sets. A set is identified by a number; its deliveries are recorded, so that each `xid` line is delivered
//! once.

use std::collections::BTreeMap;
use std::ffi::{c_uint, c_ulonglong, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::scenario::Scenario;
use crate::{DeviceHandle, INVALID_ARGUMENT, SUCCESS, enter, handle, put};

const TIMEOUT: c_uint = 10;
/// `nvmlEventTypeXidCriticalError`.
const XID_CRITICAL: c_ulonglong = 8;

type EventSet = *mut c_void;
/// Number of deliveries by event.
type DeliveryCounts = BTreeMap<(c_uint, u64), usize>;

static SETS: Mutex<BTreeMap<usize, DeliveryCounts>> = Mutex::new(BTreeMap::new());

fn sets() -> MutexGuard<'static, BTreeMap<usize, DeliveryCounts>> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number of times that the scenario states each event now.
fn stated(now: &Scenario) -> DeliveryCounts {
    let mut counts = DeliveryCounts::new();
    for event in now.all("xid") {
        *counts.entry(event).or_insert(0) += 1;
    }
    counts
}

#[repr(C)]
struct EventData {
    device: DeviceHandle,
    event_type: c_ulonglong,
    event_data: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetCreate(set: *mut EventSet) -> c_uint {
    let made = Scenario::enter("events").map(|now| {
        let mut sets = sets();
        let number = sets.keys().next_back().map_or(1, |last| last + 1);
        sets.insert(number, stated(&now));
        number as EventSet
    });
    put(made, set)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetFree(set: EventSet) -> c_uint {
    sets().remove(&(set as usize)).map_or(INVALID_ARGUMENT, |_| SUCCESS)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceRegisterEvents(device: DeviceHandle, _types: c_ulonglong, set: EventSet) -> c_uint {
    match enter("events", device) {
        Ok(_) if sets().contains_key(&(set as usize)) => SUCCESS,
        Ok(_) => INVALID_ARGUMENT,
        Err(code) => code,
    }
}

/// Returns at once without waiting, because callers poll.
#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetWait_v2(set: EventSet, data: *mut EventData, _timeout_ms: c_uint) -> c_uint {
    let found = Scenario::enter("events").and_then(|now| {
        let mut sets = sets();
        let delivered = sets.get_mut(&(set as usize)).ok_or(INVALID_ARGUMENT)?;
        for ((index, xid), times) in stated(&now) {
            let known = delivered.entry((index, xid)).or_insert(0);
            if *known < times {
                *known += 1;
                return Ok(EventData {
                    device: handle(index),
                    event_type: XID_CRITICAL,
                    event_data: xid,
                    gpu_instance: c_uint::MAX,
                    compute_instance: c_uint::MAX,
                });
            }
        }
        Err(TIMEOUT)
    });
    put(found, data)
}

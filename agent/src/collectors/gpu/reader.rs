//! Reader of one device: values go into its readings, unsupported ones are left out.

use std::sync::Arc;

use nvml_wrapper::error::NvmlError;

use super::current::CurrentCall;
use super::protocol::GpuReadings;

/// Passes on the error of a lost device; every other error means that the value is unknown.
pub(super) fn optional<T>(result: Result<T, NvmlError>) -> Result<Option<T>, NvmlError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(NvmlError::GpuLost) => Err(NvmlError::GpuLost),
        Err(_) => Ok(None),
    }
}

/// Reader of one device.
pub(super) struct DeviceReader<'a> {
    readings: &'a mut GpuReadings,
    current: &'a CurrentCall,
    /// Address of the device in records of calls.
    device: Arc<str>,
}

impl<'a> DeviceReader<'a> {
    /// Creates a reader of the device with this address.
    pub(super) fn new(address: &str, readings: &'a mut GpuReadings, current: &'a CurrentCall) -> Self {
        Self {
            device: address.into(),
            readings,
            current,
        }
    }

    /// Makes a call and records it while it runs.
    pub(super) fn call<T>(
        &self,
        what: &'static str,
        call: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Result<Option<T>, NvmlError> {
        optional(self.current.during(what, Some(&self.device), call))
    }

    /// Makes a call that returns one number, and stores it.
    pub(super) fn number(
        &mut self,
        what: &'static str,
        name: &str,
        call: impl FnOnce() -> Result<u32, NvmlError>,
    ) -> Result<(), NvmlError> {
        if let Some(value) = self.call(what, call)? {
            self.put(name, f64::from(value));
        }
        Ok(())
    }

    pub(super) fn put(&mut self, name: &str, value: f64) {
        self.readings.insert(name.to_owned(), value);
    }

    /// Stores a bool as 1 or 0; see [`DeviceReader::put`].
    pub(super) fn put_bool(&mut self, name: &str, is: bool) {
        self.put(name, f64::from(u8::from(is)));
    }

    pub(super) fn get(&self, name: &str) -> Option<f64> {
        self.readings.get(name).copied()
    }
}

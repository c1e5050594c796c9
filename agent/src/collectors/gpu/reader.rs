//! One device being read: what it tells goes into its look, what it does not have is left out.

use std::sync::Arc;

use nvml_wrapper::error::NvmlError;

use super::current::Current;
use super::look::Readings;

/// A lost device is a finding; everything else a device cannot tell is simply not known.
pub(super) fn optional<T>(result: Result<T, NvmlError>) -> Result<Option<T>, NvmlError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(NvmlError::GpuLost) => Err(NvmlError::GpuLost),
        Err(_) => Ok(None),
    }
}

/// One device being read.
pub(super) struct Reader<'a> {
    readings: &'a mut Readings,
    current: &'a Current,
    /// How the device is named in notes of calls.
    device: Arc<str>,
}

impl<'a> Reader<'a> {
    /// Of the device with this address.
    pub(super) fn new(address: &str, readings: &'a mut Readings, current: &'a Current) -> Self {
        Self {
            device: address.into(),
            readings,
            current,
        }
    }

    /// A call, noted while it is made.
    pub(super) fn call<T>(
        &self,
        what: &'static str,
        call: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Result<Option<T>, NvmlError> {
        optional(self.current.during(what, Some(&self.device), call))
    }

    /// A call that gives one number.
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

    /// As [`Reader::put`], for what is so or not.
    pub(super) fn put_bool(&mut self, name: &str, is: bool) {
        self.put(name, f64::from(u8::from(is)));
    }

    pub(super) fn get(&self, name: &str) -> Option<f64> {
        self.readings.get(name).copied()
    }
}

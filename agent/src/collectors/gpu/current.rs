//! Library call in progress, recorded in case it does not return.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Call into the library.
#[derive(Debug, Clone)]
pub(super) struct LibraryCall {
    pub(super) what: &'static str,
    /// Address of the device.
    device: Option<Arc<str>>,
    pub(super) since: Instant,
}

impl fmt::Display for LibraryCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)?;
        match &self.device {
            Some(device) => write!(f, " of device {device}"),
            None => Ok(()),
        }
    }
}

/// Shared by the thread that makes calls and the one that watches them. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct CurrentCall(Arc<Mutex<Option<LibraryCall>>>);

impl CurrentCall {
    /// Records a call while `call` runs. Some hundred calls are made every second.
    pub(super) fn during<T>(&self, what: &'static str, device: Option<&Arc<str>>, call: impl FnOnce() -> T) -> T {
        let note = |note| *self.0.lock().expect("no holder of the call's name panics") = note;
        note(Some(LibraryCall {
            what,
            device: device.cloned(),
            since: Instant::now(),
        }));
        let result = call();
        note(None);
        result
    }

    /// Returns the call in progress.
    pub(super) fn now(&self) -> Option<LibraryCall> {
        self.0.lock().expect("no holder of the call's name panics").clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_named_while_it_is_made() {
        let current = CurrentCall::default();
        let told = current.during("read the power", Some(&"0000:9b:00".into()), || current.now());
        assert_eq!(
            told.map(|call| call.to_string()).as_deref(),
            Some("read the power of device 0000:9b:00")
        );
        assert!(current.now().is_none());
        let told = current.during("count the devices", None, || current.now());
        assert_eq!(told.map(|call| call.to_string()).as_deref(), Some("count the devices"));
    }
}

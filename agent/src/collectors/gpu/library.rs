//! Calls into the library. Runs in the process that may be killed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::device::Device;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::event::EventSet;

use super::current::CurrentCall;
use super::links::NvLinkCounters;
use super::mig::MigReadings;
use super::protocol::{DevicePoll, LibraryAnswer, XidEvent};
use super::reader::{DeviceReader, optional};
use super::{c2c, fabric, readings};

/// Most events of one poll, so that a storm of events cannot prevent its end.
const EVENTS: usize = 64;

/// Loads and initialises the library.
pub(super) fn load(path: Option<&Path>, current: &CurrentCall) -> Result<Nvml, String> {
    let name = path.map_or_else(|| "libnvidia-ml.so.1".to_owned(), |path| path.display().to_string());
    let loaded = current.during(LOAD, None, || match path {
        Some(path) => Nvml::builder().lib_path(path.as_os_str()).init(),
        None => Nvml::init(),
    });
    loaded.map_err(|error| match error {
        NvmlError::LibloadingError(problem) => format!("cannot load {name}: {problem}"),
        other => format!("{name} does not start: {other}"),
    })
}

/// Name of the first call, which may take longer: without persistence mode the driver initialises every device in it.
pub(super) const LOAD: &str = "load and initialise the library";

/// Initialised library, with the last known state of the devices in case they stop answering.
pub(super) struct GpuLibrary<'a> {
    nvml: &'a Nvml,
    current: CurrentCall,
    /// Addresses by index, from the last poll of that index.
    by_index: BTreeMap<u32, String>,
    /// NVLink state by device address.
    links: BTreeMap<String, NvLinkCounters>,
    /// MIG state by device address.
    parts: BTreeMap<String, MigReadings>,
    /// Driver version, which does not change while the library is loaded.
    driver: Option<String>,
    /// XID events of all devices, if the driver supports them.
    events: Option<EventSet<'a>>,
}

impl<'a> GpuLibrary<'a> {
    pub(super) fn new(nvml: &'a Nvml, current: CurrentCall) -> Self {
        let events = register(nvml, &current);
        let asked = current.during("read the driver's version", None, || nvml.sys_driver_version());
        Self {
            driver: asked.ok(),
            nvml,
            current,
            by_index: BTreeMap::new(),
            links: BTreeMap::new(),
            parts: BTreeMap::new(),
            events,
        }
    }

    pub(super) fn look(&mut self) -> LibraryAnswer {
        let counted = self
            .current
            .during("count the devices", None, || self.nvml.device_count());
        let count = match counted {
            Ok(count) => count,
            Err(error) => {
                return LibraryAnswer::Absent(format!("the management library cannot count devices: {error}"));
            }
        };
        let mut looks: Vec<DevicePoll> = (0..count).map(|index| self.device(index)).collect();
        // A missing device may have had any index, because the others move up. The listed ones are assigned first.
        let listed: BTreeSet<&str> = looks.iter().map(|look| look.address.as_str()).collect();
        let gone: BTreeSet<String> = self
            .by_index
            .values()
            .filter(|address| !listed.contains(address.as_str()))
            .cloned()
            .collect();
        let mut by_index: BTreeMap<u32, String> = BTreeMap::new();
        for (index, look) in (0..count).zip(&looks) {
            by_index.insert(index, look.address.clone());
        }
        // A missing device is remembered behind the others until it is listed again.
        for (index, address) in (count..).zip(&gone) {
            by_index.insert(index, address.clone());
        }
        self.by_index = by_index;
        looks.extend(gone.into_iter().map(|address| DevicePoll {
            address,
            lost: Some("the library does not list it any more".to_owned()),
            ..DevicePoll::default()
        }));
        LibraryAnswer::Seen {
            devices: looks,
            xids: self.xids(),
            driver: self.driver.clone(),
        }
    }

    fn device(&mut self, index: u32) -> DevicePoll {
        let known = self.by_index.get(&index).cloned();
        let mut look = DevicePoll {
            address: known.unwrap_or_else(|| format!("index {index}")),
            ..DevicePoll::default()
        };
        if let Err(NvmlError::GpuLost) = self.read(index, &mut look) {
            look.lost = Some("GPU is lost: it has fallen off the bus or is otherwise inaccessible".to_owned());
        }
        look
    }

    /// Reads one device. Only "lost" is a finding; a device that refuses is unknown, which is not a fault.
    fn read(&mut self, index: u32, look: &mut DevicePoll) -> Result<(), NvmlError> {
        let who: Arc<str> = look.address.as_str().into();
        let handle = self
            .current
            .during("get the handle", Some(&who), || self.nvml.device_by_index(index));
        let Some(device) = optional(handle)? else { return Ok(()) };
        if let Some(address) = optional(self.address(&device, &who))? {
            look.address = address;
        }
        let links = self.links.entry(look.address.clone()).or_default();
        let mut reader = DeviceReader::new(&look.address, &mut look.readings, &self.current);
        readings::read(&device, &mut reader)?;
        c2c::read(&device, &mut reader)?;
        fabric::read(&device, &mut reader)?;
        links.read(&device, &mut reader)?;
        let parts = self.parts.entry(look.address.clone()).or_default();
        parts.read(&device, look, &self.current)
    }

    fn address(&self, device: &Device<'_>, who: &Arc<str>) -> Result<String, NvmlError> {
        let info = self
            .current
            .during("read the PCI address", Some(who), || device.pci_info());
        Ok(pci_address(&info?.bus_id))
    }

    fn xids(&self) -> Vec<XidEvent> {
        let Some(events) = &self.events else { return Vec::new() };
        let mut found = Vec::new();
        let unnamed = "that an event names".into();
        while found.len() < EVENTS {
            // Does not wait, so that no second thread is needed inside the driver.
            let Ok(event) = self.current.during("wait for events", None, || events.wait(0)) else {
                break;
            };
            let Some(XidError::Value(xid)) = event.event_data else {
                continue;
            };
            if let Ok(address) = self.address(&event.device, &unnamed) {
                found.push(XidEvent { address, xid });
            }
        }
        found
    }
}

/// Registers for XID events of every device; none if one refuses, because the kernel log carries them too.
fn register<'a>(nvml: &'a Nvml, current: &CurrentCall) -> Option<EventSet<'a>> {
    let what = "register for events";
    let mut set = current.during(what, None, || nvml.create_event_set()).ok()?;
    for index in 0..current.during(what, None, || nvml.device_count()).ok()? {
        let Ok(device) = current.during(what, None, || nvml.device_by_index(index)) else {
            continue;
        };
        let registered = current.during(what, None, || {
            device.register_events(EventTypes::CRITICAL_XID_ERROR, set)
        });
        set = registered.ok()?;
    }
    Some(set)
}

/// Converts `00000000:9B:00.0` to `0000:9b:00`, the form of the kernel log.
fn pci_address(bus_id: &str) -> String {
    let lower = bus_id.trim().to_ascii_lowercase();
    let no_function = lower.rsplit_once('.').map_or(lower.as_str(), |(address, _)| address);
    match no_function.split_once(':') {
        Some((domain, rest)) if domain.len() > 4 => {
            let cut = domain.len() - 4;
            format!("{}:{rest}", domain.get(cut..).unwrap_or(domain))
        }
        _ => no_function.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_form_of_the_kernel_log() {
        assert_eq!(pci_address("00000000:9B:00.0"), "0000:9b:00");
        assert_eq!(pci_address("0000:1b:00.0"), "0000:1b:00");
        assert_eq!(pci_address("00010000:1B:00"), "0000:1b:00");
        assert_eq!(pci_address(""), "");
    }
}

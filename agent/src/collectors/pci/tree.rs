//! PCI devices of a sysfs tree, with the files open that are read at every poll.

use std::fs;
use std::path::{Path, PathBuf};

use rankguard_model::{Device, DeviceKind};

use super::types::ErrorCounts;
use crate::collectors::reread_file::{RereadFile, first_number};
use crate::collectors::threshold_evaluator::DeviceReadings;

/// Polls between two listings: devices are rarely hot-plugged, and a missing one is reported by its own collector.
const LIST_EVERY: u32 = 30;

/// Most devices that are watched.
const DEVICES: usize = 128;

/// Greatest valid width: a device that no longer answers reads as all ones.
const WIDTH_MAX: f64 = 32.0;

/// Files of the kernel's error counts: name, line of the sum, metric of the device, metric of its port.
const ERRORS: [(&str, &str, &str, &str); 3] = [
    (
        "aer_dev_correctable",
        "TOTAL_ERR_COR",
        "pci.corrected_errors",
        "pci.port_corrected_errors",
    ),
    (
        "aer_dev_nonfatal",
        "TOTAL_ERR_NONFATAL",
        "pci.nonfatal_errors",
        "pci.port_nonfatal_errors",
    ),
    (
        "aer_dev_fatal",
        "TOTAL_ERR_FATAL",
        "pci.fatal_errors",
        "pci.port_fatal_errors",
    ),
];

/// Format of a file.
#[derive(Debug, Clone, Copy)]
enum PciFileFormat {
    /// Number of lanes.
    Width,
    /// Speed such as `32.0 GT/s PCIe`.
    Speed,
    /// Count behind this word.
    Sum(&'static str),
}

impl PciFileFormat {
    fn read(self, text: &str) -> Option<f64> {
        match self {
            Self::Width => first_number(text).filter(|width| (1.0..=WIDTH_MAX).contains(width)),
            Self::Speed => first_number(text).filter(|speed| *speed > 0.0),
            Self::Sum(name) => {
                let line = text.lines().find_map(|line| line.strip_prefix(name))?;
                line.trim().parse::<u64>().ok().map(|count| count as f64)
            }
        }
    }
}

#[derive(Debug)]
struct DeviceValue {
    metric: &'static str,
    form: PciFileFormat,
    file: RereadFile,
    /// Counts by type, for a file of errors.
    types: ErrorCounts,
}

impl DeviceValue {
    fn new(metric: &'static str, form: PciFileFormat, file: PathBuf) -> Self {
        Self {
            metric,
            form,
            file: RereadFile::new(file),
            types: ErrorCounts::default(),
        }
    }

    fn read(&mut self) -> Option<f64> {
        let Self { form, file, types, .. } = self;
        file.read(|text| {
            let number = form.read(text)?;
            if let PciFileFormat::Sum(_) = form {
                types.take(number, text);
            }
            Some(number)
        })
    }
}

/// Watched device with its open files.
#[derive(Debug)]
pub(super) struct WatchedDevice {
    /// PCI address with function: two ports of one card are two devices.
    pub(super) address: String,
    pub(super) device: Device,
    /// Greatest width and speed of its link, which do not change.
    limits: Vec<(&'static str, f64)>,
    values: Vec<DeviceValue>,
}

impl WatchedDevice {
    /// Returns the error types of a metric that have grown since the last call.
    pub(super) fn grown(&mut self, metric: &str) -> Option<String> {
        self.values
            .iter_mut()
            .find(|value| value.metric == metric)?
            .types
            .grown()
    }

    /// Takes over the error counts of the same device from the previous listing.
    fn remember(&mut self, before: Self) {
        for known in before.values {
            if let Some(value) = self.values.iter_mut().find(|value| value.metric == known.metric) {
                value.types = known.types;
            }
        }
    }
}

/// PCI devices of a sysfs tree.
#[derive(Debug)]
pub(super) struct PciTree {
    folder: PathBuf,
    left: u32,
    devices: Vec<WatchedDevice>,
}

impl PciTree {
    /// Creates a tree without reading.
    pub(super) fn new(sysfs: &Path) -> Self {
        Self {
            folder: sysfs.join("bus/pci/devices"),
            left: 0,
            devices: Vec::new(),
        }
    }

    /// Returns every device with its present readings.
    pub(super) fn look(&mut self) -> impl Iterator<Item = (&mut WatchedDevice, DeviceReadings)> {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.list();
            self.left = LIST_EVERY;
        }
        self.devices.iter_mut().map(|watched| {
            let told = watched.values.iter_mut();
            let mut readings: DeviceReadings = told
                .filter_map(|value| Some((value.metric.to_owned(), value.read()?)))
                .collect();
            let limits = watched.limits.iter().map(|(name, limit)| ((*name).to_owned(), *limit));
            readings.extend(limits);
            (watched, readings)
        })
    }

    fn list(&mut self) {
        let before = std::mem::replace(&mut self.devices, list(&self.folder));
        for known in before {
            if let Some(device) = self.devices.iter_mut().find(|device| device.address == known.address) {
                device.remember(known);
            }
        }
    }
}

fn list(folder: &Path) -> Vec<WatchedDevice> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found.iter().filter_map(|path| watched(path)).take(DEVICES).collect()
}

/// Returns a device of a watched kind; none for virtual functions, which share the link of their card.
fn watched(path: &Path) -> Option<WatchedDevice> {
    let address = path.file_name()?.to_string_lossy().to_ascii_lowercase();
    let kind = kind(path).filter(|_| !path.join("physfn").exists())?;
    let port = fs::canonicalize(path).ok()?.parent().map(Path::to_owned);
    let mut values = vec![DeviceValue::new(
        "pci.link_width",
        PciFileFormat::Width,
        path.join("current_link_width"),
    )];
    // A GPU lowers its link speed at idle; only its own library reports whether it is idle.
    if kind != DeviceKind::Gpu {
        values.push(DeviceValue::new(
            "pci.link_speed",
            PciFileFormat::Speed,
            path.join("current_link_speed"),
        ));
    }
    for (file, sum, of_device, of_port) in ERRORS {
        let ends = [(Some(path), of_device), (port.as_deref(), of_port)];
        for (folder, metric) in ends {
            let file = folder.map(|folder| folder.join(file)).filter(|file| file.is_file());
            values.extend(file.map(|file| DeviceValue::new(metric, PciFileFormat::Sum(sum), file)));
        }
    }
    let most = |file: &str, form: PciFileFormat| {
        let ends = [Some(path), port.as_deref()].into_iter().flatten();
        let told = ends.filter_map(|end| form.read(&fs::read_to_string(end.join(file)).ok()?));
        told.reduce(f64::min)
    };
    let limits = [
        ("pci.link_width_max", most("max_link_width", PciFileFormat::Width)),
        ("pci.link_speed_max", most("max_link_speed", PciFileFormat::Speed)),
    ];
    Some(WatchedDevice {
        device: Device {
            address: name(path, kind, &address),
            kind,
        },
        address,
        limits: limits
            .into_iter()
            .filter_map(|(name, limit)| Some((name, limit?)))
            .collect(),
        values,
    })
}

/// Returns the kind by the device's PCI class code.
fn kind(path: &Path) -> Option<DeviceKind> {
    let read = |file: &str| fs::read_to_string(path.join(file)).unwrap_or_default();
    let nvidia = || read("vendor").trim() == "0x10de";
    match read("class").trim().get(..6)? {
        // Display and 3D controllers: the node's own console has one of the first as well.
        "0x0302" => Some(DeviceKind::Gpu),
        "0x0300" => nvidia().then_some(DeviceKind::Gpu),
        "0x0680" => nvidia().then_some(DeviceKind::Nvswitch),
        "0x0200" | "0x0207" => Some(DeviceKind::Nic),
        "0x0108" => Some(DeviceKind::Disk),
        _ => None,
    }
}

/// Returns the address under which the evidence of other collectors names the device.
fn name(path: &Path, kind: DeviceKind, address: &str) -> String {
    let first = |folder: &str| {
        let entries = fs::read_dir(path.join(folder)).ok()?.flatten();
        entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .min()
    };
    let known = match kind {
        DeviceKind::Nic => first("infiniband").or_else(|| first("net")),
        DeviceKind::Disk => first("nvme"),
        DeviceKind::Gpu | DeviceKind::Nvswitch => None,
    };
    // Without the function, as the kernel log names GPUs.
    known.unwrap_or_else(|| {
        address
            .rsplit_once('.')
            .map_or(address, |(device, _)| device)
            .to_owned()
    })
}

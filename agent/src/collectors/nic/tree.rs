//! Adapters of a sysfs tree, with the files open that are read at every poll.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::{NicValues, entries, known, name};
use crate::collectors::reread_file::{RereadFile, first_number};

/// Error counters of an RDMA port.
const COUNTERS: [(&str, &str); 12] = [
    ("counters", "link_downed"),
    ("counters", "link_error_recovery"),
    ("counters", "symbol_error"),
    ("counters", "port_rcv_errors"),
    ("counters", "port_xmit_discards"),
    ("counters", "local_link_integrity_errors"),
    ("counters", "excessive_buffer_overrun_errors"),
    ("hw_counters", "rnr_nak_retry_err"),
    ("hw_counters", "local_ack_timeout_err"),
    ("hw_counters", "packet_seq_err"),
    ("hw_counters", "req_cqe_error"),
    ("hw_counters", "roce_slow_restart"),
];

/// State files of an RDMA port: "4: ACTIVE", "5: LinkUp", "400 Gb/sec (4X NDR)".
const STATES: [(&str, &str); 3] = [
    ("state", "nic.port_state"),
    ("phys_state", "nic.phys_state"),
    ("rate", "nic.port_rate"),
];

/// Polls between two full listings. Added and removed devices are found at every poll; ports and files are not.
const LIST_EVERY: u32 = 10;

/// Most files that stay open; adapters with hundreds of virtual functions have more, which are opened at each poll.
const KEPT: usize = 512;

/// Format of a file.
#[derive(Debug, Clone, Copy)]
enum NicFileFormat {
    /// Number, with any text after it.
    Number,
    /// Number that does not grow beyond the end of its range.
    Counter,
    /// Operational state of an interface, as a word.
    Operstate,
}

impl NicFileFormat {
    fn read(self, text: &str) -> Option<f64> {
        match self {
            Self::Number => first_number(text),
            Self::Counter => first_number(text).map(known),
            Self::Operstate => Some(f64::from(u8::from(text.trim() == "up"))),
        }
    }
}

#[derive(Debug)]
struct AdapterValue {
    metric: String,
    form: NicFileFormat,
    file: RereadFile,
    /// Value at the last poll.
    told: Option<f64>,
}

#[derive(Debug, Default)]
struct NetworkAdapter {
    values: Vec<AdapterValue>,
}

/// Adapters of a sysfs tree.
#[derive(Debug)]
pub(super) struct AdapterTree {
    rdma: PathBuf,
    net: PathBuf,
    /// Entries of both folders at the last listing.
    listed: (Vec<PathBuf>, Vec<PathBuf>),
    /// Polls until the next listing.
    left: u32,
    adapters: BTreeMap<String, NetworkAdapter>,
    /// Adapter model (`hca_type`) by RDMA device; only ports of one model are compared.
    models: BTreeMap<String, String>,
}

impl AdapterTree {
    /// Creates a tree without reading.
    pub(super) fn new(sysfs: &Path) -> Self {
        Self {
            rdma: sysfs.join("class/infiniband"),
            net: sysfs.join("class/net"),
            listed: (Vec::new(), Vec::new()),
            left: 0,
            adapters: BTreeMap::new(),
            models: BTreeMap::new(),
        }
    }

    /// Returns the adapter model by device, as of the last listing.
    pub(super) fn models(&self) -> &BTreeMap<String, String> {
        &self.models
    }

    /// Reads every value. Returns true if any differs from the previous poll.
    pub(super) fn refresh(&mut self) -> bool {
        let found = (entries(&self.rdma), entries(&self.net));
        self.left = self.left.saturating_sub(1);
        let listed = self.left == 0 || found != self.listed;
        if listed {
            self.list(&found);
            self.listed = found;
            self.left = LIST_EVERY;
        }
        let mut differs = listed;
        for value in self.adapters.values_mut().flat_map(|adapter| &mut adapter.values) {
            let form = value.form;
            let now = value.file.read(|text| form.read(text));
            differs |= now != value.told;
            value.told = now;
        }
        differs
    }

    /// Returns every value that could be read at the last poll. A device without values is included, so that its later
    /// absence is a change.
    pub(super) fn values(&self) -> NicValues {
        let told = |adapter: &NetworkAdapter| {
            let values = adapter.values.iter();
            values
                .filter_map(|value| Some((value.metric.clone(), value.told?)))
                .collect()
        };
        let adapters = self.adapters.iter();
        adapters.map(|(name, adapter)| (name.clone(), told(adapter))).collect()
    }

    fn list(&mut self, (devices, interfaces): &(Vec<PathBuf>, Vec<PathBuf>)) {
        self.adapters.clear();
        self.models.clear();
        for device in devices {
            if let Ok(model) = fs::read_to_string(device.join("hca_type")) {
                self.models.insert(name(device), model.trim().to_owned());
            }
            let adapter = self.adapters.entry(name(device)).or_default();
            for port in entries(&device.join("ports")) {
                adapter.port(&port);
            }
        }
        for interface in interfaces {
            // Only interfaces with a device: containers create and remove virtual ones all the time.
            if !interface.join("device").exists() {
                continue;
            }
            let adapter = self.adapters.entry(name(interface)).or_default();
            adapter.put(
                "nic.operstate_up",
                NicFileFormat::Operstate,
                interface.join("operstate"),
            );
            adapter.put(
                "nic.carrier_changes",
                NicFileFormat::Number,
                interface.join("carrier_changes"),
            );
        }
        let values = self.adapters.values_mut().flat_map(|adapter| &mut adapter.values);
        for value in values.skip(KEPT) {
            value.file.pass();
        }
    }
}

impl NetworkAdapter {
    fn port(&mut self, port: &Path) {
        let number = name(port);
        for (file, metric) in STATES {
            self.put(
                &format!("{metric} port {number}"),
                NicFileFormat::Number,
                port.join(file),
            );
        }
        for (folder, counter) in COUNTERS {
            let path = port.join(folder).join(counter);
            self.put(&format!("nic.{counter} port {number}"), NicFileFormat::Counter, path);
        }
    }

    fn put(&mut self, metric: &str, form: NicFileFormat, path: PathBuf) {
        self.values.push(AdapterValue {
            metric: metric.to_owned(),
            form,
            file: RereadFile::new(path),
            told: None,
        });
    }
}

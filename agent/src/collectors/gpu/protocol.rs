//! Protocol between the agent and the process that calls the library: one JSON value a line.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Readings of a device by metric name.
pub(super) type GpuReadings = BTreeMap<String, f64>;

/// Request of the agent for a poll.
pub(super) const LOOK: &[u8] = b"look\n";

/// Answer of the process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LibraryAnswer {
    /// The library is missing or failed; the process ends, and the next one loads it again.
    Absent(String),
    /// A call exceeded its deadline; the process waits to be killed.
    Stuck(String),
    /// Devices in the library's order, and the events since the last poll.
    Seen {
        devices: Vec<DevicePoll>,
        xids: Vec<XidEvent>,
        /// Driver version, if reported.
        driver: Option<String>,
    },
}

/// Poll result of one device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DevicePoll {
    /// PCI address in the form `0000:9b:00`; the index if the address cannot be read.
    pub(crate) address: String,
    /// Cause if the device no longer answers.
    pub(crate) lost: Option<String>,
    /// Values by metric; unsupported ones are absent. `thresholds.toml` lists the rules, and units are part of the
    /// names.
    pub(crate) readings: GpuReadings,
    /// MIG devices, if the GPU is partitioned and the driver names them.
    #[serde(default)]
    pub(crate) parts: Vec<MigDeviceReading>,
}

/// Poll result of one MIG device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct MigDeviceReading {
    /// Address such as `0000:9b:00/5/0`: that of the GPU, then GPU instance and compute instance, as in the library's
    /// names.
    pub(crate) address: String,
    /// UUID by which programs select it (`CUDA_VISIBLE_DEVICES`), if reported.
    pub(crate) uuid: Option<String>,
    /// As in [`DevicePoll`].
    pub(crate) readings: GpuReadings,
}

/// XID that the library reported as an event: a number without a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct XidEvent {
    /// Device address, as in [`DevicePoll`].
    pub(crate) address: String,
    pub(crate) xid: u64,
}

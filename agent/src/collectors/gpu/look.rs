//! What is said between the agent and the process that calls the library: one JSON value a line.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a device told, by metric.
pub(super) type Readings = BTreeMap<String, f64>;

/// What the agent says to have the devices looked at.
pub(super) const LOOK: &[u8] = b"look\n";

/// What the process answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// The library does not answer at all; the process ends with it, and the next one loads it anew.
    Absent(String),
    /// A call has not returned within its deadline; the process waits to be killed.
    Stuck(String),
    /// The devices, in the library's order, and the events since the last look.
    Seen {
        devices: Vec<DeviceLook>,
        xids: Vec<XidEvent>,
        /// Version of the driver that the library belongs to, where it tells.
        driver: Option<String>,
    },
}

/// One device as it was found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DeviceLook {
    /// PCI address in the form `0000:9b:00`; the index where that cannot be told.
    pub(crate) address: String,
    /// The device does not answer any more.
    pub(crate) lost: Option<String>,
    /// By metric; what the device or the driver does not support is absent. `thresholds.toml` tells what is judged, and
    /// units are part of the names.
    pub(crate) readings: Readings,
    /// The MIG devices that it is cut into, where it is and the driver names them.
    #[serde(default)]
    pub(crate) parts: Vec<PartLook>,
}

/// One MIG device as it was found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PartLook {
    /// `0000:9b:00/5/0`: that of its GPU, then the GPU instance and the compute instance, as the library's own names have it.
    pub(crate) address: String,
    /// What programs choose it by (`CUDA_VISIBLE_DEVICES`), where the driver tells.
    pub(crate) uuid: Option<String>,
    /// As of a device.
    pub(crate) readings: Readings,
}

/// An XID that the library reported as an event: a number without a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct XidEvent {
    /// As in [`DeviceLook`].
    pub(crate) address: String,
    pub(crate) xid: u64,
}

//! Signatures: how a failure announces itself in one line.

use rankguard_model::{ClassId, DeviceKind, Role, SmolStr, Source};
use serde::Deserialize;

/// How to recognise a line and what it says.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    /// Its id, unique in the catalogue.
    pub id: SmolStr,
    /// Collectors whose lines it applies to; empty for all, except that of the user's code and data the kernel knows nothing.
    #[serde(default)]
    pub sources: Vec<Source>,
    /// Texts of which at least one occurs in every line it matches, whatever the case: the prefilter.
    pub literals: Vec<String>,
    /// Regular expression; named groups become fields of the mark.
    pub pattern: String,
    /// A line that this matches too is something else.
    #[serde(default)]
    pub unless: Option<String>,
    /// The class it speaks for. With `codes` it is the class of numbers that the table does not know, without the number.
    pub class: ClassId,
    /// Its part in a failure, as far as one line can tell.
    #[serde(default = "root")]
    pub role: Role,
    /// How sure it is, 0 to 1. Wording that only one thing can produce is above 0.9; a generic exception type about 0.5.
    pub confidence: f64,
    /// What the line is about.
    #[serde(default)]
    pub entity: EntityRule,
    /// Table that gives class and role by the captured number.
    #[serde(default)]
    pub codes: Option<CodeKind>,
    /// Where the wording is from.
    #[serde(default)]
    pub source: String,
    /// A line, written by us, that it must match.
    pub example: String,
}

fn root() -> Role {
    Role::Root
}

/// Which table of numbered events applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CodeKind {
    /// GPU driver; group `xid`.
    Xid,
    /// NVSwitch driver; group `sxid`.
    Sxid,
}

/// What a line is about, and which group names it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EntityRule {
    /// The job of the stream, or the node when the stream has no job.
    #[default]
    Stream,
    /// A GPU; group `bdf`.
    Gpu,
    /// A switch of the GPU fabric; group `bdf`.
    Nvswitch,
    /// A network adapter; group `bdf`, or `nic`.
    Nic,
    /// A disk; group `disk`, or `bdf`.
    Disk,
    /// Whatever device sits at group `bdf`; nothing tells its kind.
    Pci,
    /// The process in group `pid`.
    Process,
    /// The rank in group `rank`, else the rank of the line.
    Rank,
    /// The node as a whole.
    Node,
    /// The job as a whole: its program, data or configuration.
    Job,
}

impl EntityRule {
    /// The kind of device it names, if it names one.
    pub fn device_kind(self) -> Option<DeviceKind> {
        match self {
            Self::Gpu => Some(DeviceKind::Gpu),
            Self::Nvswitch => Some(DeviceKind::Nvswitch),
            Self::Nic => Some(DeviceKind::Nic),
            Self::Disk => Some(DeviceKind::Disk),
            _ => None,
        }
    }
}

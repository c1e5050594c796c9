//! Signatures: recognition rules for single log lines.

use rankguard_model::{ClassId, DeviceKind, EvidenceSource, Role, SmolStr};
use serde::Deserialize;

/// Recognition rule for a line: pattern, class and role.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    /// Signature id, unique in the catalogue.
    pub id: SmolStr,
    /// Sources to which it applies; empty for all, but without the kernel log if its layer is `user-*` and its class
    /// is not `cuda-*` or `gpu-*`.
    #[serde(default)]
    pub sources: Vec<EvidenceSource>,
    /// Prefilter: at least one of these texts occurs in every line it matches, in any case.
    pub literals: Vec<String>,
    /// Regular expression; named groups become fields of the mark.
    pub pattern: String,
    /// Excluding expression: a line that matches it too is something else.
    #[serde(default)]
    pub unless: Option<String>,
    /// Failure class that it indicates. With `codes`, the family of numbers that are not in the table, without the
    /// number.
    pub class: ClassId,
    /// Role in a failure, as far as one line determines it.
    #[serde(default = "root")]
    pub role: Role,
    /// Confidence, 0 to 1. A wording that only one failure can produce is above 0.9; a generic exception type about
    /// 0.5.
    pub confidence: f64,
    /// Entity of the line.
    #[serde(default)]
    pub entity: EntityRule,
    /// Table that gives class and role by the captured number.
    #[serde(default)]
    pub codes: Option<CodeKind>,
    /// Source of the wording.
    #[serde(default)]
    pub source: String,
    /// Example line, written for this project, that it must match.
    pub example: String,
}

fn root() -> Role {
    Role::Root
}

/// Table of numbered events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CodeKind {
    /// GPU driver; group `xid`.
    Xid,
    /// NVSwitch driver; group `sxid`.
    Sxid,
}

/// Entity of a line and the pattern group that names it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EntityRule {
    /// Job of the stream, or its node if the stream has no job.
    #[default]
    Stream,
    /// GPU; group `bdf`.
    Gpu,
    /// Switch of the GPU fabric; group `bdf`.
    Nvswitch,
    /// Network adapter; group `bdf`, or `nic`.
    Nic,
    /// Disk; group `disk`, or `bdf`.
    Disk,
    /// Device of unknown kind at group `bdf`.
    Pci,
    /// Process in group `pid`.
    Process,
    /// Rank in group `rank`, else the rank of the line.
    Rank,
    /// Node as a whole.
    Node,
    /// Job as a whole: its program, data or configuration.
    Job,
}

impl EntityRule {
    /// Returns the kind of device, if the rule names one.
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

//! Signatures: recognition rules for single log lines.

use rankguard_model::{ClassId, DeviceKind, EvidenceSource, Role, SmolStr};
use serde::Deserialize;

/// Recognition rule for a line: pattern, failure class and role.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    /// Signature id, unique in the catalogue.
    pub id: SmolStr,
    /// Sources to which it applies; empty for all. If empty, the kernel log is excluded for a class with a layer
    /// `user-*`, except for classes `cuda-*` and `gpu-*`.
    #[serde(default)]
    pub sources: Vec<EvidenceSource>,
    /// Prefilter: at least one of these texts occurs in every line that it matches, in upper or lower case.
    pub literals: Vec<String>,
    /// Regular expression; named groups become fields of the classification.
    pub pattern: String,
    /// Excluding regular expression: a line that also matches it does not match the signature.
    #[serde(default)]
    pub unless: Option<String>,
    /// Failure class that it indicates. With `codes`, the class comes from the table instead; for a number that is not
    /// in the table it is this class with the number appended, such as `unknown-xid-1000`.
    pub class: ClassId,
    /// True for a wording of many errors of a device: a signature of one of them on the same line displaces it.
    #[serde(default)]
    pub generic: bool,
    /// Role in a failure, as far as one line determines it. Default: root.
    #[serde(default = "root")]
    pub role: Role,
    /// Confidence, 0 to 1. A wording that only one failure can produce is above 0.9; a generic exception type about
    /// 0.5.
    pub confidence: f64,
    /// Entity to which the line refers. Default: [`EntityRule::Stream`].
    #[serde(default)]
    pub entity: EntityRule,
    /// Table that gives class, role and confidence by the captured number.
    #[serde(default)]
    pub codes: Option<CodeKind>,
    /// Address of a page or source file with the wording; empty if not stated.
    #[serde(default)]
    pub source: String,
    /// Example line, written for this project. Tests check that the signature matches it.
    pub example: String,
}

fn root() -> Role {
    Role::Root
}

/// Table of numbered driver events, and the pattern group that captures the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CodeKind {
    /// Xid events of the GPU driver; group `xid`.
    Xid,
    /// SXid events of the NVSwitch driver; group `sxid`.
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
    /// Network adapter; group `nic`, else `bdf`.
    Nic,
    /// Disk; group `disk`, else `bdf`.
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
    /// Returns the kind of device, or `None` for a rule without one, which includes [`EntityRule::Pci`].
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

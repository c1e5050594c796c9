//! Memory limits of mining.

use serde::{Deserialize, Serialize};

/// Limits of a miner and of its profiles. Input beyond a limit is counted, never dropped silently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MinerLimits {
    /// Maximum bytes of a line that are read, default 4,096.
    pub line_bytes: usize,
    /// Maximum tokens of a template, default 64.
    pub tokens: usize,
    /// Maximum bytes of a template, default 512.
    pub template_bytes: usize,
    /// Maximum number of templates, default 8,192.
    pub templates: usize,
    /// Number of different words after the same prefix above which they count as values, default 100.
    pub fan_out: usize,
    /// Maximum number of distinct streams, default 4,096; further ones share one name.
    pub streams: usize,
    /// Maximum number of distinct runs, default 256; further ones share one name.
    pub runs: usize,
    /// Maximum bytes of the example of each template, default 240.
    pub example_bytes: usize,
}

impl Default for MinerLimits {
    fn default() -> Self {
        Self {
            line_bytes: 4096,
            tokens: 64,
            template_bytes: 512,
            templates: 8192,
            fan_out: 100,
            streams: 4096,
            runs: 256,
            example_bytes: 240,
        }
    }
}

impl MinerLimits {
    /// Clamps the limits to valid ranges: even with a fan-out of one there are two templates a length.
    pub(crate) fn checked(self) -> Self {
        let tokens = self.tokens.clamp(1, 256);
        Self {
            line_bytes: self.line_bytes.clamp(16, 1 << 20),
            tokens,
            template_bytes: self.template_bytes.clamp(16, 1 << 14),
            templates: self.templates.clamp(4 * tokens, 1 << 20),
            fan_out: self.fan_out.clamp(1, 1 << 12),
            streams: self.streams.clamp(1, 1 << 15),
            runs: self.runs.clamp(1, 1 << 15),
            example_bytes: self.example_bytes.clamp(16, 1 << 14),
        }
    }

    /// Returns the limits of a merge of two profiles.
    pub(crate) fn united(self, other: Self) -> Self {
        let a = self.checked();
        let b = other.checked();
        Self {
            line_bytes: a.line_bytes.max(b.line_bytes),
            tokens: a.tokens.max(b.tokens),
            template_bytes: a.template_bytes.max(b.template_bytes),
            templates: a.templates.max(b.templates),
            fan_out: a.fan_out.min(b.fan_out),
            streams: a.streams.max(b.streams),
            runs: a.runs.max(b.runs),
            example_bytes: a.example_bytes.max(b.example_bytes),
        }
        .checked()
    }
}

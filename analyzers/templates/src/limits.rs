//! What bounds memory.

use serde::{Deserialize, Serialize};

/// Bounds of a miner and of what it writes. Whatever exceeds one is counted, never dropped in silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Bytes of a line that are looked at.
    pub line_bytes: usize,
    /// Tokens of a template.
    pub tokens: usize,
    /// Bytes of a template.
    pub template_bytes: usize,
    /// Templates kept.
    pub templates: usize,
    /// Different words after the same words, above which they count as values.
    pub fan_out: usize,
    /// Streams told apart; those beyond share one name.
    pub streams: usize,
    /// Runs told apart; those beyond share one name.
    pub runs: usize,
    /// Bytes of the example that is kept of each template.
    pub example_bytes: usize,
}

impl Default for Limits {
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

impl Limits {
    /// The nearest bounds that can be kept: with a fan-out of one there are still two templates a length.
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

    /// Bounds for what is made of two profiles.
    pub(crate) fn united(self, other: Self) -> Self {
        let (a, b) = (self.checked(), other.checked());
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

//! Selection of the lines to parse.

use std::sync::Arc;

use super::{Triage, driver, oom, traceback};
use crate::line::{self, LINE_LIMIT, ParsedLine, raw};
use crate::matcher::LineJudgement;

impl Triage {
    /// Returns true if the current line is parsed regardless of its content.
    pub(super) fn is_attentive(&self) -> bool {
        !self.lanes.is_empty() || self.line_no <= self.followed_to
    }

    /// Returns true if a line is notable by itself.
    pub(super) fn is_worth_reading(&self, raw: &[u8]) -> bool {
        let odd = raw::has_odd_bytes(raw);
        (odd || self.matcher.scanner().wants(raw)) && self.is_worth_a_look(raw, odd)
    }

    /// As `is_worth_reading`, for a line that has odd bytes or a scanner match.
    pub(super) fn is_worth_a_look(&self, raw: &[u8], odd: bool) -> bool {
        // A view of a part of a line may lack text that the whole has, and the reverse.
        let sure = !odd && raw.len() <= LINE_LIMIT && memchr::memchr(b'\r', raw).is_none();
        let mut speaks = false;
        raw::for_each_view(raw, &mut |look| {
            let wanted = speaks || sure || self.matcher.scanner().wants(look.text.as_bytes());
            speaks = speaks || wanted && self.speaks(&line::parse(&look.text, &self.stream.clock));
        });
        speaks
    }

    pub(super) fn speaks(&self, line: &ParsedLine<'_>) -> bool {
        self.judge(line.text).speaks
    }

    /// Returns the judgement of a line, from the cache if it was judged recently.
    pub(super) fn judge(&self, text: &str) -> Arc<LineJudgement> {
        self.heard.of(text).unwrap_or_else(|| {
            let opens = || traceback::opens(text) || oom::opens(text) || driver::is_driver_line(text);
            let said = self.matcher.judge(self.stream.source, text, opens);
            self.heard.remember(text, said)
        })
    }
}

/// Returns true for properties such as ` SUBSYSTEM=pci`, which /dev/kmsg adds to its records.
pub(super) fn is_property(text: &str) -> bool {
    let Some((name, _)) = text.strip_prefix(' ').and_then(|rest| rest.split_once('=')) else {
        return false;
    };
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}

//! Which lines are worth taking apart.

use std::sync::Arc;

use super::{Triage, driver, oom, traceback};
use crate::line::{self, LINE_LIMIT, ParsedLine, raw};
use crate::matcher::Judgement;

impl Triage {
    /// Whether the line at hand matters whatever it says.
    pub(super) fn is_attentive(&self) -> bool {
        !self.lanes.is_empty() || self.line_no <= self.followed_to
    }

    /// Whether a line says anything by itself.
    pub(super) fn is_worth_reading(&self, raw: &[u8]) -> bool {
        let odd = raw::has_odd_bytes(raw);
        (odd || self.matcher.scanner().wants(raw)) && self.is_worth_a_look(raw, odd)
    }

    /// The same of a line that has odd bytes or something wanted.
    pub(super) fn is_worth_a_look(&self, raw: &[u8], odd: bool) -> bool {
        // A look at a part of a line may lack what the whole has, and the other way round.
        let sure = !odd && raw.len() <= LINE_LIMIT && memchr::memchr(b'\r', raw).is_none();
        let mut speaks = false;
        raw::looks(raw, &mut |look| {
            let wanted = speaks || sure || self.matcher.scanner().wants(look.text.as_bytes());
            speaks = speaks || wanted && self.speaks(&line::parse(&look.text, &self.stream.clock));
        });
        speaks
    }

    pub(super) fn speaks(&self, line: &ParsedLine<'_>) -> bool {
        self.judge(line.text).speaks
    }

    /// What the signatures say of a line, which may just have been asked.
    pub(super) fn judge(&self, text: &str) -> Arc<Judgement> {
        self.heard.of(text).unwrap_or_else(|| {
            let opens = || traceback::opens(text) || oom::opens(text) || driver::speaks(text);
            let said = self.matcher.judge(self.stream.source, text, opens);
            self.heard.remember(text, said)
        })
    }
}

/// ` SUBSYSTEM=pci` and the like, which /dev/kmsg adds to its records.
pub(super) fn is_property(text: &str) -> bool {
    let Some((name, _)) = text.strip_prefix(' ').and_then(|rest| rest.split_once('=')) else {
        return false;
    };
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}

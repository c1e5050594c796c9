//! Attempts of a run in one log: a program that ended with an exception was started again, and its new output follows.
//!
//! A failure of a later attempt does not follow from that of an earlier one. A new attempt is seen by three things together:
//! an exception left the program, the clock of the log paused for longer than that of one failure, and the next stamped line
//! reports a start. Without a pause the two failures may be one.

use rankguard_diagnosis::{NEXT_ATTEMPT_FIELD, Signal, SignalMeaning};
use rankguard_faults::line::{LogLevel, ParsedLine};
use rankguard_model::Timestamp;

use crate::incident::QUIET;
use crate::stream::PlacedObservation;

/// Maximum number of recorded starts of a stream.
const STARTS: usize = 1_000;

/// Parts of words of lines that a program writes as it starts. Lower case.
const START_WORDS: [&str; 11] = [
    "args:",
    "arguments",
    "attempt",
    "config",
    "initiali",
    "launch",
    "load",
    "resum",
    "start",
    "setup",
    "world size",
];

/// Start of a run below a pause of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Restart {
    /// Line and time of the last stamp before the pause.
    pub(crate) above: (u64, Timestamp),
    /// Line and time of the first stamp after it.
    pub(crate) below: (u64, Timestamp),
}

/// Starts of one stream, in line order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Restarts {
    /// Line and time of the newest stamp.
    last: Option<(u64, Timestamp)>,
    found: Vec<Restart>,
}

impl Restarts {
    /// Reads a line with a stamp.
    pub(crate) fn read(&mut self, number: u64, at: Timestamp, parsed: &ParsedLine<'_>) {
        let below = (number, at);
        let Some(above) = self.last.replace(below) else {
            return;
        };
        let is_plain = parsed.level.is_none_or(|level| level < LogLevel::Warning);
        if at.since(above.1) <= QUIET || number <= above.0 + 1 || !is_plain || self.found.len() >= STARTS {
            return;
        }
        let lower = parsed.text.to_ascii_lowercase();
        if START_WORDS.iter().any(|word| lower.contains(word)) {
            self.found.push(Restart { above, below });
        }
    }

    /// Returns the start between two observations, of which the first is an exception that ended the program.
    pub(crate) fn between(&self, one: &PlacedObservation, next: &PlacedObservation) -> Option<Restart> {
        let is_end = one.signs.iter().any(left_program);
        let is_between = |start: &&Restart| {
            let (above, below) = (start.above.0, start.below.0);
            above < one.first_line && one.last_line < below && below <= next.first_line
        };
        self.found.iter().find(is_between).copied().filter(|_| is_end)
    }
}

/// Returns true for an exception with a traceback.
fn left_program(sign: &Signal) -> bool {
    sign.is_root_mark() && sign.field("exception").is_some()
}

/// Records in an observation that its log goes on with another attempt.
pub(crate) fn mark_next(sign: &mut Signal, start: &Restart) {
    if let SignalMeaning::Mark(mark) = &mut sign.what {
        mark.fields.fill(NEXT_ATTEMPT_FIELD, start.below.0.to_string());
    }
}

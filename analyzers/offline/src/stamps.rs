//! Stamps above lines without one: a traceback below the line of a logger that reports the error is of the same moment.
//!
//! Only a line that reports an error gives its time, and only to what is printed right below it. Any other line, such as
//! the warning with which a launcher begins, was written at an unknown time before. The stamp below a line bounds its time.

use rankguard_diagnosis::{SignalMeaning, WRITTEN_UNTIL_FIELD};
use rankguard_faults::line::{self, LineClock, LogLevel};
use rankguard_model::{Rank, Timestamp};

use crate::attempts::Restarts;
use crate::progress::is_progress;
use crate::stream::PlacedObservation;

/// Maximum distance of a line from the stamp above it, lines.
const NEAR: u64 = 12;
/// Maximum number of recorded stamps and bounds.
const STAMPS: usize = 20_000;
/// Maximum part of a line that is parsed, bytes.
const HEAD: usize = 512;
/// Words of a line that reports an error, if its logger adds no level or a lower one. Lower case.
const ERROR_WORDS: [&str; 7] = [
    "crash",
    "error",
    "exception",
    "fatal",
    "traceback",
    "uncaught",
    "unhandled",
];

/// Returns true for a line that begins with a step: `step 2000`.
fn is_step(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let word = words.next().unwrap_or_default().trim_end_matches(':');
    let is_unit = ["step", "iter", "iteration", "epoch", "batch"].contains(&word.to_ascii_lowercase().as_str());
    is_unit
        && words
            .next()
            .is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
}

/// Stamp of a line that reports an error.
#[derive(Debug, Clone)]
struct Stamp {
    /// Line number, from 1.
    line: u64,
    at: Timestamp,
    /// Rank in the prefix of the line.
    rank: Option<Rank>,
    /// Last line below it before the next stamp or the next line of work.
    until: u64,
    /// Number of lines below it that are of the same moment.
    reach: u64,
}

/// Stamps of lines that report errors and have lines without a stamp below them.
#[derive(Debug, Default)]
pub(crate) struct StampIndex {
    /// Stamp above the next line.
    last: Option<Stamp>,
    /// Earlier stamps, in line order.
    stamps: Vec<Stamp>,
    /// True if the newest line has no stamp.
    is_open: bool,
    /// Number and time of each stamped line below one without a stamp, in line order.
    bounds: Vec<(u64, Timestamp)>,
    /// Starts of the run below pauses.
    pub(crate) restarts: Restarts,
}

impl StampIndex {
    /// Reads a line. Lines between two calls have not been read.
    pub(crate) fn read(&mut self, number: u64, text: &str, clock: &LineClock) {
        let head = line::clean(&text[..text.floor_char_boundary(HEAD)]);
        let parsed = line::parse(&head, clock);
        let Some(at) = parsed.at else {
            self.is_open = true;
            let is_work = is_progress(text) || is_step(parsed.text);
            if let Some(last) = self.last.as_mut().filter(|last| last.until + 1 == number && !is_work) {
                last.until = number;
            }
            return;
        };
        if std::mem::take(&mut self.is_open) && self.bounds.len() < STAMPS {
            self.bounds.push((number, at));
        }
        self.restarts.read(number, at, &parsed);
        self.close();
        let lower = parsed.text.to_ascii_lowercase();
        let has_error_word = ERROR_WORDS.iter().any(|word| lower.contains(word));
        let is_warning = parsed.level == Some(LogLevel::Warning);
        let reach = if parsed.level.is_some_and(|level| level >= LogLevel::Error) || has_error_word {
            NEAR
        } else if is_warning && lower.contains("failed") {
            1
        } else {
            0
        };
        self.last = (reach > 0).then_some(Stamp {
            line: number,
            at,
            rank: parsed.rank,
            until: number,
            reach,
        });
    }

    /// Records the stamp above the previous lines.
    fn close(&mut self) {
        let used = self.last.take().filter(|stamp| stamp.until > stamp.line);
        if let Some(stamp) = used.filter(|_| self.stamps.len() < STAMPS) {
            self.stamps.push(stamp);
        }
    }

    /// Gives observations without a time that of the line above, if it reports an error and names no other rank.
    /// `ahead_ns` is the lead of the writer's clock over the reference.
    pub(crate) fn date(mut self, seen: &mut [PlacedObservation], ahead_ns: i64) {
        self.close();
        for seen in seen.iter_mut().filter(|seen| seen.own_clock.is_none()) {
            let rank = seen.signs.iter().find_map(|sign| sign.entity.rank());
            let corrected = |at: Timestamp| Timestamp(at.0.saturating_sub(ahead_ns));
            let Some(at) = self.above(seen.first_line, rank).map(corrected) else {
                if let Some(until) = self.below(seen.last_line).map(corrected) {
                    bound(seen, until);
                }
                continue;
            };
            seen.wall = Some(at);
            seen.own_clock = Some(at);
            for sign in &mut seen.signs {
                sign.at = at;
                sign.timed = true;
            }
        }
    }

    /// Returns the stamp of the first stamped line below a line.
    fn below(&self, number: u64) -> Option<Timestamp> {
        let bound = self.bounds.partition_point(|(line, _)| *line <= number);
        self.bounds.get(bound).map(|(_, at)| *at)
    }

    fn above(&self, number: u64, rank: Option<Rank>) -> Option<Timestamp> {
        let below = self.stamps.partition_point(|stamp| stamp.line < number);
        let stamp = self.stamps.get(below.checked_sub(1)?)?;
        let is_same = stamp.rank.is_none() || rank.is_none() || stamp.rank == rank;
        let is_near = number <= stamp.until && number - stamp.line <= stamp.reach;
        (is_same && is_near).then_some(stamp.at)
    }
}

/// Records the time before which an observation without a stamp was written.
fn bound(seen: &mut PlacedObservation, until: Timestamp) {
    for sign in &mut seen.signs {
        if let SignalMeaning::Mark(mark) = &mut sign.what {
            mark.fields.fill(WRITTEN_UNTIL_FIELD, until.0.to_string());
        }
    }
}

//! Triage: turns the lines of one stream into observations.
//!
//! A stream is one log of one writer (a kernel ring, the standard error of a rank, a launcher's log in which many
//! ranks write under prefixes). Lines that belong together become one [`LogObservation`]: a Python traceback, also if
//! lines of other ranks interrupt it; the dump of an OOM kill; the lines of one PCIe or NVSwitch error; repeats of
//! the same event.
//!
//! An observation is held until its group is quiet for [`IDLE`] or older than [`HOLD`] on the caller's clock
//! ([`Triage::poll`]), until the lines' own clock has advanced by [`WINDOW`], or until [`Triage::flush`]. A caller
//! that reads whole files may pass any constant as `now` and flush at the end.
//!
//! Lines arrive one by one ([`Triage::push`]) or as blocks of bytes ([`Triage::push_block`]); the observations are
//! equal. A line that neither matches a signature nor belongs to an open unit is only counted and retained briefly as
//! possible context; a block is scanned as a whole, without splitting such lines.
//!
//! Bounds: [`LANES`] lanes with an open unit, [`PENDING`] waiting groups; beyond them the oldest are emitted early,
//! never dropped. A unit to which [`QUIET_LINES`] lines of the stream added nothing is complete.

mod block;
mod conversion;
mod driver;
mod frames;
mod group;
mod history;
mod judgement_cache;
mod lane;
mod lanes;
mod limits;
mod line_prefix;
mod observation;
mod oom;
mod recent;
mod selection;
mod stream;
mod traceback;

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use rankguard_model::{EvidenceSource, Timestamp};

use crate::line::raw::LinePart;
use crate::line::{self, LineClock, ParsedLine, YearHint, raw};
use crate::matcher::SignatureMatcher;
use driver::DriverState;
use group::PendingGroups;
use history::GpuHistory;
use judgement_cache::JudgementCache;
use lane::LaneKey;
use lanes::LaneTable;
use line_prefix::LinePrefix;
use recent::RecentLines;
use selection::is_property;
use traceback::LineRelation;

pub use frames::FRAMEWORKS;
pub use limits::{CONTEXT, HOLD, IDLE, LANES, PENDING, QUIET_LINES, WINDOW};
pub use observation::LogObservation;
pub use stream::StreamContext;

/// Triage state machine of one stream.
#[derive(Debug)]
pub struct Triage {
    matcher: Arc<SignatureMatcher>,
    stream: StreamContext,
    lanes: LaneTable,
    groups: PendingGroups,
    history: GpuHistory,
    heard: JudgementCache,
    recent: RecentLines,
    driver: DriverState,
    line_no: u64,
    /// Lines up to this number may be context of a group.
    followed_to: u64,
    /// Number of the last parsed line.
    last_read: u64,
    /// Numbers of lines with a year that they do not state.
    assumed_years: BTreeSet<u64>,
    /// Start of an incomplete line.
    partial: Vec<u8>,
    /// True if the partial line is already counted, because parts of it were read.
    partial_counted: bool,
    now: Timestamp,
}

/// Maximum number of recorded lines with a year that they do not state.
const ASSUMED_YEARS: usize = 100_000;

/// Returns true if only the time of the last write to a log gives a line its year.
fn is_year_assumed(text: &str, clock: LineClock) -> bool {
    let is_of_file = clock.year.is_none() && matches!(clock.hint, Some(YearHint::WrittenBy(_)));
    is_of_file && line::parse(text, &LineClock { hint: None, ..clock }).at.is_none()
}

/// Use of a line.
#[derive(Debug, PartialEq, Eq)]
enum LineUse {
    /// Line is part of a traceback or a dump.
    Taken,
    /// Single line, matched or not.
    Single,
}

impl Triage {
    /// Creates the triage of one stream.
    pub fn new(matcher: Arc<SignatureMatcher>, stream: StreamContext) -> Self {
        Self {
            matcher,
            stream,
            lanes: LaneTable::default(),
            groups: PendingGroups::default(),
            history: GpuHistory::default(),
            heard: JudgementCache::default(),
            recent: RecentLines::default(),
            driver: DriverState::default(),
            line_no: 0,
            followed_to: 0,
            last_read: 0,
            assumed_years: BTreeSet::new(),
            partial: Vec::new(),
            partial_counted: false,
            now: Timestamp(0),
        }
    }

    /// Matches later lines against another catalogue. Open units and waiting groups are retained.
    pub fn reload(&mut self, matcher: Arc<SignatureMatcher>) {
        if !Arc::ptr_eq(&self.matcher, &matcher) {
            self.heard.forget();
            self.matcher = matcher;
        }
    }

    /// Returns the number of the last parsed line, 0 before the first: all observations, held ones included, consist
    /// of lines up to it.
    pub fn last_read(&self) -> u64 {
        self.last_read
    }

    /// Returns true if the year of a line that was read is that of the last write to the log, because no line states one.
    pub fn has_assumed_year(&self, line_no: u64) -> bool {
        self.assumed_years.contains(&line_no)
    }

    /// Reads the next line, with the time it was read. Returns the observations that became complete.
    pub fn push(&mut self, raw: &str, now: Timestamp) -> Vec<LogObservation> {
        let mut out = Vec::new();
        self.line(raw.as_bytes(), now, &mut out);
        out
    }

    /// Reads a complete line.
    fn line(&mut self, raw: &[u8], now: Timestamp, out: &mut Vec<LogObservation>) {
        self.line_no += 1;
        let mut rest = raw;
        while rest.len() > raw::PART_LIMIT {
            let end = raw::part_end(&rest[..raw::PART_LIMIT]);
            self.part(&rest[..end], now);
            rest = &rest[end..];
        }
        self.part(rest, now);
        self.groups.take_ready(now, out);
    }

    /// Reads a line, or a part of one that has no end.
    fn part(&mut self, raw: &[u8], now: Timestamp) {
        self.now = now;
        if self.is_attentive() || self.is_worth_reading(raw) {
            self.read(raw, now);
        } else {
            self.recent.remember(self.line_no, raw);
        }
    }

    /// Parses a line and accepts its views.
    fn read(&mut self, raw: &[u8], now: Timestamp) {
        self.last_read = self.line_no;
        let clock = self.stream.clock;
        let head = OnceCell::new();
        let mut is_matched = false;
        let mut has_single = false;
        raw::for_each_view(raw, &mut |look| {
            let mut parsed = line::parse(&look.text, &clock);
            if parsed.at.is_some() && is_year_assumed(&look.text, clock) && self.assumed_years.len() < ASSUMED_YEARS {
                self.assumed_years.insert(self.line_no);
            }
            // The prefix is in the first of several views and applies to all.
            if look.part == LinePart::Shown {
                head.get()
                    .into_iter()
                    .for_each(|head: &LinePrefix| head.lend(&mut parsed));
            } else {
                head.get_or_init(|| LinePrefix::of(&parsed)).lend(&mut parsed);
            }
            if look.part != LinePart::Shown {
                let is_open = look.part == LinePart::Hidden || !is_matched;
                if is_open && self.matcher.scanner().wants(look.text.as_bytes()) && self.speaks(&parsed) {
                    self.accept(&parsed, now);
                }
                return;
            }
            if self.stream.source == EvidenceSource::KernelLog && is_property(&look.text) {
                return;
            }
            if self.accept(&parsed, now) == LineUse::Taken {
                is_matched = true;
            } else {
                is_matched |= self.speaks(&parsed);
                has_single = true;
            }
        });
        if has_single {
            self.recent.remember(self.line_no, raw);
        }
    }

    /// Emits the observations that were quiet or held for long enough at `now`.
    pub fn poll(&mut self, now: Timestamp) -> Vec<LogObservation> {
        for (key, last) in self.lanes.due(now) {
            // The lane was quiet since `last`, so its group does not wait again.
            self.close_lane(&key, last);
        }
        let mut out = Vec::new();
        self.groups.take_ready(now, &mut out);
        out
    }

    /// Emits the observations that wait for repeats and for the lines that follow them, for a caller that needs all facts
    /// so far. Multi-line units remain open, because their class follows from their end.
    pub fn release(&mut self) -> Vec<LogObservation> {
        self.groups.take_all()
    }

    /// Returns the time at which [`Triage::poll`] emits next, if no line arrives.
    pub fn deadline(&self) -> Option<Timestamp> {
        let lanes = self.lanes.deadline().into_iter();
        lanes.chain(self.groups.deadline()).min()
    }

    /// Returns true if any lane or group is held.
    pub fn has_pending(&self) -> bool {
        !self.lanes.is_empty() || !self.groups.is_empty()
    }

    /// Returns the number of the oldest held line; none if nothing is held.
    pub fn oldest_pending_line(&self) -> Option<u64> {
        let lanes = self.lanes.first_line().into_iter();
        lanes.chain(self.groups.first_line()).min()
    }

    /// Emits everything that is held, complete or not, at the end of the stream.
    pub fn flush(&mut self) -> Vec<LogObservation> {
        let mut out = Vec::new();
        self.end_partial(&mut out);
        for key in self.lanes.keys() {
            self.close_lane(&key, Timestamp(i64::MAX));
        }
        out.extend(self.groups.take_all());
        out
    }

    fn accept(&mut self, parsed: &ParsedLine<'_>, now: Timestamp) -> LineUse {
        for key in self.lanes.silent(self.line_no) {
            self.close_lane(&key, now);
        }
        let key: LaneKey = (parsed.host.map(str::to_owned), parsed.rank, parsed.local_rank);
        let kernel = parsed.kernel || self.stream.source == EvidenceSource::KernelLog;
        loop {
            if !self.lanes.contains(&key) {
                let opens = if kernel {
                    oom::opens(parsed.text)
                } else {
                    traceback::opens(parsed.text)
                };
                if !opens {
                    break;
                }
                if let Some(oldest) = self.lanes.to_evict() {
                    self.close_lane(&oldest, now);
                }
            }
            let line_no = self.line_no;
            let lane = self.lanes.at(&key, now, line_no);
            if !kernel {
                match lane.traceback.accept(parsed, line_no) {
                    LineRelation::Taken => return LineUse::Taken,
                    LineRelation::Closed => {
                        self.close_lane(&key, now);
                        continue;
                    }
                    LineRelation::Other => break,
                }
            }
            let lost = lane.oom.take_over(parsed, line_no);
            let (taken, done) = lane.oom.accept(parsed, line_no);
            let in_dump = lane.oom.is_open();
            if !lane.is_open() {
                self.lanes.remove(&key);
            }
            for unit in lost.into_iter().chain(done) {
                self.add_oom(unit, now);
            }
            if taken || in_dump && self.judge(parsed.text).hits.is_empty() {
                return LineUse::Taken;
            }
            break;
        }
        self.single(&key, parsed, now);
        LineUse::Single
    }
}

#[cfg(test)]
mod tests;

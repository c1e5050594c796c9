//! Triage: lines of one stream in, observations out.
//!
//! A stream is one log of one writer (a kernel ring, the standard error of a rank, a launcher's log in which many ranks speak
//! under prefixes). What belongs together becomes one [`Observation`]: a Python traceback, also when other ranks talk in
//! between; the dump of an OOM kill; the lines of one PCIe or NVSwitch error; repeats of the same event.
//!
//! An observation is held back until its group is quiet for [`IDLE`] or is older than [`HOLD`] on the caller's clock
//! ([`Triage::poll`]), until the lines' own clock has moved on by [`WINDOW`], or until [`Triage::flush`]. Whoever reads whole
//! files may pass any constant as `now` and flush at the end.
//!
//! Bounds: [`LANES`] ranks with an open traceback, [`PENDING`] groups that wait; beyond them the oldest are given out early,
//! never dropped.

mod frames;
mod group;
mod history;
mod lane;
mod oom;
mod traceback;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rankguard_model::{Device, Mark, Rank, Source, Timestamp};

use crate::line::{self, LineClock, ParsedLine};
use crate::matcher::{Matcher, device_of};
use crate::signature::EntityRule;
use group::{Group, Groups};
use history::History;
use lane::Lane;
use traceback::Step;

/// A group that nothing was added to for this long is complete.
pub const IDLE: Duration = Duration::from_millis(200);
/// A group is not held longer than this, even while it grows.
pub const HOLD: Duration = Duration::from_secs(2);
/// Repeats further apart than this on the lines' own clock are two observations.
pub const WINDOW: Duration = Duration::from_secs(60);
/// Ranks with an open unit at a time.
pub const LANES: usize = 4096;
/// Groups that wait at a time.
pub const PENDING: usize = 1024;
/// Lines kept around the deciding one.
pub const CONTEXT: usize = 12;

/// What a reader knows of a stream beyond its lines.
#[derive(Debug, Clone)]
pub struct Stream {
    /// The collector.
    pub source: Source,
    /// The rank that wrote it, where it is one rank's own.
    pub rank: Option<Rank>,
    /// How to read its clocks.
    pub clock: LineClock,
}

impl Stream {
    /// A stream of this source of which nothing else is known.
    pub fn new(source: Source) -> Self {
        Self {
            source,
            rank: None,
            clock: LineClock::default(),
        }
    }
}

/// Lines that belong together and what they say.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// The deciding line, without its prefixes.
    pub text: String,
    /// Lines around it, oldest first, without `text` itself.
    pub context: Vec<String>,
    /// How often it was seen, at least 1.
    pub repeats: u32,
    /// What the signatures say, best first; never empty.
    pub marks: Vec<Mark>,
    /// Wall clock of the first line, where the line tells it.
    pub at: Option<Timestamp>,
    /// Time since boot of the first line in microseconds, for kernel lines.
    pub since_boot_us: Option<u64>,
    /// The rank that speaks or is spoken of.
    pub rank: Option<Rank>,
    /// Its rank on the node, where the line tells only that.
    pub local_rank: Option<u32>,
    /// Host named by the line.
    pub host: Option<String>,
    /// The device it is about.
    pub device: Option<Device>,
    /// Number of its first line in the stream, from 1.
    pub line_no: u64,
    /// Number of its last line so far.
    pub last_line_no: u64,
}

/// Key of a lane: everything a rank (or a host) writes.
type LaneKey = (Option<String>, Option<Rank>, Option<u32>);

/// The state machine of one stream.
#[derive(Debug)]
pub struct Triage {
    matcher: Arc<Matcher>,
    stream: Stream,
    lanes: BTreeMap<LaneKey, Lane>,
    groups: Groups,
    history: History,
    line_no: u64,
}

impl Triage {
    /// For one stream.
    pub fn new(matcher: Arc<Matcher>, stream: Stream) -> Self {
        Self {
            matcher,
            stream,
            lanes: BTreeMap::new(),
            groups: Groups::default(),
            history: History::default(),
            line_no: 0,
        }
    }

    /// The next line, with the moment it was read. Gives what became complete by it.
    pub fn push(&mut self, raw: &str, now: Timestamp) -> Vec<Observation> {
        self.line_no += 1;
        let cleaned = line::clean(raw);
        let parsed = line::parse(&cleaned, &self.stream.clock);
        let mut out = Vec::new();
        if !(self.stream.source == Source::KernelLog && is_property(&cleaned)) {
            self.accept(&parsed, now);
        }
        self.groups.take_ready(now, &mut out);
        out
    }

    /// Gives what has been quiet or held for long enough at `now`.
    pub fn poll(&mut self, now: Timestamp) -> Vec<Observation> {
        let idle = self.lanes.iter().filter(|(_, lane)| lane.is_due(now));
        let idle: Vec<_> = idle.map(|(key, lane)| (key.clone(), lane.last_at())).collect();
        for (key, last) in idle {
            // It has been quiet since `last`, so its group need not wait again.
            self.close_lane(&key, last);
        }
        let mut out = Vec::new();
        self.groups.take_ready(now, &mut out);
        out
    }

    /// When [`Triage::poll`] will have something to give, if nothing else arrives.
    pub fn deadline(&self) -> Option<Timestamp> {
        let lanes = self.lanes.values().filter_map(Lane::deadline).min();
        lanes.into_iter().chain(self.groups.deadline()).min()
    }

    /// Gives everything that is held, complete or not: the stream has ended.
    pub fn flush(&mut self) -> Vec<Observation> {
        let keys: Vec<_> = self.lanes.keys().cloned().collect();
        for key in keys {
            self.close_lane(&key, Timestamp(i64::MAX));
        }
        self.lanes.clear();
        self.groups.take_all()
    }

    fn accept(&mut self, parsed: &ParsedLine<'_>, now: Timestamp) {
        let key: LaneKey = (parsed.host.map(str::to_owned), parsed.rank, parsed.local_rank);
        if !self.lanes.contains_key(&key) && self.lanes.len() >= LANES {
            self.evict_lane(now);
        }
        let line_no = self.line_no;
        let lane = self.lanes.entry(key.clone()).or_default();
        lane.touch(now);
        if parsed.kernel || self.stream.source == Source::KernelLog {
            let lost = lane.oom.take_over(parsed, line_no);
            let (taken, done) = lane.oom.accept(parsed, line_no);
            let in_dump = lane.oom.is_open();
            for unit in lost.into_iter().chain(done) {
                self.add_oom(unit, now);
            }
            if taken {
                return;
            }
            if in_dump && self.matcher.hits(self.stream.source, parsed.text).is_empty() {
                return;
            }
        } else {
            match lane.traceback.accept(parsed, line_no) {
                Step::Taken => return,
                Step::Closed => {
                    self.close_lane(&key, now);
                    return self.accept(parsed, now);
                }
                Step::Other => {}
            }
        }
        self.single(&key, parsed, now);
    }

    /// A line that stands for itself.
    fn single(&mut self, key: &LaneKey, parsed: &ParsedLine<'_>, now: Timestamp) {
        let mut hits = self.matcher.hits(self.stream.source, parsed.text);
        let line_no = self.line_no;
        let Some(lane) = self.lanes.get_mut(key) else { return };
        if let Some(gpu) = announced_gpu(parsed.text) {
            lane.gpu = Some((line_no, gpu));
        }
        if hits.is_empty() {
            lane.remember(parsed.text);
            self.groups.follow(key, parsed.text, line_no);
            return;
        }
        let announced = lane.gpu.clone().filter(|(at, _)| line_no - at <= 3).map(|(_, gpu)| gpu);
        for hit in &mut hits {
            if let Some(gpu) = announced.as_ref().filter(|_| hit.entity == EntityRule::Gpu) {
                hit.mark.fields.entry("bdf".to_owned()).or_insert_with(|| gpu.clone());
            }
            self.history.judge(&mut hit.mark, parsed);
        }
        let context = lane.recent();
        lane.remember(parsed.text);
        let mut observation = self.observe(parsed);
        observation.device = hits.iter().find_map(|hit| device_of(hit.entity, &hit.mark));
        let spoken_of = hits[0]
            .mark
            .fields
            .get("rank")
            .and_then(|rank| rank.parse().ok())
            .map(Rank);
        observation.rank = spoken_of.or(observation.rank);
        observation.context = context;
        observation.marks = hits.into_iter().map(|hit| hit.mark).collect();
        self.groups.add(Group::new(key.clone(), observation, now));
    }

    fn observe(&self, parsed: &ParsedLine<'_>) -> Observation {
        Observation {
            text: parsed.text.trim().to_owned(),
            context: Vec::new(),
            repeats: 1,
            marks: Vec::new(),
            at: parsed.at,
            since_boot_us: parsed.since_boot_us,
            rank: parsed.rank.or(self.stream.rank),
            local_rank: parsed.local_rank,
            host: parsed.host.map(str::to_owned),
            device: None,
            line_no: self.line_no,
            last_line_no: self.line_no,
        }
    }

    fn evict_lane(&mut self, now: Timestamp) {
        let oldest = self
            .lanes
            .iter()
            .min_by_key(|(_, lane)| lane.last_at())
            .map(|(key, _)| key.clone());
        if let Some(key) = oldest {
            self.close_lane(&key, now);
            self.lanes.remove(&key);
        }
    }

    /// Gives what a lane has collected to the groups.
    fn close_lane(&mut self, key: &LaneKey, now: Timestamp) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        let traceback = lane.traceback.take();
        let oom = lane.oom.take();
        if let Some(unit) = traceback {
            self.add_traceback(key, unit, now);
        }
        if let Some(unit) = oom {
            self.add_oom(unit, now);
        }
    }

    fn add_traceback(&mut self, key: &LaneKey, unit: traceback::Unit, now: Timestamp) {
        let mut observation = unit.observation(&self.matcher, self.stream.source);
        observation.rank = observation.rank.or(self.stream.rank);
        self.groups.add(Group::new(key.clone(), observation, now));
    }

    fn add_oom(&mut self, unit: oom::Unit, now: Timestamp) {
        let mut observation = unit.observation();
        observation.rank = observation.rank.or(self.stream.rank);
        self.groups.add(Group::new((None, None, None), observation, now));
    }
}

/// ` SUBSYSTEM=pci` and the like, which /dev/kmsg adds to its records.
fn is_property(text: &str) -> bool {
    let Some((name, _)) = text.strip_prefix(' ').and_then(|rest| rest.split_once('=')) else {
        return false;
    };
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}

/// `NVRM: The NVIDIA GPU 0000:9b:00.0 (PCI ID: ...)`: the driver names the GPU first and says later what became of it.
fn announced_gpu(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("NVRM: The NVIDIA GPU ")?;
    Some(rest.split([' ', '(']).next().unwrap_or(rest).to_owned())
}

#[cfg(test)]
mod tests;

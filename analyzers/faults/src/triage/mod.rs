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
//! Lines come one by one ([`Triage::push`]) or as blocks of bytes ([`Triage::push_block`]); the observations are the same. A
//! line that can neither say anything nor belong to something open is only counted and kept for a while, in case the next one
//! needs it as context; a block is searched as a whole and such lines are not even found.
//!
//! Bounds: [`LANES`] ranks with an open traceback, [`PENDING`] groups that wait; beyond them the oldest are given out early,
//! never dropped. A unit that no line was added to for [`QUIET_LINES`] lines of the stream is complete.

mod block;
mod frames;
mod group;
mod heard;
mod history;
mod lane;
mod oom;
mod recent;
mod traceback;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rankguard_model::{Device, Mark, Rank, Role, Source, Timestamp};

use crate::decode::DriverVersion;
use crate::line::{self, Level, LineClock, ParsedLine, raw};
use crate::matcher::{Judgement, LINE_LIMIT, Matcher, device_of};
use crate::signature::EntityRule;
pub use frames::FRAMEWORKS;
use group::{Group, Groups};
use heard::Heard;
use history::History;
use lane::Lane;
use recent::Recent;
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
/// A unit is complete when this many lines of others have passed it by: its writer is gone.
pub const QUIET_LINES: u64 = 20_000;
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
    /// The number of the deciding line.
    pub key_line_no: u64,
}

/// What is left of the certainty of a line that its writer marks as mere information.
const INFORMED: f64 = 0.7;
/// A GPU is announced for this many lines.
const ANNOUNCED_LINES: u64 = 3;

/// Key of a lane: everything a rank (or a host) writes.
type LaneKey = (Option<String>, Option<Rank>, Option<u32>);

/// The state machine of one stream.
#[derive(Debug)]
pub struct Triage {
    matcher: Arc<Matcher>,
    stream: Stream,
    /// Those with something open.
    lanes: BTreeMap<LaneKey, Lane>,
    /// Line at which lanes are looked through for silent ones.
    sweep_at: u64,
    groups: Groups,
    history: History,
    heard: Heard,
    recent: Recent,
    /// GPUs that the driver has begun to speak of.
    announced: Vec<Announced>,
    /// The GPU driver that runs, once it has said so.
    driver: Option<DriverVersion>,
    line_no: u64,
    /// Lines up to this one may be context of a group.
    followed_to: u64,
    /// The last line that was taken apart.
    last_read: u64,
    /// The start of a line whose end has not arrived.
    partial: Vec<u8>,
    /// That line has a number already: parts of it were read.
    partial_counted: bool,
    now: Timestamp,
}

/// `NVRM: The NVIDIA GPU 0000:9b:00.0 ...`: the driver names the GPU first and says in the next lines what became of it.
#[derive(Debug)]
struct Announced {
    lane: LaneKey,
    line_no: u64,
    gpu: String,
}

/// What became of a line.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// Part of a traceback or a dump.
    Taken,
    /// A line of its own, remarkable or not.
    Single,
}

impl Triage {
    /// For one stream.
    pub fn new(matcher: Arc<Matcher>, stream: Stream) -> Self {
        Self {
            matcher,
            stream,
            lanes: BTreeMap::new(),
            sweep_at: 0,
            groups: Groups::default(),
            history: History::default(),
            heard: Heard::default(),
            recent: Recent::default(),
            announced: Vec::new(),
            driver: None,
            line_no: 0,
            followed_to: 0,
            last_read: 0,
            partial: Vec::new(),
            partial_counted: false,
            now: Timestamp(0),
        }
    }

    /// From now on lines are tried against another catalogue. What is open or waits stays so.
    pub fn reload(&mut self, matcher: Arc<Matcher>) {
        if !Arc::ptr_eq(&self.matcher, &matcher) {
            self.heard.forget();
            self.matcher = matcher;
        }
    }

    /// Number of the last line that was taken apart, 0 before the first: observations, those that are still held included,
    /// are made of lines up to it.
    pub fn last_read(&self) -> u64 {
        self.last_read
    }

    /// The next line, with the moment it was read. Gives what became complete by it.
    pub fn push(&mut self, raw: &str, now: Timestamp) -> Vec<Observation> {
        let mut out = Vec::new();
        self.line(raw.as_bytes(), now, &mut out);
        out
    }

    /// A whole line.
    fn line(&mut self, raw: &[u8], now: Timestamp, out: &mut Vec<Observation>) {
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

    /// A line, or a part of one that has no end.
    fn part(&mut self, raw: &[u8], now: Timestamp) {
        self.now = now;
        if self.is_attentive() || self.is_worth_reading(raw) {
            self.read(raw, now);
        } else {
            self.recent.remember(self.line_no, raw);
        }
    }

    /// Whether the line at hand matters whatever it says.
    fn is_attentive(&self) -> bool {
        !self.lanes.is_empty() || self.line_no <= self.followed_to
    }

    /// Whether a line says anything by itself.
    fn is_worth_reading(&self, raw: &[u8]) -> bool {
        let odd = raw::has_odd_bytes(raw);
        (odd || self.matcher.scanner().wants(raw)) && self.is_worth_a_look(raw, odd)
    }

    /// The same of a line that has odd bytes or something wanted.
    fn is_worth_a_look(&self, raw: &[u8], odd: bool) -> bool {
        // A look at a part of a line may lack what the whole has, and the other way round.
        let sure = !odd && raw.len() <= LINE_LIMIT && memchr::memchr(b'\r', raw).is_none();
        let mut speaks = false;
        raw::looks(raw, &mut |look| {
            let wanted = speaks || sure || self.matcher.scanner().wants(look.text.as_bytes());
            speaks = speaks || wanted && self.speaks(&line::parse(&look.text, &self.stream.clock));
        });
        speaks
    }

    fn speaks(&self, line: &ParsedLine<'_>) -> bool {
        self.judge(line.text).speaks
    }

    /// What the signatures say of a line, which may just have been asked.
    fn judge(&self, text: &str) -> Arc<Judgement> {
        self.heard.of(text).unwrap_or_else(|| {
            let opens = || {
                traceback::opens(text)
                    || oom::opens(text)
                    || announced_gpu(text).is_some()
                    || announced_driver(text).is_some()
            };
            let said = self.matcher.judge(self.stream.source, text, opens);
            self.heard.remember(text, said)
        })
    }

    /// Takes a line apart and accepts what it says.
    fn read(&mut self, raw: &[u8], now: Timestamp) {
        self.last_read = self.line_no;
        let clock = self.stream.clock;
        let head = OnceCell::new();
        raw::looks(raw, &mut |look| {
            let mut parsed = line::parse(&look.text, &clock);
            // The prefix stands before the first of several looks and is meant for all.
            if look.shown {
                head.get().into_iter().for_each(|head: &Head| head.lend(&mut parsed));
            } else {
                head.get_or_init(|| Head::of(&parsed)).lend(&mut parsed);
            }
            if !look.shown {
                if self.matcher.scanner().wants(look.text.as_bytes()) && self.speaks(&parsed) {
                    self.accept(&parsed, now);
                }
                return;
            }
            if self.stream.source == Source::KernelLog && is_property(&look.text) {
                return;
            }
            if self.accept(&parsed, now) == Fate::Single {
                self.recent.remember(self.line_no, raw);
            }
        });
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

    /// Whether anything is held back.
    pub fn holds(&self) -> bool {
        !self.lanes.is_empty() || !self.groups.is_empty()
    }

    /// Number of the oldest line of which something is held back; none when nothing is.
    pub fn held_from(&self) -> Option<u64> {
        let lanes = self.lanes.values().map(Lane::first_line).min();
        lanes.into_iter().chain(self.groups.first_line()).min()
    }

    /// Gives everything that is held, complete or not: the stream has ended.
    pub fn flush(&mut self) -> Vec<Observation> {
        let mut out = Vec::new();
        self.end_partial(&mut out);
        let keys: Vec<_> = self.lanes.keys().cloned().collect();
        for key in keys {
            self.close_lane(&key, Timestamp(i64::MAX));
        }
        out.extend(self.groups.take_all());
        out
    }

    fn accept(&mut self, parsed: &ParsedLine<'_>, now: Timestamp) -> Fate {
        self.sweep(now);
        let key: LaneKey = (parsed.host.map(str::to_owned), parsed.rank, parsed.local_rank);
        let kernel = parsed.kernel || self.stream.source == Source::KernelLog;
        loop {
            if !self.lanes.contains_key(&key) {
                let opens = if kernel {
                    oom::opens(parsed.text)
                } else {
                    traceback::opens(parsed.text)
                };
                if !opens {
                    break;
                }
                if self.lanes.len() >= LANES {
                    self.evict_lane(now);
                }
                if self.lanes.is_empty() {
                    self.sweep_at = self.line_no + QUIET_LINES;
                }
            }
            let line_no = self.line_no;
            let lane = self.lanes.entry(key.clone()).or_default();
            lane.touch(now, line_no);
            if !kernel {
                match lane.traceback.accept(parsed, line_no) {
                    Step::Taken => return Fate::Taken,
                    Step::Closed => {
                        self.close_lane(&key, now);
                        continue;
                    }
                    Step::Other => break,
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
                return Fate::Taken;
            }
            break;
        }
        self.single(&key, parsed, now);
        Fate::Single
    }

    /// A line that stands for itself.
    fn single(&mut self, key: &LaneKey, parsed: &ParsedLine<'_>, now: Timestamp) {
        let line_no = self.line_no;
        self.announced
            .retain(|announced| line_no - announced.line_no <= ANNOUNCED_LINES);
        if let Some(gpu) = announced_gpu(parsed.text) {
            self.announced.push(Announced {
                lane: key.clone(),
                line_no,
                gpu,
            });
        }
        self.driver = announced_driver(parsed.text).or(self.driver);
        let mut hits = self.judge(parsed.text).hits.clone();
        if hits.is_empty() {
            self.groups.follow(key, parsed.text, line_no);
            return;
        }
        let announced = self.announced.iter().rfind(|announced| announced.lane == *key);
        for hit in &mut hits {
            if let Some(announced) = announced.filter(|_| hit.entity == EntityRule::Gpu) {
                let fields = &mut hit.mark.fields;
                fields.entry("bdf".to_owned()).or_insert_with(|| announced.gpu.clone());
            }
            if let Some(driver) = self.driver {
                self.matcher.read_again(&mut hit.mark, parsed.text, driver);
            }
            self.history.judge(&mut hit.mark, parsed);
            // Who writes a line as information does not take it for a failure.
            if !parsed.kernel
                && matches!(parsed.level, Some(Level::Debug | Level::Info))
                && hit.mark.role != Role::Noise
            {
                hit.mark.confidence *= INFORMED;
            }
        }
        let mut observation = self.observe(parsed);
        observation.context = self.recent.before(line_no, key, &self.stream.clock);
        observation.device = hits.iter().find_map(|hit| device_of(hit.entity, &hit.mark));
        let spoken_of = hits[0]
            .mark
            .fields
            .get("rank")
            .and_then(|rank| rank.parse().ok())
            .map(Rank);
        observation.rank = spoken_of.or(observation.rank).or_else(|| bracketed_rank(parsed.text));
        observation.marks = hits.into_iter().map(|hit| hit.mark).collect();
        self.wait(Group::new(key.clone(), observation, now));
    }

    /// Lets a group wait for more of its kind.
    fn wait(&mut self, group: Group) {
        let last = self.groups.add(group);
        self.followed_to = self.followed_to.max(last + group::FOLLOWING);
    }

    /// Closes lanes whose writers have been silent while many lines of others went by.
    fn sweep(&mut self, now: Timestamp) {
        if self.lanes.is_empty() || self.line_no < self.sweep_at {
            return;
        }
        self.sweep_at = self.line_no + QUIET_LINES / 4;
        let silent = self
            .lanes
            .iter()
            .filter(|(_, lane)| lane.last_line() + QUIET_LINES <= self.line_no);
        let silent: Vec<_> = silent.map(|(key, _)| key.clone()).collect();
        for key in silent {
            self.close_lane(&key, now);
        }
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
            key_line_no: self.line_no,
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
        }
    }

    /// Gives what a lane has collected to the groups.
    fn close_lane(&mut self, key: &LaneKey, now: Timestamp) {
        let Some(mut lane) = self.lanes.remove(key) else { return };
        if let Some(unit) = lane.traceback.take().filter(|unit| !unit.is_stack_only()) {
            let mut observation = unit.observation(&self.matcher, self.stream.source);
            observation.rank = observation.rank.or(self.stream.rank);
            self.wait(Group::new(key.clone(), observation, now));
        }
        if let Some(unit) = lane.oom.take() {
            self.add_oom(unit, now);
        }
    }

    fn add_oom(&mut self, unit: oom::Unit, now: Timestamp) {
        let mut observation = unit.observation();
        observation.rank = observation.rank.or(self.stream.rank);
        self.wait(Group::new((None, None, None), observation, now));
    }
}

/// What the prefix at the start of a line tells of all that stands in it.
#[derive(Debug)]
struct Head {
    at: Option<Timestamp>,
    since_boot_us: Option<u64>,
    kernel: bool,
    rank: Option<Rank>,
    local_rank: Option<u32>,
    host: Option<String>,
}

impl Head {
    fn of(line: &ParsedLine<'_>) -> Self {
        Self {
            at: line.at,
            since_boot_us: line.since_boot_us,
            kernel: line.kernel,
            rank: line.rank,
            local_rank: line.local_rank,
            host: line.host.map(str::to_owned),
        }
    }

    fn lend<'a>(&'a self, line: &mut ParsedLine<'a>) {
        line.at = line.at.or(self.at);
        line.since_boot_us = line.since_boot_us.or(self.since_boot_us);
        line.kernel |= self.kernel;
        line.rank = line.rank.or(self.rank);
        line.local_rank = line.local_rank.or(self.local_rank);
        line.host = line.host.or(self.host.as_deref());
    }
}

/// `[Rank 1] NCCL watchdog thread terminated ...`: how process groups name themselves where the launcher adds no prefix.
fn bracketed_rank(text: &str) -> Option<Rank> {
    let (_, rest) = text.split_once("[Rank ")?;
    let (number, _) = rest.split_once(']')?;
    number.parse().ok().map(Rank)
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

/// `NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.15 ...`
fn announced_driver(text: &str) -> Option<DriverVersion> {
    text.contains("NVRM: loading")
        .then(|| DriverVersion::parse(text))
        .flatten()
}

#[cfg(test)]
mod tests;

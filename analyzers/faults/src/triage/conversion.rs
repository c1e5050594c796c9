//! Conversion of single lines, closed lanes and OOM dumps to observations, which then wait in a group for repeats.

use rankguard_model::{Rank, Role, Timestamp};

use super::group::{self, RepeatGroup};
use super::lane::LaneKey;
use super::line_prefix::bracketed_rank;
use super::observation::LogObservation;
use super::{Triage, oom};
use crate::line::{LogLevel, ParsedLine};
use crate::matcher::device_of;
use crate::signature::EntityRule;

/// Factor on the confidence of a line that its writer logs as information.
const INFORMED: f64 = 0.7;

/// Signature of a report in which a rank names another one, which did not take part: the line is of the rank that waited.
const ABOUT_PEER: &str = "monitored-barrier";

impl Triage {
    /// Processes a single line.
    pub(super) fn single(&mut self, key: &LaneKey, parsed: &ParsedLine<'_>, now: Timestamp) {
        let line_no = self.line_no;
        self.driver.update(key, parsed.text, line_no);
        let mut hits = self.judge(parsed.text).hits.clone();
        if hits.is_empty() {
            self.groups.follow(key, parsed.text, line_no);
            return;
        }
        let announced = self.driver.gpu(key);
        for hit in &mut hits {
            if let Some(announced) = announced.filter(|_| hit.entity == EntityRule::Gpu) {
                hit.mark.fields.fill("bdf", announced);
            }
            if let Some(driver) = self.driver.version() {
                self.matcher.read_again(&mut hit.mark, parsed.text, driver);
            }
            self.history.judge(&mut hit.mark, parsed);
            if parsed.news {
                hit.mark.role = Role::Noise;
            }
            // A writer that logs a line as information does not consider it a failure.
            if !parsed.kernel
                && matches!(parsed.level, Some(LogLevel::Debug | LogLevel::Info))
                && hit.mark.role != Role::Noise
            {
                hit.mark.confidence *= INFORMED;
            }
        }
        let mut observation = self.observe(parsed);
        observation.context = self.recent.before(line_no, key, &self.stream.clock);
        observation.device = hits.iter().find_map(|hit| device_of(hit.entity, &hit.mark));
        let best = &hits[0].mark;
        let named = best.fields.get("rank").and_then(|rank| rank.parse().ok()).map(Rank);
        let spoken_of = named.filter(|_| best.signature != ABOUT_PEER);
        observation.rank = spoken_of.or(observation.rank).or_else(|| bracketed_rank(parsed.text));
        observation.marks = hits.into_iter().map(|hit| hit.mark).collect();
        self.wait(RepeatGroup::new(key.clone(), observation, now));
    }

    /// Lets a group wait for repeats.
    fn wait(&mut self, group: RepeatGroup) {
        let last = self.groups.add(group);
        self.followed_to = self.followed_to.max(last + group::FOLLOWING);
    }

    fn observe(&self, parsed: &ParsedLine<'_>) -> LogObservation {
        LogObservation {
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

    /// Closes a lane and moves its units to the groups.
    pub(super) fn close_lane(&mut self, key: &LaneKey, now: Timestamp) {
        let Some(mut lane) = self.lanes.remove(key) else { return };
        if let Some(unit) = lane.traceback.take().filter(|unit| !unit.is_stack_only()) {
            let mut observation = unit.observation(&self.matcher, self.stream.source);
            observation.rank = observation.rank.or(self.stream.rank);
            self.wait(RepeatGroup::new(key.clone(), observation, now));
        }
        if let Some(unit) = lane.oom.take() {
            self.add_oom(unit, now);
        }
    }

    pub(super) fn add_oom(&mut self, unit: oom::OomReport, now: Timestamp) {
        let mut observation = unit.observation();
        observation.rank = observation.rank.or(self.stream.rank);
        self.wait(RepeatGroup::new((None, None, None), observation, now));
    }
}

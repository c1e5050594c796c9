//! What a line that stands for itself, a lane that was closed and the dump of an OOM kill are told as: an observation each,
//! which then waits for more of its kind.

use rankguard_model::{Rank, Role, Timestamp};

use super::group::{self, Group};
use super::head::bracketed_rank;
use super::lane::LaneKey;
use super::observation::Observation;
use super::{Triage, oom};
use crate::line::{Level, ParsedLine};
use crate::matcher::device_of;
use crate::signature::EntityRule;

/// What is left of the certainty of a line that its writer marks as mere information.
const INFORMED: f64 = 0.7;

impl Triage {
    /// A line that stands for itself.
    pub(super) fn single(&mut self, key: &LaneKey, parsed: &ParsedLine<'_>, now: Timestamp) {
        let line_no = self.line_no;
        self.driver.hear(key, parsed.text, line_no);
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

    /// Gives what a lane has collected to the groups.
    pub(super) fn close_lane(&mut self, key: &LaneKey, now: Timestamp) {
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

    pub(super) fn add_oom(&mut self, unit: oom::Unit, now: Timestamp) {
        let mut observation = unit.observation();
        observation.rank = observation.rank.or(self.stream.rank);
        self.wait(Group::new((None, None, None), observation, now));
    }
}

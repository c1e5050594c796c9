//! Threshold rules on device readings. Pure: the time of a poll is an input.

use std::collections::{BTreeMap, VecDeque};

use rankguard_model::{Classification, Timestamp};

use super::thresholds::{ThresholdCondition, ThresholdRule};
use crate::pending_evidence::mark;

/// Readings of a device by metric name.
pub(super) type DeviceReadings = BTreeMap<String, f64>;

/// Most remembered polls of one counter; its window holds fewer at any interval of a second or more.
const HISTORY: usize = 1024;

/// Threshold crossing to report.
#[derive(Debug, PartialEq)]
pub(super) struct ThresholdFinding {
    pub(super) address: String,
    pub(super) metric: &'static str,
    pub(super) value: f64,
    pub(super) unit: &'static str,
    pub(super) marks: Vec<Classification>,
}

/// Rules for one kind of device, with the state of each device.
#[derive(Debug)]
pub(super) struct ThresholdEvaluator {
    rules: &'static [ThresholdRule],
    /// Readings that are added as fields to every finding about a device.
    beside: &'static [&'static str],
    /// State of each rule by device address, in the order of `rules`.
    devices: BTreeMap<String, Vec<RuleState>>,
}

/// State of one rule for one device.
#[derive(Debug, Default, Clone)]
struct RuleState {
    /// True while the finding is reported and not cleared.
    told: bool,
    /// Start of the present violation that is not reported yet.
    since: Option<Timestamp>,
    /// Value of the previous poll, or the maximum so far; none before the first poll, because errors of unknown age are
    /// not reported.
    last: Option<f64>,
    /// Values within the window, oldest first.
    window: VecDeque<(Timestamp, f64)>,
}

impl ThresholdEvaluator {
    pub(super) fn new(rules: &'static [ThresholdRule], beside: &'static [&'static str]) -> Self {
        Self {
            rules,
            beside,
            devices: BTreeMap::new(),
        }
    }

    /// Applies the rules to one poll of a device and returns the crossings.
    pub(super) fn evaluate(
        &mut self,
        now: Timestamp,
        address: &str,
        readings: &DeviceReadings,
    ) -> Vec<ThresholdFinding> {
        if !self.devices.contains_key(address) {
            self.devices.insert(address.to_owned(), Vec::new());
        }
        let mut changes = Vec::new();
        let Some(states) = self.devices.get_mut(address) else {
            return changes;
        };
        states.resize(self.rules.len(), RuleState::default());
        for (rule, state) in self.rules.iter().zip(states) {
            if let Some((value, marked)) = judge(rule, state, now, readings) {
                let marks = marked
                    .then(|| finding_mark(rule, self.beside, readings))
                    .into_iter()
                    .collect();
                changes.push(ThresholdFinding {
                    address: address.to_owned(),
                    metric: &rule.metric,
                    value,
                    unit: &rule.unit,
                    marks,
                });
            }
        }
        changes
    }
}

/// Applies one rule to a reading. Returns the value and true for a violation or false for its end; none without a
/// change.
fn judge(
    rule: &ThresholdRule,
    state: &mut RuleState,
    now: Timestamp,
    readings: &DeviceReadings,
) -> Option<(f64, bool)> {
    let reading = |name: &str| readings.get(name).copied();
    let value = reading(&rule.metric)?;
    let limit = rule.limit(reading)?;
    let bad = match rule.rule {
        ThresholdCondition::Grows => {
            // The counter starts at 0 again when the driver is reloaded.
            let before = state.last.replace(value);
            return before.is_some_and(|before| value > before).then_some((value, true));
        }
        ThresholdCondition::Set => value != 0.0,
        ThresholdCondition::AtLeast if state.told => {
            value > limit - rule.clear_by && (rule.clear_by > 0.0 || value >= limit)
        }
        ThresholdCondition::AtLeast => value >= limit,
        ThresholdCondition::Below => value < limit,
        ThresholdCondition::BelowMost => {
            let most = state.last.map_or(value, |most| most.max(value));
            state.last = Some(most);
            value < most
        }
        ThresholdCondition::Rate => {
            let grown = grown(state, now, rule, value);
            // Clears only below half the limit, so that a short lull does not clear it.
            grown >= if state.told { limit / 2.0 } else { limit }
        }
    };
    // A violation that does not apply now is neither reported nor cleared.
    if !bad {
        state.since = None;
    } else if !state.told {
        if !rule.applies(reading) {
            state.since = None;
            return None;
        }
        let since = *state.since.get_or_insert(now);
        if now.since(since) < rule.hold() {
            return None;
        }
    }
    (bad != state.told).then(|| {
        state.told = bad;
        (value, bad)
    })
}

/// Returns the growth of a counter within the window of its rule.
fn grown(state: &mut RuleState, now: Timestamp, rule: &ThresholdRule, value: f64) -> f64 {
    if state.window.back().is_some_and(|(_, last)| value < *last) {
        // The counter was reset; growth before the reset is unknown.
        state.window.clear();
    }
    let start = now.before(rule.window());
    // The newest value from before the window is the base of the growth.
    while state.window.get(1).is_some_and(|(at, _)| *at <= start) || state.window.len() >= HISTORY {
        state.window.pop_front();
    }
    state.window.push_back((now, value));
    state.window.front().map_or(0.0, |(_, first)| value - first)
}

fn finding_mark(rule: &ThresholdRule, beside: &[&str], readings: &DeviceReadings) -> Classification {
    let mut says = mark(&rule.class, rule.role, rule.confidence, &rule.metric);
    says.fields.insert("threshold".to_owned(), rule.source.clone());
    for name in beside {
        if let Some(value) = readings.get(*name) {
            says.fields.insert((*name).to_owned(), value.to_string());
        }
    }
    says
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::gpu;

    /// Polls one device once a second and returns the changes of each poll.
    fn told(looks: &[&[(&str, f64)]]) -> Vec<Vec<(&'static str, f64, bool)>> {
        let mut judge = ThresholdEvaluator::new(gpu::rules(), &[]);
        let mut all = Vec::new();
        for (second, readings) in (0_i64..).zip(looks) {
            let readings = readings.iter().map(|(name, value)| ((*name).to_owned(), *value));
            let changes = judge.evaluate(Timestamp(second * 1_000_000_000), "0000:9b:00", &readings.collect());
            let short = changes
                .into_iter()
                .map(|change| (change.metric, change.value, !change.marks.is_empty()));
            all.push(short.collect());
        }
        all
    }

    /// Evaluates one reading.
    fn values(metric: &str, values: &[f64]) -> Vec<Vec<(&'static str, f64, bool)>> {
        let looks: Vec<[(&str, f64); 1]> = values.iter().map(|value| [(metric, *value)]).collect();
        told(&looks.iter().map(|look| &look[..]).collect::<Vec<_>>())
    }

    #[test]
    fn a_device_is_hot_at_its_own_limit_and_cool_some_way_below_it() {
        let at = |temperature| [("gpu.temperature", temperature), ("gpu.slowdown_temperature", 85.0)];
        let found = told(&[&at(84.0), &at(85.0), &at(80.0), &at(70.0)]);
        assert_eq!(found[0], []);
        assert_eq!(found[1], [("gpu.temperature", 85.0, true)]);
        assert_eq!(found[2], []);
        assert_eq!(found[3], [("gpu.temperature", 70.0, false)]);
    }

    #[test]
    fn memory_errors_are_reported_when_they_grow() {
        let found = values("gpu.ecc_uncorrected", &[5.0, 7.0, 7.0, 0.0, 1.0]);
        assert_eq!(found[1], [("gpu.ecc_uncorrected", 7.0, true)]);
        assert_eq!(found[4], [("gpu.ecc_uncorrected", 1.0, true)]);
        assert_eq!(found.concat().len(), 2);
    }

    #[test]
    fn corrected_errors_are_reported_by_their_rate_and_a_reset_counter_is_no_rate() {
        let slow: Vec<f64> = (0..120).map(|second| f64::from(second) * 9.0).collect();
        assert!(values("gpu.ecc_corrected", &slow).concat().is_empty());
        let fast: Vec<f64> = (0..120).map(|second| f64::from(second.min(70)) * 11.0).collect();
        let found = values("gpu.ecc_corrected", &fast);
        assert_eq!(found[55], [("gpu.ecc_corrected", 605.0, true)]);
        // 300 within the window is half of the limit; growth stopped at poll 70, and 27 seconds of it are left in the
        // window.
        assert_eq!(found[103], [("gpu.ecc_corrected", 770.0, false)]);
        assert_eq!(found.concat().len(), 2);
        assert!(values("gpu.ecc_corrected", &[90_000.0, 0.0, 5.0]).concat().is_empty());
    }

    #[test]
    fn a_link_that_is_slow_at_idle_is_fine_and_a_narrow_one_is_not() {
        let link = |width, generation, load| {
            [
                ("gpu.pcie_width", width),
                ("gpu.pcie_width_max", 16.0),
                ("gpu.pcie_generation", generation),
                ("gpu.pcie_generation_max", 5.0),
                ("gpu.utilization_percent", load),
            ]
        };
        let looks = |one: [(&'static str, f64); 5]| vec![one; 90];
        let run = |looks: Vec<[(&'static str, f64); 5]>| {
            told(&looks.iter().map(|look| &look[..]).collect::<Vec<_>>()).concat()
        };
        assert_eq!(run(looks(link(16.0, 1.0, 0.0))), []);
        assert_eq!(run(looks(link(16.0, 1.0, 90.0))), [("gpu.pcie_generation", 1.0, true)]);
        assert_eq!(run(looks(link(8.0, 5.0, 0.0))), [("gpu.pcie_width", 8.0, true)]);
        // A link that is being trained is below its limit for a few polls only.
        assert_eq!(run(vec![link(8.0, 5.0, 0.0); 2]), []);
    }

    #[test]
    fn links_that_were_active_are_missed_and_others_are_not() {
        assert!(values("gpu.nvlinks_active", &[0.0, 0.0]).concat().is_empty());
        let found = values("gpu.nvlinks_active", &[18.0, 17.0, 17.0, 18.0]);
        assert_eq!(found[1], [("gpu.nvlinks_active", 17.0, true)]);
        assert_eq!(found[3], [("gpu.nvlinks_active", 18.0, false)]);
        assert_eq!(found.concat().len(), 2);
    }

    #[test]
    fn a_device_without_readings_is_no_news() {
        assert!(told(&[&[], &[]]).concat().is_empty());
    }
}

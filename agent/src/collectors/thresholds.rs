//! Threshold rules on readings, loaded from a `thresholds.toml` beside the collector. Each number has a source; numbers
//! with the source "own" are ours and state their reason.

use std::time::Duration;

use rankguard_model::Role;
use serde::Deserialize;

/// Rule on one reading.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ThresholdRule {
    /// Metric name of the reading.
    pub(super) metric: String,
    pub(super) unit: String,
    pub(super) rule: ThresholdCondition,
    /// Limit; its unit depends on the rule.
    #[serde(default)]
    limit: f64,
    /// Reading that replaces `limit` where the device has it.
    #[serde(default)]
    of: Option<String>,
    /// Distance below the limit at which the finding clears.
    #[serde(default)]
    pub(super) clear_by: f64,
    /// Window in which growth is counted, seconds.
    #[serde(default)]
    window_s: u64,
    /// Time for which a violation must last before it is reported, seconds.
    #[serde(default)]
    hold_s: u64,
    /// Limit for each lane of the device's PCIe link, by PCIe generation from 1.
    #[serde(default)]
    per_lane: Vec<f64>,
    /// Another reading that must be at least `when_at_least` for the rule to apply.
    #[serde(default)]
    when: Option<String>,
    #[serde(default)]
    when_at_least: f64,
    pub(super) class: String,
    pub(super) role: Role,
    pub(super) confidence: f64,
    /// Source of the numbers.
    pub(super) source: String,
}

/// Condition for a violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ThresholdCondition {
    /// The value is not 0.
    Set,
    /// The value reaches the limit.
    AtLeast,
    /// The value is below another reading.
    Below,
    /// The value is below the maximum that this device ever had.
    BelowMost,
    /// The value is higher than at the previous poll.
    Grows,
    /// The value grows by the limit or more within the window.
    Rate,
}

impl ThresholdRule {
    /// Returns the limit for a device; `None` if the device lacks a reading that the rule requires.
    pub(super) fn limit(&self, reading: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        if !self.per_lane.is_empty() {
            let generation = reading("gpu.pcie_generation")?;
            let place = (generation as usize).checked_sub(1)?;
            let per_lane = self.per_lane.get(place).or(self.per_lane.last())?;
            return Some((per_lane * reading("gpu.pcie_width")?).ceil());
        }
        let of = self.of.as_deref().and_then(reading);
        match self.rule {
            ThresholdCondition::Below => of,
            _ => Some(of.unwrap_or(self.limit)),
        }
    }

    /// True if the rule's `when` condition holds, or it has none.
    pub(super) fn applies(&self, reading: impl Fn(&str) -> Option<f64>) -> bool {
        let Some(when) = self.when.as_deref() else { return true };
        reading(when).is_some_and(|value| value >= self.when_at_least)
    }

    pub(super) fn window(&self) -> Duration {
        Duration::from_secs(self.window_s)
    }

    pub(super) fn hold(&self) -> Duration {
        Duration::from_secs(self.hold_s)
    }
}

/// Parses a rule file that is compiled into this program.
pub(super) fn of_file(text: &str) -> Vec<ThresholdRule> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct ThresholdFile {
        threshold: Vec<ThresholdRule>,
    }
    let file: ThresholdFile = toml::from_str(text).expect("a test reads every such file");
    file.threshold
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::{gpu, nvme, optics, pci};

    #[test]
    fn every_rule_is_whole_and_its_class_stands_in_the_catalogue() {
        let catalogue = rankguard_faults::Catalogue::builtin();
        assert!(gpu::rules().len() >= 40 && pci::rules().len() >= 8);
        for threshold in [gpu::rules(), pci::rules(), optics::rules(), nvme::rules()]
            .into_iter()
            .flatten()
        {
            let metric = &threshold.metric;
            let class = rankguard_model::ClassId::from(threshold.class.as_str());
            assert!(catalogue.class(&class).is_some(), "{metric}: {class}");
            assert!(threshold.source.len() > 10, "{metric} has no source");
            assert!((0.0..=1.0).contains(&threshold.confidence), "{metric}");
            let needs_window = threshold.rule == ThresholdCondition::Rate;
            assert_eq!(needs_window, !threshold.window().is_zero(), "{metric}");
            let has_limit = threshold.limit > 0.0 || threshold.of.is_some() || !threshold.per_lane.is_empty();
            let needs_limit = matches!(
                threshold.rule,
                ThresholdCondition::Rate | ThresholdCondition::AtLeast | ThresholdCondition::Below
            );
            assert_eq!(needs_limit, has_limit, "{metric}");
        }
    }

    #[test]
    fn the_limit_of_a_link_is_that_of_its_lanes() {
        let replays = gpu::rules()
            .iter()
            .find(|one| one.metric == "gpu.pcie_replays")
            .expect("it is there");
        let link = |generation: f64| move |name: &str| Some(if name == "gpu.pcie_width" { 16.0 } else { generation });
        assert_eq!(replays.limit(link(5.0)), Some(31.0));
        assert_eq!(replays.limit(link(9.0)), Some(62.0));
        assert_eq!(replays.limit(link(0.0)), None);
        assert_eq!(replays.limit(|_| None), None);
    }
}

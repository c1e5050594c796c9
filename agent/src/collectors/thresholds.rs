//! Rules about readings, as files tell them: a `thresholds.toml` beside each collector that has some. Each number has a source; "own"
//! numbers are ours and say why.

use std::time::Duration;

use rankguard_model::Role;
use serde::Deserialize;

/// One rule about one reading.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Threshold {
    /// The reading.
    pub(super) metric: String,
    pub(super) unit: String,
    pub(super) rule: Rule,
    /// The number of the rule.
    #[serde(default)]
    limit: f64,
    /// The reading that is the limit, where the device has it.
    #[serde(default)]
    of: Option<String>,
    /// How far below the limit the value must be before it is fine again.
    #[serde(default)]
    pub(super) clear_by: f64,
    /// Time in which growth is counted, seconds.
    #[serde(default)]
    window_s: u64,
    /// How long it must be so before it is said, seconds.
    #[serde(default)]
    hold_s: u64,
    /// The limit for one lane of the device's PCIe link, by generation from 1.
    #[serde(default)]
    per_lane: Vec<f64>,
    /// Another reading that must be at least `when_at_least`.
    #[serde(default)]
    when: Option<String>,
    #[serde(default)]
    when_at_least: f64,
    pub(super) class: String,
    pub(super) role: Role,
    pub(super) confidence: f64,
    /// Who says so.
    pub(super) source: String,
}

/// When a reading is news.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Rule {
    /// It is not 0.
    Set,
    /// It reaches the limit.
    AtLeast,
    /// It is below another reading.
    Below,
    /// It is below the most that this device ever had.
    BelowMost,
    /// It is higher than at the look before.
    Grows,
    /// It grows by the limit or more within the window.
    Rate,
}

impl Threshold {
    /// The number that counts for a device; `None` where it lacks what the rule needs.
    pub(super) fn limit(&self, reading: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        if !self.per_lane.is_empty() {
            let generation = reading("gpu.pcie_generation")?;
            let place = (generation as usize).checked_sub(1)?;
            let per_lane = self.per_lane.get(place).or(self.per_lane.last())?;
            return Some((per_lane * reading("gpu.pcie_width")?).ceil());
        }
        let of = self.of.as_deref().and_then(reading);
        match self.rule {
            Rule::Below => of,
            _ => Some(of.unwrap_or(self.limit)),
        }
    }

    /// Whether the rule counts now.
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

/// The rules of a file of this program.
pub(super) fn of_file(text: &str) -> Vec<Threshold> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        threshold: Vec<Threshold>,
    }
    let file: File = toml::from_str(text).expect("a test reads every such file");
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
            let needs_window = threshold.rule == Rule::Rate;
            assert_eq!(needs_window, !threshold.window().is_zero(), "{metric}");
            let has_limit = threshold.limit > 0.0 || threshold.of.is_some() || !threshold.per_lane.is_empty();
            let needs_limit = matches!(threshold.rule, Rule::Rate | Rule::AtLeast | Rule::Below);
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

//! From looks at devices to what changed.

use std::collections::BTreeMap;

use rankguard_model::{Mark, Role};

use super::DeviceLook;
use crate::collectors::mark;

/// Slowdown temperature of a device that does not tell its own, degrees Celsius.
const SLOWDOWN: f64 = 90.0;
/// How far below it a device must be before it counts as cool again.
const COOL: f64 = 8.0;

/// One thing to report.
#[derive(Debug, PartialEq)]
pub(super) struct Change {
    pub(super) address: String,
    pub(super) metric: &'static str,
    pub(super) value: f64,
    pub(super) unit: &'static str,
    pub(super) marks: Vec<Mark>,
}

/// What is remembered of each device.
#[derive(Debug, Default)]
pub(super) struct Judge {
    devices: BTreeMap<String, Before>,
}

#[derive(Debug, Default)]
struct Before {
    lost: bool,
    hot: bool,
    /// None before the first look: errors of unknown age are no news.
    uncorrected: Option<f64>,
    flags: BTreeMap<&'static str, bool>,
}

impl Judge {
    pub(super) fn take(&mut self, looks: &[DeviceLook]) -> Vec<Change> {
        let mut changes = Vec::new();
        for look in looks {
            let before = self.devices.entry(look.address.clone()).or_default();
            compare(before, look, &mut changes);
        }
        changes
    }
}

fn compare(before: &mut Before, look: &DeviceLook, changes: &mut Vec<Change>) {
    let mut report = |metric, value, unit, marks| {
        changes.push(Change {
            address: look.address.clone(),
            metric,
            value,
            unit,
            marks,
        });
    };
    if look.lost.is_some() != before.lost {
        before.lost = look.lost.is_some();
        let marks = look.lost.as_ref().map(|problem| {
            let mut says = mark("gpu-fallen-off-bus", Role::Root, 0.9, "gpu.lost");
            says.fields.insert("problem".to_owned(), problem.clone());
            says
        });
        report(
            "gpu.lost",
            f64::from(u8::from(before.lost)),
            "bool",
            marks.into_iter().collect(),
        );
    }
    if let Some(temperature) = look.temperature {
        let limit = look.slowdown.unwrap_or(SLOWDOWN);
        let hot = if before.hot {
            temperature > limit - COOL
        } else {
            temperature >= limit
        };
        if hot != before.hot {
            before.hot = hot;
            let marks = if hot {
                vec![mark("gpu-thermal", Role::Root, 0.6, "gpu.temperature")]
            } else {
                Vec::new()
            };
            report("gpu.temperature", temperature, "celsius", marks);
        }
    }
    if let Some(count) = look.uncorrected {
        if before.uncorrected.is_some_and(|known| count > known) {
            let says = mark("gpu-ecc-uncorrectable", Role::Root, 0.8, "gpu.ecc_uncorrected");
            report("gpu.ecc_uncorrected", count, "count", vec![says]);
        }
        // It starts again at 0 with the driver.
        before.uncorrected = Some(count);
    }
    let flags = [
        (
            "gpu.repair_pending",
            look.repair_pending,
            "gpu-row-remap-pending",
            Role::Confirmation,
            0.6,
        ),
        (
            "gpu.repair_failed",
            look.repair_failed,
            "gpu-row-remap-failure",
            Role::Root,
            0.8,
        ),
        (
            "gpu.thermal_slowdown",
            look.thermal_slowdown,
            "gpu-thermal",
            Role::Confirmation,
            0.6,
        ),
        (
            "gpu.power_brake",
            look.power_brake,
            "gpu-power-fault",
            Role::Confirmation,
            0.6,
        ),
    ];
    for (metric, now, class, role, confidence) in flags {
        let Some(now) = now else { continue };
        let was = before.flags.insert(metric, now).unwrap_or(false);
        if now != was {
            let marks = if now {
                vec![mark(class, role, confidence, metric)]
            } else {
                Vec::new()
            };
            report(metric, f64::from(u8::from(now)), "bool", marks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(judge: &mut Judge, look: &DeviceLook) -> Vec<(&'static str, f64, bool)> {
        let changes = judge.take(std::slice::from_ref(look));
        changes
            .into_iter()
            .map(|change| (change.metric, change.value, !change.marks.is_empty()))
            .collect()
    }

    #[test]
    fn a_device_is_hot_at_its_own_limit_and_cool_some_way_below_it() {
        let mut judge = Judge::default();
        let at = |temperature| DeviceLook {
            temperature: Some(temperature),
            slowdown: Some(85.0),
            ..DeviceLook::default()
        };
        assert_eq!(told(&mut judge, &at(84.0)), []);
        assert_eq!(told(&mut judge, &at(85.0)), [("gpu.temperature", 85.0, true)]);
        assert_eq!(told(&mut judge, &at(80.0)), []);
        assert_eq!(told(&mut judge, &at(70.0)), [("gpu.temperature", 70.0, false)]);
    }

    #[test]
    fn memory_errors_are_reported_when_they_grow() {
        let mut judge = Judge::default();
        let at = |count| DeviceLook {
            uncorrected: Some(count),
            ..DeviceLook::default()
        };
        assert_eq!(told(&mut judge, &at(5.0)), []);
        assert_eq!(told(&mut judge, &at(7.0)), [("gpu.ecc_uncorrected", 7.0, true)]);
        assert_eq!(told(&mut judge, &at(7.0)), []);
        assert_eq!(told(&mut judge, &at(0.0)), []);
        assert_eq!(told(&mut judge, &at(1.0)), [("gpu.ecc_uncorrected", 1.0, true)]);
    }
}

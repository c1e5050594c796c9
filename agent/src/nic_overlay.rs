//! Injected values of network adapters.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// Values of a poll, by device and metric.
type OverlayValues = BTreeMap<String, BTreeMap<String, f64>>;

/// Metrics that are states: an injected value replaces the one that is read. All others are counters, to which it is
/// added.
const STATES: [&str; 4] = ["nic.port_state", "nic.phys_state", "nic.port_rate", "nic.operstate_up"];

/// Injected values by device and metric. Cheap to clone; empty if injection is disabled.
#[derive(Debug, Clone, Default)]
pub(crate) struct NicOverlay(Arc<Mutex<OverlayState>>);

#[derive(Debug, Default)]
struct OverlayState {
    /// Devices of the newest poll, with their metrics.
    known: BTreeMap<String, Vec<String>>,
    over: Vec<OverlaidValue>,
}

#[derive(Debug)]
struct OverlaidValue {
    device: String,
    metric: String,
    value: f64,
    until: Instant,
}

impl NicOverlay {
    fn lock(&self) -> MutexGuard<'_, OverlayState> {
        self.0.lock().expect("no holder of the overlay panics")
    }

    /// True if any value is injected.
    pub(crate) fn is_laid(&self) -> bool {
        !self.lock().over.is_empty()
    }

    /// Applies the injected values to a poll, and forgets those that have ended.
    pub(crate) fn apply(&self, look: &mut OverlayValues) {
        let mut laid = self.lock();
        let now = Instant::now();
        laid.over.retain(|over| over.until > now);
        let names = |values: &BTreeMap<String, f64>| values.keys().cloned().collect();
        laid.known = look
            .iter()
            .map(|(device, values)| (device.clone(), names(values)))
            .collect();
        for over in &laid.over {
            let Some(value) = look
                .get_mut(&over.device)
                .and_then(|values| values.get_mut(&over.metric))
            else {
                continue;
            };
            let short = over.metric.split(' ').next().unwrap_or_default();
            *value = if STATES.contains(&short) {
                over.value
            } else {
                *value + over.value
            };
        }
    }

    /// Injects a value until a time. Fails if the device or metric is not read.
    pub(crate) fn lay(&self, device: &str, metric: &str, value: f64, until: Instant) -> Result<(), String> {
        let mut laid = self.lock();
        let Some(metrics) = laid.known.get(device) else {
            let known: Vec<&str> = laid.known.keys().map(String::as_str).collect();
            return Err(format!(
                "no adapter `{device}` is watched; known are: {}",
                or_none(&known)
            ));
        };
        if !metrics.iter().any(|known| known == metric) {
            let known: Vec<&str> = metrics.iter().map(String::as_str).collect();
            return Err(format!(
                "{device} has no metric `{metric}`; known metrics: {}",
                or_none(&known)
            ));
        }
        laid.over.push(OverlaidValue {
            device: device.to_owned(),
            metric: metric.to_owned(),
            value,
            until,
        });
        Ok(())
    }
}

fn or_none(names: &[&str]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn read() -> OverlayValues {
        let port = [("nic.port_state port 1", 4.0), ("nic.link_downed port 1", 3.0)];
        let port = port.map(|(metric, value)| (metric.to_owned(), value));
        BTreeMap::from([("mlx5_0".to_owned(), BTreeMap::from(port))])
    }

    #[test]
    fn states_are_replaced_counters_raised_and_strangers_refused() {
        let overlay = NicOverlay::default();
        let later = Instant::now() + Duration::from_secs(600);
        let refused = overlay.lay("mlx5_0", "nic.port_state port 1", 1.0, later);
        assert!(refused.is_err_and(|problem| problem.contains("known are: none")));
        let mut look = read();
        overlay.apply(&mut look);
        assert_eq!(look, read());
        let refused = overlay.lay("mlx5_0", "nic.port_stat port 1", 1.0, later);
        assert!(refused.is_err_and(|problem| problem.contains("nic.port_state port 1")));
        for (metric, value, until) in [
            ("nic.port_state port 1", 1.0, later),
            ("nic.link_downed port 1", 2.0, later),
            ("nic.link_downed port 1", 50.0, Instant::now()),
        ] {
            overlay.lay("mlx5_0", metric, value, until).expect("it is known");
        }
        overlay.apply(&mut look);
        assert_eq!(look["mlx5_0"]["nic.port_state port 1"], 1.0);
        assert_eq!(look["mlx5_0"]["nic.link_downed port 1"], 5.0);
        // A device that has disappeared has no value to change.
        overlay.apply(&mut OverlayValues::new());
    }
}

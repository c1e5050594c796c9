//! Findings that need several polls or a comparison: link flaps, pause storms, ports that are slower than others of
//! their model.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use rankguard_faults::classes;
use rankguard_model::Role;

use super::judge::{NicFinding, is_pause};
use super::{ACTIVE, NicValues};
use crate::pending_evidence::mark;

/// Link losses within the window that count as flapping, and the window: the rule of gpud, which is for InfiniBand and
/// also requires 25 s of silence.
const FLAPS: usize = 3;
const FLAP_WINDOW: Duration = Duration::from_secs(12 * 3600);
/// Part of the time paused from which a port is in a pause storm. No source publishes a limit: half the time is half
/// the bandwidth.
const STORM: f64 = 0.5;
/// Part below which the storm has ended.
const CALM: f64 = 0.1;
/// Shortest time between two reports of a counter without a class.
const AGAIN: Duration = Duration::from_secs(60);

/// State of the polls so far.
#[derive(Debug, Default)]
pub(super) struct PortWatch {
    links: BTreeMap<(String, String), LinkHistory>,
    pauses: BTreeMap<(String, String), PauseState>,
    /// True for ports that are reported as slower than others of their model.
    slow: BTreeMap<(String, String), bool>,
    told: BTreeMap<(String, String), Instant>,
}

#[derive(Debug, Default)]
struct LinkHistory {
    up: Option<bool>,
    downs: VecDeque<Instant>,
}

#[derive(Debug)]
struct PauseState {
    micros: f64,
    at: Instant,
    storm: bool,
}

impl PortWatch {
    /// True if a change is reported now. A change with a class always is.
    pub(super) fn is_news(&mut self, change: &NicFinding, now: Instant) -> bool {
        if !change.marks.is_empty() || change.unit != "count" {
            return true;
        }
        let key = (change.device.clone(), change.metric.clone());
        let again = self
            .told
            .get(&key)
            .is_none_or(|at| now.saturating_duration_since(*at) >= AGAIN);
        if again {
            self.told.insert(key, now);
        }
        again
    }

    /// Takes a poll and returns the findings. `models` gives the adapter model of each device.
    pub(super) fn look(
        &mut self,
        look: &NicValues,
        models: &BTreeMap<String, String>,
        now: Instant,
    ) -> Vec<NicFinding> {
        let here = |key: &(String, String)| look.contains_key(&key.0);
        self.links.retain(|key, _| here(key));
        self.pauses.retain(|key, _| here(key));
        self.told.retain(|key, _| here(key));
        let mut found = Vec::new();
        for (device, values) in look {
            for (metric, value) in values {
                let short = metric.split(" port ").next().unwrap_or(metric);
                let key = || (device.clone(), metric.clone());
                match short {
                    "nic.port_state" => found.extend(self.link(key(), *value == ACTIVE, now)),
                    "nic.operstate_up" => found.extend(self.link(key(), *value == 1.0, now)),
                    _ if is_pause(short) => found.extend(self.pause(key(), *value, now)),
                    _ => {}
                }
            }
        }
        found.extend(self.peers(look, models));
        found
    }

    fn link(&mut self, key: (String, String), up: bool, now: Instant) -> Option<NicFinding> {
        let link = self.links.entry(key.clone()).or_default();
        let went_down = link.up == Some(true) && !up;
        link.up = Some(up);
        if !went_down {
            return None;
        }
        link.downs.push_back(now);
        while link
            .downs
            .front()
            .is_some_and(|first| now.saturating_duration_since(*first) > FLAP_WINDOW)
        {
            link.downs.pop_front();
        }
        (link.downs.len() >= FLAPS).then(|| NicFinding {
            device: key.0,
            metric: "nic.flaps".to_owned(),
            value: link.downs.len() as f64,
            unit: "count",
            marks: vec![mark(classes::NIC_LINK_FLAP, Role::Root, 0.8, "nic.flaps")],
        })
    }

    fn pause(&mut self, key: (String, String), micros: f64, now: Instant) -> Option<NicFinding> {
        let fresh = PauseState {
            micros,
            at: now,
            storm: false,
        };
        let pause = self.pauses.entry(key.clone()).or_insert(fresh);
        let paused = micros - pause.micros;
        let elapsed = now.saturating_duration_since(pause.at);
        (pause.micros, pause.at) = (micros, now);
        // After a counter reset, or without elapsed time, the share is unknown.
        if paused.is_nan() || !(0.0..f64::INFINITY).contains(&paused) || elapsed.is_zero() {
            return None;
        }
        let share = paused / (elapsed.as_secs_f64() * 1e6);
        let storm = share >= STORM || pause.storm && share >= CALM;
        if storm == std::mem::replace(&mut pause.storm, storm) {
            return None;
        }
        // A port that sends pauses does not get rid of what it receives; one that is paused suffers from another.
        let class = if key.1.starts_with("nic.tx_") {
            classes::NIC_FAULT
        } else {
            classes::NETWORK_SLOW
        };
        let says = storm.then(|| mark(class, Role::Confirmation, 0.5, "nic.paused"));
        Some(NicFinding {
            metric: key.1.replace("_pause_duration", "_paused"),
            device: key.0,
            value: share,
            unit: "ratio",
            marks: says.into_iter().collect(),
        })
    }

    /// Finds active ports that are slower than another of the same model.
    fn peers(&mut self, look: &NicValues, models: &BTreeMap<String, String>) -> Vec<NicFinding> {
        let mut most: BTreeMap<&str, f64> = BTreeMap::new();
        let mut ports = Vec::new();
        for (device, values) in look {
            let Some(model) = models.get(device) else { continue };
            for (metric, rate) in values {
                let Some(port) = metric.strip_prefix("nic.port_rate port ") else {
                    continue;
                };
                if values.get(&format!("nic.port_state port {port}")) == Some(&ACTIVE) {
                    let known = most.entry(model.as_str()).or_insert(*rate);
                    *known = known.max(*rate);
                    ports.push((device, port, *rate, model.as_str()));
                }
            }
        }
        let mut found = Vec::new();
        let mut seen = BTreeMap::new();
        for (device, port, rate, model) in ports {
            let slow = most.get(model).is_some_and(|most| rate < *most);
            let key = (device.clone(), port.to_owned());
            if self.slow.get(&key).copied().unwrap_or(false) != slow {
                let says = slow.then(|| mark(classes::NIC_FAULT, Role::Confirmation, 0.5, "nic.rate_below_peers"));
                found.push(NicFinding {
                    device: device.clone(),
                    metric: format!("nic.rate_below_peers port {port}"),
                    value: rate,
                    unit: "gigabits-per-second",
                    marks: says.into_iter().collect(),
                });
            }
            seen.insert(key, slow);
        }
        // The state of ports that are not active is forgotten.
        self.slow = seen;
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(all: &[(&str, &str, f64)]) -> NicValues {
        let mut look = NicValues::new();
        for (device, metric, value) in all {
            look.entry((*device).to_owned())
                .or_default()
                .insert((*metric).to_owned(), *value);
        }
        look
    }

    fn told(changes: &[NicFinding]) -> Vec<(&str, &str, Option<&str>)> {
        let told = changes.iter().map(|it| {
            let class = it.marks.first().map(|mark| mark.class.as_str());
            (it.device.as_str(), it.metric.as_str(), class)
        });
        told.collect()
    }

    #[test]
    fn a_link_that_goes_down_three_times_in_half_a_day_flaps() {
        let mut watch = PortWatch::default();
        let start = Instant::now();
        let mut at = |minutes: u64, state: f64| {
            let look = look(&[("mlx5_0", "nic.port_state port 1", state)]);
            let now = start + Duration::from_secs(minutes * 60);
            watch.look(&look, &BTreeMap::new(), now).len()
        };
        assert_eq!(
            (at(0, 4.0), at(1, 1.0), at(2, 4.0), at(3, 1.0), at(4, 1.0), at(5, 4.0)),
            (0, 0, 0, 0, 0, 0)
        );
        assert_eq!(at(600, 1.0), 1);
        at(601, 4.0);
        // The first two are out of the window by now.
        assert_eq!(at(900, 2.0), 0);
    }

    #[test]
    fn a_port_that_is_paused_half_the_time_is_in_a_storm_until_it_is_calm() {
        let mut watch = PortWatch::default();
        let start = Instant::now();
        let mut micros = 0.0;
        let mut seconds = 0;
        let mut next = |direction: &str, share: f64| {
            micros += share * 10e6;
            seconds += 10;
            let metric = format!("nic.{direction}_prio3_pause_duration");
            let look = look(&[("ens1", metric.as_str(), micros)]);
            watch.look(&look, &BTreeMap::new(), start + Duration::from_secs(seconds))
        };
        next("rx", 0.0);
        assert_eq!(next("rx", 0.3), []);
        assert_eq!(
            told(&next("rx", 0.7)),
            [("ens1", "nic.rx_prio3_paused", Some("network-slow"))]
        );
        assert_eq!((next("rx", 0.9), next("rx", 0.2)), (vec![], vec![]));
        assert_eq!(told(&next("rx", 0.0)), [("ens1", "nic.rx_prio3_paused", None)]);
        // A reset: the share of this interval is unknown.
        assert_eq!(next("rx", -5.0), []);
        next("tx", 0.0);
        assert_eq!(
            told(&next("tx", 1.0)),
            [("ens1", "nic.tx_prio3_paused", Some("nic-fault"))]
        );
    }

    #[test]
    fn a_port_that_is_slower_than_its_like_is_named_and_another_model_is_not_its_like() {
        let mut watch = PortWatch::default();
        let pairs = [
            ("mlx5_0", "MT4129"),
            ("mlx5_1", "MT4129"),
            ("mlx5_2", "MT4119"),
            ("mlx5_3", "MT4129"),
        ];
        let models = pairs
            .map(|(device, model)| (device.to_owned(), model.to_owned()))
            .into();
        let mut at = |rate: f64, state: f64| {
            let look = look(&[
                ("mlx5_0", "nic.port_state port 1", 4.0),
                ("mlx5_0", "nic.port_rate port 1", 400.0),
                ("mlx5_1", "nic.port_state port 1", state),
                ("mlx5_1", "nic.port_rate port 1", rate),
                ("mlx5_2", "nic.port_state port 1", 4.0),
                ("mlx5_2", "nic.port_rate port 1", 100.0),
            ]);
            let changes = watch.look(&look, &models, Instant::now());
            changes
                .iter()
                .map(|it| (it.device.clone(), it.value, it.marks.len()))
                .collect::<Vec<_>>()
        };
        assert_eq!(at(400.0, 4.0), []);
        assert_eq!(at(200.0, 4.0), [("mlx5_1".to_owned(), 200.0, 1)]);
        assert_eq!(at(200.0, 4.0), []);
        assert_eq!(at(400.0, 4.0), [("mlx5_1".to_owned(), 400.0, 0)]);
        assert_eq!(at(10.0, 1.0), []);
    }

    #[test]
    fn what_merely_grows_is_told_once_a_minute_and_what_has_a_class_always() {
        let mut watch = PortWatch::default();
        let start = Instant::now();
        let change = |marks| NicFinding {
            device: "mlx5_0".to_owned(),
            metric: "nic.symbol_error port 1".to_owned(),
            value: 1.0,
            unit: "count",
            marks,
        };
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(watch.is_news(&change(Vec::new()), at(0)));
        assert!(!watch.is_news(&change(Vec::new()), at(59)));
        assert!(watch.is_news(&change(Vec::new()), at(60)));
        assert!(watch.is_news(&change(vec![mark("nic-fault", Role::Root, 0.5, "x")]), at(61)));
    }
}

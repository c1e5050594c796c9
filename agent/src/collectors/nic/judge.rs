//! Classification of changed readings.

use rankguard_faults::classes;
use rankguard_model::{Classification, Role};

use super::{ACTIVE, NicValues};
use crate::pending_evidence::mark;

/// Driver statistic to read, with the classification of its growth.
struct StatisticRule {
    counter: &'static str,
    class: Option<(&'static str, Role, f64)>,
}

/// Statistics of mlx5 as the kernel documents them (Documentation/networking/device_drivers/ethernet/mellanox/mlx5),
/// and those of the same name in other drivers. The selection, and the rule that any storm error counts, come from a
/// survey of node monitors; none of them publishes a limit for the others, which are reported as they grow.
const RULES: &[StatisticRule] = &[
    StatisticRule {
        counter: "link_down_events_phy",
        class: Some((classes::NIC_LINK_FLAP, Role::Root, 0.7)),
    },
    // The port sent pauses for so long that it gave up and dropped packets: its host does not take what it receives.
    StatisticRule {
        counter: "tx_pause_storm_error_events",
        class: Some((classes::NIC_FAULT, Role::Root, 0.6)),
    },
    StatisticRule {
        counter: "tx_pause_storm_warning_events",
        class: Some((classes::NIC_FAULT, Role::Confirmation, 0.5)),
    },
    StatisticRule {
        counter: "module_bus_stuck",
        class: Some((classes::NIC_FAULT, Role::Confirmation, 0.5)),
    },
    StatisticRule {
        counter: "module_high_temp",
        class: Some((classes::NIC_FAULT, Role::Confirmation, 0.5)),
    },
    StatisticRule {
        counter: "rx_crc_errors_phy",
        class: Some((classes::NETWORK_PACKET_ERROR, Role::Confirmation, 0.4)),
    },
    StatisticRule {
        counter: "rx_crc_errors",
        class: Some((classes::NETWORK_PACKET_ERROR, Role::Confirmation, 0.4)),
    },
    StatisticRule {
        counter: "rx_symbol_err_phy",
        class: None,
    },
    StatisticRule {
        counter: "rx_pcs_symbol_err_phy",
        class: None,
    },
    StatisticRule {
        counter: "rx_discards_phy",
        class: None,
    },
    StatisticRule {
        counter: "tx_discards_phy",
        class: None,
    },
    StatisticRule {
        counter: "rx_out_of_buffer",
        class: None,
    },
    StatisticRule {
        counter: "outbound_pci_stalled_wr_events",
        class: None,
    },
    StatisticRule {
        counter: "outbound_pci_stalled_rd_events",
        class: None,
    },
];

/// True if a driver statistic is read.
pub(super) fn is_wanted(counter: &str) -> bool {
    is_pause(counter) || RULES.iter().any(|rule| rule.counter == counter)
}

/// True for counters of time that a port was paused, microseconds, such as `rx_prio3_pause_duration`.
pub(super) fn is_pause(counter: &str) -> bool {
    counter.ends_with("_pause_duration")
}

/// Changed value to report.
#[derive(Debug, PartialEq)]
pub(super) struct NicFinding {
    pub(super) device: String,
    pub(super) metric: String,
    pub(super) value: f64,
    pub(super) unit: &'static str,
    pub(super) marks: Vec<Classification>,
}

/// Returns the changes since the previous poll. A counter at the end of its range is unknown and not compared.
pub(super) fn changes(before: &NicValues, now: &NicValues) -> Vec<NicFinding> {
    let mut found = Vec::new();
    for (device, old) in before {
        let Some(new) = now.get(device) else {
            found.push(NicFinding {
                device: device.clone(),
                metric: "nic.present".to_owned(),
                value: 0.0,
                unit: "bool",
                marks: vec![mark(classes::NIC_FAULT, Role::Root, 0.8, "nic.present")],
            });
            continue;
        };
        for (metric, value) in new {
            let known = |value: &f64| value.is_finite();
            let was = old
                .get(metric)
                .filter(|was| known(was) && known(value) && *was != value);
            let Some(was) = was else {
                continue;
            };
            if let Some((unit, marks)) = judge(metric, *was, *value) {
                found.push(NicFinding {
                    device: device.clone(),
                    metric: metric.clone(),
                    value: *value,
                    unit,
                    marks,
                });
            }
        }
    }
    for device in now.keys().filter(|device| !before.contains_key(*device)) {
        found.push(NicFinding {
            device: device.clone(),
            metric: "nic.present".to_owned(),
            value: 1.0,
            unit: "bool",
            marks: Vec::new(),
        });
    }
    found
}

/// Returns unit and classification of a change, or none if it is not reported. Recovery has no classification.
fn judge(metric: &str, was: f64, value: f64) -> Option<(&'static str, Vec<Classification>)> {
    let (short, _) = metric.split_once(" port ").unwrap_or((metric, ""));
    let one = |class, role, confidence| vec![mark(class, role, confidence, short)];
    match short {
        "nic.port_state" if was == ACTIVE => Some(("state", one(classes::NIC_LINK_DOWN, Role::Root, 0.8))),
        "nic.port_state" | "nic.phys_state" => Some(("state", Vec::new())),
        "nic.port_rate" if value < was => Some(("gigabits-per-second", one(classes::NIC_FAULT, Role::Root, 0.5))),
        "nic.port_rate" => Some(("gigabits-per-second", Vec::new())),
        "nic.operstate_up" if value == 0.0 => Some(("bool", one(classes::NIC_LINK_DOWN, Role::Root, 0.8))),
        "nic.operstate_up" => Some(("bool", Vec::new())),
        // A counter that decreased was reset; growth before the reset is unknown.
        _ if value < was => None,
        // `Watch` evaluates pause times.
        _ if is_pause(short) => None,
        "nic.link_downed" => Some(("count", one(classes::NIC_LINK_FLAP, Role::Root, 0.7))),
        // A link that goes down and up between two polls counts two changes.
        "nic.carrier_changes" if value - was >= 2.0 => Some(("count", one(classes::NIC_LINK_FLAP, Role::Root, 0.6))),
        "nic.local_link_integrity_errors" | "nic.excessive_buffer_overrun_errors" | "nic.rnr_nak_retry_err" => {
            Some(("count", one(classes::NIC_FAULT, Role::Confirmation, 0.5)))
        }
        _ => {
            let rule = RULES
                .iter()
                .find(|rule| short.strip_prefix("nic.") == Some(rule.counter));
            let says = rule.and_then(|rule| rule.class);
            Some((
                "count",
                says.map_or_else(Vec::new, |(class, role, sure)| one(class, role, sure)),
            ))
        }
    }
}

/// Reports counters with unknown growth: they reached the end of their range, or were reset.
pub(super) fn lost(before: &NicValues, now: &NicValues) -> Vec<(String, String)> {
    let mut told = Vec::new();
    for (device, new) in now {
        let Some(old) = before.get(device) else { continue };
        let mut back = Vec::new();
        for (metric, value) in new.iter().filter(|(metric, _)| is_counter(metric)) {
            let Some(was) = old.get(metric).filter(|was| was.is_finite()) else {
                continue;
            };
            if value.is_infinite() {
                let what =
                    format!("{metric} of {device} stands at the end of its range and counts no more until it is reset");
                told.push((device.clone(), what));
            } else if value < was {
                back.push(format!("{metric} from {was} to {value}"));
            }
        }
        if let Some(first) = back.first() {
            let more = back.len() - 1;
            let rest = if more == 0 {
                String::new()
            } else {
                format!(", and {more} more")
            };
            let what = format!("counters of {device} were reset: {first}{rest}; what they missed is not known");
            told.push((device.clone(), what));
        }
    }
    told
}

fn is_counter(metric: &str) -> bool {
    let (short, _) = metric.split_once(" port ").unwrap_or((metric, ""));
    !matches!(
        short,
        "nic.port_state" | "nic.phys_state" | "nic.port_rate" | "nic.operstate_up" | "nic.present"
    )
}

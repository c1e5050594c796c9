//! Faults of one machine that form a chain: a fatal error of a switch between GPUs before the link errors of GPUs, and a
//! fatal error of the PCI bus before the failure of the device at the address that it names. The first one is the cause.

use std::collections::BTreeSet;
use std::time::Duration;

use rankguard_faults::classes;
use rankguard_model::{DeviceKind, Entity};

use crate::engine::same_node;
use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Maximum time between two faults of a chain. The parts signal each other by interrupts within milliseconds; drivers
/// report the failure of a device at its next use.
const CHAIN: Duration = Duration::from_secs(60);

/// Demotes faults that follow from an earlier fault of the same machine.
pub(crate) fn weigh(scene: &FailureScene<'_>, ranking: &mut Vec<CauseCandidate>) {
    if scene.has_fault_ends {
        errors_of_links(scene, ranking);
        lost_devices(scene, ranking);
    }
}

/// Returns true if the sign at an index follows the sign at another one closely on the same node.
fn follows(scene: &FailureScene<'_>, earlier: usize, later: usize) -> bool {
    let (one, other) = (&scene.signs[earlier], &scene.signs[later]);
    let is_comparable = one.timed && other.timed;
    let is_near = one.at <= other.at && other.at.since(one.at) <= CHAIN;
    let is_ordered = earlier < later && (!is_comparable || is_near);
    is_ordered
        && is_comparable == (one.timed || other.timed)
        && same_node(one, other)
        && one.synthetic == other.synthetic
}

/// Demotes link errors of GPUs after a fatal error of the switch between them.
fn errors_of_links(scene: &FailureScene<'_>, ranking: &mut Vec<CauseCandidate>) {
    let is_of_link = |candidate: &CauseCandidate| {
        candidate.class.as_str() == classes::GPU_NVLINK_ERROR && candidate.strength == CandidateStrength::Overriding
    };
    if !ranking.iter().any(is_of_link) {
        return;
    }
    let switches = scene
        .marks()
        .filter(|(_, sign)| is_fatal_of_switch(sign))
        .map(|(index, _)| index);
    for switch in switches {
        let ends: Vec<usize> = (0..ranking.len())
            .filter(|at| is_of_link(&ranking[*at]) && follows(scene, switch, ranking[*at].first))
            .collect();
        let gpus: BTreeSet<&Entity> = ends.iter().map(|at| &ranking[*at].blamed).collect();
        let sign = &scene.signs[switch];
        let is_named = |candidate: &CauseCandidate| {
            candidate.blamed == sign.entity && candidate.strength == CandidateStrength::Overriding
        };
        let known = ranking
            .iter()
            .position(|candidate| is_named(candidate) && candidate.first <= switch);
        // An event that only accompanies others does not name the failed end of one link. Several GPUs share the switch.
        if ends.is_empty() || known.is_none() && gpus.len() < 2 {
            continue;
        }
        if known.is_none() {
            let confidence = sign.mark().map_or(0.0, |mark| mark.confidence);
            let strength = CandidateStrength::Overriding;
            let mut candidate = CauseCandidate::new(
                classes::NVSWITCH_ERROR,
                sign.entity.clone(),
                switch,
                strength,
                confidence,
            );
            candidate.notes.push(format!(
                "{} GPUs report errors of their links right after it.",
                gpus.len()
            ));
            ranking.push(candidate);
        } else if let Some(at) = known {
            let note = "A GPU behind it reports an error of its link right after it.";
            ranking[at].notes.push(note.to_owned());
        }
        for at in ends {
            ranking[at].strength = CandidateStrength::Symptom;
        }
    }
}

/// Returns true for an event of a switch between GPUs that its driver calls fatal.
fn is_fatal_of_switch(sign: &Signal) -> bool {
    let is_switch = matches!(&sign.entity, Entity::Device { device, .. } if device.kind == DeviceKind::Nvswitch);
    let is_fatal = sign
        .field("severity")
        .is_some_and(|word| word.eq_ignore_ascii_case("fatal"));
    let is_error = sign
        .class()
        .is_some_and(|class| class.as_str() == classes::NVSWITCH_ERROR);
    is_switch && is_fatal && is_error
}

/// Demotes the failure of a device after a fatal error of the PCI bus at its address, which then blames the device.
fn lost_devices(scene: &FailureScene<'_>, ranking: &mut [CauseCandidate]) {
    let is_fault = |candidate: &CauseCandidate| candidate.strength == CandidateStrength::Overriding;
    for at in 0..ranking.len() {
        if !is_fault(&ranking[at]) || ranking[at].class.as_str() != classes::PCIE_ERROR {
            continue;
        }
        let support: Vec<usize> = ranking[at].support.iter().collect();
        let named: Vec<(usize, Vec<String>)> = support
            .into_iter()
            .map(|index| (index, fatal_addresses(&scene.signs[index])))
            .collect();
        let mut lost: Vec<usize> = Vec::new();
        for (other, candidate) in ranking.iter().enumerate() {
            let Entity::Device { device, .. } = &candidate.blamed else {
                continue;
            };
            let address = without_function(&device.address);
            let is_lost = candidate.class.as_str() == classes::GPU_FALLEN_OFF_BUS;
            let leads = |(index, addresses): &(usize, Vec<String>)| {
                let is_port = is_lost && is_of_port_above(scene, *index, candidate.first, addresses, &address);
                (addresses.contains(&address) || is_port) && follows(scene, *index, candidate.first)
            };
            if other != at && is_fault(candidate) && named.iter().any(leads) {
                lost.push(other);
            }
        }
        let Some(device) = lost.first().map(|other| ranking[*other].blamed.clone()) else {
            continue;
        };
        for other in &lost {
            ranking[*other].strength = CandidateStrength::Symptom;
        }
        let is_named = lost.iter().any(|other| {
            let address = match &ranking[*other].blamed {
                Entity::Device { device, .. } => without_function(&device.address),
                _ => return false,
            };
            named.iter().any(|(_, addresses)| addresses.contains(&address))
        });
        let note = if is_named {
            "The device at the address that it names failed right after it."
        } else {
            "A device behind the port that it names failed right after it."
        };
        let rank = ranking[lost[0]].root_rank;
        let ends: Vec<usize> = lost.iter().flat_map(|other| ranking[*other].support.iter()).collect();
        let bus = &mut ranking[at];
        bus.confirm(ends, || note.to_owned());
        bus.root_rank = bus.root_rank.or(rank);
        if lost.len() == 1 {
            bus.blamed = device;
        }
    }
}

/// Maximum time from the fatal error of a port to the loss of a GPU behind it, if the address of the GPU is not stated.
const BEHIND: Duration = Duration::from_secs(10);

/// Returns true if a fatal error is of a port, and the bus of a GPU that was lost right after it may lie behind that port.
/// Buses are numbered in depth, so those behind a port have higher numbers than its own, up to that of its next port, which
/// no log states.
fn is_of_port_above(scene: &FailureScene<'_>, error: usize, lost: usize, ports: &[String], device: &str) -> bool {
    let (one, other) = (&scene.signs[error], &scene.signs[lost]);
    let is_timed = one.timed && other.timed;
    let is_near = !is_timed || other.at.since(one.at) <= BEHIND;
    let is_port = one.text.trim_start().starts_with("pcieport ");
    is_port && is_near && ports.iter().any(|port| is_behind(port, device))
}

/// Maximum distance of the number of a bus from that of the port above it. Firmware reserves ranges of 16 or 32 numbers for
/// the root ports of a processor.
const RESERVED: u8 = 16;

/// Returns true if a device may lie behind a port, by their addresses.
fn is_behind(port: &str, device: &str) -> bool {
    let parts = |address: &str| {
        let mut parts = address.split(':');
        let domain = parts.next()?.to_owned();
        let bus = u8::from_str_radix(parts.next()?, 16).ok()?;
        Some((domain, bus))
    };
    match (parts(port), parts(device)) {
        (Some((domain, port)), Some((of, bus))) => domain == of && bus > port && bus - port < RESERVED,
        _ => false,
    }
}

/// Returns the PCI addresses of the devices that a fatal error of the bus names, without their functions: the device that
/// sent the error message, the one that the kernel describes, and the source of a containment event.
fn fatal_addresses(sign: &Signal) -> Vec<String> {
    let is_fatal = sign.text.contains("(Fatal)") || sign.text.contains("containment event");
    if !is_fatal {
        return Vec::new();
    }
    let word_after = |words: &str| {
        let (_, rest) = sign.text.split_once(words)?;
        rest.split([' ', ',']).next()
    };
    let described = sign
        .field("bdf")
        .map(without_function)
        .or_else(|| described_address(&sign.text));
    let sender = word_after("received from ").map(without_function);
    let domain = described.as_deref().and_then(|address| address.split(':').next());
    // Bus in the upper byte, device and function in the lower one.
    let source = word_after("source:0x")
        .and_then(|digits| u16::from_str_radix(digits, 16).ok())
        .map(|id| format!("{}:{:02x}:{:02x}", domain.unwrap_or("0000"), id >> 8, (id & 0xff) >> 3));
    described.into_iter().chain(sender).chain(source).collect()
}

/// Returns the address of the device that a kernel line is about: `nvidia 0000:c1:00.0: AER: ...`.
fn described_address(text: &str) -> Option<String> {
    let mut words = text.split_whitespace().take(2);
    let address = words.nth(1)?.strip_suffix(':')?;
    let is_part = |part: &str| part.chars().all(|c| c.is_ascii_hexdigit() || c == '.');
    let is_address = address.matches(':').count() == 2 && address.split(':').all(is_part);
    is_address.then(|| without_function(address))
}

/// Returns a PCI address in lower case without its function: `0000:81:00` of `PCI:0000:81:00.0`.
fn without_function(address: &str) -> String {
    let address = address.trim_end_matches('.').to_ascii_lowercase();
    let address = address.strip_prefix("pci:").unwrap_or(&address);
    address.split('.').next().unwrap_or(address).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_compared_without_their_functions() {
        for (address, expected) in [
            ("0000:81:00.0", "0000:81:00"),
            ("PCI:0000:5E:00", "0000:5e:00"),
            ("0000:9b:00.1.", "0000:9b:00"),
        ] {
            assert_eq!(without_function(address), expected, "{address}");
        }
    }

    #[test]
    fn a_line_names_its_device_after_its_driver() {
        let line = "nvidia 0000:C1:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal)";
        assert_eq!(described_address(line).as_deref(), Some("0000:c1:00"));
        assert_eq!(described_address("DPC: containment event, status:0x1f01"), None);
    }

    #[test]
    fn a_device_behind_a_port_has_a_bus_of_a_higher_number() {
        assert!(is_behind("0000:c0:01", "0000:c1:00"));
        assert!(is_behind("0000:c0:01", "0000:c4:00"));
        for (port, device) in [
            ("0000:c0:01", "0000:c0:00"),
            ("0000:d0:01", "0000:c1:00"),
            ("0000:00:01", "0000:c1:00"),
            ("0001:c0:01", "0000:c1:00"),
        ] {
            assert!(!is_behind(port, device), "{port} {device}");
        }
    }
}

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
            let leads = |(index, addresses): &(usize, Vec<String>)| {
                addresses.contains(&address) && follows(scene, *index, candidate.first)
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
        let rank = ranking[lost[0]].root_rank;
        let ends: Vec<usize> = lost.iter().flat_map(|other| ranking[*other].support.iter()).collect();
        let bus = &mut ranking[at];
        bus.confirm(ends, || {
            "The device at the address that it names failed right after it.".to_owned()
        });
        bus.root_rank = bus.root_rank.or(rank);
        if lost.len() == 1 {
            bus.blamed = device;
        }
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
    let described = sign.field("bdf").map(without_function);
    let sender = word_after("received from ").map(without_function);
    let domain = described.as_deref().and_then(|address| address.split(':').next());
    // Bus in the upper byte, device and function in the lower one.
    let source = word_after("source:0x")
        .and_then(|digits| u16::from_str_radix(digits, 16).ok())
        .map(|id| format!("{}:{:02x}:{:02x}", domain.unwrap_or("0000"), id >> 8, (id & 0xff) >> 3));
    described.into_iter().chain(sender).chain(source).collect()
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
}

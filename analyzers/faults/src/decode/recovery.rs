//! XID 154: recovery that the driver requests. It overrides every table for that GPU until the request returns
//! to None.

use rankguard_model::Role;

use super::DecodedMessage;
use super::text::{after, hex, word};
use crate::classes;

/// Part of the printed action name in lower case, action id, and description.
const ACTIONS: &[(&str, &str, &str)] = &[
    ("drain and reset", "drain-and-reset", "drain the GPU and reset it"),
    (
        "drain p2p",
        "drain-p2p",
        "end the work that uses peer access, then reset",
    ),
    ("gpu reset", "gpu-reset", "reset the GPU"),
    ("pf flr", "gpu-reset", "reset the GPU"),
    ("node reboot", "node-reboot", "reboot the node"),
    ("os reboot", "node-reboot", "reboot the node"),
    (
        "imex domain",
        "recover-imex-domain",
        "recover the IMEX domain of the node",
    ),
    ("bus reset", "bus-reset", "reset the PCIe bus of the GPU"),
    ("system reboot", "system-reboot", "reboot the system"),
    ("none", "none", "nothing more"),
];

/// Action ids by number (`nvmlDeviceGpuRecoveryAction_t`), for messages with a truncated or unknown name.
const NUMBERS: [&str; 8] = [
    "none",
    "gpu-reset",
    "node-reboot",
    "drain-p2p",
    "drain-and-reset",
    "recover-imex-domain",
    "bus-reset",
    "system-reboot",
];

/// Decodes `GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)`
pub(super) fn refine(text: &str, decoded: &mut DecodedMessage) {
    let Some(said) = after(text, "changed from ") else {
        return;
    };
    let Some((from, to)) = said.split_once(" to ") else {
        return;
    };
    let Some(wanted) = action(to) else { return };
    if let Some(before) = action(from) {
        decoded.set("from", before);
    }
    decoded.set("recovery", wanted);
    if wanted == "none" {
        // The driver withdraws its request: evidence that clears, not a failure.
        decoded.role = Role::Noise;
        decoded.set("clears", classes::GPU_RECOVERY_ACTION);
        decoded.sentence = "the driver asks for no recovery any more".into();
        decoded.vendor_action = "none".into();
        return;
    }
    let words = ACTIONS
        .iter()
        .find(|(_, id, _)| *id == wanted)
        .map_or(wanted, |(_, _, words)| words);
    decoded.confidence = 0.95;
    decoded.vendor_action = format!("XID_154: {words}").into();
    decoded.sentence = format!("the driver asks to {words}").into();
}

fn action(text: &str) -> Option<&'static str> {
    let name = text
        .split_once('(')
        .and_then(|(_, name)| name.split_once(')'))
        .map(|(name, _)| name.to_ascii_lowercase());
    if let Some(name) = name {
        let known = ACTIONS.iter().find(|(part, _, _)| name.contains(part));
        if let Some((_, id, _)) = known {
            return Some(id);
        }
    }
    NUMBERS.get(usize::try_from(hex(word(text)?)?).ok()?).copied()
}

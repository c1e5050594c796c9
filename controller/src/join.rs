//! Checks of the node description in a join.

use rankguard_model::{NodeInfo, PrintableText, is_hidden};

/// Longest name of a node, as in certificates, bytes.
const NAME_MAX: usize = 128;
/// Longest address, host or label, bytes: the longest DNS name with a port.
const WORD_MAX: usize = 260;
/// Largest number of ranks that a node can run at once.
const SLOTS_MAX: u32 = 4_096;

/// Returns the reason to refuse the description of a node, or `None`.
///
/// Addresses need not be the caller's own, because a node has several networks. A dialler compares the certificate at
/// the address with the node's name, so the address of another node is rejected.
pub(crate) fn problem(info: &NodeInfo) -> Option<String> {
    let name = info.node.as_str();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    if !(1..=NAME_MAX).contains(&name.len()) || !name.chars().all(plain) {
        let shown = PrintableText::first(name, NAME_MAX);
        return Some(format!(
            "`node`: {shown} is not a node name; expected 1 to {NAME_MAX} letters, digits, `.`, `_` or `-`"
        ));
    }
    let words = [
        ("incarnation", &info.incarnation),
        ("boot_id", &info.boot_id),
        ("host", &info.host),
        ("peer_address", &info.peer_address),
        ("image_address", &info.image_address),
        ("failure_domain", &info.failure_domain),
    ];
    let wrong = |(_, text): &(&str, &String)| text.len() > WORD_MAX || text.chars().any(is_hidden);
    if let Some((field, text)) = words.into_iter().find(wrong) {
        let shown = PrintableText::first(text, WORD_MAX);
        return Some(format!(
            "`{field}`: {shown} is longer than {WORD_MAX} bytes or has control characters"
        ));
    }
    if info.slots > SLOTS_MAX {
        return Some(format!("`slots`: {} is above the maximum of {SLOTS_MAX}", info.slots));
    }
    if info.running.len() > SLOTS_MAX as usize {
        let count = info.running.len();
        return Some(format!(
            "`running`: {count} ranks are more than the {SLOTS_MAX} that a node may have"
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use rankguard_model::{ClockOffset, NodeId};

    use super::*;

    fn info(node: &str) -> NodeInfo {
        NodeInfo {
            node: NodeId::from(node),
            incarnation: "1".to_owned(),
            boot_id: String::new(),
            host: "10.0.0.1".to_owned(),
            peer_address: "10.0.0.1:1".to_owned(),
            image_address: "[fe80::1%eth0]:2".to_owned(),
            slots: 8,
            failure_domain: "rack 7".to_owned(),
            running: Vec::new(),
            clock: ClockOffset::default(),
            lease_ms: 0,
            is_kernel_log_first: false,
            history: rankguard_model::NodeHistory::default(),
        }
    }

    #[test]
    fn names_and_texts_of_a_node_are_plain_and_short() {
        assert_eq!(problem(&info("gpu-17.rack_3")), None);
        for name in ["", "a b", "a/b", "\u{1b}[2J", "n1\n", &"n".repeat(129)] {
            let text = problem(&info(name)).expect("refused");
            assert!(text.starts_with("`node`:") && !text.chars().any(is_hidden), "{text:?}");
        }
        let mut node = info("n1");
        node.failure_domain = "rack\u{1b}]0;x\u{7}".to_owned();
        assert!(problem(&node).is_some_and(|text| text.starts_with("`failure_domain`:")));
        let mut node = info("n1");
        node.slots = u32::MAX;
        assert!(problem(&node).is_some_and(|text| text.starts_with("`slots`:")));
    }
}

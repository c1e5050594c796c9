//! Servers of file systems in messages of their clients.
//!
//! A client reports a request that its server did not answer, and names the server. One client alone does not show whether
//! the server or its own connection failed; the message is evidence about the named server, as long as no other client
//! shows that the server answers. An eviction is the opposite report: the server gave up this client.

use std::net::IpAddr;

use rankguard_faults::classes;
use rankguard_model::{Entity, EvidenceSource, NodeId};

use crate::{CauseCandidate, FailureScene, Signal};

/// Field with the server, as the signature of a message captures it.
const SERVER_FIELD: &str = "server";

/// Words of a client that its server gave up: the Lustre manual, "Handling Timeouts on a Lustre File System".
pub(crate) const EVICTED: &str = "evicted by";

/// Programs whose messages name servers by network identifiers (NID), `10.0.0.5@o2ib`: Lustre and its network.
const NID_WRITERS: [&str; 2] = ["Lustre", "LNet"];

/// Returns the server that a message of a client names: its host, its address, or its network identifier.
pub(crate) fn named_server(sign: &Signal) -> Option<&str> {
    sign.field(SERVER_FIELD).or_else(|| lustre_server(&sign.text))
}

/// Returns the name of the Lustre file system to which the target in a message belongs: `work` of `work-OST0003-osc-ffff88`. The
/// name has up to eight characters, and a target four hexadecimal digits (Lustre manual, "Understanding Lustre Architecture").
pub fn lustre_file_system(text: &str) -> Option<&str> {
    if !text.contains("Lustre") {
        return None;
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    ["-OST", "-MDT"].iter().find_map(|kind| {
        let at = text.find(kind)?;
        let digits = text[at + kind.len()..]
            .bytes()
            .take_while(u8::is_ascii_hexdigit)
            .count();
        let start = at - text[..at].chars().rev().take_while(|c| is_name(*c)).count();
        (digits == 4 && start < at).then(|| &text[start..at])
    })
}

/// Returns the words for the servers that reports of one outage name: the server, or the file system with its servers.
pub(crate) fn part_of_outage<'s>(signs: impl Iterator<Item = &'s Signal>) -> Option<String> {
    let mut servers: Vec<&str> = Vec::new();
    let mut system = None;
    for sign in signs {
        system = system.or_else(|| lustre_file_system(&sign.text));
        let server = named_server(sign).filter(|server| !servers.contains(server));
        servers.extend(server);
    }
    match (servers.as_slice(), system) {
        ([], _) => None,
        ([one], _) => Some(format!("server {one}")),
        (many, Some(system)) => Some(format!(
            "file system {system} (servers {}{})",
            many[..many.len().min(SERVERS)].join(", "),
            if many.len() > SERVERS { ", ..." } else { "" }
        )),
        (many, None) => Some(format!("server {}", many[0])),
    }
}

/// Maximum number of servers that a part names.
const SERVERS: usize = 6;

/// Returns true if two reports are of servers of one Lustre file system.
pub(crate) fn is_same_system(one: &Signal, other: &Signal) -> bool {
    let system = lustre_file_system(&one.text);
    system.is_some() && system == lustre_file_system(&other.text)
}

/// Returns the only peer that a message of Lustre names by its network identifier; `None` if it names none or several.
fn lustre_server(text: &str) -> Option<&str> {
    if !NID_WRITERS.iter().any(|word| text.contains(word)) {
        return None;
    }
    let mut peers = text
        .split([' ', '(', ')', '[', ']', ',', ';', '>'])
        .filter_map(network_id);
    let first = peers.next()?;
    peers.all(|other| other == first).then_some(first)
}

/// Parses a network identifier at the end of a word, without the portals behind it: `MGC10.0.0.5@o2ib@10.0.0.5@o2ib:26/25`.
fn network_id(word: &str) -> Option<&str> {
    let (before, network) = word.rsplit_once('@')?;
    let length = network
        .find(|c: char| !c.is_ascii_alphanumeric())
        .unwrap_or(network.len());
    let start = before.rfind('@').map_or(0, |at| at + 1);
    let is_address = before[start..].parse::<IpAddr>().is_ok();
    let is_network = network.starts_with(|c: char| c.is_ascii_lowercase()) && length > 0;
    (is_address && is_network).then(|| &word[start..before.len() + 1 + length])
}

/// Returns the cause with a note that its client names a server. What follows from the cause remains that of the client.
pub(crate) fn with_note(winner: &CauseCandidate, part: Option<&str>) -> CauseCandidate {
    let mut noted = winner.clone();
    if let Some(part) = part {
        let them = if part.contains("(servers ") {
            "those servers"
        } else {
            "that server"
        };
        noted.notes.push(format!(
            "The client names {part}, and the log of no other client is there. If others reach {them}, the fault is in the \
             connection of this client."
        ));
    }
    noted
}

/// Returns the words for the server, or for the file system with its servers, that the only client with a log names as the one that
/// does not answer.
pub(crate) fn only_named(scene: &FailureScene<'_>, winner: &CauseCandidate) -> Option<String> {
    let first = &scene.signs[winner.first];
    let is_wait = winner.class.as_str() == classes::FILESYSTEM_HANG && first.source == EvidenceSource::KernelLog;
    let Entity::Node { node } = &winner.blamed else {
        return None;
    };
    let has_other_machine = scene.machine_nodes.iter().any(|other| other != node);
    if !scene.is_of_logs() || !is_wait || has_other_machine || first.text.contains(EVICTED) {
        return None;
    }
    named_server(first).filter(|server| !names_machine(server, node))?;
    let of_outage = scene
        .marks()
        .map(|(_, sign)| sign)
        .filter(|sign| sign.is_root_mark() && is_same_system(first, sign));
    part_of_outage(std::iter::once(&**first).chain(of_outage))
}

/// Returns true if a server is named as a node is.
fn names_machine(server: &str, node: &NodeId) -> bool {
    let host = server.split(['@', '.']).next().unwrap_or(server);
    !node.as_str().is_empty() && (server == node.as_str() || host == node.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_of_lustre_name_their_file_system() {
        for (text, expect) in [
            (
                "Lustre: work-OST0003-osc-ffff: Connection to work-OST0003 was lost",
                Some("work"),
            ),
            (
                "LustreError: 11-0: w2-MDT0000-mdc-ffff: operation obd_ping failed",
                Some("w2"),
            ),
            ("LustreError: 9:0:(x.c:1) lustre-OST001a_UUID is gone", Some("lustre")),
            ("Lustre: Mounted w-client", None),
            ("nfs: server a-OST0001 not responding", None),
        ] {
            assert_eq!(lustre_file_system(text), expect, "{text}");
        }
    }

    #[test]
    fn lustre_names_a_server_by_its_network_identifier() {
        for (text, expect) in [
            (
                "Lustre: w-OST0003-osc-ffff: Connection to w-OST0003 (at 10.0.0.5@o2ib) was lost; in progress",
                Some("10.0.0.5@o2ib"),
            ),
            (
                "LustreError: 11-0: w-MDT0000-mdc-ffff: operation obd_ping to node 10.0.0.6@tcp1 failed: rc = -107",
                Some("10.0.0.6@tcp1"),
            ),
            (
                "Lustre: 9:0:(client.c:2141:ptlrpc_expire_one_request()) @@@ Request sent has failed: [sent 1/real 2]  \
                 req@ffff880e x15/t0(0) o250->MGC10.0.0.7@o2ib@10.0.0.7@o2ib:26/25 lens 520/544",
                Some("10.0.0.7@o2ib"),
            ),
            ("Lustre: w: routed from 10.0.0.5@o2ib to 10.0.0.6@tcp", None),
            ("Lustre: Mounted w-client", None),
            ("mail of root@10.0.0.5", None),
        ] {
            assert_eq!(lustre_server(text), expect, "{text}");
        }
    }
}

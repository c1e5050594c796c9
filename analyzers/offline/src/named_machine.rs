//! Machines that messages name in their text: `Nodes gpu-07 not responding`, `node/gpu-07`, `node(s)=gpu-07`,
//! `srun: error: gpu-07: task 3`.

use rankguard_faults::{Catalogue, classes};
use rankguard_model::{Classification, NodeId};

/// Words before the name of a node.
const NODE_WORDS: [&str; 5] = ["Node", "Nodes", "node", "nodes", "host"];

/// Classes of failures of a machine outside the layer of hardware.
const OF_MACHINES: [&str; 7] = [
    classes::DRIVER_VERSION_MISMATCH,
    classes::FABRIC_MANAGER_NOT_READY,
    classes::HOST_OOM_KILL,
    classes::HUNG_TASK,
    classes::NIC_FAULT,
    classes::NIC_LINK_DOWN,
    classes::SLURM_NODE_FAIL,
];

/// Returns true if a mark is about a machine, so that a node in its text is the failed one.
pub(crate) fn is_of_machine(mark: &Classification) -> bool {
    let known = Catalogue::builtin().class(&mark.class);
    OF_MACHINES.contains(&mark.class.as_str()) || known.is_some_and(|class| class.layer == "hardware")
}

/// Returns the node that a message names; `None` if it names none or several.
pub(crate) fn node_in(text: &str) -> Option<NodeId> {
    let mut names = nodes_in(text);
    let first = names.next()?;
    names.all(|other| other == first).then(|| NodeId::from(first))
}

/// Returns the nodes that a message names.
pub(crate) fn nodes_in(text: &str) -> impl Iterator<Item = &str> {
    let task = text.strip_prefix("srun: error: ").and_then(|rest| {
        let (name, rest) = rest.split_once(": ")?;
        rest.starts_with("task").then_some(name)
    });
    let mut before = "";
    let named = text.split_whitespace().filter_map(move |word| {
        let after = std::mem::replace(&mut before, word);
        let object = word.strip_prefix("node/").or_else(|| word.strip_prefix("node(s)="));
        object.or_else(|| {
            NODE_WORDS
                .contains(&after.trim_start_matches(['(', '"']))
                .then_some(word)
        })
    });
    let names = task
        .into_iter()
        .chain(named)
        .map(bare)
        .filter(|name| is_node_name(name));
    let names = names.chain(quoted_nodes(text));
    let names = names.map(|name| name.split('.').next().unwrap_or(name));
    names.chain(node_address(text))
}

/// Returns the nodes in quoted values of structured messages, which need no digit to be known as names: `node="worker-a"`,
/// `object="worker-a" kind="Node"` (Kubernetes, "System Logs": structured logging of klog).
fn quoted_nodes(text: &str) -> impl Iterator<Item = &str> {
    let is_object = text.contains("kind=\"Node\"");
    let value = move |word: &'_ str| -> Option<(usize, usize)> {
        let prefix = ["node=\"", "object=\""]
            .into_iter()
            .find(|prefix| word.starts_with(prefix))?;
        let rest = &word[prefix.len()..];
        let end = rest.find('"')?;
        (prefix.starts_with("node") || is_object).then_some((prefix.len(), prefix.len() + end))
    };
    let names = text
        .split_whitespace()
        .filter_map(move |word| value(word).map(|(start, end)| &word[start..end]));
    names.filter(|name| is_host_name(name))
}

/// Returns the address with which Ray names a node: `the node (IP: 10.0.0.7, ID: abc)`, `node (ID: abc, IP: 10.0.0.7)`.
fn node_address(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("node (")?;
    let (inside, _) = rest.split_once(')')?;
    let address = inside.split(", ").find_map(|part| part.strip_prefix("IP: "))?;
    Some(address).filter(|address| is_address(address))
}

/// Returns the node that a launcher reports as lost or as not reachable: `Remote daemon: [[51202,0],1] on node n2`, `n3: ssh:
/// connect to host n3 port 22`, Ray's `node with node id: ... and address: 10.0.0.7 ... has been marked dead`.
pub(crate) fn lost_node(text: &str) -> Option<&str> {
    let word_after = |words: &str| text.split_once(words)?.1.split_whitespace().next().map(bare);
    if text.trim_start().starts_with("Remote daemon: [") {
        return word_after("] on node ").filter(|name| is_host_name(name) || is_address(name));
    }
    if text.contains("has been marked dead") {
        return word_after(" and address: ").or_else(|| word_after(" and ip: "));
    }
    if text.contains("died or was killed") {
        return word_after("Worker IP address: ").filter(|name| is_address(name));
    }
    if let Some(instance) = instance(text).filter(|_| is_taken_back(text)) {
        return Some(instance);
    }
    // `ssh` ends with 255 for an error of its own, with any other code for the command.
    if let Some((labels, _)) = text.split_once(": ssh exited with exit code 255") {
        let label = labels.rsplit(": ").next().unwrap_or(labels);
        return Some(label).filter(|name| labels.starts_with("pdsh@") && is_host_name(name));
    }
    // Without a label the same words are of programs that copy files or code.
    let (label, _) = text.split_once(": ssh: connect to host ")?;
    let label = label.rsplit(' ').next().unwrap_or(label);
    word_after("connect to host ").filter(|name| *name == label && is_node_name(name))
}

/// Returns true for a login that the host of the line's label did not accept: `n3: ssh: connect to host n3 port 22`, without its
/// label.
pub(crate) fn is_refused_login(text: &str, label: &str) -> bool {
    let host = text
        .strip_prefix("ssh: connect to host ")
        .and_then(|rest| rest.split(' ').next());
    host == Some(label)
}

/// Texts with which a daemon states that its own machine was given up.
const GIVEN_UP: [&str; 3] = [
    "this node manager has mistakenly been marked as dead",
    "this node has been marked dead",
    "this node was marked dead",
];

/// Returns true if a message states that the machine which wrote it was given up as dead.
pub(crate) fn states_own_loss(text: &str) -> bool {
    GIVEN_UP.iter().any(|words| text.contains(words))
}

/// Texts before the peer in messages of survivors: NCCL, Gloo.
const BEFORE_PEERS: [&str; 4] = [
    " closed by remote peer ",
    " closed by peer ",
    " recv from ",
    "Read error ",
];

/// Returns the peer at the other end of a connection that the writer of a message lost: `Connection closed by remote peer
/// n7.cluster<32926>`, `Connection closed by peer [10.0.0.7]:5128`. Its host name without the domain, or its address.
pub(crate) fn lost_peer(text: &str) -> Option<&str> {
    let rest = BEFORE_PEERS.iter().find_map(|words| text.split_once(words))?.1;
    let name = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once("]:")?.0,
        None => {
            rest.split_once('<')
                .filter(|(_, port)| port.starts_with(|c: char| c.is_ascii_digit()))?
                .0
        }
    };
    let name = name.split('%').next().unwrap_or(name);
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    let is_own = name == "localhost" || name == "::1" || name.starts_with("127.");
    if name.is_empty() || is_own || !name.chars().all(is_part) {
        return None;
    }
    if is_address(name) {
        return Some(name);
    }
    // A name of digits is a part of an address that was cut.
    name.split('.')
        .next()
        .filter(|name| name.starts_with(|c: char| c.is_ascii_alphabetic()))
}

fn is_address(name: &str) -> bool {
    name.parse::<std::net::IpAddr>().is_ok()
}

/// Returns true for a notice of a cloud that it takes an instance back.
fn is_taken_back(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let notices = [
        "spot interruption",
        "spot instance",
        "interruption notice",
        "termination notice",
        "termination is imminent",
    ];
    notices.iter().any(|notice| lower.contains(notice)) || lower.contains("to be interrupted")
}

/// Returns the only instance of EC2 that a text names: `i-` and 8 or 17 hexadecimal digits.
fn instance(text: &str) -> Option<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let is_instance = |word: &&str| {
        word.strip_prefix("i-").is_some_and(|digits| {
            [8, 17].contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        })
    };
    let mut names = words.filter(is_instance);
    let first = names.next()?;
    names.all(|other| other == first).then_some(first)
}

/// Returns the pod that an event of Kubernetes is about: `5m  Warning  Evicted  pod/train-1  ...`, the kubelet's
/// `pod="default/train-1"`, or an operator's `Error pod train-1 container main exitCode: 1`, `Pod: team.train-1 exited with code
/// 1`.
pub(crate) fn named_pod(text: &str) -> Option<&str> {
    let kubelet = || {
        text.split_once("pod=\"")?
            .1
            .split_once('"')
            .map(|(name, _)| name.rsplit('/').next().unwrap_or(name))
    };
    let mut columns = text.split_whitespace();
    let is_event = columns.any(|column| matches!(column, "Normal" | "Warning"));
    let event = columns
        .filter(|_| is_event)
        .find_map(|column| column.strip_prefix("pod/").or(column.strip_prefix("Pod/")));
    let named = event.or_else(kubelet).or_else(|| ended_pod(text));
    named.map(bare).filter(|name| !name.is_empty())
}

/// Returns the pod that the Kubeflow training operator reports as ended (`pkg/controller.v1/common/pod.go`).
fn ended_pod(text: &str) -> Option<&str> {
    let (name, rest) = match text.split_once("Error pod ") {
        Some((_, rest)) => rest
            .split_once(' ')
            .filter(|(_, rest)| rest.starts_with("container "))?,
        None => text.split_once("Pod: ")?.1.split_once(' ')?,
    };
    let is_end = rest.contains("exitCode: ") || rest.starts_with("exited with code ");
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let name = name.rsplit('.').next().unwrap_or(name);
    (is_end && name.chars().all(is_name)).then_some(name)
}

/// Returns the node of the kubelet that `kubectl` names as the source of an event: `{kubelet n7}`, `kubelet, n7`.
pub(crate) fn kubelet_host(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("{kubelet ").or_else(|| text.split_once(" kubelet, "))?;
    let name = bare(rest.split_whitespace().next()?).trim_end_matches('}');
    is_node_name(name).then_some(name)
}

/// Returns the node that a description of `kubectl` is about, which its header names: `Name:    gpu-07`.
pub(crate) fn described_node(context: &[String]) -> Option<NodeId> {
    let header = context.iter().find_map(|line| line.strip_prefix("Name:   "))?;
    let is_condition = |line: &String| line.trim_start().starts_with("Conditions:");
    let name = bare(header.trim());
    (context.iter().any(is_condition) && is_node_name(name)).then(|| NodeId::from(name))
}

/// Returns a word without quotes and punctuation.
fn bare(word: &str) -> &str {
    let is_mark = |c: char| "'\"`,;:()*".contains(c);
    word.trim_start_matches(is_mark)
        .trim_end_matches(|c: char| is_mark(c) || c == '.')
}

/// Returns true for the name of one host: letters, digits and dashes with at least one letter and one digit. A word without
/// a digit may be any word of a sentence, and a list of hosts has brackets.
fn is_node_name(name: &str) -> bool {
    name.bytes().any(|b| b.is_ascii_digit()) && is_host_name(name)
}

/// Returns true for a word of letters, digits, dashes and dots that may be the name of one host.
fn is_host_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.len() <= 253 && name.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &[&str]) {
        assert_eq!(nodes_in(text).collect::<Vec<_>>(), expect, "{text}");
    }

    #[test]
    fn messages_name_nodes_in_their_own_forms() {
        check("Nodes c7 not responding, setting DOWN", &["c7"]);
        check("Killing JobId=9 on failed node c7", &["c7"]);
        check("update_node: node c7 reason set to: drained by operator", &["c7"]);
        check("Warning   NodeNotReady   node/c7-pool   it stopped", &["c7-pool"]);
        check("srun: error: c7: tasks 0-3: Killed", &["c7"]);
        check("unexpected value (rank 5, node c7). Transient", &["c7"]);
        check("node c7.cluster.local rebooted", &["c7"]);
        check("Memory on the node (IP: 10.0.0.7, ID: abc) was 478 GB", &["10.0.0.7"]);
        check("Nodes c[7-9] not responding", &[]);
        check("killed at node (ID: abc, IP: 10.0.0.8) over time", &["10.0.0.8"]);
        check("node failure after 3 tries on node 12", &[]);
        check("no node is free", &[]);
        check("slurmd error running JobId=9 on node(s)=c7: Prolog error", &["c7"]);
        check("slurmd error running JobId=9 on node(s)=c[7-9]: Prolog error", &[]);
        check("event message for node\" status=\"NodeNotReady\" node=\"c7\"", &["c7"]);
        check("\"Node is unresponsive\" node=\"worker-a\"", &["worker-a"]);
        check(
            "\"Event occurred\" object=\"worker-a\" kind=\"Node\" reason=\"x\"",
            &["worker-a"],
        );
        check("\"Event occurred\" object=\"train-a\" kind=\"Pod\" reason=\"x\"", &[]);
    }

    #[test]
    fn launchers_name_the_node_that_they_lost() {
        for (text, expect) in [
            ("  Remote daemon: [[51202,0],1] on node c7", Some("c7")),
            (
                "  Remote daemon: [[64112,0],1] on node 10.126.10.10",
                Some("10.126.10.10"),
            ),
            ("Remote daemon: [prterun-c1-77@0,1] on node c7", Some("c7")),
            ("c7: ssh: connect to host c7 port 22: Connection timed out", Some("c7")),
            ("Remote daemon: [[55221,0],2] on node nodeC", Some("nodeC")),
            ("pdsh@c1: c7: ssh exited with exit code 255", Some("c7")),
            ("pdsh@c1: c7: ssh exited with exit code 1", None),
            ("ssh: connect to host c7 port 22: Connection timed out", None),
            ("c7: ssh: connect to host c9 port 22: Connection refused", None),
            (
                "The node with node id: ab12 and address: 10.0.0.7 and node name: 10.0.0.7 has been marked dead because",
                Some("10.0.0.7"),
            ),
            (
                "The node with node id: ab12 and ip: 10.0.0.7 has been marked dead because the detector has missed",
                Some("10.0.0.7"),
            ),
            (
                "[i-01f7ddd103dc478c0/cloud-init] Spot interruption payload received: {\"action\":\"terminate\"}",
                Some("i-01f7ddd103dc478c0"),
            ),
            ("[i-01f7ddd103dc478c0/cloud-init] boot finished", None),
            (
                "(raylet) A worker died or was killed while executing a task. Worker ID: d8 Node ID: 84 Worker IP address: \
                 10.0.0.7 Worker port: 10185 Worker PID: 90738 Worker exit type: SYSTEM_ERROR",
                Some("10.0.0.7"),
            ),
        ] {
            assert_eq!(lost_node(text), expect, "{text}");
        }
    }

    #[test]
    fn survivors_name_the_peer_that_they_lost() {
        for (text, expect) in [
            (
                "socketProgress: Connection closed by remote peer c7.example.org<32926>",
                Some("c7"),
            ),
            (
                "NCCL WARN Net : Connection closed by remote peer 10.0.0.7<50260>",
                Some("10.0.0.7"),
            ),
            (
                "[tcp/pair.cc:598] Connection closed by peer [10.0.0.7]:54168",
                Some("10.0.0.7"),
            ),
            (
                "[tcp/pair.cc:589] Read error [10.0.0.8]:3977: Connection reset by peer",
                Some("10.0.0.8"),
            ),
            (
                "[tcp/pair.cc:589] Read error [127.0.0.1]:3977: Connection reset by peer",
                None,
            ),
            (
                "Call to recv from 172....<33759> failed : Connection reset by peer",
                None,
            ),
            ("Read error on page 7", None),
            ("ssh: connection closed by peer n7", None),
        ] {
            assert_eq!(lost_peer(text), expect, "{text}");
        }
    }

    #[test]
    fn events_name_their_pod() {
        for (text, expect) in [
            (
                "12m  Warning  Evicted  pod/w-1  The node was low on resource",
                Some("w-1"),
            ),
            ("kubelet.go:2419] \"Killing\" pod=\"default/w-1\" reason=x", Some("w-1")),
            ("2m  Normal  Killing  node/c7  pod/w-1", Some("w-1")),
            ("copying pod/w-1 to disk", None),
            (
                "events\tError pod w-1 container pytorch exitCode: 1 terminated",
                Some("w-1"),
            ),
            ("events\tPod: team.w-1 exited with code 1", Some("w-1")),
            ("Error pod budget of w-1 is used up", None),
        ] {
            assert_eq!(named_pod(text), expect, "{text}");
        }
    }

    #[test]
    fn several_nodes_are_none() {
        assert_eq!(node_in("node c7 replaced by node c8"), None);
        assert_eq!(
            node_in("Node c7 status is now: node c7 NotReady"),
            Some(NodeId::from("c7"))
        );
    }
}

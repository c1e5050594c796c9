//! Sample cluster for the console in a browser (`tests/console`): the server of the API over a state made of events, with
//! up to 10,000 nodes and with texts that would be code if they were read as markup.

#![allow(clippy::print_stdout, reason = "the browser reads the address")]

use std::io::BufRead as _;

use rankguard_api::{ApiServer, StateFeed};
use rankguard_core::Event;
use rankguard_identity::PeerTransport;
use rankguard_model::{CaseId, CaseNoteKind, Timestamp};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::common::{SampleCluster, node_name};

/// Nodes of one rack.
const RACK: u32 = 64;

/// Makes a cluster of this size; each text of `hostile` is the value of each field that a user, a program or a log sets.
fn cluster(nodes: u32, hostile: &[String]) -> SampleCluster {
    let mut cluster = SampleCluster::empty();
    cluster.apply(Event::ControllerStarted);
    for number in 0..nodes {
        cluster.join_in(&node_name(number), &format!("rack-{:03}", number / RACK));
    }
    for text in hostile {
        cluster.join_in(text, text);
        cluster.submit_command(text, 1, &[text, text]);
        cluster.apply(Event::NodeCordoned {
            node: text.as_str().into(),
            reason: text.clone(),
        });
        cluster.report_gpu(text, text, text.clone());
        cluster.settle();
    }
    if nodes >= 16 {
        make_failures(&mut cluster, nodes);
        let first = *cluster.state.cases().keys().next().expect("a case");
        let class = "gpu-thermal".into();
        cluster.note_case(first, "ada", CaseNoteKind::Corrected { class }, "a fan was blocked");
        cluster.submit("llm-70b", nodes / 2);
        cluster.submit("vision", nodes / 8);
        cluster.submit("waits-for-nodes", nodes * 2);
    }
    let ids: Vec<CaseId> = cluster.state.cases().keys().copied().collect();
    for (id, text) in ids.iter().zip(hostile.iter().cycle()) {
        cluster.note_case(*id, text, CaseNoteKind::Comment, text);
    }
    cluster
}

/// Cordons, loses and breaks some nodes.
fn make_failures(cluster: &mut SampleCluster, nodes: u32) {
    for number in (5..nodes).step_by(97) {
        let node = node_name(number).as_str().into();
        let reason = "burn-in after a new fan".to_owned();
        cluster.apply(Event::NodeCordoned { node, reason });
    }
    for number in (11..nodes).step_by(301) {
        let node = node_name(number).as_str().into();
        let last_heard = Timestamp(cluster.events.last().expect("events").at.0 - 30_000_000_000);
        cluster.apply(Event::NodeFellSilent { node, last_heard });
    }
    let broken = [3, 17, 3, 40, 17, 3];
    for (count, number) in broken.into_iter().filter(|number| *number < nodes).enumerate() {
        let node = node_name(nodes - 1 - number);
        cluster.apply(Event::NodeUncordoned {
            node: node.as_str().into(),
        });
        let line = format!("NVRM: Xid (PCI:0000:9b:00): 79, pid={count}, GPU has fallen off the bus.");
        cluster.report_gpu(&node, "0000:9b:00", line);
        cluster.settle();
    }
}

/// Applies a command of the browser's script: `cordon NODE REASON`, `uncordon NODE`, `break NODE` or `note CASE TEXT`.
fn apply(cluster: &mut SampleCluster, feed: &mut StateFeed, line: &str) {
    let known = cluster.events.len();
    let (command, rest) = line.split_once(' ').expect("a command with its argument");
    let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
    let node = name.into();
    match command {
        "cordon" => cluster.apply(Event::NodeCordoned {
            node,
            reason: text.to_owned(),
        }),
        "uncordon" => cluster.apply(Event::NodeUncordoned { node }),
        "break" => {
            cluster.report_gpu(name, "0000:9b:00", "NVRM: Xid 79".to_owned());
            cluster.settle();
        }
        "note" => {
            let case = CaseId(name.parse().expect("the number of a case"));
            cluster.note_case(case, "ada", CaseNoteKind::Comment, text);
        }
        other => panic!("unknown command {other}"),
    }
    let events = cluster.events.split_off(known);
    feed.push(events, 1, &cluster.state);
}

/// Serves the sample until the standard input ends. `RANKGUARD_CONSOLE_NODES` is the number of nodes, and
/// `RANKGUARD_CONSOLE_HOSTILE` a JSON list of texts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a server for tests/console, not a check"]
async fn serve() {
    let nodes = std::env::var("RANKGUARD_CONSOLE_NODES").map_or(300, |nodes| nodes.parse().expect("a number"));
    let hostile = std::env::var("RANKGUARD_CONSOLE_HOSTILE").unwrap_or_else(|_| "[]".to_owned());
    let hostile: Vec<String> = serde_json::from_str(&hostile).expect("a list of texts");
    let mut cluster = cluster(nodes, &hostile);
    let (service, mut feed, _) = cluster.service();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let server = ApiServer::start(listener, &PeerTransport::loopback(), service).expect("it listens");
    println!("console: http://{}/console/", server.address);
    let (sender, mut lines) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    while let Some(line) = lines.recv().await {
        apply(&mut cluster, &mut feed, &line);
        println!("applied: {line}");
    }
}

//! Hang evidence, preflight and link measurement of an agent.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use rankguard_agent::{AgentSettings, MeasuringAgent, measure};
use rankguard_identity::PeerTransport;
use rankguard_model::{
    AgentOrder, Evidence, EvidenceBody, Generation, JobId, NodeId, PeerAgent, PreflightOrder, Rank, Step,
};
use rankguard_rank::RankClient;
use support::agent::{client_at, tells_its_socket, with_agent};
use support::{FakeController, NOBODY, launch};
use tempfile::TempDir;

/// Polls ranks often, and treats a short silence as a hang.
fn impatient(settings: &mut AgentSettings) {
    settings.intervals.ranks = Duration::from_millis(20);
    settings.intervals.stall = Duration::from_millis(300);
    settings.flight_recorder_pipe = true;
}

/// Starts a rank that completes ten steps and then none, with this text in its shell after the start.
async fn silent_rank(controller: &FakeController, env: &[(&str, String)], script: &str) -> (TempDir, RankClient) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("socket");
    let script = format!("{script}\n{}", tells_its_socket(&place));
    let mut order = launch(1, &["sh", "-c", &script]);
    order.world_size = 4;
    let vars = env.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    order.env.extend(vars);
    controller.order(&AgentOrder::Launch(order)).await;
    let steps = tokio::task::spawn_blocking(move || {
        let mut client = client_at(&place, 1);
        for step in 1..=10 {
            client.step(Step(step), None, 1.0);
            std::thread::sleep(Duration::from_millis(2));
        }
        client
    });
    (folder, steps.await.unwrap())
}

/// Returns the evidence that carries a mark of this signature.
async fn marked(controller: &FakeController, signature: &str) -> Evidence {
    let carries = |evidence: &&Evidence| evidence.marks.iter().any(|mark| mark.signature == signature);
    controller
        .wait(signature, |journal| journal.evidence.iter().find(carries).cloned())
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rank_that_makes_no_more_steps_is_told_with_where_its_process_stands() {
    with_agent(impatient, |controller| async move {
        let _rank = silent_rank(&controller, &[], "").await;
        let told = marked(&controller, "ranks.stalled").await;
        assert_eq!(told.entity.rank(), Some(Rank(0)));
        assert_eq!(told.marks[0].fields["step"], "10");
        let EvidenceBody::Line { context, .. } = told.body else {
            panic!("{told:?}")
        };
        assert!(
            context.iter().any(|line| line.starts_with("sleeping")),
            "the shell waits for its child: {context:?}"
        );
    })
    .await;
}

/// As in PyTorch's watchdog: any input on the pipe makes it dump to the configured file.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_rank_is_asked_for_its_flight_recorder_and_what_it_dumps_is_sent() {
    with_agent(impatient, |controller| async move {
        let recorder = "\
            pipe=\"$TORCH_NCCL_DEBUG_INFO_PIPE_FILE$RANK.pipe\"; mkfifo \"$pipe\" || exit 7; exec 3<>\"$pipe\"
            dump='{\"version\":\"2.9\",\"pg_config\":{\"0\":{\"desc\":\"asked_for\",\"ranks\":\"[0, 1]\"}},\"entries\":[]}'
            (head -c 1 <&3 >/dev/null; echo \"$dump\" > \"$TORCH_NCCL_DEBUG_INFO_TEMP_FILE$RANK\") &";
        let _rank = silent_rank(&controller, &[], recorder).await;
        let dumped = |body: &EvidenceBody| match body {
            EvidenceBody::FlightDump { dump, .. } if dump.contains("asked_for") => Some(()),
            _ => None,
        };
        controller.wait_body("dump", dumped).await;
    })
    .await;
}

/// The job configures the address of its RAS threads; the evidence names the rank that they report as behind.
#[tokio::test(flavor = "multi_thread")]
async fn nccls_own_threads_are_asked_about_a_silent_job() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let service = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let greeting = lines.next().unwrap().unwrap();
        stream.write_all(b"SERVER PROTOCOL 2\n").unwrap();
        let question = lines.next().unwrap().unwrap();
        stream.write_all(RAS.as_bytes()).unwrap();
        (greeting, question)
    });
    with_agent(impatient, |controller| async move {
        let _rank = silent_rank(&controller, &[("NCCL_RAS_ADDR", address)], "").await;
        let told = marked(&controller, "nccl.ras").await;
        let words = "has launched 11 AllReduce operations, most ranks 12";
        assert_eq!(told.marks[0].fields["rank 2"], words);
        assert!(
            matches!(&told.body, EvidenceBody::Line { text, .. } if text.contains(words)),
            "{told:?}"
        );
    })
    .await;
    let spoken = service.join().unwrap();
    assert_eq!(spoken, ("CLIENT PROTOCOL 2".to_owned(), "VERBOSE STATUS".to_owned()));
}

/// A response in NCCL's format.
const RAS: &str = "\
NCCL version 2.28.3 compiled with CUDA 13.0

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         4         4         4   RUNNING  MISMATCH

Errors
======

Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 12
  Rank 2 has launched up to operation 11 -- GPU 2 managed by process 7 on node 127.0.0.1

";

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_lacks_something_is_answered_with_what_and_with_what_must_be_equal() {
    with_agent(
        |_| {},
        |controller| async move {
            let wanted = PreflightOrder {
                job: JobId::from("train"),
                generation: Generation(1),
                command: vec!["sh".to_owned()],
                env: BTreeMap::from([("NCCL_DEBUG".to_owned(), "INFO".to_owned())]),
                workdir: None,
                write_paths: vec!["/no/such/store".to_owned()],
                deadline_ms: 10_000,
                between: Vec::new(),
                links: Vec::new(),
            };
            controller.order(&AgentOrder::Preflight(wanted)).await;
            let answer = |body: &EvidenceBody| match body {
                EvidenceBody::Preflighted {
                    failed, environment, ..
                } => Some((failed.clone(), environment.clone())),
                _ => None,
            };
            let (failed, environment) = controller.wait_body("answer", answer).await;
            let told: Vec<_> = failed
                .iter()
                .map(|it| (it.check.as_str(), it.subject.as_str()))
                .collect();
            assert_eq!(told, [("write-path", "/no/such/store")]);
            assert_eq!(environment["env NCCL_DEBUG"], "INFO");
            assert_eq!(environment["program"].len(), 64);
        },
    )
    .await;
}

/// The links between nodes are part of the answer of the node that measures them.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_nobody_reaches_is_named_by_the_one_that_measures() {
    with_agent(
        |_| {},
        |controller| async move {
            let address = controller
                .wait("join", |journal| Some(journal.joins.first()?.peer_address.clone()))
                .await;
            let peer = |name: &str, address: &str| PeerAgent {
                node: name.into(),
                address: address.to_owned(),
                failure_domain: String::new(),
            };
            let wanted = PreflightOrder {
                job: JobId::from("train"),
                generation: Generation(1),
                command: vec!["sh".to_owned()],
                env: BTreeMap::new(),
                workdir: None,
                write_paths: Vec::new(),
                deadline_ms: 20_000,
                // One agent stands for three healthy nodes.
                between: vec![
                    peer("a", &address),
                    peer("b", &address),
                    peer("c", NOBODY),
                    peer("d", &address),
                ],
                links: Vec::new(),
            };
            controller.order(&AgentOrder::Preflight(wanted)).await;
            let answer = |body: &EvidenceBody| match body {
                EvidenceBody::Preflighted { failed, .. } => Some(failed.clone()),
                _ => None,
            };
            let failed = controller.wait_body("answer", answer).await;
            // On a busy machine the links between the other nodes may differ, too.
            let told = failed.iter().find(|it| it.check == "between" && it.subject == "c");
            assert_eq!(told.map(|it| it.class.as_str()), Some("network-slow"), "{failed:?}");
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_measure_the_way_between_them() {
    with_agent(
        |_| {},
        |controller| async move {
            let address = controller
                .wait("join", |journal| Some(journal.joins.first()?.peer_address.clone()))
                .await;
            let network = PeerTransport::loopback();
            let lasts = Duration::from_millis(20);
            let station = |address: &str| MeasuringAgent {
                node: NodeId::from("n1"),
                address: address.to_owned(),
            };
            let this = station(&address);
            let measured = measure(&network, &this, &this, lasts).await.unwrap();
            assert!(measured.bandwidth > 0.0 && measured.latency > 0.0, "{measured:?}");
            let nobody = measure(&network, &station(NOBODY), &this, lasts).await;
            assert_eq!(nobody, Err(format!("no agent answers at {NOBODY}")));
        },
    )
    .await;
}

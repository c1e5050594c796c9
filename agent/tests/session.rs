//! Session with a controller: content and order of the evidence, and behaviour when the session breaks.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::{Duration, Instant};

use rankguard_agent::{AgentError, ask_agent, run};
use rankguard_model::{AgentOrder, EvidenceBody};
use support::agent::settings;
use support::{FakeController, LIMIT, NOBODY, launch};
use tokio::sync::oneshot;

#[tokio::test(flavor = "multi_thread")]
async fn absent_collectors_say_so_once_and_numbers_have_no_gaps() {
    let dir = tempfile::tempdir().unwrap();
    let controller = FakeController::start(true).await;
    let (end, ended) = oneshot::channel::<()>();
    let agent = tokio::spawn(run(settings(dir.path(), &controller.address.to_string()), async {
        let _ = ended.await;
    }));
    controller.joined(1).await;
    controller.order(&AgentOrder::Launch(launch(1, &["true"]))).await;
    controller
        .wait_body("exit", |body| {
            matches!(body, EvidenceBody::RankExited { .. }).then_some(())
        })
        .await;
    end.send(()).unwrap();
    let ended = tokio::time::timeout(LIMIT, agent).await.unwrap().unwrap().unwrap();
    assert_eq!(ended.unacknowledged, 0);
    let all = controller.all();
    let numbers: Vec<u64> = all.iter().map(|evidence| evidence.id.seq.0).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    let mut gaps: Vec<String> = all
        .iter()
        .filter_map(|evidence| match &evidence.body {
            EvidenceBody::Gap { what, .. } => Some(what.clone()),
            _ => None,
        })
        .collect();
    let told = gaps.len();
    assert!(told > 0, "a node without GPUs and sysfs has absent collectors");
    gaps.sort();
    gaps.dedup();
    assert_eq!(gaps.len(), told, "each once: {gaps:?}");
}

/// RG-5: evidence from the time without a controller arrives when there is one.
#[tokio::test(flavor = "multi_thread")]
async fn evidence_waits_for_a_controller_that_comes_later() {
    let dir = tempfile::tempdir().unwrap();
    let (end, ended) = oneshot::channel::<()>();
    let agent = tokio::spawn(run(settings(dir.path(), NOBODY), async {
        let _ = ended.await;
    }));
    let until = Instant::now() + LIMIT;
    while tokio::task::block_in_place(|| ask_agent(dir.path(), LIMIT)).map_or(0, |view| view.spool.last) == 0 {
        assert!(Instant::now() < until, "the agent has nothing to tell");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    end.send(()).unwrap();
    let first = tokio::time::timeout(LIMIT, agent).await.unwrap().unwrap().unwrap();
    assert!(first.unacknowledged > 0);
    let controller = FakeController::start(true).await;
    let (end, ended) = oneshot::channel::<()>();
    let agent = tokio::spawn(run(settings(dir.path(), &controller.address.to_string()), async {
        let _ = ended.await;
    }));
    let all = first.unacknowledged;
    controller
        .wait("old evidence", |journal| (journal.acknowledged >= all).then_some(()))
        .await;
    assert_eq!(controller.all()[0].id.seq.0, 1);
    end.send(()).unwrap();
    tokio::time::timeout(LIMIT, agent).await.unwrap().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_settings_are_errors_that_name_them() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut port = settings(dir.path(), NOBODY);
    port.peer_listen = taken.local_addr().unwrap().to_string();
    let error = run(port.clone(), std::future::pending()).await.unwrap_err();
    assert!(
        matches!(&error, AgentError::PeerListen { address, .. } if *address == port.peer_listen),
        "{error}"
    );
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let error = run(settings(&file.join("below"), NOBODY), std::future::pending())
        .await
        .unwrap_err();
    assert!(matches!(error, AgentError::StateDir { .. }), "{error}");
}

//! Agents that are killed: their ranks die with them, and their spool goes on where it was.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rankguard_agent::run;
use rankguard_model::{Body, Generation, JobId, Order};
use support::agent::settings;
use support::{FakeController, gone, launch};

/// Set for the process that this binary starts to be killed.
const STATE: &str = "RANKGUARD_TEST_STATE";
const CONTROLLER: &str = "RANKGUARD_TEST_CONTROLLER";

/// Not a test of its own: the agent process of the tests below.
#[tokio::test(flavor = "multi_thread")]
async fn agent_process() {
    let (Ok(state), Ok(controller)) = (std::env::var(STATE), std::env::var(CONTROLLER)) else {
        return;
    };
    let _ = run(settings(Path::new(&state), &controller), std::future::pending()).await;
}

/// Killed when dropped, so that a failing test leaves nothing.
struct Process(Child);

impl Process {
    fn start(state: &Path, controller: &FakeController) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["agent_process", "--exact", "--nocapture"]);
        command
            .env(STATE, state)
            .env(CONTROLLER, controller.address.to_string());
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// RG-3: a rank without an owner could not be fenced.
#[tokio::test(flavor = "multi_thread")]
async fn ranks_die_with_an_agent_that_is_killed_and_its_fence_stands_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let controller = FakeController::start(true).await;
    let agent = Process::start(dir.path(), &controller);
    controller.joined(1).await;
    controller.order(&Order::Launch(launch(4, &["sleep", "300"]))).await;
    let pid = controller.wait_body("start", |body| match body {
        Body::RankStarted { pid } => Some(*pid),
        _ => None,
    });
    let pid = pid.await;
    drop(agent);
    assert!(gone(pid).await, "the rank outlived its agent");

    let _again = Process::start(dir.path(), &controller);
    controller.joined(2).await;
    let incarnations: Vec<String> = {
        let journal = controller.journal.lock().unwrap();
        assert!(journal.joins[1].running.is_empty());
        journal.joins.iter().map(|join| join.incarnation.clone()).collect()
    };
    assert_ne!(incarnations[0], incarnations[1]);
    let stale = Order::Fence {
        job: JobId::from("train"),
        generation: Generation(3),
        reserve_port: false,
    };
    controller.order(&stale).await;
    controller
        .wait_body("refusal", |body| {
            matches!(
                body,
                Body::OrderFailed {
                    generation: Generation(3),
                    ..
                }
            )
            .then_some(())
        })
        .await;
}

/// RG-4: kill -9 at arbitrary moments under load. Every number arrives, none arrives with two meanings, and what was not
/// acknowledged comes again.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_spool_neither_skips_nor_reuses_a_number() {
    let dir = tempfile::tempdir().unwrap();
    let controller = FakeController::start(false).await;
    for round in 1..=6_u64 {
        let agent = Process::start(dir.path(), &controller);
        controller.joined(usize::try_from(round).unwrap()).await;
        // A rank that dies at once, again and again, makes three kinds of evidence.
        let before = controller.all().len();
        for generation in 0..4 {
            controller
                .order(&Order::Launch(launch(round * 10 + generation, &["sh", "-c", "exit 1"])))
                .await;
        }
        let enough = before + usize::try_from(round).unwrap();
        controller
            .wait("evidence", |journal| (journal.evidence.len() > enough).then_some(()))
            .await;
        drop(agent);
    }
    controller.journal.lock().unwrap().acknowledge = true;
    let _last = Process::start(dir.path(), &controller);
    controller.joined(7).await;
    controller
        .wait("acknowledged evidence", |journal| {
            (journal.acknowledged > 0).then_some(())
        })
        .await;
    let mut meanings: BTreeMap<u64, String> = BTreeMap::new();
    for evidence in controller.all() {
        // The time on the controller's clock may differ between two sendings; what was seen may not.
        let meaning = format!("{:?} {:?} {:?}", evidence.source, evidence.entity, evidence.body);
        let known = meanings.entry(evidence.id.seq.0).or_insert_with(|| meaning.clone());
        assert_eq!(*known, meaning, "number {} has two meanings", evidence.id.seq);
    }
    let numbers: Vec<u64> = meanings.into_keys().collect();
    let expected: Vec<u64> = (1..=numbers.len() as u64).collect();
    assert_eq!(numbers, expected);
}

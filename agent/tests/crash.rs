//! Killed agents: their ranks end with them, and their spool continues without a gap.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rankguard_agent::{RankPeerPolicy, keep_arenas, run};
use rankguard_checkpoint::Store;
use rankguard_checkpoint::format::{CheckpointId, Dtype, Manifest, TensorBox};
use rankguard_model::{AgentOrder, EvidenceBody, Generation, JobId, RestoreBytes, RestorePoint, Step};
use rankguard_rank::RankClient;
use serde_json::json;
use support::agent::{client_at, settings, tells_its_socket};
use support::guard::guarded;
use support::{FakeController, LIMIT, gone, launch};

/// Set for the process that this binary starts to be killed.
const STATE: &str = "RANKGUARD_TEST_STATE";
const CONTROLLER: &str = "RANKGUARD_TEST_CONTROLLER";

/// Not a test of its own: the agent process of the tests below.
#[tokio::test(flavor = "multi_thread")]
async fn agent_process() {
    let (Ok(state), Ok(controller)) = (std::env::var(STATE), std::env::var(CONTROLLER)) else {
        return;
    };
    let mut settings = settings(Path::new(&state), &controller);
    let keeper = ["arenas_process", "--exact", "--nocapture"].map(OsString::from);
    settings.arena_process = vec![std::env::current_exe().unwrap().into()];
    settings.arena_process.extend(keeper);
    // The test acts for the ranks, and is none of their processes.
    settings.rank_peers = RankPeerPolicy::SameUser;
    let _ = run(settings, std::future::pending()).await;
}

/// Not a test of its own: the process that holds the arenas of a killed agent.
#[test]
fn arenas_process() {
    let Ok(state) = std::env::var(STATE) else { return };
    keep_arenas(Path::new(&state), LIMIT).unwrap();
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
        guarded(&mut command).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
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
    controller
        .order(&AgentOrder::Launch(launch(4, &["sleep", "300"])))
        .await;
    let pid = controller.wait_body("start", |body| match body {
        EvidenceBody::RankStarted { pid, .. } => Some(*pid),
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
    let stale = AgentOrder::Fence {
        job: JobId::from("train"),
        generation: Generation(3),
        reserve_port: false,
        nodes: Vec::new(),
    };
    controller.order(&stale).await;
    controller
        .wait_body("refusal", |body| {
            matches!(
                body,
                EvidenceBody::OrderFailed {
                    generation: Generation(3),
                    ..
                }
            )
            .then_some(())
        })
        .await;
}

/// RG-4: kill -9 at arbitrary moments under load. Every number arrives, none arrives with two contents, and
/// unacknowledged evidence is sent again.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_spool_neither_skips_nor_reuses_a_number() {
    let dir = tempfile::tempdir().unwrap();
    let controller = FakeController::start(false).await;
    for round in 1..=6_u64 {
        let agent = Process::start(dir.path(), &controller);
        controller.joined(usize::try_from(round).unwrap()).await;
        // A rank that exits at once, again and again, makes three kinds of evidence.
        let before = controller.all().len();
        for generation in 0..4 {
            controller
                .order(&AgentOrder::Launch(launch(
                    round * 10 + generation,
                    &["sh", "-c", "exit 1"],
                )))
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
        // The time on the controller's clock may differ between two sendings; the content may not.
        let meaning = format!("{:?} {:?} {:?}", evidence.source, evidence.entity, evidence.body);
        let known = meanings.entry(evidence.id.seq.0).or_insert_with(|| meaning.clone());
        assert_eq!(*known, meaning, "number {} has two meanings", evidence.id.seq);
    }
    let numbers: Vec<u64> = meanings.into_keys().collect();
    let expected: Vec<u64> = (1..=numbers.len() as u64).collect();
    assert_eq!(numbers, expected);
}

fn state_of(step: u64) -> Vec<(TensorBox, Vec<u8>)> {
    let tensor = |name: &str, bytes: u64| {
        let data = (0..bytes).map(|nth| (nth ^ nth >> 8 ^ step) as u8).collect();
        (TensorBox::whole(name, Dtype::U8, vec![bytes]), data)
    };
    vec![tensor("weights", 3_000_000), tensor("bias", 77)]
}

/// Launches a generation of one rank on a store, and connects as its client.
async fn rank(dir: &Path, controller: &FakeController, generation: u64, restore: Option<CheckpointId>) -> RankClient {
    let place: PathBuf = dir.join(format!("socket-{generation}"));
    let mut order = launch(generation, &["sh", "-c", &tells_its_socket(&place)]);
    order.checkpoint_store = dir.join("store").display().to_string();
    order.restore = restore.map(|id| RestorePoint {
        step: id.step,
        generation: id.generation,
    });
    controller.order(&AgentOrder::Launch(order)).await;
    tokio::task::spawn_blocking(move || client_at(&place, generation))
        .await
        .unwrap()
}

/// Restores and checks the state of a generation's rank; returns the bytes by source.
async fn restored(controller: &FakeController, client: RankClient, step: u64, times: usize) -> RestoreBytes {
    let read = tokio::task::spawn_blocking(move || {
        let mut client = client;
        let saved = state_of(step);
        let wanted: Vec<TensorBox> = saved.iter().map(|(boxed, _)| boxed.clone()).collect();
        let restored = client.restore(&wanted).unwrap().unwrap();
        assert_eq!(restored.step, Step(step));
        assert!(
            restored.tensors.iter().eq(saved.iter().map(|(_, data)| data)),
            "other bytes than were saved"
        );
    });
    read.await.unwrap();
    let told = |journal: &support::Journal| {
        let bodies = journal.evidence.iter().map(|evidence| &evidence.body);
        let mut all = bodies.filter_map(|body| match body {
            EvidenceBody::Restored { from, .. } => Some(*from),
            _ => None,
        });
        all.nth(times - 1)
    };
    controller.wait("word of the restore", told).await
}

/// The image of the newest checkpoint is still in memory when its agent is killed: the next agent finds it, and
/// nothing is read from disk. When the job is over nothing is left.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_was_killed_finds_its_arenas_again() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("agent");
    let controller = FakeController::start(true).await;
    let store = Store::open(dir.path().join("store")).unwrap();
    let agent = Process::start(&state, &controller);
    controller.joined(1).await;
    let client = rank(dir.path(), &controller, 1, None).await;
    let saved = tokio::task::spawn_blocking(move || {
        let mut client = client;
        let tensors = state_of(7);
        let tensors: Vec<(TensorBox, &[u8])> = tensors.iter().map(|(boxed, data)| (boxed.clone(), &data[..])).collect();
        client.checkpoint(Step(7), &tensors, &json!({"step": 7})).unwrap();
        client
    });
    let client = saved.await.unwrap();
    let durable = |body: &EvidenceBody| match body {
        EvidenceBody::ShardDurable { seal } => Some(seal.clone()),
        _ => None,
    };
    let seal = controller.wait_body("durable shard", durable).await;
    let id = CheckpointId {
        step: Step(7),
        generation: Generation(1),
    };
    let manifest = Manifest::from_seals(&JobId::from("train"), id, None, &[seal]).unwrap();
    store.commit(&manifest).unwrap();
    drop((agent, client));

    let agent = Process::start(&state, &controller);
    controller.joined(2).await;
    let client = rank(dir.path(), &controller, 2, Some(id)).await;
    let from = restored(&controller, client, 7, 1).await;
    assert_eq!((from.arena, from.peer, from.disk), (3_000_077, 0, 0));
    drop(agent);

    // The job ends on this node: its remaining images are released, here and in the keeper.
    let agent = Process::start(&state, &controller);
    controller.joined(3).await;
    let stop = AgentOrder::Stop {
        job: JobId::from("train"),
        generation: Generation(3),
        grace_ms: 0,
        keeps_images: false,
    };
    controller.order(&stop).await;
    let client = rank(dir.path(), &controller, 4, Some(id)).await;
    let from = restored(&controller, client, 7, 2).await;
    assert_eq!((from.arena, from.disk), (0, 3_000_077), "the job was over");
    controller
        .order(&AgentOrder::Stop {
            job: JobId::from("train"),
            generation: Generation(4),
            grace_ms: 0,
            keeps_images: false,
        })
        .await;
    // Orders are carried out in sequence: an answer to this one proves that earlier ones are done.
    let later = JobId::from("later");
    controller
        .order(&AgentOrder::Fence {
            job: later.clone(),
            generation: Generation(1),
            reserve_port: false,
            nodes: Vec::new(),
        })
        .await;
    let fenced = |body: &EvidenceBody| matches!(body, EvidenceBody::Fenced { job, .. } if *job == later).then_some(());
    controller.wait_body("fence", fenced).await;
    let left = state.join("arenas.sock");
    assert!(left.exists(), "a keeper is there");
    drop(agent);
    let until = std::time::Instant::now() + LIMIT;
    while left.exists() {
        assert!(std::time::Instant::now() < until, "the keeper outlives what it keeps");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

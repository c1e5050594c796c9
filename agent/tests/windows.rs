//! Saves and restores through memory smaller than the image, beside a running agent.

#![allow(clippy::unwrap_used)]

mod support;

use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rankguard_checkpoint::Store;
use rankguard_checkpoint::format::{CheckpointId, Dtype, Manifest, TensorBox};
use rankguard_checkpoint::verify::verify;
use rankguard_model::{AgentOrder, EvidenceBody, Generation, JobId, RestorePoint, ShardSeal, Step};
use rankguard_rank::{BackPressure, RankClient, SaveNotes, SaveOutcome, TensorPart};
use serde_json::json;
use support::agent::{client_at, tells_its_socket, with_agent};
use support::{FakeController, launch};

type Tensors = Vec<(TensorBox, Vec<u8>)>;

const WINDOW: u64 = 1 << 20;

/// Seven windows and a bit, in tensors larger and smaller than one.
fn state(step: u64) -> Tensors {
    let tensor = |(nth, rows): (usize, u64)| {
        let data = (0..rows * 1000).map(|at| (at ^ at >> 9 ^ step << 2 ^ nth as u64) as u8);
        let boxed = TensorBox::whole(format!("tensor-{nth}"), Dtype::U8, vec![rows, 1000]);
        (boxed, data.collect())
    };
    [3000, 1, 0, 4200, 300].into_iter().enumerate().map(tensor).collect()
}

fn lent(tensors: &Tensors) -> Vec<(TensorBox, &[u8])> {
    tensors.iter().map(|(boxed, data)| (boxed.clone(), &data[..])).collect()
}

fn id(step: u64) -> CheckpointId {
    CheckpointId {
        step: Step(step),
        generation: Generation(1),
    }
}

async fn rank(controller: &FakeController, dir: &Path, generation: u64, restore: Option<CheckpointId>) -> RankClient {
    let place = dir.join(format!("socket-{generation}"));
    let mut order = launch(generation, &["sh", "-c", &tells_its_socket(&place)]);
    order.checkpoint_store = dir.join("store").display().to_string();
    order.tiers.window = NonZero::new(WINDOW);
    order.restore = restore.map(|id| RestorePoint {
        step: id.step,
        generation: id.generation,
    });
    controller.order(&AgentOrder::Launch(order)).await;
    blocking(move || client_at(&place, generation)).await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

async fn commit(controller: &FakeController, store: &Store, step: u64) {
    let durable = |body: &EvidenceBody| match body {
        EvidenceBody::ShardDurable { seal } if seal.step == Step(step) => Some(seal.clone()),
        _ => None,
    };
    let seal: ShardSeal = controller.wait_body("durable shard", durable).await;
    let manifest = Manifest::from_seals(&JobId::from("train"), id(step), None, &[seal]).unwrap();
    store.commit(&manifest).unwrap();
}

/// RG-2: saves while the training continues, and restores the saved bytes in the next generation.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_larger_than_its_window_is_saved_and_restored() {
    with_agent(
        |_| {},
        |controller| async move {
            let dir = tempfile::tempdir().unwrap();
            let store = Store::open(dir.path().join("store")).unwrap();
            let client = rank(&controller, dir.path(), 1, None).await;
            let client = blocking(move || {
                let mut client = client;
                let tensors = state(10);
                let saved = client
                    .checkpoint(Step(10), &lent(&tensors), &json!({"at": 10}))
                    .unwrap();
                assert_eq!(saved.outcome, SaveOutcome::Sealed);
                let counts = client.counts();
                assert_eq!((counts.sealed, counts.waited), (1, 1), "a full window is told");
                client
            });
            let client = client.await;
            commit(&controller, &store, 10).await;
            let sealed = |body: &EvidenceBody| match body {
                EvidenceBody::ShardSealed { step, bytes, .. } => (*step == Step(10)).then_some(*bytes),
                _ => None,
            };
            let bytes = controller.wait_body("word of the image", sealed).await;
            assert!(bytes >= 7_501_000, "{bytes}");

            let client = blocking(move || {
                let mut client = client;
                client.set_policy(BackPressure::Wait(Duration::from_secs(20)));
                let parts = state(20).into_iter().map(|(boxed, data)| TensorPart {
                    boxed,
                    data: Arc::new(data),
                });
                let begun = client.begin(Step(20), parts.collect(), json!({"at": 20}), SaveNotes::default());
                assert_eq!(begun.unwrap(), None);
                let saved = client.finish().unwrap().unwrap();
                assert_eq!(saved.outcome, SaveOutcome::Sealed);
                client
            });
            let client = client.await;
            commit(&controller, &store, 20).await;
            drop(client);

            let client = rank(&controller, dir.path(), 2, Some(id(20))).await;
            blocking(move || {
                let mut client = client;
                let tensors = state(20);
                let wanted: Vec<TensorBox> = tensors.iter().map(|(boxed, _)| boxed.clone()).collect();
                let restored = client.restore(&wanted).unwrap().unwrap();
                assert!(
                    restored.tensors.iter().eq(tensors.iter().map(|(_, data)| data)),
                    "other bytes"
                );
                assert_eq!((restored.step, &restored.states[0].1), (Step(20), &json!({"at": 20})));
                let nothing = client.restore(&[]).unwrap().unwrap();
                assert_eq!(nothing.states.len(), 1);
                // The window of the restore serves the next save.
                let saved = client.checkpoint(Step(30), &lent(&state(30)), &json!({})).unwrap();
                assert_eq!(saved.outcome, SaveOutcome::Sealed);
            })
            .await;
            let from = controller.wait_body("word of the restore", |body| match body {
                EvidenceBody::Restored { from, .. } => Some(*from),
                _ => None,
            });
            assert_eq!(from.await.disk, 7_501_000);
            let report = verify(&store, &JobId::from("train"), None).unwrap();
            assert!(report.is_intact(), "{report:?}");
        },
    )
    .await;
}

/// A folder that cannot be created: the attempt is void and reported, and the trainer is unaffected.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_refuses_makes_the_attempt_void_and_training_goes_on() {
    with_agent(
        |_| {},
        |controller| async move {
            let dir = tempfile::tempdir().unwrap();
            let store = Store::open(dir.path().join("store")).unwrap();
            std::fs::write(store.root().join("train"), "in the way").unwrap();
            let client = rank(&controller, dir.path(), 1, None).await;
            let client = blocking(move || {
                let mut client = client;
                let saved = client.checkpoint(Step(10), &lent(&state(10)), &json!({})).unwrap();
                assert_eq!(saved.outcome, SaveOutcome::Sealed);
                client
            });
            let client = client.await;
            let failed =
                |body: &EvidenceBody| matches!(body, EvidenceBody::ShardFailed { step: Step(10), .. }).then_some(());
            controller.wait_body("word of the failure", failed).await;
            std::fs::remove_file(store.root().join("train")).unwrap();
            blocking(move || {
                let mut client = client;
                client.checkpoint(Step(20), &lent(&state(20)), &json!({})).unwrap();
            })
            .await;
            commit(&controller, &store, 20).await;
        },
    )
    .await;
}

//! Checkpoints of a running agent: mirroring to the object store, restores from it, and deduplicated writes.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rankguard_agent::run;
use rankguard_checkpoint::Store;
use rankguard_checkpoint::format::{CheckpointId, Dtype, Manifest, TensorBox};
use rankguard_model::{
    AgentOrder, CopyTier, Entity, EvidenceBody, Generation, JobId, RestorePoint, RetainedSet, ShardSeal, Step,
};
use rankguard_rank::RankClient;
use serde_json::json;
use support::agent::{client_at, settings, tells_its_socket};
use support::{FakeController, LIMIT, launch};
use tokio::sync::oneshot;

type Tensors = Vec<(TensorBox, Vec<u8>)>;

/// Eight tensors, of which a step changes the given number.
fn state(step: u64, changed: usize) -> Tensors {
    let tensor = |nth: usize| {
        let seed = if nth < changed { step } else { 0 };
        let data = (0..1_000_000_u64)
            .map(|at| (at ^ at >> 7 ^ seed ^ (nth as u64) << 3) as u8)
            .collect();
        (
            TensorBox::whole(format!("tensor-{nth}"), Dtype::U8, vec![1_000_000]),
            data,
        )
    };
    (0..8).map(tensor).collect()
}

fn job() -> JobId {
    JobId::from("train")
}

const fn id(step: u64, generation: u64) -> CheckpointId {
    CheckpointId {
        step: Step(step),
        generation: Generation(generation),
    }
}

/// An agent with an object store, its controller, and a job of one rank.
struct Scene {
    dir: tempfile::TempDir,
    controller: FakeController,
    store: Store,
}

impl Scene {
    /// Runs a test body beside the agent, which ends in order afterwards.
    async fn play<F: Future<Output = Self>>(story: impl FnOnce(Self) -> F) {
        let dir = tempfile::tempdir().unwrap();
        let controller = FakeController::start(true).await;
        let settings = settings(&dir.path().join("agent"), &controller.address.to_string());
        let (end, ended) = oneshot::channel::<()>();
        let agent = tokio::spawn(run(settings, async {
            let _ = ended.await;
        }));
        controller.joined(1).await;
        let store = Store::open(dir.path().join("store")).unwrap();
        let scene = story(Self { dir, controller, store }).await;
        end.send(()).unwrap();
        tokio::time::timeout(LIMIT, agent).await.unwrap().unwrap().unwrap();
        drop(scene);
    }

    /// Starts a generation and connects as its rank.
    async fn rank(&self, generation: u64, restore: Option<CheckpointId>) -> RankClient {
        let place: PathBuf = self.dir.path().join(format!("socket-{generation}"));
        let mut order = launch(generation, &["sh", "-c", &tells_its_socket(&place)]);
        order.checkpoint_store = self.dir.path().join("store").display().to_string();
        order.tiers.mirror = Some(format!("file://{}", self.dir.path().join("mirror").display()));
        order.restore = restore.map(|id| RestorePoint {
            step: id.step,
            generation: id.generation,
        });
        self.controller.order(&AgentOrder::Launch(order)).await;
        tokio::task::spawn_blocking(move || client_at(&place, generation))
            .await
            .unwrap()
    }

    /// Saves a state, and commits and announces it as a controller does.
    async fn save(
        &self,
        client: RankClient,
        at: CheckpointId,
        parent: Option<CheckpointId>,
        tensors: Tensors,
    ) -> RankClient {
        self.save_leaving(client, at, parent, tensors, None).await
    }

    /// Does the same with the retention decision of the job.
    async fn save_leaving(
        &self,
        client: RankClient,
        at: CheckpointId,
        parent: Option<CheckpointId>,
        tensors: Tensors,
        stays: Option<RetainedSet>,
    ) -> RankClient {
        let step = at.step;
        let saved = tokio::task::spawn_blocking(move || {
            let mut client = client;
            let tensors: Vec<(TensorBox, &[u8])> =
                tensors.iter().map(|(boxed, data)| (boxed.clone(), &data[..])).collect();
            client.checkpoint(step, &tensors, &json!({})).unwrap();
            client
        });
        let client = saved.await.unwrap();
        let seal: ShardSeal = self
            .controller
            .wait_body("durable shard", |body| match body {
                EvidenceBody::ShardDurable { seal } if seal.step == step => Some(seal.clone()),
                _ => None,
            })
            .await;
        let manifest = Manifest::from_seals(&job(), at, parent, &[seal]).unwrap();
        self.store.commit(&manifest).unwrap();
        let keep = AgentOrder::Keep {
            job: job(),
            generation: at.generation,
            step,
            stays,
        };
        self.controller.order(&keep).await;
        client
    }

    /// Waits for the report that a checkpoint is in the object store.
    async fn mirrored(&self, step: u64) {
        let told = |journal: &support::Journal| {
            let there = journal.evidence.iter().find(|evidence| {
                let of = Entity::Job { job: job() };
                let is = matches!(&evidence.body, EvidenceBody::Copied { step: of, tier: CopyTier::Mirror, failed: None, .. }
                    if *of == Step(step));
                is && evidence.entity == of
            });
            there.map(|_| ())
        };
        self.controller.wait("word of the object store", told).await;
    }

    async fn stop(&self, generation: u64) {
        let stop = AgentOrder::Stop {
            job: job(),
            generation: Generation(generation),
            grace_ms: 0,
            keeps_images: false,
        };
        self.controller.order(&stop).await;
    }
}

/// Restores everything and compares it.
async fn expect(client: RankClient, tensors: Tensors) {
    let read = tokio::task::spawn_blocking(move || {
        let mut client = client;
        let wanted: Vec<TensorBox> = tensors.iter().map(|(boxed, _)| boxed.clone()).collect();
        let restored = client.restore(&wanted).unwrap().unwrap();
        let saved = tensors.iter().map(|(_, data)| data);
        assert!(restored.tensors.iter().eq(saved), "other bytes than were saved");
    });
    read.await.unwrap();
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// RG-2: a shard that is damaged on disk, with no copy in memory, comes from the object store.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_committed_goes_to_the_object_store_and_heals_from_there() {
    Scene::play(|scene| async move {
        let client = scene.rank(1, None).await;
        let client = scene.save(client, id(5, 1), None, state(5, 8)).await;
        scene.mirrored(5).await;
        // A file mirror is a store itself.
        let mirror = Store::at(scene.dir.path().join("mirror"));
        assert_eq!(mirror.committed_ids(&job()).unwrap(), [id(5, 1)]);
        drop(client);
        scene.stop(1).await;

        flip(
            &scene
                .store
                .shard_path(&job(), id(5, 1), rankguard_model::Rank(0))
                .unwrap(),
            2_345_678,
        );
        let client = scene.rank(2, Some(id(5, 1))).await;
        expect(client, state(5, 8)).await;
        let healed = |body: &EvidenceBody| match body {
            EvidenceBody::Gap { what, .. } if what.contains("object store file://") => Some(what.clone()),
            _ => None,
        };
        let told = scene.controller.wait_body("word of the damage", healed).await;
        assert!(told.contains("tensor-2") && told.contains("damaged"), "{told}");
        scene
    })
    .await;
}

/// Checkpoints that the job's rules do not retain are removed from the object store, too, after the commit that
/// reported it.
#[tokio::test(flavor = "multi_thread")]
async fn the_object_store_keeps_what_the_rules_leave() {
    Scene::play(|scene| async move {
        let mirror = Store::at(scene.dir.path().join("mirror"));
        let there = async |steps: &[u64]| {
            let wanted: Vec<CheckpointId> = steps.iter().map(|step| id(*step, 1)).collect();
            let same = async {
                while mirror.committed_ids(&job()).unwrap() != wanted {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            let in_time = tokio::time::timeout(LIMIT, same).await;
            assert!(in_time.is_ok(), "{:?}", mirror.committed_ids(&job()));
        };
        let mut client = scene.rank(1, None).await;
        for (step, left) in [(5, &[5][..]), (6, &[5, 6]), (7, &[5, 6, 7]), (8, &[5, 7, 8])] {
            let stays = RetainedSet {
                newest: 2,
                named: vec![(Generation(1), Step(5))],
            };
            let tensors = state(step, 8);
            client = scene
                .save_leaving(client, id(step, 1), None, tensors, Some(stays))
                .await;
            scene.mirrored(step).await;
            there(left).await;
        }
        // Without a retention decision everything is retained.
        let client = scene.save(client, id(9, 1), None, state(9, 8)).await;
        scene.mirrored(9).await;
        there(&[5, 7, 8, 9]).await;
        drop(client);
        scene
    })
    .await;
}

/// Chunks that have not changed since the last checkpoint are not written again, and a restore finds them where they
/// are.
#[tokio::test(flavor = "multi_thread")]
async fn a_save_after_a_commit_writes_what_has_changed() {
    Scene::play(|scene| async move {
        let client = scene.rank(1, None).await;
        let client = scene.save(client, id(5, 1), None, state(5, 8)).await;
        let mut next = state(5, 8);
        next[3].1[77] ^= 1;
        let client = scene.save(client, id(6, 1), Some(id(5, 1)), next.clone()).await;
        let bytes = |step| {
            fs::metadata(
                scene
                    .store
                    .shard_path(&job(), id(step, 1), rankguard_model::Rank(0))
                    .unwrap(),
            )
            .unwrap()
            .len()
        };
        assert!(
            bytes(5) >= 8_000_000 && bytes(6) <= 1_100_000,
            "{} then {}",
            bytes(5),
            bytes(6)
        );
        scene.mirrored(6).await;
        drop(client);
        scene.stop(1).await;
        let client = scene.rank(2, Some(id(6, 1))).await;
        expect(client, next).await;
        scene
    })
    .await;
}

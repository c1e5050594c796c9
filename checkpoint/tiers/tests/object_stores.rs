//! Object tier against servers of S3, GCS and Azure: `object_stores.sh` starts stand-ins on this machine and lists
//! empty buckets in RANKGUARD_TEST_OBJECT_STORES, separated by spaces. Without it nothing is tested, which is printed.

#![allow(clippy::print_stderr, reason = "what is skipped is said")]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use crate::common::{Job, SMALL, id, job};
use rankguard_checkpoint::Store;
use rankguard_checkpoint::repair::repair;
use rankguard_checkpoint::verify::verify;
use rankguard_checkpoint_tiers::cap::BandwidthCap;
use rankguard_checkpoint_tiers::object::{ObjectError, ObjectLimits, ObjectSource, ObjectTier, PushShare};
use rankguard_model::Rank;

/// Images of some 12 MiB, in parts of the least size that S3 takes.
const LARGE: Job = Job {
    world: 2,
    rows: 1024,
    columns: 24_000,
    chunk_bytes: 64 << 10,
};

const LIMITS: ObjectLimits = ObjectLimits {
    part_bytes: 5 << 20,
    ..LIMITS_OF_A_RUN
};

const LIMITS_OF_A_RUN: ObjectLimits = ObjectLimits {
    deadline: std::time::Duration::from_secs(60),
    requests: 8,
    part_bytes: 16 << 20,
};

fn store(folder: &Path, name: &str) -> Store {
    Store::open(folder.join(name)).unwrap()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_checkpoint_lives_in_object_stores_of_three_kinds() {
    let Ok(urls) = std::env::var("RANKGUARD_TEST_OBJECT_STORES") else {
        eprintln!(
            "SKIPPED: RANKGUARD_TEST_OBJECT_STORES names no object store, so none but memory and folders is tested; \
             checkpoint/tiers/tests/object_stores.sh starts some"
        );
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for url in urls.split_whitespace() {
        let started = Instant::now();
        story(&runtime, url);
        eprintln!("{url}: the whole story in {:.1?}", started.elapsed());
    }
    assert!(!urls.trim().is_empty());
}

/// Runs every operation of a checkpoint in one bucket.
fn story(runtime: &tokio::runtime::Runtime, url: &str) {
    let folder = tempfile::tempdir().unwrap();
    let from = store(folder.path(), "store");
    LARGE.save(&from, id(10, 1), None).unwrap();
    SMALL.save(&from, id(20, 1), Some(id(10, 1))).unwrap();
    let tier = ObjectTier::open(&format!("{url}/story")).unwrap().with_limits(LIMITS);
    runtime.block_on(async {
        // An empty bucket has no jobs, and a missing one gives an error with its name.
        assert_eq!(tier.jobs().await.unwrap(), []);
        let nowhere = ObjectTier::open(&url.replace("://", "://no")).unwrap();
        let error = nowhere.push(&from, &job(), id(10, 1)).await.expect_err("no bucket");
        assert!(
            !error.is_retryable() && error.to_string().contains("create the bucket or container"),
            "{error}"
        );

        // By two nodes, in parts; the manifest comes last.
        let share = |node| PushShare {
            node,
            nodes: 2,
            ranks_per_node: 1,
        };
        tier.announce(&job(), id(10, 1)).await.unwrap();
        assert!(tier.is_announced(&job(), id(10, 1)).await.unwrap());
        let sent = tier.push_share(&from, &job(), id(10, 1), share(1)).await.unwrap();
        assert!(sent > 2 * LIMITS.part_bytes, "{sent} bytes are several parts");
        assert_eq!(tier.missing(&from, &job(), id(10, 1)).await.unwrap(), [Rank(0)]);
        assert_eq!(tier.committed(&job()).await.unwrap(), []);
        let rest = tier.push(&from, &job(), id(10, 1)).await.unwrap();
        assert!(rest.kept_bytes > 2 * LIMITS.part_bytes, "{rest:?}");
        tier.withdraw(&job(), id(10, 1)).await.unwrap();
        tier.push(&from, &job(), id(20, 1)).await.unwrap();
        assert!(tier.push(&from, &job(), id(20, 1)).await.unwrap().already);
        assert_eq!(tier.committed(&job()).await.unwrap(), [id(10, 1), id(20, 1)]);
        assert!(tier.verify(&job(), None).await.unwrap().is_intact());

        // Back, byte for byte.
        let to = store(folder.path(), "back");
        for checkpoint in [id(10, 1), id(20, 1)] {
            tier.pull(&job(), checkpoint, &to).await.unwrap();
        }
        assert!(verify(&to, &job(), None).unwrap().is_intact());
    });
    two_writers(runtime, folder.path(), url);

    // A flipped bit on disk is repaired, and none is sent.
    let shard = from.shard_path(&job(), id(10, 1), Rank(1)).unwrap();
    flip(&shard, 6 << 20);
    let other = ObjectTier::open(&format!("{url}/damaged")).unwrap().with_limits(LIMITS);
    let error = runtime
        .block_on(other.push(&from, &job(), id(10, 1)))
        .expect_err("it is damaged");
    assert!(matches!(error, ObjectError::LocalDamage { .. }), "{error:?}");
    assert_eq!(runtime.block_on(other.committed(&job())).unwrap(), []);
    let source = ObjectSource::new(tier.clone(), runtime.handle().clone());
    let mended = repair(&from, &[&source], &job(), None).unwrap();
    assert!(mended.left.is_empty() && mended.mended.len() == 1, "{mended:?}");
    let checkpoint = runtime.block_on(tier.checkpoint(&job(), id(10, 1))).unwrap();
    assert!(LARGE.load(&checkpoint, &[&source]).unwrap().0 == LARGE.expected(10));

    runtime.block_on(async {
        // A fenced generation is refused; the cap holds; checkpoints outside the retention are removed.
        SMALL.save(&from, id(40, 1), None).unwrap();
        SMALL.save(&from, id(30, 2), None).unwrap();
        let capped = tier.clone().with_cap(Arc::new(BandwidthCap::new(Some(1_000))));
        let pushed = capped.push(&from, &job(), id(30, 2)).await.unwrap();
        let least = (pushed.sent_bytes as f64 - 1_500.0) / 1_000.0;
        assert!(pushed.took.as_secs_f64() >= least, "{pushed:?}");
        let stale = tier
            .push(&from, &job(), id(40, 1))
            .await
            .expect_err("generation 2 has committed");
        assert!(matches!(stale, ObjectError::Fenced { .. }), "{stale:?}");
        let removed = tier.retain(&job(), 1, &[id(20, 1)]).await.unwrap();
        assert_eq!(removed.checkpoints, [id(10, 1)]);
        let listing = tier.listing(&job()).await.unwrap();
        let left: Vec<_> = listing.manifests.iter().map(|(id, _)| *id).collect();
        assert_eq!((left, listing.torn), (vec![id(20, 1), id(30, 2)], Vec::new()));
        assert!(tier.verify(&job(), None).await.unwrap().is_intact());
    });
}

/// Two clusters with the same job name: put-if-absent lets one manifest win, and no load sees a mix.
fn two_writers(runtime: &tokio::runtime::Runtime, folder: &Path, url: &str) {
    let stores = [4, 6].map(|rows| {
        let from = store(folder, &format!("writer-{rows}"));
        Job { rows, ..SMALL }.save(&from, id(10, 1), None).unwrap();
        from
    });
    for round in 0..8 {
        let tier = ObjectTier::open(&format!("{url}/writers-{round}")).unwrap();
        let this = job();
        let checkpoint = id(10, 1);
        runtime.block_on(async {
            let (one, other) = tokio::join!(
                tier.push(&stores[0], &this, checkpoint),
                tier.push(&stores[1], &this, checkpoint)
            );
            assert!(one.is_err() || other.is_err(), "{one:?} {other:?}");
            for lost in [one.err(), other.err()].into_iter().flatten() {
                assert!(matches!(lost, ObjectError::Conflict { .. }), "{lost:?}");
            }
            assert!(
                tier.verify(&this, None).await.unwrap().is_intact(),
                "never a mix of two"
            );
        });
    }
}

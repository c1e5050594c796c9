//! Restores from object stores: few requests, damage found, no wait for an unresponsive store.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::{SMALL, id, job};
use crate::remote::{LARGE, LIMITS, in_memory, store};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use rankguard_checkpoint::{Checkpoint, Store};
use rankguard_checkpoint_tiers::object::{ObjectError, ObjectLimits, ObjectSource};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_reads_neighbours_in_one_request_and_finds_damage() {
    let (folder, from) = store();
    LARGE.save(&from, id(10, 1), None).unwrap();
    let (tier, counts, memory) = in_memory();
    tier.push(&from, &job(), id(10, 1)).await.unwrap();
    let checkpoint: Checkpoint = tier.checkpoint(&job(), id(10, 1)).await.unwrap();
    let tier = tier.with_limits(ObjectLimits {
        part_bytes: 1 << 20,
        ..LIMITS
    });
    counts.reads.store(0, Ordering::SeqCst);
    counts.read_bytes.store(0, Ordering::SeqCst);
    let runtime = tokio::runtime::Handle::current();
    let from_tier = tier.clone();
    let shared = checkpoint.clone();
    let (bytes, report) = tokio::task::spawn_blocking(move || {
        let source = ObjectSource::new(from_tier, runtime);
        LARGE.load(&shared, &[&source]).unwrap()
    })
    .await
    .unwrap();
    assert!(bytes == LARGE.expected(10));
    let reads = counts.reads.load(Ordering::SeqCst);
    let read = counts.read_bytes.load(Ordering::SeqCst);
    assert!(
        reads * 8 <= report.chunks,
        "{reads} requests for {} chunks",
        report.chunks
    );
    assert!(
        read as f64 <= bytes.len() as f64 * 1.02,
        "{read} bytes read of {} needed",
        bytes.len()
    );

    // A damaged object, and the disk beside it.
    let place = Path::from("base/demo/000000000010-g1/rank-00000.shard");
    let mut object = memory.get(&place).await.unwrap().bytes().await.unwrap().to_vec();
    object[70_000] ^= 4;
    memory.put(&place, object.into()).await.unwrap();
    let runtime = tokio::runtime::Handle::current();
    let (bytes, report) = tokio::task::spawn_blocking(move || {
        let source = ObjectSource::new(tier, runtime);
        let alone = LARGE.load(&checkpoint, &[&source]).unwrap_err().to_string();
        assert!(
            alone.contains("tensor weight") && alone.contains("mem://base"),
            "{alone}"
        );
        let disk = Store::at(folder.path().join("store"));
        LARGE.load(&checkpoint, &[&source, &disk]).unwrap()
    })
    .await
    .unwrap();
    assert!(bytes == LARGE.expected(10));
    assert_eq!(report.repairs.len(), 1, "{:?}", report.repairs);
}

/// The client has retried for a while by then: each further request would take that time again. Concurrent requests
/// fail together with the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rg_9_a_restore_asks_a_store_that_fails_no_second_time() {
    let (folder, from) = store();
    LARGE.save(&from, id(10, 1), None).unwrap();
    let (tier, counts, _) = in_memory();
    tier.push(&from, &job(), id(10, 1)).await.unwrap();
    let checkpoint: Checkpoint = tier.checkpoint(&job(), id(10, 1)).await.unwrap();
    counts.fail_reads.store(1, Ordering::SeqCst);
    let runtime = tokio::runtime::Handle::current();
    let asked = Arc::clone(&counts);
    let bytes = tokio::task::spawn_blocking(move || {
        let source = ObjectSource::new(tier, runtime);
        LARGE.load(&checkpoint, &[&source]).unwrap_err();
        asked.asked.store(0, Ordering::SeqCst);
        let disk = Store::at(folder.path().join("store"));
        LARGE.load(&checkpoint, &[&source, &disk]).unwrap().0
    })
    .await
    .unwrap();
    assert!(bytes == LARGE.expected(10));
    assert_eq!(counts.asked.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn rg_9_a_store_that_hangs_costs_one_deadline_and_says_who() {
    let (_folder, from) = store();
    SMALL.save(&from, id(10, 1), None).unwrap();
    let (tier, counts, _) = in_memory();
    counts.hang.store(1, Ordering::SeqCst);
    let error = tier.push(&from, &job(), id(10, 1)).await.expect_err("it hangs");
    assert!(matches!(error, ObjectError::Deadline { .. }) && error.is_retryable());
    assert!(
        error
            .to_string()
            .contains("mem://base/demo/000000000010-g1/MANIFEST: no answer within 5s"),
        "{error}"
    );
}

//! Verification of an object store in place, and repair of a store on disk from it.

use std::sync::Arc;

use crate::common::{SMALL, id, job};
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use rankguard_checkpoint::Store;
use rankguard_checkpoint::repair::repair;
use rankguard_checkpoint::verify::verify;
use rankguard_checkpoint_tiers::object::{ObjectSource, ObjectTier};
use rankguard_model::{Rank, Step};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rg_2_damage_in_an_object_store_is_named_and_a_good_copy_there_mends_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let from = Store::open(folder.path().join("store")).unwrap();
    for step in [10, 20, 30] {
        SMALL.save(&from, id(step, 1), None).unwrap();
    }
    let memory = Arc::new(InMemory::new());
    let tier = ObjectTier::over(memory.clone(), Path::from("base"), "mem://base");
    for step in [10, 20, 30] {
        tier.push(&from, &job(), id(step, 1)).await.unwrap();
    }
    let report = tier.verify(&job(), None).await.unwrap();
    assert!(report.is_intact() && report.checkpoints.len() == 3, "{report:?}");

    let place = |step: u64, file: &str| Path::from(format!("base/demo/{step:012}-g1/{file}"));
    let shard = place(10, "rank-00001.shard");
    let mut bytes = memory.get(&shard).await.unwrap().bytes().await.unwrap().to_vec();
    bytes[5] ^= 4;
    memory.put(&shard, bytes.into()).await.unwrap();
    memory.delete(&place(20, "rank-00000.index")).await.unwrap();
    memory.delete(&place(30, "MANIFEST")).await.unwrap();
    let report = tier.verify(&job(), None).await.unwrap();
    let listing = tier.listing(&job()).await.unwrap();
    assert_eq!(
        (listing.manifests.len(), listing.torn, &report.torn),
        (2, vec![id(30, 1)], &vec![id(30, 1)])
    );
    let [flipped, missing] = &report.problems[..] else {
        panic!("{:?}", report.problems)
    };
    assert!(
        flipped.rank == Some(Rank(1)) && flipped.chunk == Some(0) && flipped.tensors.len() == 1,
        "{flipped:?}"
    );
    assert!(
        flipped.file.ends_with("000000000010-g1/rank-00001.shard"),
        "{flipped:?}"
    );
    assert!(
        missing.rank == Some(Rank(0)) && missing.what.contains("missing"),
        "{missing:?}"
    );
    assert!(tier.verify(&job(), Some(Step(7))).await.unwrap().checkpoints.is_empty());

    let damaged = from.shard_path(&job(), id(10, 1), Rank(0)).unwrap();
    let runtime = tokio::runtime::Handle::current();
    let mut bytes = std::fs::read(&damaged).unwrap();
    bytes[9] ^= 1;
    std::fs::write(&damaged, bytes).unwrap();
    let mended = tokio::task::spawn_blocking(move || {
        let source = ObjectSource::new(tier, runtime);
        let mended = repair(&from, &[&source], &job(), None).unwrap();
        assert!(verify(&from, &job(), None).unwrap().is_intact());
        mended
    });
    let mended = mended.await.unwrap();
    assert!(mended.left.is_empty() && mended.mended.len() == 1, "{mended:?}");
    assert_eq!(mended.mended[0].from, "object store mem://base");
}

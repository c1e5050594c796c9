//! Pushes to object stores: no overwrites, no partial objects, no repeated sends, no wrong data.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::{self, Job, SMALL, id, job};
use crate::remote::{LARGE, LIMITS, flip, in_folder, in_memory, same_files, store};
use futures_util::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use rankguard_checkpoint::Store;
use rankguard_checkpoint::verify::verify;
use rankguard_checkpoint_tiers::cap::BandwidthCap;
use rankguard_checkpoint_tiers::object::{ObjectError, ObjectLimits, ObjectTier, PushShare};

#[tokio::test]
async fn what_is_pushed_comes_back_byte_for_byte_from_a_folder_and_from_memory() {
    let (folder, from) = store();
    LARGE.save(&from, id(10, 1), None).unwrap();
    SMALL.save(&from, id(20, 1), Some(id(10, 1))).unwrap();
    let mirror = folder.path().join("mirror");
    for tier in [in_folder(&mirror), in_memory().0] {
        assert_eq!(tier.committed(&job()).await.unwrap(), []);
        let pushed = tier.push(&from, &job(), id(10, 1)).await.unwrap();
        assert!(
            !pushed.already && pushed.kept_bytes == 0 && pushed.sent_bytes > 180_000,
            "{pushed:?}"
        );
        tier.push(&from, &job(), id(20, 1)).await.unwrap();
        assert_eq!(tier.jobs().await.unwrap(), [job()]);
        assert_eq!(tier.committed(&job()).await.unwrap(), [id(10, 1), id(20, 1)]);
        assert!(tier.push(&from, &job(), id(10, 1)).await.unwrap().already);

        let (_held, to) = store();
        for checkpoint in [id(10, 1), id(20, 1)] {
            let pulled = tier.pull(&job(), checkpoint, &to).await.unwrap();
            assert!(!pulled.already && pulled.kept_bytes == 0, "{pulled:?}");
            same_files(&from, &to, checkpoint, 2);
        }
        assert!(verify(&to, &job(), None).unwrap().is_intact());
        assert!(tier.pull(&job(), id(10, 1), &to).await.unwrap().already);
    }
    let mirror = Store::at(mirror);
    let report = verify(&mirror, &job(), None).unwrap();
    assert!(
        report.is_intact() && report.checkpoints.len() == 2,
        "a mirror in a folder is a store"
    );
}

/// The object store fails at every write in turn: no checkpoint exists then, and the next push completes it.
#[tokio::test]
async fn rg_1_a_push_that_dies_at_any_write_leaves_no_checkpoint_and_the_next_goes_on() {
    let (_folder, from) = store();
    LARGE.save(&from, id(10, 1), None).unwrap();
    let (tier, counts, _) = in_memory();
    tier.push(&from, &job(), id(10, 1)).await.unwrap();
    let writes = counts.writes.load(Ordering::SeqCst);
    assert!(writes > 20, "{writes} writes");
    let mut kept = 0;
    let mut died = 0;
    for nth in 1..=writes {
        let (tier, counts, _) = in_memory();
        counts.fail_from(nth);
        let error = tier.push(&from, &job(), id(10, 1)).await.expect_err("a write fails");
        assert!(
            error.is_retryable() && error.to_string().contains("mem://base/demo"),
            "{error}"
        );
        died += 1;
        let open = counts.open_uploads.load(Ordering::SeqCst);
        assert_eq!(open, 0, "nobody pays for parts after write {nth}");
        assert_eq!(tier.committed(&job()).await.unwrap(), [], "after write {nth}");
        counts.fail_from(0);
        let pushed = tier.push(&from, &job(), id(10, 1)).await.unwrap();
        kept += pushed.kept_bytes;
        assert_eq!(tier.committed(&job()).await.unwrap(), [id(10, 1)], "after write {nth}");
        let (_held, to) = store();
        tier.pull(&job(), id(10, 1), &to).await.unwrap();
        same_files(&from, &to, id(10, 1), 2);
    }
    assert_eq!(died, writes);
    assert!(kept > 0, "what was there is not sent again");
}

#[tokio::test]
async fn nothing_that_is_there_is_overwritten() {
    let (folder, from) = store();
    LARGE.save(&from, id(10, 1), None).unwrap();
    let shard = "base/demo/000000000010-g1/rank-00001.shard";
    let index = "base/demo/000000000010-g1/rank-00001.index";
    let manifest = "base/demo/000000000010-g1/MANIFEST";
    let length = from
        .shard_path(&job(), id(10, 1), rankguard_model::Rank(1))
        .unwrap()
        .metadata()
        .unwrap()
        .len();
    for (place, bytes) in [(shard, length as usize), (shard, 7), (index, 100), (manifest, 100)] {
        let mirror = tempfile::tempdir_in(folder.path()).unwrap();
        let on_disk: Arc<dyn ObjectStore> =
            Arc::new(object_store::local::LocalFileSystem::new_with_prefix(mirror.path()).unwrap());
        for objects in [Arc::new(InMemory::new()) as Arc<dyn ObjectStore>, on_disk] {
            let foreign = vec![7u8; bytes];
            objects.put(&Path::from(place), foreign.clone().into()).await.unwrap();
            let tier = ObjectTier::over(objects.clone(), Path::from("base"), "x://base").with_limits(LIMITS);
            let error = tier
                .push(&from, &job(), id(10, 1))
                .await
                .expect_err("something is there");
            assert!(
                matches!(&error, ObjectError::Conflict { url } if url.ends_with(&place[4..])),
                "{error:?}"
            );
            let there = objects.get(&Path::from(place)).await.unwrap().bytes().await.unwrap();
            assert_eq!(there.as_ref(), foreign, "{place} was touched");
            if place != manifest {
                assert_eq!(tier.committed(&job()).await.unwrap(), []);
            }
        }
    }
}

/// Two pushers of two generations' manifests under one name: put-if-absent lets exactly one win.
#[tokio::test]
async fn of_two_at_once_one_manifest_wins_and_stays() {
    let (folder, _) = store();
    let on_disk: Arc<dyn ObjectStore> =
        Arc::new(object_store::local::LocalFileSystem::new_with_prefix(folder.path()).unwrap());
    for objects in [Arc::new(InMemory::new()) as Arc<dyn ObjectStore>, on_disk] {
        let mut stores = Vec::new();
        for rank_rows in [4, 6] {
            let (held, from) = store();
            Job {
                rows: rank_rows,
                ..SMALL
            }
            .save(&from, id(10, 1), None)
            .unwrap();
            stores.push((held, from));
        }
        let tier = ObjectTier::over(objects, Path::from("base"), "x://base");
        let this_job = job();
        let checkpoint = id(10, 1);
        let (one, other) = tokio::join!(
            tier.push(&stores[0].1, &this_job, checkpoint),
            tier.push(&stores[1].1, &this_job, checkpoint)
        );
        assert!(!(one.is_ok() && other.is_ok()), "{one:?} {other:?}");
        for id in tier.committed(&this_job).await.unwrap() {
            let (_held, to) = store();
            tier.pull(&this_job, id, &to).await.unwrap();
            assert!(verify(&to, &this_job, None).unwrap().is_intact(), "never a mix of two");
        }
        for lost in [one.err(), other.err()].into_iter().flatten() {
            assert!(matches!(lost, ObjectError::Conflict { .. }), "{lost:?}");
        }
    }
}

#[tokio::test]
async fn rg_3_a_generation_that_was_overtaken_there_is_refused() {
    let (_folder, from) = store();
    SMALL.save(&from, id(10, 1), None).unwrap();
    let (tier, counts, _) = in_memory();
    let (_other, newer) = store();
    SMALL.save(&newer, id(5, 2), None).unwrap();
    tier.push(&newer, &job(), id(5, 2)).await.unwrap();
    let before = counts.writes.load(Ordering::SeqCst);
    let error = tier
        .push(&from, &job(), id(10, 1))
        .await
        .expect_err("generation 2 has committed");
    assert!(
        matches!(error, ObjectError::Fenced { newer, .. } if newer == id(5, 2)),
        "{error:?}"
    );
    assert_eq!(counts.writes.load(Ordering::SeqCst), before, "nothing was sent");
}

#[tokio::test]
async fn rg_2_damage_is_not_copied_in_either_direction() {
    for at in [0, 5_000, 40_000] {
        let (folder, from) = store();
        LARGE.save(&from, id(10, 1), None).unwrap();
        let mirror = folder.path().join("mirror");
        let tier = in_folder(&mirror);
        let shard = from.shard_path(&job(), id(10, 1), rankguard_model::Rank(1)).unwrap();
        flip(&shard, at);
        let error = tier
            .push(&from, &job(), id(10, 1))
            .await
            .expect_err("the shard is damaged");
        assert!(
            matches!(&error, ObjectError::LocalDamage { path, .. } if *path == shard),
            "{error:?}"
        );
        assert!(!error.is_retryable());
        assert_eq!(tier.committed(&job()).await.unwrap(), []);
        let left = common::files_below(&mirror)
            .into_iter()
            .filter(|path| path.contains("rank-00001"));
        assert_eq!(
            left.collect::<Vec<_>>(),
            Vec::<String>::new(),
            "nothing is left of the upload"
        );

        flip(&shard, at);
        tier.push(&from, &job(), id(10, 1)).await.unwrap();
        let mirrored = Store::at(&mirror)
            .shard_path(&job(), id(10, 1), rankguard_model::Rank(1))
            .unwrap();
        flip(&mirrored, at);
        let (_held, to) = store();
        let error = tier
            .pull(&job(), id(10, 1), &to)
            .await
            .expect_err("the object is damaged");
        let ObjectError::Damaged { url, at: found, .. } = &error else {
            panic!("{error:?}")
        };
        assert!(
            url.ends_with("rank-00001.shard") && *found <= at as u64 && at as u64 - found < 1024,
            "{error}"
        );
        assert_eq!(to.committed_ids(&job()).unwrap(), []);
        flip(&mirrored, at);
        let pulled = tier.pull(&job(), id(10, 1), &to).await.unwrap();
        assert!(pulled.kept_bytes > 0, "the good shard was there already");
        same_files(&from, &to, id(10, 1), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn the_cap_holds_for_a_whole_push() {
    let (_folder, from) = store();
    LARGE.save(&from, id(10, 1), None).unwrap();
    let (tier, ..) = in_memory();
    // Whole shards: a thread that reads parts would keep the paused clock from advancing.
    let limits = ObjectLimits {
        part_bytes: 1 << 20,
        ..LIMITS
    };
    let tier = tier
        .with_limits(limits)
        .with_cap(Arc::new(BandwidthCap::new(Some(100_000))));
    let pushed = tier.push(&from, &job(), id(10, 1)).await.unwrap();
    let took = pushed.took.as_secs_f64();
    let least = (pushed.sent_bytes as f64 - 110_000.0) / 100_000.0;
    assert!(
        took >= least && took < least + 2.0,
        "{} bytes in {took} s of the clock",
        pushed.sent_bytes
    );
}

#[test]
fn places_that_are_none_are_refused_and_secrets_are_not_repeated() {
    for (url, said) in [
        ("no url", "write file:///folder"),
        ("ftp://host/x", "ftp://host/x"),
        ("memory:///x", "file, s3, gs or az"),
        ("http://host/x", "file, s3, gs or az"),
        ("s3://key:hidden@bucket/x", "environment"),
        ("s3://bucket/x?secret=hidden", "environment"),
    ] {
        let error = ObjectTier::open(url).expect_err(url).to_string();
        assert!(error.contains(said), "{error}");
        assert!(!error.contains("hidden"), "{error}");
    }
    assert_eq!(
        ObjectTier::open("s3://bucket/prefix").unwrap().url(),
        "s3://bucket/prefix"
    );
}

/// The second of two nodes dies after each of its writes in turn: the first sends the rest, and nothing that exists.
#[tokio::test]
async fn the_first_node_ends_what_another_has_left_at_any_write() {
    let (_folder, from) = store();
    LARGE.save(&from, id(10, 1), None).unwrap();
    let share = |node| PushShare {
        node,
        nodes: 2,
        ranks_per_node: 1,
    };
    let (whole, counts, _) = in_memory();
    let job = job();
    let all = id(10, 1);
    let own = whole.push_share(&from, &job, all, share(1)).await.unwrap();
    let writes = counts.writes.load(Ordering::SeqCst);
    assert!(own > 0 && writes > 5, "{own} bytes in {writes} writes");
    assert_eq!(
        whole.missing(&from, &job, all).await.unwrap(),
        [rankguard_model::Rank(0)]
    );
    let pushed = whole.push(&from, &job, all).await.unwrap();
    assert!(
        pushed.kept_bytes >= own && pushed.sent_bytes < 2 * own,
        "{pushed:?} after {own}"
    );
    assert_eq!(
        whole.push_share(&from, &job, all, share(1)).await.unwrap(),
        0,
        "it exists"
    );
    for nth in 1..=writes {
        let (tier, counts, _) = in_memory();
        counts.fail_from(nth);
        tier.push_share(&from, &job, all, share(1))
            .await
            .expect_err("a write fails");
        counts.fail_from(0);
        tier.push_share(&from, &job, all, share(0)).await.unwrap();
        assert_eq!(
            tier.missing(&from, &job, all).await.unwrap(),
            [rankguard_model::Rank(1)],
            "after write {nth}"
        );
        assert_eq!(tier.committed(&job).await.unwrap(), [], "no share is a checkpoint");
        tier.push(&from, &job, all).await.unwrap();
        assert_eq!(tier.committed(&job).await.unwrap(), [all], "after write {nth}");
        let (_held, to) = store();
        tier.pull(&job, all, &to).await.unwrap();
        same_files(&from, &to, all, 2);
    }
}

#[tokio::test]
async fn what_the_first_node_takes_is_announced_and_nothing_is_left_of_that() {
    let (_folder, from) = store();
    SMALL.save(&from, id(10, 1), None).unwrap();
    SMALL.save(&from, id(20, 1), None).unwrap();
    let (tier, _, memory) = in_memory();
    assert!(!tier.is_announced(&job(), id(10, 1)).await.unwrap());
    tier.announce(&job(), id(10, 1)).await.unwrap();
    tier.announce(&job(), id(10, 1)).await.unwrap();
    assert!(tier.is_announced(&job(), id(10, 1)).await.unwrap());
    assert_eq!(tier.committed(&job()).await.unwrap(), [], "a hint is no checkpoint");
    for step in [10, 20] {
        tier.announce(&job(), id(step, 1)).await.unwrap();
        tier.push(&from, &job(), id(step, 1)).await.unwrap();
    }
    tier.withdraw(&job(), id(20, 1)).await.unwrap();
    assert!(!tier.is_announced(&job(), id(20, 1)).await.unwrap());
    tier.retain(&job(), 1, &[]).await.unwrap();
    let left: Vec<_> = memory.list(None).try_collect().await.unwrap();
    let folders = left.iter().map(|object| object.location.parts().nth(2).unwrap());
    assert!(
        folders.clone().count() == 5 && folders.clone().all(|folder| folder.as_ref() == "000000000020-g1"),
        "{left:?}"
    );
}

//! Retention in object stores.

use crate::common::{SMALL, id, job};
use crate::remote::{LARGE, in_folder, in_memory, save_delta, store};
use rankguard_checkpoint::verify::verify;

#[tokio::test]
async fn a_delta_brings_what_it_borrows_and_retention_keeps_it() {
    let (_folder, from) = store();
    LARGE.save(&from, id(10, 1), None).unwrap();
    save_delta(&from, &LARGE, id(10, 1), id(20, 1));
    save_delta(&from, &LARGE, id(10, 1), id(30, 1));
    from.remove(&job(), id(10, 1)).unwrap();
    let (tier, counts, _) = in_memory();
    tier.push(&from, &job(), id(20, 1)).await.unwrap();
    let third = tier.push(&from, &job(), id(30, 1)).await.unwrap();
    assert!(third.kept_bytes > 150_000 && third.sent_bytes < 30_000, "{third:?}");

    let (_held, to) = store();
    tier.pull(&job(), id(30, 1), &to).await.unwrap();
    assert!(to.is_borrowed_from(&job(), id(10, 1)).unwrap());
    assert!(verify(&to, &job(), None).unwrap().is_intact());
    rankguard_checkpoint::retention::collect(&to, &job(), 1, &[]).unwrap();
    assert!(
        verify(&to, &job(), None).unwrap().is_intact(),
        "retention keeps what is borrowed"
    );

    let removed = tier.retain(&job(), 1, &[]).await.unwrap();
    assert_eq!((removed.checkpoints, removed.borrowed), (vec![id(20, 1)], 2));
    let order = counts.removed.lock().unwrap().clone();
    assert!(order[0].ends_with("000000000010-g1/MANIFEST") || order[0].ends_with("000000000020-g1/MANIFEST"));
    let of_second: Vec<&String> = order.iter().filter(|path| path.contains("000000000020-g1")).collect();
    assert!(
        of_second[0].ends_with("MANIFEST") && of_second.len() == 5,
        "{of_second:?}"
    );
    let (_held, again) = store();
    tier.pull(&job(), id(30, 1), &again).await.unwrap();
    assert!(verify(&again, &job(), None).unwrap().is_intact());
}

#[tokio::test]
async fn retention_keeps_the_newest_and_the_pinned_and_clears_uploads_that_never_ended() {
    let (_folder, from) = store();
    for step in 1..=5 {
        SMALL.save(&from, id(step, 1), None).unwrap();
    }
    let (tier, counts, _) = in_memory();
    for step in [1, 2, 4, 5] {
        tier.push(&from, &job(), id(step, 1)).await.unwrap();
    }
    counts.fail_from(3);
    tier.push(&from, &job(), id(3, 1)).await.expect_err("dies half way");
    counts.fail_from(0);
    let removed = tier.retain(&job(), 2, &[id(1, 1)]).await.unwrap();
    assert_eq!((removed.checkpoints, removed.torn), (vec![id(2, 1)], vec![id(3, 1)]));
    assert_eq!(tier.committed(&job()).await.unwrap(), [id(1, 1), id(4, 1), id(5, 1)]);
    assert_eq!(tier.retain(&job(), 9, &[]).await.unwrap().checkpoints, []);
}

/// A mirror on a file system does not fill with the folders of removed checkpoints.
#[tokio::test]
async fn the_folder_of_a_checkpoint_goes_with_it() {
    let (folder, from) = store();
    for step in [10, 20] {
        SMALL.save(&from, id(step, 1), None).unwrap();
    }
    for place in [folder.path().to_owned(), folder.path().join("not there/yet")] {
        let tier = in_folder(&place);
        for step in [10, 20] {
            tier.push(&from, &job(), id(step, 1)).await.unwrap();
        }
        assert_eq!(tier.retain(&job(), 1, &[]).await.unwrap().checkpoints, [id(10, 1)]);
        let left = std::fs::read_dir(place.join("demo"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["000000000020-g1"], "{}", place.display());
    }
}

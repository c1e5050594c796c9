//! Several concurrent readers and writers of one mirror and one store: slow, failing, cancelled and killed
//! ones.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use object_store::memory::InMemory;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use object_store::{MultipartId, PutPayload, PutResult};
use rankguard_checkpoint::verify::verify;
use rankguard_checkpoint_tiers::object::{ObjectTier, unfinished_uploads};

use crate::common::{files_below, id, job};
use crate::remote::{self, LARGE, LIMITS, in_memory, same_files, store};

fn temps(folder: &FilePath) -> Vec<String> {
    let files = files_below(folder).into_iter();
    files
        .filter(|path| path.contains(".tmp-") || path.contains(".uploads"))
        .collect()
}

/// Runs work on a separate thread.
fn in_thread<T: Send + 'static, F: Future<Output = T>>(work: impl FnOnce() -> F + Send + 'static) -> JoinHandle<T> {
    std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(work())
    })
}

/// Several pulls of one checkpoint into one folder, as by ranks of several agents; some are cancelled midway.
#[tokio::test]
async fn rg_2_pulls_side_by_side_end_well_whoever_is_given_up() {
    let (_folder, from) = store();
    LARGE.save(&from, id(10, 1), None).unwrap();
    let (tier, _counts, memory) = in_memory();
    tier.push(&from, &job(), id(10, 1)).await.unwrap();
    let slow = ThrottleConfig {
        wait_get_per_call: Duration::from_millis(4),
        ..ThrottleConfig::default()
    };
    for round in 0..6_u64 {
        let (_to_folder, to) = store();
        let slow = Arc::new(ThrottledStore::new(memory.clone(), slow));
        let tier = ObjectTier::over(slow, Path::from("base"), "mem://base").with_limits(LIMITS);
        let pulls = (0..6_u64).map(|nth| {
            let tier = tier.clone();
            let to = to.clone();
            // The first two are cancelled, usually including the one that fills the folder.
            let limit = if nth < 2 {
                Duration::from_millis(5 + 7 * round)
            } else {
                Duration::from_secs(60)
            };
            if nth == 2 {
                std::thread::sleep(Duration::from_millis(2));
            }
            in_thread(move || async move { tokio::time::timeout(limit, tier.pull(&job(), id(10, 1), &to)).await })
        });
        let pulls: Vec<_> = pulls.collect();
        let mut read = 0;
        for (nth, pull) in pulls.into_iter().enumerate() {
            match pull.join().unwrap() {
                Ok(pulled) => read += u32::from(!pulled.unwrap().already),
                Err(_) => assert!(nth < 2, "it took too long"),
            }
        }
        assert_eq!(read, 1, "one of them fills the folder");
        same_files(&from, &to, id(10, 1), LARGE.world);
        assert_eq!(temps(to.root()), Vec::<String>::new());
    }
}

/// A mirror that fails midway: every pull reports it, nothing counts as damage, and the next one succeeds.
#[tokio::test]
async fn rg_2_a_mirror_that_fails_under_several_pulls_is_unavailable_and_not_damaged() {
    let (_folder, from) = store();
    LARGE.save(&from, id(10, 1), None).unwrap();
    let (tier, counts, _) = in_memory();
    tier.push(&from, &job(), id(10, 1)).await.unwrap();
    let (_to_folder, to) = store();
    counts.fail_reads.store(1, Ordering::SeqCst);
    let pulls = (0..4).map(|_| {
        let tier = tier.clone();
        let to = to.clone();
        in_thread(move || async move { tier.pull(&job(), id(10, 1), &to).await })
    });
    for pull in pulls.collect::<Vec<_>>() {
        let problem = pull.join().unwrap().expect_err("no read succeeds");
        assert!(problem.failure().may_pass(), "{problem}");
    }
    counts.fail_reads.store(0, Ordering::SeqCst);
    tier.pull(&job(), id(10, 1), &to).await.unwrap();
    assert!(verify(&to, &job(), None).unwrap().is_intact());
    assert_eq!(temps(to.root()), Vec::<String>::new());
}

/// Concurrent pushes and pulls of one mirror, each with a separate store.
#[tokio::test]
async fn rg_2_readers_and_writers_of_one_mirror_see_whole_checkpoints_or_none() {
    let (folder, from) = store();
    let steps = [10, 20, 30];
    for step in steps {
        LARGE.save(&from, id(step, 1), None).unwrap();
    }
    let mirror = folder.path().join("mirror");
    let tier = remote::in_folder(&mirror);
    let mut writers = Vec::new();
    for step in steps.into_iter().chain(steps) {
        let tier = tier.clone();
        let from = from.clone();
        writers.push(in_thread(
            move || async move { tier.push(&from, &job(), id(step, 1)).await },
        ));
    }
    let mut readers = Vec::new();
    for step in steps {
        let tier = tier.clone();
        readers.push(in_thread(move || async move {
            let (_held, to) = store();
            loop {
                match tier.pull(&job(), id(step, 1), &to).await {
                    Ok(_) => return verify(&to, &job(), None).unwrap().is_intact(),
                    Err(problem) => {
                        assert!(
                            problem.failure() == rankguard_checkpoint::ReadFailure::Missing,
                            "{problem}"
                        );
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                }
            }
        }));
    }
    for writer in writers {
        writer.join().unwrap().unwrap();
    }
    for reader in readers {
        assert!(reader.join().unwrap());
    }
    assert!(tier.verify(&job(), None).await.unwrap().is_intact());
}

/// Uploads with ids, of which parts from the third on hang while the flag is set.
#[derive(Debug, Default)]
struct Uploads {
    memory: InMemory,
    hangs: AtomicU64,
    parts: AtomicU64,
    aborted: AtomicU64,
}

#[async_trait::async_trait]
impl MultipartStore for Uploads {
    async fn create_multipart(&self, path: &Path) -> object_store::Result<MultipartId> {
        self.memory.create_multipart(path).await
    }

    async fn put_part(
        &self,
        path: &Path,
        id: &MultipartId,
        nth: usize,
        data: PutPayload,
    ) -> object_store::Result<PartId> {
        if self.parts.fetch_add(1, Ordering::SeqCst) >= 2 && self.hangs.load(Ordering::SeqCst) == 1 {
            std::future::pending::<()>().await;
        }
        self.memory.put_part(path, id, nth, data).await
    }

    async fn complete_multipart(
        &self,
        path: &Path,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> object_store::Result<PutResult> {
        self.memory.complete_multipart(path, id, parts).await
    }

    async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> object_store::Result<()> {
        self.aborted.fetch_add(1, Ordering::SeqCst);
        self.memory.abort_multipart(path, id).await
    }
}

async fn until_part(uploads: &Uploads, nth: u64) {
    while uploads.parts.load(Ordering::SeqCst) < nth {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A push ends amid its parts, as with `kill -9`: the next push aborts the remaining upload.
#[tokio::test]
async fn an_upload_that_a_killed_push_has_left_is_aborted_by_the_next() {
    let (_folder, from) = store();
    LARGE.save(&from, id(10, 1), None).unwrap();
    let uploads = Arc::new(Uploads::default());
    uploads.hangs.store(1, Ordering::SeqCst);
    let memory = Arc::new(uploads.memory.clone());
    let tier = ObjectTier::over(memory, Path::from("base"), "mem://base").with_limits(LIMITS);
    let tier = tier.with_multipart(uploads.clone());
    let push = {
        let tier = tier.clone();
        let from = from.clone();
        let uploads = uploads.clone();
        in_thread(move || async move {
            let this_job = job();
            let hung = async {
                until_part(&uploads, 3).await;
                unfinished_uploads(&from, &this_job).unwrap()
            };
            // The push is dropped when its third part hangs.
            tokio::select! {
                biased;
                unfinished = hung => unfinished,
                pushed = tier.push(&from, &this_job, id(10, 1)) => panic!("{pushed:?}"),
            }
        })
    };
    assert_eq!(push.join().unwrap(), [], "its owner is alive");
    let left = unfinished_uploads(&from, &job()).unwrap();
    assert_eq!((left.len(), left[0].url.as_str()), (1, "mem://base"), "{left:?}");
    let elsewhere = ObjectTier::over(Arc::new(InMemory::new()), Path::from("base"), "mem://other");
    assert_eq!(elsewhere.end_unfinished_uploads(&from, &job()).await.unwrap(), 0);

    uploads.hangs.store(0, Ordering::SeqCst);
    tier.push(&from, &job(), id(10, 1)).await.unwrap();
    assert_eq!(uploads.aborted.load(Ordering::SeqCst), 1);
    assert_eq!(unfinished_uploads(&from, &job()).unwrap(), []);
    assert_eq!(temps(from.root()), Vec::<String>::new());
    let (_held, to) = store();
    tier.pull(&job(), id(10, 1), &to).await.unwrap();
    same_files(&from, &to, id(10, 1), LARGE.world);
}

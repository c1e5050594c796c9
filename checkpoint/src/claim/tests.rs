use std::fs;

use rankguard_model::ResumePlace;

use super::*;
use crate::format::ShardIndex;

fn job(name: &str) -> JobId {
    JobId::from(name)
}

fn id(step: u64, generation: u64) -> CheckpointId {
    CheckpointId {
        step: Step(step),
        generation: Generation(generation),
    }
}

fn request(name: &str, claim: char, source: Option<&str>) -> ClaimRequest {
    let source = source.map(|text| {
        let (place, step) = match text.rsplit_once(':') {
            Some((place, step)) => (place, Some(Step(step.parse().expect("a step")))),
            None => (text, None),
        };
        let place = if place.contains('/') {
            ResumePlace::Path(place.to_owned())
        } else {
            ResumePlace::Job(job(place))
        };
        ResumeSource { place, step }
    });
    ClaimRequest {
        job: job(name),
        source,
        claim: RunId::from(claim.to_string().repeat(32)),
        floor: Generation(0),
        at: Timestamp(1),
    }
}

fn claim(store: &Store, request: &ClaimRequest) -> Result<StoreClaim, ClaimError> {
    claim_folder(store, request, &|| false).map(|claimed| claimed.claim)
}

/// Commits an image without tensors.
fn commit(store: &Store, name: &str, id: CheckpointId, run: Option<&RunId>) -> Result<(), StoreError> {
    let index = ShardIndex::new(&job(name), id);
    let written = store.write_shard(&index, &(&[] as &[u8]))?;
    let mut manifest = Manifest::from_seals(&job(name), id, None, &[written.seal]).expect("whole");
    manifest.run = run.cloned();
    store.commit(&manifest).map(drop)
}

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().expect("a folder");
    let store = Store::open(dir.path().join("store")).expect("a store");
    (dir, store)
}

#[test]
fn a_path_without_checkpoints_names_the_jobs_of_the_store() {
    let (dir, store) = store();
    let resume = |from: &str| {
        let problem = claim(&store, &request("new", 'b', Some(from))).expect_err("no checkpoints");
        problem.to_string()
    };
    let text = resume("/no/where");
    assert!(
        text.contains("no such folder") && text.ends_with(" has no jobs"),
        "{text}"
    );
    for (name, run) in [("eval", 'c'), ("train", 'a')] {
        let first = claim(&store, &request(name, run, None)).expect("an empty folder");
        commit(&store, name, id(10, 1), Some(&first.run)).expect("its own");
    }
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).expect("is created");
    for from in ["/no/where", empty.to_str().expect("text")] {
        let text = resume(from);
        let known = format!("; the store {} has: eval, train", store.root().display());
        assert!(text.ends_with(&known), "{text}");
    }
}

#[test]
fn a_folder_of_another_run_is_refused_and_left_as_it_is() {
    let (_dir, store) = store();
    let first = claim(&store, &request("train", 'a', None)).expect("an empty folder");
    assert_eq!((first.first, first.start), (Generation(1), None));
    commit(&store, "train", id(10, 1), Some(&first.run)).expect("its own");
    let problem = claim(&store, &request("train", 'b', None)).expect_err("another run");
    let text = problem.to_string();
    for part in ["aaaa", "step 10", "--resume-from train", "--name", "--checkpoint-dir"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let other = RunId::from("b".repeat(32));
    let problem = commit(&store, "train", id(11, 2), Some(&other)).expect_err("of another run");
    assert!(matches!(problem, StoreError::OtherRun { .. }), "{problem}");
}

#[test]
fn a_resumed_run_goes_on_above_all_generations_from_its_newest_checkpoint() {
    let (_dir, store) = store();
    let run = claim(&store, &request("train", 'a', None)).expect("new").run;
    for step in [10, 20] {
        commit(&store, "train", id(step, 1), Some(&run)).expect("its own");
    }
    let again = claim(&store, &request("train", 'b', Some("train"))).expect("its own");
    assert_eq!((again.run.clone(), again.first), (run.clone(), Generation(2)));
    assert_eq!(again.start.map(|start| start.step), Some(Step(20)));
    assert_eq!(again.checkpoints.len(), 2);
    // Two rollbacks: checkpoints after each start are never counted again.
    let back = claim(&store, &request("train", 'c', Some("train:10"))).expect("a step");
    assert_eq!((back.first, back.checkpoints.len()), (Generation(3), 1));
    assert_eq!(store.current_ids(&job("train")).expect("readable"), [id(10, 1)]);
    let problem = commit(&store, "train", id(30, 1), Some(&run)).expect_err("an earlier attempt");
    assert!(matches!(problem, StoreError::Superseded { .. }), "{problem}");
    commit(&store, "train", id(15, 3), Some(&run)).expect("its own");
    let problem = claim(&store, &request("train", 'd', Some("train:20"))).expect_err("superseded");
    assert!(problem.to_string().contains("superseded"), "{problem}");
    let problem = claim(&store, &request("train", 'd', Some("train:12"))).expect_err("no such step");
    assert!(
        problem.to_string().contains("15, 20, 10") || problem.to_string().contains("20, 15, 10"),
        "{problem}"
    );
    let newest = claim(&store, &request("train", 'd', Some("train"))).expect("its own");
    assert_eq!(newest.start.map(|start| start.step), Some(Step(15)));
}

#[test]
fn a_rollback_is_collected_only_after_a_commit_of_its_own() {
    let (_dir, store) = store();
    let name = job("train");
    let run = claim(&store, &request("train", 'a', None)).expect("new").run;
    for step in [10, 20, 30] {
        commit(&store, "train", id(step, 1), Some(&run)).expect("its own");
    }
    claim(&store, &request("train", 'b', Some("train:10"))).expect("a step");
    let collected = crate::retention::collect(&store, &name, 1, &[]).expect("readable");
    assert_eq!((collected.checkpoints.len(), collected.superseded.len()), (0, 0));
    commit(&store, "train", id(15, 2), Some(&run)).expect("its own");
    let collected = crate::retention::collect(&store, &name, 2, &[]).expect("readable");
    assert_eq!(collected.superseded, [id(20, 1), id(30, 1)]);
    assert_eq!(store.committed_ids(&name).expect("readable"), [id(10, 1), id(15, 2)]);
}

#[test]
fn a_checkpoint_of_another_job_becomes_the_start_of_a_new_run() {
    let (dir, store) = store();
    commit(&store, "base", id(40, 7), None).expect("imported");
    let claimed = claim(&store, &request("tune", 'a', Some("base"))).expect("a fork");
    assert_eq!(claimed.first, Generation(8));
    assert_eq!(
        claimed.start.map(|start| (start.job, start.step)),
        Some((job("base"), Step(40)))
    );
    let manifest = store.manifest(&job("tune"), id(40, 7)).expect("linked");
    assert_eq!(manifest.run, Some(RunId::from("a".repeat(32))));
    assert!(store.load(&job("tune"), id(40, 7)).is_ok());
    assert!(
        store.run_record(&job("base")).expect("readable").is_none(),
        "the source is left as it is"
    );
    // By path, of the folder and of the checkpoint; in a store of its own.
    for (nth, path) in ["store/base", "store/base/000000000040-g7"].into_iter().enumerate() {
        let other = Store::open(dir.path().join(format!("other-{nth}"))).expect("a store");
        let path = dir.path().join(path).display().to_string();
        let claimed = claim(&other, &request("tune", 'b', Some(&path))).expect("a fork");
        assert!(claimed.start.is_some_and(|start| start.store.is_some()));
    }
    let problem = claim(&store, &request("tune", 'c', Some("base"))).expect_err("it has a run");
    assert!(matches!(problem, ClaimError::OtherRun { .. }), "{problem}");
    let problem = claim(&store, &request("new", 'c', Some("bass"))).expect_err("no such job");
    assert!(problem.to_string().contains("base, tune"), "{problem}");
}

#[test]
fn a_folder_without_a_record_is_adopted_only_by_its_name() {
    let (_dir, store) = store();
    commit(&store, "train", id(1000, 1), None).expect("imported");
    assert!(matches!(
        claim(&store, &request("train", 'a', None)),
        Err(ClaimError::Occupied { .. })
    ));
    let claimed = claim(&store, &request("train", 'a', Some("train"))).expect("by its name");
    assert_eq!((claimed.first, claimed.checkpoints.len()), (Generation(2), 1));
}

#[test]
fn a_claim_that_ended_halfway_is_begun_anew_and_one_of_two_is_refused() {
    let (_dir, store) = store();
    let record = RunRecord {
        run: RunId::from("a".repeat(32)),
        job: job("train"),
        created: Timestamp(1),
    };
    store.put_run(&record).expect("written");
    let claimed = claim_folder(&store, &request("train", 'b', None), &|| false).expect("unfinished");
    assert_eq!(claimed.claim.run, record.run);
    assert!(matches!(
        claim(&store, &request("train", 'c', None)),
        Err(ClaimError::Occupied { .. })
    ));
    claimed.undo().expect("removed");
    assert!(claim(&store, &request("train", 'c', None)).is_ok(), "undone");
}

#[test]
fn a_damaged_newest_checkpoint_is_passed_over_unless_it_is_named() {
    let (_dir, store) = store();
    let run = claim(&store, &request("train", 'a', None)).expect("new").run;
    for step in [10, 20] {
        commit(&store, "train", id(step, 1), Some(&run)).expect("its own");
    }
    let index = store
        .index_path(&job("train"), id(20, 1), rankguard_model::Rank(0))
        .expect("a path");
    fs::write(&index, b"damaged").expect("written");
    let problem = claim(&store, &request("train", 'b', Some("train:20"))).expect_err("damaged");
    assert!(problem.to_string().contains("digest"), "{problem}");
    let claimed = claim(&store, &request("train", 'b', Some("train"))).expect("an older one");
    assert_eq!(claimed.start.map(|start| start.step), Some(Step(10)));
    assert_eq!(claimed.passed_over.len(), 1);
    // A shard without a manifest is a checkpoint that was never committed.
    let begun = id(30, 3);
    let index = ShardIndex::new(&job("train"), begun);
    store.write_shard(&index, &(&[] as &[u8])).expect("written");
    let claimed = claim(&store, &request("train", 'c', Some("train"))).expect("an older one");
    assert!(
        claimed.passed_over[0].starts_with("step 30 of generation 3: not committed"),
        "{:?}",
        claimed.passed_over
    );
    assert_eq!(
        claimed.passed_over.len(),
        1,
        "step 20 is superseded since the claim before"
    );
    let named = claim(&store, &request("train", 'd', Some("train:10"))).expect("a step");
    assert!(named.passed_over.is_empty(), "a named step passes over nothing");
}

#[test]
fn newer_commits_are_those_that_a_job_can_start_from_and_the_others_with_a_reason() {
    let (_dir, store) = store();
    let name = job("train");
    let run = claim(&store, &request("train", 'a', None)).expect("new").run;
    let commits = [id(20, 1), id(40, 1), id(40, 2), id(60, 2), id(80, 2)];
    for commit_id in commits {
        commit(&store, "train", commit_id, Some(&run)).expect("its own");
    }
    let steps = |after: Option<u64>| {
        let found = newer_commits(&store, &name, after.map(Step), Timestamp(7)).expect("a listing");
        let usable = found.usable.iter().map(|view| (view.step.0, view.generation.0));
        (usable.collect::<Vec<_>>(), found.unusable)
    };
    assert_eq!(steps(Some(20)), (vec![(40, 2), (60, 2), (80, 2)], Vec::new()));
    assert_eq!(steps(Some(80)), (Vec::new(), Vec::new()));
    assert_eq!(steps(None).0.len(), 4);

    // A checkpoint without its indexes is committed, and cannot be loaded.
    let index = store
        .index_path(&name, id(80, 2), rankguard_model::Rank(0))
        .expect("a path");
    fs::remove_file(index).expect("removed");
    let (usable, unusable) = steps(Some(20));
    assert_eq!(usable, [(40, 2), (60, 2)]);
    assert_eq!(unusable.len(), 1);
    assert_eq!(unusable[0].0, id(80, 2));

    // A rollback to step 40 supersedes later steps of the generations before it.
    claim(&store, &request("train", 'b', Some("train:40"))).expect("another attempt");
    assert_eq!(steps(Some(20)), (vec![(40, 2)], Vec::new()));
}

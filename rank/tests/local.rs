//! Tests of a rank without an agent: its saves are checkpoints like any other, under every policy.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rankguard_checkpoint::Store;
use rankguard_checkpoint::store::VerifyDepth;
use rankguard_checkpoint_format::{Dtype, TensorBox};
use rankguard_model::{Generation, JobId, Rank, Step};
use rankguard_rank::{
    BackPressure, LocalError, LocalOptions, LocalRank, RankEnv, RestoreSummary, SaveNotes, SaveOutcome, TensorPart,
};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);

fn place(rank: u32, world_size: u32) -> RankEnv {
    RankEnv {
        rank: Rank(rank),
        world_size,
        ..RankEnv::from_vars(&Default::default()).unwrap()
    }
}

fn open(dir: &Path, rank: u32, world_size: u32, generation: u64) -> LocalRank {
    let options = LocalOptions {
        generation: Some(Generation(generation)),
        commit_within: LIMIT,
        ..LocalOptions::default()
    };
    LocalRank::open(dir, &place(rank, world_size), &options).unwrap()
}

/// Rows `rows` of an 8 x 3 tensor, each element with its position as value.
fn rows(rows: std::ops::Range<u64>) -> (TensorBox, Vec<u8>) {
    let bytes = (rows.start * 3..rows.end * 3).map(|at| at as u8).collect();
    (TensorBox::rows("w", Dtype::U8, vec![8, 3], rows), bytes)
}

fn save(rank: &mut LocalRank, step: u64, part: &(TensorBox, Vec<u8>), state: &Value) -> SaveOutcome {
    let tensors = [(part.0.clone(), part.1.as_slice())];
    let saved = rank
        .checkpoint(Step(step), &tensors, state, &SaveNotes::default())
        .unwrap();
    saved.outcome
}

fn load(rank: &mut LocalRank, part: std::ops::Range<u64>) -> (Vec<u8>, Option<RestoreSummary>) {
    let (boxed, bytes) = rows(part);
    let mut buffer = vec![0xee; bytes.len()];
    let restored = rank.restore_into(&mut [(boxed, &mut buffer)], None).unwrap();
    (buffer, restored)
}

#[test]
fn two_ranks_save_and_three_others_restore_their_parts_in_place() {
    let dir = tempfile::tempdir().unwrap();
    thread::scope(|scope| {
        for rank in 0..2 {
            let dir = dir.path();
            scope.spawn(move || {
                let mut local = open(dir, rank, 2, 1);
                let half = u64::from(rank) * 4;
                save(&mut local, 7, &rows(half..half + 4), &json!({"rank": rank}));
                assert_eq!(local.wait(LIMIT).unwrap().map(|id| id.step), Some(Step(7)));
            });
        }
    });
    for (rank, part) in [(0, 0..3), (1, 3..6), (2, 6..8)] {
        let (buffer, restored) = load(&mut open(dir.path(), rank, 3, 2), part.clone());
        assert_eq!(buffer, rows(part).1);
        let restored = restored.unwrap();
        assert_eq!(restored.step, Step(7));
        assert_eq!(
            restored.states,
            [(Rank(0), json!({"rank": 0})), (Rank(1), json!({"rank": 1}))]
        );
    }
}

#[test]
fn nothing_to_restore_leaves_the_buffers_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (buffer, restored) = load(&mut open(dir.path(), 0, 1, 1), 0..8);
    assert_eq!((buffer, restored), (vec![0xee; 24], None));
}

#[test]
fn a_save_beside_the_training_holds_what_was_there_between_begin_and_finish() {
    let dir = tempfile::tempdir().unwrap();
    let mut local = open(dir.path(), 0, 1, 1);
    let (boxed, bytes) = rows(0..8);
    let data = Arc::new(bytes.clone());
    let part = TensorPart {
        boxed,
        data: data.clone(),
    };
    let begun = local
        .begin(Step(3), vec![part], json!(null), SaveNotes::default())
        .unwrap();
    assert_eq!(begun, None);
    assert_eq!(
        local.finish().unwrap().map(|saved| saved.outcome),
        Some(SaveOutcome::Sealed)
    );
    // The copy is over, so the trainer may change its memory.
    let mut data = Arc::into_inner(data).expect("nobody else holds it");
    data.fill(0);
    assert_eq!(local.finish().unwrap(), None);
    local.wait(LIMIT).unwrap();
    assert_eq!(load(&mut local, 0..8).0, bytes);
    assert_eq!(local.counts().sealed, 1);
}

#[test]
fn rg_2_a_damaged_checkpoint_is_passed_over_alone_and_refused_among_others() {
    let dir = tempfile::tempdir().unwrap();
    let mut local = open(dir.path(), 0, 1, 1);
    for step in [1, 2] {
        save(&mut local, step, &rows(0..8), &json!(step));
        local.wait(LIMIT).unwrap();
    }
    let newest = local.committed().unwrap().pop().unwrap();
    let shard = Store::at(dir.path())
        .shard_path(&JobId::from("local"), newest, Rank(0))
        .unwrap();
    let mut bytes = fs::read(&shard).unwrap();
    bytes[5] ^= 1;
    fs::write(&shard, bytes).unwrap();
    let (buffer, restored) = load(&mut local, 0..8);
    assert_eq!((buffer, restored.map(|one| one.step)), (rows(0..8).1, Some(Step(1))));

    let (boxed, mut buffer) = rows(0..8);
    let error = open(dir.path(), 0, 2, 2)
        .restore_into(&mut [(boxed, &mut buffer)], None)
        .unwrap_err();
    assert!(
        matches!(&error, LocalError::Restore { id, .. } if *id == newest),
        "{error}"
    );
    assert!(error.to_string().contains("tensor w"), "{error}");

    // With parity, one command repairs it: no steps are lost silently.
    let store = Store::at(dir.path());
    fs::create_dir_all(store.parity_root().join("local").join(newest.to_string())).unwrap();
    let (boxed, mut buffer) = rows(0..8);
    let error = local.restore_into(&mut [(boxed, &mut buffer)], None).unwrap_err();
    let command = format!(
        "`rankguard checkpoint repair --step 2 --job local --dir {}`",
        dir.path().display()
    );
    assert!(error.to_string().contains(&command), "{error}");
    let (boxed, mut buffer) = rows(0..8);
    let restored = local.restore_into(&mut [(boxed, &mut buffer)], Some(Step(1))).unwrap();
    assert_eq!(restored.map(|one| one.step), Some(Step(1)));
}

#[test]
fn rg_9_rank_0_does_not_wait_for_ever_for_a_rank_that_saved_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let options = LocalOptions {
        commit_within: Duration::from_millis(20),
        generation: Some(Generation(1)),
        ..LocalOptions::default()
    };
    let mut local = LocalRank::open(dir.path(), &place(0, 2), &options).unwrap();
    save(&mut local, 1, &rows(0..4), &json!(null));
    let error = local.wait(LIMIT).unwrap_err();
    assert!(error.to_string().contains("rank 1 has left no shard"), "{error}");
    assert_eq!((local.failed(), local.committed().unwrap()), (1, vec![]));
    assert!(local.take_failures().is_empty(), "told once");
}

/// A store with a file in place of the job folder: nothing can be written until it is removed.
fn blocked(dir: &Path) -> std::path::PathBuf {
    let place = dir.join("local");
    fs::write(&place, "in the way").unwrap();
    place
}

#[test]
fn what_cannot_be_written_is_told_and_the_next_save_works() {
    let dir = tempfile::tempdir().unwrap();
    let mut local = open(dir.path(), 0, 1, 1);
    let in_the_way = blocked(dir.path());
    save(&mut local, 1, &rows(0..8), &json!(null));
    let error = local.wait(LIMIT).unwrap_err();
    assert!(matches!(error, LocalError::NotDurable { step: Step(1), .. }), "{error}");
    fs::remove_file(in_the_way).unwrap();
    assert_eq!(save(&mut local, 2, &rows(0..8), &json!(null)), SaveOutcome::Sealed);
    assert_eq!(local.wait(LIMIT).unwrap().map(|id| id.step), Some(Step(2)));
}

/// RG-9: the caller of a save may take its failure at once, as the warning of the save; a later wait does not wait for the
/// commit that cannot come.
#[test]
fn rg_9_a_wait_ends_with_the_cause_of_a_failure_that_was_taken_before() {
    let dir = tempfile::tempdir().unwrap();
    let mut local = open(dir.path(), 0, 1, 1);
    let job = dir.path().join("local");
    let in_the_way = job.join("000000000001-g1");
    fs::create_dir_all(&job).unwrap();
    fs::write(&in_the_way, "in the way").unwrap();
    save(&mut local, 1, &rows(0..8), &json!(null));
    while !local.is_idle() {
        thread::yield_now();
    }
    assert_eq!(local.take_failures().len(), 1);
    let error = local.wait(LIMIT).unwrap_err();
    assert!(matches!(error, LocalError::NotDurable { step: Step(1), .. }), "{error}");
    fs::remove_file(in_the_way).unwrap();
    save(&mut local, 2, &rows(0..8), &json!(null));
    assert_eq!(local.wait(LIMIT).unwrap().map(|id| id.step), Some(Step(2)));
}

#[test]
fn every_policy_counts_what_it_does_and_never_spoils_what_it_keeps() {
    for policy in [
        BackPressure::Wait(LIMIT),
        BackPressure::ReplaceOldest,
        BackPressure::Skip,
    ] {
        let dir = tempfile::tempdir().unwrap();
        let options = LocalOptions {
            policy,
            generation: Some(Generation(1)),
            ..LocalOptions::default()
        };
        let mut local = LocalRank::open(dir.path(), &place(0, 1), &options).unwrap();
        let sealed = (1..=30)
            .filter(|step| save(&mut local, *step, &rows(0..8), &json!(step)) == SaveOutcome::Sealed)
            .count() as u64;
        local.wait(LIMIT).unwrap();
        let counts = local.counts();
        assert_eq!(counts.sealed, sealed, "{policy:?}");
        assert_eq!(counts.sealed + counts.skipped, 30, "{policy:?}");
        let committed = local.committed().unwrap();
        assert_eq!(committed.len() as u64, counts.sealed - counts.replaced, "{policy:?}");
        if matches!(policy, BackPressure::Wait(_)) {
            assert_eq!((counts.skipped, counts.replaced), (0, 0));
        }
        let newest = Store::at(dir.path())
            .newest(&JobId::from("local"), VerifyDepth::Bytes)
            .unwrap();
        assert!(newest.skipped.is_empty(), "{:?}", newest.skipped);
    }
}

#[test]
fn a_later_run_takes_the_next_generation_and_sees_what_the_first_left() {
    let dir = tempfile::tempdir().unwrap();
    let options = LocalOptions::default();
    let mut first = LocalRank::open(dir.path(), &place(0, 1), &options).unwrap();
    assert_eq!(first.generation(), Generation(1));
    save(&mut first, 4, &rows(0..8), &json!(null));
    // Dropped before any wait: sealed images are still written.
    drop(first);
    let mut second = LocalRank::open(dir.path(), &place(0, 1), &options).unwrap();
    assert_eq!(second.generation(), Generation(2));
    assert_eq!(load(&mut second, 0..8).1.map(|restored| restored.step), Some(Step(4)));
    // The same step again, in a folder of its own.
    save(&mut second, 4, &rows(0..8), &json!(null));
    second.wait(LIMIT).unwrap();
    assert_eq!(second.committed().unwrap().len(), 2);
}

#[test]
fn a_checkpoint_that_was_overtaken_and_cleared_away_was_committed_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let options = LocalOptions {
        generation: Some(Generation(1)),
        keep: 1,
        ..LocalOptions::default()
    };
    let mut local = LocalRank::open(dir.path(), &place(0, 1), &options).unwrap();
    // The second checkpoint is older than the first, so it is removed with its own commit.
    for step in [9, 4] {
        save(&mut local, step, &rows(0..8), &json!(null));
        assert_eq!(local.wait(LIMIT).unwrap().map(|id| id.step), Some(Step(step)));
    }
    // Expired checkpoints are removed after the new one is durable; a wait for the commit does not include the
    // removal.
    let until = Instant::now() + LIMIT;
    while !local.is_idle() {
        assert!(Instant::now() < until, "it is still clearing");
        std::thread::sleep(Duration::from_millis(1));
    }
    let left = local.committed().unwrap();
    assert_eq!(left.iter().map(|id| id.step).collect::<Vec<_>>(), [Step(9)]);
}

#[test]
fn a_state_that_grows_gets_a_larger_arena_and_a_wrong_size_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut local = open(dir.path(), 0, 1, 1);
    save(&mut local, 1, &rows(0..8), &json!(null));
    let large = (TensorBox::whole("large", Dtype::U8, vec![1 << 20]), vec![9; 1 << 20]);
    save(&mut local, 2, &large, &json!(null));
    assert_eq!(local.wait(LIMIT).unwrap().map(|id| id.step), Some(Step(2)));
    assert!(local.is_idle());
    let short = (TensorBox::whole("short", Dtype::F32, vec![4]), vec![0; 15]);
    let tensors = [(short.0, short.1.as_slice())];
    let error = local
        .checkpoint(Step(3), &tensors, &json!(null), &SaveNotes::default())
        .unwrap_err();
    assert!(
        matches!(&error, LocalError::Buffer { name, has: 15, needs: 16 } if name == "short"),
        "{error}"
    );
}

/// Steps and generations of the committed checkpoints.
fn committed(dir: &Path) -> Vec<(u64, u64)> {
    let ids = Store::at(dir).committed_ids(&JobId::from("local")).unwrap();
    ids.iter().map(|id| (id.step.0, id.generation.0)).collect()
}

fn open_keeping(dir: &Path, generation: u64, keep: u32) -> LocalRank {
    let options = LocalOptions {
        generation: Some(Generation(generation)),
        commit_within: LIMIT,
        keep,
        ..LocalOptions::default()
    };
    LocalRank::open(dir, &place(0, 1), &options).unwrap()
}

#[test]
fn a_program_that_does_not_restore_saves_nothing_beside_an_earlier_run() {
    let dir = tempfile::tempdir().unwrap();
    let part = rows(0..8);
    let mut first = open_keeping(dir.path(), 1, 0);
    for step in [3, 1000] {
        save(&mut first, step, &part, &json!({}));
        first.wait(LIMIT).unwrap();
    }
    drop(first);
    let mut stranger = open_keeping(dir.path(), 2, 1);
    let tensors = [(part.0.clone(), part.1.as_slice())];
    for step in [1, 3, 1000, 1001] {
        let refused = stranger.checkpoint(Step(step), &tensors, &json!({}), &SaveNotes::default());
        let text = refused.unwrap_err().to_string();
        for expected in [&format!("cannot save step {step}"), "1000", "restore first"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
    assert_eq!(stranger.wait(LIMIT).unwrap(), None);
    assert_eq!(committed(dir.path()), [(3, 1), (1000, 1)]);
    assert_eq!(
        load(&mut stranger, 0..8).1.map(|restored| restored.step),
        Some(Step(1000))
    );
    save(&mut stranger, 1001, &part, &json!({}));
    stranger.wait(LIMIT).unwrap();
    drop(stranger);
    assert_eq!(committed(dir.path()), [(1001, 2)]);
}

#[test]
fn a_restore_adopts_the_run_and_a_rollback_supersedes() {
    let dir = tempfile::tempdir().unwrap();
    let part = rows(0..8);
    let job = JobId::from("local");
    let mut first = open_keeping(dir.path(), 1, 0);
    for step in [10, 20, 30] {
        save(&mut first, step, &part, &json!({}));
        first.wait(LIMIT).unwrap();
    }
    drop(first);
    let store = Store::at(dir.path());
    let run = store.run_record(&job).unwrap().unwrap().run;
    let mut second = open_keeping(dir.path(), 2, 0);
    let mut buffer = vec![0; part.1.len()];
    let restored = second.restore_into(&mut [(part.0.clone(), &mut buffer)], Some(Step(10)));
    assert_eq!(restored.unwrap().map(|restored| restored.step), Some(Step(10)));
    save(&mut second, 20, &part, &json!({}));
    second.wait(LIMIT).unwrap();
    drop(second);
    assert_eq!(store.run_record(&job).unwrap().unwrap().run, run);
    let current: Vec<_> = store.current_ids(&job).unwrap();
    let current: Vec<_> = current.iter().map(|id| (id.step.0, id.generation.0)).collect();
    assert_eq!(current, [(10, 1), (20, 2)]);
    let manifest = store.manifest(&job, *store.committed_ids(&job).unwrap().last().unwrap());
    assert_eq!(manifest.unwrap().run, Some(run));
    let mut third = open_keeping(dir.path(), 3, 1);
    assert_eq!(load(&mut third, 0..8).1.map(|restored| restored.step), Some(Step(20)));
    save(&mut third, 21, &part, &json!({}));
    third.wait(LIMIT).unwrap();
    drop(third);
    assert_eq!(committed(dir.path()), [(21, 3)]);
}

/// Both ranks save a step, and the shard of one cannot be written. Returns the errors of the waits of rank 0 and 1.
fn errors_without_shard_of(failing: u32) -> [LocalError; 2] {
    let dir = tempfile::tempdir().unwrap();
    let mut ranks = [0, 1].map(|rank| open(dir.path(), rank, 2, 1));
    let in_the_way = dir
        .path()
        .join(format!("local/000000000001-g1/rank-{failing:05}.shard/x"));
    fs::create_dir_all(&in_the_way).unwrap();
    for (rank, part) in ranks.iter_mut().zip([0..4, 4..8]) {
        save(rank, 1, &rows(part), &json!(null));
    }
    let errors = ranks.each_mut().map(|rank| rank.wait(LIMIT).unwrap_err());
    for (rank, part) in ranks.iter_mut().zip([0..4, 4..8]) {
        save(rank, 2, &rows(part), &json!(null));
    }
    for rank in &mut ranks {
        assert_eq!(
            rank.wait(LIMIT).unwrap().map(|id| id.step),
            Some(Step(2)),
            "the next save is committed"
        );
    }
    errors
}

#[test]
fn rg_9_a_rank_learns_the_failed_commit_of_rank_0_before_its_deadline() {
    let [own, other] = errors_without_shard_of(0);
    assert!(matches!(own, LocalError::NotDurable { step: Step(1), .. }), "{own}");
    let LocalError::VoidCommit { step: Step(1), reason } = &other else {
        panic!("{other}")
    };
    assert!(own.to_string().ends_with(reason.as_str()), "{own}\n{other}");
}

#[test]
fn rg_9_rank_0_learns_the_failed_save_of_another_rank_before_its_deadline() {
    let [own, other] = errors_without_shard_of(1);
    assert!(matches!(other, LocalError::NotDurable { step: Step(1), .. }), "{other}");
    assert!(own.to_string().contains("rank 1 has not written its shard"), "{own}");
}

/// A mark that an earlier program left is not taken for one of this session.
#[test]
fn a_mark_of_an_earlier_program_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("local/000000000001-g1");
    fs::create_dir_all(&folder).unwrap();
    let mark = folder.join(".tmp-void-00000");
    fs::write(&mark, "the disk is full").unwrap();
    let earlier = std::time::SystemTime::now() - Duration::from_secs(5);
    fs::File::options()
        .write(true)
        .open(&mark)
        .unwrap()
        .set_modified(earlier)
        .unwrap();
    let mut rank = open(dir.path(), 1, 2, 1);
    save(&mut rank, 1, &rows(4..8), &json!(null));
    while !rank.is_idle() {
        thread::yield_now();
    }
    let error = rank.wait(Duration::from_millis(50)).unwrap_err();
    assert!(matches!(error, LocalError::NotCommitted { .. }), "{error}");
}

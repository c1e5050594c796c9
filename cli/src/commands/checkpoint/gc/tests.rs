//! Tests of the collection of a store: rows of a dry run, and what a collection leaves.

use rankguard_checkpoint::format::{Dtype, Manifest, ShardIndex, TensorBox};
use rankguard_model::{Generation, MetricGoal, MetricRule, Step};

use super::rows::{ENDED, IN_USE, INCOMPLETE};
use super::*;

fn save(store: &Store, job: &JobId, step: u64, loss: f64) {
    let id = CheckpointId {
        step: Step(step),
        generation: Generation(1),
    };
    let (tensors, _) = ShardIndex::lay_out([TensorBox::whole("w", Dtype::U8, vec![64])]);
    let mut index = ShardIndex {
        image_bytes: 64,
        tensors,
        state: serde_json::json!({"metrics": {"loss": loss}}),
        ..ShardIndex::new(job, id)
    };
    let image = [step as u8; 64];
    index.digest_image(&image);
    let seal = store.write_shard(&index, &image.as_slice()).expect("room").seal;
    let manifest = Manifest::from_seals(job, id, None, &[seal]).expect("whole");
    store.commit(&manifest).expect("committed");
}

fn collect_all(
    store: &Store,
    job: &JobId,
    rules: &RetentionPolicy,
    dry_run: bool,
) -> Result<JobCollection, StoreError> {
    let extent = GcExtent { torn: false, dry_run };
    collect(store, job, rules, &all(store, job)?, extent)
}

fn outcomes(rows: &[GcRow]) -> Vec<(u64, &'static str, &str)> {
    rows.iter().map(|row| (row.step, row.what, row.why.as_str())).collect()
}

#[test]
fn a_damaged_checkpoint_and_the_one_retained_in_its_place_have_true_reasons() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = Store::open(dir.path()).expect("a store");
    let job = JobId::from("train");
    for step in [10, 20, 30] {
        save(&store, &job, step, 0.5);
    }
    let newest = CheckpointId {
        step: Step(30),
        generation: Generation(1),
    };
    let shard = store.shard_path(&job, newest, Rank(0)).expect("a valid name");
    std::fs::remove_file(shard).expect("removed");
    let rules = RetentionPolicy {
        last: 1,
        ..RetentionPolicy::default()
    };
    let JobCollection { rows, problems, .. } = collect_all(&store, &job, &rules, true).expect("readable");
    assert_eq!(
        outcomes(&rows),
        [
            (10, "removable", "no retention rule matches"),
            (20, "retained", "one of the newest that are intact"),
            (30, "retained", "one of the newest, damaged and left for inspection"),
        ]
    );
    assert_eq!(problems.len(), 1, "{problems:?}");
}

/// A job that was stopped with failed saves leaves incomplete folders that are newer than its newest checkpoint.
#[test]
fn incomplete_checkpoints_are_listed_and_removed_once_their_job_has_ended() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = Store::open(dir.path()).expect("a store");
    let job = JobId::from("train");
    save(&store, &job, 10, 0.5);
    for step in [20, 30] {
        let folder = dir.path().join(format!("train/{step:012}-g1"));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("rank-00000.shard"), [7; 64]).expect("a shard");
    }
    let rules = RetentionPolicy {
        last: 1,
        ..RetentionPolicy::default()
    };
    let collect_torn = |torn: bool, dry_run: bool| {
        let extent = GcExtent { torn, dry_run };
        let candidates = all(&store, &job).expect("readable");
        collect(&store, &job, &rules, &candidates, extent)
            .expect("readable")
            .rows
    };
    let retained = (10, "retained", "one of the newest");
    for dry_run in [true, false] {
        let rows = collect_torn(false, dry_run);
        assert_eq!(
            outcomes(&rows),
            [retained, (20, "torn", INCOMPLETE), (30, "torn", INCOMPLETE)]
        );
    }
    let rows = collect_torn(true, true);
    assert_eq!(
        outcomes(&rows),
        [retained, (20, "removable", ENDED), (30, "removable", ENDED)]
    );
    let rows = collect_torn(true, false);
    assert_eq!(
        outcomes(&rows),
        [retained, (20, "removed", ENDED), (30, "removed", ENDED)]
    );
    assert_eq!(outcomes(&collect_torn(false, true)), [retained]);
}

#[test]
fn incomplete_checkpoints_of_a_job_that_runs_in_the_store_are_left() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (mut status, _) = rankguard_report::sample::cluster();
    let view = status.jobs.iter_mut().find(|view| view.spec.checkpoint.is_some());
    let view = view.expect("a job with checkpoints");
    view.state = JobState::Running;
    view.spec.checkpoint.as_mut().expect("checkpoints").store = dir.path().display().to_string();
    let job = view.spec.id.clone();
    let refusal = check_ended(&job, dir.path(), Some(&status)).expect_err("it runs");
    assert!(
        refusal.lines().contains("has not ended (running)"),
        "{}",
        refusal.lines()
    );
    let other = tempfile::tempdir().expect("a temporary directory");
    assert!(
        check_ended(&job, other.path(), Some(&status)).is_ok(),
        "it runs elsewhere"
    );
    status.jobs.iter_mut().for_each(|view| view.state = JobState::Stopped);
    assert!(check_ended(&job, dir.path(), Some(&status)).is_ok());
    assert!(check_ended(&job, dir.path(), None).is_ok());
}

#[test]
fn wrong_bytes_do_not_take_the_place_of_the_only_usable_checkpoint() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = Store::open(dir.path()).expect("a store");
    let job = JobId::from("train");
    for step in [10, 20, 30] {
        save(&store, &job, step, 0.5);
    }
    let newest = CheckpointId {
        step: Step(30),
        generation: Generation(1),
    };
    let shard = store.shard_path(&job, newest, Rank(0)).expect("a valid name");
    let mut bytes = std::fs::read(&shard).expect("a shard");
    bytes[7] ^= 1;
    std::fs::write(&shard, bytes).expect("written");
    let rules = RetentionPolicy {
        last: 1,
        ..RetentionPolicy::default()
    };
    let damaged = (30, "retained", "one of the newest, damaged and left for inspection");
    let intact = (20, "retained", "one of the newest that are intact");
    let found = collect_all(&store, &job, &rules, true).expect("readable");
    let removable = (10, "removable", "no retention rule matches");
    assert_eq!(outcomes(&found.rows), [removable, intact, damaged]);
    assert_eq!((found.verified, found.problems.len()), (1, 1), "{:?}", found.problems);
    let found = collect_all(&store, &job, &rules, false).expect("removable");
    let removed = (10, "removed", "no retention rule matches");
    assert_eq!(outcomes(&found.rows), [removed, intact, damaged]);
    // If nothing is intact, nothing is removed.
    let older = CheckpointId {
        step: Step(20),
        generation: Generation(1),
    };
    save(&store, &job, 40, 0.5);
    for id in [
        older,
        CheckpointId {
            step: Step(40),
            ..older
        },
    ] {
        let shard = store.shard_path(&job, id, Rank(0)).expect("a valid name");
        std::fs::write(&shard, [0; 64]).expect("written");
    }
    let found = collect_all(&store, &job, &rules, false).expect("readable");
    assert!(found.rows.iter().all(|row| row.what == "retained"), "{:?}", found.rows);
    assert_eq!(found.rows.len(), 3);
}

/// The losses that ranks report are not in the checkpoints.
#[test]
fn checkpoints_without_the_metric_are_not_ranked() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = Store::open(dir.path()).expect("a store");
    let job = JobId::from("train");
    save(&store, &job, 10, 0.1);
    save(&store, &job, 20, 0.2);
    let candidates = all(&store, &job).expect("readable");
    let rules = |metric: &str| RetentionPolicy {
        best: Some(MetricRule {
            metric: metric.to_owned(),
            good: MetricGoal::Low,
            count: 1,
        }),
        ..RetentionPolicy::default()
    };
    assert!(check_metrics(&job, &rules("loss"), &candidates).is_ok());
    let refusal = check_metrics(&job, &rules("accuracy"), &candidates).expect_err("it is unknown");
    let text = refusal.lines();
    assert!(
        text.contains("accuracy of 2 checkpoints") && text.contains("steps 10, 20"),
        "{text}"
    );
}

#[test]
fn checkpoints_without_a_rule_are_listed_then_removed_and_leased_ones_are_retained() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = Store::open(dir.path()).expect("a store");
    let job = JobId::from("train");
    for (step, loss) in [(10, 0.9), (20, 0.1), (30, 0.5), (40, 0.4), (50, 0.3)] {
        save(&store, &job, step, loss);
    }
    let rules = RetentionPolicy {
        last: 1,
        every_steps: Some(30),
        best: Some(MetricRule {
            metric: "loss".to_owned(),
            good: MetricGoal::Low,
            count: 1,
        }),
        ..RetentionPolicy::default()
    };
    let read = CheckpointId {
        step: Step(10),
        generation: Generation(1),
    };
    let lease = store.lease(&job, read).expect("it is there");
    let leased = (10, "leased", IN_USE);
    let stay = [
        (20, "retained", "one of the best"),
        (30, "retained", "multiple of --keep-every"),
    ];
    let newest = (50, "retained", "one of the newest");
    let JobCollection { rows, problems, .. } = collect_all(&store, &job, &rules, true).expect("readable");
    let removable = (40, "removable", "no retention rule matches");
    assert_eq!(outcomes(&rows), [leased, stay[0], stay[1], removable, newest]);
    assert_eq!(
        (problems, store.committed_ids(&job).expect("readable").len()),
        (Vec::new(), 5)
    );

    let rows = collect_all(&store, &job, &rules, false).expect("removable").rows;
    let removed = (40, "removed", "no retention rule matches");
    assert_eq!(outcomes(&rows), [leased, stay[0], stay[1], removed, newest]);
    drop(lease);
    let rows = collect_all(&store, &job, &rules, false).expect("removable").rows;
    assert_eq!(
        outcomes(&rows),
        [(10, "removed", "no retention rule matches"), stay[0], stay[1], newest]
    );
    assert!(
        store.lease(&job, read).is_err(),
        "a removed checkpoint cannot be leased"
    );
}

/// A store of random checkpoints of one job: whole ones and deltas, incomplete folders and files of others.
struct RandomStore {
    dir: tempfile::TempDir,
    job: JobId,
    steps: Vec<u64>,
    random: u64,
}

impl RandomStore {
    fn new(seed: u64) -> Self {
        Self {
            dir: tempfile::tempdir().expect("a temporary directory"),
            job: JobId::from("train"),
            steps: Vec::new(),
            random: seed.wrapping_mul(2).wrapping_add(1),
        }
    }

    fn store(&self) -> Store {
        Store::open(self.dir.path()).expect("a store")
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }

    fn folder(&self, step: u64) -> std::path::PathBuf {
        self.dir.path().join(format!("train/{step:012}-g1"))
    }

    /// Commits a step of two ranks; half of each image seldom changes.
    fn commit(&mut self, step: u64, parent: Option<u64>) {
        let store = self.store();
        let id = |step: u64| CheckpointId {
            step: Step(step),
            generation: Generation(1),
        };
        let (frozen, changed) = ((self.below(8) == 0) as u8, step as u8);
        let seals = [0, 1].map(|rank| {
            let boxes = [
                TensorBox::whole("frozen", Dtype::U8, vec![256]),
                TensorBox::whole("trained", Dtype::U8, vec![256]),
            ];
            let (tensors, end) = ShardIndex::lay_out(boxes);
            let mut index = ShardIndex {
                rank: Rank(rank),
                world_size: 2,
                chunk_bytes: 64,
                image_bytes: end.expect("small"),
                tensors,
                ..ShardIndex::new(&self.job, id(step))
            };
            let mut image = vec![frozen.wrapping_add(rank as u8); 512];
            image[256..].fill(changed);
            index.digest_image(&image);
            let known = parent.map(|parent| store.known_chunks(&self.job, id(parent), Rank(rank)));
            let written = store.write_new(&index, &image.as_slice(), &known.unwrap_or_default());
            written.expect("room").seal
        });
        let manifest = Manifest::from_seals(&self.job, id(step), parent.map(id), &seals).expect("whole");
        store.commit(&manifest).expect("committed");
        self.steps.push(step);
    }

    fn extend(&mut self, newest: &mut u64) {
        for _ in 0..1 + self.below(7) {
            *newest += 1;
            match self.below(6) {
                0 => {
                    std::fs::create_dir_all(self.folder(*newest)).expect("a folder");
                    let name = ["rank-00000.shard", "notes.txt"][self.below(2) as usize];
                    std::fs::write(self.folder(*newest).join(name), [7; 30]).expect("a file");
                }
                1 => self.commit(*newest, None),
                _ => self.commit(*newest, self.steps.last().copied()),
            }
        }
        if self.below(4) == 0
            && let Some(step) = self.steps.first().copied()
        {
            std::fs::create_dir_all(self.folder(step)).expect("a folder");
            std::fs::write(self.folder(step).join("mine.txt"), "x").expect("a file");
        }
    }

    fn bytes(&self) -> u64 {
        let folders = std::fs::read_dir(self.dir.path().join("train"))
            .into_iter()
            .flatten()
            .flatten();
        folders.map(|folder| folder::size_of(&folder.path())).sum()
    }
}

#[test]
fn a_dry_run_predicts_what_the_collection_removes() {
    let mut lends = 0;
    let mut foreign = 0;
    for seed in 1..30 {
        let mut random = RandomStore::new(seed);
        let mut newest = 0;
        for _ in 0..3 {
            random.extend(&mut newest);
            let store = random.store();
            let rules = RetentionPolicy {
                last: 1 + random.below(3) as u32,
                every_steps: [None, Some(4)][random.below(2) as usize],
                ..RetentionPolicy::default()
            };
            let extent = |dry_run| GcExtent {
                torn: seed % 2 == 0,
                dry_run,
            };
            let run = |dry_run| {
                let candidates = all(&store, &random.job).expect("readable");
                collect(&store, &random.job, &rules, &candidates, extent(dry_run)).expect("readable")
            };
            let before = random.bytes();
            let predicted = run(true);
            assert_eq!(random.bytes(), before, "seed {seed}: a dry run changes nothing");
            let found = run(false);
            let table = |rows: &[GcRow]| {
                let rows = rows
                    .iter()
                    .map(|row| (row.step, row.what, row.why.clone(), row.bytes, row.freed_bytes));
                rows.collect::<Vec<_>>()
            };
            let mut expected = table(&predicted.rows);
            for row in &mut expected {
                row.1 = if row.1 == "removable" { "removed" } else { row.1 };
            }
            assert_eq!(table(&found.rows), expected, "seed {seed}");
            assert_eq!(found.problems, predicted.problems, "seed {seed}");
            let freed: u64 = found.rows.iter().map(|row| row.freed_bytes).sum();
            let lent = found
                .rows
                .iter()
                .filter(|row| row.why.ends_with("share remain"))
                .count() as u64;
            // The mark of a folder with shared chunks is 45 bytes long.
            assert_eq!(
                before - random.bytes() + 45 * lent,
                freed,
                "seed {seed}: {:?}",
                found.rows
            );
            lends += lent;
            foreign += found.problems.len();
            let listing = store.manifests(&random.job).expect("readable");
            let label = |id: &CheckpointId| found.rows.iter().find(|row| row.id() == *id).map(|row| row.what);
            for id in &listing.borrowed {
                assert!(
                    matches!(label(id), Some("retained" | "removed")),
                    "seed {seed}: {id}: {:?}",
                    label(id)
                );
            }
        }
    }
    assert!(
        lends > 10 && foreign > 5,
        "{lends} lend chunks, {foreign} have other files"
    );
}

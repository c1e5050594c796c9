//! `rankguard checkpoint gc`: applies the retention rules, or lists the result in a dry run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::UNIX_EPOCH;

use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint::retention::{self, CollectionPlan};
use rankguard_checkpoint::store::VerifyDepth;
use rankguard_checkpoint::{Store, StoreError, StoreProblem};
use rankguard_checkpoint_schedule::retention::{RetentionCandidate, RetentionReason, retained_checkpoints};
use rankguard_console::waiting::WorkNote;
use rankguard_model::{JobId, JobState, JobView, Rank, RetentionPolicy, StatusView, Timestamp};
use serde::Serialize;

use super::args::GcArgs;
use super::folder::{self, failed, is_store_of, open, size_of};
use super::uploads;
use crate::display_text;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::out;

/// A checkpoint folder of the store and its outcome.
#[derive(Debug, Serialize)]
struct GcRow {
    job: JobId,
    step: u64,
    generation: u64,
    /// `retained`, `removable`, `removed`, `leased` or `torn`.
    what: &'static str,
    why: String,
    /// Size of its files. Chunks that other checkpoints borrow are retained even if the folder is removed.
    bytes: u64,
}

const ROWS: &[TableColumn<GcRow>] = &[
    ("job", |row| row.job.to_string()),
    ("step", |row| row.step.to_string()),
    ("generation", |row| row.generation.to_string()),
    ("outcome", |row| row.what.to_owned()),
    ("reason", |row| row.why.clone()),
    ("size", |row| display_text::bytes(row.bytes)),
    ("bytes", |row| row.bytes.to_string()),
];

/// Reason of a checkpoint with a reader.
const IN_USE: &str = "in use by a reader";

/// Maximum number of damaged places in the output for one checkpoint.
const PROBLEMS_SHOWN: usize = 3;

/// Reason of an incomplete checkpoint that is left.
const INCOMPLETE: &str = "no manifest; a running job may complete it, and --torn removes it once the job has ended";

/// Reason of an incomplete checkpoint of a job that has ended.
const ENDED: &str = "no manifest, and its job has ended (--torn)";

/// Reason of a retained checkpoint that is damaged.
const DAMAGED: &str = "damaged and left for inspection";

pub(super) fn run(args: &GcArgs, status: Option<&StatusView>) -> Result<CommandExit, CliError> {
    let (store, jobs) = open(&args.store.dir, args.store.job.as_deref())?;
    let rules = args.keep.rules();
    let mut rows = Vec::new();
    let mut problems = Vec::new();
    let mut verified = 0;
    let work = WorkNote::start("reading checkpoints");
    for job in jobs {
        if args.torn {
            check_ended(&job, &args.store.dir, status)?;
        }
        let candidates = all(&store, &job).map_err(failed)?;
        check_metrics(&job, &rules, &candidates)?;
        let found = collect(&store, &job, &rules, &candidates, args.into()).map_err(failed)?;
        rows.extend(found.rows);
        problems.extend(found.problems);
        verified += found.verified;
        uploads::end_unfinished(&store, &job, args.dry_run)?;
    }
    drop(work);
    listing::print(args.store.format.format, &rows, ROWS);
    let removed: Vec<&GcRow> = rows
        .iter()
        .filter(|row| matches!(row.what, "removable" | "removed"))
        .collect();
    let bytes = display_text::bytes(removed.iter().map(|row| row.bytes).sum());
    out::note(&if args.dry_run {
        format!("{} of {} would be removed, {bytes}", removed.len(), rows.len())
    } else {
        format!("removed {} of {}, {bytes}", removed.len(), rows.len())
    });
    if verified > 0 {
        let newest = match verified {
            1 => "the newest checkpoint".to_owned(),
            many => format!("the newest {many} checkpoints"),
        };
        out::note(&format!(
            "before that, every byte of {newest} to retain was read and is as committed"
        ));
    }
    report_problems(&problems, &args.store.dir);
    Ok(if problems.is_empty() {
        CommandExit::Fine
    } else {
        CommandExit::Finding
    })
}

/// Refuses to remove incomplete checkpoints of a job that the controller runs in this store.
fn check_ended(job: &JobId, dir: &Path, status: Option<&StatusView>) -> Result<(), CliError> {
    let jobs = status.into_iter().flat_map(|status| &status.jobs);
    let mut running = jobs.filter(|view| !matches!(view.state, JobState::Finished | JobState::Stopped));
    let is_same = |view: &&JobView| view.spec.id == *job && is_store_of(view, dir);
    match running.find(is_same) {
        Some(view) => Err(CliError::failure(
            format!(
                "cannot remove the incomplete checkpoints of job {job} in {}: the job has not ended ({}), and may complete \
                 them; nothing was removed",
                dir.display(),
                display_text::job_state(view.state)
            ),
            format!("leave --torn away, or end the job first: `rankguard cancel {job}`"),
        )),
        None => Ok(()),
    }
}

/// Refuses to rank checkpoints of which the metric is unknown: the best could be removed.
fn check_metrics(
    job: &JobId,
    rules: &RetentionPolicy,
    candidates: &[RetentionCandidate<CheckpointId>],
) -> Result<(), CliError> {
    let Some(best) = &rules.best else { return Ok(()) };
    let unknown = candidates.iter().filter(|one| !one.metrics.contains_key(&best.metric));
    let unknown: Vec<String> = unknown.map(|one| one.step.to_string()).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    Err(CliError::failure(
        format!(
            "cannot rank the checkpoints of job {job}: {} of {} is not in their plain state (steps {}), and nothing was \
             removed",
            best.metric,
            display_text::count(unknown.len(), "checkpoint"),
            unknown.join(", ")
        ),
        format!(
            "save the number {} in the checkpointed state, or leave --keep-best away; a running job retains its best \
             checkpoints by the losses that its ranks report",
            best.metric
        ),
    ))
}

/// Prints the problems of retained checkpoints, at most [`PROBLEMS_SHOWN`] for each.
fn report_problems(problems: &[StoreProblem], dir: &Path) {
    let mut shown: BTreeMap<_, usize> = BTreeMap::new();
    for problem in problems {
        let count = shown.entry((problem.file.parent(), problem.checkpoint)).or_default();
        *count += 1;
        if *count <= PROBLEMS_SHOWN {
            out::note(&problem.to_string());
        }
    }
    let hidden: usize = shown.values().map(|count| count.saturating_sub(PROBLEMS_SHOWN)).sum();
    if hidden > 0 {
        out::note(&format!(
            "{} more; {} lists all",
            display_text::count(hidden, "problem"),
            folder::command("verify", dir)
        ));
    }
}

/// Result of a collection in one job.
#[derive(Debug)]
struct JobCollection {
    rows: Vec<GcRow>,
    problems: Vec<StoreProblem>,
    /// Number of retained checkpoints of which every byte was read and is as committed.
    verified: usize,
}

/// Extent of a collection.
#[derive(Debug, Clone, Copy)]
struct GcExtent {
    /// True if incomplete checkpoints are removed that their job might complete if it ran.
    torn: bool,
    dry_run: bool,
}

impl From<&GcArgs> for GcExtent {
    fn from(args: &GcArgs) -> Self {
        Self {
            torn: args.torn,
            dry_run: args.dry_run,
        }
    }
}

/// Collects the checkpoints of a job. Before anything is removed, the newest checkpoints to retain are read: wrong bytes
/// must not take the place of the only checkpoint that restores.
fn collect(
    store: &Store,
    job: &JobId,
    rules: &RetentionPolicy,
    candidates: &[RetentionCandidate<CheckpointId>],
    extent: GcExtent,
) -> Result<JobCollection, StoreError> {
    let why = retained_checkpoints(rules, candidates);
    let pinned: Vec<CheckpointId> = why.keys().copied().collect();
    let mut plan = retention::plan(store, job, rules.last, &pinned, VerifyDepth::Names)?;
    if !plan.checkpoints.is_empty() {
        plan = retention::plan(store, job, rules.last, &pinned, VerifyDepth::Bytes)?;
    }
    let verified = plan.verified.len();
    let mut rows = rows_of(store, job, &plan, &why, extent)?;
    if extent.dry_run {
        let problems = plan.problems;
        return Ok(JobCollection {
            rows,
            problems,
            verified,
        });
    }
    let incomplete = plan.incomplete.clone();
    let mut collected = retention::carry_out(store, job, plan)?;
    if extent.torn {
        let ended = retention::remove_incomplete(store, job, &|id| incomplete.contains(&id))?;
        collected.torn.extend(ended.torn);
        collected.problems.extend(ended.problems);
    }
    let removed = collected.checkpoints.iter().chain(&collected.superseded);
    let removed: BTreeSet<CheckpointId> = removed.chain(&collected.torn).copied().collect();
    for row in rows.iter_mut().filter(|row| row.what == "removable") {
        let id = CheckpointId {
            step: rankguard_model::Step(row.step),
            generation: rankguard_model::Generation(row.generation),
        };
        if removed.contains(&id) {
            row.what = "removed";
        } else {
            let why = "in use or being written, or other checkpoints share its chunks";
            (row.what, row.why) = ("retained", why.to_owned());
        }
    }
    Ok(JobCollection {
        rows,
        problems: collected.problems,
        verified,
    })
}

fn rows_of(
    store: &Store,
    job: &JobId,
    plan: &CollectionPlan,
    why: &BTreeMap<CheckpointId, BTreeSet<RetentionReason>>,
    extent: GcExtent,
) -> Result<Vec<GcRow>, StoreError> {
    let row = |id: CheckpointId, what, why: String| {
        Ok(GcRow {
            job: job.clone(),
            step: id.step.0,
            generation: id.generation.0,
            what,
            why,
            bytes: size_of(&store.dir(job, id)?),
        })
    };
    let attempts = store.attempts(job)?;
    let damaged: BTreeSet<CheckpointId> = plan.problems.iter().filter_map(|problem| problem.checkpoint).collect();
    let named = |id: &CheckpointId| {
        let mut reasons: Vec<&str> = why.get(id).into_iter().flatten().map(|why| reason(*why)).collect();
        if damaged.contains(id) {
            reasons.push(DAMAGED);
        } else if reasons.is_empty() && attempts.is_superseded(*id) {
            reasons.push("superseded by an attempt that has no usable checkpoint yet");
        } else if reasons.is_empty() {
            // A damaged checkpoint takes a place of the newest ones, but does not count as retained.
            reasons.push("one of the newest that are intact");
        }
        reasons.join(", ")
    };
    let retained = plan.stays.iter().map(|id| row(*id, "retained", named(id)));
    let leased = plan.leased.iter();
    let leased = leased.map(|id| row(*id, "leased", IN_USE.to_owned()));
    let removable = plan.checkpoints.iter();
    let cause = |id: &CheckpointId| {
        if plan.superseded.contains(id) {
            "superseded by an attempt from an earlier step"
        } else {
            "no retention rule matches"
        }
    };
    let removable = removable.map(|id| row(*id, "removable", cause(id).to_owned()));
    let torn = plan.torn.iter();
    let newest = plan.stays.last().copied();
    let torn = torn.map(|id| {
        let why = if newest > Some(*id) {
            "no manifest, and a newer checkpoint is committed"
        } else {
            "no manifest, and a later generation has committed"
        };
        row(*id, "removable", why.to_owned())
    });
    let (outcome, why) = if extent.torn {
        ("removable", ENDED)
    } else {
        ("torn", INCOMPLETE)
    };
    let incomplete = plan.incomplete.iter().map(|id| row(*id, outcome, why.to_owned()));
    let rows: Result<Vec<GcRow>, StoreError> = retained
        .chain(leased)
        .chain(removable)
        .chain(torn)
        .chain(incomplete)
        .collect();
    let mut rows = rows?;
    rows.sort_by_key(|row| (row.step, row.generation));
    Ok(rows)
}

fn reason(why: RetentionReason) -> &'static str {
    match why {
        RetentionReason::Last => "one of the newest",
        RetentionReason::EverySteps => "multiple of --keep-every",
        RetentionReason::EveryTime => "first of its period (--keep-minutes)",
        RetentionReason::Best => "one of the best",
        RetentionReason::Leased => IN_USE,
        RetentionReason::Needed => "other checkpoints share its chunks",
    }
}

/// Lists committed checkpoints as input of the retention rules: write time of the manifest, and the numbers in the
/// small state of rank 0, at the top level or under `metrics`.
fn all(store: &Store, job: &JobId) -> Result<Vec<RetentionCandidate<CheckpointId>>, StoreError> {
    let mut all = Vec::new();
    let attempts = store.attempts(job)?;
    for manifest in store.manifests(job)?.manifests {
        let id = manifest.id();
        if attempts.is_superseded(id) {
            continue;
        }
        let written = std::fs::metadata(store.manifest_path(job, id)?).and_then(|file| file.modified());
        let since = written
            .ok()
            .and_then(|at| at.duration_since(UNIX_EPOCH).ok())
            .unwrap_or_default();
        let state = store.load_index(&manifest, Rank(0)).map(|index| index.state);
        let state = state.unwrap_or_default();
        let mut metrics = BTreeMap::new();
        for numbers in [state.as_object(), state.get("metrics").and_then(|it| it.as_object())] {
            let numbers = numbers.into_iter().flatten();
            metrics.extend(numbers.filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))));
        }
        all.push(RetentionCandidate {
            id,
            step: id.step,
            at: Timestamp(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)),
            metrics,
            needs: Vec::new(),
            leased: false,
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use rankguard_checkpoint::format::{Dtype, Manifest, ShardIndex, TensorBox};
    use rankguard_model::{Generation, MetricGoal, MetricRule, Step};

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
}

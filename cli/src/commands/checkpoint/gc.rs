//! `rankguard checkpoint gc`: applies the retention rules, or lists the result in a dry run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::UNIX_EPOCH;

use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint::retention::{self, CollectionPlan};
use rankguard_checkpoint::{Store, StoreError, StoreProblem};
use rankguard_checkpoint_schedule::retention::{RetentionCandidate, RetentionReason, retained_checkpoints};
use rankguard_model::{JobId, Rank, RetentionPolicy, Timestamp};
use serde::Serialize;

use super::args::GcArgs;
use super::folder::{failed, open, size_of};
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
    /// `stays`, `goes`, `gone` or `leased`.
    what: &'static str,
    why: String,
    /// Size of its files. Chunks that other checkpoints borrow are retained even if the folder is removed.
    bytes: u64,
}

const ROWS: &[TableColumn<GcRow>] = &[
    ("job", |row| row.job.to_string()),
    ("step", |row| row.step.to_string()),
    ("generation", |row| row.generation.to_string()),
    ("what", |row| row.what.to_owned()),
    ("why", |row| row.why.clone()),
    ("size", |row| display_text::bytes(row.bytes)),
    ("bytes", |row| row.bytes.to_string()),
];

pub(super) fn run(args: &GcArgs) -> Result<CommandExit, CliError> {
    let (store, jobs) = open(&args.store.dir, args.store.job.as_deref())?;
    let rules = args.keep.rules();
    let mut rows = Vec::new();
    let mut problems = Vec::new();
    for job in jobs {
        let (of_job, found) = collect(&store, &job, &rules, args.dry_run).map_err(failed)?;
        rows.extend(of_job);
        problems.extend(found);
        uploads::end_unfinished(&store, &job, args.dry_run)?;
    }
    listing::print(args.store.format.format, &rows, ROWS);
    let goes: Vec<&GcRow> = rows.iter().filter(|row| matches!(row.what, "goes" | "gone")).collect();
    let bytes = display_text::bytes(goes.iter().map(|row| row.bytes).sum());
    out::note(&if args.dry_run {
        format!("{} of {} would go, {bytes}", goes.len(), rows.len())
    } else {
        format!("{} of {} went, {bytes}", goes.len(), rows.len())
    });
    for problem in &problems {
        out::note(&problem.to_string());
    }
    Ok(if problems.is_empty() {
        CommandExit::Fine
    } else {
        CommandExit::Finding
    })
}

fn collect(
    store: &Store,
    job: &JobId,
    rules: &RetentionPolicy,
    dry_run: bool,
) -> Result<(Vec<GcRow>, Vec<StoreProblem>), StoreError> {
    let why = retained_checkpoints(rules, &all(store, job)?);
    let pinned: Vec<CheckpointId> = why.keys().copied().collect();
    let plan = retention::plan(store, job, rules.last, &pinned)?;
    let mut rows = rows_of(store, job, &plan, &why)?;
    if dry_run {
        return Ok((rows, plan.problems));
    }
    let collected = retention::carry_out(store, job, plan)?;
    let gone = collected.checkpoints.iter().chain(&collected.superseded);
    let gone: BTreeSet<CheckpointId> = gone.chain(&collected.torn).copied().collect();
    for row in rows.iter_mut().filter(|row| row.what == "goes") {
        let id = CheckpointId {
            step: rankguard_model::Step(row.step),
            generation: rankguard_model::Generation(row.generation),
        };
        if gone.contains(&id) {
            row.what = "gone";
        } else {
            (row.what, row.why) = ("stays", "in use or lent".to_owned());
        }
    }
    Ok((rows, collected.problems))
}

fn rows_of(
    store: &Store,
    job: &JobId,
    plan: &CollectionPlan,
    why: &BTreeMap<CheckpointId, BTreeSet<RetentionReason>>,
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
    let named = |id: &CheckpointId| {
        let reasons = why.get(id).into_iter().flatten().map(|why| reason(*why));
        let reasons = reasons.collect::<Vec<_>>().join(", ");
        match reasons.as_str() {
            "" => "newer than what is kept".to_owned(),
            _ => reasons,
        }
    };
    let stays = plan.stays.iter().map(|id| row(*id, "stays", named(id)));
    let leased = plan.leased.iter();
    let leased = leased.map(|id| row(*id, "leased", "somebody is reading it".to_owned()));
    let goes = plan.checkpoints.iter();
    let cause = |id: &CheckpointId| {
        if plan.superseded.contains(id) {
            "an attempt from an earlier step has replaced it"
        } else {
            "no rule keeps it"
        }
    };
    let goes = goes.map(|id| row(*id, "goes", cause(id).to_owned()));
    let torn = plan.torn.iter();
    let torn = torn.map(|id| row(*id, "goes", "no manifest, and overtaken".to_owned()));
    let rows: Result<Vec<GcRow>, StoreError> = stays.chain(leased).chain(goes).chain(torn).collect();
    let mut rows = rows?;
    rows.sort_by_key(|row| (row.step, row.generation));
    Ok(rows)
}

fn reason(why: RetentionReason) -> &'static str {
    match why {
        RetentionReason::Last => "one of the newest",
        RetentionReason::EverySteps => "a round step",
        RetentionReason::EveryTime => "first of its time",
        RetentionReason::Best => "one of the best",
        RetentionReason::Leased => "somebody is reading it",
        RetentionReason::Needed => "another needs it",
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

    fn told(rows: &[GcRow]) -> Vec<(u64, &'static str, &str)> {
        rows.iter().map(|row| (row.step, row.what, row.why.as_str())).collect()
    }

    #[test]
    fn what_no_rule_keeps_is_told_and_then_goes_and_what_is_read_stays() {
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
        let leased = (10, "leased", "somebody is reading it");
        let stay = [(20, "stays", "one of the best"), (30, "stays", "a round step")];
        let newest = (50, "stays", "one of the newest");
        let (rows, problems) = collect(&store, &job, &rules, true).expect("readable");
        let goes = (40, "goes", "no rule keeps it");
        assert_eq!(told(&rows), [leased, stay[0], stay[1], goes, newest]);
        assert_eq!(
            (problems, store.committed_ids(&job).expect("readable").len()),
            (Vec::new(), 5)
        );

        let (rows, _) = collect(&store, &job, &rules, false).expect("removable");
        let gone = (40, "gone", "no rule keeps it");
        assert_eq!(told(&rows), [leased, stay[0], stay[1], gone, newest]);
        drop(lease);
        let (rows, _) = collect(&store, &job, &rules, false).expect("removable");
        assert_eq!(
            told(&rows),
            [(10, "gone", "no rule keeps it"), stay[0], stay[1], newest]
        );
        assert!(store.lease(&job, read).is_err(), "what is gone cannot be held");
    }
}

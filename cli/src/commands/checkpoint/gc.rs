//! `rankguard checkpoint gc`: applies the retention rules, or predicts the result in a dry run.

mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::UNIX_EPOCH;

use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint::retention::{self, CollectionPlan, CollectionReport};
use rankguard_checkpoint::store::VerifyDepth;
use rankguard_checkpoint::{Store, StoreError, StoreProblem};
use rankguard_checkpoint_schedule::retention::{RetentionCandidate, retained_checkpoints};
use rankguard_console::waiting::WorkNote;
use rankguard_model::{JobId, JobState, JobView, Rank, RetentionPolicy, StatusView, Timestamp};

use super::args::GcArgs;
use super::folder::{self, failed, is_store_of, open};
use super::uploads;
use crate::display_text;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing;
use crate::out;
use rows::{GcExtent, GcRow, ROWS, rows_of};

/// Maximum number of damaged places in the output for one checkpoint.
const PROBLEMS_SHOWN: usize = 3;

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
    let bytes = display_text::bytes(rows.iter().map(|row| row.freed_bytes).sum());
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
    let checkpoints: BTreeSet<CheckpointId> = plan.checkpoints.iter().copied().collect();
    let collected = if extent.dry_run {
        retention::predict(store, job, plan, extent.torn)?
    } else {
        carry_out(store, job, plan, extent)?
    };
    let removed = if extent.dry_run { "removable" } else { "removed" };
    for row in rows.iter_mut().filter(|row| row.what == "removable") {
        let id = row.id();
        row.settle(collected.folders.get(&id), removed, checkpoints.contains(&id));
    }
    Ok(JobCollection {
        rows,
        problems: collected.problems,
        verified,
    })
}

fn carry_out(
    store: &Store,
    job: &JobId,
    plan: CollectionPlan,
    extent: GcExtent,
) -> Result<CollectionReport, StoreError> {
    let incomplete = plan.incomplete.clone();
    let mut collected = retention::carry_out(store, job, plan)?;
    if extent.torn {
        let ended = retention::remove_incomplete(store, job, &|id| incomplete.contains(&id))?;
        collected.folders.extend(ended.folders);
        collected.problems.extend(ended.problems);
    }
    Ok(collected)
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
mod tests;

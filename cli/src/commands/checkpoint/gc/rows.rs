//! Rows of `gc`: the folders of a job with their outcome and its reason.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint::retention::{CollectedFolder, CollectionPlan, FolderOutcome};
use rankguard_checkpoint::{Store, StoreError};
use rankguard_checkpoint_schedule::retention::RetentionReason;
use rankguard_model::{Generation, JobId, Step};
use serde::Serialize;

use crate::commands::checkpoint::folder::size_of;
use crate::display_text;
use crate::listing::TableColumn;

/// Extent of a collection.
#[derive(Debug, Clone, Copy)]
pub(super) struct GcExtent {
    /// True if incomplete checkpoints are removed that their job might complete if it ran.
    pub(super) torn: bool,
    pub(super) dry_run: bool,
}

/// A checkpoint folder of the store and its outcome.
#[derive(Debug, Serialize)]
pub(super) struct GcRow {
    pub(super) job: JobId,
    pub(super) step: u64,
    pub(super) generation: u64,
    /// `retained`, `removable`, `removed`, `leased` or `torn`.
    pub(super) what: &'static str,
    pub(super) why: String,
    /// Size of its files.
    pub(super) bytes: u64,
    /// Size of the files that the collection removes: not of shards with chunks that other checkpoints share.
    pub(super) freed_bytes: u64,
}

pub(super) const ROWS: &[TableColumn<GcRow>] = &[
    ("job", |row| row.job.to_string()),
    ("step", |row| row.step.to_string()),
    ("generation", |row| row.generation.to_string()),
    ("outcome", |row| row.what.to_owned()),
    ("reason", |row| row.why.clone()),
    ("size", |row| display_text::bytes(row.bytes)),
    ("bytes", |row| row.bytes.to_string()),
    ("freed bytes", |row| row.freed_bytes.to_string()),
];

/// Reason of a checkpoint with a reader.
pub(super) const IN_USE: &str = "in use by a reader";

/// Reason of an incomplete checkpoint that is left.
pub(super) const INCOMPLETE: &str =
    "no manifest; a running job may complete it, and --torn removes it once the job has ended";

/// Reason of an incomplete checkpoint of a job that has ended.
pub(super) const ENDED: &str = "no manifest, and its job has ended (--torn)";

/// Reason of a retained checkpoint that is damaged.
const DAMAGED: &str = "damaged and left for inspection";

/// Reason of a folder of a checkpoint that was removed before.
pub(super) const LENDS: &str = "removed before, except shards with chunks that other checkpoints share";

impl GcRow {
    pub(super) fn id(&self) -> CheckpointId {
        CheckpointId {
            step: Step(self.step),
            generation: Generation(self.generation),
        }
    }

    /// Records the outcome of the collection; `removed` is the word for a removal. `is_checkpoint` is true if the folder
    /// had a manifest.
    pub(super) fn settle(&mut self, found: Option<&CollectedFolder>, removed: &'static str, is_checkpoint: bool) {
        self.freed_bytes = found.map_or(0, |found| found.freed_bytes);
        let retained = match found.map(|found| found.outcome) {
            Some(FolderOutcome::Removed) => None,
            Some(FolderOutcome::Lends) if is_checkpoint => {
                self.why
                    .push_str("; shards with chunks that other checkpoints share remain");
                None
            }
            Some(FolderOutcome::Lends) => Some(LENDS),
            Some(FolderOutcome::HoldsForeignFiles) if self.freed_bytes > 0 => {
                self.why
                    .push_str("; files that are not of a checkpoint remain in its folder");
                None
            }
            Some(FolderOutcome::HoldsForeignFiles) => Some("files that are not of a checkpoint are in its folder"),
            Some(FolderOutcome::InUse) => Some("in use or being written, or it has chunks or files of others"),
            Some(FolderOutcome::Failed) => Some("it cannot be removed"),
            None => Some("another attempt of the job began meanwhile"),
        };
        match retained {
            None => self.what = removed,
            Some(why) => (self.what, self.why) = ("retained", why.to_owned()),
        }
    }
}

/// Lists the folders of a job, oldest first, as planned.
pub(super) fn rows_of(
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
            freed_bytes: 0,
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
    let incomplete = plan.incomplete.iter().map(|id| {
        if !extent.torn && store.is_borrowed_from(job, *id)? {
            return row(*id, "retained", LENDS.to_owned());
        }
        row(*id, outcome, why.to_owned())
    });
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

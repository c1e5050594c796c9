//! `rankguard checkpoint show`: content of a checkpoint, from its manifest and indexes.

use rankguard_checkpoint::format::{AttemptSet, CheckpointId};
use rankguard_checkpoint_exchange::show::{CheckpointSummary, OriginSummary, RankSummary, TensorSummary, show};
use rankguard_model::Generation;
use serde::Serialize;

use super::args::{ShowArgs, ShowContent};
use super::{folder, pick};
use crate::args::OutputFormat;
use crate::display_text;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::out;

const TENSORS: &[TableColumn<TensorSummary>] = &[
    ("tensor", |tensor| tensor.name.clone()),
    ("type", |tensor| tensor.dtype.to_string()),
    ("shape", |tensor| pick::shape(&tensor.shape)),
    ("boxes", |tensor| tensor.boxes.to_string()),
    ("ranks", |tensor| pick::runs(&tensor.ranks)),
    ("size", |tensor| display_text::bytes(tensor.bytes)),
    ("bytes", |tensor| tensor.bytes.to_string()),
    ("held bytes", |tensor| tensor.held_bytes.to_string()),
    ("differs", |tensor| tensor.differs.clone().unwrap_or_default()),
];

const RANKS: &[TableColumn<RankSummary>] = &[
    ("rank", |rank| rank.rank.to_string()),
    ("tensors", |rank| rank.tensors.to_string()),
    ("image", |rank| display_text::bytes(rank.image_bytes)),
    ("stored", |rank| display_text::bytes(rank.stored_bytes)),
    ("chunks", |rank| rank.chunks.to_string()),
    ("borrowed", |rank| rank.borrowed_chunks.to_string()),
    ("schema", |rank| rank.schema.clone()),
    ("state", |rank| rank.state.to_string()),
];

const ORIGINS: &[TableColumn<OriginSummary>] = &[
    ("checkpoint", |origin| origin.checkpoint.clone()),
    ("rank", |origin| origin.rank.to_string()),
    ("chunks", |origin| origin.chunks.to_string()),
    ("size", |origin| display_text::bytes(origin.bytes)),
    ("bytes", |origin| origin.bytes.to_string()),
];

/// A checkpoint and its place among the attempts of its run.
#[derive(Serialize)]
struct InRun {
    #[serde(flatten)]
    shown: CheckpointSummary,
    /// `committed` or `superseded`, as in `ls`.
    state: &'static str,
    /// First generation of the attempt that wrote it.
    attempt: Option<Generation>,
    /// First generation of the attempt that started from an earlier step.
    superseded_by: Option<Generation>,
}

impl InRun {
    fn new(shown: CheckpointSummary, id: CheckpointId, attempts: &AttemptSet) -> Self {
        let superseded_by = attempts.superseded_by(id);
        Self {
            shown,
            state: if superseded_by.is_some() {
                "superseded"
            } else {
                "committed"
            },
            attempt: attempts.attempt_with(id.generation),
            superseded_by,
        }
    }

    /// Returns run, attempt and state in one line.
    fn summary(&self) -> String {
        let run = self
            .shown
            .run
            .as_ref()
            .map_or("no run".to_owned(), |run| format!("run {run}"));
        let attempt = self.attempt.map_or(String::new(), |first| {
            format!(", attempt that began at generation {first}")
        });
        let state = match self.superseded_by {
            Some(first) => format!("superseded: an attempt from an earlier step began at generation {first}"),
            None => self.state.to_owned(),
        };
        format!("{run}{attempt}; {state}")
    }
}

pub(super) fn run(args: &ShowArgs) -> Result<CommandExit, CliError> {
    let picked = pick::job(&args.store.dir, args.store.job.as_deref(), &[args.which])?;
    let checkpoint = picked.load(args.which)?;
    let attempts = picked.store.attempts(&picked.job).map_err(folder::failed)?;
    let in_run = InRun::new(show(&checkpoint), checkpoint.manifest.id(), &attempts);
    let shown = &in_run.shown;
    match (args.store.format.format, args.list) {
        (OutputFormat::Json, _) => out::json(&in_run),
        (format, ShowContent::Tensors) => listing::print(format, &shown.tensors, TENSORS),
        (format, ShowContent::Ranks) => listing::print(format, &shown.ranks, RANKS),
        (format, ShowContent::Origins) => listing::print(format, &shown.origins, ORIGINS),
    }
    let ratio = shown.dedupe_ratio.map(|ratio| format!(", each used {ratio:.2} times"));
    out::note(&format!(
        "job {}, checkpoint {}: {}, {} on {}; {} of images, {} in its own files{}",
        shown.job,
        shown.checkpoint,
        display_text::count(shown.tensors.len(), "tensor"),
        display_text::bytes(shown.tensor_bytes),
        display_text::count(shown.world_size as usize, "rank"),
        display_text::bytes(shown.image_bytes),
        display_text::bytes(shown.stored_bytes),
        ratio.unwrap_or_default()
    ));
    out::note(&in_run.summary());
    Ok(CommandExit::Fine)
}

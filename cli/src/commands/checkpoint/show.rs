//! `rankguard checkpoint show`: content of a checkpoint, from its manifest and indexes.

use rankguard_checkpoint_exchange::show::{OriginSummary, RankSummary, TensorSummary, show};

use super::args::{ShowArgs, ShowContent};
use super::pick;
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

pub(super) fn run(args: &ShowArgs) -> Result<CommandExit, CliError> {
    let picked = pick::job(&args.store.dir, args.store.job.as_deref(), &[args.which])?;
    let shown = show(&picked.load(args.which)?);
    match (args.store.format.format, args.list) {
        (OutputFormat::Json, _) => out::json(&shown),
        (format, ShowContent::Tensors) => listing::print(format, &shown.tensors, TENSORS),
        (format, ShowContent::Ranks) => listing::print(format, &shown.ranks, RANKS),
        (format, ShowContent::Origins) => listing::print(format, &shown.origins, ORIGINS),
    }
    let ratio = shown.dedupe_ratio.map(|ratio| format!(", each used {ratio:.2} times"));
    out::note(&format!(
        "job {}, checkpoint {}: {} tensors, {} on {} ranks; {} of images, {} in its own files{}",
        shown.job,
        shown.checkpoint,
        shown.tensors.len(),
        display_text::bytes(shown.tensor_bytes),
        shown.world_size,
        display_text::bytes(shown.image_bytes),
        display_text::bytes(shown.stored_bytes),
        ratio.unwrap_or_default()
    ));
    Ok(CommandExit::Fine)
}

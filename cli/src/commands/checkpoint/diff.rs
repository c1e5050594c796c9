//! `rankguard checkpoint diff`: compares two checkpoints.

use rankguard_checkpoint_exchange::diff::{ChangedTensor, TensorType, diff};

use super::args::DiffArgs;
use super::pick;
use crate::args::OutputFormat;
use crate::display_text::{self, or_empty};
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::out;

const DIFFERENCES: &[TableColumn<ChangedTensor>] = &[
    ("tensor", |one| one.name.clone()),
    ("change", |one| one.change.name().to_owned()),
    ("before", |one| kind(one.before.as_ref())),
    ("after", |one| kind(one.after.as_ref())),
    ("chunks", |one| or_empty(one.chunks)),
    ("changed chunks", |one| or_empty(one.changed_chunks)),
    ("changed elements", |one| or_empty(one.changed_elements)),
    ("max abs", |one| or_empty(one.max_abs)),
    ("not finite", |one| or_empty(one.not_finite)),
];

fn kind(kind: Option<&TensorType>) -> String {
    or_empty(kind.map(|kind| format!("{} {}", kind.dtype, pick::shape(&kind.shape))))
}

pub(super) fn run(args: &DiffArgs) -> Result<CommandExit, CliError> {
    let picked = pick::job(&args.store.dir, args.store.job.as_deref(), &[args.before, args.after])?;
    let before = picked.load(args.before)?;
    let after = picked.load(args.after)?;
    let mut progress = pick::progress("tensors compared", |count| count.to_string());
    let found = diff(&picked.store, &before, &after, args.values, &mut progress).map_err(|problem| {
        pick::exchange(
            "cannot compare the checkpoints",
            &args.store.dir,
            Some(args.before),
            problem,
        )
    })?;
    match args.store.format.format {
        OutputFormat::Json => out::json(&found),
        format => listing::print(format, &found.differences, DIFFERENCES),
    }
    let mut indexes = before.indexes.iter().chain(after.indexes.iter());
    let has_no_states = indexes.all(|index| index.state.is_null());
    let states = match found.states.as_slice() {
        [] if has_no_states => "no non-tensor states".to_owned(),
        [] => "equal non-tensor states".to_owned(),
        ranks => format!("different non-tensor states on ranks {}", pick::runs(ranks)),
    };
    out::note(&format!(
        "{} and {}: {} equal, {} different; {states}",
        before.id(),
        after.id(),
        display_text::count(usize::try_from(found.same).unwrap_or(usize::MAX), "tensor"),
        found.differences.len()
    ));
    let is_same = found.differences.is_empty() && found.states.is_empty();
    Ok(if is_same {
        CommandExit::Fine
    } else {
        CommandExit::Finding
    })
}

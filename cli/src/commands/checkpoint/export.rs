//! `rankguard checkpoint export`: a checkpoint for programs that know nothing of this one.

use rankguard_checkpoint_exchange::safetensors::{ExportOf, export};

use super::args::{ExportArgs, ExportFormat};
use super::pick;
use crate::error::CliError;
use crate::exit::Exit;
use crate::out;
use crate::words;

pub(super) fn run(args: &ExportArgs) -> Result<Exit, CliError> {
    let ExportFormat::Safetensors = args.format;
    let picked = pick::job(&args.dir, args.job.as_deref(), &[args.which])?;
    let checkpoint = picked.load(args.which)?;
    let of = ExportOf {
        out: &args.out,
        file_bytes: args.file_bytes,
    };
    let mut progress = pick::progress("written", pick::bytes);
    let done = export(&picked.store, &checkpoint, &of, &mut progress)
        .map_err(|problem| pick::exchange(&format!("cannot export checkpoint {}", checkpoint.id()), problem))?;
    done.files
        .iter()
        .for_each(|file| out::line(&file.display().to_string()));
    done.repairs.iter().for_each(|repair| out::note(repair));
    for problem in &done.problems {
        out::note(&format!("{}: {}", problem.entry, problem.what));
    }
    out::note(&format!(
        "checkpoint {}: {} tensors, {}",
        checkpoint.id(),
        done.tensors,
        words::bytes(done.bytes)
    ));
    let is_whole = done.repairs.is_empty() && done.problems.is_empty();
    Ok(if is_whole { Exit::Fine } else { Exit::Finding })
}

//! `rankguard checkpoint export`: writes a checkpoint in a format of other programs.

use std::path::Path;

use rankguard_checkpoint_exchange::{ExportRequest, NameSelection, dcp, safetensors, torch_file};

use super::args::{ExportArgs, ExportFormat};
use super::pick;
use crate::display_text;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::out;

/// File extensions that `torch.load` reads.
const TORCH_ENDINGS: [&str; 4] = ["pt", "pth", "bin", "ckpt"];

pub(super) fn run(args: &ExportArgs) -> Result<CommandExit, CliError> {
    let format = chosen_format(args.format, &args.out)?;
    let picked = pick::job(&args.dir, args.job.as_deref(), &[args.which])?;
    let checkpoint = picked.load(args.which)?;
    let request = ExportRequest {
        out: &args.out,
        file_bytes: args.file_bytes,
        selection: NameSelection::new(args.prefix.clone().unwrap_or_default(), args.strip_prefix),
        is_replacing: args.force,
    };
    let mut progress = pick::progress("written", pick::bytes);
    let export = match format {
        ExportFormat::Safetensors => safetensors::export,
        ExportFormat::Torch => torch_file::export,
        ExportFormat::Dcp => dcp::export,
    };
    let done = export(&picked.store, &checkpoint, &request, &mut progress).map_err(|problem| {
        let what = format!("cannot export checkpoint {}", checkpoint.id());
        pick::exchange(&what, &args.dir, Some(args.which), problem)
    })?;
    done.files
        .iter()
        .for_each(|file| out::line(&file.display().to_string()));
    done.repairs.iter().for_each(|repair| out::note(repair));
    for problem in &done.problems {
        out::note(&format!("{}: {}", problem.entry, problem.what));
    }
    out::note(&format!(
        "checkpoint {}: {}, {}",
        checkpoint.id(),
        display_text::count(usize::try_from(done.tensors).unwrap_or(usize::MAX), "tensor"),
        display_text::bytes(done.bytes)
    ));
    let is_whole = done.repairs.is_empty() && done.problems.is_empty();
    Ok(if is_whole {
        CommandExit::Fine
    } else {
        CommandExit::Finding
    })
}

/// Returns the requested format, or that of the target's extension; rejects a target that does not fit.
fn chosen_format(format: Option<ExportFormat>, out: &Path) -> Result<ExportFormat, CliError> {
    let ending = out.extension().and_then(|ending| ending.to_str()).unwrap_or("");
    let named = if TORCH_ENDINGS.contains(&ending) {
        Some(ExportFormat::Torch)
    } else if ending == "safetensors" {
        Some(ExportFormat::Safetensors)
    } else {
        None
    };
    let format = format.or(named).unwrap_or(ExportFormat::Safetensors);
    let is_dir = out.is_dir();
    let shown = out.display();
    let (cause, hint) = match (format, named) {
        (_, Some(named)) if named != format => (
            format!("--out {shown} has the extension of another format"),
            "use --format torch for .pt, safetensors for .safetensors, and a name without these extensions for dcp",
        ),
        (ExportFormat::Torch, _) if is_dir => (
            format!("--out {shown} is a directory, but torch.load reads a file"),
            "set --out to a file such as model.pt",
        ),
        (ExportFormat::Safetensors, Some(_)) if is_dir => (
            format!("--out {shown} is a directory, but has the extension of a file"),
            "choose a path that does not exist",
        ),
        (ExportFormat::Dcp, _) if out.is_file() => (
            format!("--out {shown} is a file, but torch.distributed.checkpoint reads a directory"),
            "set --out to a directory",
        ),
        _ => return Ok(format),
    };
    Err(CliError::usage(cause, hint))
}

//! `rankguard checkpoint ls|verify|explain`: reads a store and never writes to it. `ls` and `verify` accept a directory
//! or the URL of an object store, `explain` a directory only. A controller is not required.

use std::fs;
use std::path::Path;

use rankguard_checkpoint::Store;
use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint::retention;
use rankguard_checkpoint::verify::{VerifiedCheckpoint, VerifyReport, verify};
use rankguard_console::waiting::WorkNote;
use rankguard_model::{JobId, JobState, StatusView, Step};
use serde::Serialize;

use super::folder::{self, failed, is_store_of, nothing_at, open, size_of};
use super::rows::{FOLDERS, FOUND, FindingRow, FolderRow, findings};
use super::{StoreArgs, memory, remote, url};
use crate::display_text;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing;
use crate::out;

/// Prints the checkpoint folders of a store: committed, torn and damaged ones, and those with shared chunks. Returns the finding exit if one is
/// damaged.
pub(super) fn ls(args: &StoreArgs) -> Result<CommandExit, CliError> {
    let folders = match url::url(&args.dir) {
        Some(url) => {
            let _work = WorkNote::start("listing checkpoints");
            remote::ls(url, args)?
        }
        None => folders(args)?,
    };
    listing::print(args.format.format, &folders, FOLDERS);
    if folders.is_empty() {
        out::note("no checkpoints");
    }
    let damaged = folders.iter().any(FolderRow::is_damaged);
    Ok(if damaged {
        CommandExit::Finding
    } else {
        CommandExit::Fine
    })
}

/// Lists the checkpoint folders of a store on disk, for each job from oldest to newest.
fn folders(args: &StoreArgs) -> Result<Vec<FolderRow>, CliError> {
    let (store, jobs) = open(&args.dir, args.job.as_deref())?;
    let mut folders = Vec::new();
    for job in jobs {
        let listing = store.manifests(&job).map_err(failed)?;
        let attempts = store.attempts(&job).map_err(failed)?;
        let committed = listing.manifests.iter();
        let bytes = |id| store.dir(&job, id).ok().map(|dir| size_of(&dir));
        let mut of_job: Vec<FolderRow> = committed
            .map(|manifest| FolderRow::committed(&job, manifest, bytes(manifest.id())).among(&attempts))
            .collect();
        of_job.extend(listing.torn.iter().map(|id| FolderRow::torn(&job, *id, bytes(*id))));
        of_job.extend(
            listing
                .borrowed
                .iter()
                .map(|id| FolderRow::borrowed(&job, *id, bytes(*id))),
        );
        of_job.extend(listing.problems.iter().filter_map(|problem| {
            let id = problem.checkpoint?;
            Some(FolderRow::damaged(&job, id, problem.to_string()))
        }));
        of_job.sort_by_key(FolderRow::place);
        folders.extend(of_job);
    }
    Ok(folders)
}

/// Verifies all checkpoints, or those of one step, and prints the findings. Returns the finding exit if there are
/// problems or no checkpoints, and an error if `step` has no checkpoint.
pub(super) fn check(args: &StoreArgs, step: Option<Step>) -> Result<CommandExit, CliError> {
    let (found, intact, problems) = match url::url(&args.dir) {
        Some(url) => {
            let _work = WorkNote::start("verifying checkpoints");
            remote::verify(url, args, step)?
        }
        None => verified(args, step)?,
    };
    if let (Some(step), true) = (step, found.is_empty()) {
        return Err(nothing_at(step, args));
    }
    listing::print(args.format.format, &found, FOUND);
    if found.is_empty() {
        // A finding, because a mistyped prefix of an object store has no objects either.
        out::note("no checkpoints to verify");
        return Ok(CommandExit::Finding);
    }
    let problems_text = display_text::count(problems, "problem");
    let incomplete = match found.iter().filter(|row| row.is_torn()).count() {
        0 => String::new(),
        count => format!(", {count} incomplete"),
    };
    out::note(&format!("{intact} intact, {problems_text}{incomplete}"));
    Ok(if problems == 0 {
        CommandExit::Fine
    } else {
        CommandExit::Finding
    })
}

/// Verifies every byte of a store on disk, or of one step; returns the findings, and the numbers of intact checkpoints
/// and problems.
fn verified(args: &StoreArgs, step: Option<Step>) -> Result<(Vec<FindingRow>, usize, usize), CliError> {
    let (store, jobs) = open(&args.dir, args.job.as_deref())?;
    let mut found = Vec::new();
    let mut intact = 0;
    let mut problems = 0;
    let _work = WorkNote::start("verifying checkpoints");
    for job in jobs {
        let report = verify(&store, &job, step).map_err(failed)?;
        problems += report.problems.len();
        intact += report.checkpoints.iter().filter(|checkpoint| checkpoint.intact).count();
        found.extend(findings(&job, &report));
    }
    Ok((found, intact, problems))
}

/// Usability of a checkpoint, with reasons.
#[derive(Serialize)]
struct UsabilityReport {
    job: JobId,
    checkpoint: String,
    /// True if a restore accepts it: it is committed and intact.
    usable: bool,
    /// Sentences: damage, or checks that passed, and copies in memory.
    why: Vec<String>,
}

/// Prints whether the checkpoints of a step can be used, with reasons; `status` adds the copies in memory. Returns the
/// finding exit if one of them cannot be used, and an error if there is none.
pub(super) fn explain(args: &StoreArgs, step: Step, status: Option<&StatusView>) -> Result<CommandExit, CliError> {
    let work = WorkNote::start("verifying the checkpoint");
    let all = usability_reports(args, step, status)?;
    drop(work);
    if all.is_empty() {
        return Err(nothing_at(step, args));
    }
    match args.format.format {
        crate::args::OutputFormat::Table => {
            for one in &all {
                let word = if one.usable { "can be used" } else { "cannot be used" };
                let why = one.why.iter().map(|why| format!("  {why}\n"));
                let page = format!("job {}, checkpoint {}: {word}\n", one.job, one.checkpoint);
                out::page(&(page + &why.collect::<String>()));
            }
        }
        format => listing::print(
            format,
            &all,
            &[
                ("job", |one| one.job.to_string()),
                ("checkpoint", |one| one.checkpoint.clone()),
                ("usable", |one| one.usable.to_string()),
                ("why", |one| one.why.join("; ")),
            ],
        ),
    }
    Ok(if all.iter().all(|one| one.usable) {
        CommandExit::Fine
    } else {
        CommandExit::Finding
    })
}

/// Explains the checkpoints of a step, for each job of the store.
fn usability_reports(
    args: &StoreArgs,
    step: Step,
    status: Option<&StatusView>,
) -> Result<Vec<UsabilityReport>, CliError> {
    let (store, jobs) = open(&args.dir, args.job.as_deref())?;
    let mut all = Vec::new();
    for job in jobs {
        let report = verify(&store, &job, Some(step)).map_err(failed)?;
        let attempts = store.attempts(&job).map_err(failed)?;
        for id in &report.torn {
            let mut report = torn(&store, &job, *id, &args.dir, state_in(status, &job, &args.dir))?;
            report.why.extend(parity_hint(&store, &job, *id));
            all.push(report);
        }
        for checkpoint in &report.checkpoints {
            let mut why = verified_reasons(&store, &job, checkpoint, &report)?;
            let memory = status.map(|status| memory::memory_lines(status, &job, checkpoint.id));
            why.extend(memory.into_iter().flatten());
            why.extend(attempts.superseded_by(checkpoint.id).map(|first| {
                format!(
                    "it is superseded by the attempt that began at generation {first}: its own run does not start from it \
                     and removes it after the next commit; another run can start from it"
                )
            }));
            all.push(UsabilityReport {
                job: job.clone(),
                checkpoint: checkpoint.id.to_string(),
                usable: checkpoint.intact,
                why,
            });
        }
    }
    Ok(all)
}

/// Lists the damage of a committed checkpoint, or the reasons why it can be used, and its limits.
fn verified_reasons(
    store: &Store,
    job: &JobId,
    checkpoint: &VerifiedCheckpoint,
    report: &VerifyReport,
) -> Result<Vec<String>, CliError> {
    let problems = report.problems.iter();
    let damage = problems.filter(|problem| problem.checkpoint == Some(checkpoint.id));
    let mut why: Vec<String> = damage.map(ToString::to_string).collect();
    if why.is_empty() {
        why = reasons(store, job, checkpoint.id, checkpoint.chunks)?;
    }
    why.extend(differing_tensors(&checkpoint.differing, checkpoint.world_size));
    if !checkpoint.intact {
        why.extend(parity_hint(store, job, checkpoint.id));
    }
    Ok(why)
}

/// Names the tensors for which another number of ranks refuses a checkpoint.
fn differing_tensors(tensors: &[String], world_size: u32) -> Option<String> {
    let verb = if tensors.len() == 1 { "differs" } else { "differ" };
    let ranks = display_text::count(world_size as usize, "rank");
    let count = display_text::count(tensors.len(), "tensor");
    (!tensors.is_empty()).then(|| {
        format!(
            "{count} {verb} between ranks ({}): {ranks} restore the checkpoint, another number requires \
             restore(..., replicate=[...])",
            tensors.join(", ")
        )
    })
}

/// Names the command that rebuilds damage from parity, if the checkpoint has parity.
fn parity_hint(store: &Store, job: &JobId, id: CheckpointId) -> Option<String> {
    let command = store.parity_repair(job, id)?;
    Some(format!("it has parity: `{command}` rebuilds what that covers"))
}

/// Lists the reasons why an intact checkpoint can be used.
fn reasons(store: &Store, job: &JobId, id: CheckpointId, chunks: u64) -> Result<Vec<String>, CliError> {
    let manifest = store.manifest(job, id).map_err(failed)?;
    let mut why = vec![
        format!(
            "its manifest lists every shard ({})",
            display_text::count(manifest.world_size as usize, "shard")
        ),
        "the digest of every index matches the manifest".to_owned(),
        format!(
            "the digests of {} ({}) match their indexes",
            display_text::count(usize::try_from(chunks).unwrap_or(usize::MAX), "chunk"),
            display_text::bytes(manifest.bytes())
        ),
    ];
    why.extend(
        manifest
            .parent
            .map(|(step, generation)| format!("it continues from step {step} of generation {generation}")),
    );
    Ok(why)
}

/// Returns the state of the job that writes to a store; `None` if the controller was not asked, or does not have it.
fn state_in(status: Option<&StatusView>, job: &JobId, dir: &Path) -> Option<JobState> {
    let mut jobs = status?.jobs.iter();
    let view = jobs.find(|view| view.spec.id == *job && is_store_of(view, dir))?;
    Some(view.state)
}

/// Returns what becomes of an incomplete checkpoint that is the newest of its job.
fn fate(job: &JobId, of_store: &Path, state: Option<JobState>) -> String {
    let collection = folder::command(&format!("gc --torn --dry-run --job={job}"), of_store);
    let removal = format!("{collection} lists it, with all that the same command without --dry-run removes");
    match state {
        Some(state @ (JobState::Finished | JobState::Stopped)) => format!(
            "its job has ended ({}), so it is never completed; {removal}",
            display_text::job_state(state)
        ),
        Some(state) => format!(
            "its job ({}) may still complete it, and removes this folder once a newer checkpoint is committed",
            display_text::job_state(state)
        ),
        None => format!(
            "if its job runs, the job may still complete it, and removes this folder once a newer checkpoint is committed; \
             if the job has ended, {removal}"
        ),
    }
}

/// Explains why a folder without a manifest cannot be used, with the files in it.
fn torn(
    store: &Store,
    job: &JobId,
    id: CheckpointId,
    of_store: &Path,
    state: Option<JobState>,
) -> Result<UsabilityReport, CliError> {
    let dir = store.dir(job, id).map_err(failed)?;
    let names = |ending: &str| {
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.file_name().to_string_lossy().ends_with(ending))
            .count()
    };
    let committed = store.committed_ids(job).map_err(failed)?;
    let removal = if committed.iter().any(|other| *other > id) {
        "a newer checkpoint is committed, so the next collection may remove this folder".to_owned()
    } else if retention::is_fenced(store, job, id).map_err(failed)? {
        "a later generation has committed, so it is never committed, and the next collection removes this folder"
            .to_owned()
    } else {
        fate(job, of_store, state)
    };
    let why = vec![
        "it has no manifest: it was not committed (a save ended early, or is still being written), or its manifest was \
         removed or lost"
            .to_owned(),
        format!(
            "{} and {} in {}, {} in total",
            display_text::count(names(".shard"), "shard"),
            display_text::count(names(".index"), "index"),
            dir.display(),
            display_text::bytes(size_of(&dir))
        ),
        removal,
    ];
    Ok(UsabilityReport {
        job: job.clone(),
        checkpoint: id.to_string(),
        usable: false,
        why,
    })
}

#[cfg(test)]
mod tests {
    use rankguard_checkpoint::format::{Dtype, Manifest, ShardIndex, TensorBox};
    use rankguard_model::{Generation, Rank};

    use super::*;
    use crate::args::{FormatArgs, OutputFormat};

    /// Two ranks save other values under one name: another number of ranks refuses the checkpoint.
    #[test]
    fn tensors_that_differ_by_rank_are_explained() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let store = Store::open(dir.path()).expect("a store");
        let job = JobId::from("clash");
        let id = CheckpointId {
            step: Step(40),
            generation: Generation(1),
        };
        let seals = [0, 1].map(|rank| {
            let (tensors, _) = ShardIndex::lay_out([TensorBox::whole("w", Dtype::U8, vec![64])]);
            let mut index = ShardIndex {
                rank: Rank(rank),
                world_size: 2,
                image_bytes: 64,
                tensors,
                ..ShardIndex::new(&job, id)
            };
            let image = [rank as u8; 64];
            index.digest_image(&image);
            store.write_shard(&index, &image.as_slice()).expect("room").seal
        });
        let manifest = Manifest::from_seals(&job, id, None, &seals).expect("whole");
        store.commit(&manifest).expect("committed");
        let args = StoreArgs {
            dir: dir.path().to_owned(),
            job: None,
            format: FormatArgs {
                format: OutputFormat::Table,
            },
        };
        let reports = usability_reports(&args, Step(40), None).expect("readable");
        let why = reports[0].why.join("\n");
        assert!(reports[0].usable);
        assert!(
            why.contains("1 tensor differs between ranks (w): 2 ranks restore the checkpoint, another number requires"),
            "{why}"
        );
    }
}

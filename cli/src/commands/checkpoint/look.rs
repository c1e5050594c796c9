//! `rankguard checkpoint ls|verify|explain`: a store on disk, read without a controller and never written.

use std::fs;
use std::path::Path;

use rankguard_checkpoint::format::{CheckpointId, Manifest};
use rankguard_checkpoint::verify::{Report, verify};
use rankguard_checkpoint::{Problem, Store, StoreError};
use rankguard_model::{JobId, StatusView, Step};
use serde::Serialize;

use super::{StoreArgs, memory, remote};
use crate::error::CliError;
use crate::exit::Exit;
use crate::listing::{self, Column};
use crate::out;
use crate::words::{self, or_dash};

/// A store that can be read, and the jobs that were asked for.
pub(super) fn open(dir: &Path, job: Option<&str>) -> Result<(Store, Vec<JobId>), CliError> {
    if let Some(url) = remote::url(dir) {
        return Err(remote::refuse(url));
    }
    read_folder(
        dir,
        "--dir names the directory that `rankguard run --checkpoint-dir` was given",
    )?;
    let store = Store::at(dir);
    let jobs = store.jobs().map_err(failed)?;
    match job.map(JobId::from) {
        None => Ok((store, jobs)),
        Some(job) if jobs.contains(&job) => Ok((store, vec![job])),
        Some(job) => {
            let known: Vec<&str> = jobs.iter().map(JobId::as_str).collect();
            let what = format!("the store {} has no job {job}", dir.display());
            Err(CliError::failure(
                what,
                format!(
                    "it has: {}",
                    if known.is_empty() {
                        "none".into()
                    } else {
                        known.join(", ")
                    }
                ),
            ))
        }
    }
}

/// Refuses what is no folder that can be read.
pub(super) fn read_folder(dir: &Path, hint: &'static str) -> Result<(), CliError> {
    let read = fs::read_dir(dir).map(drop);
    read.map_err(|problem| {
        CliError::failure(format!("cannot read the checkpoint store {}", dir.display()), hint).because(problem)
    })
}

pub(super) fn failed(problem: StoreError) -> CliError {
    CliError::failure("cannot read the checkpoint store", "may this user read all of it?").because(problem)
}

/// A folder of the store.
#[derive(Serialize)]
pub(super) struct Folder {
    job: JobId,
    step: Step,
    generation: u64,
    /// `committed`, `torn` or `damaged`.
    state: &'static str,
    world_size: Option<u32>,
    bytes: Option<u64>,
    what: Option<String>,
}

const FOLDERS: &[Column<Folder>] = &[
    ("job", |folder| folder.job.to_string()),
    ("step", |folder| folder.step.to_string()),
    ("generation", |folder| folder.generation.to_string()),
    ("state", |folder| folder.state.to_owned()),
    ("ranks", |folder| or_dash(folder.world_size)),
    ("size", |folder| or_dash(folder.bytes.map(words::bytes))),
    ("bytes", |folder| or_dash(folder.bytes)),
    ("note", |folder| folder.what.clone().unwrap_or_default()),
];

impl Folder {
    fn new(job: &JobId, id: CheckpointId, state: &'static str) -> Self {
        Self {
            job: job.clone(),
            step: id.step,
            generation: id.generation.0,
            state,
            world_size: None,
            bytes: None,
            what: None,
        }
    }

    pub(super) fn committed(job: &JobId, manifest: &Manifest) -> Self {
        Self {
            world_size: Some(manifest.world_size),
            bytes: Some(manifest.bytes()),
            ..Self::new(job, manifest.id(), "committed")
        }
    }

    pub(super) fn torn(job: &JobId, id: CheckpointId, bytes: Option<u64>) -> Self {
        Self {
            bytes,
            what: Some("no manifest: being written, or left by a save that did not end".to_owned()),
            ..Self::new(job, id, "torn")
        }
    }

    pub(super) fn damaged(job: &JobId, id: CheckpointId, what: String) -> Self {
        Self {
            what: Some(what),
            ..Self::new(job, id, "damaged")
        }
    }

    /// Its place among those of its job.
    pub(super) fn place(&self) -> (Step, u64) {
        (self.step, self.generation)
    }
}

pub(super) fn ls(args: &StoreArgs) -> Result<Exit, CliError> {
    let folders = match remote::url(&args.dir) {
        Some(url) => remote::ls(url, args)?,
        None => folders(args)?,
    };
    listing::print(args.format.format, &folders, FOLDERS);
    if folders.is_empty() {
        out::note("no checkpoints");
    }
    let damaged = folders.iter().any(|folder| folder.state == "damaged");
    Ok(if damaged { Exit::Finding } else { Exit::Fine })
}

/// What lies in a store on disk.
fn folders(args: &StoreArgs) -> Result<Vec<Folder>, CliError> {
    let (store, jobs) = open(&args.dir, args.job.as_deref())?;
    let mut folders = Vec::new();
    for job in jobs {
        let listing = store.manifests(&job).map_err(failed)?;
        let committed = listing.manifests.iter();
        let mut of_job: Vec<Folder> = committed.map(|manifest| Folder::committed(&job, manifest)).collect();
        of_job.extend(listing.torn.into_iter().map(|id| {
            let bytes = store.dir(&job, id).ok().map(|dir| size_of(&dir));
            Folder::torn(&job, id, bytes)
        }));
        of_job.extend(listing.problems.iter().filter_map(|problem| {
            let id = problem.checkpoint?;
            Some(Folder::damaged(&job, id, problem.to_string()))
        }));
        of_job.sort_by_key(Folder::place);
        folders.extend(of_job);
    }
    Ok(folders)
}

/// Bytes of the files right in a folder; what cannot be read counts nothing.
pub(super) fn size_of(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok())
        .filter(fs::Metadata::is_file)
        .map(|file| file.len())
        .sum()
}

/// Something wrong in a checkpoint, or the word that nothing is.
#[derive(Serialize)]
pub(super) struct Found {
    job: JobId,
    checkpoint: String,
    state: &'static str,
    chunks: Option<u64>,
    bytes: Option<u64>,
    file: Option<String>,
    rank: Option<u32>,
    chunk: Option<u32>,
    tensors: Vec<String>,
    what: String,
}

pub(super) const FOUND: &[Column<Found>] = &[
    ("job", |found| found.job.to_string()),
    ("checkpoint", |found| found.checkpoint.clone()),
    ("state", |found| found.state.to_owned()),
    ("chunks", |found| or_dash(found.chunks)),
    ("size", |found| or_dash(found.bytes.map(words::bytes))),
    ("rank", |found| or_dash(found.rank)),
    ("chunk", |found| or_dash(found.chunk)),
    ("tensors", |found| found.tensors.join(" ")),
    ("file", |found| or_dash(found.file.as_ref())),
    ("what", |found| found.what.clone()),
];

pub(super) fn findings(job: &JobId, report: &Report) -> Vec<Found> {
    let nothing = |id: CheckpointId, state| Found {
        job: job.clone(),
        checkpoint: id.to_string(),
        state,
        chunks: None,
        bytes: None,
        file: None,
        rank: None,
        chunk: None,
        tensors: Vec::new(),
        what: String::new(),
    };
    let mut found = Vec::new();
    for checkpoint in &report.checkpoints {
        let state = if checkpoint.intact { "intact" } else { "damaged" };
        let (chunks, bytes) = (Some(checkpoint.chunks), Some(checkpoint.bytes));
        found.push(Found {
            chunks,
            bytes,
            ..nothing(checkpoint.id, state)
        });
        for problem in report
            .problems
            .iter()
            .filter(|problem| problem.checkpoint == Some(checkpoint.id))
        {
            found.push(damage(problem, nothing(checkpoint.id, "damage")));
        }
    }
    found.extend(report.torn.iter().map(|id| Found {
        what: "no manifest".to_owned(),
        ..nothing(*id, "torn")
    }));
    found
}

fn damage(problem: &Problem, nothing: Found) -> Found {
    Found {
        file: Some(problem.file.display().to_string()),
        rank: problem.rank.map(|rank| rank.0),
        chunk: problem.chunk,
        tensors: problem.tensors.clone(),
        what: problem.what.clone(),
        ..nothing
    }
}

pub(super) fn check(args: &StoreArgs, step: Option<Step>) -> Result<Exit, CliError> {
    let (found, intact, problems) = match remote::url(&args.dir) {
        Some(url) => remote::verify(url, args, step)?,
        None => verified(args, step)?,
    };
    if let (Some(step), true) = (step, found.is_empty()) {
        return Err(nothing_at(step, args));
    }
    listing::print(args.format.format, &found, FOUND);
    out::note(&format!("{intact} intact, {problems} problems"));
    Ok(if problems == 0 { Exit::Fine } else { Exit::Finding })
}

/// What every byte of a store on disk is: the findings, intact checkpoints and problems.
fn verified(args: &StoreArgs, step: Option<Step>) -> Result<(Vec<Found>, usize, usize), CliError> {
    let (store, jobs) = open(&args.dir, args.job.as_deref())?;
    let (mut found, mut intact, mut problems) = (Vec::new(), 0, 0);
    for job in jobs {
        let report = verify(&store, &job, step).map_err(failed)?;
        problems += report.problems.len();
        intact += report.checkpoints.iter().filter(|checkpoint| checkpoint.intact).count();
        found.extend(findings(&job, &report));
    }
    Ok((found, intact, problems))
}

pub(super) fn nothing_at(step: Step, args: &StoreArgs) -> CliError {
    let hint = format!(
        "`rankguard checkpoint ls --dir {}` lists what there is",
        args.dir.display()
    );
    CliError::failure(format!("no checkpoint of step {step} in {}", args.dir.display()), hint)
}

/// Whether a checkpoint can be used.
#[derive(Serialize)]
struct Usable {
    job: JobId,
    checkpoint: String,
    usable: bool,
    why: Vec<String>,
}

pub(super) fn explain(args: &StoreArgs, step: Step, status: Option<&StatusView>) -> Result<Exit, CliError> {
    let (store, jobs) = open(&args.dir, args.job.as_deref())?;
    let mut all = Vec::new();
    for job in jobs {
        let report = verify(&store, &job, Some(step)).map_err(failed)?;
        for id in &report.torn {
            all.push(torn(&store, &job, *id)?);
        }
        for checkpoint in &report.checkpoints {
            let damage = report
                .problems
                .iter()
                .filter(|problem| problem.checkpoint == Some(checkpoint.id));
            let mut why: Vec<String> = damage.map(ToString::to_string).collect();
            if why.is_empty() {
                why = reasons(&store, &job, checkpoint.id, checkpoint.chunks)?;
            }
            why.extend(
                status
                    .into_iter()
                    .flat_map(|status| memory::told(status, &job, checkpoint.id)),
            );
            let (usable, checkpoint) = (checkpoint.intact, checkpoint.id.to_string());
            all.push(Usable {
                job: job.clone(),
                checkpoint,
                usable,
                why,
            });
        }
    }
    if all.is_empty() {
        return Err(nothing_at(step, args));
    }
    match args.format.format {
        crate::args::Format::Table => {
            for one in &all {
                let word = if one.usable { "can be used" } else { "cannot be used" };
                out::line(&format!("job {}, checkpoint {}: {word}", one.job, one.checkpoint));
                one.why
                    .iter()
                    .for_each(|why| out::line(&format!("  {}", listing::plain(why))));
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
        Exit::Fine
    } else {
        Exit::Finding
    })
}

/// Why an intact checkpoint can be used.
fn reasons(store: &Store, job: &JobId, id: CheckpointId, chunks: u64) -> Result<Vec<String>, CliError> {
    let manifest = store.manifest(job, id).map_err(failed)?;
    let mut why = vec![
        format!(
            "its manifest is there and names the shards of all {} ranks",
            manifest.world_size
        ),
        format!("every index has the digest that the manifest names"),
        format!(
            "all {chunks} chunks ({}) have the digests that their indexes name",
            words::bytes(manifest.bytes())
        ),
    ];
    why.extend(
        manifest.parent.map(|(step, generation)| {
            format!("it was made after going on from step {step} of generation {generation}")
        }),
    );
    Ok(why)
}

/// Why a folder without a manifest cannot be used, with what is there of it.
fn torn(store: &Store, job: &JobId, id: CheckpointId) -> Result<Usable, CliError> {
    let dir = store.dir(job, id).map_err(failed)?;
    let names = |ending: &str| {
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.file_name().to_string_lossy().ends_with(ending))
            .count()
    };
    let why = vec![
        "it has no manifest, so it was never committed: a save ended early, or is still being written".to_owned(),
        format!(
            "{} shards and {} indexes lie in {}, {} in all",
            names(".shard"),
            names(".index"),
            dir.display(),
            words::bytes(size_of(&dir))
        ),
        "it is removed once a newer checkpoint is committed".to_owned(),
    ];
    Ok(Usable {
        job: job.clone(),
        checkpoint: id.to_string(),
        usable: false,
        why,
    })
}

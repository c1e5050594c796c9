//! `rankguard demo`: a training job survives real failures of real processes and ends bit-identical.
//!
//! Everything is started from the one thread that runs the demo and dies with it. Faults are the signals and kernel-log
//! lines that hardware faults cause; no component knows that it runs in a demo.

mod args;
mod cluster;
mod error;
mod inject;
mod job;
mod outcome;
mod progress;
mod story;
mod watch;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rankguard_model::{Case, JobId};
use rankguard_sim::SeededRandom;
use rankguard_trainer::ledger;

pub(crate) use self::args::DemoArgs;
pub(crate) use self::error::DemoError;

use self::cluster::{DemoCluster, NODES};
use self::job::{ReferenceRun, TrainingPace};
use self::outcome::{CaseFacts, DemoOutcome, ParameterDigests, ReportPaths, StallTimes};
use self::progress::ProgressPrinter;
use self::story::ScenarioContext;
use self::watch::{ControllerPoller, view};
use crate::args::OutputFormat;
use crate::exit::CommandExit;
use crate::out;
use crate::signals::StopSignals;

/// Number of samples in the data set.
const SAMPLES: u64 = 1_797;
/// Maximum wait for any step. An idle machine needs a few seconds for each; a busy one must not fail.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs the demo. Must be called on the main thread: the child processes live as long as this thread.
pub(crate) async fn run(args: DemoArgs) -> Result<CommandExit, DemoError> {
    let folder = args.out.clone().unwrap_or_else(|| PathBuf::from("rankguard-demo"));
    // Signals are caught before anything exists that an interruption could leave behind.
    let mut stop = StopSignals::catch().map_err(|source| DemoError::io("catch signals", source))?;
    prepare(&folder)?;
    let scratch = tempfile::Builder::new()
        .prefix("rankguard-demo-")
        .tempdir()
        .map_err(|source| DemoError::io("create a temporary folder", source))?;
    let ended = tokio::select! {
        ended = play(&args, scratch.path(), &folder) => ended,
        _ = stop.wait() => Err(DemoError::Interrupted),
    };
    if args.keep || ended.is_err() && !matches!(ended, Err(DemoError::Interrupted)) {
        let kept = scratch.keep();
        out::note(&format!("logs, journal and checkpoints: {}", kept.display()));
    }
    ended
}

/// Creates the directory of the report and removes an earlier report.
fn prepare(folder: &Path) -> Result<(), DemoError> {
    fs::create_dir_all(folder).map_err(|source| DemoError::io("create the folder of the report", source))?;
    for name in ["report.html", "report.json"] {
        match fs::remove_file(folder.join(name)) {
            Err(problem) if problem.kind() != std::io::ErrorKind::NotFound => {
                return Err(DemoError::io("remove an old report", problem));
            }
            _ => {}
        }
    }
    Ok(())
}

async fn play(args: &DemoArgs, root: &Path, folder: &Path) -> Result<CommandExit, DemoError> {
    let progress = ProgressPrinter::new(args.quiet);
    let exe = std::env::current_exe().map_err(|source| DemoError::io("find this program", source))?;
    let training = match args.chaos {
        Some(_) => TrainingPace {
            epochs: 12,
            step_ms_min: 40,
        },
        None => TrainingPace {
            epochs: 16,
            step_ms_min: 50,
        },
    };
    progress.report(&format!(
        "undisturbed run: 6 ranks train a small network on {SAMPLES} handwritten digits, {} steps",
        training.steps()
    ));
    let (undisturbed, undisturbed_took) = ReferenceRun::start(&training, root)?.finish().await?;
    progress.report(&format!(
        "   done in {:.1} s; its parameters are the reference for the run with failures",
        undisturbed_took.as_secs_f64()
    ));

    progress.report("one controller and four agents start: node-1, node-2, node-3 and the spare spare-1");
    let mut cluster = DemoCluster::start(root).await?;
    let watch = ControllerPoller::new(cluster.address());
    watch.nodes(NODES.len()).await?;
    let mut stage = ScenarioContext {
        cluster: &mut cluster,
        watch: &watch,
        progress: &progress,
        training: &training,
        exe: &exe,
        out: root,
    };
    let job = stage.submit("digits", &[]).await?;
    let (buggy, struck) = match args.chaos {
        None => {
            stage.failures(&job).await?;
            (Some(stage.user_bug().await?), Vec::new())
        }
        Some(seed) => {
            let struck = stage.chaos(&job, &mut SeededRandom::new(seed)).await?;
            stage.all_nodes_back().await?;
            (None, struck)
        }
    };

    let status = watch.client().status().await?;
    let cases = watch.client().cases().await?;
    let view = view(&status, &job)?;
    let trained = root.join("digits");
    let ledger = ledger::check(&trained, SAMPLES, training.epochs)
        .map_err(|problem| DemoError::Story(format!("cannot read the ledger: {problem}")))?;
    let parameters = ParameterDigests {
        disturbed: digest(&trained)?,
        undisturbed: digest(&undisturbed)?,
    };
    let reports = ReportPaths {
        html: folder.join("report.html"),
        json: folder.join("report.json"),
    };
    let outcome = DemoOutcome {
        parameters_identical: parameters.disturbed == parameters.undisturbed,
        parameters,
        ledger_exact: ledger.exact,
        ledger,
        steps_lost: cases
            .iter()
            .filter(|case| of(case, &job))
            .filter_map(|case| case.steps_lost)
            .sum(),
        cases: cases.iter().map(CaseFacts::of).collect(),
        checkpoint_stall_ms: StallTimes::of(view),
        checkpoints_committed: view.checkpoints.len(),
        user_bug: buggy.and_then(|buggy| self::watch::view(&status, &buggy).ok()?.reason.clone()),
        chaos: struck,
        report: reports,
        undisturbed_run_s: undisturbed_took.as_secs_f64(),
        took_s: progress.seconds(),
    };
    let facts = serde_json::to_value(&outcome).map_err(|problem| DemoError::Report(problem.into()))?;
    let input = rankguard_report::ReportInput::new("Rankguard demo", status.clone(), cases, Some(facts));
    rankguard_report::write(&input, folder).map_err(DemoError::Report)?;
    match args.format {
        OutputFormat::Json | OutputFormat::Jsonl => out::json(&outcome),
        _ => outcome.lines(&status).iter().for_each(|line| out::line(line)),
    }
    drop(cluster);
    Ok(if outcome.is_sound() {
        CommandExit::Fine
    } else {
        CommandExit::Failure
    })
}

fn of(case: &Case, job: &JobId) -> bool {
    case.job.as_ref() == Some(job)
}

/// BLAKE3 digest of the parameters of a run.
fn digest(folder: &Path) -> Result<String, DemoError> {
    let bytes = fs::read(folder.join("parameters.bin"))
        .map_err(|source| DemoError::io("read the trained parameters", source))?;
    Ok(rankguard_checkpoint_format::Digest::of(&bytes).to_string())
}

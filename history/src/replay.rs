//! `rankguard replay`: published failures and own logs, in order of time, through the decision core that runs live.
//!
//! Lines pass the matcher, classified ones pass streaming diagnosis as evidence, and the log gives the clock of the
//! diagnosis. A file of cases (JSON lines) passes the offline engine, as in `rankguard classify`.
//!
//! A controller's journal passes the whole decision core, and recorded evidence (one piece a line) passes diagnosis.
//! With `--into`, all input is sent instead to a running controller that was started with `--replay-only`.
//!
//! Bounds: a line is read up to 1 MiB, at most [`CASES`] cases are retained for printing (all are counted), and one
//! example of each pair of classes.

mod controller_feed;
mod engine;
mod feed;
mod files;
mod item;
mod journal;
mod labels;
mod lines;
mod merge;
mod missing_cases;
mod print;
mod recorded;
mod records;
mod tally;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use rankguard_console::catalogue::{self, CatalogueArgs};
use rankguard_console::error::CliError;
use rankguard_console::exit::CommandExit;
use rankguard_console::out;
use rankguard_console::{FormatArgs, OutputFormat};
use rankguard_model::EvidenceSource;
use serde::Serialize;

use controller_feed::ControllerFeed;
pub(crate) use engine::{ReplayEngine, node};
use feed::{LogFeed, LogHeads};
use files::ReplayInputs;
use labels::LineLabels;
use merge::{ItemStream, StreamMerge};
use missing_cases::MissingCases;
use recorded::EvidenceRecording;
use tally::ReplayTally;

/// Maximum number of cases retained for printing.
pub(crate) const CASES: usize = 1_000;

/// Arguments of `rankguard replay`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ReplayArgs {
    /// Logs (plain, .gz or .zst), folders of them, files of cases or of evidence (.jsonl), journals of controllers
    #[arg(value_name = "PATH", required_unless_present = "journal")]
    paths: Vec<PathBuf>,
    /// Journal of a controller, or its state directory; the journal of a running controller is read up to now
    #[arg(long, value_name = "PATH")]
    journal: Vec<PathBuf>,
    /// Labels of one plain log: CSV of line number and label, `-` for no failure
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    #[command(flatten)]
    added: CatalogueArgs,
    /// Catalogue file of a second set, to compare the results; may be repeated
    #[arg(long, value_name = "FILE")]
    against: Vec<PathBuf>,
    /// Speed factor relative to recorded time, or max for as fast as possible
    #[arg(long, value_name = "TIMES", default_value = "max", value_parser = speed)]
    speed: f64,
    /// Send all evidence to a controller that was started with --replay-only, instead of an own decision core; the jobs, commands and
    /// silent agents of a journal are no evidence and are not sent
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["against", "labels"])]
    into: Option<String>,
    #[command(flatten)]
    format: FormatArgs,
}

fn speed(text: &str) -> Result<f64, String> {
    match (text, text.parse()) {
        ("max", _) => Ok(f64::INFINITY),
        (_, Ok(times)) if times > 0.0 && times <= 1e12 => Ok(times),
        _ => Err("expected max, or a number above 0; 60 replays a minute per second".to_owned()),
    }
}

pub(crate) fn run(args: &ReplayArgs) -> Result<CommandExit, CliError> {
    let catalogue = args.added.read()?;
    let against = if args.against.is_empty() {
        None
    } else {
        Some(catalogue::read(&args.against)?)
    };
    let given = !args.added.catalogue.is_empty();
    let mut tally = ReplayTally::default();
    let found = ReplayInputs::below(&args.paths, &args.journal, &mut tally);
    let labels = args
        .labels
        .as_deref()
        .map(|path| read_labels(path, &found.logs))
        .transpose()?;
    let mut engines = vec![ReplayEngine::new(&catalogue)];
    engines.extend(against.as_deref().map(ReplayEngine::new));
    let begun = Instant::now();
    let mut streams = Vec::new();
    let mut unread = Vec::new();
    let mut keep = |path: &Path, opened: Result<ItemStream, String>| match opened {
        Ok(stream) => streams.push(stream),
        Err(problem) => unread.push(format!("{}: {problem}", path.display())),
    };
    for path in &found.cases {
        match args.into {
            Some(_) => tally.problem(format!("{}: cases have no time and are not sent", path.display())),
            None => records::replay(path, &engines, &mut tally),
        }
    }
    for path in &found.journals {
        match args.into {
            Some(_) => keep(
                path,
                EvidenceRecording::of_journal(path, &mut tally).map(ItemStream::Recorded),
            ),
            None => journal::replay(path, &engines, given, &mut tally)?,
        }
    }
    for path in &found.evidence {
        keep(
            path,
            EvidenceRecording::of_file(path)
                .map(ItemStream::Recorded)
                .map_err(|problem| problem.to_string()),
        );
    }
    let heads = LogHeads::read(&found.logs);
    for log in &found.logs {
        let path = &log.path;
        let feed = LogFeed::open(log, &heads, labels.clone(), engines.len() == 1, &engines[0]);
        keep(
            path,
            feed.map(|feed| ItemStream::Log(Box::new(feed)))
                .map_err(|problem| problem.to_string()),
        );
    }
    if let (Some(_), Some(problem)) = (&args.into, unread.first()) {
        // A controller journals everything it receives, so send all input or none.
        let hint = "omit or correct the unreadable input; nothing was sent";
        return Err(CliError::failure("cannot read all input", hint).because(problem.as_str()));
    }
    unread.into_iter().for_each(|problem| tally.problem(problem));
    if streams.is_empty() && found.cases.is_empty() && found.journals.is_empty() {
        let hint = "name logs (plain, .gz or .zst), files of cases or evidence (.jsonl), or a journal";
        return Err(CliError::failure("no readable input", hint).because(tally.first_problem()));
    }
    // Opened last, because a session remains in the controller's journal.
    let into = args.into.as_deref().map(ControllerFeed::open).transpose()?;
    let mut merge = StreamMerge {
        streams,
        given,
        speed: args.speed,
        begun,
    };
    if let Some(mut into) = into {
        merge.run(&engines, &mut tally, |item, wait, tally| {
            if !wait.is_zero() {
                // Send pending evidence before the pause.
                into.flush()?;
                std::thread::sleep(wait);
            }
            tally.evidence += 1;
            into.take(item)
        })?;
        merge.finish(&mut tally);
        let sent = into.finish()?;
        tally.seconds = begun.elapsed().as_secs_f64();
        let missing = |path: &PathBuf| MissingCases::of_journal(path, &engines[0]);
        let journals: Vec<MissingCases> = found.journals.iter().filter_map(missing).collect();
        return Ok(sent_into(args, sent, &tally, &journals));
    }
    let mut own: Vec<ReplayEngine> = engines.iter().map(ReplayEngine::twin).collect();
    merge.run(&engines, &mut tally, |item, wait, tally| {
        std::thread::sleep(wait);
        tally.differ(item);
        for (which, engine) in own.iter_mut().enumerate() {
            engine.take(item, which, tally);
        }
        Ok(())
    })?;
    for (which, engine) in own.iter_mut().enumerate() {
        engine.finish(which, &mut tally);
    }
    merge.finish(&mut tally);
    tally.seconds = begun.elapsed().as_secs_f64();
    print::print(args.format.format, &tally);
    if tally.cases() == 0 && tally.evidence > 0 {
        out::note(&no_case_note(&tally.sources));
    }
    if tally.unread_cases > 0 {
        let what = if tally.cases() > 0 {
            "cannot parse some lines as cases"
        } else {
            "cannot read any case"
        };
        let hint = "expected one case a line, as `rankguard classify` reads, or one piece of evidence a line";
        return Err(CliError::failure(what, hint));
    }
    Ok(if tally.cases() > 0 {
        CommandExit::Finding
    } else {
        CommandExit::Fine
    })
}

/// Explains why evidence of these sources opened no case.
fn no_case_note(sources: &BTreeSet<EvidenceSource>) -> String {
    let others = sources.iter().filter(|source| **source != EvidenceSource::JobLog);
    let names: BTreeSet<&str> = others.map(|source| source_name(*source)).collect();
    let names: Vec<&str> = names.into_iter().collect();
    if sources.contains(&EvidenceSource::JobLog) {
        let what = if names.is_empty() {
            "lines of job logs open no case by themselves".to_owned()
        } else {
            format!(
                "the evidence of {} and of job logs opens no case by itself",
                names.join(", ")
            )
        };
        return format!(
            "{what}: the controller concludes when a rank ends, which logs do not record; `rankguard diagnose` reads logs of \
             ended runs"
        );
    }
    let from = if names.is_empty() {
        String::new()
    } else {
        format!(" of {}", names.join(", "))
    };
    format!("the evidence{from} opens no case by itself; `rankguard diagnose` reads logs of ended runs")
}

fn source_name(source: EvidenceSource) -> &'static str {
    match source {
        EvidenceSource::KernelLog => "the kernel log",
        EvidenceSource::JobLog => "job logs",
        EvidenceSource::Launcher => "the launcher",
        EvidenceSource::Scheduler => "the scheduler",
        _ => "recordings",
    }
}

/// Reports the evidence that was sent to a controller.
fn sent_into(args: &ReplayArgs, sent: u64, tally: &ReplayTally, journals: &[MissingCases]) -> CommandExit {
    #[derive(Serialize)]
    struct SentReport<'a> {
        lines: u64,
        sent: u64,
        seconds: f64,
        /// Cases of the journals, and those that evidence alone does not reproduce.
        journals: &'a [MissingCases],
        problems: Vec<String>,
    }
    let report = SentReport {
        lines: tally.lines,
        sent,
        seconds: tally.seconds,
        journals,
        problems: tally.problem_texts(),
    };
    match args.format.format {
        OutputFormat::Json => out::json(&report),
        OutputFormat::Jsonl => out::json_line(&report),
        OutputFormat::Table | OutputFormat::Csv => tell(&report.problems),
    }
    let address = args.into.as_deref().unwrap_or_default();
    out::note(&format!(
        "{} lines, {sent} evidence records sent to the controller at {address} in {:.2} s: {:.0}/s; `rankguard cases \
         --controller {address}` lists its cases",
        tally.lines,
        tally.seconds,
        sent as f64 / tally.seconds.max(1e-9)
    ));
    for missing in journals.iter().filter_map(MissingCases::note) {
        out::note(&missing);
    }
    CommandExit::Fine
}

fn read_labels(path: &Path, logs: &[files::LogPath]) -> Result<LineLabels, CliError> {
    if logs.len() != 1 {
        return Err(CliError::usage(
            format!("--labels requires one log, but there are {}", logs.len()),
            "select the log of the line numbers",
        ));
    }
    LineLabels::read(path).map_err(|problem| {
        CliError::failure(format!("cannot use {}", path.display()), "expected lines NUMBER,LABEL").because(problem)
    })
}

/// Prints input problems to standard error.
fn tell(problems: &[String]) {
    problems
        .iter()
        .for_each(|problem| out::note(&format!("note: {problem}")));
}

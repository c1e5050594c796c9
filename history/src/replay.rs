//! `rankguard replay`: published failures and one's own logs, in order of time, through the brain that runs live.
//!
//! Lines go through the matcher, what it marks goes as evidence to the streaming diagnosis, and the clock of the diagnosis
//! is that of the log. A file of cases (JSON lines) goes through the offline engine, as `rankguard classify` does.
//!
//! Bounds: a line is kept up to 1 MiB, at most [`CASES`] cases are kept for printing (all are counted), and of each pair
//! of classes one example. Absent: the journal of a controller, whose reader belongs to the controller.

mod brain;
mod feed;
mod print;
mod records;
mod tally;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use rankguard_console::FormatArgs;
use rankguard_console::error::CliError;
use rankguard_console::exit::Exit;
use rankguard_console::out;
use rankguard_faults::Catalogue;

pub(crate) use brain::{Brain, node};
use feed::{Feed, Item, Labels};
use tally::Tally;

/// Cases that are kept for printing.
pub(crate) const CASES: usize = 1_000;
/// Files that are read side by side.
const FILES: usize = 256;

/// `replay`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ReplayArgs {
    /// Logs (plain or .gz), folders of them, or files of cases (.jsonl)
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// What the lines of one plain log mean: CSV of line number and label, `-` for no failure
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// Signatures and classes besides the built-in ones (TOML)
    #[arg(long, value_name = "FILE")]
    catalogue: Vec<PathBuf>,
    /// Other signatures and classes: what would they have changed?
    #[arg(long, value_name = "FILE")]
    against: Vec<PathBuf>,
    /// How many times faster than it happened; as fast as possible if absent
    #[arg(long, value_name = "TIMES", value_parser = speed)]
    speed: Option<f64>,
    /// How to print.
    #[command(flatten)]
    format: FormatArgs,
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(times) if times > 0.0 && times <= 1e12 => Ok(times),
        _ => Err("give a number above 0: 60 makes a minute of the log a second".to_owned()),
    }
}

pub(crate) fn run(args: &ReplayArgs) -> Result<Exit, CliError> {
    let catalogue = catalogue(&args.catalogue)?;
    let against = if args.against.is_empty() {
        None
    } else {
        Some(self::catalogue(&args.against)?)
    };
    let mut tally = Tally::default();
    let (cases, logs) = files(&args.paths, &mut tally);
    let labels = args
        .labels
        .as_deref()
        .map(|path| read_labels(path, &logs))
        .transpose()?;
    let begun = Instant::now();
    for path in &cases {
        if !args.catalogue.is_empty() || against.is_some() {
            tally.problem(format!(
                "{}: files of cases are judged with the built-in catalogue only",
                path.display()
            ));
        }
        records::replay(path, &mut tally);
    }
    let mut brains = vec![Brain::new(&catalogue)];
    brains.extend(against.as_ref().map(Brain::new));
    let mut feeds = Vec::new();
    for path in &logs {
        match Feed::open(path, labels.clone(), brains.len() == 1, &brains[0]) {
            Ok(feed) => feeds.push(feed),
            Err(problem) => tally.problem(format!("{}: {problem}", path.display())),
        }
    }
    if feeds.is_empty() && cases.is_empty() {
        let hint = "name logs (plain or .gz) or files of cases (.jsonl)";
        return Err(CliError::failure("nothing could be replayed", hint).because(tally.first_problem()));
    }
    merge(feeds, &mut brains, &mut tally, args.speed, begun);
    tally.seconds = begun.elapsed().as_secs_f64();
    print::print(args.format.format, &tally);
    Ok(if tally.cases() > 0 { Exit::Finding } else { Exit::Fine })
}

/// Items of all feeds in order of time; of equal times the first file goes first.
fn merge(mut feeds: Vec<Feed>, brains: &mut [Brain], tally: &mut Tally, speed: Option<f64>, begun: Instant) {
    let mut heads: Vec<Option<Item>> = feeds.iter_mut().map(|feed| feed.next(brains, tally)).collect();
    let mut first = None;
    loop {
        let times = heads
            .iter()
            .enumerate()
            .filter_map(|(at, item)| Some((at, item.as_ref()?.at)));
        let Some((at, _)) = times.min_by_key(|(at, time)| (*time, *at)) else {
            break;
        };
        let Some(item) = heads[at].take() else { break };
        if let Some(speed) = speed {
            let since = (item.at.0 - *first.get_or_insert(item.at.0)) as f64 / 1e9 / speed;
            let due = Duration::try_from_secs_f64(since.max(0.0)).unwrap_or_default();
            if let Some(wait) = due.checked_sub(begun.elapsed()) {
                std::thread::sleep(wait);
            }
        }
        tally.differ(&item);
        for (which, brain) in brains.iter_mut().enumerate() {
            brain.take(&item, which, tally);
        }
        heads[at] = feeds[at].next(brains, tally);
    }
    for (which, brain) in brains.iter_mut().enumerate() {
        brain.finish(which, tally);
    }
    for feed in feeds {
        feed.finish(tally);
    }
}

/// The built-in catalogue with what files add.
fn catalogue(files: &[PathBuf]) -> Result<Catalogue, CliError> {
    let mut texts = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).map_err(|problem| {
            CliError::failure(
                format!("cannot read {}", file.display()),
                "name a TOML file of signatures",
            )
            .because(problem)
        })?;
        texts.push((file.display().to_string(), text));
    }
    let texts: Vec<(&str, &str)> = texts
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    Catalogue::with_files(&texts).map_err(|problem| {
        CliError::failure(
            "these signatures cannot be used",
            "`rankguard taxonomy check FILE` lists every mistake",
        )
        .because(problem)
    })
}

fn read_labels(path: &Path, logs: &[PathBuf]) -> Result<Labels, CliError> {
    if logs.len() != 1 {
        return Err(CliError::usage(
            format!("--labels is for one log, and there are {}", logs.len()),
            "name the log that the line numbers count",
        ));
    }
    Labels::read(path).map_err(|problem| {
        CliError::failure(format!("cannot use {}", path.display()), "each line is NUMBER,LABEL").because(problem)
    })
}

/// Files of cases, and logs, in the order of their names.
fn files(paths: &[PathBuf], tally: &mut Tally) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut cases, mut logs) = (Vec::new(), Vec::new());
    for path in paths {
        let mut found = Vec::new();
        if path.is_dir() {
            match std::fs::read_dir(path).and_then(|entries| entries.collect::<Result<Vec<_>, _>>()) {
                Ok(entries) => found.extend(
                    entries
                        .iter()
                        .map(std::fs::DirEntry::path)
                        .filter(|path| path.is_file()),
                ),
                Err(problem) => tally.problem(format!("{}: {problem}", path.display())),
            }
            found.sort();
            found.retain(|file| is_log(file));
            reductions(&mut found, tally);
        } else {
            found.push(path.clone());
        }
        for file in found {
            if records::holds_cases(&file) {
                cases.push(file);
            } else if logs.len() < FILES {
                logs.push(file);
            } else {
                tally.problem(format!(
                    "{}: more than {FILES} files at a time; replay the rest apart",
                    file.display()
                ));
            }
        }
    }
    (cases, logs)
}

/// Documents and tables lie beside logs and are none.
fn is_log(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    name.ends_with(".log") || name.ends_with(".jsonl") || name.ends_with(".out") || name.ends_with(".err")
}

/// Blue Gene/L's folder holds the same events four times: only the file with all of them is history.
fn reductions(files: &mut Vec<PathBuf>, tally: &mut Tally) {
    let named = |path: &Path, wanted: &str| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(wanted))
    };
    if files.iter().any(|file| named(file, "Best.all-fail.")) {
        let before = files.len();
        files.retain(|file| !named(file, "Best.") || named(file, "Best.all-fail."));
        if files.len() < before {
            tally
                .problem("the reduced copies of Best.all-fail are left out: they are the same events again".to_owned());
        }
    }
}

/// For those who watch: what could not be read.
fn tell(problems: &[String]) {
    problems
        .iter()
        .for_each(|problem| out::note(&format!("note: {problem}")));
}

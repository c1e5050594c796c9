//! `rankguard replay`: published failures and one's own logs, in order of time, through the brain that runs live.
//!
//! Lines go through the matcher, what it marks goes as evidence to the streaming diagnosis, and the clock of the diagnosis
//! is that of the log. A file of cases (JSON lines) goes through the offline engine, as `rankguard classify` does.
//!
//! A controller's journal goes through the whole brain, and evidence as it was recorded (one piece a line) through the
//! diagnosis. With `--into` everything goes to a running controller that takes replays only, instead.
//!
//! Bounds: a line is kept up to 1 MiB, at most [`CASES`] cases are kept for printing (all are counted), and of each pair
//! of classes one example.

mod brain;
mod feed;
mod into;
mod item;
mod journal;
mod labels;
mod lines;
mod print;
mod recorded;
mod records;
mod tally;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use rankguard_console::error::CliError;
use rankguard_console::exit::Exit;
use rankguard_console::out;
use rankguard_console::{Format, FormatArgs};
use rankguard_faults::Catalogue;
use serde::Serialize;

pub(crate) use brain::{Brain, node};
use feed::Feed;
use into::Into;
use item::Item;
use labels::Labels;
use recorded::Recorded;
use tally::Tally;

/// Cases that are kept for printing.
pub(crate) const CASES: usize = 1_000;
/// Files that are read side by side.
const FILES: usize = 256;

/// `replay`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ReplayArgs {
    /// Logs (plain, .gz or .zst), folders of them, files of cases or of evidence (.jsonl), journals of controllers
    #[arg(value_name = "PATH", required_unless_present = "journal")]
    paths: Vec<PathBuf>,
    /// The journal of a controller that does not run, or its state directory
    #[arg(long, value_name = "PATH")]
    journal: Vec<PathBuf>,
    /// What the lines of one plain log mean: CSV of line number and label, `-` for no failure
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// Signatures and classes besides the built-in ones (TOML)
    #[arg(long, value_name = "FILE")]
    catalogue: Vec<PathBuf>,
    /// Other signatures and classes: what would they have changed?
    #[arg(long, value_name = "FILE")]
    against: Vec<PathBuf>,
    /// How many times faster than it happened, or max: as fast as possible
    #[arg(long, value_name = "TIMES", default_value = "max", value_parser = speed)]
    speed: f64,
    /// Feed a controller that was started with --replay-only, whose cases then tell, instead of a brain of one's own
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["against", "labels"])]
    into: Option<String>,
    /// How to print.
    #[command(flatten)]
    format: FormatArgs,
}

fn speed(text: &str) -> Result<f64, String> {
    match (text, text.parse()) {
        ("max", _) => Ok(f64::INFINITY),
        (_, Ok(times)) if times > 0.0 && times <= 1e12 => Ok(times),
        _ => Err("give max, or a number above 0: 60 makes a minute of the log a second".to_owned()),
    }
}

pub(crate) fn run(args: &ReplayArgs) -> Result<Exit, CliError> {
    let catalogue = catalogue(&args.catalogue)?;
    let against = if args.against.is_empty() {
        None
    } else {
        Some(self::catalogue(&args.against)?)
    };
    let given = !args.catalogue.is_empty();
    let mut tally = Tally::default();
    let found = files(args, &mut tally);
    let labels = args
        .labels
        .as_deref()
        .map(|path| read_labels(path, &found.logs))
        .transpose()?;
    let mut brains = vec![Brain::new(&catalogue)];
    brains.extend(against.as_ref().map(Brain::new));
    let into = args.into.as_deref().map(Into::open).transpose()?;
    let begun = Instant::now();
    let mut streams = Vec::new();
    for path in &found.cases {
        match into {
            Some(_) => tally.problem(format!("{}: cases have no moment and are not sent", path.display())),
            None => records::replay(path, &brains, &mut tally),
        }
    }
    for path in &found.journals {
        match into {
            Some(_) => streams.push(Stream::Recorded(Recorded::of_journal(path.clone()))),
            None => journal::replay(path, &brains, given, &mut tally)?,
        }
    }
    for path in &found.evidence {
        match Recorded::of_file(path) {
            Ok(recorded) => streams.push(Stream::Recorded(recorded)),
            Err(problem) => tally.problem(format!("{}: {problem}", path.display())),
        }
    }
    for path in &found.logs {
        match Feed::open(path, labels.clone(), brains.len() == 1, &brains[0]) {
            Ok(feed) => streams.push(Stream::Log(Box::new(feed))),
            Err(problem) => tally.problem(format!("{}: {problem}", path.display())),
        }
    }
    if streams.is_empty() && found.cases.is_empty() && found.journals.is_empty() {
        let hint = "name logs (plain, .gz or .zst), files of cases or evidence (.jsonl), or a journal";
        return Err(CliError::failure("nothing could be replayed", hint).because(tally.first_problem()));
    }
    let mut merge = Merge {
        streams,
        given,
        speed: args.speed,
        begun,
    };
    if let Some(mut into) = into {
        merge.run(&brains, &mut tally, |item, wait, tally| {
            if !wait.is_zero() {
                // What is due goes out before the pause.
                into.flush()?;
                std::thread::sleep(wait);
            }
            tally.evidence += 1;
            into.take(item)
        })?;
        merge.finish(&mut tally);
        let sent = into.finish()?;
        tally.seconds = begun.elapsed().as_secs_f64();
        return Ok(sent_into(args, sent, &tally));
    }
    let mut own: Vec<Brain> = brains.iter().map(Brain::twin).collect();
    merge.run(&brains, &mut tally, |item, wait, tally| {
        std::thread::sleep(wait);
        tally.differ(item);
        for (which, brain) in own.iter_mut().enumerate() {
            brain.take(item, which, tally);
        }
        Ok(())
    })?;
    for (which, brain) in own.iter_mut().enumerate() {
        brain.finish(which, &mut tally);
    }
    merge.finish(&mut tally);
    tally.seconds = begun.elapsed().as_secs_f64();
    print::print(args.format.format, &tally);
    Ok(if tally.cases() > 0 { Exit::Finding } else { Exit::Fine })
}

/// Says what a controller was fed with.
fn sent_into(args: &ReplayArgs, sent: u64, tally: &Tally) -> Exit {
    #[derive(Serialize)]
    struct Sent {
        lines: u64,
        sent: u64,
        seconds: f64,
        problems: Vec<String>,
    }
    let told = Sent {
        lines: tally.lines,
        sent,
        seconds: tally.seconds,
        problems: tally.told(),
    };
    match args.format.format {
        Format::Json => out::json(&told),
        Format::Jsonl => out::json_line(&told),
        Format::Table | Format::Csv => tell(&told.problems),
    }
    let address = args.into.as_deref().unwrap_or_default();
    out::note(&format!(
        "{} lines, {sent} pieces of evidence into the controller at {address} in {:.2} s: {:.0}/s; `rankguard cases \
         --controller {address}` lists what it makes of them",
        tally.lines,
        tally.seconds,
        sent as f64 / tally.seconds.max(1e-9)
    ));
    Exit::Fine
}

/// Something that gives items in order of time.
enum Stream {
    Log(Box<Feed>),
    Recorded(Recorded),
}

impl Stream {
    fn next(&mut self, brains: &[Brain], given: bool, tally: &mut Tally) -> Option<Item> {
        match self {
            Self::Log(feed) => feed.next(brains, tally),
            Self::Recorded(recorded) => recorded.next(brains, given, tally),
        }
    }
}

/// Items of all streams in order of time; of equal times the first stream goes first.
struct Merge {
    streams: Vec<Stream>,
    given: bool,
    speed: f64,
    begun: Instant,
}

impl Merge {
    /// Gives every item to `take`, with how long to wait before it is due.
    fn run(
        &mut self,
        brains: &[Brain],
        tally: &mut Tally,
        mut take: impl FnMut(&Item, Duration, &mut Tally) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let given = self.given;
        let mut heads: Vec<Option<Item>> = Vec::new();
        for stream in &mut self.streams {
            heads.push(stream.next(brains, given, tally));
        }
        let mut first = None;
        loop {
            let times = heads
                .iter()
                .enumerate()
                .filter_map(|(at, item)| Some((at, item.as_ref()?.at)));
            let Some((at, _)) = times.min_by_key(|(at, time)| (*time, *at)) else {
                return Ok(());
            };
            let Some(item) = heads[at].take() else { return Ok(()) };
            let since = item.at.0.saturating_sub(*first.get_or_insert(item.at.0)) as f64 / 1e9 / self.speed;
            let due = Duration::try_from_secs_f64(since.max(0.0)).unwrap_or_default();
            take(&item, due.saturating_sub(self.begun.elapsed()), tally)?;
            heads[at] = self.streams[at].next(brains, given, tally);
        }
    }

    fn finish(self, tally: &mut Tally) {
        for stream in self.streams {
            if let Stream::Log(feed) = stream {
                feed.finish(tally);
            }
        }
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

/// What there is to replay, in the order of its names.
#[derive(Default)]
struct Found {
    cases: Vec<PathBuf>,
    evidence: Vec<PathBuf>,
    journals: Vec<PathBuf>,
    logs: Vec<PathBuf>,
}

fn files(args: &ReplayArgs, tally: &mut Tally) -> Found {
    let mut all = Found {
        journals: args.journal.clone(),
        ..Found::default()
    };
    for path in &args.paths {
        if rankguard_journal::is_journal(path) {
            all.journals.push(path.clone());
            continue;
        }
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
            if recorded::holds_evidence(&file) {
                all.evidence.push(file);
            } else if records::holds_cases(&file) {
                all.cases.push(file);
            } else if all.logs.len() < FILES {
                all.logs.push(file);
            } else {
                tally.problem(format!(
                    "{}: more than {FILES} files at a time; replay the rest apart",
                    file.display()
                ));
            }
        }
    }
    all
}

/// Documents and tables lie beside logs and are none.
fn is_log(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let name = [".gz", ".zst"]
        .iter()
        .find_map(|end| name.strip_suffix(end))
        .unwrap_or(&name);
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

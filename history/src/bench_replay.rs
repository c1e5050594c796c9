//! `rankguard bench replay`: throughput of evidence through matcher and diagnosis on one core.
//!
//! Three figures. *Matching*: failing lines through the matcher. *Storm*: such lines as evidence, ten a second and each
//! from another node than the previous one, through diagnosis; nearly every one opens a case, which is the worst case.
//! *Events*: a generated log in which one line in `--marked-every` is a failing one and the others are healthy, through
//! the triage of live logs and diagnosis. Lines are generated while they are read, so memory is one block for any
//! number of them.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use clap::{Args, Subcommand};
use rankguard_console::FormatArgs;
use rankguard_console::error::CliError;
use rankguard_console::exit::CommandExit;
use rankguard_console::listing::{self, TableColumn};
use rankguard_console::out;
use rankguard_faults::{Catalogue, StreamContext, Triage};
use rankguard_model::{Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource, Sequence, Timestamp};
use serde::Serialize;

use crate::bench_studies::{self, StudiesArgs};
use crate::replay::{ReplayEngine, node};

/// Size in bytes of a generated block.
const BLOCK: usize = 1 << 20;
/// Number of lines for the peer; its speed hardly depends on it.
const PEER_LINES: u64 = 1_000_000;
/// Number of failing lines in the storm.
const STORM: u64 = 20_000;
/// Script of the peer: the same question as a query on a pandas table.
const PEER: &str = r#"
import sys, time
import pandas as pd
begun = time.perf_counter()
lines = pd.Series(open(sys.argv[1], encoding="utf-8", errors="replace").read().splitlines())
hits = lines[lines.str.contains(r"NVRM: Xid|Out of memory: Killed|Port module event|I/O \d+ QID \d+ timeout", regex=True)]
parts = hits.str.extract(r"^(?P<time>\S+) (?P<node>\S+) kernel: (?P<text>.*)$")
parts["time"] = pd.to_datetime(parts["time"])
parts["code"] = parts["text"].str.extract(r"Xid [^:]*: (\d+)")
parts = parts.sort_values(["node", "time"])
parts["case"] = (parts.groupby("node")["time"].diff().dt.total_seconds().fillna(1e9) > 120).cumsum()
print(len(hits), parts["case"].nunique(), time.perf_counter() - begun)
"#;

/// Arguments of `rankguard bench`.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchArgs {
    /// Benchmark to run
    #[command(subcommand)]
    what: BenchAction,
}

#[derive(Debug, Clone, Subcommand)]
enum BenchAction {
    /// Measure matcher and diagnosis throughput on one core
    Replay(ReplayArgs),
    /// Compare the studies with pandas, speed and answers
    Studies(StudiesArgs),
}

/// Arguments of `rankguard bench replay`.
#[derive(Debug, Clone, Args)]
struct ReplayArgs {
    /// Number of lines in the generated log
    #[arg(long, value_name = "COUNT", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1_000..=10_000_000_000))]
    events: u64,
    /// Number of lines for each failing one
    #[arg(long, value_name = "COUNT", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    marked_every: u64,
    /// Python interpreter with pandas
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    #[command(flatten)]
    format: FormatArgs,
}

#[derive(Debug, Serialize)]
struct ReplayFigure {
    subject: &'static str,
    lines: u64,
    /// Lines that a signature matches, which is the input of diagnosis.
    evidence: u64,
    cases: u64,
    seconds: f64,
    lines_per_s: f64,
    evidence_per_s: f64,
    /// Peak memory of the process since its start in bytes, if the system reports it.
    peak_rss_bytes: Option<u64>,
}

const COLUMNS: &[TableColumn<ReplayFigure>] = &[
    ("subject", |figure| figure.subject.to_owned()),
    ("lines", |figure| figure.lines.to_string()),
    ("evidence", |figure| figure.evidence.to_string()),
    ("cases", |figure| figure.cases.to_string()),
    ("seconds", |figure| format!("{:.2}", figure.seconds)),
    ("lines/s", |figure| format!("{:.0}", figure.lines_per_s)),
    ("evidence/s", |figure| format!("{:.0}", figure.evidence_per_s)),
    ("peak MB", |figure| {
        figure
            .peak_rss_bytes
            .map_or(String::new(), |bytes| format!("{:.0}", bytes as f64 / 1e6))
    }),
];

pub(crate) fn run(args: &BenchArgs) -> Result<CommandExit, CliError> {
    match &args.what {
        BenchAction::Replay(args) => replay(args),
        BenchAction::Studies(args) => bench_studies::run(args),
    }
}

fn replay(args: &ReplayArgs) -> Result<CommandExit, CliError> {
    let mut figures = vec![
        matching(args.events.min(1_000_000)),
        storm(args.events.min(STORM)),
        log(args.events, args.marked_every),
    ];
    match peer(&args.python, args.marked_every) {
        Ok(figure) => figures.push(figure),
        Err(why) => out::note(&format!("ABSENT: pandas beside it was not measured: {why}")),
    }
    listing::print(args.format.format, &figures, COLUMNS);
    out::note("one thread; aim: 1,000,000 pieces of evidence a second, 100,000,000 lines in less than 2 GB");
    Ok(CommandExit::Fine)
}

/// Failing lines, used in turn.
const FAILURES: [&str; 5] = [
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:86:00): 48, pid=77, name=python, DBE (double bit error) ECC Error",
    "Out of memory: Killed process 4321 (python) total-vm:100kB, anon-rss:90kB, file-rss:0kB",
    "mlx5_core 0000:17:00.0: Port module event: module 0, Cable error, Power budget exceeded",
    "nvme nvme0: I/O 12 QID 3 timeout, aborting",
];
/// Lines of healthy nodes, used in turn.
const HEALTHY: [&str; 4] = [
    "audit: type=1400 apparmor=STATUS operation=profile_load name=docker-default",
    "eth0: renamed from veth1a2b3c4",
    "systemd[1]: Started Session of user trainer.",
    "perf: interrupt took too long (2504 > 2500), lowering kernel.perf_event_max_sample_rate",
];

/// Writes line `number` of the log that both sides read: one event a millisecond, a thousand nodes in turn.
fn write_line(into: &mut Vec<u8>, number: u64, every: u64) {
    let seconds = number / 1_000;
    let millis = number % 1_000;
    let day = seconds / 86_400 % 28 + 1;
    let hour = seconds / 3_600 % 24;
    let minute = seconds / 60 % 60;
    let text = if number.is_multiple_of(every) {
        FAILURES[(number / every % FAILURES.len() as u64) as usize]
    } else {
        HEALTHY[(number % HEALTHY.len() as u64) as usize]
    };
    let month = (seconds / 86_400 / 28 % 12) + 1;
    // Writing to memory does not fail.
    let _ = writeln!(
        into,
        "2025-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}.{millis:03}+00:00 node-{} kernel: {text}",
        seconds % 60,
        number.wrapping_mul(2_654_435_761) / 7 % 1_000
    );
}

fn evidence(
    number: u64,
    at: Timestamp,
    host: Option<String>,
    text: String,
    marks: Vec<rankguard_model::Classification>,
) -> Evidence {
    let node = host.map_or_else(|| node(number % 1_000), rankguard_model::NodeId::from);
    Evidence {
        id: EvidenceId {
            node: node.clone(),
            seq: Sequence(number + 1),
        },
        at,
        source: EvidenceSource::KernelLog,
        entity: Entity::Node { node },
        body: EvidenceBody::Line {
            text,
            context: Vec::new(),
            repeats: 1,
        },
        marks,
        synthetic: false,
    }
}

/// Measures the matcher on failing lines.
fn matching(count: u64) -> ReplayFigure {
    let matcher = rankguard_faults::SignatureMatcher::builtin();
    let begun = Instant::now();
    let text = |number: u64| FAILURES[(number % FAILURES.len() as u64) as usize];
    let marked = (0..count)
        .filter(|number| !matcher.marks(EvidenceSource::KernelLog, text(*number)).is_empty())
        .count();
    let seconds = begun.elapsed().as_secs_f64();
    figure(
        "matching: failing lines",
        count,
        marked as u64,
        0,
        seconds,
        peak_rss("self"),
    )
}

/// Measures matching and diagnosis if every line is a failure of another node.
fn storm(count: u64) -> ReplayFigure {
    let catalogue = Catalogue::builtin();
    let mut engine = ReplayEngine::new(catalogue);
    let matcher = engine.matcher();
    let mut marked = 0;
    let mut cases = 0;
    let begun = Instant::now();
    for number in 0..count {
        let text = FAILURES[(number % FAILURES.len() as u64) as usize];
        let marks = matcher.marks(EvidenceSource::KernelLog, text);
        if marks.is_empty() {
            continue;
        }
        marked += 1;
        // Ten a second: the worst day of a cluster of a thousand nodes.
        let at = Timestamp::from_millis(i64::try_from(number * 100).unwrap_or(i64::MAX));
        engine.observe(&evidence(number, at, None, text.to_owned(), marks), |_, _| cases += 1);
    }
    engine.finish_with(|_, _| cases += 1);
    figure(
        "storm: every line another node's failure",
        count,
        marked,
        cases,
        begun.elapsed().as_secs_f64(),
        peak_rss("self"),
    )
}

/// Measures a log with occasional failures.
fn log(count: u64, every: u64) -> ReplayFigure {
    let mut engine = ReplayEngine::new(Catalogue::builtin());
    let mut triage = Triage::new(engine.matcher(), StreamContext::new(EvidenceSource::KernelLog));
    let mut marked = 0_u64;
    let mut cases = 0;
    let mut spent = 0.0;
    let mut block = Vec::with_capacity(BLOCK + 512);
    let mut number = 0;
    while number < count {
        block.clear();
        while number < count && block.len() < BLOCK {
            write_line(&mut block, number, every);
            number += 1;
        }
        // The generation of lines is not measured.
        let begun = Instant::now();
        let mut found = triage.push_block(&block, Timestamp(0));
        if number == count {
            found.extend(triage.flush());
        }
        for seen in found {
            marked += 1;
            let at = seen.at.unwrap_or_default();
            engine.observe(&evidence(marked, at, seen.host, seen.text, seen.marks), |_, _| {
                cases += 1
            });
        }
        spent += begun.elapsed().as_secs_f64();
    }
    let begun = Instant::now();
    engine.finish_with(|_, _| cases += 1);
    spent += begun.elapsed().as_secs_f64();
    figure(
        "events: a log through triage and diagnosis",
        count,
        marked,
        cases,
        spent,
        peak_rss("self"),
    )
}

fn figure(
    subject: &'static str,
    lines: u64,
    evidence: u64,
    cases: u64,
    seconds: f64,
    peak: Option<u64>,
) -> ReplayFigure {
    let per_s = |count: u64| count as f64 / seconds.max(1e-9);
    ReplayFigure {
        subject,
        lines,
        evidence,
        cases,
        seconds,
        lines_per_s: per_s(lines),
        evidence_per_s: per_s(evidence),
        peak_rss_bytes: peak,
    }
}

/// Measures pandas on the first lines of the same log.
fn peer(python: &Path, every: u64) -> Result<ReplayFigure, String> {
    let text_of = |problem: std::io::Error| problem.to_string();
    let path = std::env::temp_dir().join(format!("rankguard-bench-replay-{}.log", std::process::id()));
    let mut text = Vec::new();
    (0..PEER_LINES).for_each(|number| write_line(&mut text, number, every));
    std::fs::write(&path, &text).map_err(text_of)?;
    drop(text);
    let ran = Command::new(python)
        .arg("-c")
        .arg(PEER)
        .arg(&path)
        .stdin(Stdio::null())
        .output();
    let _ = std::fs::remove_file(&path);
    let ran = ran.map_err(text_of)?;
    if !ran.status.success() {
        let problem = String::from_utf8_lossy(&ran.stderr);
        return Err(problem.lines().last().unwrap_or("python failed").to_owned());
    }
    let answer = String::from_utf8_lossy(&ran.stdout);
    let numbers: Vec<f64> = answer
        .split_ascii_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    match numbers[..] {
        [hits, cases, seconds] => Ok(figure(
            "pandas: four patterns, gaps of 120 s",
            PEER_LINES,
            hits as u64,
            cases as u64,
            seconds,
            None,
        )),
        _ => Err(format!("it answered {answer:?}")),
    }
}

/// Returns the peak memory of a process in bytes, if the system reports it.
fn peak_rss(process: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024)
}

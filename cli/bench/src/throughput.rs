//! Throughput of log searches by this program on this machine, next to the limits of the machine and to other tools with the same work.
//!
//! Log searches run on one thread; time is processor time, so that other load disturbs little. The subjects alternate,
//! and figures are medians of the rounds.

mod healthy;
mod peers;

use std::hint::black_box;
use std::io;

use memchr::memchr_iter;
use rankguard_faults::{Catalogue, SignatureMatcher, StreamContext, Triage};
use rankguard_model::{EvidenceSource, Timestamp};
use rankguard_templates::{Miner, MinerLimits};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

const ROUNDS: usize = 3;
const SEED: u64 = 11;
/// Bytes per block for triage and the template miner, as read from a file.
const BLOCK: usize = 1 << 20;
/// Bytes of the log that the template miner reads.
const MINED: usize = 16 << 20;

/// Throughput of one subject.
#[derive(Debug, Serialize)]
pub struct ThroughputFigure {
    pub subject: String,
    /// Bytes and lines of one run.
    pub bytes: u64,
    pub lines: u64,
    /// Median processor time of one run.
    pub seconds: f64,
    pub gb_per_s: f64,
    pub lines_per_s: f64,
    /// Time per byte relative to triage.
    pub times_triage: f64,
    pub note: String,
}

/// Measured figures, and tools that were not found.
#[derive(Debug)]
pub struct ThroughputReport {
    pub figures: Vec<ThroughputFigure>,
    pub absent: Vec<&'static str>,
}

/// Returns a healthy log; the same bytes for the same size.
pub fn healthy_log(bytes: usize) -> Vec<u8> {
    healthy::log(bytes, SEED)
}

struct BenchSubject<'a> {
    name: String,
    log: &'a [u8],
    note: String,
    /// Runs once and returns the processor time.
    seconds: Box<dyn FnMut() -> io::Result<f64> + 'a>,
    rounds: Vec<f64>,
}

/// One pass over a log; the returned count keeps the compiler from removing the work.
type LogPass = Box<dyn FnMut(&[u8]) -> usize>;

/// Measures a search with every signature, in this program and in other tools.
pub fn matching(log: &[u8]) -> io::Result<ThroughputReport> {
    let patterns: Vec<&str> = Catalogue::builtin()
        .signatures()
        .iter()
        .map(|it| it.pattern.as_str())
        .collect();
    let matcher = SignatureMatcher::builtin();
    // Signatures are compiled at first use, once per process.
    let seen = triage(log);
    let mined = &log[..log.len().min(MINED)];
    let own = |name: &str, log, note: String, mut work: LogPass| BenchSubject {
        name: name.to_owned(),
        log,
        note,
        seconds: Box::new(move || {
            let before = cpu_seconds();
            black_box(work(black_box(log)));
            Ok(cpu_seconds() - before)
        }),
        rounds: Vec::new(),
    };
    let signatures = matcher.signatures().count();
    let mut subjects = vec![
        own("read memory once", log, "limit".to_owned(), Box::new(sum)),
        own(
            "count lines",
            log,
            "limit".to_owned(),
            Box::new(|log| memchr_iter(b'\n', log).count()),
        ),
        own(
            "triage",
            log,
            format!("{signatures} signatures, {seen} observations"),
            Box::new(triage),
        ),
        own("templates", mined, "every line learnt".to_owned(), Box::new(mine)),
    ];
    let folder = tempfile::tempdir()?;
    let (peers, absent) = peers::found(folder.path(), &patterns, log)?;
    for mut peer in peers {
        subjects.push(BenchSubject {
            name: peer.name.to_owned(),
            log: &log[..peer.bytes],
            note: format!("{} of {} patterns", peer.accepted, patterns.len()),
            seconds: Box::new(move || peer.seconds()),
            rounds: Vec::new(),
        });
    }
    for _ in 0..ROUNDS {
        for subject in &mut subjects {
            let seconds = (subject.seconds)()?;
            subject.rounds.push(seconds);
        }
    }
    let mut figures: Vec<ThroughputFigure> = subjects.into_iter().map(BenchSubject::figure).collect();
    let ours = figures
        .iter()
        .find(|figure| figure.subject == "triage")
        .map(|figure| figure.gb_per_s);
    for figure in &mut figures {
        figure.times_triage = ours.unwrap_or_default() / figure.gb_per_s;
    }
    Ok(ThroughputReport { figures, absent })
}

impl BenchSubject<'_> {
    fn figure(mut self) -> ThroughputFigure {
        self.rounds.sort_by(f64::total_cmp);
        // Shorter times are below the resolution of the clock.
        let seconds = self.rounds[ROUNDS / 2].max(1e-6);
        let lines = memchr_iter(b'\n', self.log).count();
        ThroughputFigure {
            subject: self.name,
            bytes: self.log.len() as u64,
            lines: lines as u64,
            seconds,
            gb_per_s: self.log.len() as f64 / seconds / 1e9,
            lines_per_s: lines as f64 / seconds,
            times_triage: 0.0,
            note: self.note,
        }
    }
}

fn sum(log: &[u8]) -> usize {
    let (words, rest) = log.as_chunks::<8>();
    let sum = words
        .iter()
        .fold(0, |sum: u64, word| sum.wrapping_add(u64::from_ne_bytes(*word)));
    sum as usize ^ rest.len()
}

fn triage(log: &[u8]) -> usize {
    let mut triage = Triage::new(SignatureMatcher::builtin(), StreamContext::new(EvidenceSource::JobLog));
    let blocks = log
        .chunks(BLOCK)
        .map(|block| triage.push_block(block, Timestamp(0)).len());
    blocks.sum::<usize>() + triage.flush().len()
}

fn mine(log: &[u8]) -> usize {
    let mut miner = Miner::new("bench", MinerLimits::default());
    let stream = miner.stream("log", "log");
    for (number, line) in (1..).zip(log.split(|byte| *byte == b'\n')) {
        miner.learn(stream, number, line);
    }
    log.len()
}

/// Returns the processor time of this thread.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

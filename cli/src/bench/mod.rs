//! Figures of this program on this machine, beside what the machine can do at all and what other tools do with the same work.
//!
//! Searches of logs run on one thread; time is processor time, so that neighbours disturb little. The subjects take turns, and the
//! median of the rounds counts.

pub(crate) mod agent;
pub(crate) mod checkpoint;
mod healthy;
mod peers;

use std::hint::black_box;
use std::io;

use memchr::memchr_iter;
use rankguard_faults::{Catalogue, Matcher, Stream, Triage};
use rankguard_model::{Source, Timestamp};
use rankguard_templates::{Limits, Miner};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

const ROUNDS: usize = 3;
const SEED: u64 = 11;
/// Bytes that triage and the reader of templates get at a time, as from a file.
const BLOCK: usize = 1 << 20;
/// Bytes of the log from which templates are made.
const MINED: usize = 16 << 20;

/// How fast one subject is.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) subject: String,
    /// Bytes and lines of one run.
    pub(crate) bytes: u64,
    pub(crate) lines: u64,
    /// Median of the processor time of one run.
    pub(crate) seconds: f64,
    pub(crate) gb_per_s: f64,
    pub(crate) lines_per_s: f64,
    /// How many times as long as triage it takes for a byte.
    pub(crate) times_triage: f64,
    pub(crate) note: String,
}

/// What was measured, and which tools were not there to be measured.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) figures: Vec<Figure>,
    pub(crate) absent: Vec<&'static str>,
}

/// A healthy log, always the same.
pub(crate) fn healthy_log(bytes: usize) -> Vec<u8> {
    healthy::log(bytes, SEED)
}

struct Subject<'a> {
    name: String,
    log: &'a [u8],
    note: String,
    /// Processor time of one run.
    seconds: Box<dyn FnMut() -> io::Result<f64> + 'a>,
    rounds: Vec<f64>,
}

/// One pass over a log; what it counts keeps the compiler from leaving it out.
type Work = Box<dyn FnMut(&[u8]) -> usize>;

/// Searches a log with every signature, and has others do the same.
pub(crate) fn matching(log: &[u8]) -> io::Result<Figures> {
    let patterns: Vec<&str> = Catalogue::builtin()
        .signatures()
        .iter()
        .map(|it| it.pattern.as_str())
        .collect();
    let matcher = Matcher::builtin();
    // Signatures are compiled when they are first needed, once in the life of a process.
    let seen = triage(log);
    let mined = &log[..log.len().min(MINED)];
    let own = |name: &str, log, note: String, mut work: Work| Subject {
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
        subjects.push(Subject {
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
    let mut figures: Vec<Figure> = subjects.into_iter().map(Subject::figure).collect();
    let ours = figures
        .iter()
        .find(|figure| figure.subject == "triage")
        .map(|figure| figure.gb_per_s);
    for figure in &mut figures {
        figure.times_triage = ours.unwrap_or_default() / figure.gb_per_s;
    }
    Ok(Figures { figures, absent })
}

impl Subject<'_> {
    fn figure(mut self) -> Figure {
        self.rounds.sort_by(f64::total_cmp);
        // A clock has its grain; less than a microsecond was not measured.
        let seconds = self.rounds[ROUNDS / 2].max(1e-6);
        let lines = memchr_iter(b'\n', self.log).count();
        Figure {
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
    let mut triage = Triage::new(Matcher::builtin(), Stream::new(Source::JobLog));
    let blocks = log
        .chunks(BLOCK)
        .map(|block| triage.push_block(block, Timestamp(0)).len());
    blocks.sum::<usize>() + triage.flush().len()
}

fn mine(log: &[u8]) -> usize {
    let mut miner = Miner::new("bench", Limits::default());
    let stream = miner.stream("log", "log");
    for (number, line) in (1..).zip(log.split(|byte| *byte == b'\n')) {
        miner.learn(stream, number, line);
    }
    log.len()
}

/// Processor time of this thread.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

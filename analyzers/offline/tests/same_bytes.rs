//! RG-8 over published logs: the output of triage, matcher, diagnosis and the offline engine for each, as one digest
//! a log, equals the recorded digests. An optimisation changes none; a change of classification records them again,
//! and the difference shows the affected logs: `RANKGUARD_RECORD=1 cargo test -p rankguard-offline --test
//! same_bytes`.

#![allow(
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test says what it could not do, and reads files"
)]

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Write as _};
use std::path::Path;
use std::{env, fs};

use crate::live::logs::{self, Log};
use crate::live::{self, Brain, observed, storms};
use rankguard_diagnosis::PlacementIndex;
use rankguard_faults::{SignatureMatcher, StreamContext, Triage};
use rankguard_model::{Evidence, EvidenceBody, Timestamp};
use rankguard_offline::CaseRecord;

/// Number of evidence items in one storm.
const STORM: usize = 4_000;
/// Number of failures used of a log in which every line is one.
const FAILURES: usize = 8_000;
/// Size of a block, bytes, chosen so that lines span blocks.
const BLOCK: usize = 10_007;

/// Writer that hashes its input.
#[derive(Default)]
struct Digest(blake3::Hasher);

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

impl Digest {
    fn add(&mut self, what: &impl Debug) {
        writeln!(self, "{what:?}").expect("a digest takes everything");
    }

    fn told(&self) -> String {
        self.0.finalize().to_hex()[..16].to_owned()
    }
}

/// Digest of diagnosis: every change and conclusion, and at the end its serialised state.
struct Diagnosed<'a> {
    brain: Brain<'a>,
    digest: Digest,
    taken: usize,
    cases: usize,
}

impl<'a> Diagnosed<'a> {
    fn new(context: &'a PlacementIndex) -> Self {
        Self {
            brain: Brain::new(context),
            digest: Digest::default(),
            taken: 0,
            cases: 0,
        }
    }

    fn take(&mut self, evidence: &Evidence) {
        self.taken += 1;
        self.digest.add(&evidence.marks);
        let digest = &mut self.digest;
        let cases = &mut self.cases;
        let changes = self.brain.take(evidence, &mut |concluded| {
            *cases += 1;
            digest.add(concluded);
        });
        self.digest.add(&changes);
        if self.taken.is_multiple_of(2_500) {
            self.write_down();
        }
    }

    fn write_down(&mut self) {
        let written = serde_json::to_string(&self.brain.diagnosis).expect("plain data");
        self.digest.add(&written);
    }

    fn told(mut self) -> String {
        self.write_down();
        let digest = &mut self.digest;
        let cases = &mut self.cases;
        self.brain.until(Timestamp(i64::MAX), &mut |concluded| {
            *cases += 1;
            digest.add(concluded);
        });
        format!("evidence {} cases {} {}", self.taken, self.cases, self.digest.told())
    }
}

/// Digests each line by itself.
fn by_line(all: impl Iterator<Item = Evidence>, context: &PlacementIndex) -> String {
    let matcher = SignatureMatcher::builtin();
    let mut diagnosed = Diagnosed::new(context);
    for mut evidence in all {
        live::mark(&mut evidence, &matcher);
        if !evidence.marks.is_empty() || !matches!(evidence.body, EvidenceBody::Line { .. }) {
            diagnosed.take(&evidence);
        }
    }
    diagnosed.told()
}

/// Digests blocks, with everything that triage knows of lines that belong together.
fn by_block(log: &Log) -> String {
    let bytes = log.bytes();
    let source = log.source(&bytes);
    let mut triage = Triage::new(SignatureMatcher::builtin(), StreamContext::new(source));
    let context = PlacementIndex::default();
    let mut diagnosed = Diagnosed::new(&context);
    let mut found: Vec<_> = bytes
        .chunks(BLOCK)
        .flat_map(|block| triage.push_block(block, Timestamp(0)))
        .collect();
    found.extend(triage.flush());
    for (number, seen) in found.into_iter().enumerate() {
        diagnosed.digest.add(&seen);
        diagnosed.take(&observed(number, source, seen));
    }
    diagnosed.told()
}

/// Digests every case of a file, by the offline engine.
fn classified(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("a file of cases");
    let mut digest = Digest::default();
    for line in text.lines() {
        digest.add(&CaseRecord::parse(line).map(CaseRecord::classify));
    }
    format!("cases {} {}", text.lines().count(), digest.told())
}

/// Compares with the digests in a file, or writes the file if requested.
fn compare(file: &str, now: &BTreeMap<String, String>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/same_bytes")
        .join(file);
    let text: String = now.iter().map(|(name, told)| format!("{name}: {told}\n")).collect();
    if env::var_os("RANKGUARD_RECORD").is_some() {
        return fs::write(&path, text).expect("the record can be written");
    }
    let recorded = fs::read_to_string(&path).unwrap_or_default();
    let differ: Vec<&str> = text
        .lines()
        .filter(|line| !recorded.lines().any(|held| held == *line))
        .collect();
    assert!(
        differ.is_empty() && recorded.lines().count() == now.len(),
        "other bytes than recorded in {file}; where that is meant, record anew with RANKGUARD_RECORD=1: {differ:#?}"
    );
}

#[test]
fn storms_give_the_bytes_that_they_gave() {
    let told = storms::ALL.iter().map(|storm| {
        let all = (0..STORM).map(storm.evidence);
        (storm.name.to_owned(), by_line(all, &storms::context(storm.in_job)))
    });
    compare("storms.txt", &told.collect());
}

#[test]
fn published_logs_give_the_bytes_that_they_gave() {
    let Some(shared) = logs::shared() else {
        return eprintln!("SKIPPED: there is no ../shared, so no published log was compared with its digest");
    };
    let mut told = BTreeMap::new();
    for log in logs::all(&shared) {
        let said = if log.is_blue_gene() {
            by_line(log.failures().into_iter().take(FAILURES), &PlacementIndex::default())
        } else {
            by_block(&log)
        };
        told.insert(log.name, said);
    }
    let cases = shared.join("failure-logs/dev.jsonl");
    told.insert("failure-logs/dev.jsonl".to_owned(), classified(&cases));
    compare("published.txt", &told);
}

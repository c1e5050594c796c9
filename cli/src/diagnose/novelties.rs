//! Comparison of failing logs with logs of healthy runs, by templates of lines; needs no signature.

use std::path::{Path, PathBuf};

use rankguard_faults::line::{LineClock, clean, parse};
use rankguard_files::ReadBudget;
use rankguard_offline::guess;
use rankguard_templates::{Miner, MinerLimits, NoveltyFinding, TemplateProfile, compare};

use super::files;

/// Minimum score of a reported novelty.
const WORTH: f64 = 0.3;
/// Maximum number of reported novelties.
const SHOWN: usize = 20;

/// Returns the strongest novelties of `failing` against the healthy runs, each of which is a file or a folder; none if no
/// line of the healthy runs could be read.
pub(super) fn find(
    failing: &[PathBuf],
    healthy: &[PathBuf],
    budget: &ReadBudget,
    problems: &mut Vec<String>,
) -> Option<Vec<NoveltyFinding>> {
    let mut base = TemplateProfile::empty(MinerLimits::default());
    let mut has_base = false;
    for path in healthy {
        let (profile, lines) = profile(path, budget, problems);
        has_base |= lines > 0;
        base.merge(&profile);
    }
    if !has_base {
        return None;
    }
    let mut own = TemplateProfile::empty(MinerLimits::default());
    for path in failing {
        own.merge(&profile(path, budget, problems).0);
    }
    let mut found = compare(&own, &base);
    found.retain(|novelty| novelty.score >= WORTH);
    found.truncate(SHOWN);
    Some(found)
}

/// Builds the profile of one run, and counts its lines: every file below the path is a stream; ranks are compared with
/// ranks.
fn profile(root: &Path, budget: &ReadBudget, problems: &mut Vec<String>) -> (TemplateProfile, u64) {
    let mut miner = Miner::new(&root.display().to_string(), MinerLimits::default());
    let mut total = 0;
    for file in files::walk(root, problems) {
        let group = if guess::rank(root, &file).is_some() {
            "rank"
        } else {
            "log"
        };
        let stream = miner.stream(&file.display().to_string(), group);
        let mut lines = match files::open(&file, budget) {
            Ok(lines) => lines,
            Err(error) => {
                problems.push(format!("{}: {error}", file.display()));
                continue;
            }
        };
        let mut number = 0;
        let lines_before = total;
        loop {
            match lines.next() {
                Ok(Some(line)) => {
                    number += 1;
                    total = lines_before + number;
                    let line = clean(&line);
                    miner.learn(stream, number, parse(&line, &LineClock::default()).text.as_bytes());
                }
                Ok(None) => break,
                Err(error) => {
                    problems.push(format!("{}: read up to line {number} only: {error}", file.display()));
                    break;
                }
            }
        }
    }
    (miner.profile(), total)
}

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

/// Returns the strongest novelties of `failing` against the healthy runs, each of which is a file or a folder.
pub(super) fn find(
    failing: &[PathBuf],
    healthy: &[PathBuf],
    budget: &ReadBudget,
    problems: &mut Vec<String>,
) -> Vec<NoveltyFinding> {
    let mut base = TemplateProfile::empty(MinerLimits::default());
    for path in healthy {
        base.merge(&profile(path, budget, problems));
    }
    let mut own = TemplateProfile::empty(MinerLimits::default());
    for path in failing {
        own.merge(&profile(path, budget, problems));
    }
    let mut found = compare(&own, &base);
    found.retain(|novelty| novelty.score >= WORTH);
    found.truncate(SHOWN);
    found
}

/// Builds the profile of one run: every file below the path is a stream; ranks are compared with ranks.
fn profile(root: &Path, budget: &ReadBudget, problems: &mut Vec<String>) -> TemplateProfile {
    let mut miner = Miner::new(&root.display().to_string(), MinerLimits::default());
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
        loop {
            match lines.next() {
                Ok(Some(line)) => {
                    number += 1;
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
    miner.profile()
}

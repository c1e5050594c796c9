//! Plain-text rendering of a report.

use crate::phrases;
use crate::report::{AnalysisReport, GroupFinding};

impl AnalysisReport {
    /// Returns the report as lines of plain text, most important first.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let entries = if self.entries == 1 { "entry" } else { "entries" };
        lines.push(format!("{} dumps, {} {entries}", self.dumps, self.entries));
        if self.culprits.is_empty() {
            lines.push("culprits: none that the dumps can show".to_owned());
        }
        for culprit in &self.culprits {
            lines.push(format!(
                "culprit: rank {} (confidence {:.2})",
                culprit.rank, culprit.confidence
            ));
            lines.extend(culprit.because.iter().map(|sentence| format!("  - {sentence}")));
        }
        for suspect in &self.suspects {
            lines.push(format!(
                "suspect: rank {} (confidence {:.2})",
                suspect.rank, suspect.confidence
            ));
            lines.extend(suspect.because.iter().map(|sentence| format!("  - {sentence}")));
        }
        // Every member of a cycle has its own sentence; one of them is enough here.
        let mut told: Vec<usize> = Vec::new();
        for (index, member) in self.cycles.iter().enumerate() {
            let known = told
                .iter()
                .any(|other| self.cycles[*other].because[0].contains(&format!("rank {} waits", member.rank)));
            if !known {
                told.push(index);
                lines.extend(member.because.iter().map(|sentence| format!("deadlock: {sentence}")));
            }
        }
        for group in &self.groups {
            describe(group, &mut lines);
        }
        let mut list = |what: &str, ranks: &[u32]| {
            if !ranks.is_empty() {
                lines.push(format!("{what}: {}", phrases::numbers(ranks)));
            }
        };
        list("ranks without a dump", &self.ranks_without_dump);
        list("ranks without an entry", &self.ranks_without_entries);
        list("healthy ranks", &self.healthy_ranks);
        for problem in &self.problems {
            let rank = problem.rank.map(|rank| format!("rank {rank}, ")).unwrap_or_default();
            lines.push(format!("problem: {rank}{}: {}", problem.place, problem.what));
        }
        lines
    }
}

fn describe(group: &GroupFinding, lines: &mut Vec<String>) {
    let root = if group.root {
        " (the chains of waiting end here)"
    } else {
        ""
    };
    lines.push(format!("group {}{root}", group.name));
    let size = format!("{} {}", group.size, group.dtype);
    lines.push(
        format!("  {} {} {}", group.collective, group.seq, size.trim())
            .trim_end()
            .to_owned(),
    );
    if let Some(frame) = &group.frame {
        lines.push(format!("  at {frame}"));
    }
    for (what, ranks) in [
        ("missing", &group.missing_ranks),
        ("waiting", &group.waiting_ranks),
        ("healthy", &group.healthy_ranks),
    ] {
        if !ranks.is_empty() {
            lines.push(format!("  {what}: {}", phrases::numbers(ranks)));
        }
    }
    lines.extend(
        group
            .mismatches
            .iter()
            .map(|mismatch| format!("  mismatch: {}", mismatch.sentence)),
    );
    lines.extend(group.notes.iter().map(|note| format!("  {note}")));
}

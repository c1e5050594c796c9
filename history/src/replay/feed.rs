//! Log as a stream of classified lines, each with its time, its node and its label, if any.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};

use rankguard_faults::line::{LineClock, clean, parse};
use rankguard_faults::{LogObservation, StreamContext, Triage};
use rankguard_model::{Classification, EvidenceSource, NodeId, Rank, Timestamp};
use rankguard_offline::{NodeNames, guess, hosts_of};

use super::engine::ReplayEngine;
use super::files::LogPath;
use super::item::ReplayItem;
use super::labels::LineLabels;
use super::lines::BoundedLines;
use super::tally::ReplayTally;

/// Format of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineForm {
    /// `TIME LOCATION RAS FACILITY SEVERITY TEXT`: every line is an alert.
    BlueGene,
    /// `LABEL EPOCH DATE LOCATION TIME LOCATION RAS ...`: `-` is no alert.
    Labelled,
    /// Any other format.
    Plain,
}

/// Log that is being read.
pub(super) struct LogFeed {
    name: String,
    /// Node from the path.
    node: Option<NodeId>,
    rank: Option<Rank>,
    clock: LineClock,
    lines: BoundedLines,
    form: LineForm,
    source: EvidenceSource,
    labels: Option<LineLabels>,
    triage: Option<Triage>,
    ready: VecDeque<ReplayItem>,
    at: Timestamp,
    done: bool,
}

impl LogFeed {
    /// Opens a log and recognises its format from the first lines. `whole` reads plain logs with all of live triage's
    /// rules for lines that belong together.
    pub(super) fn open(
        log: &LogPath,
        heads: &LogHeads,
        labels: Option<LineLabels>,
        whole: bool,
        engine: &ReplayEngine,
    ) -> io::Result<Self> {
        let path = log.path.as_path();
        let mut lines = BoundedLines::open(path)?;
        let head = lines.peek()?;
        if head.iter().take(8 << 10).any(|byte| *byte == 0) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not text"));
        }
        let head: Vec<String> = head
            .split(|byte| *byte == b'\n')
            .take(guess::SAMPLE)
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .collect();
        let first = head.first().map_or("", String::as_str);
        let words: Vec<&str> = first.split_ascii_whitespace().take(7).collect();
        let form = match words[..] {
            [time, _, "RAS", ..] if blue_gene(time).is_some() => LineForm::BlueGene,
            [_, epoch, _, _, time, _, "RAS"] if epoch.parse::<i64>().is_ok() && blue_gene(time).is_some() => {
                LineForm::Labelled
            }
            _ => LineForm::Plain,
        };
        let source = match form {
            LineForm::Plain => guess::source(path, &head),
            _ => EvidenceSource::KernelLog,
        };
        let clock = LineClock {
            hint: guess::year_hint(heads.newest, rankguard_files::modified_ns(path).map(Timestamp)),
            ..LineClock::default()
        };
        let rank = guess::rank(&log.root, path);
        let stream = StreamContext { source, rank, clock };
        // Labels apply to single lines, so labelled logs are classified line by line.
        let grouped = form == LineForm::Plain && whole && labels.is_none();
        Ok(Self {
            name: path.display().to_string(),
            node: heads.node(log),
            rank,
            clock,
            lines,
            form,
            source,
            labels,
            triage: grouped.then(|| Triage::new(engine.matcher(), stream)),
            ready: VecDeque::new(),
            at: Timestamp(0),
            done: false,
        })
    }

    /// Returns the next item; unclassified lines are only counted.
    pub(super) fn next(&mut self, engines: &[ReplayEngine], tally: &mut ReplayTally) -> Option<ReplayItem> {
        let mut bytes = Vec::new();
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            if self.done {
                return None;
            }
            match self.lines.next(&mut bytes) {
                Ok(true) => {}
                end => {
                    if let Err(problem) = end {
                        let read = self.lines.number();
                        tally.problem(format!("{}: read up to line {read} only: {problem}", self.name));
                    }
                    self.done = true;
                    let read = self.lines.number();
                    let last_label = self.labels.as_ref().map_or(0, LineLabels::last_line);
                    if last_label > read {
                        tally.problem(format!(
                            "--labels has a label of line {last_label}, but {} has {read} lines: it may be of another log",
                            self.name
                        ));
                    }
                    let rest = self.triage.as_mut().map(Triage::flush).unwrap_or_default();
                    rest.into_iter().for_each(|observation| self.keep(observation, tally));
                    continue;
                }
            }
            tally.lines += 1;
            let raw = String::from_utf8_lossy(&bytes);
            if let Some(triage) = &mut self.triage {
                let found = triage.push(&raw, Timestamp(0));
                found.into_iter().for_each(|observation| self.keep(observation, tally));
            } else {
                self.judge(&raw, engines, tally);
            }
        }
    }

    fn keep(&mut self, observation: LogObservation, tally: &mut ReplayTally) {
        self.advance(
            observation.at.or_else(|| {
                let boot = observation.since_boot_us.and_then(|us| i64::try_from(us).ok());
                boot.map(|us| Timestamp(us.saturating_mul(1_000)))
            }),
            tally,
        );
        self.ready.push_back(ReplayItem {
            at: self.at,
            source: self.source,
            node: self.node_of(observation.host.as_deref()),
            rank: observation.rank.or(self.rank),
            device: observation.device,
            text: observation.text,
            repeats: observation.repeats,
            marks: vec![observation.marks],
            recorded: None,
        });
    }

    /// Returns the node named by the path or the line, otherwise the file name.
    fn node_of(&self, host: Option<&str>) -> NodeId {
        let named = self.node.clone().or_else(|| host.map(NodeId::from));
        named.unwrap_or_else(|| NodeId::from(self.name.clone()))
    }

    /// Clocks of logs may go back; the diagnosis clock does not.
    fn advance(&mut self, to: Option<Timestamp>, tally: &mut ReplayTally) {
        match to {
            Some(to) if to < self.at => tally.back += 1,
            Some(to) => self.at = to,
            None => tally.untimed += 1,
        }
    }

    /// Classifies one line by every catalogue.
    fn judge(&mut self, raw: &str, engines: &[ReplayEngine], tally: &mut ReplayTally) {
        let cleaned = clean(raw);
        let (at, node, text, label) = match self.form {
            LineForm::Plain => {
                let parsed = parse(&cleaned, &self.clock);
                let node = self.node_of(parsed.host).to_string();
                let label = self
                    .labels
                    .as_ref()
                    .map(|labels| labels.of(self.lines.number()).map(str::to_owned));
                (parsed.at, node, parsed.text, label)
            }
            form => {
                let Some((at, node, text, label)) = ras(&cleaned, form) else {
                    tally.odd += 1;
                    return;
                };
                let label = (form == LineForm::Labelled).then(|| label.map(str::to_owned));
                (
                    Some(at),
                    node.to_owned(),
                    text,
                    label.or(Some(Some("alert".to_owned()))),
                )
            }
        };
        let marks: Vec<Vec<Classification>> = engines.iter().map(|engine| engine.marks(self.source, text)).collect();
        if let Some(label) = &label {
            tally.judge(label.as_deref(), marks.first().map_or(&[], Vec::as_slice));
        }
        if marks.iter().all(Vec::is_empty) {
            return;
        }
        let text = text.to_owned();
        self.advance(at, tally);
        self.ready.push_back(ReplayItem {
            at: self.at,
            source: self.source,
            node: NodeId::from(node),
            rank: None,
            device: None,
            text,
            repeats: 1,
            marks,
            recorded: None,
        });
    }

    /// Reports truncated lines.
    pub(super) fn finish(self, tally: &mut ReplayTally) {
        let cut = self.lines.cut();
        if cut > 0 {
            tally.problem(format!("{}: {cut} lines longer than 1 MiB are cut", self.name));
        }
    }
}

/// Facts that the first lines of all logs show together.
#[derive(Default)]
pub(super) struct LogHeads {
    /// Newest time with a year: clocks without a year are resolved with it.
    newest: Option<Timestamp>,
    /// Names of nodes among the names of folders and files, by the path that was given.
    nodes: BTreeMap<PathBuf, NodeNames>,
}

impl LogHeads {
    pub(super) fn read(logs: &[LogPath]) -> Self {
        let mut heads = Self::default();
        let mut hosts: BTreeMap<&Path, Vec<(&Path, BTreeSet<String>)>> = BTreeMap::new();
        for log in logs {
            let lines = head_lines(&log.path).unwrap_or_default();
            heads.newest = heads.newest.max(guess::newest_moment(&lines));
            hosts.entry(&log.root).or_default().push((&log.path, hosts_of(&lines)));
        }
        for (root, files) in hosts {
            let files = files.iter().map(|(path, hosts)| (*path, hosts));
            heads.nodes.insert(root.to_owned(), NodeNames::among(root, files));
        }
        heads
    }

    fn node(&self, log: &LogPath) -> Option<NodeId> {
        self.nodes.get(&log.root)?.node(&log.root, &log.path)
    }
}

/// Returns the first lines of a log; `None` if it cannot be read.
fn head_lines(path: &Path) -> Option<Vec<String>> {
    let mut lines = BoundedLines::open(path).ok()?;
    let head = lines.peek().ok()?;
    let head = head.split(|byte| *byte == b'\n').take(guess::SAMPLE);
    Some(head.map(|line| String::from_utf8_lossy(line).into_owned()).collect())
}

/// Parses time, location, text and label of a Blue Gene/L line.
fn ras(line: &str, form: LineForm) -> Option<(Timestamp, &str, &str, Option<&str>)> {
    let mut words = line.splitn(if form == LineForm::BlueGene { 6 } else { 10 }, ' ');
    let label = match form {
        LineForm::BlueGene => None,
        _ => {
            let label = words.next()?;
            words.by_ref().nth(2)?;
            Some(label).filter(|label| *label != "-")
        }
    };
    let at = blue_gene(words.next()?)?;
    let node = words.next()?;
    let _ = words.next()?;
    let _ = words.next()?;
    let _ = words.next()?;
    let text = words.next()?;
    Some((at, node, text, label))
}

/// Parses `2005-06-05-01.55.06.697467`, a wall clock without zone, as UTC.
fn blue_gene(text: &str) -> Option<Timestamp> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<i64>().ok();
    if text.len() != 26 || text.as_bytes().get(10) != Some(&b'-') {
        return None;
    }
    let year = number(0..4)?;
    let month = number(5..7)?;
    let day = number(8..10)?;
    let hour = number(11..13)?;
    let minute = number(14..16)?;
    let second = number(17..19)?;
    let micros = number(20..26)?;
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days from the civil date (Hinnant), March first.
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let of_era = shifted - era * 400;
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(Timestamp(
        seconds.checked_mul(1_000_000_000)?.checked_add(micros * 1_000)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blue_gene_lines_are_taken_apart() {
        let line = "2005-06-05-01.55.06.697467 R11-M0-NB-C:J07-U11 RAS KERNEL FATAL rts panic! - stopping execution";
        let (at, node, text, label) = ras(line, LineForm::BlueGene).expect("a line");
        assert_eq!(at.0, 1_117_936_506_697_467_000);
        assert_eq!(
            (node, text, label),
            ("R11-M0-NB-C:J07-U11", "rts panic! - stopping execution", None)
        );
        let line = "KERNDTLB 1117838570 2005.06.03 R02 2005-06-03-15.42.50.675872 R02 RAS KERNEL FATAL data TLB error interrupt";
        let (_, _, text, label) = ras(line, LineForm::Labelled).expect("a line");
        assert_eq!((text, label), ("data TLB error interrupt", Some("KERNDTLB")));
        for wrong in [
            "",
            "2005-06-05-01.55.06.69746x R RAS A B c",
            "2005-13-05-01.55.06.697467 R RAS A B c",
        ] {
            assert!(ras(wrong, LineForm::BlueGene).is_none(), "{wrong}");
        }
    }
}

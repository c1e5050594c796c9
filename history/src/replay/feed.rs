//! One log as a stream of marked lines, each with its moment, its node and what somebody says that it means.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use rankguard_faults::line::{LineClock, clean, parse};
use rankguard_faults::{Observation, Stream, Triage};
use rankguard_model::{Device, Mark, NodeId, Rank, Source, Timestamp};
use rankguard_offline::guess;

use super::brain::Brain;
use super::tally::Tally;

/// Bytes of a line that are kept; the rest of a longer one is passed over.
const LINE_BYTES: usize = 1 << 20;
/// Most labels of a file.
const LABELS: usize = 50_000_000;

/// What lines mean, by number from 1. A line that is not there means nothing.
#[derive(Debug, Clone)]
pub(super) struct Labels(Arc<BTreeMap<u64, String>>);

impl Labels {
    /// Reads CSV of `NUMBER,LABEL`; a first line without a number is a header.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let mut labels = BTreeMap::new();
        let wrong =
            |line: usize, what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("line {line}: {what}"));
        for (at, line) in BufReader::new(File::open(path)?).lines().enumerate() {
            let line = line?;
            let Some((number, label)) = line.split_once(',') else {
                return Err(wrong(at + 1, "there is no comma"));
            };
            match number.trim().parse() {
                Ok(number) if labels.len() < LABELS => drop(labels.insert(number, label.trim().to_owned())),
                Ok(_) => return Err(wrong(at + 1, "too many labels")),
                Err(_) if at == 0 => {}
                Err(_) => return Err(wrong(at + 1, "the first field is no line number")),
            }
        }
        Ok(Self(Arc::new(labels)))
    }

    fn of(&self, line: u64) -> Option<&str> {
        self.0.get(&line).map(String::as_str).filter(|label| *label != "-")
    }
}

/// Something that at least one catalogue marks.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) at: Timestamp,
    pub(super) source: Source,
    pub(super) node: NodeId,
    pub(super) rank: Option<Rank>,
    pub(super) device: Option<Device>,
    pub(super) text: String,
    pub(super) repeats: u32,
    /// What each catalogue says, best first.
    pub(super) marks: Vec<Vec<Mark>>,
}

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `TIME LOCATION RAS FACILITY SEVERITY TEXT`: every line is an alert.
    BlueGene,
    /// `LABEL EPOCH DATE LOCATION TIME LOCATION RAS ...`: `-` is no alert.
    Labelled,
    /// Anything.
    Plain,
}

/// One log while it is read.
pub(super) struct Feed {
    name: String,
    reader: BufReader<Box<dyn Read>>,
    form: Form,
    source: Source,
    labels: Option<Labels>,
    triage: Option<Triage>,
    ready: std::collections::VecDeque<Item>,
    at: Timestamp,
    line: u64,
    cut: u64,
    done: bool,
}

impl Feed {
    /// Looks at the first lines. `whole` reads plain logs with all that live triage knows of lines that belong together.
    pub(super) fn open(path: &Path, labels: Option<Labels>, whole: bool, brain: &Brain) -> io::Result<Self> {
        let mut plain = BufReader::new(File::open(path)?);
        let packed = plain.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        let unpacked: Box<dyn Read> = if packed {
            Box::new(MultiGzDecoder::new(plain))
        } else {
            Box::new(plain)
        };
        let mut reader = BufReader::with_capacity(256 << 10, unpacked);
        let head = reader.fill_buf()?;
        if head.iter().take(8 << 10).any(|byte| *byte == 0) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a text"));
        }
        let head: Vec<String> = head
            .split(|byte| *byte == b'\n')
            .take(guess::SAMPLE)
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .collect();
        let first = head.first().map_or("", String::as_str);
        let words: Vec<&str> = first.split_ascii_whitespace().take(7).collect();
        let form = match words[..] {
            [time, _, "RAS", ..] if blue_gene(time).is_some() => Form::BlueGene,
            [_, epoch, _, _, time, _, "RAS"] if epoch.parse::<i64>().is_ok() && blue_gene(time).is_some() => {
                Form::Labelled
            }
            _ => Form::Plain,
        };
        let source = match form {
            Form::Plain => guess::source(path, &head),
            _ => Source::KernelLog,
        };
        let stream = Stream {
            source,
            rank: None,
            clock: LineClock::default(),
        };
        // Labels belong to lines, so labelled logs are judged line by line.
        let grouped = form == Form::Plain && whole && labels.is_none();
        Ok(Self {
            name: path.display().to_string(),
            reader,
            form,
            source,
            labels,
            triage: grouped.then(|| Triage::new(brain.matcher(), stream)),
            ready: std::collections::VecDeque::new(),
            at: Timestamp(0),
            line: 0,
            cut: 0,
            done: false,
        })
    }

    /// The next item; lines that nobody marks are counted only.
    pub(super) fn next(&mut self, brains: &[Brain], tally: &mut Tally) -> Option<Item> {
        let mut bytes = Vec::new();
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            if self.done {
                return None;
            }
            match self.read_line(&mut bytes) {
                Ok(true) => {}
                end => {
                    if let Err(problem) = end {
                        tally.problem(format!("{}: read up to line {} only: {problem}", self.name, self.line));
                    }
                    self.done = true;
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
                self.judge(&raw, brains, tally);
            }
        }
    }

    fn keep(&mut self, observation: Observation, tally: &mut Tally) {
        self.advance(
            observation.at.or_else(|| {
                let boot = observation.since_boot_us.and_then(|us| i64::try_from(us).ok());
                boot.map(|us| Timestamp(us.saturating_mul(1_000)))
            }),
            tally,
        );
        self.ready.push_back(Item {
            at: self.at,
            source: self.source,
            node: NodeId(observation.host.unwrap_or_else(|| self.name.clone())),
            rank: observation.rank,
            device: observation.device,
            text: observation.text,
            repeats: observation.repeats,
            marks: vec![observation.marks],
        });
    }

    /// Clocks of logs go back at times; the brain's does not.
    fn advance(&mut self, to: Option<Timestamp>, tally: &mut Tally) {
        match to {
            Some(to) if to < self.at => tally.back += 1,
            Some(to) => self.at = to,
            None => tally.untimed += 1,
        }
    }

    /// One line by itself, by every catalogue.
    fn judge(&mut self, raw: &str, brains: &[Brain], tally: &mut Tally) {
        let cleaned = clean(raw);
        let (at, node, text, label) = match self.form {
            Form::Plain => {
                let parsed = parse(&cleaned, &LineClock::default());
                let node = parsed.host.map_or_else(|| self.name.clone(), str::to_owned);
                let label = self
                    .labels
                    .as_ref()
                    .map(|labels| labels.of(self.line).map(str::to_owned));
                (parsed.at, node, parsed.text, label)
            }
            form => {
                let Some((at, node, text, label)) = ras(&cleaned, form) else {
                    tally.odd += 1;
                    return;
                };
                let label = (form == Form::Labelled).then(|| label.map(str::to_owned));
                (
                    Some(at),
                    node.to_owned(),
                    text,
                    label.or(Some(Some("alert".to_owned()))),
                )
            }
        };
        let marks: Vec<Vec<Mark>> = brains.iter().map(|brain| brain.marks(self.source, text)).collect();
        if let Some(label) = &label {
            tally.judge(label.as_deref(), marks.first().map_or(&[], Vec::as_slice));
        }
        if marks.iter().all(Vec::is_empty) {
            return;
        }
        let text = text.to_owned();
        self.advance(at, tally);
        self.ready.push_back(Item {
            at: self.at,
            source: self.source,
            node: NodeId(node),
            rank: None,
            device: None,
            text,
            repeats: 1,
            marks,
        });
    }

    /// The next line without its end; false at the end of the file.
    fn read_line(&mut self, line: &mut Vec<u8>) -> io::Result<bool> {
        line.clear();
        let (mut any, mut cut) = (false, false);
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                break;
            }
            any = true;
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let part = &buffer[..end.unwrap_or(buffer.len())];
            let room = LINE_BYTES - line.len();
            cut |= part.len() > room;
            line.extend_from_slice(&part[..part.len().min(room)]);
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() {
                break;
            }
        }
        self.line += u64::from(any);
        self.cut += u64::from(cut);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(any)
    }

    /// Says what was cut.
    pub(super) fn finish(self, tally: &mut Tally) {
        if self.cut > 0 {
            tally.problem(format!(
                "{}: {} lines are longer than 1 MiB; their ends were not read",
                self.name, self.cut
            ));
        }
    }
}

/// Moment, location, text and label of a line of Blue Gene/L.
fn ras(line: &str, form: Form) -> Option<(Timestamp, &str, &str, Option<&str>)> {
    let mut words = line.splitn(if form == Form::BlueGene { 6 } else { 10 }, ' ');
    let label = match form {
        Form::BlueGene => None,
        _ => {
            let label = words.next()?;
            words.by_ref().nth(2)?;
            Some(label).filter(|label| *label != "-")
        }
    };
    let at = blue_gene(words.next()?)?;
    let node = words.next()?;
    let (_, _, _, text) = (words.next()?, words.next()?, words.next()?, words.next()?);
    Some((at, node, text, label))
}

/// `2005-06-05-01.55.06.697467`, a wall clock without zone, counted as UTC.
fn blue_gene(text: &str) -> Option<Timestamp> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<i64>().ok();
    if text.len() != 26 || text.as_bytes().get(10) != Some(&b'-') {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second, micros) = (number(11..13)?, number(14..16)?, number(17..19)?, number(20..26)?);
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
        let (at, node, text, label) = ras(line, Form::BlueGene).expect("a line");
        assert_eq!(at.0, 1_117_936_506_697_467_000);
        assert_eq!(
            (node, text, label),
            ("R11-M0-NB-C:J07-U11", "rts panic! - stopping execution", None)
        );
        let line = "KERNDTLB 1117838570 2005.06.03 R02 2005-06-03-15.42.50.675872 R02 RAS KERNEL FATAL data TLB error interrupt";
        let (_, _, text, label) = ras(line, Form::Labelled).expect("a line");
        assert_eq!((text, label), ("data TLB error interrupt", Some("KERNDTLB")));
        for wrong in [
            "",
            "2005-06-05-01.55.06.69746x R RAS A B c",
            "2005-13-05-01.55.06.697467 R RAS A B c",
        ] {
            assert!(ras(wrong, Form::BlueGene).is_none(), "{wrong}");
        }
    }
}

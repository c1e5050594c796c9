//! Recorded evidence: a file with one piece a line (JSON), or a controller's journal.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use rankguard_faults::Matcher;
use rankguard_faults::line::{LineClock, clean, parse};
use rankguard_model::{Body, Evidence, Mark, Timestamp, with_causes};

use super::brain::Brain;
use super::item::Item;
use super::lines::Lines;
use super::tally::Tally;

/// Maximum number of pieces that the journal's reader reads ahead.
const AHEAD: usize = 4_096;

/// Note on a journal with a running controller.
pub(super) const STILL_WRITTEN: &str = "its controller runs: read up to the entry that was the last one just now";

/// Returns true if a file's first line is evidence.
pub(super) fn holds_evidence(path: &Path) -> bool {
    let mut line = Vec::new();
    let first = Lines::open(path).and_then(|mut lines| lines.next(&mut line));
    first.is_ok() && serde_json::from_slice::<Evidence>(&line).is_ok()
}

/// Recording that is being read.
pub(super) struct Recorded {
    name: String,
    from: From,
    at: Timestamp,
    ended: bool,
}

enum From {
    Lines(Lines),
    /// The journal passes entries to a callback, so its reader runs on a separate thread.
    Journal(Receiver<Result<Evidence, String>>),
}

impl Recorded {
    pub(super) fn of_file(path: &Path) -> io::Result<Self> {
        Ok(Self::new(path, From::Lines(Lines::open(path)?)))
    }

    /// Opens a journal; damage after its start is reported when it is reached.
    pub(super) fn of_journal(path: &Path, tally: &mut Tally) -> Result<Self, String> {
        rankguard_journal::policy(path).map_err(|problem| with_causes(&problem))?;
        if rankguard_journal::in_use(path) {
            tally.problem(format!("{}: {}", path.display(), STILL_WRITTEN));
        }
        let (give, take) = sync_channel(AHEAD);
        let name = path.to_owned();
        thread::spawn(move || {
            // Stops when the receiver was dropped.
            let read = rankguard_journal::evidence(&name, |entry| {
                give.send(entry.map_err(|problem| problem.to_string())).is_ok()
            });
            if let Err(problem) = read {
                let _ = give.send(Err(problem.to_string()));
            }
        });
        Ok(Self::new(path, From::Journal(take)))
    }

    fn new(path: &Path, from: From) -> Self {
        Self {
            name: path.display().to_string(),
            from,
            at: Timestamp(i64::MIN),
            ended: false,
        }
    }

    /// Returns the next item; unclassified lines are only counted. `given` is true if the first catalogue is not the
    /// built-in one.
    pub(super) fn next(&mut self, brains: &[Brain], given: bool, tally: &mut Tally) -> Option<Item> {
        loop {
            let evidence = self.piece(tally)?;
            tally.lines += 1;
            match evidence.at < self.at {
                true => tally.back += 1,
                false => self.at = evidence.at,
            }
            let marks: Vec<Vec<Mark>> = brains
                .iter()
                .enumerate()
                .map(|(which, brain)| marks(&evidence, &brain.matcher(), given || which > 0))
                .collect();
            let text = match &evidence.body {
                Body::Line { .. } if marks.iter().all(Vec::is_empty) => continue,
                Body::Line { text, .. } => text.clone(),
                _ => String::new(),
            };
            return Some(Item {
                at: self.at,
                source: evidence.source,
                node: evidence.entity.node().unwrap_or(&evidence.id.node).clone(),
                rank: evidence.entity.rank(),
                device: None,
                text,
                repeats: 1,
                marks,
                recorded: Some(Box::new(evidence)),
            });
        }
    }

    fn piece(&mut self, tally: &mut Tally) -> Option<Evidence> {
        let mut line = Vec::new();
        while !self.ended {
            let found = match &mut self.from {
                From::Journal(entries) => match entries.recv() {
                    Ok(entry) => entry,
                    Err(_) => break,
                },
                From::Lines(lines) => match lines.next(&mut line) {
                    Ok(false) => break,
                    Ok(true) if line.iter().all(u8::is_ascii_whitespace) => continue,
                    Ok(true) => serde_json::from_slice(&line)
                        .map_err(|problem| format!("line {}: no evidence: {problem}; passed over", lines.number())),
                    Err(problem) => {
                        self.ended = true;
                        Err(format!("read up to line {} only: {problem}", lines.number()))
                    }
                },
            };
            match found {
                Ok(evidence) => return Some(evidence),
                Err(problem) => {
                    tally.problem(format!("{}: {problem}", self.name));
                }
            }
        }
        self.ended = true;
        None
    }
}

/// Returns a catalogue's classifications of evidence. Recorded ones are retained, because the recorder had the
/// surrounding lines; under a catalogue other than the built-in one (`changed`) a line with another class is classified
/// again.
pub(super) fn marks(evidence: &Evidence, matcher: &Matcher, changed: bool) -> Vec<Mark> {
    let Body::Line { text, .. } = &evidence.body else {
        return evidence.marks.clone();
    };
    if !changed && !evidence.marks.is_empty() {
        return evidence.marks.clone();
    }
    let cleaned = clean(text);
    let message = parse(&cleaned, &LineClock::default()).text;
    let top = |marks: &[Mark]| marks.first().map(|mark| mark.class.clone());
    let anew = matcher.marks(evidence.source, message);
    let known = Matcher::builtin().marks(evidence.source, message);
    if top(&anew) == top(&known) && !evidence.marks.is_empty() {
        return evidence.marks.clone();
    }
    anew
}

//! Recorded evidence: a file with one piece a line (JSON), or a controller's journal.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use rankguard_faults::SignatureMatcher;
use rankguard_faults::line::{LineClock, clean, parse};
use rankguard_model::{Classification, Evidence, EvidenceBody, Timestamp, with_causes};

use super::engine::ReplayEngine;
use super::item::ReplayItem;
use super::lines::BoundedLines;
use super::tally::ReplayTally;

/// Maximum number of pieces that the journal's reader reads ahead.
const AHEAD: usize = 4_096;

/// Note on a journal with a running controller.
pub(super) const STILL_WRITTEN: &str = "its controller is running: read up to the current last entry";

/// Returns true if a file's first line is evidence.
pub(super) fn holds_evidence(path: &Path) -> bool {
    let mut line = Vec::new();
    let first = BoundedLines::open(path).and_then(|mut lines| lines.next(&mut line));
    first.is_ok() && serde_json::from_slice::<Evidence>(&line).is_ok()
}

/// Recording that is being read.
pub(super) struct EvidenceRecording {
    name: String,
    from: RecordingSource,
    at: Timestamp,
    ended: bool,
}

enum RecordingSource {
    Lines(BoundedLines),
    /// The journal passes entries to a callback, so its reader runs on a separate thread.
    Journal(Receiver<Result<Evidence, String>>),
}

impl EvidenceRecording {
    pub(super) fn of_file(path: &Path) -> io::Result<Self> {
        Ok(Self::new(path, RecordingSource::Lines(BoundedLines::open(path)?)))
    }

    /// Opens a journal; damage after its start is reported when it is reached.
    pub(super) fn of_journal(path: &Path, tally: &mut ReplayTally) -> Result<Self, String> {
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
        Ok(Self::new(path, RecordingSource::Journal(take)))
    }

    fn new(path: &Path, from: RecordingSource) -> Self {
        Self {
            name: path.display().to_string(),
            from,
            at: Timestamp(i64::MIN),
            ended: false,
        }
    }

    /// Returns the next item; unclassified lines are only counted. `given` is true if the first catalogue is not the
    /// built-in one.
    pub(super) fn next(
        &mut self,
        engines: &[ReplayEngine],
        given: bool,
        tally: &mut ReplayTally,
    ) -> Option<ReplayItem> {
        loop {
            let evidence = self.piece(tally)?;
            tally.lines += 1;
            if evidence.at < self.at {
                tally.back += 1
            } else {
                self.at = evidence.at
            }
            let marks: Vec<Vec<Classification>> = engines
                .iter()
                .enumerate()
                .map(|(which, engine)| marks(&evidence, &engine.matcher(), given || which > 0))
                .collect();
            let text = match &evidence.body {
                EvidenceBody::Line { .. } if marks.iter().all(Vec::is_empty) => continue,
                EvidenceBody::Line { text, .. } => text.clone(),
                _ => String::new(),
            };
            return Some(ReplayItem {
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

    fn piece(&mut self, tally: &mut ReplayTally) -> Option<Evidence> {
        let mut line = Vec::new();
        while !self.ended {
            let found = match &mut self.from {
                RecordingSource::Journal(entries) => match entries.recv() {
                    Ok(entry) => entry,
                    Err(_) => break,
                },
                RecordingSource::Lines(lines) => match lines.next(&mut line) {
                    Ok(false) => break,
                    Ok(true) if line.iter().all(u8::is_ascii_whitespace) => continue,
                    Ok(true) => serde_json::from_slice(&line)
                        .map_err(|problem| format!("line {}: not evidence, skipped: {problem}", lines.number())),
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
pub(super) fn marks(evidence: &Evidence, matcher: &SignatureMatcher, changed: bool) -> Vec<Classification> {
    let EvidenceBody::Line { text, .. } = &evidence.body else {
        return evidence.marks.clone();
    };
    if !changed && !evidence.marks.is_empty() {
        return evidence.marks.clone();
    }
    let cleaned = clean(text);
    let message = parse(&cleaned, &LineClock::default()).text;
    let top = |marks: &[Classification]| marks.first().map(|mark| mark.class.clone());
    let anew = matcher.marks(evidence.source, message);
    let known = SignatureMatcher::builtin().marks(evidence.source, message);
    if top(&anew) == top(&known) && !evidence.marks.is_empty() {
        return evidence.marks.clone();
    }
    anew
}

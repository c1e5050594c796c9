//! Last lines of the log of a job: the time of its last work, and a failure that they state.
//!
//! A line of the highest level, and an exit status other than 0, state a failure whether or not a rule knows its class.

use rankguard_faults::line::{self, LineClock, LogLevel};
use rankguard_faults::{Catalogue, classes};
use rankguard_model::{ClassId, EvidenceSource, Role, Severity, SharedValue, Timestamp};

use crate::incident::{ended_well, is_machine_log};
use crate::outcome::{RunEvent, RunResult};
use crate::outcome_records::record;
use crate::progress::is_progress;
use crate::stream::{PlacedObservation, ReadStream};
use crate::verdicts::{DecidingLine, OfflineCase};

/// Confidence of a case of a stated failure of unknown class.
const STATED: f64 = 0.3;

/// Contents of the last lines of a log.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastLines {
    /// Time of the last line that shows work, by the clock of the log.
    pub(crate) worked_at: Option<Timestamp>,
    /// Last line that shows work.
    pub(crate) work: Option<LastWork>,
    /// Time of the last line with a stamp, by the clock of the log.
    pub(crate) written_at: Option<Timestamp>,
    /// First line after the last work that states a failure.
    pub(crate) failure: Option<StatedFailure>,
    /// True if an exception left the main module of a Python program after the last work.
    pub(crate) raised: bool,
}

/// Line that shows work.
#[derive(Debug, Clone)]
pub(crate) struct LastWork {
    /// Line number, from 1.
    pub(crate) line: u64,
    /// Message, without prefixes.
    pub(crate) text: String,
}

/// Line that states a failure.
#[derive(Debug, Clone)]
pub(crate) struct StatedFailure {
    /// Line number, from 1.
    line: u64,
    at: Option<Timestamp>,
    /// Message, without prefixes.
    text: String,
}

impl LastLines {
    /// Reads the last lines of a log, the last of which has the number `last`.
    pub(crate) fn read<'a>(lines: impl DoubleEndedIterator<Item = &'a str>, last: u64, clock: &LineClock) -> Self {
        let mut found = Self::default();
        let mut number = last;
        for text in lines.rev() {
            let cleaned = line::clean(text);
            let parsed = line::parse(&cleaned, clock);
            found.written_at = found.written_at.or(parsed.at);
            if is_progress(text) {
                found.worked_at = parsed.at;
                // A complete bar and the last epoch state the end.
                let is_complete = record(number, text).is_some_and(|record| record.event != RunEvent::Started);
                found.work = (!is_complete).then(|| LastWork {
                    line: number,
                    text: parsed.text.to_owned(),
                });
                break;
            }
            let event = record(number, text).map(|record| record.event);
            if matches!(event, Some(RunEvent::Ended(RunResult::Success, _) | RunEvent::Started)) {
                break;
            }
            found.raised |=
                parsed.text.trim_start().starts_with("File \"") && parsed.text.trim_end().ends_with(", in <module>");
            let is_fatal = parsed.level == Some(LogLevel::Critical) || is_named_fatal(parsed.text);
            if is_fatal || matches!(event, Some(RunEvent::Ended(RunResult::Failure, _))) {
                found.failure = Some(StatedFailure {
                    line: number,
                    at: parsed.at,
                    text: parsed.text.to_owned(),
                });
            }
            number = number.saturating_sub(1);
        }
        found
    }

    /// Drops the failure if a rule knows the line that states it.
    pub(crate) fn without_known(mut self, seen: &[PlacedObservation]) -> Self {
        let is_known = |line: u64| {
            seen.iter()
                .any(|seen| (seen.first_line..=seen.last_line).contains(&line))
        };
        self.failure = self.failure.filter(|failure| !is_known(failure.line));
        self
    }
}

/// Returns true for a message that begins with its level, without a logger that adds it: `FATAL: no quorum`.
fn is_named_fatal(text: &str) -> bool {
    let word = text
        .trim_start_matches('[')
        .split(|c: char| !c.is_ascii_alphabetic())
        .next();
    word.is_some_and(|word| ["FATAL", "CRITICAL"].contains(&word))
}

/// Returns a case of unknown class for a failure that the logs of a job state and that no rule knows; none if one of them
/// states success. For logs without another case.
pub(crate) fn unexplained_failure(streams: &[ReadStream], catalogue: &Catalogue) -> Option<OfflineCase> {
    let is_success = streams.iter().any(|stream| stream.records.job_success().is_some());
    if is_success || ended_well(streams) {
        return None;
    }
    let is_of_job = |stream: &&ReadStream| matches!(stream.source, EvidenceSource::JobLog | EvidenceSource::Launcher);
    let of_jobs = streams
        .iter()
        .filter(is_of_job)
        .filter(|stream| !is_machine_log(stream));
    let stated = of_jobs.filter_map(|stream| Some((stream, stream.last_lines.failure.as_ref()?)));
    let (stream, first) = stated.min_by_key(|(_, failure)| (failure.at.is_none(), failure.at))?;
    let class = catalogue.class(&ClassId::from(classes::UNKNOWN))?;
    Some(OfflineCase {
        id: stream.name.clone(),
        class: classes::UNKNOWN.to_owned(),
        layer: class.layer.clone(),
        severity: Severity::Failure,
        blamed: "unknown".to_owned(),
        root_rank: None,
        root_node: None,
        confidence: STATED,
        first_at: first.at.map(|at| at.to_string()),
        first_at_note: None,
        key_lines: vec![DecidingLine {
            file: stream.name.clone(),
            stream: 0,
            line: first.line,
            role: Role::Root,
            text: first.text.clone(),
        }],
        taxonomies: SharedValue::default(),
        action: class.mitigation.action.clone(),
        advice: class.mitigation.advice.clone(),
        recommended_by: class.mitigation.recommended_by.clone(),
        alternatives: Vec::new(),
        reasoning: vec![format!(
            "The log states a failure: \"{}\". No rule knows the line, so the class is unknown and the blame is on nothing.",
            first.text.chars().take(200).collect::<String>()
        )],
        clears: class.clears.clone(),
    })
}

//! Last lines of the log of a job: the time of its last work, and a failure that they state.
//!
//! A line of the highest level, an exit status other than 0, and the abnormal end of a process state a failure whether or not a rule
//! knows its class. A line of the level error does so if no log shows work: programs that work report errors too.

use rankguard_faults::line::{self, LineClock, LogLevel, ParsedLine, YearHint};
use rankguard_faults::{Catalogue, classes};
use rankguard_model::{ClassId, Role, Severity, SharedValue, Timestamp};

use crate::incident::ended_well;
use crate::outcome::{RunEvent, RunResult};
use crate::outcome_records::record;
use crate::process_end::{announces_restart, states_process_end};
use crate::progress::is_progress;
use crate::stated_level::stated_level;
use crate::stream::{PlacedObservation, ReadStream};
use crate::verdicts::{ASSUMED_YEAR, DecidingLine, OfflineCase};

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
    /// First line after the last work that states that an operation failed.
    pub(crate) failed_operation: Option<StatedFailure>,
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
    pub(crate) line: u64,
    pub(crate) at: Option<Timestamp>,
    /// True if the year of the time is that of the last write to the log.
    pub(crate) is_year_assumed: bool,
    /// Message, without prefixes.
    pub(crate) text: String,
}

impl StatedFailure {
    /// Creates the failure that a line states.
    pub(crate) fn new(line: u64, cleaned: &str, parsed: &ParsedLine<'_>, clock: &LineClock) -> Self {
        let without_hint = LineClock { hint: None, ..*clock };
        let is_of_file = matches!(clock.hint, Some(YearHint::WrittenBy(_)));
        Self {
            line,
            at: parsed.at,
            is_year_assumed: is_of_file && parsed.at.is_some() && line::parse(cleaned, &without_hint).at.is_none(),
            text: parsed.text.to_owned(),
        }
    }
}

impl LastLines {
    /// Reads the last lines of a log, the last of which has the number `last`.
    pub(crate) fn read<'a>(lines: impl DoubleEndedIterator<Item = &'a str>, last: u64, clock: &LineClock) -> Self {
        let mut found = Self::default();
        let mut number = last;
        let mut is_restarted = false;
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
            let level = stated_level(&parsed);
            let is_fatal = level == Some(LogLevel::Critical) || is_named_fatal(parsed.text);
            let stated = || StatedFailure::new(number, &cleaned, &parsed, clock);
            let has_ended = || !is_restarted && states_process_end(parsed.text);
            if is_fatal || matches!(event, Some(RunEvent::Ended(RunResult::Failure, _))) || has_ended() {
                found.failure = Some(stated());
            } else if level == Some(LogLevel::Error) && !is_tried_again(parsed.text) || has_error_number(parsed.text) {
                found.failed_operation = Some(stated());
            }
            is_restarted |= announces_restart(parsed.text);
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
        self.failed_operation = self.failed_operation.filter(|failure| !is_known(failure.line));
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

/// Returns true for an error after which the program tries again.
fn is_tried_again(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    ["retry", "retries", "trying again", "try again", "skipping", "ignoring"]
        .iter()
        .any(|word| lower.contains(word))
}

/// Returns true for ` failed with ... error: 20`, also of a status or a code, if the number is not 0.
fn has_error_number(text: &str) -> bool {
    let Some((_, rest)) = text.split_once(" failed with ") else {
        return false;
    };
    let mut before = "";
    rest.split([' ', ':', '=', ','])
        .filter(|word| !word.is_empty())
        .take(5)
        .any(|word| {
            let named = ["error", "status", "code"].contains(&std::mem::replace(&mut before, word));
            let number = word.trim_end_matches(['.', ')', ';']).trim_start_matches('-');
            let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            named && is_number && number.bytes().any(|byte| byte != b'0')
        })
}

/// Returns the line with which logs of jobs state a failure, and its log. Errors of operations count if no log shows work.
fn stated_by_jobs(streams: &[ReadStream]) -> Option<(&ReadStream, &StatedFailure)> {
    let of_jobs = || streams.iter().filter(|stream| stream.is_of_job());
    let is_work = |stream: &ReadStream| {
        let has_work = stream.last_lines.work.is_some() || stream.last_lines.worked_at.is_some();
        has_work || !stream.progress.is_empty() || stream.records.states_success()
    };
    let failure = of_jobs().filter_map(|stream| Some((stream, stream.last_lines.failure.as_ref()?)));
    failure.min_by_key(by_time).or_else(|| {
        let operations = of_jobs().filter_map(|stream| Some((stream, stream.last_lines.failed_operation.as_ref()?)));
        operations.min_by_key(by_time).filter(|_| !streams.iter().any(is_work))
    })
}

fn by_time((_, failure): &(&ReadStream, &StatedFailure)) -> (bool, Option<Timestamp>) {
    (failure.at.is_none(), failure.at)
}

/// Returns a case of unknown class for a failure that the logs of a job state and that no rule knows; none if one of them
/// states success. For logs without another case.
pub(crate) fn unexplained_failure(streams: &[ReadStream], catalogue: &Catalogue) -> Option<OfflineCase> {
    let is_success = streams.iter().any(|stream| stream.records.job_success().is_some());
    if is_success || ended_well(streams) {
        return None;
    }
    let of_daemons = streams.iter().filter(|stream| !stream.is_of_job());
    let of_daemons = of_daemons.filter_map(|stream| Some((stream, stream.last_lines.failure.as_ref()?)));
    let (stream, first) = stated_by_jobs(streams).or_else(|| of_daemons.min_by_key(by_time))?;
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
        first_at_note: first.is_year_assumed.then(|| ASSUMED_YEAR.to_owned()),
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

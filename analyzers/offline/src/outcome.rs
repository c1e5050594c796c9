//! Run outcomes: records of starts and ends of runs in one stream, and the alarms that they excuse.
//!
//! The end of a run is the strongest evidence about the alarms before it. Sources of an end rank as [`EndSource`] does:
//! an exit status or a scheduler's state outweighs the framework's own end record, which outweighs the last progress. A
//! success excuses earlier alarms of its own rank and job only, and never those of a later run in the same stream.

use rankguard_model::Rank;

use crate::outcome_records::record;
use crate::progress::ProgressLine;

/// Minimum number of progress lines after an alarm that show that the program continued.
pub(crate) const WENT_ON: usize = 3;

/// Result of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunResult {
    Success,
    Failure,
}

/// Origin of an end record, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EndSource {
    /// Last epoch, completed bar, saved model, exit of one process of several: counts only together with progress
    /// after an alarm.
    Work,
    /// End record of the training framework.
    Framework,
    /// Exit status of the whole program.
    Process,
    /// Final state at the scheduler.
    Scheduler,
}

/// Event of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunEvent {
    Started,
    Ended(RunResult, EndSource),
}

/// Line that states the start or the end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunRecord {
    /// Line number, from 1.
    pub(crate) line: u64,
    /// Rank that wrote it; none if it concerns the job.
    pub(crate) rank: Option<Rank>,
    /// Number of the scheduler's job, if the line has one.
    pub(crate) job: Option<u64>,
    pub(crate) event: RunEvent,
    /// True in a description of a pod, which lists its whole life below its phase.
    pub(crate) describes: bool,
}

/// Place of an alarm in its stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AlarmSpan {
    pub(crate) first_line: u64,
    pub(crate) last_line: u64,
    pub(crate) rank: Option<Rank>,
    pub(crate) job: Option<u64>,
    /// True if its log covers many jobs: then the end of a numbered job excuses only its own alarms.
    pub(crate) of_scheduler: bool,
    /// True for an order of a scheduler, after which it starts the job again.
    pub(crate) is_order: bool,
}

/// Records of one stream, in line order.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunRecords(Vec<RunRecord>);

impl RunRecord {
    fn success(&self) -> Option<EndSource> {
        match self.event {
            RunEvent::Ended(RunResult::Success, source) => Some(source),
            _ => None,
        }
    }

    fn failure(&self) -> Option<EndSource> {
        match self.event {
            RunEvent::Ended(RunResult::Failure, source) => Some(source),
            _ => None,
        }
    }

    /// Returns true if the record may concern the alarm: neither rank nor job contradict.
    fn covers(&self, alarm: &AlarmSpan) -> bool {
        let same_job = if alarm.of_scheduler && self.job.is_some() {
            self.job == alarm.job
        } else {
            agree(self.job, alarm.job)
        };
        agree(self.rank, alarm.rank) && same_job
    }
}

fn agree<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    }
}

impl RunRecords {
    /// Adds the record of a line, if it states a start or an end.
    pub(crate) fn read(&mut self, number: u64, line: &str) {
        self.0.extend(record(number, line));
    }

    /// Returns true if an end after the alarm shows that it stopped nothing. `causes` are lines of alarms that name a
    /// cause.
    pub(crate) fn excuse(&self, alarm: &AlarmSpan, work: &[ProgressLine], causes: &[u64]) -> bool {
        // A scheduler reports one order for the job and for its steps, and may give several before the job ends well.
        let is_order = |failure: &RunRecord| alarm.is_order && failure.failure() == Some(EndSource::Scheduler);
        self.0.iter().any(|end| {
            let Some(source) = end
                .success()
                .filter(|_| end.line > alarm.last_line && end.covers(alarm))
            else {
                return false;
            };
            let failed_before = self.0.iter().any(|other| {
                (alarm.last_line + 1..end.line).contains(&other.line)
                    && other.failure() >= Some(source)
                    && other.covers(alarm)
                    && !is_order(other)
            });
            // The last lines of a program are also written when an exception ends it; progress only while it runs.
            let worked = went_on(work, alarm, Some(end.line)) > 0;
            let stands = worked || source > EndSource::Work && !self.contradicts(end, source, causes);
            stands && !failed_before
        })
    }

    /// Returns true if a stronger source states a failure of the same run afterwards, and no later alarm explains it.
    fn contradicts(&self, end: &RunRecord, source: EndSource, causes: &[u64]) -> bool {
        self.0
            .iter()
            .filter(|other| other.line > end.line)
            .take_while(|other| other.event != RunEvent::Started)
            .any(|other| {
                let explained = causes.iter().any(|line| (end.line..=other.line).contains(line));
                other.failure() > Some(source) && agree(other.rank, end.rank) && !explained
            })
    }

    /// Returns true if the alarm follows a success and no new run began in between.
    pub(crate) fn follows_success(&self, alarm: &AlarmSpan, work: &[ProgressLine]) -> bool {
        let end = self
            .0
            .iter()
            .rev()
            .find(|end| end.line < alarm.first_line && end.success() >= Some(EndSource::Framework));
        let Some(end) = end else { return false };
        let between = end.line..alarm.first_line;
        let started = self
            .0
            .iter()
            .any(|other| other.event == RunEvent::Started && between.contains(&other.line));
        let lines = work.iter().filter(|work| between.contains(&work.line)).count();
        !started && lines < WENT_ON && agree(end.job, alarm.job)
    }

    /// Returns true if the alarm is in the description of a pod that succeeded: what it lists happened before.
    pub(crate) fn is_in_success(&self, alarm: &AlarmSpan) -> bool {
        // One alarm stands for all its repeats, which may be in descriptions of several pods.
        [alarm.first_line, alarm.last_line].iter().all(|line| {
            let mut above = self.0.iter().rev().filter(|record| record.line < *line);
            let phase = above.find(|record| record.describes);
            phase.is_some_and(|record| record.success().is_some())
        })
    }

    /// Returns true if the scheduler ends the run in these lines. Launchers also end what has ended by itself.
    pub(crate) fn fails_within(&self, first_line: u64, last_line: u64) -> bool {
        let mut inside = self
            .0
            .iter()
            .filter(|record| (first_line..=last_line).contains(&record.line));
        inside.any(|record| record.failure() == Some(EndSource::Scheduler))
    }

    /// Returns the first stated failure after a line, of a source at least as strong as a framework.
    pub(crate) fn failure_after(&self, line: u64) -> Option<u64> {
        let mut later = self.0.iter().filter(|record| record.line > line);
        let failed = later.find(|record| record.failure() >= Some(EndSource::Framework));
        failed.map(|record| record.line)
    }

    /// Returns the success of the whole job with which this stream ends, by exit status or scheduler.
    pub(crate) fn job_success(&self) -> Option<&RunRecord> {
        let last = self.0.last()?;
        let other = |record: &RunRecord| record.job.is_some() && record.job != last.job;
        if self.0.iter().any(other) {
            return None;
        }
        (last.success() >= Some(EndSource::Process) && last.rank.is_none()).then_some(last)
    }

    /// Returns true if any record states a success that counts without progress.
    pub(crate) fn states_success(&self) -> bool {
        self.0
            .iter()
            .any(|record| record.success() >= Some(EndSource::Framework))
    }

    /// Returns true if a success that counts without progress is stated after a line.
    pub(crate) fn has_success_after(&self, line: u64) -> bool {
        let mut later = self.0.iter().filter(|record| record.line > line);
        later.any(|record| record.success() >= Some(EndSource::Framework))
    }

    /// Returns true if a success is stated before a line.
    #[cfg(test)]
    pub(crate) fn success_before(&self, line: u64) -> bool {
        let mut before = self.0.iter().filter(|record| record.line < line);
        before.any(|record| record.success() >= Some(EndSource::Framework))
    }

    /// Returns the records after a line, without those of work: they are only read together with progress.
    #[cfg(test)]
    pub(crate) fn stated_after(&self, line: u64) -> Vec<RunRecord> {
        let work = RunEvent::Ended(RunResult::Success, EndSource::Work);
        let later = self
            .0
            .iter()
            .filter(|record| record.line > line && record.event != work);
        later.copied().collect()
    }

    /// Returns true if any record states the end of a run.
    pub(crate) fn states_end(&self) -> bool {
        self.0.iter().any(|record| record.event != RunEvent::Started)
    }

    /// Returns true if any record states a failure.
    pub(crate) fn states_failure(&self) -> bool {
        self.0.iter().any(|record| record.failure().is_some())
    }
}

/// Counts the lines of work after an alarm, up to a line if one is given. Only the alarm's own rank counts if it
/// reports work in this stream; otherwise the reporting ranks represent all, because synchronous training needs each
/// of them.
pub(crate) fn went_on(work: &[ProgressLine], alarm: &AlarmSpan, until: Option<u64>) -> usize {
    let own = alarm.rank.is_some() && work.iter().any(|work| work.rank == alarm.rank);
    work.iter()
        .filter(|work| work.line > alarm.last_line && until.is_none_or(|until| work.line <= until))
        .filter(|work| !own || work.rank == alarm.rank)
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(lines: &[&str]) -> RunRecords {
        let mut records = RunRecords::default();
        for (number, line) in lines.iter().enumerate() {
            records.read(number as u64 + 1, line);
        }
        records
    }

    fn alarm(line: u64, rank: Option<u32>) -> AlarmSpan {
        AlarmSpan {
            first_line: line,
            last_line: line,
            rank: rank.map(Rank),
            job: None,
            of_scheduler: false,
            is_order: false,
        }
    }

    #[test]
    fn success_excuses_earlier_alarms_of_its_own_rank() {
        let log = records(&["", "0: Training complete"]);
        assert!(log.excuse(&alarm(1, Some(0)), &[], &[]));
        assert!(log.excuse(&alarm(1, None), &[], &[]));
        assert!(!log.excuse(&alarm(1, Some(1)), &[], &[]));
        assert!(!log.excuse(&alarm(3, Some(0)), &[], &[]));
    }

    #[test]
    fn stronger_failure_after_a_success_withdraws_it_unless_explained() {
        let log = records(&[
            "",
            "Training complete",
            "",
            "srun: error: n1: task 0: Exited with exit code 1",
        ]);
        assert!(!log.excuse(&alarm(1, None), &[], &[]));
        assert!(log.excuse(&alarm(1, None), &[], &[3]));
    }

    #[test]
    fn job_numbers_that_differ_excuse_nothing() {
        let log = records(&["", "_job_complete: JobId=7 WEXITSTATUS 0"]);
        let of = |job| AlarmSpan {
            job: Some(job),
            ..alarm(1, None)
        };
        let unnumbered = AlarmSpan {
            of_scheduler: true,
            ..alarm(1, None)
        };
        assert!(!log.excuse(&unnumbered, &[], &[]));
        assert!(log.excuse(&of(7), &[], &[]));
        assert!(!log.excuse(&of(8), &[], &[]));
    }

    #[test]
    fn rank_that_reports_work_is_not_replaced_by_others() {
        let work = |line, rank| ProgressLine {
            line,
            rank: Some(Rank(rank)),
        };
        let lines = [work(1, 0), work(2, 1), work(4, 0), work(5, 0), work(6, 0)];
        assert_eq!(went_on(&lines, &alarm(3, Some(1)), None), 0);
        assert_eq!(went_on(&lines, &alarm(3, Some(7)), None), 3);
    }
}

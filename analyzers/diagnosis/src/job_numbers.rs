//! Numbers of jobs in the messages of a scheduler.
//!
//! A table of a scheduler lists jobs beside each other, and the end of one does not follow from that of another.
//! Slurm's daemon names a task of an array, and a part of a heterogeneous job, by a number of its own
//! (`*** JOB 812 ON n3`); `sacct` names it after the whole: `809_3`, `809+1`.

use crate::Signal;
use crate::speaker::is_accounting;

/// Texts before the number of a job in messages of Slurm.
const STATEMENTS: [&str; 3] = ["*** JOB ", "*** STEP ", "JobId="];

/// Job that a message is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct JobNumber<'a> {
    number: &'a str,
    /// True for a row of a table.
    is_row: bool,
    /// True for a task of an array or a part of a heterogeneous job, which has another number as well.
    is_part: bool,
}

impl<'a> JobNumber<'a> {
    fn of(text: &'a str) -> Option<Self> {
        if is_accounting(text) {
            return Self::at_start(text.trim_start(), true);
        }
        let mut statements = STATEMENTS.iter();
        let (_, rest) = statements.find_map(|words| text.split_once(words))?;
        Self::at_start(rest, false)
    }

    fn at_start(text: &'a str, is_row: bool) -> Option<Self> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, rest) = text.split_at(end);
        (!number.is_empty()).then_some(Self {
            number,
            is_row,
            is_part: rest.starts_with(['_', '+']),
        })
    }
}

/// Returns the number of the job that a message of a scheduler is about.
pub(crate) fn job_number(sign: &Signal) -> Option<&str> {
    JobNumber::of(&sign.text).map(|job| job.number)
}

/// Returns true if two messages of a scheduler are about different jobs.
pub(crate) fn are_of_different_jobs(one: &Signal, other: &Signal) -> bool {
    match (JobNumber::of(&one.text), JobNumber::of(&other.text)) {
        (Some(one), Some(other)) => are_different(one, other),
        _ => false,
    }
}

fn are_different(one: JobNumber<'_>, other: JobNumber<'_>) -> bool {
    // The daemon's number of a part differs from that of the whole.
    let are_comparable = match (one.is_row, other.is_row) {
        (true, true) => true,
        (true, false) => !one.is_part,
        (false, true) => !other.is_part,
        (false, false) => false,
    };
    one.number != other.number && are_comparable
}

/// Returns true for a row of a table, which has no time of its own.
pub(crate) fn is_row(sign: &Signal) -> bool {
    is_accounting(&sign.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATED: &str = "slurmstepd: error: *** JOB 812 ON n3 CANCELLED AT 2026-10-02T14:02:37 DUE TO TIME LIMIT ***";

    fn are_of_two(one: &str, other: &str) -> bool {
        match (JobNumber::of(one), JobNumber::of(other)) {
            (Some(one), Some(other)) => are_different(one, other),
            _ => false,
        }
    }

    #[test]
    fn rows_of_different_jobs_differ_and_steps_tasks_and_parts_of_one_do_not() {
        let row = |id: &str| format!("{id}  train  CANCELLED  0:0");
        assert!(are_of_two(&row("812_1"), &row("814")));
        assert!(are_of_two(STATED, &row("814")));
        for id in ["812", "812.batch", "812.0"] {
            assert!(!are_of_two(&row("812"), &row(id)), "{id}");
            assert!(!are_of_two(STATED, &row(id)), "{id}");
        }
        // The daemon may name the same task by another number.
        assert!(!are_of_two(STATED, &row("809_3")));
        assert!(!are_of_two(STATED, &row("809+1")));
        assert!(!are_of_two(STATED, "step 814 loss 2.1"));
    }
}

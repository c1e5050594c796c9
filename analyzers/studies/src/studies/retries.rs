//! Job completion by number of attempts.

use std::collections::BTreeMap;

use rankguard_datasets::{Dataset, TableKind as Canonical};
use rankguard_statistics::proportion::ProportionEstimate;

use crate::error::StudyError;
use crate::outcome::{ResultTable, StudyResult};
use crate::studies::{LEVEL, Study, StudyOptions};

pub(super) const STUDY: Study = Study {
    name: "retries",
    about: "share of jobs that complete, by how many attempts they took",
    needs: "attempts: job; jobs: job, state",
    run,
};

fn run(data: &Dataset, _: &StudyOptions) -> Result<StudyResult, StudyError> {
    let mut tries: BTreeMap<String, u64> = BTreeMap::new();
    for job in data.strings(Canonical::Attempts, "job")?.into_iter().flatten() {
        *tries.entry(job).or_default() += 1;
    }
    let states = data.strings(Canonical::Jobs, "state")?;
    let mut ends: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (job, state) in data.strings(Canonical::Jobs, "job")?.into_iter().zip(states) {
        let Some(count) = job.and_then(|job| tries.get(&job)) else {
            continue;
        };
        let end = ends.entry(*count).or_default();
        end.0 += u64::from(state.as_deref() == Some("completed"));
        end.1 += 1;
    }
    let mut outcome = StudyResult::new(
        "retries",
        data,
        "jobs with at least one recorded attempt, by their number of attempts; success is the state completed",
    );
    let mut table = ResultTable::new(
        "completed by attempts",
        &["attempts", "jobs", "completed", "share", "low", "high"],
    );
    for (count, (completed, jobs)) in ends {
        let share = ProportionEstimate::new(completed, jobs, LEVEL);
        table.row([
            count.into(),
            jobs.into(),
            completed.into(),
            share.map(|p| p.share).into(),
            share.map(|p| p.low).into(),
            share.map(|p| p.high).into(),
        ]);
    }
    outcome.tables.push(table);
    Ok(outcome)
}

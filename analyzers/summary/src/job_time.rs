//! Use of the wall time of a job, and the effective training time ratio (ETTR) of Kokolis et al. (HPCA 2025,
//! arXiv 2410.21680): productive time over the wall time from the submission.
//!
//! The wall time is divided among generations by the spans of their ranks, and inside of a generation by its progress
//! points. Productive is the time of steps that no earlier generation had made, and repeated that of the others: what any
//! rank made after the last checkpoint until it was ended is made again. The first step of a generation is part of its
//! start. Stalls for checkpoints are part of the steps.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::{Generation, JobId, JobState, JobView, Rank, Timestamp};
use serde::Serialize;

/// Milliseconds in an hour.
const HOUR_MS: f64 = 3_600_000.0;

/// Wall time of a job from its submission to its end, by use. The parts add up to the whole.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobTime {
    /// Name of the job.
    pub job: JobId,
    /// State of the job.
    pub state: JobState,
    /// Time of the submission.
    pub submitted_at: Timestamp,
    /// End of the job, or the time of the report.
    pub until: Timestamp,
    /// Time between both, milliseconds.
    pub wall_ms: i64,
    /// Time of steps that no earlier generation had made, milliseconds.
    pub productive_ms: i64,
    /// Time of steps that an earlier generation had made and a failure took, milliseconds.
    pub repeated_ms: i64,
    /// Time from the start of the processes of a generation until a rank has made its first step, milliseconds.
    pub starting_ms: i64,
    /// Time after the last step of a generation in which its processes ran, milliseconds: a hang, a failure that is not
    /// detected yet, or the end of the program.
    pub idle_ms: i64,
    /// Time without processes, milliseconds: the job waits for nodes, for the end of old processes, or for its store.
    pub waiting_ms: i64,
    /// Time of generations that reported no step, milliseconds.
    pub unmeasured_ms: i64,
    /// Productive time over wall time, 0 to 1; absent for a job that reported no step. A lower bound unless `is_complete`.
    pub ettr: Option<f64>,
    /// Time of all ranks, hours.
    pub rank_hours: f64,
    /// Time of all ranks that was not productive, hours.
    pub rank_hours_lost: f64,
    /// False if the controller no longer has the spans of old generations: their starts and ends count as waiting.
    pub is_complete: bool,
}

/// What is recorded of one generation.
#[derive(Debug, Default)]
struct GenerationRecord {
    ranks: BTreeSet<Rank>,
    /// Beginning and end, milliseconds after the submission.
    span: Option<(i64, i64)>,
    /// Time, milliseconds after the submission, and number of its steps, in order of time.
    points: Vec<(i64, u64)>,
}

impl GenerationRecord {
    fn extend(&mut self, from: i64, to: i64) {
        let (first, last) = self.span.unwrap_or((from, to));
        self.span = Some((first.min(from), last.max(to)));
    }
}

/// Name that no job of a source has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownJob(pub JobId);

impl JobTime {
    /// Divides the time of the named jobs, or of all without names; the newest submission comes first.
    pub fn of_jobs(jobs: &[JobView], names: &[JobId], now: Timestamp) -> Result<Vec<Self>, UnknownJob> {
        let is_known = |name: &&JobId| jobs.iter().any(|job| job.spec.id == **name);
        if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
            return Err(UnknownJob(unknown.clone()));
        }
        let wanted = jobs
            .iter()
            .filter(|job| names.is_empty() || names.contains(&job.spec.id));
        let mut times: Vec<Self> = wanted.map(|job| Self::of(job, now)).collect();
        times.sort_by_key(|time| std::cmp::Reverse(time.submitted_at));
        Ok(times)
    }

    /// Divides the time of a job; `now` is the end of the time of a job that is not over.
    pub fn of(job: &JobView, now: Timestamp) -> Self {
        let until = job.ended_at.unwrap_or(now).max(job.submitted_at);
        let mut time = Self {
            job: job.spec.id.clone(),
            state: job.state,
            submitted_at: job.submitted_at,
            until,
            wall_ms: until.millis_since(job.submitted_at),
            productive_ms: 0,
            repeated_ms: 0,
            starting_ms: 0,
            idle_ms: 0,
            waiting_ms: 0,
            unmeasured_ms: 0,
            ettr: None,
            rank_hours: 0.0,
            rank_hours_lost: 0.0,
            is_complete: true,
        };
        // All times are whole milliseconds after the submission, so that differences add up.
        let generations = generations(job, until);
        // Steps without spans of ranks: the oldest spans have left the memory of the controller.
        time.is_complete = generations.values().all(|record| !record.ranks.is_empty());
        let mut newest_step = None;
        let mut reached = 0;
        for record in generations.values() {
            let Some((from, to)) = record.span else { continue };
            // Clocks of nodes differ, and the old processes may end while new ones start: no moment counts twice.
            let from = from.clamp(reached, time.wall_ms);
            let to = to.clamp(from, time.wall_ms);
            time.waiting_ms += from - reached;
            let productive_ms = time.add_generation(record, from, to, &mut newest_step);
            let ranks = record.ranks.len() as f64;
            time.rank_hours += ranks * (to - from) as f64 / HOUR_MS;
            time.rank_hours_lost += ranks * (to - from - productive_ms) as f64 / HOUR_MS;
            reached = to;
        }
        time.waiting_ms += time.wall_ms - reached;
        if newest_step.is_some() && time.wall_ms > 0 {
            time.ettr = Some(time.productive_ms as f64 / time.wall_ms as f64);
        }
        time
    }

    /// Adds the time of a generation and returns its productive part, milliseconds. `newest_step` is the newest step of all
    /// generations before.
    fn add_generation(&mut self, record: &GenerationRecord, from: i64, to: i64, newest_step: &mut Option<u64>) -> i64 {
        let Some((first_at, first_step)) = record.points.first().copied() else {
            self.unmeasured_ms += to - from;
            return 0;
        };
        let before = *newest_step;
        let mut at = first_at.clamp(from, to);
        let mut step = first_step;
        let mut productive_ms = 0;
        self.starting_ms += at - from;
        for &(next_at, next_step) in &record.points[1..] {
            // Another rank has made the same step: the time is part of the next one.
            if next_step == step {
                continue;
            }
            let next_at = next_at.clamp(at, to);
            let new_ms = ((next_at - at) as f64 * new_share(step, next_step, before)).round() as i64;
            productive_ms += new_ms;
            self.repeated_ms += next_at - at - new_ms;
            at = next_at;
            step = step.max(next_step);
        }
        self.idle_ms += to - at;
        self.productive_ms += productive_ms;
        *newest_step = before.max(Some(step));
        productive_ms
    }
}

/// Returns the share of the steps after `from` up to `to` that come after `before`.
fn new_share(from: u64, to: u64, before: Option<u64>) -> f64 {
    let steps = to.saturating_sub(from);
    let new = to.saturating_sub(before.unwrap_or(0).max(from));
    if steps == 0 { 0.0 } else { new as f64 / steps as f64 }
}

fn generations(job: &JobView, until: Timestamp) -> BTreeMap<Generation, GenerationRecord> {
    let millis = |at: Timestamp| at.millis_since(job.submitted_at);
    let mut all: BTreeMap<Generation, GenerationRecord> = BTreeMap::new();
    for span in &job.spans {
        if let Some((generation, rank)) = span.generation.zip(span.rank) {
            let record = all.entry(generation).or_default();
            record.ranks.insert(rank);
            record.extend(millis(span.from), millis(span.to.unwrap_or(until)));
        }
    }
    for point in &job.progress {
        let record = all.entry(point.generation).or_default();
        let at = millis(point.at);
        record.extend(at, at);
        record.points.push((at, point.step.0));
    }
    for record in all.values_mut() {
        record.points.sort_unstable();
    }
    all
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rankguard_model::{JobSpec, NodeId, NodeRange, ProgressPoint, StateSpan, Step};

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp(0).after(Duration::from_secs(seconds))
    }

    fn spec() -> JobSpec {
        JobSpec {
            id: JobId::from("train"),
            command: vec!["true".to_owned()],
            env: BTreeMap::new(),
            workdir: None,
            nodes: NodeRange { min: 1, max: 1 },
            ranks_per_node: 2,
            checkpoint: None,
            max_restarts: 3,
            user: None,
            resume_from: None,
            standby: None,
        }
    }

    fn job() -> JobView {
        serde_json::from_value(serde_json::json!({
            "spec": spec(),
            "state": "finished",
            "reason": null,
            "generation": 2,
            "placements": [],
            "step": null,
            "checkpoints": [],
            "progress": [],
            "spans": [],
            "submitted_at": at(0),
            "ended_at": at(100),
        }))
        .expect("a view")
    }

    fn span(job: &mut JobView, generation: u64, rank: u32, from: u64, to: Option<u64>) {
        job.spans.push(StateSpan {
            node: NodeId::from("n1"),
            rank: Some(Rank(rank)),
            generation: Some(Generation(generation)),
            state: "running".to_owned(),
            from: at(from),
            to: to.map(at),
        });
    }

    fn step(job: &mut JobView, generation: u64, seconds: u64, step: u64) {
        job.progress.push(ProgressPoint {
            at: at(seconds),
            generation: Generation(generation),
            step: Step(step),
            loss: None,
            step_ms: 1.0,
        });
    }

    /// Two ranks wait 5 s, start in 5 s, make 30 steps in 30 s, hang for 10 s, are replaced after 10 s from step 20, and
    /// repeat 10 of 40 steps.
    fn restarted() -> JobView {
        let mut job = job();
        for rank in 0..2 {
            span(&mut job, 1, rank, 5, Some(50));
            span(&mut job, 2, rank, 60, Some(100));
        }
        step(&mut job, 1, 10, 1);
        step(&mut job, 1, 40, 31);
        step(&mut job, 2, 65, 21);
        step(&mut job, 2, 95, 51);
        job
    }

    #[test]
    fn the_parts_add_up_to_the_wall_time() {
        let time = JobTime::of(&restarted(), at(500));
        assert_eq!(time.wall_ms, 100_000, "it ended");
        assert_eq!(
            (time.waiting_ms, time.starting_ms, time.idle_ms),
            (15_000, 10_000, 15_000)
        );
        assert_eq!((time.productive_ms, time.repeated_ms), (50_000, 10_000));
        assert_eq!(time.ettr, Some(0.5));
        assert!((time.rank_hours - 2.0 * 85.0 / 3_600.0).abs() < 1e-9, "{time:?}");
        assert!((time.rank_hours_lost - 2.0 * 35.0 / 3_600.0).abs() < 1e-9, "{time:?}");
        assert!(time.is_complete);
    }

    #[test]
    fn a_job_without_steps_has_no_ratio() {
        let mut job = job();
        span(&mut job, 1, 0, 10, Some(100));
        let time = JobTime::of(&job, at(100));
        assert_eq!((time.ettr, time.unmeasured_ms, time.waiting_ms), (None, 90_000, 10_000));
    }

    #[test]
    fn a_running_job_counts_until_now() {
        let mut job = job();
        (job.state, job.ended_at) = (JobState::Running, None);
        span(&mut job, 1, 0, 0, None);
        step(&mut job, 1, 10, 1);
        step(&mut job, 1, 60, 51);
        let time = JobTime::of(&job, at(80));
        assert_eq!(
            (time.wall_ms, time.productive_ms, time.idle_ms),
            (80_000, 50_000, 20_000)
        );
    }

    #[test]
    fn spans_that_were_removed_make_a_lower_bound() {
        let mut job = restarted();
        job.spans.retain(|span| span.generation == Some(Generation(2)));
        let time = JobTime::of(&job, at(100));
        assert!(!time.is_complete);
        assert_eq!(time.ettr, Some(0.5), "its points are known");
    }

    /// Each time is a fraction of a millisecond after a whole one.
    #[test]
    fn fractions_of_milliseconds_are_in_the_sum() {
        let mut job = restarted();
        let later = |at: &mut Timestamp, part: i64| at.0 += 137_511 * part;
        for (number, span) in job.spans.iter_mut().enumerate() {
            later(&mut span.from, number as i64 + 1);
            span.to.iter_mut().for_each(|to| later(to, 5));
        }
        for (number, point) in job.progress.iter_mut().enumerate() {
            later(&mut point.at, 2 + number as i64);
        }
        let time = JobTime::of(&job, at(100));
        let parts = time.productive_ms + time.repeated_ms + time.starting_ms + time.idle_ms + time.waiting_ms;
        assert_eq!(parts, time.wall_ms, "{time:?}");
    }

    /// Rank 1 makes the first step at second 10 and rank 0 at second 14. Rank 0 ends at second 40, and rank 1 runs on for
    /// five steps, of which the next generation repeats all.
    #[test]
    fn steps_of_all_ranks_count() {
        let mut job = job();
        span(&mut job, 1, 0, 0, Some(40));
        span(&mut job, 1, 1, 0, Some(46));
        span(&mut job, 2, 0, 50, Some(100));
        step(&mut job, 1, 10, 1);
        step(&mut job, 1, 14, 1);
        step(&mut job, 1, 40, 31);
        step(&mut job, 1, 45, 36);
        step(&mut job, 2, 60, 25);
        step(&mut job, 2, 90, 55);
        let time = JobTime::of(&job, at(100));
        assert_eq!((time.starting_ms, time.idle_ms), (20_000, 11_000), "{time:?}");
        assert_eq!((time.productive_ms, time.repeated_ms), (54_000, 11_000), "{time:?}");
    }

    /// Clocks of nodes differ, and old processes end while new ones start.
    #[test]
    fn no_moment_counts_twice() {
        let mut job = job();
        span(&mut job, 1, 0, 0, Some(70));
        span(&mut job, 2, 0, 60, Some(120));
        step(&mut job, 1, 0, 1);
        step(&mut job, 1, 90, 91);
        step(&mut job, 2, 50, 92);
        step(&mut job, 2, 130, 172);
        let time = JobTime::of(&job, at(100));
        let parts = [
            time.productive_ms,
            time.repeated_ms,
            time.starting_ms,
            time.idle_ms,
            time.waiting_ms,
            time.unmeasured_ms,
        ];
        assert_eq!(parts.iter().sum::<i64>(), time.wall_ms, "{time:?}");
        assert!(parts.iter().all(|part| *part >= 0), "{time:?}");
        assert_eq!(time.ettr, Some(1.0));
    }
}

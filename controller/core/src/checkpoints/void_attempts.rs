//! Attempts without a commit: each counts as void once, in whatever order the reports about it arrive.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_checkpoint_schedule::agreement::{MAX_ATTEMPTS, MAX_VOID, MAX_WANTED};
use rankguard_model::{Generation, LaterAttempts, Rank, Step, Timestamp};

use super::JobCheckpoints;
use crate::missed_reports::MissingReports;

/// Reason of an attempt that gave way to later ones.
const GAVE_WAY: &str = "it was not complete and committed before many later ones had begun";

/// Attempts with a recorded time; the oldest is dropped first.
const SAVE_TIMES_MAX: usize = MAX_ATTEMPTS + MAX_WANTED;

/// Attempt without a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenAttempt {
    pub step: Step,
    /// First rank without a durable shard; absent if none is missing.
    pub missing: Option<Rank>,
    /// Time of its first durable shard; absent under rules before 9.
    pub saved_at: Option<Timestamp>,
}

impl JobCheckpoints {
    /// Counts attempts as void that lack the shard of a rank with a durable shard of a later step: a rank saves its
    /// steps in order. Such an attempt is committed all the same if the shard arrives after all. Attempts of `before`
    /// that are no longer tracked gave way to later ones, and are void as well.
    ///
    /// `missing` has the reasons of those that lack the report of a rank.
    pub(crate) fn count_passed_attempts(
        &mut self,
        generation: Generation,
        before: &[OpenAttempt],
        missing: &MissingReports,
    ) {
        let steps = self.open_steps(generation);
        for gone in self.overtaken(generation, before) {
            let reason = match missing {
                MissingReports::Absence(absence) => gone
                    .missing
                    .map(|rank| self.overtaken_reason(generation, rank, &steps, *absence)),
                MissingReports::Reasons(reasons) => reasons.get(&gone.step).cloned(),
            };
            self.count_passed(generation, gone.step, reason.as_deref().unwrap_or(GAVE_WAY));
        }
        // Step of the newest durable shard of each rank, over the steps that were looked at; newest step first.
        let mut newest: BTreeMap<Rank, Step> = BTreeMap::new();
        for step in steps.into_iter().rev() {
            let Some(images) = self.attempts.images(generation, step) else {
                continue;
            };
            let lacking = newest.iter().find(|(rank, _)| !images.contains_key(rank));
            let lacking = lacking.map(|(rank, later)| (*rank, *later));
            for rank in images.keys() {
                newest.entry(*rank).or_insert(step);
            }
            if let Some((rank, later)) = lacking {
                self.count_passed(generation, step, &passed_reason(rank, later, step));
            }
        }
    }

    /// Returns the attempts of `before` that are no longer tracked.
    pub(crate) fn overtaken(&self, generation: Generation, before: &[OpenAttempt]) -> Vec<OpenAttempt> {
        let steps = self.open_steps(generation);
        let gone = before.iter().filter(|open| !steps.contains(&open.step));
        gone.copied().collect()
    }

    /// Records the time of a durable shard.
    pub(crate) fn note_save(&mut self, generation: Generation, step: Step, at: Timestamp) {
        let saved_at = self.saved_at.entry((generation, step)).or_insert(at);
        *saved_at = at.min(*saved_at);
        if self.saved_at.len() > SAVE_TIMES_MAX {
            self.saved_at.pop_first();
        }
    }

    /// Returns the uncommitted attempts of a generation with at least one durable shard, oldest first.
    pub fn open_attempts(&self, generation: Generation) -> Vec<OpenAttempt> {
        let steps = self.attempts.steps(generation);
        steps
            .map(|step| OpenAttempt {
                step,
                missing: self.first_missing_rank(generation, step),
                saved_at: self.saved_at.get(&(generation, step)).copied(),
            })
            .collect()
    }

    fn first_missing_rank(&self, generation: Generation, step: Step) -> Option<Rank> {
        let images = self.attempts.images(generation, step)?;
        let world_size = images.values().next()?.world_size;
        let (mut saved, ranks) = (images.keys(), (0..world_size).map(Rank));
        let mut missing = ranks.filter(|rank| saved.next() != Some(rank));
        missing.next()
    }

    /// Reason of an attempt without a rank's shard that gave way to later ones.
    fn overtaken_reason(
        &self,
        generation: Generation,
        rank: Rank,
        later: &[Step],
        absence: Option<(Timestamp, Timestamp)>,
    ) -> String {
        let mut images = later.iter().filter_map(|step| self.attempts.images(generation, *step));
        let later = if images.any(|images| images.contains_key(&rank)) {
            ""
        } else {
            ", nor of a later step,"
        };
        let absence = absence
            .map(|(from, to)| format!("; the controller was restarted at {to}, and its journal ends at {from} before"));
        format!(
            "no shard of rank {rank} of it{later} had been reported when later steps took its place{}",
            absence.unwrap_or_default()
        )
    }

    /// Counts the uncommitted attempts of a job that was stopped as void: no further one is committed.
    pub(crate) fn end_attempts(&mut self) {
        let generation = self.trained;
        for step in self.open_steps(generation) {
            let images = self.attempts.images(generation, step);
            let saved = images.map(|images| images.keys().copied().collect::<BTreeSet<Rank>>());
            let world_size = images.and_then(|images| Some(images.values().next()?.world_size));
            let ranks = (0..world_size.unwrap_or_default()).map(Rank);
            let mut missing = ranks.filter(|rank| saved.as_ref().is_some_and(|saved| !saved.contains(rank)));
            let reason = match missing.next() {
                Some(rank) => format!("the job was stopped before rank {rank} had saved it"),
                None => "the job was stopped before it was committed".to_owned(),
            };
            self.count_void(generation, step, &reason);
            self.attempts.mark_void(generation, step);
        }
    }

    /// Returns the attempts that were counted as void although no failure was reported.
    pub fn passed(&self) -> &BTreeSet<(Generation, Step)> {
        &self.passed
    }

    /// Returns true if a failure of the attempt was reported.
    pub fn is_void(&self, generation: Generation, step: Step) -> bool {
        self.attempts.is_void(generation, step)
    }

    /// Returns the reason of an attempt that gave way to later ones without a reported failure; `None` for others, and while
    /// its shards may still arrive.
    pub fn gave_way(&self, generation: Generation, step: Step) -> Option<&'static str> {
        let is_tracked = || self.attempts.images(generation, step).is_some();
        let is_committed = || self.has(generation, step) || self.is_committing(generation, step);
        let is_passed = self.passed.contains(&(generation, step)) && !self.is_void(generation, step);
        (is_passed && !is_tracked() && !is_committed()).then_some(GAVE_WAY)
    }

    fn is_committing(&self, generation: Generation, step: Step) -> bool {
        let being = self.committing.as_ref();
        being.is_some_and(|being| (being.generation, being.step) == (generation, step))
    }

    /// Counts an attempt as void that may be committed all the same, and remembers it, so that a failure that is reported
    /// later does not count again.
    pub(crate) fn count_passed(&mut self, generation: Generation, step: Step, reason: &str) {
        self.count_void(generation, step, reason);
        self.passed.insert((generation, step));
        if self.passed.len() > MAX_VOID {
            self.passed.pop_first();
        }
    }

    /// Counts a void attempt once, regardless of the number of lost shards, and whether a rank passed it before.
    pub(super) fn count_void(&mut self, generation: Generation, step: Step, reason: &str) {
        if self.passed.contains(&(generation, step)) || self.attempts.is_void(generation, step) {
            return;
        }
        let mut committed = self.committed.iter();
        let later = LaterAttempts {
            is_void: self.void_after(generation, step).next().is_some(),
            is_committed: committed.any(|view| view.generation == generation && view.step > step),
        };
        self.counts.count_void(step, reason, later);
    }

    /// Returns the void attempts of a generation after a step.
    pub(super) fn void_after(&self, generation: Generation, step: Step) -> impl Iterator<Item = &(Generation, Step)> {
        let known = self.attempts.void().union(&self.passed);
        known.filter(move |known| known.0 == generation && known.1 > step)
    }
}

/// Reason of an attempt that a rank has passed; the numbers in it do not matter for its count.
pub(super) fn passed_reason(rank: Rank, later: Step, step: Step) -> String {
    format!("rank {rank} saved step {later} without step {step}")
}

#[cfg(test)]
mod tests {
    use rankguard_checkpoint_schedule::retention::RetentionPolicy;
    use rankguard_model::{JobId, Timestamp};

    use super::super::tests::{ONE, seal};
    use super::*;

    #[test]
    fn an_attempt_that_a_rank_has_passed_counts_as_void_once() {
        let job = JobId::from("llm");
        let rules = RetentionPolicy::default();
        let mut all = JobCheckpoints::default();
        for step in 1..=25 {
            let rank = u32::from(step % 2 == 1);
            let before = all.open_attempts(ONE);
            assert_eq!(all.durable(&job, ONE, seal(rank, step), &rules), None);
            all.count_passed_attempts(ONE, &before, &MissingReports::Absence(None));
        }
        // The newest step may still become complete.
        assert_eq!((all.counts.void, all.counts.committed), (24, 0));
        let newest = all.counts.newest_void.clone().expect("counted");
        assert_eq!(newest.reason, "rank 1 saved step 25 without step 24");
        // Those that are no longer tracked are final; the shards of the others may still arrive.
        assert_eq!(all.gave_way(ONE, Step(1)), Some(GAVE_WAY));
        assert_eq!(all.gave_way(ONE, Step(24)), None);
        all.failed(ONE, Step(1), "no space");
        assert_eq!(all.gave_way(ONE, Step(1)), None, "a failure was reported");

        // The reports of one agent may all arrive before those of another.
        let mut late = JobCheckpoints::default();
        for rank in 0..2 {
            for step in 1..=5 {
                let before = late.open_attempts(ONE);
                late.durable(&job, ONE, seal(rank, step), &rules);
                late.count_passed_attempts(ONE, &before, &MissingReports::Absence(None));
            }
        }
        assert_eq!(late.counts.void, 0);

        // Rank 1 is far behind.
        let mut apart = JobCheckpoints::default();
        for step in 1..=100 {
            let before = apart.open_attempts(ONE);
            apart.durable(&job, ONE, seal(0, step), &rules);
            apart.count_passed_attempts(ONE, &before, &MissingReports::Absence(None));
        }
        assert!(apart.counts.void > 50, "{:?}", apart.counts);
        let newest = apart.counts.newest_void.clone().expect("counted");
        let wanted = "no shard of rank 1 of it, nor of a later step, had been reported when later steps took its place";
        assert_eq!(newest.reason, wanted);
    }

    /// The former controller got the shard of rank 0, and its successor first those of the other node.
    #[test]
    fn an_attempt_that_is_overtaken_after_an_absence_names_the_rank_that_is_missing_and_the_absence() {
        let job = JobId::from("llm");
        let rules = RetentionPolicy::default();
        let mut all = JobCheckpoints::default();
        all.durable(&job, ONE, seal(0, 1), &rules);
        let absence = MissingReports::Absence(Some((Timestamp(0), Timestamp(60_000_000_000))));
        for step in 2..=40 {
            let before = all.open_attempts(ONE);
            all.durable(&job, ONE, seal(1, step), &rules);
            all.count_passed_attempts(ONE, &before, &absence);
        }
        let newest = all.counts.newest_void.clone().expect("counted");
        assert_eq!(
            newest.reason,
            "no shard of rank 0 of it, nor of a later step, had been reported when later steps took its place; the \
             controller was restarted at 1970-01-01T00:01:00.000Z, and its journal ends at 1970-01-01T00:00:00.000Z before"
        );
    }

    /// On a busy machine a rank's failure can arrive after a later shard, and a commit after later failures.
    #[test]
    fn an_attempt_counts_once_in_whatever_order_its_reports_arrive() {
        let job = JobId::from("llm");
        let rules = RetentionPolicy::default();
        for is_early in [true, false] {
            count_reports(&job, &rules, is_early);
        }
    }

    fn count_reports(job: &JobId, rules: &RetentionPolicy, is_early: bool) {
        let mut all = JobCheckpoints::default();
        // Rank 0 saves steps 1 and 3, rank 1 saves step 2 only: rank 0 has passed step 2, and then reports why.
        for (rank, step) in [(0, 1), (1, 1), (1, 2), (0, 3)] {
            let before = all.open_attempts(ONE);
            all.durable(job, ONE, seal(rank, step), rules);
            all.count_passed_attempts(ONE, &before, &MissingReports::Absence(None));
        }
        assert_eq!(all.counts.void, 1);
        if is_early {
            all.failed(ONE, Step(2), "no space");
            all.failed(ONE, Step(2), "no space");
        }
        assert_eq!(all.counts.void, 1);
        // The shard of step 3 arrives, and its commit comes after failures of later steps.
        let before = all.open_attempts(ONE);
        all.durable(job, ONE, seal(1, 3), rules);
        all.count_passed_attempts(ONE, &before, &MissingReports::Absence(None));
        for step in 4..=6 {
            all.failed(ONE, Step(step), "no space");
        }
        all.committed(Timestamp(0), ONE, Step(3), &[]);
        assert_eq!(
            (all.counts.committed, all.counts.void, all.counts.void_in_row),
            (1, 4, 3)
        );
        let newest = all.counts.newest_void.clone().expect("counted");
        assert_eq!(newest.step, Step(6));
        all.failed(ONE, Step(2), "no space");
        assert_eq!((all.counts.void, all.counts.void_in_row), (4, 3));
    }

    #[test]
    fn an_attempt_that_gave_way_and_failed_counts_once() {
        let job = JobId::from("llm");
        let rules = RetentionPolicy::default();
        let mut all = JobCheckpoints::default();
        for step in 1..=20 {
            let before = all.open_attempts(ONE);
            all.durable(&job, ONE, seal(0, step), &rules);
            all.count_passed_attempts(ONE, &before, &MissingReports::Absence(None));
        }
        let counted = all.counts.void;
        assert!(counted > 5, "{counted}");
        for step in 1..=counted {
            all.failed(ONE, Step(step), "no space");
        }
        assert_eq!(all.counts.void, counted);
    }

    #[test]
    fn an_attempt_that_was_passed_and_is_committed_after_all_is_not_void() {
        let job = JobId::from("llm");
        let rules = RetentionPolicy::default();
        let mut all = JobCheckpoints::default();
        for (rank, step) in [(1, 1), (0, 2), (0, 1)] {
            let before = all.open_attempts(ONE);
            all.durable(&job, ONE, seal(rank, step), &rules);
            all.count_passed_attempts(ONE, &before, &MissingReports::Absence(None));
        }
        assert_eq!(all.counts.void, 1);
        all.committed(Timestamp(0), ONE, Step(1), &[]);
        assert_eq!((all.counts.committed, all.counts.void), (1, 0));
        assert_eq!((all.counts.newest_void.clone(), all.counts.reasons.len()), (None, 0));
    }
}

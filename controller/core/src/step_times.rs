//! Step times of a job's ranks, and detection of ranks that are slower than the others.
//!
//! Ranks are compared by their own work time if trainers report it, else by the whole step time. If the ranks of a job
//! wait for each other, the whole step takes as long on every rank as on the slowest; then no rank is reported, which
//! is correct. A rank is reported after it has been an outlier in several comparisons in a row, and cleared after as
//! many comparisons in the usual range.
//!
//! Not covered: the cause of the slowness, and slowness of all ranks alike.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rankguard_model::{Rank, Step, Timestamp};
use serde::{Deserialize, Serialize};

/// Newest reports of a rank that are compared. Agents thin them.
const REPORTS: usize = 16;
/// Interval of the comparison.
const LOOK: Duration = Duration::from_secs(10);
/// Comparisons in a row after which a rank is reported, or cleared.
const LOOKS: u32 = 3;
/// Ratio to the usual step time from which on a rank is slow, and below which it is usual again. MegaScale (Jiang et
/// al., NSDI 2024) found machines that were a tenth slower than the rest.
const SLOW: f64 = 1.10;
const USUAL: f64 = 1.05;
/// Deviation from the median, in units of the median absolute deviation, from which on a rank is an outlier (Iglewicz
/// and Hoaglin).
const OUTLIER: f64 = 3.5;
/// Ratio of the standard deviation to the median absolute deviation of a normal distribution.
const TO_SIGMA: f64 = 1.4826;
/// Lower bound of the spread, relative to the usual step time.
const SPREAD: f64 = 0.01;
/// Minimum number of ranks for a comparison.
const FEW: usize = 3;

/// Step times of one generation's ranks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StepTimes {
    ranks: BTreeMap<Rank, RankStepTimes>,
    looked: Option<Timestamp>,
}

/// Step times of one rank.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct RankStepTimes {
    newest: Step,
    /// Milliseconds, oldest first.
    recent: VecDeque<f64>,
    /// True if these are own work times rather than whole steps.
    own: bool,
    /// Comparisons in a row that contradict the current state.
    looks: u32,
    slow: Option<SlowRank>,
    /// Reports after which none of those that are compared is of a drill.
    #[serde(default, skip_serializing_if = "is_zero")]
    drill_reports: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde requires this form")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Step times of a slow rank.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SlowRank {
    /// Median step time of the rank, milliseconds.
    pub step_ms: f64,
    /// Median step time of all ranks, milliseconds.
    pub usual_ms: f64,
    /// Time since which it is reported.
    pub since: Timestamp,
}

/// Change of a rank after a comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum SpeedChange {
    /// The rank is slow from now on.
    Slow(SlowRank),
    /// The rank is in the usual range again.
    Usual,
}

impl StepTimes {
    /// Records a step report. Late and repeated reports are ignored.
    pub(crate) fn note(&mut self, rank: Rank, step: Step, step_ms: f64, own_ms: Option<f64>) {
        let steps = self.ranks.entry(rank).or_default();
        let took = own_ms.unwrap_or(step_ms);
        if step <= steps.newest || !took.is_finite() || took <= 0.0 {
            return;
        }
        steps.newest = step;
        if steps.own != own_ms.is_some() {
            steps.own = own_ms.is_some();
            steps.recent.clear();
        }
        if steps.recent.len() >= REPORTS {
            steps.recent.pop_front();
        }
        steps.recent.push_back(took);
    }

    /// Records that a step report is of a rank with an injected fault, or of another one.
    pub(crate) fn note_drill(&mut self, rank: Rank, is_drill: bool) {
        let steps = self.ranks.entry(rank).or_default();
        let left = steps.drill_reports.saturating_sub(1);
        steps.drill_reports = if is_drill { REPORTS } else { left };
    }

    /// Returns true if one of the compared reports of a rank is of an injected fault.
    pub(crate) fn is_drill(&self, rank: Rank) -> bool {
        self.ranks.get(&rank).is_some_and(|steps| steps.drill_reports > 0)
    }

    /// Returns the newest step that a rank reported with its duration.
    pub(crate) fn newest_step(&self, rank: Rank) -> Option<Step> {
        let newest = self.ranks.get(&rank).map(|steps| steps.newest);
        newest.filter(|step| step.0 > 0)
    }

    /// Returns true if the newest steps of a rank take no longer than usual.
    pub(crate) fn is_usual(&self, rank: Rank, usual_ms: f64) -> bool {
        let steps = self.ranks.get(&rank).filter(|steps| steps.recent.len() >= REPORTS);
        steps.is_some_and(|steps| median(steps.recent.iter().copied().collect()) < USUAL * usual_ms)
    }

    /// Compares the ranks of a job of `world` ranks if the interval has passed, and returns the changes.
    pub(crate) fn look(&mut self, now: Timestamp, world: usize) -> Vec<(Rank, SpeedChange)> {
        if self.looked.is_some_and(|last| now.since(last) < LOOK) {
            return Vec::new();
        }
        self.looked = Some(now);
        let full = |steps: &&RankStepTimes| steps.recent.len() >= REPORTS;
        let owns = self.ranks.values().filter(full).filter(|steps| steps.own).count();
        // All ranks are compared by the same measure.
        let own = owns == world;
        let medians: BTreeMap<Rank, f64> = self
            .ranks
            .iter()
            .filter(|(_, steps)| full(steps) && steps.own == own)
            .map(|(rank, steps)| (*rank, median(steps.recent.iter().copied().collect())))
            .collect();
        if medians.len() < FEW.max(world) {
            return Vec::new();
        }
        let usual = median(medians.values().copied().collect());
        let spread = TO_SIGMA * median(medians.values().map(|own| (own - usual).abs()).collect());
        let spread = spread.max(SPREAD * usual);
        let slow = |own: f64| own >= SLOW * usual && (own - usual) / spread >= OUTLIER;
        // If many ranks are slow there is no usual step time.
        let many = medians.values().filter(|own| slow(**own)).count() * 4 > medians.len();
        let mut changes = Vec::new();
        for (rank, own) in medians {
            let Some(steps) = self.ranks.get_mut(&rank) else {
                continue;
            };
            let now = SlowRank {
                step_ms: own,
                usual_ms: usual,
                since: now,
            };
            let change = steps.judge(slow(own) && !many, own < USUAL * usual, now);
            changes.extend(change.map(|change| (rank, change)));
        }
        changes
    }

    /// Returns true if the rank is reported as slow.
    pub(crate) fn is_slow(&self, rank: Rank) -> bool {
        self.ranks.get(&rank).is_some_and(|steps| steps.slow.is_some())
    }

    /// Returns the slow ranks, slowest first.
    pub(crate) fn slow(&self) -> Vec<(Rank, SlowRank)> {
        let mut slow: Vec<(Rank, SlowRank)> = self
            .ranks
            .iter()
            .filter_map(|(rank, steps)| Some((*rank, steps.slow?)))
            .collect();
        slow.sort_by(|(_, one), (_, other)| (other.step_ms / other.usual_ms).total_cmp(&(one.step_ms / one.usual_ms)));
        slow
    }
}

impl RankStepTimes {
    fn judge(&mut self, is_slow: bool, is_usual: bool, now: SlowRank) -> Option<SpeedChange> {
        let against = if self.slow.is_some() { is_usual } else { is_slow };
        self.looks = if against { self.looks + 1 } else { 0 };
        if let Some(known) = &mut self.slow {
            (known.step_ms, known.usual_ms) = (now.step_ms, now.usual_ms);
        }
        if self.looks < LOOKS {
            return None;
        }
        self.looks = 0;
        if self.slow.take().is_some() {
            return Some(SpeedChange::Usual);
        }
        self.slow = Some(now);
        Some(SpeedChange::Slow(now))
    }
}

/// Returns the lower median; 0 for an empty list.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len().saturating_sub(1) / 2;
    values.get(middle).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates eight ranks for some seconds with the given step times; returns the changes, each with its second.
    fn run(
        tempo: &mut StepTimes,
        from: u64,
        seconds: u64,
        own: impl Fn(u32) -> Option<f64>,
    ) -> Vec<(u64, Rank, SpeedChange)> {
        let mut told = Vec::new();
        for second in from..from + seconds {
            for rank in 0..8 {
                // Every rank waits for the slowest, so its step time applies to all.
                tempo.note(Rank(rank), Step(second + 1), 130.0 + f64::from(rank) / 10.0, own(rank));
            }
            let now = Timestamp::from_millis(i64::try_from(second).expect("few") * 1000);
            told.extend(
                tempo
                    .look(now, 8)
                    .into_iter()
                    .map(|(rank, change)| (second, rank, change)),
            );
        }
        told
    }

    fn five(slow: f64) -> impl Fn(u32) -> Option<f64> {
        move |rank| Some(if rank == 5 { slow } else { 100.0 + f64::from(rank % 3) })
    }

    #[test]
    fn a_slow_rank_is_named_after_some_looks_and_no_more_when_it_is_like_the_others() {
        let mut tempo = StepTimes::default();
        let told = run(&mut tempo, 0, 100, five(130.0));
        assert!(
            matches!(told[..], [(second, Rank(5), SpeedChange::Slow(slow))]
                if (36..=50).contains(&second) && slow.step_ms == 130.0 && slow.usual_ms == 101.0),
            "{told:?}"
        );
        assert_eq!(tempo.slow().len(), 1);
        // Between the two bounds the state does not change.
        assert_eq!(run(&mut tempo, 100, 60, five(108.0)), []);
        let told = run(&mut tempo, 160, 60, five(101.0));
        assert!(matches!(told[..], [(_, Rank(5), SpeedChange::Usual)]), "{told:?}");
        assert_eq!(tempo.slow(), []);
    }

    #[test]
    fn ranks_that_wait_for_each_other_and_tell_no_work_of_their_own_are_all_alike() {
        let mut tempo = StepTimes::default();
        assert_eq!(run(&mut tempo, 0, 200, |_| None), []);
        // A single rank that reports own work times has no peer to compare with.
        assert_eq!(run(&mut tempo, 200, 200, |rank| (rank == 5).then_some(400.0)), []);
    }

    #[test]
    fn a_pause_of_one_rank_and_slowness_of_many_name_nobody() {
        let mut tempo = StepTimes::default();
        assert_eq!(run(&mut tempo, 0, 60, five(101.0)), []);
        // An evaluation: a few steps.
        assert_eq!(run(&mut tempo, 60, 6, five(5_000.0)), []);
        assert_eq!(run(&mut tempo, 66, 100, five(101.0)), []);
        let half = |rank| Some(if rank % 2 == 0 { 100.0 } else { 150.0 });
        assert_eq!(run(&mut tempo, 166, 200, half), []);
    }

    #[test]
    fn what_is_no_time_and_what_comes_again_changes_nothing() {
        let mut tempo = StepTimes::default();
        for took in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            tempo.note(Rank(0), Step(1), took, None);
        }
        tempo.note(Rank(0), Step(1), 5.0, None);
        tempo.note(Rank(0), Step(1), 7.0, None);
        assert_eq!(tempo.ranks[&Rank(0)].recent, [5.0]);
    }
}

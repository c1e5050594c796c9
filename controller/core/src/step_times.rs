//! Step times of a job's ranks, and detection of ranks that are slower than the others.
//!
//! Ranks are compared by their own work time if trainers report it, else by the whole step time. If the ranks of a job
//! wait for each other, the whole step takes as long on every rank as on the slowest; then no rank is reported, which
//! is correct. A rank is reported after it has been an outlier in several comparisons in a row, and cleared after as
//! many comparisons in the usual range.
//!
//! Two or three ranks, or several slow ranks of one node among few others, show no usual step time. There a rank is compared
//! with its own pace, the lowest median of its generation: it is slow if it takes longer than that while at least half of the
//! ranks keep theirs. Factors by which all ranks slow down alike cancel out.
//!
//! Not covered: the cause of the slowness, slowness of all ranks alike, and in such jobs ranks that were slow from their first
//! step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use rankguard_model::{NodeId, Rank, Step, Timestamp};
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
/// Minimum number of ranks for a comparison with each other, and with their own pace.
const FEW: usize = 3;
const PAIR: usize = 2;
/// Reports between two measurements of the pace of a rank.
const PACE_REPORTS: usize = REPORTS / 2;
/// Reports in a row that are not slow, after which earlier slow ones do not count as the beginning.
const QUICK: usize = REPORTS / 2;

/// Step times of one generation's ranks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StepTimes {
    ranks: BTreeMap<Rank, RankStepTimes>,
    looked: Option<Timestamp>,
    /// Median step time of all ranks at the newest comparison, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usual: Option<f64>,
    /// Median ratio to the own pace at the newest comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shift: Option<f64>,
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
    /// Lowest median of the compared reports, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pace: Option<f64>,
    /// Reports since the pace was measured.
    #[serde(default, skip_serializing_if = "is_zero")]
    unmeasured: usize,
    /// Time of the first report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_at: Option<Timestamp>,
    /// Time of the first slow report after several that were not, and the number of those that were not since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slow_from: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "is_zero")]
    quick: usize,
    /// Slow reports minus others since `slow_from` (since rules 9).
    #[serde(default, skip_serializing_if = "is_zero")]
    slow_balance: usize,
    /// Times of `recent` (since rules 9).
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    recent_at: VecDeque<Timestamp>,
    /// True if the rank was in the usual range at the newest comparison.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_usual: bool,
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
    /// Median step time of all ranks, or of those that keep their pace if the rank is compared with its own, milliseconds.
    pub usual_ms: f64,
    /// Its own pace if it is compared with that, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace_ms: Option<f64>,
    /// Time of its first slow step.
    pub since: Timestamp,
}

/// Comparison of the ranks of a job.
struct PaceComparison<'a> {
    medians: &'a BTreeMap<Rank, f64>,
    /// Median of all ranks, milliseconds.
    usual: f64,
    /// Ranks that are slower than the others; none if many are.
    slower: BTreeSet<Rank>,
    /// Median of the ratios to the own pace; none if that of a rank is not known.
    shift: Option<f64>,
    /// True if the ranks show no usual step time, and are compared with their own pace.
    is_by_pace: bool,
    /// Ranks that are slower than their own pace while others keep theirs.
    slowed: BTreeSet<Rank>,
    /// Median of the ranks that keep their pace, milliseconds.
    others: f64,
}

/// Change of a rank after a comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum SpeedChange {
    /// The rank is slow from now on.
    Slow(SlowRank),
    /// The rank is in the usual range again: of its own pace, or of the others.
    Usual { is_of_pace: bool },
}

impl StepTimes {
    /// Records a step report. Late and repeated reports are ignored.
    ///
    /// With `is_exact` (since rules 9), a rank becomes slow at the first report from which on most are slow; before, a single
    /// one shortly before counted as well, and a rank that was slow at the first comparison had been so from its first step.
    pub(crate) fn note(
        &mut self,
        at: Timestamp,
        rank: Rank,
        step: Step,
        step_ms: f64,
        own_ms: Option<f64>,
        is_exact: bool,
    ) {
        let (usual, shift) = (self.usual, self.shift.unwrap_or(1.0));
        let steps = self.ranks.entry(rank).or_default();
        let took = own_ms.unwrap_or(step_ms);
        if step <= steps.newest || !took.is_finite() || took <= 0.0 {
            return;
        }
        steps.newest = step;
        if steps.own != own_ms.is_some() {
            steps.own = own_ms.is_some();
            steps.recent.clear();
            steps.recent_at.clear();
            (steps.pace, steps.slow_from, steps.quick) = (None, None, 0);
        }
        steps.first_at.get_or_insert(at);
        if let Some(reference) = steps.pace.map(|pace| pace * shift).or(usual) {
            steps.note_beginning(at, took, reference, is_exact);
        }
        if steps.recent.len() >= REPORTS {
            steps.recent.pop_front();
            steps.recent_at.pop_front();
        }
        steps.recent.push_back(took);
        if is_exact {
            steps.recent_at.push_back(at);
        }
        steps.measure_pace();
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

    /// Returns true if the rank was in the usual range at the newest comparison.
    pub(crate) fn is_usual(&self, rank: Rank) -> bool {
        self.ranks.get(&rank).is_some_and(|steps| steps.is_usual)
    }

    /// Returns true if the interval since the newest comparison has passed.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.looked.is_none_or(|last| now.since(last) >= LOOK)
    }

    /// Compares the ranks of a job on these nodes if the interval has passed, and returns the changes. With `with_pace`, ranks
    /// are compared with their own pace where they show no usual step time.
    pub(crate) fn look(
        &mut self,
        now: Timestamp,
        places: &BTreeMap<Rank, NodeId>,
        with_pace: bool,
    ) -> Vec<(Rank, SpeedChange)> {
        let world = places.len();
        if !self.is_due(now) {
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
        let least = if with_pace { PAIR } else { FEW };
        if medians.len() < least.max(world) {
            return Vec::new();
        }
        let compared = self.compare(&medians, places, with_pace);
        let is_first = self.usual.replace(compared.usual).is_none();
        self.shift = compared.shift;
        let mut changes = Vec::new();
        for (rank, own) in &medians {
            let Some(steps) = self.ranks.get_mut(rank) else {
                continue;
            };
            let is_slower = compared.slower.contains(rank);
            let pace = steps.pace.filter(|_| !is_slower && compared.slowed.contains(rank));
            let is_slow = is_slower || pace.is_some();
            if is_slow && is_first {
                // It was slow before the first comparison.
                steps.find_beginning(compared.usual);
            }
            let now = SlowRank {
                step_ms: *own,
                usual_ms: if pace.is_some() || steps.is_slower_than_pace() {
                    compared.others
                } else {
                    compared.usual
                },
                pace_ms: pace,
                since: steps.slow_from.filter(|from| *from < now).unwrap_or(now),
            };
            let is_usual = compared.is_usual(*own, steps);
            let change = steps.judge(is_slow, is_usual, now);
            steps.is_usual = is_usual;
            changes.extend(change.map(|change| (*rank, change)));
        }
        changes
    }

    fn compare<'a>(
        &self,
        medians: &'a BTreeMap<Rank, f64>,
        places: &BTreeMap<Rank, NodeId>,
        with_pace: bool,
    ) -> PaceComparison<'a> {
        let usual = median(medians.values().copied().collect());
        let spread = TO_SIGMA * median(medians.values().map(|own| (own - usual).abs()).collect());
        let spread = spread.max(SPREAD * usual);
        let is_slow = |own: f64| own >= SLOW * usual && (own - usual) / spread >= OUTLIER;
        let slower: BTreeSet<Rank> = medians
            .iter()
            .filter(|(_, own)| is_slow(**own))
            .map(|(rank, _)| *rank)
            .collect();
        // If many ranks are slow there is no usual step time.
        let shows_usual = medians.len() >= FEW && slower.len() * 4 <= medians.len();
        let mut compared = PaceComparison {
            medians,
            usual,
            slower: if shows_usual { slower } else { BTreeSet::new() },
            shift: None,
            is_by_pace: !(shows_usual && medians.len() > FEW),
            slowed: BTreeSet::new(),
            others: usual,
        };
        if with_pace {
            self.compare_with_pace(&mut compared, places);
        }
        compared
    }

    /// Compares the ranks with their own pace. Slow ranks count if they are at most half of all and on one node, and at least
    /// half keep their pace.
    fn compare_with_pace(&self, compared: &mut PaceComparison<'_>, places: &BTreeMap<Rank, NodeId>) {
        let of = |rank: &Rank| self.ranks.get(rank);
        let ratio = |(rank, own): (&Rank, &f64)| Some((*rank, own / of(rank)?.pace?));
        let ratios: BTreeMap<Rank, f64> = compared.medians.iter().filter_map(ratio).collect();
        if ratios.len() < compared.medians.len() {
            return;
        }
        let shift = median(ratios.values().copied().collect());
        let is_slowed = |rank: &Rank, ratio: f64| {
            let spread = of(rank).map_or(0.0, RankStepTimes::spread).max(SPREAD);
            ratio >= SLOW * shift && (ratio - shift) / spread >= OUTLIER
        };
        let slowed = ratios.iter().filter(|(rank, ratio)| is_slowed(rank, **ratio));
        let slowed: BTreeSet<Rank> = slowed.map(|(rank, _)| *rank).collect();
        let steady = ratios.iter().filter(|(_, ratio)| **ratio < USUAL * shift);
        let steady: Vec<f64> = steady
            .filter_map(|(rank, _)| compared.medians.get(rank).copied())
            .collect();
        let nodes: BTreeSet<Option<&NodeId>> = slowed.iter().map(|rank| places.get(rank)).collect();
        let is_minority = slowed.len() * 2 <= ratios.len() && steady.len() * 2 >= ratios.len();
        compared.shift = Some(shift);
        compared.others = median(steady);
        if compared.is_by_pace && is_minority && nodes.len() <= 1 {
            compared.slowed = slowed;
        }
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

impl PaceComparison<'_> {
    /// Returns true if a rank is in the usual range: of its own pace if it is reported against that, or compared with it.
    fn is_usual(&self, own: f64, steps: &RankStepTimes) -> bool {
        let is_by_pace = if steps.slow.is_some() {
            steps.is_slower_than_pace()
        } else {
            self.is_by_pace
        };
        match self.shift.zip(steps.pace).filter(|_| is_by_pace) {
            Some((shift, pace)) => own < USUAL * shift * pace,
            None => own < USUAL * self.usual,
        }
    }
}

impl RankStepTimes {
    /// Returns true if the rank is reported as slower than its own pace.
    fn is_slower_than_pace(&self) -> bool {
        self.slow.is_some_and(|slow| slow.pace_ms.is_some())
    }

    /// Records whether a report is slow against a step time.
    fn note_beginning(&mut self, at: Timestamp, took: f64, reference: f64, is_exact: bool) {
        if took >= SLOW * reference {
            self.slow_balance = if self.slow_from.is_some() { self.slow_balance } else { 0 };
            self.slow_from.get_or_insert(at);
            self.slow_balance = (self.slow_balance + 1).min(REPORTS);
            self.quick = 0;
            return;
        }
        self.quick += 1;
        self.slow_balance = self.slow_balance.saturating_sub(1);
        // A rank that was slow from its first step is quick against its own pace.
        let is_slower = self.slow.is_some() || self.looks > 0;
        let is_over = self.quick >= QUICK || is_exact && self.slow_balance == 0;
        if is_over && !is_slower {
            self.slow_from = None;
        }
    }

    /// Finds the beginning among the reports of a rank that is slow at the first comparison. If all of them are slow, it was
    /// slow from its first step.
    fn find_beginning(&mut self, reference: f64) {
        if self.recent_at.len() < self.recent.len() {
            self.slow_from = self.slow_from.or(self.first_at);
            return;
        }
        let took = self.recent.iter().zip(&self.recent_at);
        let reports: Vec<(Timestamp, f64)> = took.map(|(took, at)| (*at, *took)).collect();
        if reports.iter().all(|(_, took)| *took >= SLOW * reference) {
            self.slow_from = self.first_at;
            return;
        }
        (self.slow_from, self.quick) = (None, 0);
        for (at, took) in reports {
            self.note_beginning(at, took, reference, true);
        }
    }

    /// Measures the pace after some reports.
    fn measure_pace(&mut self) {
        self.unmeasured += 1;
        if self.recent.len() < REPORTS || self.unmeasured < PACE_REPORTS {
            return;
        }
        self.unmeasured = 0;
        let now = median(self.recent.iter().copied().collect());
        self.pace = Some(self.pace.map_or(now, |pace| pace.min(now)));
    }

    /// Returns the deviation of the compared reports, relative to the pace.
    fn spread(&self) -> f64 {
        let middle = median(self.recent.iter().copied().collect());
        let deviation = median(self.recent.iter().map(|took| (took - middle).abs()).collect());
        self.pace.map_or(0.0, |pace| TO_SIGMA * deviation / pace)
    }

    fn judge(&mut self, is_slow: bool, is_usual: bool, now: SlowRank) -> Option<SpeedChange> {
        let against = if self.slow.is_some() { is_usual } else { is_slow };
        self.looks = if against { self.looks + 1 } else { 0 };
        if let Some(known) = &mut self.slow {
            (known.step_ms, known.usual_ms) = (now.step_ms, now.usual_ms);
            known.pace_ms = known.pace_ms.and(now.pace_ms.or(known.pace_ms));
        }
        if self.looks < LOOKS {
            return None;
        }
        self.looks = 0;
        if let Some(slow) = self.slow.take() {
            let is_of_pace = slow.pace_ms.is_some();
            return Some(SpeedChange::Usual { is_of_pace });
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

    fn second_at(second: u64) -> Timestamp {
        Timestamp::from_millis(i64::try_from(second).expect("few") * 1000)
    }

    /// Returns the nodes of ranks, two on each.
    fn places(ranks: u32) -> BTreeMap<Rank, NodeId> {
        let place = |rank: u32| (Rank(rank), NodeId::from(format!("n{}", rank / 2)));
        (0..ranks).map(place).collect()
    }

    /// Simulates eight ranks for some seconds with the given step times; returns the changes, each with its second.
    fn run(
        tempo: &mut StepTimes,
        from: u64,
        seconds: u64,
        own: impl Fn(u32) -> Option<f64>,
    ) -> Vec<(u64, Rank, SpeedChange)> {
        run_of(8, tempo, from, seconds, own)
    }

    /// The same, of another number of ranks.
    fn run_of(
        ranks: u32,
        tempo: &mut StepTimes,
        from: u64,
        seconds: u64,
        own: impl Fn(u32) -> Option<f64>,
    ) -> Vec<(u64, Rank, SpeedChange)> {
        let mut told = Vec::new();
        for second in from..from + seconds {
            for rank in 0..ranks {
                // Every rank waits for the slowest, so its step time applies to all.
                tempo.note(
                    second_at(second),
                    Rank(rank),
                    Step(second + 1),
                    130.0 + f64::from(rank) / 10.0,
                    own(rank),
                    true,
                );
            }
            told.extend(
                tempo
                    .look(second_at(second), &places(ranks), true)
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
        assert!(
            matches!(told[..], [(_, Rank(5), SpeedChange::Usual { is_of_pace: false })]),
            "{told:?}"
        );
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
            tempo.note(Timestamp(0), Rank(0), Step(1), took, None, true);
        }
        tempo.note(Timestamp(0), Rank(0), Step(1), 5.0, None, true);
        tempo.note(Timestamp(0), Rank(0), Step(1), 7.0, None, true);
        assert_eq!(tempo.ranks[&Rank(0)].recent, [5.0]);
    }

    #[test]
    fn a_slow_rank_of_two_is_named_against_its_own_pace() {
        let mut tempo = StepTimes::default();
        // Rank 0 has more work than rank 1 by design.
        let own = |slow: f64| move |rank| Some(if rank == 0 { 200.0 } else { slow });
        assert_eq!(run_of(2, &mut tempo, 0, 60, own(120.0)), []);
        let told = run_of(2, &mut tempo, 60, 60, own(150.0));
        assert!(
            matches!(told[..], [(_, Rank(1), SpeedChange::Slow(slow))]
                if slow.since == second_at(60) && slow.pace_ms == Some(120.0) && slow.usual_ms == 200.0),
            "{told:?}"
        );
        assert!(!tempo.is_usual(Rank(1)) && tempo.is_usual(Rank(0)));
        let told = run_of(2, &mut tempo, 120, 60, own(121.0));
        assert!(
            matches!(told[..], [(_, Rank(1), SpeedChange::Usual { is_of_pace: true })]),
            "{told:?}"
        );
    }

    #[test]
    fn older_rules_name_no_rank_of_two() {
        let mut tempo = StepTimes::default();
        for second in 0..200 {
            let slow = if second < 60 { 100.0 } else { 300.0 };
            for (rank, own) in [(0, 100.0), (1, slow)] {
                tempo.note(second_at(second), Rank(rank), Step(second + 1), own, Some(own), true);
            }
            assert_eq!(tempo.look(second_at(second), &places(2), false), []);
        }
    }

    #[test]
    fn what_slows_all_ranks_alike_names_none() {
        for ranks in [2, 3] {
            let mut tempo = StepTimes::default();
            let own = |factor: f64| move |rank: u32| Some(factor * (100.0 + f64::from(rank) * 40.0));
            assert_eq!(run_of(ranks, &mut tempo, 0, 60, own(1.0)), []);
            assert_eq!(run_of(ranks, &mut tempo, 60, 100, own(1.5)), []);
            // One rank becomes slower than the common factor.
            let slow = move |rank: u32| own(if rank == 1 { 2.0 } else { 1.5 })(rank);
            let told = run_of(ranks, &mut tempo, 160, 60, slow);
            assert!(
                matches!(told[..], [(_, Rank(1), SpeedChange::Slow(slow))] if slow.since == second_at(160)),
                "{told:?}"
            );
        }
    }

    #[test]
    fn a_slow_node_with_half_of_the_ranks_is_named() {
        let mut tempo = StepTimes::default();
        let own = |slow: f64| move |rank: u32| Some(if rank / 2 == 1 { slow } else { 100.0 });
        assert_eq!(run_of(4, &mut tempo, 0, 60, own(100.0)), []);
        let told = run_of(4, &mut tempo, 60, 60, own(140.0));
        let ranks: Vec<Rank> = told.iter().map(|(_, rank, _)| *rank).collect();
        assert_eq!(ranks, [Rank(2), Rank(3)], "{told:?}");
    }

    /// It has no earlier pace of its own that is faster, and another rank may as well be the slow one.
    #[test]
    fn a_rank_of_two_that_is_slow_from_its_first_step_is_not_named() {
        let mut tempo = StepTimes::default();
        let own = |rank| Some(if rank == 1 { 320.0 } else { 200.0 });
        assert_eq!(run_of(2, &mut tempo, 0, 200, own), []);
    }

    #[test]
    fn a_rank_is_slow_since_its_first_slow_step() {
        let mut tempo = StepTimes::default();
        assert_eq!(run(&mut tempo, 0, 60, five(101.0)), []);
        // A single slow step is no beginning.
        assert_eq!(run(&mut tempo, 60, 1, five(300.0)), []);
        assert_eq!(run(&mut tempo, 61, 20, five(101.0)), []);
        let told = run(&mut tempo, 81, 60, five(130.0));
        assert!(
            matches!(told[..], [(second, Rank(5), SpeedChange::Slow(slow))] if slow.since == second_at(81) && second > 100),
            "{told:?}"
        );
        let mut tempo = StepTimes::default();
        let told = run(&mut tempo, 10, 60, five(130.0));
        assert!(
            matches!(told[..], [(_, Rank(5), SpeedChange::Slow(slow))] if slow.since == second_at(10)),
            "{told:?}"
        );
    }

    /// A step took longer for another reason shortly before.
    #[test]
    fn a_slow_step_before_the_first_slow_one_in_a_row_is_no_beginning() {
        let mut tempo = StepTimes::default();
        assert_eq!(run(&mut tempo, 0, 60, five(101.0)), []);
        assert_eq!(run(&mut tempo, 60, 1, five(300.0)), []);
        assert_eq!(run(&mut tempo, 61, 2, five(101.0)), []);
        let told = run(&mut tempo, 63, 60, five(130.0));
        assert!(
            matches!(told[..], [(_, Rank(5), SpeedChange::Slow(slow))] if slow.since == second_at(63)),
            "{told:?}"
        );
    }

    /// Its first reports, from before the first comparison, were as fast as those of the others.
    #[test]
    fn a_rank_that_is_slow_at_the_first_comparison_is_so_since_its_first_slow_step() {
        let mut tempo = StepTimes::default();
        assert_eq!(run(&mut tempo, 0, 6, five(101.0)), []);
        let told = run(&mut tempo, 6, 60, five(130.0));
        assert!(
            matches!(told[..], [(_, Rank(5), SpeedChange::Slow(slow))] if slow.since == second_at(6)),
            "{told:?}"
        );
    }

    #[test]
    fn noise_of_a_pair_names_none() {
        let mut tempo = StepTimes::default();
        for second in 0..2_000_u64 {
            for rank in 0..2_u64 {
                // Steps between 80 and 120 ms.
                let noise = (second * 7_919 + rank * 104_729) % 41;
                let own = 80.0 + f64::from(u32::try_from(noise).expect("small"));
                tempo.note(
                    second_at(second),
                    Rank(u32::try_from(rank).expect("small")),
                    Step(second + 1),
                    own,
                    Some(own),
                    true,
                );
            }
            assert_eq!(tempo.look(second_at(second), &places(2), true), [], "second {second}");
        }
    }
}

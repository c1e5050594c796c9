//! How long the steps of a job's ranks take, and which ranks are slower than the others.
//!
//! Ranks are compared by the time that each worked itself, where trainers tell it. Without it the whole step is compared: in a
//! job whose ranks wait for each other all of them take as long as the slowest, and then nobody is named, which is right.
//! A rank is named when it has been an outlier for several looks, and no more when it has been like the others for as many.
//!
//! Absent: why a rank is slow, and slowness of all ranks alike.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rankguard_model::{Rank, Step, Timestamp};
use serde::{Deserialize, Serialize};

/// Reports of a rank that are compared: the newest. Agents thin them.
const REPORTS: usize = 16;
/// From one comparison to the next.
const LOOK: Duration = Duration::from_secs(10);
/// Looks in a row after which a rank is named, or is no more.
const LOOKS: u32 = 3;
/// Times the usual step from which on a rank is slow, and below which it is like the others again. MegaScale (Jiang et al.,
/// NSDI 2024) found machines that were a tenth slower than the rest.
const SLOW: f64 = 1.10;
const USUAL: f64 = 1.05;
/// Deviations from the median, by the median absolute deviation, from which on a rank is an outlier (Iglewicz and Hoaglin).
const OUTLIER: f64 = 3.5;
/// Median absolute deviation to standard deviation of a normal distribution.
const TO_SIGMA: f64 = 1.4826;
/// The least spread that ranks are taken to have, as a part of the usual step.
const SPREAD: f64 = 0.01;
/// Ranks that are compared at least.
const FEW: usize = 3;

/// The steps of one generation's ranks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tempo {
    ranks: BTreeMap<Rank, Steps>,
    looked: Option<Timestamp>,
}

/// The steps of one rank.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Steps {
    newest: Step,
    /// Milliseconds, oldest first.
    recent: VecDeque<f64>,
    /// Whether these are its own work rather than whole steps.
    own: bool,
    /// Looks in a row that speak against what is told of it now.
    looks: u32,
    slow: Option<Slow>,
}

/// A rank that is slower than the others.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Slow {
    /// What its steps take, median, milliseconds.
    pub step_ms: f64,
    /// What the steps of all ranks take, median.
    pub usual_ms: f64,
    /// Since when it is named.
    pub since: Timestamp,
}

/// What a look has changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Change {
    /// It is slow from now on.
    Slow(Slow),
    /// It is like the others again.
    Usual,
}

impl Tempo {
    /// A report of a step. Those that come late, or again, change nothing.
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

    /// Compares the ranks of a job of so many, when it is time; gives whoever is told differently from now on.
    pub(crate) fn look(&mut self, now: Timestamp, world: usize) -> Vec<(Rank, Change)> {
        if self.looked.is_some_and(|last| now.since(last) < LOOK) {
            return Vec::new();
        }
        self.looked = Some(now);
        let full = |steps: &&Steps| steps.recent.len() >= REPORTS;
        let owns = self.ranks.values().filter(full).filter(|steps| steps.own).count();
        // All by the same measure.
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
        // Where many are slow there is no usual rank to be slower than.
        let many = medians.values().filter(|own| slow(**own)).count() * 4 > medians.len();
        let mut changes = Vec::new();
        for (rank, own) in medians {
            let Some(steps) = self.ranks.get_mut(&rank) else {
                continue;
            };
            let now = Slow {
                step_ms: own,
                usual_ms: usual,
                since: now,
            };
            let change = steps.judge(slow(own) && !many, own < USUAL * usual, now);
            changes.extend(change.map(|change| (rank, change)));
        }
        changes
    }

    /// Ranks that are slow now, slowest first.
    pub(crate) fn slow(&self) -> Vec<(Rank, Slow)> {
        let mut slow: Vec<(Rank, Slow)> = self
            .ranks
            .iter()
            .filter_map(|(rank, steps)| Some((*rank, steps.slow?)))
            .collect();
        slow.sort_by(|(_, one), (_, other)| (other.step_ms / other.usual_ms).total_cmp(&(one.step_ms / one.usual_ms)));
        slow
    }
}

impl Steps {
    fn judge(&mut self, is_slow: bool, is_usual: bool, now: Slow) -> Option<Change> {
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
            return Some(Change::Usual);
        }
        self.slow = Some(now);
        Some(Change::Slow(now))
    }
}

/// The lower median; 0 of nothing.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len().saturating_sub(1) / 2;
    values.get(middle).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight ranks make steps for so many seconds, each of this time; gives what was changed, with the second.
    fn run(tempo: &mut Tempo, from: u64, seconds: u64, own: impl Fn(u32) -> Option<f64>) -> Vec<(u64, Rank, Change)> {
        let mut told = Vec::new();
        for second in from..from + seconds {
            for rank in 0..8 {
                // A step lasts as long as that of the slowest, whoever waits.
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
        let mut tempo = Tempo::default();
        let told = run(&mut tempo, 0, 100, five(130.0));
        assert!(
            matches!(told[..], [(second, Rank(5), Change::Slow(slow))]
                if (36..=50).contains(&second) && slow.step_ms == 130.0 && slow.usual_ms == 101.0),
            "{told:?}"
        );
        assert_eq!(tempo.slow().len(), 1);
        // Between the two bounds it stays what it is.
        assert_eq!(run(&mut tempo, 100, 60, five(108.0)), []);
        let told = run(&mut tempo, 160, 60, five(101.0));
        assert!(matches!(told[..], [(_, Rank(5), Change::Usual)]), "{told:?}");
        assert_eq!(tempo.slow(), []);
    }

    #[test]
    fn ranks_that_wait_for_each_other_and_tell_no_work_of_their_own_are_all_alike() {
        let mut tempo = Tempo::default();
        assert_eq!(run(&mut tempo, 0, 200, |_| None), []);
        // Who tells it alone is compared with nobody.
        assert_eq!(run(&mut tempo, 200, 200, |rank| (rank == 5).then_some(400.0)), []);
    }

    #[test]
    fn a_pause_of_one_rank_and_slowness_of_many_name_nobody() {
        let mut tempo = Tempo::default();
        assert_eq!(run(&mut tempo, 0, 60, five(101.0)), []);
        // An evaluation: a few steps.
        assert_eq!(run(&mut tempo, 60, 6, five(5_000.0)), []);
        assert_eq!(run(&mut tempo, 66, 100, five(101.0)), []);
        let half = |rank| Some(if rank % 2 == 0 { 100.0 } else { 150.0 });
        assert_eq!(run(&mut tempo, 166, 200, half), []);
    }

    #[test]
    fn what_is_no_time_and_what_comes_again_changes_nothing() {
        let mut tempo = Tempo::default();
        for took in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            tempo.note(Rank(0), Step(1), took, None);
        }
        tempo.note(Rank(0), Step(1), 5.0, None);
        tempo.note(Rank(0), Step(1), 7.0, None);
        assert_eq!(tempo.ranks[&Rank(0)].recent, [5.0]);
    }
}

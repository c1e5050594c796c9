//! Multilevel checkpoint intervals: cheap images that survive few failures, expensive ones that survive most.
//!
//! Each failure is recovered from the cheapest level that survives it; the `rate` of a level counts those failures.
//! First order (Moody, Di, Benoit et al. 2017): every level has its own Young interval, the overheads add, and
//! intervals are nested so that each image of a level coincides with an image of every cheaper one. The search here
//! uses the exact overhead of each level instead of the first-order one; both agree while an interval is short against
//! the time between failures.
//!
//! Not modelled: failures during recovery from another level (Moody's Markov model); its tables were not available.

use serde::{Deserialize, Serialize};

use crate::interval::{exact, overhead_over_work, young};

/// Maximum number of levels of a pattern; the search covers all subsets of them.
pub const MAX_LEVELS: usize = 8;

/// Costs and failure rate of one checkpoint level. Levels are listed cheapest first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CheckpointLevel {
    /// Cost of an image to the trainer, seconds.
    pub cost_s: f64,
    /// Time from the start of an image until it is usable, seconds; at least the cost.
    pub latency_s: f64,
    /// Time from a failure until work resumes from such an image, without rework, seconds.
    pub restart_s: f64,
    /// Failures per second of the job for which this is the cheapest level that survives.
    pub rate: f64,
    /// Lower bound of the interval, seconds.
    pub shortest_s: f64,
}

impl CheckpointLevel {
    /// Returns the expected overhead over work of this level at an interval: images, rework and restarts.
    pub fn overhead(&self, interval_s: f64) -> f64 {
        if self.rate <= 0.0 {
            return self.cost_s / interval_s;
        }
        let latency = self.latency_s.max(self.cost_s);
        let mtbf = 1.0 / self.rate;
        overhead_over_work(interval_s, self.cost_s, latency, self.restart_s, mtbf)
    }

    /// Returns the best interval of this level alone, seconds; infinite without failures.
    pub fn best_interval(&self) -> f64 {
        if self.rate <= 0.0 {
            return f64::INFINITY;
        }
        exact(self.cost_s, 1.0 / self.rate).max(self.shortest_s)
    }
}

/// First-order optimum before rounding.
#[derive(Debug, Clone, PartialEq)]
pub struct FirstOrderOptimum {
    /// Work between two images of the highest level, seconds.
    pub work_s: f64,
    /// Images of each level in that time; 1 for the highest.
    pub counts: Vec<f64>,
    /// Overhead over work, without restarts.
    pub overhead: f64,
}

/// Computes `W* = sqrt(2 C_K / λ_K)`, `N_l = sqrt(λ_l C_K / (λ_K C_l))`, `H* = Σ sqrt(2 λ_l C_l)`. Returns `None`
/// without levels.
pub fn first_order(levels: &[CheckpointLevel]) -> Option<FirstOrderOptimum> {
    let top = levels.last()?;
    let ratio = |level: &CheckpointLevel| (level.rate * top.cost_s / (top.rate * level.cost_s)).sqrt();
    Some(FirstOrderOptimum {
        work_s: young(top.cost_s, 1.0 / top.rate),
        counts: levels.iter().map(ratio).collect(),
        overhead: levels
            .iter()
            .map(|level| (2.0 * level.rate * level.cost_s).sqrt())
            .sum(),
    })
}

/// Returns the best work between two images of the highest level for fixed image counts,
/// `sqrt(2 Σ N_l C_l / Σ λ_l / N_l)`, and its overhead.
pub fn first_order_of(levels: &[CheckpointLevel], counts: &[u64]) -> (f64, f64) {
    let pairs = || levels.iter().zip(counts.iter().map(|count| *count as f64));
    let cost: f64 = pairs().map(|(level, count)| count * level.cost_s).sum();
    let lost: f64 = pairs().map(|(level, count)| level.rate / count).sum();
    ((2.0 * cost / lost).sqrt(), (2.0 * cost * lost).sqrt())
}

/// Nested pattern of checkpoint levels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LevelPattern {
    /// Interval of each level, seconds; `None` for a level that does not help and is left out.
    pub intervals_s: Vec<Option<f64>>,
    /// Images of each level between two images of the highest; 0 if left out. Each count divides the one before it.
    pub counts: Vec<u64>,
    /// Failures per second recovered from each level, including those moved up from levels left out.
    pub rates: Vec<f64>,
    /// Expected overhead over work, including restarts.
    pub overhead: f64,
}

impl LevelPattern {
    /// Returns the share of time that images take, without failures.
    pub fn blocking(&self, levels: &[CheckpointLevel]) -> f64 {
        let shares = levels.iter().zip(&self.intervals_s);
        shares
            .filter_map(|(level, interval)| Some(level.cost_s / (*interval)?))
            .sum()
    }

    /// Returns the pattern with all intervals multiplied by a factor, for a budget on [`blocking`](Self::blocking).
    pub fn stretched(&self, levels: &[CheckpointLevel], factor: f64) -> Self {
        let intervals_s: Vec<Option<f64>> = self.intervals_s.iter().map(|at| at.map(|at| at * factor)).collect();
        let overhead = overhead_of(levels, &self.rates, &intervals_s);
        Self {
            intervals_s,
            overhead,
            ..self.clone()
        }
    }
}

fn overhead_of(levels: &[CheckpointLevel], rates: &[f64], intervals: &[Option<f64>]) -> f64 {
    let all = levels.iter().zip(rates).zip(intervals);
    all.filter_map(|((level, rate), interval)| Some(CheckpointLevel { rate: *rate, ..*level }.overhead((*interval)?)))
        .sum()
}

/// Finds the best nested pattern. The highest level that any failure needs is always used; another level is left out if
/// its images cost more than they save. Returns `None` if no level has failures, or there are no levels or more than
/// [`MAX_LEVELS`].
pub fn pattern(levels: &[CheckpointLevel]) -> Option<LevelPattern> {
    let needed = levels.iter().rposition(|level| level.rate > 0.0)?;
    if levels.len() > MAX_LEVELS {
        return None;
    }
    let subsets = (0..1_u32 << needed).map(|subset| subset | 1 << needed);
    let patterns = subsets.filter_map(|subset| pattern_of(levels, subset));
    patterns.min_by(|one, other| one.overhead.total_cmp(&other.overhead))
}

/// Finds the best pattern that uses exactly the levels of a bit set.
fn pattern_of(levels: &[CheckpointLevel], subset: u32) -> Option<LevelPattern> {
    let mut rates = vec![0.0; levels.len()];
    let mut waiting = 0.0;
    for (at, level) in levels.iter().enumerate() {
        waiting += level.rate;
        if subset & (1 << at) != 0 {
            rates[at] = waiting;
            waiting = 0.0;
        }
    }
    let used: Vec<usize> = (0..levels.len()).filter(|at| subset & (1 << at) != 0).collect();
    let kept: Vec<CheckpointLevel> = used
        .iter()
        .map(|at| CheckpointLevel {
            rate: rates[*at],
            ..levels[*at]
        })
        .collect();
    if kept.iter().any(|level| level.rate <= 0.0) {
        return None;
    }
    let (work, counts) = nest(&kept);
    let mut intervals_s = vec![None; levels.len()];
    let mut all = vec![0; levels.len()];
    for (at, count) in used.iter().zip(&counts) {
        intervals_s[*at] = Some(work / *count as f64);
        all[*at] = *count;
    }
    let overhead = overhead_of(levels, &rates, &intervals_s);
    Some(LevelPattern {
        intervals_s,
        counts: all,
        rates,
        overhead,
    })
}

/// Returns the best work between two images of the highest level, and counts of which each divides the one before it.
/// Candidates are the ratios of the levels' own best intervals, each rounded down or up.
fn nest(levels: &[CheckpointLevel]) -> (f64, Vec<u64>) {
    let own: Vec<f64> = levels.iter().map(CheckpointLevel::best_interval).collect();
    let steps = levels.len() - 1;
    let mut best: Option<(f64, f64, Vec<u64>)> = None;
    for choice in 0..1_u32 << steps {
        let mut counts = vec![1_u64; levels.len()];
        for at in (0..steps).rev() {
            let ratio = (own[at + 1] / own[at].max(1e-9)).clamp(1.0, 1e6);
            let whole = ratio.floor() as u64 + u64::from(choice & (1 << at) != 0);
            counts[at] = counts[at + 1].saturating_mul(whole).min(1_000_000_000);
        }
        let (work, overhead) = best_work(levels, &counts);
        if best.as_ref().is_none_or(|(_, known, _)| overhead < *known) {
            best = Some((work, overhead, counts));
        }
    }
    let (work, _, counts) = best.expect("there is at least one choice");
    (work, counts)
}

/// Minimises the summed overhead over the work of a pattern. Each summand falls and then rises, so the minimum lies
/// between the smallest and the largest of the levels' own optima. Golden-section search.
fn best_work(levels: &[CheckpointLevel], counts: &[u64]) -> (f64, f64) {
    let pairs = || levels.iter().zip(counts.iter().map(|count| *count as f64));
    let cost = |work: f64| pairs().map(|(level, count)| level.overhead(work / count)).sum::<f64>();
    let own = || pairs().map(|(level, count)| level.best_interval() * count);
    let floor = pairs()
        .map(|(level, count)| level.shortest_s * count)
        .fold(1e-9, f64::max);
    let mut low = own().fold(f64::INFINITY, f64::min).max(floor);
    let mut high = own().fold(0.0, f64::max).max(low);
    let golden = 0.5 * (5.0_f64.sqrt() - 1.0);
    for _ in 0..100 {
        let left = high - golden * (high - low);
        let right = low + golden * (high - low);
        if cost(left) <= cost(right) {
            high = right;
        } else {
            low = left;
        }
    }
    let work = 0.5 * (low + high);
    (work, cost(work))
}

//! Course of a rank's own time over the steps, relative to the usual rank: steady, changed once, or drifting.

use crate::statistics::{mean, median};

/// Minimum number of steps in each part of a changed course.
const PART: usize = 5;
/// Ratio between two parts, or between both ends of a drift, from which a course is not steady.
const MOVED_FROM: f64 = 1.2;
/// Share of the spread around one median that may remain around the better description.
const REST_MOST: f64 = 0.5;
/// Ratio above which a rank's time is cut off.
const RATIO_MOST: f64 = 1e6;

/// Own time of a rank relative to the usual rank of each step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RankCourse {
    /// Median over all steps.
    Steady(f64),
    /// Medians before the step with index `at`, and from it on.
    Changed { at: usize, before: f64, after: f64 },
    /// Values at the first and the last of `steps` steps, with a straight line between them.
    Drift { first: f64, last: f64, steps: usize },
}

/// Straight line through values at 0, 1, 2 and so on, by least squares.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FittedLine {
    pub(crate) first: f64,
    slope: f64,
}

impl FittedLine {
    pub(crate) fn of(values: &[f64]) -> Self {
        let centre = (values.len() as f64 - 1.0) / 2.0;
        let middle = mean(values);
        let (mut both, mut squares) = (0.0, 0.0);
        for (at, value) in values.iter().enumerate() {
            both += (at as f64 - centre) * (value - middle);
            squares += (at as f64 - centre).powi(2);
        }
        let slope = if squares > 0.0 { both / squares } else { 0.0 };
        Self {
            first: middle - slope * centre,
            slope,
        }
    }

    pub(crate) fn at(self, index: usize) -> f64 {
        self.first + self.slope * index as f64
    }

    /// Returns the sum of the distances of the values from the line.
    pub(crate) fn spread(self, values: &[f64]) -> f64 {
        values
            .iter()
            .enumerate()
            .map(|(at, value)| (value - self.at(at)).abs())
            .sum()
    }
}

/// Returns the sum of the distances of the values from `middle`.
pub(crate) fn spread(values: &[f64], middle: f64) -> f64 {
    values.iter().map(|value| (value - middle).abs()).sum()
}

/// Returns true if the larger value is at least [`MOVED_FROM`] times the smaller one, and both are positive.
fn moved(one: f64, other: f64) -> bool {
    one.min(other) > 0.0 && one.max(other) >= MOVED_FROM * one.min(other)
}

/// Returns the split with the least sum of squares around the means of both parts.
fn best_split(values: &[f64]) -> Option<usize> {
    let all: f64 = values.iter().sum();
    let mut before = 0.0;
    let mut best = None;
    for (at, value) in values.iter().enumerate() {
        let after = values.len() - at;
        if at >= PART && after >= PART {
            let gain = before * before / at as f64 + (all - before).powi(2) / after as f64;
            if best.is_none_or(|(_, most)| gain > most) {
                best = Some((at, gain));
            }
        }
        before += value;
    }
    best.map(|(at, _)| at)
}

impl RankCourse {
    /// Describes the ratios of a rank, one a step.
    pub(crate) fn of(ratios: &[f64]) -> Self {
        let ratios: Vec<f64> = ratios.iter().map(|ratio| ratio.min(RATIO_MOST)).collect();
        let usual = median(&mut ratios.clone());
        let most = REST_MOST * spread(&ratios, usual);
        let Some(at) = best_split(&ratios) else {
            return Self::Steady(usual);
        };
        let before = median(&mut ratios[..at].to_vec());
        let after = median(&mut ratios[at..].to_vec());
        let parts = spread(&ratios[..at], before) + spread(&ratios[at..], after);
        let line = FittedLine::of(&ratios);
        let (first, last) = (line.first, line.at(ratios.len() - 1));
        let sloped = line.spread(&ratios);
        if sloped < parts && sloped <= most && moved(first, last) {
            let steps = ratios.len();
            return Self::Drift { first, last, steps };
        }
        if parts <= most && moved(before, after) {
            return Self::Changed { at, before, after };
        }
        Self::Steady(usual)
    }

    /// Returns the ratio at the step with that index.
    pub(crate) fn at(&self, step: usize) -> f64 {
        match *self {
            Self::Steady(ratio) => ratio,
            Self::Changed { at, before, after } => {
                if step < at {
                    before
                } else {
                    after
                }
            }
            Self::Drift { first, last, steps } => first + (last - first) * step as f64 / (steps.max(2) - 1) as f64,
        }
    }

    /// Returns the largest ratio of the course.
    pub(crate) fn largest(&self) -> f64 {
        match *self {
            Self::Steady(ratio) => ratio,
            Self::Changed { before, after, .. } => before.max(after),
            Self::Drift { first, last, .. } => first.max(last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_course_is_steady_changed_or_drifting() {
        let noise = |step: usize| 0.01 * ((step * 37 % 17) as f64 / 8.0 - 1.0);
        let course = |of: &dyn Fn(usize) -> f64| {
            RankCourse::of(&(0..200).map(|step| of(step) + noise(step)).collect::<Vec<_>>())
        };
        assert!(matches!(course(&|_| 1.0), RankCourse::Steady(_)));
        let spike = course(&|step| if step == 77 { 9.0 } else { 1.0 });
        assert!(matches!(spike, RankCourse::Steady(_)), "{spike:?}");
        let changed = course(&|step| if step < 100 { 1.0 } else { 1.5 });
        assert!(matches!(changed, RankCourse::Changed { at: 100, .. }), "{changed:?}");
        let drift = course(&|step| 1.0 + step as f64 / 199.0);
        assert!(matches!(drift, RankCourse::Drift { .. }), "{drift:?}");
        assert!((drift.at(100) - 1.5).abs() < 0.02 && (drift.largest() - 2.0).abs() < 0.02);
        assert_eq!(RankCourse::of(&[]).at(0), 0.0);
    }
}

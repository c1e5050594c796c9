//! Step times of a rank, and the limit beyond which its silence is abnormal: by its own baseline, not by a fixed
//! deadline.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rankguard_model::Step;

/// Maximum retained step times: enough to include a save or an evaluation every hundred steps.
const STEPS: usize = 128;
/// Minimum steps of a baseline; the first ones compile, connect and fill caches.
const FEW: usize = 4;
/// Multiple of the median that a step may take: the hang threshold of Unicron (He et al., 2024).
const MEDIANS: f64 = 3.0;
/// Deviations (scaled to those of a normal distribution) beyond the median.
const DEVIATIONS: f64 = 10.0;
/// Ratio of the standard deviation of a normal distribution to its median absolute deviation.
const TO_SIGMA: f64 = 1.4826;
/// Multiple of the longest retained step: the next save may take a little longer than the last.
const LONGEST: f64 = 1.5;

/// Step times of one rank.
#[derive(Debug, Clone, Default)]
pub(crate) struct StepPace {
    /// Seconds per step, oldest first.
    steps: VecDeque<f64>,
    last: Option<(Step, Instant)>,
}

/// Silence of a rank relative to its own baseline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RankSilence {
    /// Newest completed step.
    pub(crate) step: Step,
    /// Time since that step.
    pub(crate) lasts: Duration,
    /// Median step time.
    pub(crate) median: Duration,
    /// Limit beyond which the silence is abnormal.
    pub(crate) limit: Duration,
}

impl RankSilence {
    /// Returns true if the silence exceeds the limit.
    pub(crate) fn is_strange(&self) -> bool {
        self.lasts > self.limit
    }
}

impl StepPace {
    /// Records a completed step. Reports may skip steps; a duplicate or late report changes nothing.
    pub(crate) fn stepped(&mut self, step: Step, now: Instant) {
        if let Some((before, since)) = self.last {
            let made = step.0.saturating_sub(before.0);
            if made == 0 {
                return;
            }
            if self.steps.len() == STEPS {
                self.steps.pop_front();
            }
            let took = now.saturating_duration_since(since);
            self.steps.push_back(took.as_secs_f64() / made as f64);
        }
        self.last = Some((step, now));
    }

    /// Returns the current silence; `None` without a baseline. `floor` is the minimum limit: a time for which a
    /// machine may well be busy otherwise.
    pub(crate) fn silence(&self, floor: Duration, now: Instant) -> Option<RankSilence> {
        let (step, since) = self.last?;
        if self.steps.len() < FEW {
            return None;
        }
        let mut sorted: Vec<f64> = self.steps.iter().copied().collect();
        let median = median(&mut sorted);
        let longest = sorted.last().copied().unwrap_or(median);
        let mut distances: Vec<f64> = sorted.iter().map(|took| (took - median).abs()).collect();
        let spread = self::median(&mut distances) * TO_SIGMA;
        let limit = (MEDIANS * median)
            .max(median + DEVIATIONS * spread)
            .max(LONGEST * longest)
            .max(floor.as_secs_f64());
        let seconds = |value: f64| Duration::try_from_secs_f64(value).unwrap_or(Duration::MAX);
        Some(RankSilence {
            step,
            lasts: now.saturating_duration_since(since),
            median: seconds(median),
            limit: seconds(limit),
        })
    }
}

/// Sorts the values and returns their median.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        length if length % 2 == 0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of these milliseconds; returns the pace and the time of the last.
    fn paced(steps: impl IntoIterator<Item = u64>) -> (StepPace, Instant) {
        let mut pace = StepPace::default();
        let mut now = Instant::now();
        pace.stepped(Step(0), now);
        for (index, took) in steps.into_iter().enumerate() {
            now += Duration::from_millis(took);
            pace.stepped(Step(index as u64 + 1), now);
        }
        (pace, now)
    }

    const FLOOR: Duration = Duration::from_secs(30);

    fn limit(steps: impl IntoIterator<Item = u64>) -> Option<f64> {
        let (pace, now) = paced(steps);
        pace.silence(FLOOR, now).map(|silence| silence.limit.as_secs_f64())
    }

    #[test]
    fn without_a_baseline_no_silence_is_strange() {
        assert_eq!(limit([]), None);
        assert_eq!(limit([100, 100, 100]), None);
        assert!(StepPace::default().silence(FLOOR, Instant::now()).is_none());
    }

    #[test]
    fn fast_steps_have_the_floor_and_slow_ones_their_own_limit() {
        assert_eq!(limit([200; 50]), Some(30.0));
        assert_eq!(limit([20_000; 50]), Some(60.0));
        // One save of 40 s among steps of 1 s: the next one is no hang.
        let saves = (0..100).map(|step| if step == 50 { 40_000 } else { 1_000 });
        assert_eq!(limit(saves), Some(60.0));
        // Steps that vary much may vary more.
        let uneven = (0..100).map(|step| if step % 2 == 0 { 5_000 } else { 15_000 });
        assert!(limit(uneven).is_some_and(|limit| (84.0..85.0).contains(&limit)));
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let steps = (0..200).map(|step| if step == 3 { 600_000 } else { 100 });
        assert_eq!(limit(steps), Some(30.0));
    }

    #[test]
    fn a_silence_is_strange_beyond_the_limit_and_a_step_ends_it() {
        let (mut pace, last) = paced([100; 10]);
        let at = |pace: &StepPace, seconds| {
            let silence = pace.silence(FLOOR, last + Duration::from_secs(seconds));
            silence.map(|silence| (silence.step.0, silence.is_strange()))
        };
        assert_eq!(at(&pace, 29), Some((10, false)));
        assert_eq!(at(&pace, 31), Some((10, true)));
        pace.stepped(Step(10), last + Duration::from_secs(31));
        assert_eq!(at(&pace, 32), Some((10, true)));
        pace.stepped(Step(11), last + Duration::from_secs(33));
        assert_eq!(at(&pace, 34), Some((11, false)));
    }

    #[test]
    fn skipped_reports_count_as_the_steps_they_stand_for() {
        let mut pace = StepPace::default();
        let mut now = Instant::now();
        for report in 0..10 {
            pace.stepped(Step(report * 100), now);
            now += Duration::from_secs(10);
        }
        let silence = pace.silence(FLOOR, now).expect("ten reports are a baseline");
        assert_eq!(silence.median, Duration::from_millis(100));
        assert_eq!(silence.limit, FLOOR);
    }
}

//! Bootstrap confidence intervals, with a built-in generator so that a seed gives the same interval on every platform.

use serde::Serialize;

use crate::sample::{quantile, sorted};

/// SplitMix64 (Steele, Lea and Flood 2014): 64 bits of state, passes BigCrush, enough for resampling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResampleGenerator(u64);

impl ResampleGenerator {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns an index below `count`, by multiplication; its bias is below `count` in 2^64.
    pub fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.next_u64()) * count as u128) >> 64) as usize
    }
}

/// Estimate with the percentile interval of its bootstrap distribution.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BootstrapEstimate {
    /// Statistic of the original sample.
    pub estimate: f64,
    pub low: f64,
    pub high: f64,
}

/// Draws `rounds` samples of the same size with replacement; returns `None` for an empty sample or a statistic that is
/// never finite.
pub fn interval(
    sample: &[f64],
    statistic: impl Fn(&[f64]) -> f64,
    rounds: usize,
    level: f64,
    seed: u64,
) -> Option<BootstrapEstimate> {
    if sample.is_empty() {
        return None;
    }
    let mut generator = ResampleGenerator::new(seed);
    let mut drawn = sample.to_vec();
    let estimates: Vec<f64> = (0..rounds)
        .map(|_| {
            drawn
                .iter_mut()
                .for_each(|x| *x = sample[generator.below(sample.len())]);
            statistic(&drawn)
        })
        .collect();
    let estimates = sorted(&estimates);
    let estimate = statistic(sample);
    let tail = 0.5 * (1.0 - level.clamp(0.0, 1.0));
    (estimate.is_finite() && !estimates.is_empty()).then(|| BootstrapEstimate {
        estimate,
        low: quantile(&estimates, tail),
        high: quantile(&estimates, 1.0 - tail),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    /// The first outputs for seed 1234567 as published with the algorithm's reference code.
    #[test]
    fn the_generator_is_the_published_one() {
        let mut generator = ResampleGenerator::new(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| generator.next_u64()).collect();
        assert_eq!(
            drawn,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn the_interval_of_a_mean_is_that_of_its_standard_error_and_of_the_seed() {
        let sample: Vec<f64> = (0..400).map(f64::from).collect();
        let found = interval(&sample, mean, 2_000, 0.95, 7).expect("a sample");
        let error = 1.96 * (400.0_f64 * 400.0 / 12.0).sqrt() / 20.0;
        assert!(
            ((found.high - found.low) / (2.0 * error) - 1.0).abs() < 0.08,
            "{found:?}"
        );
        assert_eq!(interval(&sample, mean, 2_000, 0.95, 7), Some(found));
        assert_ne!(interval(&sample, mean, 2_000, 0.95, 8), Some(found));
        assert_eq!(interval(&[], mean, 10, 0.95, 7), None);
    }
}

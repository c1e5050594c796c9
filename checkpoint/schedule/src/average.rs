//! Exponentially weighted running mean: checkpoint costs change with the load of disks and networks.

use serde::{Deserialize, Serialize};

/// Exponentially weighted mean; a plain mean for the first few samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct WeightedMean {
    mean: f64,
    samples: u32,
}

/// Minimum weight of a new sample.
const WEIGHT: f64 = 0.2;

impl WeightedMean {
    /// Adds a sample; a value that is not finite is ignored.
    pub fn add(&mut self, sample: f64) {
        if !sample.is_finite() {
            return;
        }
        self.samples = self.samples.saturating_add(1);
        let weight = WEIGHT.max(1.0 / f64::from(self.samples));
        self.mean += weight * (sample - self.mean);
    }

    /// Returns the mean; `None` before the first sample.
    pub fn get(&self) -> Option<f64> {
        (self.samples > 0).then_some(self.mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_samples_are_a_plain_mean_and_later_ones_fade() {
        let mut average = WeightedMean::default();
        assert_eq!(average.get(), None);
        [2.0, 4.0, f64::NAN, 6.0]
            .into_iter()
            .for_each(|sample| average.add(sample));
        assert_eq!(average.get(), Some(4.0));
        (0..40).for_each(|_| average.add(10.0));
        assert!((average.get().unwrap_or_default() - 10.0).abs() < 0.01);
    }
}

//! Reproducible random numbers: xoshiro256** (Blackman and Vigna 2018), seeded by SplitMix64.

/// Random number generator. The same seed gives the same bits on every platform. Not for cryptography.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RandomGenerator {
    state: [u64; 4],
}

impl RandomGenerator {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Self {
        let mut at = seed;
        let mut next = || {
            at = at.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = at;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        };
        Self {
            state: [next(), next(), next(), next()],
        }
    }

    /// Returns 64 uniform random bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let c = c ^ a;
        let d = d ^ b;
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// Returns a uniform number in (0, 1]; never 0, so that its logarithm is finite.
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// Returns a uniform integer in `0..count`, or 0 if the range is empty. The relative bias of a value is below
    /// `count / 2^64`.
    pub fn below(&mut self, count: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(count)) >> 64) as u64
    }

    /// Returns an exponentially distributed number, in the unit of `mean`.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.unit().ln()
    }

    /// Returns a Weibull-distributed number, in the unit of `scale`; `shape` must be above 0.
    pub fn weibull(&mut self, shape: f64, scale: f64) -> f64 {
        scale * (-self.unit().ln()).powf(1.0 / shape)
    }

    /// Returns `count` different integers of `0..of` in ascending order (Floyd's method), or all if `count` is not
    /// below `of`.
    pub fn sample(&mut self, count: u32, of: u32) -> Vec<u32> {
        if count >= of {
            return (0..of).collect();
        }
        let mut chosen = std::collections::BTreeSet::new();
        for last in of - count..of {
            let pick = self.below(u64::from(last) + 1) as u32;
            if !chosen.insert(pick) {
                chosen.insert(last);
            }
        }
        chosen.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_spreads_are_those_of_the_distributions() {
        let mut random = RandomGenerator::new(7);
        let count = 200_000;
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let exponential: Vec<f64> = (0..count).map(|_| random.exponential(3.0)).collect();
        assert!((mean(&exponential) - 3.0).abs() < 0.03);
        // Shape 0.5: the mean is the scale times gamma(3) = 2.
        let weibull: Vec<f64> = (0..count).map(|_| random.weibull(0.5, 1.0)).collect();
        assert!((mean(&weibull) - 2.0).abs() < 0.05);
        let below: Vec<f64> = (0..count).map(|_| random.below(10) as f64).collect();
        assert!((mean(&below) - 4.5).abs() < 0.03);
    }

    #[test]
    fn a_sample_holds_different_numbers_and_every_number_is_equally_likely() {
        let mut random = RandomGenerator::new(1);
        let mut seen = [0_u32; 10];
        for _ in 0..20_000 {
            let sample = random.sample(3, 10);
            assert!(sample.windows(2).all(|pair| pair[0] < pair[1]) && sample.len() == 3);
            sample.iter().for_each(|at| seen[*at as usize] += 1);
        }
        assert!(seen.iter().all(|count| count.abs_diff(6_000) < 300), "{seen:?}");
        assert_eq!(random.sample(5, 3), [0, 1, 2]);
    }
}

//! Moments of a sample, which need no order: count, sum, squares, extremes.

/// Block size in values: a block is read twice, and is still cached the second time.
const TOGETHER: usize = 1 << 12;

/// Moments of finite values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampleMoments {
    pub(crate) count: usize,
    pub(crate) sum: f64,
    /// Sum of squared distances from the mean.
    pub(crate) squares: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl SampleMoments {
    pub(crate) const NONE: Self = Self {
        count: 0,
        sum: 0.0,
        squares: 0.0,
        min: f64::INFINITY,
        max: f64::NEG_INFINITY,
    };

    pub(crate) fn of(values: &[f64]) -> Self {
        values.chunks(TOGETHER).map(Self::of_few).fold(Self::NONE, Self::join)
    }

    fn of_few(values: &[f64]) -> Self {
        let count = values.len();
        let mut sums = [0.0; 4];
        let mut least = [f64::INFINITY; 4];
        let mut most = [f64::NEG_INFINITY; 4];
        each_lane::<4>(values, |lane, x| {
            sums[lane] += x;
            least[lane] = if x < least[lane] { x } else { least[lane] };
            most[lane] = if x > most[lane] { x } else { most[lane] };
        });
        let sum = sums.iter().sum::<f64>();
        let mean = sum / count as f64;
        let mut squares = [0.0; 8];
        each_lane::<8>(values, |lane, x| squares[lane] += (x - mean) * (x - mean));
        Self {
            count,
            sum,
            squares: squares.iter().sum(),
            min: least.into_iter().fold(f64::INFINITY, f64::min),
            max: most.into_iter().fold(f64::NEG_INFINITY, f64::max),
        }
    }

    pub(crate) fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }

    /// Merges the moments of two samples (Chan, Golub and LeVeque 1979).
    pub(crate) fn join(self, other: Self) -> Self {
        if self.count == 0 {
            return other;
        }
        if other.count == 0 {
            return self;
        }
        let count = self.count + other.count;
        let apart = other.mean() - self.mean();
        let weight = self.count as f64 * (other.count as f64 / count as f64);
        Self {
            count,
            sum: self.sum + other.sum,
            squares: self.squares + other.squares + apart * apart * weight,
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

/// Distributes values over independent lanes, so that additions overlap.
#[inline(always)]
fn each_lane<const LANES: usize>(values: &[f64], mut look: impl FnMut(usize, f64)) {
    let (whole, rest) = values.as_chunks::<LANES>();
    for few in whole {
        few.iter().enumerate().for_each(|(lane, x)| look(lane, *x));
    }
    rest.iter().enumerate().for_each(|(lane, x)| look(lane, *x));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_of_parts_are_those_of_the_whole() {
        // Values far from zero, for which sums of squares would lose all precision.
        let values: Vec<f64> = (0..3 * TOGETHER + 5)
            .map(|at| 1e9 + (at * 7_919 % 5_003) as f64)
            .collect();
        let whole = SampleMoments::of(&values);
        let mean = values.iter().map(|x| x - 1e9).sum::<f64>() / values.len() as f64;
        let squares: f64 = values.iter().map(|x| (x - 1e9 - mean).powi(2)).sum();
        assert!((whole.mean() - 1e9 - mean).abs() < 1e-6, "{whole:?}");
        assert!((whole.squares / squares - 1.0).abs() < 1e-12, "{whole:?} {squares}");
        assert_eq!((whole.count, whole.min, whole.max), (values.len(), 1e9, 1e9 + 5_002.0));
    }
}

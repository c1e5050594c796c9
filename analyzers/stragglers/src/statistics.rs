//! Medians, means and correlations, each defined for empty input.

/// Sums for a correlation.
#[derive(Debug, Default)]
pub(crate) struct CorrelationSums {
    pub(crate) count: f64,
    x: f64,
    y: f64,
    xx: f64,
    yy: f64,
    xy: f64,
}

impl CorrelationSums {
    pub(crate) fn add(&mut self, x: f64, y: f64) {
        self.count += 1.0;
        self.x += x;
        self.y += y;
        self.xx += x * x;
        self.yy += y * y;
        self.xy += x * y;
    }

    /// Returns Pearson's correlation; 0 if one side does not vary.
    pub(crate) fn correlation(&self) -> f64 {
        let count = self.count.max(1.0);
        let vx = self.xx / count - (self.x / count).powi(2);
        let vy = self.yy / count - (self.y / count).powi(2);
        let both = self.xy / count - self.x / count * (self.y / count);
        if vx > 1e-12 && vy > 1e-12 {
            (both / (vx * vy).sqrt()).clamp(-1.0, 1.0)
        } else {
            0.0
        }
    }
}

/// Returns the variance; 0 for empty input.
pub(crate) fn variance(values: &[f64]) -> f64 {
    let middle = mean(values);
    let squares: f64 = values.iter().map(|value| (value - middle).powi(2)).sum();
    if values.is_empty() {
        0.0
    } else {
        squares / values.len() as f64
    }
}

/// Returns the lower of the two middle values; 1 for empty input, because the values are ratios.
pub(crate) fn lower_median(values: &mut [f64]) -> f64 {
    let Some(last) = values.len().checked_sub(1) else {
        return 1.0;
    };
    *values.select_nth_unstable_by(last / 2, f64::total_cmp).1
}

/// Returns the mean; 0 for empty input.
pub(crate) fn mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        0.0
    } else {
        values.iter().sum::<f64>() / values.len() as f64
    }
}

/// Returns the median; 0 for empty input. Reorders the values.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    let Some(last) = values.len().checked_sub(1) else {
        return 0.0;
    };
    let (below, middle, _) = values.select_nth_unstable_by(last.div_ceil(2), f64::total_cmp);
    let middle = *middle;
    match last % 2 {
        0 => middle,
        _ => (below.iter().copied().fold(f64::NEG_INFINITY, f64::max) + middle) / 2.0,
    }
}

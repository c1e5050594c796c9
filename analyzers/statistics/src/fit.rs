//! Distributions of positive durations by maximum likelihood, location 0.
//!
//! A duration of 0 has no likelihood under three of the four families, so its treatment decides the result and is part
//! of the question: [`Zeros`].

use serde::Serialize;

use crate::sample::sorted;
use crate::special::{digamma, gamma_p, ln_gamma, trigamma};
use crate::{normal, sample};

/// What happens to durations of 0 before a fit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Zeros {
    /// They are left out.
    Dropped,
    /// They become this small positive duration.
    Replaced(f64),
}

impl std::fmt::Display for Zeros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Dropped => f.write_str("zeros dropped"),
            Self::Replaced(by) => write!(f, "zeros replaced by {by:e}"),
        }
    }
}

/// A family with its fitted parameters; durations in the unit of the sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "family", rename_all = "kebab-case")]
pub enum Distribution {
    /// Constant hazard `1/mean`.
    Exponential {
        /// Mean duration.
        mean: f64,
    },
    /// Hazard falls with age where the shape is below 1.
    Weibull {
        /// Shape.
        shape: f64,
        /// Scale.
        scale: f64,
    },
    /// Logarithms are normal.
    Lognormal {
        /// Mean of the logarithms.
        mu: f64,
        /// Deviation of the logarithms (divisor n).
        sigma: f64,
    },
    /// Sum of `shape` exponential stages, for whole shapes.
    Gamma {
        /// Shape.
        shape: f64,
        /// Scale.
        scale: f64,
    },
}

impl Distribution {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Exponential { .. } => "exponential",
            Self::Weibull { .. } => "Weibull",
            Self::Lognormal { .. } => "lognormal",
            Self::Gamma { .. } => "gamma",
        }
    }

    /// Free parameters.
    pub fn parameters(&self) -> u32 {
        match self {
            Self::Exponential { .. } => 1,
            _ => 2,
        }
    }

    /// Probability of a duration up to `x`.
    pub fn cdf(&self, x: f64) -> f64 {
        if x <= 0.0 {
            return 0.0;
        }
        match *self {
            Self::Exponential { mean } => -(-x / mean).exp_m1(),
            Self::Weibull { shape, scale } => -(-(x / scale).powf(shape)).exp_m1(),
            Self::Lognormal { mu, sigma } => normal::cdf((x.ln() - mu) / sigma),
            Self::Gamma { shape, scale } => gamma_p(shape, x / scale),
        }
    }

    /// Logarithm of the density at `x > 0`.
    pub fn ln_density(&self, x: f64) -> f64 {
        match *self {
            Self::Exponential { mean } => -mean.ln() - x / mean,
            Self::Weibull { shape, scale } => {
                let z = x / scale;
                (shape / scale).ln() + (shape - 1.0) * z.ln() - z.powf(shape)
            }
            Self::Lognormal { mu, sigma } => {
                let z = (x.ln() - mu) / sigma;
                -0.5 * z * z - x.ln() - sigma.ln() - 0.5 * (2.0 * std::f64::consts::PI).ln()
            }
            Self::Gamma { shape, scale } => (shape - 1.0) * x.ln() - x / scale - ln_gamma(shape) - shape * scale.ln(),
        }
    }

    /// Mean duration.
    pub fn mean(&self) -> f64 {
        match *self {
            Self::Exponential { mean } => mean,
            Self::Weibull { shape, scale } => scale * ln_gamma(1.0 + 1.0 / shape).exp(),
            Self::Lognormal { mu, sigma } => (mu + 0.5 * sigma * sigma).exp(),
            Self::Gamma { shape, scale } => shape * scale,
        }
    }
}

/// A fitted distribution and how well it fits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Fit {
    /// The distribution.
    pub distribution: Distribution,
    /// Durations that it was fitted to.
    pub count: usize,
    /// Logarithm of the likelihood.
    pub ln_likelihood: f64,
    /// Akaike's criterion, `2 parameters - 2 ln likelihood`: the smallest of several fits to one sample is best.
    pub aic: f64,
    /// Kolmogorov-Smirnov distance: the largest gap between fitted and observed distribution function.
    pub ks: f64,
}

/// Durations ready to be fitted.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    sorted: Vec<f64>,
    mean: f64,
    mean_ln: f64,
    /// Durations that were 0.
    pub zeros: usize,
    /// Values that are no durations: negative or not finite; left out.
    pub refused: usize,
}

impl Sample {
    /// Takes durations; `None` when fewer than two different ones remain, for then no spread can be fitted.
    pub fn new(durations: &[f64], zeros: Zeros) -> Option<Self> {
        let kept = sorted(durations);
        let refused = durations.len() - kept.len() + kept.iter().filter(|x| **x < 0.0).count();
        let count = kept.iter().filter(|x| **x == 0.0).count();
        let sorted: Vec<f64> = match zeros {
            Zeros::Dropped => kept.into_iter().filter(|x| *x > 0.0).collect(),
            Zeros::Replaced(by) => {
                let by = by.max(f64::MIN_POSITIVE);
                let replaced: Vec<f64> = kept
                    .into_iter()
                    .filter(|x| *x >= 0.0)
                    .map(|x| if x == 0.0 { by } else { x })
                    .collect();
                sample::sorted(&replaced)
            }
        };
        if sorted.first()? == sorted.last()? {
            return None;
        }
        let n = sorted.len() as f64;
        let (mean, mean_ln) = (
            sorted.iter().sum::<f64>() / n,
            sorted.iter().map(|x| x.ln()).sum::<f64>() / n,
        );
        Some(Self {
            sorted,
            mean,
            mean_ln,
            zeros: count,
            refused,
        })
    }

    /// The durations that are fitted, in order.
    pub fn durations(&self) -> &[f64] {
        &self.sorted
    }

    /// All four families, the one with the smallest criterion first.
    pub fn fit_all(&self) -> Vec<Fit> {
        let mut fits = vec![self.exponential(), self.weibull(), self.lognormal(), self.gamma()];
        fits.sort_by(|a, b| a.aic.total_cmp(&b.aic));
        fits
    }

    /// The mean is the estimate.
    pub fn exponential(&self) -> Fit {
        self.judge(Distribution::Exponential { mean: self.mean })
    }

    /// Newton's method on the likelihood equation of the shape, kept in a bracket. Powers are taken relative to the
    /// largest duration, so none overflows.
    pub fn weibull(&self) -> Fit {
        let n = self.sorted.len() as f64;
        let largest = self.sorted[self.sorted.len() - 1].ln();
        let lns: Vec<f64> = self.sorted.iter().map(|x| x.ln() - largest).collect();
        let mean_ln = self.mean_ln - largest;
        let sums = |k: f64| {
            lns.iter().fold((0.0, 0.0, 0.0), |(a, b, c), ln| {
                let power = (k * ln).exp();
                (a + power, b + power * ln, c + power * ln * ln)
            })
        };
        let (mut low, mut high) = (0.0_f64, f64::INFINITY);
        // What a Weibull distribution with this deviation of logarithms would have.
        let spread = (lns.iter().map(|x| (x - mean_ln).powi(2)).sum::<f64>() / n).sqrt();
        let mut k = (std::f64::consts::PI / 6.0_f64.sqrt() / spread).clamp(1e-6, 1e6);
        for _ in 0..200 {
            let (a, b, c) = sums(k);
            let value = b / a - 1.0 / k - mean_ln;
            let slope = c / a - (b / a).powi(2) + 1.0 / (k * k);
            if value > 0.0 {
                high = k;
            } else {
                low = k;
            }
            let mut next = k - value / slope;
            if !(next > low && next < high) {
                next = if high.is_finite() { 0.5 * (low + high) } else { 2.0 * k };
            }
            let change = (next / k - 1.0).abs();
            k = next;
            if change < 1e-13 {
                break;
            }
        }
        let scale = ((sums(k).0 / n).ln() / k + largest).exp();
        self.judge(Distribution::Weibull { shape: k, scale })
    }

    /// Moments of the logarithms.
    pub fn lognormal(&self) -> Fit {
        let n = self.sorted.len() as f64;
        let squares: f64 = self.sorted.iter().map(|x| (x.ln() - self.mean_ln).powi(2)).sum();
        self.judge(Distribution::Lognormal {
            mu: self.mean_ln,
            sigma: (squares / n).sqrt(),
        })
    }

    /// Newton's method on `ln k - ψ(k) = ln mean - mean ln` in `1/k` (Minka, "Estimating a Gamma distribution", 2002).
    pub fn gamma(&self) -> Fit {
        let s = self.mean.ln() - self.mean_ln;
        let mut k = ((3.0 - s + ((s - 3.0).powi(2) + 24.0 * s).sqrt()) / (12.0 * s)).max(1e-8);
        for _ in 0..200 {
            let inverse = 1.0 / k + (k.ln() - digamma(k) - s) / (k * k * (1.0 / k - trigamma(k)));
            let next = if inverse > 0.0 { 1.0 / inverse } else { 2.0 * k };
            let change = (next / k - 1.0).abs();
            k = next;
            if change < 1e-13 {
                break;
            }
        }
        self.judge(Distribution::Gamma {
            shape: k,
            scale: self.mean / k,
        })
    }

    fn judge(&self, distribution: Distribution) -> Fit {
        let ln_likelihood: f64 = self.sorted.iter().map(|x| distribution.ln_density(*x)).sum();
        let n = self.sorted.len() as f64;
        let ks = self.sorted.iter().enumerate().fold(0.0_f64, |ks, (at, x)| {
            let p = distribution.cdf(*x);
            ks.max((p - at as f64 / n).abs()).max(((at + 1) as f64 / n - p).abs())
        });
        Fit {
            distribution,
            count: self.sorted.len(),
            ln_likelihood,
            aic: 2.0 * f64::from(distribution.parameters()) - 2.0 * ln_likelihood,
            ks,
        }
    }
}

#[cfg(test)]
mod tests;

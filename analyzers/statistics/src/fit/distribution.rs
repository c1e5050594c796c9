//! Families of distributions for durations.

use serde::Serialize;

use crate::normal;
use crate::special::{gamma_p, ln_gamma};

/// Family of distributions with its parameters. Means and scales are in the unit of the sample; shapes have none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "family", rename_all = "kebab-case")]
pub enum Distribution {
    /// Constant hazard `1/mean`.
    Exponential { mean: f64 },
    /// Hazard that falls with age if the shape is below 1, and rises if it is above 1.
    Weibull { shape: f64, scale: f64 },
    /// Normal distribution of the natural logarithms.
    Lognormal {
        /// Mean of the logarithms.
        mu: f64,
        /// Standard deviation of the logarithms (divisor n).
        sigma: f64,
    },
    /// For an integer shape: sum of `shape` exponential durations with mean `scale`.
    Gamma { shape: f64, scale: f64 },
}

impl Distribution {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Exponential { .. } => "exponential",
            Self::Weibull { .. } => "Weibull",
            Self::Lognormal { .. } => "lognormal",
            Self::Gamma { .. } => "gamma",
        }
    }

    /// Returns the number of free parameters, for information criteria.
    pub fn parameters(&self) -> u32 {
        match self {
            Self::Exponential { .. } => 1,
            _ => 2,
        }
    }

    /// Returns the probability of a duration of at most `x`; 0 for `x <= 0`.
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

    /// Returns the natural logarithm of the density at `x`, which must be above 0.
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

    /// Returns the mean duration, in the unit of the sample.
    pub fn mean(&self) -> f64 {
        match *self {
            Self::Exponential { mean } => mean,
            Self::Weibull { shape, scale } => scale * ln_gamma(1.0 + 1.0 / shape).exp(),
            Self::Lognormal { mu, sigma } => (mu + 0.5 * sigma * sigma).exp(),
            Self::Gamma { shape, scale } => shape * scale,
        }
    }
}

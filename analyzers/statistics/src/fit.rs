//! Maximum likelihood fits of positive durations, location 0.
//!
//! A duration of 0 has no likelihood under three of the four families, so its treatment decides the result and is a
//! parameter: [`ZeroTreatment`]. A duration that was still running when last observed is censored: it contributes the
//! probability of lasting longer ([`DurationSample::of_lives`]); no gamma is fitted then.

mod censored;
mod distance;
mod distribution;
mod runs;

use serde::Serialize;

pub use distribution::Distribution;

use crate::kaplan_meier::ObservedLifetime;
use crate::normal;
use crate::special::{digamma, ln_gamma, trigamma};
use runs::{EqualDurations, runs};

/// Treatment of durations of 0 before a fit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZeroTreatment {
    /// Zeros are left out.
    Dropped,
    /// Zeros are replaced by this small positive duration.
    Replaced(f64),
}

impl std::fmt::Display for ZeroTreatment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Dropped => f.write_str("zeros dropped"),
            Self::Replaced(by) => write!(f, "zeros replaced by {by:e}"),
        }
    }
}

/// Fitted distribution and its goodness of fit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FittedDistribution {
    pub distribution: Distribution,
    /// Number of fitted durations, censored ones included.
    pub count: usize,
    /// Logarithm of the likelihood.
    pub ln_likelihood: f64,
    /// Akaike's criterion, `2 parameters - 2 ln likelihood`: the smallest of several fits to one sample is best.
    pub aic: f64,
    /// Kolmogorov-Smirnov distance: the largest gap between fitted and observed distribution function; with censored
    /// durations the observed one is Kaplan and Meier's.
    pub ks: f64,
}

/// Durations prepared for fits.
#[derive(Debug, Clone, PartialEq)]
pub struct DurationSample {
    /// Distinct durations in ascending order, each with its count.
    runs: Vec<EqualDurations>,
    ended: usize,
    /// Number of durations that were still running when last observed.
    pub censored: usize,
    sum: f64,
    /// Mean logarithm of the completed durations.
    mean_ln: f64,
    /// Number of durations that were 0.
    pub zeros: usize,
    /// Number of values left out because they are negative or not finite.
    pub refused: usize,
}

impl DurationSample {
    /// Prepares durations; returns `None` if fewer than two distinct ones remain, because then no spread can be fitted.
    pub fn new(durations: &[f64], zeros: ZeroTreatment) -> Option<Self> {
        Self::of(durations.to_vec(), Vec::new(), zeros)
    }

    /// Prepares durations of which some are censored; returns `None` if fewer than two distinct completed ones remain.
    /// Censored zeros carry no information and are left out.
    pub fn of_lives(lives: &[ObservedLifetime], zeros: ZeroTreatment) -> Option<Self> {
        let times = |failed: bool| {
            lives
                .iter()
                .filter(move |life| life.failed == failed)
                .map(|life| life.time)
        };
        let running = times(false).filter(|time| *time != 0.0);
        Self::of(times(true).collect(), running.collect(), zeros)
    }

    fn of(mut ended: Vec<f64>, mut running: Vec<f64>, zeros: ZeroTreatment) -> Option<Self> {
        let all = ended.len() + running.len();
        for durations in [&mut ended, &mut running] {
            durations.retain(|x| x.is_finite() && *x >= 0.0);
        }
        let refused = all - ended.len() - running.len();
        let none = ended.iter().filter(|x| **x == 0.0).count();
        match zeros {
            ZeroTreatment::Dropped => ended.retain(|x| *x > 0.0),
            ZeroTreatment::Replaced(by) => {
                let by = by.max(f64::MIN_POSITIVE);
                ended.iter_mut().filter(|x| **x == 0.0).for_each(|x| *x = by);
            }
        }
        let count = ended.len();
        let censored = running.len();
        let runs = runs(ended, running);
        // A spread requires a second distinct completed duration.
        runs.iter().filter(|run| run.ended > 0).nth(1)?;
        let sum_ln: f64 = runs.iter().map(|run| run.ended as f64 * run.ln).sum();
        Some(Self {
            ended: count,
            censored,
            sum: runs.iter().map(|run| run.all() * run.value).sum(),
            mean_ln: sum_ln / count as f64,
            zeros: none,
            refused,
            runs,
        })
    }

    /// Returns the number of fitted durations, censored ones included.
    pub fn count(&self) -> usize {
        self.ended + self.censored
    }

    /// Fits all applicable families; the smallest criterion comes first.
    pub fn fit_all(&self) -> Vec<FittedDistribution> {
        let mut fits = vec![self.exponential(), self.weibull(), self.lognormal()];
        fits.extend(self.gamma());
        fits.sort_by(|a, b| a.aic.total_cmp(&b.aic));
        fits
    }

    /// Fits the exponential: total time over the number of completed durations.
    pub fn exponential(&self) -> FittedDistribution {
        let mean = self.sum / self.ended as f64;
        self.judge(Distribution::Exponential { mean })
    }

    /// Fits the Weibull by Newton's method on the likelihood equation of the shape, within a bracket. Powers are
    /// relative to the largest duration, so none overflows.
    pub fn weibull(&self) -> FittedDistribution {
        let ended = self.ended as f64;
        let largest = self.runs.last().map_or(0.0, |run| run.ln);
        let lns: Vec<(f64, f64)> = self.runs.iter().map(|run| (run.ln - largest, run.all())).collect();
        let mean_ln = self.mean_ln - largest;
        let sums = |k: f64| {
            lns.iter().fold((0.0, 0.0, 0.0), |(a, b, c), (ln, count)| {
                let power = count * (k * ln).exp();
                (a + power, b + power * ln, c + power * ln * ln)
            })
        };
        let mut low = 0.0_f64;
        let mut high = f64::INFINITY;
        // Shape of a Weibull distribution with this deviation of logarithms.
        let mut k = (std::f64::consts::PI / 6.0_f64.sqrt() / self.deviation_ln()).clamp(1e-6, 1e6);
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
        let scale = ((sums(k).0 / ended).ln() / k + largest).exp();
        self.judge(Distribution::Weibull { shape: k, scale })
    }

    /// Fits the lognormal by the moments of the logarithms, or by Newton's method with censored durations.
    pub fn lognormal(&self) -> FittedDistribution {
        let (mu, sigma) = match self.censored {
            0 => (self.mean_ln, self.deviation_ln()),
            _ => censored::lognormal(&self.runs, self.mean_ln, self.deviation_ln()),
        };
        self.judge(Distribution::Lognormal { mu, sigma })
    }

    /// Fits the gamma by Newton's method on `ln k - ψ(k) = ln mean - mean ln` in `1/k` (Minka, "Estimating a Gamma
    /// distribution", 2002). Returns `None` with censored durations.
    pub fn gamma(&self) -> Option<FittedDistribution> {
        if self.censored > 0 {
            return None;
        }
        let mean = self.sum / self.ended as f64;
        let s = mean.ln() - self.mean_ln;
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
        Some(self.judge(Distribution::Gamma {
            shape: k,
            scale: mean / k,
        }))
    }

    /// Returns the deviation of the logarithms of completed durations (divisor n).
    fn deviation_ln(&self) -> f64 {
        let squares = self
            .runs
            .iter()
            .map(|run| run.ended as f64 * (run.ln - self.mean_ln).powi(2));
        (squares.sum::<f64>() / self.ended as f64).sqrt()
    }

    /// Computes the logarithm of the likelihood from sums over the sample.
    fn ln_likelihood(&self, of: &Distribution) -> f64 {
        let ended = self.ended as f64;
        match *of {
            Distribution::Exponential { mean } => -ended * mean.ln() - self.sum / mean,
            Distribution::Weibull { shape, scale } => {
                let powers = self
                    .runs
                    .iter()
                    .map(|run| run.all() * (shape * (run.ln - scale.ln())).exp());
                ended * ((shape / scale).ln() + (shape - 1.0) * (self.mean_ln - scale.ln())) - powers.sum::<f64>()
            }
            Distribution::Lognormal { mu, sigma } => {
                let place = |run: &EqualDurations| (run.ln - mu) / sigma;
                let squares: f64 = self.runs.iter().map(|run| run.ended as f64 * place(run).powi(2)).sum();
                let running = self.runs.iter().filter(|run| run.censored > 0);
                let longer: f64 = running
                    .map(|run| run.censored as f64 * normal::ln_above(place(run)))
                    .sum();
                let constant = 0.5 * (2.0 * std::f64::consts::PI).ln();
                longer - 0.5 * squares - ended * (self.mean_ln + sigma.ln() + constant)
            }
            Distribution::Gamma { shape, scale } => {
                ended * ((shape - 1.0) * self.mean_ln - ln_gamma(shape) - shape * scale.ln()) - self.sum / scale
            }
        }
    }

    fn judge(&self, distribution: Distribution) -> FittedDistribution {
        let ln_likelihood = self.ln_likelihood(&distribution);
        FittedDistribution {
            distribution,
            count: self.count(),
            ln_likelihood,
            aic: 2.0 * f64::from(distribution.parameters()) - 2.0 * ln_likelihood,
            ks: distance::largest(&distance::points(&self.runs), |x| distribution.cdf(x)),
        }
    }
}

#[cfg(test)]
mod tests;

//! Proportional hazards with covariates (Cox 1972), by Newton's method on the partial likelihood.
//!
//! Lives that end at the same time are tied; [`TieMethod`] selects the method for them.

use serde::Serialize;

use crate::{matrix, normal};

/// Method for failures at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TieMethod {
    /// Efron's method (Efron 1977): each tied failure counts the others as partly gone; close to exact, the
    /// default of R.
    Efron,
    /// Breslow's method (Breslow 1974): each tied failure counts all others as at risk.
    Breslow,
}

/// One life with its covariates.
#[derive(Debug, Clone, PartialEq)]
pub struct CoxSubject {
    /// Time until the event or the censoring.
    pub time: f64,
    /// True if the life ended by the event of interest; false if it was censored.
    pub failed: bool,
    /// Covariates, the same number for each subject.
    pub covariates: Vec<f64>,
}

/// Effect of one covariate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CovariateEffect {
    /// Logarithm of the hazard ratio of one unit.
    pub coefficient: f64,
    /// Standard error of the coefficient.
    pub error: f64,
    /// `exp(coefficient)`: factor on the hazard for one more unit.
    pub hazard_ratio: f64,
    /// Lower end of the hazard ratio's interval.
    pub low: f64,
    /// Upper end of the hazard ratio's interval.
    pub high: f64,
    /// Probability of a coefficient at least this far from 0 without an effect (Wald).
    pub p: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CoxModel {
    /// One effect for each covariate.
    pub effects: Vec<CovariateEffect>,
    /// Logarithm of the partial likelihood.
    pub ln_likelihood: f64,
    /// Logarithm of the partial likelihood without any effect.
    pub ln_likelihood_null: f64,
    /// Number of subjects.
    pub subjects: usize,
    /// Number of failures.
    pub failures: usize,
}

/// Error of a fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CoxError {
    /// Subjects differ in their number of covariates, or a value is not finite.
    #[error("subjects do not have the same finite covariates and times")]
    Malformed,
    /// There is no failure, a covariate is equal for all at risk, or it is a linear combination of others.
    #[error("the covariates cannot be told apart by these failures")]
    Singular,
    /// A covariate separates the failures perfectly, so its coefficient is unbounded.
    #[error("the coefficients do not settle: a covariate separates those who failed from those who did not")]
    Separated,
}

/// Fits the model with intervals of confidence `level`.
pub fn fit(subjects: &[CoxSubject], ties: TieMethod, level: f64) -> Result<CoxModel, CoxError> {
    let count = subjects.first().map_or(0, |subject| subject.covariates.len());
    let sound = |subject: &CoxSubject| {
        subject.time.is_finite()
            && subject.covariates.len() == count
            && subject.covariates.iter().all(|x| x.is_finite())
    };
    if count == 0 || !subjects.iter().all(sound) {
        return Err(CoxError::Malformed);
    }
    // Centred covariates keep the exponentials in range and do not change the effects.
    let means: Vec<f64> = (0..count)
        .map(|at| subjects.iter().map(|subject| subject.covariates[at]).sum::<f64>() / subjects.len() as f64)
        .collect();
    let mut centred: Vec<CoxSubject> = subjects.to_vec();
    for subject in &mut centred {
        subject
            .covariates
            .iter_mut()
            .zip(&means)
            .for_each(|(x, mean)| *x -= mean);
    }
    centred.sort_by(|a, b| b.time.total_cmp(&a.time));

    let mut beta = vec![0.0; count];
    let mut now = likelihood(&centred, &beta, ties);
    let null = now.value;
    for _ in 0..60 {
        let inverse = matrix::inverse(&now.information).ok_or(CoxError::Singular)?;
        let step = matrix::times(&inverse, &now.score);
        let mut share = 1.0;
        let (next, there) = loop {
            let next: Vec<f64> = beta.iter().zip(&step).map(|(b, s)| b + share * s).collect();
            let there = likelihood(&centred, &next, ties);
            if there.value >= now.value - 1e-9 * now.value.abs() || share < 1e-6 {
                break (next, there);
            }
            share *= 0.5;
        };
        let moved = beta.iter().zip(&next).fold(0.0_f64, |a, (b, n)| a.max((b - n).abs()));
        (beta, now) = (next, there);
        if beta.iter().any(|b| !b.is_finite()) {
            return Err(CoxError::Separated);
        }
        if moved < 1e-9 {
            return finish(&beta, &now, null, subjects, level);
        }
    }
    Err(CoxError::Separated)
}

fn finish(
    beta: &[f64],
    now: &PartialLikelihood,
    null: f64,
    subjects: &[CoxSubject],
    level: f64,
) -> Result<CoxModel, CoxError> {
    let inverse = matrix::inverse(&now.information).ok_or(CoxError::Singular)?;
    let z = normal::half_width(level);
    let effects = beta.iter().enumerate().map(|(at, coefficient)| {
        let error = inverse[at][at].sqrt();
        CovariateEffect {
            coefficient: *coefficient,
            error,
            hazard_ratio: coefficient.exp(),
            low: (coefficient - z * error).exp(),
            high: (coefficient + z * error).exp(),
            p: normal::two_sided(coefficient / error),
        }
    });
    Ok(CoxModel {
        effects: effects.collect(),
        ln_likelihood: now.value,
        ln_likelihood_null: null,
        subjects: subjects.len(),
        failures: subjects.iter().filter(|subject| subject.failed).count(),
    })
}

/// Partial likelihood, its gradient and its negated second derivative.
struct PartialLikelihood {
    value: f64,
    score: Vec<f64>,
    information: Vec<Vec<f64>>,
}

/// Sums over the subjects at risk: weights, weighted covariates, weighted products.
#[derive(Clone)]
struct RiskSetSums {
    weight: f64,
    first: Vec<f64>,
    second: Vec<Vec<f64>>,
}

impl RiskSetSums {
    fn new(count: usize) -> Self {
        Self {
            weight: 0.0,
            first: vec![0.0; count],
            second: vec![vec![0.0; count]; count],
        }
    }

    fn add(&mut self, weight: f64, x: &[f64]) {
        self.weight += weight;
        for i in 0..x.len() {
            self.first[i] += weight * x[i];
            for j in 0..x.len() {
                self.second[i][j] += weight * x[i] * x[j];
            }
        }
    }
}

/// Computes the likelihood; `subjects` are sorted by descending time, so that sums over those at risk only grow.
fn likelihood(subjects: &[CoxSubject], beta: &[f64], ties: TieMethod) -> PartialLikelihood {
    let count = beta.len();
    let mut found = PartialLikelihood {
        value: 0.0,
        score: vec![0.0; count],
        information: vec![vec![0.0; count]; count],
    };
    let mut risk = RiskSetSums::new(count);
    let mut at = 0;
    while at < subjects.len() {
        let time = subjects[at].time;
        let same = subjects[at..].iter().take_while(|subject| subject.time == time).count();
        let mut tied = RiskSetSums::new(count);
        let mut failures = 0.0;
        for subject in &subjects[at..at + same] {
            let linear = matrix::dot(beta, &subject.covariates);
            risk.add(linear.exp(), &subject.covariates);
            if subject.failed {
                tied.add(linear.exp(), &subject.covariates);
                failures += 1.0;
                found.value += linear;
                found
                    .score
                    .iter_mut()
                    .zip(&subject.covariates)
                    .for_each(|(s, x)| *s += x);
            }
        }
        at += same;
        let mut seen = 0.0;
        while seen < failures {
            let gone = match ties {
                TieMethod::Efron => seen / failures,
                TieMethod::Breslow => 0.0,
            };
            let weight = risk.weight - gone * tied.weight;
            let mean = |i: usize| (risk.first[i] - gone * tied.first[i]) / weight;
            found.value -= weight.ln();
            for i in 0..count {
                found.score[i] -= mean(i);
                for j in 0..count {
                    found.information[i][j] +=
                        (risk.second[i][j] - gone * tied.second[i][j]) / weight - mean(i) * mean(j);
                }
            }
            seen += 1.0;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kaplan_meier::tests::{placebo, treated};

    fn trial() -> Vec<CoxSubject> {
        let with = |lives: Vec<crate::kaplan_meier::ObservedLifetime>, x: f64| {
            lives.into_iter().map(move |life| CoxSubject {
                time: life.time,
                failed: life.failed,
                covariates: vec![x],
            })
        };
        with(placebo(), 1.0).chain(with(treated(), 0.0)).collect()
    }

    /// R and the textbooks print 1.509 (0.410) with Breslow's ties and 1.572 (0.412) with Efron's for this trial.
    #[test]
    fn the_textbook_trial_under_both_rules_for_ties() {
        for (ties, coefficient, error) in [(TieMethod::Breslow, 1.509, 0.410), (TieMethod::Efron, 1.572, 0.412)] {
            let model = fit(&trial(), ties, 0.95).expect("a model");
            let effect = model.effects[0];
            assert!((effect.coefficient - coefficient).abs() < 6e-4, "{effect:?}");
            assert!((effect.error - error).abs() < 6e-4, "{effect:?}");
            assert!(model.ln_likelihood > model.ln_likelihood_null);
            assert_eq!((model.subjects, model.failures), (42, 30));
        }
    }

    #[test]
    fn what_cannot_be_told_apart_is_refused() {
        let mut same = trial();
        same.iter_mut().for_each(|subject| subject.covariates = vec![1.0]);
        assert_eq!(fit(&same, TieMethod::Efron, 0.95), Err(CoxError::Singular));
        let separated: Vec<CoxSubject> = (0..20)
            .map(|at| CoxSubject {
                time: f64::from(at),
                failed: at < 10,
                covariates: vec![f64::from(u8::from(at < 10))],
            })
            .collect();
        assert!(fit(&separated, TieMethod::Efron, 0.95).is_err());
        assert_eq!(fit(&[], TieMethod::Efron, 0.95), Err(CoxError::Malformed));
    }
}

//! Log-rank test for equal survival of cohorts (Mantel 1966): observed failures against those of equal
//! hazards.

use serde::Serialize;

use crate::kaplan_meier::ObservedLifetime;
use crate::matrix;
use crate::special::gamma_q;

/// Result of the test.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LogRank {
    /// Failures of each cohort.
    pub observed: Vec<f64>,
    /// Expected failures with equal hazards.
    pub expected: Vec<f64>,
    pub chi_squared: f64,
    /// Degrees of freedom: the number of cohorts less one.
    pub degrees: usize,
    /// Probability of at least this chi-squared with equal hazards.
    pub p: f64,
}

/// Compares two or more cohorts; returns `None` for fewer, or without variance to judge by.
pub fn compare(cohorts: &[Vec<ObservedLifetime>]) -> Option<LogRank> {
    let groups = cohorts.len();
    if groups < 2 {
        return None;
    }
    let mut lives: Vec<(f64, bool, usize)> = cohorts
        .iter()
        .enumerate()
        .flat_map(|(group, lives)| lives.iter().map(move |life| (life.time, life.failed, group)))
        .filter(|(time, ..)| time.is_finite() && *time >= 0.0)
        .collect();
    lives.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut at_risk = vec![0.0; groups];
    lives.iter().for_each(|life| at_risk[life.2] += 1.0);
    let mut observed = vec![0.0; groups];
    let mut expected = vec![0.0; groups];
    let mut variance = vec![vec![0.0; groups - 1]; groups - 1];
    let mut at = 0;
    while at < lives.len() {
        let time = lives[at].0;
        let same: Vec<_> = lives[at..].iter().take_while(|life| life.0 == time).collect();
        at += same.len();
        let mut failed = vec![0.0; groups];
        same.iter().filter(|life| life.1).for_each(|life| failed[life.2] += 1.0);
        let (d, n): (f64, f64) = (failed.iter().sum(), at_risk.iter().sum());
        if d > 0.0 {
            let tied = if n > 1.0 { d * (n - d) / (n - 1.0) } else { 0.0 };
            for i in 0..groups {
                observed[i] += failed[i];
                expected[i] += d * at_risk[i] / n;
            }
            for i in 0..groups - 1 {
                for j in 0..groups - 1 {
                    variance[i][j] += tied * at_risk[i] / n * (f64::from(i == j) - at_risk[j] / n);
                }
            }
        }
        same.iter().for_each(|life| at_risk[life.2] -= 1.0);
    }
    let excess: Vec<f64> = (0..groups - 1).map(|i| observed[i] - expected[i]).collect();
    let inverse = matrix::inverse(&variance)?;
    let chi_squared = matrix::dot(&excess, &matrix::times(&inverse, &excess));
    Some(LogRank {
        observed,
        expected,
        chi_squared,
        degrees: groups - 1,
        p: gamma_q((groups - 1) as f64 / 2.0, chi_squared / 2.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kaplan_meier::tests::{placebo, treated};

    /// The textbooks print 19.25 expected and 10.75, chi-squared 16.79.
    #[test]
    fn the_textbook_comparison() {
        let found = compare(&[treated(), placebo()]).expect("two cohorts");
        assert_eq!(found.observed, [9.0, 21.0]);
        assert!((found.expected[0] - 19.25).abs() < 0.005, "{found:?}");
        assert!((found.chi_squared - 16.79).abs() < 0.005, "{found:?}");
        assert!((found.p - 4.17e-5).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn equal_cohorts_do_not_differ_and_one_is_no_comparison() {
        let found = compare(&[treated(), treated(), treated()]).expect("three cohorts");
        assert!(found.chi_squared < 1e-9 && found.degrees == 2 && (found.p - 1.0).abs() < 1e-9);
        assert!(compare(&[treated()]).is_none());
    }
}

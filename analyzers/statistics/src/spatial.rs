//! Tests for a uniform distribution of failures: counts of cells against their exposure, and similarity of neighbouring
//! cells (Moran 1950, with the variance under randomisation of Cliff and Ord 1981).

use serde::Serialize;

use crate::normal;
use crate::special::gamma_q;

/// Counts against those expected from exposure alone (Pearson).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct UniformityTest {
    pub chi_squared: f64,
    /// Degrees of freedom: the number of cells less one.
    pub degrees: usize,
    /// Probability of at least this chi-squared with the same rate everywhere and independent failures.
    pub p: f64,
    /// Chi-squared over degrees of freedom: 1 for independent failures at a uniform rate.
    pub dispersion: f64,
}

/// Compares counts with exposure, cell by cell. Returns `None` with fewer than two exposed cells, without a failure, or
/// with failures in a cell without exposure.
pub fn uniformity(cells: &[(u64, f64)]) -> Option<UniformityTest> {
    let known = |exposure: f64| exposure.is_finite() && exposure > 0.0;
    if cells.iter().any(|(count, exposure)| *count > 0 && !known(*exposure)) {
        return None;
    }
    let exposed: Vec<(f64, f64)> = cells
        .iter()
        .filter(|(_, exposure)| known(*exposure))
        .map(|(count, exposure)| (*count as f64, *exposure))
        .collect();
    let count: f64 = exposed.iter().map(|cell| cell.0).sum();
    let exposure: f64 = exposed.iter().map(|cell| cell.1).sum();
    let degrees = exposed.len().checked_sub(1).filter(|degrees| *degrees > 0)?;
    if count == 0.0 {
        return None;
    }
    let part = |(found, share): &(f64, f64)| {
        let expected = count * share / exposure;
        (found - expected).powi(2) / expected
    };
    let chi_squared: f64 = exposed.iter().map(part).sum();
    Some(UniformityTest {
        chi_squared,
        degrees,
        p: gamma_q(degrees as f64 / 2.0, chi_squared / 2.0),
        dispersion: chi_squared / degrees as f64,
    })
}

/// Similarity of neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MoranTest {
    /// Moran's I: above the expected value if neighbours are similar, below if they differ.
    pub i: f64,
    /// Expected value under random permutation of the values.
    pub expected: f64,
    /// Variance under random permutation.
    pub variance: f64,
    /// Two-sided probability of a deviation at least as large, by the normal approximation.
    pub p: f64,
}

/// Computes Moran's I of values with pairs of neighbours, each pair once. Returns `None` with fewer than four cells,
/// without a pair, or if all values are equal.
pub fn moran(values: &[f64], pairs: &[(usize, usize)]) -> Option<MoranTest> {
    let cells = values.len();
    if cells < 4 || pairs.is_empty() || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let n = cells as f64;
    let mean = values.iter().sum::<f64>() / n;
    let off: Vec<f64> = values.iter().map(|value| value - mean).collect();
    let squares: f64 = off.iter().map(|z| z * z).sum();
    if squares <= 0.0 {
        return None;
    }
    let mut neighbours = vec![0.0_f64; cells];
    let mut products = 0.0;
    for &(one, other) in pairs {
        products += off.get(one)? * off.get(other)?;
        neighbours[one] += 1.0;
        neighbours[other] += 1.0;
    }
    let links = pairs.len() as f64;
    // Sums over the matrix of weights, which contains each pair twice.
    let s0 = 2.0 * links;
    let s1 = 4.0 * links;
    let s2: f64 = neighbours.iter().map(|count| (2.0 * count).powi(2)).sum();
    let i = n / s0 * 2.0 * products / squares;
    let kurtosis = n * off.iter().map(|z| z.powi(4)).sum::<f64>() / (squares * squares);
    let expected = -1.0 / (n - 1.0);
    let free = n * ((n * n - 3.0 * n + 3.0) * s1 - n * s2 + 3.0 * s0 * s0);
    let tied = kurtosis * ((n * n - n) * s1 - 2.0 * n * s2 + 6.0 * s0 * s0);
    let variance = (free - tied) / ((n - 1.0) * (n - 2.0) * (n - 3.0) * s0 * s0) - expected * expected;
    (variance > 0.0).then(|| MoranTest {
        i,
        expected,
        variance,
        p: normal::two_sided((i - expected) / variance.sqrt()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A die: 10, 12, 9, 11, 8, 10 throws of 60 are 1.0 with five degrees of freedom, p 0.9626.
    #[test]
    fn a_fair_die_is_fair_and_a_loaded_one_is_not() {
        let throws = |counts: [u64; 6]| uniformity(&counts.map(|count| (count, 1.0))).expect("throws");
        let fair = throws([10, 12, 9, 11, 8, 10]);
        assert!((fair.chi_squared - 1.0).abs() < 1e-12 && fair.degrees == 5, "{fair:?}");
        assert!((fair.p - 0.9626).abs() < 5e-5, "{fair:?}");
        assert!(throws([30, 6, 6, 6, 6, 6]).p < 1e-7);
    }

    #[test]
    fn exposure_is_what_counts_are_compared_with() {
        let even = uniformity(&[(30, 3.0), (10, 1.0), (0, 0.0)]).expect("two exposed cells");
        assert_eq!((even.chi_squared, even.degrees), (0.0, 1));
        assert!(
            uniformity(&[(1, 0.0), (3, 1.0), (3, 1.0)]).is_none(),
            "a failure nowhere"
        );
        assert!(uniformity(&[(0, 1.0), (0, 1.0)]).is_none());
        assert!(uniformity(&[(5, 1.0)]).is_none());
    }

    /// All orders of the values.
    fn orders(values: &mut Vec<f64>, from: usize, take: &mut impl FnMut(&[f64])) {
        if from == values.len() {
            return take(values);
        }
        for at in from..values.len() {
            values.swap(from, at);
            orders(values, from + 1, take);
            values.swap(from, at);
        }
    }

    #[test]
    fn mean_and_variance_are_those_of_all_orders_of_the_values() {
        // Two rows of three, neighbours by an edge.
        let pairs = [(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5)];
        let mut values = vec![1.0, 5.0, 2.0, 2.0, 9.0, 4.5];
        let told = moran(&values, &pairs).expect("six cells");
        let mut count = 0.0;
        let mut sum = 0.0;
        let mut squares = 0.0;
        orders(&mut values, 0, &mut |order| {
            let i = moran(order, &pairs).expect("six cells").i;
            (count, sum, squares) = (count + 1.0, sum + i, squares + i * i);
        });
        assert_eq!(count, 720.0);
        let mean = sum / count;
        assert!((mean - told.expected).abs() < 1e-12, "{mean} {told:?}");
        assert!(
            (squares / count - mean * mean - told.variance).abs() < 1e-12,
            "{told:?}"
        );
    }

    #[test]
    fn alike_neighbours_are_above_and_a_chess_board_is_below() {
        let side = 8;
        let mut pairs = Vec::new();
        for cell in 0..side * side {
            pairs.extend((cell % side + 1 < side).then_some((cell, cell + 1)));
            pairs.extend((cell + side < side * side).then_some((cell, cell + side)));
        }
        let board = |value: fn(usize, usize) -> usize| -> Vec<f64> {
            (0..side * side)
                .map(|cell| value(cell % side, cell / side) as f64)
                .collect()
        };
        let slope = moran(&board(|x, _| x), &pairs).expect("a board");
        let chess = moran(&board(|x, y| (x + y) % 2), &pairs).expect("a board");
        assert!(slope.i > 0.8 && slope.p < 1e-9, "{slope:?}");
        assert!((chess.i + 1.0).abs() < 1e-12 && chess.p < 1e-9, "{chess:?}");
        assert!(moran(&[1.0; 9], &pairs[..3]).is_none(), "all the same");
    }
}

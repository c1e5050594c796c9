//! Small symmetric positive definite systems: as many rows as covariates or cohorts.

/// Returns the inverse by Gauss-Jordan elimination with row pivots; `None` if the matrix is
/// singular.
pub(crate) fn inverse(matrix: &[Vec<f64>]) -> Option<Vec<Vec<f64>>> {
    let n = matrix.len();
    let largest = matrix.iter().flatten().fold(0.0_f64, |a, b| a.max(b.abs()));
    let mut rows: Vec<Vec<f64>> = matrix
        .iter()
        .enumerate()
        .map(|(at, row)| {
            row.iter()
                .copied()
                .chain((0..n).map(|to| f64::from(to == at)))
                .collect()
        })
        .collect();
    for column in 0..n {
        let pivot = (column..n).max_by(|a, b| rows[*a][column].abs().total_cmp(&rows[*b][column].abs()))?;
        let size = rows[pivot][column].abs();
        if size.is_nan() || size <= largest * 1e-12 {
            return None;
        }
        rows.swap(column, pivot);
        let by = rows[column][column];
        rows[column].iter_mut().for_each(|x| *x /= by);
        let base = rows[column].clone();
        for (_, row) in rows.iter_mut().enumerate().filter(|(at, _)| *at != column) {
            let times = row[column];
            row.iter_mut().zip(&base).for_each(|(x, b)| *x -= times * b);
        }
    }
    Some(rows.into_iter().map(|row| row[n..].to_vec()).collect())
}

/// Multiplies a matrix by a vector.
pub(crate) fn times(matrix: &[Vec<f64>], vector: &[f64]) -> Vec<f64> {
    matrix.iter().map(|row| dot(row, vector)).collect()
}

/// Returns the dot product.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inverse_undoes_the_matrix_and_a_singular_one_has_none() {
        let matrix = vec![vec![4.0, 1.0, 0.5], vec![1.0, 3.0, 0.2], vec![0.5, 0.2, 2.0]];
        let inverse_of = inverse(&matrix).expect("it is positive definite");
        for (at, row) in matrix.iter().enumerate() {
            let column: Vec<f64> = inverse_of.iter().map(|row| row[at]).collect();
            assert!((dot(row, &column) - 1.0).abs() < 1e-12);
        }
        assert!(inverse(&[vec![1.0, 2.0], vec![2.0, 4.0]]).is_none());
    }
}

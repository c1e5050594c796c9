//! Moments in the order of time.

/// Which places of a slice of moments hold finite ones, in order; nothing is put in order where all are already, as in a
/// log. What happened at the same moment stays in the order of the slice.
#[derive(Debug, Clone, PartialEq)]
pub struct InTime {
    len: usize,
    /// None where the slice itself is in order.
    order: Option<Vec<u32>>,
}

impl InTime {
    /// Of a slice of no more than 2^32 moments.
    pub fn of(times: &[f64]) -> Self {
        let finite = |time: Option<&f64>| time.is_none_or(|time| time.is_finite());
        // What is not a number has no order, and the infinite would stand at the ends.
        if times.is_sorted() && finite(times.first()) && finite(times.last()) {
            return Self {
                len: times.len(),
                order: None,
            };
        }
        let rows = (0..).zip(times).filter(|(_, time)| time.is_finite());
        let mut order: Vec<u32> = rows.map(|(row, _)| row).collect();
        order.sort_by(|a, b| times[*a as usize].total_cmp(&times[*b as usize]));
        Self {
            len: order.len(),
            order: Some(order),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The place in the slice of the moment of a rank, from 0.
    pub fn row(&self, rank: usize) -> usize {
        self.order.as_ref().map_or(rank, |order| order[rank] as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(times: &[f64]) -> Vec<usize> {
        let order = InTime::of(times);
        (0..order.len()).map(|rank| order.row(rank)).collect()
    }

    #[test]
    fn moments_in_order_stay_where_they_are_and_others_are_put_in_order() {
        assert_eq!(InTime::of(&[1.0, 2.0, 2.0]).order, None);
        assert_eq!(rows(&[1.0, 2.0, 2.0]), [0, 1, 2]);
        assert_eq!(rows(&[2.0, 1.0, 2.0, 1.0]), [1, 3, 0, 2]);
        assert!(InTime::of(&[]).is_empty());
    }

    #[test]
    fn what_is_not_finite_is_no_moment_wherever_it_stands() {
        assert_eq!(rows(&[f64::NAN, 1.0, f64::INFINITY]), [1]);
        assert_eq!(rows(&[f64::NEG_INFINITY, 1.0, 3.0]), [1, 2]);
        assert_eq!(rows(&[f64::NAN]), [0; 0]);
    }
}

//! Adam optimizer (Kingma, Ba 2015) over the part of the parameters that a rank owns.

use crate::math;

const BETA1: f32 = 0.9;
const BETA2: f32 = 0.999;
const EPSILON: f32 = 1e-8;

/// Optimizer state: two numbers per owned parameter.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AdamState {
    /// Running mean of the gradient.
    pub(crate) m: Vec<f32>,
    /// Running mean of its square.
    pub(crate) v: Vec<f32>,
    rate: f32,
}

impl AdamState {
    pub(crate) fn new(len: usize, rate: f32) -> Self {
        Self {
            m: vec![0.0; len],
            v: vec![0.0; len],
            rate,
        }
    }

    /// Applies update number `step`, counted from 1, to the owned parameters.
    pub(crate) fn update(&mut self, step: u64, gradient: &[f32], parameters: &mut [f32]) {
        let m_scale = (1.0 / (1.0 - math::power(f64::from(BETA1), step))) as f32;
        let v_scale = (1.0 / (1.0 - math::power(f64::from(BETA2), step))) as f32;
        let moments = self.m.iter_mut().zip(&mut self.v);
        for ((parameter, &slope), (m, v)) in parameters.iter_mut().zip(gradient).zip(moments) {
            *m = BETA1 * *m + (1.0 - BETA1) * slope;
            *v = BETA2 * *v + (1.0 - BETA2) * (slope * slope);
            *parameter -= self.rate * (*m * m_scale) / ((*v * v_scale).sqrt() + EPSILON);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_update_moves_by_the_rate_against_the_slope() {
        let mut adam = AdamState::new(3, 0.01);
        let mut parameters = [1.0, 1.0, 1.0];
        adam.update(1, &[5.0, -0.001, 0.0], &mut parameters);
        for (got, want) in parameters.iter().zip([0.99, 1.01, 1.0]) {
            assert!((got - want).abs() < 1e-5, "{parameters:?}");
        }
    }

    #[test]
    fn it_finds_the_bottom_of_a_bowl() {
        let mut adam = AdamState::new(1, 0.05);
        let mut parameter = [3.0];
        for step in 1..=500 {
            adam.update(step, &[2.0 * (parameter[0] - 1.0)], &mut parameter);
        }
        assert!((parameter[0] - 1.0).abs() < 0.01, "{parameter:?}");
    }
}

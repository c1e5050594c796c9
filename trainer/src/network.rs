//! Model: fully connected layers with ReLU between them and softmax cross-entropy at the end; forward and backward are
//! written by hand. Loops run in one fixed order, so the same binary always computes the same bits.

use std::panic::Location;

use crate::math;
use crate::random;

/// Lanes of a dot product. Its terms are added in this many columns, then the columns pairwise: a fixed order that
/// still permits vector instructions.
const LANES: usize = 16;

/// Tensor of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelTensor {
    /// Name, for example `fc1.weight`.
    pub(crate) name: String,
    /// Extent of dimension 0, along which it is split.
    pub(crate) rows: usize,
    /// Elements of a row: 1 for a bias.
    pub(crate) width: usize,
    /// Offset of its first element among all parameters.
    pub(crate) at: usize,
    pub(crate) shape: Vec<u64>,
}

/// Tensors of the model; parameters and gradients are flat arrays in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NeuralNetwork {
    widths: Vec<usize>,
    tensors: Vec<ModelTensor>,
    parameters: usize,
}

/// Input of a step: rows of pixels with their digits.
#[derive(Debug, Clone, Default)]
pub(crate) struct SampleBatch {
    /// Number of columns of `values`.
    pub(crate) width: usize,
    /// Row-major pixel values.
    pub(crate) values: Vec<f32>,
    /// Digit of each row.
    pub(crate) labels: Vec<u8>,
}

/// Result of a batch, summed over its rows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct BatchOutcome {
    pub(crate) loss: f64,
    /// Number of rows for which the most likely digit is correct.
    pub(crate) correct: u32,
}

/// Error of a batch with another width than its layer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "mat1 and mat2 shapes cannot be multiplied ({}x{} and {}x{})",
    mat1.0, mat1.1, mat2.0, mat2.1
)]
pub struct ShapeError {
    /// Rows and columns of the input.
    pub mat1: (usize, usize),
    /// Rows and columns of the transposed weight.
    pub mat2: (usize, usize),
    /// Call stack of the refused operation, innermost last.
    pub frames: Vec<SourceFrame>,
}

/// Source location of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFrame {
    pub file: &'static str,
    pub line: u32,
    pub function: &'static str,
}

impl SourceFrame {
    /// Returns the location of the caller.
    #[track_caller]
    pub(crate) fn here(function: &'static str) -> Self {
        let place = Location::caller();
        Self {
            file: place.file(),
            line: place.line(),
            function,
        }
    }
}

/// Buffers of one forward and backward pass, reused between batches.
#[derive(Debug, Default)]
pub(crate) struct PassBuffers {
    /// Outputs of each layer; all but the last are after ReLU.
    outputs: Vec<Vec<f32>>,
    /// Gradient with respect to the current layer's output, and to its input.
    upper: Vec<f32>,
    lower: Vec<f32>,
}

impl NeuralNetwork {
    /// Creates a network with layers of these widths, input first.
    pub(crate) fn new(widths: Vec<usize>) -> Self {
        let mut tensors = Vec::new();
        let mut at = 0;
        for (layer, pair) in widths.windows(2).enumerate() {
            let fan_in = pair[0];
            let fan_out = pair[1];
            let weight = (
                format!("fc{}.weight", layer + 1),
                fan_in,
                vec![fan_out as u64, fan_in as u64],
            );
            let bias = (format!("fc{}.bias", layer + 1), 1, vec![fan_out as u64]);
            for (name, width, shape) in [weight, bias] {
                tensors.push(ModelTensor {
                    name,
                    rows: fan_out,
                    width,
                    at,
                    shape,
                });
                at += fan_out * width;
            }
        }
        Self {
            widths,
            tensors,
            parameters: at,
        }
    }

    pub(crate) fn tensors(&self) -> &[ModelTensor] {
        &self.tensors
    }

    pub(crate) fn parameter_count(&self) -> usize {
        self.parameters
    }

    /// Returns the initial parameters (He, uniform): each depends only on seed, tensor and position.
    pub(crate) fn initial(&self, seed: u64) -> Vec<f32> {
        let mut parameters = vec![0.0; self.parameters];
        for (stream, tensor) in self.tensors.iter().enumerate() {
            if tensor.shape.len() == 2 {
                let bound = (6.0 / tensor.width as f32).sqrt();
                let values = &mut parameters[tensor.at..][..tensor.rows * tensor.width];
                for (index, value) in values.iter_mut().enumerate() {
                    *value = bound * random::draw_symmetric(seed, stream as u64, index as u64);
                }
            }
        }
        parameters
    }

    fn layer<'p>(&self, parameters: &'p [f32], layer: usize) -> (&'p [f32], &'p [f32]) {
        let weight = &self.tensors[2 * layer];
        let bias = &self.tensors[2 * layer + 1];
        (
            &parameters[weight.at..][..weight.rows * weight.width],
            &parameters[bias.at..][..bias.rows],
        )
    }

    /// Runs a batch through the network; the last output holds the logits.
    fn forward(&self, parameters: &[f32], batch: &SampleBatch, scratch: &mut PassBuffers) -> Result<(), ShapeError> {
        let rows = batch.labels.len();
        let layers = self.widths.len() - 1;
        scratch.outputs.resize_with(layers, Vec::new);
        for layer in 0..layers {
            let (weight, bias) = self.layer(parameters, layer);
            let (before, rest) = scratch.outputs.split_at_mut(layer);
            let (input, width) = match before.last() {
                Some(input) => (input.as_slice(), self.widths[layer]),
                None => (batch.values.as_slice(), batch.width),
            };
            linear((input, rows, width), (weight, self.widths[layer], bias), &mut rest[0]).map_err(|mut e| {
                e.frames.insert(0, SourceFrame::here("forward"));
                e
            })?;
            if layer + 1 < layers {
                for value in &mut rest[0] {
                    *value = value.max(0.0);
                }
            }
        }
        Ok(())
    }

    /// Returns loss and hits of a batch.
    pub(crate) fn evaluate(
        &self,
        parameters: &[f32],
        batch: &SampleBatch,
        scratch: &mut PassBuffers,
    ) -> Result<BatchOutcome, ShapeError> {
        self.forward(parameters, batch, scratch)?;
        let classes = self.widths[self.widths.len() - 1];
        let logits = &scratch.outputs[self.widths.len() - 2];
        scratch.upper.resize(logits.len(), 0.0);
        Ok(cross_entropy(logits, classes, &batch.labels, &mut scratch.upper))
    }

    /// Returns loss and hits of a batch; adds its gradient, summed over rows, to `gradient`.
    pub(crate) fn train(
        &self,
        parameters: &[f32],
        batch: &SampleBatch,
        gradient: &mut [f32],
        scratch: &mut PassBuffers,
    ) -> Result<BatchOutcome, ShapeError> {
        let outcome = self.evaluate(parameters, batch, scratch).map_err(|mut e| {
            e.frames.insert(0, SourceFrame::here("train"));
            e
        })?;
        for layer in (0..self.widths.len() - 1).rev() {
            let fan_in = self.widths[layer];
            let fan_out = self.widths[layer + 1];
            let (weight, _) = self.layer(parameters, layer);
            let w_at = self.tensors[2 * layer].at;
            let b_at = self.tensors[2 * layer + 1].at;
            let input = match layer {
                0 => batch.values.as_slice(),
                _ => scratch.outputs[layer - 1].as_slice(),
            };
            scratch.lower.clear();
            scratch.lower.resize(batch.labels.len() * fan_in, 0.0);
            for (row, upper) in scratch.upper.chunks_exact(fan_out).enumerate() {
                let input = &input[row * fan_in..][..fan_in];
                let lower = &mut scratch.lower[row * fan_in..][..fan_in];
                for (unit, &slope) in upper.iter().enumerate() {
                    gradient[b_at + unit] += slope;
                    add_scaled(&mut gradient[w_at + unit * fan_in..][..fan_in], slope, input);
                    if layer > 0 {
                        add_scaled(lower, slope, &weight[unit * fan_in..][..fan_in]);
                    }
                }
            }
            if layer > 0 {
                for (slope, &output) in scratch.lower.iter_mut().zip(input) {
                    if output <= 0.0 {
                        *slope = 0.0;
                    }
                }
            }
            std::mem::swap(&mut scratch.upper, &mut scratch.lower);
        }
        Ok(outcome)
    }
}

/// Computes `output = input · weightᵀ + bias`; refuses an input of another width than the weight's.
#[track_caller]
fn linear(
    (input, rows, width): (&[f32], usize, usize),
    (weight, fan_in, bias): (&[f32], usize, &[f32]),
    output: &mut Vec<f32>,
) -> Result<(), ShapeError> {
    if width != fan_in {
        return Err(ShapeError {
            mat1: (rows, width),
            mat2: (fan_in, bias.len()),
            frames: vec![SourceFrame::here("linear")],
        });
    }
    output.clear();
    for row in input.chunks_exact(width) {
        output.extend(
            bias.iter()
                .zip(weight.chunks_exact(fan_in))
                .map(|(b, w)| b + dot(row, w)),
        );
    }
    Ok(())
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    let (a_wide, a_rest) = a.as_chunks::<LANES>();
    let (b_wide, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_wide.iter().zip(b_wide) {
        for lane in 0..LANES {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] += lanes[lane + half];
        }
        half /= 2;
    }
    a_rest.iter().zip(b_rest).fold(lanes[0], |sum, (a, b)| sum + a * b)
}

fn add_scaled(sum: &mut [f32], scale: f32, values: &[f32]) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += scale * value;
    }
}

/// Returns loss and hits over the rows of logits; `slopes` becomes the gradient with respect to the logits.
fn cross_entropy(logits: &[f32], classes: usize, labels: &[u8], slopes: &mut [f32]) -> BatchOutcome {
    let mut outcome = BatchOutcome::default();
    for ((row, slopes), &label) in logits
        .chunks_exact(classes)
        .zip(slopes.chunks_exact_mut(classes))
        .zip(labels)
    {
        let mut best = 0;
        for class in 1..classes {
            if row[class] > row[best] {
                best = class;
            }
        }
        let top = f64::from(row[best]);
        let sum: f64 = row.iter().map(|&logit| math::exp(f64::from(logit) - top)).sum();
        for (slope, &logit) in slopes.iter_mut().zip(row) {
            *slope = (math::exp(f64::from(logit) - top) / sum) as f32;
        }
        let label = usize::from(label);
        slopes[label] -= 1.0;
        outcome.loss += math::ln(sum) + top - f64::from(row[label]);
        outcome.correct += u32::from(best == label);
    }
    outcome
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn small() -> (NeuralNetwork, Vec<f32>, SampleBatch) {
        let network = NeuralNetwork::new(vec![5, 7, 6, 3]);
        let parameters = network.initial(3);
        let values = (0..4 * 5).map(|i| random::draw_symmetric(9, 0, i)).collect();
        let batch = SampleBatch {
            width: 5,
            values,
            labels: vec![0, 2, 1, 2],
        };
        (network, parameters, batch)
    }

    #[test]
    fn the_gradient_agrees_with_finite_differences() {
        let (network, mut parameters, batch) = small();
        // Biases begin at zero; shift them so that no unit is at ReLU's corner.
        for (i, p) in parameters.iter_mut().enumerate() {
            *p += 0.05 * random::draw_symmetric(4, 1, i as u64);
        }
        let mut gradient = vec![0.0; network.parameter_count()];
        let scratch = &mut PassBuffers::default();
        network.train(&parameters, &batch, &mut gradient, scratch).unwrap();
        let mut checked = 0;
        for i in 0..parameters.len() {
            let kept = parameters[i];
            let h = 1e-3;
            parameters[i] = kept + h;
            let up = network.evaluate(&parameters, &batch, scratch).unwrap().loss;
            parameters[i] = kept - h;
            let down = network.evaluate(&parameters, &batch, scratch).unwrap().loss;
            parameters[i] = kept;
            let numeric = (up - down) / (2.0 * f64::from(h));
            let error = (numeric - f64::from(gradient[i])).abs();
            assert!(error < 3e-3, "parameter {i}: {numeric} against {}", gradient[i]);
            checked += usize::from(gradient[i].abs() > 0.05);
        }
        assert!(checked > 30, "only {checked} parameters had a slope worth comparing");
    }

    #[test]
    fn gradients_add_up_row_by_row() {
        let (network, parameters, batch) = small();
        let scratch = &mut PassBuffers::default();
        let mut whole = vec![0.0; network.parameter_count()];
        let all = network.train(&parameters, &batch, &mut whole, scratch).unwrap();
        let mut parts = vec![0.0; network.parameter_count()];
        let mut loss = 0.0;
        for row in 0..4 {
            let one = SampleBatch {
                width: 5,
                values: batch.values[row * 5..][..5].to_vec(),
                labels: vec![batch.labels[row]],
            };
            loss += network.train(&parameters, &one, &mut parts, scratch).unwrap().loss;
        }
        assert!((loss - all.loss).abs() < 1e-9);
        assert!(whole.iter().zip(&parts).all(|(a, b)| (a - b).abs() < 1e-5));
    }

    #[test]
    fn a_batch_of_the_wrong_width_is_refused_with_both_shapes() {
        let (network, parameters, mut batch) = small();
        batch.width = 6;
        batch.values.resize(4 * 6, 0.0);
        let mut gradient = vec![0.0; network.parameter_count()];
        let error = network
            .train(&parameters, &batch, &mut gradient, &mut PassBuffers::default())
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "mat1 and mat2 shapes cannot be multiplied (4x6 and 5x7)"
        );
        let functions: Vec<_> = error.frames.iter().map(|f| f.function).collect();
        assert_eq!(functions, ["train", "forward", "linear"]);
    }
}

//! Tensor box: axis-aligned part of a global tensor.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::Dtype;

/// Maximum number of dimensions of a tensor.
pub const MAX_DIMS: usize = 16;

/// Maximum length of a tensor name, bytes.
pub const MAX_NAME_BYTES: usize = 1024;

/// Axis-aligned part of a global tensor that one rank holds: row-major, little-endian.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TensorBox {
    /// Full name of the tensor, the same on every rank.
    pub name: String,
    /// Type of the elements.
    pub dtype: Dtype,
    /// Shape of the whole tensor; empty for a scalar.
    pub global_shape: Vec<u64>,
    /// First element of this part, one entry per dimension.
    pub offset: Vec<u64>,
    /// Extent of this part in elements, one entry per dimension.
    pub shape: Vec<u64>,
}

/// Reason why a box is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum BoxError {
    #[error("tensor name is empty, longer than {MAX_NAME_BYTES} bytes or has control characters: {name:?}")]
    Name { name: String },
    #[error(
        "tensor {name}: shape, offset and global shape have {shape}, {offset} and {global} dimensions; they must be equal and at most {MAX_DIMS}"
    )]
    Dims {
        name: String,
        shape: usize,
        offset: usize,
        global: usize,
    },
    #[error("tensor {name}: dimension {dim}: offset {offset} + extent {extent} exceeds the tensor's {global}")]
    Outside {
        name: String,
        dim: usize,
        offset: u64,
        extent: u64,
        global: u64,
    },
    #[error("tensor {name}: its size in bytes exceeds 64 bits")]
    TooLarge { name: String },
}

impl TensorBox {
    /// Creates the box that covers a whole tensor.
    pub fn whole(name: impl Into<String>, dtype: Dtype, shape: Vec<u64>) -> Self {
        Self {
            name: name.into(),
            dtype,
            offset: vec![0; shape.len()],
            global_shape: shape.clone(),
            shape,
        }
    }

    /// Creates the box of the rows `rows` of a tensor, a part along its first dimension.
    pub fn rows(name: impl Into<String>, dtype: Dtype, global_shape: Vec<u64>, rows: Range<u64>) -> Self {
        let mut part = Self::whole(name, dtype, global_shape);
        if let (Some(offset), Some(extent)) = (part.offset.first_mut(), part.shape.first_mut()) {
            *offset = rows.start;
            *extent = rows.end.saturating_sub(rows.start);
        }
        part
    }

    /// True if `other` is of the same tensor, type and global shape and lies within this box.
    pub fn encloses(&self, other: &Self) -> bool {
        let same = (&self.name, self.dtype, &self.global_shape) == (&other.name, other.dtype, &other.global_shape);
        let end = |boxed: &Self, dim: usize| boxed.offset[dim].saturating_add(boxed.shape[dim]);
        same && (0..self.shape.len())
            .all(|dim| self.offset[dim] <= other.offset[dim] && end(other, dim) <= end(self, dim))
    }

    /// Validates the box: it lies within its tensor and its size is computable. Everything else in this crate may rely
    /// on a box that passed.
    pub fn check(&self) -> Result<(), BoxError> {
        let name = || self.name.chars().take(64).collect::<String>();
        if self.name.is_empty() || self.name.len() > MAX_NAME_BYTES || self.name.chars().any(char::is_control) {
            return Err(BoxError::Name { name: name() });
        }
        let shape = self.shape.len();
        let offset = self.offset.len();
        let global = self.global_shape.len();
        if shape != offset || shape != global || shape > MAX_DIMS {
            return Err(BoxError::Dims {
                name: name(),
                shape,
                offset,
                global,
            });
        }
        for dim in 0..shape {
            let offset = self.offset[dim];
            let extent = self.shape[dim];
            let global = self.global_shape[dim];
            if offset.checked_add(extent).is_none_or(|end| end > global) {
                return Err(BoxError::Outside {
                    name: name(),
                    dim,
                    offset,
                    extent,
                    global,
                });
            }
        }
        let sized = |shape: &[u64]| bytes_of(shape, self.dtype).is_some();
        if !sized(&self.shape) || !sized(&self.global_shape) {
            return Err(BoxError::TooLarge { name: name() });
        }
        Ok(())
    }

    /// Returns the size in bytes; `None` if it exceeds 64 bits, which a checked box never does.
    pub fn bytes(&self) -> Option<u64> {
        bytes_of(&self.shape, self.dtype)
    }
}

/// Size of a row-major array in bytes. A zero extent makes it empty, however large the other extents are; those must
/// still multiply within 64 bits, so that strides cannot overflow.
fn bytes_of(shape: &[u64], dtype: Dtype) -> Option<u64> {
    let nonzero = shape.iter().filter(|extent| **extent != 0);
    let size = nonzero.copied().try_fold(dtype.bytes(), u64::checked_mul)?;
    Some(if shape.contains(&0) { 0 } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scalar_has_one_element() {
        assert_eq!(TensorBox::whole("lr", Dtype::F64, vec![]).bytes(), Some(8));
    }

    #[test]
    fn rows_are_a_part_along_the_first_dimension() {
        let part = TensorBox::rows("w", Dtype::F32, vec![10, 3], 4..6);
        assert_eq!(
            (part.offset.as_slice(), part.shape.as_slice()),
            (&[4, 0][..], &[2, 3][..])
        );
        assert_eq!((part.check(), part.bytes()), (Ok(()), Some(24)));
    }

    #[test]
    fn a_box_outside_its_tensor_is_refused() {
        let outside = TensorBox::rows("w", Dtype::F32, vec![10, 3], 8..11);
        assert!(matches!(outside.check(), Err(BoxError::Outside { dim: 0, .. })));
        let mut wrapped = TensorBox::rows("w", Dtype::F32, vec![10, 3], 8..9);
        wrapped.offset[0] = u64::MAX;
        wrapped.shape[0] = 2;
        assert!(matches!(wrapped.check(), Err(BoxError::Outside { dim: 0, .. })));
    }

    #[test]
    fn sizes_beyond_64_bits_are_refused_even_when_empty() {
        for shape in [vec![u64::MAX, 2], vec![u64::MAX, 2, 0]] {
            let huge = TensorBox::whole("w", Dtype::F32, shape);
            assert!(matches!(huge.check(), Err(BoxError::TooLarge { .. })));
        }
    }

    #[test]
    fn names_and_dimensions_have_bounds() {
        for name in ["", "a\nb", &"x".repeat(MAX_NAME_BYTES + 1)] {
            let named = TensorBox::whole(name, Dtype::U8, vec![1]);
            assert!(matches!(named.check(), Err(BoxError::Name { .. })), "{name:?}");
        }
        let deep = TensorBox::whole("w", Dtype::U8, vec![1; MAX_DIMS + 1]);
        assert!(matches!(deep.check(), Err(BoxError::Dims { .. })));
    }
}

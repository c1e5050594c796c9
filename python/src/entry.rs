//! Part of a tensor as Python describes it: a box and the address of its bytes.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rankguard_checkpoint_format::{Dtype, TensorBox};

use crate::memory::BorrowedMemory;

/// Name, element type, global shape, offset, shape, address, bytes, owner, replica number of the part.
pub(crate) type TensorTuple = (
    String,
    String,
    Vec<u64>,
    Vec<u64>,
    Vec<u64>,
    usize,
    usize,
    Py<PyAny>,
    u32,
);

/// Part of a tensor with its bytes.
#[derive(Debug)]
pub(crate) struct TensorInput {
    pub(crate) boxed: TensorBox,
    pub(crate) data: BorrowedMemory,
    pub(crate) replica: u32,
}

/// Converts the descriptions from Python; every error names the tensor.
pub(crate) fn entries(told: Vec<TensorTuple>) -> PyResult<Vec<TensorInput>> {
    told.into_iter().map(entry).collect()
}

fn entry(
    (name, dtype, global_shape, offset, shape, address, bytes, owner, replica): TensorTuple,
) -> PyResult<TensorInput> {
    let wrong = |what: String| PyValueError::new_err(format!("tensor {name}: {what}"));
    let dtype: Dtype = dtype.parse().map_err(|problem| wrong(format!("{problem}")))?;
    let boxed = TensorBox {
        name: name.clone(),
        dtype,
        global_shape,
        offset,
        shape,
    };
    boxed.check().map_err(|problem| wrong(problem.to_string()))?;
    if boxed.bytes() != Some(bytes as u64) {
        return Err(wrong(format!("{bytes} bytes are not what its shape and type make")));
    }
    Ok(TensorInput {
        boxed,
        data: BorrowedMemory::new(address, bytes, owner)?,
        replica,
    })
}

//! Reader of one item of a `.distcp` file: a tensor or a value.

use rankguard_checkpoint::format::{Dtype, MAX_DIMS};
use rankguard_pickle::{ObjectPolicy, ParseLimits, PickleTree, PickledValue, ValueId};
use serde_json::Value;

use super::archive::{ArchiveError, ArchiveReader, RecordRange};
use super::values;
use super::walk::{TreeWalk, dtype_of};
use crate::volume::StridedLayout;

/// Maximum pickle size of one item in bytes. A tensor takes some hundred bytes; a value may be a long list.
const MAX_PICKLE: u64 = 32 << 20;

/// Maximum size in bytes of a tensor that is converted to row-major order in memory.
const MAX_TURNED: u64 = 1 << 30;

/// Step budget for the values of one item.
const STEPS: u64 = 4 << 20;

/// Location and type of a tensor's bytes.
#[derive(Debug)]
pub(crate) struct TensorItem {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<u64>,
    /// Offset of its first element in the file, in bytes.
    pub(crate) offset: u64,
    /// Layout of its elements, if they are not in row-major order.
    pub(crate) strided: Option<StridedLayout>,
    /// Record that holds its bytes, by name and position.
    pub(crate) record: (String, RecordRange),
}

/// Reason why an item is not imported.
#[derive(Debug)]
pub(crate) enum ItemError {
    /// The item is damaged or malformed.
    Broken(ArchiveError),
    /// The item is intact but has no representation in a checkpoint.
    Unfit(String),
}

impl From<ArchiveError> for ItemError {
    fn from(error: ArchiveError) -> Self {
        Self::Broken(error)
    }
}

fn unfit<T>(what: impl Into<String>) -> Result<T, ItemError> {
    Err(ItemError::Unfit(what.into()))
}

fn with_pickle<T>(
    archive: &ArchiveReader<'_>,
    read: impl FnOnce(&PickleTree<'_>) -> Result<T, ItemError>,
) -> Result<T, ItemError> {
    let found = archive.read("data.pkl", MAX_PICKLE)?;
    let (bytes, _) = found.ok_or(ArchiveError::Shape("no data.pkl in it"))?;
    let limits = ParseLimits {
        values: 4 << 20,
        memo: 4 << 20,
        ..ParseLimits::default()
    };
    match rankguard_pickle::read(&bytes, &limits, ObjectPolicy::Describe) {
        Ok(unpickled) if unpickled.cut.is_none() => read(&unpickled.tree),
        Ok(_) => Err(ArchiveError::Shape("its pickle breaks off").into()),
        Err(error) => unfit(format!("its pickle cannot be read: {error}")),
    }
}

/// Reads a value that is not a tensor, as JSON, with notes on conversions.
pub(crate) fn value(archive: &ArchiveReader<'_>) -> Result<(Value, Vec<String>), ItemError> {
    with_pickle(archive, |tree| {
        let mut walk = TreeWalk::new(tree, STEPS);
        values::to_json(&mut walk, tree.root).map_err(ItemError::Unfit)
    })
}

/// Reads the location and shape of a tensor.
pub(crate) fn tensor(archive: &ArchiveReader<'_>) -> Result<TensorItem, ItemError> {
    if let Some((order, _)) = archive.read("byteorder", 16)?
        && order != b"little"
    {
        return unfit("its bytes are not little-endian");
    }
    with_pickle(archive, |tree| {
        let mut walk = TreeWalk::new(tree, STEPS);
        let rebuilt = rebuilt(&mut walk, tree.root, 2)?;
        rebuilt.place(archive)
    })
}

/// Tensor as described by its pickle.
struct RebuiltTensor {
    dtype: Dtype,
    /// Name of the record that holds its storage.
    record: String,
    /// Offset in the storage, in elements.
    storage_offset: u64,
    shape: Vec<u64>,
    stride: Vec<u64>,
}

/// Parses `torch._utils._rebuild_tensor_v2(storage, offset, size, stride, ...)`, `_v3` (with a separate element type),
/// or `_rebuild_parameter` around one of them.
fn rebuilt(walk: &mut TreeWalk<'_>, id: ValueId, depth: u32) -> Result<RebuiltTensor, ItemError> {
    let tree = walk.tree;
    let Some(made) = walk.object(id) else {
        return unfit("is no tensor");
    };
    let args = tree.items(made.args).unwrap_or(&[]);
    let (module, name) = made.class;
    match (module, name, args) {
        ("torch._utils", "_rebuild_parameter", [inner, ..]) if depth > 0 => rebuilt(walk, *inner, depth - 1),
        ("torch._utils", "_rebuild_tensor_v2" | "_rebuild_tensor", [storage, offset, size, stride, ..]) => {
            let parts = [*storage, *offset, *size, *stride];
            let found = strided(walk, parts, None);
            found.unwrap_or_else(|| unfit("its description cannot be read"))
        }
        ("torch._utils", "_rebuild_tensor_v3", [storage, offset, size, stride, _, _, dtype, ..]) => {
            let parts = [*storage, *offset, *size, *stride];
            let dtype = walk.dtype(*dtype);
            let found = dtype.and_then(|dtype| strided(walk, parts, Some(dtype)));
            found.unwrap_or_else(|| unfit("its description cannot be read"))
        }
        _ => unfit(format!("is made by {module}.{name}, which is not read here")),
    }
}

type RebuildResult = Result<RebuiltTensor, ItemError>;

fn strided(
    walk: &mut TreeWalk<'_>,
    [storage, offset, size, stride]: [ValueId; 4],
    dtype: Option<Result<Dtype, String>>,
) -> Option<RebuildResult> {
    let tree = walk.tree;
    let PickledValue::Persistent(named) = tree.node(storage) else {
        return None;
    };
    let [kind, class, key, ..] = tree.items(*named)? else {
        return None;
    };
    if walk.text(*kind)? != "storage" {
        return None;
    }
    let (_, class) = walk.global(*class)?;
    let dtype = match dtype {
        Some(dtype) => dtype,
        None => storage_dtype(class).ok_or_else(|| class.chars().take(64).collect()),
    };
    let dtype = match dtype {
        Ok(dtype) => dtype,
        Err(name) => return Some(unfit(format!("its element type {name} cannot be kept"))),
    };
    Some(Ok(RebuiltTensor {
        dtype,
        record: format!("data/{}", walk.text(*key)?),
        storage_offset: walk.whole(offset)?,
        shape: walk.size(size)?,
        stride: walk.size(stride)?,
    }))
}

/// Returns the element type of a storage class such as `torch.FloatStorage`.
fn storage_dtype(class: &str) -> Option<Dtype> {
    dtype_of(match class {
        "DoubleStorage" => "float64",
        "FloatStorage" => "float32",
        "HalfStorage" => "float16",
        "BFloat16Storage" => "bfloat16",
        "LongStorage" => "int64",
        "IntStorage" => "int32",
        "ShortStorage" => "int16",
        "CharStorage" => "int8",
        "ByteStorage" => "uint8",
        "BoolStorage" => "bool",
        "ComplexFloatStorage" => "complex64",
        _ => return None,
    })
}

impl RebuiltTensor {
    fn place(self, archive: &ArchiveReader<'_>) -> Result<TensorItem, ItemError> {
        let found = archive.record(&self.record)?;
        let record = found.ok_or(ArchiveError::Shape("the record of its storage is missing"))?;
        let outside = || ItemError::Broken(ArchiveError::Shape("its elements lie outside of its storage"));
        if self.shape.len() != self.stride.len() || self.shape.len() > MAX_DIMS {
            return unfit("its shape and its strides have different dimensions");
        }
        let width = self.dtype.bytes();
        let skip = self.storage_offset.checked_mul(width).ok_or_else(outside)?;
        let span = self
            .span()
            .and_then(|span| span.checked_mul(width))
            .ok_or_else(outside)?;
        if skip.checked_add(span).is_none_or(|end| end > record.bytes) {
            return Err(outside());
        }
        let strided = if self.is_in_rows() {
            None
        } else {
            let count = self
                .shape
                .iter()
                .try_fold(width, |bytes, extent| bytes.checked_mul(*extent));
            if span > MAX_TURNED || count.is_none_or(|bytes| bytes > MAX_TURNED) {
                return unfit(format!(
                    "its elements do not lie in rows, and it is larger than {MAX_TURNED} bytes"
                ));
            }
            Some(StridedLayout {
                shape: self.shape.clone(),
                stride: self.stride,
                width,
                span,
            })
        };
        Ok(TensorItem {
            dtype: self.dtype,
            shape: self.shape,
            offset: record.offset + skip,
            strided,
            record: (self.record, record),
        })
    }

    /// Returns the number of elements from the first to the last; `None` beyond 64 bits.
    fn span(&self) -> Option<u64> {
        if self.shape.contains(&0) {
            return Some(0);
        }
        let reach = |sum: u64, (extent, stride): (&u64, &u64)| sum.checked_add((extent - 1).checked_mul(*stride)?);
        self.shape.iter().zip(&self.stride).try_fold(1, reach)
    }

    /// Returns true if the elements are contiguous in row-major order; the stride of a dimension of extent one is
    /// ignored.
    fn is_in_rows(&self) -> bool {
        if self.shape.contains(&0) {
            return true;
        }
        let mut expected = Some(1u64);
        self.shape.iter().zip(&self.stride).rev().all(|(extent, stride)| {
            let fits = *extent == 1 || expected == Some(*stride);
            expected = expected.and_then(|step| step.checked_mul(*extent));
            fits
        })
    }
}

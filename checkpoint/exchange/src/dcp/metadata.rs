//! Parser of `.metadata`, the table of contents of a DCP directory.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_checkpoint::format::Dtype;
use rankguard_pickle::{ObjectPolicy, ParseLimits, PickledValue, ValueId};

use super::walk::TreeWalk;

/// Maximum size of `.metadata` in bytes.
pub(crate) const MAX_BYTES: usize = 512 << 20;

/// Step budget for its values; a checkpoint of a million chunks needs far fewer.
const STEPS: u64 = 1 << 28;

/// Table of contents of a DCP directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DcpMetadata {
    /// Tensors by name.
    pub tensors: BTreeMap<String, DcpTensor>,
    /// Names of values that are not tensors.
    pub values: BTreeSet<String>,
    /// Location of every item by name, and of a chunk by name and offset.
    pub places: BTreeMap<(String, Option<Vec<u64>>), ItemLocation>,
    /// Entries that cannot be read: name and reason.
    pub odd: Vec<(String, String)>,
}

/// Tensor and its chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DcpTensor {
    /// Element type, or PyTorch's name of it if a checkpoint cannot hold it.
    pub dtype: Result<Dtype, String>,
    pub size: Vec<u64>,
    /// Chunks that were written.
    pub chunks: Vec<DcpChunk>,
}

/// Box of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DcpChunk {
    /// Start in each dimension, in elements.
    pub offsets: Vec<u64>,
    /// Extent in each dimension, in elements.
    pub sizes: Vec<u64>,
}

/// Location of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemLocation {
    /// Path of the file, relative to the directory.
    pub file: String,
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Size in bytes.
    pub length: u64,
    /// True if the bytes were transformed (compressed), which this reader does not undo.
    pub is_transformed: bool,
}

/// Error of parsing the table of contents.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum MetadataError {
    #[error(transparent)]
    Pickle(#[from] rankguard_pickle::Error),
    #[error("the pickle breaks off at byte {offset}")]
    Cut { offset: usize },
    #[error("no DCP metadata: {what}")]
    Shape { what: &'static str },
    #[error("uses its values more often than {STEPS} times")]
    Work,
}

impl DcpMetadata {
    /// Parses the pickle without importing or calling anything in it.
    pub fn parse(bytes: &[u8]) -> Result<Self, MetadataError> {
        // Some forty values a chunk: enough for 1.5 million chunks, and at most three gigabytes for a hostile file.
        let limits = ParseLimits {
            bytes: MAX_BYTES,
            values: 1 << 26,
            memo: 1 << 26,
            ..ParseLimits::default()
        };
        let read = rankguard_pickle::read(bytes, &limits, ObjectPolicy::Describe)?;
        if let Some(offset) = read.cut {
            return Err(MetadataError::Cut { offset });
        }
        let mut walk = TreeWalk::new(&read.tree, STEPS);
        let mut found = Self::default();
        let shape = |what| MetadataError::Shape { what };
        let root = walk
            .fields(read.tree.root, "Metadata")
            .ok_or_else(|| shape("the outermost value is no Metadata of torch.distributed.checkpoint"))?;
        let part = |name| root.get(&read.tree, name);
        let contents = part("state_dict_metadata").ok_or_else(|| shape("no state_dict_metadata"))?;
        let storage = part("storage_data").ok_or_else(|| shape("no storage_data"))?;
        for (name, value) in pairs(&mut walk, contents)?.ok_or_else(|| shape("state_dict_metadata is no dictionary"))? {
            found.entry(&mut walk, name, value)?;
        }
        for (index, info) in pairs(&mut walk, storage)?.ok_or_else(|| shape("storage_data is no dictionary"))? {
            found.place(&mut walk, index, info)?;
        }
        Ok(found)
    }

    fn entry(&mut self, walk: &mut TreeWalk<'_>, name: ValueId, value: ValueId) -> Result<(), MetadataError> {
        walk.spend(1).ok_or(MetadataError::Work)?;
        let Some(name) = walk.text(name) else {
            self.odd
                .push((String::new(), "an entry whose name is no text".to_owned()));
            return Ok(());
        };
        match walk.object(value).map(|made| made.class.1) {
            Some("BytesStorageMetadata") => {
                self.values.insert(name.to_owned());
            }
            Some("TensorStorageMetadata") => match tensor(walk, value) {
                Some(tensor) => {
                    self.tensors.insert(name.to_owned(), tensor);
                }
                None => {
                    walk.spend(1).ok_or(MetadataError::Work)?;
                    let what = "its metadata has no type, size and chunks that can be read".to_owned();
                    self.odd.push((name.to_owned(), what));
                }
            },
            _ => {
                let what = "is neither a tensor nor bytes by its metadata".to_owned();
                self.odd.push((name.to_owned(), what));
            }
        }
        Ok(())
    }

    fn place(&mut self, walk: &mut TreeWalk<'_>, index: ValueId, info: ValueId) -> Result<(), MetadataError> {
        walk.spend(1).ok_or(MetadataError::Work)?;
        match place(walk, index, info) {
            Some((key, place)) => {
                self.places.insert(key, place);
            }
            None => {
                walk.spend(1).ok_or(MetadataError::Work)?;
                let what = "an entry of storage_data that cannot be read".to_owned();
                self.odd.push(("storage_data".to_owned(), what));
            }
        }
        Ok(())
    }
}

type DictPairs<'t> = Option<Vec<(ValueId, ValueId)>>;

fn pairs<'t>(walk: &mut TreeWalk<'t>, id: ValueId) -> Result<DictPairs<'t>, MetadataError> {
    let PickledValue::Dict(flat) = walk.tree.node(id) else {
        return Ok(None);
    };
    walk.spend(flat.len()).ok_or(MetadataError::Work)?;
    Ok(Some(flat.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()))
}

fn tensor(walk: &mut TreeWalk<'_>, id: ValueId) -> Option<DcpTensor> {
    let tree = walk.tree;
    let fields = walk.fields(id, "TensorStorageMetadata")?;
    let properties = walk.object(fields.get(tree, "properties")?)?;
    // The state of TensorProperties is a tuple of five or six; the element type is the first.
    let dtype = match tree.node(properties.state) {
        PickledValue::Tuple(_) => *tree.items(properties.state)?.first()?,
        _ => walk
            .fields(fields.get(tree, "properties")?, "TensorProperties")?
            .get(tree, "dtype")?,
    };
    let dtype = walk.dtype(dtype)?;
    let size = walk.size(fields.get(tree, "size")?)?;
    let listed = tree.items(fields.get(tree, "chunks")?)?;
    walk.spend(listed.len())?;
    let chunk = |id: &ValueId| {
        let fields = walk.fields(*id, "ChunkStorageMetadata")?;
        Some(DcpChunk {
            offsets: walk.size(fields.get(tree, "offsets")?)?,
            sizes: walk.size(fields.get(tree, "sizes")?)?,
        })
    };
    let chunks = listed.iter().map(chunk).collect::<Option<Vec<_>>>()?;
    Some(DcpTensor { dtype, size, chunks })
}

type KeyedLocation = ((String, Option<Vec<u64>>), ItemLocation);

fn place(walk: &mut TreeWalk<'_>, index: ValueId, info: ValueId) -> Option<KeyedLocation> {
    let tree = walk.tree;
    let index = walk.fields(index, "MetadataIndex")?;
    let name = walk.text(index.get(tree, "fqn")?)?.to_owned();
    let offset = match index.get(tree, "offset") {
        Some(offset) if !tree.is_none(offset) => Some(walk.size(offset)?),
        _ => None,
    };
    let info = walk.fields(info, "_StorageInfo")?;
    let transforms = info.get(tree, "transform_descriptors");
    let transforms = transforms.filter(|id| tree.items(*id).is_none_or(|items| !items.is_empty()));
    let place = ItemLocation {
        file: walk.text(info.get(tree, "relative_path")?)?.to_owned(),
        offset: walk.whole(info.get(tree, "offset")?)?,
        length: walk.whole(info.get(tree, "length")?)?,
        is_transformed: transforms.is_some_and(|id| !tree.is_none(id)),
    };
    Some(((name, offset), place))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_metadata_is_told() {
        let error = |bytes: &[u8]| DcpMetadata::parse(bytes).expect_err("no metadata");
        assert!(matches!(error(b""), MetadataError::Pickle(_)));
        assert!(matches!(error(b"]."), MetadataError::Shape { .. }));
        assert!(matches!(
            error(b"cos\nsystem\n(S'id'\ntR."),
            MetadataError::Shape { .. }
        ));
        let other = b"cevil.checkpoint\nMetadata\n)R}b.";
        assert!(matches!(error(other), MetadataError::Shape { .. }));
    }

    /// Many tensors share one list of chunks: a few kilobytes that expand to a great many chunks.
    #[test]
    fn one_list_that_is_used_many_times_has_a_bound() {
        let text = |text: &str| [b"X", (text.len() as u32).to_le_bytes().as_slice(), text.as_bytes()].concat();
        let mut pickle = b"\x80\x02ctorch.x\nMetadata\n)\x81}(".to_vec();
        pickle.extend(text("state_dict_metadata"));
        pickle.extend(b"}(");
        for nth in 0..300 {
            pickle.extend(text(&format!("w{nth}")));
            if nth == 0 {
                pickle.extend(b"ctorch.x\nTensorStorageMetadata\n)\x81}(");
                pickle.extend(text("properties"));
                pickle.extend(b"ctorch.x\nTensorProperties\n)\x81ctorch\nfloat32\n\x85b");
                pickle.extend(text("size"));
                pickle.extend(b")");
                pickle.extend(text("chunks"));
                pickle.extend(b"](ctorch.x\nChunkStorageMetadata\n)\x81}(");
                pickle.extend(text("offsets"));
                pickle.extend(b")");
                pickle.extend(text("sizes"));
                pickle.extend(b")ubq\x01");
                pickle.extend(b"h\x01".repeat(2_000));
                pickle.extend(b"eubq\x02");
            } else {
                pickle.extend(b"h\x02");
            }
        }
        pickle.extend(b"u");
        pickle.extend(text("storage_data"));
        pickle.extend(b"}ub.");
        let read = DcpMetadata::parse(&pickle).expect("within the bound");
        assert_eq!(read.tensors["w299"].chunks.len(), 2_001);
        let mut walk_out = 0;
        let limits = ParseLimits::default();
        let tree = rankguard_pickle::read(&pickle, &limits, ObjectPolicy::Describe)
            .expect("read")
            .tree;
        let mut walk = TreeWalk::new(&tree, 5_000);
        let PickledValue::Object { state, .. } = tree.node(tree.root) else {
            panic!("an object")
        };
        let contents = tree.pairs(*state).expect("fields").next().expect("one").1;
        for (_, value) in tree.pairs(contents).expect("tensors") {
            walk_out += usize::from(tensor(&mut walk, value).is_none());
        }
        assert!(walk_out >= 299, "steps are counted");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = DcpMetadata::parse(&bytes);
        }
    }
}

//! Export of a committed checkpoint as a directory for `torch.distributed.checkpoint.load`.

use std::fs;
use std::path::PathBuf;

use rankguard_checkpoint::format::TensorBox;
use rankguard_checkpoint::{Checkpoint, Store};

use super::METADATA_FILE;
use super::flatten::{FlatItem, flatten};
use super::table::{self, TableRow};
use crate::archive_plan::{self, ArchivePlan, ArchiveSequence};
use crate::export::{ExportReport, ExportRequest};
use crate::files::{self, StagedOutput};
use crate::pickle_writer::{PickleWriter, StorageSource, TensorSpec};
use crate::pieces::pieces;
use crate::problem::ProblemList;
use crate::python_value::PythonValue;
use crate::state_tree::StateTree;
use crate::torch_file;
use crate::{ExchangeError, ProgressCallback};

/// Maximum chunk size in bytes: a reader holds one chunk in memory.
const CHUNK_BYTES: u64 = 512 << 20;

/// Writes the selected state, tensors in chunks of at most 512 MiB. The directory appears under its name once all of it
/// is on disk; the table of contents is written last. Every byte is compared with the digest of its chunk (RG-2).
pub fn export(
    store: &Store,
    checkpoint: &Checkpoint,
    request: &ExportRequest<'_>,
    progress: ProgressCallback<'_>,
) -> Result<ExportReport, ExchangeError> {
    let draft = StagedOutput::of(request.out, request.is_replacing)?;
    let mut problems = ProblemList::default();
    let tree = StateTree::of(checkpoint, &request.selection, &mut problems)?;
    let items = flatten(&tree.value)?;
    let mut export = DcpExport::new(&tree);
    items.iter().for_each(|item| export.add(item));
    let DcpExport {
        plans, rows, wanted, ..
    } = export;

    fs::create_dir(&draft.path).map_err(ExchangeError::io("create", &draft.path))?;
    let numbers = archive_plan::file_numbers(&plans, request.file_bytes);
    let count = numbers.last().map_or(0, |last| last + 1);
    let names: Vec<String> = (0..count).map(|nth| format!("__0_{nth}.distcp")).collect();
    let files = archive_plan::create(names.iter().map(|name| draft.path.join(name)).collect())?;
    let sequence = ArchiveSequence::new(plans, &numbers, &files);
    let (repairs, places) = torch_file::write(store, checkpoint, &wanted, sequence, progress)?;

    let table = table::table(&items, &tree.tensors, &rows, &places, &names);
    files::whole_file(&draft.path.join(METADATA_FILE), &table)?;
    files::sync_dir(&draft.path)?;
    let mut written: Vec<PathBuf> = names.iter().map(|name| request.out.join(name)).collect();
    written.push(request.out.join(METADATA_FILE));
    draft.put()?;
    Ok(ExportReport {
        files: written,
        tensors: tree.tensors.len() as u64,
        bytes: tree.tensors.values().filter_map(TensorBox::bytes).sum(),
        repairs,
        problems: problems.into_vec(),
    })
}

struct DcpExport<'a> {
    tree: &'a StateTree,
    plans: Vec<ArchivePlan>,
    /// Table row of each archive plan.
    rows: Vec<TableRow>,
    /// Boxes to stream; the index is the tensor number.
    wanted: Vec<TensorBox>,
}

impl<'a> DcpExport<'a> {
    fn new(tree: &'a StateTree) -> Self {
        Self {
            tree,
            plans: Vec::new(),
            rows: Vec::new(),
            wanted: Vec::new(),
        }
    }

    fn add(&mut self, item: &FlatItem<'_>) {
        match item.value {
            PythonValue::Tensor(name) => {
                let Some(whole) = self.tree.tensors.get(name) else {
                    return;
                };
                for (index, chunk) in chunks(whole).into_iter().enumerate() {
                    self.add_chunk(&item.name, index, chunk);
                }
            }
            value => self.add_value(&item.name, value),
        }
    }

    fn add_chunk(&mut self, name: &str, index: usize, chunk: TensorBox) {
        let mut writer = PickleWriter::new();
        writer.tensor(TensorSpec {
            dtype: chunk.dtype,
            shape: &chunk.shape,
            source: StorageSource::Streamed {
                number: self.wanted.len(),
                bytes: chunk.bytes().unwrap_or(0),
            },
        });
        self.push(writer);
        self.rows.push(TableRow {
            name: name.to_owned(),
            chunk: Some((index, chunk.offset.clone(), chunk.shape.clone())),
        });
        self.wanted.push(chunk);
    }

    fn add_value(&mut self, name: &str, value: &PythonValue) {
        let tensors = &self.tree.tensors;
        let wanted = &mut self.wanted;
        let mut writer = PickleWriter::new();
        writer.value(value, &mut |tensor| {
            let boxed = tensors.get(tensor)?;
            wanted.push(boxed.clone());
            Some(TensorSpec {
                dtype: boxed.dtype,
                shape: &boxed.global_shape,
                source: StorageSource::Streamed {
                    number: wanted.len() - 1,
                    bytes: boxed.bytes().unwrap_or(0),
                },
            })
        });
        self.push(writer);
        self.rows.push(TableRow {
            name: name.to_owned(),
            chunk: None,
        });
    }

    fn push(&mut self, writer: PickleWriter) {
        let (pickle, storages) = writer.finish();
        self.plans.push(ArchivePlan { pickle, storages });
    }
}

/// Returns the chunks of a tensor; an empty tensor has one empty chunk.
fn chunks(whole: &TensorBox) -> Vec<TensorBox> {
    let found = pieces(whole, CHUNK_BYTES);
    if found.is_empty() { vec![whole.clone()] } else { found }
}

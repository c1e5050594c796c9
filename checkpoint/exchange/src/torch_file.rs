//! A committed checkpoint as one file for `torch.load(weights_only=True)`.
//!
//! ```text
//! zip archive, nothing compressed: archive/data.pkl | byteorder | data/0 data/1 ... | version
//! ```
//!
//! `data.pkl` is the state with its containers and plain values; every tensor is whole, contiguous, on the CPU and has
//! a separate storage (tied tensors are written once for each name). The pickle is written, never read or executed.

use std::path::PathBuf;

use rankguard_checkpoint::format::TensorBox;
use rankguard_checkpoint::{Checkpoint, Store};

use crate::archive_plan::{self, ArchivePlan, ArchiveSequence};
use crate::export::{ExportReport, ExportRequest};
use crate::files::StagedOutput;
use crate::pickle_writer::{PickleWriter, StorageSource, TensorSpec};
use crate::pieces::stream;
use crate::problem::ProblemList;
use crate::state_tree::StateTree;
use crate::{ExchangeError, ProgressCallback};

/// Writes the selected state; the file appears under its name once all of it is on disk. Every byte is compared with
/// the digest of its chunk (RG-2).
pub fn export(
    store: &Store,
    checkpoint: &Checkpoint,
    request: &ExportRequest<'_>,
    progress: ProgressCallback<'_>,
) -> Result<ExportReport, ExchangeError> {
    let draft = StagedOutput::of(request.out, request.is_replacing)?;
    let mut problems = ProblemList::default();
    let tree = StateTree::of(checkpoint, &request.selection, &mut problems)?;
    let mut wanted: Vec<TensorBox> = Vec::new();
    let mut writer = PickleWriter::new();
    writer.value(&tree.value, &mut |name| {
        let boxed = tree.tensors.get(name)?;
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
    let (pickle, storages) = writer.finish();
    let files = archive_plan::create(vec![draft.path.clone()])?;
    let sequence = ArchiveSequence::new(vec![ArchivePlan { pickle, storages }], &[0], &files);
    let (repairs, _) = write(store, checkpoint, &wanted, sequence, progress)?;
    draft.put()?;
    Ok(ExportReport {
        files: vec![PathBuf::from(request.out)],
        tensors: wanted.len() as u64,
        bytes: wanted.iter().filter_map(TensorBox::bytes).sum(),
        repairs,
        problems: problems.into_vec(),
    })
}

/// Streams `wanted` through a sequence of archives; returns repairs and the position of each archive.
pub(crate) fn write(
    store: &Store,
    checkpoint: &Checkpoint,
    wanted: &[TensorBox],
    mut sequence: ArchiveSequence<'_>,
    progress: ProgressCallback<'_>,
) -> Result<(Vec<String>, Vec<archive_plan::ArchivePlace>), ExchangeError> {
    let total = wanted.iter().filter_map(TensorBox::bytes).sum();
    let mut done = 0;
    let repairs = stream(store, checkpoint, wanted, &mut |number, bytes| {
        sequence.write(number, bytes)?;
        done += bytes.len() as u64;
        progress(done, total);
        Ok(())
    })?;
    Ok((repairs, sequence.finish()?))
}

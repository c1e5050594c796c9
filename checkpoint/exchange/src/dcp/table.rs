//! Writer of `.metadata`, the table of contents of a `torch.distributed.checkpoint` directory.

use std::collections::BTreeMap;

use rankguard_checkpoint::format::{Dtype, TensorBox};

use super::flatten::{FlatItem, PathPart};
use crate::archive_plan::ArchivePlace;
use crate::pickle_writer::{PickleWriter, torch_name};
use crate::python_value::PythonValue;

/// Python module of the classes in the table.
const METADATA: &str = "torch.distributed.checkpoint.metadata";

/// Format version, which selects how a reader flattens its state.
const VERSION: &str = "1.0.0";

/// Content of one archive of the directory: a chunk of a tensor (number, offset, shape), or a
/// value.
#[derive(Debug)]
pub(super) struct TableRow {
    pub(super) name: String,
    pub(super) chunk: Option<(usize, Vec<u64>, Vec<u64>)>,
}

/// Offset and shape of a part of a tensor.
type ChunkExtent<'a> = (&'a [u64], &'a [u64]);

/// Returns the pickle of the table; `rows` and `places` have the same order.
pub(super) fn table(
    items: &[FlatItem<'_>],
    tensors: &BTreeMap<String, TensorBox>,
    rows: &[TableRow],
    places: &[ArchivePlace],
    files: &[String],
) -> Vec<u8> {
    let mut chunks: BTreeMap<&str, Vec<ChunkExtent<'_>>> = BTreeMap::new();
    for row in rows {
        if let Some((_, offset, shape)) = &row.chunk {
            chunks.entry(&row.name).or_default().push((offset, shape));
        }
    }
    let mut writer = PickleWriter::new();
    writer.object(METADATA, "Metadata", |writer| {
        writer.text("state_dict_metadata");
        dict(writer, items, |writer, item| {
            writer.text(&item.name);
            let boxed = match item.value {
                PythonValue::Tensor(name) => tensors.get(name),
                _ => None,
            };
            match boxed {
                Some(boxed) => tensor(writer, boxed, chunks.get(item.name.as_str()).map_or(&[], Vec::as_slice)),
                None => writer.object(METADATA, "BytesStorageMetadata", |_| ()),
            }
        });
        writer.text("planner_data");
        dict(writer, items, |writer, item| {
            writer.text(&item.name);
            writer.op(b'(');
            for part in &item.path {
                match part {
                    PathPart::Key(key) => writer.text(key),
                    PathPart::Place(place) => writer.number(*place),
                }
            }
            writer.op(b't');
        });
        writer.text("storage_data");
        let pairs: Vec<(&TableRow, &ArchivePlace)> = rows.iter().zip(places).collect();
        dict(writer, &pairs, |writer, (row, place)| {
            index(writer, row);
            storage(writer, place, files);
        });
        writer.text("storage_meta");
        writer.op(b'N');
        writer.text("version");
        writer.text(VERSION);
    });
    writer.finish().0
}

fn dict<T>(writer: &mut PickleWriter, items: &[T], mut pair: impl FnMut(&mut PickleWriter, &T)) {
    writer.op(b'}');
    writer.op(b'(');
    items.iter().for_each(|item| pair(writer, item));
    writer.op(b'u');
}

fn tensor(writer: &mut PickleWriter, boxed: &TensorBox, chunks: &[ChunkExtent<'_>]) {
    writer.object(METADATA, "TensorStorageMetadata", |writer| {
        writer.text("properties");
        properties(writer, boxed.dtype);
        writer.text("size");
        size(writer, &boxed.global_shape);
        writer.text("chunks");
        writer.op(b']');
        writer.op(b'(');
        for (offset, shape) in chunks {
            writer.object(METADATA, "ChunkStorageMetadata", |writer| {
                writer.text("offsets");
                size(writer, offset);
                writer.text("sizes");
                size(writer, shape);
            });
        }
        writer.op(b'e');
    });
}

/// Writes properties with five parts, which all versions read; torch 2.12 added the sixth, strides.
fn properties(writer: &mut PickleWriter, dtype: Dtype) {
    writer.global(METADATA, "TensorProperties");
    [b')', 0x81, b'('].into_iter().for_each(|code| writer.op(code));
    writer.global("torch", torch_name(dtype));
    call(writer, ("torch.serialization", "_get_layout"), |writer| {
        writer.text("torch.strided")
    });
    writer.bool(false);
    call(writer, (METADATA, "_MEM_FORMAT_ENCODING"), |writer| writer.int(0));
    writer.bool(false);
    writer.op(b't');
    writer.op(b'b');
}

fn size(writer: &mut PickleWriter, extents: &[u64]) {
    call(writer, ("torch", "Size"), |writer| writer.tuple_of_numbers(extents));
}

/// Writes a call of a function with one argument.
fn call(writer: &mut PickleWriter, function: (&str, &str), argument: impl FnOnce(&mut PickleWriter)) {
    writer.global(function.0, function.1);
    writer.op(b'(');
    argument(writer);
    writer.op(b't');
    writer.op(b'R');
}

fn index(writer: &mut PickleWriter, row: &TableRow) {
    writer.object(METADATA, "MetadataIndex", |writer| {
        writer.text("fqn");
        writer.text(&row.name);
        writer.text("index");
        match &row.chunk {
            Some((number, offset, _)) => {
                writer.number(*number as u64);
                writer.text("offset");
                size(writer, offset);
            }
            None => writer.op(b'N'),
        }
    });
}

fn storage(writer: &mut PickleWriter, place: &ArchivePlace, files: &[String]) {
    let module = "torch.distributed.checkpoint.filesystem";
    writer.object(module, "_StorageInfo", |writer| {
        writer.text("relative_path");
        writer.text(files.get(place.file).map_or("", String::as_str));
        writer.text("offset");
        writer.number(place.offset);
        writer.text("length");
        writer.number(place.bytes);
    });
}

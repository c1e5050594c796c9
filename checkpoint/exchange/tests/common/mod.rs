//! Checkpoints in a folder that is removed after the test.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rankguard_checkpoint::format::{CheckpointId, Dtype, TensorBox};
use rankguard_checkpoint::restore::assemble;
use rankguard_checkpoint::{Checkpoint, Store};
use rankguard_checkpoint_exchange::{ForeignCheckpoint, ImportReport, ImportTarget, import, open};
use rankguard_model::{Generation, JobId, Step};

/// Type, shape and bytes of a tensor.
pub type Tensor = (Dtype, Vec<u64>, Vec<u8>);
pub type Tensors = BTreeMap<String, Tensor>;

pub fn job() -> JobId {
    JobId::from("demo")
}

pub fn id(step: u64) -> CheckpointId {
    CheckpointId {
        step: Step(step),
        generation: Generation(1),
    }
}

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Content of the fixtures, as recorded by the script that wrote them.
pub fn expected() -> Tensors {
    let text = fs::read_to_string(fixture("expected.json")).unwrap();
    let all: BTreeMap<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    let tensor = |value: serde_json::Value| {
        let dtype = value["dtype"].as_str().unwrap().parse().unwrap();
        let shape = serde_json::from_value(value["shape"].clone()).unwrap();
        let hex = value["hex"].as_str().unwrap();
        let bytes = (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap());
        (dtype, shape, bytes.collect())
    };
    all.into_iter().map(|(name, value)| (name, tensor(value))).collect()
}

pub fn opened(path: &Path) -> ForeignCheckpoint {
    open(path, &mut |done, total| assert!(done <= total)).unwrap()
}

pub fn imported(store: &Store, path: &Path, step: u64, ranks: u32) -> (ImportReport, Checkpoint) {
    let job = job();
    let of = ImportTarget {
        job: &job,
        id: id(step),
        ranks,
    };
    let mut last = 0;
    let done = import(store, &opened(path), &of, &mut |done, total| {
        assert!(done <= total && done >= last);
        last = done;
    });
    (done.unwrap(), store.load(&job, of.id).unwrap())
}

/// Every tensor of a checkpoint, whole.
pub fn contents(store: &Store, checkpoint: &Checkpoint) -> Tensors {
    let boxes = checkpoint.indexes.iter().flat_map(|index| &index.tensors);
    let kinds: BTreeMap<String, (Dtype, Vec<u64>)> = boxes
        .map(|entry| {
            (
                entry.boxed.name.clone(),
                (entry.boxed.dtype, entry.boxed.global_shape.clone()),
            )
        })
        .collect();
    let read = |(name, (dtype, shape)): (String, (Dtype, Vec<u64>))| {
        let whole = TensorBox::whole(&name, dtype, shape.clone());
        (name, (dtype, shape, load(store, checkpoint, &[whole])))
    };
    kinds.into_iter().map(read).collect()
}

pub fn load(store: &Store, checkpoint: &Checkpoint, wanted: &[TensorBox]) -> Vec<u8> {
    let mut out = vec![0; wanted.iter().map(|boxed| boxed.bytes().unwrap() as usize).sum()];
    assemble(&checkpoint.manifest, &checkpoint.indexes, wanted, &[store], &mut out).unwrap();
    out
}

/// A safetensors file, written by hand.
pub fn safetensors(tensors: &Tensors) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for (name, (dtype, shape, bytes)) in tensors {
        let start = data.len();
        data.extend(bytes);
        header.insert(
            name.clone(),
            serde_json::json!({"dtype": dtype.name(), "shape": shape, "data_offsets": [start, data.len()]}),
        );
    }
    let json = serde_json::Value::Object(header).to_string();
    [&(json.len() as u64).to_le_bytes(), json.as_bytes(), &data].concat()
}

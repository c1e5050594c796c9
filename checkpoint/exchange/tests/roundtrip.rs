//! Export and import through safetensors preserve all data, at any world size.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;

use common::{Tensors, contents, id, imported, job, load, opened, safetensors};
use proptest::prelude::*;
use rankguard_checkpoint::Store;
use rankguard_checkpoint::format::{Dtype, TensorBox};
use rankguard_checkpoint_exchange::safetensors::export;
use rankguard_checkpoint_exchange::{DEFAULT_FILE_BYTES, ExchangeError, ExportRequest, ImportTarget, import, open};

fn tensor() -> impl Strategy<Value = (Dtype, Vec<u64>, Vec<u8>)> {
    let dtypes = vec![
        Dtype::Bool,
        Dtype::F8E5M2,
        Dtype::Bf16,
        Dtype::F32,
        Dtype::F64,
        Dtype::C64,
    ];
    let shape = proptest::collection::vec(0u64..9, 0..4);
    (proptest::sample::select(dtypes), shape).prop_flat_map(|(dtype, shape)| {
        let bytes = (shape.iter().product::<u64>() * dtype.bytes()) as usize;
        proptest::collection::vec(any::<u8>(), bytes).prop_map(move |bytes| (dtype, shape.clone(), bytes))
    })
}

fn some_tensors() -> impl Strategy<Value = Tensors> {
    proptest::collection::btree_map("[a-zé.]{1,8}", tensor(), 1..8)
}

/// The request of a rank of `world`: its rows of every tensor that has rows.
fn rows(tensors: &Tensors, rank: u64, world: u64) -> (Vec<TensorBox>, Vec<u8>) {
    let mut boxes = Vec::new();
    let mut bytes = Vec::new();
    for (name, (dtype, shape, content)) in tensors {
        let Some(&count) = shape.first() else { continue };
        let part = count * rank / world..count * (rank + 1) / world;
        let width = content.len() as u64 / count.max(1);
        bytes.extend_from_slice(&content[(part.start * width) as usize..(part.end * width) as usize]);
        boxes.push(TensorBox::rows(name, *dtype, shape.clone(), part));
    }
    (boxes, bytes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn import_then_export_then_import_gives_the_same_tensors(
        tensors in some_tensors(),
        ranks in 1u32..6,
        others in 1u32..6,
        file_bytes in prop_oneof![Just(DEFAULT_FILE_BYTES), 1u64..400],
    ) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store")).unwrap();
        let file = dir.path().join("in.safetensors");
        fs::write(&file, safetensors(&tensors)).unwrap();
        let (done, first) = imported(&store, &file, 1, ranks);
        prop_assert_eq!(done.problems, vec![]);
        prop_assert_eq!(&contents(&store, &first), &tensors);
        // Another world size reads the same bytes.
        for rank in 0..others {
            let (wanted, bytes) = rows(&tensors, rank.into(), others.into());
            prop_assert_eq!(load(&store, &first, &wanted), bytes);
        }
        let out = dir.path().join("out");
        let exported = export(&store, &first, &ExportRequest { file_bytes, ..ExportRequest::new(&out) }, &mut |_, _| ()).unwrap();
        prop_assert!(exported.files.iter().all(|file| file.is_file()));
        let (_, second) = imported(&store, &out, 2, others);
        prop_assert_eq!(&contents(&store, &second), &tensors);
    }
}

fn two() -> Tensors {
    BTreeMap::from([
        ("a".to_owned(), (Dtype::F32, vec![4, 2], (0..32).collect())),
        ("b".to_owned(), (Dtype::U8, vec![3], vec![7, 8, 9])),
    ])
}

#[test]
fn an_exported_file_carries_digests_that_an_import_compares() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store")).unwrap();
    let file = dir.path().join("in.safetensors");
    fs::write(&file, safetensors(&two())).unwrap();
    let (_, checkpoint) = imported(&store, &file, 1, 2);
    let out = dir.path().join("out.safetensors");
    let of = ExportRequest {
        file_bytes: 1,
        ..ExportRequest::new(&out)
    };
    let done = export(&store, &checkpoint, &of, &mut |_, _| ()).unwrap();
    assert_eq!(
        (done.files.as_slice(), done.tensors, done.bytes),
        ([out.clone()].as_slice(), 2, 35)
    );
    let whole = fs::read(&out).unwrap();
    for at in whole.len() - 35..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(&out, damaged).unwrap();
        let error = open(&out, &mut |_, _| ()).expect_err("damaged");
        assert!(matches!(error, ExchangeError::Damaged { .. }), "{error}");
    }
    let again = export(&store, &checkpoint, &of, &mut |_, _| ());
    assert!(matches!(again, Err(ExchangeError::AlreadyThere { .. })));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "nothing is left behind");
}

/// RG-2: damaged data in the store is not exported.
#[test]
fn rg_2_a_damaged_checkpoint_gives_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store")).unwrap();
    let file = dir.path().join("in.safetensors");
    fs::write(&file, safetensors(&two())).unwrap();
    let (_, checkpoint) = imported(&store, &file, 1, 1);
    let shard = store.shard_path(&job(), id(1), rankguard_model::Rank(0)).unwrap();
    let mut bytes = fs::read(&shard).unwrap();
    bytes[3] ^= 1;
    fs::write(&shard, bytes).unwrap();
    let out = dir.path().join("out");
    let of = ExportRequest::new(&out);
    assert!(matches!(
        export(&store, &checkpoint, &of, &mut |_, _| ()),
        Err(ExchangeError::Restore(_))
    ));
    assert!(!out.exists());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left behind");
}

#[test]
fn an_index_that_lies_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("x.safetensors"), safetensors(&two())).unwrap();
    let index = |map: serde_json::Value| {
        let text = serde_json::json!({"metadata": {}, "weight_map": map}).to_string();
        fs::write(dir.path().join("model.safetensors.index.json"), text).unwrap();
        open(dir.path(), &mut |_, _| ())
    };
    let partly = index(serde_json::json!({"a": "x.safetensors"})).unwrap();
    assert_eq!((partly.tensors().count(), partly.problems[0].entry.as_str()), (1, "b"));
    let error = index(serde_json::json!({"c": "x.safetensors"})).expect_err("not there");
    assert!(error.to_string().contains("tensor c is not in it"), "{error}");
    let error = index(serde_json::json!({"a": "../x.safetensors"})).expect_err("outside");
    assert!(error.to_string().contains("outside of its folder"), "{error}");
    fs::write(dir.path().join("model.safetensors.index.json"), "{").unwrap();
    assert!(open(dir.path(), &mut |_, _| ()).is_err());
    fs::remove_file(dir.path().join("model.safetensors.index.json")).unwrap();
    fs::write(dir.path().join("y.safetensors"), safetensors(&two())).unwrap();
    let error = open(dir.path(), &mut |_, _| ()).expect_err("twice");
    assert!(error.to_string().contains("in another file as well"), "{error}");
}

#[test]
fn a_committed_step_is_not_overwritten_and_a_stale_generation_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store")).unwrap();
    let file = dir.path().join("in.safetensors");
    fs::write(&file, safetensors(&two())).unwrap();
    imported(&store, &file, 1, 2);
    let mut changed = two();
    changed.get_mut("b").unwrap().2[0] ^= 1;
    fs::write(&file, safetensors(&changed)).unwrap();
    let into = |step, generation, ranks| {
        let mut at = id(step);
        at.generation.0 = generation;
        let of = ImportTarget {
            job: &job(),
            id: at,
            ranks,
        };
        import(&store, &opened(&file), &of, &mut |_, _| ())
            .expect_err("refused")
            .to_string()
    };
    assert!(into(1, 1, 2).contains("nothing is overwritten"));
    assert!(into(2, 0, 2).contains("fenced"));
    assert!(into(2, 1, 0).contains("0 ranks"));
    assert!(!store.dir(&job(), id(2)).unwrap().exists());
}

#[test]
fn states_of_all_ranks_come_back_where_the_number_of_ranks_is_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store")).unwrap();
    let (_, first) = imported(&store, &common::fixture("two_ranks"), 1, 2);
    assert_eq!(first.indexes[0].state["trainer.epoch"], 3);
    let out = dir.path().join("out.safetensors");
    let of = ExportRequest::new(&out);
    export(&store, &first, &of, &mut |_, _| ()).unwrap();
    let (done, second) = imported(&store, &out, 2, 2);
    assert_eq!(done.problems, []);
    assert_eq!(second.indexes[0].state, first.indexes[0].state);
    let (done, third) = imported(&store, &out, 3, 3);
    assert_eq!(done.problems, [], "only rank 0 had a state");
    assert_eq!(third.indexes[0].state, first.indexes[0].state);
}

#[test]
fn states_of_another_number_of_ranks_stand_as_a_list() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store")).unwrap();
    let file = dir.path().join("in.safetensors");
    let header = serde_json::json!({
        "__metadata__": {"rankguard.states": "[{\"seed\": 1}, {\"seed\": 2}]"},
        "a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
    })
    .to_string();
    let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[7]].concat();
    fs::write(&file, bytes).unwrap();
    let (done, same) = imported(&store, &file, 1, 2);
    assert_eq!(
        (done.problems.len(), &same.indexes[1].state["seed"]),
        (0, &serde_json::json!(2))
    );
    let (done, other) = imported(&store, &file, 2, 3);
    assert_eq!(done.problems.len(), 1);
    assert_eq!(other.indexes[0].state["states"][1]["seed"], 2);
}

//! Content of a checkpoint, and differences to another.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;

use common::{Tensors, imported, safetensors};
use rankguard_checkpoint::format::Dtype;
use rankguard_checkpoint::{Checkpoint, Store};
use rankguard_checkpoint_exchange::diff::{CheckpointDiff, TensorChange, diff};
use rankguard_checkpoint_exchange::show::show;

fn floats(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

fn first() -> Tensors {
    BTreeMap::from([
        (
            "same".to_owned(),
            (Dtype::F32, vec![8, 2], floats((0..16).map(|nth| nth as f32))),
        ),
        (
            "moved".to_owned(),
            (Dtype::F32, vec![8], floats((0..8).map(|nth| nth as f32))),
        ),
        ("gone".to_owned(), (Dtype::U8, vec![1], vec![1])),
        ("bent".to_owned(), (Dtype::U8, vec![4], vec![1; 4])),
        ("typed".to_owned(), (Dtype::U8, vec![2], vec![1; 2])),
    ])
}

fn second() -> Tensors {
    let mut tensors = first();
    tensors.get_mut("moved").unwrap().2 = floats((0..8).map(|nth| if nth == 5 { 5.25 } else { nth as f32 }));
    tensors.remove("gone");
    tensors.get_mut("bent").unwrap().1 = vec![2, 2];
    tensors.get_mut("typed").unwrap().0 = Dtype::I8;
    tensors.insert("new".to_owned(), (Dtype::U8, vec![0], vec![]));
    tensors
}

struct Two {
    _dir: tempfile::TempDir,
    store: Store,
    first: Checkpoint,
    second: Checkpoint,
}

fn two(ranks: [u32; 2]) -> Two {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store")).unwrap();
    let [first, second] = [(1, first()), (2, second())].map(|(step, tensors)| {
        let file = dir.path().join(format!("{step}.safetensors"));
        fs::write(&file, safetensors(&tensors)).unwrap();
        imported(&store, &file, step, ranks[step as usize - 1]).1
    });
    Two {
        _dir: dir,
        store,
        first,
        second,
    }
}

fn changes(found: &CheckpointDiff) -> Vec<(&str, TensorChange)> {
    found
        .differences
        .iter()
        .map(|one| (one.name.as_str(), one.change))
        .collect()
}

#[test]
fn added_removed_bent_retyped_and_changed_tensors_are_told_at_any_number_of_ranks() {
    for ranks in [[2, 2], [1, 3]] {
        for values in [false, true] {
            let two = two(ranks);
            let found = diff(&two.store, &two.first, &two.second, values, &mut |_, _| ()).unwrap();
            let wanted = [
                ("bent", TensorChange::Reshaped),
                ("gone", TensorChange::Removed),
                ("moved", TensorChange::Changed),
                ("new", TensorChange::Added),
                ("typed", TensorChange::Retyped),
            ];
            assert_eq!((found.same, changes(&found).as_slice()), (1, wanted.as_slice()));
            let moved = &found.differences[2];
            let is_cut_alike = ranks == [2, 2];
            let chunks = is_cut_alike.then_some((2, 1));
            assert_eq!(moved.chunks.zip(moved.changed_chunks), chunks);
            let is_read = values || !is_cut_alike;
            assert_eq!(moved.changed_elements, is_read.then_some(1));
            assert_eq!(moved.max_abs, is_read.then_some(0.25));
        }
    }
}

#[test]
fn the_same_checkpoint_is_the_same() {
    let two = two([3, 3]);
    let found = diff(&two.store, &two.first, &two.first, true, &mut |_, _| ()).unwrap();
    assert_eq!((found.same, changes(&found), found.states.len()), (5, vec![], 0));
}

#[test]
fn a_checkpoint_is_shown_with_its_boxes_ranks_and_bytes() {
    let two = two([2, 2]);
    let shown = show(&two.first);
    assert_eq!(
        (shown.job.as_str(), shown.world_size, shown.tensor_bytes),
        ("demo", 2, 64 + 32 + 1 + 4 + 2)
    );
    let same = shown.tensors.iter().find(|tensor| tensor.name == "same").unwrap();
    assert_eq!(
        (same.boxes, same.ranks.as_slice(), same.bytes, same.held_bytes),
        (2, [0, 1].as_slice(), 64, 64)
    );
    assert_eq!(shown.ranks.len(), 2);
    let bytes: u64 = shown.origins.iter().map(|origin| origin.bytes).sum();
    assert_eq!(bytes, shown.tensor_bytes);
    assert_eq!(shown.dedupe_ratio, Some(1.0));
}

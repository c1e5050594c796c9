//! A checkpoint of W1 ranks loaded by W2 ranks returns the original bytes, for random boxes.

use proptest::prelude::*;
use rankguard_checkpoint_format::{CheckpointId, Dtype, PlanError, RangeCopy, ShardIndex, TensorBox, plan};
use rankguard_model::{Generation, JobId, Rank, Step};

/// Tensor with its bytes.
#[derive(Debug, Clone)]
struct Tensor {
    name: String,
    dtype: Dtype,
    shape: Vec<u64>,
    bytes: Vec<u8>,
}

/// Cut positions: each number selects a box, a dimension and a position.
type Cuts = Vec<(u32, u32, u32)>;

fn tensor() -> impl Strategy<Value = (Dtype, Vec<u64>)> {
    let dtype = prop_oneof![Just(Dtype::U8), Just(Dtype::Bf16), Just(Dtype::F32), Just(Dtype::F64)];
    (dtype, proptest::collection::vec(1u64..7, 0..4))
}

fn tensors() -> impl Strategy<Value = Vec<Tensor>> {
    proptest::collection::vec(tensor(), 1..4).prop_map(|kinds| {
        let mut next = 0u32;
        let fill = |(nth, (dtype, shape)): (usize, (Dtype, Vec<u64>))| {
            let name = format!("t{nth}");
            let size = TensorBox::whole(&name, dtype, shape.clone()).bytes().expect("small");
            // Neighbouring bytes differ, so that a misplaced byte is detected.
            let bytes = (0..size).map(|_| {
                next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (next >> 24) as u8
            });
            let bytes = bytes.collect();
            Tensor {
                name,
                dtype,
                shape,
                bytes,
            }
        };
        kinds.into_iter().enumerate().map(fill).collect()
    })
}

fn cuts() -> impl Strategy<Value = Cuts> {
    proptest::collection::vec(any::<(u32, u32, u32)>(), 0..12)
}

/// Cuts a tensor into disjoint boxes that cover it.
fn split(tensor: &Tensor, cuts: &Cuts) -> Vec<TensorBox> {
    let mut boxes = vec![TensorBox::whole(&tensor.name, tensor.dtype, tensor.shape.clone())];
    for (which, dim, place) in cuts {
        if tensor.shape.is_empty() {
            break;
        }
        let which = *which as usize % boxes.len();
        let dim = *dim as usize % tensor.shape.len();
        let at = u64::from(*place) % (boxes[which].shape[dim] + 1);
        let mut right = boxes[which].clone();
        boxes[which].shape[dim] = at;
        right.offset[dim] += at;
        right.shape[dim] -= at;
        boxes.push(right);
    }
    boxes
}

/// Returns the bytes of a box, element by element: slow and obvious.
fn cut_out(tensor: &Tensor, boxed: &TensorBox) -> Vec<u8> {
    let size = tensor.dtype.bytes() as usize;
    let mut out = Vec::new();
    let count: u64 = boxed.shape.iter().product();
    for nth in 0..count {
        let mut rest = nth;
        let mut element = 0;
        let mut stride = 1;
        for dim in (0..boxed.shape.len()).rev() {
            element += (boxed.offset[dim] + rest % boxed.shape[dim]) * stride;
            rest /= boxed.shape[dim];
            stride *= tensor.shape[dim];
        }
        let at = element as usize * size;
        out.extend_from_slice(&tensor.bytes[at..at + size]);
    }
    out
}

/// Distributes boxes over ranks; returns the index and image of each rank.
fn deal(tensors: &[Tensor], boxes: &[TensorBox], world: u32) -> Vec<(ShardIndex, Vec<u8>)> {
    let shard = |rank: u32| {
        let mine = boxes.iter().skip(rank as usize).step_by(world as usize).cloned();
        let (entries, end) = ShardIndex::lay_out(mine);
        let mut image = vec![0; end.expect("small") as usize];
        for entry in &entries {
            let tensor = tensors.iter().find(|tensor| tensor.name == entry.boxed.name);
            let bytes = cut_out(tensor.expect("boxes are cut from these tensors"), &entry.boxed);
            image[entry.at as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        let id = CheckpointId {
            step: Step(1),
            generation: Generation(1),
        };
        let mut index = ShardIndex {
            rank: Rank(rank),
            world_size: world,
            image_bytes: image.len() as u64,
            tensors: entries,
            ..ShardIndex::new(&JobId::from("demo"), id)
        };
        index.digest_image(&image);
        index.check().expect("a sound index");
        (index, image)
    };
    (0..world).map(shard).collect()
}

/// Executes a plan; fails if a destination byte is written twice or not at all.
fn carry_out(copies: &[RangeCopy], shards: &[(ShardIndex, Vec<u8>)], length: usize) -> Vec<u8> {
    let mut out = vec![None; length];
    for copy in copies {
        let (_, image) = &shards[copy.shard_rank.0 as usize];
        for nth in 0..copy.bytes as usize {
            let place = &mut out[copy.dest_at as usize + nth];
            assert_eq!(*place, None, "a byte has two sources");
            *place = Some(image[copy.source_at as usize + nth]);
        }
    }
    out.into_iter()
        .map(|byte| byte.expect("a byte has no source"))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn rg_2_any_split_loads_as_any_other_split(
        tensors in tensors(),
        (stored_cuts, wanted_cuts) in (cuts(), cuts()),
        (copies_of, extra_cuts) in (0usize..3, cuts()),
        world in 1u32..7,
    ) {
        let mut stored: Vec<TensorBox> = tensors.iter().flat_map(|tensor| split(tensor, &stored_cuts)).collect();
        // Replicas of some boxes, and parts that overlap them with other boundaries.
        let again: Vec<TensorBox> = stored.iter().take(copies_of * 2).cloned().collect();
        stored.extend(again);
        stored.extend(split(&tensors[0], &extra_cuts).into_iter().take(copies_of));
        let shards = deal(&tensors, &stored, world);
        let indexes: Vec<ShardIndex> = shards.iter().map(|(index, _)| index.clone()).collect();

        let wanted: Vec<TensorBox> = tensors.iter().flat_map(|tensor| split(tensor, &wanted_cuts)).collect();
        let expected: Vec<u8> = wanted
            .iter()
            .flat_map(|want| cut_out(tensors.iter().find(|tensor| tensor.name == want.name).expect("own"), want))
            .collect();
        let copies = plan(&wanted, &indexes).expect("everything is stored");
        prop_assert_eq!(carry_out(&copies, &shards, expected.len()), expected);
    }

    #[test]
    fn rg_2_a_part_that_no_shard_has_is_a_hole_of_that_tensor(
        tensors in tensors(),
        stored_cuts in cuts(),
        (missing, world) in (any::<u32>(), 1u32..7),
    ) {
        let mut stored: Vec<TensorBox> = tensors.iter().flat_map(|tensor| split(tensor, &stored_cuts)).collect();
        let gone = stored.remove(missing as usize % stored.len());
        prop_assume!(gone.bytes() != Some(0));
        let indexes: Vec<ShardIndex> = deal(&tensors, &stored, world).into_iter().map(|(index, _)| index).collect();
        let tensor = tensors.iter().find(|tensor| tensor.name == gone.name).expect("own");
        let wanted = TensorBox::whole(&tensor.name, tensor.dtype, tensor.shape.clone());
        match plan(&[wanted], &indexes) {
            Err(PlanError::Hole { tensor, offset, .. }) => {
                prop_assert_eq!(&tensor, &gone.name);
                let inside = (0..offset.len()).all(|dim| (gone.offset[dim]..gone.offset[dim] + gone.shape[dim]).contains(&offset[dim]));
                prop_assert!(inside, "the hole begins at {:?}, the missing box at {:?}", offset, gone.offset);
            }
            Err(PlanError::Absent { tensor }) => prop_assert_eq!(tensor, gone.name),
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn absurd_wanted_boxes_never_panic(
        numbers in proptest::collection::vec(prop_oneof![0u64..8, Just(u64::MAX), any::<u64>()], 6),
    ) {
        let tensors = [Tensor {
            name: "t0".to_owned(),
            dtype: Dtype::U8,
            shape: vec![4, 4],
            bytes: vec![7; 16],
        }];
        let whole = split(&tensors[0], &Vec::new());
        let indexes: Vec<ShardIndex> = deal(&tensors, &whole, 1).into_iter().map(|(index, _)| index).collect();
        let wanted = TensorBox {
            name: "t0".to_owned(),
            dtype: Dtype::U8,
            global_shape: numbers[..2].to_vec(),
            offset: numbers[2..4].to_vec(),
            shape: numbers[4..].to_vec(),
        };
        let _ = plan(&[wanted.clone(), wanted.clone()], &indexes);
        // More boxes than are compared one by one.
        let sound = split(&tensors[0], &Vec::new()).remove(0);
        let many: Vec<TensorBox> = std::iter::repeat_n(sound, 5).chain([wanted]).collect();
        let _ = plan(&many, &indexes);
    }
}

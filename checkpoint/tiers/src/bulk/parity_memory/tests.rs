//! Sums of images that arrive one after the other.

use rankguard_checkpoint::format::{Dtype, TensorBox};
use rankguard_model::{Generation, Step};

use super::*;

fn id() -> CheckpointId {
    CheckpointId {
        step: Step(7),
        generation: Generation(1),
    }
}

/// An image of two tensors with a gap between them, and its index.
fn image(rank: u32, rows: u64) -> (ShardIndex, Vec<u8>) {
    let mut index = ShardIndex::new(&JobId::from("train"), id());
    let boxes = [
        TensorBox::whole("a", Dtype::U8, vec![rows]),
        TensorBox::whole("b", Dtype::U8, vec![100]),
    ];
    let (tensors, bytes) = ShardIndex::lay_out(boxes);
    (index.rank, index.world_size, index.chunk_bytes) = (Rank(rank), 8, 128);
    (index.tensors, index.image_bytes) = (tensors, bytes.expect("short"));
    let mut image: Vec<u8> = (0..index.image_bytes)
        .map(|at| (at * 31 + u64::from(rank) * 7) as u8)
        .collect();
    image[rows as usize..index.tensors[1].at as usize].fill(0);
    index.digest_image(&image);
    (index, image)
}

fn share(index: &ShardIndex, nth: u32) -> ReplicaName {
    let what = ReplicaKind::Share(nth);
    ReplicaName {
        what,
        ..ReplicaName::image(index)
    }
}

/// The chunks of an image without the gaps between them.
fn piece(index: &ShardIndex, image: &[u8]) -> Vec<u8> {
    let chunking = index.chunking();
    let chunks = chunking
        .ranges()
        .map(|range| &image[range.start as usize..range.end as usize]);
    chunks.collect::<Vec<_>>().concat()
}

fn put(
    sums: &ParityMemory,
    lane: &RankLane,
    nth: u32,
    (index, image): &(ShardIndex, Vec<u8>),
) -> Result<(), TransferRefusal> {
    let name = share(index, nth);
    assert_eq!(sums.offer(&name, nth, lane, index.clone())?, [(0, 1)]);
    sums.add(&name, 0, &piece(index, image))?;
    assert_eq!(sums.seal(&name), Ok(index.root));
    Ok(())
}

#[test]
fn images_that_come_one_after_the_other_add_up_to_the_parity_of_all() {
    let images = [image(1, 200), image(3, 77), image(4, 333)];
    for parities in [1, 2, 3] {
        let sums = ParityMemory::new(Arc::new(ReplicaMemory::new(1 << 20)));
        let ranks = vec![Rank(1), Rank(3), Rank(4)];
        let lane = RankLane { ranks, parities };
        let longest = 512;
        let padded: Vec<Vec<u8>> = images
            .iter()
            .map(|(_, image)| [&image[..], &vec![0; longest - image.len()]].concat())
            .collect();
        let expected = lane.code().expect("a code").encode(&padded).expect("of one length");
        for nth in 0..parities {
            for (count, image) in images.iter().enumerate() {
                assert_eq!(
                    sums.whole(&JobId::from("train"), id()).len(),
                    nth as usize,
                    "{count} of 3"
                );
                put(&sums, &lane, nth, image).expect("there is room");
            }
            let views = sums.whole(&JobId::from("train"), id());
            let name = views[nth as usize].name(&JobId::from("train"), id()).expect("ranks");
            let read = sums.read(&name, &[(0, 1)], 1 << 20).expect("it is whole");
            assert_eq!(read.as_ref(), Ok(&expected[nth as usize]), "parity {nth} of {parities}");
            assert_eq!(views[nth as usize].roots[1], images[1].0.root.to_string());
        }
        sums.release(&JobId::from("train"), |_| true);
        assert_eq!(sums.shelf.bytes(), 0, "all room is given back");
    }
}

#[test]
fn nothing_is_added_twice_nor_damaged_nor_beyond_the_limit() {
    let sums = ParityMemory::new(Arc::new(ReplicaMemory::new(512)));
    let lane = RankLane {
        ranks: vec![Rank(0), Rank(1)],
        parities: 1,
    };
    let (index, bytes) = image(0, 200);
    let name = share(&index, 0);
    assert_eq!(
        sums.add(&name, 0, &bytes),
        Err(TransferRefusal::Unknown),
        "nothing was offered"
    );
    sums.offer(&name, 0, &lane, index.clone()).expect("there is room");
    let mut damaged = piece(&index, &bytes);
    damaged[9] ^= 1;
    assert!(matches!(
        sums.add(&name, 0, &damaged),
        Err(TransferRefusal::Damaged { chunk: 0, .. })
    ));
    assert_eq!(sums.seal(&name), Err(TransferRefusal::Incomplete { missing: 1 }));
    for _ in 0..2 {
        sums.add(&name, 0, &piece(&index, &bytes))
            .expect("it is what the index says");
    }
    assert_eq!(sums.offer(&name, 0, &lane, index.clone()), Ok(Vec::new()));
    sums.seal(&name).expect("all of it is there");
    let other = image(1, 200);
    put(&sums, &lane, 0, &other).expect("a sum takes no more room than one image");
    let view = &sums.whole(&index.job, id())[0];
    let sum = sums.read(&view.name(&index.job, id()).expect("ranks"), &[(0, 1)], 1 << 20);
    let both: Vec<u8> = bytes.iter().zip(&other.1).map(|(one, other)| one ^ other).collect();
    assert_eq!(&sum.expect("whole").expect("there")[..both.len()], both);
    let far = image(5, 2000);
    let lane = RankLane {
        ranks: vec![Rank(5), Rank(6)],
        parities: 1,
    };
    let refused = sums.offer(&share(&far.0, 0), 0, &lane, far.0.clone());
    assert!(matches!(refused, Err(TransferRefusal::Full { .. })), "{refused:?}");
    assert!(matches!(
        sums.offer(&share(&index, 0), 0, &lane, index),
        Err(TransferRefusal::NoParity)
    ));
}

//! Lost images are rebuilt from sums that are whole, damaged, of another step, or too few.

use rankguard_checkpoint::format::{Dtype, TensorBox};
use rankguard_model::Step;

use super::super::{ReplicaKind, ReplicaMemory, ReplicaName};
use super::*;

fn id(step: u64) -> CheckpointId {
    CheckpointId {
        step: Step(step),
        generation: Generation(1),
    }
}

fn image(rank: u32, step: u64) -> (ShardIndex, Vec<u8>) {
    let mut index = ShardIndex::new(&JobId::from("train"), id(step));
    let (tensors, bytes) = ShardIndex::lay_out([TensorBox::whole("a", Dtype::U8, vec![300 + u64::from(rank)])]);
    (index.rank, index.world_size, index.chunk_bytes) = (Rank(rank), 3, 128);
    (index.tensors, index.image_bytes) = (tensors, bytes.expect("short"));
    let image: Vec<u8> = (0..index.image_bytes)
        .map(|at| (at * 31 + u64::from(rank) * 7 + step) as u8)
        .collect();
    index.digest_image(&image);
    (index, image)
}

fn lane(ranks: &[u32], parities: u32) -> RankLane {
    RankLane {
        ranks: ranks.iter().copied().map(Rank).collect(),
        parities,
    }
}

/// Holder of the parity with this number over these images.
fn kept(lane: &RankLane, nth: u32, images: &[&(ShardIndex, Vec<u8>)]) -> Arc<ParityMemory> {
    let sums = ParityMemory::new(Arc::new(ReplicaMemory::new(1 << 20)));
    for (index, image) in images {
        let name = ReplicaName {
            what: ReplicaKind::Share(nth),
            ..ReplicaName::image(index)
        };
        sums.offer(&name, nth, lane, index.clone()).expect("there is room");
        sums.add(&name, 0, image).expect("it is what the index says");
        sums.seal(&name).expect("all of it is there");
    }
    Arc::new(sums)
}

/// Surviving images.
struct Left(Vec<(ShardIndex, Vec<u8>)>);

impl ChunkSource for Left {
    fn tier(&self) -> SourceTier {
        SourceTier::Arena
    }

    fn chunk(&self, id: &ChunkId) -> Result<Option<Vec<u8>>, ChunkError> {
        let found = self
            .0
            .iter()
            .find(|(index, _)| (index.rank, index.id()) == (id.rank, id.checkpoint));
        let part = |image: &Vec<u8>| image[id.at as usize..][..id.bytes() as usize].to_vec();
        Ok(found.map(|(_, image)| part(image)))
    }
}

fn rebuilt(
    runtime: &tokio::runtime::Runtime,
    all: &[(ShardIndex, Vec<u8>)],
    left: &[u32],
    holders: &[Arc<ParityMemory>],
    rank: u32,
) -> Result<Vec<u8>, String> {
    let indexes: Vec<ShardIndex> = all.iter().map(|(index, _)| index.clone()).collect();
    let survivors = Left(
        all.iter()
            .filter(|(index, _)| left.contains(&index.rank.0))
            .cloned()
            .collect(),
    );
    let holders = holders.iter().cloned().map(SumHolder::Here).collect();
    let source = RebuildSource::new(
        &indexes,
        vec![&survivors],
        holders,
        Generation(2),
        runtime.handle().clone(),
    );
    let source = source.expect("there are images");
    source.image(Rank(rank)).map_err(|problem| problem.to_string())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().expect("a runtime")
}

#[test]
fn rg_2_a_damaged_sum_is_left_out_for_another_and_never_believed() {
    let runtime = runtime();
    let all = [0, 1, 2].map(|rank| image(rank, 7));
    let lane = lane(&[0, 1, 2], 2);
    let images: Vec<_> = all.iter().collect();
    let holders = [0, 1].map(|nth| kept(&lane, nth, &images));
    let lost = |left: &[u32], rank: u32| rebuilt(&runtime, &all, left, &holders, rank);
    assert_eq!(lost(&[0, 1], 2).as_ref(), Ok(&all[2].1));
    for rank in [1, 2] {
        assert_eq!(
            lost(&[0], rank).as_ref(),
            Ok(&all[rank as usize].1),
            "two are lost, and two sums are there"
        );
    }
    assert!(
        lost(&[], 0)
            .expect_err("three are lost")
            .contains("and 2 parities are there")
    );
    // The first holder's parity is damaged; the other suffices for one lost image and not for two.
    holders[0].damage();
    assert_eq!(lost(&[0, 1], 2).as_ref(), Ok(&all[2].1));
    assert!(
        lost(&[0], 2)
            .expect_err("one sum is bad")
            .contains("does not come back as it was")
    );
    holders[1].damage();
    assert!(lost(&[0, 1], 2).is_err());
}

#[test]
fn rg_2_a_sum_of_another_step_or_of_other_images_is_none() {
    let runtime = runtime();
    let all = [0, 1, 2].map(|rank| image(rank, 8));
    let lane = lane(&[0, 1, 2], 1);
    let before = [0, 1, 2].map(|rank| image(rank, 7));
    let stale = kept(&lane, 0, &before.iter().collect::<Vec<_>>());
    let torn = kept(&lane, 0, &[&all[0], &all[1]]);
    let none = rebuilt(&runtime, &all, &[0, 1], &[stale, torn], 2);
    assert!(none.is_err(), "{none:?}");
    // Same step and generation, but one rank has sealed other bytes: its root is not the committed one.
    let mut other = image(2, 9);
    other.0.step = Step(8);
    let foreign = kept(&lane, 0, &[&all[0], &all[1], &other]);
    assert!(rebuilt(&runtime, &all, &[0, 1], &[foreign], 2).is_err());
}

#[test]
fn a_lane_of_one_is_a_copy_and_images_of_other_lanes_do_not_count() {
    let runtime = runtime();
    let all = [0, 1, 2].map(|rank| image(rank, 7));
    let alone = kept(&lane(&[2], 1), 0, &[&all[2]]);
    assert_eq!(
        rebuilt(&runtime, &all, &[], std::slice::from_ref(&alone), 2).as_ref(),
        Ok(&all[2].1)
    );
    assert!(rebuilt(&runtime, &all, &[1, 2], &[alone], 0).is_err());
}

//! Writes images of an ended generation to the store in place of a rank or agent that is gone.
//!
//! The controller orders this between two generations, when no rank of the old one can act here any more, and every
//! order carries the generation that acts now (RG-3). Images that are already in the store are not written again;
//! every chunk of the others is compared with its index during the write, as for any shard. The result is found in the
//! store: the reply only reports that the work is over.

use std::sync::Arc;

use rankguard_checkpoint::arena::SlotState;
use rankguard_checkpoint::format::{CheckpointId, ShardIndex};
use rankguard_checkpoint::source::{ArenaSource, ChunkSource};
use rankguard_checkpoint::{ImageSource, Store};
use rankguard_checkpoint_tiers::bulk::{RebuildSource, ReplicaKind};
use rankguard_model::{Entity, EvidenceBody, EvidenceSource, FinishOrder, Generation, ImageLocation, with_causes};

use super::CheckpointService;
use super::arenas::RankArena;
use crate::pending_evidence::PendingEvidence;

/// Result for the images of one place.
#[derive(Debug, Default)]
struct FinishResult {
    shards: u32,
    failed: Option<String>,
}

impl FinishResult {
    fn note(&mut self, ended: Result<(), String>) {
        match ended {
            Ok(()) => self.shards += 1,
            Err(problem) => self.failed = self.failed.take().or(Some(problem)),
        }
    }
}

impl CheckpointService {
    /// Writes the requested images to the store, on a blocking thread.
    pub(crate) fn finish(self: &Arc<Self>, wanted: FinishOrder) {
        let all = self.clone();
        self.runtime.spawn_blocking(move || {
            let store = Store::at(&wanted.store);
            let done = match wanted.from {
                ImageLocation::Arenas => all.finish_arenas(&wanted, &store),
                ImageLocation::Copies => all.finish_copies(&wanted, &store),
                ImageLocation::Parity => all.finish_parity(&wanted, &store),
            };
            let body = EvidenceBody::ShardsFinished {
                job: wanted.job,
                generation: wanted.generation,
                from: wanted.from,
                shards: done.shards,
                failed: done.failed,
            };
            let node = all.node.clone();
            let sighting = PendingEvidence::now(EvidenceSource::Checkpoint, Entity::Node { node }, body);
            all.intake.push(sighting.urgent());
        });
    }

    fn finish_arenas(&self, wanted: &FinishOrder, store: &Store) -> FinishResult {
        let mut done = FinishResult::default();
        for place in self.arenas.of(&wanted.job) {
            if place.arena.geometry().is_windowed() {
                // Sealed images are already being streamed; taking the lock waits until the writer has finished.
                drop(place.turn.lock().expect("no writer panics"));
            }
            for slot in 0..place.arena.geometry().slots {
                let index = place.arena.sealed(slot).ok().map(|image| image.index().clone());
                if let Some(index) = index.filter(|index| is_wanted(wanted, index)) {
                    done.note(finish_slot(&place, slot, &index, wanted.of, store));
                }
            }
        }
        done
    }

    fn finish_copies(&self, wanted: &FinishOrder, store: &Store) -> FinishResult {
        let mut done = FinishResult::default();
        let names = self.shelf.names(&wanted.job);
        for name in names.iter().filter(|name| name.what == ReplicaKind::Image) {
            let held = self.shelf.sealed_replica(name);
            if let Some(held) = held.filter(|held| is_wanted(wanted, held.index())) {
                done.note(adopt(store, held.index(), &held));
            }
        }
        done
    }

    /// Rebuilds images that no tier holds any more from the rest of their lanes and the parity retained here.
    fn finish_parity(&self, wanted: &FinishOrder, store: &Store) -> FinishResult {
        let mut done = FinishResult::default();
        let later = |id: CheckpointId| id.generation == wanted.of && wanted.after.is_none_or(|after| id.step > after);
        for lane in self.sums.lanes(&wanted.job, later) {
            let indexes: Vec<ShardIndex> = lane.iter().map(|index| (**index).clone()).collect();
            let lost = |index: &&ShardIndex| !is_there(store, index);
            for index in indexes.iter().filter(lost) {
                done.note(self.rebuild(wanted, &indexes, index, store));
            }
        }
        done
    }

    fn rebuild(
        &self,
        wanted: &FinishOrder,
        indexes: &[ShardIndex],
        index: &ShardIndex,
        store: &Store,
    ) -> Result<(), String> {
        let memory = self.admit(index.image_bytes, 1);
        memory.map_err(|problem| with_causes(&problem))?;
        let places = self.arenas.of(&wanted.job);
        let here = ArenaSource::new(places.iter().map(|place| &*place.arena));
        let peers = self.peers(&wanted.peers, wanted.generation);
        let mut survivors: Vec<&dyn ChunkSource> = vec![&here, &*self.shelf, store];
        survivors.extend(peers.iter().map(|peer| peer as &dyn ChunkSource));
        let holders = self.sum_holders(&wanted.peers);
        let source = RebuildSource::new(indexes, survivors, holders, wanted.generation, self.runtime.clone());
        let source = source.ok_or("the lane has no images")?;
        let image = source.image(index.rank).map_err(|problem| problem.to_string())?;
        adopt(store, index, &image.as_slice())
    }
}

fn is_wanted(wanted: &FinishOrder, index: &ShardIndex) -> bool {
    let later = wanted.after.is_none_or(|after| index.step > after);
    later && (&index.job, index.generation) == (&wanted.job, wanted.of)
}

fn is_there(store: &Store, index: &ShardIndex) -> bool {
    store.uncommitted_shard(&index.job, index.id(), index.rank).is_some()
}

/// Writes the image of a slot, after any write of it that is already running.
fn finish_slot(
    place: &RankArena,
    slot: u32,
    index: &ShardIndex,
    generation: Generation,
    store: &Store,
) -> Result<(), String> {
    if is_there(store, index) {
        return Ok(());
    }
    let _turn = place.turn.lock().expect("no writer panics");
    if is_there(store, index) {
        return Ok(());
    }
    // A durable slot may be overwritten, but no rank is left to do that before this order is answered.
    let durable = matches!(place.arena.slot(slot), Ok((SlotState::Durable, of)) if of == generation);
    let begun = place.arena.begin_write(slot, generation);
    if !durable && !begun.map_err(|problem| with_causes(&problem))? {
        return Err(format!(
            "the image of step {} gave way before it was written",
            index.step
        ));
    }
    let image = place.arena.sealed(slot).map_err(|problem| with_causes(&problem))?;
    let written = if image.index() == index {
        store
            .write_shard(index, &image)
            .map_err(|problem| with_causes(&problem))
    } else {
        Err(format!("the image of step {} gave way to another", index.step))
    };
    // Neither outcome changes the state of an image that was durable before.
    let _ = match &written {
        Ok(_) => place.arena.make_durable(slot, generation).map(drop),
        Err(_) => place.arena.leave(slot, generation),
    };
    written.map(drop)
}

/// Writes an image of another node's rank; the agent of that node may be writing it at the same time.
fn adopt(store: &Store, index: &ShardIndex, image: &dyn ImageSource) -> Result<(), String> {
    if is_there(store, index) {
        return Ok(());
    }
    let adopted = store.adopt_shard(index, image);
    adopted.map(drop).map_err(|problem| with_causes(&problem))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rankguard_checkpoint::arena::SaveRequest;
    use rankguard_checkpoint::format::{Dtype, TensorBox};
    use rankguard_checkpoint_tiers::bulk::{BulkPeer, ClientLimits, RankLane, ReplicaStorage};
    use rankguard_checkpoint_tiers::cap::BandwidthCap;
    use rankguard_identity::{ExpectedPeer, PeerTransport};
    use rankguard_model::{JobId, NodeId, Rank, RankSlot, Step};

    use super::*;
    use crate::checkpoint::arenas::ArenaRequest;
    use crate::intake::EvidenceIntake;
    use crate::roster::RankRoster;
    use crate::settings::AgentSettings;

    const ONE: Generation = Generation(1);

    fn job() -> JobId {
        JobId::from("train")
    }

    fn agent() -> Arc<CheckpointService> {
        let mut settings = AgentSettings::new(NodeId::from("n1"), "", "/nonexistent");
        settings.images.kept_for_others = Some(1 << 20);
        let node = settings.node.clone();
        let runtime = tokio::runtime::Handle::current();
        CheckpointService::new(
            &settings,
            &EvidenceIntake::new(node.clone()),
            &RankRoster::new(node),
            runtime,
        )
    }

    fn wanted(store: &Path, from: ImageLocation, after: Option<u64>) -> FinishOrder {
        FinishOrder {
            job: job(),
            generation: Generation(2),
            of: ONE,
            after: after.map(Step),
            store: store.display().to_string(),
            from,
            peers: Vec::new(),
        }
    }

    fn state(rank: u32, step: u64) -> Vec<u8> {
        (0..200_u64)
            .map(|at| (at * 7 + u64::from(rank) * 31 + step) as u8)
            .collect()
    }

    /// A rank seals an image in a slot of its arena.
    fn seal(all: &CheckpointService, rank: u32, step: u64, generation: Generation) -> ShardIndex {
        let job = job();
        let ranks = [RankSlot {
            rank: Rank(rank),
            local_rank: rank,
        }];
        let asked = ArenaRequest {
            job: &job,
            generation,
            local_rank: rank,
            ranks: &ranks,
            image_bytes: 4096,
            headroom_bytes: 0,
            meta_bytes: 0,
            slots: 3,
            window: None,
        };
        let place = all
            .arenas
            .arena_for(asked, |_| Ok(()))
            .expect("memory for a small arena");
        let of = SaveRequest::new(&job, Step(step), generation, Rank(rank), 3);
        let slot = place.arena.empty_slots()[0];
        let tensor = TensorBox::whole("w", Dtype::U8, vec![200]);
        let bytes = state(rank, step);
        let filled = place
            .arena
            .fill(slot, &of, &[(tensor, &bytes)], &serde_json::Value::Null);
        filled.expect("the slot is empty");
        place.arena.sealed(slot).expect("sealed").index().clone()
    }

    fn stands(store: &Path, rank: u32, step: u64) -> bool {
        let id = CheckpointId {
            step: Step(step),
            generation: ONE,
        };
        Store::at(store).uncommitted_shard(&job(), id, Rank(rank)).is_some()
    }

    async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        tokio::task::spawn_blocking(work).await.expect("no panic")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rg_3_images_of_the_last_generation_come_to_the_store_and_those_of_no_other() {
        let all = agent();
        let store = tempfile::tempdir().expect("a folder");
        let folder = store.path().to_owned();
        blocking(move || {
            let store = Store::open(&folder).expect("a store");
            for (step, generation) in [(10, Generation(0)), (20, ONE), (30, ONE)] {
                seal(&all, 0, step, generation);
            }
            all.fence(&job(), Generation(2));
            let done = all.finish_arenas(&wanted(&folder, ImageLocation::Arenas, Some(20)), &store);
            assert_eq!((done.shards, done.failed), (1, None));
            assert!(stands(&folder, 0, 30) && !stands(&folder, 0, 20));
            let again = all.finish_arenas(&wanted(&folder, ImageLocation::Arenas, None), &store);
            assert_eq!((again.shards, again.failed), (2, None), "one was there already");
            let left = store
                .uncommitted_shards_of(&job(), ONE, None)
                .expect("the store can be read");
            assert_eq!(left.len(), 2);
            assert!(left.iter().all(|seal| seal.world_size == 3));
            assert!(
                store
                    .uncommitted_shards_of(&job(), Generation(0), None)
                    .expect("read")
                    .is_empty()
            );
        })
        .await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rg_2_an_image_that_was_scribbled_over_is_refused_and_nothing_of_it_stands_in_the_store() {
        let all = agent();
        let store = tempfile::tempdir().expect("a folder");
        let folder = store.path().to_owned();
        blocking(move || {
            let store = Store::open(&folder).expect("a store");
            let index = seal(&all, 0, 20, ONE);
            // The rank overwrites its sealed image: the arena is mapped by the rank, too.
            let place = all.arenas.of(&job()).remove(0);
            let job = job();
            let of = SaveRequest::new(&job, Step(20), ONE, Rank(0), 3);
            place.arena.release(0).expect("slot 0");
            let tensor = TensorBox::whole("w", Dtype::U8, vec![200]);
            let other = [9; 200];
            place
                .arena
                .fill(0, &of, &[(tensor, &other)], &serde_json::Value::Null)
                .expect("the slot is empty");
            let refused = finish_slot(&place, 0, &index, ONE, &store).expect_err("another image");
            assert!(refused.contains("gave way"), "{refused}");
            assert!(!stands(&folder, 0, 20));
            assert!(
                adopt(&store, &index, &[9_u8; 4096].as_slice()).is_err(),
                "bytes that are not of this index"
            );
            assert!(!stands(&folder, 0, 20));
        })
        .await;
    }

    /// A copy of another node's image, and an image that exists only in a parity sum.
    #[tokio::test(flavor = "multi_thread")]
    async fn images_of_a_lost_node_come_to_the_store_out_of_a_copy_and_out_of_parity() {
        let all = agent();
        let elsewhere = agent();
        let store = tempfile::tempdir().expect("a folder");
        let server = all.serve([127, 0, 0, 1].into()).await.expect("it listens");
        let network = PeerTransport::loopback();
        let expected = ExpectedPeer::Agent(NodeId::from("n1"));
        let cap = Arc::new(BandwidthCap::none());
        let peer = BulkPeer::new(server.address(), expected, &network, ClientLimits::default(), cap).expect("a peer");
        let peer = Arc::new(peer);
        let lane = RankLane {
            ranks: [0, 1, 2].map(Rank).to_vec(),
            parities: 1,
        };
        for rank in 0..3 {
            // Ranks 0 and 1 are alive, rank 2 is gone with its node; of rank 1 there is no copy.
            let home = if rank == 2 { &elsewhere } else { &all };
            for (step, of_sum) in [(20, true), (40, rank < 2)] {
                let index = seal(home, rank, step, ONE);
                let image: Arc<dyn ImageSource + Send + Sync> = Arc::new(Bytes(home.clone(), index.clone()));
                if of_sum {
                    let keep = ReplicaStorage::Sum(lane.clone());
                    let pushed = peer.push(ReplicaKind::Share(0), &index, image.clone(), keep).await;
                    pushed.expect("it takes shares");
                }
                if rank == 2 && step == 40 {
                    peer.push(ReplicaKind::Image, &index, image, ReplicaStorage::Memory)
                        .await
                        .expect("it takes copies");
                }
            }
        }
        drop(elsewhere);
        let folder = store.path().to_owned();
        blocking(move || {
            let store = Store::open(&folder).expect("a store");
            let own = all.finish_arenas(&wanted(&folder, ImageLocation::Arenas, None), &store);
            assert_eq!((own.shards, own.failed), (4, None));
            let copied = all.finish_copies(&wanted(&folder, ImageLocation::Copies, None), &store);
            assert_eq!((copied.shards, copied.failed), (1, None));
            assert!(stands(&folder, 2, 40) && !stands(&folder, 2, 20));
            // The sum of step 40 lacks a share, so it cannot be used; the sum of step 20 does not cover that step.
            let rebuilt = all.finish_parity(&wanted(&folder, ImageLocation::Parity, None), &store);
            assert_eq!((rebuilt.shards, &rebuilt.failed), (1, &None));
            assert!((0..3).all(|rank| stands(&folder, rank, 20)), "{rebuilt:?}");
            // Two are lost, and there is one parity.
            let other = tempfile::tempdir().expect("a folder");
            let empty = Store::open(other.path()).expect("a store");
            for place in all.arenas.of(&job()) {
                if place
                    .arena
                    .sealed_images()
                    .iter()
                    .any(|image| image.index().rank == Rank(1))
                {
                    (0..3).for_each(|slot| place.arena.release(slot).expect("a slot"));
                }
            }
            let lost = all.finish_parity(&wanted(other.path(), ImageLocation::Parity, None), &empty);
            let problem = lost.failed.expect("two images cannot come out of one parity");
            assert!(problem.contains("are lost, and 1 parities are there"), "{problem}");
        })
        .await;
    }

    /// The image of an arena, as a peer that copies it reads it.
    struct Bytes(Arc<CheckpointService>, ShardIndex);

    impl ImageSource for Bytes {
        fn read_at(&self, at: u64, out: &mut [u8]) -> std::io::Result<()> {
            for place in self.0.arenas.of(&self.1.job) {
                for image in place.arena.sealed_images() {
                    if image.index() == &self.1 {
                        return image.read_at(at, out);
                    }
                }
            }
            Err(std::io::ErrorKind::NotFound.into())
        }
    }
}
